package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-project/weir/internal/policy"
)

// # What is promised
//
// Decisions are made from a picture of the cluster, and another engine may have made
// some from the same. So a decision counts once it is in the ledger, which is changed
// by compare and swap: who was second reads again, and what does not fit any more is
// not done. On every node, at all times,
//
//	sum of MinBPS over its promises + OtherMinBPS <= BudgetBPS   (relays included)
//	sum of LimitBytes over its promises           <= memory less the reserve
//
// A promise is there before its instance starts and until the instance is known to
// have ended. What is on a node that does not answer stays promised: it may run on.

// Ledger holds what is promised on all nodes, where every engine of the cluster
// sees it: in the Swarm's own store, or beside the engine of one host.
type Ledger interface {
	// Read returns what is promised, and a token of that state.
	Read(ctx context.Context) (Promises, Token, error)
	// Swap replaces the state that token was of. It returns [ErrConflict], and
	// changes nothing, if the state has changed since.
	Swap(ctx context.Context, token Token, promises Promises) error
}

// Token names one state of a ledger: a version of the Swarm's store, for example.
type Token string

// ErrConflict is returned by a ledger that has changed since it was read.
var ErrConflict = errors.New("what is promised has changed since it was read")

// Promises are all that is promised, by instance.
type Promises map[string]Promise

// Promise is what an instance has on its node, from before it starts until it is
// known to have ended.
type Promise struct {
	Service    string `json:"service"`
	Node       string `json:"node"`
	MinBPS     uint64 `json:"min_bps,omitempty"`
	LimitBytes uint64 `json:"limit_bytes,omitempty"`
	Replaces   string `json:"replaces,omitempty"`
	// Stopping: an engine has decided to stop it.
	Stopping bool `json:"stopping,omitempty"`
	// Relay: it is no instance's, but that of the service's proxy on a node, for users of
	// instances of other nodes; see [Divide].
	Relay bool `json:"relay,omitempty"`
}

// Refusal is a decision that is not carried out, and why.
type Refusal struct {
	Decision Decision `json:"decision"`
	Reason   string   `json:"reason"`
}

// Admit checks decisions against what is promised now. It returns what is promised
// with those that can be carried out, these, and the others. seen is what was promised
// when the decisions were made: nothing is done about a service of which another
// engine has started or stopped something since. Decisions to keep what is there are
// neither carried out nor refused.
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
		if d.Action == Keep {
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

// promised is what a node has promised together.
type promised struct{ bps, bytes uint64 }

func sumUp(p Promises) map[string]promised {
	sums := map[string]promised{}
	for _, one := range p {
		s := sums[one.Node]
		sums[one.Node] = promised{sum(s.bps, one.MinBPS), sum(s.bytes, one.LimitBytes)}
	}
	return sums
}

// changedServices are those of which something else is promised.
func changedServices(seen, now Promises) map[string]bool {
	changed := map[string]bool{}
	for id, p := range now {
		if seen[id] != p && !p.Relay {
			changed[p.Service] = true
		}
	}
	for id, p := range seen {
		if now[id] != p && !p.Relay {
			changed[p.Service] = true
		}
	}
	return changed
}

// admit enters one decision, or says why it cannot be.
func (e *Engine) admit(nodes map[string]*Node, sums map[string]promised, p Promises, d *Decision) string {
	if d.Action == Stop {
		// One that nobody has promised anything is stopped all the same.
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
	case d.MinBPS > 0 && !n.promises():
		return fmt.Sprintf("%s has no Weir agent that can be told minimums", d.Node)
	}
	// What the service's proxy there relays makes room: users come to the instance now.
	relay := Entry{d.Service, d.Node}
	relayed := min(p[RelayID(relay)].MinBPS, d.MinBPS)
	s := sums[d.Node]
	s.bps -= relayed
	if total := sum(sum(s.bps, d.MinBPS), n.OtherMinBPS); d.MinBPS > 0 && total > n.BudgetBPS {
		return fmt.Sprintf("%s has promised %s of the %s that it can, and cannot promise %s more", d.Node,
			policy.FormatRate(sum(s.bps, n.OtherMinBPS)), policy.FormatRate(n.BudgetBPS), policy.FormatRate(d.MinBPS))
	}
	if total := sum(s.bytes, d.LimitBytes); d.LimitBytes > 0 && total > e.policy.memoryBytes(n) {
		return fmt.Sprintf("%s has promised %d of the %d bytes of memory that it can, and cannot promise %d more", d.Node, s.bytes, e.policy.memoryBytes(n), d.LimitBytes)
	}
	sums[d.Node] = promised{s.bps + d.MinBPS, s.bytes + d.LimitBytes}
	if old := p[RelayID(relay)]; relayed > 0 {
		old.MinBPS -= relayed
		p[RelayID(relay)] = old
		if old.MinBPS == 0 {
			delete(p, RelayID(relay))
		}
	}
	p[d.Instance] = Promise{Service: d.Service, Node: d.Node, MinBPS: d.MinBPS, LimitBytes: d.LimitBytes, Replaces: d.Replaces}
	return ""
}

// mostConflicts is how often a change of the ledger is tried while others change it.
const mostConflicts = 20

// Commit enters decisions into the ledger, and returns those that may be carried out
// now and those that may not; see [Engine.Admit]. If it fails, nothing may be.
func (e *Engine) Commit(ctx context.Context, ledger Ledger, nodes []Node, seen Promises, decisions []Decision) ([]Decision, []Refusal, error) {
	var admitted []Decision
	var refused []Refusal
	err := change(ctx, ledger, func(now Promises) Promises {
		after, yes, no := e.Admit(nodes, seen, now, decisions)
		admitted, refused = yes, no
		return after
	})
	if err != nil {
		return nil, nil, err
	}
	return admitted, refused, nil
}

// Release takes instances out of the ledger that are known to have ended, or never
// to have started.
func Release(ctx context.Context, ledger Ledger, instances ...string) error {
	return change(ctx, ledger, func(now Promises) Promises {
		after := maps.Clone(now)
		maps.DeleteFunc(after, func(id string, _ Promise) bool { return slices.Contains(instances, id) })
		return after
	})
}

// change reads, changes and swaps until nobody was faster.
func change(ctx context.Context, ledger Ledger, to func(Promises) Promises) error {
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
