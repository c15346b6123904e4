package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/prometheus/procfs"
)

// ResidentBytes returns a process's present and peak memory in bytes.
func ResidentBytes(pid int) (now, peak uint64, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	status, err := p.NewStatus()
	if err == nil && status.VmRSS == 0 {
		err = errors.New("there is no VmRSS: it has ended, or is the kernel's")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return status.VmRSS, status.VmHWM, nil
}

// ProcessorTime returns the CPU time of a process in steps of 10 ms, including ended threads.
func ProcessorTime(pid int) (time.Duration, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// ThreadTimes returns how long the threads of a process have run on a processor so far, and how
// long they have waited for one, to the nanosecond (schedstat, Documentation/scheduler/sched-
// stats.rst of the kernel). The times of ended threads are lost; Go's do not end.
func ThreadTimes(pid int) (ran, waited time.Duration, err error) {
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return 0, 0, fmt.Errorf("look for the threads of process %d: %w", pid, err)
	}
	for _, thread := range threads {
		times, err := thread.Schedstat()
		if errors.Is(err, fs.ErrNotExist) { // it has ended meanwhile
			continue
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read the run times of process %d: %w", pid, err)
		}
		ran += time.Duration(times.RunningNanoseconds)
		waited += time.Duration(times.WaitingNanoseconds)
	}
	return ran, waited, nil
}
