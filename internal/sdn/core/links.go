package core

import (
	"time"

	"github.com/weir-project/weir/internal/sdn/topology"
)

// A port is a host's when no LLDP of another switch has come in for a while
// (edge). That is wrong for as long as the other switch is not connected, and
// switches connect one after the other: after a restart of the controller Open
// vSwitch waits for up to eight seconds. Their hosts, which talk by old entries,
// are then taken for hosts of the port that leads there. Likewise where a link was
// lost: what comes over it before LLDP does is taken for a host's. So such a port may become
// a link, where one that has a host by all that is known may not: a host that
// relays LLDP to another would make it one.

// LLDPParts is in how many parts the LLDP of a round is sent, each of some of the
// switches: packets wait while one is made.
const LLDPParts = 16

// sendDueLLDP sends what has to be sent when so large a part of a round is over.
func (c *Core) sendDueLLDP(part float64) {
	early := int(float64(c.lldpAll) * (1 - part)) // so many have time
	for len(c.lldpDue) > max(early, 0) {
		if n := c.switches[c.lldpDue[0]]; n != nil {
			c.sendLLDP(n)
		}
		c.lldpDue = c.lldpDue[1:]
	}
}

// waitAgain has a port without a link wait as a new one does: what is behind it
// cannot be told from a host yet.
func (c *Core) waitAgain(at topology.Port) {
	n := c.switches[at.Switch]
	if n == nil || n.ports[at.Number] == nil {
		return
	}
	if _, link := c.graph.Peer(at); !link {
		n.ports[at.Number].since = c.now
	}
}

// lostLink notes that the link at a port is none any more. What is behind the port
// cannot be told from a host then, but by what comes from the same peer again.
func (c *Core) lostLink(at, peer topology.Port) {
	if n := c.switches[at.Switch]; n != nil && n.ports[at.Number] != nil {
		n.ports[at.Number].peer, n.ports[at.Number].lost = peer, c.now
	}
	c.waitAgain(at)
}

// mayBeLink tells whether LLDP of another port is believed at a port: no host is
// there by what is known, or all came while no LLDP could come over the link.
func (c *Core) mayBeLink(at, other topology.Port) bool {
	p, sender := c.switches[at.Switch].ports[at.Number], c.switches[other.Switch]
	return c.allCame(at, sender.away, sender.since.Add(linkRounds*c.cfg.LLDPInterval)) || p.peer == other && c.allCame(at, p.lost, c.now)
}

// allCame tells whether all hosts of a port came within a time.
func (c *Core) allCame(at topology.Port, from, until time.Time) bool {
	if c.switches[at.Switch].ports[at.Number].hosts == 0 {
		return true
	}
	for _, h := range c.hosts {
		if h.at == at && (h.arrived.Before(from) || h.arrived.After(until)) {
			return false
		}
	}
	return true
}

// unlearn forgets which hosts are at a port that may be a link. What switches do
// with their packets stays: it is the right way. Where it ends is seen once they have
// spoken there.
func (c *Core) unlearn(at topology.Port) {
	p := c.switches[at.Switch].ports[at.Number]
	if p.hosts == 0 {
		return
	}
	for mac, h := range c.hosts {
		if h.at != at {
			continue
		}
		delete(c.hosts, mac)
		if s := c.ofMAC[mac]; s != nil {
			for _, f := range s.to {
				f.adopted = true
			}
		}
	}
	p.hosts = 0
	c.waitAgain(at)
}
