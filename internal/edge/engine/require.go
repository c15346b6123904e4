package engine

import (
	"cmp"
	"fmt"
	"slices"
)

// # Availability
//
// A service is available while one of its nodes is. Nodes fail independently, node n is
// available for the part a_n of the time, so instances on the nodes of a set N give
//
//	A = 1 - product over N of (1 - a_n)
//
// and there are as many nodes as it takes for A to reach QoS.availability. Several
// instances on one node count once. a_n is measured, see [EstimateAvailability].

// EstimateAvailability returns the part of the time that a node is there, if it was there for
// upSeconds of the totalSeconds that it was watched. A short time says little, so prior (0 to 1)
// counts as if the node had been watched for a day before:
//
//	a = (upSeconds + prior * day) / (totalSeconds + day)
func EstimateAvailability(upSeconds, totalSeconds, prior float64) float64 {
	up, total := finite(upSeconds), finite(totalSeconds)
	return (min(up, total) + prior*priorSeconds) / (total + priorSeconds)
}

// availability returns the availability of a service's nodes together, without the instance leaving
// (nil: with all instances).
func (s *service) availability(w *world, leaving *instance) float64 {
	missing := 1.0
	for i := range s.hosts {
		h := &s.hosts[i]
		count := h.count
		if leaving != nil && leaving.node.index == h.node {
			count--
		}
		if count > 0 {
			missing *= 1 - w.nodes[h.node].availability()
		}
	}
	return 1 - missing
}

// availability returns a node's availability, or the default if the node is unknown or was never
// seen down.
func (n *node) availability() float64 {
	if n.seen.Availability == 0 || n.seen.Availability == 1 {
		return UnknownAvailability
	}
	return n.seen.Availability
}

// require starts the instances that are needed at any cost: replacements, capacity and
// availability.
func (w *world) require(s *service) {
	s.entries = s.demand.usual
	w.replace(s)
	// Instances on other nodes add capacity too, so availability comes before capacity, which might
	// fill the node that has the image.
	least := 1
	if s.Spec.CanSleep() && s.demand.users == 0 {
		least = 0
	}
	if w.haveRoom(s, least) {
		w.haveNodes(s)
		w.haveRoom(s, s.wanted())
	}
}

// replace moves instances off nodes that are gone or draining, not the service's any more, or refuse their
// minimum.
func (w *world) replace(s *service) {
	apart := s.Spec.AvailabilityPercent > 0
	for _, i := range s.lost {
		n := need{cause: CauseNodeGone, must: true, away: i, apart: apart, why: fmt.Sprintf("%s was on %s, which does not answer any more", i.ID, i.Node)}
		if !w.place(s, n) {
			return
		}
	}
	for _, i := range slices.Clone(s.instances) {
		if i.replacedBy != nil || i.ID == "" { // or decided in this round
			continue
		}
		n := need{must: true, away: i, apart: apart && s.instancesOn(i.node.index) == 1}
		switch {
		case i.node.seen.State == NodeDraining && s.Spec.IsExclusive() && s.Bound.Node == "":
			// It would be in the way of the one in its place.
			s.decide(w, Decision{Action: Stop, Instance: i.ID, Node: i.Node, Cause: CauseDraining, Reason: fmt.Sprintf("%s is on %s, which is being drained, and %s", i.ID, i.Node, s.alone())})
			s.instances = slices.DeleteFunc(s.instances, func(x *instance) bool { return x == i })
			s.ending.leaving = append(s.ending.leaving, i)
			continue
		case i.node.seen.State == NodeDraining && s.Spec.IsExclusive():
			s.keep(w, CauseDraining, fmt.Sprintf("%s is on %s, which is being drained, but %s keeps it there", i.ID, i.Node, s.Spec.Keeper()))
			continue
		case i.node.seen.State == NodeDraining:
			n.cause, n.why = CauseDraining, fmt.Sprintf("%s is on %s, which is being drained", i.ID, i.Node)
		case i.stays(w, s) != "":
			s.keep(w, CauseUpdate, i.stays(w, s))
			continue
		case s.Bound.forbids(w, i):
			n.cause, n.why = CauseUpdate, fmt.Sprintf("%s is on %s, and the service is for %s now", i.ID, i.Node, s.Bound.Node)
		case i.MinRefused && s.minimum != (Rates{}) && s.Spec.IsExclusive():
			s.keep(w, CauseRefused, fmt.Sprintf("%s does not keep its part of the minimum %s, but %s", i.Node, s.minimum, s.alone()))
			continue
		case i.MinRefused && s.minimum != (Rates{}):
			n.cause, n.why = CauseRefused, s.notKept(i)
			if waits := s.refused(w, i); waits != "" {
				s.keep(w, n.cause, n.why+", but "+waits)
				continue
			}
		default:
			continue
		}
		if !w.place(s, n) {
			return
		}
	}
}

// forbids reports whether an instance is not on its service's only node, as that was deployed again with another
// placement.
func (b *Bound) forbids(w *world, i *instance) bool {
	return i.Node != b.Node && slices.ContainsFunc(w.nodes, func(n *node) bool { return n.seen.Name == b.Node })
}

// stays returns why an instance stays with its data on a node that its service is not for any more; empty if it
// does not.
func (i *instance) stays(w *world, s *service) string {
	if !s.Spec.IsExclusive() || !s.Bound.forbids(w, i) {
		return ""
	}
	return fmt.Sprintf("%s is on %s, and the service is for %s, but %s: remove the service and deploy it to start anew there", i.ID, i.Node, s.Bound.Node, s.alone())
}

// notKept says that an instance's node does not keep its minimum.
func (s *service) notKept(i *instance) string {
	text := fmt.Sprintf("%s does not keep its part of the minimum %s of %s", i.Node, s.minimum, s.Spec.Name)
	if i.Reason != "" {
		text += " (" + i.Reason + ")"
	}
	return text
}

// wanted returns the number of instances that the specification asks for.
func (s *service) wanted() int { return min(s.Spec.LeastInstances(), s.Spec.MostInstances()) }

// waitsFor returns what has to be there, or gone, before an instance starts; empty for nothing.
func (s *service) waitsFor() string {
	if s.Bound.Awaits != "" && len(s.instances) == 0 {
		return "until " + s.Bound.Awaits + " answers"
	}
	if s.Spec.IsExclusive() {
		for _, others := range [][]*instance{s.ending.failed, s.ending.leaving, s.ending.surplus, s.instances} {
			if len(others) > 0 {
				return "until " + others[0].ID + " has ended, because " + s.alone()
			}
		}
	}
	return ""
}

// alone returns why an exclusive service has one instance at a time.
func (s *service) alone() string {
	return cmp.Or(s.Spec.Keeper(), "its volume") + " is for one instance at a time"
}

// full returns the reason why no instance may be added; empty if one may.
func (s *service) full() string {
	if most := s.Spec.MostInstances(); len(s.instances) >= most {
		if s.Spec.IsExclusive() {
			return s.alone()
		}
		switch {
		case s.Spec.Limits.Instances > 0:
			return fmt.Sprintf("limits.instances allows no more than %d", most)
		case s.Spec.Container != nil:
			return fmt.Sprintf("%d instances are the most by default: raise x-weir-edge.minInstances", most)
		}
		return fmt.Sprintf("%d instances are the most by default: raise limits.instances", most)
	}
	return ""
}

// haveRoom starts instances until there are as many as wanted. It returns true if there are enough.
func (w *world) haveRoom(s *service, wanted int) bool {
	for range mostStarts {
		have := len(s.instances)
		if have >= wanted {
			return true
		}
		why := "no instance runs"
		if have > 0 {
			why = fmt.Sprintf("there has to be room for %d users, and %s for %d", s.Spec.NumUsers, s.have(), have*s.Spec.MaxUsers)
			if s.Spec.InstancesFor(float64(s.Spec.NumUsers)) <= have {
				why = fmt.Sprintf("there have to be %s, and %d is there", plural(wanted, "instance"), have)
			}
		} else if s.Spec.CanSleep() {
			why = "a user has come, and " + why
			s.memory.Shrink.RaiseIfWithin(w.at, horizon)
		} else if len(s.lost) > 0 { // they could not be replaced: a decision says why
			return false
		}
		if !w.place(s, need{cause: CauseCapacity, must: true, why: why}) {
			return false
		}
	}
	return len(s.instances) >= wanted
}

// haveNodes starts instances on further nodes until the required availability is reached.
func (w *world) haveNodes(s *service) {
	required := s.Spec.AvailabilityPercent / 100
	for range mostStarts {
		// A rounding error of the product must not add an instance.
		given := s.availability(w, nil)
		if given >= required-rounding || len(s.instances) == 0 {
			return
		}
		why := fmt.Sprintf("the service has to be there for %g %% of the time, and its nodes are for %.6g %%", s.Spec.AvailabilityPercent, 100*given)
		if full := s.full(); full != "" {
			s.keep(w, CauseAvailability, why+", but "+full)
			return
		}
		if !w.place(s, need{cause: CauseAvailability, must: true, apart: true, why: why}) {
			return
		}
	}
}
