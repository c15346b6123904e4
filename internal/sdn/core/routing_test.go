package core

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/appid/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

func mustRoutes(t testing.TB, static ...Route) *Routes {
	t.Helper()
	r, err := NewRoutes([]netip.Prefix{netip.MustParsePrefix("198.18.1.1/24"), netip.MustParsePrefix("198.18.2.1/24")}, static)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// routedWorld is two networks, 198.18.1 and 198.18.2: a station of the first at one
// end of three switches, two of the second at the other.
func routedWorld(t testing.TB, static ...Route) (w *world, a, b, c routedStation) {
	w = newWorld(t, func(c *Config) { c.Routes = mustRoutes(t, static...) })
	w.add(1, 2)
	w.add(2, 2)
	w.add(3, 3)
	w.cable(at(1, 2), at(2, 1))
	w.cable(at(2, 2), at(3, 1))
	w.connectAll()
	w.pass(4 * time.Second)
	return w, routedStation{stationAt(at(1, 1), 11), 1}, routedStation{stationAt(at(3, 2), 12), 2}, routedStation{stationAt(at(3, 3), 13), 2}
}

// routedStation is a station with its network: its address is 198.18.network.ip.
type routedStation struct {
	station
	network byte
}

func (s routedStation) address() []byte { return []byte{198, 18, s.network, s.ip} }

// arp is a request for an address, or the answer to the gateway's.
func (s routedStation) arp(request bool, target []byte) []byte {
	to, operation := bytes.Repeat([]byte{0xff}, 6), byte(1)
	if !request {
		to, operation = gatewayMAC[:], 2
	}
	b := append(append(bytes.Clone(to), s.mac[:]...), 8, 6, 0, 1, 8, 0, 6, 4, 0, operation)
	b = append(append(b, s.mac[:]...), s.address()...)
	return append(append(b, to...), target...)
}

// packet is UDP to a station of another network.
func (s routedStation) packet(to []byte, port uint16, ttl byte) []byte {
	b := s.frame(station{mac: gatewayMAC}, flow.UDP, 40000, port, 40, 0)
	b[14+8] = ttl
	copy(b[14+12:], s.address())
	copy(b[14+16:], to)
	return b
}

// TestRouting: a station finds its gateway, the next hop is asked for while the
// first packet waits, and the flow's other packets are routed by the first switch
// alone, both ways, in the queue of their class on the whole path.
func TestRouting(t *testing.T) {
	w, a, b, _ := routedWorld(t)
	w.quiet()
	w.send(a.at, a.arp(true, []byte{198, 18, 1, 1}))
	got := w.delivered(a.at)
	if len(got) != 1 {
		t.Fatalf("%d answers of the gateway", len(got))
	}
	if answer, ok := readARP(got[0].data); !ok || answer.request || answer.senderMAC != gatewayMAC || answer.targetIP != netip.AddrFrom4([4]byte(a.address())) || openflow.MAC(got[0].data) != a.mac {
		t.Errorf("the gateway answers %+v", answer)
	}
	w.quiet()
	w.send(a.at, a.packet(b.address(), 53, 64))
	got = w.delivered(b.at)
	if len(got) != 1 {
		t.Fatalf("%d frames, want the gateway's question", len(got))
	}
	if question, ok := readARP(got[0].data); !ok || !question.request || question.targetIP != netip.AddrFrom4([4]byte(b.address())) || question.senderIP.String() != "198.18.2.1" {
		t.Errorf("the gateway asks %+v", question)
	}
	w.send(b.at, b.arp(false, []byte{198, 18, 2, 1}))
	checkRouted(t, w, w.delivered(b.at), b, 63, true)

	before := w.core.counters.PacketIns
	w.send(a.at, a.packet(b.address(), 53, 64))
	checkRouted(t, w, w.delivered(b.at), b, 63, true)
	answer := b.packet(a.address(), 0, 64)
	binary.BigEndian.PutUint16(answer[14+20:], 53)
	binary.BigEndian.PutUint16(answer[14+22:], 40000)
	w.quiet()
	w.send(b.at, answer)
	checkRouted(t, w, w.delivered(a.at), a, 63, true)
	if asked := w.core.counters.PacketIns - before; asked != 0 {
		t.Errorf("%d packets came to the controller", asked)
	}
	for _, s := range w.switches {
		n := 0
		for _, e := range s.entries {
			if e.Cookie&cookieKindMask == cookieFlow {
				n++
			}
		}
		if n != 2 {
			t.Errorf("switch %v has %d entries of flows, want 2", s.dpid, n)
		}
	}

	// The station that answers moves to another address.
	w.pass(2 * time.Second)
	w.quiet()
	moved := b
	moved.station = stationAt(b.at, 99)
	moved.ip = b.ip
	w.send(b.at, moved.arp(true, []byte{198, 18, 2, 1}))
	w.quiet()
	w.send(a.at, a.packet(b.address(), 53, 64))
	checkRouted(t, w, w.delivered(b.at), moved, 63, true)
}

// checkRouted expects one packet for a station from its gateway.
func checkRouted(t *testing.T, w *world, got []delivery, to routedStation, ttl byte, ef bool) {
	t.Helper()
	if len(got) != 1 {
		t.Fatalf("%d came out", len(got))
	}
	f := got[0].data
	if openflow.MAC(f) != to.mac || openflow.MAC(f[6:12]) != gatewayMAC || f[14+8] != ttl {
		t.Errorf("%v > %v with TTL %d, want %v > %v with %d", openflow.MAC(f[6:12]), openflow.MAC(f), f[14+8], gatewayMAC, to.mac, ttl)
	}
	if ef && got[0].queue != w.core.cfg.Queues[0] {
		t.Errorf("queue %d", got[0].queue)
	}
}

// TestRoutingRestart: another controller takes over what was routed.
func TestRoutingRestart(t *testing.T) {
	w, a, b, _ := routedWorld(t)
	for _, s := range []routedStation{a, b} {
		w.send(s.at, s.arp(true, []byte{198, 18, s.network, 1}))
	}
	w.send(a.at, a.packet(b.address(), 53, 64))
	w.quiet()
	cfg := w.core.cfg
	cfg.FirstFlowID = 1 << 30
	w.core = New(cfg)
	w.connectAll()
	w.pass(12 * time.Second)
	fl := w.flowTo(53)
	if fl == nil || fl.next != b.mac || fl.adopted || len(fl.Path) != 3 {
		t.Fatalf("taken over: %+v", fl)
	}
	w.quiet()
	w.send(a.at, a.packet(b.address(), 53, 64))
	checkRouted(t, w, w.delivered(b.at), b, 63, true)
}

// TestNotRouted: what cannot be routed is counted, and the sender is told.
func TestNotRouted(t *testing.T) {
	w, a, b, c := routedWorld(t, Route{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParseAddr("198.18.2.13")})
	for _, s := range []routedStation{a, c} {
		w.send(s.at, s.arp(true, []byte{198, 18, s.network, 1}))
	}
	w.quiet()
	complains := func(what string, kind, code byte) {
		t.Helper()
		got := w.delivered(a.at)
		if len(got) != 1 {
			t.Fatalf("%s: %d frames come back", what, len(got))
		}
		h, ok := readIPv4(got[0].data)
		icmp := got[0].data[14+20:]
		if !ok || h.proto != 1 || icmp[0] != kind || icmp[1] != code || checksum(icmp) != 0 || checksum(got[0].data[14:34]) != 0 || h.src.String() != "198.18.1.1" {
			t.Errorf("%s: %x comes back", what, got[0].data)
		}
	}
	w.send(a.at, a.packet(b.address(), 53, 1))
	complains("TTL 1", icmpTimeExceeded, 0)
	w.send(a.at, a.packet([]byte{192, 0, 2, 1}, 53, 64))
	complains("no route", icmpUnreachable, 0)
	w.send(a.at, a.packet([]byte{203, 0, 113, 7}, 53, 64)) // by the router at c
	checkRouted(t, w, w.delivered(c.at), c, 63, true)
	for port := range uint16(20) {
		w.send(a.at, a.packet([]byte{198, 18, 2, 77}, 1000+port, 64))
	}
	if n := len(w.core.pending[netip.MustParseAddr("198.18.2.77")].packets); n != maxWaiting {
		t.Errorf("%d packets wait", n)
	}
	w.quiet()
	w.pass(5 * time.Second)
	k := w.core.counters
	if k.RoutedTTL != 1 || k.RoutedNowhere != 1 || k.RoutedUnanswered != 20 || len(w.core.pending) != 0 {
		t.Errorf("%+v, %d pending", k, len(w.core.pending))
	}
	// A station cannot be the gateway.
	w.quiet()
	false1 := c
	false1.mac = gatewayMAC
	w.send(c.at, false1.arp(true, []byte{198, 18, 2, 2}))
	false2 := c
	false2.ip = 1
	w.send(c.at, false2.arp(true, []byte{198, 18, 2, 2}))
	if _, known := w.core.neighbours[netip.MustParseAddr("198.18.2.1")]; known || w.core.hosts[gatewayMAC] != nil {
		t.Error("a station is taken for the gateway")
	}
}

// TestScannerLeavesRoom: a station that looks for addresses which nobody has does not
// keep others from theirs.
func TestScannerLeavesRoom(t *testing.T) {
	w, a, _, c := routedWorld(t)
	for _, s := range []routedStation{a, c} {
		w.send(s.at, s.arp(true, []byte{198, 18, s.network, 1}))
	}
	for i := range byte(200) {
		w.send(a.at, a.packet([]byte{198, 18, 2, 40 + i}, 53, 64))
		w.send(a.at, a.packet([]byte{198, 18, 1, 40 + i}, 53, 64))
	}
	w.quiet()
	w.send(c.at, c.packet([]byte{198, 18, 1, 30}, 53, 64))
	if w.core.pending[netip.MustParseAddr("198.18.1.30")] == nil {
		t.Errorf("%d next hops are asked for, and that of another port's station is not", len(w.core.pending))
	}
}

// TestGatewayPing: a gateway answers pings.
func TestGatewayPing(t *testing.T) {
	w, a, _, _ := routedWorld(t)
	w.quiet()
	ping := a.packet([]byte{198, 18, 1, 1}, 0, 64)
	ping[14+9] = 1
	icmp := ping[14+20:]
	clear(icmp)
	icmp[0], icmp[7] = icmpEchoRequest, 9
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
	w.send(a.at, ping)
	got := w.delivered(a.at)
	if len(got) != 1 {
		t.Fatalf("%d answers", len(got))
	}
	h, ok := readIPv4(got[0].data)
	icmp = got[0].data[14+20:]
	if !ok || h.src.String() != "198.18.1.1" || h.dst != netip.AddrFrom4([4]byte(a.address())) || icmp[0] != icmpEchoReply || icmp[7] != 9 || checksum(icmp) != 0 {
		t.Errorf("%x", got[0].data)
	}
}

// TestNextHop: the longest prefix wins.
func TestNextHop(t *testing.T) {
	route := func(to, via string) Route { return Route{netip.MustParsePrefix(to), netip.MustParseAddr(via)} }
	r := mustRoutes(t, route("0.0.0.0/0", "198.18.1.9"), route("203.0.113.0/24", "198.18.2.9"), route("203.0.113.128/25", "198.18.2.8"), route("198.18.2.64/26", "198.18.1.7"), route("198.18.0.0/16", "198.18.1.6"))
	for to, want := range map[string]string{
		"192.0.2.1": "198.18.1.9", "203.0.113.1": "198.18.2.9", "203.0.113.200": "198.18.2.8",
		"198.18.1.5": "198.18.1.5", "198.18.2.5": "198.18.2.5", "198.18.2.65": "198.18.1.7", "198.18.3.1": "198.18.1.6",
	} {
		if hop, ok := r.nextHop(netip.MustParseAddr(to)); !ok || hop.String() != want {
			t.Errorf("%s goes to %v, want %s", to, hop, want)
		}
	}
	if _, ok := mustRoutes(t).nextHop(netip.MustParseAddr("192.0.2.1")); ok {
		t.Error("a route to everywhere")
	}
}

// FuzzRouting: what stations send does not harm.
func FuzzRouting(f *testing.F) {
	w, a, b, _ := routedWorld(f)
	f.Add(a.packet(b.address(), 53, 64))
	f.Add(a.arp(true, []byte{198, 18, 1, 1}))
	f.Add(a.arp(true, []byte{198, 18, 1, 1})[:30])
	f.Add(a.packet([]byte{198, 18, 1, 1}, 53, 1)[:36])
	f.Fuzz(func(t *testing.T, frame []byte) {
		w.t = t
		if len(frame) > 14 {
			copy(frame, gatewayMAC[:])
		}
		w.send(a.at, frame)
		w.pass(250 * time.Millisecond)
		w.quiet()
	})
}
