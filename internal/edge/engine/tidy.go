package engine

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// removeOrphans stops instances of removed services. On a silent node it waits until the node
// answers.
func (w *world) removeOrphans() []Decision {
	var list []Decision
	for _, i := range w.orphans {
		if i.State != InstanceStopping && i.isReachable() {
			list = append(list, Decision{
				Action: Stop, Service: i.Service, Instance: i.ID, Node: i.Node,
				Cause: CauseRemoved, Reason: fmt.Sprintf("the service %s should not run any more", i.Service),
			})
		}
	}
	return list
}

// isReachable reports whether the instance's node answers and can stop it.
func (i *instance) isReachable() bool { return i.node != nil && i.node.seen.State != NodeGone }

// tidy stops failed and replaced instances.
func (w *world) tidy(s *service) {
	s.forgetFailures(w)
	for _, i := range s.failed {
		if s.noteFailure(w, i) && len(s.memory.Failures) < failuresBeforeWait {
			s.memory.Trial = nil // an instance that does not run proves nothing
		}
		if !i.isReachable() {
			continue
		}
		f := s.memory.Failures[i.Node]
		s.decide(w, Decision{
			Action: Stop, Instance: i.ID, Node: i.Node, Cause: CauseFailed,
			Reason: fmt.Sprintf("%s failed on %s: %s; none is started there for %s", i.ID, i.Node, orUnknown(i.Reason), duration(f.Blocked(w.at))),
		})
	}
	for _, i := range s.surplus {
		s.decide(w, Decision{
			Action: Stop, Instance: i.ID, Node: i.Node, Cause: CauseReplaced,
			Reason: fmt.Sprintf("%s on %s answers in its place", i.replacedBy.ID, i.replacedBy.Node),
		})
	}
}

func orUnknown(reason string) string {
	if reason == "" {
		return "no reason is known"
	}
	return reason
}

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
	f.Block(w.at, doubled(shortFault, total))
	f.Reason = orUnknown(i.Reason)
	s.memory.Failures[i.Node] = f
	return true
}

// forgetFailures drops failures older than the longest wait.
func (s *service) forgetFailures(w *world) {
	maps.DeleteFunc(s.memory.Failures, func(_ string, f Failure) bool {
		return -f.Blocked(w.at) > doubled(shortFault, mostDoublings)
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

func (m ServiceMemory) clone() ServiceMemory {
	m.Failures = maps.Clone(m.Failures)
	if m.Trial != nil {
		trial := *m.Trial
		m.Trial = &trial
	}
	return m
}

// numberOf returns the number in an instance's ID; 0 if it has none.
func numberOf(id, service string) int {
	text, ok := strings.CutPrefix(id, service+"-")
	number, err := strconv.Atoi(text)
	if !ok || err != nil || number < 0 {
		return 0
	}
	return number
}

// nextID returns the ID of a new instance.
func (s *service) nextID() string {
	for number := 1; ; number++ {
		if !s.numbers[number] {
			s.numbers[number] = true
			return InstanceID(s.Spec.Name, number)
		}
	}
}
