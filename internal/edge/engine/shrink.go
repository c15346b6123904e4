package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/spec"
)

// shrink stops an instance when users are few for long enough.
func (w *world) shrink(s *service) {
	m, p := &s.memory, &w.e.policy
	s.entries = s.usual
	var leaver *instance
	if s.steady() && len(s.instances) > max(s.wanted(), 1) {
		leaver = w.leaver(s)
	}
	held := w.holds(&m.LowSince, leaver != nil, s.downHold(p))
	if leaver == nil {
		return
	}
	why := fmt.Sprintf("%s users, and %s would be enough", number(s.users), plural(len(s.instances)-1, "instance"))
	last := m.GrownAt
	if m.ShrunkAt.After(last) {
		last = m.ShrunkAt
	}
	switch {
	case !held:
		s.keep(w, CauseIdle, fmt.Sprintf("%s, for %s; that has to last for %s", why, duration(w.since(m.LowSince)), duration(s.downHold(p))))
		return
	case w.lately(last, p.CoolDownSeconds):
		s.keep(w, CauseIdle, fmt.Sprintf("%s, but something has changed %s ago; nothing is stopped within %s of that", why, duration(w.since(last)), duration(p.CoolDownSeconds)))
		return
	}
	s.decide(w, Decision{
		Action: Stop, Instance: leaver.ID, Node: leaver.Node, Cause: CauseIdle,
		Reason: fmt.Sprintf("%s, for %s", why, duration(w.since(m.LowSince))),
	})
	s.instances = slices.DeleteFunc(s.instances, func(i *instance) bool { return i == leaver })
	if m.Regrets > 0 && w.since(m.GrownAt) > regretted*s.downHold(p) {
		m.Regrets--
	}
	m.ShrunkAt, m.LowSince, m.Before = w.at, zeroTime, nil
}

// Who is missed within regretted times the hold was stopped too early, and who goes back to
// where it came from was moved too early: the hold doubles, up to mostRegrets times, so that a
// demand that comes and goes is not chased. After as long a time without it, it halves again.
const (
	regretted   = 5
	mostRegrets = 6
)

// tooSoon: what was done then is regretted if it is undone now.
func (w *world) tooSoon(s *service, done time.Time) bool {
	return w.lately(done, regretted*s.downHold(&w.e.policy))
}

func (m *ServiceMemory) regret() { m.Regrets = min(m.Regrets+1, mostRegrets) }

// downHold is how long users have to be few, in seconds.
func (s *service) downHold(p *Policy) float64 { return p.DownHoldSeconds * s.patience() }

// closerHold is how long, in seconds, users have to be elsewhere, on average over as long a
// time, until an instance goes there.
func (s *service) closerHold(p *Policy) float64 { return p.CoolDownSeconds * s.patience() }

// patience is by how much longer than usual one waits who has regretted before.
func (s *service) patience() float64 {
	return float64(uint(1) << min(max(s.memory.Regrets, 0), mostRegrets))
}

// steady: everything is known, and nothing else is happening.
func (s *service) steady() bool {
	if !s.measured || len(s.lost) > 0 || len(s.arriving) > 0 || len(s.decisions) > 0 {
		return false
	}
	for _, i := range s.instances {
		if i.State != InstanceRunning || i.node.State != NodeReady || i.replacedBy != nil {
			return false
		}
	}
	return true
}

// leaver is the instance that is missed least, if the others are enough; nil if not.
func (w *world) leaver(s *service) *instance {
	p, m := &w.e.policy, &s.memory
	left := len(s.instances) - 1
	low := p.UsersLowPercent / 100
	if s.Spec.MaxUsers > 0 && s.users > low*float64(left*s.Spec.MaxUsers) {
		return nil
	}
	// For whom an instance was added it stays, unless it was of no use.
	if m.GrownUsers > 0 && !m.InVainUntil.After(m.GrownAt) && s.users > low/(p.UsersHighPercent/100)*m.GrownUsers {
		return nil
	}
	given, required := s.availability(w, nil), s.Spec.AvailabilityPercent/100
	carried := s.model.carried(w, s, false)
	// Of its node's uplink there is as much without an instance, if another one stays there.
	offline := s.model
	offline.bpsPerUser = 0
	offlineCarried := offline.carried(w, s, false)
	var best *instance
	var bestTrip, bestCarried float64
	for _, i := range s.instances {
		if a := s.availability(w, i); a < min(given, required)-1e-12 {
			continue
		}
		h := s.host(i.node.index)
		rest := s.model.without(i, s, carried)
		same := rest > carried*(1-1e-9) && offline.use(offline.without(i, s, offlineCarried)) <= low
		if s.model.use(rest) > low && !same {
			continue
		}
		h.count--
		trip := s.roundTrip(w, -1)
		h.count++
		// The last one of equally good ones, so that low numbers stay.
		if best == nil || cmp.Or(cmp.Compare(trip, bestTrip), cmp.Compare(bestCarried, rest)) <= 0 {
			best, bestTrip, bestCarried = i, trip, rest
		}
	}
	return best
}

// comeCloser moves an instance to where users come to, if they would wait noticeably
// less for that.
func (w *world) comeCloser(s *service) {
	m, p := &s.memory, &w.e.policy
	s.entries = s.usual
	trip := s.roundTrip(w, -1)
	before := s.expected(w)
	far := s.steady() && s.algorithmName() == spec.AlgorithmHybrid && trip*100 > before*p.MinGainPercent
	hold := s.closerHold(p)
	if !w.holds(&m.CloserSince, far, hold) || w.lately(m.GrownAt, hold) || w.lately(m.ShrunkAt, hold) || w.lately(m.CloserAt, hold) {
		return
	}
	var nodes []int
	for _, e := range s.entries {
		// A node that is nearly exhausted would soon drive it away again.
		if n := w.nodes[e.node]; s.on(e.node) == 0 && n.exhausted == "" && n.cpuPercent() < 0.7*p.NodeCPUHighPercent {
			nodes = append(nodes, e.node)
		}
	}
	if len(nodes) == 0 {
		return
	}
	leaver := s.instances[0]
	for _, i := range s.instances[1:] {
		if i.Users < leaver.Users {
			leaver = i
		}
	}
	n := need{
		cause: CauseCloser, away: leaver, apart: true, only: nodes,
		why: fmt.Sprintf("users wait %s for the network alone", duration(trip)),
	}
	if !w.place(s, n) {
		return
	}
	switch to := s.decisions[len(s.decisions)-1].Node; {
	case !w.tooSoon(s, m.CloserAt):
		m.Regrets = max(m.Regrets-1, 0)
	case to == m.CloserFrom:
		m.regret()
	}
	m.CloserAt, m.CloserFrom, m.CloserSince = w.at, leaver.Node, zeroTime
}
