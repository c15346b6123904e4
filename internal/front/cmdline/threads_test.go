package cmdline

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEachThread: threads that are made meanwhile have their turn, and who has ended is no
// error.
func TestEachThread(t *testing.T) {
	const threads = 20
	var made, ended sync.WaitGroup
	done := make(chan struct{})
	ids := make(chan int, threads)
	start := func() {
		for range threads {
			made.Add(1)
			ended.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				ids <- unix.Gettid()
				made.Done()
				<-done
			})
		}
		made.Wait()
	}
	seen := map[int]int{}
	err := EachThread(func(id int) error {
		if len(seen) == 0 {
			start()
		}
		seen[id]++
		return unix.ESRCH
	})
	close(done)
	ended.Wait()
	if err != nil {
		t.Error(err)
	}
	for range threads {
		if id := <-ids; seen[id] != 1 {
			t.Errorf("thread %d had %d turns", id, seen[id])
		}
	}
	refused := errors.New("refused")
	if err := EachThread(func(int) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("refused: %v", err)
	}
}
