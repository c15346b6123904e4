// Package cgroup finds the cgroup of a container in the cgroup v2 hierarchy, the one that sockets
// belong to.
//
// Problem: a process's cgroup is not always its container's. A container that runs systemd, or that
// Podman set up, has its processes in cgroups below its own. An engine that uses only cgroup v1, or
// makes no cgroups, leaves its containers in a cgroup shared with others, whose packets must not be
// counted.
//
// Method: engines name a container's cgroup after the container's ID. The outermost ancestor of
// that name is the container's own cgroup; without such an ancestor its cgroup is unknown. Both
// /proc/PID/cgroup and the mount table show paths relative to the reader's cgroup namespace
// (cgroups(7)), so they also match inside a container.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is a mount of the cgroup v2 hierarchy. The zero value means that there is none.
type Mount struct {
	// Point is the directory, e.g. /sys/fs/cgroup or /sys/fs/cgroup/unified.
	Point string
	// root is the cgroup mounted at Point.
	root string
}

// FindMount returns the mount that shows most of the cgroup v2 hierarchy. procDir is the mount
// point of proc. Without such a mount it returns the zero value and no error.
func FindMount(procDir string) (Mount, error) {
	mounts, err := os.ReadFile(filepath.Join(procDir, "self", "mountinfo"))
	if err != nil {
		return Mount{}, fmt.Errorf("find the cgroup v2 hierarchy: %w", err)
	}
	return parseMountInfo(string(mounts)), nil
}

// FindRoot returns the directory of the hierarchy's root. procDir is the mount point of proc.
// Errors: ErrNoMount.
func FindRoot(procDir string) (string, error) {
	mount, err := FindMount(procDir)
	if err != nil {
		return "", err
	}
	return mount.whole()
}

// parseMountInfo parses the text of /proc/self/mountinfo (proc(5)).
func parseMountInfo(mounts string) Mount {
	var best Mount
	for line := range strings.Lines(mounts) {
		mount, filesystem, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if kind, _, _ := strings.Cut(filesystem, " "); kind != "cgroup2" || len(fields) < 5 {
			continue
		}
		found := Mount{root: unescape(fields[3]), Point: unescape(fields[4])}
		if best.Point == "" || len(found.root) < len(best.root) {
			best = found
		}
	}
	return best
}

// unescape decodes blanks and backslashes in the kernel's paths.
func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// OfContainer returns the cgroup directory of the container with that ID, from the text of
// /proc/PID/cgroup of any of its processes; "" if unknown.
func (m Mount) OfContainer(cgroups, id string) string {
	if m.Point == "" || id == "" {
		return ""
	}
	names := strings.Split(unified(cgroups), "/")
	for i, name := range names {
		if strings.Contains(name, id) {
			return m.directory(strings.Join(names[:i+1], "/"))
		}
	}
	return ""
}

// OfProcess returns the directory of a process's cgroup, from the text of its /proc/PID/cgroup; ""
// if it is not below the mount.
func (m Mount) OfProcess(cgroups string) string {
	if m.Point == "" {
		return ""
	}
	return m.directory(unified(cgroups))
}

// unified returns the cgroup v2 path in the text of a /proc/PID/cgroup, such as
// /system.slice/docker-1234.scope, or "".
func unified(cgroups string) string {
	for line := range strings.Lines(cgroups) {
		if cgroup, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return cgroup
		}
	}
	return ""
}

// directory returns the directory of a cgroup below the mount, or "".
func (m Mount) directory(cgroup string) string {
	below, ok := strings.CutPrefix(cgroup, strings.TrimSuffix(m.root, "/")+"/")
	if !ok || !filepath.IsLocal(below) {
		return ""
	}
	return path.Join(m.Point, below)
}

// ErrNoMount: the cgroup v2 hierarchy, or its root, is not visible on this machine.
var ErrNoMount = errors.New("the cgroup v2 hierarchy is not mounted")

// whole returns the directory of the whole hierarchy. Errors: ErrNoMount.
func (m Mount) whole() (string, error) {
	// In a cgroup namespace the hierarchy's root is above: "/../..".
	if m.Point == "" || strings.Trim(m.root, "/.") != "" {
		return "", ErrNoMount
	}
	return m.Point, nil
}

// Resolve returns the directory of a cgroup and its kernel ID, which no other cgroup gets until the
// next boot. The path is absolute or relative to the mount. Errors wrap os.ErrNotExist if the
// directory does not exist (yet).
func (m Mount) Resolve(name string) (directory string, number uint64, err error) {
	if !path.IsAbs(name) {
		if m.Point == "" {
			return "", 0, fmt.Errorf("find cgroup %s: %w", name, ErrNoMount)
		}
		name = path.Join(m.Point, name)
	}
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		if m.Point == "" {
			return "", 0, fmt.Errorf("find cgroup %s: %w", name, ErrNoMount)
		}
		return "", 0, &os.PathError{Op: "open cgroup", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", 0, &os.PathError{Op: "statfs", Path: name, Err: err}
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return "", 0, fmt.Errorf("%s is not a cgroup of the v2 hierarchy; write one below %s", name, m.hint())
	}
	var st, parent unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", 0, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if err := unix.Fstatat(fd, "..", &parent, 0); err != nil {
		return "", 0, &os.PathError{Op: "stat the parent of", Path: name, Err: err}
	}
	if parent.Dev != st.Dev {
		return "", 0, fmt.Errorf("%s is the top of the cgroup v2 hierarchy, to which everything belongs; write a cgroup below it", name)
	}
	return name, st.Ino, nil
}

func (m Mount) hint() string {
	if m.Point == "" {
		return "where that is mounted (it is not)"
	}
	return m.Point
}
