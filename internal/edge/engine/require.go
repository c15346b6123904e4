package engine

import (
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/policy"
)

// # Availability
//
// A service is there while one of its nodes is. Nodes fail independently, node n is
// there for the part a_n of the time, so instances on the nodes of a set N give
//
//	A = 1 - product over N of (1 - a_n)
//
// and there are as many nodes as it takes for A to reach QoS.availability. Several
// instances on one node count once. a_n is measured, see [EstimateAvailability].

// EstimateAvailability is the part of the time that a node is there, of which it was
// seen for upSeconds of the totalSeconds that somebody looked. Who has looked for a
// short time knows little, so prior (0 to 1) counts as if it had been seen for a day:
//
//	a = (upSeconds + prior * day) / (totalSeconds + day)
func EstimateAvailability(upSeconds, totalSeconds, prior float64) float64 {
	const day = 86400
	up, total := finite(upSeconds), finite(totalSeconds)
	return (min(up, total) + prior*day) / (total + day)
}

// availability is what the nodes of a service give together, without instance leaving
// (nil: with all).
func (s *service) availability(w *world, leaving *instance) float64 {
	missing := 1.0
	for i := range s.hosts {
		h := &s.hosts[i]
		count := h.count
		if leaving != nil && leaving.node.index == h.node {
			count--
		}
		if count > 0 {
			missing *= 1 - w.nodeAvailability(w.nodes[h.node])
		}
	}
	return 1 - missing
}

// nodeAvailability takes a node of which nobody knows, or that was never seen to be off,
// for an average one: that says more of who looked than of the node.
func (w *world) nodeAvailability(n *node) float64 {
	if n.Availability == 0 || n.Availability == 1 {
		return w.e.policy.NodeAvailability
	}
	return n.Availability
}

// require decides what must be.
func (w *world) require(s *service) {
	s.entries = s.usual
	w.replace(s)
	// Instances on other nodes have room for users as well, so they come before further
	// ones for users, which might all go to the node that has the image.
	if w.haveRoom(s, 1) {
		w.haveNodes(s)
		w.haveRoom(s, s.wanted())
	}
}

// replace finds another place for instances that cannot stay where they are.
func (w *world) replace(s *service) {
	apart := s.Spec.AvailabilityPercent > 0
	for _, i := range s.lost {
		n := need{cause: CauseNodeGone, must: true, away: i, apart: apart, why: fmt.Sprintf("%s was on %s, which does not answer any more", i.ID, i.Node)}
		if !w.place(s, n) {
			return
		}
	}
	updating := len(s.arriving) > 0
	for _, i := range slices.Clone(s.instances) {
		if i.replacedBy != nil || i.ID == "" { // or decided in this round
			continue
		}
		n := need{must: true, away: i, apart: apart && s.on(i.node.index) == 1}
		switch {
		case i.node.State == NodeDraining:
			n.cause, n.why = CauseDraining, fmt.Sprintf("%s is on %s, which is being drained", i.ID, i.Node)
		case i.MinRefused && s.minBPS > 0:
			n.cause, n.why = CauseRefused, fmt.Sprintf("%s does not keep the minimum %s of %s", i.Node, policy.FormatRate(s.minBPS), i.ID)
			if i.Reason != "" {
				n.why += " (" + i.Reason + ")"
			}
			if waits := s.refused(w, i); waits != "" {
				s.keep(w, n.cause, n.why+", but "+waits)
				continue
			}
		case i.Outdated && !updating: // one after the other
			n.cause, n.why = CauseOutdated, fmt.Sprintf("%s runs by an older specification", i.ID)
			updating = true
		default:
			continue
		}
		if !w.place(s, n) {
			return
		}
	}
}

// wanted is how many instances there are whatever users do.
func (s *service) wanted() int { return s.Spec.InstancesFor(float64(s.Spec.NumUsers)) }

// full says that there may not be more instances.
func (s *service) full() string {
	if most := s.Spec.Limits.Instances; most > 0 && len(s.instances) >= most {
		return fmt.Sprintf("limits.instances allows no more than %d", most)
	}
	return ""
}

// haveRoom starts instances until there are as many as wanted for the users that have to
// have room. It says whether there are.
func (w *world) haveRoom(s *service, wanted int) bool {
	for range w.e.policy.MostStarts {
		have := len(s.instances)
		if have >= wanted {
			return true
		}
		why := "no instance runs"
		if have > 0 {
			why = fmt.Sprintf("there has to be room for %d users, and %s for %d", s.Spec.NumUsers, s.have(), have*s.Spec.MaxUsers)
		} else if len(s.lost) > 0 { // they could not be replaced, and it is said why
			return false
		}
		if !w.place(s, need{cause: CauseCapacity, must: true, why: why}) {
			return false
		}
	}
	return len(s.instances) >= wanted
}

// haveNodes starts instances on other nodes until the service is there for as much of
// the time as it has to be.
func (w *world) haveNodes(s *service) {
	required := s.Spec.AvailabilityPercent / 100
	for range w.e.policy.MostStarts {
		// What rounding makes of a product is no reason for another instance.
		given := s.availability(w, nil)
		if given >= required-1e-12 || len(s.instances) == 0 {
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
