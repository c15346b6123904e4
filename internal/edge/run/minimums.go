package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/spec"
)

// # Minimums on a swarm
//
// Minimums are in force where users come to, so nodes' agents are told of them. A round
//
//	divides what instances are promised by where their users come from     division.go
//	promises what proxies are to relay for instances of other nodes        relays.go
//	compares what is to be in force with what is                           wishes.go
//	and tells agents the difference, beside the rounds                     tell.go
//
// What the ledger promises comes first; an agent that refuses all the same, because
// somebody else was faster, is a reason to go to another node. Nothing is promised on a
// node whose agent lets weir-edge only look, which it says with all else that it is asked.
//
// What an agent was told outlives weir-edge and the agent, and ends with the container.

// minimums are what is known of them from round to round.
type minimums struct {
	// Of rounds, one after the other.
	dividing

	mu sync.Mutex
	// telling are the nodes whose agents are being told.
	telling map[string]bool
	told    map[string]told // by container
}

func newMinimums() minimums {
	return minimums{
		telling: map[string]bool{}, told: map[string]told{},
	}
}

// holdMinimums has minimums in force where users come to.
func (m *Manager) holdMinimums(ctx context.Context, s *seen) {
	m.sayReadOnly(s)
	if m.opts.DryRun || !slices.ContainsFunc(s.nodes, func(n Measured) bool { return n.Agent != nil }) {
		return
	}
	division := m.minimums.divide(s, time.Now())
	promises, err := m.promiseRelays(ctx, s, division)
	if err != nil {
		promises = s.promises // the next round tries again
		if !errors.Is(err, engine.ErrConflict) {
			m.failed("", "", "", err)
		}
	}
	m.saySmallRelays(division, promises)
	m.minimums.forget(time.Now())
	for _, n := range s.nodes {
		if n.Agent == nil || n.Seen.Uplink == nil || !m.minimums.begin(n.Node.Name) {
			continue
		}
		// Nobody tells this agent anything else now: what it was told last is known.
		wishes := m.minimums.wanting(m.minimums.wishesOf(s, n, division, promises))
		if len(wishes) == 0 {
			m.minimums.end(n.Node.Name)
			continue
		}
		m.work.Go(func() {
			m.tell(m.ctx, n, wishes)
			m.minimums.end(n.Node.Name)
		})
	}
}

// sayReadOnly says where no minimum can be promised as weir-edge may only look there, if a
// service wants one.
func (m *Manager) sayReadOnly(s *seen) {
	if !slices.ContainsFunc(slices.Collect(maps.Values(s.specs)), func(wants spec.Spec) bool { return wants.MinBPS() > 0 }) {
		return
	}
	for i := range s.nodes {
		if n := &s.nodes[i]; n.readOnly() {
			m.failed("", "", n.Node.Name, fmt.Errorf("no minimum can be promised on %s: its agent lets %s only look: give weir-edge a token with the role admin (weir token weir-edge --role admin), or list its certificate in admins",
				n.Node.Name, n.Seen.Access.Name))
		}
	}
}

// readOnly says whether a node's agent, which has to be told minimums, lets weir-edge only
// look.
func (m *Measured) readOnly() bool {
	return m.Agent != nil && m.Seen.State == monitor.StateReady && m.Seen.LooksOnly()
}
