package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
)

// # Who takes the agent down
//
// `docker exec weir weir down` asks an agent that is the first process of its container, and
// with which the container ends. Docker waits for ever for a command in a container that
// ended before it. So the agent outlasts the program that took it down.

const (
	// outlastAtMost is for how long: what asks may have more to do than `weir down`, which
	// ends when it has its answer.
	outlastAtMost = 3 * time.Second
	// endSeen is after how long whoever started a program has seen that it has ended.
	endSeen = 100 * time.Millisecond
)

type connKey struct{}

// withConn keeps the connection that a request comes by.
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

// processOf is a descriptor of the process at the other end of a Unix socket
// (pidfd_open(2)). One of another process namespace cannot be seen.
func processOf(conn net.Conn) (pidfd int, err error) {
	peer, err := peerOf(conn)
	if err != nil {
		return -1, err
	}
	return unix.PidfdOpen(int(peer.Pid), 0)
}

// Outlast returns when the program has ended that took the agent down over the socket, and
// whoever started it knows. Of others it knows nothing, and returns at once.
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
		// Readable is: it has ended.
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
