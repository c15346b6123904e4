//go:build netns

package sdn

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// triangle is three bridges with a cable between each two, and hosts at the first two.
func (b *bed) triangle() (h1, h2 *testbed.Process) {
	b.t.Helper()
	b.startPromising()
	for i := range 3 {
		b.bridge(fmt.Sprintf("br%d", i+1), 0xa1+i)
	}
	h1, h2 = b.host("br1", "h1", 9, "198.18.66.1"), b.host("br2", "h2", 9, "198.18.66.2")
	b.cable("br1", "c12", 2, "br2", "c21", 1)
	b.cable("br1", "c13", 3, "br3", "c31", 1)
	b.cable("br3", "c32", 2, "br2", "c23", 3)
	b.wait("links", 30*time.Second, func() error {
		if n := len(b.status().Links); n != 3 {
			return fmt.Errorf("%d of 3", n)
		}
		return nil
	})
	b.reach(h1, "198.18.66.2")
	return h1, h2
}

// startPromising starts weir sdn run with most of each port's rate to promise.
func (b *bed) startPromising() {
	b.t.Helper()
	b.startWeir("--ovsdb", b.database(), "--rate", "20mbit", "--ef-max", "20%", "--af-min", "20%")
}

// towards asks for a minimum for UDP from the first host to a port of the second.
func towards(port uint16, bps uint64) v1.SDNPromiseRequest {
	return v1.SDNPromiseRequest{
		ID: fmt.Sprintf("site/voice/%d", port), Service: "voice", Node: netip.MustParseAddr("198.18.66.2"), Peer: netip.MustParseAddr("198.18.66.1"),
		Protocol: "udp", Port: port, BackBPS: bps,
	}
}

// promise reserves and confirms a minimum.
func (b *bed) promise(r v1.SDNPromiseRequest) {
	b.t.Helper()
	c := client.NewSDN(b.control())
	b.wait("the promise", 20*time.Second, func() error {
		_, err := c.Reserve(b.t.Context(), r)
		return err
	})
	_, err := c.Confirm(b.t.Context(), r)
	must.Succeed(b.t, err)
}

// promised waits until the only promise is as it should be, and returns it.
func (b *bed) promised(what string, is func(v1.SDNPromise) bool) (p v1.SDNPromise) {
	b.t.Helper()
	return b.promisedWithin(20*time.Second, what, is)
}

// promisedWithin is promised for what does not take longer. It asks the API: how long a command takes to
// start is no matter of the controller's.
func (b *bed) promisedWithin(atMost time.Duration, what string, is func(v1.SDNPromise) bool) (p v1.SDNPromise) {
	b.t.Helper()
	c := client.NewSDN(b.control())
	took := harness.Await(b.t, what, atMost, func() error {
		l, err := c.Links(b.t.Context())
		if err != nil {
			return err
		}
		if len(l.Promises) != 1 || !is(l.Promises[0]) {
			return fmt.Errorf("%+v", l.Promises)
		}
		p = l.Promises[0]
		return nil
	})
	b.t.Logf("%s after %v: %+v", what, took, p)
	return p
}

// TestPromisedMinimum: a promise is a queue at each port of its path and an entry at each switch, is
// told as waiting where the datapath ignores queues, moves within a second when a link is cut, and is
// broken when no path is left.
func TestPromisedMinimum(t *testing.T) {
	b := newBed(t)
	h1, h2 := b.triangle()
	c := client.NewSDN(b.control())
	b.promise(towards(5000, 4e6))
	waiting := func(p v1.SDNPromise) bool {
		return p.State == v1.PromiseWaiting && strings.Contains(p.Reason, "datapath_type=netdev")
	}
	p := b.promised("the first path", waiting)
	if len(p.Back) != 2 || len(p.Path) > 0 || p.Back[0].Out != 2 || p.Back[1].Out != 9 {
		t.Errorf("%+v", p)
	}
	queue := func(port string) string {
		qos := strings.TrimSpace(b.vsctl("get", "port", port, "qos"))
		number := b.vsctl("--if-exists", "get", "qos", qos, "queues:8")
		if strings.TrimSpace(number) == "" {
			return ""
		}
		return b.vsctl("get", "queue", strings.TrimSpace(number), "other_config:min-rate")
	}
	b.wait("queues", 10*time.Second, func() error {
		for port, want := range map[string]string{"c12": "\"4000000\"\n", "h2": "\"4000000\"\n", "c13": "", "c21": "", "h1": ""} {
			if got := queue(port); got != want {
				return fmt.Errorf("%s has %q", port, got)
			}
		}
		return nil
	})
	v := b.voice(h1, h2, 5000, 1e6)
	for _, bridge := range []string{"br1", "br2"} {
		b.wait("the entry of "+bridge, 10*time.Second, func() error {
			if line := lineWith(b.entries(bridge), "priority=35000", "tp_dst=5000", "set_queue:8"); !strings.Contains(line, "n_packets=") || strings.Contains(line, "n_packets=0,") {
				return errors.New(line)
			}
			return nil
		})
	}
	endProcess(b.weir, syscall.SIGKILL)
	b.startPromising()
	b.wait("the database to be read", 20*time.Second, func() error {
		if p := b.port("c12"); p.State != "degraded" || len(p.Queues) != 4 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	if line := lineWith(b.entries("br1"), "priority=35000", "set_queue:8"); line == "" || queue("c12") != "\"4000000\"\n" {
		t.Errorf("after a restart the entry is %q, the queue %q", line, queue("c12"))
	}
	b.promise(towards(5000, 4e6))
	b.promised("the same path", func(p v1.SDNPromise) bool { return waiting(p) && len(p.Back) == 2 })

	var refused *client.Error
	if _, err := c.Reserve(t.Context(), towards(5001, 8e6)); !errors.As(err, &refused) || refused.Status != http.StatusConflict || !strings.Contains(err.Error(), "left to promise") {
		t.Errorf("too much: %v", err)
	}
	if _, err := c.Reserve(t.Context(), towards(4789, 1e6)); !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity {
		t.Errorf("VXLAN: %v", err)
	}

	b.inSpace(b.Space, "ip", "link", "set", "c12", "down")
	b.promisedWithin(time.Second, "a link is cut: the promise is on the other path", func(p v1.SDNPromise) bool { return len(p.Back) == 3 })
	b.promised("queues of the other path", waiting)
	b.inSpace(b.Space, "ip", "link", "set", "c13", "down")
	p = b.promisedWithin(time.Second, "the other link is cut: the promise is broken", func(p v1.SDNPromise) bool { return p.State == v1.PromiseBroken })
	if !strings.Contains(p.Reason, "no path leads from 198.18.66.1") {
		t.Error(p.Reason)
	}
	b.inSpace(b.Space, "ip", "link", "set", "c12", "up")
	b.promised("a path again", func(p v1.SDNPromise) bool { return len(p.Back) == 2 })
	must.Succeed(t, c.Release(t.Context(), p.ID))
	b.wait("nothing is left", 10*time.Second, func() error {
		if line := lineWith(b.entries("br2"), "priority=35000"); line != "" || queue("h2") != "" {
			return fmt.Errorf("%s, queue %s", line, queue("h2"))
		}
		return nil
	})
	v.stop()
}

// TestPromiseKernel: with all links overloaded by others, a promised minimum arrives whole in every
// second.
func TestPromiseKernel(t *testing.T) {
	const promisedBPS = 5e6
	b := newKernelBed(t)
	h1, h2 := b.triangle()
	b.promise(towards(5000, promisedBPS))
	b.promised("in force", func(p v1.SDNPromise) bool { return p.State == v1.PromiseInForce })
	v, without := b.voice(h1, h2, 5000, promisedBPS), b.voice(h1, h2, 5001, promisedBPS)
	_, stop := b.bulk(h1, h2, bePort, 8)
	time.Sleep(3 * time.Second)
	var windows []float64
	for last, began := v.bytes.Load(), time.Now(); len(windows) < 5; {
		time.Sleep(time.Second)
		now, at := v.bytes.Load(), time.Now()
		windows = append(windows, 8*float64(now-last)*(efBytes+42)/efBytes/at.Sub(began).Seconds())
		last, began = now, at
	}
	sent, lost := v.stop()
	othersSent, othersLost := without.stop()
	stop()
	t.Logf("promised %.2g bit/s: by the second %.4g; lost %d of %d; without a promise %d of %d", promisedBPS, windows, lost, sent, othersLost, othersSent)
	for _, bps := range windows {
		if bps < 0.99*promisedBPS*0.99 { // what is sent is a packet less
			t.Errorf("%.4g of %.4g bit/s", bps, promisedBPS)
		}
	}
	if lost > 0 {
		t.Errorf("lost %d of %d", lost, sent)
	}
}
