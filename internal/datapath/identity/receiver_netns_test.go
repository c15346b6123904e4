//go:build netns

package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

// fromPeer has the neighbour send datagrams to a target, which need not take them.
func (b *bed) fromPeer(target netip.AddrPort, payload []byte, count int) {
	b.t.Helper()
	must.Succeed(b.t, testbed.InNetNS(b.host.PeerNetNSPath(), func() error {
		conn, err := net.ListenUDP("udp", nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		for range count {
			if _, err := conn.WriteToUDPAddrPort(payload, target); err != nil {
				return err
			}
		}
		return nil
	}))
}

// expectReceived asserts that of what do sends to the uplink wantBytes at least are counted for
// number, and nothing for any other but the control class; some are for the host anyway.
func (b *bed) expectReceived(what string, in *Incoming, number uint16, wantBytes uint64, do func()) {
	b.t.Helper()
	before, after := make([]uint64, numbers), make([]uint64, numbers)
	must.Succeed(b.t, in.OfferedBytes(before))
	do()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		must.Succeed(b.t, in.OfferedBytes(after))
		if after[number]-before[number] >= wantBytes || time.Now().After(deadline) {
			break
		}
	}
	for n := range after {
		got := after[n] - before[n]
		switch {
		case uint16(n) == number && got < wantBytes:
			b.t.Errorf("%s: %d bytes counted for number %d, want %d", what, got, n, wantBytes)
		case uint16(n) == number || uint16(n) == NumberControl:
		case uint16(n) == NumberHost && got <= slackBytes:
		case got != 0:
			b.t.Errorf("%s: %d bytes counted for number %d, want all for %d", what, got, n, number)
		}
	}
}

// receivedBytes is what so many datagrams take at least as the uplink receives them.
func receivedBytes(target netip.AddrPort, payload []byte, count int) uint64 {
	headers := 14 + 20 + 8
	if target.Addr().Is6() {
		headers += 20
	}
	return uint64(count * (headers + len(payload)))
}

// apply applies a table of which nothing is refused.
func apply(t testing.TB, in *Incoming, table Table) {
	t.Helper()
	refusals := in.Apply(table)
	if refusals.Destinations != nil || refusals.Published != nil || len(refusals.Numbers) > 0 {
		t.Fatalf("refused: %+v", refusals)
	}
}

// withinVXLAN returns the payload of a VXLAN packet: its header, and a frame for a device.
func withinVXLAN(d Destination, sizeBytes int) []byte {
	frame := make([]byte, sizeBytes)
	copy(frame, d.MAC[:])
	return append([]byte{8, 0, 0, 0, byte(d.VNI >> 16), byte(d.VNI >> 8), byte(d.VNI), 0}, frame...)
}

// TestIncomingOverlay: a VXLAN packet is the container's whose device in that network the frame within
// is for; with another port or identifier, or cut off, it is the host's.
func TestIncomingOverlay(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	in, ifb := b.openIncoming()
	for i, outer := range []struct{ local, remote netip.Addr }{
		{b.host.PeerAddr.Prev(), b.host.PeerAddr}, {b.host.PeerAddr6.Prev(), b.host.PeerAddr6},
	} {
		n := fmt.Sprint(i)
		hidden := b.overlay("hid"+n, 4097+i, outer.local, outer.remote)
		container := b.overlayContainer(hidden, "a"+n, netip.MustParseAddr("198.18.0.200"))
		at := b.inspect(container)[0].Destination
		if at.VXLANPort != 4789 || at.VNI != uint32(4097+i) || at.MAC == ([6]byte{}) {
			t.Fatalf("%s: found %+v", outer.local, at)
		}
		number := NumberFirst + uint16(i)
		apply(t, in, Table{Destinations: map[Destination]uint16{at: number}})
		target := netip.AddrPortFrom(outer.local, at.VXLANPort)
		arrive := func(what string, number uint16, target netip.AddrPort, payload []byte) {
			t.Helper()
			what = fmt.Sprintf("%s to %s", what, target)
			b.expectReceived(what, in, number, receivedBytes(target, payload, packets), func() { b.fromPeer(target, payload, packets) })
		}
		whole := withinVXLAN(at, payloadBytes)
		arrive("whole", number, target, whole)
		arrive("in fragments", number, target, withinVXLAN(at, 2*payloadBytes))
		arrive("the least frame", number, target, whole[:14])
		for length := range 14 {
			arrive(fmt.Sprintf("the first %d bytes", length), NumberHost, target, whole[:length])
		}
		arrive("another port", NumberHost, netip.AddrPortFrom(outer.local, 4790), whole)
		other := at
		other.VNI++
		arrive("another network", NumberHost, target, withinVXLAN(other, payloadBytes))
		other = at
		other.MAC[5]++
		arrive("another device", NumberHost, target, withinVXLAN(other, payloadBytes))
		whole[0] = 0
		arrive("without an identifier", NumberHost, target, whole)
		whole[0] = 8
		if i == 0 {
			apply(t, in, Table{}) // of a container's network nothing is known yet
			must.Succeed(t, in.Close())
			b.inHost(func() (err error) {
				in, err = OpenIncoming(b.ifindex, ifb, majors, b.origins)
				return err
			})
			arrive("after a restart", number, target, whole)
			apply(t, in, Table{Destinations: map[Destination]uint16{}})
			arrive("the container is gone", NumberHost, target, whole)
		}
	}
}

// TestIncomingMacvlan: an unrequested packet is the container's that has the address of its frame.
func TestIncomingMacvlan(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	one, two := b.macvlanContainer("one", 101), b.macvlanContainer("two", 102)
	in, _ := b.openIncoming()
	found := b.inspect(one)
	if len(found) != 1 || found[0].Mode != v1.ModeMacvlan || found[0].Destination.VXLANPort != 0 {
		t.Fatalf("found %+v", found)
	}
	apply(t, in, Table{Destinations: map[Destination]uint16{found[0].Destination: NumberFirst, b.inspect(two)[0].Destination: NumberFirst + 1}})
	payload := make([]byte, payloadBytes)
	for i, number := range []uint16{NumberFirst, NumberFirst + 1, NumberHost} {
		addr4, addr6 := b.host.PeerAddr.Prev().As4(), b.host.PeerAddr6.Prev().As16()
		if number != NumberHost {
			addr4[3], addr6[15] = 101+byte(i), 101+byte(i)
		}
		for _, addr := range []netip.Addr{netip.AddrFrom4(addr4), netip.AddrFrom16(addr6)} {
			target := netip.AddrPortFrom(addr, 9)
			b.expectReceived(fmt.Sprint("to ", target), in, number, receivedBytes(target, payload, packets), func() { b.fromPeer(target, payload, packets) })
		}
	}
}

// TestIncomingHostAbove: frames for a device of the host's above the uplink, which has a MAC of its own,
// are the container's that publishes the port, or that the frame within a VXLAN packet is for.
func TestIncomingHostAbove(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	in, _ := b.openIncoming()
	addr := b.host.PeerAddr.As4()
	addr[3] = 101
	for _, args := range [][]string{
		{"link", "add", "vrrp", "link", b.host.UplinkName, "type", "macvlan", "mode", "bridge"},
		{"addr", "add", netip.AddrFrom4(addr).String() + "/22", "dev", "vrrp"},
		{"link", "set", "vrrp", "up"},
	} {
		b.run("ip", append([]string{"-n", b.hostNS()}, args...)...)
	}
	var above []kernel.Link
	b.inHost(func() error {
		links, err := kernel.Links()
		above = kernel.AllAbove([]int{b.ifindex}, links)
		return err
	})
	if len(above) != 1 || above[0].Name != "vrrp" {
		t.Fatalf("above the uplink are %+v", above)
	}
	// The uplink answers ARP for it, too.
	b.run("ip", "-n", filepath.Base(b.host.PeerNetNSPath()), "neigh", "replace", netip.AddrFrom4(addr).String(), "dev", b.host.PeerInterface,
		"lladdr", net.HardwareAddr(above[0].MAC[:]).String())
	inner := Destination{MAC: [6]byte{2, 1}, VXLANPort: 4789, VNI: 4097}
	table := Table{
		Published:    map[Published]uint16{{Protocol: unix.IPPROTO_UDP, Port: 9053}: NumberFirst},
		Destinations: map[Destination]uint16{inner: NumberFirst + 1},
	}
	published, vxlan := netip.AddrPortFrom(netip.AddrFrom4(addr), 9053), netip.AddrPortFrom(netip.AddrFrom4(addr), inner.VXLANPort)
	arrive := func(what string, number uint16, target netip.AddrPort, payload []byte) {
		t.Helper()
		b.expectReceived(what, in, number, receivedBytes(target, payload, packets), func() { b.fromPeer(target, payload, packets) })
	}
	apply(t, in, table)
	arrive("for another machine", NumberHost, published, make([]byte, payloadBytes))
	table.Destinations[Destination{MAC: above[0].MAC}] = NumberHost
	apply(t, in, table)
	arrive("for a published port", NumberFirst, published, make([]byte, payloadBytes))
	arrive("for a published port, in fragments", NumberFirst, published, make([]byte, 2*payloadBytes))
	arrive("for another port", NumberHost, netip.AddrPortFrom(published.Addr(), 9054), make([]byte, payloadBytes))
	arrive("for an overlay network", NumberFirst+1, vxlan, withinVXLAN(inner, payloadBytes))
}

// TestIncomingNeighbours: received neighbour discovery is control traffic only if no router has passed it on.
func TestIncomingNeighbours(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	in, _ := b.openIncoming()
	const payloadBytes, frameBytes = 64, 14 + 40 + 64
	solicit := func(hopLimit, count int) {
		must.Succeed(t, testbed.InNetNS(b.host.PeerNetNSPath(), func() error {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit); err != nil {
				return err
			}
			message := make([]byte, payloadBytes)
			message[0] = 135
			for range count {
				if err := unix.Sendto(fd, message, 0, &unix.SockaddrInet6{Addr: b.host.PeerAddr6.Prev().As16()}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	b.expectReceived("from behind a router", in, NumberHost, packets*frameBytes, func() { solicit(254, packets) })
	before := received(t, in, NumberControl)
	solicit(255, 2)
	for deadline := time.Now().Add(5 * time.Second); received(t, in, NumberControl) < before+2*frameBytes; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes of the link's own are control traffic, want %d", received(t, in, NumberControl)-before, 2*frameBytes)
		}
	}
}

// fragment is an IPv4 packet: the first fragment of a datagram, or a later one.
func fragment(source, target netip.Addr, id, port uint16, first bool) []byte {
	const sizeBytes = 20 + 16
	p := make([]byte, sizeBytes)
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], sizeBytes)
	binary.BigEndian.PutUint16(p[4:], id)
	copy(p[12:], source.AsSlice())
	copy(p[16:], target.AsSlice())
	if !first {
		binary.BigEndian.PutUint16(p[6:], 2) // the other bytes of a datagram
		return p
	}
	binary.BigEndian.PutUint16(p[6:], 0x2000) // more of them
	binary.BigEndian.PutUint16(p[20:], 4000)
	binary.BigEndian.PutUint16(p[22:], port)
	binary.BigEndian.PutUint16(p[24:], sizeBytes)
	return p
}

// rawFromPeer has the neighbour send IPv4 packets as they are.
func (b *bed) rawFromPeer(target netip.Addr, count int, packet func(i int) []byte) {
	b.t.Helper()
	must.Succeed(b.t, testbed.InNetNS(b.host.PeerNetNSPath(), func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for i := range count {
			if err := unix.Sendto(fd, packet(i), 0, &unix.SockaddrInet4{Addr: target.As4()}); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return err
			}
		}
		return nil
	}))
}

// fragmentsBed is a bed with two bridge containers, of which the first publishes port 8053, and a server
// that answers them with fragments.
type fragmentsBed struct {
	*bed
	flows    *Flows
	in       *Incoming
	one, two string
}

// answerBytes takes two frames.
const answerBytes = 1800

func newFragmentsBed(t *testing.T) fragmentsBed {
	t.Helper()
	b := fragmentsBed{bed: newBed(t)}
	b.flows = b.openFlows(callsFirst())
	b.one, b.two = b.bridgeContainer("one"), b.bridgeContainer("two")
	b.classify(b.flows, NumberFirst, b.assign(b.one, v1.ModeBridge, NumberFirst))
	b.classify(b.flows, NumberFirst+1, b.assign(b.two, v1.ModeBridge, NumberFirst+1))
	b.in, _ = b.openIncoming()
	apply(t, b.in, Table{Published: map[Published]uint16{{Protocol: unix.IPPROTO_UDP, Port: 8053}: NumberFirst}})
	for _, addr := range []netip.Addr{b.host.PeerAddr, b.host.PeerAddr6} {
		target := netip.AddrPortFrom(addr, callPort)
		b.echo(target, answerBytes)
		b.ask(b.one, target, 1) // the first may wait for ARP
		b.ask(b.two, target, 1)
	}
	return b
}

// expectAnswers asserts that what a container asks for is counted for it.
func (b *fragmentsBed) expectAnswers(what, netNS string, number uint16, server netip.Addr) {
	b.t.Helper()
	const asked = 20
	target := netip.AddrPortFrom(server, callPort)
	before, host := received(b.t, b.in, number), received(b.t, b.in, NumberHost)
	b.ask(netNS, target, asked)
	for deadline := time.Now().Add(5 * time.Second); received(b.t, b.in, number)-before < asked*answerBytes; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Errorf("%s: %d bytes counted for number %d, want %d from %s", what, received(b.t, b.in, number)-before, number, asked*answerBytes, target)
			break
		}
	}
	if got := received(b.t, b.in, NumberHost) - host; got > slackBytes {
		b.t.Errorf("%s: %d bytes from %s counted for the host", what, got, target)
	}
}

// TestIncomingStolenPort: what arrives for a published port, unrequested, is the container's that publishes it now,
// and after that the host's.
func TestIncomingStolenPort(t *testing.T) {
	b := newFragmentsBed(t)
	for _, addr := range []netip.Addr{b.host.PeerAddr, b.host.PeerAddr6} {
		target, payload := netip.AddrPortFrom(addr.Prev(), 9053), make([]byte, 1000)
		expect := func(what string, number uint16) {
			t.Helper()
			b.expectReceived(what, b.in, number, receivedBytes(target, payload, packets), func() { b.fromPeer(target, payload, packets) })
		}
		publish := func(number uint16) {
			apply(t, b.in, Table{Published: map[Published]uint16{{IPv6: addr.Is6(), Protocol: unix.IPPROTO_UDP, Port: 9053}: number}})
		}
		expect("before it is published", NumberHost)
		publish(NumberFirst)
		expect("published by the first", NumberFirst)
		publish(NumberFirst + 1)
		expect("stolen by the second", NumberFirst+1)
		apply(t, b.in, Table{Published: map[Published]uint16{}})
		expect("published no more", NumberHost)
	}
}

// TestIncomingGateway: a published port is the container's at the host's addresses, at whichever device, and
// not at those of machines for which the host is the gateway.
func TestIncomingGateway(t *testing.T) {
	b := newFragmentsBed(t)
	hosts := map[string]string{"198.51.100.1/24": "198.51.100.9", "2001:db8:5::1/64": "2001:db8:5::9"}
	b.run("ip", "-n", b.hostNS(), "link", "add", "inside", "type", "bridge")
	b.run("ip", "-n", b.hostNS(), "link", "set", "inside", "up")
	payload := make([]byte, payloadBytes)
	for host, behind := range hosts {
		b.run("ip", "-n", b.hostNS(), "addr", "add", host, "dev", "inside", "nodad")
		own := netip.MustParsePrefix(host).Addr()
		apply(t, b.in, Table{Published: map[Published]uint16{{IPv6: own.Is6(), Protocol: unix.IPPROTO_UDP, Port: 9053}: NumberFirst}})
		expect := func(when string) {
			t.Helper()
			for _, tc := range []struct {
				what   string
				number uint16
				addr   netip.Addr
			}{{"its own", NumberFirst, own}, {"behind it", NumberHost, netip.MustParseAddr(behind)}} {
				target := netip.AddrPortFrom(tc.addr, 9053)
				b.expectReceived(fmt.Sprint(tc.what, " ", tc.addr, when), b.in, tc.number, receivedBytes(target, payload, packets), func() { b.fromPeer(target, payload, packets) })
			}
		}
		expect("")
		if own.Is6() { // as on a gateway whose uplink accepts router advertisements: IPv6 forwards at all devices or none
			b.run("ip", "netns", "exec", b.hostNS(), "sysctl", "-q", "-w", "net.ipv6.conf."+b.host.UplinkName+".forwarding=0")
			expect(", while the uplink's own setting forwards nothing")
		}
	}
}

// TestIncomingRoutedAbove: whether the host passes on what is for a device above the uplink is decided as
// that device routes, not the uplink.
func TestIncomingRoutedAbove(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	in, _ := b.openIncoming()
	peerNS, router, behind := filepath.Base(b.host.PeerNetNSPath()), b.host.PeerAddr.As4(), netip.MustParseAddr("198.51.100.9")
	router[3] = 101
	addr := netip.AddrFrom4(router).String()
	for _, args := range [][]string{
		{"-n", b.hostNS(), "link", "add", "inside", "type", "bridge"},
		{"-n", b.hostNS(), "link", "set", "inside", "up"},
		{"-n", b.hostNS(), "addr", "add", "198.51.100.1/24", "dev", "inside"},
		{"-n", b.hostNS(), "link", "add", "vrrp", "address", "02:00:00:00:17:02", "link", b.host.UplinkName, "type", "macvlan", "mode", "bridge"},
		{"-n", b.hostNS(), "addr", "add", addr + "/22", "dev", "vrrp"},
		{"-n", b.hostNS(), "link", "set", "vrrp", "up"},
		{"-n", peerNS, "neigh", "replace", addr, "dev", b.host.PeerInterface, "lladdr", "02:00:00:00:17:02"},
		{"-n", peerNS, "route", "replace", "198.51.100.0/24", "via", addr, "dev", b.host.PeerInterface},
	} {
		b.run("ip", args...)
	}
	var routing map[[6]byte]int
	b.inHost(func() error {
		links, err := kernel.Links()
		routing = kernel.UntaggedAbove(b.ifindex, links)
		return err
	})
	apply(t, in, Table{
		Published:    map[Published]uint16{{Protocol: unix.IPPROTO_UDP, Port: 9053}: NumberFirst},
		Destinations: map[Destination]uint16{{MAC: [6]byte{2, 0, 0, 0, 0x17, 2}}: NumberHost},
		Routing:      routing,
	})
	payload, target := make([]byte, payloadBytes), netip.AddrPortFrom(behind, 9053)
	datagram := fragment(b.host.PeerAddr, behind, 1, 9053, true)
	binary.BigEndian.PutUint16(datagram[6:], 0)            // whole
	tagged := append([]byte{5 << 5, 0, 8, 0}, datagram...) // priority 5 of VLAN 0, and IPv4
	for _, tc := range []struct {
		uplink, above string // whether they forward
		number        uint16
	}{{"0", "1", NumberHost}, {"1", "0", NumberFirst}} {
		b.run("ip", "netns", "exec", b.hostNS(), "sysctl", "-q", "-w",
			"net.ipv4.conf."+b.host.UplinkName+".forwarding="+tc.uplink, "net.ipv4.conf.vrrp.forwarding="+tc.above)
		what := fmt.Sprintf("forwarding %s, above %s", tc.uplink, tc.above)
		b.expectReceived(what, in, tc.number, receivedBytes(target, payload, packets), func() { b.fromPeer(target, payload, packets) })
		b.expectReceived(what+", priority tag", in, tc.number, uint64(packets*(14+len(datagram))), func() {
			b.sendFrames(peerNS, b.host.PeerInterface, [6]byte{2, 0, 0, 0, 0x17, 2}, unix.ETH_P_8021Q, tagged, packets)
		})
	}
}

// TestIncomingFragments: later fragments are the container's that the first one is for, and unknown ones
// are the host's.
func TestIncomingFragments(t *testing.T) {
	b := newFragmentsBed(t)
	for _, addr := range []netip.Addr{b.host.PeerAddr, b.host.PeerAddr6} {
		b.expectAnswers("one", b.one, NumberFirst, addr)
		b.expectAnswers("two", b.two, NumberFirst+1, addr)
		unknown, large := netip.AddrPortFrom(addr.Prev(), 4242), make([]byte, answerBytes)
		b.expectReceived("for a port that no container has", b.in, NumberHost, receivedBytes(unknown, large, packets), func() { b.fromPeer(unknown, large, packets) })
	}
	uplink := b.host.PeerAddr.Prev()
	send := func(what string, number uint16, packet func(id uint16) [][]byte) {
		t.Helper()
		var list [][]byte
		for id := range uint16(packets) {
			list = append(list, packet(7+id)...)
		}
		const eachBytes = 14 + 36
		b.expectReceived(what, b.in, number, uint64(len(list)*eachBytes), func() {
			b.rawFromPeer(uplink, len(list), func(i int) []byte { return list[i] })
		})
	}
	later := func(id uint16) [][]byte { return [][]byte{fragment(b.host.PeerAddr, uplink, id, 8053, false)} }
	both := func(id uint16) [][]byte {
		return append([][]byte{fragment(b.host.PeerAddr, uplink, id, 8053, true)}, later(id)...)
	}
	send("before the first", NumberHost, later)
	send("with the first", NumberFirst, both)
	time.Sleep(1500 * time.Millisecond)
	send("long after the first", NumberHost, later)
}

// TestIncomingFloodOfFragments: a flood of first fragments for a container takes no place from flows, nor
// from fragments for others; and new flows of another take those of the flood, not of the flows that the
// container has. (Of its own flows a container may lose old ones to new ones, where half of a bucket is its.)
func TestIncomingFloodOfFragments(t *testing.T) {
	b := newFragmentsBed(t)
	target := netip.AddrPortFrom(b.host.PeerAddr, callPort+1)
	next := b.arrivals(unix.IPPROTO_UDP, target)
	known := map[netip.AddrPort]uint16{}
	for i := range uint16(200) {
		netNS, number := b.one, NumberFirst
		if i%2 > 0 {
			netNS, number = b.two, NumberFirst+1
		}
		b.connect(netNS, unix.IPPROTO_UDP, 20000+i, target)
		known[next()] = number
	}
	uplink, r := b.host.PeerAddr.Prev(), rand.New(rand.NewPCG(1, 2))
	b.rawFromPeer(uplink, 100_000, func(int) []byte {
		source := [4]byte{198, 18, byte(r.Uint32()), byte(r.Uint32())}
		return fragment(netip.AddrFrom4(source), uplink, uint16(r.Uint32()), 8053, true)
	})
	stay := func(when string, of uint16) {
		t.Helper()
		for source, number := range known {
			if got, found, err := b.flows.Sender(unix.IPPROTO_UDP, source, target); number == of && (!found || got.Number != number || err != nil) {
				t.Fatalf("%s %s, of number %d, is of %+v, %t, %v", when, source, number, got, found, err)
			}
		}
	}
	stay("after a flood", NumberFirst+1)
	// At once, as fragments are soon forgotten.
	must.Succeed(b.t, testbed.InNetNS(path(b.two), func() error {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: 22000})
		if err != nil {
			return err
		}
		defer conn.Close()
		for port := range uint16(4000) { // for about two of five buckets
			if _, err := conn.WriteToUDPAddrPort([]byte("hello"), netip.AddrPortFrom(b.host.PeerAddr, 30000+port)); err != nil {
				return err
			}
		}
		return nil
	}))
	// The host puts no fragments together then, so two gets no answers.
	b.expectAnswers("in a flood of first fragments", b.two, NumberFirst+1, b.host.PeerAddr)
	stay("after new flows", NumberFirst)
}
