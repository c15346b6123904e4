//go:build netns

package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/lab/testbed"
)

// answerFrom sends packets to target from a socket of the host's that is bound to a
// port at all addresses, as a proxy's is.
func (b *bed) answerFrom(network string, port uint16, target netip.AddrPort) {
	b.t.Helper()
	b.inHost(func() error {
		conn, err := net.ListenPacket(network, fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		defer conn.Close()
		for range packets {
			if _, err := conn.WriteTo(make([]byte, payloadBytes), net.UDPAddrFromAddrPort(target)); err != nil {
				return err
			}
		}
		return nil
	})
}

// What processes of the host's send from published ports is the container's, of the
// family and protocol that it publishes them for, and of nothing else.
func TestPublishedPorts(t *testing.T) {
	b := newBed(t)
	const port = 8053
	target4, target6 := netip.AddrPortFrom(b.host.PeerAddr, 5201), netip.AddrPortFrom(b.host.PeerAddr6, 5201)
	set := func(numbers map[Published]uint16) {
		t.Helper()
		if refused, err := b.uplink.SetPublished(numbers); err != nil || refused != nil {
			t.Fatal(refused, err)
		}
	}
	udp6 := func(what string, number uint16) {
		t.Helper()
		b.expect(what, number, frameBytes(target6), func() { b.answerFrom("udp6", port, target6) })
	}
	udp6("published by nobody", NumberHost)
	set(map[Published]uint16{{IPv6: true, Protocol: unix.IPPROTO_UDP, Port: port}: NumberFirst})
	udp6("published", NumberFirst)
	b.expect("the same port of IPv4", NumberHost, frameBytes(target4), func() { b.answerFrom("udp4", port, target4) })
	b.expect("another port", NumberHost, frameBytes(target6), func() { b.answerFrom("udp6", port+1, target6) })
	set(map[Published]uint16{
		{IPv6: true, Protocol: unix.IPPROTO_TCP, Port: port}: NumberFirst, {Protocol: unix.IPPROTO_UDP, Port: port}: NumberFirst + 1,
	})
	udp6("the same port of TCP", NumberHost)
	b.expect("of IPv4", NumberFirst+1, frameBytes(target4), func() { b.answerFrom("udp4", port, target4) })
	set(map[Published]uint16{{IPv6: true, Protocol: unix.IPPROTO_UDP, Port: port}: NumberFirst + 2})
	udp6("published by another", NumberFirst+2)
	b.open() // another agent finds what this one said
	udp6("after a restart", NumberFirst+2)
	set(nil)
	udp6("no longer published", NumberHost)
}

// Where there are more ports than the kernel remembers, those of the smallest numbers
// are known, and who lacks some is told; with less of them all is well again.
func TestTooManyPublishedPorts(t *testing.T) {
	b := newBed(t)
	const each, last = 3000, NumberFirst + 2
	numbers := map[Published]uint16{}
	for number := NumberFirst; number <= last; number++ {
		for i := range uint16(each) {
			numbers[Published{Protocol: unix.IPPROTO_UDP, Port: 1024 + (number-NumberFirst)*each + i}] = number
		}
	}
	for range 2 { // it is tried again, and no other suffers
		refused, err := b.uplink.SetPublished(numbers)
		if err != nil || len(refused) != 1 || !errors.Is(refused[last], ErrTooManyPublished) {
			t.Fatalf("refused %v, %v", refused, err)
		}
	}
	maps.DeleteFunc(numbers, func(_ Published, number uint16) bool { return number == NumberFirst })
	if refused, err := b.uplink.SetPublished(numbers); err != nil || refused != nil {
		t.Errorf("with room for all: refused %v, %v", refused, err)
	}
}

// A connection is its container's from the answer to the first packet on.
func TestPublishedConnection(t *testing.T) {
	b := newBed(t)
	const port = 8080
	if _, err := b.uplink.SetPublished(map[Published]uint16{{IPv6: true, Protocol: unix.IPPROTO_TCP, Port: port}: NumberFirst}); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	b.inHost(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp6", fmt.Sprintf("[::]:%d", port))
		return err
	})
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = conn.Write(make([]byte, packets*payloadBytes))
			err = errors.Join(err, conn.Close())
		}
		served <- err
	}()
	before := b.offered()
	err := testbed.InNetNS(b.host.PeerNetNSPath(), func() error {
		conn, err := net.Dial("tcp", fmt.Sprintf("[%s]:%d", b.host.PeerAddr6.Prev(), port))
		if err != nil {
			return err
		}
		defer conn.Close()
		received, err := io.Copy(io.Discard, conn)
		if received != packets*payloadBytes {
			return fmt.Errorf("received %d bytes: %w", received, err)
		}
		return nil
	})
	if err := errors.Join(err, <-served); err != nil {
		t.Fatal(err)
	}
	after := b.offered()
	if got := after[NumberFirst] - before[NumberFirst]; got < packets*payloadBytes {
		t.Errorf("%d bytes counted for the container", got)
	}
	if got := after[NumberHost] - before[NumberHost]; got > 100 {
		t.Errorf("%d bytes counted for the host", got)
	}
}
