package core

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Snapshot is what people and programs are shown. It shares no memory with its
// Core.
type Snapshot struct {
	At       time.Time
	Switches []Switch
	Links    []topology.Link
	Flows    []Flow
	Totals   [appid.NumLevels]Total
	Counters Counters
}

// Switch is one switch.
type Switch struct {
	DPID      topology.DPID
	Connected bool
	// Role is what the switch says that this controller is.
	Role  openflow.Role
	Since time.Time
	Full  bool // its table is
	Flows int  // that begin here
	Ports []PortState
}

// PortState is one port of a switch.
type PortState struct {
	Number uint32
	Name   string
	Up     bool
	Hosts  []openflow.MAC
	Peer   topology.Port // of a link
	Link   bool
	// Blocked: it stays out, another port leads to the same bridge.
	Blocked bool
	Queues  map[openflow.Queue]QueueCount
	Count   PortCount
}

// Snapshot copies what is known; flows only if asked for, in no order: that would hold
// up packets.
func (c *Core) Snapshot(withFlows bool) Snapshot {
	s := Snapshot{At: c.now, Links: c.graph.Links(), Totals: c.totals, Counters: c.counters}
	hosts := map[topology.Port][]openflow.MAC{}
	for mac, h := range c.hosts {
		hosts[h.at] = append(hosts[h.at], mac)
	}
	for _, d := range slices.Sorted(maps.Keys(c.switches)) {
		n := c.switches[d]
		one := Switch{DPID: d, Connected: n.connected, Role: n.role, Since: n.since, Full: c.now.Before(n.fullUntil), Flows: len(n.ingress)}
		for _, number := range slices.Sorted(maps.Keys(n.ports)) {
			p, at := n.ports[number], topology.Port{Switch: d, Number: number}
			state := PortState{Number: number, Name: p.desc.Name, Up: p.up, Blocked: c.blocked[at], Hosts: hosts[at], Count: p.count, Queues: map[openflow.Queue]QueueCount{}}
			slices.SortFunc(state.Hosts, func(a, b openflow.MAC) int { return slices.Compare(a[:], b[:]) })
			state.Peer, state.Link = c.graph.Peer(at)
			for id, q := range p.queues {
				state.Queues[id] = *q
			}
			one.Ports = append(one.Ports, state)
		}
		s.Switches = append(s.Switches, one)
	}
	if withFlows {
		for _, f := range c.flows {
			copied := *f
			copied.Path = slices.Clone(f.Path)
			s.Flows = append(s.Flows, copied)
		}
	}
	return s
}
