package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/edge/spec"
)

// shrink stops an instance after users have been few for the hold time or, where nothing counts them, after
// the specification has asked for fewer.
func (w *world) shrink(s *service) {
	p := &s.memory.Shrink
	s.entries = s.demand.usual
	var leaver *instance
	if s.isSteady() && len(s.instances) > max(s.wanted(), 1) {
		leaver = w.leaver(s)
	}
	if s.isSteady() && s.Spec.CanSleep() && len(s.instances) == 1 && s.demand.users == 0 && !s.demand.asked {
		leaver = s.instances[0]
	}
	hold := p.Doubled(shrinkHold)
	held := p.Hold(w.at, leaver != nil, hold)
	if leaver == nil {
		return
	}
	why := fmt.Sprintf("%s users, and %s would be enough", number(s.demand.users), plural(len(s.instances)-1, "instance"))
	if s.demand.uncounted {
		why = fmt.Sprintf("%s would be enough for numUsers and availability", plural(len(s.instances)-1, "instance"))
	}
	if !held {
		s.keep(w, CauseIdle, fmt.Sprintf("%s, for %s; that has to last for %s", why, duration(w.since(p.Since)), duration(hold)))
		return
	}
	s.decide(w, Decision{
		Action: Stop, Instance: leaver.ID, Node: leaver.Node, Cause: CauseIdle,
		Reason: fmt.Sprintf("%s, for %s", why, duration(w.since(p.Since))),
	})
	s.instances = slices.DeleteFunc(s.instances, func(i *instance) bool { return i == leaver })
	if p.Level > 0 && w.since(s.memory.Grow.Last) > p.Doubled(horizon) {
		p.Relax()
	}
	p.Done(w.at)
	s.memory.Trial = nil
}

// isSteady reports whether the service is fully measured, if anything measures it, and no other change is under way.
func (s *service) isSteady() bool {
	if !s.demand.measured && !s.demand.uncounted || len(s.lost) > 0 || len(s.arriving) > 0 || len(s.decisions) > 0 {
		return false
	}
	for _, i := range s.instances {
		if i.State != InstanceRunning || i.node.seen.State != NodeReady || i.replacedBy != nil {
			return false
		}
	}
	return true
}

// leaver returns the instance whose stop costs least, or nil if the rest would not suffice.
func (w *world) leaver(s *service) *instance {
	m, users := &s.memory, s.demand.users
	left := len(s.instances) - 1
	if s.Spec.MaxUsers > 0 && users > low*float64(left*s.Spec.MaxUsers) {
		return nil
	}
	// An instance stays while the users that it was added for are there, unless it had no effect.
	if m.GrownUsers > 0 && !m.Grow.Until.After(m.Grow.Last) && users > low/usersHigh*m.GrownUsers {
		return nil
	}
	given, required := s.availability(w, nil), s.Spec.AvailabilityPercent/100
	carried := s.model.carried(w, s, false)
	// If another instance stays on the node, removing one does not change the node's uplink share.
	offline := s.model
	offline.bpsPerUser = 0
	offlineCarried := offline.carried(w, s, false)
	var best *instance
	var bestTrip, bestCarried float64
	for _, i := range s.instances {
		if a := s.availability(w, i); a < min(given, required)-rounding {
			continue
		}
		h := s.host(i.node.index)
		rest := s.model.without(i, s, carried)
		same := rest > carried*(1-rounding) && offline.use(offline.without(i, s, offlineCarried)) <= low
		if s.model.use(rest) > low && !same {
			continue
		}
		h.count--
		trip := s.roundTrip(w, -1)
		h.count++
		// Among equals choose the last one, so that low numbers stay.
		if best == nil || cmp.Or(cmp.Compare(trip, bestTrip), cmp.Compare(bestCarried, rest)) <= 0 {
			best, bestTrip, bestCarried = i, trip, rest
		}
	}
	return best
}

// comeCloser moves an instance to a node where users connect, if that shortens their response time
// noticeably.
func (w *world) comeCloser(s *service) {
	p := &s.memory.Move
	s.entries = s.demand.usual
	trip := s.roundTrip(w, -1)
	far := s.isSteady() && !s.Spec.IsExclusive() && s.algorithmName() == spec.AlgorithmHybrid && trip > s.expected(w)*minGain
	if !p.Hold(w.at, far, p.Doubled(moveHold)) {
		return
	}
	var nodes []int
	for _, e := range s.entries {
		// Skip nodes that are nearly exhausted: the instance would soon be moved away again.
		if n := w.nodes[e.node]; s.instancesOn(e.node) == 0 && n.exhausted == "" && n.cpuPercent() < 100*low {
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
	case !p.Within(w.at, p.Doubled(horizon)):
		p.Relax()
	case to == s.memory.MovedFrom:
		p.Raise()
	}
	p.Done(w.at)
	s.memory.MovedFrom = leaver.Node
}
