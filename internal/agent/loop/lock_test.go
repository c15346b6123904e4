package loop

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-project/weir/test/must"
)

func TestLock(t *testing.T) {
	dir, stateDir := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "state")
	first, err := lockAgent(dir, stateDir)
	must.Succeed(t, err)
	if _, err := lockAgent(dir, t.TempDir()); !errors.Is(err, errLocked) {
		t.Errorf("a second one of the namespace: %v", err)
	}
	// That of another network namespace is another file.
	if _, err := lockAgent(filepath.Join(dir, "elsewhere"), stateDir); err == nil || !strings.Contains(err.Error(), stateDir+": give another --state-dir") {
		t.Errorf("a second one of the folder of state: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "elsewhere")); err != nil || len(left) != 0 {
		t.Errorf("one that was refused left %v, %v", left, err)
	}
	for _, file := range []*os.File{first.netns, first.state} {
		info, err := os.Stat(file.Name())
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others can open the lock: %v, %v", info, err)
		}
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(stateDir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// Those of a process that was killed are no obstacle.
	for _, file := range []*os.File{first.netns, first.state} {
		must.Succeed(t, os.WriteFile(file.Name(), nil, 0o600))
	}
	// What one left that was killed in a namespace which is gone goes; the lock of
	// one that is at work there stays.
	stale, held := filepath.Join(dir, "netns-1.lock"), filepath.Join(dir, "netns-2.lock")
	must.Succeed(t, os.WriteFile(stale, nil, 0o600))
	other, err := lockFile(held)
	must.Succeed(t, err)
	again, err := lockAgent(dir, stateDir)
	must.Succeed(t, err)
	again.Close()
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a stale lock is still there: %v", err)
	}
	if !isFile(held, other) {
		t.Error("the lock of another agent was removed")
	}
	if pid := holder(held); pid != os.Getpid() || holder(stale) != 0 || holder(first.netns.Name()) != 0 {
		t.Errorf("it is held by process %d, want %d", pid, os.Getpid())
	}
}

// TestLockIsNotAnybodys: what any user can do does not keep the agent from
// starting.
func TestLockIsNotAnybodys(t *testing.T) {
	squatter, err := net.Listen("unix", "@weir/agent")
	if err != nil {
		t.Skipf("cannot bind an abstract socket: %v", err)
	}
	defer squatter.Close()
	lock, err := lockAgent(t.TempDir(), t.TempDir())
	must.Succeed(t, err)
	lock.Close()
}

// TestLockHasOneHolder: among many that take it and let it go.
func TestLockHasOneHolder(t *testing.T) {
	dir := t.TempDir()
	var holders, taken atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				lock, err := lockNetNS(dir)
				if errors.Is(err, errLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold it", n)
				}
				taken.Add(1)
				holders.Add(-1)
				if err := unlockFile(lock); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if taken.Load() == 0 {
		t.Error("nobody got it")
	}
}
