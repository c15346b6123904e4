package run

import "maps"

// counters add up what a service's proxies count, as totals that only grow although proxies
// restart, join, leave or fail to answer.
type counters struct {
	total counts
	// last is what each node's proxy reported last.
	last map[string]counts
}

// counts are one proxy's counters since its start.
type counts struct{ requests, failed, sentBytes uint64 }

// add adds a node's increase since its last answer.
func (c *counters) add(node string, now counts) {
	before := c.last[node]
	if now.requests < before.requests || now.failed < before.failed || now.sentBytes < before.sentBytes {
		before = counts{} // it was started anew
	}
	c.total.requests += now.requests - before.requests
	c.total.failed += now.failed - before.failed
	c.total.sentBytes += now.sentBytes - before.sentBytes
	c.last[node] = now
}

// isAsked reports whether users have come to a proxy since the last round.
func (p *proxies) isAsked(service string, at *observedProxy) bool {
	c := p.counters[service]
	return c == nil || at.status.Requests != c.last[at.Node].requests
}

// count updates the counters and drops removed services.
func (p *proxies) count(o *observation) {
	there := map[string]bool{}
	for _, listed := range o.state.Services {
		there[listed.Name] = true
		c := p.counters[listed.Name]
		if c == nil {
			c = &counters{last: map[string]counts{}}
			p.counters[listed.Name] = c
		}
		for _, at := range o.proxies[listed.Name] {
			if at.err == nil {
				c.add(at.Node, counts{requests: at.status.Requests, failed: at.status.Failed, sentBytes: at.status.SentBytes})
			}
		}
	}
	maps.DeleteFunc(p.counters, func(name string, _ *counters) bool { return !there[name] })
}
