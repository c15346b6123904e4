//go:build netns

package identity

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// exchanges are more than the second stage looks at.
const exchanges = 10

// exchange sends datagrams to target, each after the answer to the one before.
func exchange(target netip.AddrPort) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
	if err != nil {
		return err
	}
	defer conn.Close()
	for range exchanges {
		if _, err := conn.Write([]byte("a question")); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		if _, err := conn.Read(make([]byte, 100)); err != nil {
			return err
		}
	}
	return nil
}

// answer answers at an address of the neighbour's what others ask, and from another port
// as well, which nobody asked.
func (b *bed) answer(at netip.AddrPort) {
	b.t.Helper()
	listen := func(at netip.AddrPort) (conn *net.UDPConn) {
		err := testbed.InNetNS(b.host.PeerNetNSPath(), func() (err error) {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			return err
		})
		must.Succeed(b.t, err)
		b.t.Cleanup(func() { conn.Close() })
		return conn
	}
	conn, other := listen(at), listen(netip.AddrPortFrom(at.Addr(), at.Port()+1))
	go func() {
		for {
			_, from, err := conn.ReadFromUDPAddrPort(make([]byte, 100))
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_, _ = other.WriteToUDPAddrPort([]byte("nobody asked"), from)
			_, _ = conn.WriteToUDPAddrPort([]byte("a longer answer"), from)
		}
	}()
}

// interactiveFirst is a classifier for which all is BE until it is seen that both sides
// speak in turns.
func interactiveFirst() FlowClassifier {
	const turns, voip, bulk, ef, be = 60 - 16, 0, 8, 0, 2
	return FlowClassifier{
		Nodes: []FlowNode{
			{Place: FlowLeaf, Type: bulk, Level: be, TypeConfidence: 0xffff, LevelConfidence: 0xffff},
			{Place: turns, Threshold: 0, Left: 0, Right: 2},
			{Place: FlowLeaf, Type: voip, Level: ef, TypeConfidence: 0xffff, LevelConfidence: 0xffff},
		},
		Roots: [2][]uint16{{0}, {1}},
		Ports: make([]uint8, FlowPorts),
	}
}

// What a host-mode container is sent counts for its flows, and for their second stage;
// it begins none. Without the program at its cgroup nothing of it is seen.
func TestAnswersInHostMode(t *testing.T) {
	b := newBed(t)
	flows := b.openFlows(interactiveFirst())
	container := b.cgroup("container")
	nested := b.cgroup("container", "nested")
	must.Succeed(t, b.uplink.AssignCgroup(container, NumberFirst))
	b.classify(flows, NumberFirst, Tap{})
	port := uint16(5100)
	ask := func(what, cgroup string, addr netip.Addr, want Flow) {
		t.Helper()
		port += 2
		target := netip.AddrPortFrom(addr, port)
		b.answer(target)
		before, err := flows.Counts(NumberFirst)
		must.Succeed(t, err)
		b.sendFromCgroup("exchange", b.hostNS(), cgroup, target)
		var got []Flow
		err = flows.Each(NumberFirst, func(f Flow) bool {
			if f.Responder.Addr() == addr && f.Responder.Port()&^1 == port {
				got = append(got, f)
			}
			return true
		})
		if err != nil || len(got) != 1 || got[0].Packets != want.Packets || got[0].Class != want.Class || got[0].Stage != 2 {
			t.Errorf("%s at %s: %v; flows %+v, want one of class %d with packets %v", what, target, err, got, want.Class, want.Packets)
		}
		if after, err := flows.Counts(NumberFirst); err != nil || after.Created != before.Created+1 || after.Refused+after.Evicted > 0 {
			t.Errorf("%s: counts %+v, %+v, %v: want one flow more", what, before, after, err)
		}
	}
	both := Flow{Packets: [2]uint32{exchanges, exchanges}, Class: sched.EF}
	one := Flow{Packets: [2]uint32{exchanges, 0}, Class: sched.BE}
	for _, addr := range []netip.Addr{b.host.PeerAddr, b.host.PeerAddr6} {
		ask("not attached", container, addr, one)
		// The number of another, then of this one, twice: the last one counts, once.
		for _, number := range []uint16{NumberFirst + 1, NumberFirst, NumberFirst} {
			must.Succeed(t, flows.AttachCgroup(container, number))
		}
		ask("attached", container, addr, both)
		ask("nested", nested, addr, both)
		for range 2 {
			must.Succeed(t, DetachCgroup(container))
		}
		ask("detached", container, addr, one)
	}
	if err := flows.AttachCgroup(fmt.Sprint(container, "/none"), NumberFirst); err == nil {
		t.Error("attached to a cgroup that is not there")
	}
}
