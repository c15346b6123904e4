package loop

import "time"

// pace is the ticker of the control loop's turns, whose period changes.
type pace struct {
	*time.Ticker
	interval time.Duration
	// longest is the longest period: short once the classifiers cannot wake the loop.
	longest time.Duration
	// due is the time of the next turn.
	due time.Time
}

// newPace returns a ticker whose first turn is due after interval.
func newPace(now time.Time, interval time.Duration) *pace {
	return &pace{Ticker: time.NewTicker(interval), interval: interval, longest: restInterval, due: now.Add(interval)}
}

// turn notes a turn, whose tick was at now. The next is due after interval, or the longest period.
func (p *pace) turn(now time.Time, interval time.Duration) {
	interval = min(interval, p.longest)
	p.due = now.Add(interval)
	if interval != p.interval {
		p.interval = interval
		p.Reset(interval)
	}
}

// hasten lets no more than wakeInterval pass until the next turn. A turn that is due sooner stays where it is.
func (p *pace) hasten(now time.Time) {
	if soon := now.Add(wakeInterval); soon.Before(p.due) {
		p.due, p.interval = soon, wakeInterval
		p.Reset(wakeInterval)
	}
}
