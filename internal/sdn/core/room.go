package core

import (
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// floodsPerSecond bounds the packets from one port that are sent to all others as
// nobody knows where they go: each becomes one for every switch.
const floodsPerSecond = 100

// mayFlood tells whether one more packet of a port is within the bound, of which a
// second's may come at once.
func (c *Core) mayFlood(p *port) bool {
	const each = time.Second / floodsPerSecond
	due := later(p.floods, c.now.Add(-time.Second)).Add(each)
	if due.After(c.now) {
		c.counters.FloodsLimited++
		return false
	}
	p.floods = due
	return true
}

// flood sends a packet to all ports where hosts may be.
func (c *Core) flood(from topology.Port, data []byte) {
	queue := c.cfg.Queues[appid.BE]
	for d, n := range c.switches {
		actions := []openflow.Action{&openflow.ActionSetQueue{QueueID: queue}}
		for number := range n.ports {
			if at := (topology.Port{Switch: d, Number: number}); at != from && c.edge(at) {
				actions = append(actions, &openflow.ActionOutput{Port: openflow.Port(number)})
			}
		}
		if len(actions) > 1 {
			c.send(d, packetOut(uint32(openflow.OFPP_CONTROLLER), data, actions...))
		}
	}
}

// portPart of the flows that are kept may have begun at one port: hosts of
// another find room whatever those of one do.
const portPart = 2

// room tells whether a port may begin another flow, and makes room for it. It
// looks for flows to drop once in evictPause: most often all are active where
// there is no room, and every packet would search them all.
func (c *Core) room(p *port) bool {
	if len(c.flows) < c.cfg.MaxFlows && p.opened < max(c.cfg.MaxFlows/portPart, 1) {
		return true
	}
	if c.now.Before(c.nextEvict) {
		return false
	}
	c.nextEvict = c.now.Add(evictPause)
	c.evict(maps.Values(c.flows), len(c.flows))
	return len(c.flows) < c.cfg.MaxFlows && p.opened < max(c.cfg.MaxFlows/portPart, 1)
}

// tableFull makes room in a switch's table, and has what was refused forwarded
// as best effort. data begins as the entry that was refused.
func (c *Core) tableFull(n *node, data []byte) {
	if !c.now.Before(n.fullUntil) {
		c.evict(slices.Values(n.ingress), len(n.ingress))
	}
	n.fullUntil = c.now.Add(fullPause)
	if len(data) < 16 {
		return
	}
	cookie := binary.BigEndian.Uint64(data[8:])
	if cookie&cookieKindMask != cookieFlow { // of a host or a broadcast: nothing else would bring it back
		n.lacking = true
		return
	}
	f := c.byID[cookie&cookieIDMask]
	if f == nil {
		return
	}
	for _, hop := range f.Path {
		if hop.Switch == n.dpid {
			c.fallBack(n, f, hop)
		}
	}
	if f.Path[0].Switch == n.dpid {
		c.drop(f) // nobody would tell when it ends
	}
}

// evictPart of the flows goes when there is no room: those silent for longest.
const evictPart = 16

// evict drops the flows that were silent for longest, one in evictPart. It tells
// whether there were any to drop: those that were active since the statistics
// before the last stay.
func (c *Core) evict(from iter.Seq[*Flow], n int) bool {
	var silent []*Flow
	for f := range from {
		if c.now.Sub(f.active) > 2*c.cfg.StatsInterval {
			silent = append(silent, f)
		}
	}
	slices.SortFunc(silent, func(a, b *Flow) int { return a.active.Compare(b.active) })
	silent = silent[:min(len(silent), n/evictPart+1)]
	for _, f := range silent {
		c.counters.Evicted++
		c.drop(f)
	}
	return len(silent) > 0
}
