package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/access"
)

// Who asks? The kernel says so of each connection to a Unix socket
// (SO_PEERCRED, unix(7)): the user that connected.

// How often a user other than root may ask: much more than any tool does, and little
// enough to leave the processor to the control loop.
const (
	userPerSecond = 100
	userBurst     = 200
)

// Socket returns a server for the Unix socket. Root, and the user that the agent runs
// as, may do everything; whoever else may open the socket has the role of the group.
func (a *API) Socket(group access.Role) *http.Server {
	limits := access.NewLimits(userPerSecond, userBurst)
	s := a.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := access.Of(r.Context())
		if caller.Role < access.Root && !limits.Allow(caller.Name, time.Now()) {
			a.tooMany(w, r)
			return
		}
		a.ServeHTTP(w, r)
	}))
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		uid, err := peerUID(conn)
		switch {
		case err != nil:
			return ctx
		case uid == 0 || int(uid) == os.Geteuid():
			return access.With(ctx, access.Caller{Name: "root", Role: access.Root})
		}
		return access.With(ctx, access.Caller{Name: fmt.Sprintf("uid %d", uid), Role: group})
	}
	return s
}

func peerUID(conn net.Conn) (uint32, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%T is not a Unix socket", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		peer, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, sockErr); err != nil {
		return 0, err
	}
	return peer.Uid, nil
}
