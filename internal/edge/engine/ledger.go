package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-project/weir/internal/share/policy"
)

// # What is promised
//
// Decisions are made from a picture of the cluster, and another engine may have made
// some from the same. So a decision counts once it is in the ledger, which is changed
// by compare and swap: the second engine reads again, and what does not fit any more is
// not done. On every node, at all times,
//
//	sum of MinBPS over its promises + OtherMinBPS <= BudgetBPS   (of claims alone, in each direction)
//	sum of LimitBytes over its promises           <= memory less the reserve
//
// An instance is promised its memory, a service what its minimums take on a node: one claim for both
// directions, however many instances are there. Both are entered before an instance starts. An instance's
// promise is removed when it is known to have ended, a claim when it is not in force any more.
// Promises on a silent node stay: its instances may run on.

// Ledger stores the promises of all nodes, where every engine of the cluster sees them: in Swarm's
// store, or on a single host in the container engine.
type Ledger interface {
	// Read returns all promises, and a token for this version of them.
	Read(ctx context.Context) (Promises, Token, error)
	// Swap replaces the version that token names. If it has changed since, Swap changes nothing and
	// returns [ErrConflict].
	Swap(ctx context.Context, token Token, promises Promises) error
}

// Token names one version of a ledger.
type Token string

// ErrConflict reports that the ledger has changed since it was read.
var ErrConflict = errors.New("what is promised has changed since it was read")

// Promises are all promises, by instance ID and [ClaimID].
type Promises map[string]Promise

// Promise is the memory reserved for an instance on its node or, as a claim, the rate reserved for
// a service there.
type Promise struct {
	Service    string `json:"service"`
	Node       string `json:"node"`
	MinBPS     uint64 `json:"min_bps,omitempty"`
	LimitBytes uint64 `json:"limit_bytes,omitempty"`
	Replaces   string `json:"replaces,omitempty"`
	// Version is what the instance is made of.
	Version string `json:"version,omitempty"`
	// Stopping: an engine has decided to stop the instance.
	Stopping bool `json:"stopping,omitempty"`
	// Claim: MinBPS is what the service's minimum takes on the node, InMinBPS what it takes of what the
	// node receives; see [Divide]. LinkBPS of MinBPS is promised on the links between the node and
	// users, too.
	Claim    bool   `json:"claim,omitempty"`
	InMinBPS uint64 `json:"in_min_bps,omitempty"`
	LinkBPS  uint64 `json:"link_bps,omitempty"`
}

// Minimum returns what a claim takes of both directions of the node.
func (p Promise) Minimum() Rates { return Rates{p.MinBPS, p.InMinBPS} }

// Refusal is a decision that is not carried out, with the reason.
type Refusal struct {
	Decision Decision `json:"decision"`
	Reason   string   `json:"reason"`
}

// Admit checks decisions against the present promises. It returns the new promises, the decisions
// admitted and those refused. seen are the promises at decision time: a service that another engine
// has changed since is left alone. Decisions that start and stop nothing are in neither list.
func (e *Engine) Admit(nodes []Node, seen, now Promises, decisions []Decision) (Promises, []Decision, []Refusal) {
	after := maps.Clone(now)
	if after == nil {
		after = Promises{}
	}
	sums := sumUp(now)
	byName := make(map[string]*Node, len(nodes))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	changed := changedServices(seen, now)
	var admitted []Decision
	var refused []Refusal
	for _, d := range decisions {
		if !d.changesInstances() {
			continue
		}
		reason := "another engine has changed what runs of the service"
		if !changed[d.Service] {
			reason = e.admit(byName, sums, after, &d)
		}
		if reason != "" {
			refused = append(refused, Refusal{Decision: d, Reason: reason})
			continue
		}
		admitted = append(admitted, d)
	}
	return after, admitted, refused
}

// promised are the sums of nodes' promises: of claims by direction, and of memory.
type promised struct {
	bps   map[Entry]uint64 // without a service
	bytes map[string]uint64
}

func sumUp(p Promises) promised {
	sums := promised{map[Entry]uint64{}, map[string]uint64{}}
	for _, one := range p {
		for _, in := range Directions {
			at := Entry{"", one.Node, in}
			sums.bps[at] = sum(sums.bps[at], one.Minimum().Of(in))
		}
		sums.bytes[one.Node] = sum(sums.bytes[one.Node], one.LimitBytes)
	}
	return sums
}

// changedServices returns the services whose promises differ.
func changedServices(seen, now Promises) map[string]bool {
	changed := map[string]bool{}
	for id, p := range now {
		if seen[id] != p && !p.Claim {
			changed[p.Service] = true
		}
	}
	for id, p := range seen {
		if now[id] != p && !p.Claim {
			changed[p.Service] = true
		}
	}
	return changed
}

// admit enters one decision into p, or returns the reason to refuse it.
func (e *Engine) admit(nodes map[string]*Node, sums promised, p Promises, d *Decision) string {
	if d.Action == Stop {
		// An instance without a promise is stopped too.
		if old, known := p[d.Instance]; known {
			old.Stopping = true
			p[d.Instance] = old
		}
		return ""
	}
	if old, taken := p[d.Instance]; taken {
		return fmt.Sprintf("there is an instance %s already, on %s", d.Instance, old.Node)
	}
	n := nodes[d.Node]
	switch {
	case n == nil:
		return fmt.Sprintf("there is no node %s any more", d.Node)
	case d.Minimum() != (Rates{}) && !n.promises():
		return fmt.Sprintf("%s has no Weir agent that takes minimums from weir-edge", d.Node)
	}
	more := map[Entry]uint64{}
	for _, in := range Directions {
		at, wanted := Entry{d.Service, d.Node, in}, d.Minimum().Of(in)
		more[at] = wanted - min(p.ClaimBPS(at), wanted)
		taken, room := sum(sums.bps[at.anyService()], n.Room(in).OtherMinBPS), n.Room(in)
		if more[at] > 0 && sum(taken, more[at]) > room.BudgetBPS {
			return fmt.Sprintf("%s has promised %s of the %s that it can, and cannot promise %s more%s", d.Node,
				policy.FormatRate(taken), policy.FormatRate(room.BudgetBPS), policy.FormatRate(more[at]), ofReceived(in))
		}
	}
	bytes := sums.bytes[d.Node]
	if total := sum(bytes, d.LimitBytes); d.LimitBytes > 0 && total > n.limitBytes() {
		return fmt.Sprintf("%s has promised %.1f of the %.1f MB of memory that it can, and cannot promise %.1f more", d.Node,
			float64(bytes)/1e6, float64(n.limitBytes())/1e6, float64(d.LimitBytes)/1e6)
	}
	sums.bytes[d.Node] += d.LimitBytes
	for at, bps := range more {
		if bps > 0 {
			sums.bps[at.anyService()] += bps
			p.claim(at, d.Minimum().Of(at.In))
		}
	}
	p[d.Instance] = Promise{Service: d.Service, Node: d.Node, LimitBytes: d.LimitBytes, Replaces: d.Replaces, Version: d.Version}
	return ""
}

// Commit enters decisions into the ledger and returns those admitted and those refused; see
// [Engine.Admit]. On an error none may be carried out.
func (e *Engine) Commit(ctx context.Context, ledger Ledger, nodes []Node, seen Promises, decisions []Decision) ([]Decision, []Refusal, error) {
	var admitted []Decision
	var refused []Refusal
	err := changeLedger(ctx, ledger, func(now Promises) Promises {
		after, yes, no := e.Admit(nodes, seen, now, decisions)
		admitted, refused = yes, no
		return after
	})
	if err != nil {
		return nil, nil, err
	}
	return admitted, refused, nil
}

// Release removes the promises of instances that have ended or never started.
func Release(ctx context.Context, ledger Ledger, instances ...string) error {
	return changeLedger(ctx, ledger, func(now Promises) Promises {
		after := maps.Clone(now)
		maps.DeleteFunc(after, func(id string, _ Promise) bool { return slices.Contains(instances, id) })
		return after
	})
}

// changeLedger reads, changes and swaps the ledger, and repeats that on a conflict.
func changeLedger(ctx context.Context, ledger Ledger, to func(Promises) Promises) error {
	for range mostConflicts {
		now, token, err := ledger.Read(ctx)
		if err != nil {
			return fmt.Errorf("read what is promised: %w", err)
		}
		after := to(now)
		if maps.Equal(now, after) {
			return nil
		}
		err = ledger.Swap(ctx, token, after)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			return fmt.Errorf("write what is promised: %w", err)
		}
	}
	return fmt.Errorf("write what is promised: others have changed it %d times in the meantime: %w", mostConflicts, ErrConflict)
}
