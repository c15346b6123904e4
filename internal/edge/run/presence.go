package run

import (
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/store"
)

// presence measures which part of the time nodes are there: every period in which
// weir-edge ran counts, none in which it did not.
type presence struct {
	store *store.Store
	nodes map[string]store.Presence
	at    time.Time // of the last round
	saved time.Time
}

func newPresence(s *store.Store) presence {
	return presence{store: s, nodes: map[string]store.Presence{}}
}

// presencePeriod is the time between two notes on which nodes are there.
const presencePeriod = time.Minute

// longestPause is the longest time between two rounds that counts as watched.
const longestPause = 5 * time.Second

func (p *presence) note(m *Manager, nodes []Measured) {
	now := time.Now()
	passed := now.Sub(p.at)
	p.at = now
	for _, n := range nodes {
		name := n.Node.Name
		seen, known := p.nodes[name]
		if !known {
			seen = p.store.Presence(name)
		}
		if passed > 0 && passed < longestPause {
			seen.WatchedSeconds += passed.Seconds()
			if n.there() {
				seen.ThereSeconds += passed.Seconds()
			}
		}
		p.nodes[name] = seen
	}
	if now.Sub(p.saved) > presencePeriod {
		p.saved = now
		m.kept(p.store.SetPresence(p.nodes))
	}
}

// availability is an estimate from what was seen.
func (p *presence) availability(node string, prior float64) float64 {
	seen := p.nodes[node]
	return engine.EstimateAvailability(seen.ThereSeconds, seen.WatchedSeconds, prior)
}
