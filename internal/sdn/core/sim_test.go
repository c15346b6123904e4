package core

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/test/must"
)

// world is a network of switches that do what they are told: it finds the entry
// of a packet, follows cables and hands packets to hosts.
type world struct {
	t          testing.TB
	core       *Core
	classifier *Classifier
	now        time.Time
	switches   map[topology.DPID]*simSwitch
	cables     map[topology.Port]topology.Port
	hubs       map[topology.Port][]topology.Port // ports that lead to one bridge
	got        map[topology.Port][]delivery      // at ports without a cable
	packets    int                               // carried since it was set to 0
	watched    int                               // requests with WatchXID since it was set to 0
	away       map[topology.DPID]bool            // connection to the controller is lost
	refused    []refusal
	lldp       [][]byte // the last frames, for mayLoop
	mayLoop    bool     // cables change: packets may go round for a while
}

type delivery struct {
	data  []byte
	queue openflow.Queue
}

type simSwitch struct {
	dpid      topology.DPID
	ports     []openflow.PortDesc
	entries   []*openflow.FlowMod
	counts    map[*openflow.FlowMod][2]uint64
	born      map[*openflow.FlowMod]time.Time
	room      int   // entries of single flows; 0: any number
	plain     bool  // it knows no queues
	noMeters  bool  // it has no room for another meter
	tables    uint8 // how many
	features  *openflow.MeterFeatures
	described []openflow.TableFeatures
	used      map[*openflow.FlowMod]time.Time // when an entry was hit last
	lag       time.Duration                   // how often counters are brought up to date; 0: at once
	late      map[*openflow.FlowMod][2]uint64 // counters as they were then
	brought   time.Time
	meters    map[openflow.Meter]*simMeter
	control   *control // by several controllers; nil: by one
}

// simMeter drops what exceeds its rate and burst.
type simMeter struct {
	openflow.MeterBand
	due              time.Time // when all that came before has been sent at the rate
	packets, dropped uint64
}

// allows reports whether a frame passes.
func (m *simMeter) allows(now time.Time, bytes int) bool {
	const bitsPerKbit = 1000
	rate := float64(m.Rate * bitsPerKbit)
	cost, burst := time.Duration(float64(8*bytes)/rate*1e9), time.Duration(float64(m.BurstSize*bitsPerKbit)/rate*1e9)
	if m.packets++; later(m.due, now).Add(cost).Sub(now) > burst {
		m.dropped++
		return false
	}
	m.due = later(m.due, now).Add(cost)
	return true
}

func newWorld(t testing.TB, change func(*Config)) *world {
	t.Helper()
	model, err := apps.Shipped()
	must.Succeed(t, err)
	classifier, err := NewClassifier(model)
	must.Succeed(t, err)
	cfg := Config{
		Queues: DefaultQueues(), IdleTimeoutSeconds: 30, FailSafe: true, MaxFlows: 1000, LLDPInterval: time.Second,
		StatsInterval: 5 * time.Second, SecondLook: true, LLDPKey: [32]byte{1},
	}
	if change != nil {
		change(&cfg)
	}
	return &world{
		t: t, core: New(cfg), classifier: classifier, now: time.Unix(1e9, 0), switches: map[topology.DPID]*simSwitch{},
		cables: map[topology.Port]topology.Port{}, hubs: map[topology.Port][]topology.Port{}, got: map[topology.Port][]delivery{}, away: map[topology.DPID]bool{},
	}
}

// add makes a switch with ports 1 to n.
func (w *world) add(d topology.DPID, n int) *simSwitch {
	s := &simSwitch{dpid: d, tables: 254, features: openVSwitchMeters, meters: map[openflow.Meter]*simMeter{}, used: map[*openflow.FlowMod]time.Time{}, counts: map[*openflow.FlowMod][2]uint64{}, born: map[*openflow.FlowMod]time.Time{}}
	for i := range n {
		s.ports = append(s.ports, openflow.PortDesc{PortNo: openflow.Port(i + 1), Name: fmt.Sprint("p", i+1), HWAddr: openflow.MAC{2, 0xff, 0, 0, byte(d), byte(i)}})
	}
	w.switches[d] = s
	return s
}

// openVSwitchMeters are the meters of Open vSwitch 3.1.
var openVSwitchMeters = &openflow.MeterFeatures{
	MaxMeter: 1 << 18, BandTypes: 1 << openflow.OFPMBT_DROP, MaxBands: 8,
	Capabilities: uint32(openflow.OFPMF_KBPS | openflow.OFPMF_PKTPS | openflow.OFPMF_BURST | openflow.OFPMF_STATS),
}

func (w *world) connect(d topology.DPID) {
	w.away[d] = false
	s := w.switches[d]
	if s.control != nil {
		s.control.roles[w] = openflow.OFPCR_ROLE_EQUAL
	}
	w.do(w.core.Connected(w.now, Description{
		Features: &openflow.FeaturesReply{DatapathID: uint64(d), NTables: s.tables}, Ports: s.ports, Meters: s.features, Tables: s.described,
	}))
}

func (w *world) connectAll() {
	for d := range w.switches {
		w.connect(d)
	}
}

// bridge connects ports by an ordinary bridge, at which there is a host too.
func (w *world) bridge(ports ...topology.Port) {
	for _, p := range ports {
		w.hubs[p] = ports
	}
}

func (w *world) cable(a, b topology.Port) { w.cables[a], w.cables[b] = b, a }

// unplug takes the cable at a port away, and says where its other end was.
func (w *world) unplug(a topology.Port) (b topology.Port) {
	b = w.cables[a]
	delete(w.cables, a)
	delete(w.cables, b)
	return b
}

func at(d topology.DPID, n uint32) topology.Port { return topology.Port{Switch: d, Number: n} }

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(250 * time.Millisecond)
		for _, s := range w.switches {
			w.expire(s)
		}
		w.tick()
	}
}

// expire ends entries whose time-out is over.
func (w *world) expire(s *simSwitch) {
	over := func(since time.Time, seconds uint16) bool {
		return seconds > 0 && w.now.Sub(since) >= time.Duration(seconds)*time.Second
	}
	for _, e := range slices.Clone(s.entries) {
		hard := over(s.born[e], e.HardTimeout)
		if hard || over(later(s.born[e], s.used[e]), e.IdleTimeout) {
			s.entries = slices.DeleteFunc(s.entries, func(other *openflow.FlowMod) bool { return other == e })
			w.removed(s, e, map[bool]openflow.FlowRemovedReason{true: openflow.OFPRR_HARD_TIMEOUT, false: openflow.OFPRR_IDLE_TIMEOUT}[hard])
		}
	}
}

// do carries out commands, which must be messages that can be written.
func (w *world) do(commands []Command) {
	refused := len(w.refused)
	defer func() { // what a switch refuses comes to the controller after all that it has sent
		for len(w.refused) > refused {
			e := w.refused[refused]
			w.refused = slices.Delete(w.refused, refused, refused+1)
			w.do(w.core.Error(w.now, e.dpid, &e.ErrorMessage))
		}
	}()
	for _, c := range commands {
		b, err := c.Message.MarshalBinary()
		if err != nil {
			w.t.Fatalf("%v: %v", c.Message.MessageType(), err)
		}
		m, err := openflow.Parse(b)
		if err != nil {
			w.t.Fatalf("%v: %v", c.Message.MessageType(), err)
		}
		if w.away[c.Switch] {
			continue
		}
		s := w.switches[c.Switch]
		if s.control != nil && !s.control.allows(w, s, m) {
			continue
		}
		switch m := m.(type) {
		case *openflow.FlowMod:
			w.flowMod(s, m, b)
		case *openflow.PacketOut:
			if f, _ := ReadFrame(m.Data); w.mayLoop && f.EtherType == topology.EtherTypeLLDP {
				w.lldp = append(w.lldp[max(0, len(w.lldp)-100):], m.Data)
			}
			w.act(s, &simPacket{in: uint32(m.InPort), frame: m.Data}, m.Actions, openflow.OFPR_ACTION)
		case *openflow.MeterMod:
			w.meterMod(s, m, b)
		case *openflow.MultipartRequest:
			switch body := m.Body.(type) {
			case *openflow.FlowStatsRequest:
				if m.XID == WatchXID {
					w.watched++
				}
				w.do(w.core.FlowStats(w.now, s.dpid, s.stats(body, w.now), m.XID != WatchXID))
			case *openflow.AggregateStatsRequest:
				of := openflow.FlowStatsRequest{FlowFilter: body.FlowFilter}
				commands, _ := w.core.SetupStats(w.now, s.dpid, uint32(len(s.stats(&of, w.now))))
				w.do(commands)
			case *openflow.MeterStatsRequest:
				var list []openflow.MeterStats
				for id, m := range s.meters {
					list = append(list, openflow.MeterStats{MeterID: id, PacketInCount: m.packets, BandStats: []openflow.MeterBandStats{{PacketBandCount: m.dropped}}})
				}
				w.core.MeterStats(w.now, s.dpid, list)
			}
		}
	}
}

func (w *world) meterMod(s *simSwitch, m *openflow.MeterMod, raw []byte) {
	refuse := func(code openflow.MeterModFailedCode) {
		w.refuse(s, openflow.ErrorMessage{ErrorType: openflow.OFPET_METER_MOD_FAILED, Code: uint16(code), Data: raw})
	}
	known := s.meters[m.MeterID] != nil
	switch {
	case m.MeterID == openflow.OFPM_CONTROLLER:
	case s.features == nil || uint32(m.MeterID) > s.features.MaxMeter:
		refuse(openflow.OFPMMFC_INVALID_METER)
	case m.Command == openflow.OFPMC_DELETE:
		delete(s.meters, m.MeterID)
		s.entries = slices.DeleteFunc(s.entries, func(e *openflow.FlowMod) bool { return meterOf(e) == m.MeterID })
	case s.noMeters:
		refuse(openflow.OFPMMFC_OUT_OF_METERS)
	case m.Command == openflow.OFPMC_ADD && known:
		refuse(openflow.OFPMMFC_METER_EXISTS)
	case m.Command == openflow.OFPMC_MODIFY && !known:
		refuse(openflow.OFPMMFC_UNKNOWN_METER)
	default:
		s.meters[m.MeterID] = &simMeter{MeterBand: m.Bands[0]}
	}
}

func (w *world) flowMod(s *simSwitch, m *openflow.FlowMod, raw []byte) {
	if m.Command != openflow.OFPFC_DELETE && uint8(m.TableID) >= s.tables {
		w.t.Fatalf("an entry for table %d of %d", m.TableID, s.tables)
	}
	same := func(e *openflow.FlowMod) bool {
		return e.TableID == m.TableID && e.Priority == m.Priority && sameMatch(e.Match, m.Match)
	}
	switch m.Command {
	case openflow.OFPFC_ADD:
		if id := meterOf(m); id != 0 && s.meters[id] == nil {
			w.refuse(s, openflow.ErrorMessage{
				ErrorType: openflow.OFPET_METER_MOD_FAILED, Code: uint16(openflow.OFPMMFC_INVALID_METER), Data: raw[:64],
			})
			return
		}
		if s.plain && setsQueue(m) {
			w.refuse(s, openflow.ErrorMessage{
				ErrorType: openflow.OFPET_BAD_ACTION, Code: uint16(openflow.OFPBAC_BAD_TYPE), Data: raw[:64],
			})
			return
		}
		flows := 0
		for _, e := range s.entries {
			if e.Cookie&cookieKindMask == cookieFlow {
				flows++
			}
		}
		if s.room > 0 && flows >= s.room && m.Cookie&cookieKindMask == cookieFlow && !slices.ContainsFunc(s.entries, same) {
			w.refuse(s, openflow.ErrorMessage{
				ErrorType: openflow.OFPET_FLOW_MOD_FAILED, Code: uint16(openflow.OFPFMFC_TABLE_FULL), Data: raw[:64],
			})
			return
		}
		s.entries = append(slices.DeleteFunc(s.entries, same), m)
		s.born[m] = w.now
	case openflow.OFPFC_MODIFY_STRICT:
		for _, e := range s.entries {
			if same(e) {
				e.Instructions = m.Instructions
			}
		}
	case openflow.OFPFC_DELETE:
		var removed []*openflow.FlowMod
		s.entries = slices.DeleteFunc(s.entries, func(e *openflow.FlowMod) bool {
			gone := (m.TableID == openflow.OFPTT_ALL || m.TableID == e.TableID) && e.Cookie&m.CookieMask == m.Cookie&m.CookieMask && within(e.Match, m.Match)
			if gone && e.Flags&openflow.OFPFF_SEND_FLOW_REM != 0 {
				removed = append(removed, e)
			}
			return gone
		})
		for _, e := range removed {
			w.removed(s, e, openflow.OFPRR_DELETE)
		}
	default:
		w.t.Fatalf("command %v", m.Command)
	}
}

// refuse has a switch answer a message with an error.
func (w *world) refuse(s *simSwitch, m openflow.ErrorMessage) {
	w.refused = append(w.refused, refusal{s.dpid, m})
}

// refusal is an error on its way to the controller.
type refusal struct {
	dpid topology.DPID
	openflow.ErrorMessage
}

// meterOf is the meter of an entry, 0 if it has none.
func meterOf(m *openflow.FlowMod) openflow.Meter {
	for _, i := range m.Instructions {
		if meter, ok := i.(*openflow.InstructionMeter); ok {
			return meter.MeterID
		}
	}
	return 0
}

func setsQueue(m *openflow.FlowMod) bool {
	return slices.ContainsFunc(m.Instructions, func(i openflow.Instruction) bool {
		list, ok := i.(*openflow.InstructionActions)
		return ok && slices.ContainsFunc(list.Actions, func(a openflow.Action) bool {
			_, is := a.(*openflow.ActionSetQueue)
			return is
		})
	})
}

func (w *world) removed(s *simSwitch, e *openflow.FlowMod, why openflow.FlowRemovedReason) {
	n := s.counts[e]
	delete(s.counts, e)
	delete(s.used, e)
	if e.Flags&openflow.OFPFF_SEND_FLOW_REM == 0 {
		return
	}
	for _, to := range s.heardBy(w) {
		to.do(to.core.FlowRemoved(to.now, s.dpid, &openflow.FlowRemoved{Cookie: e.Cookie, TableID: e.TableID, Priority: e.Priority, Reason: why, PacketCount: n[0], ByteCount: n[1], Match: e.Match}))
	}
}

func sameMatch(a, b openflow.Match) bool { return within(a, b) && within(b, a) }

// within tells whether an entry's match has all fields of another.
func within(a, b openflow.Match) bool {
	for _, x := range b.Fields {
		y := a.Field(x.Field)
		if y == nil || !bytes.Equal(x.Value, y.Value) || !bytes.Equal(x.Mask, y.Mask) {
			return false
		}
	}
	return true
}

func (s *simSwitch) stats(of *openflow.FlowStatsRequest, now time.Time) []openflow.FlowStats {
	if s.lag > 0 && now.Sub(s.brought) >= s.lag {
		s.late, s.brought = maps.Clone(s.counts), now
	}
	var out []openflow.FlowStats
	for _, e := range s.entries {
		if e.Cookie&of.CookieMask == of.Cookie&of.CookieMask {
			n := s.counts[e]
			if s.lag > 0 {
				n = s.late[e]
			}
			out = append(out, openflow.FlowStats{Cookie: e.Cookie, TableID: e.TableID, Priority: e.Priority, Flags: e.Flags, PacketCount: n[0], ByteCount: n[1], Match: e.Match, Instructions: e.Instructions})
		}
	}
	return out
}

// send has a host send a frame.
func (w *world) send(from topology.Port, frame []byte) { w.arrive(from, frame) }

// arrive is a frame that comes in at a port.
func (w *world) arrive(in topology.Port, frame []byte) {
	switch w.packets++; {
	case w.packets > 400 && w.mayLoop:
		return
	case w.packets > 5000:
		w.t.Fatal("a packet goes round")
	}
	s := w.switches[in.Switch]
	p := &simPacket{in: in.Number, frame: frame}
	for more := true; more; {
		fields := fieldsOf(p)
		var best *openflow.FlowMod
		for _, e := range s.entries {
			if e.TableID == p.table && (best == nil || e.Priority > best.Priority) && matches(e.Match, fields) {
				best = e
			}
		}
		if best == nil {
			return
		}
		n := s.counts[best]
		s.counts[best], s.used[best] = [2]uint64{n[0] + 1, n[1] + uint64(len(frame))}, w.now
		more = w.pipe(s, p, best)
	}
}

// simPacket is a packet on its way through the tables of a switch.
type simPacket struct {
	in    uint32
	table openflow.Table
	frame []byte
	queue openflow.Queue
}

// pipe carries out an entry, and reports whether the packet goes to another table.
func (w *world) pipe(s *simSwitch, p *simPacket, e *openflow.FlowMod) (more bool) {
	reason := openflow.OFPR_ACTION
	if e.Priority == priorityMiss {
		reason = openflow.OFPR_NO_MATCH
	}
	for _, i := range e.Instructions {
		if meter, ok := i.(*openflow.InstructionMeter); ok && !s.meters[meter.MeterID].allows(w.now, len(p.frame)) {
			return false
		}
	}
	next := p.table
	for _, i := range e.Instructions {
		switch i := i.(type) {
		case *openflow.InstructionActions:
			w.act(s, p, i.Actions, reason)
		case *openflow.InstructionGotoTable:
			next = i.TableID
		}
	}
	more, p.table = next > p.table, next
	return more
}

// keyInSwitch is what a switch sees of a frame: IP addresses of whatever protocol.
func keyInSwitch(frame []byte) Key {
	f, _ := ReadFrame(frame)
	if h, ok := readIP(frame); ok && !f.ported() {
		f.Src, f.Dst = endpoint(h.src), endpoint(h.dst)
	}
	return f.Key
}

// fieldsOf are the fields of a packet.
func fieldsOf(p *simPacket) openflow.Match {
	k := keyInSwitch(p.frame)
	m := k.match(p.in)
	if f, _ := ReadFrame(p.frame); f.EtherType == etherIPv4 || f.EtherType == etherIPv6 {
		m.Fields = append(m.Fields, openflow.NewOXMNumber(openflow.OFPXMT_OFB_IP_DSCP, uint64(f.dscp)))
	}
	if h, ok := readIP(p.frame); ok && h.proto == inet6.icmp && len(h.upper) > 0 {
		m.Fields = append(m.Fields, openflow.NewOXMNumber(openflow.OFPXMT_OFB_ICMPV6_TYPE, uint64(h.upper[0])))
	}
	return m
}

func matches(m, whole openflow.Match) bool {
	for _, x := range m.Fields {
		y := whole.Field(x.Field)
		if y == nil {
			return false
		}
		for i := range x.Value {
			mask := byte(0xff)
			if x.Mask != nil {
				mask = x.Mask[i]
			}
			if (x.Value[i]^y.Value[i])&mask != 0 {
				return false
			}
		}
	}
	return true
}

func (w *world) act(s *simSwitch, p *simPacket, actions []openflow.Action, reason openflow.PacketInReason) {
	for _, a := range actions {
		switch a := a.(type) {
		case *openflow.ActionSetQueue:
			p.queue = a.QueueID
		case *openflow.ActionPlain: // of the TTL; routers correct the checksum, the simulation does not
			p.frame = bytes.Clone(p.frame)
			p.frame[hopsAt(p.frame)]--
		case *openflow.ActionSetField:
			p.frame = bytes.Clone(p.frame)
			if a.Field.Field == openflow.OFPXMT_OFB_IP_DSCP {
				setDSCP(p.frame, a.Field.Value[0])
				continue
			}
			copy(p.frame[map[openflow.OXMField]int{openflow.OFPXMT_OFB_ETH_DST: 0, openflow.OFPXMT_OFB_ETH_SRC: 6}[a.Field.Field]:], a.Field.Value)
		case *openflow.ActionOutput:
			switch {
			case a.Port == openflow.OFPP_CONTROLLER:
				w.packetIn(s, p, p.frame[:min(len(p.frame), int(a.MaxLen))], reason)
			case a.Port == openflow.OFPP_IN_PORT:
				w.leave(at(s.dpid, p.in), p.frame, p.queue)
			case uint32(a.Port) != p.in:
				w.leave(at(s.dpid, uint32(a.Port)), p.frame, p.queue)
			}
		}
	}
}

// setDSCP marks a frame; its checksum stays.
func setDSCP(frame []byte, dscp uint8) {
	b := frame[14:]
	if b[0]>>4 == 4 {
		b[1] = dscp<<2 | b[1]&3
	} else {
		b[0], b[1] = 0x60|dscp>>2, dscp<<6|b[1]&0x3f
	}
}

// hopsAt is where the TTL or hop limit is in a frame.
func hopsAt(frame []byte) int {
	if frame[12] == 8 {
		return 14 + 8
	}
	return 14 + 7
}

func (w *world) leave(from topology.Port, frame []byte, queue openflow.Queue) {
	if hub, ok := w.hubs[from]; ok {
		if bytes.HasPrefix(frame, []byte{1, 0x80, 0xc2, 0, 0}) { // IEEE 802.1Q, 8.6.3: it goes no further
			return
		}
		for _, to := range hub {
			if to != from {
				w.arrive(to, frame)
			}
		}
	}
	if to, ok := w.cables[from]; ok {
		w.arrive(to, frame)
		return
	}
	w.got[from] = append(w.got[from], delivery{frame, queue})
}

func (w *world) packetIn(s *simSwitch, p *simPacket, data []byte, reason openflow.PacketInReason) {
	f, ok := ReadFrame(data)
	if !ok {
		return
	}
	m := &openflow.PacketIn{Reason: reason, TableID: p.table, Data: data, Match: openflow.Match{Fields: []openflow.OXM{inPort(p.in)}}}
	for _, to := range s.heardBy(w) {
		to.do(to.core.PacketIn(to.now, s.dpid, m, &f, to.classifier.First(&f)))
	}
}

// simHost is a host that is played, at a port.
type simHost struct {
	at  topology.Port
	mac openflow.MAC
	ip  byte
}

func mac(n byte) openflow.MAC { return openflow.MAC{2, 0, 0, 0, 0, n} }

func simHostAt(p topology.Port, n byte) simHost { return simHost{p, mac(n), n} }

// frame is one of a protocol with ports and so many bytes of payload.
func (s simHost) frame(to simHost, proto byte, src, dst uint16, payload int, flags byte) []byte {
	b := append(append(to.mac[:], s.mac[:]...), 8, 0)
	head := 8
	if proto == flow.TCP {
		head = 20
	}
	ip := make([]byte, 20+head+payload)
	ip[0], ip[8], ip[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{198, 18, 0, s.ip, 198, 18, 0, to.ip})
	binary.BigEndian.PutUint16(ip[20:], src)
	binary.BigEndian.PutUint16(ip[22:], dst)
	if proto == flow.TCP {
		ip[32], ip[33] = 5<<4, flags
	} else {
		binary.BigEndian.PutUint16(ip[24:], uint16(8+payload))
	}
	return append(b, ip...)
}

func (s simHost) broadcast() []byte {
	b := append(bytes.Repeat([]byte{0xff}, 6), s.mac[:]...)
	return append(append(b, 8, 6), make([]byte, 46)...)
}

// delivered takes what has come out at a port.
func (w *world) delivered(p topology.Port) []delivery {
	out := w.got[p]
	delete(w.got, p)
	return out
}

// quiet forgets what has come out so far, LLDP to hosts among it.
func (w *world) quiet() {
	clear(w.got)
	w.packets = 0
}

// tick has the controller do all parts of a tick.
func (w *world) tick() {
	for w.do(w.core.Tick(w.now)); (Parts{w.core}).HasMore(); {
		w.do(Parts{w.core}.SendNext(w.now))
	}
}
