//go:build netns

package sdn

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// TestKernelDatapath: where Open vSwitch forwards in the kernel, three flows share
// a port that is too small for them as its queues say: EF loses nothing, AF has
// its minimum beside eight connections of BE, BE has what is left to it, and each
// is counted in its own queue.
func TestKernelDatapath(t *testing.T) {
	const linkBPS = 10e6
	b := newKernelBed(t)
	b.startWeir("--ovsdb", b.database(), "--rate", "10mbit", "--no-second-look")
	h1, h2 := b.twoStations()
	b.wait("queues", 20*time.Second, func() error {
		if p := b.port("p2"); p.State != "ok" || len(p.Queues) != 3 {
			return fmt.Errorf("p2 is %+v", p)
		}
		return nil
	})
	ef, lost := b.stream(h1, h2, "198.18.66.2", 53) // DNS: SERVICES
	b.wait("the flow's entry", 10*time.Second, func() error {
		if lineWith(b.entries("br0"), "udp,", "tp_dst=53", "set_queue:2") == "" {
			return errors.New("none")
		}
		return nil
	})
	time.Sleep(2 * time.Second) // the kernel's copies of entries follow
	before := b.port("p2")

	be := b.bulk(h1, h2, "198.18.66.2", 25, 8)  // SMTP: EMAIL
	af := b.bulk(h1, h2, "198.18.66.2", 443, 1) // HTTPS: WEB
	time.Sleep(4 * time.Second)
	afBefore, beBefore, began := af.Load(), be.Load(), time.Now()
	time.Sleep(10 * time.Second)
	seconds := time.Since(began).Seconds()
	afBPS, beBPS := float64(af.Load()-afBefore)*8/seconds, float64(be.Load()-beBefore)*8/seconds
	ef.Close()
	sent, missing := lost()
	t.Logf("of %.0f Mbit/s: AF %.2f, BE %.2f Mbit/s; EF lost %d of %d packets", linkBPS/1e6, afBPS/1e6, beBPS/1e6, missing, sent)

	if missing != 0 || sent < 500 {
		t.Errorf("EF lost %d of %d packets", missing, sent)
	}
	// Minimums are of frames, what arrives is without headers; AF and BE may
	// borrow what EF leaves, AF first.
	if least := 0.3 * linkBPS * 0.9; afBPS < least {
		t.Errorf("AF has %.2f Mbit/s beside eight connections of BE, want %.2f", afBPS/1e6, least/1e6)
	}
	if least := 0.2 * linkBPS * 0.85; beBPS < least {
		t.Errorf("BE has %.2f Mbit/s, want %.2f", beBPS/1e6, least/1e6)
	}
	if total := afBPS + beBPS; total < 0.8*linkBPS || total > linkBPS {
		t.Errorf("AF and BE have %.2f of %.0f Mbit/s", total/1e6, linkBPS/1e6)
	}
	for proto, want := range map[string]string{"udp 53": "ef", "tcp 443": "af", "tcp 25": "be"} {
		var name string
		var port int
		_, _ = fmt.Sscan(proto, &name, &port)
		if class, _ := b.class(name, "198.18.66.2:"+strconv.Itoa(port)); class != want {
			t.Errorf("%s is %s, want %s", proto, class, want)
		}
	}
	b.countedIn("ef", before, float64(sent-250)*100, float64(sent+250)*110)
	b.countedIn("af", before, float64(af.Load()), 1.3*float64(af.Load())+1e6)
	b.countedIn("be", before, float64(be.Load()), 1.3*float64(be.Load())+1e6)
}

// countedIn holds what a queue of p2 has sent since before to bounds, in bytes.
func (b *bed) countedIn(class string, before v1.SDNPort, least, most float64) {
	b.t.Helper()
	b.wait("the count of "+class, 5*time.Second, func() error {
		sent := float64(sentBytes(b.port("p2"), class) - sentBytes(before, class))
		if sent < least || sent > most {
			return fmt.Errorf("the queue has sent %.0f bytes, want %.0f to %.0f", sent, least, most)
		}
		return nil
	})
}

func sentBytes(p v1.SDNPort, class string) uint64 {
	for _, q := range p.Queues {
		if q.Class == class {
			return q.SentBytes
		}
	}
	return 0
}

// port is what weir sdn ps shows of a port.
func (b *bed) port(name string) v1.SDNPort {
	b.t.Helper()
	for _, n := range b.status().Switches {
		for _, p := range n.Ports {
			if p.Name == name {
				return p
			}
		}
	}
	return v1.SDNPort{}
}

// bulk sends as much as n connections take, until the test ends, and counts the
// bytes that arrive.
func (b *bed) bulk(from, to *process, address string, port, n int) *atomic.Uint64 {
	b.t.Helper()
	var arrived atomic.Uint64
	var server net.Listener
	b.in(to, func() (err error) {
		server, err = net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		return err
	})
	b.t.Cleanup(func() { server.Close() })
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buffer := make([]byte, 1<<16)
				for {
					n, err := c.Read(buffer)
					arrived.Add(uint64(n))
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	for range n {
		b.in(from, func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(address, strconv.Itoa(port)), 10*time.Second)
			if err != nil {
				return err
			}
			b.t.Cleanup(func() { c.Close() })
			go func() {
				for buffer := make([]byte, 1<<14); err == nil; {
					_, err = c.Write(buffer)
				}
			}()
			return nil
		})
	}
	return &arrived
}
