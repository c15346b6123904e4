package engine

import (
	"context"
	"maps"
	"slices"
)

// # Claims
//
// What a service's minimum takes on a node ([Divide]) is promised there as one claim, as far as
// the node has room in each direction.

// Claim is what a service is promised on a node.
type Claim struct {
	Service string `json:"service"`
	Node    string `json:"node"`
	MinBPS  uint64 `json:"min_bps"`
	// InMinBPS is of what the node receives.
	InMinBPS uint64 `json:"in_min_bps,omitempty"`
	// LinkBPS of MinBPS is promised on the links between the node and users, too.
	LinkBPS uint64 `json:"link_bps,omitempty"`
}

// ClaimID returns the ledger key of a claim, of both directions; service names contain no "@".
func ClaimID(e Entry) string { return e.Service + "@" + e.Node }

// ClaimBPS returns what a service claims of one direction of a node.
func (p Promises) ClaimBPS(e Entry) uint64 { return p[ClaimID(e)].Minimum().Of(e.In) }

// claim makes bps what a service claims of one direction of a node.
func (p Promises) claim(e Entry, bps uint64) {
	c := p[ClaimID(e)]
	c.Service, c.Node, c.Claim = e.Service, e.Node, true
	if e.In {
		c.InMinBPS = bps
	} else {
		c.MinBPS, c.LinkBPS = bps, min(c.LinkBPS, bps)
	}
	if p[ClaimID(e)] = c; c.Minimum() == (Rates{}) {
		delete(p, ClaimID(e))
	}
}

// AdmitClaims promises what a division needs as far as nodes have room. A claim is reduced if it
// is as it was seen, and to no less than what was seen in force then; one that may be right in the
// division of another weir-edge stays.
func AdmitClaims(nodes []Node, seen, now Promises, d Division, inForce map[Entry]uint64) Promises {
	after := maps.Clone(now)
	if after == nil {
		after = Promises{}
	}
	sums := sumUp(now).bps
	set := func(e Entry, bps uint64) {
		sums[e.anyService()] += bps - after.ClaimBPS(e)
		after.claim(e, bps)
	}
	byName := map[string]*Node{}
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	for id, p := range now { // what is given back comes first
		for _, in := range Directions {
			entry := Entry{p.Service, p.Node, in}
			has, keep := p.Minimum().Of(in), max(d.Needs[entry].BPS(), inForce[entry])
			if p.Claim && seen[id] == p && has > 0 && (keep == 0 || keep+d.OthersOffBPS(entry) < has) {
				set(entry, keep)
			}
		}
	}
	for _, entry := range slices.SortedFunc(maps.Keys(d.Needs), Entry.Compare) {
		n, has, wanted := byName[entry.Node], after.ClaimBPS(entry), d.Needs[entry].BPS()
		if n == nil || !n.promises() || n.State != NodeReady || wanted <= has {
			continue
		}
		room := n.Room(entry.In)
		taken := sum(sums[entry.anyService()], room.OtherMinBPS)
		set(entry, has+min(wanted-has, room.BudgetBPS-min(taken, room.BudgetBPS)))
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
