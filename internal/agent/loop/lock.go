package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/kernel"
)

// lockDir is where agents lock what must not have two of them. Only root can
// write there, whatever folder of state an agent has.
const lockDir = "/run/weir"

// errLocked: somebody else holds the lock.
var errLocked = errors.New("another weir agent is at work here: stop it first; one agent shares out several uplinks if its config file names them")

// agentLock makes sure that one agent works in a network namespace, as two would
// give the same containers different numbers, and one with a folder of state, as
// two would take what the other remembers there for their own. It goes with the
// process, and as its files are root's, nobody else can hold it.
type agentLock struct {
	netns, state *os.File
}

// lockAgent takes the locks of this network namespace, in dir, and of a folder of
// state. Agents that see different folders dir do not see each other's of the
// namespace. Errors: errLocked.
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

// Close lets go of the locks.
func (l *agentLock) Close() error { return errors.Join(unlockFile(l.state), unlockFile(l.netns)) }

// lockNetNS takes the lock of this network namespace. Errors: errLocked.
func lockNetNS(dir string) (*os.File, error) {
	netns, err := kernel.NetNSIdentity("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("find this network namespace: %w", err)
	}
	file, err := lockFile(filepath.Join(dir, fmt.Sprintf("netns-%d.lock", netns.Inode)))
	if err == nil {
		removeStaleLocks(dir)
	}
	return file, err
}

// removeStaleLocks removes the locks of namespaces that nobody holds: an agent that
// was killed leaves its own, and its namespace may never come back. One that is held
// stays, and what cannot be removed harms nobody.
func removeStaleLocks(dir string) {
	paths, _ := filepath.Glob(filepath.Join(dir, "netns-*.lock"))
	for _, path := range paths {
		if file, err := lockFile(path); err == nil {
			_ = unlockFile(file)
		}
	}
}

// lockFile makes a file, and its folder, that one process at a time has. Errors:
// errLocked.
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
		file.Close() // who had it before removed it meanwhile
	}
}

// unlockFile is the reverse of lockFile. The file is removed while it is held, so
// that nobody's new lock is.
func unlockFile(file *os.File) error { return errors.Join(os.Remove(file.Name()), file.Close()) }

// isFile says whether path still leads to an open file.
func isFile(path string, file *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && os.SameFile(there, opened)
}
