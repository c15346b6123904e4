package traffic

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Foreign load is processor time of the machine's other users: it takes from a run what no scheduler of packets can
// give back. A measurement starts many processes itself, some of which leave its tree (containers), and the kernel's
// threads work for it, so only these are foreign: processes that started before this one and are neither its ancestors
// nor init, and what they start; and what init starts in a service of the system, such as apt-daily at night, except this
// process's own service and container engines. Of what init starts, times after the last look at a process are not seen.

// process is what /proc says of one.
type process struct {
	parent int
	// start is when the process started, in ticks since boot: process numbers are used again.
	start uint64
	// ticks are the times of the process and of children that it has waited for, so that the sum over a
	// tree keeps what ended.
	ticks uint64
}

// processes are all of a moment, by their number.
type processes map[int]process

const (
	initProcess   = 1
	kernelThreads = 2
)

// ForeignWatch tells foreign processes from a measurement's own.
type ForeignWatch struct {
	// start is when this process started.
	start uint64
	own   map[int]bool // the measurement's ancestors
	// service returns the system's service that a process belongs to, and ownService is this process's; empty: none.
	service    func(pid int) string
	ownService string
}

// NewForeignWatch counts as foreign what started before this process, but its ancestors, and what that starts.
func NewForeignWatch() (*ForeignWatch, error) {
	now, err := readProcesses()
	return newForeignWatch(os.Getpid(), now, readService), err
}

func newForeignWatch(self int, now processes, service func(pid int) string) *ForeignWatch {
	w := &ForeignWatch{
		start: now[self].start, own: map[int]bool{initProcess: true, kernelThreads: true}, service: service, ownService: service(self),
	}
	for at := self; at > 0 && !w.own[at]; at = now[at].parent {
		w.own[at] = true
	}
	return w
}

// ForeignTimes are a moment of the machine.
type ForeignTimes struct {
	foreign processes
	cpu     CPUTimes
}

// Read returns the times so far; only differences mean something.
func (w *ForeignWatch) Read() (ForeignTimes, error) {
	now, err := readProcesses()
	if err != nil {
		return ForeignTimes{}, err
	}
	cpu, err := ReadCPUTimes()
	return ForeignTimes{foreign: w.foreign(now), cpu: cpu}, err
}

// foreign returns the foreign processes among now.
func (w *ForeignWatch) foreign(now processes) processes {
	found := maps.Clone(now)
	maps.DeleteFunc(found, func(pid int, _ process) bool { return !w.isForeign(now, pid) })
	return found
}

func (w *ForeignWatch) isForeign(now processes, pid int) bool {
	known := false
	for at := pid; at > 0; at = now[at].parent {
		if w.own[at] {
			return known && at != kernelThreads
		}
		known = known || now[at].start < w.start || now[at].parent == initProcess && w.isForeignService(at)
	}
	return known
}

// engineServices start containers, also a measurement's own.
var engineServices = []string{"docker.service", "containerd.service", "podman.service", "crio.service"}

// isForeignService reports whether a process belongs to a service that does not work for the measurement.
func (w *ForeignWatch) isForeignService(pid int) bool {
	service := w.service(pid)
	return service != "" && service != w.ownService && !slices.Contains(engineServices, service)
}

// readService returns the system's service that a process belongs to; empty if there is none, or the process has ended.
func readService(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	return parseService(string(text))
}

// parseService returns the service in the lines of /proc/PID/cgroup (cgroups(7)), of systemd's hierarchy or the unified one.
func parseService(text string) string {
	for line := range strings.Lines(text) {
		_, path, found := strings.Cut(strings.TrimSpace(line), ":/system.slice/")
		if !found {
			continue
		}
		for part := range strings.SplitSeq(path, "/") { // services may be in slices of system.slice
			if strings.HasSuffix(part, ".service") {
				return part
			}
		}
	}
	return ""
}

// Since returns the part of all processors' time that foreign processes, or other guests of the machine below
// (stolen time), took after from.
func (t ForeignTimes) Since(from ForeignTimes) float64 {
	took := map[int]float64{} // by process that is still there
	for pid, p := range t.foreign {
		took[pid] = float64(p.ticks)
	}
	for pid, p := range from.foreign {
		if heir, ok := from.foreign.heir(pid, t.foreign); ok {
			took[heir] -= float64(p.ticks)
		}
	}
	ticks := 0.0
	for _, own := range took {
		ticks += max(0, own) // of a child that init adopted, the heir has no times
	}
	passed := t.cpu.Sub(from.cpu)
	return ticks/userHZ/max(passed.Total().Seconds(), 1e-3) + max(0, passed.StolenFraction())
}

// heir returns the process whose times later contain those of process pid: the process itself or, when it has ended,
// its closest ancestor that has not. ok is false if later has none, so that nothing counts these times.
func (p processes) heir(pid int, later processes) (heir int, ok bool) {
	for at := pid; ; at = p[at].parent {
		was, known := p[at]
		if !known {
			return 0, false
		}
		if is, alive := later[at]; alive && is.start == was.start {
			return at, true
		}
	}
}

// readProcesses reads /proc. A process that ends meanwhile is left out.
func readProcesses() (processes, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	now := processes{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, p, err := parseProcess(string(text))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		now[pid] = p
	}
	return now, nil
}

// parseProcess reads the line of /proc/PID/stat (proc(5)). The name, in brackets, may contain anything.
func parseProcess(line string) (pid int, p process, err error) {
	const parent, user, started = 1, 11, 19 // after the name
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return 0, p, fmt.Errorf("unexpected line %q", line)
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) <= started {
		return 0, p, fmt.Errorf("unexpected line %q", line)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(line[:open])); err != nil {
		return 0, p, err
	}
	if p.parent, err = strconv.Atoi(fields[parent]); err != nil {
		return 0, p, err
	}
	for _, text := range fields[user : user+4] {
		ticks, err := strconv.ParseInt(text, 10, 64) // those of children are signed
		if err != nil {
			return 0, p, err
		}
		p.ticks += uint64(max(0, ticks))
	}
	p.start, err = strconv.ParseUint(fields[started], 10, 64)
	return pid, p, err
}
