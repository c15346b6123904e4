// Package attach makes packets carry the number of their container, and tells the classifiers at
// the uplinks what they need to know about containers.
//
// Observe reads a container's network and changes nothing. Plan decides from that whether the
// container is controlled, at which devices, and what prevents it. Attacher.Apply programs the
// kernel: taps and packet limits at containers' devices, flow tables, programs at cgroups and
// bridges, watched network namespaces, and one table for each classifier (identity.Table). An
// identity.Applied records each setting that the kernel accepted or refused.
//
// Nothing here is safe for concurrent use.
package attach

import (
	"cmp"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Container is a container with the state of its network and of its attachment.
type Container struct {
	// Seen is what its source reports.
	Seen discovery.Container
	// Number is the number that its packets carry; 0 for a container that is not controlled.
	Number uint16
	Mode   v1.Mode
	NetNS  kernel.NetNSID
	// NetNSID is the ID of a configured container's network namespace in the agent's namespace.
	NetNSID int
	Devices []Device
	// Unattached: the agent has to look for its devices again.
	Unattached bool
	// Obstacle is the reason why all or part of it is not controlled.
	Obstacle string
	Want     Want

	ports   ports
	bypass  identity.Applied[string]
	flows   flowState
	bridged bridged
}

// Want is the wanted treatment of a container's packets.
type Want struct {
	// Class is the traffic class of all its packets; with identity.ClassAuto each flow has its own.
	Class sched.TrafficClass
	// TrustDSCP: the DSCP field of its packets selects their class. MarkDSCP: Weir writes the class
	// into the DSCP field.
	TrustDSCP, MarkDSCP bool
	// PacketBytes is the largest packet that its devices may hand over; 0 for no limit.
	PacketBytes uint32
}

// Learn copies what a discovery source reports about the container.
func (c *Container) Learn(seen discovery.Container) {
	c.Seen = seen
	c.ports = publishedPorts(seen.Ports)
}

// isContainer reports whether the container is controlled and not the host class.
func (c *Container) isContainer() bool { return c.Number >= identity.NumberFirst }

// SendsFromSockets reports whether its packets still belong to their sending socket when they reach
// an uplink.
func (c *Container) SendsFromSockets() bool { return c.Mode == v1.ModeHost || c.isDirect() }

// isDirect reports whether the container has a macvlan or ipvlan device on top of a host device.
func (c *Container) isDirect() bool {
	return slices.ContainsFunc(c.Devices, func(d Device) bool {
		return d.Mode == v1.ModeMacvlan || d.Mode == v1.ModeIPvlan
	})
}

// isRouted reports whether the host's routing table selects the uplink of its packets. Packets of
// macvlan and ipvlan leave through the device below instead.
func (c *Container) isRouted() bool {
	switch c.Mode {
	case v1.ModeBridge, v1.ModeOverlay, v1.ModeHost:
		return c.isContainer()
	}
	return false
}

// HasVeth reports whether the device with index ifindex is the host end of one of its veths.
func (c *Container) HasVeth(ifindex int) bool {
	return slices.ContainsFunc(c.Devices, func(d Device) bool { return d.isVeth(ifindex) })
}

// VethMoved reports whether the host end of one of its veths has become a port of the bridge since
// the container was inspected.
func (c *Container) VethMoved(ifindex, bridge int) bool {
	return slices.ContainsFunc(c.Devices, func(d Device) bool { return d.isVeth(ifindex) && d.BridgeIndex != bridge })
}

// Complaints lists the problems of identifying its packets that concern all uplinks, except the
// obstacle.
func (c *Container) Complaints() []string {
	list := c.Miscounted()
	if complaint := c.bypassComplaint(); complaint != "" {
		list = append(list, complaint)
	}
	return append(list, c.FlowComplaints()...)
}

// Miscounted lists why packets of the container may count as the host's at any uplink.
func (c *Container) Miscounted() (reasons []string) {
	for _, complaint := range []string{c.indexComplaint(), c.followerComplaint()} {
		if complaint != "" {
			reasons = append(reasons, complaint)
		}
	}
	if c.Seen.RoutingMesh && c.isContainer() {
		reasons = append(reasons, "what it receives and answers at this node's ports of Swarm's routing mesh counts as the host's: publish them with mode=host")
	}
	return reasons
}

// controlled returns the containers that have a number.
func controlled(all []*Container) []*Container {
	list := slices.DeleteFunc(slices.Clone(all), func(c *Container) bool { return !c.isContainer() })
	// Of two containers that publish one port, the same one has it each time.
	slices.SortFunc(list, func(a, b *Container) int { return cmp.Compare(a.Number, b.Number) })
	return list
}

// Owner returns the controlled container, other than c, that owns the network namespace; nil if
// there is none.
func Owner(netns kernel.NetNSID, c *Container, all []*Container) *Container {
	for _, other := range all {
		if other != c && other.isContainer() && other.NetNS == netns && other.Mode != v1.ModeHost {
			return other
		}
	}
	return nil
}
