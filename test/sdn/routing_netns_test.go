//go:build netns

package sdn

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
)

// networks are two that are routed between, of a version of IP: gateways and a host
// of each.
type networks struct {
	gateways, hosts [2]string
	udp, tcp        string // what ovs-ofctl calls them
	traceroute      string
}

var (
	ipv4 = networks{[2]string{"198.18.66.1", "198.18.67.1"}, [2]string{"198.18.66.2", "198.18.67.2"}, "udp,", "tcp,", "traceroute"}
	ipv6 = networks{[2]string{"fd00:66::1", "fd00:67::1"}, [2]string{"fd00:66::2", "fd00:67::2"}, "udp6,", "tcp6,", "traceroute6"}
)

// linkLocalGateway is every IPv6 gateway's beside the address of its network.
const linkLocalGateway = "fe80::57:65ff:fe69:7200"

// options are those by which weir sdn run routes.
func (n networks) options() []string {
	return []string{"--gateway", n.gateways[0] + bitsOf(n.gateways[0]), "--gateway", n.gateways[1] + bitsOf(n.gateways[1])}
}

// twoBridges is a cable between two bridges.
func (b *bed) twoBridges() {
	b.t.Helper()
	b.bridge("br1", 1)
	b.bridge("br2", 2)
	b.cable("br1", "c12", 1, "br2", "c21", 1)
}

// atBothEnds puts a host of each network at a bridge of twoBridges.
func (b *bed) atBothEnds(n networks) (h1, h2 *testbed.Process) {
	b.t.Helper()
	h1 = b.host("br1", "p1", 9, n.hosts[0])
	h2 = b.host("br2", "p2", 9, n.hosts[1])
	b.inSpace(h1, "ip", "route", "add", "default", "via", n.gateways[0])
	b.inSpace(h2, "ip", "route", "add", "default", "via", n.gateways[1])
	return h1, h2
}

// TestRouted: hosts of two networks reach each other and their gateways over
// two bridges, a TCP connection carries what it should in its class's queue, and
// who sends with a TTL of 1 is told.
func TestRouted(t *testing.T) {
	t.Parallel()
	testRouted(t, ipv4)
}

// TestRoutedIPv6 is TestRouted with IPv6; one host knows its gateway by the address
// that it has on the link.
func TestRoutedIPv6(t *testing.T) {
	t.Parallel()
	testRouted(t, ipv6)
}

func testRouted(t *testing.T, n networks) {
	b := newBed(t)
	b.startWeir(n.options()...)
	b.twoBridges()
	b.wait("the link", 20*time.Second, func() error {
		if links := b.status().Links; len(links) != 1 {
			return fmt.Errorf("%d links", len(links))
		}
		return nil
	})
	h1, h2 := b.atBothEnds(n)
	if n == ipv6 {
		b.inSpace(h2, "ip", "-6", "route", "replace", "default", "via", linkLocalGateway, "dev", "eth0")
	}
	b.reach(h1, n.gateways[0])
	b.reach(h1, n.hosts[1])
	b.reach(h2, n.hosts[0])
	b.reach(h2, n.gateways[0]) // the gateway of another network

	b.udp(h1, h2, n.hosts[1], 53)
	const length = 1 << 20
	if arrived := b.transfer(h1, h2, n.hosts[1], 22, length); arrived != length {
		t.Errorf("%d of %d bytes arrived", arrived, length)
	}
	for proto, c := range map[string]struct{ field, queue string }{n.udp: {"tp_dst=53", "2"}, n.tcp: {"tp_dst=22", "1"}} {
		b.entry("br1", proto, c.field, "dec_ttl", "set_queue:"+c.queue+",output:1")
		if line := b.entry("br2", proto, c.field, "set_queue:"+c.queue+",output:9"); strings.Contains(line, "dec_ttl") {
			t.Errorf("br2 has %q for %s", line, proto)
		}
	}
	// Fragments, which have no entries.
	b.wait("pings in fragments", 20*time.Second, func() error {
		out, err := b.do("nsenter", "--net="+h1.NetNSPath(), "busybox", pingOf(n.hosts[1]), "-c", "1", "-W", "2", "-s", "3000", n.hosts[1])
		if err == nil && !strings.Contains(out, " 1 packets received") {
			err = fmt.Errorf("ping: %s", out)
		}
		return err
	})
	b.wait("the gateway's word on a TTL of 1", 20*time.Second, func() error {
		out, err := b.do("nsenter", "--net="+h1.NetNSPath(), "busybox", n.traceroute, "-n", "-q", "1", "-m", "1", "-w", "2", n.hosts[1])
		if err == nil && !strings.Contains(out, " 1  "+n.gateways[0]+" ") {
			err = fmt.Errorf("traceroute: %s", out)
		}
		return err
	})
}

// transfer sends so many bytes over TCP and returns how many arrived.
func (b *bed) transfer(from, to *testbed.Process, address string, port, length int) int64 {
	b.t.Helper()
	client, arrived := b.connection(from, to, address, port)
	_ = client.SetDeadline(time.Now().Add(30 * time.Second))
	_, err := client.Write(make([]byte, length))
	client.Close()
	if err != nil {
		b.t.Errorf("TCP to %s: %v", address, err)
	}
	return arrived()
}

// connection is a TCP connection whose other end reads; arrived tells how many bytes
// came there before it was closed.
func (b *bed) connection(from, to *testbed.Process, address string, port int) (client net.Conn, arrived func() int64) {
	b.t.Helper()
	host := net.JoinHostPort(address, fmt.Sprint(port))
	var server net.Listener
	b.in(to, func() (err error) {
		server, err = net.Listen("tcp", host)
		return err
	})
	b.t.Cleanup(func() { server.Close() })
	read := make(chan int64, 1)
	go func() {
		n := int64(0)
		if c, err := server.Accept(); err == nil {
			n, _ = io.Copy(io.Discard, c)
			c.Close()
		}
		read <- n
	}()
	b.in(from, func() (err error) {
		client, err = net.DialTimeout("tcp", host, 10*time.Second)
		return err
	})
	return client, func() int64 {
		select {
		case n := <-read:
			return n
		case <-time.After(30 * time.Second):
			return -1
		}
	}
}
