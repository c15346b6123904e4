package agent

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/demand"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/sched"
)

// The control loop's period: while who may send how much is changing or in
// doubt, while that stands, and while nothing is sent at all. To wake up costs
// more than what is done then.
const (
	changingInterval = 10 * time.Millisecond
	settledInterval  = 30 * time.Millisecond
	idleInterval     = 40 * time.Millisecond
	// idleAfter is how long nothing has to be sent for that.
	idleAfter = time.Second
	// statsInterval is the period of the counters that people look at, and
	// statsIntervalPerShare the least of it: to read them takes longer the more
	// there are.
	statsInterval         = 250 * time.Millisecond
	statsIntervalPerShare = time.Millisecond
)

var errClassesGone = errors.New("classes are missing: somebody changed the uplink's queueing")

// control is one turn of the control loop: it looks at who is sending and
// adjusts what everybody may send. It returns when to look next. An error
// means that the scheduler or the classifier is not as it should be.
func (u *uplink) control(now time.Time) (time.Duration, error) {
	hostCompeted := u.hostCompetes()
	changed, sudden, err := u.measure(now)
	if err != nil {
		return settledInterval, err
	}
	hostChanged := u.hostCompetes() != hostCompeted
	if hostChanged {
		u.entitle()
	}
	// A new guarantee matters also where the allocation stays.
	if (hostChanged || changed) && u.allocate(hostChanged) {
		if hostChanged || sudden {
			u.lastChange = now
		}
		if err := u.apply(); err != nil {
			return settledInterval, err
		}
	}
	switch {
	case now.Sub(u.lastTraffic) > idleAfter:
		return idleInterval, nil
	case u.inDoubt || now.Sub(u.lastChange) <= demand.SettledAfter:
		return changingInterval, nil
	default:
		return settledInterval, nil
	}
}

// measure takes one look at what everybody wants and reports whether any
// estimate changed, and whether one did so suddenly, and may do so again.
//
// What was offered is counted in shared memory and costs nothing to read. What
// is queued has to be asked of the scheduler, which tells of all classes or
// none; that is done only where what is offered leaves in doubt whether anything
// is.
func (u *uplink) measure(now time.Time) (changed, sudden bool, err error) {
	if err := u.readOffered(); err != nil {
		return false, false, err
	}
	sample := now.Sub(u.lastStats) >= max(statsInterval, time.Duration(len(u.participants))*statsIntervalPerShare)
	offeredBytes, woke := uint64(0), false
	for _, s := range u.participants {
		d, offered := &s.demand, u.offered[s.number]
		if !s.active {
			if !d.Known() {
				// What was counted under this number before is not ours.
				d.Offer(now, demand.MinWindow, offered)
			}
			if offered == d.LastOffered() {
				continue
			}
			s.wake(u.lastLook)
			d.Doubt(now)
			woke = true // who knows when
		}
		if offered != d.LastOffered() {
			u.lastTraffic = now
			offeredBytes += offered - d.LastOffered()
		}
		d.Offer(now, demand.Window(s.expectedBPS()), offered)
	}
	u.ask(now, sample, woke || u.full(offeredBytes, now.Sub(u.lastLook)))
	u.lastLook = now
	if err := u.readCounters(now, sample); err != nil {
		return false, false, err
	}
	for _, s := range u.participants {
		if !s.active {
			continue
		}
		if s.backlogBytes > 0 {
			u.lastTraffic = now
		}
		if s.demand.Decide(now) {
			changed = true
			sudden = sudden || !s.demand.Settled(now)
		}
		if s.demand.Settled(now) && s.demand.DemandBPS == 0 && s.rate.BPS() == 0 {
			s.rest()
		}
	}
	return changed, sudden, nil
}

// fullPercent: where less than that part of the uplink is offered nothing is
// queued, or not for long, but at a maximum.
const fullPercent = 90

// full says whether so much was offered in a time that the uplink may be full.
func (u *uplink) full(offeredBytes uint64, elapsed time.Duration) bool {
	return float64(offeredBytes)*8 >= float64(u.rateBPS)*elapsed.Seconds()*fullPercent/100
}

// lackDivisor: while those that wanted more leave less than that part of the
// uplink all together, the next look at all counters is soon enough to see
// whether they still do. What they leave is lent to others until then.
const lackDivisor = 20

// ask chooses whose counters to ask the scheduler for: with sample, those of all
// that are active, otherwise of those that leave doubt that matters.
func (u *uplink) ask(now time.Time, sample, full bool) {
	u.asked, u.lacking = u.asked[:0], u.lacking[:0]
	lackingBPS := uint64(0)
	for _, s := range u.participants {
		d := &s.demand
		switch {
		case !s.active:
		case sample:
			u.asked = append(u.asked, s.number)
		case d.WantsMore():
			if lackBPS := d.LackBPS(now, s.allocatedBPS); lackBPS > 0 {
				u.lacking = append(u.lacking, s.number)
				lackingBPS += lackBPS
			}
		case (full || d.RateBPS() > ceilingBPS(s.policy())/100*fullPercent) && d.MayWantMore(now, s.allocatedBPS):
			u.asked = append(u.asked, s.number)
		}
	}
	if lackingBPS > u.rateBPS/lackDivisor {
		u.asked = append(u.asked, u.lacking...)
	}
	u.inDoubt = !sample && len(u.asked) > 0
}

// readOffered reads what everybody has offered so far.
func (u *uplink) readOffered() error {
	if u.offered == nil {
		u.offered = make([]uint64, int(identity.NumberLast)+1)
	}
	last := u.host.number
	if n := len(u.controlled); n > 0 {
		last = u.controlled[n-1].number
	}
	return u.classifier.OfferedBytes(u.offered[:last+1])
}

// unknownSent says whether unknown origins have offered anything since the last
// call.
func (u *uplink) unknownSent() bool {
	if u.offered == nil {
		return false
	}
	before := u.unknownBytes
	u.unknownBytes = u.offered[identity.NumberNone]
	return u.unknownBytes != before
}

// readCounters asks the scheduler for the counters of those that are asked
// for, by their number.
func (u *uplink) readCounters(now time.Time, sample bool) error {
	if sample {
		u.lastStats = now
		u.statsTurns++
		if err := u.measureDelays(len(u.asked) > 0 && u.statsTurns%delayTurns == 0); err != nil {
			return err
		}
	}
	if len(u.asked) == 0 {
		if sample { // nobody has sent anything since: what was counted stands
			u.measuredAt = now
		}
		return nil
	}
	read, err := u.backend.Stats(u.asked, u.classStats[:0])
	u.classStats = read
	if err != nil {
		return err
	}
	if len(read) < len(u.asked) {
		return errClassesGone
	}
	for i := range read {
		s := u.share(read[i].Number)
		s.backlogBytes = read[i].BacklogBytes
		s.demand.Queued(s.backlogBytes)
	}
	if !sample {
		return nil
	}
	return u.count(now, read)
}

// recount counts what all have sent since an earlier agent looked, before anybody
// is shown less than that had said. Classes that are missing count from zero.
func (u *uplink) recount(now time.Time) {
	u.asked = u.asked[:0]
	for _, s := range u.participants {
		u.asked = append(u.asked, s.number)
	}
	read, err := u.backend.Stats(u.asked, u.classStats[:0])
	u.classStats = read
	if err == nil {
		_ = u.count(now, read) // the next look says what is wrong
	}
}

// count takes in the counters of all that are active, for people to look at:
// all of one moment. Where drops cannot be read, what is known stays.
func (u *uplink) count(now time.Time, read []sched.Stats) error {
	drops, _ := u.backend.Drops()
	for i := range read {
		s := u.share(read[i].Number)
		if err := s.count(now, read[i], drops); err != nil {
			return err
		}
		if u.statsTurns%delayTurns == 1 { // a period just ended
			s.delay.turn(s)
		}
	}
	u.measuredAt = now
	return nil
}

// delayTurns: delays are measured during one of so many periods of counters,
// every two seconds with up to 250 containers. To look at every packet that
// leaves costs several percent of the processor time of a flood of small packets
// (BenchmarkDelays of internal/identity).
const delayTurns = 8

// measureDelays begins or ends measuring delays.
func (u *uplink) measureDelays(now bool) error {
	switch {
	case u.delays == nil:
		return nil
	case now:
		return u.delays.Resume()
	default:
		return u.delays.Pause()
	}
}

// share finds a participant by its number.
func (u *uplink) share(number uint16) *share {
	i, found := slices.BinarySearchFunc(u.controlled, number, func(s *share, number uint16) int {
		return cmp.Compare(s.number, number)
	})
	if !found {
		return u.host
	}
	return u.controlled[i]
}
