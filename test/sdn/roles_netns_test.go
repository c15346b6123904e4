//go:build netns

package sdn

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// pair is two controllers of the same switches; that of the last role asked for is
// first.
type pair struct {
	b    *bed
	args []string
	both [2]*oneOfTwo
}

// oneOfTwo is one of them, with its sockets for switches and for people.
type oneOfTwo struct {
	listen, control string
	process         *testbed.Process
}

func (b *bed) startPair(args ...string) *pair {
	b.t.Helper()
	p := &pair{b: b, args: append([]string{"--takeover-after", "2s"}, args...)}
	p.both = [2]*oneOfTwo{{listen: b.path("of.sock"), control: b.control()}, {listen: b.path("of2.sock"), control: b.path("sdn2.sock")}}
	for _, c := range p.both {
		p.run(c)
	}
	return p
}

func (p *pair) run(c *oneOfTwo) {
	p.b.t.Helper()
	c.process = p.b.startController(c.listen, c.control, p.args...)
}

// control has a bridge connect to both.
func (p *pair) control(bridge string) {
	p.b.t.Helper()
	p.b.vsctl("set-controller", bridge, "unix:"+p.both[0].listen, "unix:"+p.both[1].listen)
	for uuid := range strings.FieldsSeq(strings.NewReplacer("[", "", "]", "", ",", "").Replace(p.b.vsctl("get", "bridge", bridge, "controller"))) {
		p.b.vsctl("set", "controller", uuid, "max_backoff=1000")
	}
}

// role is what all switches that are connected say that a controller is.
func (p *pair) role(c *oneOfTwo) string {
	s, err := client.NewSDN(c.control).Status(p.b.t.Context())
	if err != nil || len(s.Switches) == 0 {
		return "none"
	}
	for _, n := range s.Switches {
		if !n.Connected {
			return "none"
		}
		if n.Role != s.Switches[0].Role {
			return "mixed"
		}
	}
	return s.Switches[0].Role
}

// roles expects one of them to be this and the other that, and puts them into that
// order.
func (p *pair) roles(first, second string) error {
	for _, c := range [][2]*oneOfTwo{{p.both[0], p.both[1]}, {p.both[1], p.both[0]}} {
		if p.role(c[0]) == first && p.role(c[1]) == second {
			p.both = c
			return nil
		}
	}
	return fmt.Errorf("they are %s and %s", p.role(p.both[0]), p.role(p.both[1]))
}

// TestTwoControllers: Open vSwitch obeys one of two controllers. When that is
// killed the other takes over: known flows lose no packet and keep their entries,
// new ones get theirs, and the first stands by when it comes back.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	p := b.startPair()
	b.bridge("br0", 0xab)
	p.control("br0")
	b.wait("a master and a slave", 30*time.Second, func() error { return p.roles("master", "slave") })
	h1 := b.host("br0", "p1", 1, "198.18.66.1")
	h2 := b.host("br0", "p2", 2, "198.18.66.2")
	b.reach(h1, "198.18.66.2")
	stream, lost := b.stream(h1, h2, "198.18.66.2", 53)
	entry := func() string { return lineWith(b.entries("br0"), "udp,", "tp_dst=53", "set_queue:2") }
	b.wait("the flow's entry", 20*time.Second, func() error {
		if entry() == "" {
			return errors.New("none")
		}
		return nil
	})
	b.wait("the flow in what the slave shows", 10*time.Second, func() error {
		flows, err := client.NewSDN(p.both[1].control).Flows(t.Context())
		if err == nil && len(flows) == 0 {
			err = errors.New("no flows")
		}
		return err
	})
	cookie, _, _ := strings.Cut(entry(), ",")

	endProcess(p.both[0].process, syscall.SIGKILL)
	b.wait("the other as master", 30*time.Second, func() error { return p.roles("none", "master") })
	b.tcp(h1, h2, "198.18.66.2", 25)
	b.wait("a new flow's entry", 20*time.Second, func() error {
		b.udp(h1, h2, "198.18.66.2", 5060)
		if lineWith(b.entries("br0"), "udp,", "tp_dst=5060") == "" {
			return errors.New("none")
		}
		return nil
	})
	p.run(p.both[0])
	b.wait("the first as slave", 30*time.Second, func() error { return p.roles("slave", "master") })
	time.Sleep(4 * time.Second) // longer than anybody waits
	if err := p.roles("slave", "master"); err != nil {
		t.Error(err)
	}
	stream.Close()
	if sent, missing := lost(); missing != 0 || sent < 200 {
		t.Errorf("%d of %d packets lost", missing, sent)
	}
	if now, _, _ := strings.Cut(entry(), ","); now != cookie {
		t.Errorf("the entry was %s and is %s", cookie, now)
	}
}
