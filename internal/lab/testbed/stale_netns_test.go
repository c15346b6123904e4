//go:build netns

package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/cgroup"
)

// TestNextRunRemovesWhatAKilledOneLeft: and nothing of one that runs.
func TestNextRunRemovesWhatAKilledOneLeft(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	gone := fmt.Sprintf("weir-%d-0123abcd-host", ended.Process.Pid)
	mine := hostName("0123abcd") + "-host"
	for _, name := range []string{gone, mine} {
		if err := runTool(t.Context(), "ip", "netns", "add", name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	}
	want := map[string]bool{filepath.Join(NetNSDir, gone): false, filepath.Join(NetNSDir, mine): true}
	if root, err := cgroup.FindRoot("/proc"); err == nil {
		for name, stays := range map[string]bool{
			fmt.Sprintf("weir-test-%d-0123abcd-c1", ended.Process.Pid): false,
			fmt.Sprintf("weir-test-%d-0123abcd-c1", os.Getpid()):       true,
		} {
			group := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Join(group, "nested"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = os.Remove(filepath.Join(group, "nested"))
				_ = os.Remove(group)
			})
			want[group] = stays
		}
	}

	place := filepath.Join(t.TempDir(), "memory")
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(fmt.Sprintf("weir-%d-0123abcd-memory", ended.Process.Pid), place, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(place, unix.MNT_DETACH) })

	t.Setenv("TMPDIR", t.TempDir())
	left := filepath.Join(os.TempDir(), fmt.Sprintf("weir-test-%d-0123abcd-456", ended.Process.Pid))
	inUse := left + "7" // something is mounted in there
	own, err := MakeTempDir()
	if err != nil {
		t.Fatal(err)
	}
	for folder, stays := range map[string]bool{left: false, inUse: true, own: true} {
		if err := os.MkdirAll(filepath.Join(folder, "nested"), 0o700); err != nil {
			t.Fatal(err)
		}
		want[filepath.Join(folder, "nested")] = stays
	}
	other := filepath.Join(inUse, "nested")
	if err := unix.Mount("other", other, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(other, unix.MNT_DETACH) })

	removeStale(t.Context())
	if table, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(table), " "+place+" ") {
		t.Errorf("%s is still mounted, %v", place, err)
	}
	for path, stays := range want {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) == stays {
			t.Errorf("%s: should stay %v, found %v", path, stays, err)
		}
	}
}
