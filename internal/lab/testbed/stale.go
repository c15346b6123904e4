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

	"github.com/weir-project/weir/internal/discovery/cgroup"
)

// What a test or a benchmark makes carries the number of its process, so that
// what one leaves that was killed can be told from what another one uses. The
// next one removes it.

// hostName names what a host of this process makes.
func hostName(suffix string) string { return fmt.Sprintf("weir-%d-%s", os.Getpid(), suffix) }

// namePattern is what hostName makes, before "-" and what it is of the host.
var namePattern = regexp.MustCompile(`^weir-(?:test-)?([0-9]+)-[0-9a-f]{8}-`)

// stale says whether a name is that of a process that is gone. A number that was
// given to another process since only delays the removal.
func stale(name string, running func(pid int) bool) bool {
	found := namePattern.FindStringSubmatch(name)
	if found == nil {
		return false
	}
	pid, err := strconv.Atoi(found[1])
	return err == nil && !running(pid)
}

// running says whether a process runs: not one that has ended and that its
// parent has not noticed.
func running(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	// The state follows the name, which is in brackets and may hold any.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// MountName is what a test mounts as the source of a file system in memory, so that the
// next one can tell whose it was.
func MountName() string { return hostName(fmt.Sprintf("%08x-memory", rand.Uint32())) }

// MakeTempDir makes a folder for the files of a test or a benchmark, below that for
// temporary files and with a short path, as those of sockets have to be. Whoever makes it
// removes it; of one that was killed the next does.
func MakeTempDir() (string, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("weir-test-%d-%08x-", os.Getpid(), rand.Uint32()))
	if err != nil {
		return "", fmt.Errorf("make a folder for temporary files: %w", err)
	}
	return dir, nil
}

// unescapeMount makes a path of how a mountinfo of proc(5) writes one.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// staleMounts are where file systems are mounted, in a mountinfo of proc(5), whose source
// is named by a process that is gone: those on top first.
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

// holdsMount says whether something is mounted on a folder or in it.
func holdsMount(mountinfo, folder string) bool {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(unescapeMount.Replace(fields[4])+"/", folder+"/") {
			return true
		}
	}
	return false
}

// removeStaleFolders removes those of processes that are gone, unless something is still
// mounted there, which is not theirs alone.
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

// removeStale removes network namespaces, mounts, folders and cgroups of processes that are
// gone.
// What cannot be removed, as a cgroup with a process in it, is left to the next.
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

// RemoveCgroup removes a cgroup and those in it. Errors: of the first that cannot be
// removed, as there is a process in it.
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
