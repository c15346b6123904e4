package loop

import (
	"cmp"
	"slices"

	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// inspect observes a container's network and applies the resulting decision. Its packets get its
// number with the next reconciliation, when its class exists.
func (cs *containers) inspect(c *container) {
	cs.attachAs(c, attach.Plan(&c.Container, cs.attach.Observe(&c.Container, cs.attached())))
}

// attachAs puts a decision about a container's network into force.
func (cs *containers) attachAs(c *container, as attach.Decision) {
	if as.Release {
		cs.release(c)
	}
	c.Mode, c.NetNS, c.NetNSID = as.Mode, as.NetNS, as.NetNSID
	c.Devices, c.Unattached, c.Obstacle = as.Devices, as.Unattached, as.Obstacle
	if as.Controlled && c.Number == 0 {
		cs.number(c, as.Preferred)
	}
	if as.Soon {
		cs.rescanSoon()
	}
}

// number gives a container a number, the preferred one if it is free. For any other number it first
// clears state that an earlier agent may have left.
func (cs *containers) number(c *container, preferred uint16) {
	if cs.assign(c, preferred) {
		if c.Number != preferred {
			cs.attach.Forget(&c.Container, cs.uplinks.attachments())
		}
		return
	}
	c.Obstacle = "all container numbers are in use; it is counted in the host class"
	c.Devices, c.Unattached = nil, true
}

// inspectMissing inspects the containers without devices again, and returns their number.
func (cs *containers) inspectMissing() int {
	missing := cs.unattached()
	for _, c := range missing {
		cs.inspect(c)
	}
	return len(missing)
}

// inspectConfigured inspects containers from the config file whose network namespace may have that
// ID in the agent's namespace, because no engine reports their new devices. It returns their
// number.
func (cs *containers) inspectConfigured(netnsID int) int {
	inspected := 0
	for _, c := range cs.all() {
		if c.Seen.Configured && (c.NetNSID == netnsID || c.NetNSID == kernel.SameNetNS) {
			cs.inspect(c)
			inspected++
		}
	}
	return inspected
}

func (cs *containers) inspectAll() {
	for _, c := range cs.all() {
		cs.inspect(c)
	}
}

// inspectSome inspects the next few containers in turn.
func (cs *containers) inspectSome() {
	controlled := cs.controlled()
	first, _ := slices.BinarySearchFunc(controlled, cs.checked+1, func(c *container, number uint16) int {
		return cmp.Compare(c.Number, number)
	})
	for i := range min(checkedContainers, len(controlled)) {
		c := controlled[(first+i)%len(controlled)]
		cs.checked = c.Number
		cs.inspect(c)
		cs.attach.Recheck(&c.Container)
	}
}
