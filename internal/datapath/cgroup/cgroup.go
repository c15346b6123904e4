// Package cgroup finds the cgroup of a container in the cgroup v2 hierarchy,
// which is the one that sockets belong to.
//
// Problem: a process's cgroup is not always its container's. A container that
// runs systemd, or that Podman set up, has its processes in cgroups below its
// own. And an engine that uses cgroup v1 only, or was told to make no cgroups,
// leaves its containers in a cgroup that others are in as well; to take that
// one would be to count others' packets.
//
// Method: engines name a container's cgroup after the container's ID. The
// outermost ancestor of that name is the container's own, and where there is
// none, its cgroup cannot be told. Both /proc/PID/cgroup and the mount table
// show paths from the root of the reader's cgroup namespace (cgroups(7)), so
// they fit together in a container, too.
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

// Mount is where the cgroup v2 hierarchy can be seen. The zero value is
// nowhere.
type Mount struct {
	// Point is the directory, e.g. /sys/fs/cgroup or /sys/fs/cgroup/unified.
	Point string
	// root is the cgroup that is seen at Point.
	root string
}

// FindMount finds the mount of the cgroup v2 hierarchy that shows most of it.
// procDir is where proc is mounted. That there is no such mount is no error.
func FindMount(procDir string) (Mount, error) {
	mounts, err := os.ReadFile(filepath.Join(procDir, "self", "mountinfo"))
	if err != nil {
		return Mount{}, fmt.Errorf("find the cgroup v2 hierarchy: %w", err)
	}
	return parseMountInfo(string(mounts)), nil
}

// FindRoot is the directory of the hierarchy's root. procDir is where proc is
// mounted. Errors: ErrNoMount.
func FindRoot(procDir string) (string, error) {
	mount, err := FindMount(procDir)
	if err != nil {
		return "", err
	}
	return mount.whole()
}

// parseMountInfo reads the text of /proc/self/mountinfo (proc(5)).
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

// unescape undoes how the kernel writes blanks and backslashes in paths.
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

// OfContainer is the directory of the container with that ID, found from the
// text of /proc/PID/cgroup of any of its processes. It is empty if it cannot be
// told.
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

// OfProcess is the directory of a process's cgroup, found from the text of its
// /proc/PID/cgroup. It is empty if it is not seen below the mount.
func (m Mount) OfProcess(cgroups string) string {
	if m.Point == "" {
		return ""
	}
	return m.directory(unified(cgroups))
}

// unified is the cgroup of version 2 in the text of a /proc/PID/cgroup, such as
// /system.slice/docker-1234.scope, or empty.
func unified(cgroups string) string {
	for line := range strings.Lines(cgroups) {
		if cgroup, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return cgroup
		}
	}
	return ""
}

// directory is where a cgroup is seen below the mount, or empty.
func (m Mount) directory(cgroup string) string {
	below, ok := strings.CutPrefix(cgroup, strings.TrimSuffix(m.root, "/")+"/")
	if !ok || !filepath.IsLocal(below) {
		return ""
	}
	return path.Join(m.Point, below)
}

// ErrNoMount is a machine on which the hierarchy, or the root of it, cannot be
// seen.
var ErrNoMount = errors.New("the cgroup v2 hierarchy is not mounted")

// whole is the directory at which all of the hierarchy is seen. Errors:
// ErrNoMount.
func (m Mount) whole() (string, error) {
	// In a cgroup namespace the root of all is above: "/../..".
	if m.Point == "" || strings.Trim(m.root, "/.") != "" {
		return "", ErrNoMount
	}
	return m.Point, nil
}

// Resolve finds the directory of a cgroup and the number by which the kernel
// knows it, which no other cgroup gets until the next boot. The path is
// absolute or relative to the mount. Errors wrap os.ErrNotExist if there is no
// such directory (yet).
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
