package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ThreadUse is what a thread took of the machine between two times.
type ThreadUse struct {
	User   time.Duration `json:"user_ns"`
	System time.Duration `json:"system_ns"`
	// Switches are context switches, voluntary or not; Faults page faults,
	// with and without a disk.
	Switches uint64 `json:"switches"`
	Faults   uint64 `json:"faults"`
	// Migrations are moves to another processor; nil where the kernel does not
	// count them.
	Migrations *uint64 `json:"migrations"`
	// Cycles and Instructions are the processor's own counters; nil where it has
	// none for us.
	Cycles       *uint64 `json:"cycles"`
	Instructions *uint64 `json:"instructions"`
}

// threadCounters count for the thread that made them.
type threadCounters struct {
	migrations, cycles, instructions int // -1: not counted
	// missing says why some are not counted.
	missing error
}

// openThreadCounters starts to count the calling thread. Counters that are not
// there are left out: guests often have none of the processor's.
func openThreadCounters() *threadCounters {
	c := &threadCounters{}
	open := func(name string, kind uint32, config uint64) int {
		fd, err := openThreadCounter(kind, config)
		if err != nil {
			c.missing = errors.Join(c.missing, fmt.Errorf("%s: %w", name, err))
			return -1
		}
		return fd
	}
	c.migrations = open("migrations", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_MIGRATIONS)
	c.cycles = open("cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES)
	c.instructions = open("instructions", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS)
	return c
}

// openThreadCounter counts an event for the calling thread, in user space and
// in the kernel, on any processor.
func openThreadCounter(kind uint32, config uint64) (int, error) {
	attributes := unix.PerfEventAttr{Type: kind, Config: config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	fd, err := unix.PerfEventOpen(&attributes, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return -1, fmt.Errorf("this machine does not count them (perf_event_open: %w)", err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("not allowed, run as root (perf_event_open: %w)", err)
	case err != nil:
		return -1, fmt.Errorf("perf_event_open: %w", err)
	}
	return fd, nil
}

// read is what the calling thread took since it began.
func (c *threadCounters) read() (use ThreadUse, err error) {
	var rusage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &rusage); err != nil {
		return use, fmt.Errorf("read the thread's use: %w", err)
	}
	use.User, use.System = time.Duration(rusage.Utime.Nano()), time.Duration(rusage.Stime.Nano())
	use.Switches = uint64(rusage.Nvcsw) + uint64(rusage.Nivcsw)
	use.Faults = uint64(rusage.Minflt) + uint64(rusage.Majflt)
	for fd, to := range map[int]**uint64{
		c.migrations: &use.Migrations, c.cycles: &use.Cycles, c.instructions: &use.Instructions,
	} {
		if fd < 0 {
			continue
		}
		var buffer [8]byte
		if _, err := unix.Read(fd, buffer[:]); err != nil {
			return use, fmt.Errorf("read a performance counter: %w", err)
		}
		value := binary.NativeEndian.Uint64(buffer[:])
		*to = &value
	}
	return use, nil
}

func (c *threadCounters) close() {
	for _, fd := range []int{c.migrations, c.cycles, c.instructions} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// Sub is what was taken after from.
func (u ThreadUse) Sub(from ThreadUse) ThreadUse {
	minus := func(a, b *uint64) *uint64 {
		if a == nil || b == nil {
			return nil
		}
		value := *a - *b
		return &value
	}
	return ThreadUse{
		User: u.User - from.User, System: u.System - from.System,
		Switches: u.Switches - from.Switches, Faults: u.Faults - from.Faults,
		Migrations: minus(u.Migrations, from.Migrations),
		Cycles:     minus(u.Cycles, from.Cycles), Instructions: minus(u.Instructions, from.Instructions),
	}
}
