package loop

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// nowhere is a tap at a device that no machine has.
func nowhere(n int) identity.Tap { return identity.Tap{Ifindex: 1<<30 + n} }

// A container whose inspection is slow is inspected less often.
func TestSlowInspections(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("many").container
	c.Seen.NetNSPath, c.Unattached = "/nowhere/ns/net", true
	for _, tc := range []struct {
		took, ago time.Duration
		want      int
	}{
		{slowInspection, 0, 1}, {time.Second, 9 * time.Second, 0}, {time.Second, 10 * time.Second, 1},
	} {
		c.inspection.took, c.inspection.at = tc.took, time.Now().Add(-tc.ago)
		if got := b.containers.inspectMissing(); got != tc.want {
			t.Errorf("one of %v, %v ago: %d inspected, want %d", tc.took, tc.ago, got, tc.want)
		}
	}
	c.Unattached, c.Obstacle = false, ""
	for _, tc := range []struct {
		took, ago time.Duration
		want      v1.State
	}{
		{slowInspection, 10 * time.Minute, v1.StateOK}, // it waits for its turn
		{2300 * time.Millisecond, 50 * time.Second, v1.StateOK},
		{2300 * time.Millisecond, 70 * time.Second, v1.StateDegraded},
	} {
		c.inspection.took, c.inspection.at = tc.took, time.Now().Add(-tc.ago)
		if state, reason := c.state(); state != tc.want || strings.Contains(reason, "takes 2.3s") != (state != v1.StateOK) {
			t.Errorf("inspected %v ago, which took %v: %s, %q", tc.ago, tc.took, state, reason)
		}
	}
}

// When all numbers are in use, a container runs on in the host class and says
// so; when one is free again, it gets that.
func TestOutOfNumbers(t *testing.T) {
	b := newBench(t, 100e6)
	late := b.start("late").container
	b.containers.free(late)
	for n := identity.NumberFirst; n <= identity.NumberLast; n++ {
		c := &container{Container: attach.Container{Number: n}}
		b.containers.addShares(c)
		b.containers.byNumber[n] = c
	}
	found := []identity.Attachment{{Mode: v1.ModeBridge, Interface: "eth0", Tap: nowhere(0)}}
	b.containers.attachAs(late, attach.Plan(&late.Container, attach.Observation{Found: found}))
	if state, reason := late.state(); late.Number != 0 || state != v1.StateDegraded ||
		reason != "all container numbers are in use; it is counted in the host class" {
		t.Errorf("number %d, %s, %q", late.Number, state, reason)
	}
	if !late.Unattached {
		t.Error("will not be asked again")
	}
	b.containers.free(b.containers.byNumber[identity.NumberFirst+7])
	late.Obstacle = ""
	b.containers.attachAs(late, attach.Plan(&late.Container, attach.Observation{Found: found}))
	if state, reason := late.state(); late.Number != identity.NumberFirst+7 || state != v1.StateOK {
		t.Errorf("number %d, %s, %q", late.Number, state, reason)
	}
}

// Containers in the host's network are known by their cgroup, at every uplink,
// for as long as they run.
func TestCgroups(t *testing.T) {
	b := newBench(t, 100e6)
	seen := discovery.Container{ID: "1", Name: "c", Runtime: "docker", HostNetwork: true, CgroupPath: "/sys/fs/cgroup/c", StartedAt: epoch}
	b.containers.learn(discovery.Event{Source: "docker", Updated: &seen})
	b.reconcile()
	c := b.containers.byKey[key{"docker", "1"}]
	if state, reason := c.state(); c.Mode != v1.ModeHost || c.Number == 0 || state != v1.StateOK {
		t.Errorf("%s, number %d, %s, %q", c.Mode, c.Number, state, reason)
	}
	if want := map[uint16]string{c.Number: "/sys/fs/cgroup/c"}; !maps.Equal(b.classifier.cgroups, want) {
		t.Errorf("assigned %v, want %v", b.classifier.cgroups, want)
	}
	// A classifier that was made anew has to be told again.
	clear(b.classifier.cgroups)
	b.classifier.told = nil
	b.reconcile()
	if len(b.classifier.cgroups) != 1 {
		t.Errorf("a new classifier was told %v", b.classifier.cgroups)
	}
	b.containers.learn(discovery.Event{Source: "docker", RemovedID: "1"})
	if len(b.classifier.cgroups) > 0 {
		t.Errorf("still assigned: %v", b.classifier.cgroups)
	}

	// A cgroup that cannot be had is told of, and the container runs on.
	b.classifier.err = errors.New("no such cgroup")
	again := seen
	again.StartedAt = epoch.AddDate(1, 0, 0)
	b.containers.learn(discovery.Event{Source: "docker", Updated: &again})
	b.reconcile()
	c = b.containers.byKey[key{"docker", "1"}]
	if state, reason := c.state(); state != v1.StateDegraded || !strings.Contains(reason, "its sockets cannot be told apart: no such cgroup") {
		t.Errorf("%s, %q", state, reason)
	}

	// It stays so for as long as it cannot be had, however often the container is
	// looked at, and ends when it can.
	clear(b.classifier.cgroups)
	b.containers.inspect(c)
	b.reconcile()
	if state, reason := c.state(); state != v1.StateDegraded || !strings.Contains(reason, "its sockets cannot be told apart: no such cgroup") {
		t.Errorf("looked at again: %s, %q", state, reason)
	}
	b.classifier.err = nil
	b.reconcile()
	if state, reason := c.state(); state != v1.StateOK || b.classifier.cgroups[c.Number] == "" {
		t.Errorf("when it can be had: %s, %q, assigned %v", state, reason, b.classifier.cgroups)
	}
}
