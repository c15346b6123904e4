package loop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// lockDir holds the locks of network namespaces. Only root can write there; state directories have
// locks of their own.
const lockDir = "/run/weir"

// errLocked: another process holds the lock.
var errLocked = errors.New("another weir agent is at work here: stop it first; one agent shares out several uplinks if its config file names them")

// agentLock ensures that one agent runs per network namespace and per state directory. Two agents
// would give the same containers different numbers, or overwrite each other's state. The lock ends
// with the process. Its files belong to root, so no other user can hold it.
type agentLock struct {
	netns, state *os.File
}

// lockAgent locks this network namespace, with a file in dir, and a state directory. Agents that
// see different directories at dir do not see each other's namespace lock. Errors: errLocked.
func lockAgent(dir, stateDir string) (*agentLock, error) {
	netns, err := lockNetNS(dir)
	if err != nil {
		return nil, err
	}
	state, err := lockFile(filepath.Join(stateDir, "state.lock"))
	if errors.Is(err, errLocked) {
		err = fmt.Errorf("another weir agent, in another network namespace, keeps its state in %s: give another --state-dir, one for each agent", stateDir)
	}
	if err != nil {
		return nil, errors.Join(err, unlockFile(netns))
	}
	return &agentLock{netns, state}, nil
}

// Close releases both locks.
func (l *agentLock) Close() error { return errors.Join(unlockFile(l.state), unlockFile(l.netns)) }

// lockNetNS locks this network namespace. Errors: errLocked.
func lockNetNS(dir string) (*os.File, error) {
	path, err := netNSLock(dir)
	if err != nil {
		return nil, err
	}
	file, err := lockFile(path)
	if err == nil {
		removeStaleLocks(dir)
	}
	return file, err
}

// netNSLock returns the path of this network namespace's lock.
func netNSLock(dir string) (string, error) {
	netns, err := kernel.NetNSIdentity("/proc/self/ns/net")
	if err != nil {
		return "", fmt.Errorf("find this network namespace: %w", err)
	}
	return filepath.Join(dir, fmt.Sprintf("netns-%d.lock", netns.Inode)), nil
}

// Running returns the process of the agent of this network namespace; 0 if none is known. It needs no
// privileges: the kernel lists locks for everyone.
func Running() int {
	path, err := netNSLock(lockDir)
	if err != nil {
		return 0
	}
	return holder(path)
}

// holder returns the process that holds a lock of lockFile; 0 for none.
func holder(path string) int {
	var file unix.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Stat(path, &file) != nil {
		return 0
	}
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(file.Dev), unix.Minor(file.Dev), file.Ino)
	for line := range strings.Lines(string(locks)) {
		if fields := strings.Fields(line); len(fields) > 5 && fields[1] == "FLOCK" && fields[5] == id {
			pid, _ := strconv.Atoi(fields[4])
			return pid
		}
	}
	return 0
}

// removeStaleLocks removes namespace locks that no process holds. An agent that was killed leaves
// its lock, and its namespace may never come back. A lock that cannot be removed does no harm.
func removeStaleLocks(dir string) {
	paths, _ := filepath.Glob(filepath.Join(dir, "netns-*.lock"))
	for _, path := range paths {
		if file, err := lockFile(path); err == nil {
			_ = unlockFile(file)
		}
	}
}

// lockFile creates a file, and its directory, and locks it for this process. Errors: errLocked.
func lockFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the agent's lock: %w", err)
	}
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the agent's lock: %w", err)
		}
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			file.Close()
			return nil, errLocked
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if isFile(path, file) {
			return file, nil
		}
		file.Close() // the previous holder removed it meanwhile
	}
}

// unlockFile releases a lock of lockFile. It removes the file while the lock is held, so that it
// never removes another process's new lock.
func unlockFile(file *os.File) error { return errors.Join(os.Remove(file.Name()), file.Close()) }

// isFile reports whether path still leads to the open file.
func isFile(path string, file *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && os.SameFile(there, opened)
}
