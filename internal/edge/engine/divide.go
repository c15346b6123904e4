package engine

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/alloc"
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
// By how many users come to a node; but users of one node may want a page a minute and
// those of another one films. What is sent does not say what is wanted: who is given little
// sends little, and to divide by that would keep it so. It does where it is clearly less
// than what is in force, as then nothing holds it back ([Taken]). So
//
//	f(k) m = min(L users(k), twice what they take where that is known),  sum of f(k) = 1:
//
// the level L of package alloc, with users as weights. If all are known, what is left is
// divided by users. Nobody is held to less than a tenth by that, and who begins to take what
// he has is at once not known any more, and has his part by users again.
//
// Users come and go all the time, so parts are tenths, and change when they are clearly
// others.

// Path is the way of users who come to a node and are served by an instance.
type Path struct{ Instance, Node string }

// Entry is where users of a service come to: its proxy on a node.
type Entry struct{ Service, Node string }

func (e Entry) compare(other Entry) int {
	return cmp.Or(strings.Compare(e.Service, other.Service), strings.Compare(e.Node, other.Node))
}

// Tenths are the parts of instances' minimums that are for users of other nodes.
type Tenths map[Path]uint64

// Division is where minimums are to be in force, in bits per second.
type Division struct {
	// Local is what proxies send of instances of their own node, Relayed what they do of
	// those of other nodes.
	Local, Relayed map[Entry]uint64
	// Sent is what instances send to proxies of other nodes.
	Sent map[string]uint64
}

const (
	// allTenths are a whole.
	allTenths = 10
	// relayExtra is 1/a: a relay takes a sixteenth more than what it passes on.
	relayExtra = 16
	// sticky is how much of a tenth more others have to have a claim to than who has it: so
	// of two a part has to be another one by 0.8 tenths to be changed.
	sticky = 0.6
	// headroom is how many times what they take users are given.
	headroom = 2
)

// crowd are the users of one node that an instance serves.
type crowd struct {
	node  string
	users float64
	// most is what they can make use of, in bits per second.
	most float64
	// before is their part of the last time, in tenths.
	before uint64
}

// Divide divides what instances are promised by where their users come from, and by what
// those take where that is known. (weir-edge says nothing of that: who took little and begins
// to take all would have a part of his minimum only for seconds.) before is the second result
// of the last time.
func Divide(promises Promises, users map[Path]float64, taken Taken, before Tenths) (Division, Tenths) {
	d := Division{Local: map[Entry]uint64{}, Relayed: map[Entry]uint64{}, Sent: map[string]uint64{}}
	after := Tenths{}
	crowds := crowdsOf(promises, users, taken, before)
	for id, p := range promises {
		if p.Relay || p.MinBPS == 0 {
			continue
		}
		parts := tenthsOf(p.MinBPS, crowds[id])
		for i, c := range crowds[id] {
			if c.node == p.Node || parts[i] == 0 {
				continue
			}
			after[Path{id, c.node}] = parts[i]
			bps := p.MinBPS / allTenths * parts[i]
			d.Sent[id] += bps
			entry := Entry{p.Service, c.node}
			d.Relayed[entry] = sum(d.Relayed[entry], bps+bps/relayExtra)
		}
		entry := Entry{p.Service, p.Node}
		d.Local[entry] = sum(d.Local[entry], p.MinBPS-d.Sent[id])
	}
	return d, after
}

// crowdsOf are the users of each instance that has a minimum, by node.
func crowdsOf(promises Promises, users map[Path]float64, taken Taken, before Tenths) map[string][]crowd {
	crowds, all, others := map[string][]crowd{}, map[Entry]float64{}, map[string]uint64{}
	paths := slices.SortedFunc(maps.Keys(users), func(a, b Path) int {
		return cmp.Or(strings.Compare(a.Instance, b.Instance), strings.Compare(a.Node, b.Node))
	})
	for _, path := range paths {
		p, n := promises[path.Instance], finite(users[path])
		if p.Relay || p.MinBPS == 0 || n == 0 {
			continue
		}
		all[Entry{p.Service, path.Node}] += n
		crowds[path.Instance] = append(crowds[path.Instance], crowd{node: path.Node, users: n, before: before[path]})
	}
	for path, part := range before {
		others[path.Instance] += part
	}
	for id, list := range crowds {
		p := promises[id]
		for i := range list {
			c := &list[i]
			entry := Entry{p.Service, c.node}
			c.most = math.Inf(1)
			if took, known := taken[entry]; known { // by all users there; these are some of them
				c.most = headroom * took.bps() * c.users / all[entry]
			}
			if c.node == p.Node {
				c.before = allTenths - min(others[id], allTenths)
			}
		}
	}
	return crowds
}

// tenthsOf divides ten tenths of a minimum among crowds: by level, in whole tenths by largest
// remainder.
func tenthsOf(minBPS uint64, crowds []crowd) []uint64 {
	shares := sharesOf(minBPS, crowds)
	parts, claims := make([]uint64, len(crowds)), make([]float64, len(crowds))
	left := allTenths
	for i, c := range crowds {
		exact := math.Round(float64(shares[i])/float64(minBPS)*allTenths*1000) / 1000 // shares are whole bits
		whole := math.Floor(exact)
		parts[i], claims[i] = uint64(whole), exact-whole
		left -= int(whole)
		if claims[i] > 0 && c.before > parts[i] {
			claims[i] += sticky
		}
	}
	for ; left > 0; left-- {
		best := -1
		for i, claim := range claims {
			if claim > 0 && (best < 0 || claim > claims[best]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		parts[best]++
		claims[best] = 0
	}
	return parts
}

// sharesOf divides a minimum among crowds, all of it, in bits per second.
func sharesOf(minBPS uint64, crowds []crowd) []uint64 {
	largest := 0.0
	for _, c := range crowds {
		largest = max(largest, c.users)
	}
	const precision = 1e6 // of weights
	limited, free := make([]alloc.Container, len(crowds)), make([]alloc.Container, len(crowds))
	for i, c := range crowds {
		weight := uint32(max(c.users/largest*precision, 1))
		most := minBPS
		if c.most < float64(minBPS) {
			most = max(uint64(c.most), minBPS/allTenths)
		}
		limited[i] = alloc.Container{Weight: weight, CeilingBPS: most}
		free[i] = alloc.Container{Weight: weight, CeilingBPS: alloc.Unlimited}
	}
	shares := alloc.Entitle(minBPS, limited)
	given := uint64(0)
	for _, bps := range shares {
		given += bps
	}
	for i, bps := range alloc.Entitle(minBPS-min(given, minBPS), free) {
		shares[i] += bps
	}
	return shares
}
