package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// process is a peer that is a running program.
type process interface {
	// pid is its process.
	pid() int
	// startTime is how long it took until everything was in place.
	startTime() time.Duration
	// turns are how long after one another its control loop looked.
	turns() (v1.Turns, error)
}

// agentReading is what the agent took: up to now, or during a window.
type agentReading struct {
	cpu           time.Duration // run time of all its threads
	residentBytes uint64
	start         time.Duration
	turns         v1.Turns
}

func readAgent(p process) (r agentReading, err error) {
	r.start = p.startTime()
	if r.turns, err = p.turns(); err != nil {
		return r, fmt.Errorf("read the turns of the agent's control loop: %w", err)
	}
	dir := filepath.Join("/proc", strconv.Itoa(p.pid()))
	if r.cpu, err = threadsRunTime(filepath.Join(dir, "task")); err != nil {
		return r, fmt.Errorf("read the agent's run time: %w", err)
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err == nil {
		r.residentBytes, err = parseResident(string(status))
	}
	if err != nil {
		return r, fmt.Errorf("read the agent's memory: %w", err)
	}
	return r, nil
}

// threadsRunTime adds up the run time of all threads of a process: the first
// number of schedstat, in nanoseconds (Documentation/scheduler/sched-stats.rst
// of the kernel). The time of threads that ended is lost; Go's do not.
func threadsRunTime(taskDir string) (time.Duration, error) {
	tasks, err := os.ReadDir(taskDir)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, task := range tasks {
		text, err := os.ReadFile(filepath.Join(taskDir, task.Name(), "schedstat"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		field, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// parseResident reads VmRSS of /proc/PID/status, in bytes.
func parseResident(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib * 1024, err
		}
	}
	return 0, errors.New("there is no VmRSS")
}
