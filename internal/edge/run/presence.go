package run

import (
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/store"
)

// presence measures the fraction of the time for which each node answers. Time counts while weir-edge
// runs.
type presence struct {
	store *store.Store
	nodes map[string]store.Presence
	// downSince is since when the container engine has had a node as down.
	downSince map[string]time.Time
	at        time.Time // of the last round
	saved     time.Time
}

func newPresence(s *store.Store) presence {
	return presence{store: s, nodes: map[string]store.Presence{}, downSince: map[string]time.Time{}}
}

const (
	// presencePeriod is the time between two writes to the file.
	presencePeriod = time.Minute
	// longestPause is the longest time between two rounds that counts.
	longestPause = 5 * time.Second
	// awayAfter is the time from which a node that a swarm with a leader has as down is away. Cables
	// and switches are mended, and managers elect a leader, in less.
	awayAfter = 5 * time.Minute
)

// note adds the time since the last round to each node, and to its time of presence if it answers.
// Once in presencePeriod it writes the file and calls kept with the error.
func (p *presence) note(nodes []Measured, kept func(error)) {
	now := time.Now()
	passed := now.Sub(p.at)
	p.at = now
	for i := range nodes {
		name := nodes[i].Node.Name
		if nodes[i].Node.Ready {
			delete(p.downSince, name)
		} else if p.downSince[name].IsZero() {
			p.downSince[name] = now
		}
		node, known := p.nodes[name]
		if !known {
			node = p.store.Presence(name)
		}
		if passed > 0 && passed < longestPause {
			node.WatchedSeconds += passed.Seconds()
			if nodes[i].isThere() {
				node.ThereSeconds += passed.Seconds()
			}
		}
		p.nodes[name] = node
	}
	if now.Sub(p.saved) > presencePeriod {
		p.saved = now
		p.store.SetPresence(p.nodes, kept)
	}
}

// isAway reports whether a node has been down for awayAfter.
func (p *presence) isAway(node string) bool {
	since := p.downSince[node]
	return !since.IsZero() && p.at.Sub(since) >= awayAfter
}

// availability returns the estimated availability of a node; prior is its value without observations.
func (p *presence) availability(node string, prior float64) float64 {
	seen := p.nodes[node]
	return engine.EstimateAvailability(seen.ThereSeconds, seen.WatchedSeconds, prior)
}
