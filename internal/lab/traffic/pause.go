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

// pauseTick is how often each processor is looked at, and by how much a pause
// may be longer than it is taken for.
const pauseTick = 2 * time.Millisecond

// Pause is a time for which a processor did not run what goes before everything
// else: as when the machine is itself a guest, and its host did something else.
// Such times are in none of the kernel's counters unless the host tells of them.
type Pause struct {
	CPU      int   `json:"cpu"`
	UntilNS  int64 `json:"until_ns"` // of CLOCK_MONOTONIC
	LengthNS int64 `json:"length_ns"`
}

// WatchPauses reports the pauses of every processor that are no shorter than
// least, one at a time, until ctx ends. Without CAP_SYS_NICE what a processor spends
// on others first looks like one as well, and so does what waits for Go's scheduler:
// it takes a process with little else to do.
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

// sleepUnseen sleeps without telling Go's scheduler. That would look after a
// thread which sleeps 500 times a second for so long that it doubles what the watch
// costs (5 % of a processor instead of 10, in a virtual machine). In turn it takes
// others of the process up to 10 ms to get a word in.
func sleepUnseen(atNS int64) {
	deadline := unix.NsecToTimespec(atNS)
	for interrupted := true; interrupted; {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&deadline)), 0, 0, 0)
		interrupted = errno == unix.EINTR
	}
}
