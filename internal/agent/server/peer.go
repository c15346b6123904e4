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

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
)

// The kernel identifies the caller of each connection to a Unix socket (SO_PEERCRED, unix(7)):
// the user and the process that connected.

// The rate limit of users other than root: much more than any tool needs, and little enough to
// leave the processor to the control loop.
const (
	userPerSecond = 100
	userBurst     = 200
)

// socketBudget limits the connections of the socket. Root has its own, so other users can use up
// neither what root needs nor the file descriptors that the agent needs for containers.
var socketBudget = access.Budget{
	Strangers: 256, Roles: map[access.Role]int{access.Read: 192, access.Admin: 192, access.Root: 128}, Caller: 64,
}

// Socket returns a server for the Unix socket. Root and the user of the agent may do everything;
// other users that may open the socket have the role group.
func (a *API) Socket(group access.Role) *http.Server {
	limits, places := access.NewLimits(userPerSecond, userBurst), access.NewPlaces(socketBudget)
	s := httpapi.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := access.CallerFrom(r.Context())
		if !places.Admit(r.Context(), caller) {
			a.answers.NoPlace(w, r, caller)
			return
		}
		if caller.Role < access.Root && !limits.Allow(caller.Name, time.Now()) {
			a.answers.TooMany(w, r)
			return
		}
		a.ServeHTTP(w, r)
	}), a.log)
	ask := func(conn net.Conn) access.Caller {
		peer, err := peerOf(conn)
		switch {
		case err != nil:
			return access.Caller{}
		case peer.Uid == 0 || int(peer.Uid) == os.Geteuid():
			return access.Caller{Name: "root", Role: access.Root}
		}
		return access.Caller{Name: fmt.Sprintf("uid %d", peer.Uid), Role: group}
	}
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return withConn(access.WithCaller(ctx, ask(conn)), conn)
	}
	places.Watch(s, func(conn net.Conn) string { return ask(conn).Name })
	return s
}

// Remote returns a server for other hosts, for listeners of httpapi.ListenTLS.
func (a *API) Remote(tokens *access.Tokens, certificates *access.Certificates) *http.Server {
	return httpapi.NewRemote(a, &a.answers, tokens, certificates)
}

func peerOf(conn net.Conn) (peer unix.Ucred, err error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return peer, fmt.Errorf("%T is not a Unix socket", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return peer, err
	}
	var found *unix.Ucred
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		found, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, sockErr); err != nil {
		return peer, err
	}
	return *found, nil
}
