package run

import (
	"context"
	"fmt"
	"maps"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/policy"
)

// promiseRelays enters into the ledger what proxies are to send for instances of other
// nodes, as far as there is room, and says what is promised then.
func (m *Manager) promiseRelays(ctx context.Context, s *seen, division engine.Division) (engine.Promises, error) {
	inForce := map[engine.Entry]uint64{}
	for _, p := range s.promises {
		if !p.Relay {
			continue
		}
		entry := engine.Entry{Service: p.Service, Node: p.Node}
		switch n := s.measured(p.Node); {
		case n == nil: // it has left
			inForce[entry] = 0
		case n.Seen.State != monitor.StateReady:
			inForce[entry] = p.MinBPS
		default:
			has := m.minimums.proxyBPS(&n.Seen, p.Service)
			inForce[entry] = min(p.MinBPS, has-min(has, division.Local[entry]))
		}
	}
	if maps.Equal(s.promises, engine.AdmitRelays(s.input.Nodes, s.promises, division.Relayed, inForce)) {
		return s.promises, nil
	}
	return engine.PromiseRelays(ctx, m.rt.Ledger(), s.input.Nodes, division.Relayed, inForce)
}

// saySmallRelays says where users come to who have less than the minimum.
func (m *Manager) saySmallRelays(division engine.Division, promises engine.Promises) {
	for entry, wanted := range division.Relayed {
		if promised := promises[engine.RelayID(entry)].MinBPS; promised < wanted {
			m.failedAt("small relay", entry.Service, "", entry.Node, fmt.Errorf("users of %s who come to %s have less than its minimum: of %s that the proxy there should relay, the node can promise %s",
				entry.Service, entry.Node, policy.FormatRate(wanted), policy.FormatRate(promised)))
		}
	}
}

// proxyBPS is the minimum that a service's proxy may have in force.
func (x *minimums) proxyBPS(n *monitor.Node, service string) (bps uint64) {
	for i := range n.Containers {
		if c := &n.Containers[i]; c.Is(runtime.ProxyName(service)) {
			bps += max(c.AdmittedBPS, x.hasBPS(n, c))
		}
	}
	return bps
}
