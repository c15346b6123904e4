package loop

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/test/must"
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

// TestHungInspection: an inspection that does not end stops nothing else, and its result counts only
// for what it began with.
func TestHungInspection(t *testing.T) {
	b := newBench(t, 100e6)
	process := t.TempDir()
	mounts := filepath.Join(process, "mountinfo") // it is read once the test writes it
	must.Succeed(t, unix.Mkfifo(mounts, 0o600))
	seen := discovery.Container{ID: "1", Name: "hung", Runtime: "docker", NoNetwork: true, NetNSPath: process + "/ns/net", StartedAt: epoch}
	began := time.Now()
	b.containers.learn(discovery.Event{Source: "docker", Updated: &seen})
	c := b.containers.byKey[key{"docker", "1"}]
	slow, other := b.start("slow").container, b.start("other").container
	slow.inspection.took = time.Second

	isHung := func() bool { return c.inspection.late != nil && b.containers.lateCount == 1 }
	if state, reason := c.state(); !isHung() || state != v1.StateDegraded || reason != "its network is being inspected, which takes long" {
		t.Errorf("while it hangs: %s, %q, %d inspections", state, reason, b.containers.lateCount)
	}
	for i := range 100 {
		b.control(time.Now())
		b.containers.inspect(other)
		b.containers.inspect(slow) // waits for its turn
		b.containers.inspectMissing()
		if i == 50 {
			b.containers.inspectAll()
		}
	}
	if took := time.Since(began); !isHung() || took > 100*slowInspection {
		t.Errorf("100 rounds beside it took %v, %d inspections", took, b.containers.lateCount)
	}
	if slow.inspection.at != (time.Time{}) || other.inspection.at.IsZero() || !slow.Unattached {
		t.Errorf("inspected meanwhile: a slow one at %v, another one at %v", slow.inspection.at, other.inspection.at)
	}
	c.inspection.late.began = c.inspection.at
	if complaint := c.uninspectedComplaint(c.inspection.at.Add(mostUninspected)); !strings.Contains(complaint, "not looked at for more than a minute, as that takes 1m0s") {
		t.Errorf("after a minute: %q", complaint)
	}

	end := func() {
		t.Helper()
		var write *os.File
		for deadline, err := time.Now().Add(10*time.Second), error(unix.ENXIO); errors.Is(err, unix.ENXIO); time.Sleep(time.Millisecond) {
			if write, err = os.OpenFile(mounts, os.O_WRONLY|unix.O_NONBLOCK, 0); err != nil && time.Now().After(deadline) {
				t.Fatalf("nothing reads mounts: %v", err)
			}
		}
		_, err := write.WriteString("90 28 0:50 / /data rw - nfs4 nas:/x rw\n")
		must.Succeed(t, errors.Join(err, write.Close()))
		select {
		case late := <-b.containers.lateEnds:
			b.containers.endLate(late)
		case <-time.After(10 * time.Second):
			t.Fatal("its end is not reported")
		}
	}
	end()
	if !strings.HasPrefix(c.Obstacle, "what it writes to ") || !c.Unattached || b.containers.lateCount != 0 || c.inspection.took <= slowInspection {
		t.Errorf("ended: %q, to be inspected again: %v, %d inspections, %v", c.Obstacle, c.Unattached, b.containers.lateCount, c.inspection.took)
	}

	c.Obstacle = ""
	b.containers.inspect(c) // at once beside the loop
	late := c.inspection.late
	c.Number = identity.NumberFirst + 99
	end()
	if c.Obstacle != "" || late == nil || c.inspection.late == late || !isHung() {
		t.Errorf("with a number meanwhile: %q, inspected again: %v", c.Obstacle, isHung())
	}
	b.containers.learn(discovery.Event{Source: "docker", RemovedID: "1"})
	end()
	if c.Obstacle != "" || b.containers.lateCount != 0 || c.inspection.late != nil {
		t.Errorf("stopped meanwhile: %q, %d inspections", c.Obstacle, b.containers.lateCount)
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
