package cli

import (
	"errors"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/front/cmdline"
)

// turn is a scheduling policy for the threads of the controller.
type turn struct {
	niceness int32
	// sliceNanoseconds is the EEVDF time slice. A thread with a shorter slice runs sooner
	// after a sleep (Linux 6.12, Documentation/scheduler/sched-eevdf.rst).
	sliceNanoseconds uint64
}

// sdnTurn runs the controller before ordinary programs, because the first packet of each
// flow waits for it. Its slice is the shortest that the kernel accepts.
var sdnTurn = turn{niceness: -10, sliceNanoseconds: 100_000}

// set applies the policy to all threads of the process. It keeps a niceness other than 0
// and a real-time or batch scheduling class.
func (t turn) set(log *slog.Logger) {
	var refused error
	longer := false
	err := cmdline.EachThread(func(id int) error {
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
		log.Info("the kernel has no short time slices (Linux 6.12 has): on a busy machine new flows wait for others")
	}
}
