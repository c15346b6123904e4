package engine

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
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
	for _, i := range s.ending.failed {
		if stays := i.stays(w, s); stays != "" { // without it, one without its data would start
			s.keep(w, CauseUpdate, stays)
			continue
		}
		if i.Version != s.Versions.Wanted { // it says nothing of the present version
			if i.isReachable() {
				s.decide(w, Decision{
					Action: Stop, Instance: i.ID, Node: i.Node, Cause: CauseFailed,
					Reason: fmt.Sprintf("%s, of another version, failed on %s: %s", i.ID, i.Node, orUnknown(i.Reason)),
				})
			}
			continue
		}
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
	for _, i := range s.ending.surplus {
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
