package core

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Snapshot is a copy of a Core's state.
type Snapshot struct {
	At       time.Time
	Switches []Switch
	Links    []topology.Link
	Flows    []Flow
	Totals   [apps.NumLevels]Total
	Counters Counters
	// Untrusted are the trusted ports of the configuration that no switch has.
	Untrusted []string
}

// Switch is the state of one switch.
type Switch struct {
	DPID      topology.DPID
	Connected bool
	// Role is the role that the switch grants this controller.
	Role  openflow.Role
	Since time.Time
	Full  bool // its flow table is full
	// WithoutQueues says that the switch refuses the action set_queue.
	WithoutQueues bool
	Flows         int // flows that enter here
	Ports         []PortState
}

// PortState is the state of one port of a switch.
type PortState struct {
	Number   uint32
	Name     string
	Up       bool
	Stations []openflow.MAC
	Peer     topology.Port // other end of the link
	Link     bool
	// Blocked says that packets arriving here are dropped, because another port leads to
	// the same bridged segment.
	Blocked bool
	Queues  map[openflow.Queue]QueueCount
	Count   PortCount
	// Slow says why the link may have less than its rate; empty if nothing says so.
	Slow  string
	Trust *TrustState // nil: the port is not in --trust
}

// Snapshot copies the state. The flows, in no order, are included only if withFlows is set,
// because copying them delays packets.
func (c *Core) Snapshot(withFlows bool) Snapshot {
	s := Snapshot{At: c.now, Links: c.links.graph.Links(), Totals: c.flows.totals, Counters: c.counters, Untrusted: c.marks.missing()}
	stations := map[topology.Port][]openflow.MAC{}
	for mac, station := range c.stations.byMAC {
		stations[station.at] = append(stations[station.at], mac)
	}
	for _, d := range slices.Sorted(maps.Keys(c.switches.byID)) {
		sw := c.switches.byID[d]
		one := Switch{DPID: d, Connected: sw.connected, Role: sw.role, Since: sw.since, Full: c.now.Before(sw.fullUntil), WithoutQueues: sw.withoutQueues, Flows: len(sw.ingress)}
		for _, number := range slices.Sorted(maps.Keys(sw.ports)) {
			p, at := sw.ports[number], topology.Port{Switch: d, Number: number}
			state := PortState{
				Number: number, Name: p.desc.Name, Up: p.up, Blocked: c.links.segments.blocked[at], Stations: stations[at], Count: p.count,
				Queues: map[openflow.Queue]QueueCount{}, Trust: c.marks.state(sw, number), Slow: p.slowness(),
			}
			slices.SortFunc(state.Stations, func(a, b openflow.MAC) int { return slices.Compare(a[:], b[:]) })
			state.Peer, state.Link = c.links.graph.Peer(at)
			for id, q := range p.queues {
				state.Queues[id] = *q
			}
			one.Ports = append(one.Ports, state)
		}
		s.Switches = append(s.Switches, one)
	}
	if withFlows {
		for _, f := range c.flows.byKey {
			copied := *f
			copied.Path = slices.Clone(f.Path)
			s.Flows = append(s.Flows, copied)
		}
	}
	return s
}
