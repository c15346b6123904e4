package engine

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"
)

// removeOrphans stops what should not run. What is on a node that does not answer
// waits until it does.
func (w *world) removeOrphans() []Decision {
	var list []Decision
	for _, i := range w.orphans {
		if i.State != InstanceStopping && i.reachable() {
			list = append(list, Decision{
				Action: Stop, Service: i.Service, Instance: i.ID, Node: i.Node,
				Cause: CauseRemoved, Reason: fmt.Sprintf("the service %s should not run any more", i.Service),
			})
		}
	}
	return list
}

// reachable: somebody can be told to stop it.
func (i *instance) reachable() bool { return i.node != nil && i.node.State != NodeGone }

// tidy stops what failed, and what was replaced.
func (w *world) tidy(s *service) {
	s.forget(w)
	for _, i := range s.failed {
		if s.noteFailure(w, i) && len(s.memory.Failures) < failuresBeforeWait {
			s.memory.Before = nil // what does not run says nothing of whether it would have helped
		}
		if !i.reachable() {
			continue
		}
		f := s.memory.Failures[i.Node]
		s.decide(w, Decision{
			Action: Stop, Instance: i.ID, Node: i.Node, Cause: CauseFailed,
			Reason: fmt.Sprintf("%s failed on %s: %s; none is started there for %s", i.ID, i.Node, orUnknown(i.Reason), duration(f.Until.Sub(w.at).Seconds())),
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
		return "nobody says why"
	}
	return reason
}

// refused remembers that a node refused an instance's minimum, and says why it stays there all
// the same for the moment. Who refused is not asked again at once, nor are all nodes in turn.
func (s *service) refused(w *world, i *instance) (waits string) {
	m := &s.memory
	if s.noteFailure(w, i) && w.tooSoon(s, m.CloserAt) {
		m.regret()
	}
	if f := m.Failures[i.Node]; len(m.Failures) >= failuresBeforeWait && f.Until.After(w.at) {
		return fmt.Sprintf("it was refused or failed on %d nodes; another one is tried in %s", len(m.Failures), duration(f.Until.Sub(w.at).Seconds()))
	}
	return ""
}

// noteFailure remembers that an instance failed on its node, once; it says whether that is new.
// Of several there the newest counts.
func (s *service) noteFailure(w *world, i *instance) bool {
	f := s.memory.Failures[i.Node]
	if f.Count > 0 && !i.Since.After(f.At) {
		return false
	}
	total := 0 // also of other nodes: an image that starts nowhere is not tried everywhere
	for _, other := range s.memory.Failures {
		total += other.Count
	}
	p := &w.e.policy
	wait := min(p.BackoffSeconds*math.Pow(2, float64(min(total, 30))), p.BackoffMostSeconds)
	if s.memory.Failures == nil {
		s.memory.Failures = map[string]Failure{}
	}
	s.memory.Failures[i.Node] = Failure{
		Count: f.Count + 1, At: i.Since, Reason: orUnknown(i.Reason),
		Until: w.at.Add(time.Duration(wait * float64(time.Second))),
	}
	return true
}

// forget drops failures that are long over.
func (s *service) forget(w *world) {
	maps.DeleteFunc(s.memory.Failures, func(_ string, f Failure) bool {
		return w.at.Sub(f.Until).Seconds() > w.e.policy.BackoffMostSeconds
	})
}

// failuresBeforeWait is on how many nodes a service may fail that runs nowhere, or be refused
// its minimum, until it is the service that has to wait.
const failuresBeforeWait = 3

// failing says why nothing of a service is started at all for the moment.
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
	if m.Before != nil {
		before := *m.Before
		m.Before = &before
	}
	return m
}

// numberOf is the number of an instance in its ID; 0 if it has none.
func numberOf(id, service string) int {
	text, ok := strings.CutPrefix(id, service+"-")
	number, err := strconv.Atoi(text)
	if !ok || err != nil || number < 0 {
		return 0
	}
	return number
}

// nextID is that of a new instance.
func (s *service) nextID() string {
	for number := 1; ; number++ {
		if !s.numbers[number] {
			s.numbers[number] = true
			return InstanceID(s.Spec.Name, number)
		}
	}
}
