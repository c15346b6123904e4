package run

import (
	"maps"

	"github.com/weir-project/weir/internal/edge/proxy"
)

// counters are what a service's proxies have counted, as a total that only grows: proxies
// start anew, come with nodes and go with them, and do not always answer.
type counters struct {
	total counts
	// last is what each node's proxy said last.
	last map[string]counts
}

// counts are those of one proxy since it was started.
type counts struct{ requests, failed, sentBytes uint64 }

func countsOf(s proxy.Seen) counts {
	return counts{requests: s.Requests, failed: s.Failed, sentBytes: s.SentBytes}
}

// take adds what a node's proxy has counted since it was asked last.
func (c *counters) take(node string, now counts) {
	before := c.last[node]
	if now.requests < before.requests || now.failed < before.failed || now.sentBytes < before.sentBytes {
		before = counts{} // it was started anew
	}
	c.total.requests += now.requests - before.requests
	c.total.failed += now.failed - before.failed
	c.total.sentBytes += now.sentBytes - before.sentBytes
	c.last[node] = now
}

// count takes what proxies say in a round, and forgets services that are not there.
func (m *Manager) count(s *seen) {
	there := map[string]bool{}
	for _, listed := range s.state.Services {
		there[listed.Name] = true
		c := m.counters[listed.Name]
		if c == nil {
			c = &counters{last: map[string]counts{}}
			m.counters[listed.Name] = c
		}
		for _, p := range s.proxies[listed.Name] {
			if p.err == nil {
				c.take(p.Node, countsOf(p.seen))
			}
		}
	}
	maps.DeleteFunc(m.counters, func(name string, _ *counters) bool { return !there[name] })
}
