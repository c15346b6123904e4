package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Flows of containers whose class is auto: each such container has a flow table in the kernel, and
// taps that classify flows. internal/datapath/flows has the rest.

// flowState records the flow settings that the kernel has of one container.
type flowState struct {
	// hasTable: the container has a flow table; tableErr is the reason if it has none.
	hasTable bool
	tableErr error
	trust    identity.Applied[bool]
	// answers is the number under which received packets of the container's cgroup are counted
	// (host mode); 0 for none.
	answers identity.Applied[uint16]
}

// ClassifiesFlows reports whether each flow of the container has a traffic class of its own.
func (c *Container) ClassifiesFlows() bool {
	return c.isContainer() && c.Want.Class == identity.ClassAuto
}

// applyFlows opens flow tables for the containers whose class is auto, and removes all other
// tables.
func (a *Attacher) applyFlows(list []*Container) {
	if a.Flows == nil {
		return
	}
	var numbers []uint16
	for _, c := range list {
		if c.ClassifiesFlows() {
			numbers = append(numbers, c.Number)
		}
	}
	slices.Sort(numbers)
	refused := a.Flows.Keep(numbers)
	if refused != nil && a.flowsErr == nil {
		a.log.Error("cannot classify flows", "error", refused)
	}
	a.flowsErr = refused
	for _, c := range list {
		a.applyContainerFlows(c)
	}
}

func (a *Attacher) applyContainerFlows(c *Container) {
	f := &c.flows
	f.hasTable, f.tableErr = c.ClassifiesFlows() && a.Flows.Keeps(c.Number), nil
	if f.hasTable {
		_ = f.trust.Apply(c.Want.TrustDSCP, func() error { return a.Flows.SetTrustDSCP(c.Number, c.Want.TrustDSCP) })
	} else {
		f.trust = identity.Applied[bool]{} // the setting goes with the table
		if c.ClassifiesFlows() {
			f.tableErr = a.flowsErr
		}
	}
	// Containers in other modes have taps that see their received packets.
	if !f.hasTable || !c.hasCgroupOnly() {
		a.dropAnswers(c)
		return
	}
	err := f.answers.Apply(c.Number, func() error { return a.Flows.AttachCgroup(c.Seen.CgroupPath, c.Number) })
	if err != nil {
		a.log.Debug("cannot count the received packets of a cgroup", "name", c.Seen.Name, "error", err)
	}
}

// dropAnswers detaches the program that counts received packets from a container's cgroup, even if
// an earlier agent attached it.
func (a *Attacher) dropAnswers(c *Container) {
	if c.Seen.CgroupPath == "" || !c.flows.answers.Told() && !c.hasCgroupOnly() {
		return
	}
	_ = c.flows.answers.Apply(0, func() error {
		if err := identity.DetachCgroup(c.Seen.CgroupPath); err != nil && !errors.Is(err, kernel.ErrNoCgroup) {
			a.log.Warn("cannot stop counting the received packets of a cgroup", "name", c.Seen.Name, "error", err)
		}
		return nil
	})
}

// FlowComplaints lists the problems of classifying a container's flows.
func (c *Container) FlowComplaints() (reasons []string) {
	f := &c.flows
	switch {
	case c.Want.Class != identity.ClassAuto:
		return nil
	case c.Number == 0 && c.Obstacle == "":
		return []string{"weir.class is not in force: it has no network"}
	case !c.ClassifiesFlows():
		return nil // other complaints cover uncontrolled containers and the host class
	case f.tableErr != nil:
		return []string{"its flows are not classified: " + f.tableErr.Error()}
	case f.trust.Err() != nil:
		reasons = append(reasons, "the setting for its DSCP field is not in force: "+f.trust.Err().Error())
	}
	if err := f.answers.Err(); err != nil {
		reasons = append(reasons, "packets that it receives are not counted for its flows: "+err.Error())
	}
	for _, d := range c.Devices {
		if d.flowsErr != nil {
			reasons = append(reasons, fmt.Sprintf("its flows through %s are not classified: %v", d.Interface, d.flowsErr))
		}
	}
	return reasons
}
