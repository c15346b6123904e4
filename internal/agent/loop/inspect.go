package loop

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// inspect observes a container's network and applies the resulting decision. Its packets get its
// number with the next reconciliation, when its class exists.
func (cs *containers) inspect(c *container) {
	c.inspection.at = time.Now()
	cs.attachAs(c, attach.Plan(&c.Container, cs.attach.Observe(&c.Container, cs.attached())))
	c.inspection.took = time.Since(c.inspection.at)
}

// An inspection lists the devices of the container's network, of which a container with
// CAP_NET_ADMIN may make tens of thousands, while the shares of all wait. So slow ones are repeated
// less often: they take at most a tenth of the loop's time for a container without devices, whose
// device may have come, and a hundredth otherwise.
const (
	slowInspection = 100 * time.Millisecond
	missingDivisor = 10
	checkDivisor   = 100
	// mostUninspected is how long a container is ok without an inspection because these are slow.
	mostUninspected = time.Minute
)

// uninspectedComplaint returns why the container's network was not looked at for too long, or "".
func (c *container) uninspectedComplaint(now time.Time) string {
	if c.inspection.took <= slowInspection || now.Sub(c.inspection.at) < mostUninspected {
		return ""
	}
	return fmt.Sprintf("its network was not looked at for more than a minute, as that takes %s: devices that it adds are not controlled until then; remove devices there",
		c.inspection.took.Round(slowInspection))
}

// mayInspect reports whether the container may be inspected again at a time, so that its
// inspections take at most that part of the time.
func (c *container) mayInspect(now time.Time, divisor time.Duration) bool {
	return c.inspection.took <= slowInspection || now.Sub(c.inspection.at) >= divisor*c.inspection.took
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
	inspected := 0
	for _, c := range cs.unattached() {
		if c.mayInspect(time.Now(), missingDivisor) {
			cs.inspect(c)
			inspected++
		}
	}
	return inspected
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
		if c.mayInspect(time.Now(), checkDivisor) {
			cs.inspect(c)
		}
		cs.attach.Recheck(&c.Container)
	}
}
