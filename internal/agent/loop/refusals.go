package loop

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/share/alloc"
)

// refusal is a part of a policy that cannot be put into force. what names it and stays the same
// while the refusal lasts; why may change with other containers' claims.
type refusal struct{ what, why string }

// refusals lists the parts of the container's policy that cannot be put into force, except wrong
// labels (resolve logs these) and problems of a whole uplink.
func (c *container) refusals() (list []refusal) {
	if c.Obstacle != "" {
		list = append(list, refusal{c.Obstacle, c.Obstacle})
	}
	if c.Number == 0 {
		return list
	}
	for _, complaint := range append(c.FlowComplaints(), c.notReceived()) {
		if complaint != "" {
			list = append(list, refusal{complaint, complaint})
		}
	}
	for _, s := range c.shares {
		add := func(what string, err error) {
			if err != nil {
				list = append(list, refusal{what + " at " + s.uplink.device.Name(), s.uplink.says(err.Error())})
			}
		}
		add(asked(s.refused), s.refused)
		add(asked(s.refusedLatency), s.refusedLatency)
		refusal := s.uplink.attached.Refusal(&s.container.Container)
		add("class", cmp.Or(refusal.Class, refusal.Mark))
		add("sockets", refusal.Cgroup)
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

// tellRefusals logs each new refusal, and the end of the last one.
func (cs *containers) tellRefusals() {
	cs.tellRefusalsOf(cs.host)
	for _, c := range cs.byKey {
		cs.tellRefusalsOf(c)
	}
}

// tellRefusalsOf logs the refusals of one container. It skips a container whose devices are just
// changing.
func (cs *containers) tellRefusalsOf(c *container) {
	if c.Unattached {
		return
	}
	list := c.refusals()
	for _, r := range list {
		told := func(other refusal) bool { return other.what == r.what }
		if !slices.ContainsFunc(c.toldRefusals, told) {
			cs.log.Warn("policy is not in force", "name", c.Seen.Name, "reason", r.why)
		}
	}
	if len(list) == 0 && len(c.toldRefusals) > 0 {
		cs.log.Info("policy is in force again", "name", c.Seen.Name)
	}
	c.toldRefusals = list
}
