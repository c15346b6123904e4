package loop

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// An inspection lists the devices of the container's network, of which a container with
// CAP_NET_ADMIN may make tens of thousands, and its mounts. The loop waits for slowInspection at most
// (firstInspection where nothing is known yet), and for no container that took longer the last time:
// such inspections go on in a goroutine of their own, and end as an event of the loop. They are
// repeated less often, and one at a time: they take at most a tenth of a processor for a container
// without devices, whose device may have come, and a hundredth otherwise.

// inspection is the last one of a container's network.
type inspection struct {
	at   time.Time
	took time.Duration
	// late is the one that goes on beside the loop, nil if none does. again is set if there was a
	// reason for another one meanwhile.
	late  *lateInspection
	again bool
}

// lateInspection is an inspection that the loop does not wait for.
type lateInspection struct {
	of    *container
	began time.Time
	// What it began with: the network namespace's path and owner, and whether there was a number.
	path     string
	owner    *attach.Container
	numbered bool
	// seen is its result.
	seen attach.Observation
}

// inspect observes a container's network and applies the resulting decision, or later does. Its packets
// get its number with the next reconciliation, when its class exists.
func (cs *containers) inspect(c *container) {
	if c.inspection.late != nil {
		c.inspection.again = true
		return
	}
	isSlow := c.inspection.took > slowInspection
	if isSlow && cs.lateCount > 0 {
		c.Unattached = true // it waits for its turn
		return
	}
	began := time.Now()
	seen, look := cs.attach.Observe(&c.Container, cs.attached())
	if look == nil {
		cs.endInspection(c, began, seen)
		return
	}
	done := make(chan attach.Observation, 1)
	go func() { done <- look() }()
	patience := slowInspection
	switch {
	case c.inspection.at.IsZero():
		patience = firstInspection
	case isSlow:
		patience = 0
	}
	select {
	case seen = <-done:
		cs.endInspection(c, began, seen)
		return
	case <-time.After(patience):
	}
	cs.attach.LeaveInspector()
	cs.lateCount++
	late := &lateInspection{of: c, began: began, path: c.Seen.NetNSPath, owner: seen.Owner, numbered: c.Number != 0}
	c.inspection.late, c.Unattached = late, false
	if c.inspection.at.IsZero() {
		c.inspection.at, c.Mode, c.Obstacle = began, cmp.Or(c.Mode, v1.ModeNone), "its network is being inspected, which takes long"
	}
	go func() {
		late.seen = <-done
		cs.lateEnds <- late
	}()
}

func (cs *containers) endInspection(c *container, began time.Time, seen attach.Observation) {
	c.inspection.at, c.inspection.took = began, time.Since(began)
	cs.attachAs(c, attach.Plan(&c.Container, seen))
}

// endLate applies the result of an inspection that ended beside the loop, unless what it began with has
// changed. The container is inspected again if anything has.
func (cs *containers) endLate(late *lateInspection) {
	cs.lateCount--
	c := late.of
	again := c.inspection.again || c.Unattached
	c.inspection.late, c.inspection.again = nil, false
	if cs.byKey[c.key()] != c {
		return // it has stopped
	}
	owner := late.owner
	if late.seen.NetNS != (kernel.NetNSID{}) {
		owner = attach.Owner(late.seen.NetNS, &c.Container, cs.attached())
	}
	if c.Seen.NetNSPath != late.path || owner != late.owner || (c.Number != 0) != late.numbered {
		c.inspection.at, c.inspection.took = late.began, time.Since(late.began)
		cs.inspect(c)
		return
	}
	cs.endInspection(c, late.began, late.seen)
	c.Unattached = c.Unattached || again
}

const (
	slowInspection  = 100 * time.Millisecond
	firstInspection = time.Second
	missingDivisor  = 10
	checkDivisor    = 100
	// mostUninspected is how long a container is ok without an inspection because these are slow.
	mostUninspected = time.Minute
)

// uninspectedComplaint returns why the container's network was not looked at for too long, or "".
func (c *container) uninspectedComplaint(now time.Time) string {
	took := c.inspection.took
	if late := c.inspection.late; late != nil {
		took = max(took, now.Sub(late.began))
	}
	if took <= slowInspection || now.Sub(c.inspection.at) < mostUninspected {
		return ""
	}
	return fmt.Sprintf("its network was not looked at for more than a minute, as that takes %s: devices that it adds are not controlled until then; remove devices there",
		took.Round(slowInspection))
}

// mayInspect reports whether the container may be inspected again at a time, so that its
// inspections take at most that part of the time.
func (cs *containers) mayInspect(c *container, now time.Time, divisor time.Duration) bool {
	i := &c.inspection
	return i.late == nil && (i.took <= slowInspection || cs.lateCount == 0 && now.Sub(i.at) >= divisor*i.took)
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
		if cs.mayInspect(c, time.Now(), missingDivisor) {
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
		if cs.mayInspect(c, time.Now(), checkDivisor) {
			cs.inspect(c)
		}
		cs.attach.Recheck(&c.Container)
	}
}
