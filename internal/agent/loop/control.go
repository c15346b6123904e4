package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/identity"
)

const (
	// statsInterval is the period of the counters that people look at, and
	// statsIntervalPerShare the least of it: to read them takes longer the more
	// there are.
	statsInterval         = 250 * time.Millisecond
	statsIntervalPerShare = time.Millisecond
	// restInterval is the control loop's period where nothing is shared out.
	restInterval = 40 * time.Millisecond
)

// control is one turn of the control loop at an uplink: its scheduler looks at who
// is sending and adjusts what everybody may send. It returns when to look next. An
// error means that the scheduler or the classifier is not as it should be.
func (u *link) control(now time.Time) (time.Duration, error) {
	count := now.Sub(u.lastStats) >= max(statsInterval, time.Duration(len(u.participants))*statsIntervalPerShare)
	if count {
		u.lastStats = now
		u.statsTurns++
	}
	turn, err := u.device.Turn(now, count)
	if turn.Applied {
		u.take()
	}
	if turn.Woke || count {
		u.ask()
	}
	if count && err == nil {
		err = u.endPeriod(now)
	}
	return turn.Next, err
}

// ask asks the scheduler what it knows, and takes in what the kernel has counted since.
// It is the only way from there to what people see.
func (u *link) ask() {
	if u.backend == nil {
		u.hostCompetes = false
		u.entitle()
		return
	}
	u.backend.Snapshot(&u.snapshot)
	u.hostCompetes = u.snapshot.HostCompetes
	for i := range u.snapshot.Competitors {
		class := &u.snapshot.Competitors[i]
		s := u.share(class.Number)
		if s.number != class.Number {
			continue // it is about to go
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

// endPeriod ends a period of the counters that people look at: all that sent something
// have been counted at one moment, now. Of the others what was counted stands.
func (u *link) endPeriod(now time.Time) error {
	anybody := false
	for _, s := range u.participants {
		anybody = anybody || s.active
	}
	if err := u.measureDelays(anybody && u.statsTurns%delayTurns == 0); err != nil {
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

// unknownSent says whether unknown origins have offered anything since the last
// call.
func (u *link) unknownSent() bool {
	before := u.unknownBytes
	if u.classifier.OfferedBytes(u.unknown[:]) == nil {
		u.unknownBytes = u.unknown[identity.NumberNone]
	}
	return u.unknownBytes != before
}

// delayTurns: delays are measured during one of so many periods of counters,
// every two seconds with up to 250 containers. To look at every packet that
// leaves costs several percent of the processor time of a flood of small packets
// (BenchmarkDelays of internal/identity).
const delayTurns = 8

// measureDelays begins or ends measuring delays.
func (u *link) measureDelays(now bool) error {
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
func (u *link) share(number uint16) *share {
	i, found := slices.BinarySearchFunc(u.controlled, number, func(s *share, number uint16) int {
		return cmp.Compare(s.number, number)
	})
	if !found {
		return u.host
	}
	return u.controlled[i]
}

// control is one turn of the control loop over all uplinks. It returns when to
// look next.
func (a *Agent) control(now time.Time) time.Duration {
	next := restInterval
	suspect := false
	for _, u := range a.uplinks {
		if !u.installed() {
			continue
		}
		known := u.suspect || u.reason != nil
		interval, err := u.control(now)
		if err != nil {
			u.suspect = true
			if !known {
				a.log.Warn("look at who is sending", "uplink", u.name, "error", err)
			}
		}
		suspect = suspect || u.suspect
		next = min(next, interval)
		if u.unknownSent() {
			a.origins.pending = true
		}
	}
	if suspect && now.Sub(a.repairedAt) >= max(a.repairPause, minRepairPause) {
		a.repairedAt = now
		a.repair()
	}
	a.searchUnknownOrigins(now)
	a.verifyTaps(now)
	a.saveSoon(now)
	if a.publishDue(now) {
		a.publish(now)
	}
	return next
}

// repair looks at uplinks that did not do what was asked of them, and brings
// them to the plan again.
func (a *Agent) repair() {
	for _, u := range a.uplinks {
		if u.suspect {
			u.device.Forget()
			a.advance(u)
		}
	}
	a.reconcile()
	if slices.ContainsFunc(a.uplinks, func(u *link) bool { return u.suspect }) {
		a.repairPause = min(2*max(a.repairPause, minRepairPause), checkInterval)
	} else {
		a.repairPause = 0
	}
}

// check compares everything with the kernel and mends what differs.
func (a *Agent) check() {
	for _, u := range a.uplinks {
		u.device.Forget()
		a.advance(u)
	}
	a.checkTunnels(time.Now())
	a.checkFollowers()
	a.inspectMissing()
	a.inspectSome()
	a.checkOrigins()
	a.bridges.unchecked = true
	a.reconcile()
}
