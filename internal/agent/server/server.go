// Package server is the agent's API: HTTP with JSON. Its routes are in routes.go;
// openapi.json is made from them and served at /v1/openapi.json.
//
// A container is found by name, ID, the start of its ID, or its service or pod. The body of
// every response that is not a success is a v1.Error.
//
// Every request has a caller with a role (internal/front/access) before it reaches a route,
// and each route names the role that it needs. On the socket the kernel identifies the caller
// (peer.go); over the network, where the agent listens only if configured, a token or a
// certificate does (remote.go). Requests read the agent's latest snapshot and never enter its
// control loop.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/pods"
	"github.com/weir-project/weir/internal/agent/loop"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/front/node"
)

// Agent is the agent behind the API: *loop.Agent.
type Agent interface {
	// Latest returns the latest snapshot.
	Latest(context.Context) (*stats.Snapshot, error)
	Events() *stats.Events
	History() *stats.History
	Set(ctx context.Context, name string, change v1.PolicyChange, conditions ...loop.Condition) (v1.Container, error)
	Reset(ctx context.Context, name string, conditions ...loop.Condition) (v1.Container, error)
	// Try returns the policy that Set would make.
	Try(ctx context.Context, name string, change v1.PolicyChange) (v1.Policy, error)
	// Reload reads the configuration file again and returns what changed.
	Reload(context.Context) (v1.Reloaded, error)
	// Flows returns the live flows of the containers whose class is auto, or of the container name;
	// at most so many of each.
	Flows(ctx context.Context, name string, most int) ([]v1.Flow, error)
	// Learn puts an event of a source outside of the agent into force, and returns the state of the
	// container of an Updated event.
	Learn(context.Context, discovery.Event) (v1.PodState, error)
	Down(context.Context) error
}

const (
	// requestTimeout bounds how long a request waits for the agent.
	requestTimeout = 10 * time.Second
	// maxBodyBytes bounds the body of a request.
	maxBodyBytes = 64 << 10
)

// API is an agent's API. As a handler it needs the caller in the context (access.WithCaller).
type API struct {
	// Responses returns the response times of services, or an error if they cannot be measured; nil
	// in tests.
	Responses func() ([]v1.ServiceResponse, error)

	agent   Agent
	log     *slog.Logger
	answers httpapi.Answers
	meter   *node.Meter
	// connections are those of containers, for the node.
	connections *connections
	mux         *http.ServeMux
	// takenDownBy is a descriptor of the process that asked for down.
	takenDownBy atomic.Pointer[int]
	// reportsPods has the runtimes of which a weir-k8s is connected.
	reportsPods sync.Map
	podsReader  pods.Reader
	// podsSilence is v1.PodsSilence, shorter in tests.
	podsSilence time.Duration
	// room is what weir-edge said last; roomSaid then has a value.
	room     atomic.Pointer[saidRoom]
	roomSaid chan struct{}
}

// New returns the API of an agent.
func New(a Agent, log *slog.Logger) *API { return newAPI(a, log, requestTimeout) }

func newAPI(agent Agent, log *slog.Logger, timeout time.Duration) *API {
	answers := httpapi.Answers{Log: log, Status: statusOf, Timeout: timeout}
	a := &API{agent: agent, log: log, answers: answers, meter: node.NewMeter(), connections: newConnections(), mux: http.NewServeMux(), podsSilence: v1.PodsSilence, roomSaid: make(chan struct{}, 1)}
	for _, r := range a.routes() {
		handle := r.stream
		switch {
		case r.handle != nil:
			handle = a.answer(r.handle)
		case r.tagged != nil:
			handle = a.answerTagged(r.tagged)
		}
		a.mux.HandleFunc(r.method+" "+r.path, a.authorize(r, handle))
	}
	a.mux.HandleFunc("/", a.answer(func(r *http.Request) (any, error) {
		return nil, &notFoundError{fmt.Errorf("there is no %s %s", r.Method, r.URL.Path)}
	}))
	return a
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// authorize refuses callers that lack the role of a route.
func (a *API) authorize(r route, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		caller := access.CallerFrom(request.Context())
		if caller.Role < r.role {
			a.bound(w)
			a.refuse(w, request, &forbiddenError{caller: caller, needs: r.role})
			return
		}
		if r.role > access.Read && !r.repeated {
			a.log.Info("asked for a change", "by", caller.Name, "method", request.Method, "path", request.URL.Path)
		}
		next(w, request)
	}
}

type badRequestError struct{ error }

func (e *badRequestError) Unwrap() error { return e.error }

// tooLargeError is a request whose body is larger than maxBodyBytes.
type tooLargeError struct{ error }

type notFoundError struct{ error }

// forbiddenError is a request whose caller lacks the role.
type forbiddenError struct {
	caller access.Caller
	needs  access.Role
}

func (e *forbiddenError) Error() string {
	switch {
	case e.needs == access.Root:
		return "not allowed: only root may do this (sudo)"
	case e.caller.Role == access.None:
		return "not allowed: the caller is unknown"
	}
	return fmt.Sprintf("not allowed: %s has no role for changes, which need the role %s (docs/api.md)", e.caller.Name, e.needs)
}

// answer returns a handler that answers with JSON.
func (a *API) answer(fn func(*http.Request) (any, error)) http.HandlerFunc {
	return a.answerTagged(func(_ http.ResponseWriter, r *http.Request) (any, error) { return fn(r) })
}

// answerTagged is answer for a function that sets headers.
func (a *API) answerTagged(fn func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return a.answers.Serve(a.answers.Timeout, maxBodyBytes, fn)
}

// refuse answers with an error.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	a.answers.Refuse(w, r, statusOf(err), err)
}

// bound sets the time in which a request has to be read and its response written.
func (a *API) bound(w http.ResponseWriter) { a.answers.Bound(w, a.answers.Timeout) }

func statusOf(err error) int {
	var (
		bad       *badRequestError
		large     *tooLargeError
		missing   *notFoundError
		forbidden *forbiddenError
	)
	switch {
	case errors.As(err, &bad):
		return http.StatusBadRequest
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, &forbidden):
		return http.StatusForbidden
	case errors.Is(err, loop.ErrUnknown), errors.As(err, &missing):
		return http.StatusNotFound
	case errors.Is(err, loop.ErrRefused), errors.Is(err, loop.ErrAmbiguous):
		return http.StatusConflict
	case errors.Is(err, errChanged):
		return http.StatusPreconditionFailed
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
