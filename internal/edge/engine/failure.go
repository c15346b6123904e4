package engine

import (
	"fmt"
	"maps"
	"time"
)

// # Back-off after failures
//
// Where an instance has failed, or a node has refused its minimum, no other one starts for a
// while, which doubles with each failure of the service. A service that fails on several nodes and
// runs on none is probably broken itself: then none starts anywhere.

// refused records that a node refused an instance's minimum, and returns why the instance stays
// there for now: the node is not retried at once, nor are all nodes in turn.
func (s *service) refused(w *world, i *instance) (waits string) {
	m := &s.memory
	if s.noteFailure(w, i) {
		m.Move.RaiseIfWithin(w.at, horizon)
	}
	if f := m.Failures[i.Node]; len(m.Failures) >= failuresBeforeWait && f.Blocked(w.at) > 0 {
		return fmt.Sprintf("it was refused or failed on %d nodes; another one is tried in %s", len(m.Failures), duration(f.Blocked(w.at)))
	}
	return ""
}

// noteFailure records an instance's failure on its node once and reports whether it is new. Of
// several, the newest counts.
func (s *service) noteFailure(w *world, i *instance) bool {
	f := s.memory.Failures[i.Node]
	if f.Level > 0 && !i.Since.After(f.Last) {
		return false
	}
	total := 0 // also of other nodes: an image that starts nowhere is not tried everywhere
	for _, other := range s.memory.Failures {
		total += other.Level
	}
	if s.memory.Failures == nil {
		s.memory.Failures = map[string]Failure{}
	}
	f.Done(i.Since)
	f.Raise()
	f.Block(w.at, doubled(shortFault, total)) // 10 s, 20 s, 40 s, ... by failures on all nodes
	f.Reason = orUnknown(i.Reason)
	s.memory.Failures[i.Node] = f
	return true
}

// forgetFailures drops failures that are as long past as they have kept instances away, and at
// least failureMemory: what fails every few minutes waits no longer each time.
func (s *service) forgetFailures(w *world) {
	maps.DeleteFunc(s.memory.Failures, func(_ string, f Failure) bool {
		return -f.Blocked(w.at) > max(failureMemory, f.Until.Sub(f.Last).Seconds())
	})
}

// failing returns why no instance of the service may be started now; empty if one may.
func (s *service) failing(w *world) string {
	count, until, reason := 0, time.Time{}, ""
	for node, f := range s.memory.Failures {
		if !f.Until.After(w.at) {
			continue
		}
		count++
		if until.IsZero() || f.Until.Before(until) || f.Until.Equal(until) && node+f.Reason < reason {
			until, reason = f.Until, node+": "+f.Reason
		}
	}
	if count < failuresBeforeWait {
		return ""
	}
	for _, i := range s.instances {
		if i.State == InstanceRunning {
			return ""
		}
	}
	return fmt.Sprintf("it failed on %d nodes and runs on none (%s); the next try is in %s", count, reason, duration(until.Sub(w.at).Seconds()))
}
