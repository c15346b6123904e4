package agent

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first, err := lockNetNS(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockNetNS(dir); !errors.Is(err, errLocked) {
		t.Errorf("a second lock: %v", err)
	}
	info, err := os.Stat(first.file.Name())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can open the lock: %v, %v", info, err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// One of a process that was killed is no obstacle.
	if err := os.WriteFile(first.file.Name(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := lockNetNS(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestLockIsNotAnybodys: what any user can do does not keep the agent from
// starting.
func TestLockIsNotAnybodys(t *testing.T) {
	squatter, err := net.Listen("unix", "@weir/agent")
	if err != nil {
		t.Skipf("cannot bind an abstract socket: %v", err)
	}
	defer squatter.Close()
	lock, err := lockNetNS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
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
				if err := lock.Close(); err != nil {
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
