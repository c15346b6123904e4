package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// networkFilesystems are the filesystem types whose data the kernel sends itself, from sockets of the
// host, whichever container writes.
var networkFilesystems = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "lustre"}

// networkMounts returns an error that names the mounts of network filesystems in the file at path,
// such as /proc/1/mountinfo (in a container the agent's own are others); nil if there are none.
func networkMounts(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var mounts []string
	for line := range strings.Lines(string(text)) {
		// Behind a variable number of fields: " - TYPE SOURCE OPTIONS" (proc_pid_mountinfo(5)).
		before, after, found := strings.Cut(line, " - ")
		fields, filesystem := strings.Fields(before), strings.Fields(after)
		if found && len(fields) >= 5 && len(filesystem) > 0 && slices.Contains(networkFilesystems, filesystem[0]) {
			mounts = append(mounts, fmt.Sprintf("%s (%s)", fields[4], filesystem[0]))
		}
	}
	if len(mounts) == 0 {
		return nil
	}
	return errors.New(strings.Join(mounts, ", "))
}
