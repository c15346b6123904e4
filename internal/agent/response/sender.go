package response

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/cgroup"
)

// Response times decide how many instances run. The socket is open to every process of the network
// namespace, containers in the host's network included, whose root may be the host's. So lines count
// only from processes of root that are in a container of a proxy, or in none.

// Container is a container that may send lines: its ID in its engine, the directory of its cgroup,
// which may be unknown, and whether it is a proxy of weir-edge.
type Container struct {
	ID, CgroupPath string
	EdgeProxy      bool
}

// senders tells proxies from other processes.
type senders struct {
	procDir    string
	containers func(context.Context) ([]Container, error)
	mount      *cgroup.Mount // nil: not found yet
	// known are verdicts by PID, until forget.
	known map[int32]bool
}

// forget drops all verdicts: a PID may go to another process, and a container become known.
func (s *senders) forget() { clear(s.known) }

// isProxy reports whether the sender of a line may be a proxy.
func (s *senders) isProxy(ctx context.Context, sender unix.Ucred) bool {
	if sender.Uid != 0 || sender.Pid <= 0 {
		return false
	}
	is, known := s.known[sender.Pid]
	if !known {
		is = s.judge(ctx, fmt.Sprint(sender.Pid))
		if s.known == nil {
			s.known = map[int32]bool{}
		}
		s.known[sender.Pid] = is
	}
	return is
}

// judge looks up the container of a process. One in no container that the agent knows has to be in
// the agent's PID namespace: containers that it does not know are not.
func (s *senders) judge(ctx context.Context, pid string) bool {
	containers, err := s.containers(ctx)
	if err != nil {
		return false
	}
	text, err := os.ReadFile(filepath.Join(s.procDir, pid, "cgroup"))
	if err != nil { // it has ended
		return false
	}
	if s.mount == nil {
		mount, err := cgroup.FindMount(s.procDir)
		if err != nil {
			return false
		}
		s.mount = &mount
	}
	path := s.mount.OfProcess(string(text)) + "/"
	for _, c := range containers {
		if c.CgroupPath != "" && strings.HasPrefix(path, c.CgroupPath+"/") || len(c.ID) == idLength && strings.Contains(string(text), c.ID) {
			return c.EdgeProxy
		}
	}
	theirs, err := os.Readlink(filepath.Join(s.procDir, pid, "ns", "pid"))
	if err != nil {
		return false
	}
	ours, err := os.Readlink(filepath.Join(s.procDir, "self", "ns", "pid"))
	return err == nil && theirs == ours
}

// idLength is that of an engine's IDs, after which it names cgroups of either version.
const idLength = 64

// holder names the process that has a Unix socket of that address, "@" standing for zeros.
func holder(procDir, address string) string {
	address = strings.ReplaceAll(address, "\x00", "@")
	sockets, _ := os.ReadFile(filepath.Join(procDir, "self", "net", "unix"))
	for line := range strings.Lines(string(sockets)) {
		f := strings.Fields(line)
		if len(f) != 8 || f[7] != address {
			continue
		}
		// Those of processes that end meanwhile are not found.
		open, _ := filepath.Glob(filepath.Join(procDir, "[0-9]*", "fd", "*"))
		for _, path := range open {
			if target, _ := os.Readlink(path); target == "socket:["+f[6]+"]" {
				process := filepath.Dir(filepath.Dir(path))
				name, _ := os.ReadFile(filepath.Join(process, "comm"))
				return fmt.Sprintf("process %s (%q)", filepath.Base(process), strings.TrimSpace(string(name)))
			}
		}
	}
	return "another process"
}
