//go:build netns

package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// idleGroup runs scripts/idle.sh.
func idleGroup(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	out, err := exec.Command("../../scripts/idle.sh", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// spin starts a process on one processor that takes all it can get, in a session of its
// own, which the kernel may take for a group.
func spin(t *testing.T, cpu int) *os.Process {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	must.Succeed(t, unix.SchedGetaffinity(0, &before))
	one.Set(cpu)
	must.Succeed(t, unix.SchedSetaffinity(0, &one))
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := cmd.Start()
	if back := unix.SchedSetaffinity(0, &before); back != nil {
		t.Fatal(back)
	}
	must.Succeed(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process
}

// TestIdleGroupComesLast: what scripts/test.sh runs beside other suites takes nothing of a
// processor that a process of any other session wants, and ends with its group.
func TestIdleGroupComesLast(t *testing.T) {
	group, err := idleGroup(t, "make", fmt.Sprint(os.Getpid()))
	if err != nil {
		t.Skip(group)
	}
	t.Cleanup(func() {
		if said, err := idleGroup(t, "remove", group); err != nil {
			t.Error(said)
		}
	})
	var allowed unix.CPUSet
	must.Succeed(t, unix.SchedGetaffinity(0, &allowed))
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	last := spin(t, cpu)
	if said, err := idleGroup(t, "enter", group, fmt.Sprint(last.Pid)); err != nil {
		t.Fatal(said)
	}
	first := spin(t, cpu)
	taken := func(p *os.Process) time.Duration { return processorTime(t, p.Pid) }
	firstBefore, lastBefore := taken(first), taken(last)
	const enough = 500 * time.Millisecond
	for deadline := time.Now().Add(30 * time.Second); taken(first)-firstBefore < enough; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in 30 s it took %v of a processor", taken(first)-firstBefore)
		}
	}
	if got := taken(last) - lastBefore; got > enough/10 {
		t.Errorf("meanwhile what comes last took %v, and what comes first %v", got, enough)
	}

	// Processes still in a group end with it, also without a removal.
	stale := filepath.Join(filepath.Dir(group), fmt.Sprintf("weir-test-%d-0123abcd-idle", endedPID(t)))
	must.Succeed(t, os.Mkdir(stale, 0o755))
	if said, err := idleGroup(t, "enter", stale, fmt.Sprint(last.Pid)); err != nil {
		t.Fatal(said)
	}
	next, err := idleGroup(t, "make", fmt.Sprint(os.Getpid()))
	if err != nil {
		t.Fatal(next)
	}
	if said, err := idleGroup(t, "remove", next); err != nil {
		t.Error(said)
	}
	for _, path := range []string{stale, next} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	if state, err := last.Wait(); err != nil || state.Success() {
		t.Errorf("its process goes on: %v, %v", state, err)
	}
}

// endedPID is the number of a process that has ended.
func endedPID(t *testing.T) int {
	t.Helper()
	ended := exec.Command("true")
	must.Succeed(t, ended.Run())
	return ended.Process.Pid
}
