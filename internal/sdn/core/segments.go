package core

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Ordinary bridges are not seen by LLDP, which they keep to themselves. Two ports
// that lead to one of them, or to two that are joined, are a loop all the same:
// what one port broadcasts comes in at the other, for ever. So every port sends
// probes that bridges do forward; ports that hear those of each other are of one
// segment, and of each segment all ports stay out that would close a circle
// through segments and links.

// maxHeard bounds how many pairs of ports of one segment are remembered.
const maxHeard = 1 << 14

// heardPair says that a probe of one port came in at another.
type heardPair struct{ from, at topology.Port }

// heardProbe takes a probe that came in at a port.
func (c *Core) heardProbe(from, at topology.Port) {
	pair := heardPair{from, at}
	_, known := c.heard[pair]
	if !known && len(c.heard) >= maxHeard {
		return
	}
	c.heard[pair] = c.now
	c.probed = c.probed || !known
}

// expireProbes forgets what was heard of ports that could be heard and are not.
func (c *Core) expireProbes() {
	for pair, at := range c.heard {
		a, b := c.switches[pair.from.Switch], c.switches[pair.at.Switch]
		switch {
		case a == nil || b == nil || a.ports[pair.from.Number] == nil || b.ports[pair.at.Number] == nil:
			delete(c.heard, pair)
		case !a.obeys() || !b.obeys(): // they forward by themselves, and say nothing
		case c.now.Sub(c.lastHeard(at, a, b)) > linkRounds*c.cfg.LLDPInterval:
			delete(c.heard, pair)
		}
	}
	c.segmentsChanged()
}

// lastHeard is when something was heard over a way between two switches last, or
// they began to be able to say so.
func (c *Core) lastHeard(at time.Time, ends ...*node) time.Time {
	last := later(at, c.late) // what this controller did not ask for nobody owes it
	for _, n := range ends {
		last = later(later(last, n.since), n.limited)
	}
	return last
}

// vertex is a switch (of port 0) or a segment, by one of its ports.
type vertex struct {
	segment bool
	topology.Port
}

type groups map[vertex]vertex

func (g groups) root(v vertex) vertex {
	root := v
	for up, ok := g[root]; ok; up, ok = g[root] {
		root = up
	}
	for v != root { // the next time it is one step
		v, g[v] = g[v], root
	}
	return root
}

// join tells whether two were apart.
func (g groups) join(a, b vertex) bool {
	a, b = g.root(a), g.root(b)
	if a != b {
		g[b] = a
	}
	return a != b
}

// circles are the ports that have to stay out: those of a segment that its
// switch reaches by a lower port, by links or over other segments.
func (c *Core) circles() map[topology.Port]bool {
	segments, ports := groups{}, map[topology.Port]bool{}
	for pair := range c.heard {
		if peer, link := c.graph.Peer(pair.at); link && peer == pair.from {
			continue // a cable
		}
		segments.join(vertex{true, pair.from}, vertex{true, pair.at})
		ports[pair.from], ports[pair.at] = true, true
	}
	joined, out := groups{}, map[topology.Port]bool{}
	of := func(d topology.DPID) vertex { return vertex{false, topology.Port{Switch: d}} }
	for _, l := range c.graph.Links() {
		joined.join(of(l.A.Switch), of(l.B.Switch))
	}
	for _, p := range slices.SortedFunc(maps.Keys(ports), topology.Port.Compare) {
		if !joined.join(of(p.Switch), segments.root(vertex{true, p})) {
			out[p] = true
		}
	}
	return out
}

// segmentsChanged has ports stay out, or let in again.
func (c *Core) segmentsChanged() {
	c.probed = false
	want := c.circles()
	for p := range c.blocked {
		if !want[p] {
			delete(c.blocked, p)
			c.send(p.Switch, deleteFlows(cookieBlocked, cookieKindMask, inPort(p.Number)))
			if n := c.switches[p.Switch]; n != nil && n.ports[p.Number] != nil {
				n.ports[p.Number].since = c.now // wait again for what is there
			}
			c.broadcasts = true
		}
	}
	for p := range want {
		if !c.blocked[p] {
			c.blocked[p] = true
			c.counters.Blocked++
			c.block(p)
			c.forgetHostsAt(p)
			c.broadcasts = true
		}
	}
}

// block drops all that comes in at a port, but for LLDP and probes.
func (c *Core) block(p topology.Port) {
	c.send(p.Switch, flowMod(cookieBlocked, openflow.OFPFC_ADD, priorityBlocked, openflow.Match{Fields: []openflow.OXM{inPort(p.Number)}}))
}

// blockAgain is for a switch that connects, whose entries may be of an earlier
// start.
func (c *Core) blockAgain(n *node) {
	c.send(n.dpid, deleteFlows(cookieBlocked, cookieKindMask))
	for p := range c.blocked {
		if p.Switch == n.dpid {
			c.block(p)
		}
	}
}
