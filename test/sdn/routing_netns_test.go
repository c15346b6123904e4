//go:build netns

package sdn

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestRouted: stations of two networks reach each other and their gateways over
// two bridges, a TCP connection carries what it should in its class's queue, and
// who sends with a TTL of 1 is told.
//
//weir:beside
func TestRouted(t *testing.T) {
	b := newBed(t)
	b.startWeir("--gateway", "198.18.66.1/24", "--gateway", "198.18.67.1/24")
	b.bridge("br1", 1)
	b.bridge("br2", 2)
	b.cable("br1", "c12", 1, "br2", "c21", 1)
	b.wait("the link", 20*time.Second, func() error {
		if links := b.status().Links; len(links) != 1 {
			return fmt.Errorf("%d links", len(links))
		}
		return nil
	})
	h1 := b.station("br1", "p1", 9, "198.18.66.2")
	h2 := b.station("br2", "p2", 9, "198.18.67.2")
	b.inSpace(h1, "ip", "route", "add", "default", "via", "198.18.66.1")
	b.inSpace(h2, "ip", "route", "add", "default", "via", "198.18.67.1")
	b.reach(h1, "198.18.66.1")
	b.reach(h1, "198.18.67.2")
	b.reach(h2, "198.18.66.2")
	b.reach(h2, "198.18.66.1") // the gateway of another network

	b.udp(h1, h2, "198.18.67.2", 53)
	const length = 1 << 20
	if n := b.transfer(h1, h2, "198.18.67.2", 22, length); n != length {
		t.Errorf("%d of %d bytes arrived", n, length)
	}
	first, last := b.entries("br1"), b.entries("br2")
	for proto, c := range map[string]struct{ field, queue string }{"udp": {"tp_dst=53", "2"}, "tcp": {"tp_dst=22", "1"}} {
		if line := lineWith(first, proto+",", c.field); !strings.Contains(line, "dec_ttl") || !strings.Contains(line, "set_queue:"+c.queue+",output:1") {
			t.Errorf("br1 has %q for %s", line, proto)
		}
		if line := lineWith(last, proto+",", c.field); strings.Contains(line, "dec_ttl") || !strings.Contains(line, "set_queue:"+c.queue+",output:9") {
			t.Errorf("br2 has %q for %s", line, proto)
		}
	}
	b.wait("the gateway's word on a TTL of 1", 20*time.Second, func() error {
		out, err := b.do("nsenter", "--net="+h1.netns(), "busybox", "traceroute", "-n", "-q", "1", "-m", "1", "-w", "2", "198.18.67.2")
		if err == nil && !strings.Contains(out, " 1  198.18.66.1 ") {
			err = fmt.Errorf("traceroute: %s", out)
		}
		return err
	})
}

// transfer sends so many bytes over TCP and returns how many arrived.
func (b *bed) transfer(from, to *process, address string, port, length int) int64 {
	b.t.Helper()
	host := net.JoinHostPort(address, fmt.Sprint(port))
	var server net.Listener
	b.in(to, func() (err error) {
		server, err = net.Listen("tcp", host)
		return err
	})
	defer server.Close()
	arrived := make(chan int64, 1)
	go func() {
		n := int64(0)
		if c, err := server.Accept(); err == nil {
			n, _ = io.Copy(io.Discard, c)
			c.Close()
		}
		arrived <- n
	}()
	var client net.Conn
	b.in(from, func() (err error) {
		client, err = net.DialTimeout("tcp", host, 10*time.Second)
		return err
	})
	_ = client.SetDeadline(time.Now().Add(30 * time.Second))
	_, err := client.Write(make([]byte, length))
	client.Close()
	if err != nil {
		b.t.Errorf("TCP to %s: %v", host, err)
	}
	select {
	case n := <-arrived:
		return n
	case <-time.After(30 * time.Second):
		return -1
	}
}
