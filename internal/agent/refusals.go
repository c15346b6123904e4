package agent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/alloc"
)

// refusal is a part of a policy that cannot be put into force. what names it and stays
// the same for as long as that is so; why may change with what others have.
type refusal struct{ what, why string }

// refusals are what of the container's policy cannot be put into force, but for labels
// that are wrong (resolve tells of these) and for what is wrong with a whole uplink.
func (c *container) refusals() (list []refusal) {
	if c.obstacle != "" {
		list = append(list, refusal{c.obstacle, c.obstacle})
	}
	if c.number == 0 {
		return list
	}
	for _, complaint := range c.flowsComplaints() {
		list = append(list, refusal{complaint, complaint})
	}
	for _, s := range c.shares {
		add := func(what string, err error) {
			if err != nil {
				list = append(list, refusal{what + " at " + s.uplink.name, err.Error()})
			}
		}
		add(asked(s.refused), s.refused)
		add(asked(s.refusedLatency), s.refusedLatency)
		add("class", cmp.Or(s.classRefused, s.markRefused))
		if s.bringsSockets() {
			add("sockets", s.cgroupRefused)
		}
	}
	return list
}

// asked names a guarantee that was refused.
func asked(err error) string {
	var floor *alloc.FloorError
	var latency *alloc.LatencyError
	switch {
	case errors.As(err, &floor):
		return fmt.Sprintf("minimum of %d bit/s", floor.AskedBPS)
	case errors.As(err, &latency):
		return fmt.Sprintf("latency of %v", latency.Asked)
	}
	return ""
}

// tellRefusals tells the log of each refusal when it begins, and when none is left.
func (a *Agent) tellRefusals() {
	a.tellRefusalsOf(a.host)
	for _, c := range a.registry.byKey {
		a.tellRefusalsOf(c)
	}
}

// tellRefusalsOf leaves one whose devices come or go for the moment when that is over.
func (a *Agent) tellRefusalsOf(c *container) {
	if c.unattached {
		return
	}
	list := c.refusals()
	for _, r := range list {
		told := func(other refusal) bool { return other.what == r.what }
		if !slices.ContainsFunc(c.toldRefusals, told) {
			a.log.Warn("policy is not in force", "name", c.Name, "reason", r.why)
		}
	}
	if len(list) == 0 && len(c.toldRefusals) > 0 {
		a.log.Info("policy is in force again", "name", c.Name)
	}
	c.toldRefusals = list
}
