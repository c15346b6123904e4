// Package core decides what an OpenFlow controller with quality of service does:
// it is told what switches say and returns what to tell them.
//
// Problem and method: Li and others, "A QoS guaranteed technique for cloud
// applications based on software defined networking" (SDN-LLQ), section III.A.
// A packet that no entry matches comes to the controller (steps 1 to 4); its
// headers name the application and so its level, EF, AF or BE (step 5, package
// appid); an entry for the flow, and the packet itself, go back with the queue of
// that level and the port towards the destination (steps 6 and 7); what follows
// is forwarded by the switch alone (steps 8 and 9). Package ovsdb makes the
// queues.
//
// Here differs from the paper: both directions of a flow get their entries at
// once, over all switches of the path and with the same level; entries to known
// hosts and for broadcasts stand below the flows', so that a network whose
// controller is gone goes on with best effort; and what the statistics of a flow
// say about it may correct its level (second look).
//
// A Core has no clock, no connection and no goroutine. It is not safe for
// concurrent use.
//
// Limits: hosts are known by their MAC address, once, whatever the VLAN;
// packets with a VLAN tag are not routed.
package core

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Config is what an operator may choose.
type Config struct {
	Queues QueueMap
	// TypeQueues are the queues of application types, by index of appid.Types, that
	// do not go to that of their level.
	TypeQueues map[int]TypeQueue
	// IdleTimeoutSeconds is how long a flow may be silent before its entry goes.
	IdleTimeoutSeconds uint16
	// FailSafe lets switches forward to known hosts by themselves, as best
	// effort, and send the controller copies. Without it an unknown flow waits
	// for the controller, as in the paper, and is lost without one.
	FailSafe bool
	// MaxFlows is how many flows are kept; more are forwarded as best effort.
	MaxFlows int
	// PacketInsPerSecond is what the meter of a switch lets through; 0: no meter.
	PacketInsPerSecond uint32
	LLDPInterval       time.Duration
	StatsInterval      time.Duration
	// SecondLook corrects levels from statistics.
	SecondLook bool
	// TakeoverAfter is how long the master of several controllers may fail to
	// renew its role before another takes over; 0: there are no others.
	TakeoverAfter time.Duration
	// Claim tells controllers apart, see the function Claim.
	Claim uint32
	// Routes are networks between which packets are routed; nil: none.
	Routes *Routes
	// LLDPKey signs LLDP and must be random.
	LLDPKey [32]byte
	// FirstFlowID is the first flow's number: random, so that the flows of
	// another controller, or of an earlier start, keep theirs.
	FirstFlowID uint64
}

// Times that are the same everywhere.
const (
	// probationRounds is how many rounds of LLDP a new port waits before a
	// host may be there: until then it may be a link.
	probationRounds = 2
	// linkRounds without LLDP end a link.
	linkRounds = 4
	// hostAge is how long a silent host is remembered.
	hostAge = 10 * time.Minute
	// switchAge is how long a switch that is gone is remembered.
	switchAge = time.Hour
	// hostHold is how long a host stays before it may move again.
	hostHold = time.Second
	// settle is how long an entry may take to work: packets that come in
	// meanwhile do not have it sent again.
	settle = time.Second
	// evictPause is how long after one search for silent flows there is another.
	evictPause = time.Second
	// fullPause is how long a switch whose table is full gets no entries of
	// single flows.
	fullPause = 10 * time.Second
)

// MaxPorts is how many ports of a switch are known.
const MaxPorts = 1 << 12

// Bounds on what hosts and switches can make a controller remember.
const (
	maxSwitches      = 1 << 10 // of those connected there may be more
	maxQueuesPerPort = 1 << 6
	maxHosts         = 1 << 16
	maxHostsPerPort  = 1 << 10
)

// Command is a message for one switch.
type Command struct {
	Switch  topology.DPID
	Message openflow.Message
}

// Core is the controller's knowledge.
type Core struct {
	cfg        Config
	signer     topology.Signer
	round      uint64
	nextRound  time.Time
	lastRound  time.Time
	lldpDue    []topology.DPID // whose LLDP of this round is not sent yet
	lldpAll    int             // how many these were
	heard      map[heardPair]time.Time
	blocked    map[topology.Port]bool // ports that would close a circle
	late       time.Time              // when a round of LLDP came late last
	nextStats  time.Time
	now        time.Time
	graph      *topology.Graph
	switches   map[topology.DPID]*node
	hosts      map[openflow.MAC]*host
	flows      map[Key]*Flow
	byID       map[uint64]*Flow
	ofMAC      map[openflow.MAC]*hostFlows
	spare      []*Flow // that have ended
	nextEvict  time.Time
	leaving    map[uint64]*Flow // deleted, their last count is on the way
	nextID     uint64
	totals     [appid.NumLevels]Total
	counters   Counters
	commands   []Command
	broadcasts bool // have to be looked at again
	probed     bool // segments have to
	election   election
	neighbours map[netip.Addr]neighbour
	pending    map[netip.Addr]*pending
}

// node is one switch.
type node struct {
	dpid      topology.DPID
	connected bool
	role      openflow.Role // what the switch says that this controller is
	master    bool          // this controller may change it, and has set it up
	since     time.Time     // it is connected, or was lost
	heard     time.Time     // it said something last
	away      time.Time     // it was lost last: when it had said something before that
	ports     map[uint32]*port
	entries   map[openflow.MAC]hostEntry // what the switch has of priorityHost
	ingress   flowSet                    // flows that begin here
	flooded   map[uint32]flood           // broadcast entries by port of entry; 0 is any other
	fullUntil time.Time
	lacking   bool            // its table had no room for entries that are not of single flows
	asked     time.Time       // for flow statistics
	asking    bool            // and has not answered
	found     map[uint64]bool // numbers of flows in its first statistics; nil: these are over
	packetIns uint64          // in this round of LLDP
	limited   time.Time       // when its meter dropped packets last, as it seems
}

type port struct {
	desc      openflow.PortDesc
	up        bool
	since     time.Time
	heard     time.Time // last LLDP that proved a link
	hosts     int
	peer      topology.Port // of the link that was lost here last
	lost      time.Time     // when
	opened    int           // flows that began with a packet from here, and their answers
	floods    time.Time     // by when those from here were within their bound; see mayFlood
	addresses int           // of neighbours that were learned here
	queues    map[openflow.Queue]*QueueCount
	count     PortCount
}

// host is an end system, known by its MAC address where that was learned.
type host struct {
	at            topology.Port
	seen, arrived time.Time
}

type hostEntry struct {
	out   uint32
	quiet bool // without copies for the controller
}

// Counters count what happened since the start.
type Counters struct {
	PacketIns, Installed, Reinstalled, Rerouted, Reclassified, Evicted, TableFull uint64
	Unknown, Probation, HostsRefused, Errors, Blocked                             uint64
	LLDPForeign, LLDPForged, LLDPStale, LLDPOnHostPort, FloodsLimited             uint64
	RolesClaimed, RolesLost                                                       uint64
	RoutedTTL, RoutedNowhere, RoutedUnanswered                                    uint64
}

// New returns a Core without switches.
func New(cfg Config) *Core {
	return &Core{
		cfg: cfg, signer: topology.Signer{Key: cfg.LLDPKey}, graph: topology.New(),
		switches: map[topology.DPID]*node{}, hosts: map[openflow.MAC]*host{},
		flows: map[Key]*Flow{}, byID: map[uint64]*Flow{}, ofMAC: map[openflow.MAC]*hostFlows{}, leaving: map[uint64]*Flow{},
		neighbours: map[netip.Addr]neighbour{}, pending: map[netip.Addr]*pending{},
		heard: map[heardPair]time.Time{}, blocked: map[topology.Port]bool{},
		nextID: cfg.FirstFlowID & cookieIDMask,
	}
}

// at begins an event.
func (c *Core) at(now time.Time) {
	if now.After(c.now) {
		c.now = now
	}
}

func (c *Core) send(d topology.DPID, m openflow.Message) {
	if n := c.switches[d]; n != nil && n.connected && (n.master || harmless(m)) {
		if c.commands == nil {
			c.commands = make([]Command, 0, newFlowCommands)
		}
		c.commands = append(c.commands, Command{d, m})
	}
}

// newFlowCommands is what a new flow takes on one switch: an entry in each direction, and
// the packet.
const newFlowCommands = 3

// harmless tells that a message changes nothing that a switch does with packets:
// these are all that others than a master may send.
func harmless(m openflow.Message) bool {
	switch m.(type) {
	case *openflow.MultipartRequest, *openflow.RoleRequest:
		return true
	}
	return false
}

// obeys tells that a switch does what this controller says.
func (n *node) obeys() bool { return n.connected && n.master }

// forgetEntries has all entries that are not of single flows sent again.
func (n *node) forgetEntries() {
	n.entries, n.flooded, n.fullUntil = map[openflow.MAC]hostEntry{}, map[uint32]flood{}, time.Time{}
}

// finish ends an event.
func (c *Core) finish() []Command {
	if c.broadcasts {
		c.broadcasts = false
		c.sendBroadcasts()
	}
	out := c.commands
	c.commands = nil
	return out
}

// Connected says that a switch has finished its handshake. Entries that it
// brings along stay: they are learned from its statistics, which are asked for.
func (c *Core) Connected(now time.Time, features *openflow.FeaturesReply, ports []openflow.PortDesc) []Command {
	c.at(now)
	d := topology.DPID(features.DatapathID)
	n := c.switches[d]
	if n == nil {
		c.forgetSwitches()
		n = &node{dpid: d, ports: map[uint32]*port{}}
		c.switches[d] = n
	}
	n.connected, n.since, n.heard = true, c.now, c.now
	n.master, n.role = false, openflow.OFPCR_ROLE_EQUAL
	there := map[uint32]bool{}
	for _, p := range ports {
		there[uint32(p.PortNo)] = true
	}
	for number := range n.ports {
		if !there[number] {
			c.removePort(n, number)
		} else if n.ports[number].hosts == 0 { // it may lead elsewhere now
			c.waitAgain(topology.Port{Switch: n.dpid, Number: number})
		}
	}
	for _, p := range ports {
		c.setPort(n, p)
	}
	if c.alone() {
		c.takeOver(n)
	} else {
		n.asking = false
		c.askRole(n.dpid, openflow.OFPCR_ROLE_NOCHANGE, 0)
		c.askStats(n)
	}
	return c.finish()
}

// takeOver begins to control a switch.
func (c *Core) takeOver(n *node) {
	n.master, n.since, n.asking = true, c.now, false
	n.found = map[uint64]bool{}
	n.forgetEntries()
	c.setUp(n)
	c.forgetBroadcasts(n)
	c.blockAgain(n)
	c.askStats(n)
	c.sendLLDP(n)
	c.broadcasts = true
}

// setUp sends what every switch has: LLDP and what nothing matches to the
// controller, and a meter before that.
func (c *Core) setUp(n *node) {
	c.send(n.dpid, &openflow.SetConfig{SwitchConfig: openflow.SwitchConfig{MissSendLen: openflow.OFPCML_NO_BUFFER}})
	if rate := c.cfg.PacketInsPerSecond; rate > 0 {
		// OFPMC_ADD fails where the meter is from an earlier start; then
		// OFPMC_MODIFY succeeds, and the other way round.
		for _, command := range []openflow.MeterModCommand{openflow.OFPMC_ADD, openflow.OFPMC_MODIFY} {
			c.send(n.dpid, &openflow.MeterMod{
				Command: command, MeterID: openflow.OFPM_CONTROLLER, Flags: openflow.OFPMF_PKTPS | openflow.OFPMF_BURST,
				Bands: []openflow.MeterBand{{Type: openflow.OFPMBT_DROP, Rate: rate, BurstSize: rate}},
			})
		}
	}
	lldp := openflow.Match{Fields: []openflow.OXM{number(openflow.OFPXMT_OFB_ETH_TYPE, topology.EtherTypeLLDP)}}
	c.send(n.dpid, flowMod(cookieSetup, openflow.OFPFC_ADD, priorityLLDP, lldp, toController(openflow.OFPCML_NO_BUFFER)))
	c.send(n.dpid, flowMod(cookieSetup, openflow.OFPFC_ADD, priorityMiss, openflow.Match{}, toController(openflow.OFPCML_NO_BUFFER)))
}

// Disconnected says that a switch cannot be reached. What it forwards it goes on
// forwarding, so its links and hosts are kept.
func (c *Core) Disconnected(now time.Time, d topology.DPID) {
	c.at(now)
	if n := c.switches[d]; n != nil {
		n.connected, n.master, n.since, n.away = false, false, c.now, n.heard
	}
}

// Error takes what a switch refuses.
func (c *Core) Error(now time.Time, d topology.DPID, m *openflow.ErrorMessage) []Command {
	c.at(now)
	n := c.switches[d]
	full := m.ErrorType == openflow.OFPET_FLOW_MOD_FAILED && openflow.FlowModFailedCode(m.Code) == openflow.OFPFMFC_TABLE_FULL
	switch {
	case m.ErrorType == openflow.OFPET_ROLE_REQUEST_FAILED && openflow.RoleRequestFailedCode(m.Code) == openflow.OFPRRFC_STALE,
		m.ErrorType == openflow.OFPET_BAD_REQUEST && openflow.BadRequestCode(m.Code) == openflow.OFPBRC_IS_SLAVE:
		c.askRole(d, openflow.OFPCR_ROLE_NOCHANGE, 0) // it tells what is in force
	case m.ErrorType == openflow.OFPET_METER_MOD_FAILED: // one of the two commands must fail
	case full && n != nil:
		c.counters.TableFull++
		c.tableFull(n, m.Data)
	default:
		c.counters.Errors++
	}
	return c.finish()
}

// Tick does what is due by time; call it LLDPParts times in every LLDPInterval.
func (c *Core) Tick(now time.Time) []Command {
	c.at(now)
	c.tickElection()
	if c.probed {
		c.segmentsChanged()
	}
	for _, n := range c.switches {
		if n.lacking && n.obeys() && !c.now.Before(n.fullUntil) {
			n.lacking = false
			n.forgetEntries()
			c.setUp(n)
			c.broadcasts = true
		}
	}
	if !c.now.Before(c.nextRound) {
		if c.now.Sub(c.nextRound) > c.cfg.LLDPInterval {
			c.late = c.now
		}
		c.sendDueLLDP(1)
		c.nextRound = c.now.Add(c.cfg.LLDPInterval)
		c.round++
		c.noteLimited()
		c.lldpDue, c.lldpAll = slices.Sorted(maps.Keys(c.switches)), len(c.switches)
		c.expireLinks()
		c.expireProbes()
		c.expireHosts()
		c.forgetNeighbours()
		c.expirePending()
		c.expireSwitches()
		c.broadcasts = true // probations may have ended
	}
	c.sendDueLLDP(1 - float64(c.nextRound.Sub(c.now))/float64(c.cfg.LLDPInterval) + 1./LLDPParts)
	if !c.now.Before(c.nextStats) {
		c.nextStats = c.now.Add(c.cfg.StatsInterval)
		clear(c.leaving)
		for _, n := range c.switches {
			c.askStats(n)
		}
	}
	return c.finish()
}

func (c *Core) askStats(n *node) {
	if n.asking && c.now.Sub(n.asked) < 4*c.cfg.StatsInterval {
		return
	}
	n.asked, n.asking = c.now, n.connected
	c.send(n.dpid, flowStatsOf(cookieFlow, cookieKindMask))
	c.send(n.dpid, &openflow.MultipartRequest{Body: &openflow.QueueStatsRequest{PortNo: openflow.OFPP_ANY, QueueID: openflow.OFPQ_ALL}})
	c.send(n.dpid, &openflow.MultipartRequest{Body: &openflow.PortStatsRequest{PortNo: openflow.OFPP_ANY}})
}
