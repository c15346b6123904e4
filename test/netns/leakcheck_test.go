//go:build netns

package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

// leakcheck runs scripts/leakcheck.sh, not as a part of this run of tests.
func leakcheck(t *testing.T, args ...string) (output string, failed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../scripts/leakcheck.sh", args...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "WEIR_TEST_RUN=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), err != nil
}

// TestLeaksAreFoundAndRemoved leaves behind one of everything that tests may leave.
// A namespace of a run of tests that goes on is not held against this one, and
// no run removes it.
func TestLeaksAreFoundAndRemoved(t *testing.T) {
	name := fmt.Sprintf("weir-test-%d-planted", os.Getpid())
	before := filepath.Join(t.TempDir(), "before")
	snapshot, failed := leakcheck(t, "snapshot")
	if failed {
		t.Fatal("leakcheck.sh snapshot failed")
	}
	must.Succeed(t, os.WriteFile(before, []byte(snapshot), 0o600))
	if found, failed := leakcheck(t, "compare", before, name); failed {
		t.Fatalf("before anything is left: %s", found)
	}

	ended := exec.Command("true")
	must.Succeed(t, ended.Run())
	killed := fmt.Sprintf("weir-%d-0123abcd-host", ended.Process.Pid)
	used := fmt.Sprintf("weir-%d-0123abcd-host", os.Getpid())
	want := []string{"netns " + name}
	for _, namespace := range []string{name, killed, used} {
		if output, err := exec.Command("ip", "netns", "add", namespace).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", namespace).Run() })
	}
	if root, err := cgroup.FindRoot("/proc"); err != nil {
		t.Logf("without a cgroup: %v", err)
	} else {
		group := filepath.Join(root, name)
		must.Succeed(t, os.MkdirAll(filepath.Join(group, "nested"), 0o755))
		t.Cleanup(func() {
			_ = os.Remove(filepath.Join(group, "nested"))
			_ = os.Remove(group)
		})
		want = append(want, "cgroup "+group)
	}
	// Where tests have theirs, with any TMPDIR.
	place, err := os.MkdirTemp("", "weir-test-")
	must.Succeed(t, err)
	ofOther, err := testbed.MakeTempDir()
	must.Succeed(t, err)
	for _, place := range []string{place, ofOther} {
		must.Succeed(t, unix.Mount(testbed.MountName(), place, "tmpfs", 0, "size=64k"))
		t.Cleanup(func() {
			_ = unix.Unmount(place, unix.MNT_DETACH)
			_ = os.Remove(place)
		})
	}
	want = append(want, "mount "+place)
	// Of several lines, of which the second must not pass for another process.
	process := exec.Command("sh", "-c", "sleep 3600\n: 1")
	process.Env = append(os.Environ(), "WEIR_TEST_RUN="+name)
	must.Succeed(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	want = append(want, fmt.Sprintf("process %d sh -c sleep", process.Process.Pid))

	shim := plantShim(t)

	found, failed := leakcheck(t, "compare", before, name)
	// Another run removes it, too, as it begins.
	if _, err := os.Stat("/run/netns/" + killed); err == nil && !strings.Contains(found, "left behind: netns "+killed) {
		t.Errorf("not found: %s\nfound:\n%s", killed, found)
	}
	if strings.Contains(found, "process "+shim) {
		t.Errorf("the shim of an engine that runs is held against the tests: %s", found)
	}
	if !failed {
		t.Error("what was left is not held against the tests")
	}
	removed, failed := leakcheck(t, "remove", before, name)
	if failed {
		t.Error("leakcheck.sh remove failed")
	}
	if _, err := os.Stat("/run/netns/" + killed); err == nil {
		t.Errorf("not removed: %s\nremoved:\n%s", killed, removed)
	}
	for _, one := range want {
		if !strings.Contains(found, "left behind: "+one) {
			t.Errorf("not found: %s\nfound:\n%s", one, found)
		}
		if !strings.Contains(removed, one) {
			t.Errorf("not removed: %s\nremoved:\n%s", one, removed)
		}
	}
	if strings.Contains(found+removed, ofOther) {
		t.Errorf("%s is another run's\nfound:\n%s\nremoved:\n%s", ofOther, found, removed)
	}
	if _, err := os.Stat("/run/netns/" + used); err != nil || strings.Contains(found+removed, used) {
		t.Errorf("%s is another run's (%v)\nfound:\n%s\nremoved:\n%s", used, err, found, removed)
	}
	_ = process.Wait()
	if found, failed := leakcheck(t, "compare", before, name); failed {
		t.Errorf("after all was removed: %s", found)
	}
}

// plantShim starts an engine, by name and environment, and a shim of it that has given up its parent,
// and returns the shim's process ID.
func plantShim(t *testing.T) string {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	must.Succeed(t, err)
	program, err := os.ReadFile(sleep)
	must.Succeed(t, err)
	dir := t.TempDir()
	for _, name := range []string{"dockerd", "containerd-shim"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), program, 0o755))
	}
	environment := []string{"WEIR_ENGINE=" + dir}
	engine := exec.Command(filepath.Join(dir, "dockerd"), "600")
	engine.Env = environment
	must.Succeed(t, engine.Start())
	t.Cleanup(func() {
		_ = engine.Process.Kill()
		_ = engine.Wait()
	})
	parent := exec.Command("sh", "-c", `"$0" 600 >/dev/null 2>&1 & echo $!`, filepath.Join(dir, "containerd-shim"))
	parent.Env = environment
	said, err := parent.Output()
	must.Succeed(t, err)
	shim := strings.TrimSpace(string(said))
	pid, err := strconv.Atoi(shim)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	return shim
}
