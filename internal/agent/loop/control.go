package loop

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/agent/attach"
)

const (
	// statsInterval is the period of the counters for users; statsIntervalPerShare makes it longer
	// with many shares, because reading takes longer.
	statsInterval         = 250 * time.Millisecond
	statsIntervalPerShare = time.Millisecond
	// restInterval is the control loop's period while no uplink is installed, and the longest one
	// otherwise.
	restInterval = 500 * time.Millisecond
	// repairInterval is its longest period while an uplink fails.
	repairInterval = 40 * time.Millisecond
	// wakeInterval is the time between a change, or the first packet after a silence, and the turn that looks at it:
	// then there is a rate to see.
	wakeInterval = 10 * time.Millisecond
)

// control is one turn of the control loop at an uplink: the scheduler checks which containers send
// and adjusts the allocations. It returns the time until the next turn. An error means that the
// scheduler or the classifier is not in its expected state.
func (u *link) control(now time.Time) (time.Duration, error) {
	count := now.Sub(u.lastStats) >= max(statsInterval, time.Duration(len(u.participants))*statsIntervalPerShare)
	if count {
		u.lastStats = now
		u.statsTurns++
	}
	turn, err := u.device.Turn(now, count)
	if turn.Woke || count {
		u.readCounters()
	}
	if count && err == nil {
		err = u.endPeriod(now)
	}
	// Without the redirect at the uplink nothing else fails.
	if count && err == nil && u.of != nil {
		var there bool
		there, err = u.device.Classified()
		u.suspect = u.suspect || !there
	}
	return turn.Next, err
}

// readCounters copies the scheduler's state and the kernel's new counters into the shares. No other function
// updates the counters that users see.
func (u *link) readCounters() {
	if u.device.Scheduler() == nil {
		u.hostCompetes = false
		u.entitle()
		return
	}
	u.device.Scheduler().Snapshot(&u.snapshot)
	u.hostCompetes = u.snapshot.HostCompetes
	for i := range u.snapshot.Competitors {
		class := &u.snapshot.Competitors[i]
		s := u.share(class.Number)
		if s.container.Number != class.Number {
			continue // it is being removed
		}
		counted := class.CountedAt.After(s.class.CountedAt)
		s.class = *class
		if class.Active && !s.active {
			s.wake(class.ActiveSince)
		}
		s.active = class.Active
		if counted {
			s.count(class.CountedAt)
		}
	}
}

// endPeriod ends a period of the counters for users. All shares that sent something were counted at
// the same moment, now; counters of the others are unchanged.
func (u *link) endPeriod(now time.Time) error {
	anyActive := false
	for _, s := range u.participants {
		anyActive = anyActive || s.active
	}
	if err := u.measureDelays(anyActive && u.statsTurns%delayTurns == 0); err != nil {
		return err
	}
	for _, s := range u.participants {
		if !s.class.CountedAt.Equal(now) {
			continue
		}
		if u.statsTurns%delayTurns == 1 { // a period just ended
			s.delay.turn(s)
		}
		if !s.class.Active {
			s.rest()
		}
	}
	u.measuredAt = now
	return nil
}

// delayTurns: delays are measured during one of delayTurns counter periods, which is every two
// seconds with up to 250 containers. Inspecting every packet that leaves would cost several percent
// of the processor time of a flood of small packets (BenchmarkDelays of
// internal/datapath/identity).
const delayTurns = 8

// measureDelays resumes or pauses measuring delays.
func (u *link) measureDelays(now bool) error {
	switch {
	case u.device.Delays() == nil:
		return nil
	case now:
		return u.device.Delays().Resume()
	default:
		return u.device.Delays().Pause()
	}
}

// share returns the participant with this number.
func (u *link) share(number uint16) *share {
	i, found := slices.BinarySearchFunc(u.controlled, number, func(s *share, number uint16) int {
		return cmp.Compare(s.container.Number, number)
	})
	if !found {
		return u.host
	}
	return u.controlled[i]
}

// control is one turn of the control loop over all uplinks. It returns the time until the next
// turn.
func (a *Agent) control(now time.Time) time.Duration {
	next := restInterval
	suspect := false
	for _, u := range a.uplinks.list {
		if !u.installed() {
			continue
		}
		known := u.suspect || u.device.Problem() != nil
		interval, err := u.control(now)
		if err != nil {
			u.suspect = true
			if !known {
				a.log.Warn("the control loop failed at an uplink; retrying", "uplink", u.label(), "error", err)
			}
		}
		suspect = suspect || u.suspect
		next = min(next, interval)
		if u.of == nil {
			a.attach.NoteUnknown(&u.attached)
		}
	}
	if suspect {
		next = min(next, repairInterval)
	}
	if suspect && now.Sub(a.repairedAt) >= max(a.repairPause, minRepairPause) {
		a.repairedAt = now
		a.repair()
	}
	if a.uplinks.routeMoved(now) {
		a.check()
		a.attach.CheckUplinks(a.uplinks.attachments(), now)
	}
	a.attach.SearchUnknown(now)
	controlled := a.uplinks.list[0].controlled
	a.attach.Verify(len(controlled), func(i int) *attach.Container { return &controlled[i].container.Container }, now)
	a.saveSoon(now)
	if a.publishDue(now) {
		a.publish(now)
	}
	return next
}

// repair checks the uplinks that did not do what they were told, and restores the plan there.
func (a *Agent) repair() {
	for _, u := range a.uplinks.list {
		if u.suspect {
			u.device.Forget()
			a.advance(u)
		}
	}
	a.reconcile()
	if slices.ContainsFunc(a.uplinks.list, func(u *link) bool { return u.suspect }) {
		a.repairPause = min(2*max(a.repairPause, minRepairPause), checkInterval)
	} else {
		a.repairPause = 0
	}
}

// check compares the whole state with the kernel and repairs differences.
func (a *Agent) check() {
	for _, u := range a.uplinks.list {
		u.device.Forget()
		a.advance(u)
	}
	a.attach.Check(a.uplinks.attachments(), time.Now())
	a.containers.forgetGonePods()
	a.containers.inspectMissing()
	a.containers.inspectSome()
	a.reconcile()
}
