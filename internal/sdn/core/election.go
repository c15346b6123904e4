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
// slave, and answers every controller's NOCHANGE with that generation.
//
// So a generation is a lease. The master renews it, a few times in TakeoverAfter;
// the others request it, and one that has not seen it grow for that long claims
// the next term. A controller that learns of a newer generation has lost and
// waits again; none fights back. Controllers need not reach each other.
//
// A generation is, from its highest bit: 24 bits of the term, 24 of the claim
// (8 of priority, 16 at random), 16 that count renewals and run over into the
// rest. Two claims of one term at the same time differ in the second part:
// the higher wins on every switch.
const (
	renewalBits = 16
	claimBits   = 24
	termShift   = renewalBits + claimBits
	// noGeneration is the generation that a switch reports before any role request.
	noGeneration = ^uint64(0)
	// renewals is how often a master renews its lease per TakeoverAfter, so three renewals
	// may be lost.
	renewals = 4
)

// Claim returns the claim part of a generation. Among claims of the same term, the highest
// priority wins.
func Claim(priority uint8, random uint16) uint32 { return uint32(priority)<<16 | uint32(random) }

// election is this controller's view of the lease. Generations are compared modulo 2^64:
// one is newer than another if it is ahead by less than 2^63.
type election struct {
	takeoverAfter time.Duration
	claim         uint32
	leading       bool
	mine          uint64    // own generation while master
	newest        uint64    // newest generation seen from another controller
	grew          time.Time // when newest last increased; zero: no controller has been master yet
	heard         time.Time // time of the last role reply
	nextRequest   time.Time
}

// electionStep is the action that a role reply triggers.
type electionStep int

const (
	wait           electionStep = iota
	requestMaster               // of this switch, with the generation
	requestSlave                // of this switch, with the generation
	takeOverSwitch              // this switch accepts this controller as master
	becomeMaster                // request MASTER of all switches, with the generation
	becomeStandby               // another controller is master
)

func newer(a, b uint64) bool { return int64(a-b) > 0 }

// isAlone reports whether this is the only controller. Then no roles are used: every switch
// treats the controller as EQUAL.
func (e *election) isAlone() bool { return e.takeoverAfter == 0 }

// patience is how long the lease may stand still before this controller claims the next
// term: TakeoverAfter plus up to half of it, less for a higher priority.
func (e *election) patience() time.Duration {
	behind := float64(1<<claimBits-1-e.claim) / (1 << claimBits)
	return e.takeoverAfter + time.Duration(behind*float64(e.takeoverAfter)/2)
}

// tick returns the role request to send to all switches if one is due: a master renews with
// its next generation, a standby asks for the current one.
func (e *election) tick(now time.Time) (role openflow.Role, generation uint64, due bool) {
	if e.isAlone() || now.Before(e.nextRequest) {
		return 0, 0, false
	}
	e.noteSleep(now)
	e.nextRequest = now.Add(e.takeoverAfter / renewals)
	if !e.leading {
		return openflow.OFPCR_ROLE_NOCHANGE, 0, true
	}
	e.mine++
	return openflow.OFPCR_ROLE_MASTER, e.mine, true
}

// noteSleep restarts the wait after a suspend, in which the controller could not observe
// renewals.
func (e *election) noteSleep(now time.Time) {
	if !e.grew.IsZero() && now.Sub(e.nextRequest) > e.takeoverAfter/renewals {
		e.grew = now
	}
}

// reply processes a switch's role and generation and returns the next step with its
// generation. master says whether the switch currently obeys this controller.
func (e *election) reply(now time.Time, role openflow.Role, generation uint64, master bool) (electionStep, uint64) {
	if generation == noGeneration {
		generation = 0
	}
	if e.leading {
		return e.replyToMaster(now, role, generation, master)
	}
	return e.replyToStandby(now, role, generation)
}

func (e *election) replyToMaster(now time.Time, role openflow.Role, generation uint64, master bool) (electionStep, uint64) {
	switch {
	case newer(generation, e.mine) || role != openflow.OFPCR_ROLE_MASTER && master:
		e.leading, e.mine, e.newest, e.grew, e.heard = false, 0, generation, now, time.Time{}
		return becomeStandby, 0
	case role != openflow.OFPCR_ROLE_MASTER:
		return requestMaster, e.mine
	case !master:
		return takeOverSwitch, 0
	}
	return wait, 0
}

func (e *election) replyToStandby(now time.Time, role openflow.Role, generation uint64) (electionStep, uint64) {
	e.noteSleep(now)
	if !e.grew.IsZero() && now.Sub(e.heard) > e.takeoverAfter/2 {
		e.grew = now // no switch was connected: the silence is not the master's
	}
	e.heard = now
	if generation != 0 && (e.grew.IsZero() || newer(generation, e.newest)) {
		e.newest, e.grew = generation, now
	}
	switch {
	case e.grew.IsZero() || now.Sub(e.grew) >= e.patience():
		e.leading, e.mine = true, (e.newest>>termShift+1)<<termShift|uint64(e.claim)<<renewalBits
		return becomeMaster, e.mine
	case role != openflow.OFPCR_ROLE_SLAVE: // a new connection, or role lost to another controller
		return requestSlave, e.newest
	}
	return wait, 0
}

// RoleReply handles the role that a switch grants, with the newest generation that the
// switch knows.
func (c *Core) RoleReply(now time.Time, d topology.DPID, m *openflow.RoleReply) []Command {
	c.advance(now)
	sw := c.switches.byID[d]
	if sw == nil || c.election.isAlone() {
		return nil
	}
	sw.role, sw.heard = m.Role, c.now
	switch next, generation := c.election.reply(c.now, sw.role, m.GenerationID, sw.master); next {
	case requestMaster:
		c.switches.requestRole(d, openflow.OFPCR_ROLE_MASTER, generation)
	case requestSlave:
		c.switches.requestRole(d, openflow.OFPCR_ROLE_SLAVE, generation)
	case takeOverSwitch:
		c.takeOver(sw)
	case becomeMaster:
		c.counters.RolesClaimed++
		c.switches.restartProbations()
		c.switches.requestRoles(openflow.OFPCR_ROLE_MASTER, generation)
	case becomeStandby:
		c.counters.RolesLost++
		c.standBy()
	}
	return c.finish()
}

// standBy discards the network state as after a start, because another controller now
// changes the switches. Counters, assigned numbers and the election stay.
func (c *Core) standBy() {
	old := *c
	c.reset()
	c.links.rounds = old.links.rounds
	c.switches.lastRound = old.switches.lastRound
	c.flows.nextID, c.flows.totals = old.flows.nextID, old.flows.totals
	for d, was := range old.switches.byID {
		sw := c.switches.add(d)
		sw.connected, sw.since, sw.role, sw.marks = was.connected, was.since, was.role, was.marks
		sw.forgetEntries()
		for _, p := range was.ports {
			c.setPort(sw, p.desc)
		}
		c.switches.requestRole(d, openflow.OFPCR_ROLE_NOCHANGE, 0)
		c.switches.requestStats(sw)
	}
}

// Leading reports whether this controller is the master, or the only controller.
func (c *Core) Leading() bool { return c.election.isAlone() || c.election.leading }

// IsStandby reports whether another controller is the master, or may be: one that no switch obeys does not
// learn that it has been replaced.
func (c *Core) IsStandby() bool {
	if c.election.isAlone() {
		return false
	}
	for _, sw := range c.switches.byID {
		if c.election.leading && sw.obeys() {
			return false
		}
	}
	return true
}

// Controls reports whether a switch accepts changes from this controller.
func (c *Core) Controls(d topology.DPID) bool {
	sw := c.switches.byID[d]
	return sw != nil && sw.obeys()
}
