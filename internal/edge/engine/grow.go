package engine

import (
	"fmt"
	"math"
)

// grow adds instances if users are too many or wait too long and another instance is expected to
// help.
func (w *world) grow(s *service) {
	m := &s.memory
	s.entries = s.demand.now
	f := s.facts(w)
	s.smooth(w, &f)
	cause, why := reasonForMore(s, &f)
	if cause == CauseUplink {
		s.keep(w, cause, why)
		cause = CauseNone
	}
	held := m.Grow.Hold(w.at, cause != CauseNone, growHold)
	s.judgeTrial(w, &f, cause, held)
	if cause == CauseNone {
		return
	}
	if overload := f.Capacity > 0 && f.Users > f.Capacity; !held && !overload {
		s.keep(w, cause, fmt.Sprintf("%s, for %s; it has to last for %s", why, duration(w.since(m.Grow.Since)), duration(growHold)))
		return
	}
	if waits := s.waits(w, cause); waits != "" {
		s.keep(w, cause, why+", but "+waits)
		return
	}
	if !w.startMore(s, &f, cause, why) {
		return
	}
	m.Shrink.RaiseIfWithin(w.at, horizon)
	m.Move.RaiseIfWithin(w.at, horizon)
	m.Grow.Done(w.at)
	m.GrownUsers, m.UsedSeconds = s.demand.users, 0
	if cause != CauseUsers {
		m.Trial = &Trial{Users: float64(m.Means.Users), Instances: f.Instances, ResponseSeconds: f.ResponseSeconds, CPUPercent: max(f.CPUPercent, f.NodeCPUPercent)}
	}
}

// startMore starts instances: for too many users as many as they need; for a slow response at most
// as many as exist, because the model may be wrong, and only until the expected response time
// suffices or the next one gains little. It returns false if it started none.
func (w *world) startMore(s *service, f *Facts, cause Cause, why string) bool {
	number := 1
	switch cause {
	case CauseUsers:
		number = s.Spec.InstancesFor(math.Ceil(f.Users/usersHigh-rounding)) - len(s.instances)
	case CauseResponse:
		number = len(s.instances)
	}
	for started := range min(max(number, 1), mostStarts) {
		if full := s.full(); full != "" {
			s.keep(w, cause, why+", but "+full)
			return started > 0
		}
		before := s.expected(w)
		if started > 0 && cause == CauseResponse && before <= f.RequiredSeconds*high {
			return true
		}
		if !w.place(s, need{cause: cause, why: why, orMove: s.movable(w, cause)}) {
			return started > 0
		}
		if cause == CauseResponse && s.expected(w) > before*(1-minGain) {
			return true
		}
	}
	return true
}

// reasonForMore returns the cause and reason to add instances, or CauseNone; CauseUplink is a reason
// to add none, and comes before too many users: who waits for the uplink is a user until then.
func reasonForMore(s *service, f *Facts) (Cause, string) {
	slow := f.Users > 0 && f.RequiredSeconds > 0 && f.ResponseSeconds > f.RequiredSeconds*high
	why := fmt.Sprintf("users wait %s of the %s that they may have to", duration(f.ResponseSeconds), duration(f.RequiredSeconds))
	switch {
	case !s.demand.measured || f.Instances == 0:
		return CauseNone, ""
	case slow && f.ResponseSeconds-f.DeliverySeconds <= f.RequiredSeconds*high:
		return CauseUplink, why + ", " + s.uplinkBound(f)
	case f.Capacity > 0 && f.Users > f.Capacity*usersHigh:
		return CauseUsers, fmt.Sprintf("%s users, and %s for %s", number(f.Users), s.have(), number(f.Capacity))
	case f.Users == 0:
		return CauseNone, ""
	case slow:
		return CauseResponse, why
	case f.RequiredSeconds > 0 && f.ResponseSeconds > 0 && f.ResponseSeconds < f.RequiredSeconds/2:
		return CauseNone, "" // users do not notice what is exhausted
	case f.CPUPercent >= 100*high:
		return CauseExhausted, fmt.Sprintf("a container uses %.0f %% of the processors that it may", f.CPUPercent)
	case f.NodeCPUPercent >= 100*high:
		return CauseExhausted, fmt.Sprintf("a node's processors are used to %.0f %%", f.NodeCPUPercent)
	}
	return CauseNone, ""
}

// waits returns why no instance is added yet. Capacity counts before an instance runs; response
// time is only measured afterwards.
func (s *service) waits(w *world, cause Cause) string {
	if cause == CauseUsers {
		return ""
	}
	m := &s.memory
	if coming := s.coming(); coming != "" {
		return coming
	}
	if rest := m.Grow.Blocked(w.at); rest > 0 {
		return fmt.Sprintf("the last instance that was added for that changed nothing; none is for another %s", duration(rest))
	}
	if rest := growHold + s.settleSeconds() - m.UsedSeconds; m.Trial != nil && rest > 0 {
		return fmt.Sprintf("what the last instance changes is seen in %s of use", duration(rest))
	}
	return ""
}

// coming returns which instances are still starting or moving; empty if none.
func (s *service) coming() string {
	for _, i := range s.instances {
		if i.State == InstanceStarting {
			return "another instance is starting"
		}
	}
	if len(s.arriving) > 0 {
		return "an instance is being moved"
	}
	return ""
}

// settleSeconds returns the time until a new instance's effect is visible: its start-up, and the
// time until old response times have left the mean.
func (s *service) settleSeconds() float64 { return s.startUp() + settled }

// smooth updates the means with the current measurements and replaces the measurements in f by
// them, so that one bad second adds no instance and one good second proves nothing. After horizon
// without users the means restart. A second without users does not change the response time.
func (s *service) smooth(w *world, f *Facts) {
	m, passed, away := &s.memory.Means, w.since(s.memory.Means.At), w.since(s.memory.Means.UsedAt)
	m.At = w.at
	if f.Users == 0 {
		return
	}
	m.UsedAt = w.at
	users := f.Users
	smooth := func(mean *Mean, now *float64) {
		if was := float64(*mean); away > horizon || math.Abs(*now-was) > jump*was {
			*mean = Mean(*now)
		}
		mean.Add(*now, passed, smoothing)
		*now = float64(*mean)
	}
	smooth(&m.Users, &users)
	smooth(&m.Seconds, &f.ResponseSeconds)
	smooth(&m.Delivery, &f.DeliverySeconds)
	smooth(&m.CPUPercent, &f.CPUPercent)
	smooth(&m.NodeCPUPercent, &f.NodeCPUPercent)
	s.memory.UsedSeconds += min(passed, settled)
}

// judgeTrial decides whether the last added instance has helped: if there is a reason for another
// one, it compares response time and CPU use with those before. If there is none for horizon, it
// has helped.
func (s *service) judgeTrial(w *world, f *Facts, cause Cause, held bool) {
	m := &s.memory
	if m.Trial == nil || f.Users == 0 || m.UsedSeconds < s.settleSeconds() || s.coming() != "" {
		return
	}
	better := f.ResponseSeconds <= m.Trial.ResponseSeconds*max(1-minGain, s.crowding())
	if m.Trial.ResponseSeconds == 0 { // not measured
		better = max(f.CPUPercent, f.NodeCPUPercent) <= m.Trial.CPUPercent*(1-minGain)
	}
	m.Trial.Relieved = m.Trial.Relieved || cause == CauseNone
	switch {
	case cause == CauseNone && m.UsedSeconds < horizon, cause != CauseNone && !held, cause == CauseUsers:
		return
	case cause == CauseNone:
		m.Grow.Relax()
	case better || s.outgrown(): // so another one may be, too; or this one undid what did not help
	default:
		m.Grow.Block(m.Grow.Last, m.Grow.Doubled(horizon))
		m.Grow.Raise()
	}
	m.Trial = nil
}

// crowding returns by which factor the response time would at least have grown without the last
// instance, because users have increased since; 0 if they have hardly increased, or do not wait for
// each other. A container that is exhausted on average says that they do: the present utilization
// alone may be off.
func (s *service) crowding() float64 {
	m := &s.memory.Means
	more := float64(m.Users) / s.memory.Trial.Users
	if s.model.rho < high && m.CPUPercent < 100*high || more < 1+noise {
		return 0
	}
	return more
}

// outgrown reports whether the last instance helped and users have grown since, by at least half of
// the relative growth of instances.
func (s *service) outgrown() bool {
	m := &s.memory
	more := float64(len(s.instances))/float64(max(m.Trial.Instances, 1)) - 1
	if more <= 0 { // it was moved
		more = 2 * noise
	}
	return m.Trial.Relieved && float64(m.Means.Users) >= m.Trial.Users*(1+more/2)
}

// movable returns an instance to move instead of adding one: its node is exhausted, mainly by other
// services.
func (s *service) movable(w *world, cause Cause) *instance {
	if cause == CauseUsers {
		return nil
	}
	var worst *instance
	for _, i := range s.instances {
		if i.State != InstanceRunning || i.replacedBy != nil || i.node.exhausted == "" || s.host(i.node.index).cpus > i.node.busyCPUs/2 {
			continue
		}
		if worst == nil || i.node.cpuPercent() > worst.node.cpuPercent() {
			worst = i
		}
	}
	return worst
}
