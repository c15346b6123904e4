package core

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/sdn/topology"
)

// Bridges without OpenFlow do not forward LLDP, so links through them stay invisible. Two
// ports connected to the same bridged segment still form a loop, in which broadcasts
// circulate for ever. So every port also sends probes that bridges forward; ports that hear
// each other's probes share a segment, and on each segment all ports that close a loop are
// blocked.

// maxHeard limits how many pairs of ports on common segments are remembered.
const maxHeard = 1 << 14

// segments holds the pairs of ports that hear each other through bridges.
type segments struct {
	heard   map[heardPair]time.Time
	changed bool                   // new pairs since the last computation
	blocked map[topology.Port]bool // ports that close a loop
}

// heardPair says that a probe sent from one port arrived at another.
type heardPair struct{ from, at topology.Port }

// hear records a received probe.
func (s *segments) hear(pair heardPair, now time.Time) {
	_, known := s.heard[pair]
	if !known && len(s.heard) >= maxHeard {
		return
	}
	s.heard[pair] = now
	s.changed = s.changed || !known
}

// vertex is a switch (port 0), or a segment represented by one of its ports.
type vertex struct {
	segment bool
	topology.Port
}

// groups is a union-find structure of vertices: each maps to its parent.
type groups map[vertex]vertex

func (g groups) root(v vertex) vertex {
	root := v
	for up, ok := g[root]; ok; up, ok = g[root] {
		root = up
	}
	for v != root { // path compression
		v, g[v] = g[v], root
	}
	return root
}

// join merges the groups of two vertices and reports whether they were separate.
func (g groups) join(a, b vertex) bool {
	a, b = g.root(a), g.root(b)
	if a != b {
		g[b] = a
	}
	return a != b
}

// loops returns the ports to block: all ports to a segment that their switch also reaches
// through a lower port, a link or another segment.
func (s *segments) loops(graph *topology.Graph) map[topology.Port]bool {
	segments, ports := groups{}, map[topology.Port]bool{}
	for pair := range s.heard {
		if peer, link := graph.Peer(pair.at); link && peer == pair.from {
			continue // a direct cable
		}
		segments.join(vertex{true, pair.from}, vertex{true, pair.at})
		ports[pair.from], ports[pair.at] = true, true
	}
	joined, out := groups{}, map[topology.Port]bool{}
	of := func(d topology.DPID) vertex { return vertex{false, topology.Port{Switch: d}} }
	for _, l := range graph.Links() {
		joined.join(of(l.A.Switch), of(l.B.Switch))
	}
	for _, p := range slices.SortedFunc(maps.Keys(ports), topology.Port.Compare) {
		if !joined.join(of(p.Switch), segments.root(vertex{true, p})) {
			out[p] = true
		}
	}
	return out
}
