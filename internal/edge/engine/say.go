package engine

import (
	"fmt"
	"math"
	"strconv"
)

// The words of decisions, and the facts that they carry.

// decide adds a decision about a service.
func (s *service) decide(w *world, d Decision) {
	d.Service, d.Facts = s.Spec.Name, s.facts(w)
	if d.Algorithm == "" {
		d.Algorithm = s.algorithmName()
	}
	s.decisions = append(s.decisions, d)
}

// keep adds a Keep decision with its reason.
func (s *service) keep(w *world, cause Cause, reason string) {
	s.decide(w, Decision{Action: Keep, Cause: cause, Reason: reason})
}

// facts returns the measurements that a service's decisions are based on.
func (s *service) facts(w *world) Facts {
	f := Facts{
		Instances: len(s.instances), Wanted: s.wanted(),
		Users: s.demand.users, Capacity: float64(len(s.instances) * s.Spec.MaxUsers),
		ResponseSeconds: s.demand.response, DeliverySeconds: s.demand.delivery, RequiredSeconds: s.Spec.ResponseSeconds,
		Availability: s.availability(w, nil), RequiredAvailability: s.Spec.AvailabilityPercent / 100,
	}
	for _, i := range s.instances {
		may := i.node.seen.CPUs
		if limit := s.Spec.Limits.CPUs; limit > 0 && (limit < may || may == 0) {
			may = limit
		}
		if may > 0 && i.State == InstanceRunning {
			f.CPUPercent = max(f.CPUPercent, 100*i.CPUs/may)
		}
		f.NodeCPUPercent = max(f.NodeCPUPercent, i.node.cpuPercent())
	}
	return f
}

// summary describes a service that needs no change.
func (s *service) summary() string {
	switch {
	case s.Bound.Managed:
		return "it is the swarm's, and stays where it is"
	case len(s.instances) == 0 && s.Spec.CanSleep():
		return "it has no users, and the first one starts an instance"
	case len(s.instances) == 0:
		return "no instance runs"
	case !s.demand.measured:
		return s.have() + "; its users are not counted"
	case s.Spec.MaxUsers == 0:
		return fmt.Sprintf("%s users on %s", number(s.demand.users), plural(len(s.instances), "instance"))
	}
	return fmt.Sprintf("%s users, and %s for %d", number(s.demand.users), s.have(), len(s.instances)*s.Spec.MaxUsers)
}

// have returns "2 instances have room".
func (s *service) have() string {
	if len(s.instances) == 1 {
		return "1 instance has room"
	}
	return plural(len(s.instances), "instance") + " have room"
}

// expectation describes the expected effect of an option.
func (o *option) expectation(before float64) string {
	what := fmt.Sprintf("another instance on %s", o.Node)
	if o.away != nil && o.away.node == o.node {
		what = "the new one"
	} else if o.away != nil {
		what = fmt.Sprintf("it goes to %s", o.Node)
	}
	ready := fmt.Sprintf("is ready in about %s", duration(o.cost()))
	if o.TransferSeconds > 0 {
		ready += fmt.Sprintf(", %s of it for the image", duration(o.TransferSeconds))
	}
	if before > 0 && o.ResponseSeconds < before*0.99 {
		ready += fmt.Sprintf("; users are expected to wait %s instead of %s", duration(o.ResponseSeconds), duration(before))
	}
	return what + " " + ready
}

// uplinkBound describes what users wait for on the way from their node, and what would shorten that.
func (s *service) uplinkBound(f *Facts) string {
	text := fmt.Sprintf("%s of it for the way to them", duration(f.DeliverySeconds))
	n := s.demand.slowest
	if n == nil {
		return text + ", which another instance does not shorten"
	}
	if n.seen.UplinkBPS > 0 && float64(n.seen.UplinkSentBPS) >= high*float64(n.seen.UplinkBPS) {
		return fmt.Sprintf("%s: the uplink of %s is full; a larger weir.min, or users at another node, shorten that, another instance does not", text, n.seen.Name)
	}
	return fmt.Sprintf("%s from %s, whose uplink is not full: a larger weir.max, or faster lines of users, shorten that, another instance does not", text, n.seen.Name)
}

// noNode describes why no node is chosen.
func (pl *placement) noNode() string {
	if len(pl.options) > 0 {
		return fmt.Sprintf("the algorithm %s takes no node; the best, %s: %s", pl.s.algorithmName(), pl.options[0].Node, pl.options[0].Refused)
	}
	if len(pl.excluded) == 0 {
		return "there is no node"
	}
	text := "no node can have it: "
	for i, e := range pl.excluded {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d %s (%s)", e.Nodes, e.Reason, e.Example)
	}
	return text
}

// duration formats a time for people: "350 ms", "1.4 s", "5 min".
func duration(seconds float64) string {
	switch {
	case seconds < 0.9995:
		return fmt.Sprintf("%.3g ms", 1000*math.Max(seconds, 0))
	case seconds < 120:
		return fmt.Sprintf("%.3g s", seconds)
	}
	return fmt.Sprintf("%.0f min", seconds/60)
}

// number formats a number of users for people.
func number(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
