//go:build netns

package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// dscpReceiver is a socket of the neighbour that sees the traffic class octet of what
// arrives.
func dscpReceiver(t *testing.T, b *harness.Bed, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	err := testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		if conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
			return err
		}
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		level, option := unix.IPPROTO_IP, unix.IP_RECVTOS
		if at.Addr().Is6() {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS
		}
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }), err)
	})
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// octet is the traffic class octet of the next datagram.
func octet(t *testing.T, conn *net.UDPConn) (byte, error) {
	t.Helper()
	must.Succeed(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	data, control := make([]byte, 2000), make([]byte, 200)
	_, n, _, _, err := conn.ReadMsgUDP(data, control)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 || len(messages[0].Data) < 1 {
		t.Fatalf("control messages %+v, %v", messages, err)
	}
	return messages[0].Data[0], nil // of IPv6 an int of this machine, little-endian
}

// TestDSCP: with weir.dscp what a container writes into the field decides classes, and the
// neighbour is told by it as which class a packet was served; ECN stays. Without it the
// field is neither believed nor touched.
func TestDSCP(t *testing.T) {
	t.Parallel()
	const (
		ef, af11, cs1, ecn = 46 << 2, 10 << 2, 8 << 2, 2
		names, files       = 53, 69 // EF and BE to the classifier
	)
	b := newBed(t)
	containers := map[string]*harness.Container{}
	for name, labels := range map[string]map[string]string{
		"both": labels("class", "auto", "dscp", "both"), "mark": labels("class", "auto", "dscp", "mark"),
		"trust": labels("class", "auto", "dscp", "trust"), "neither": labels("class", "auto"), "whole": labels("class", "af", "dscp", "mark"),
	} {
		containers[name] = b.Add(name, labels)
	}
	agent := b.StartAgent(harness.AgentOptions{Rate: "20mbit"})
	for _, family := range []struct {
		name string
		peer func(*harness.Container) netip.Addr
	}{{"IPv4", func(c *harness.Container) netip.Addr { return c.PeerAddr }}, {"IPv6", func(c *harness.Container) netip.Addr { return c.PeerAddr6 }}} {
		for _, test := range []struct {
			container    string
			port         uint16
			sent, arrive byte
			class        v1.Class
		}{
			{"both", names, 0, ef, v1.ClassEF},
			{"both", files, ef | ecn, ef | ecn, v1.ClassEF},
			{"both", files, af11, 26 << 2, v1.ClassAF},
			{"both", names, cs1 | ecn, ecn, v1.ClassBE},
			{"trust", files, ef, ef, v1.ClassEF},
			{"mark", files, ef, 0, v1.ClassBE},
			{"mark", names, cs1 | ecn, ef | ecn, v1.ClassEF},
			{"neither", files, ef | ecn, ef | ecn, v1.ClassBE},
			{"neither", names, cs1, cs1, v1.ClassEF},
			{"whole", files, ef, 26 << 2, v1.ClassAF},
		} {
			t.Run(fmt.Sprintf("%s %s port %d sent %#x", family.name, test.container, test.port, test.sent), func(t *testing.T) {
				c := containers[test.container]
				to := netip.AddrPortFrom(family.peer(c), test.port)
				receiver := dscpReceiver(t, b, to)
				before := agent.Container(test.container)
				sendMarked(t, c, to, test.sent)
				for range marked {
					got, err := octet(t, receiver)
					must.Succeed(t, err)
					if got != test.arrive {
						t.Fatalf("arrived with %#x, want %#x", got, test.arrive)
					}
				}
				agent.AwaitContainer(test.container, fmt.Sprintf("%d packets of %s more", marked, test.class), 15*time.Second, func(now v1.Container) bool {
					return class(t, now, test.class).SentPackets >= class(t, before, test.class).SentPackets+marked
				})
			})
		}
	}
}

// marked is how many datagrams are sent with one octet.
const marked = 20

// sendMarked lets a container send datagrams with that traffic class octet.
func sendMarked(t *testing.T, c *harness.Container, to netip.AddrPort, octet byte) {
	t.Helper()
	err := c.Enter(func() error {
		domain, level, option := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TOS
		var address unix.Sockaddr
		if to.Addr().Is4() {
			address = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
		} else {
			domain, level, option = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_TCLASS
			address = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
		}
		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, level, option, int(octet)); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		for range marked {
			if err := unix.Sendto(fd, make([]byte, 300), 0, address); err != nil {
				return os.NewSyscallError("sendto", err)
			}
			time.Sleep(2 * time.Millisecond) // within EF's burst, and the socket's buffer
		}
		return nil
	})
	must.Succeed(t, err)
}
