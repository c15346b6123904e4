package core

import (
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Several controllers of the same switches agree on a master by the switches
// alone, with the roles of the OpenFlow Switch Specification 1.3.5 ("Multiple
// Controllers" and section 7.3.9). A switch refuses a MASTER or SLAVE whose
// generation is older than the newest it was told, makes the master before a
// slave, and tells every controller that asks (NOCHANGE) that generation.
//
// So a generation is a lease. The master renews it, a few times in takeoverAfter;
// the others ask for it, and one that has not seen it grow for that long claims
// the next term. Whoever learns that a newer generation is in force has lost, and
// waits again: nobody fights back. Controllers need not reach each other.
//
// A generation is, from its highest bit: 24 bits of the term, 24 of who claims
// (8 of priority, 16 at random), 16 that count renewals and run over into the
// rest. Two that claim the same term at the same time differ in the second part:
// the higher wins on every switch.
const (
	renewalBits = 16
	claimBits   = 24
	termShift   = renewalBits + claimBits
	// noGeneration is what a switch says to which nobody has said one.
	noGeneration = ^uint64(0)
	// renewals are how often a master renews in TakeoverAfter.
	renewals = 4
)

// Claim is who a controller is among those that claim the same term.
func Claim(priority uint8, random uint16) uint32 { return uint32(priority)<<16 | uint32(random) }

// election is what one controller knows of who leads. Generations may run over:
// of two the newer is the one that is ahead by less than half of all.
type election struct {
	leading bool
	mine    uint64    // generation, while leading
	newest  uint64    // generation of another that was seen
	grew    time.Time // when newest was seen to grow; zero: nobody has ever led
	heard   time.Time // when a switch said what is in force last
	nextAsk time.Time
}

func newer(a, b uint64) bool { return int64(a-b) > 0 }

// wait is how long a lease must stand still before this controller claims the
// next: TakeoverAfter, and up to half of it more, so that of several the one with
// the highest priority is first.
func (c *Core) wait() time.Duration {
	behind := float64(1<<claimBits-1-c.cfg.Claim&(1<<claimBits-1)) / (1 << claimBits)
	return c.cfg.TakeoverAfter + time.Duration(behind*float64(c.cfg.TakeoverAfter)/2)
}

// alone tells that no others are expected: then there are no roles, and every
// switch treats this controller as OpenFlow's EQUAL.
func (c *Core) alone() bool { return c.cfg.TakeoverAfter == 0 }

func (c *Core) askRole(d topology.DPID, role openflow.Role, generation uint64) {
	c.send(d, &openflow.RoleRequest{RoleState: openflow.RoleState{Role: role, GenerationID: generation}})
}

// tickElection renews what this controller leads by, or asks whether another does.
func (c *Core) tickElection() {
	e := &c.election
	if c.alone() || c.now.Before(e.nextAsk) {
		return
	}
	c.noteSleep()
	e.nextAsk = c.now.Add(c.cfg.TakeoverAfter / renewals)
	if e.leading {
		e.mine++
	}
	for _, n := range c.switches {
		if e.leading {
			c.askRole(n.dpid, openflow.OFPCR_ROLE_MASTER, e.mine)
		} else {
			c.askRole(n.dpid, openflow.OFPCR_ROLE_NOCHANGE, 0)
		}
	}
}

// noteSleep begins to wait anew when this controller slept: it has not looked.
func (c *Core) noteSleep() {
	e := &c.election
	if !e.grew.IsZero() && c.now.Sub(e.nextAsk) > c.cfg.TakeoverAfter/renewals {
		e.grew = c.now
	}
}

// Leading tells whether this controller is the master of several, or the only one.
func (c *Core) Leading() bool { return c.alone() || c.election.leading }

// Controls tells whether a switch does what this controller says.
func (c *Core) Controls(d topology.DPID) bool { n := c.switches[d]; return n != nil && n.obeys() }

// RoleReply takes what a switch says this controller is, and the newest
// generation that it was told.
func (c *Core) RoleReply(now time.Time, d topology.DPID, m *openflow.RoleReply) []Command {
	c.at(now)
	n := c.switches[d]
	if n == nil || c.alone() {
		return nil
	}
	n.role, n.heard = m.Role, c.now
	generation := m.GenerationID
	if generation == noGeneration {
		generation = 0
	}
	if c.election.leading {
		c.replyToLeader(n, generation)
	} else {
		c.replyToStandby(n, generation)
	}
	return c.finish()
}

func (c *Core) replyToLeader(n *node, generation uint64) {
	e := &c.election
	switch {
	case newer(generation, e.mine) || n.role != openflow.OFPCR_ROLE_MASTER && n.master:
		c.counters.RolesLost++
		c.standBy(generation)
	case n.role != openflow.OFPCR_ROLE_MASTER:
		c.askRole(n.dpid, openflow.OFPCR_ROLE_MASTER, e.mine)
	case !n.master:
		c.takeOver(n)
	}
}

func (c *Core) replyToStandby(n *node, generation uint64) {
	e := &c.election
	c.noteSleep()
	if !e.grew.IsZero() && c.now.Sub(e.heard) > c.cfg.TakeoverAfter/2 {
		e.grew = c.now // no switch could have told: that is not the master's silence
	}
	e.heard = c.now
	if generation != 0 && (e.grew.IsZero() || newer(generation, e.newest)) {
		e.newest, e.grew = generation, c.now
	}
	if e.grew.IsZero() || c.now.Sub(e.grew) >= c.wait() {
		c.claim()
		return
	}
	if n.role != openflow.OFPCR_ROLE_SLAVE { // that of a new connection, or one that was lost elsewhere
		c.askRole(n.dpid, openflow.OFPCR_ROLE_SLAVE, e.newest)
	}
}

// claim begins the next term. What ports lead to is not known yet: links prove
// themselves before hosts are believed there.
func (c *Core) claim() {
	e := &c.election
	e.leading, e.mine = true, (e.newest>>termShift+1)<<termShift|uint64(c.cfg.Claim&(1<<claimBits-1))<<renewalBits
	c.counters.RolesClaimed++
	for _, n := range c.switches {
		for _, p := range n.ports {
			p.since = c.now
		}
		c.askRole(n.dpid, openflow.OFPCR_ROLE_MASTER, e.mine)
	}
}

// standBy forgets what this controller knew, as if it began anew: another changes
// switches now. What it has counted and used up stays so.
func (c *Core) standBy(generation uint64) {
	old := *c
	*c = *New(old.cfg)
	c.now, c.round, c.nextRound, c.lastRound, c.late, c.nextStats = old.now, old.round, old.nextRound, old.lastRound, old.late, old.nextStats
	c.nextID, c.totals, c.counters, c.commands = old.nextID, old.totals, old.counters, old.commands
	c.election = election{newest: generation, grew: c.now, nextAsk: old.election.nextAsk}
	for d, was := range old.switches {
		n := &node{dpid: d, connected: was.connected, since: was.since, role: was.role, ports: map[uint32]*port{}}
		n.forgetEntries()
		c.switches[d] = n
		for _, p := range was.ports {
			c.setPort(n, p.desc)
		}
		c.askRole(d, openflow.OFPCR_ROLE_NOCHANGE, 0)
		c.askStats(n)
	}
}
