// Package topology is the map of a network of OpenFlow switches: which port of
// which switch leads to which other switch, the shortest paths between them,
// the tree that broadcasts follow, and the LLDP frames that links are found
// with.
//
// Problem: a controller learns of switches and their ports, not of the cables
// between them. Method: it has every port send an LLDP frame (IEEE 802.1AB) that
// names switch and port; where the frame comes in, a link ends. Frames are
// signed, and a link counts when both directions have been seen, so that a station
// cannot invent one. All shortest paths are used: which one a flow takes
// follows from a hash of the flow, as in ECMP (RFC 2992).
//
// Limits: two stations that relay whole frames between each other within a round
// look like a cable. Package core stops them, as TopoGuard does (Hong and others, NDSS
// 2015): ports with stations never become links.
package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// DPID is the datapath identifier of a switch.
type DPID uint64

func (d DPID) String() string { return fmt.Sprintf("%016x", uint64(d)) }

// Port is one port of one switch.
type Port struct {
	Switch DPID
	Number uint32
}

func (p Port) String() string { return fmt.Sprintf("%v port %d", p.Switch, p.Number) }

// Compare orders ports by switch and number.
func (p Port) Compare(q Port) int {
	return cmp.Or(cmp.Compare(p.Switch, q.Switch), cmp.Compare(p.Number, q.Number))
}

// Hop is the passage of a flow through one switch.
type Hop struct {
	Switch  DPID
	In, Out uint32
}

// Graph is the map of the network. Create it with New.
type Graph struct {
	half  map[Port]Port // frames seen in one direction: sending port to receiving port
	ways  map[DPID][]way
	steps map[DPID]map[DPID]int // hop counts by destination, from each switch that reaches it
}

// way is a link from a port to the neighbour's port.
type way struct {
	out uint32
	to  Port
}

// New returns an empty map.
func New() *Graph {
	return &Graph{half: map[Port]Port{}, ways: map[DPID][]way{}, steps: map[DPID]map[DPID]int{}}
}

// Heard records that a frame sent from one port arrived at another, and reports whether the
// map changed. A link needs frames in both directions.
func (g *Graph) Heard(from, to Port) bool {
	old, known := g.half[from]
	if known && old == to {
		return false
	}
	wasLink := known && g.half[old] == from
	g.half[from] = to
	if !wasLink && g.half[to] != from {
		return false
	}
	g.rebuild()
	return true
}

// Forget removes the frames sent from or received at a port, and reports whether the map
// changed.
func (g *Graph) Forget(p Port) bool {
	_, link := g.Peer(p)
	maps.DeleteFunc(g.half, func(from, to Port) bool { return from == p || to == p })
	if link {
		g.rebuild()
	}
	return link
}

// Peer returns the other end of the link at a port.
func (g *Graph) Peer(p Port) (Port, bool) {
	to, ok := g.half[p]
	if !ok || g.half[to] != p {
		return Port{}, false
	}
	return to, true
}

// rebuild recomputes the links from the recorded frames.
func (g *Graph) rebuild() {
	clear(g.ways)
	clear(g.steps)
	for from, to := range g.half {
		if g.half[to] == from {
			g.ways[from.Switch] = append(g.ways[from.Switch], way{from.Number, to})
		}
	}
	for _, ways := range g.ways {
		slices.SortFunc(ways, func(a, b way) int { return cmp.Compare(a.out, b.out) })
	}
}

// Link is a cable between two switches, the lower port first.
type Link struct{ A, B Port }

// Links returns all links in order.
func (g *Graph) Links() []Link {
	var out []Link
	for from, ways := range g.ways {
		for _, w := range ways {
			if a := (Port{from, w.out}); a.Compare(w.to) < 0 {
				out = append(out, Link{a, w.to})
			}
		}
	}
	slices.SortFunc(out, func(a, b Link) int { return a.A.Compare(b.A) })
	return out
}

// distances returns the hop counts to a destination, by breadth-first search.
func (g *Graph) distances(to DPID) map[DPID]int {
	if d, ok := g.steps[to]; ok {
		return d
	}
	d := map[DPID]int{to: 0}
	for queue := []DPID{to}; len(queue) > 0; queue = queue[1:] {
		for _, w := range g.ways[queue[0]] {
			if _, seen := d[w.to.Switch]; !seen {
				d[w.to.Switch] = d[queue[0]] + 1
				queue = append(queue, w.to.Switch)
			}
		}
	}
	g.steps[to] = d
	return d
}

// Path returns a shortest path between two ports, or nil if there is none. hash selects
// among equal-cost paths.
func (g *Graph) Path(from, to Port, hash uint32) []Hop { return g.Widest(from, to, hash, nil) }

// Widest returns, of the shortest paths between two ports, one whose narrowest output port is the
// widest, or nil if there is no path. hash selects among paths that are equally wide; all are if
// width is nil.
func (g *Graph) Widest(from, to Port, hash uint32, width func(Port) uint64) []Hop {
	d := g.distances(to.Switch)
	left, ok := d[from.Switch]
	if !ok {
		return nil
	}
	wide := func(DPID) uint64 { return 0 }
	if width != nil {
		wide = g.widths(to, d, width)
	} else {
		width = func(Port) uint64 { return 0 }
	}
	path := make([]Hop, 0, left+1)
	at := from
	for ; left > 0; left-- {
		var closer []way
		for _, w := range g.ways[at.Switch] {
			if n, ok := d[w.to.Switch]; ok && n == left-1 && min(width(Port{at.Switch, w.out}), wide(w.to.Switch)) >= wide(at.Switch) {
				closer = append(closer, w)
			}
		}
		// Each hop uses another part of the hash.
		w := closer[(hash>>(5*uint(len(path)%6)))%uint32(len(closer))]
		path = append(path, Hop{at.Switch, at.Number, w.out})
		at = w.to
	}
	return append(path, Hop{at.Switch, at.Number, to.Number})
}

// widths returns the width of the widest shortest path from each switch to a port, given the hop
// counts to its switch.
func (g *Graph) widths(to Port, d map[DPID]int, width func(Port) uint64) func(DPID) uint64 {
	known := map[DPID]uint64{to.Switch: width(to)}
	var of func(DPID) uint64
	of = func(at DPID) uint64 {
		if w, ok := known[at]; ok {
			return w
		}
		widest := uint64(0)
		for _, w := range g.ways[at] {
			if n, ok := d[w.to.Switch]; ok && n == d[at]-1 {
				widest = max(widest, min(width(Port{at, w.out}), of(w.to.Switch)))
			}
		}
		known[at] = widest
		return widest
	}
	return of
}

// Tree returns the link ports that broadcasts may use: a breadth-first spanning tree of
// each connected part of the network.
func (g *Graph) Tree() map[Port]bool {
	tree, seen := map[Port]bool{}, map[DPID]bool{}
	for _, root := range slices.Sorted(maps.Keys(g.ways)) {
		if seen[root] {
			continue
		}
		seen[root] = true
		for queue := []DPID{root}; len(queue) > 0; queue = queue[1:] {
			for _, w := range g.ways[queue[0]] {
				if !seen[w.to.Switch] {
					seen[w.to.Switch] = true
					tree[Port{queue[0], w.out}], tree[w.to] = true, true
					queue = append(queue, w.to.Switch)
				}
			}
		}
	}
	return tree
}
