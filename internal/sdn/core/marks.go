package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/internal/share/policy"
)

// Trusted ports.
//
// Problem: a flow that the controller classifies takes a packet to the controller, and the agent of
// a host knows more of its flows. Method: the agent writes the class into the DSCP field, and
// switches queue what comes in at trusted ports by that field (package share/policy has the code
// points), so that the controller sees no packet of a known station. EF above the bound of its
// ingress port is dropped by a meter. Inside the network every mark is true: other ports have their
// marks cleared, and the entry of a flow writes the mark of its class. So links are queued by marks,
// too, and only the first switch has an entry for each flow of an untrusted port.
//
// Tables of a switch, in the order of a packet:
//
//	ports    trusted: sources; link to a switch that clears marks: marks; others: flows, with mark 0
//	sources  a known station: marks; others: the same, and a copy of the headers to the controller
//	marks    the queue of the mark; EF goes to meters, all else to forward
//	meters   the bound of a trusted port's EF
//	forward  the port of a station, the ports of a broadcast; all else to the controller
//	flows    what a network without trusted ports has in table 0
//
// Limits: a switch without these tables has no trusted port, and packets of others' trusted ports
// cross it as best effort. Open vSwitch's meters only drop. OpenFlow's band dscp_remark lowers the
// precedence of AF, and what it makes of EF is not specified, so EF is dropped on other switches, too.
const (
	tablePorts openflow.Table = iota
	tableSources
	tableMarks
	tableMeters
	tableForward
	tableFlows
	numTables
)

// Priorities of the entries of these tables, in table 0 below those of table 0 alone.
const (
	priorityRouted  = 30 // of a trusted port, to a gateway: flow by flow
	priorityPort    = 20 // a trusted port or a link
	priorityKnown   = 10 // a code point, a station, a port's meter; IP of other ports
	priorityUnknown = 1  // of a station that is not known
)

// Trust are the ports whose packets are queued by their marks.
type Trust struct {
	Ports []TrustedPort
	// EFBoundBPS returns the bound of the EF that comes in at a port, in bits per second, given the port
	// and its name; an error if no rate is known. The speed that OpenFlow reports is none: of a tap
	// device it is 10 Mbit/s before Linux 6.2, and 10 Gbit/s since.
	EFBoundBPS func(at topology.Port, name string) (uint64, error)
}

// TrustedPort is a port by its name, at one switch or, if Switch is 0, at every switch.
type TrustedPort struct {
	Switch topology.DPID
	Port   string
}

func (p TrustedPort) String() string {
	if p.Switch == 0 {
		return p.Port
	}
	return fmt.Sprintf("%v:%s", p.Switch, p.Port)
}

// names reports whether p is the port of a switch.
func (p TrustedPort) names(d topology.DPID, port string) bool {
	return p.Port == port && (p.Switch == 0 || p.Switch == d)
}

// TrustState is the state of a port that is to be trusted.
type TrustState struct {
	Refused    string // why the port is not trusted; empty if it is
	EFBoundBPS uint64
	// DroppedPackets and DroppedBytes are of EF above the bound, by the switch's counters.
	DroppedPackets, DroppedBytes uint64
}

// marking is what one switch can do with marks, and what it was sent for that.
type marking struct {
	tables  uint8
	on      bool
	refused string // why no port can be trusted; empty if one can
	meters  uint32 // the highest meter
	ports   map[uint32]treatment
	sources map[openflow.MAC]source
	failed  map[uint32]bool // ports whose meter the switch refused
	dropped map[openflow.Meter]openflow.MeterBandStats
}

// treatment says how packets that come in at a port are treated; zero: their marks are cleared.
type treatment struct {
	link       bool   // queued by marks
	efBoundBPS uint64 // the same, with EF bounded
}

func (t treatment) byMarks() bool { return t.link || t.efBoundBPS > 0 }

// source is the entry of a station behind a trusted port.
type source struct {
	port uint32
	sent time.Time
}

// marks holds the entries that treat packets by their marks.
type marks struct {
	*event
	cfg        *Config
	switches   *switches
	stations   *stations
	links      *links
	forwarding *forwarding
}

// inspect returns what a switch can do with marks.
func (c *Config) inspect(d *Description) marking {
	m := marking{tables: d.Features.NTables}
	if c.Trust == nil {
		return m
	}
	if d.Meters != nil && d.Meters.BandTypes>>openflow.OFPMBT_DROP&1 != 0 && d.Meters.Capabilities&uint32(openflow.OFPMF_KBPS) != 0 {
		m.meters = d.Meters.MaxMeter
	}
	switch {
	case m.tables < uint8(numTables):
		m.refused = fmt.Sprintf("the switch has %d flow tables, and %d are needed", m.tables, numTables)
	case !d.setsMarks():
		m.refused = "the switch cannot set the DSCP field, so marks of other ports could be forged"
	case m.meters == 0:
		m.on, m.refused = true, "the switch has no meters, which bound the EF of a trusted port"
	default:
		m.on = true
	}
	return m
}

// property returns a property of the first table; false if the switch does not say.
func (d *Description) property(kind openflow.TableFeatureProp) (openflow.TableFeature, bool) {
	if len(d.Tables) == 0 {
		return openflow.TableFeature{}, false
	}
	list := d.Tables[0].Properties
	i := slices.IndexFunc(list, func(p openflow.TableFeature) bool { return p.Type == kind })
	if i < 0 {
		return openflow.TableFeature{}, false
	}
	return list[i], true
}

// setsQueues reports whether a switch has the action set_queue, or does not say.
func (d *Description) setsQueues() bool {
	p, told := d.property(openflow.OFPTFPT_APPLY_ACTIONS)
	return !told || slices.ContainsFunc(p.ActionIDs, func(a openflow.ActionID) bool { return a.Type == openflow.OFPAT_SET_QUEUE })
}

// setsMarks reports whether a switch can set the DSCP field, or does not say.
func (d *Description) setsMarks() bool {
	p, told := d.property(openflow.OFPTFPT_APPLY_SETFIELD)
	return !told || slices.ContainsFunc(p.OXMIDs, func(x openflow.OXMID) bool {
		return x.Class == openflow.OFPXMC_OPENFLOW_BASIC && x.Field == openflow.OFPXMT_OFB_IP_DSCP
	})
}

// flowTable returns the table of the entries of flows.
func (sw *switchState) flowTable() openflow.Table {
	if sw.marks.on {
		return tableFlows
	}
	return 0
}

// byMarks reports whether packets that come in at a port are queued by their marks.
func (sw *switchState) byMarks(number uint32) bool { return sw.marks.ports[number].byMarks() }

// forget makes all entries be sent again.
func (m *marking) forget() {
	m.ports, m.sources = map[uint32]treatment{}, map[openflow.MAC]source{}
}

// level returns the class that a code point asks for, BE if it asks for none.
func level(dscp uint8) apps.Level {
	for _, m := range policy.Marks() {
		if m.DSCP == dscp {
			return levelOf(m.Class)
		}
	}
	return apps.BE
}

func levelOf(class v1.Class) apps.Level {
	l, err := apps.ParseLevel(string(class))
	if err != nil {
		return apps.BE
	}
	return l
}

// markOf returns the code point that packets of a class are given.
func markOf(l apps.Level) uint8 {
	return policy.MarkOf([apps.NumLevels]v1.Class{apps.EF: v1.ClassEF, apps.AF: v1.ClassAF, apps.BE: v1.ClassBE}[l])
}

func setMark(dscp uint8) openflow.Action {
	return &openflow.ActionSetField{Field: openflow.NewOXMNumber(openflow.OFPXMT_OFB_IP_DSCP, uint64(dscp))}
}

func goTo(table openflow.Table) openflow.Instruction {
	return &openflow.InstructionGotoTable{TableID: table}
}

func etherType(number uint64) openflow.OXM {
	return openflow.NewOXMNumber(openflow.OFPXMT_OFB_ETH_TYPE, number)
}

// add sends a switch an entry.
func (k *marks) add(sw *switchState, table openflow.Table, priority uint16, fields []openflow.OXM, instructions ...openflow.Instruction) {
	m := flowMod(cookieMark, openflow.OFPFC_ADD, priority, openflow.Match{Fields: fields})
	m.TableID, m.Instructions = table, instructions
	k.switches.send(sw.dpid, m)
}

// setUp sends a switch the entries that are not of single ports, and deletes those of a controller
// that was started with trusted ports, or without. What comes first in a packet's way is sent last,
// so that packets go on meanwhile.
func (k *marks) setUp(sw *switchState) {
	drop := func(table openflow.Table, cookie, mask uint64, fields ...openflow.OXM) {
		m := deleteFlows(cookie, mask, fields...)
		m.TableID = table
		k.switches.send(sw.dpid, m)
	}
	if !sw.marks.on {
		drop(openflow.OFPTT_ALL, cookieMark, cookieKindMask)
		drop(openflow.OFPTT_ALL, cookieSource, cookieKindMask)
		for _, table := range []openflow.Table{tableForward, tableFlows} {
			if uint8(table) < sw.marks.tables {
				drop(table, cookieMagic, cookieMagicMask)
			}
		}
		return
	}
	sw.marks.forget()
	k.stations.hearAll(sw.dpid)
	k.add(sw, tableForward, priorityMiss, nil, apply(toController(openflow.OFPCML_NO_BUFFER))...)
	k.add(sw, tableMeters, priorityMiss, nil, goTo(tableForward))
	for _, m := range policy.Marks() {
		l, next := levelOf(m.Class), tableForward
		if l == apps.EF {
			next = tableMeters
		}
		for _, ip := range []uint64{etherIPv4, etherIPv6} {
			fields := []openflow.OXM{etherType(ip), openflow.NewOXMNumber(openflow.OFPXMT_OFB_IP_DSCP, uint64(m.DSCP))}
			k.add(sw, tableMarks, priorityKnown, fields, append(k.queue(l), goTo(next))...)
		}
	}
	k.add(sw, tableMarks, priorityMiss, nil, append(k.queue(apps.BE), goTo(tableForward))...)
	drop(tableSources, cookieSource, cookieKindMask)
	k.add(sw, tableSources, priorityUnknown, nil, append(apply(toController(copyBytes)), goTo(tableMarks))...)
	for _, ip := range []uint64{etherIPv4, etherIPv6} {
		k.add(sw, tablePorts, priorityKnown, []openflow.OXM{etherType(ip)}, append(apply(setMark(0)), goTo(tableFlows))...)
	}
	k.add(sw, tablePorts, priorityMiss, nil, goTo(tableFlows))
	for _, kind := range []uint64{cookieFlow, cookieStation} {
		drop(tablePorts, kind, cookieKindMask)
	}
	drop(tablePorts, cookieSetup, cookieKindMask, group())
}

// queue returns the instruction that chooses the queue of a class.
func (k *marks) queue(l apps.Level) []openflow.Instruction {
	return apply(&openflow.ActionSetQueue{QueueID: k.cfg.Queues[l]})
}

// inherit is how long a port that is not known to be a link keeps what an earlier controller sent:
// Open vSwitch takes up to eight seconds to connect again, and its peer's link is not known before.
const inherit = 15 * time.Second

// refresh sends switches the entries of ports that are treated otherwise than before.
func (k *marks) refresh() {
	for _, sw := range k.switches.byID {
		if !sw.marks.on || !sw.obeys() {
			continue
		}
		for number := range sw.ports {
			want := k.treat(sw, number)
			was, known := sw.marks.ports[number]
			if known && was == want || !known && !want.byMarks() && k.now.Sub(sw.since) < inherit {
				continue
			}
			k.send(sw, number, want)
		}
		for number := range sw.marks.ports {
			if sw.ports[number] == nil {
				k.send(sw, number, treatment{})
				delete(sw.marks.ports, number)
			}
		}
	}
}

// treat returns how packets that come in at a port are to be treated.
func (k *marks) treat(sw *switchState, number uint32) treatment {
	if peer, link := k.links.graph.Peer(topology.Port{Switch: sw.dpid, Number: number}); link {
		other := k.switches.byID[peer.Switch]
		return treatment{link: other != nil && other.marks.on}
	}
	bound, err := k.trust(sw, number)
	if err != nil {
		return treatment{}
	}
	return treatment{efBoundBPS: bound}
}

// errUntrusted says that a port is not to be trusted.
var errUntrusted = errors.New("the port is not in --trust")

// trust returns the bound of EF of a trusted port, and an error if the port is not trusted.
func (k *marks) trust(sw *switchState, number uint32) (efBoundBPS uint64, err error) {
	name, at := sw.ports[number].desc.Name, topology.Port{Switch: sw.dpid, Number: number}
	peer, link := k.links.graph.Peer(at)
	switch asked := func(p TrustedPort) bool { return p.names(sw.dpid, name) }; {
	case k.cfg.Trust == nil || !slices.ContainsFunc(k.cfg.Trust.Ports, asked):
		return 0, errUntrusted
	case sw.marks.refused != "":
		return 0, errors.New(sw.marks.refused)
	case link:
		return 0, fmt.Errorf("the port leads to switch %v, and marks are kept between switches: leave it out of --trust", peer.Switch)
	case sw.meter(number) == 0:
		return 0, fmt.Errorf("the switch has %d meters, and none for port %d", sw.marks.meters, number)
	case sw.marks.failed[number]:
		return 0, errors.New("the switch refuses the meter that bounds EF of the port")
	}
	return k.cfg.Trust.EFBoundBPS(at, name)
}

// meter returns the meter of a port, 0 if there is none. Meters are counted from the last one down,
// because people count from the first one up.
func (sw *switchState) meter(number uint32) openflow.Meter {
	if number == uint32(openflow.OFPP_LOCAL) {
		number = 0
	}
	if number >= sw.marks.meters {
		return 0
	}
	return openflow.Meter(sw.marks.meters - number)
}

// efBurst is how much EF may come in at once, as time at its bound, as at an agent (bpf/uplink.bpf.c).
const efBurst = 20 * time.Millisecond

// send sends a switch the entries of a port.
func (k *marks) send(sw *switchState, number uint32, t treatment) {
	const bitsPerKbit, leastBurstKbit = 1000, 25 // two frames
	in, meter := []openflow.OXM{inPort(number)}, sw.meter(number)
	sw.marks.ports[number] = t
	if t.efBoundBPS == 0 {
		k.dropSources(sw, number)
		gone := deleteFlows(cookieMark, cookieKindMask, in...)
		if t.link {
			gone.TableID = tableMeters
			k.add(sw, tablePorts, priorityPort, in, goTo(tableMarks))
			k.dropRouted(sw, in)
		}
		k.switches.send(sw.dpid, gone)
		if meter != 0 {
			k.switches.send(sw.dpid, &openflow.MeterMod{Command: openflow.OFPMC_DELETE, MeterID: meter})
		}
		return
	}
	rate := uint32(min(t.efBoundBPS/bitsPerKbit, 1<<32-1))
	burst := max(uint32(float64(rate)*efBurst.Seconds()), leastBurstKbit)
	k.switches.sendMeter(sw, meter, openflow.OFPMF_KBPS|openflow.OFPMF_BURST|openflow.OFPMF_STATS, rate, burst)
	k.add(sw, tableMeters, priorityKnown, in, &openflow.InstructionMeter{MeterID: meter}, goTo(tableForward))
	if k.cfg.Routes != nil {
		k.sendRouted(sw, in)
	}
	k.add(sw, tablePorts, priorityPort, in, goTo(tableSources))
}

// sendRouted sends a switch the entries for packets of a trusted port to a gateway, which are
// classified flow by flow as those of other ports.
func (k *marks) sendRouted(sw *switchState, in []openflow.OXM) {
	const icmpv6 = 58
	with := func(fields ...openflow.OXM) []openflow.OXM { return slices.Concat(in, fields) }
	for _, ip := range []uint64{etherIPv4, etherIPv6} {
		fields := with(openflow.NewOXM(openflow.OFPXMT_OFB_ETH_DST, gatewayMAC[:], nil), etherType(ip))
		k.add(sw, tablePorts, priorityRouted, fields, append(apply(setMark(0)), goTo(tableFlows))...)
	}
	k.add(sw, tablePorts, priorityRouted, with(etherType(etherARP)), goTo(tableFlows))
	for _, kind := range []uint64{neighbourSolicitation, neighbourAdvertisement} {
		fields := with(etherType(etherIPv6), openflow.NewOXMNumber(openflow.OFPXMT_OFB_IP_PROTO, icmpv6), openflow.NewOXMNumber(openflow.OFPXMT_OFB_ICMPV6_TYPE, kind))
		k.add(sw, tablePorts, priorityRouted, fields, goTo(tableFlows))
	}
}

// dropRouted deletes what sendRouted sent, of which every entry is of one type of packets.
func (k *marks) dropRouted(sw *switchState, in []openflow.OXM) {
	for _, kind := range []uint64{etherIPv4, etherIPv6, etherARP} {
		m := deleteFlows(cookieMark, cookieKindMask, slices.Concat(in, []openflow.OXM{etherType(kind)})...)
		m.TableID = tablePorts
		k.switches.send(sw.dpid, m)
	}
}

// dropSources deletes the entries of stations that were behind a trusted port.
func (k *marks) dropSources(sw *switchState, number uint32) {
	before := len(sw.marks.sources)
	maps.DeleteFunc(sw.marks.sources, func(_ openflow.MAC, s source) bool { return s.port == number })
	if len(sw.marks.sources) < before {
		k.switches.send(sw.dpid, deleteFlows(cookieSource, cookieKindMask, inPort(number)))
	}
}

// learned stops the copies of a station's packets.
func (k *marks) learned(mac openflow.MAC, at topology.Port) {
	sw := k.switches.byID[at.Switch]
	if was, known := sw.marks.sources[mac]; known && was.port == at.Number && k.now.Sub(was.sent) < settle {
		return
	}
	sw.marks.sources[mac] = source{at.Number, k.now}
	fields := []openflow.OXM{inPort(at.Number), openflow.NewOXM(openflow.OFPXMT_OFB_ETH_SRC, mac[:], nil)}
	m := flowMod(cookieSource, openflow.OFPFC_ADD, priorityKnown, openflow.Match{Fields: fields})
	m.TableID, m.Instructions = tableSources, []openflow.Instruction{goTo(tableMarks)}
	m.Flags, m.IdleTimeout = openflow.OFPFF_SEND_FLOW_REM, uint16(stationAge/time.Second)
	k.switches.send(at.Switch, m)
}

// hears reports whether the switch of a station will tell when the station is silent.
func (k *marks) hears(mac openflow.MAC) bool {
	at := k.stations.byMAC[mac].at
	sw := k.switches.byID[at.Switch]
	was, known := sw.marks.sources[mac]
	return known && was.port == at.Number
}

// silent handles the removal of a station's entry, and reports whether the station has been silent
// for stationAge.
func (k *marks) silent(d topology.DPID, m *openflow.FlowRemoved) (mac openflow.MAC, silent bool) {
	sw, src, in := k.switches.byID[d], m.Match.Field(openflow.OFPXMT_OFB_ETH_SRC), m.Match.Field(openflow.OFPXMT_OFB_IN_PORT)
	if sw == nil || src == nil || in == nil || m.Reason == openflow.OFPRR_DELETE {
		return mac, false
	}
	mac = openflow.MAC(src.Value)
	at := topology.Port{Switch: d, Number: uint32(in.Number())}
	if sw.marks.sources[mac].port == at.Number {
		delete(sw.marks.sources, mac)
	}
	s := k.stations.byMAC[mac]
	return mac, s != nil && s.at == at
}

// dropStation deletes the entries of a station's packets on all switches.
func (k *marks) dropStation(mac openflow.MAC) {
	for _, sw := range k.switches.byID {
		if _, ok := sw.marks.sources[mac]; ok {
			delete(sw.marks.sources, mac)
			k.switches.send(sw.dpid, deleteFlows(cookieSource, cookieKindMask, openflow.NewOXM(openflow.OFPXMT_OFB_ETH_SRC, mac[:], nil)))
		}
	}
}

// forward handles a packet that is queued by its mark, and that its switch copied because the
// station that sent it is not known there (tableSources), or did not forward (tableForward).
func (k *marks) forward(at topology.Port, m *openflow.PacketIn, f *Frame) {
	if m.TableID == tableSources {
		k.learned(f.SrcMAC, at)
		return
	}
	to := k.stations.byMAC[f.DstMAC]
	if to == nil {
		if k.forwarding.mayFlood(k.switches.port(at)) {
			k.forwarding.flood(at, m.Data)
		}
		return
	}
	path := k.links.graph.Widest(at, to.at, f.Key.hash(), k.links.idle)
	if path == nil || to.at == at {
		return
	}
	k.forwarding.alongPath(f.DstMAC, path)
	k.switches.send(at.Switch, packetOut(at.Number, m.Data, through(k.cfg.Queues[level(f.dscp)], path[0].Out)...))
}

// entryOf completes the entry of a flow: its table, and on a switch that clears marks the mark of its
// class.
func (k *marks) entryOf(sw *switchState, f *Flow, m *openflow.FlowMod) *openflow.FlowMod {
	m.TableID = sw.flowTable()
	isIP := f.Key.EtherType == etherIPv4 || f.Key.EtherType == etherIPv6
	if dscp := markOf(f.Verdict.Level); sw.marks.on && isIP && dscp != 0 {
		m.Instructions = apply(append([]openflow.Action{setMark(dscp)}, actionsOf(m)...)...)
	}
	return m
}

// refused handles the refusal of a meter.
func (k *marks) refused(sw *switchState, meter openflow.Meter) {
	for number, t := range sw.marks.ports {
		if t.efBoundBPS > 0 && sw.meter(number) == meter {
			if sw.marks.failed == nil {
				sw.marks.failed = map[uint32]bool{}
			}
			sw.marks.failed[number] = true
			k.forwarding.stale = true
		}
	}
}

// state returns the state of a port that is to be trusted; nil for other ports.
func (k *marks) state(sw *switchState, number uint32) *TrustState {
	bound, err := k.trust(sw, number)
	switch {
	case errors.Is(err, errUntrusted):
		return nil
	case err != nil:
		return &TrustState{Refused: err.Error()}
	}
	n := sw.marks.dropped[sw.meter(number)]
	return &TrustState{EFBoundBPS: bound, DroppedPackets: n.PacketBandCount, DroppedBytes: n.ByteBandCount}
}

// missing returns the trusted ports that no switch has.
func (k *marks) missing() (list []string) {
	if k.cfg.Trust == nil {
		return nil
	}
	for _, p := range k.cfg.Trust.Ports {
		found := false
		for d, sw := range k.switches.byID {
			for _, port := range sw.ports {
				found = found || p.names(d, port.desc.Name)
			}
		}
		if !found {
			list = append(list, p.String())
		}
	}
	return list
}

// Trusted returns the ports of a switch that are to be trusted, by name, with those among them that it
// does not have.
func (c *Core) Trusted(d topology.DPID) map[string]TrustState {
	sw, list := c.switches.byID[d], map[string]TrustState{}
	if sw == nil || c.cfg.Trust == nil {
		return nil
	}
	for _, p := range c.cfg.Trust.Ports {
		if p.Switch == d {
			list[p.Port] = TrustState{Refused: "the switch has no port of that name"}
		}
	}
	for number, p := range sw.ports {
		if t := c.marks.state(sw, number); t != nil {
			list[p.desc.Name] = *t
		}
	}
	return list
}

// MeterStats handles the counters of a switch's meters.
func (c *Core) MeterStats(now time.Time, d topology.DPID, list []openflow.MeterStats) {
	c.advance(now)
	sw := c.switches.byID[d]
	if sw == nil || !sw.marks.on {
		return
	}
	sw.marks.dropped = map[openflow.Meter]openflow.MeterBandStats{}
	for _, m := range list {
		if len(m.BandStats) > 0 && len(sw.marks.dropped) < MaxPorts {
			sw.marks.dropped[m.MeterID] = m.BandStats[0]
		}
	}
}
