//go:build netns

package identity

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// arrivals are where packets come from that the neighbour gets at one of its sides, as
// it sees them: what its answers are sent to.
func (b *bed) arrivals(proto uint8, at netip.AddrPort) (next func() netip.AddrPort) {
	b.t.Helper()
	var from func() (netip.AddrPort, error)
	err := testbed.InNetNS(b.host.PeerNetNSPath(), func() error {
		if proto == 6 {
			listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
			if err != nil {
				return err
			}
			b.t.Cleanup(func() { listener.Close() })
			from = func() (netip.AddrPort, error) {
				_ = listener.SetDeadline(time.Now().Add(20 * time.Second))
				conn, err := listener.AcceptTCP()
				if err != nil {
					return netip.AddrPort{}, err
				}
				defer conn.Close()
				return conn.RemoteAddr().(*net.TCPAddr).AddrPort(), nil
			}
			return nil
		}
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		b.t.Cleanup(func() { conn.Close() })
		from = func() (netip.AddrPort, error) {
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			_, source, err := conn.ReadFromUDPAddrPort(make([]byte, 100))
			return source, err
		}
		return nil
	})
	must.Succeed(b.t, err)
	return func() netip.AddrPort {
		source, err := from()
		must.Succeed(b.t, err)
		return netip.AddrPortFrom(source.Addr().Unmap(), source.Port())
	}
}

// connect sends something from a port of a container.
func (b *bed) connect(netNS string, proto uint8, port uint16, target netip.AddrPort) {
	b.t.Helper()
	err := testbed.InNetNS(path(netNS), func() error {
		if proto == 6 {
			conn, err := net.DialTCP("tcp", &net.TCPAddr{Port: int(port)}, net.TCPAddrFromAddrPort(target))
			if err != nil {
				return err
			}
			return conn.Close()
		}
		conn, err := net.DialUDP("udp", &net.UDPAddr{Port: int(port)}, net.UDPAddrFromAddrPort(target))
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte("hello"))
		return errors.Join(err, conn.Close())
	})
	must.Succeed(b.t, err)
}

// What comes in at the uplink is found to be the right container's, behind one address
// and from the same port inside; nobody else's is.
func TestSenderBehindNAT(t *testing.T) {
	b := newBed(t)
	flows := b.openFlows(callsFirst())
	port := uint16(40000)
	nobody := netip.AddrPortFrom(b.host.PeerAddr, port)
	if _, found, err := flows.Sender(17, nobody, nobody); found || err != nil {
		t.Errorf("a sender before there is a table: %v, %v", found, err)
	}
	names, numbers := []string{"one", "two", "plain"}, []uint16{NumberFirst, NumberFirst + 1, NumberFirst + 2}
	spaces := make([]string, len(names))
	for i, name := range names {
		spaces[i] = b.bridgeContainer(name)
		tap := b.assign(spaces[i], v1.ModeBridge, numbers[i])
		b.meet(spaces[i])
		if name != "plain" { // which has no classes
			b.classify(flows, numbers[i], tap)
		}
	}
	for _, proto := range []uint8{17, 6} {
		for _, addr := range []netip.Addr{b.host.PeerAddr, b.host.PeerAddr6} {
			target := netip.AddrPortFrom(addr, 5060)
			port++ // what is closed keeps a port for a while
			next := b.arrivals(proto, target)
			seen := map[netip.AddrPort]bool{}
			for i, ns := range spaces {
				b.connect(ns, proto, port, target)
				source := next()
				seen[source] = true
				got, found, err := flows.Sender(proto, source, target)
				must.Succeed(t, err)
				want := Sender{Number: numbers[i], Class: sched.EF}
				if names[i] == "plain" {
					want = Sender{}
				}
				if got != want || found != (want != Sender{}) {
					t.Errorf("protocol %d to %s from %s, which %s sent: %+v, want %+v", proto, target, source, names[i], got, want)
				}
				other := netip.AddrPortFrom(source.Addr(), source.Port()^1)
				if got, found, err := flows.Sender(proto, other, target); found || err != nil {
					t.Errorf("%s, from where nobody sent: %+v, %v", other, got, err)
				}
			}
			if len(seen) != len(spaces) {
				t.Errorf("%d containers came from %v: was there no NAT?", len(spaces), seen)
			}
		}
	}
}

// A container that floods pushes out its own flows, and who gets its number has none of
// them.
func TestSendersOfFlood(t *testing.T) {
	b := newBed(t)
	flows, err := OpenFlows()
	must.Succeed(t, err)
	t.Cleanup(func() { flows.Close() })
	b.origins.ShareFlows(flows)
	b.open()
	var program *ebpf.Program
	b.inHost(func() (err error) {
		program, err = kernel.Hook{Ifindex: b.ifindex, Egress: true}.Find(uplinkProgWeirUplink)
		return err
	})
	defer program.Close()
	quiet, flood := NumberFirst+1, NumberFirst+2
	for _, number := range []uint16{quiet, flood} {
		b.classify(flows, number, Tap{})
	}
	remote := netip.MustParseAddrPort("198.18.0.2:443")
	send := func(number uint16, local netip.AddrPort) {
		packet := dscpPacket(4, 0, 0, false)
		address, far := local.Addr().As4(), remote.Addr().As4()
		copy(packet[26:], address[:])
		copy(packet[30:], far[:])
		binary.BigEndian.PutUint16(packet[34:], local.Port())
		binary.BigEndian.PutUint16(packet[36:], remote.Port())
		var in struct {
			Before   [8]uint32
			Priority uint32
			_        [160]byte
		}
		in.Priority = uint32(uplinkWeirPriorityWEIR_PRIORITY_MAGIC)<<uplinkWeirPriorityWEIR_PRIORITY_MAGIC_SHIFT |
			(uint32(number)|uint32(sched.AF)<<uplinkWeirTagWEIR_TAG_CLASS_SHIFT)<<uplinkWeirPriorityWEIR_PRIORITY_TAG_SHIFT
		if _, err := program.Run(&ebpf.RunOptions{Data: packet, Context: in}); err != nil {
			t.Fatal(err)
		}
	}
	found := func(number uint16, locals []netip.AddrPort) (n int) {
		for _, local := range locals {
			got, ok, err := flows.Sender(17, local, remote)
			must.Succeed(t, err)
			if ok && got == (Sender{Number: number, Class: sched.AF}) {
				n++
			} else if ok {
				t.Errorf("%s is of %+v, want number %d", local, got, number)
			}
		}
		return n
	}
	r := rand.New(rand.NewPCG(20, 21))
	random := func(n int) (out []netip.AddrPort) {
		for range n {
			var a [4]byte
			binary.BigEndian.PutUint32(a[:], r.Uint32())
			out = append(out, netip.AddrPortFrom(netip.AddrFrom4(a), uint16(r.Uint32())))
		}
		return out
	}
	kept, many := random(1000), random(80000) // more than the table holds
	b.inHost(func() error {
		for _, local := range kept {
			send(quiet, local)
		}
		for _, local := range many {
			send(flood, local)
		}
		return nil
	})
	if n := found(quiet, kept); n != len(kept) {
		t.Errorf("%d of %d flows are left beside a flood", n, len(kept))
	}
	if n := found(flood, many[len(many)-1000:]); n < 900 {
		t.Errorf("%d of the flood's last 1000 flows are known", n)
	}
	must.Succeed(t, flows.CloseTable(quiet))
	if n := found(quiet, kept); n != 0 {
		t.Errorf("%d flows of a number that nobody has", n)
	}
	time.Sleep(100 * time.Millisecond) // more than the clock's steps
	b.classify(flows, quiet, Tap{})
	if n := found(quiet, kept); n != 0 {
		t.Errorf("%d flows of the one who had the number before", n)
	}
	b.inHost(func() error { send(quiet, kept[0]); return nil })
	for deadline := time.Now().Add(10 * time.Second); found(quiet, kept[:1]) != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the next holder's own flow is not known")
		}
		b.inHost(func() error { send(quiet, kept[0]); return nil })
	}
}

// A flow says how long its packets wait at the uplink: as long as the neighbour sees
// them late, and no other flow.
func TestFlowDelays(t *testing.T) {
	const frame = 14 + 20 + 8 + payloadBytes
	b := newBed(t)
	flows := b.openFlows(callsFirst())
	full, sparse := b.bridgeContainer("full"), b.bridgeContainer("sparse")
	for i, ns := range []string{full, sparse} {
		tap := b.assign(ns, v1.ModeBridge, NumberFirst+uint16(i))
		b.meet(ns)
		b.classify(flows, NumberFirst+uint16(i), tap)
	}
	b.tree("10mbit", 100*frame, NumberHost, NumberFirst, NumberFirst+1)
	var delays *Delays
	b.inHost(func() (err error) {
		delays, err = OpenDelays(b.uplink)
		return err
	})
	defer delays.Close()
	busy, calm := netip.AddrPortFrom(b.host.PeerAddr, 5060), netip.AddrPortFrom(b.host.PeerAddr, 5061)
	stopBusy, stopCalm := b.receive(busy.Port()), b.receive(calm.Port())
	done := make(chan error)
	go func() {
		done <- testbed.InNetNS(path(full), func() error { return pace(busy, 2000, 3*time.Second) })
	}()
	must.Succeed(t, testbed.InNetNS(path(sparse), func() error { return trickle(calm, 100, 20*time.Millisecond) }))
	must.Succeed(t, <-done)
	for i, of := range []struct {
		name     string
		target   netip.AddrPort
		arrivals func() []arrival
	}{{"full", busy, stopBusy}, {"sparse", calm, stopCalm}} {
		// Until what waited has left.
		time.Sleep(200 * time.Millisecond)
		var flow Flow
		if err := flows.Each(NumberFirst+uint16(i), func(f Flow) bool {
			if f.Responder == of.target {
				flow = f
			}
			return flow == Flow{}
		}); err != nil {
			t.Fatal(err)
		}
		var sum time.Duration
		seen := of.arrivals()
		if len(seen) == 0 {
			t.Fatalf("%s: nothing arrived", of.name)
		}
		for _, a := range seen {
			sum += a.delay
		}
		want, got := sum/time.Duration(len(seen)), time.Duration(flow.DelayNs)
		t.Logf("%s: %v on average over %d packets, the neighbour saw %v over %d", of.name, got, flow.DelayPackets, want, len(seen))
		// What the neighbour sees has the way to the uplink in it.
		const slack = 5 * time.Millisecond
		if got > want*5/4+slack || of.name == "full" && got < want*3/4-slack || int(flow.DelayPackets) < len(seen)/2 || int(flow.DelayPackets) > 2*len(seen) {
			t.Errorf("%s: the flow says %v over %d packets, the neighbour %v over %d", of.name, got, flow.DelayPackets, want, len(seen))
		}
	}
	// One of so many packets that their count is about to wrap.
	const many, each = 1<<32 - 10, uint64(time.Millisecond)
	stop := b.receive(calm.Port())
	go func() {
		done <- testbed.InNetNS(path(sparse), func() error { return trickle(calm, 200, 20*time.Millisecond) })
	}()
	changed := false
	for deadline := time.Now().Add(3 * time.Second); !changed && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		// The first flow of that container has 100 packets.
		if err := flows.change(NumberFirst+1, func(bucket *flowWeirBucket) {
			for i := range bucket.Flows {
				if f := &bucket.Flows[i]; bucket.Tags[i] != 0 && f.Packets[0] < 50 && f.DelayPackets > 0 {
					f.DelayPackets, f.DelayNs = many, many*each
					changed = true
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, <-done)
	stop()
	found := 0
	if err := flows.Each(NumberFirst+1, func(f Flow) bool {
		if f.Packets[0] > 150 {
			found++
			if f.DelayNs < each*3/4 || f.DelayNs > each*5/4 {
				t.Errorf("after very many packets of a millisecond each: %+v", f)
			}
		}
		return true
	}); err != nil || found != 1 {
		t.Fatalf("%d flows were changed, %v", found, err)
	}
}
