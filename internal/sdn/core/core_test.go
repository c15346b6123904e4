package core

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// oneSwitch has three hosts, of which all have spoken.
func oneSwitch(t testing.TB, change func(*Config)) (*world, [3]simHost) {
	w := newWorld(t, change)
	w.add(1, 3)
	w.connectAll()
	w.pass(3 * time.Second)
	var s [3]simHost
	for i := range s {
		s[i] = simHostAt(at(1, uint32(i+1)), byte(i+1))
		w.send(s[i].at, s[i].broadcast())
	}
	w.quiet()
	return w, s
}

func (w *world) flowTo(port uint16) *Flow {
	for k, f := range w.core.flows.byKey {
		if k.Dst.Port == port {
			return f
		}
	}
	return nil
}

// TestSteps is the paper's workflow: the first packet comes to the controller and
// goes on in the queue of its application, the others need no controller.
func TestSteps(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w, s := oneSwitch(t, func(c *Config) { c.FailSafe = !strict })
		for _, c := range []struct {
			proto byte
			port  uint16
			level apps.Level
			name  string
		}{{flow.UDP, 53, apps.EF, "SERVICES"}, {flow.TCP, 25, apps.BE, "EMAIL"}, {flow.TCP, 22, apps.AF, "INTERACTIVE"}} {
			for i := range 3 {
				frame := s[0].frame(s[1], c.proto, 40000, c.port, 40, 2)
				before := w.core.counters.PacketIns
				w.send(s[0].at, frame)
				got := w.delivered(s[1].at)
				if len(got) != 1 || string(got[0].data) != string(frame) {
					t.Fatalf("port %d, packet %d: %d came out", c.port, i, len(got))
				}
				if want := w.core.cfg.Queues[c.level]; got[0].queue != want && (strict || i > 0 || c.level == apps.BE) {
					t.Errorf("strict %v: port %d, packet %d in queue %d, want %d", strict, c.port, i, got[0].queue, want)
				}
				if asked := w.core.counters.PacketIns - before; i > 0 && asked > 0 {
					t.Errorf("packet %d came to the controller", i)
				}
			}
			f := w.flowTo(c.port)
			if f == nil || f.Verdict.TypeName() != c.name || f.Verdict.Level != c.level {
				t.Fatalf("port %d: %+v", c.port, f)
			}
			// The answer has its entry already.
			before := w.core.counters.PacketIns
			w.send(s[1].at, s[1].frame(s[0], c.proto, c.port, 40000, 40, 18))
			if got := w.delivered(s[0].at); len(got) != 1 || got[0].queue != w.core.cfg.Queues[c.level] || w.core.counters.PacketIns != before {
				t.Errorf("answer from port %d: %+v", c.port, got)
			}
		}
	}
}

// TestOtherIP: an entry for ICMP takes no TCP or UDP with it, and fragments get
// none.
func TestOtherIP(t *testing.T) {
	w, s := oneSwitch(t, nil)
	icmp := s[0].frame(s[1], 1, 8, 0, 20, 0)
	w.send(s[0].at, icmp)
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	if f := w.flowTo(53); f == nil || f.Verdict.Level != apps.EF {
		t.Errorf("DNS after ICMP: %+v", f)
	}
	fragment := s[0].frame(s[2], flow.UDP, 40000, 53, 20, 0)
	fragment[14+7] = 10
	before := len(w.core.flows.byKey)
	w.send(s[0].at, fragment)
	if got := w.delivered(s[2].at); len(got) != 1 || got[0].queue != 0 || len(w.core.flows.byKey) != before {
		t.Errorf("fragment: %d deliveries, %d flows more", len(got), len(w.core.flows.byKey)-before)
	}
}

// TestReadFrame: whatever comes, it is read or refused.
func TestReadFrame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 90).Draw(rt, "frame")
		if len(b) >= 14 {
			kind := rapid.SampledFrom([][]byte{{8, 0}, {0x86, 0xdd}, {0x81, 0}, {0x88, 0xa8}, {8, 6}, {1, 2}}).Draw(rt, "type")
			copy(b[12:], kind)
		}
		f, ok := ReadFrame(b)
		if ok != (len(b) >= 14 && (len(b) >= 18 || !tag(binary.BigEndian.Uint16(b[12:])))) {
			rt.Fatalf("%x: %v", b, ok)
		}
		if !ok || f.vague {
			return
		}
		m := f.Key.match(7)
		if k, in, ok := keyOf(&m); !ok || in != 7 || k != f.Key {
			rt.Fatalf("%+v became %+v", f.Key, k)
		}
		if f.Key.Reverse().Reverse() != f.Key || f.Key.String() == "" {
			rt.Fatal("reversed")
		}
	})
}

// ring is four switches in a circle, with a chord, and a host at port 9 of
// each.
func ring(t testing.TB) (*world, []simHost) {
	w := newWorld(t, nil)
	var hosts []simHost
	for d := range topology.DPID(4) {
		w.add(d+1, 9)
		hosts = append(hosts, simHostAt(at(d+1, 9), byte(d+1)))
	}
	for d := range topology.DPID(4) {
		w.cable(at(d+1, 1), at((d+1)%4+1, 2))
	}
	w.cable(at(1, 3), at(3, 3))
	w.connectAll()
	w.pass(4 * time.Second)
	w.quiet()
	return w, hosts
}

// TestSeveralSwitches: links are found, broadcasts reach everybody once in spite
// of the circles, and a flow has its class on its whole path.
func TestSeveralSwitches(t *testing.T) {
	w, hosts := ring(t)
	if links := w.core.links.graph.Links(); len(links) != 5 {
		t.Fatalf("%d links, want 5: %v", len(links), links)
	}
	for _, s := range hosts {
		w.packets = 0
		w.send(s.at, s.broadcast())
		for _, other := range hosts {
			if got := len(w.delivered(other.at)); other.at != s.at && got != 1 {
				t.Errorf("a broadcast of %v reached %v %d times", s.at, other.at, got)
			}
		}
	}
	w.send(hosts[0].at, hosts[0].frame(hosts[1], flow.UDP, 40000, 53, 20, 0))
	w.send(hosts[1].at, hosts[1].frame(hosts[3], flow.UDP, 40000, 5060, 20, 0))
	w.quiet()
	for _, f := range w.core.flows.byKey {
		if !w.core.links.hasPath(f.Path) {
			t.Errorf("%v has a path with holes: %v", f.Key, f.Path)
		}
		for _, hop := range f.Path {
			found := false
			for _, e := range w.switches[hop.Switch].entries {
				queue, out := queueAndPort(e.Instructions)
				if e.Cookie == cookieFlow|f.ID {
					found = true
					if queue != w.core.cfg.Queues[f.Verdict.Level] || out != hop.Out {
						t.Errorf("%v at %v: queue %d to port %d", f.Key, hop, queue, out)
					}
				}
			}
			if !found {
				t.Errorf("%v has no entry at %v", f.Key, hop.Switch)
			}
		}
	}
	if n := len(w.flowTo(53).Path); n != 2 {
		t.Errorf("a path of %d switches, want 2", n)
	}
}

// TestLinkLost: what went over a link takes another way.
func TestLinkLost(t *testing.T) {
	w, s := ring(t)
	for _, one := range s {
		w.send(one.at, one.broadcast())
	}
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	path := w.flowTo(53).Path
	w.quiet()
	// Silently first: no port goes down, LLDP stays away.
	w.unplug(at(path[0].Switch, path[0].Out))
	w.pass(8 * time.Second)
	w.quiet()
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	if got := w.delivered(s[1].at); len(got) != 1 || got[0].queue != 2 {
		t.Errorf("after a silent loss: %+v; %v", got, w.flowTo(53))
	}
	// Then one that the switch tells of.
	path = w.flowTo(53).Path
	a := at(path[0].Switch, path[0].Out)
	for _, p := range []topology.Port{a, w.unplug(a)} {
		desc := w.switches[p.Switch].ports[p.Number-1]
		desc.State = openflow.OFPPS_LINK_DOWN
		w.do(w.core.PortStatus(w.now, p.Switch, &openflow.PortStatus{Reason: openflow.OFPPR_MODIFY, Desc: desc}))
	}
	w.quiet()
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	if got := w.delivered(s[1].at); w.flowTo(53) != nil && (len(got) != 1 || got[0].queue != 2) {
		t.Errorf("after a port went down: %+v", got)
	}
	if w.core.counters.Rerouted == 0 {
		t.Error("nothing took another way")
	}
}

// TestForgedLLDP: hosts make no links.
func TestForgedLLDP(t *testing.T) {
	w := newWorld(t, nil)
	w.add(1, 2)
	w.add(2, 2)
	w.connectAll()
	w.pass(500 * time.Millisecond)
	// What the network sends to a host, another host sees too late.
	heard := w.delivered(at(1, 1))
	if len(heard) == 0 {
		t.Fatal("no LLDP came out")
	}
	w.pass(4 * time.Second)
	w.send(at(2, 1), heard[0].data)
	if w.core.counters.LLDP.Stale != 1 {
		t.Errorf("a recorded frame: %+v", w.core.counters)
	}
	forged := topology.Signer{Key: [32]byte{9}}
	w.send(at(2, 1), forged.Frame(at(1, 1), openflow.MAC{}, w.core.links.rounds.number))
	if w.core.counters.LLDP.Forged != 1 {
		t.Errorf("a forged frame: %+v", w.core.counters)
	}
	foreign := append(append([]byte{1, 0x80, 0xc2, 0, 0, 0x0e}, make([]byte, 6)...), 0x88, 0xcc, 2, 2, 7, 1, 0, 0)
	w.send(at(2, 1), foreign)
	if w.core.counters.LLDP.Foreign != 1 {
		t.Errorf("LLDP of another system: %+v", w.core.counters)
	}
	// Two hosts that are known relay frames at once.
	for d := range topology.DPID(2) {
		s := simHostAt(at(d+1, 1), byte(d+1))
		w.send(s.at, s.broadcast())
	}
	genuine := topology.Signer{Key: w.core.cfg.LLDPKey}
	w.send(at(2, 1), genuine.Frame(at(1, 1), openflow.MAC{}, w.core.links.rounds.number))
	w.send(at(1, 1), genuine.Frame(at(2, 1), openflow.MAC{}, w.core.links.rounds.number))
	if w.core.counters.LLDP.OnStationPort != 2 || len(w.core.links.graph.Links()) != 0 {
		t.Errorf("a relay: %+v, links %v", w.core.counters, w.core.links.graph.Links())
	}
}

// TestControllerGone: without a controller known flows keep their queue, new ones
// are best effort; a new controller takes over without touching anything.
func TestControllerGone(t *testing.T) {
	w, s := oneSwitch(t, nil)
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	w.quiet()
	w.away[1] = true
	w.core.Disconnected(w.now, 1)
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40001, 53, 20, 0))
	if got := w.delivered(s[1].at); len(got) != 2 || got[0].queue != 2 || got[1].queue != 0 {
		t.Errorf("without a controller: %+v", got)
	}
	id := w.flowTo(53).ID
	entries := fmt.Sprint(len(w.switches[1].entries))
	cfg := *w.core.cfg
	cfg.FirstFlowID, cfg.LLDPKey = 1<<39, [32]byte{7}
	w.core = New(cfg)
	w.connectAll()
	w.pass(7 * time.Second)
	w.quiet()
	f := w.flowTo(53)
	if f == nil || f.ID != id || f.Verdict.Level != apps.EF {
		t.Fatalf("not taken over: %+v", f)
	}
	if now := fmt.Sprint(len(w.switches[1].entries)); now != entries {
		t.Errorf("%s entries became %s", entries, now)
	}
	before := w.core.counters.PacketIns
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	if got := w.delivered(s[1].at); len(got) != 1 || got[0].queue != 2 || w.core.counters.PacketIns != before {
		t.Errorf("after the restart: %+v", got)
	}
}

// TestTableFull: a switch with room for eight entries forwards everything, what
// does not fit as best effort; silent flows make room.
func TestTableFull(t *testing.T) {
	w, s := oneSwitch(t, func(c *Config) { c.IdleTimeoutSeconds = 300 })
	w.switches[1].room = 8
	for i := range uint16(20) {
		w.quiet()
		w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000+i, 53, 20, 0))
		if got := w.delivered(s[1].at); len(got) != 1 {
			t.Fatalf("flow %d: %d came out", i, len(got))
		}
	}
	if w.core.counters.TableFull == 0 || !w.core.Snapshot(false).Switches[0].Full {
		t.Error("the full table was not noticed")
	}
	w.pass(30 * time.Second)
	for i := range uint16(8) { // refused at first; the oldest go
		w.quiet()
		w.send(s[0].at, s[0].frame(s[1], flow.UDP, 50000+i, 53, 20, 0))
		if got := w.delivered(s[1].at); len(got) != 1 {
			t.Fatalf("flow %d: %d came out", i, len(got))
		}
	}
	if w.core.counters.Evicted == 0 {
		t.Error("no silent flow made room")
	}
}

// TestWithoutQueues: a switch that refuses set_queue forwards by itself all the same, and its
// state says so.
func TestWithoutQueues(t *testing.T) {
	w, s := oneSwitch(t, nil)
	w.switches[1].plain = true
	send := func() {
		w.quiet()
		w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
		if got := w.delivered(s[1].at); len(got) != 1 {
			t.Fatalf("%d packets came out", len(got))
		}
	}
	send() // its entry is refused
	w.pass(2 * settle)
	send() // sent again
	before := w.core.counters.PacketIns
	for range 10 {
		send()
	}
	if got := w.core.counters.PacketIns - before; got != 0 {
		t.Errorf("%d packets came to the controller", got)
	}
	if !w.core.Snapshot(false).Switches[0].WithoutQueues {
		t.Error("the state does not say so")
	}
}

// TestMoreFlowsThanKept: the bound on flows holds, and packets go on.
func TestMoreFlowsThanKept(t *testing.T) {
	w, s := oneSwitch(t, func(c *Config) { c.MaxFlows = 10 })
	for i := range uint16(50) {
		w.quiet()
		w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000+i, 53, 20, 0))
		if got := w.delivered(s[1].at); len(got) != 1 {
			t.Fatalf("flow %d: %d came out", i, len(got))
		}
		if n := len(w.core.flows.byKey); n > 11 { // both directions at once
			t.Fatalf("%d flows", n)
		}
	}
}

// TestFlowEnds: what a flow has carried is counted once, and a host's end ends
// its flows.
func TestFlowEnds(t *testing.T) {
	w, s := oneSwitch(t, nil)
	frame := s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0)
	for range 5 {
		w.send(s[0].at, frame)
	}
	w.pass(6 * time.Second)
	f := w.flowTo(53)
	if f.Packets != 4 { // the first went by the host's entry
		t.Errorf("%d packets counted", f.Packets)
	}
	sw := w.switches[1]
	for i, e := range sw.entries {
		if e.Cookie == cookieFlow|f.ID {
			sw.entries = append(sw.entries[:i:i], sw.entries[i+1:]...)
			w.removed(sw, e, openflow.OFPRR_IDLE_TIMEOUT)
			break
		}
	}
	if w.flowTo(53) != nil || w.core.flows.totals[apps.EF].Packets != 4 {
		t.Errorf("after its end: %+v", w.core.flows.totals)
	}
	w.do(w.core.PortStatus(w.now, 1, &openflow.PortStatus{Reason: openflow.OFPPR_DELETE, Desc: sw.ports[1]}))
	for _, e := range sw.entries {
		if e.Cookie&cookieKindMask == cookieFlow {
			t.Errorf("an entry is left: %+v", e)
		}
	}
}

// TestHostMoves: a host that moves is found again, one that jumps to and fro is
// not believed.
func TestHostMoves(t *testing.T) {
	w, s := oneSwitch(t, nil)
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	w.pass(2 * time.Second)
	moved := s[1]
	moved.at = s[2].at
	w.send(moved.at, moved.broadcast())
	w.quiet()
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	if got := w.delivered(moved.at); len(got) != 1 {
		t.Errorf("at the new port: %+v", got)
	}
	w.send(s[1].at, s[1].broadcast())
	if w.core.counters.StationsRefused != 1 || w.core.stations.byMAC[s[1].mac].at != moved.at {
		t.Errorf("after %+v it is at %v", w.core.counters, w.core.stations.byMAC[s[1].mac].at)
	}
	for i := range 2000 {
		liar := simHost{at: s[0].at, mac: openflow.MAC{2, 1, 0, 0, byte(i >> 8), byte(i)}}
		w.packets = 0
		w.send(liar.at, liar.broadcast())
	}
	if n := len(w.core.stations.byMAC); n > maxStationsPerPort+3 {
		t.Errorf("%d hosts are remembered", n)
	}
}

// TestSecondLook: what the statistics correct, and what they do not.
func TestSecondLook(t *testing.T) {
	voice := func(level apps.Level, proto uint8) *Flow {
		return &Flow{Key: Key{Proto: proto}, judged: Verdict{Level: level, Type: 5, Confidence: 0.5}, Packets: 500, Bytes: 500 * 214, PacketRate: 50, RateBPS: 85600}
	}
	bulk := func(level apps.Level) *Flow {
		return &Flow{Key: Key{Proto: flow.TCP}, judged: Verdict{Level: level, Type: 2, Confidence: 0.9}, Packets: 500, Bytes: 500 * 1400, PacketRate: 2000, RateBPS: 2e7, loan: loan{bulk: true}}
	}
	few := voice(apps.BE, flow.UDP)
	few.Packets = 10
	second := voice(apps.BE, flow.UDP)
	second.judged.Second = true
	quiet := bulk(apps.EF)
	quiet.loan.bulk = false
	for name, c := range map[string]struct {
		f, back *Flow
		want    apps.Level
		second  bool
	}{
		"a download on EF":       {bulk(apps.EF), nil, apps.BE, true},
		"a download on BE":       {bulk(apps.BE), nil, apps.BE, false},
		"an answer on EF":        {voice(apps.EF, flow.TCP), bulk(apps.EF), apps.BE, true},
		"a download is over":     {quiet, nil, apps.EF, false},
		"its answer goes on":     {quiet, bulk(apps.BE), apps.BE, true},
		"too few packets":        {few, voice(apps.BE, flow.UDP), apps.BE, false},
		"once only":              {second, voice(apps.BE, flow.UDP), apps.BE, true},
		"voice both ways":        {voice(apps.BE, flow.UDP), voice(apps.BE, flow.UDP), apps.EF, true},
		"voice one way":          {voice(apps.BE, flow.UDP), nil, apps.BE, false},
		"TCP like voice":         {voice(apps.BE, flow.TCP), voice(apps.BE, flow.TCP), apps.BE, false},
		"voice that AF carries":  {voice(apps.AF, flow.UDP), voice(apps.AF, flow.UDP), apps.AF, false},
		"answered by a download": {voice(apps.BE, flow.UDP), bulk(apps.BE), apps.BE, false},
	} {
		c.f.judged = c.f.secondLook(c.back)
		if v := c.f.inForce(c.back); v.Level != c.want || v.Second != c.second {
			t.Errorf("%s: %v %v, want %v %v", name, v.Level, v.Second, c.want, c.second)
		}
	}
	// On a switch the entries change, and keep their counters.
	w, s := oneSwitch(t, nil)
	for range 200 {
		w.packets = 0
		w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 8000, 0))
	}
	for range 3 {
		w.pass(5 * time.Second)
		for range 200 {
			w.packets = 0
			w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 8000, 0))
		}
	}
	w.pass(6 * time.Second)
	f := w.flowTo(53)
	if !f.Verdict.Second || f.Verdict.Level != apps.BE || f.Packets != 799 {
		t.Errorf("%+v", f)
	}
	w.quiet()
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 8000, 0))
	if got := w.delivered(s[1].at); len(got) != 1 || got[0].queue != 0 {
		t.Errorf("after the second look in queue %d", got[0].queue)
	}
	w.pass(20 * time.Second)
	if f := w.flowTo(53); f == nil || f.Verdict.Second || f.Verdict.Level != apps.EF {
		t.Errorf("after seconds of quiet: %+v", f)
	}
}

// TestConversationStaysOne: a conversation that sends as a transfer does for a while is one again
// afterwards, by the second look as before, and what answers a transfer is BE from its first packet.
func TestConversationStaysOne(t *testing.T) {
	w, s := oneSwitch(t, nil)
	say := func(seconds, perSecond, bytes int) {
		for range seconds * 4 {
			for range perSecond / 4 {
				w.packets = 0
				w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 69, bytes, 0))
				w.send(s[1].at, s[1].frame(s[0], flow.UDP, 69, 40000, 160, 0))
			}
			w.pass(250 * time.Millisecond)
		}
	}
	for _, step := range []struct {
		perSecond, bytes int
		want             Verdict
	}{{40, 160, conversation}, {400, 1400, bulkTransfer}, {40, 160, conversation}} {
		say(25, step.perSecond, step.bytes)
		if f := w.flowTo(69); f == nil || f.Verdict != step.want {
			t.Fatalf("%d packets of %d bytes a second: %+v, want %+v", step.perSecond, step.bytes, f, step.want)
		}
	}
	say(11, 400, 1400)
	w.core.flows.drop(w.flowTo(40000))
	w.do(w.core.finish())
	w.packets = 0
	w.send(s[1].at, s[1].frame(s[0], flow.UDP, 69, 40000, 160, 0))
	if f := w.flowTo(40000); f == nil || f.Verdict != bulkTransfer {
		t.Errorf("the answer to a transfer: %+v", f)
	}
}

// TestEveryPairReaches: in any network of switches all hosts reach each other,
// nothing goes round, and every class is kept.
func TestEveryPairReaches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trusted := rapid.Bool().Draw(rt, "trusted")
		w := newWorld(t, func(c *Config) {
			if trusted {
				trusting(everywhere("p12")...)(c)
			}
		})
		n := rapid.IntRange(1, 6).Draw(rt, "switches")
		var hosts []simHost
		for i := range n {
			w.add(topology.DPID(i+1), 12)
			hosts = append(hosts, simHostAt(at(topology.DPID(i+1), 12), byte(i+1)))
		}
		used := map[topology.DPID]uint32{}
		join := func(a, b topology.DPID) {
			if used[a] < 10 && used[b] < 10 && a != b {
				used[a]++
				used[b]++
				w.cable(at(a, used[a]), at(b, used[b]))
			}
		}
		for i := 1; i < n; i++ { // connected
			join(topology.DPID(i+1), topology.DPID(rapid.IntRange(1, i).Draw(rt, "to")))
		}
		for range rapid.IntRange(0, 5).Draw(rt, "more") {
			join(topology.DPID(rapid.IntRange(1, n).Draw(rt, "a")), topology.DPID(rapid.IntRange(1, n).Draw(rt, "b")))
		}
		w.connectAll()
		w.pass(4 * time.Second)
		for _, s := range hosts {
			w.quiet()
			w.send(s.at, s.broadcast())
		}
		for _, a := range hosts {
			for _, b := range hosts {
				if a.at == b.at {
					continue
				}
				w.quiet()
				for i := range 2 {
					w.send(a.at, a.marked(b, 53, ef))
					if got := w.delivered(b.at); len(got) != 1 || i == 1 && got[0].queue != 2 {
						rt.Fatalf("%v to %v, packet %d: %+v", a.at, b.at, i, got)
					}
				}
			}
		}
	})
}

// TestTypeQueues: an application type with a queue of its own goes there, in its
// usual level, and a flow that is found there stays there.
func TestTypeQueues(t *testing.T) {
	c := Config{Queues: DefaultQueues(), TypeQueues: map[int]TypeQueue{0: {3, apps.EF}, 5: {4, apps.AF}, 8: {0, apps.BE}}}
	for _, one := range []struct {
		v    Verdict
		want openflow.Queue
	}{
		{Verdict{Level: apps.EF, Type: 0}, 3}, {Verdict{Level: apps.AF, Type: 5}, 4}, {Verdict{Level: apps.EF, Type: 1}, 2},
		{Verdict{Level: apps.BE, Type: 5}, 0}, // not sure of it
		{Verdict{Level: apps.BE, Type: 8}, 0}, {Verdict{Level: apps.BE, Type: -1}, 0},
	} {
		if got := c.queue(one.v); got != one.want {
			t.Errorf("%+v goes to queue %d, want %d", one.v, got, one.want)
		}
	}
	for queue, want := range map[openflow.Queue]apps.Level{0: apps.BE, 1: apps.AF, 2: apps.EF, 3: apps.EF, 4: apps.AF, 7: apps.BE} {
		v := c.found(queue)
		if v.Level != want || v.Type != -1 {
			t.Errorf("in queue %d: %+v, want %s", queue, v, want)
		}
		if got := c.queue(v); got != queue && queue != 7 {
			t.Errorf("found in queue %d, goes to %d", queue, got)
		}
	}
}

// TestIdlePaths: new flows of EF take the shortest path whose links are idle most, and keep it; flows of
// BE share all of them.
func TestIdlePaths(t *testing.T) {
	w := newWorld(t, nil)
	for d := range topology.DPID(4) {
		w.add(d+1, 9)
	}
	for d := range topology.DPID(4) {
		w.cable(at(d+1, 1), at((d+1)%4+1, 2))
	}
	w.queued(10e6) // of 100 Mbit/s
	w.connectAll()
	w.pass(4 * time.Second)
	a, b := simHostAt(at(1, 9), 1), simHostAt(at(3, 9), 3)
	for _, s := range []simHost{a, b} {
		w.send(s.at, s.broadcast())
	}
	first := func(port uint16) map[uint32]int {
		outs := map[uint32]int{}
		for i := range uint16(40) {
			w.packets = 0
			w.send(a.at, a.frame(b, flow.UDP, 40000+i, port, 20, 0))
			w.send(a.at, a.frame(b, flow.UDP, 40000+i, port, 20, 0))
			w.pass(20 * time.Millisecond)
		}
		for _, f := range w.core.flows.byKey {
			if f.Key.Dst.Port == port && f.Key.SrcMAC == a.mac {
				outs[f.Path[0].Out]++
			}
		}
		return outs
	}
	if outs := first(53); len(outs) != 2 {
		t.Errorf("on idle links DNS takes %v", outs)
	}
	w.core.switches.port(at(1, 1)).count.TxRateBPS = 80e6
	if outs := first(5060); outs[2] != 40 || len(outs) != 1 {
		t.Errorf("beside a busy link VoIP takes %v", outs)
	}
	w.core.switches.port(at(1, 2)).count.TxRateBPS = 95e6
	w.pass(3500 * time.Millisecond)
	w.switches[1].entries = slices.DeleteFunc(w.switches[1].entries, func(e *openflow.FlowMod) bool { return e.Cookie&cookieKindMask == cookieFlow })
	w.packets = 0
	w.send(a.at, a.frame(b, flow.UDP, 40000, 5060, 20, 0)) // of a known flow, whose entry is lost
	if outs := first(25); len(outs) != 2 {
		t.Errorf("SMTP takes %v", outs)
	}
	for _, f := range w.core.flows.byKey {
		if f.Key.Dst.Port == 5060 && f.Path[0].Out != 2 {
			t.Errorf("%v has moved", f.Key)
		}
	}
}
