package engine

import (
	"math"
	"time"
)

// # Not too often
//
// Measurements are noisy and demand comes and goes, so everything the engine decides by them has a [Pace]: its reason
// has to last (hold), and what failed, or was undone soon after, takes twice as long each time
// (back-off), and half as long after a success. Reasons go by a [Mean].

// Pace limits how often an action is repeated (hold time and back-off). The zero value is ready.
type Pace struct {
	// Since is the start of the present reason; zero if there is none.
	Since time.Time `json:"since,omitzero"`
	// Last is the time of the last action.
	Last time.Time `json:"last,omitzero"`
	// Level is the number of doublings of holds and waits.
	Level int `json:"level,omitempty"`
	// Until is the end of the block.
	Until time.Time `json:"until,omitzero"`
}

// Hold records whether there is a reason, and reports whether it has lasted for seconds.
func (p *Pace) Hold(at time.Time, reason bool, seconds float64) bool {
	switch {
	case !reason:
		p.Since = time.Time{}
		return false
	case p.Since.IsZero() || p.Since.After(at): // or clocks went back
		p.Since = at
	}
	return at.Sub(p.Since).Seconds() >= seconds
}

// Done records that the action was taken.
func (p *Pace) Done(at time.Time) { p.Last, p.Since = at, time.Time{} }

// Within reports whether the last action was less than seconds ago.
func (p *Pace) Within(at time.Time, seconds float64) bool {
	return !p.Last.IsZero() && at.Sub(p.Last).Seconds() < seconds
}

// DoneBefore reports whether the last action was before the present reason began.
func (p *Pace) DoneBefore() bool { return !p.Last.IsZero() && p.Last.Before(p.Since) }

// Doubled returns seconds multiplied by 2 to the power of Level.
func (p *Pace) Doubled(seconds float64) float64 { return doubled(seconds, p.Level) }

func doubled(seconds float64, times int) float64 {
	return seconds * float64(uint(1)<<min(max(times, 0), mostDoublings))
}

// Raise doubles holds and waits (back-off).
func (p *Pace) Raise() { p.Level = min(p.Level+1, mostDoublings) }

// RaiseIfWithin doubles holds and waits if the last action was less than seconds ago (doubled too):
// it is reverted now, so it was taken too early. This stops oscillation.
func (p *Pace) RaiseIfWithin(at time.Time, seconds float64) {
	if p.Within(at, p.Doubled(seconds)) {
		p.Raise()
	}
}

// Relax halves holds and waits.
func (p *Pace) Relax() { p.Level = max(p.Level-1, 0) }

// Block forbids the action for seconds after from.
func (p *Pace) Block(from time.Time, seconds float64) {
	p.Until = from.Add(time.Duration(seconds * float64(time.Second)))
}

// Blocked returns the remaining seconds of the block; 0 or less if there is none.
func (p *Pace) Blocked(at time.Time) float64 { return p.Until.Sub(at).Seconds() }

// Mean is an exponentially weighted mean.
type Mean float64

// Add moves the mean by 1 - exp(-passed/constant) towards a measurement. passed is the time since
// the previous one, in the unit of constant; if constant is 0 the mean becomes x.
func (m *Mean) Add(x, passed, constant float64) {
	*m += (Mean(x) - *m) * Mean(SmoothingWeight(passed, constant))
}

// SmoothingWeight returns the weight of a measurement in an exponentially weighted mean; see [Mean.Add].
func SmoothingWeight(passed, constant float64) float64 {
	if constant <= 0 {
		return 1
	}
	return 1 - math.Exp(-passed/constant)
}
