package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/weir-project/weir/internal/datapath/cgroup"
)

// addCgroup gives a container a cgroup.
func (h *Host) addCgroup(c *NetContainer) error {
	root, err := cgroup.FindRoot("/proc")
	if err != nil {
		return err
	}
	c.cgroup = filepath.Join(root, fmt.Sprintf("%s-c%d", h.cgroupPrefix(), c.number+1))
	return h.makeCgroup(c.cgroup)
}

// GiveCgroup gives a container in bridge or overlay mode a cgroup, as engines do.
func (h *Host) GiveCgroup(c *NetContainer) error { return h.addCgroup(c) }

// cgroupPrefix begins the names of the host's cgroups. h.name begins with
// "weir-", and the cgroups of tests all with "weir-test-".
func (h *Host) cgroupPrefix() string { return "weir-test-" + strings.TrimPrefix(h.name, "weir-") }

// leakedCgroups lists the host's cgroups that exist.
func (h *Host) leakedCgroups() ([]string, error) {
	root, err := cgroup.FindRoot("/proc")
	if errors.Is(err, cgroup.ErrNoMount) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(root, h.cgroupPrefix()+"-*"))
}

// Nested is a part of a container in a cgroup of its own below the container's,
// as processes in a container may make it.
func (h *Host) Nested(c *NetContainer, name string) (*NetContainer, error) {
	if c.cgroup == "" {
		return nil, fmt.Errorf("make a cgroup in container %s: it has none itself", c.Name)
	}
	nested := *c
	nested.cgroup = filepath.Join(c.cgroup, name)
	return &nested, h.makeCgroup(nested.cgroup)
}

func (h *Host) makeCgroup(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := os.Mkdir(path, 0o755); err != nil {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	h.cgroups = append(h.cgroups, path)
	return nil
}

// removeCgroups removes the host's cgroups, nested ones first, and returns
// those that are left.
func removeCgroups(paths []string) (left []string, err error) {
	var problems []error
	for i := len(paths) - 1; i >= 0; i-- {
		if err := os.Remove(paths[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("remove a cgroup: %w", err))
			left = append([]string{paths[i]}, left...)
		}
	}
	return left, errors.Join(problems...)
}

// CgroupPath is the directory of the container's cgroup (version 2). Those have
// one whose packets come to the uplink with their sockets: in host mode, and
// where such cgroups are mounted in the modes of macvlan and ipvlan.
func (c *NetContainer) CgroupPath() string { return c.cgroup }

// Enter calls fn so that sockets it makes belong to the container: to its
// network namespace and, where it has one, to its cgroup.
//
// A socket's cgroup is that of the process that makes it, for good
// (cgroup_sk_alloc in kernel/cgroup/cgroup.c), so the whole process moves to
// the container's cgroup and back, one at a time. Programs that other
// goroutines start meanwhile would stay there.
func (c *NetContainer) Enter(fn func() error) error {
	if c.cgroup == "" {
		return InNetNS(c.netNSPath, fn)
	}
	return inCgroup(c.cgroup, func() error { return InNetNS(c.netNSPath, fn) })
}

var cgroupMu sync.Mutex // held while the process is in another cgroup

func inCgroup(path string, fn func() error) (err error) {
	cgroupMu.Lock()
	defer cgroupMu.Unlock()
	home, err := ownCgroup()
	if err != nil {
		return err
	}
	if err := moveTo(path); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, moveTo(home)) }()
	return fn()
}

// moveTo moves this process to a cgroup.
func moveTo(path string) error {
	// 0 is the process that writes.
	if err := os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return fmt.Errorf("move to a cgroup: %w", err)
	}
	return nil
}

// ownCgroup is the directory of this process's cgroup (version 2).
func ownCgroup() (string, error) {
	root, err := cgroup.FindRoot("/proc")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find this process's cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Join(root, path), nil
		}
	}
	return "", errors.New("find this process's cgroup: it has none of version 2")
}
