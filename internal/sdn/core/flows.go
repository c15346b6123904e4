package core

import (
	"cmp"
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Limits and timers of flows.
const (
	// settle is how long a new entry may take to become active. Packet-ins of the flow
	// within that time do not resend the entry.
	settle = time.Second
	// fullPause is how long a switch with a full table gets no single-flow entries.
	fullPause = 10 * time.Second
	// evictPause is the minimum time between evictions. If all flows are active, each
	// search fails, and each packet would start one.
	evictPause = time.Second
	// evictPart: an eviction drops one in evictPart flows, those idle the longest.
	evictPart = 16
	// portPart: one port may open at most 1/portPart of MaxFlows, so that other ports keep
	// room.
	portPart = 2
)

// Flow is one direction of a flow.
type Flow struct {
	ID  uint64
	Key Key
	// Verdict is in force: what the flow was judged, unless it is bulk.
	Verdict Verdict
	Path    []topology.Hop
	Began   time.Time
	// Packets and Bytes are the counters of the path's first switch at the last statistics.
	// RateBPS is the mean in bits per second between the last two statistics.
	Packets, Bytes uint64
	RateBPS        float64
	PacketRate     float64

	judged Verdict // by the first packet or the second look
	loan   loan    // of a flow that is judged EF

	sent    time.Time                       // last time the entries were sent
	rated   reading                         // the counters that RateBPS and PacketRate begin with next
	active  time.Time                       // time of the last increase
	earlier struct{ packets, bytes uint64 } // by earlier entries, now removed
	adopted bool                            // only the first switch of the path is known
	next    openflow.MAC                    // next hop of a flow to another network
	place   [setKinds]int
	opener  *port
}

// loan is the EF of a flow, until it sends too much for that.
type loan struct {
	policer apps.EFPolicer
	at      time.Time // what was sent until then the policer knows
	bulk    bool
}

// reading are counters at a time.
type reading struct {
	at             time.Time
	packets, bytes uint64
}

// Total is the traffic of all flows of a class.
type Total struct {
	Flows, Packets, Bytes uint64
}

// flows are the flows with entries of their own.
type flows struct {
	*event
	cfg        *Config
	switches   *switches
	stations   *stations
	links      *links
	forwarding *forwarding
	marks      *marks
	byKey      map[Key]*Flow
	byID       map[uint64]*Flow
	byStation  map[openflow.MAC]*stationFlows
	spare      []*Flow          // ended flows, for reuse
	leaving    map[uint64]*Flow // deleted flows whose last counters have not arrived
	nextID     uint64
	nextEvict  time.Time
	totals     [apps.NumLevels]Total
	watched    watched
}

func newFlows(m *marks) *flows {
	w := m.forwarding
	return &flows{
		event: w.event, cfg: w.cfg, switches: w.switches, stations: w.stations, links: w.links, forwarding: w, marks: m,
		byKey: map[Key]*Flow{}, byID: map[uint64]*Flow{}, byStation: map[openflow.MAC]*stationFlows{}, leaving: map[uint64]*Flow{}, watched: watched{bySwitch: map[topology.DPID]*wheel{}, on: m.cfg.SecondLook},
	}
}

// isRouted reports whether a flow goes to another network.
func (f *Flow) isRouted() bool { return f.next != (openflow.MAC{}) }

// to returns the station at the end of the path: the destination, or the next hop of a
// routed flow.
func (f *Flow) to() openflow.MAC {
	if f.isRouted() {
		return f.next
	}
	return f.Key.DstMAC
}

// ingress returns the port where a flow enters the network.
func (f *Flow) ingress() topology.Port {
	return topology.Port{Switch: f.Path[0].Switch, Number: f.Path[0].In}
}

// back returns the key of the reverse flow.
func (f *Flow) back() Key {
	k := f.Key.Reverse()
	if f.isRouted() {
		k.SrcMAC, k.DstMAC = f.next, gatewayMAC
	}
	return k
}

// entry returns the match and actions of a flow on one switch of its path.
func (f *Flow) entry(hop topology.Hop, queue openflow.Queue) (openflow.Match, []openflow.Action) {
	k, actions := f.Key, through(queue, outOf(hop))
	switch {
	case !f.isRouted():
	case hop == f.Path[0]:
		actions = append(rewrite(f.next), actions...)
	default:
		k.SrcMAC, k.DstMAC = gatewayMAC, f.next
	}
	return k.match(hop.In), actions
}

// outOf returns the output port of a hop. OpenFlow requires OFPP_IN_PORT to send out of the
// ingress port.
func outOf(hop topology.Hop) uint32 {
	if hop.Out == hop.In {
		return uint32(openflow.OFPP_IN_PORT)
	}
	return hop.Out
}

// crosses reports whether a path contains a hop with the same switch and ingress port.
func crosses(path []topology.Hop, hop topology.Hop) bool {
	return slices.ContainsFunc(path, func(h topology.Hop) bool { return h.Switch == hop.Switch && h.In == hop.In })
}

// forward sends a packet towards a known station and installs its flow. unmatched is set if
// the packet itself still has to be sent.
func (l *flows) forward(at topology.Port, m *openflow.PacketIn, f *Frame, v Verdict, unmatched bool) {
	fl, reverse, answered := l.byKey[f.Key], f.Key.Reverse(), false
	if fl != nil {
		v = fl.Verdict
	} else if back := l.byKey[reverse]; back != nil {
		v, answered = back.judged, true
	}
	to := l.stations.byMAC[f.DstMAC]
	path := l.pathOf(fl, at, to.at, &f.Key, v.Level)
	if path == nil {
		l.counters.Unknown++
		return
	}
	edge := l.links.isEdge(at)
	switch {
	case f.vague:
		v.Level = apps.BE
	case fl == nil && !edge: // the first switch of the path sends a copy, too
	case fl == nil:
		opener := l.switches.port(at)
		if !l.hasRoom(opener) {
			break
		}
		l.add(f.Key, v, path, opener, openflow.MAC{})
		if from := l.stations.byMAC[f.SrcMAC]; !answered && f.ported() && from != nil {
			if way := l.links.way(to.at, from.at, f.Key.hash(), v.Level); way != nil {
				l.add(reverse, v, way, opener, openflow.MAC{})
				if l.cfg.FailSafe {
					l.forwarding.alongPath(f.SrcMAC, way)
				}
			}
		}
	case l.now.Sub(fl.sent) >= settle:
		// A switch on the path lost its entry, or the flow enters at another port.
		if edge {
			l.counters.Reinstalled++
			l.move(fl, path, false)
		} else {
			l.install(fl, fl.rest(at, path))
		}
		fl.sent = l.now
	}
	if l.cfg.FailSafe {
		l.forwarding.alongPath(f.DstMAC, path)
	}
	if unmatched {
		l.switches.send(at.Switch, packetThrough(at.Number, m.Data, l.cfg.queue(v), path[0].Out))
	}
}

// pathOf returns the path of a flow between two ports: that which it has, or one for its class.
func (l *flows) pathOf(fl *Flow, from, to topology.Port, k *Key, level apps.Level) []topology.Hop {
	if fl != nil && !fl.adopted && fl.ingress() == from && l.links.hasPath(fl.Path) {
		if last := fl.Path[len(fl.Path)-1]; to == (topology.Port{Switch: last.Switch, Number: last.Out}) {
			return fl.Path
		}
	}
	return l.links.way(from, to, k.hash(), level)
}

// add creates a flow that is judged v and sends its entries. next is the next hop of a flow to
// another network.
func (l *flows) add(k Key, v Verdict, path []topology.Hop, opener *port, next openflow.MAC) {
	l.nextID = (l.nextID + 1) & cookieIDMask
	f := l.newFlow()
	*f = Flow{ID: l.nextID, Key: k, judged: v, Began: l.now, active: l.now, loan: loan{at: l.now}, rated: reading{at: l.now}, opener: opener, next: next}
	if f.Verdict = v; v.Level == apps.EF {
		f.Verdict = f.inForce(l.byKey[f.back()])
	}
	l.remember(f)
	l.counters.Installed++
	l.setPath(f, path)
	l.install(f, path)
	f.sent = l.now
}

// remember adds a flow to all indexes.
func (l *flows) remember(f *Flow) {
	l.byKey[f.Key], l.byID[f.ID] = f, f
	l.ofStation(f.Key.SrcMAC).from.add(fromStation, f)
	l.ofStation(f.to()).to.add(toStation, f)
	l.totals[f.Verdict.Level].Flows++
	if f.opener != nil {
		f.opener.opened++
	}
}

func (l *flows) setPath(f *Flow, path []topology.Hop) {
	if len(f.Path) > 0 {
		if sw := l.switches.byID[f.Path[0].Switch]; sw != nil {
			sw.ingress.remove(atIngress, f)
		}
	}
	isNew := f.Path == nil
	if f.Path = path; isNew {
		l.watched.begin(f)
	}
	if sw := l.switches.byID[path[0].Switch]; sw != nil {
		sw.ingress.add(atIngress, f)
	}
}

// install sends the entries of a flow, the last switch first, so that packets behind the
// first find them.
func (l *flows) install(f *Flow, path []topology.Hop) {
	for _, hop := range slices.Backward(path) {
		l.installAt(f, hop)
	}
}

// installAt sends a flow's entry to one switch, or an entry for the destination station if
// that switch's table is full.
func (l *flows) installAt(f *Flow, hop topology.Hop) {
	sw := l.switches.byID[hop.Switch]
	switch {
	case sw == nil:
	case l.now.Before(sw.fullUntil):
		l.fallBack(sw, f, hop)
	default:
		l.sendEntry(f, hop)
	}
}

// sendEntry sends a flow's entry to one switch. Where the packets come in from a switch that marked
// them an entry for the station is enough.
func (l *flows) sendEntry(f *Flow, hop topology.Hop) {
	sw := l.switches.byID[hop.Switch]
	if sw == nil {
		return
	}
	if hop != f.Path[0] && sw.byMarks(hop.In) {
		l.forwarding.toStation(sw, entryKey{f.to(), true}, hop.Out, false)
		return
	}
	m := l.marks.entryOf(sw, f, f.add(hop, l.cfg.queue(f.Verdict)))
	m.IdleTimeout = l.cfg.IdleTimeoutSeconds
	if hop == f.Path[0] {
		m.Flags = openflow.OFPFF_SEND_FLOW_REM
	}
	l.switches.send(hop.Switch, m)
}

// deleteEntries deletes the entries of a flow on one switch, optionally only those with the
// given match fields.
func (l *flows) deleteEntries(f *Flow, d topology.DPID, fields ...openflow.OXM) {
	l.switches.send(d, deleteFlows(cookieFlow|f.ID, ^uint64(0), fields...))
}

// rest returns the part of a path to resend when packets arrive at a port other than the
// first: from that port on, or the whole path if the port is not on it. For a flow with
// unknown path it returns way.
func (f *Flow) rest(at topology.Port, way []topology.Hop) []topology.Hop {
	if f.adopted {
		return way
	}
	i := slices.IndexFunc(f.Path, func(h topology.Hop) bool { return h.Switch == at.Switch && h.In == at.Number })
	return f.Path[max(i, 0):]
}

// fallBack lets a switch with a full table forward to the flow's station. Packets that need
// rewriting keep coming to the controller.
func (l *flows) fallBack(sw *switchState, f *Flow, hop topology.Hop) {
	if !f.isRouted() || hop != f.Path[0] {
		l.forwarding.toStation(sw, entryKey{f.to(), sw.byMarks(hop.In)}, hop.Out, true)
	}
}

// move gives a flow another path, sending the new entries before deleting the old.
// installed says that the switches have the old entries, whose deletion frees room.
func (l *flows) move(f *Flow, path []topology.Hop, installed bool) {
	old := f.Path
	if old[0].Switch != path[0].Switch || old[0].In != path[0].In { // its counters restart
		f.earlier.packets, f.earlier.bytes = f.Packets, f.Bytes
	}
	l.setPath(f, path)
	for _, hop := range slices.Backward(path) {
		if installed && crosses(old, hop) {
			l.sendEntry(f, hop)
		} else {
			l.installAt(f, hop)
		}
	}
	for _, hop := range old {
		if !crosses(path, hop) {
			l.deleteEntries(f, hop.Switch, inPort(hop.In))
		}
	}
}

// reroute finds new paths for flows whose links are gone.
func (l *flows) reroute() {
	for _, f := range l.byKey {
		if l.links.hasPath(f.Path) {
			continue
		}
		var path []topology.Hop
		if to := l.stations.byMAC[f.to()]; to != nil {
			path = l.links.way(f.ingress(), to.at, f.Key.hash(), f.Verdict.Level)
		}
		if path == nil {
			l.drop(f)
			continue
		}
		l.counters.Rerouted++
		l.move(f, path, true)
		f.sent = l.now
	}
}

// complete sets the path of an adopted flow that enters at port from, once its destination
// is known.
func (l *flows) complete(f *Flow, from topology.Port) {
	to := l.stations.byMAC[f.to()]
	if to == nil || l.byKey[f.Key] != f {
		return
	}
	path := l.links.graph.Path(from, to.at, f.Key.hash())
	if path == nil {
		return
	}
	f.adopted = false
	if path[0] != f.Path[0] {
		l.move(f, path, true)
		return
	}
	l.setPath(f, path)
	for _, hop := range path[1:] { // the station may have moved
		l.installAt(f, hop)
	}
}

// drop removes a flow and deletes its entries.
func (l *flows) drop(f *Flow) {
	for _, hop := range f.Path {
		l.deleteEntries(f, hop.Switch)
	}
	l.forget(f)
	l.leaving[f.ID] = f
}

// dropIngress drops the flows that enter at a switch.
func (l *flows) dropIngress(sw *switchState) {
	for _, f := range slices.Clone(sw.ingress) {
		l.drop(f)
	}
}

// dropStation drops the flows from and to a station.
func (l *flows) dropStation(mac openflow.MAC) {
	s := l.byStation[mac]
	if s == nil {
		return
	}
	for _, f := range slices.Concat(s.from, s.to) {
		if l.byID[f.ID] == f { // a flow may be in both sets
			l.drop(f)
		}
	}
}

// dropRouted drops the routed flows whose next hop is a station.
func (l *flows) dropRouted(mac openflow.MAC) {
	if s := l.byStation[mac]; s != nil {
		for _, f := range slices.Clone(s.to) {
			if f.isRouted() {
				l.drop(f)
			}
		}
	}
}

// adoptTo marks the flows to a station as adopted, so that their paths are computed again.
func (l *flows) adoptTo(mac openflow.MAC) {
	if s := l.byStation[mac]; s != nil {
		for _, f := range s.to {
			f.adopted = true
		}
	}
}

func (l *flows) forget(f *Flow) {
	delete(l.byKey, f.Key)
	delete(l.byID, f.ID)
	l.leaveStations(f)
	if f.opener != nil {
		f.opener.opened--
	}
	if sw := l.switches.byID[f.Path[0].Switch]; sw != nil {
		sw.ingress.remove(atIngress, f)
	}
}

// entryRemoved handles the removal of a flow's entry.
func (l *flows) entryRemoved(d topology.DPID, m *openflow.FlowRemoved) {
	id := m.Cookie & cookieIDMask
	f := l.byID[id]
	if f == nil {
		if f = l.leaving[id]; f != nil {
			l.count(f, m.PacketCount, m.ByteCount)
			delete(l.leaving, id)
		}
		return
	}
	if f.Path[0].Switch != d {
		return
	}
	l.count(f, m.PacketCount, m.ByteCount)
	l.forget(f)
	for _, hop := range f.Path[1:] { // the first switch reported the removal
		l.deleteEntries(f, hop.Switch)
	}
	l.reuse(f)
}

// hasRoom reports whether a port may open another flow. It evicts idle flows if the limit
// is reached.
func (l *flows) hasRoom(p *port) bool {
	within := func() bool { return len(l.byKey) < l.cfg.MaxFlows && p.opened < max(l.cfg.MaxFlows/portPart, 1) }
	if within() {
		return true
	}
	if l.now.Before(l.nextEvict) {
		return false
	}
	l.nextEvict = l.now.Add(evictPause)
	l.evict(maps.Values(l.byKey), len(l.byKey))
	return within()
}

// cookieOf returns the cookie of a refused flow-mod, of which data is the start.
func cookieOf(data []byte) (cookie uint64, ok bool) {
	if len(data) < 16 || openflow.Type(data[1]) != openflow.OFPT_FLOW_MOD {
		return 0, false
	}
	return binary.BigEndian.Uint64(data[8:]), true
}

// onlySetsQueue reports whether set_queue is the only action beside output that a refused
// flow-mod has, of which data is the start: entries of routed flows also rewrite packets.
func (l *flows) onlySetsQueue(data []byte) bool {
	cookie, ok := cookieOf(data)
	f := l.byID[cookie&cookieIDMask]
	return ok && (cookie&cookieKindMask != cookieFlow || f != nil && !f.isRouted())
}

// tableFull handles an entry refused for a full table: it evicts flows and forwards the
// entry's packets as best effort. data is the start of the refused message.
func (l *flows) tableFull(sw *switchState, data []byte) {
	if !l.now.Before(sw.fullUntil) {
		l.evict(slices.Values(sw.ingress), len(sw.ingress))
	}
	sw.fullUntil = l.now.Add(fullPause)
	cookie, ok := cookieOf(data)
	if !ok {
		return
	}
	if cookie&cookieKindMask != cookieFlow { // of a station or a broadcast: the switch must get it later
		sw.base = baseRefused
		return
	}
	f := l.byID[cookie&cookieIDMask]
	if f == nil {
		return
	}
	for _, hop := range f.Path {
		if hop.Switch == sw.dpid {
			l.fallBack(sw, f, hop)
		}
	}
	if f.Path[0].Switch == sw.dpid {
		l.drop(f) // no message would report its end
	}
}

// evict drops the flows that have been idle longest, n/evictPart of them. Flows active
// since the statistics before the last stay.
func (l *flows) evict(from iter.Seq[*Flow], n int) {
	var silent []*Flow
	for f := range from {
		if l.now.Sub(f.active) > 2*l.cfg.StatsInterval {
			silent = append(silent, f)
		}
	}
	slices.SortFunc(silent, func(a, b *Flow) int { return cmp.Or(a.active.Compare(b.active), cmp.Compare(a.ID, b.ID)) })
	for _, f := range silent[:min(len(silent), n/evictPart+1)] {
		l.counters.Evicted++
		l.drop(f)
	}
}
