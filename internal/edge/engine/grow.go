package engine

import (
	"fmt"
	"math"
	"time"
)

// grow decides whether users are too many, or wait too long, and whether something
// can be done about it that is worth it: for those who are there now.
func (w *world) grow(s *service) {
	m, p := &s.memory, &w.e.policy
	s.entries = s.now
	f := s.facts(w)
	s.smooth(w, &f)
	cause, why := p.reasonForMore(s, &f)
	held := w.holds(&m.HighSince, cause != CauseNone, p.UpHoldSeconds)
	s.seeWhetherItHelped(w, &f, cause, held)
	if cause == CauseNone {
		return
	}
	m.LowSince = zeroTime
	if overload := f.Capacity > 0 && f.Users > f.Capacity; !held && !overload {
		s.keep(w, cause, fmt.Sprintf("%s, for %s; it has to last for %s", why, duration(w.since(m.HighSince)), duration(p.UpHoldSeconds)))
		return
	}
	if waits := s.waits(w, cause); waits != "" {
		s.keep(w, cause, why+", but "+waits)
		return
	}
	if !w.startMore(s, &f, cause, why) {
		return
	}
	if w.tooSoon(s, m.ShrunkAt) || w.tooSoon(s, m.CloserAt) {
		m.regret()
	}
	m.GrownAt, m.GrownUsers, m.UsedSeconds, m.HighSince = w.at, s.users, 0, zeroTime
	if cause != CauseUsers {
		m.Before = &Before{Users: m.SmoothUsers, Instances: f.Instances, ResponseSeconds: f.ResponseSeconds, CPUPercent: max(f.CPUPercent, f.NodeCPUPercent)}
	}
}

// startMore starts as many instances as users need: those who are too many as many as they need
// room for; those who wait too long as many as there are, at most, since what is expected may
// not come true, and only until that is short enough or the next one gains little.
func (w *world) startMore(s *service, f *Facts, cause Cause, why string) bool {
	p, number := &w.e.policy, 1
	switch cause {
	case CauseUsers:
		number = s.Spec.InstancesFor(math.Ceil(f.Users*100/p.UsersHighPercent)) - len(s.instances)
	case CauseResponse:
		number = len(s.instances)
	}
	for started := range min(max(number, 1), p.MostStarts) {
		if full := s.full(); full != "" {
			s.keep(w, cause, why+", but "+full)
			return started > 0
		}
		before := s.expected(w)
		if started > 0 && cause == CauseResponse && before <= f.RequiredSeconds*p.ResponseHighPercent/100 {
			return true
		}
		if !w.place(s, need{cause: cause, why: why, orMove: s.movable(w, cause)}) {
			return started > 0
		}
		if cause == CauseResponse && s.expected(w) > before*(1-p.MinGainPercent/100) {
			return true
		}
	}
	return true
}

// reasonForMore says why there should be more than there is.
func (p *Policy) reasonForMore(s *service, f *Facts) (Cause, string) {
	switch {
	case !s.measured || f.Instances == 0:
		return CauseNone, ""
	case f.Capacity > 0 && f.Users > f.Capacity*p.UsersHighPercent/100:
		return CauseUsers, fmt.Sprintf("%s users, and %s for %s", number(f.Users), s.have(), number(f.Capacity))
	case f.Users == 0:
		return CauseNone, ""
	case f.RequiredSeconds > 0 && f.ResponseSeconds > f.RequiredSeconds*p.ResponseHighPercent/100:
		return CauseResponse, fmt.Sprintf("users wait %s of the %s that they may have to", duration(f.ResponseSeconds), duration(f.RequiredSeconds))
	case f.RequiredSeconds > 0 && f.ResponseSeconds > 0 && f.ResponseSeconds < f.RequiredSeconds/2:
		return CauseNone, "" // whatever is exhausted, they do not notice
	case f.CPUPercent >= p.CPUHighPercent:
		return CauseExhausted, fmt.Sprintf("a container uses %.0f %% of the processors that it may", f.CPUPercent)
	case f.NodeCPUPercent >= p.NodeCPUHighPercent:
		return CauseExhausted, fmt.Sprintf("a node's processors are used to %.0f %%", f.NodeCPUPercent)
	}
	return CauseNone, ""
}

// waits says why nothing more is done for the moment. Users who are too many are
// counted with the room that is on its way; what they wait for shows only later.
func (s *service) waits(w *world, cause Cause) string {
	if cause == CauseUsers {
		return ""
	}
	m, p := &s.memory, &w.e.policy
	if coming := s.coming(); coming != "" {
		return coming
	}
	if rest := m.InVainUntil.Sub(w.at).Seconds(); rest > 0 {
		return fmt.Sprintf("the last instance that was added for that changed nothing; none is for another %s", duration(rest))
	}
	if rest := p.UpHoldSeconds + s.settleSeconds(p) - m.UsedSeconds; m.Before != nil && rest > 0 {
		return fmt.Sprintf("what the last instance changes is seen in %s of use", duration(rest))
	}
	return ""
}

// coming says what of the service is not there yet; empty if nothing.
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

// settleSeconds is how long the service has to be used after a new instance until it shows
// what that changes: it has started, and old answers are out of the mean.
func (s *service) settleSeconds(p *Policy) float64 { return s.startUp(p) + 3*smoothing }

// smoothing is the time constant, in seconds, of the means by which it is decided whether
// users wait too long, and whether an instance helped.
const smoothing = 5

// jump is by what part of a mean a measurement is off that is no noise any more: the mean
// begins anew with it.
const jump = 0.5

// SmoothingWeight is by which part of the way a mean goes to what is measured so long after
// the last time, of a time constant in the same unit: 1 - exp(-passed/constant). Without one
// it is all of the way.
func SmoothingWeight(passed, constant float64) float64 {
	if constant <= 0 {
		return 1
	}
	return 1 - math.Exp(-passed/constant)
}

// smooth takes the measurements of now into the means, and puts these in their place: one
// bad second is no reason for another instance, and one good second is no success of one.
// What was not measured for as long as demand is expected to stay as it is has no mean yet. A
// second in which nobody waits tells nothing of how long one waits.
func (s *service) smooth(w *world, f *Facts) {
	m, passed, away := &s.memory, w.since(s.memory.SmoothAt), w.since(s.memory.UsedAt)
	m.SmoothAt = w.at
	if f.Users == 0 {
		return
	}
	m.UsedAt = w.at
	weight := SmoothingWeight(passed, smoothing)
	take := func(mean, now *float64) {
		if away > w.e.policy.HorizonSeconds || math.Abs(*now-*mean) > jump**mean {
			*mean = *now
		}
		*mean += (*now - *mean) * weight
		*now = *mean
	}
	users := f.Users
	take(&m.SmoothUsers, &users)
	take(&m.SmoothSeconds, &f.ResponseSeconds)
	take(&m.SmoothCPUPercent, &f.CPUPercent)
	take(&m.SmoothNodeCPUPercent, &f.NodeCPUPercent)
	m.UsedSeconds += min(passed, 10*smoothing)
}

// seeWhetherItHelped compares what users wait, and how busy processors are, with what it was
// when the last instance was added: as soon as there is a reason for another one again, as that
// was measured when there was a reason, too, and users may come and go. If there is none for as
// long as one would wait after a failure, it has helped.
func (s *service) seeWhetherItHelped(w *world, f *Facts, cause Cause, held bool) {
	m, p := &s.memory, &w.e.policy
	if m.Before == nil || f.Users == 0 || m.UsedSeconds < s.settleSeconds(p) || s.coming() != "" {
		return
	}
	least := 1 - p.MinGainPercent/100
	better := f.ResponseSeconds <= m.Before.ResponseSeconds*max(least, s.crowding())
	if m.Before.ResponseSeconds == 0 { // nobody measures it
		better = max(f.CPUPercent, f.NodeCPUPercent) <= m.Before.CPUPercent*least
	}
	m.Before.Relieved = m.Before.Relieved || cause == CauseNone
	switch {
	case cause == CauseNone && m.UsedSeconds < p.InVainSeconds, cause != CauseNone && !held, cause == CauseUsers:
		return
	case cause == CauseNone:
		m.InVain = max(m.InVain-1, 0)
	case better || s.outgrown(): // so another one may be, too; or this one undid what did not help
	default:
		m.InVain++
		wait := p.InVainSeconds * math.Pow(2, float64(min(m.InVain, 10)-1))
		m.InVainUntil = m.GrownAt.Add(time.Duration(wait * float64(time.Second)))
	}
	m.Before = nil
}

// crowding is by how much longer at least users would wait than before the last instance was
// added, had it not been: as there are more of them, if they wait for each other. It is 0 if
// they are hardly more.
func (s *service) crowding() float64 {
	m := &s.memory
	if s.model.rho < saturated || m.SmoothUsers < m.Before.Users*(1+largestNoise) {
		return 0
	}
	return m.SmoothUsers / m.Before.Users
}

// outgrown: there was no reason for more for a while, and now users are more, by half at least of
// what instances are. Then the last one has helped, and they need another.
func (s *service) outgrown() bool {
	m := &s.memory
	more := float64(len(s.instances))/float64(max(m.Before.Instances, 1)) - 1
	if more <= 0 { // it was moved
		more = 2 * largestNoise
	}
	return m.Before.Relieved && m.SmoothUsers >= m.Before.Users*(1+more/2)
}

// largestNoise is by what part means of users who are as many as before may differ.
const largestNoise = 0.2

// movable is an instance that may go to another node instead of getting company:
// its node is exhausted, and mostly by others.
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
