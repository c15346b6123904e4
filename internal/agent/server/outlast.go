package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
)

// # The agent outlasts weir down
//
// `docker exec weir weir down` takes down an agent that is the first process of its container,
// and the container ends with it. Docker waits for ever for a command in a container that ended
// before the command. So the agent waits for the end of the program that took it down.

const (
	// outlastAtMost bounds the wait, because a program may do more than `weir down`, which ends
	// with its response.
	outlastAtMost = 3 * time.Second
	// endSeen is the time that the parent of a program may need to notice its end.
	endSeen = 100 * time.Millisecond
)

type connKey struct{}

// withConn returns a context that holds the connection of a request.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// down takes the agent down.
func (a *API) down(r *http.Request) (any, error) {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	if fd, err := processOf(conn); err == nil {
		if before := a.takenDownBy.Swap(&fd); before != nil {
			_ = unix.Close(*before)
		}
	}
	return struct{}{}, a.agent.Down(r.Context())
}

// processOf returns a descriptor of the process at the other end of a Unix socket
// (pidfd_open(2)). A process of another process namespace cannot be seen.
func processOf(conn net.Conn) (pidfd int, err error) {
	peer, err := peerOf(conn)
	if err != nil {
		return -1, err
	}
	return unix.PidfdOpen(int(peer.Pid), 0)
}

// Outlast waits until the program that took the agent down over the socket has ended and its
// parent has noticed. Without such a program it returns at once.
func (a *API) Outlast() {
	fd := a.takenDownBy.Swap(nil)
	if fd == nil {
		return
	}
	defer unix.Close(*fd)
	for deadline := time.Now().Add(outlastAtMost); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return
		}
		// A pidfd becomes readable when its process exits.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(*fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		switch {
		case n > 0:
			time.Sleep(endSeen)
			return
		case err != nil && !errors.Is(err, unix.EINTR):
			return
		}
	}
}
