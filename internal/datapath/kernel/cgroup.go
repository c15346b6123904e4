package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Cgroup identifies a control group of the version 2 hierarchy.
type Cgroup struct {
	// ID is not reused while the machine runs.
	ID uint64
	// Level is the distance from the root, which has level 0.
	Level int
}

// ErrNoCgroup: the cgroup does not exist (any more).
var ErrNoCgroup = errors.New("no such cgroup")

// rootInode is the inode number of the root of every hierarchy, the first that kernfs_create_root
// (fs/kernfs/dir.c) assigns, and the lower half of its ID: a kernel of 32 bits has a generation above it.
const rootInode = 1

func isRoot(id uint64) bool { return uint32(id) == rootInode }

// LookUpCgroup returns the cgroup of the directory at path. Errors: ErrNoCgroup; a directory
// outside a version 2 hierarchy; a mount that does not begin at the hierarchy's root.
func LookUpCgroup(path string) (Cgroup, error) {
	id, err := cgroupID(path)
	if err != nil {
		return Cgroup{}, err
	}
	cgroup := Cgroup{ID: id}
	for above := filepath.Clean(path); !isRoot(id); cgroup.Level++ {
		above = filepath.Dir(above)
		if id, err = cgroupID(above); err != nil {
			return Cgroup{}, fmt.Errorf("find the root of the hierarchy above cgroup %s: %w", path, err)
		}
	}
	return cgroup, nil
}

// cgroupID reads the ID from the directory's file handle, as bpf_skb_cgroup_id documents it.
func cgroupID(path string) (uint64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return 0, fmt.Errorf("%s: %w", path, ErrNoCgroup)
	}
	if err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("%s is not in a cgroup v2 hierarchy", path)
	}
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return 0, fmt.Errorf("%s: %w", path, ErrNoCgroup)
	}
	if err != nil {
		return 0, &os.PathError{Op: "name_to_handle_at", Path: path, Err: err}
	}
	if handle.Size() != 8 {
		return 0, fmt.Errorf("the kernel's handle of %s has %d bytes, not the 8 of a cgroup", path, handle.Size())
	}
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err == nil && info.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, fmt.Errorf("%s is a file in a cgroup, not a cgroup", path)
	}
	return binary.NativeEndian.Uint64(handle.Bytes()), nil
}

// CgroupElsewhere reports whether the cgroup at path, with those below it, has processes and all of
// them are in other network namespaces than the calling one. It may miss processes that start or
// end meanwhile. procDir is the mount point of proc.
func CgroupElsewhere(procDir, path string) bool {
	here, err := os.Readlink(filepath.Join(procDir, "self/ns/net"))
	if err != nil {
		return false
	}
	elsewhere, inside := false, false
	eachProcess(path, func(pid string) bool {
		switch netns, err := os.Readlink(filepath.Join(procDir, pid, "ns/net")); {
		case err != nil: // it ended
		case netns == here:
			inside = true
		default:
			elsewhere = true
		}
		return !inside
	})
	return elsewhere && !inside
}

// HasPacketSockets reports whether a process of the cgroup at path, or of one below it, has a packet
// or XDP socket. It may miss processes that start or end meanwhile. procDir is the mount point of
// proc.
func HasPacketSockets(procDir, path string) (found bool) {
	eachProcess(path, func(pid string) bool {
		directory := filepath.Join(procDir, pid, "fd")
		files, _ := os.ReadDir(directory)
		for _, file := range files {
			link := filepath.Join(directory, file.Name())
			if to, err := os.Readlink(link); err != nil || !strings.HasPrefix(to, "socket:") {
				continue
			}
			// From sockfs_xattr_get (net/socket.c), with a zero at the end.
			name := make([]byte, 16)
			n, err := unix.Getxattr(link, "system.sockprotoname", name)
			if err != nil {
				continue // it is closed
			}
			protocol := strings.TrimRight(string(name[:n]), "\x00")
			found = found || protocol == "PACKET" || protocol == "XDP"
		}
		return !found
	})
	return found
}

// eachProcess calls fn with the number of each process of the cgroup at path and those below it,
// until fn returns false.
func eachProcess(path string, fn func(pid string) bool) {
	_ = filepath.WalkDir(path, func(below string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // it is gone
		}
		processes, _ := os.ReadFile(filepath.Join(below, "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(processes)) {
			if !fn(pid) {
				return fs.SkipAll
			}
		}
		return nil
	})
}
