package core

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// eachSide is how many hosts each of two switches has.
const eachSide = 4

// twoSwitches are cabled at port 9 and have hosts at ports 1 to 4, which have
// spoken, and a flow from the first of one to the first of the other, to port 53.
func twoSwitches(t *testing.T) (w *world, left, right []simHost) { return twoSwitchesOf(t, nil) }

func twoSwitchesOf(t *testing.T, change func(*Config)) (w *world, left, right []simHost) {
	w = newWorld(t, change)
	w.add(1, 9)
	w.add(2, 9)
	w.cable(at(1, 9), at(2, 9))
	w.connectAll()
	w.pass(4 * time.Second)
	for i := range uint32(eachSide) {
		left = append(left, simHostAt(at(1, i+1), byte(i+1)))
		right = append(right, simHostAt(at(2, i+1), byte(i+11)))
	}
	for _, s := range append(left, right...) {
		w.send(s.at, s.broadcast())
	}
	for i, s := range left { // so that switches have entries of all
		w.send(s.at, s.frame(right[i], flow.UDP, 40000, 53, 20, 0))
		w.send(right[i].at, right[i].frame(s, flow.UDP, 40000, 7777, 20, 0))
	}
	w.quiet()
	return w, left, right
}

// restartController has another one begin, which no switch is connected to yet.
func (w *world) restartController() {
	cfg := *w.core.cfg
	cfg.FirstFlowID += 1 << 30
	cfg.LLDPKey[2]++
	w.core = New(cfg)
	for d := range w.switches {
		w.away[d] = true
	}
}

// talk has one of the hosts at each side, in turn, begin a flow every quarter of a
// second, and tells how many packets of the flow that is known were lost.
func (w *world) talk(d time.Duration, left, right []simHost, port *uint16) (lost int) {
	for ; d > 0; d -= 250 * time.Millisecond {
		*port++
		a, b := left[*port%eachSide], right[*port%eachSide]
		w.send(a.at, a.frame(b, flow.UDP, *port, 53, 20, 0))
		w.send(b.at, b.frame(a, flow.UDP, *port, 5060, 20, 0))
		w.quiet()
		w.send(left[0].at, left[0].frame(right[0], flow.UDP, 40000, 53, 20, 0))
		if len(w.delivered(right[0].at)) != 1 {
			lost++
		}
		w.pass(250 * time.Millisecond)
		w.quiet()
	}
	return lost
}

// TestLateSwitch: a switch connects later than its neighbour, which has taken its
// hosts for its own meanwhile: the link is found all the same.
func TestLateSwitch(t *testing.T) {
	w, left, right := twoSwitches(t)
	w.restartController()
	port := uint16(41000)
	w.connect(1)
	lost := w.talk(6*time.Second, left, right, &port)
	w.connect(2)
	lost += w.talk(8*time.Second, left, right, &port)
	if links := w.core.links.graph.Links(); len(links) != 1 {
		t.Errorf("links %v, %+v", links, w.core.counters)
	}
	if n := w.core.counters.StationsRefused; lost > 0 || n > 0 {
		t.Errorf("%d packets of a known flow were lost, %d times a host was thought to jump", lost, n)
	}
	for _, s := range append(left, right...) {
		if h := w.core.stations.byMAC[s.mac]; h == nil || h.at != s.at {
			t.Errorf("%v is thought to be at %+v", s.at, h)
		}
	}
}

// TestSwitchPowerCycle: so it is when a switch loses power and comes back.
func TestSwitchPowerCycle(t *testing.T) {
	w, left, right := twoSwitches(t)
	port := uint16(41000)
	set := func(down bool) {
		desc := w.switches[1].ports[8]
		if down {
			desc.State = openflow.OFPPS_LINK_DOWN
		}
		w.do(w.core.PortStatus(w.now, 1, &openflow.PortStatus{Reason: openflow.OFPPR_MODIFY, Desc: desc}))
	}
	w.unplug(at(1, 9))
	w.away[2] = true
	w.core.Disconnected(w.now, 2)
	set(true)
	w.switches[2].entries = nil
	w.talk(6*time.Second, left, right, &port)
	w.cable(at(1, 9), at(2, 9))
	set(false)
	w.connect(2)
	for i, s := range left {
		w.send(s.at, s.frame(right[i], flow.UDP, 39999, 53, 20, 0))
	}
	w.talk(8*time.Second, left, right, &port)
	if links := w.core.links.graph.Links(); len(links) != 1 || w.core.counters.StationsRefused > 0 {
		t.Errorf("links %v, %+v", links, w.core.counters)
	}
}

// TestForgottenTables: connected switches whose tables are emptied have their entries again after the next
// statistics, and pass packets of known flows.
func TestForgottenTables(t *testing.T) {
	w, left, right := twoSwitches(t)
	port := uint16(41000)
	w.talk(2*time.Second, left, right, &port)
	entries := func(s *simSwitch) int {
		return len(s.stats(&openflow.FlowStatsRequest{FlowFilter: withCookie(cookieSetup, cookieKindMask)}, w.now))
	}
	for d, s := range w.switches {
		before := entries(s)
		s.entries = nil
		w.pass(2 * w.core.cfg.StatsInterval)
		if now := entries(s); now != before {
			t.Errorf("switch %d has %d entries of no flow or host, and had %d", d, now, before)
		}
		if lost := w.talk(2*time.Second, left, right, &port); lost > 0 {
			t.Errorf("switch %d: %d packets are lost", d, lost)
		}
		if links := w.core.links.graph.Links(); len(links) != 1 {
			t.Errorf("links %v", links)
		}
	}
}

// TestMovedMeanwhile: a host that moved while no controller was there is where it
// speaks, not where an old entry has it.
func TestMovedMeanwhile(t *testing.T) {
	w, s := oneSwitch(t, nil)
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	w.restartController()
	moved := s[0]
	moved.at = s[2].at
	w.connect(1)
	w.pass(3 * time.Second)
	w.send(moved.at, moved.broadcast())
	w.send(s[1].at, s[1].broadcast())
	w.pass(8 * time.Second)
	if h := w.core.stations.byMAC[moved.mac]; h.at != moved.at {
		t.Errorf("it is thought to be at %v", h.at)
	}
}

// TestCableMovedMeanwhile: a port that was a link for the controller before is a
// host's now, whose broadcasts come to the controller.
func TestCableMovedMeanwhile(t *testing.T) {
	w, _, _ := twoSwitches(t)
	w.restartController()
	w.unplug(at(1, 9))
	w.connectAll()
	w.pass(4 * time.Second)
	w.quiet()
	s := simHostAt(at(1, 9), 7)
	w.send(s.at, s.broadcast())
	if w.core.stations.byMAC[s.mac] == nil {
		t.Error("the controller does not see its broadcast")
	}
	if got := w.delivered(at(1, 3)); len(got) != 1 {
		t.Errorf("its broadcast came %d times to another host", len(got))
	}
}

// TestTransitForgets: a switch in the middle of paths that has lost its entries, but
// no link, gets those of routed flows again.
func TestTransitForgets(t *testing.T) {
	w, a, b, _ := routedWorld(t, versions[0])
	w.askGateways(a, b)
	w.send(a.at, a.packet(b.addr, 53, 64))
	w.pass(2 * time.Second)
	w.switches[2].entries = nil
	w.core.Disconnected(w.now, 2)
	w.connect(2)
	w.pass(2 * time.Second)
	w.send(a.at, a.packet(b.addr, 53, 64))
	w.quiet()
	before := w.core.counters.PacketIns
	w.send(a.at, a.packet(b.addr, 53, 64))
	checkRouted(t, w, w.delivered(b.at), b, 63)
	if asked := w.core.counters.PacketIns - before; asked != 0 {
		t.Errorf("%d packets came to the controller", asked)
	}
}

// TestCountersBeginAnew: whatever the counters of an entry do, each packet is counted
// once.
func TestCountersBeginAnew(t *testing.T) {
	w, s := oneSwitch(t, nil)
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	f := w.flowTo(53)
	total := func() uint64 { return w.core.flows.totals[apps.EF].Packets }
	for _, n := range []uint64{100, 10, 20, 30, 5, 6} {
		w.now = w.now.Add(5 * time.Second)
		w.core.advance(w.now)
		w.core.flows.count(f, n, 100*n)
	}
	if f.Packets != 100+30+6 || total() != f.Packets || f.Bytes != 100*f.Packets {
		t.Errorf("%d packets of the flow, %d of its class, want %d", f.Packets, total(), 136)
	}
	// Another way out of the first switch: its entry is the same, and keeps counting.
	w.core.flows.move(f, []topology.Hop{{Switch: 1, In: f.Path[0].In, Out: 3}}, true)
	w.core.flows.count(f, 7, 700)
	if f.Packets != 137 {
		t.Errorf("%d packets after it took another way, want 137", f.Packets)
	}
}

// TestDeadDestination: what a host sends to nobody does not go to all ports of all
// switches for ever.
func TestDeadDestination(t *testing.T) {
	w, hosts, _ := twoSwitches(t)
	left, dead := hosts[0], simHostAt(at(1, 1), 99)
	outs := 0
	for i := range uint16(5000) {
		frame := left.frame(dead, flow.UDP, 40000+i, 53, 20, 0)
		w.now = w.now.Add(time.Millisecond / 5)
		f, _ := ReadFrame(frame)
		m := &openflow.PacketIn{Reason: openflow.OFPR_NO_MATCH, Data: frame, Match: openflow.Match{Fields: []openflow.OXM{inPort(1)}}}
		outs += len(w.core.PacketIn(w.now, 1, m, &f, Verdict{}))
	}
	if outs > 500 {
		t.Errorf("5000 packets within a second became %d", outs)
	}
}

// TestManyPortsOfOneBridge: what probes cost grows with their number, not with its
// square.
func TestManyPortsOfOneBridge(t *testing.T) {
	c := bounded(10)
	const n = 100
	for d := range topology.DPID(n) {
		c.Connected(c.now, Description{Features: &openflow.FeaturesReply{DatapathID: uint64(d + 1)}, Ports: []openflow.PortDesc{{PortNo: 1}}})
	}
	began := time.Now()
	for a := range topology.DPID(n) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%d of %d ports take %v", a, n, time.Since(began))
		}
		for b := range topology.DPID(n) {
			if a != b {
				c.links.segments.hear(heardPair{at(a+1, 1), at(b+1, 1)}, c.now)
			}
		}
	}
	c.Tick(c.now)
	if len(c.links.segments.heard) != n*(n-1) || len(c.links.segments.blocked) != 0 {
		t.Errorf("%d pairs, blocked %v", len(c.links.segments.heard), c.links.segments.blocked)
	}
}

// TestFullTableComesBack: what a full table refused of the entries that are not of
// single flows is sent again.
func TestFullTableComesBack(t *testing.T) {
	w, s := oneSwitch(t, nil)
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	one := w.switches[1]
	before := len(one.entries)
	refused := slices.DeleteFunc(slices.Clone(one.entries), func(e *openflow.FlowMod) bool { return e.Cookie == cookieFlow|e.Cookie&cookieIDMask })
	one.entries = slices.DeleteFunc(one.entries, func(e *openflow.FlowMod) bool { return slices.Contains(refused, e) })
	for _, e := range refused {
		raw := make([]byte, 64)
		raw[1] = byte(openflow.OFPT_FLOW_MOD)
		binary.BigEndian.PutUint64(raw[8:], e.Cookie)
		w.do(w.core.Error(w.now, 1, &openflow.ErrorMessage{ErrorType: openflow.OFPET_FLOW_MOD_FAILED, Code: uint16(openflow.OFPFMFC_TABLE_FULL), Data: raw}))
	}
	w.pass(fullPause + time.Second)
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40001, 53, 20, 0))
	w.send(s[1].at, s[1].frame(s[0], flow.UDP, 40002, 53, 20, 0))
	if len(one.entries) < before {
		t.Errorf("%d entries, before %d", len(one.entries), before)
	}
}

// TestTagsAndLengths: how Open vSwitch names what is tagged by 802.1ad, twice, or has
// a length in place of a type.
func TestTagsAndLengths(t *testing.T) {
	frame := func(types ...byte) *Frame {
		b := append(make([]byte, 12), types...)
		f, ok := ReadFrame(append(b, make([]byte, 60)...))
		if !ok {
			t.Fatalf("% x is no frame", types)
		}
		return &f
	}
	for _, tpid := range [][]byte{{0x81, 0}, {0x88, 0xa8}} {
		if f := frame(append(tpid, 0x20, 5, 8, 6)...); f.VLAN != vlanPresent|5 || f.EtherType != etherARP || f.vague {
			t.Errorf("tag % x: %+v", tpid, f)
		}
		if f := frame(append(tpid, 0, 5, 0x81, 0, 0, 6, 8, 6)...); f.VLAN != vlanPresent|5 || !f.vague {
			t.Errorf("two tags: %+v", f)
		}
	}
	if f := frame(0, 38); !f.vague {
		t.Errorf("a length: %+v", f)
	}
}

// TestLostTables: a switch that loses its entries gets them again once; one that never counts any by
// their cookies is not set up at each statistics.
func TestLostTables(t *testing.T) {
	w, _, _ := twoSwitches(t)
	for i, c := range []struct {
		entries uint32
		lost    bool
	}{{0, true}, {0, false}, {0, false}, {2, false}, {0, true}} {
		commands, lost := w.core.SetupStats(w.now, 1, c.entries)
		if lost != c.lost || len(commands) > 0 != c.lost {
			t.Errorf("answer %d, %d entries: lost is %v with %d messages", i, c.entries, lost, len(commands))
		}
	}
}
