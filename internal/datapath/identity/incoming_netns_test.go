//go:build netns

package identity

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

// echo answers each packet to a UDP port of the neighbour with the same payload, or with so many bytes.
func (b *bed) echo(at netip.AddrPort, answerBytes int) {
	b.t.Helper()
	must.Succeed(b.t, testbed.InNetNS(b.host.PeerNetNSPath(), func() error {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		b.t.Cleanup(func() { conn.Close() })
		go func() {
			buffer := make([]byte, 2000)
			for {
				n, from, err := conn.ReadFromUDPAddrPort(buffer)
				if err != nil {
					return
				}
				_, _ = conn.WriteToUDPAddrPort(buffer[:max(n, answerBytes)], from)
			}
		}()
		return nil
	}))
}

// ask sends count datagrams of one flow from a namespace, one after the other, and returns how
// many were answered within a tenth of a second.
func (b *bed) ask(netNS string, target netip.AddrPort, count int) (answered int) {
	b.t.Helper()
	must.Succeed(b.t, testbed.InNetNS(path(netNS), func() error {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
		if err != nil {
			return err
		}
		defer conn.Close()
		for range count {
			if _, err := conn.Write(make([]byte, payloadTo(target))); err != nil {
				return err
			}
			_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := conn.Read(make([]byte, 2000)); err == nil {
				answered++
			}
		}
		return nil
	}))
	return answered
}

// openIncoming shares what the uplink receives, through a new IFB.
func (b *bed) openIncoming() (in *Incoming, ifb int) {
	b.t.Helper()
	b.inHost(func() error {
		if err := kernel.AddIFB("in-test"); err != nil {
			return err
		}
		l, err := kernel.LinkByName("in-test")
		if err == nil {
			err = kernel.SetUp(l.Index)
		}
		if err != nil {
			return err
		}
		ifb = l.Index
		in, err = OpenIncoming(b.ifindex, ifb, majors, b.origins)
		return err
	})
	b.t.Cleanup(func() { in.Close() })
	if refusals := b.uplink.Apply(Table{NoteSenders: true}); refusals.Senders != nil {
		b.t.Fatal(refusals.Senders)
	}
	return in, ifb
}

// received returns the bytes counted for a number at the IFB.
func received(t testing.TB, in *Incoming, number uint16) uint64 {
	t.Helper()
	offered := make([]uint64, numbers)
	must.Succeed(t, in.OfferedBytes(offered))
	return offered[number]
}

// TestIncoming: an answer to a container behind NAT counts as the container's, and an unrequested
// packet as the host's.
func TestIncoming(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	const first, second = NumberFirst, NumberFirst + 1
	one, two := b.bridgeContainer("one"), b.bridgeContainer("two")
	b.assign(one, v1.ModeBridge, first)
	b.assign(two, v1.ModeBridge, second)
	in, _ := b.openIncoming()
	for _, addr := range []netip.Addr{b.host.PeerAddr, b.host.PeerAddr6} {
		target := netip.AddrPortFrom(addr, 5060)
		b.echo(target, 0)
		for number, ns := range map[uint16]string{first: one, second: two} {
			before, other, host := received(t, in, number), received(t, in, first+second-number), received(t, in, NumberHost)
			if answered := b.ask(ns, target, packets); answered < packets-1 { // the first may wait for ARP
				t.Errorf("%s: %d of %d answered", target, answered, packets)
			}
			got := received(t, in, number) - before
			if want := frameBytes(target); got < want*9/10 || got > want+slackBytes {
				t.Errorf("%s: %d bytes received for number %d, want %d", target, got, number, want)
			}
			if got := received(t, in, first+second-number) - other; got != 0 {
				t.Errorf("%s: %d bytes of number %d counted for the other", target, got, number)
			}
			if got := received(t, in, NumberHost) - host; got > uint64(slackBytes) {
				t.Errorf("%s: %d bytes of number %d counted for the host", target, got, number)
			}
		}
	}
}

// TestIncomingForgets: what the last holder of a number has asked for is not the next holder's, also after the IFB was
// made anew, which costs others nothing. At a device that is new only what is sent from then on counts.
func TestIncomingForgets(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	var server *net.UDPConn
	must.Succeed(t, testbed.InNetNS(b.host.PeerNetNSPath(), func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.host.PeerAddr, 5060)))
		return err
	}))
	defer server.Close()
	in, _ := b.openIncoming()
	const first, second = NumberFirst, NumberFirst + 1
	sends, addresses := make(map[uint16]func()), make(map[uint16]netip.AddrPort)
	for number, name := range map[uint16]string{first: "one", second: "two"} {
		ns := b.bridgeContainer(name)
		b.assign(ns, v1.ModeBridge, number)
		var client net.Conn
		must.Succeed(t, testbed.InNetNS(path(ns), func() (err error) {
			client, err = net.Dial("udp", server.LocalAddr().String())
			return err
		}))
		defer client.Close()
		sends[number] = func() {
			_, err := client.Write([]byte("ask"))
			must.Succeed(t, err)
			_, addresses[number], err = server.ReadFromUDPAddrPort(make([]byte, 10))
			must.Succeed(t, err)
		}
		sends[number]()
	}
	payload := make([]byte, payloadBytes)
	arrive := func(when string, want map[uint16]uint16) {
		t.Helper()
		for _, number := range []uint16{first, second} {
			to := addresses[number]
			b.expectReceived(fmt.Sprintf("%s, for %d", when, number), in, want[number], receivedBytes(to, payload, packets), func() {
				for range packets {
					_, err := server.WriteToUDPAddrPort(payload, to)
					must.Succeed(t, err)
				}
			})
		}
	}
	makeAnew := func() {
		must.Succeed(t, in.Close())
		b.run("ip", "-n", b.hostNS(), "link", "del", "in-test")
		in, _ = b.openIncoming()
	}
	arrive("at first", map[uint16]uint16{first: first, second: second})
	time.Sleep(50 * time.Millisecond) // more than a step of the clock that dates packets
	must.Succeed(t, in.Forget(first))
	arrive("forgotten", map[uint16]uint16{first: NumberHost, second: second})
	makeAnew()
	arrive("with another IFB", map[uint16]uint16{first: NumberHost, second: second})
	b.inHost(DetachRedirects)
	makeAnew()
	arrive("without a predecessor", map[uint16]uint16{first: NumberHost, second: NumberHost})
	sends[first]()
	arrive("sent again", map[uint16]uint16{first: first, second: NumberHost})
}

// TestIncomingRefused: if received packets cannot be redirected, the IFB keeps no classifier, because the agent would not
// write settings to it.
func TestIncomingRefused(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	_, ifb := b.openIncoming()
	b.inHost(func() error { return DetachIncoming(ifb) })
	b.run("tc", "-n", b.hostNS(), "qdisc", "replace", "dev", b.host.UplinkName, "clsact")
	b.run("tc", "-n", b.hostNS(), "filter", "add", "dev", b.host.UplinkName, "ingress", "pref", "1", "protocol", "ip", "u32", "match", "u32", "0", "0", "flowid", "1:7")
	b.inHost(func() error {
		if refused, err := OpenIncoming(b.ifindex, ifb, majors, b.origins); err == nil {
			return errors.Join(errors.New("redirected at a preference that another filter has"), refused.Close())
		}
		if left, err := HasUplink(ifb); err != nil || left {
			t.Errorf("the classifier is left: %v, %v", left, err)
		}
		return nil
	})
}

// TestIncomingFailsOpen: an IFB that is down or gone costs a packet now and then, and the host is
// not cut off, with no agent to help; what comes back up is used again.
func TestIncomingFailsOpen(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	one := b.bridgeContainer("one")
	b.assign(one, v1.ModeBridge, NumberFirst)
	in, _ := b.openIncoming()
	target := netip.AddrPortFrom(b.host.PeerAddr, 5060)
	b.echo(target, 0)
	passes := func(what string, most int) {
		t.Helper()
		if answered := b.ask(one, target, 60); answered < 60-most {
			t.Errorf("%s: %d of 60 answered", what, answered)
		}
	}
	passes("through the IFB", 1)
	if got, want := received(t, in, NumberFirst), frameBytes(target)/packets*60; got < want*9/10 {
		t.Errorf("%d of %d bytes were received through the IFB", got, want)
	}
	b.run("ip", "-n", b.hostNS(), "link", "set", "in-test", "down")
	passes("IFB down", 6)
	b.run("ip", "-n", b.hostNS(), "link", "set", "in-test", "up")
	time.Sleep(1100 * time.Millisecond)
	before := received(t, in, NumberFirst)
	passes("IFB up again", 4)
	if received(t, in, NumberFirst) == before {
		t.Error("nothing was received through the IFB that is up again")
	}
	b.run("ip", "-n", b.hostNS(), "link", "del", "in-test")
	passes("IFB gone", 6)
	b.inHost(func() error {
		program, err := kernel.Redirect{From: b.ifindex, To: in.redirect.To}.Find(incomingProgWeirIncoming)
		if err == nil && program == nil {
			err = errors.New("no redirect is left")
		}
		if err != nil {
			return fmt.Errorf("find the redirect: %w", err)
		}
		return program.Close()
	})
}
