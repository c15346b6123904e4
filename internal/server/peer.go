package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Who asks? The kernel says so of each connection to a Unix socket
// (SO_PEERCRED, unix(7)): the user that connected.

// errNotRoot is a request that not everybody may make who may use the socket.
var errNotRoot = errors.New("not allowed to take Weir down: only root may; members of socket_group may look and change policies")

type peerKey struct{}

// withPeer keeps who connected, for http.Server.ConnContext.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if uid, err := peerUID(conn); err == nil {
		ctx = context.WithValue(ctx, peerKey{}, uid)
	}
	return ctx
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

// mayTakeDown says whether whoever made a request may take Weir down: root, or
// the user that the agent runs as. Members of the socket's group may not: that
// would take every guarantee and limit of the host away.
func mayTakeDown(ctx context.Context) error {
	uid, known := ctx.Value(peerKey{}).(uint32)
	if known && (uid == 0 || int(uid) == os.Geteuid()) {
		return nil
	}
	return errNotRoot
}
