package cli

import (
	"errors"
	"log/slog"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// eachThread does something with all threads of the process; threads that are made
// later inherit what the kernel knows of their maker. One that is made meanwhile may be of a
// maker whose turn has not come: so it is looked again until there is no new one.
func eachThread(do func(id int) error) error {
	var errs []error
	known := map[string]bool{}
	for before := -1; len(known) > before; {
		before = len(known)
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, thread := range threads {
			if known[thread.Name()] {
				continue
			}
			known[thread.Name()] = true
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			if err := do(id); !errors.Is(err, unix.ESRCH) { // it has ended
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// turn is how a controller's threads share processors with others.
type turn struct {
	niceness int32
	// sliceNanoseconds is how long a thread may go on while others wait. The shorter it
	// is, the sooner one has its turn that was asleep (since Linux 6.12,
	// Documentation/scheduler/sched-eevdf.rst).
	sliceNanoseconds uint64
}

// sdnTurn puts a controller of switches before ordinary programs: first packets of flows
// wait for it. Its slice is the shortest that the kernel takes.
var sdnTurn = turn{niceness: -10, sliceNanoseconds: 100_000}

// take gives all threads of the process the turn. Niceness that somebody chose stays,
// and so does another scheduling class.
func (t turn) take(log *slog.Logger) {
	var refused error
	longer := false
	err := eachThread(func(id int) error {
		a, err := unix.SchedGetAttr(id, 0)
		if err != nil || a.Policy != unix.SCHED_NORMAL {
			return err
		}
		want := *a
		want.Runtime = t.sliceNanoseconds
		if a.Nice == 0 {
			want.Nice = t.niceness
		}
		if err = unix.SchedSetAttr(id, &want, 0); errors.Is(err, unix.EPERM) && want.Nice != a.Nice {
			refused, want.Nice = err, a.Nice
			err = unix.SchedSetAttr(id, &want, 0)
		}
		if err != nil {
			return err
		}
		after, err := unix.SchedGetAttr(id, 0)
		longer = longer || err == nil && after.Runtime != t.sliceNanoseconds
		return err
	})
	switch {
	case err != nil:
		log.Info("the controller is scheduled as any program: on a busy machine new flows wait for others", "reason", err)
	case refused != nil:
		log.Info("the controller has no priority: on a busy machine new flows wait for others; run it with Nice= in its unit, or as root", "niceness", t.niceness, "reason", refused)
	case longer:
		log.Info("the kernel has no short turns (Linux 6.12 has): on a busy machine new flows wait for others")
	}
}
