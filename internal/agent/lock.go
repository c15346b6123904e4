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

// netnsLock makes sure that one agent works in a network namespace: two would
// give the same containers different numbers. It goes with the process, and as
// its file is root's, nobody else can hold it.
type netnsLock struct {
	file *os.File
}

// lockNetNS takes the lock of this network namespace. Agents that see different
// folders /run do not see each other's. Errors: errLocked.
func lockNetNS(dir string) (*netnsLock, error) {
	netns, err := kernel.NetNSIdentity("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("find this network namespace: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the agent's lock: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("netns-%d.lock", netns.Inode))
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
			return &netnsLock{file}, nil
		}
		file.Close() // who had it before removed it meanwhile
	}
}

// isFile says whether path still leads to an open file.
func isFile(path string, file *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && os.SameFile(there, opened)
}

// Close lets go of the lock.
func (l *netnsLock) Close() error {
	// Removed while it is held, so that nobody's new lock is.
	return errors.Join(os.Remove(l.file.Name()), l.file.Close())
}
