//go:build netns

package static

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/test/must"
)

// TestCgroupComesAndGoes needs root, to make cgroups of its own.
func TestCgroupComesAndGoes(t *testing.T) {
	t.Parallel()
	mount, err := cgroup.FindMount("/proc")
	if err != nil || mount.Point == "" {
		t.Fatalf("the cgroup v2 hierarchy is not mounted: %v", err)
	}
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	parent := filepath.Join(mount.Point, name)
	inside := filepath.Join(parent, "inside")
	make := func(path string) {
		t.Helper()
		must.Succeed(t, os.Mkdir(path, 0o755))
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	make(parent)
	events := watch(t,
		discovery.Container{Name: "relative", CgroupPath: name, Labels: map[string]string{"weir.weight": "3"}},
		discovery.Container{Name: "absolute", CgroupPath: inside},
		discovery.Container{Name: "everything", CgroupPath: mount.Point},
		discovery.Container{Name: "elsewhere", CgroupPath: t.TempDir()})
	e := next(t, events)
	if e.Snapshot == nil || len(e.Snapshot.Containers) != 1 {
		t.Fatalf("got %+v", e)
	}
	if c := e.Snapshot.Containers[0]; c.ID != "static:relative" || !c.HostNetwork || c.CgroupPath != parent || c.Labels["weir.weight"] != "3" || c.NetNSPath != "" {
		t.Errorf("got %+v", c)
	}

	make(inside)
	first := next(t, events).Updated
	if first == nil || first.Name != "absolute" || !first.HostNetwork || first.CgroupPath != inside {
		t.Fatalf("got %+v", first)
	}
	must.Succeed(t, os.Remove(inside))
	if e := next(t, events); e.RemovedID != "static:absolute" {
		t.Fatalf("got %+v", e)
	}
	make(inside)
	again := next(t, events).Updated
	if again == nil || !again.StartedAt.After(first.StartedAt) {
		t.Fatalf("started at %v, then %+v", first.StartedAt, again)
	}
	// One that is made anew between two looks is another one.
	must.Succeed(t, os.Remove(inside))
	make(inside)
	if e := next(t, events); e.Updated == nil || !e.Updated.StartedAt.After(again.StartedAt) {
		t.Fatalf("got %+v", e)
	}
}

// TestNamespaceWithCgroup: a container that is given as both is there while
// both are, and is not in the host's network.
func TestNamespaceWithCgroup(t *testing.T) {
	t.Parallel()
	mount, err := cgroup.FindMount("/proc")
	if err != nil || mount.Point == "" {
		t.Fatalf("the cgroup v2 hierarchy is not mounted: %v", err)
	}
	path := filepath.Join(mount.Point, fmt.Sprintf("weir-test-%d-both", os.Getpid()))
	name := fmt.Sprintf("weir-test-%d-both", os.Getpid())
	ip(t, "netns", "add", name)
	t.Cleanup(func() { ip(t, "netns", "del", name) })
	netns := "/run/netns/" + name
	events := watch(t, discovery.Container{Name: "both", NetNSPath: netns, CgroupPath: path})
	if e := next(t, events); e.Snapshot == nil || len(e.Snapshot.Containers) != 0 {
		t.Fatalf("without its cgroup: %+v", e)
	}
	must.Succeed(t, os.Mkdir(path, 0o755))
	t.Cleanup(func() { _ = os.Remove(path) })
	if c := next(t, events).Updated; c == nil || c.HostNetwork || c.NetNSPath != netns || c.CgroupPath != path {
		t.Fatalf("with its cgroup: %+v", c)
	}
	must.Succeed(t, os.Remove(path))
	if e := next(t, events); e.RemovedID != "static:both" {
		t.Fatalf("got %+v", e)
	}
}
