package core

import (
	"github.com/weir-project/weir/internal/sdn/topology"
)

// A port is a host's when no LLDP of another switch has come in for a while
// (edge). That is wrong for as long as the other switch is not connected, and
// switches connect one after the other: after a restart of the controller Open
// vSwitch waits for up to eight seconds. Their hosts, which talk by old entries,
// are then taken for hosts of the port that leads there. So such a port may become
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

// cameWhileAway tells whether all hosts of a port came while another switch could
// prove no link there: they may be behind it.
func (c *Core) cameWhileAway(at topology.Port, other *node) bool {
	if c.switches[at.Switch].ports[at.Number].hosts == 0 {
		return true
	}
	until := other.since.Add(linkRounds * c.cfg.LLDPInterval)
	for _, h := range c.hosts {
		if h.at == at && (h.arrived.Before(other.away) || h.arrived.After(until)) {
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
