package engine

import (
	"context"
	"maps"
	"slices"
)

// # Relays
//
// What a proxy sends for instances of other nodes ([Divide]) is promised as what instances
// have is, as far as its node has room.

// RelayID returns the ledger key of a relay; service names contain no "@".
func RelayID(e Entry) string { return e.Service + "@" + e.Node }

// AdmitRelays promises relays as far as nodes have room. inForce is the relay rate seen in force:
// it stays promised, as do relays of unseen proxies and relays that are slightly too large.
func AdmitRelays(nodes []Node, now Promises, wanted, inForce map[Entry]uint64) Promises {
	after := maps.Clone(now)
	if after == nil {
		after = Promises{}
	}
	sums, most := sumUp(now), map[string]uint64{}
	for _, p := range now {
		if !p.Relay {
			most[p.Service] = max(most[p.Service], p.MinBPS)
		}
	}
	set := func(e Entry, bps uint64) {
		s := sums[e.Node]
		s.bps = s.bps - after[RelayID(e)].MinBPS + bps
		sums[e.Node] = s
		after[RelayID(e)] = Promise{Service: e.Service, Node: e.Node, MinBPS: bps, Relay: true}
		if bps == 0 {
			delete(after, RelayID(e))
		}
	}
	byName := map[string]*Node{}
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	for _, p := range now { // what is given back comes first
		entry := Entry{p.Service, p.Node}
		has, looked := inForce[entry]
		keep := max(wanted[entry], has)
		if little := most[p.Service] / whole * hysteresis; p.Relay && looked && (keep == 0 || keep+little < p.MinBPS) {
			set(entry, keep)
		}
	}
	for _, entry := range slices.SortedFunc(maps.Keys(wanted), Entry.compare) {
		n, has := byName[entry.Node], after[RelayID(entry)].MinBPS
		if n == nil || !n.promises() || n.State != NodeReady || wanted[entry] <= has {
			continue
		}
		taken := sum(sums[entry.Node].bps, n.OtherMinBPS)
		set(entry, has+min(wanted[entry]-has, n.BudgetBPS-min(taken, n.BudgetBPS)))
	}
	return after
}

// PromiseRelays enters relays into the ledger and returns the new promises; see [AdmitRelays].
func PromiseRelays(ctx context.Context, ledger Ledger, nodes []Node, wanted, inForce map[Entry]uint64) (Promises, error) {
	var after Promises
	err := changeLedger(ctx, ledger, func(now Promises) Promises {
		after = AdmitRelays(nodes, now, wanted, inForce)
		return after
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}
