// Package server is the agent's API: HTTP with JSON on a Unix socket.
//
//	GET    /v1/snapshot                  v1.Snapshot, both of the next two
//	GET    /v1/status                    v1.Status
//	GET    /v1/containers                []v1.Container
//	GET    /v1/containers/{name}/explain v1.Explanation
//	GET    /v1/events                    v1.Event, one a line (events.go)
//	PATCH  /v1/containers/{name}/policy  v1.PolicyChange -> v1.Container
//	DELETE /v1/containers/{name}/policy  v1.Container
//	POST   /v1/reload
//	POST   /v1/down
//
// A container is named by name, ID, the start of its ID, or the service or pod
// that it is of. Everything that is not a success has a v1.Error as its body.
//
// Who may open the socket may look and change policies; only root may take Weir
// down (peer.go).
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent"
	"github.com/weir-project/weir/internal/explain"
	"github.com/weir-project/weir/internal/stats"
)

// Agent is what the API shows to the outside; *agent.Agent is it.
type Agent interface {
	Snapshot(context.Context) (v1.Snapshot, error)
	Events() *stats.Events
	Set(ctx context.Context, name string, change v1.PolicyChange) (v1.Container, error)
	Reset(ctx context.Context, name string) (v1.Container, error)
	Reload(context.Context) error
	Down(context.Context) error
}

const (
	// requestTimeout bounds how long a request waits for the agent.
	requestTimeout = 10 * time.Second
	// headerTimeout bounds how long a request may take to arrive.
	headerTimeout = 5 * time.Second
	// maxBodyBytes bounds what a request may send.
	maxBodyBytes = 64 << 10
	// idleTimeout bounds how long a connection stays open that nobody uses.
	idleTimeout = time.Minute
	// maxConnections bounds how many are open at once, so that those who may look
	// cannot take the files that the agent needs for containers.
	maxConnections = 256
)

// New returns a server of an agent's API.
func New(a Agent, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler(a, log), ConnContext: withPeer, ConnState: limitConnections(),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
	}
}

// limitConnections closes what is one connection too many at once.
func limitConnections() func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(conn net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if open.Add(1) > maxConnections {
				conn.Close()
			}
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
}

func handler(a Agent, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/snapshot", answer(log, func(r *http.Request) (any, error) {
		return a.Snapshot(r.Context())
	}))
	mux.HandleFunc("GET /v1/status", answer(log, func(r *http.Request) (any, error) {
		seen, err := a.Snapshot(r.Context())
		return seen.Status, err
	}))
	mux.HandleFunc("GET /v1/containers", answer(log, func(r *http.Request) (any, error) {
		seen, err := a.Snapshot(r.Context())
		return seen.Containers, err
	}))
	mux.HandleFunc("GET /v1/containers/{name}/explain", answer(log, func(r *http.Request) (any, error) {
		seen, err := a.Snapshot(r.Context())
		if err != nil {
			return nil, err
		}
		index, err := find(seen.Containers, r.PathValue("name"))
		if err != nil {
			return nil, err
		}
		return explain.Container(seen, index), nil
	}))
	mux.HandleFunc("GET /v1/events", serveEvents(a, log))
	mux.HandleFunc("PATCH /v1/containers/{name}/policy", answer(log, func(r *http.Request) (any, error) {
		var change v1.PolicyChange
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&change); err != nil {
			return nil, &badRequestError{fmt.Errorf("read the policy: %w", err)}
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return nil, &badRequestError{errors.New("read the policy: something follows it")}
		}
		return a.Set(r.Context(), r.PathValue("name"), change)
	}))
	mux.HandleFunc("DELETE /v1/containers/{name}/policy", answer(log, func(r *http.Request) (any, error) {
		return a.Reset(r.Context(), r.PathValue("name"))
	}))
	mux.HandleFunc("POST /v1/reload", answer(log, func(r *http.Request) (any, error) {
		return struct{}{}, a.Reload(r.Context())
	}))
	mux.HandleFunc("POST /v1/down", answer(log, func(r *http.Request) (any, error) {
		if err := mayTakeDown(r.Context()); err != nil {
			return nil, err
		}
		return struct{}{}, a.Down(r.Context())
	}))
	mux.HandleFunc("/", answer(log, func(r *http.Request) (any, error) {
		return nil, &notFoundError{fmt.Errorf("there is no %s %s", r.Method, r.URL.Path)}
	}))
	return mux
}

type badRequestError struct{ error }

type notFoundError struct{ error }

// answer turns a function into a handler that speaks JSON.
func answer(log *slog.Logger, fn func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		body, err := fn(r)
		status := http.StatusOK
		if err != nil {
			status = statusOf(err)
			body = v1.Error{Message: err.Error()}
			log.Debug("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(body); err != nil {
			log.Debug("answer a request", "path", r.URL.Path, "error", err)
		}
	}
}

func statusOf(err error) int {
	var (
		bad     *badRequestError
		missing *notFoundError
	)
	switch {
	case errors.As(err, &bad):
		return http.StatusBadRequest
	case errors.Is(err, errNotRoot):
		return http.StatusForbidden
	case errors.Is(err, agent.ErrUnknown), errors.As(err, &missing):
		return http.StatusNotFound
	case errors.Is(err, agent.ErrRefused), errors.Is(err, agent.ErrAmbiguous):
		return http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// Listen opens the socket at path for root, and for group if that is not
// empty. A socket that a dead agent left is replaced. Errors: another agent
// answers there.
func Listen(path, group string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open the agent's socket: %w", err)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another weir agent listens on %s: stop it, or give this one another --socket", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("open the agent's socket: %s is there and is not a socket: move it away, or give another --socket", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the agent's socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the agent's socket: %w", err)
	}
	if err := permit(path, group); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

func permit(path, group string) error {
	if group == "" {
		if err := os.Chmod(path, 0o600); err != nil {
			return fmt.Errorf("restrict the agent's socket: %w", err)
		}
		return nil
	}
	gid, err := groupID(group)
	if err != nil {
		return fmt.Errorf("let group %s use the agent's socket: %w", group, err)
	}
	if err := errors.Join(os.Chown(path, -1, gid), os.Chmod(path, 0o660)); err != nil {
		return fmt.Errorf("let group %s use the agent's socket: %w", group, err)
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
