//go:build netns

package testbed_test

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
)

// TestPauseIsSeen keeps a processor from everything else for a while.
func TestPauseIsSeen(t *testing.T) {
	// On a thread that ends, as those do that were in other namespaces.
	var p *testbed.PauseWatch
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		p, err = testbed.StartPauseWatch(t.Context(), harness.Program(t), testbed.LeastPause)
		started <- err
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // until it watches
	const length = 40 * time.Millisecond
	fromNS := traffic.MonotonicNS()
	occupied := make(chan error)
	go func() { occupied <- occupy(length) }()
	if err := <-occupied; err != nil {
		t.Fatal(err)
	}
	untilNS := traffic.MonotonicNS()
	time.Sleep(100 * time.Millisecond)
	// Go interrupts who runs for 10 ms, and the watch runs for a moment.
	if got := p.Longest(fromNS, untilNS); got < testbed.LeastPause {
		t.Errorf("a pause of %v was seen, want one of %v or more", got, testbed.LeastPause)
	}
	if !p.Close() {
		t.Error("the watch ended early")
	}
}

// occupy runs on the first processor for a time, before all that watches.
func occupy(length time.Duration) error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	var first unix.CPUSet
	first.Set(0)
	if err := unix.SchedSetaffinity(0, &first); err != nil {
		return err
	}
	attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}
	if err := unix.SchedSetAttr(0, &attributes, 0); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < length; {
	}
	return nil
}
