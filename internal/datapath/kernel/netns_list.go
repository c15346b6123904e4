package kernel

import (
	"iter"
	"os"
	"path/filepath"
	"strconv"
)

// netNSDirs are the directories where engines and iproute2 keep network namespaces as files.
var netNSDirs = []string{"/run/docker/netns", "/var/run/docker/netns", "/run/netns"}

// NetNSPaths yields a path to each network namespace of this machine once, except the calling
// thread's: first files in the directories of engines and iproute2, then processes, then files in
// such directories of other mount namespaces (an engine's may be private).
func NetNSPaths() iter.Seq[string] {
	return func(yield func(string) bool) {
		here, err := NetNSIdentity(CurrentNetNS)
		if err != nil {
			return
		}
		seen := map[NetNSID]bool{here: true}
		// visit reports whether to continue.
		visit := func(path string) bool {
			id, err := NetNSIdentity(path)
			// A file on another file system is no namespace.
			if err != nil || id.Dev != here.Dev || seen[id] {
				return true
			}
			seen[id] = true
			return yield(path)
		}
		visitDirs := func(root string) bool {
			for _, dir := range netNSDirs {
				entries, err := os.ReadDir(root + dir)
				if err != nil {
					continue
				}
				for _, entry := range entries {
					if !visit(filepath.Join(root+dir, entry.Name())) {
						return false
					}
				}
			}
			return true
		}
		if !visitDirs("") {
			return
		}
		mounts := map[string]bool{}
		if own, err := os.Readlink("/proc/self/ns/mnt"); err == nil {
			mounts[own] = true
		}
		for _, pid := range processIDs("/proc") {
			dir := filepath.Join("/proc", strconv.Itoa(pid))
			if !visit(dir + "/ns/net") {
				return
			}
			mount, err := os.Readlink(dir + "/ns/mnt")
			if err != nil || mounts[mount] {
				continue
			}
			mounts[mount] = true
			if !visitDirs(dir + "/root") {
				return
			}
		}
	}
}

// processIDs lists the processes in proc, mounted at procDir.
func processIDs(procDir string) []int {
	var list []int
	entries, _ := os.ReadDir(procDir)
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			list = append(list, pid)
		}
	}
	return list
}
