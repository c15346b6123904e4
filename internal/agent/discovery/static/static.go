// Package static is a source of containers that the config file lists: network namespaces, and
// cgroups in the host's network, which appear and vanish while the agent runs.
//
// A named namespace (/run/netns/NAME) is an empty file with a namespace mounted on it. Inotify on
// the directory fires too early: the mount follows the creation of the file, without an event of
// its own. The kernel reports changes of the mount table by an exceptional condition on
// /proc/self/mountinfo (proc(5)), and every change makes the source check all entries. Paths that
// are not mounts, such as /proc/PID/ns/net, and cgroups are checked once every poll interval.
package static

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/cgroup"
)

// Runtime is the Runtime of all containers of this package.
const Runtime = "static"

// pollInterval is the time between two checks of paths that are not mounts.
const pollInterval = time.Second

// settleTime collects bursts: starting a container makes a dozen mounts.
const settleTime = 2 * time.Millisecond

// Source watches a fixed list of namespaces and cgroups. It implements
// discovery.Source.
type Source struct {
	name    string
	log     *slog.Logger
	entries []entry
	cgroups cgroup.Mount
}

// entry is one container of the config file.
type entry struct {
	container discovery.Container
	// present is the state last reported, or nil.
	present *object
	// complaint is the last logged reason why it cannot be controlled.
	complaint string
}

// object identifies a network namespace, a cgroup, or a pair of both.
type object struct {
	dev, ino uint64 // of the namespace
	cgroup   uint64 // number of the cgroup
	// since is its creation time, as far as it is known.
	since time.Time
	// cgroupPath is the cgroup's directory.
	cgroupPath string
}

// same reports whether neither the namespace nor the cgroup was made anew.
func (o *object) same(other *object) bool {
	return o != nil && o.dev == other.dev && o.ino == other.ino && o.cgroup == other.cgroup
}

// New returns a source for the containers of a config file. Each has a NetNSPath, a CgroupPath
// (which may be relative to the cgroup v2 mount) or both, and is present while these exist. A
// container without a NetNSPath is HostNetwork; a HostNetwork container with neither path is always
// present. An empty ID becomes "static:NAME", an empty Name the path. StartedAt is the time when
// the namespace was mounted or its process started; for cgroups it only distinguishes one from the
// next. logger may be nil.
func New(name string, containers []discovery.Container, logger *slog.Logger) *Source {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Source{name: name, log: logger.With("source", name)}
	for _, c := range containers {
		if c.Name == "" {
			c.Name = c.NetNSPath + c.CgroupPath
		}
		c.HostNetwork = c.HostNetwork || c.CgroupPath != "" && c.NetNSPath == ""
		if c.ID == "" {
			c.ID = Runtime + ":" + c.Name
		}
		c.Runtime, c.Configured = Runtime, true
		s.entries = append(s.entries, entry{container: c})
	}
	return s
}

// Name is the source's name.
func (s *Source) Name() string { return s.name }

// Run implements discovery.Source. It never reports Disconnected: a missing object is a removed
// container. It returns an error if the mount table cannot be watched or an ID is listed twice.
// Only one Run may be active at a time.
func (s *Source) Run(ctx context.Context, events chan<- discovery.Event) error {
	seen := make(map[string]bool)
	for _, e := range s.entries {
		if seen[e.container.ID] {
			return fmt.Errorf("container %s is listed twice", e.container.ID)
		}
		seen[e.container.ID] = true
	}
	changes, stop, err := watchMounts()
	if err != nil {
		return err
	}
	defer stop()
	if s.cgroups, err = cgroup.FindMount("/proc"); err != nil {
		return err
	}

	snapshot := &discovery.Snapshot{}
	for i := range s.entries {
		e := &s.entries[i]
		e.present = nil
		if updated, _ := s.checkEntry(e); updated != nil {
			snapshot.Containers = append(snapshot.Containers, *updated)
		}
	}
	if !discovery.Send(ctx, s, events, discovery.Event{Snapshot: snapshot}) {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-changes:
			if !ok {
				return errors.New("watch /proc/self/mountinfo: the watch ended")
			}
		}
		for i := range s.entries {
			e := &s.entries[i]
			updated, gone := s.checkEntry(e)
			switch {
			case updated != nil:
				if !discovery.Send(ctx, s, events, discovery.Event{Updated: updated}) {
					return nil
				}
			case gone:
				if !discovery.Send(ctx, s, events, discovery.Event{RemovedID: e.container.ID}) {
					return nil
				}
			}
		}
	}
}

// checkEntry compares the current state of an entry with the one last reported, and records it. It
// returns the container if it is new or its namespace or cgroup was replaced.
func (s *Source) checkEntry(e *entry) (updated *discovery.Container, gone bool) {
	if e.unchanged() {
		return nil, false
	}
	now, err := s.find(e.container)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			s.log.Debug("container is not there", "container", e.container.Name, "error", err)
		} else if e.complaint != err.Error() {
			e.complaint = err.Error()
			s.log.Warn("container of the configuration file cannot be controlled", "container", e.container.Name, "error", err)
		}
		gone = e.present != nil
		e.present = nil
		return nil, gone
	}
	e.complaint = ""
	if e.present.same(now) {
		return nil, false
	}
	e.present = now
	c := e.container
	c.StartedAt = now.since
	c.CgroupPath = now.cgroupPath
	if c.HostNetwork {
		return &c, false
	}
	if own, err := findNamespace("/proc/self/ns/net"); err == nil && own.dev == now.dev && own.ino == now.ino {
		c.HostNetwork = true
	}
	return &c, false
}

// unchanged reports whether a namespace is certainly the one last reported. It takes one system
// call, because few of a thousand containers change at a time.
func (e *entry) unchanged() bool {
	if e.container.NetNSPath == "" || e.container.CgroupPath != "" {
		return false
	}
	var st unix.Stat_t
	err := unix.Stat(e.container.NetNSPath, &st)
	if e.present == nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return err == nil && st.Dev == e.present.dev && st.Ino == e.present.ino
}

// find returns the namespace and the cgroup of a container.
func (s *Source) find(c discovery.Container) (*object, error) {
	found := &object{}
	if c.NetNSPath != "" || c.CgroupPath == "" {
		var err error
		if found, err = findNamespace(c.NetNSPath); err != nil || c.CgroupPath == "" {
			return found, err
		}
	}
	var err error
	if found.cgroupPath, found.cgroup, err = s.cgroups.Resolve(c.CgroupPath); err != nil {
		return nil, err
	}
	if c.NetNSPath == "" {
		// The kernel does not store when a cgroup was made (the times of its directory change), but
		// it numbers cgroups in that order.
		found.since = time.Unix(0, int64(found.cgroup))
	}
	return found, nil
}

// Since returns when the network namespace at a path was mounted, or the process started whose it is.
func Since(path string) (time.Time, error) {
	found, err := findNamespace(path)
	if err != nil {
		return time.Time{}, err
	}
	return found.since, nil
}

// findNamespace returns the namespace at a path; the empty path is the host's. A path that exists
// but is not a namespace (yet) is an error.
func findNamespace(path string) (*object, error) {
	if path == "" {
		path = "/proc/self/ns/net"
	}
	// Use one descriptor for all questions: the path may change in between.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if fs.Type != unix.NSFS_MAGIC {
		return nil, fmt.Errorf("%s is not a namespace: %w", path, os.ErrNotExist)
	}
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err == nil && kind != unix.CLONE_NEWNET {
		return nil, fmt.Errorf("%s is a namespace, but not a network namespace", path)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	ns := &object{dev: st.Dev, ino: st.Ino, since: time.Unix(st.Mtim.Unix())}
	// The kernel makes a namespace's inode on first access and keeps it only while something holds
	// it, such as a mount. For a process, its start time is stable instead.
	if pid, ok := procPID(path); ok {
		if started, err := processStart(pid); err == nil {
			ns.since = started
		}
	}
	return ns, nil
}

// procPID extracts the process ID from a path in /proc.
func procPID(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "/proc/")
	if !ok {
		return "", false
	}
	pid, _, _ := strings.Cut(rest, "/")
	_, err := strconv.ParseUint(pid, 10, 31)
	return pid, err == nil || pid == "self"
}

// processStart returns the start time of a process. Repeated calls agree unless the clock is set.
func processStart(pid string) (time.Time, error) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return time.Time{}, err
	}
	sinceBoot, err := parseStartTime(stat)
	if err != nil {
		return time.Time{}, err
	}
	machine, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	boot, err := parseBootTime(machine)
	if err != nil {
		return time.Time{}, err
	}
	return boot.Add(sinceBoot), nil
}

// parseBootTime returns the boot time from the text of /proc/stat.
func parseBootTime(stat []byte) (time.Time, error) {
	for line := range bytes.Lines(stat) {
		if text, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			seconds, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("read /proc/stat: %w", err)
			}
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, errors.New("read /proc/stat: no btime")
}

// parseStartTime returns a process's start, as time since boot, from the text of /proc/PID/stat.
func parseStartTime(stat []byte) (time.Duration, error) {
	// The process's name, in parentheses, may contain any character.
	_, rest, ok := cutLast(stat, []byte(") "))
	fields := bytes.Fields(rest)
	const startTime = 22 - 3 // proc(5) counts from 1; rest begins with field 3
	if !ok || len(fields) <= startTime {
		return 0, errors.New("read /proc/PID/stat: too short")
	}
	ticks, err := strconv.ParseUint(string(fields[startTime]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read /proc/PID/stat: %w", err)
	}
	const userHZ = 100 // the value that Linux shows user space on every architecture
	if ticks > uint64(1<<63-1)/uint64(time.Second/userHZ) {
		return 0, fmt.Errorf("read /proc/PID/stat: start time %d is too large", ticks)
	}
	return time.Duration(ticks) * (time.Second / userHZ), nil
}

func cutLast(s, sep []byte) (before, after []byte, ok bool) {
	i := bytes.LastIndex(s, sep)
	if i < 0 {
		return s, nil, false
	}
	return s[:i], s[i+len(sep):], true
}

// watchMounts returns a channel that gets a value when the mount table has changed and at every
// pollInterval. The channel is closed if the watch breaks; stop ends the watch.
func watchMounts() (changes <-chan struct{}, stop func(), err error) {
	// Not os.Open: the kernel reports a change once per open file, and Go's own poller, which
	// ignores exceptional conditions, would consume the report.
	mounts, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("watch the mount table: %w", err)
	}
	var wake [2]int // a pipe: writing to it ends the watch
	if err := unix.Pipe2(wake[:], unix.O_CLOEXEC); err != nil {
		unix.Close(mounts)
		return nil, nil, fmt.Errorf("watch the mount table: %w", err)
	}
	notify := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(notify)
		defer unix.Close(mounts)
		defer unix.Close(wake[0])
		fds := []unix.PollFd{
			{Fd: int32(mounts), Events: unix.POLLPRI},
			{Fd: int32(wake[0]), Events: unix.POLLIN},
		}
		for {
			_, err := unix.Poll(fds, int(pollInterval/time.Millisecond))
			if errors.Is(err, unix.EINTR) {
				continue
			} else if err != nil || fds[1].Revents != 0 {
				return
			}
			select {
			case notify <- struct{}{}:
			default:
			}
			if fds[0].Revents != 0 {
				time.Sleep(settleTime)
			}
		}
	}()
	return notify, func() {
		unix.Close(wake[1])
		<-done
	}, nil
}
