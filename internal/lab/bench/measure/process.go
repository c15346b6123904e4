package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// Memory is what processes hold, in bytes.
type Memory struct {
	// Anonymous is resident and of no file, with shared memory; File is resident and of files: programs
	// and libraries. BPF is what the kernel keeps for BPF maps and programs that the processes have open,
	// which is in no process's resident memory.
	Anonymous, File, BPF uint64
}

// Sum is all of it.
func (m Memory) Sum() uint64 { return m.Anonymous + m.File + m.BPF }

// Family returns a process and all its descendants.
func Family(pid int) ([]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("look for the children of process %d: %w", pid, err)
	}
	children := map[int][]int{}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil { // else it has ended meanwhile
			children[stat.PPID] = append(children[stat.PPID], p.PID)
		}
	}
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}

// MemoryOf returns what processes hold together. A file's pages count for each process that has them
// resident, a BPF map once.
func MemoryOf(pids []int) (m Memory, err error) {
	kept := map[string]uint64{}
	for _, pid := range pids {
		p, err := procfs.NewProc(pid)
		if err != nil {
			return m, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		status, err := p.NewStatus()
		if err != nil {
			return m, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		m.Anonymous += status.RssAnon + status.RssShmem
		m.File += status.RssFile
		if err := addBPF(pid, kept); err != nil {
			return m, err
		}
	}
	for _, bytes := range kept {
		m.BPF += bytes
	}
	return m, nil
}

// addBPF adds the memory of each BPF map and program that a process has open, by its id (fdinfo in
// Documentation/filesystems/proc.rst of the kernel; bpf_map_show_fdinfo in kernel/bpf/syscall.c).
func addBPF(pid int, kept map[string]uint64) error {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return fmt.Errorf("read the BPF maps of process %d: %w", pid, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) { // it was closed meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("read the BPF maps of process %d: %w", pid, err)
		}
		id, bytes := "", uint64(0)
		for line := range strings.Lines(string(text)) {
			switch key, value, _ := strings.Cut(strings.TrimSpace(line), ":"); key {
			case "map_id", "prog_id":
				id = key + strings.TrimSpace(value)
			case "memlock":
				if bytes, err = strconv.ParseUint(strings.TrimSpace(value), 10, 64); err != nil {
					return fmt.Errorf("read the BPF maps of process %d: %w", pid, err)
				}
			}
		}
		if id != "" {
			kept[id] = bytes
		}
	}
	return nil
}
