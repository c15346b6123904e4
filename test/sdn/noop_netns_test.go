//go:build netns

package sdn

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
)

// ownQueues: with --qos linux-noop the controller makes the queues itself, on a switch
// of its own host: they do what Open vSwitch's do, outlive it, and give back what
// somebody had configured on the port's device.
func (b *bed) ownQueues(h1, h2 *testbed.Process, fifo congested) {
	t := b.t
	t.Helper()
	b.down()
	b.wait("Open vSwitch to take its queues away", 20*time.Second, func() error {
		if out := b.inSpace(b.Space, "tc", "qdisc", "show", "dev", "p2"); strings.Contains(out, "htb") {
			return errors.New(out)
		}
		return nil
	})
	args := []string{"--no-second-look", "--qos", "linux-noop", "--ovsdb", b.database(), "--rate", "100mbit"}
	b.startWeir(args...) // not in the switch's namespace
	b.refused("p2", "is not on this host")
	endProcess(b.weir, syscall.SIGTERM)

	b.inSpace(b.Space, "tc", "qdisc", "add", "dev", "p2", "root", "handle", "5:", "tbf", "rate", "700mbit", "burst", "100k", "limit", "1m")
	b.atHome = true
	b.startWeir(args...)
	b.refused("p2", "--replace")
	endProcess(b.weir, syscall.SIGTERM)
	withQueues := func() {
		b.startWeir(append(args, "--replace")...)
		b.wait("queues", 20*time.Second, func() error {
			if p := b.port("p2"); p.State != "ok" || len(p.Queues) != 3 {
				return fmt.Errorf("p2 is %+v", p)
			}
			return nil
		})
	}
	withQueues()
	b.hasTree("p2")
	b.reach(h1, "198.18.66.2")

	var before, after uint64
	own := b.congest(h1, h2, 30e6, func() {
		before = sentBytes(b.port("p2"), "be")
		endProcess(b.weir, syscall.SIGKILL)
		time.Sleep(2 * time.Second)
		withQueues()
		after = sentBytes(b.port("p2"), "be")
	})
	t.Logf("Weir's queues: %v", own)
	if own.lost != 0 || own.sent < 10000 {
		t.Errorf("EF lost %d of %d packets: %q", own.lost, own.sent, own.gaps)
	}
	if own.delay > fifo.delay/20 || own.jitter > fifo.jitter {
		t.Errorf("EF waits %v, jitter %v; in one FIFO %v and %v", own.delay, own.jitter, fifo.delay, fifo.jitter)
	}
	if before == 0 || after < before {
		t.Errorf("BE had sent %d bytes, and %d when the controller was back: its queue was made anew", before, after)
	}
	full := b.congest(h1, h2, 65e6, nil)
	t.Logf("EF beyond its bound in Weir's queues: %v", full)
	full.sharesKept(t, 0.9) // of new data; what the classes send is held to the minimums

	b.down()
	if out := b.inSpace(b.Space, "tc", "qdisc", "show", "dev", "p2"); !strings.Contains(out, "qdisc tbf 5: root") || strings.Contains(out, "htb") {
		t.Errorf("p2 was given back as %q", out)
	}
	if out := b.inSpace(b.Space, "tc", "qdisc", "show", "dev", "p1"); strings.Contains(out, "htb") || strings.Contains(out, "tbf") {
		t.Errorf("p1 was given back as %q", out)
	}
	if rows := b.vsctl("list", "qos") + b.vsctl("list", "queue"); rows != "" {
		t.Errorf("rows are left: %s", rows)
	}
}

// down stops the controller and gives the ports back.
func (b *bed) down() {
	b.t.Helper()
	endProcess(b.weir, syscall.SIGTERM)
	b.inSpace(b.Space, harness.Program(b.t), "sdn", "down", "--ovsdb", b.database())
}

// refused waits until weir says why a port cannot have its queues.
func (b *bed) refused(port, says string) {
	b.t.Helper()
	b.wait("a refusal", 20*time.Second, func() error {
		if p := b.port(port); p.State != "refused" || !strings.Contains(p.Reason, says) {
			return fmt.Errorf("%s is %+v, want %q", port, p, says)
		}
		return nil
	})
}

// hasTree: the classes that Open vSwitch's datapath names are Weir's, with AQM.
func (b *bed) hasTree(port string) {
	b.t.Helper()
	classes, qdiscs := b.inSpace(b.Space, "tc", "class", "show", "dev", port), b.inSpace(b.Space, "tc", "qdisc", "show", "dev", port)
	for i, words := range []string{"prio 2", "prio 1", "prio 0"} {
		if class := fmt.Sprintf("class htb 1:%d ", i+1); lineWith(classes, class, words, "leaf") == "" {
			b.t.Errorf("no %s with %s: %s", class, words, classes)
		}
		if lineWith(qdiscs, "fq_codel", fmt.Sprintf("parent 1:%d ", i+1)) == "" {
			b.t.Errorf("no AQM at 1:%d: %s", i+1, qdiscs)
		}
	}
}

// sharesKept: AF and BE have their minimums beside EF that wants more than its bound,
// and of what was sent a part arrives for the first time.
func (c congested) sharesKept(t *testing.T, arrives float64) {
	t.Helper()
	for _, one := range []struct {
		class      string
		has, least float64
	}{{"AF", c.afBPS, afBPS}, {"BE", c.beBPS, beBPS}} {
		if one.has < arrives*one.least {
			t.Errorf("%s has %.2f Mbit/s of its minimum of %.2f", one.class, one.has/1e6, one.least/1e6)
		}
	}
	if c.efBPS > 0.55*portBPS { // its socket is held back by what waits at the port
		t.Errorf("EF that wants 65 Mbit/s has %.2f beside AF and BE that want more", c.efBPS/1e6)
	}
	for class, least := range map[string]float64{"af": afBPS, "be": beBPS} {
		if has := c.byClasses[class]; has < 0.99*least {
			t.Errorf("by its class %s has %.3f Mbit/s of its minimum of %.2f", class, has/1e6, least/1e6)
		}
		if has := c.byQueues[class]; has < 0.75*least || has > 1.25*least {
			t.Errorf("by its queue %s has %.2f Mbit/s of its minimum of %.2f", class, has/1e6, least/1e6)
		}
	}
}
