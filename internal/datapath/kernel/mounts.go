package kernel

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// networkFilesystems are the filesystem types whose data the kernel sends itself, from sockets of the
// host, whichever container writes.
var networkFilesystems = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "lustre"}

// NetworkMounts lists the writable mounts of network filesystems in the file at path, such as
// /proc/PID/mountinfo: the directory and, in brackets, the type. A block device such as iSCSI's has any
// type and is not among them.
func NetworkMounts(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var mounts []string
	for line := range strings.Lines(string(text)) {
		// Behind a variable number of fields: " - TYPE SOURCE OPTIONS" (proc_pid_mountinfo(5)).
		before, after, found := strings.Cut(line, " - ")
		fields, filesystem := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 6 || len(filesystem) == 0 || !slices.Contains(networkFilesystems, filesystem[0]) {
			continue
		}
		if readOnly := slices.Contains(strings.Split(fields[5], ","), "ro"); !readOnly {
			mounts = append(mounts, fmt.Sprintf("%s (%s)", fields[4], filesystem[0]))
		}
	}
	return mounts, nil
}
