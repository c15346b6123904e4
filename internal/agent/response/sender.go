package response

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/cgroup"
)

// Response times decide how many instances run. The socket is open to every process of the network
// namespace, so lines count only from root's processes in the containers of proxies. The kernel drops
// those of other users (identity.AdmitRoot); root's own are named if they are many.

// Proxy is the container of a proxy: its ID in its engine, and the directory of its cgroup, which may
// be unknown.
type Proxy struct{ ID, CgroupPath string }

// senders tells proxies from other processes.
type senders struct {
	procDir string
	proxies func(context.Context) ([]Proxy, error)
	mount   *cgroup.Mount // nil: not found yet
	// known are verdicts by PID, listed the proxies, until forget; nil: not asked.
	known  map[int32]bool
	listed []Proxy
	// strangers are the lines of processes that are no proxies, by PID, until forget.
	strangers map[int32]int
}

// forget drops all verdicts: a PID may go to another process, and a container become known.
func (s *senders) forget() { s.known, s.strangers = nil, nil }

// flood names the stranger with the most lines if strangers have half of them; nil: they have not.
func (s *senders) flood(lines int, socket string) error {
	all, most := 0, int32(0)
	for pid, n := range s.strangers {
		if all += n; n > s.strangers[most] {
			most = pid
		}
	}
	if 2*all < lines {
		return nil
	}
	return fmt.Errorf("%s floods the socket @%s: end it", process(s.procDir, fmt.Sprint(most)), socket)
}

// isProxy reports whether a proxy sent a line.
func (s *senders) isProxy(ctx context.Context, sender unix.Ucred) bool {
	is := s.isKnown(ctx, sender)
	if !is {
		if s.strangers == nil {
			s.strangers = map[int32]int{}
		}
		s.strangers[sender.Pid]++
	}
	return is
}

func (s *senders) isKnown(ctx context.Context, sender unix.Ucred) bool {
	if sender.Uid != 0 || sender.Pid <= 0 {
		return false
	}
	if s.known == nil {
		listed, err := s.proxies(ctx)
		if err != nil {
			return false
		}
		s.known, s.listed = map[int32]bool{}, listed
	}
	is, known := s.known[sender.Pid]
	if !known {
		is = len(s.listed) > 0 && s.judge(fmt.Sprint(sender.Pid))
		s.known[sender.Pid] = is
	}
	return is
}

// engineID is a container's ID in its engine, after which it names cgroups of either version. The
// first one in the path of a cgroup is that of the outermost container.
var engineID = regexp.MustCompile("[0-9a-f]{64}")

// judge reports whether a process is in the cgroup of a proxy.
func (s *senders) judge(pid string) bool {
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
	path, id := s.mount.OfProcess(string(text))+"/", engineID.FindString(string(text))
	return slices.ContainsFunc(s.listed, func(p Proxy) bool {
		if p.CgroupPath != "" {
			return strings.HasPrefix(path, p.CgroupPath+"/")
		}
		return id != "" && p.ID == id
	})
}

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
				return process(procDir, filepath.Base(filepath.Dir(filepath.Dir(path))))
			}
		}
	}
	return "another process"
}

// process names a process and its program.
func process(procDir, pid string) string {
	name, _ := os.ReadFile(filepath.Join(procDir, pid, "comm"))
	return fmt.Sprintf("process %s (%q)", pid, strings.TrimSpace(string(name)))
}
