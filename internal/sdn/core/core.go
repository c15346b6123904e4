// Package core decides what an OpenFlow controller with quality of service does:
// it takes the messages of switches and returns the messages to send.
//
// Problem and method: Li and others, "A QoS guaranteed technique for cloud
// applications based on software defined networking" (SDN-LLQ), section III.A.
// A packet without a matching flow entry comes to the controller (steps 1 to 4);
// its headers name the application and so its traffic class, EF, AF or BE (step 5,
// package apps); a flow entry, and the packet itself, go back with the queue of
// that class and the port towards the destination (steps 6 and 7); the switch
// forwards the following packets alone (steps 8 and 9). Package ovsdb makes the
// queues.
//
// Differences from the paper: both directions of a flow get their entries at
// once, on all switches of the path and with the same class; entries to known
// stations and for broadcasts stand below those of flows, so that a network
// without a controller goes on with best effort; and the statistics of a flow may
// correct its class (second look).
//
// Parts, each of which uses only those above it:
//
//	switches    switches and ports, what they count, messages to them
//	stations    MAC addresses behind ports
//	links       LLDP, links, segments and the loops over them, paths
//	forwarding  entries that are not of single flows
//	marks       entries of trusted ports
//	promises    minimums of services, hosts by address
//	flows       flows, their entries, statistics and bounds
//	router      gateways, neighbours, packets between networks
//	election    which of several controllers is master
//
// Core hands every message to the parts it concerns, and tells the lower parts'
// news (a lost port, a moved station, a new link) to the upper ones.
//
// A Core has no clock, no connection and no goroutine. It is not safe for
// concurrent use.
//
// Limits: a station is known by its MAC address, once, in all VLANs together;
// packets with a VLAN tag are not routed.
package core

import (
	"encoding/binary"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// event is the event being handled: its time and the commands it produced.
type event struct {
	now      time.Time
	commands []Command
	counters Counters
}

// advance sets the clock of the event, which never goes back.
func (e *event) advance(now time.Time) {
	if now.After(e.now) {
		e.now = now
	}
}

// Core is the state of the controller, by part.
type Core struct {
	*event
	cfg        *Config
	switches   *switches
	stations   *stations
	links      *links
	forwarding *forwarding
	marks      *marks
	promises   *promises
	flows      *flows
	router     *router
	election   election
	nextStats  time.Time
}

// New returns a Core that knows no switches.
func New(cfg Config) *Core {
	c := &Core{event: &event{}, cfg: &cfg, election: election{takeoverAfter: cfg.TakeoverAfter, claim: cfg.Claim & (1<<claimBits - 1)}}
	c.reset()
	c.flows.nextID = cfg.FirstFlowID & cookieIDMask
	return c
}

// reset recreates all parts except the election.
func (c *Core) reset() {
	c.switches = newSwitches(c.event, c.cfg)
	c.stations = newStations(c.switches)
	c.links = newLinks(c.switches, c.stations)
	c.forwarding = &forwarding{event: c.event, cfg: c.cfg, switches: c.switches, stations: c.stations, links: c.links}
	c.marks = &marks{event: c.event, cfg: c.cfg, switches: c.switches, stations: c.stations, links: c.links, forwarding: c.forwarding}
	c.promises = newPromises(c.forwarding)
	c.flows = newFlows(c.marks)
	c.router = newRouter(c.flows)
}

// finish ends an event and returns its commands.
func (c *Core) finish() []Command {
	if c.forwarding.stale {
		c.forwarding.stale = false
		c.marks.refresh()
		c.promises.settle()
		c.forwarding.sendBroadcasts()
	}
	out := c.commands
	c.commands = nil
	return out
}

// Connected handles the end of a switch's handshake. Flow entries already on the switch
// stay; the core requests statistics to learn them.
func (c *Core) Connected(now time.Time, is Description) []Command {
	c.advance(now)
	d, ports := topology.DPID(is.Features.DatapathID), is.Ports
	sw := c.switches.byID[d]
	if sw == nil {
		for !c.switches.hasRoom() {
			oldest := c.switches.longestAway()
			if oldest == nil {
				break
			}
			c.forgetSwitch(oldest)
		}
		sw = c.switches.add(d)
	}
	sw.connected, sw.since, sw.heard = true, c.now, c.now
	sw.master, sw.role, sw.withoutQueues = false, openflow.OFPCR_ROLE_EQUAL, !is.setsQueues()
	sw.marks = c.cfg.inspect(&is)
	listed := map[uint32]bool{}
	for _, p := range ports {
		listed[uint32(p.PortNo)] = true
	}
	for number := range sw.ports {
		if !listed[number] {
			c.removePort(sw, number)
		} else if sw.ports[number].stations == 0 { // a port without stations may now lead elsewhere
			c.links.restartProbation(topology.Port{Switch: d, Number: number})
		}
	}
	for _, p := range ports {
		c.setPort(sw, p)
	}
	if c.election.isAlone() {
		c.takeOver(sw)
	} else {
		sw.asking = false
		c.switches.requestRole(d, openflow.OFPCR_ROLE_NOCHANGE, 0)
		c.switches.requestStats(sw)
	}
	return c.finish()
}

// takeOver starts to control a switch.
func (c *Core) takeOver(sw *switchState) {
	sw.master, sw.since, sw.asking = true, c.now, false
	sw.found, sw.base = map[uint64]bool{}, baseSent
	sw.forgetEntries()
	c.switches.setUp(sw)
	c.marks.setUp(sw)
	c.promises.setUp(sw)
	c.forwarding.deleteBroadcasts(sw)
	c.links.blockAgain(sw)
	c.switches.requestStats(sw)
	c.links.sendLLDP(sw)
}

// Disconnected handles the loss of a switch's connection. The switch keeps forwarding, so
// its links and stations stay known.
func (c *Core) Disconnected(now time.Time, d topology.DPID) {
	c.advance(now)
	if sw := c.switches.byID[d]; sw != nil {
		sw.connected, sw.master, sw.since, sw.away = false, false, c.now, sw.heard
	}
}

// Error handles an error message of a switch.
func (c *Core) Error(now time.Time, d topology.DPID, m *openflow.ErrorMessage) []Command {
	c.advance(now)
	sw := c.switches.byID[d]
	full := m.ErrorType == openflow.OFPET_FLOW_MOD_FAILED && openflow.FlowModFailedCode(m.Code) == openflow.OFPFMFC_TABLE_FULL
	switch {
	case m.ErrorType == openflow.OFPET_ROLE_REQUEST_FAILED && openflow.RoleRequestFailedCode(m.Code) == openflow.OFPRRFC_STALE,
		m.ErrorType == openflow.OFPET_BAD_REQUEST && openflow.BadRequestCode(m.Code) == openflow.OFPBRC_IS_SLAVE:
		c.switches.requestRole(d, openflow.OFPCR_ROLE_NOCHANGE, 0) // the reply contains the current generation
	case m.ErrorType == openflow.OFPET_METER_MOD_FAILED:
		c.meterRefused(sw, m)
	case sw != nil && isPromise(m.Data):
		c.counters.Errors++
		cookie, _ := cookieOf(m.Data)
		c.promises.entryRefused(d, cookie)
	case full && sw != nil:
		c.counters.TableFull++
		c.flows.tableFull(sw, m.Data)
	case m.ErrorType == openflow.OFPET_BAD_ACTION && openflow.BadActionCode(m.Code) == openflow.OFPBAC_BAD_TYPE && sw != nil && !sw.withoutQueues && c.flows.onlySetsQueue(m.Data):
		c.counters.Errors++
		sw.withoutQueues = true // better forwarded out of order than not at all
		sw.forgetEntries()
		c.marks.setUp(sw)
		c.forwarding.stale = true
	default:
		c.counters.Errors++
	}
	return c.finish()
}

// meterRefused handles the refusal of a meter. Of the two commands that make one, one always fails.
func (c *Core) meterRefused(sw *switchState, m *openflow.ErrorMessage) {
	code := openflow.MeterModFailedCode(m.Code)
	if sw == nil || code == openflow.OFPMMFC_METER_EXISTS || code == openflow.OFPMMFC_UNKNOWN_METER || len(m.Data) < 16 || openflow.Type(m.Data[1]) != openflow.OFPT_METER_MOD {
		return
	}
	c.counters.Errors++
	c.marks.refused(sw, openflow.Meter(binary.BigEndian.Uint32(m.Data[12:])))
}

// Tick runs the periodic work. Call it LLDPParts times per LLDPInterval, and Parts in between.
func (c *Core) Tick(now time.Time) []Command {
	c.advance(now)
	if role, generation, due := c.election.tick(c.now); due {
		c.switches.requestRoles(role, generation)
	}
	if c.links.segments.changed {
		c.blockLoops()
	}
	for _, sw := range c.switches.byID {
		if sw.base == baseRefused && sw.obeys() && !c.now.Before(sw.fullUntil) {
			sw.base = baseSent
			sw.forgetEntries()
			c.switches.setUp(sw)
			c.marks.setUp(sw)
			c.promises.setUp(sw)
			c.forwarding.stale = true
		}
	}
	if c.links.beginRound() {
		c.promises.look()
		c.promises.forget()
		c.expire()
	}
	c.links.sendDueLLDP(c.links.roundPart())
	c.flows.watched.beginTick()
	c.flows.requestWatched()
	if !c.now.Before(c.nextStats) {
		c.nextStats = c.now.Add(c.cfg.StatsInterval)
		clear(c.flows.leaving)
		for _, sw := range c.switches.byID {
			c.switches.requestStats(sw)
		}
	}
	return c.finish()
}

// expire removes links, stations and switches that were silent too long. It runs at the end
// of an LLDP round.
func (c *Core) expire() {
	c.switches.noteLimited()
	if c.links.expire() {
		c.mapChanged()
	}
	c.links.expireProbes()
	c.blockLoops()
	for mac := range c.stations.expired() {
		if !c.marks.hears(mac) {
			c.forgetStation(mac)
		}
	}
	c.router.refreshNeighbours()
	c.router.expirePending()
	for _, sw := range c.switches.byID {
		if !sw.connected && c.now.Sub(sw.since) > switchAge {
			c.forgetSwitch(sw)
		}
	}
	c.forwarding.stale = true // probations may have ended
}

// PacketIn handles a packet-in that ReadFrame parsed and the classifier judged as v.
func (c *Core) PacketIn(now time.Time, d topology.DPID, m *openflow.PacketIn, f *Frame, v Verdict) []Command {
	c.advance(now)
	c.counters.PacketIns++
	sw := c.switches.byID[d]
	if sw != nil {
		sw.packetIns++
		sw.heard = c.now
		if !sw.master { // sent before the switch learned of the role change
			return nil
		}
	}
	field := m.Match.Field(openflow.OFPXMT_OFB_IN_PORT)
	if sw == nil || field == nil {
		c.counters.Unknown++
		return nil
	}
	at := topology.Port{Switch: d, Number: uint32(field.Number())}
	p := sw.ports[at.Number]
	if p == nil { // the port was removed meanwhile
		c.counters.Unknown++
		return nil
	}
	if f.EtherType == topology.EtherTypeLLDP {
		c.lldp(at, m.Data)
		return c.finish()
	}
	if c.links.isEdge(at) {
		if !c.learn(f.SrcMAC, at) {
			return c.finish()
		}
	} else if _, link := c.links.graph.Peer(at); !link {
		c.counters.Probation++
		return c.finish()
	}
	if c.promises.hear(f, m.Data) && c.cfg.Routes == nil {
		return c.finish()
	}
	if sw.marks.on && (m.TableID == tableSources || m.TableID == tableForward) {
		c.marks.forward(at, m, f)
		return c.finish()
	}
	if c.router.route(at, m, f, v) {
		return c.finish()
	}
	unmatched := m.Reason == openflow.OFPR_NO_MATCH
	to := c.stations.byMAC[f.DstMAC]
	switch {
	case to != nil && to.at != at:
		c.flows.forward(at, m, f, v, unmatched)
	case to == nil && unmatched && c.forwarding.mayFlood(p):
		c.forwarding.flood(at, m.Data)
	}
	return c.finish()
}

// lldp handles an LLDP frame received at a port.
func (c *Core) lldp(at topology.Port, frame []byte) {
	from, ok := c.links.open(at, frame)
	if !ok {
		return
	}
	c.unlearn(at)
	c.unlearn(from)
	if c.links.confirm(from, at) {
		c.mapChanged()
	}
}

// learn records that a station is at a port, and returns false if the port is not trusted
// for it.
func (c *Core) learn(mac openflow.MAC, at topology.Port) bool {
	if mac == gatewayMAC {
		return false
	}
	isNew := c.stations.byMAC[mac] == nil
	believed, moved := c.stations.learn(mac, at)
	switch {
	case moved:
		c.dropStation(mac)
	case believed && isNew && c.cfg.Trust != nil:
		c.forwarding.correctAll(mac)
	}
	return believed
}

// unlearn forgets the stations at a port that may turn out to be a link. Entries to them
// stay, since they point the right way; the stations are located again when they send.
func (c *Core) unlearn(at topology.Port) {
	if c.switches.port(at).stations == 0 {
		return
	}
	for mac := range c.stations.behind(at) {
		c.stations.forget(mac)
		c.flows.adoptTo(mac)
	}
	c.links.restartProbation(at)
}

// forgetStation removes a station with its flows and entries.
func (c *Core) forgetStation(mac openflow.MAC) {
	c.stations.forget(mac)
	c.dropStation(mac)
}

// dropStation removes the flows of a station and the entries to it.
func (c *Core) dropStation(mac openflow.MAC) {
	c.flows.dropStation(mac)
	c.forwarding.dropStation(mac)
	c.marks.dropStation(mac)
}

func (c *Core) forgetStationsAt(at topology.Port) {
	for mac := range c.stations.behind(at) {
		c.forgetStation(mac)
	}
}

// blockLoops updates which ports are blocked because they close a loop, and forgets the stations
// behind new ones. Entries follow when forwarding is refreshed.
func (c *Core) blockLoops() {
	blocked, changed := c.links.updateBlocked()
	for _, p := range blocked {
		c.forgetStationsAt(p)
	}
	c.forwarding.stale = c.forwarding.stale || changed
}

// mapChanged reroutes flows and station entries after a link was lost.
func (c *Core) mapChanged() {
	c.forwarding.stale = true
	c.flows.reroute()
	c.forwarding.reroute()
}

// PortStatus handles the change of a port.
func (c *Core) PortStatus(now time.Time, d topology.DPID, m *openflow.PortStatus) []Command {
	c.advance(now)
	sw := c.switches.byID[d]
	if sw == nil {
		return nil
	}
	if m.Reason == openflow.OFPPR_DELETE {
		c.removePort(sw, uint32(m.Desc.PortNo))
	} else {
		c.setPort(sw, m.Desc)
	}
	c.forwarding.stale = true
	return c.finish()
}

func (c *Core) setPort(sw *switchState, desc openflow.PortDesc) {
	if c.switches.setPort(sw, desc) {
		c.losePort(topology.Port{Switch: sw.dpid, Number: uint32(desc.PortNo)})
	}
}

func (c *Core) removePort(sw *switchState, number uint32) {
	if sw.ports[number] != nil {
		c.losePort(topology.Port{Switch: sw.dpid, Number: number})
		delete(sw.ports, number)
	}
}

// losePort forgets the link or stations behind a port and reroutes flows.
func (c *Core) losePort(at topology.Port) {
	c.forgetStationsAt(at)
	if c.links.forget(at) {
		c.mapChanged()
	}
}

// forgetSwitch removes a switch and the stations behind it.
func (c *Core) forgetSwitch(sw *switchState) {
	for number := range sw.ports {
		c.removePort(sw, number)
	}
	c.flows.dropIngress(sw)
	delete(c.flows.watched.bySwitch, sw.dpid)
	delete(c.switches.byID, sw.dpid)
}

// FlowRemoved handles the removal of a flow entry.
func (c *Core) FlowRemoved(now time.Time, d topology.DPID, m *openflow.FlowRemoved) []Command {
	c.advance(now)
	switch m.Cookie & cookieKindMask {
	case cookieStation:
		c.forwarding.entryRemoved(d, m)
	case cookieFlow:
		c.flows.entryRemoved(d, m)
	case cookieSource:
		if mac, silent := c.marks.silent(d, m); silent {
			c.forgetStation(mac)
		}
	}
	return c.finish()
}

// FlowStats handles one part of a switch's flow statistics, or a reply to WatchXID, which is never the
// last part.
func (c *Core) FlowStats(now time.Time, d topology.DPID, list []openflow.FlowStats, last bool) []Command {
	c.advance(now)
	sw := c.switches.byID[d]
	if sw == nil {
		return nil
	}
	sw.heard = c.now
	for i := range list {
		c.forwarding.adopt(sw, &list[i])
		f, grew := c.flows.takeStats(sw, &list[i])
		if f == nil || !sw.master { // another controller is master
			continue
		}
		if f.adopted {
			c.complete(f, grew)
		}
		if c.cfg.SecondLook {
			c.flows.lookAgain(f)
		}
	}
	if last {
		sw.asking = false
		c.flows.endStats(sw)
	}
	return c.finish()
}

// SetupStats handles the number of a switch's entries that are always there. A switch that had some and
// has none lost its tables while it was connected, and gets all entries again. One that has counted none
// since it got them may be unable to count by cookie.
func (c *Core) SetupStats(now time.Time, d topology.DPID, entries uint32) (commands []Command, lost bool) {
	c.advance(now)
	if sw := c.switches.byID[d]; sw != nil && sw.obeys() {
		switch {
		case entries > 0 && sw.base == baseSent:
			sw.base = baseCounted
		case entries == 0 && sw.base == baseCounted:
			lost = true
			c.takeOver(sw)
		}
	}
	return c.finish(), lost
}

// complete computes the rest of an adopted flow's path once both stations are known. If
// packets are active, the flow's ingress gives the sender's location; a silent sender may
// have moved.
func (c *Core) complete(f *Flow, active bool) {
	from := f.ingress()
	if s := c.stations.byMAC[f.Key.SrcMAC]; s != nil && s.at != from && !active {
		return
	}
	if !c.links.isEdge(from) || !c.learn(f.Key.SrcMAC, from) {
		return
	}
	if f.isRouted() && active {
		c.router.findNextHop(f)
	}
	c.flows.complete(f, from)
}

// QueueStats handles the queue counters of a switch.
func (c *Core) QueueStats(now time.Time, d topology.DPID, list []openflow.QueueStats) {
	c.advance(now)
	if sw := c.switches.byID[d]; sw != nil {
		sw.countQueues(c.now, list)
	}
}

// PortStats handles the port counters of a switch.
func (c *Core) PortStats(now time.Time, d topology.DPID, list []openflow.PortStats) {
	c.advance(now)
	if sw := c.switches.byID[d]; sw != nil {
		sw.countPorts(c.now, list)
	}
}
