package engine

import (
	"context"
	"maps"
	"slices"
)

// # Claims
//
// What a service's minimum takes on a node ([Divide]) is promised there as one claim, as far as
// the node has room.

// Claim is what a service is promised on a node.
type Claim struct {
	Service string `json:"service"`
	Node    string `json:"node"`
	MinBPS  uint64 `json:"min_bps"`
	// LinkBPS of it is promised on the links between the node and users, too.
	LinkBPS uint64 `json:"link_bps,omitempty"`
}

// ClaimID returns the ledger key of a claim; service names contain no "@".
func ClaimID(e Entry) string { return e.Service + "@" + e.Node }

// AdmitClaims promises what a division needs as far as nodes have room. A claim is reduced if it
// is as it was seen, and to no less than what was seen in force then; one that may be right in the
// division of another weir-edge stays.
func AdmitClaims(nodes []Node, seen, now Promises, d Division, inForce map[Entry]uint64) Promises {
	after := maps.Clone(now)
	if after == nil {
		after = Promises{}
	}
	sums := sumUp(now)
	set := func(e Entry, bps uint64) {
		s := sums[e.Node]
		s.bps = s.bps - after[ClaimID(e)].MinBPS + bps
		sums[e.Node] = s
		after[ClaimID(e)] = Promise{Service: e.Service, Node: e.Node, MinBPS: bps, LinkBPS: min(after[ClaimID(e)].LinkBPS, bps), Claim: true}
		if bps == 0 {
			delete(after, ClaimID(e))
		}
	}
	byName := map[string]*Node{}
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	for id, p := range now { // what is given back comes first
		entry := Entry{p.Service, p.Node}
		keep := max(d.Needs[entry].BPS(), inForce[entry])
		if little := OthersOffBPS(d.MinBPS[p.Service]); p.Claim && seen[id] == p && (keep == 0 || keep+little < p.MinBPS) {
			set(entry, keep)
		}
	}
	for _, entry := range slices.SortedFunc(maps.Keys(d.Needs), Entry.compare) {
		n, has, wanted := byName[entry.Node], after[ClaimID(entry)].MinBPS, d.Needs[entry].BPS()
		if n == nil || !n.promises() || n.State != NodeReady || wanted <= has {
			continue
		}
		taken := sum(sums[entry.Node].bps, n.Out.OtherMinBPS)
		set(entry, has+min(wanted-has, n.Out.BudgetBPS-min(taken, n.Out.BudgetBPS)))
	}
	return after
}

// AdmitLinks promises what links have reserved of claims, in place: no more than the claim, and than
// what users get there. Claims that reserved does not have stay as they are.
func AdmitLinks(promises Promises, reserved map[Entry]uint64) {
	for entry, bps := range reserved {
		if p, promised := promises[ClaimID(entry)]; promised {
			p.LinkBPS = min(bps, p.MinBPS)
			promises[ClaimID(entry)] = p
		}
	}
}

// PromiseClaims changes the claims in the ledger and returns the new promises.
func PromiseClaims(ctx context.Context, ledger Ledger, admit func(now Promises) Promises) (Promises, error) {
	var after Promises
	err := changeLedger(ctx, ledger, func(now Promises) Promises {
		after = admit(now)
		return after
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}
