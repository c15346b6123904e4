//go:build netns

package static

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/test/harness"
)

// prefix marks the namespaces these tests make.
var prefix = fmt.Sprintf("wst-%d-", os.Getpid())

func TestMain(m *testing.M) {
	code := m.Run()
	if left, _ := filepath.Glob("/run/netns/" + prefix + "*"); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "tests left behind: %v\n", left)
		code = 1
	}
	os.Exit(code)
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func TestNamedNamespacesComeAndGo(t *testing.T) {
	name := prefix + "a"
	path := "/run/netns/" + name
	t.Cleanup(func() {
		if t.Failed() { // perhaps in between
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
	})
	events := watch(t, discovery.Container{Name: "a", NetNSPath: path})
	if e := next(t, events); e.Snapshot == nil || len(e.Snapshot.Containers) != 0 {
		t.Fatalf("got %+v", e)
	}
	var last time.Time
	harness.CheckSteady(t, func() error {
		late := time.Duration(0)
		for range 10 {
			// The kernel dates a namespace by a clock that steps by up to 10 ms.
			time.Sleep(time.Until(last.Add(20 * time.Millisecond)))
			began := time.Now()
			ip(t, "netns", "add", name)
			added := time.Now()
			e := next(t, events)
			if e.Updated == nil || e.Updated.ID != "static:a" || e.Updated.HostNetwork {
				t.Fatalf("got %+v", e)
			}
			if !e.Updated.StartedAt.After(last) || e.Updated.StartedAt.Before(began.Add(-time.Second)) {
				t.Errorf("started at %v, before that at %v", e.Updated.StartedAt, last)
			}
			last, late = e.Updated.StartedAt, max(late, time.Since(added))
			// Another run of the agent must see the same start.
			if again, err := findNamespace(path); err != nil || !again.since.Equal(last) {
				t.Errorf("started at %v, seen later as %v, %v", last, again, err)
			}
			began = time.Now()
			ip(t, "netns", "del", name)
			if e := next(t, events); e.RemovedID != "static:a" {
				t.Fatalf("got %+v", e)
			}
			t.Logf("end seen within %v", time.Since(began))
		}
		if late > 100*time.Millisecond {
			return fmt.Errorf("seen %v after it was there", late)
		}
		return nil
	})
}

func TestReplacedNamespaceIsAnUpdate(t *testing.T) {
	name, other := prefix+"b", prefix+"c"
	for _, n := range []string{name, other} {
		ip(t, "netns", "add", n)
		t.Cleanup(func() { ip(t, "netns", "del", n) })
	}
	path := "/run/netns/" + name
	events := watch(t, discovery.Container{Name: "b", NetNSPath: path})
	e := next(t, events)
	if e.Snapshot == nil || len(e.Snapshot.Containers) != 1 {
		t.Fatalf("got %+v", e)
	}
	// One mount on top of the other: the path was never empty.
	if out, err := exec.Command("mount", "--bind", "/run/netns/"+other, path).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	if e := next(t, events); e.Updated == nil {
		t.Errorf("got %+v", e)
	}
	if out, err := exec.Command("umount", path).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v: %s", err, out)
	}
	if e := next(t, events); e.Updated == nil {
		t.Errorf("got %+v", e)
	}
}
