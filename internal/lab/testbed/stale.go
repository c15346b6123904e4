package testbed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/cgroup"
)

// Names of everything a test or benchmark creates contain its process ID, so that the next run can
// find and remove what a killed run has left.

// hostName returns a name that starts with this process's ID.
func hostName(suffix string) string { return fmt.Sprintf("weir-%d-%s", os.Getpid(), suffix) }

// namePattern matches names of hostName; its group is the process ID.
var namePattern = regexp.MustCompile(`^weir-(?:test-)?([0-9]+)-[0-9a-f]{8}-`)

// stale reports whether the process in a name has ended. If its ID was reused, removal is delayed.
func stale(name string, running func(pid int) bool) bool {
	found := namePattern.FindStringSubmatch(name)
	if found == nil {
		return false
	}
	pid, err := strconv.Atoi(found[1])
	return err == nil && !running(pid)
}

// running reports whether a process runs; a zombie does not.
func running(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	// In /proc/PID/stat the state follows the name, which is in brackets and may contain brackets.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// MountName returns the source name for a test's tmpfs, by which the next run recognizes it.
func MountName() string { return hostName(fmt.Sprintf("%08x-memory", rand.Uint32())) }

// MakeTempDir creates a temporary folder with a path short enough for sockets. The caller removes
// it; the next run removes that of a killed one.
func MakeTempDir() (string, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("weir-test-%d-%08x-", os.Getpid(), rand.Uint32()))
	if err != nil {
		return "", fmt.Errorf("make a folder for temporary files: %w", err)
	}
	return dir, nil
}

// unescapeMount decodes the escapes of mountinfo paths (proc(5)).
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// staleMounts returns the mount points whose source name belongs to an ended process, topmost
// first.
func staleMounts(mountinfo string, running func(pid int) bool) []string {
	var paths []string
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		fields, source := strings.Fields(before), strings.Fields(after)
		if len(fields) > 4 && len(source) > 1 && stale(source[1], running) {
			paths = append(paths, unescapeMount.Replace(fields[4]))
		}
	}
	slices.Reverse(paths)
	return paths
}

// holdsMount reports whether anything is mounted on or below a folder.
func holdsMount(mountinfo, folder string) bool {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(unescapeMount.Replace(fields[4])+"/", folder+"/") {
			return true
		}
	}
	return false
}

// removeStaleFolders removes the folders of ended processes, except those that still contain a
// mount.
func removeStaleFolders() {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), "weir-test-*"))
	for _, folder := range folders {
		if stale(filepath.Base(folder), running) && !holdsMount(string(mounts), folder) {
			_ = os.RemoveAll(folder)
		}
	}
}

var removeStaleOnce sync.Once

// removeStale removes network namespaces, mounts, folders and cgroups of ended processes. Failures,
// such as a cgroup with a process, are left to the next run.
func removeStale(ctx context.Context) {
	namespaces, _ := filepath.Glob(NetNSDir + "/weir-*")
	for _, path := range namespaces {
		name := filepath.Base(path)
		if !stale(name, running) {
			continue
		}
		// A namespace lives on while a socket of it is open; its interfaces
		// should not.
		_ = runTool(ctx, "ip", "-n", name, "link", "del", uplinkName)
		_ = runTool(ctx, "ip", "netns", "del", name)
	}
	if table, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for _, path := range staleMounts(string(table), running) {
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
	}
	removeStaleFolders()
	root, err := cgroup.FindRoot("/proc")
	if err != nil {
		return
	}
	groups, _ := filepath.Glob(filepath.Join(root, "weir-test-*"))
	for _, group := range groups {
		if !stale(filepath.Base(group), running) {
			continue
		}
		_ = RemoveCgroup(group)
	}
}

// RemoveCgroup removes a cgroup and its children. It returns the first error, such as a cgroup that
// has a process.
func RemoveCgroup(path string) error {
	nested, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("remove a cgroup: %w", err)
	}
	for _, entry := range nested {
		if !entry.IsDir() {
			continue
		}
		if err := RemoveCgroup(filepath.Join(path, entry.Name())); err != nil {
			return err
		}
	}
	return os.Remove(path)
}
