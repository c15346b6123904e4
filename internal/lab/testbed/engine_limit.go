package testbed

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

// quotaPeriod is how often a limit of processor time begins anew (the kernel's default).
const quotaPeriod = 100 * time.Millisecond

// Limit caps what all containers of the engine together take: processors (0: all) and
// memory in bytes (0: all). The engine itself is not capped. It needs the cpu and memory
// controllers of cgroups version 1.
func (e *Engine) Limit(cpus float64, memoryBytes uint64) error {
	quota, memory := int64(-1), int64(-1)
	if cpus > 0 {
		quota = int64(cpus * float64(quotaPeriod.Microseconds()))
	}
	if memoryBytes > 0 {
		memory = int64(memoryBytes)
	}
	return errors.Join(e.setLimit("cpu", "cpu.cfs_quota_us", quota), e.setLimit("memory", "memory.limit_in_bytes", memory))
}

func (e *Engine) setLimit(controller, file string, value int64) error {
	dir, err := e.controller(controller)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(value, 10)), 0o644)
	}
	if err != nil {
		return fmt.Errorf("limit the engine's containers: %w", err)
	}
	return nil
}

// controller is the engine's cgroup of a controller. It is made where the engine has had
// no container yet; Stop removes it.
func (e *Engine) controller(name string) (string, error) {
	root := filepath.Join("/sys/fs/cgroup", name)
	if _, err := os.Stat(root); err != nil {
		return "", fmt.Errorf("this machine has no %s controller of cgroups version 1: %w", name, err)
	}
	dir := filepath.Join(root, e.name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// Used is what all containers of the engine together have taken: processor time since
// the engine was started, and the memory that they have now, in bytes.
func (e *Engine) Used() (cpu time.Duration, memoryBytes uint64, err error) {
	nanoseconds, err := e.counter("cpuacct", "cpuacct.usage")
	if err != nil {
		return 0, 0, err
	}
	memoryBytes, err = e.counter("memory", "memory.usage_in_bytes")
	return time.Duration(nanoseconds), memoryBytes, err
}

// ContainerCPU returns the processor time that a container, given by its ID, has taken since its start.
func (e *Engine) ContainerCPU(id string) (time.Duration, error) {
	nanoseconds, err := e.counter("cpuacct", filepath.Join(id, "cpuacct.usage"))
	return time.Duration(nanoseconds), err
}

func (e *Engine) counter(controller, file string) (uint64, error) {
	dir, err := e.controller(controller)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// Runnable is how many threads of the engine's containers run or wait: for a processor,
// also where it is the limit (see Limit) that they wait for, or for a disk. That is what
// the kernel's load averages are the smoothed mean of, for all of a machine
// (kernel/sched/loadavg.c); control groups of version 1 have none of their own.
func (e *Engine) Runnable() (count int, err error) {
	dir, err := e.controller("cpu")
	if err != nil {
		return 0, err
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // a container has ended
			return nil
		case err != nil || entry.IsDir() || entry.Name() != "tasks":
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, thread := range strings.Fields(string(text)) {
			if runnable(thread) {
				count++
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("count what runs in the engine's containers: %w", err)
	}
	return count, nil
}

// runnable is false for a thread that has ended.
func runnable(thread string) bool {
	number, err := strconv.Atoi(thread)
	if err != nil {
		return false
	}
	one, err := procfs.NewProc(number)
	if err != nil {
		return false
	}
	stat, err := one.Stat()
	return err == nil && (stat.State == "R" || stat.State == "D")
}
