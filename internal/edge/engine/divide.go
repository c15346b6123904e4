package engine

import (
	"cmp"
	"context"
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
// to the other one, whose proxy sends it to the users. So of the users of an instance let
// the part f(k) come to node k; then
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
// Users come and go all the time, so parts are tenths, and change when they are clearly
// others.

// Path is the way of users who come to a node and are served by an instance.
type Path struct{ Instance, Node string }

// Place is a service's proxy on a node.
type Place struct{ Service, Node string }

func (p Place) compare(other Place) int {
	return cmp.Or(strings.Compare(p.Service, other.Service), strings.Compare(p.Node, other.Node))
}

// Tenths are the parts of instances' minimums that are for users of other nodes.
type Tenths map[Path]uint64

// Division is where minimums are to be in force, in bits per second.
type Division struct {
	// Local is what proxies send of instances of their own node, Relayed what they do of
	// those of other nodes.
	Local, Relayed map[Place]uint64
	// Sent is what instances send to proxies of other nodes.
	Sent map[string]uint64
}

const (
	// allTenths are a whole.
	allTenths = 10
	// relayExtra is 1/a: a relay takes a sixteenth more than what it passes on.
	relayExtra = 16
	// sticky is by how many tenths a part has to be another one to be changed.
	sticky = 0.8
)

// Divide divides what instances are promised by where their users come from. before is
// the second result of the last time.
func Divide(promises Promises, users map[Path]float64, before Tenths) (Division, Tenths) {
	d := Division{Local: map[Place]uint64{}, Relayed: map[Place]uint64{}, Sent: map[string]uint64{}}
	after := Tenths{}
	paths := slices.SortedFunc(maps.Keys(users), func(a, b Path) int {
		return cmp.Or(strings.Compare(a.Instance, b.Instance), strings.Compare(a.Node, b.Node))
	})
	all, left := map[string]float64{}, map[string]uint64{}
	for _, path := range paths {
		all[path.Instance] += finite(users[path])
		left[path.Instance] = allTenths
	}
	for _, path := range paths {
		p, promised := promises[path.Instance]
		if !promised || p.Relay || p.MinBPS == 0 || path.Node == p.Node || all[path.Instance] == 0 {
			continue
		}
		part := min(tenths(finite(users[path])/all[path.Instance], before[path]), left[path.Instance])
		if part == 0 {
			continue
		}
		left[path.Instance] -= part
		after[path] = part
		bps := p.MinBPS / allTenths * part
		d.Sent[path.Instance] += bps
		place := Place{p.Service, path.Node}
		d.Relayed[place] = sum(d.Relayed[place], bps+bps/relayExtra)
	}
	for id, p := range promises {
		if !p.Relay && p.MinBPS > 0 {
			place := Place{p.Service, p.Node}
			d.Local[place] = sum(d.Local[place], p.MinBPS-d.Sent[id])
		}
	}
	return d, after
}

// tenths rounds a part of 1, unless it is about what it was before.
func tenths(part float64, before uint64) uint64 {
	exact := min(part, 1) * allTenths
	if math.Abs(exact-float64(before)) < sticky {
		return before
	}
	return uint64(math.Round(exact))
}

// RelayID is what the ledger calls a relay: "@" is in no service's name.
func RelayID(p Place) string { return p.Service + "@" + p.Node }

// AdmitRelays promises relays as far as nodes have room. inForce is what proxies were
// seen to have of relays: that stays promised, and so does all of those that nobody has
// looked at.
func AdmitRelays(nodes []Node, now Promises, wanted, inForce map[Place]uint64) Promises {
	after := maps.Clone(now)
	if after == nil {
		after = Promises{}
	}
	sums := sumUp(now)
	set := func(p Place, bps uint64) {
		s := sums[p.Node]
		s.bps = s.bps - after[RelayID(p)].MinBPS + bps
		sums[p.Node] = s
		after[RelayID(p)] = Promise{Service: p.Service, Node: p.Node, MinBPS: bps, Relay: true}
		if bps == 0 {
			delete(after, RelayID(p))
		}
	}
	byName := map[string]*Node{}
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	for _, p := range now { // what is given back comes first
		place := Place{p.Service, p.Node}
		has, looked := inForce[place]
		if keep := max(wanted[place], has); p.Relay && looked && keep < p.MinBPS {
			set(place, keep)
		}
	}
	for _, place := range slices.SortedFunc(maps.Keys(wanted), Place.compare) {
		n, has := byName[place.Node], after[RelayID(place)].MinBPS
		if n == nil || !n.Weir || n.State != NodeReady || wanted[place] <= has {
			continue
		}
		taken := sum(sums[place.Node].bps, n.OtherMinBPS)
		set(place, has+min(wanted[place]-has, n.BudgetBPS-min(taken, n.BudgetBPS)))
	}
	return after
}

// PromiseRelays enters relays into the ledger; see [AdmitRelays]. It returns what is
// promised then.
func PromiseRelays(ctx context.Context, ledger Ledger, nodes []Node, wanted, inForce map[Place]uint64) (Promises, error) {
	var after Promises
	err := change(ctx, ledger, func(now Promises) Promises {
		after = AdmitRelays(nodes, now, wanted, inForce)
		return after
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}
