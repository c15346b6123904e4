package engine

import (
	"fmt"
	"slices"
)

// # Updates
//
// A service that is deployed again has another version, and its instances are replaced one by one: the
// new one answers before the old one ends. Where two at a time would be in each other's way, the old
// one ends first. Until all have answered for a while, an instance of the new version that fails makes
// the service go back to the version before, by the same steps. Any other reason to start an instance
// starts one of the present version.

// beginVersion forgets what is known of another version.
func (m *ServiceMemory) beginVersion(version string) {
	if m.Version != version {
		m.Version, m.Failures, m.Trial, m.Settle = version, nil, nil, Pace{}
	}
}

// goBack decides to go back to the version before, if an instance of the present one has failed. It
// reports whether it does: then nothing else is decided in this round.
func (w *world) goBack(s *service) bool {
	i := slices.IndexFunc(s.ending.failed, func(i *instance) bool { return i.Version == s.Versions.Wanted })
	if s.Versions.Before == "" || i < 0 {
		return false
	}
	failed := s.ending.failed[i]
	s.decide(w, Decision{
		Action: GoBack, Version: s.Versions.Before, Cause: CauseUpdate,
		Reason: fmt.Sprintf("the new version goes back to the one before: %s failed on %s: %s", failed.ID, failed.Node, orUnknown(failed.Reason)),
	})
	return true
}

// update replaces the next instance that has another version than the service, or ends the update.
func (w *world) update(s *service) {
	old := w.outdated(s)
	settled := s.Versions.Before != "" && old == nil && w.isAnswering(s) && len(s.instances) >= max(s.wanted(), 1)
	if s.memory.Settle.Hold(w.at, settled, shortFault) {
		s.decide(w, Decision{
			Action: Settle, Version: s.Versions.Wanted, Cause: CauseUpdate,
			Reason: fmt.Sprintf("all instances have the new version, and have answered for %s", duration(w.since(s.memory.Settle.Since))),
		})
	}
	if old == nil || slices.ContainsFunc(s.decisions, func(d Decision) bool { return d.changesInstances() && d.Action != Stop }) {
		return
	}
	why := old.ID + " is of another version than the service"
	switch {
	case old.stays(w, s) != "": // replace has said it
	case s.Spec.IsExclusive():
		s.decide(w, Decision{
			Action: Stop, Instance: old.ID, Node: old.Node, Cause: CauseUpdate,
			Reason: fmt.Sprintf("%s, and %s: it ends before the new one starts, and users wait for that long", why, s.alone()),
		})
		s.instances = slices.DeleteFunc(s.instances, func(i *instance) bool { return i == old })
		s.ending.leaving = append(s.ending.leaving, old)
	case len(s.arriving) > 0 || !w.isAnswering(s):
		s.keep(w, CauseUpdate, why+"; its turn comes when the one before it answers")
	default:
		n := need{cause: CauseUpdate, why: why, must: true, away: old}
		if newPlacement(w, s, n).excludes(old.node) == "" {
			n.only = []int{old.node.index} // it has the image's layers, and users are there
		}
		w.place(s, n)
	}
}

// outdated returns the instance of another version to replace next: one that does not answer before one
// that does; nil if there is none.
func (w *world) outdated(s *service) (next *instance) {
	for _, i := range s.instances {
		if i.Version == s.Versions.Wanted || i.replacedBy != nil || !i.isReachable() || i.ID == "" {
			continue
		}
		if next == nil || next.State == InstanceRunning && i.State != InstanceRunning {
			next = i
		}
	}
	return next
}

// isAnswering reports whether all instances of the present version answer.
func (w *world) isAnswering(s *service) bool {
	return len(s.arriving) == 0 && !slices.ContainsFunc(s.instances, func(i *instance) bool { return i.Version == s.Versions.Wanted && i.State != InstanceRunning })
}
