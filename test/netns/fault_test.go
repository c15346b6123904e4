//go:build netns

package netns

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// fill leaves no room on the file system of dir, until what it returns is called.
func fill(t *testing.T, dir string) (makeRoom func()) {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	file, err := os.Create(ballast)
	must.Succeed(t, err)
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		must.Succeed(t, os.Remove(ballast))
	}
}

// TestFullDisk: who changes a policy while the agent's state cannot be written is told
// so; the change is in force, what was saved before is not lost, and when there is room
// again it is saved, too.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("web", nil)
	dir := filepath.Join(t.TempDir(), "state")
	must.Succeed(t, os.Mkdir(dir, 0o755))
	must.Succeed(t, unix.Mount("weir-test", dir, "tmpfs", 0, "size=256k"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	options := harness.AgentOptions{Args: []string{"--state-dir", dir}}
	agent := b.StartAgent(options)
	b.MustWeir("set", "web", "--weight", "200")

	makeRoom := fill(t, dir)
	result := b.Weir("set", "web", "--max", "20mbit")
	if result.Code != 1 || !strings.Contains(result.Stderr, "the change is in force, but could not be saved") || !strings.Contains(result.Stderr, "no space left on device") {
		t.Errorf("with a full disk: %+v", result)
	}
	if got := agent.Container("web").Policy; got.Weight != 200 || got.MaxBPS != 20*mbit {
		t.Errorf("with a full disk the policy is %+v", got)
	}
	// Also an agent that starts then has what was saved.
	agent.Kill()
	agent = b.StartAgent(options)
	if got := agent.Container("web").Policy; got.Weight != 200 || got.MaxBPS != 0 {
		t.Errorf("after a restart with a full disk the policy is %+v", got)
	}
	if result := b.Weir("set", "web", "--max", "20mbit"); result.Code != 1 {
		t.Errorf("with a disk that is still full: %+v", result)
	}
	makeRoom()
	b.MustWeir("set", "web", "--max", "30mbit")
	agent.Kill()
	agent = b.StartAgent(options)
	if got := agent.Container("web").Policy; got.Weight != 200 || got.MaxBPS != 30*mbit {
		t.Errorf("after there was room again the policy is %+v", got)
	}
	agent.Stop()
}
