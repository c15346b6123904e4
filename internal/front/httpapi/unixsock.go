// Package httpapi opens the Unix socket on which a daemon serves its API.
package httpapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Listen opens the socket of owner (what users call the daemon) at path, for root, and
// for group if that is not empty. A socket that a dead daemon left is replaced. Errors:
// another one answers there, or what is there is no socket.
func Listen(owner, path, group string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, failed(owner, forRoot(err))
	}
	err := Free(path)
	switch {
	case errors.Is(err, ErrTaken):
		return nil, fmt.Errorf("another %s listens on %s: stop it, or give this one another --socket", owner, path)
	case errors.Is(err, fs.ErrPermission):
		return nil, failed(owner, forRoot(err))
	case err != nil:
		return nil, failed(owner, fmt.Errorf("%w: move it away, or give another --socket", err))
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, failed(owner, forRoot(err))
	}
	if err := permit(path, group); err != nil {
		listener.Close()
		return nil, failed(owner, err)
	}
	return listener, nil
}

// ErrTaken is a socket on which a program answers.
var ErrTaken = errors.New("another program listens there")

// Free removes a socket that a dead program left at path. Errors: [ErrTaken], what is there
// is no socket or may be a living program's, or it cannot be removed.
func Free(path string) error {
	conn, dialErr := net.DialTimeout("unix", path, time.Second)
	if dialErr == nil {
		conn.Close()
		return ErrTaken
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil: // Remove says what
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is not a socket", path)
	case !errors.Is(dialErr, syscall.ECONNREFUSED): // it is busy, not ours to use, or of datagrams
		return fmt.Errorf("a program may listen on %s (%w)", path, dialErr)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func failed(owner string, err error) error {
	return fmt.Errorf("open the socket of the %s: %w", owner, err)
}

// forRoot adds what to do to a permission error.
func forRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run as root (sudo), or give another --socket", err)
	}
	return err
}

func permit(path, group string) error {
	if group == "" {
		if err := os.Chmod(path, 0o600); err != nil {
			return fmt.Errorf("restrict the socket: %w", err)
		}
		return nil
	}
	gid, err := groupID(group)
	if err != nil {
		return fmt.Errorf("let group %s use the socket: %w", group, err)
	}
	if err := errors.Join(os.Chown(path, -1, gid), os.Chmod(path, 0o660)); err != nil {
		return fmt.Errorf("let group %s use the socket: %w", group, err)
	}
	return nil
}

// groupID is a group's number, by its name or the number itself, which need not
// have a name here.
func groupID(group string) (int, error) {
	g, err := user.LookupGroup(group)
	number := group
	if err == nil {
		number = g.Gid
	}
	gid, parseErr := strconv.ParseUint(number, 10, 31)
	if parseErr != nil {
		return 0, err
	}
	return int(gid), nil
}
