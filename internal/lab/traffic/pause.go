package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pauseTick is the interval at which each CPU is checked, and the measuring error of a pause.
const pauseTick = 2 * time.Millisecond

// Pause is a time in which a CPU did not run the highest-priority thread, for example because the
// hypervisor ran another guest. The kernel counts it only if the hypervisor reports it.
type Pause struct {
	CPU      int   `json:"cpu"`
	UntilNS  int64 `json:"until_ns"` // of CLOCK_MONOTONIC
	LengthNS int64 `json:"length_ns"`
}

// WatchPauses reports CPU pauses of at least least until ctx ends. Without CAP_SYS_NICE, time that
// a CPU spends on other threads counts too, and so does waiting for Go's scheduler: run it in a
// process of its own.
func WatchPauses(ctx context.Context, least time.Duration, report func(Pause)) error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("find the processors: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	ended := make(chan error)
	watches := 0
	for cpu := 0; watches < allowed.Count(); cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		watches++
		go func() {
			err := watchProcessor(ctx, cpu, least, func(p Pause) {
				mu.Lock()
				defer mu.Unlock()
				report(p)
			})
			cancel()
			ended <- err
		}()
	}
	var errs []error
	for range watches {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

func watchProcessor(ctx context.Context, cpu int, least time.Duration, report func(Pause)) error {
	UrgentThread(pausePriority)
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("run on processor %d: %w", cpu, err)
	}
	for ctx.Err() == nil {
		wakeNS := MonotonicNS() + pauseTick.Nanoseconds()
		sleepUnseen(wakeNS)
		now := MonotonicNS()
		if late := now - wakeNS; late >= least.Nanoseconds() {
			report(Pause{CPU: cpu, UntilNS: now, LengthNS: late})
		}
	}
	return nil
}

// sleepUnseen sleeps without notifying Go's scheduler, whose checks of 500 sleeps a second would
// double the watch's CPU cost (10 instead of 5 % in a virtual machine). In return other goroutines
// may wait up to 10 ms.
func sleepUnseen(atNS int64) {
	deadline := unix.NsecToTimespec(atNS)
	for interrupted := true; interrupted; {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&deadline)), 0, 0, 0)
		interrupted = errno == unix.EINTR
	}
}
