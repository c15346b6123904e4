//go:build netns

package sdn

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/sdn/controller"
)

// TestTwoControllers: Open vSwitch obeys one of two controllers. When that is
// killed the other takes over: known flows lose no packet and keep their entries,
// new ones get theirs, and the first stands by when it comes back.
//
//weir:beside
func TestTwoControllers(t *testing.T) {
	b := newBed(t)
	type one struct {
		listen, control string
		process         *process
	}
	both := []*one{{listen: b.path("of.sock"), control: b.control()}, {listen: b.path("of2.sock"), control: b.path("sdn2.sock")}}
	run := func(c *one) { c.process = b.startController(c.listen, c.control, "--takeover-after", "2s") }
	for _, c := range both {
		run(c)
	}
	b.bridge("br0", 0xab)
	b.vsctl("set-controller", "br0", "unix:"+both[0].listen, "unix:"+both[1].listen)
	for uuid := range strings.FieldsSeq(strings.NewReplacer("[", "", "]", "", ",", "").Replace(b.vsctl("get", "bridge", "br0", "controller"))) {
		b.vsctl("set", "controller", uuid, "max_backoff=1000")
	}
	role := func(c *one) string {
		s, err := controller.NewClient(c.control).Status(t.Context())
		if err != nil || len(s.Switches) == 0 || !s.Switches[0].Connected {
			return "none"
		}
		return s.Switches[0].Role
	}
	roles := func(first, second string) error {
		for _, c := range [][2]*one{{both[0], both[1]}, {both[1], both[0]}} {
			if role(c[0]) == first && role(c[1]) == second {
				both[0], both[1] = c[0], c[1]
				return nil
			}
		}
		return fmt.Errorf("they are %s and %s", role(both[0]), role(both[1]))
	}
	b.wait("a master and a slave", 30*time.Second, func() error { return roles("master", "slave") })
	h1 := b.station("br0", "p1", 1, "198.18.66.1")
	h2 := b.station("br0", "p2", 2, "198.18.66.2")
	b.reach(h1, "198.18.66.2")
	client, lost := b.stream(h1, h2, "198.18.66.2", 53)
	entry := func() string { return lineWith(b.entries("br0"), "udp,", "tp_dst=53", "set_queue:2") }
	b.wait("the flow's entry", 20*time.Second, func() error {
		if entry() == "" {
			return errors.New("none")
		}
		return nil
	})
	b.wait("the flow in what the slave shows", 10*time.Second, func() error {
		flows, err := controller.NewClient(both[1].control).Flows(t.Context())
		if err == nil && len(flows) == 0 {
			err = errors.New("no flows")
		}
		return err
	})
	cookie, _, _ := strings.Cut(entry(), ",")

	both[0].process.stop(syscall.SIGKILL)
	b.wait("the other as master", 30*time.Second, func() error { return roles("none", "master") })
	b.tcp(h1, h2, "198.18.66.2", 25)
	b.wait("a new flow's entry", 20*time.Second, func() error {
		b.udp(h1, h2, "198.18.66.2", 5060)
		if lineWith(b.entries("br0"), "udp,", "tp_dst=5060") == "" {
			return errors.New("none")
		}
		return nil
	})
	run(both[0])
	b.wait("the first as slave", 30*time.Second, func() error { return roles("slave", "master") })
	time.Sleep(4 * time.Second) // longer than anybody waits
	if err := roles("slave", "master"); err != nil {
		t.Error(err)
	}
	client.Close()
	if sent, missing := lost(); missing != 0 || sent < 200 {
		t.Errorf("%d of %d packets lost", missing, sent)
	}
	if now, _, _ := strings.Cut(entry(), ","); now != cookie {
		t.Errorf("the entry was %s and is %s", cookie, now)
	}
}
