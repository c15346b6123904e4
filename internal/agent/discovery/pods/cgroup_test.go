package pods

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/test/must"
)

// TestCgroupPath: a cgroup is found through the mount that is known already, and through no other while that works: the
// list of mounts grows with the pods of a node.
func TestCgroupPath(t *testing.T) {
	mount, err := cgroup.FindMount("/proc")
	must.Succeed(t, err)
	if mount.Point == "" {
		t.Skip("this machine has no cgroups of the v2 hierarchy")
	}
	want, err := os.MkdirTemp(mount.Point, "weir-test-")
	if err != nil {
		t.Skipf("only root can make a cgroup: %v", err)
	}
	t.Cleanup(func() { must.Succeed(t, os.Remove(want)) })
	name := filepath.Base(want)
	var r Reader
	// A known mount that is gone is looked for again.
	for _, known := range []*cgroup.Mount{nil, {Point: "/nowhere"}, &mount} {
		r.foundMount.Store(known)
		for _, path := range []string{name, "/" + name} {
			if got := r.cgroupPath(path); got != want {
				t.Errorf("%s is %q with the mount %+v, want %q", path, got, known, want)
			}
		}
		if found := r.foundMount.Load(); found == nil || found.Point != mount.Point {
			t.Errorf("after the mount %+v: %+v is known", known, found)
		}
	}
	const most = 10 // allocations; each line of the list of mounts takes one
	for path, want := range map[string]string{"": "", name: want} {
		got := ""
		if allocs := testing.AllocsPerRun(10, func() { got = r.cgroupPath(path) }); got != want || allocs > most {
			t.Errorf("%q is %q after %.0f allocations", path, got, allocs)
		}
	}
}
