package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/internal/share/policy"
)

// Marks of the tests.
const (
	ef, admit, af41, cs1 = 46, 44, 34, 8
	testBoundBPS         = 1e6
)

// trusting has the named ports trusted.
func trusting(ports ...TrustedPort) func(*Config) {
	return func(c *Config) {
		c.Trust = &Trust{Ports: ports, EFBoundBPS: func(topology.Port, string) (uint64, error) { return testBoundBPS, nil }}
	}
}

// everywhere trusts ports at all switches.
func everywhere(names ...string) (ports []TrustedPort) {
	for _, name := range names {
		ports = append(ports, TrustedPort{Port: name})
	}
	return ports
}

// marked is a frame of a host with a mark.
func (s simHost) marked(to simHost, port uint16, dscp uint8) []byte {
	b := s.frame(to, flow.UDP, 40000, port, 20, 0)
	setDSCP(b, dscp)
	return b
}

// carried sends a frame, which must come out once where the other host is, and returns its queue, its
// mark and how many packets the controller got.
func (w *world) carried(from, to simHost, frame []byte) (queue openflow.Queue, mark uint8, asked uint64) {
	w.t.Helper()
	w.quiet()
	before := w.core.counters.PacketIns
	w.send(from.at, frame)
	got := w.delivered(to.at)
	if len(got) != 1 {
		w.t.Fatalf("%d of one packet came out at %v", len(got), to.at)
	}
	f, _ := ReadFrame(got[0].data)
	return got[0].queue, f.dscp, w.core.counters.PacketIns - before
}

// TestTrustedPorts: packets of a trusted port are queued by their marks, from the next packet on and
// without the controller; those of others by the classifier, which sets their marks anew.
func TestTrustedPorts(t *testing.T) {
	w, s := oneSwitch(t, trusting(everywhere("p1", "p2")...))
	w.carried(s[0], s[1], s[0].marked(s[1], 25, 0))
	w.carried(s[1], s[0], s[1].marked(s[0], 25, 0))
	for _, m := range append(policy.Marks(), policy.Mark{DSCP: 0, Class: "be"}, policy.Mark{DSCP: 63, Class: "be"}) {
		want := w.core.cfg.Queues[levelOf(m.Class)]
		if queue, mark, asked := w.carried(s[0], s[1], s[0].marked(s[1], 25, m.DSCP)); queue != want || mark != m.DSCP || asked > 0 {
			t.Errorf("%s: queue %d with mark %d, want %d; the controller got %d packets", m.Name, queue, mark, want, asked)
		}
		w.pass(250 * time.Millisecond) // within the bound of EF
	}
	before := w.core.counters.PacketIns
	for port := range uint16(1000) {
		w.carried(s[0], s[1], s[0].marked(s[1], 1000+port, af41))
	}
	if n := w.core.counters.PacketIns - before; n > 0 || len(w.core.flows.byKey) > 0 {
		t.Errorf("1000 new flows: %d packets at the controller, %d flows", n, len(w.core.flows.byKey))
	}
	// Of a port that is not trusted: SMTP that says that it is EF is BE, DNS is EF.
	for port, want := range map[uint16]uint8{25: 0, 53: ef} {
		w.carried(s[2], s[0], s[2].marked(s[0], port, admit))
		queue, mark, asked := w.carried(s[2], s[0], s[2].marked(s[0], port, admit))
		if queue != w.core.cfg.Queues[level(want)] || mark != want || asked > 0 {
			t.Errorf("port %d: queue %d, mark %d, %d packets at the controller", port, queue, mark, asked)
		}
	}
	w.send(s[0].at, s[0].broadcast())
	if a, b := w.delivered(s[1].at), w.delivered(s[2].at); len(a) != 1 || len(b) != 1 {
		t.Errorf("a broadcast came out %d and %d times", len(a), len(b))
	}
}

// TestMarksAcrossSwitches: marks hold on the whole way. A flow of a port that is not trusted has an
// entry at its first switch alone, and takes another way when a cable is cut.
func TestMarksAcrossSwitches(t *testing.T) {
	w := newWorld(t, trusting(everywhere("p9")...))
	var hosts []simHost
	for d := range topology.DPID(4) {
		w.add(d+1, 9)
		hosts = append(hosts, simHostAt(at(d+1, 9), byte(d+1)), simHostAt(at(d+1, 8), byte(d+11)))
	}
	for d := range topology.DPID(4) {
		w.cable(at(d+1, 1), at((d+1)%4+1, 2))
	}
	w.connectAll()
	w.pass(4 * time.Second)
	for _, s := range hosts {
		w.send(s.at, s.broadcast())
	}
	check := func() {
		t.Helper()
		for _, a := range hosts {
			for _, b := range hosts {
				if a.at == b.at {
					continue
				}
				w.carried(a, b, a.marked(b, 53, ef)) // DNS
				want := uint8(ef)
				if queue, mark, asked := w.carried(a, b, a.marked(b, 53, ef)); queue != 2 || mark != want || asked > 0 {
					t.Errorf("%v to %v: queue %d, mark %d, %d packets at the controller", a.at, b.at, queue, mark, asked)
				}
				if a.at.Number == 9 { // trusted
					if queue, mark, asked := w.carried(a, b, a.marked(b, 53, cs1)); queue != 0 || mark != cs1 || asked > 0 {
						t.Errorf("%v to %v: queue %d, mark %d, %d packets at the controller", a.at, b.at, queue, mark, asked)
					}
				}
				w.pass(250 * time.Millisecond)
			}
		}
	}
	check()
	for _, f := range w.core.flows.byKey {
		for _, hop := range f.Path {
			own := slices.ContainsFunc(w.switches[hop.Switch].entries, func(e *openflow.FlowMod) bool { return e.Cookie == cookieFlow|f.ID })
			if first := hop == f.Path[0]; own != first {
				t.Errorf("%v: entry at %v: %v", f.Key, hop.Switch, own)
			}
		}
	}
	w.unplug(at(1, 1))
	w.pass(8 * time.Second)
	check()
}

// TestIdlePathsOfStations: packets of a trusted port to a host take the shortest path whose links were idle
// most when the host was found, and so they do when that path is lost.
func TestIdlePathsOfStations(t *testing.T) {
	const first, last, middles = 1, 5, 3
	w := newWorld(t, trusting(everywhere("p9")...))
	for d := range topology.DPID(last) {
		w.add(d+1, 9)
	}
	for n := range uint32(middles) {
		w.cable(at(first, n+1), at(topology.DPID(n+2), 1))
		w.cable(at(topology.DPID(n+2), 2), at(last, n+1))
	}
	w.queued(10e6) // of 100 Mbit/s
	w.connectAll()
	w.pass(4 * time.Second)
	sends := func(byPort ...float64) {
		for i, bps := range byPort {
			w.core.switches.port(at(first, uint32(i+1))).count.TxRateBPS = bps
		}
	}
	from := simHostAt(at(first, 9), 1)
	w.send(from.at, from.broadcast())
	var hosts []simHost
	for i := range byte(8) {
		hosts = append(hosts, simHostAt(at(last, 9), 20+i))
		w.send(hosts[i].at, hosts[i].broadcast())
	}
	sends(80e6, 50e6, 0)
	for _, s := range hosts {
		w.carried(from, s, from.marked(s, 25, ef))
	}
	all := func(want uint32) {
		t.Helper()
		for _, s := range hosts {
			if out := w.core.switches.byID[first].entries[entryKey{s.mac, true}].out; out != want {
				t.Errorf("packets to %v leave by port %d, want %d", s.mac, out, want)
			}
		}
	}
	all(3)
	sends(80e6, 50e6, 95e6)
	w.carried(from, hosts[0], from.marked(hosts[0], 25, 0))
	all(3)
	w.do(w.core.PortStatus(w.now, first, &openflow.PortStatus{Reason: openflow.OFPPR_DELETE, Desc: w.switches[first].ports[2]}))
	all(2)
}

// TestEFBound: EF above the bound of its ingress port is dropped and counted there; what has another
// mark is not.
func TestEFBound(t *testing.T) {
	w, s := oneSwitch(t, trusting(TrustedPort{1, "p1"}, TrustedPort{1, "p2"}))
	w.carried(s[0], s[2], s[0].marked(s[2], 25, 0))
	w.carried(s[1], s[2], s[1].marked(s[2], 25, 0))
	const bytes = 14 + 28 + 20
	passed, n := 0, 4*testBoundBPS/8/bytes // in a second
	for i := range int(n) {
		if i%20 == 0 {
			w.now = w.now.Add(20 * time.Second / time.Duration(n))
		}
		w.quiet()
		w.send(s[0].at, s[0].marked(s[2], uint16(i), []uint8{ef, admit}[i%2]))
		passed += len(w.delivered(s[2].at))
	}
	if most := testBoundBPS*1.05/8/bytes + 60; float64(passed) > most || float64(passed) < 0.95*testBoundBPS/8/bytes {
		t.Errorf("%d of %d packets passed, want %.0f", passed, int(n), most)
	}
	w.carried(s[0], s[2], s[0].marked(s[2], 25, af41))
	w.carried(s[1], s[2], s[1].marked(s[2], 25, ef))
	w.pass(6 * time.Second)
	ports := w.core.Snapshot(false).Switches[0].Ports
	if got := ports[0].Trust; got == nil || got.Refused != "" || got.EFBoundBPS != testBoundBPS || got.DroppedPackets != uint64(n)-uint64(passed) {
		t.Errorf("port 1: %+v, want %d dropped", got, int(n)-passed)
	}
	if got := ports[1].Trust; got == nil || got.DroppedPackets != 0 || ports[2].Trust != nil {
		t.Errorf("port 2: %+v, port 3: %+v", got, ports[2].Trust)
	}
}

// TestNotTrusted: a port that cannot be trusted says why, and its packets go by the classifier.
func TestNotTrusted(t *testing.T) {
	noDSCP := []openflow.TableFeatures{{Properties: []openflow.TableFeature{{Type: openflow.OFPTFPT_APPLY_SETFIELD}}}}
	packetsOnly := *openVSwitchMeters
	packetsOnly.Capabilities = uint32(openflow.OFPMF_PKTPS)
	few := *openVSwitchMeters
	few.MaxMeter = 1
	for name, c := range map[string]struct {
		change func(*simSwitch)
		rate   error
		says   string
		by     openflow.Queue // what says EF and is SMTP goes to this queue
	}{
		"no meters":           {func(s *simSwitch) { s.features = nil }, nil, "has no meters", 0},
		"meters of packets":   {func(s *simSwitch) { s.features = &packetsOnly }, nil, "has no meters", 0},
		"one meter":           {func(s *simSwitch) { s.features = &few }, nil, "has 1 meters, and none for port 2", 0},
		"a refused meter":     {func(s *simSwitch) { s.noMeters = true }, nil, "refuses the meter", 0},
		"too few tables":      {func(s *simSwitch) { s.tables = 5 }, nil, "has 5 flow tables, and 6 are needed", 0},
		"it cannot set marks": {func(s *simSwitch) { s.described = noDSCP }, nil, "cannot set the DSCP field", 0},
		"no rate":             {func(*simSwitch) {}, errors.New("its rate is not known"), "its rate is not known", 0},
		"no queues":           {func(s *simSwitch) { s.plain = true }, nil, "", 0},
		"all there":           {func(*simSwitch) {}, nil, "", 2},
	} {
		w := newWorld(t, trusting(everywhere("p2")...))
		if c.rate != nil {
			w.core.cfg.Trust.EFBoundBPS = func(topology.Port, string) (uint64, error) { return 0, c.rate }
		}
		c.change(w.add(1, 3))
		w.connectAll()
		w.pass(3 * time.Second)
		a, b := simHostAt(at(1, 2), 2), simHostAt(at(1, 3), 3)
		w.send(b.at, b.broadcast())
		w.carried(a, b, a.marked(b, 25, 0))
		w.carried(a, b, a.marked(b, 25, 0))
		if queue, _, _ := w.carried(a, b, a.marked(b, 25, ef)); queue != c.by {
			t.Errorf("%s: queue %d, want %d", name, queue, c.by)
		}
		state := w.core.Snapshot(false).Switches[0].Ports[1].Trust
		if state == nil || !strings.Contains(state.Refused, c.says) || (state.Refused == "") != (c.says == "") {
			t.Errorf("%s: %+v, want %q", name, state, c.says)
		}
	}

	// A port between switches, and ports that are nowhere.
	w := newWorld(t, trusting(TrustedPort{1, "p1"}, TrustedPort{2, "p2"}, TrustedPort{1, "p7"}, TrustedPort{3, "p1"}, TrustedPort{0, "eth9"}))
	w.add(1, 2)
	w.add(2, 2)
	w.cable(at(1, 1), at(2, 1))
	w.connectAll()
	w.pass(4 * time.Second)
	now := w.core.Snapshot(false)
	if state := now.Switches[0].Ports[0].Trust; state == nil || !strings.Contains(state.Refused, "leads to switch 0000000000000002") {
		t.Errorf("a port between switches: %+v", state)
	}
	if state := now.Switches[1].Ports[1].Trust; state == nil || state.Refused != "" || now.Switches[1].Ports[0].Trust != nil {
		t.Errorf("a host's port: %+v", state)
	}
	if want := []string{"0000000000000001:p7", "0000000000000003:p1", "eth9"}; !slices.Equal(now.Untrusted, want) {
		t.Errorf("nowhere are %q, want %q", now.Untrusted, want)
	}
}

// TestForgedMarks: beside a switch that cannot clear marks, what comes from it is not believed.
func TestForgedMarks(t *testing.T) {
	w := newWorld(t, trusting(everywhere("p9")...))
	w.add(1, 9)
	w.add(2, 9).tables = 1
	w.cable(at(1, 1), at(2, 1))
	w.connectAll()
	w.pass(4 * time.Second)
	a, b, trusted := simHostAt(at(2, 2), 2), simHostAt(at(1, 2), 3), simHostAt(at(1, 9), 4)
	w.send(b.at, b.broadcast())
	for range 2 {
		w.carried(a, b, a.marked(b, 25, ef)) // SMTP
	}
	if queue, mark, _ := w.carried(a, b, a.marked(b, 25, ef)); queue != 0 || mark != 0 {
		t.Errorf("queue %d, mark %d", queue, mark)
	}
	w.carried(a, b, a.marked(b, 53, 0)) // DNS
	if queue, mark, _ := w.carried(a, b, a.marked(b, 53, 0)); queue != 2 || mark != ef {
		t.Errorf("DNS: queue %d, mark %d", queue, mark)
	}
	w.carried(trusted, a, trusted.marked(a, 25, ef)) // crosses as best effort
}

// TestMarksOutliveControllers: a controller that starts again loses no packet of trusted ports, knows
// the hosts again by what they send, and corrects what has changed meanwhile.
func TestMarksOutliveControllers(t *testing.T) {
	w, left, right := twoSwitchesOf(t, trusting(everywhere("p1", "p2", "p3", "p4")...))
	send := func(want openflow.Queue) {
		t.Helper()
		if queue, mark, _ := w.carried(left[0], right[0], left[0].marked(right[0], 25, ef)); queue != want || mark != ef {
			t.Fatalf("queue %d, mark %d", queue, mark)
		}
		w.carried(right[0], left[0], right[0].marked(left[0], 25, af41))
	}
	send(2)
	w.restartController()
	moved := right[1] // has moved while no controller was there
	moved.at = at(2, 4)
	for i := range 40 {
		if i == 4 {
			w.connect(1)
		}
		if i == 30 { // as late as Open vSwitch may be
			w.connect(2)
		}
		send(2)
		w.pass(250 * time.Millisecond)
	}
	w.pass(8 * time.Second)
	send(2)
	w.carried(moved, left[0], moved.marked(left[0], 25, 0))
	if queue, _, _ := w.carried(left[0], moved, left[0].marked(moved, 25, ef)); queue != 2 {
		t.Errorf("to where it has moved: queue %d", queue)
	}
	if _, _, asked := w.carried(left[0], right[0], left[0].marked(right[0], 4000, ef)); asked > 0 {
		t.Errorf("the controller got %d packets", asked)
	}

	// A host that sends stays known although the controller sees nothing of it, one that is silent
	// does not.
	for range 2 * stationAge / (30 * time.Second) {
		w.pass(30 * time.Second)
		w.carried(left[0], right[0], left[0].marked(right[0], 25, ef))
		w.carried(right[0], left[0], right[0].marked(left[0], 25, 0))
	}
	if w.core.stations.byMAC[left[0].mac] == nil || w.core.stations.byMAC[left[2].mac] != nil {
		t.Errorf("known are %v", w.core.stations.byMAC)
	}
}

// TestTrustIsTakenBack: a controller that is started without trusted ports, or with others, leaves no
// entry of the former.
func TestTrustIsTakenBack(t *testing.T) {
	w, s := oneSwitch(t, nil)
	again := func(change func(*Config)) {
		t.Helper()
		w.core.cfg.Trust = nil
		change(w.core.cfg)
		w.restartController()
		w.connect(1)
		w.pass(20 * time.Second)
		for _, one := range s {
			w.send(one.at, one.broadcast())
		}
	}
	queueOf := func(from simHost) openflow.Queue {
		t.Helper()
		for range 2 {
			w.carried(from, s[2], from.marked(s[2], 25, ef)) // SMTP
		}
		queue, _, _ := w.carried(from, s[2], from.marked(s[2], 25, ef))
		return queue
	}
	for i, c := range []struct {
		trusted []string
		first   openflow.Queue
		second  openflow.Queue
	}{{nil, 0, 0}, {[]string{"p1"}, 2, 0}, {[]string{"p2"}, 0, 2}, {nil, 0, 0}, {[]string{"p1", "p2"}, 2, 2}} {
		again(func(cfg *Config) {
			if c.trusted != nil {
				trusting(everywhere(c.trusted...)...)(cfg)
			}
		})
		if a, b := queueOf(s[0]), queueOf(s[1]); a != c.first || b != c.second {
			t.Errorf("step %d, %v: queues %d and %d, want %d and %d", i, c.trusted, a, b, c.first, c.second)
		}
		for _, e := range w.switches[1].entries {
			used := e.TableID == 0
			if c.trusted != nil {
				used = e.TableID > 0 || e.Cookie&cookieKindMask != cookieFlow && e.Cookie&cookieKindMask != cookieStation
			}
			if !used {
				t.Errorf("step %d: an entry is left: table %d, cookie %#x, priority %d", i, e.TableID, e.Cookie, e.Priority)
			}
		}
		if n := len(w.switches[1].meters); n != len(c.trusted) && c.trusted != nil {
			t.Errorf("step %d: %d meters", i, n)
		}
	}
}

// TestStationsOfTrustedPorts: what a trusted port sends from addresses that are not learned goes on,
// and is no more than the switch's meter passes.
func TestStationsOfTrustedPorts(t *testing.T) {
	w, s := oneSwitch(t, trusting(everywhere("p1")...))
	for i := range 3 * maxStationsPerPort {
		one := s[0]
		one.mac = openflow.MAC{2, 7, 0, 0, byte(i >> 8), byte(i)}
		w.carried(one, s[1], one.marked(s[1], 25, af41))
	}
	if n := w.core.switches.byID[1].ports[1].stations; n > maxStationsPerPort {
		t.Errorf("%d stations", n)
	}
	if n := len(w.core.switches.byID[1].marks.sources); n > maxStationsPerPort {
		t.Errorf("%d entries of stations", n)
	}
	// One that moves to another port is known there.
	moved := s[0]
	moved.at = at(1, 3)
	w.pass(2 * time.Second)
	w.carried(moved, s[1], moved.marked(s[1], 25, 0))
	w.carried(s[1], moved, s[1].marked(moved, 25, 0))
	moved.at = at(1, 1)
	w.pass(2 * time.Second)
	w.carried(moved, s[1], moved.marked(s[1], 25, 0))
	if _, _, asked := w.carried(moved, s[1], moved.marked(s[1], 26, ef)); asked > 0 {
		t.Errorf("back again: %d packets at the controller", asked)
	}
}

// TestRoutedFromTrustedPort: packets to a gateway are classified as those of other ports, and have the
// mark of their class on the way.
func TestRoutedFromTrustedPort(t *testing.T) {
	for _, v := range versions {
		w := newWorld(t, func(c *Config) {
			c.Routes = mustRoutes(t)
			trusting(everywhere("p1", "p2", "p3")...)(c)
		})
		w.add(1, 9)
		w.add(2, 9)
		w.cable(at(1, 9), at(2, 9))
		w.connectAll()
		w.pass(4 * time.Second)
		a := routedHost{simHostAt(at(1, 1), 1), v.address(1, 11), v.gateway(1)}
		b := routedHost{simHostAt(at(2, 2), 2), v.address(2, 12), v.gateway(2)}
		for _, one := range []routedHost{a, b} {
			w.quiet()
			w.send(one.at, one.says(true, one.gateway))
			if len(w.delivered(one.at)) == 0 {
				t.Fatalf("%v: the gateway does not answer", one.addr)
			}
		}
		for range 2 {
			w.carried(a.simHost, b.simHost, a.packet(b.addr, 53, 64))
		}
		if queue, mark, asked := w.carried(a.simHost, b.simHost, a.packet(b.addr, 53, 64)); queue != 2 || mark != ef || asked > 0 {
			t.Errorf("%v: queue %d, mark %d, %d packets at the controller", a.addr, queue, mark, asked)
		}
	}
}

// TestTrustedPortBecomesLink: what a trusted port had, entries of stations and of gateways among it, is
// gone when it leads to another switch.
func TestTrustedPortBecomesLink(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Routes = mustRoutes(t)
		trusting(everywhere("p1")...)(c)
	})
	w.add(1, 3)
	w.add(2, 3)
	w.cable(at(1, 1), at(2, 1))
	w.connect(1)
	w.pass(4 * time.Second)
	behind := simHostAt(at(1, 1), 7) // of the other switch, which is not connected yet
	w.send(behind.at, behind.marked(simHostAt(at(1, 3), 8), 25, 0))
	own := func() (list []string) {
		for _, e := range w.switches[1].entries {
			kind := e.Cookie & cookieKindMask
			if in := e.Match.Field(openflow.OFPXMT_OFB_IN_PORT); in != nil && in.Number() == 1 && (kind == cookieMark || kind == cookieSource) {
				list = append(list, fmt.Sprintf("table %d priority %d", e.TableID, e.Priority))
			}
		}
		return list
	}
	if n := len(own()); n != 8 || len(w.switches[1].meters) != 1 {
		t.Fatalf("a trusted port has %v, %d meters", own(), len(w.switches[1].meters))
	}
	w.connect(2)
	w.pass(6 * time.Second)
	if got := own(); !slices.Equal(got, []string{"table 0 priority 20"}) || len(w.switches[1].meters) > 0 {
		t.Errorf("a link has %v, %d meters", got, len(w.switches[1].meters))
	}
}

// TestSecondLookMarks: what the second look corrects has another mark.
func TestSecondLookMarks(t *testing.T) {
	w, s := oneSwitch(t, trusting(everywhere("p3")...))
	var verdict apps.Level
	for range 3 {
		for range 200 {
			w.packets = 0
			w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 8000, 0))
		}
		w.pass(6 * time.Second)
		if f := w.flowTo(53); f != nil {
			verdict = f.Verdict.Level
		}
	}
	queue, mark, _ := w.carried(s[0], s[1], s[0].frame(s[1], flow.UDP, 40000, 53, 8000, 0))
	if verdict != apps.BE || queue != 0 || mark != 0 {
		t.Errorf("%v: queue %d, mark %d", verdict, queue, mark)
	}
}

// TestMarkEntries: a trusted port has two entries of its own.
func TestMarkEntries(t *testing.T) {
	count := func(ports int) int {
		var names []string
		for i := range ports {
			names = append(names, fmt.Sprint("p", i+1))
		}
		w := newWorld(t, trusting(everywhere(names...)...))
		w.add(1, 40)
		w.connectAll()
		w.pass(3 * time.Second)
		return len(w.switches[1].entries)
	}
	if one, many := count(1), count(31); many-one != 60 || one > 70 {
		t.Errorf("%d entries with one trusted port, %d with 31", one, many)
	}
}
