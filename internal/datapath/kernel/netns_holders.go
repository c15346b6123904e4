package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// NetNSHolder is a process that holds a network namespace.
type NetNSHolder struct {
	// Inode is the inode of the namespace.
	Inode uint32
	How   NetNSHold
	// Path is a file that proves that the process holds the namespace (ShowsNetNS).
	Path string
	// PID is the process ID; Cgroups is the text of its /proc/PID/cgroup.
	PID     int
	Cgroups string
}

// NetNSHold is the way in which a process holds a network namespace.
type NetNSHold int

// The ways to hold a network namespace.
const (
	// ByProcess: the process, or a thread of it, is in the namespace.
	ByProcess NetNSHold = iota
	// ByFile: the process has the namespace open as a file, or sees it mounted.
	ByFile
)

// NetNSHolders returns the processes, other than the calling one, that hold the network namespaces
// with these inodes. procDir is the mount point of proc. Threads and files are checked only for
// namespaces without a process.
func NetNSHolders(procDir string, inodes []uint32) []NetNSHolder {
	if len(inodes) == 0 {
		return nil
	}
	search := netNSSearch{procDir: procDir, wanted: map[string]uint32{}}
	for _, inode := range inodes {
		search.wanted[netNSLink(inode)] = inode
	}
	processes := slices.DeleteFunc(processIDs(procDir), func(pid int) bool { return pid == os.Getpid() })
	for _, pid := range processes {
		search.link(pid, ByProcess, "ns/net")
	}
	for _, found := range search.found {
		delete(search.wanted, netNSLink(found.Inode))
	}
	if len(search.wanted) == 0 {
		return search.found
	}
	mounts := map[string][]uint32{} // by mount namespace
	for _, pid := range processes {
		for _, thread := range search.list(pid, "task") {
			search.link(pid, ByProcess, "task/"+thread+"/ns/net")
		}
		for _, fd := range search.list(pid, "fd") {
			search.link(pid, ByFile, "fd/"+fd)
		}
		namespace, err := os.Readlink(search.path(pid, "ns/mnt"))
		if err != nil {
			continue
		}
		mounted, seen := mounts[namespace]
		if !seen {
			mounted = search.mounted(pid)
			mounts[namespace] = mounted
		}
		for _, inode := range mounted {
			search.add(pid, ByFile, "mountinfo", inode)
		}
	}
	return search.found
}

// ShowsNetNS reports whether the file at a holder's Path still leads to the network namespace with
// that inode.
func ShowsNetNS(path string, inode uint32) bool {
	if target, err := os.Readlink(path); err == nil {
		return target == netNSLink(inode)
	}
	mounts, err := os.ReadFile(path)
	return err == nil && slices.Contains(mountedNetNS(string(mounts)), netNSLink(inode))
}

// netNSLink returns the link text of a network namespace in proc.
func netNSLink(inode uint32) string { return fmt.Sprintf("net:[%d]", inode) }

// mountedNetNS returns the network namespaces, as link texts, that are mounted according to the
// text of a mountinfo.
func mountedNetNS(mounts string) []string {
	var list []string
	for line := range strings.Lines(mounts) {
		// The fourth field is the mounted part of the file system (proc(5)).
		if fields := strings.Fields(line); len(fields) > 3 && strings.HasPrefix(fields[3], "net:[") {
			list = append(list, fields[3])
		}
	}
	return list
}

type netNSSearch struct {
	procDir string
	wanted  map[string]uint32 // by netNSLink
	found   []NetNSHolder
}

func (s *netNSSearch) path(pid int, name string) string {
	return filepath.Join(s.procDir, strconv.Itoa(pid), name)
}

// list returns the entries of a directory of a process; none if the process has ended.
func (s *netNSSearch) list(pid int, dir string) []string {
	opened, err := os.Open(s.path(pid, dir))
	if err != nil {
		return nil
	}
	defer opened.Close()
	names, _ := opened.Readdirnames(0)
	return names
}

func (s *netNSSearch) link(pid int, how NetNSHold, name string) {
	target, err := os.Readlink(s.path(pid, name))
	if err != nil {
		return
	}
	if inode, wanted := s.wanted[target]; wanted {
		s.add(pid, how, name, inode)
	}
}

// mounted returns the wanted namespaces that a process sees mounted.
func (s *netNSSearch) mounted(pid int) []uint32 {
	mounts, err := os.ReadFile(s.path(pid, "mountinfo"))
	if err != nil {
		return nil
	}
	var list []uint32
	for _, link := range mountedNetNS(string(mounts)) {
		if inode, wanted := s.wanted[link]; wanted && !slices.Contains(list, inode) {
			list = append(list, inode)
		}
	}
	return list
}

func (s *netNSSearch) add(pid int, how NetNSHold, name string, inode uint32) {
	cgroups, err := os.ReadFile(s.path(pid, "cgroup"))
	if err != nil {
		return // it has ended
	}
	s.found = append(s.found, NetNSHolder{
		Inode: inode, How: how, Path: s.path(pid, name), PID: pid, Cgroups: string(cgroups),
	})
}
