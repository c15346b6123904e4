package engine

import "slices"

// # Managed services
//
// A Swarm service that weir-edge did not make, and may move, has one task, which the swarm starts and restarts: an
// instance that is here only to be placed. It goes to another node when its own refuses its minimum, by the
// same rules as others, and once that has lasted: one task may end while the next one begins. What such a
// service is promised on its way is a claim, which the caller makes ([AdmitClaims]).

// manage moves the task of a managed service off a node that refuses its minimum.
func (w *world) manage(s *service) {
	if !s.Bound.Managed {
		return
	}
	s.forgetFailures(w)
	for _, i := range s.ending.failed { // where it could not go
		s.noteFailure(w, i)
	}
	at := slices.IndexFunc(s.instances, func(i *instance) bool { return i.MinRefused && s.minimum != (Rates{}) })
	if m := &s.memory.Move; !m.Hold(w.at, at >= 0, m.Doubled(shortFault)) {
		return
	}
	i := s.instances[at]
	n := need{cause: CauseRefused, must: true, away: i, why: s.notKept(i)}
	if s.Bound.Stays != "" {
		s.keep(w, n.cause, n.why+", but "+s.Bound.Stays)
	} else if waits := s.refused(w, i); waits != "" {
		s.keep(w, n.cause, n.why+", but "+waits)
	} else if w.place(s, n) {
		d := &s.decisions[len(s.decisions)-1]
		d.Instance, d.Reason = "", n.why+": it goes to "+d.Node
		s.memory.Move.Done(w.at)
	}
}
