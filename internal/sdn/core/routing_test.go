package core

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// versions are those of IP. Of each, the networks 1 and 2 have gateways.
var versions = []version{{4, "198.18.%d.%d", 24}, {6, "2001:db8:%x::%x", 64}}

type version struct {
	number int
	format string // of an address, by network and host
	bits   int
}

func (v version) address(network, number byte) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(v.format, network, number))
}

func (v version) gateway(network byte) netip.Addr { return v.address(network, 1) }

func (v version) String() string { return fmt.Sprintf("IPv%d", v.number) }

func (v version) route(to, via string) Route {
	return Route{netip.MustParsePrefix(to), netip.MustParseAddr(via)}
}

func mustRoutes(t testing.TB, static ...Route) *Routes {
	t.Helper()
	var gateways []netip.Prefix
	for _, v := range versions {
		for network := range byte(2) {
			gateways = append(gateways, netip.PrefixFrom(v.gateway(network+1), v.bits))
		}
	}
	r, err := NewRoutes(gateways, static)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// routedWorld is two networks: a host of the first at one end of three switches,
// two of the second at the other.
func routedWorld(t testing.TB, v version, static ...Route) (w *world, a, b, c routedHost) {
	w = newWorld(t, func(c *Config) { c.Routes = mustRoutes(t, static...) })
	w.add(1, 2)
	w.add(2, 2)
	w.add(3, 3)
	w.cable(at(1, 2), at(2, 1))
	w.cable(at(2, 2), at(3, 1))
	w.connectAll()
	w.pass(4 * time.Second)
	one := func(p topology.Port, network, number byte) routedHost {
		return routedHost{simHostAt(p, number), v.address(network, number), v.gateway(network)}
	}
	return w, one(at(1, 1), 1, 11), one(at(3, 2), 2, 12), one(at(3, 3), 2, 13)
}

// forEach runs a test with both versions of IP.
func forEach(t *testing.T, test func(*testing.T, version)) {
	for _, v := range versions {
		t.Run(v.String(), func(t *testing.T) { test(t, v) })
	}
}

// routedHost is a host with its address and that of its network's gateway.
type routedHost struct {
	simHost
	addr, gateway netip.Addr
}

// askGateways has hosts ask for their gateways, by which they are known.
func (w *world) askGateways(hosts ...routedHost) {
	for _, s := range hosts {
		w.send(s.at, s.says(true, s.gateway))
	}
}

// says is a request for an address, or the answer to the gateway's.
func (s routedHost) says(request bool, target netip.Addr) []byte {
	to := gatewayMAC
	if s.addr.Is4() {
		operation := byte(2)
		if request {
			to, operation = broadcastMAC, 1
		}
		b := slices.Concat(to[:], s.mac[:], []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, operation}, s.mac[:], s.addr.AsSlice())
		return slices.Concat(b, to[:], target.AsSlice())
	}
	kind, flags, option, about, dst := byte(neighbourAdvertisement), byte(flagSolicited|flagOverride), byte(optionTargetMAC), s.addr, target
	if request {
		end := target.As16()
		to = openflow.MAC{0x33, 0x33, 0xff, end[13], end[14], end[15]}
		kind, flags, option, about, dst = neighbourSolicitation, 0, optionSourceMAC, target, netip.MustParseAddr("ff02::1:ff00:0")
	}
	body := slices.Concat([]byte{kind, 0, 0, 0, flags, 0, 0, 0}, about.AsSlice(), []byte{option, 1}, s.mac[:])
	return s.icmp(to, dst, neighbourHops, body)
}

// ip is a packet to an address, by a host or a gateway.
func (s routedHost) ip(by openflow.MAC, to netip.Addr, proto, hops byte, upper []byte) []byte {
	b := slices.Concat(by[:], s.mac[:])
	if s.addr.Is4() {
		header := append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, hops, proto, 0, 0}, s.addr.AsSlice()...)
		binary.BigEndian.PutUint16(header[2:], uint16(20+len(upper)))
		return slices.Concat(b, []byte{8, 0}, header, to.AsSlice(), upper)
	}
	header := append([]byte{6 << 4, 0, 0, 0, 0, 0, proto, hops}, s.addr.AsSlice()...)
	binary.BigEndian.PutUint16(header[4:], uint16(len(upper)))
	return slices.Concat(b, []byte{0x86, 0xdd}, header, to.AsSlice(), upper)
}

// icmp is an ICMP message with its checksum.
func (s routedHost) icmp(by openflow.MAC, to netip.Addr, hops byte, body []byte) []byte {
	f := familyOf(s.addr)
	binary.BigEndian.PutUint16(body[2:], checksum(pseudoHeader(s.addr, to, len(body)), body))
	return s.ip(by, to, f.icmp, hops, body)
}

func (s routedHost) ping(to netip.Addr) []byte {
	return s.icmp(gatewayMAC, to, 64, []byte{familyOf(s.addr).echoRequest, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3})
}

// packet is UDP to a host of another network.
func (s routedHost) packet(to netip.Addr, port uint16, hops byte) []byte {
	return s.ip(gatewayMAC, to, flow.UDP, hops, datagram(40000, port))
}

func datagram(src, dst uint16) []byte {
	b := make([]byte, 48)
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return b
}

// TestRouting: a host finds its gateway, the next hop is asked for while the
// first packet waits, and the flow's other packets are routed by the first switch
// alone, both ways, in the queue of their class on the whole path.
func TestRouting(t *testing.T) { forEach(t, testRouting) }

func testRouting(t *testing.T, v version) {
	w, a, b, _ := routedWorld(t, v)
	w.quiet()
	w.send(a.at, a.says(true, a.gateway))
	got := w.delivered(a.at)
	if len(got) != 1 {
		t.Fatalf("%d answers of the gateway", len(got))
	}
	kind := familyOf(a.addr).etherType
	if a.addr.Is4() {
		kind = etherARP
	}
	if said, ok := readResolution(kind, got[0].data); !ok || said.request || said.mac != gatewayMAC || said.ip != a.gateway || openflow.MAC(got[0].data) != a.mac {
		t.Errorf("the gateway answers %+v", said)
	}
	w.quiet()
	w.send(a.at, a.packet(b.addr, 53, 64))
	got = w.delivered(b.at)
	if len(got) != 1 {
		t.Fatalf("%d frames, want the gateway's question", len(got))
	}
	if asked, ok := readResolution(kind, got[0].data); !ok || !asked.request || asked.target != b.addr || asked.asker != b.gateway || asked.mac != gatewayMAC {
		t.Errorf("the gateway asks %+v", asked)
	}
	w.send(b.at, b.says(false, b.gateway))
	checkRouted(t, w, w.delivered(b.at), b, 63)

	before := w.core.counters.PacketIns
	w.send(a.at, a.packet(b.addr, 53, 64))
	checkRouted(t, w, w.delivered(b.at), b, 63)
	w.quiet()
	w.send(b.at, b.ip(gatewayMAC, a.addr, flow.UDP, 64, datagram(53, 40000)))
	checkRouted(t, w, w.delivered(a.at), a, 63)
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

	// The host that answers moves to another MAC address.
	w.pass(2 * time.Second)
	w.quiet()
	moved := b
	moved.simHost = simHostAt(b.at, 99)
	w.send(b.at, moved.says(true, b.gateway))
	w.quiet()
	w.send(a.at, a.packet(b.addr, 53, 64))
	checkRouted(t, w, w.delivered(b.at), moved, 63)
}

// checkRouted expects one packet for a host from its gateway, in the queue of EF.
func checkRouted(t *testing.T, w *world, got []delivery, to routedHost, hops byte) {
	t.Helper()
	if len(got) != 1 {
		t.Fatalf("%d came out", len(got))
	}
	f := got[0].data
	if openflow.MAC(f) != to.mac || openflow.MAC(f[6:12]) != gatewayMAC || f[hopsAt(f)] != hops {
		t.Errorf("%v > %v with TTL %d, want %v > %v with %d", openflow.MAC(f[6:12]), openflow.MAC(f), f[hopsAt(f)], gatewayMAC, to.mac, hops)
	}
	if want := w.core.cfg.Queues[apps.EF]; got[0].queue != want {
		t.Errorf("queue %d, want %d", got[0].queue, want)
	}
}

// TestRoutingRestart: another controller takes over what was routed.
func TestRoutingRestart(t *testing.T) { forEach(t, testRoutingRestart) }

func testRoutingRestart(t *testing.T, v version) {
	w, a, b, _ := routedWorld(t, v)
	w.askGateways(a, b)
	w.send(a.at, a.packet(b.addr, 53, 64))
	w.send(a.at, a.ping(b.addr))
	w.quiet()
	cfg := *w.core.cfg
	cfg.FirstFlowID = 1 << 30
	w.core = New(cfg)
	w.connectAll()
	w.pass(12 * time.Second)
	fl := w.flowTo(53)
	if fl == nil || fl.next != b.mac || fl.adopted || len(fl.Path) != 3 {
		t.Fatalf("taken over: %+v", fl)
	}
	w.quiet()
	w.send(a.at, a.packet(b.addr, 53, 64))
	checkRouted(t, w, w.delivered(b.at), b, 63)
	before := w.core.counters.PacketIns
	w.send(a.at, a.ping(b.addr))
	if got := w.delivered(b.at); len(got) != 1 || w.core.counters.PacketIns != before {
		t.Errorf("a ping whose flow was taken over: %d came out, %d asked for", len(got), w.core.counters.PacketIns-before)
	}
}

// TestSilentNeighbour: a host that only listens is asked whether it is there while
// something is routed to it, and that goes on for as long as it answers.
func TestSilentNeighbour(t *testing.T) {
	forEach(t, func(t *testing.T, v version) {
		w, a, b, _ := routedWorld(t, v)
		w.askGateways(a, b)
		w.send(a.at, a.packet(b.addr, 53, 64))
		asked := 0
		for began := w.now; w.now.Sub(began) < 2*stationAge; {
			w.quiet()
			w.pass(20 * time.Second)
			for _, d := range w.delivered(b.at) {
				if r, ok := readResolution(uint16(d.data[12])<<8|uint16(d.data[13]), d.data); ok && r.target == b.addr {
					asked++
					w.send(b.at, b.says(false, b.gateway))
				}
			}
			w.quiet()
			before := w.core.counters.PacketIns
			w.send(a.at, a.packet(b.addr, 53, 64))
			checkRouted(t, w, w.delivered(b.at), b, 63)
			if w.core.counters.PacketIns != before {
				t.Fatal("the flow has lost its entry")
			}
		}
		if asked == 0 || asked > 6 {
			t.Errorf("it is asked %d times in %v", asked, 2*stationAge)
		}
	})
}

// TestNotRouted: what cannot be routed is counted, and the sender is told.
func TestNotRouted(t *testing.T) { forEach(t, testNotRouted) }

func testNotRouted(t *testing.T, v version) {
	elsewhere := map[int]Route{4: v.route("203.0.113.0/24", "198.18.2.13"), 6: v.route("2001:db8:9::/48", "2001:db8:2::d")}[v.number]
	w, a, b, c := routedWorld(t, v, elsewhere)
	w.askGateways(a, c)
	f := familyOf(a.addr)
	complains := func(what string, kind, code byte, sent []byte) {
		t.Helper()
		w.quiet()
		w.send(a.at, sent)
		got := w.delivered(a.at)
		if len(got) != 1 {
			t.Fatalf("%s: %d frames come back", what, len(got))
		}
		checkComplaint(t, what, got[0].data, a.gateway, kind, code, sent)
	}
	complains("TTL 1", f.timeExceeded, 0, a.packet(b.addr, 53, 1))
	complains("a ping with TTL 1", f.timeExceeded, 0, a.icmp(gatewayMAC, b.addr, 1, []byte{f.echoRequest, 0, 0, 0, 0, 0, 0, 1}))
	complains("no route", f.unreachable, 0, a.packet(v.address(77, 1), 53, 64))
	w.send(a.at, a.packet(elsewhere.To.Addr().Next(), 53, 64)) // by the router at c
	checkRouted(t, w, w.delivered(c.at), c, 63)
	for port := range uint16(20) {
		w.send(a.at, a.packet(v.address(2, 77), 1000+port, 64))
	}
	if n := len(w.core.router.pending[v.address(2, 77)].packets); n != maxWaiting {
		t.Errorf("%d packets wait", n)
	}
	w.quiet()
	w.pass(5 * time.Second)
	k := w.core.counters
	if k.Routed.TTL != 2 || k.Routed.Nowhere != 1 || k.Routed.Unanswered != 20 || len(w.core.router.pending) != 0 {
		t.Errorf("%+v, %d pending", k, len(w.core.router.pending))
	}
	told := 0
	for _, d := range w.delivered(a.at) {
		if h, ok := readIP(d.data); ok && h.proto == f.icmp && len(h.upper) > 1 && h.upper[0] == f.unreachable && h.upper[1] == f.noAnswer {
			told++
		}
	}
	if told != maxWaiting {
		t.Errorf("the sender is told %d times that nobody answers, want %d", told, maxWaiting)
	}
	// Nobody is told of an error about an error, or sees a packet for a group routed.
	w.quiet()
	w.send(a.at, a.icmp(gatewayMAC, v.address(77, 1), 64, []byte{f.unreachable, 0, 0, 0, 0, 0, 0, 0}))
	group := map[int]string{4: "224.0.0.251", 6: "ff05::1"}[v.number]
	w.send(a.at, a.packet(netip.MustParseAddr(group), 53, 64))
	if got := w.delivered(a.at); len(got) != 0 {
		t.Errorf("%x comes back", got[0].data)
	}
	// A host cannot be the gateway.
	false1 := c
	false1.mac = gatewayMAC
	w.send(c.at, false1.says(true, v.address(2, 2)))
	false2 := c
	false2.addr = c.gateway
	w.send(c.at, false2.says(true, v.address(2, 2)))
	if _, known := w.core.router.neighbours[c.gateway]; known || w.core.stations.byMAC[gatewayMAC] != nil {
		t.Error("a host is taken for the gateway")
	}
}

// checkComplaint expects a gateway's ICMP error about what was sent.
func checkComplaint(t *testing.T, what string, frame []byte, from netip.Addr, kind, code byte, sent []byte) {
	t.Helper()
	h, ok := readIP(frame)
	if !ok || h.proto != familyOf(from).icmp || h.src != from || h.hops != gatewayHops || h.upper[0] != kind || h.upper[1] != code || checksum(pseudoHeader(h.src, h.dst, len(h.upper)), h.upper) != 0 {
		t.Fatalf("%s: %x comes back", what, frame)
	}
	if from.Is4() && checksum(frame[14:34]) != 0 {
		t.Errorf("%s: the header's checksum is wrong: %x", what, frame)
	}
	if !bytes.Equal(h.upper[icmpBytes:], sent[ethernetBytes:]) {
		t.Errorf("%s: quotes %x", what, h.upper[icmpBytes:])
	}
}

// TestGatewayPing: a gateway answers pings, and nothing else; of IPv6 also by its
// address of the link.
func TestGatewayPing(t *testing.T) {
	forEach(t, func(t *testing.T, v version) {
		w, a, _, _ := routedWorld(t, v)
		gateways := []netip.Addr{a.gateway, v.gateway(2)}
		if v.number == 6 {
			gateways = append(gateways, linkLocal.Addr())
		}
		for _, to := range gateways {
			w.quiet()
			w.send(a.at, append(a.ping(to), 0, 0, 0)) // the frame is padded
			got := w.delivered(a.at)
			if len(got) != 1 {
				t.Fatalf("%d answers of %v", len(got), to)
			}
			h, ok := readIP(got[0].data)
			if !ok || h.src != to || h.dst != a.addr || h.upper[0] != familyOf(to).echoReply || h.upper[7] != 9 || len(h.upper) != 11 || checksum(pseudoHeader(h.src, h.dst, len(h.upper)), h.upper) != 0 {
				t.Errorf("%x", got[0].data)
			}
		}
		w.quiet()
		w.send(a.at, a.packet(a.gateway, 53, 64))
		if got := w.delivered(a.at); len(got) != 0 {
			t.Errorf("a gateway answers UDP: %x", got[0].data)
		}
	})
}

// TestLinkLocal: what is of one link stays there, and a router that is only known by
// its address of the link is one.
func TestLinkLocal(t *testing.T) {
	v := versions[1]
	w, a, b, c := routedWorld(t, v, v.route("::/0", "fe80::13"))
	for _, s := range []routedHost{a, b} {
		w.send(s.at, s.says(true, linkLocal.Addr()))
	}
	near := a
	near.addr = netip.MustParseAddr("fe80::11")
	for what, frame := range map[string][]byte{"from the link": near.packet(b.addr, 53, 64), "to the link": a.packet(netip.MustParseAddr("fe80::77"), 53, 64)} {
		w.quiet()
		w.send(a.at, frame)
		got := w.delivered(a.at)
		if len(got) != 1 {
			t.Fatalf("%s: %d frames come back", what, len(got))
		}
		h, _ := readIP(frame)
		from, _ := w.core.cfg.Routes.speaker(h.src)
		checkComplaint(t, what, got[0].data, from, inet6.unreachable, inet6.beyondScope, frame)
	}
	w.quiet()
	w.send(a.at, a.packet(netip.MustParseAddr("2001:db8:99::1"), 53, 64))
	router := c
	router.addr = netip.MustParseAddr("fe80::13")
	if got := w.delivered(c.at); len(got) != 1 {
		t.Fatalf("%d questions for the router", len(got))
	}
	w.send(c.at, router.says(false, linkLocal.Addr()))
	checkRouted(t, w, w.delivered(c.at), c, 63)
}

// TestFragments: fragments and packets with extension headers of whatever kind are
// routed one by one, as best effort, and leave no entries of their own.
func TestFragments(t *testing.T) {
	for _, c := range []struct {
		name     string
		v        version
		change   func(frame []byte) []byte
		entries  bool
		complain bool // about a TTL of 1
	}{
		{"the first fragment", versions[0], func(b []byte) []byte { b[14+6] = 0x20; return b }, false, true},
		{"a later fragment", versions[0], func(b []byte) []byte { b[14+7] = 10; return b }, false, false},
		{"the first IPv6 fragment", versions[1], extension(44, flow.UDP, 0, 0, 1, 0, 0, 0, 7), false, true},
		{"a later IPv6 fragment", versions[1], extension(44, flow.UDP, 0, 0, 8, 0, 0, 0, 7), false, false},
		{"a later fragment of extension headers", versions[1], extension(44, 60, 0, 0, 8, 0, 0, 0, 7), false, false},
		// Open vSwitch finds the ports behind those, too.
		{"hop by hop", versions[1], extension(0, flow.UDP, 0, 1, 4, 0, 0, 0, 0), true, false},
		{"an extension that is cut off", versions[1], extension(60, flow.UDP, 200, 1, 4, 0, 0, 0, 0), false, false},
		{"no next header", versions[1], func(b []byte) []byte { b[14+6] = 59; return b }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, a, b, _ := routedWorld(t, c.v)
			w.askGateways(a, b)
			for range 2 {
				w.quiet()
				w.send(a.at, c.change(a.packet(b.addr, 53, 64)))
				got := w.delivered(b.at)
				if len(got) != 1 {
					t.Fatalf("%d came out", len(got))
				}
				if f := got[0].data; openflow.MAC(f) != b.mac || f[hopsAt(f)] != 63 || !c.entries && got[0].queue != w.core.cfg.Queues[apps.BE] {
					t.Errorf("in queue %d: %x", got[0].queue, f)
				}
				w.pass(2 * time.Second)
			}
			if n := len(w.core.flows.byKey); (n > 0) != c.entries {
				t.Errorf("%d flows", n)
			}
			if c.entries { // the switch drops it
				return
			}
			w.quiet()
			w.send(a.at, c.change(a.packet(b.addr, 53, 1)))
			if got := w.delivered(a.at); (len(got) == 1) != c.complain {
				t.Errorf("%d complaints about a TTL of 1", len(got))
			}
		})
	}
}

// extension puts an extension header into a packet of UDP. RFC 8200, section 4.
func extension(kind byte, header ...byte) func([]byte) []byte {
	return func(frame []byte) []byte {
		frame[14+6] = kind
		binary.BigEndian.PutUint16(frame[14+4:], uint16(len(frame)-54+len(header)))
		return slices.Insert(frame, 54, header...)
	}
}

// TestNeighbourBounds: a host that makes up addresses leaves room to those at
// other ports.
func TestNeighbourBounds(t *testing.T) {
	v := versions[1]
	w, a, b, c := routedWorld(t, v)
	liar := c
	for i := range maxAddressesPerPort + 10 {
		liar.addr = netip.MustParseAddr(fmt.Sprintf("2001:db8:2::1:%x", i))
		w.packets = 0
		w.send(liar.at, liar.says(true, c.gateway))
	}
	if n := len(w.core.router.neighbours); n != maxAddressesPerPort {
		t.Errorf("%d addresses are known", n)
	}
	for i := range maxPending {
		w.packets = 0
		w.send(c.at, c.packet(netip.MustParseAddr(fmt.Sprintf("2001:db8:1::2:%x", i)), 53, 64))
	}
	if n := len(w.core.router.pending); n != maxPending/portPart {
		t.Errorf("%d next hops are asked for", n)
	}
	w.quiet()
	w.send(b.at, b.says(true, b.gateway))
	w.send(a.at, a.packet(b.addr, 53, 64))
	if got := w.delivered(b.at); len(got) != 2 || openflow.MAC(got[1].data) != b.mac {
		t.Errorf("%d came out", len(got))
	}
	w.pass(stationAge + 5*time.Second)
	if p := w.core.switches.byID[3].ports[3]; p.addresses != 0 || len(w.core.router.neighbours) != 0 {
		t.Errorf("%d addresses at the port, %d in all, after they are forgotten", p.addresses, len(w.core.router.neighbours))
	}
}

// TestWeakAnswer: who answers for others, and says so, does not take their place.
func TestWeakAnswer(t *testing.T) {
	w, _, b, c := routedWorld(t, versions[1])
	w.send(b.at, b.says(true, b.gateway))
	w.send(c.at, c.says(true, c.gateway))
	w.pass(2 * time.Second)
	proxy := c
	proxy.addr = b.addr
	weak := proxy.says(false, b.gateway)
	weak[58] &^= flagOverride
	weak[56], weak[57] = 0, 0
	h, _ := readIP(weak)
	binary.BigEndian.PutUint16(weak[56:], checksum(pseudoHeader(h.src, h.dst, len(h.upper)), h.upper))
	w.send(c.at, weak)
	if got := w.core.router.neighbours[b.addr].mac; got != b.mac {
		t.Errorf("%v has the address of %v", got, b.mac)
	}
	w.send(c.at, proxy.says(false, b.gateway)) // and without that it does
	if got := w.core.router.neighbours[b.addr].mac; got != c.mac {
		t.Errorf("%v has the address that %v says to have", got, c.mac)
	}
}

// TestScannerLeavesRoom: a host that looks for addresses which nobody has does not
// keep others from theirs.
func TestScannerLeavesRoom(t *testing.T) {
	forEach(t, func(t *testing.T, v version) {
		w, a, _, c := routedWorld(t, v)
		w.askGateways(a, c)
		for i := range byte(200) {
			w.packets = 0
			w.send(a.at, a.packet(v.address(2, 40+i), 53, 64))
			w.send(a.at, a.packet(v.address(1, 40+i), 53, 64))
		}
		w.quiet()
		w.send(c.at, c.packet(v.address(1, 30), 53, 64))
		if w.core.router.pending[v.address(1, 30)] == nil {
			t.Errorf("%d next hops are asked for, and that of another port's host is not", len(w.core.router.pending))
		}
	})
}

// TestNextHop: the longest prefix wins.
func TestNextHop(t *testing.T) {
	v := versions[0]
	r := mustRoutes(t, v.route("0.0.0.0/0", "198.18.1.9"), v.route("203.0.113.0/24", "198.18.2.9"), v.route("203.0.113.128/25", "198.18.2.8"), v.route("198.18.2.64/26", "198.18.1.7"), v.route("198.18.0.0/16", "198.18.1.6"),
		v.route("2001:db8:8::/48", "2001:db8:1::9"), v.route("2001:db8:8:1::/64", "fe80::9"))
	for to, want := range map[string]string{
		"192.0.2.1": "198.18.1.9", "203.0.113.1": "198.18.2.9", "203.0.113.200": "198.18.2.8",
		"198.18.1.5": "198.18.1.5", "198.18.2.5": "198.18.2.5", "198.18.2.65": "198.18.1.7", "198.18.3.1": "198.18.1.6",
		"2001:db8:1::5": "2001:db8:1::5", "2001:db8:8:2::1": "2001:db8:1::9", "2001:db8:8:1::1": "fe80::9",
	} {
		if hop, ok := r.nextHop(netip.MustParseAddr(to)); !ok || hop.String() != want {
			t.Errorf("%s goes to %v, want %s", to, hop, want)
		}
	}
	for _, to := range []string{"192.0.2.1", "2001:db8:9::1"} {
		if _, ok := mustRoutes(t).nextHop(netip.MustParseAddr(to)); ok {
			t.Error("a route to everywhere")
		}
	}
}

// TestRoutedEverywhere: in any line of switches, hosts of either version of IP at
// any of them reach each other through the gateways; a packet is as it was but for its
// MAC addresses and one hop, and the queue of its class is that of all switches.
func TestRoutedEverywhere(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, func(c *Config) { c.Routes = mustRoutes(t) })
		n := rapid.IntRange(1, 4).Draw(rt, "switches")
		for i := range n {
			w.add(topology.DPID(i+1), 8)
			if i > 0 {
				w.cable(at(topology.DPID(i), 1), at(topology.DPID(i+1), 2))
			}
		}
		var hosts []routedHost
		for i := range rapid.IntRange(2, 4).Draw(rt, "hosts") {
			v, network := rapid.SampledFrom(versions).Draw(rt, "version"), byte(1+i%2)
			p := at(topology.DPID(rapid.IntRange(1, n).Draw(rt, "switch")), uint32(3+i))
			hosts = append(hosts, routedHost{simHostAt(p, byte(10+i)), v.address(network, byte(10+i)), v.gateway(network)})
		}
		w.connectAll()
		w.pass(4 * time.Second)
		hops := byte(rapid.IntRange(2, 255).Draw(rt, "hops"))
		for _, a := range hosts {
			for _, b := range hosts {
				if a.addr.Is4() != b.addr.Is4() || a.gateway == b.gateway {
					continue
				}
				for i := range 2 {
					w.quiet()
					sent := a.packet(b.addr, 53, hops)
					w.send(a.at, sent)
					got := w.delivered(b.at)
					if len(got) == 1 && openflow.MAC(got[0].data) != b.mac { // the gateway asks
						w.send(b.at, b.says(false, b.gateway))
						got = w.delivered(b.at)
					}
					want := slices.Concat(b.mac[:], gatewayMAC[:], sent[12:])
					want[hopsAt(want)]--
					if len(got) != 1 || !bytes.Equal(got[0].data, want) || got[0].queue != w.core.cfg.Queues[apps.EF] {
						rt.Fatalf("%v to %v, packet %d: %+v, want %x", a.addr, b.addr, i, got, want)
					}
				}
				for i := range 2 { // an entry for pings is for those of one host
					w.quiet()
					before := w.core.counters.PacketIns
					w.send(a.at, a.ping(b.addr))
					if got := w.delivered(b.at); len(got) != 1 || openflow.MAC(got[0].data) != b.mac || i == 1 && w.core.counters.PacketIns != before {
						rt.Fatalf("%v pings %v: %+v", a.addr, b.addr, got)
					}
				}
				for _, hop := range w.flowTo(53).Path {
					queues := map[openflow.Queue]bool{}
					for _, e := range w.switches[hop.Switch].entries {
						if e.Cookie&cookieKindMask == cookieFlow && e.Match.Field(openflow.OFPXMT_OFB_IP_PROTO).Number() == flow.UDP {
							queue, _ := queueAndPort(e.Instructions)
							queues[queue] = true
						}
					}
					if len(queues) != 1 || !queues[w.core.cfg.Queues[apps.EF]] {
						rt.Fatalf("switch %v has flows in queues %v", hop.Switch, queues)
					}
				}
			}
		}
	})
}

// FuzzRouting: what hosts send does not harm.
func FuzzRouting(f *testing.F) {
	w, a, b, _ := routedWorld(f, versions[0])
	for _, v := range versions {
		_, a, b, _ := routedWorld(f, v)
		f.Add(a.packet(b.addr, 53, 64))
		f.Add(a.says(true, a.gateway))
		f.Add(a.says(false, a.gateway))
		f.Add(a.says(true, a.gateway)[:30])
		f.Add(a.packet(a.gateway, 53, 1)[:36])
		f.Add(a.ping(a.gateway))
	}
	f.Add(extension(44, flow.UDP, 0, 0, 8, 0, 0, 0, 7)(routedHost{b.simHost, versions[1].address(2, 12), netip.Addr{}}.packet(versions[1].address(1, 11), 53, 64)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		w.t = t
		if len(frame) > 14 && frame[0] != 0x33 {
			copy(frame, gatewayMAC[:])
		}
		w.send(a.at, frame)
		w.pass(250 * time.Millisecond)
		w.quiet()
	})
}
