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
// well, as far as those nodes have room: users there have the minimum as far as both
// uplinks can keep it. A node without users promises nothing, and an instance
// without users has its minimum at its own node's proxy.
//
// # How large the parts are
//
// A part follows the number of users of a node, not their traffic: traffic depends on the part
// that they have, and a user who starts a download gets his part at once.
//
// Parts are hundredths. They stay as they are until one of them is off by hysteresis; then all
// are corrected.

// Path is the route of users from the proxy on a node to an instance.
type Path struct{ Instance, Node string }

// Entry is a service's proxy on a node, where users connect.
type Entry struct{ Service, Node string }

func (e Entry) compare(other Entry) int {
	return cmp.Or(strings.Compare(e.Service, other.Service), strings.Compare(e.Node, other.Node))
}

// Hundredths are the parts of instances' minimums for users of other nodes, in hundredths.
type Hundredths map[Path]uint64

// Division is the minimum that each container needs at its node's uplink, in bits per second.
type Division struct {
	// Local is the rate that proxies send for instances of their own node, Relayed that for
	// instances of other nodes.
	Local, Relayed map[Entry]uint64
	// Sent is the rate that instances send to proxies of other nodes.
	Sent map[string]uint64
}

// Divide splits the promised minimums of instances by the nodes where their users connect. users
// are counts or fractions of any sum. before is the second result of the previous call; its parts
// stay while none is off by hysteresis.
func Divide(promises Promises, users map[Path]float64, before Hundredths) (Division, Hundredths) {
	d := Division{Local: map[Entry]uint64{}, Relayed: map[Entry]uint64{}, Sent: map[string]uint64{}}
	after := Hundredths{}
	exact, had := exactParts(promises, users), byInstance(before)
	for id, p := range promises {
		if p.Relay || p.MinBPS == 0 {
			continue
		}
		for node, part := range nextParts(exact[id], had[id], p.Node) {
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

// exactParts returns the parts of instances' minimums for the users of each node, in hundredths;
// none for an instance without users.
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

// nextParts returns the previous parts, without that of the own node, if none is off by hysteresis;
// else the exact ones rounded to hundredths by largest remainder.
func nextParts(exact map[string]float64, now map[string]uint64, own string) map[string]uint64 {
	if isAbout(exact, now, own) {
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

// isAbout reports whether no part is off by hysteresis. A node without users has no part at all,
// the instance's own included: what it keeps would be missing where the users are.
func isAbout(exact map[string]float64, now map[string]uint64, own string) bool {
	others := uint64(0)
	for node, part := range now {
		if exact[node] == 0 {
			return false
		}
		others += part
	}
	if exact[own] == 0 && others < whole {
		return false
	}
	for node, right := range exact {
		if node != own && math.Abs(right-float64(now[node])) >= hysteresis {
			return false
		}
	}
	return math.Abs(exact[own]-float64(whole-min(others, whole))) < hysteresis
}
