package engine

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

// # Where a minimum is in force
//
// An instance is promised its minimum m at the uplink of its own node. Users who come to
// that node get what its proxy sends there, and nothing of the instance's passes the
// uplink. What users of another node get passes two: the instance sends it from its node
// to the other one, whose proxy sends it to the users. So let the part f(k) of m be for the
// users of node k; then
//
//	m f(own)        is in force at its own node for the service's proxy there,
//	m (1 - f(own))  is in force at its own node for the instance itself,
//	m f(k) (1 + a)  at every other node k for the service's proxy there,
//
// where a is what the proxy sends beside that: an acknowledgement of 66 bytes for each full
// packet of the instance's (4.4 %), requests, and what it is asked by weir-edge. At its own
// node that is m in all, as promised. At the others it is a relay, which is promised as
// well, as far as those nodes have room: who comes there has the minimum as far as both
// uplinks can keep it. A node that no user comes to promises nothing, and an instance
// without users has its minimum at its own node's proxy.
//
// # How large the parts are
//
// By how many users come to a node. What they take says nothing of what they want: who is
// given little sends little, and who begins to take all is to have his part at once.
//
// Users come and go all the time, so parts stay as they are, in hundredths, until one of
// them is off by so many; then all are made right.

// Path is the way of users who come to a node and are served by an instance.
type Path struct{ Instance, Node string }

// Entry is where users of a service come to: its proxy on a node.
type Entry struct{ Service, Node string }

func (e Entry) compare(other Entry) int {
	return cmp.Or(strings.Compare(e.Service, other.Service), strings.Compare(e.Node, other.Node))
}

// Hundredths are the parts of instances' minimums that are for users of other nodes.
type Hundredths map[Path]uint64

// Division is where minimums are to be in force, in bits per second.
type Division struct {
	// Local is what proxies send of instances of their own node, Relayed what they do of
	// those of other nodes.
	Local, Relayed map[Entry]uint64
	// Sent is what instances send to proxies of other nodes.
	Sent map[string]uint64
}

const (
	// whole is all hundredths of a minimum.
	whole = 100
	// relayExtra is 1/a: a relay takes a sixteenth more than what it passes on.
	relayExtra = 16
	// fewHundredths is up to where users of a node have no part; fewTogether is how many of an
	// instance's users, in hundredths, have none for that at most.
	fewHundredths, fewTogether = 2, 10
)

// Divide divides what instances are promised by where their users come from. users are
// numbers, or parts of any sum. before is the second result of the last time, whose parts
// stay where none is off by so many hundredths.
func Divide(promises Promises, users map[Path]float64, before Hundredths, off float64) (Division, Hundredths) {
	d := Division{Local: map[Entry]uint64{}, Relayed: map[Entry]uint64{}, Sent: map[string]uint64{}}
	after := Hundredths{}
	exact, had := exactParts(promises, users), byInstance(before)
	for id, p := range promises {
		if p.Relay || p.MinBPS == 0 {
			continue
		}
		for node, part := range settle(exact[id], had[id], p.Node, off) {
			if node == p.Node || part == 0 {
				continue
			}
			after[Path{id, node}] = part
			bps := p.MinBPS / whole * part
			d.Sent[id] += bps
			entry := Entry{p.Service, node}
			d.Relayed[entry] = sum(d.Relayed[entry], bps+bps/relayExtra)
		}
		entry := Entry{p.Service, p.Node}
		d.Local[entry] = sum(d.Local[entry], p.MinBPS-d.Sent[id])
	}
	return d, after
}

// exactParts are the hundredths of instances' minimums for users of nodes. An instance
// without users has none.
func exactParts(promises Promises, users map[Path]float64) map[string]map[string]float64 {
	paths := slices.SortedFunc(maps.Keys(users), func(a, b Path) int {
		return cmp.Or(cmp.Compare(finite(users[a]), finite(users[b])), strings.Compare(a.Instance, b.Instance), strings.Compare(a.Node, b.Node))
	})
	all, without, kept := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, path := range paths {
		all[path.Instance] += finite(users[path])
	}
	parts := map[string]map[string]float64{}
	for _, path := range paths { // those with few users first
		id, n := path.Instance, finite(users[path])
		if n*whole <= fewHundredths*all[id] && (without[id]+n)*whole <= fewTogether*all[id] {
			without[id] += n
			continue
		}
		if parts[id] == nil {
			parts[id] = map[string]float64{}
		}
		parts[id][path.Node] = n * whole
		kept[id] += n
	}
	for id, of := range parts {
		for node := range of {
			of[node] /= kept[id]
		}
	}
	return parts
}

func byInstance(parts Hundredths) map[string]map[string]uint64 {
	by := map[string]map[string]uint64{}
	for path, part := range parts {
		if by[path.Instance] == nil {
			by[path.Instance] = map[string]uint64{}
		}
		by[path.Instance][path.Node] = part
	}
	return by
}

// settle is the parts that are there, those of the own node left out, if none of them is
// off, and else the exact ones in whole hundredths, by largest remainder.
func settle(exact map[string]float64, now map[string]uint64, own string, off float64) map[string]uint64 {
	if isAbout(exact, now, own, off) {
		return now
	}
	nodes := slices.Sorted(maps.Keys(exact))
	parts, left := map[string]uint64{}, uint64(whole)
	for _, node := range nodes {
		parts[node] = uint64(exact[node])
		left -= min(parts[node], left)
	}
	slices.SortStableFunc(nodes, func(a, b string) int {
		return cmp.Compare(exact[b]-math.Floor(exact[b]), exact[a]-math.Floor(exact[a]))
	})
	for _, node := range nodes[:min(int(left), len(nodes))] {
		parts[node]++
	}
	return parts
}

func isAbout(exact map[string]float64, now map[string]uint64, own string, off float64) bool {
	others := uint64(0)
	for node, part := range now {
		if exact[node] == 0 { // nobody comes there any more
			return false
		}
		others += part
	}
	for node, right := range exact {
		if node != own && math.Abs(right-float64(now[node])) >= off {
			return false
		}
	}
	return math.Abs(exact[own]-float64(whole-min(others, whole))) < off
}
