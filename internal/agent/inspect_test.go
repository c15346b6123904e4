package agent

import (
	"errors"
	"maps"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/identity"
)

// nowhere is a tap at a device that no machine has.
func nowhere(n int) identity.Tap { return identity.Tap{Ifindex: 1<<30 + n} }

func TestTakeAttachments(t *testing.T) {
	bridge := identity.Attachment{Mode: v1.ModeBridge, Interface: "eth0", GSOMaxBytes: 65536, Tap: nowhere(0)}
	macvlan := identity.Attachment{Mode: v1.ModeMacvlan, Interface: "eth1", GSOMaxBytes: 65536, Tap: nowhere(1)}
	lost := identity.Attachment{Mode: v1.ModeOverlay, Interface: "eth2", Obstacle: "its other end cannot be found"}
	for _, tc := range []struct {
		name       string
		found      []identity.Attachment
		mode       v1.Mode
		controlled bool
		state      v1.State
		reason     string
	}{
		{"one", []identity.Attachment{bridge}, v1.ModeBridge, true, v1.StateOK, ""},
		{"two modes", []identity.Attachment{macvlan, bridge}, v1.ModeMacvlan, true, v1.StateOK, ""},
		{"none yet", nil, v1.ModeNone, false, v1.StateOK, ""},
		{"one that cannot be assigned", []identity.Attachment{lost}, v1.ModeOverlay, false, v1.StateDegraded,
			"traffic through eth2 (overlay) is not controlled: its other end cannot be found"},
		{"one that can and one that cannot", []identity.Attachment{lost, bridge}, v1.ModeBridge, true, v1.StateDegraded,
			"traffic through eth2 (overlay) is not controlled: its other end cannot be found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 100e6)
			c := b.start("c").container
			b.registry.release(c)
			b.takeAttachments(c, tc.found)
			state, reason := c.state()
			if c.mode != tc.mode || (c.number != 0) != tc.controlled || state != tc.state || reason != tc.reason {
				t.Errorf("%s, number %d, %s, %q", c.mode, c.number, state, reason)
			}
			if c.unattached != (len(tc.found) == 0) {
				t.Errorf("to be looked for again: %t", c.unattached)
			}
		})
	}

	// What was done to a device is remembered when it is found again, also
	// under another name; a device that went is forgotten.
	b := newBench(t, 100e6)
	c := b.start("c").container
	b.takeAttachments(c, []identity.Attachment{bridge, macvlan})
	c.attachments[0].assigned, c.attachments[0].gsoBefore = true, 12345
	limited := bridge
	limited.GSOMaxBytes = 3028
	b.takeAttachments(c, []identity.Attachment{limited})
	if len(c.attachments) != 1 || !c.attachments[0].assigned || c.attachments[0].gsoBefore != 12345 || c.attachments[0].GSOMaxBytes != 3028 {
		t.Errorf("found again: %+v", c.attachments)
	}
	// The namespace of an overlay may be found by another path; the tap is
	// there, but has to be looked at.
	moved := limited
	moved.Tap.NetNSPath = "/run/netns/elsewhere"
	b.takeAttachments(c, []identity.Attachment{moved})
	if c.attachments[0].assigned || c.attachments[0].gsoBefore != 12345 {
		t.Errorf("found elsewhere: %+v", c.attachments)
	}
}

// When all numbers are in use, a container runs on in the host class and says
// so; when one is free again, it gets that.
func TestOutOfNumbers(t *testing.T) {
	b := newBench(t, 100e6)
	late := b.start("late").container
	b.registry.release(late)
	for n := identity.NumberFirst; n <= identity.NumberLast; n++ {
		c := &container{number: n}
		b.addShares(c)
		b.registry.byNumber[n] = c
	}
	found := []identity.Attachment{{Mode: v1.ModeBridge, Interface: "eth0", Tap: nowhere(0)}}
	b.takeAttachments(late, found)
	if state, reason := late.state(); late.number != 0 || state != v1.StateDegraded ||
		reason != "all container numbers are in use; it is counted in the host class" {
		t.Errorf("number %d, %s, %q", late.number, state, reason)
	}
	if !late.unattached {
		t.Error("will not be asked again")
	}
	b.registry.release(b.registry.byNumber[identity.NumberFirst+7])
	late.obstacle = ""
	b.takeAttachments(late, found)
	if state, reason := late.state(); late.number != identity.NumberFirst+7 || state != v1.StateOK {
		t.Errorf("number %d, %s, %q", late.number, state, reason)
	}
}

// Containers in the host's network are known by their cgroup, at every uplink,
// for as long as they run.
func TestCgroups(t *testing.T) {
	b := newBench(t, 100e6)
	seen := discovery.Container{ID: "1", Name: "c", Runtime: "docker", HostNetwork: true, CgroupPath: "/sys/fs/cgroup/c", StartedAt: epoch}
	b.learn(discovery.Event{Source: "docker", Updated: &seen})
	b.reconcile()
	c := b.registry.byKey[key{"docker", "1"}]
	if state, reason := c.state(); c.mode != v1.ModeHost || c.number == 0 || state != v1.StateOK {
		t.Errorf("%s, number %d, %s, %q", c.mode, c.number, state, reason)
	}
	if want := map[uint16]string{c.number: "/sys/fs/cgroup/c"}; !maps.Equal(b.classifier.cgroups, want) {
		t.Errorf("assigned %v, want %v", b.classifier.cgroups, want)
	}
	// A classifier that was made anew has to be told again.
	clear(b.classifier.cgroups)
	c.shares[0].cgroupAssigned = false
	b.reconcile()
	if len(b.classifier.cgroups) != 1 {
		t.Errorf("a new classifier was told %v", b.classifier.cgroups)
	}
	b.learn(discovery.Event{Source: "docker", RemovedID: "1"})
	if len(b.classifier.cgroups) > 0 {
		t.Errorf("still assigned: %v", b.classifier.cgroups)
	}

	// A cgroup that cannot be had is told of, and the container runs on.
	b.classifier.err = errors.New("no such cgroup")
	again := seen
	again.StartedAt = epoch.AddDate(1, 0, 0)
	b.learn(discovery.Event{Source: "docker", Updated: &again})
	b.reconcile()
	c = b.registry.byKey[key{"docker", "1"}]
	if state, reason := c.state(); state != v1.StateDegraded || !strings.Contains(reason, "its sockets cannot be told apart: no such cgroup") {
		t.Errorf("%s, %q", state, reason)
	}

	// It stays so for as long as it cannot be had, however often the container is
	// looked at, and ends when it can.
	clear(b.classifier.cgroups)
	b.inspect(c)
	b.reconcile()
	if state, reason := c.state(); state != v1.StateDegraded || !strings.Contains(reason, "its sockets cannot be told apart: no such cgroup") {
		t.Errorf("looked at again: %s, %q", state, reason)
	}
	b.classifier.err = nil
	b.reconcile()
	if state, reason := c.state(); state != v1.StateOK || b.classifier.cgroups[c.number] == "" {
		t.Errorf("when it can be had: %s, %q, assigned %v", state, reason, b.classifier.cgroups)
	}
}

// Of a container with a device on an uplink it is told as well: what counts its
// packets then is what it may change.
func TestCgroupOfMacvlan(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.direct("c", 101)
	c.CgroupPath = "/sys/fs/cgroup/c"
	b.classifier.err = errors.New("no such cgroup")
	b.assignCgroups(b.link)
	if state, reason := c.state(); state != v1.StateDegraded || !strings.Contains(reason, "its sockets cannot be told apart: no such cgroup") {
		t.Errorf("%s, %q", state, reason)
	}
}
