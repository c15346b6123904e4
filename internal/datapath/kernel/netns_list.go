package kernel

import (
	"iter"
	"os"
	"path/filepath"
	"strconv"
)

// netNSDirs is where engines and iproute2 keep network namespaces in files.
var netNSDirs = []string{"/run/docker/netns", "/var/run/docker/netns", "/run/netns"}

// NetNSPaths goes through the network namespaces of this machine that a file
// or a process leads to, each once, but for the one of the calling thread:
// first those in the directories of engines and of iproute2, then those of
// processes, and those in such directories as other mount namespaces see them
// (an engine's may be private).
func NetNSPaths() iter.Seq[string] {
	return func(yield func(string) bool) {
		here, err := NetNSIdentity(CurrentNetNS)
		if err != nil {
			return
		}
		seen := map[NetNSID]bool{here: true}
		// visit reports whether to go on.
		visit := func(path string) bool {
			id, err := NetNSIdentity(path)
			// What is on another file system is no namespace.
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

// processIDs lists the processes that proc, mounted at procDir, shows.
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
