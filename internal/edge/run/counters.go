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

// asked returns how often users have asked a proxy since the last round; known is false for a service that
// was not counted yet.
func (p *proxies) asked(service string, at *observedProxy) (times uint64, known bool) {
	c := p.counters[service]
	if c == nil {
		return 0, false
	}
	last, counted := c.last[at.Node]
	if !counted || at.status.Requests < last.requests { // it was started anew
		return at.status.Requests, true
	}
	return at.status.Requests - last.requests, true
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
