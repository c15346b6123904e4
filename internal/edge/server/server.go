// Package server is weir-edge's API: HTTP with JSON on a Unix socket, by the rules of
// the agent's. What there is stands in routes.go, and for others in openapi.json, which is
// made from it and served at /v1/openapi.json. Everything that is not a success has a
// v1.Error as its body. Who may open the socket may do everything: that is root.
package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/front/events"
	"github.com/weir-project/weir/internal/front/httpapi"
)

const (
	requestTimeout = 30 * time.Second
	// deployTimeout bounds a deployment, which may have to fetch an image.
	deployTimeout = 30 * time.Minute
	// maxBodyBytes exceeds the largest specification, so that its parser reports the excess.
	maxBodyBytes = 2 * spec.MaxBytes
	// maxUploadBytes bounds an image that is pushed.
	maxUploadBytes = 64 << 30
)

// Manager is what the API shows and changes; *run.Manager is one.
type Manager interface {
	Deploy(ctx context.Context, document []byte) (edge.Deployed, error)
	Remove(ctx context.Context, service string) error
	Snapshot() edge.Snapshot
	Monitored() edge.Monitored
	Explain(service string) (edge.Explanation, error)
	Events() *run.Events
}

// Options are what the API needs.
type Options struct {
	Manager Manager
	// Repository has services that may be deployed; Address is where nodes reach it,
	// empty where they do not.
	Repository *repo.Repository
	Address    string
	// ReadOnly: nothing is put into the repository, or taken out of it.
	ReadOnly bool
	Version  string
	// EngineSocket and StateDir are absolute paths; Cluster takes the place of the socket.
	EngineSocket, Cluster, StateDir string
	// Stop ends weir-edge, when the answer has been given.
	Stop func()
	Log  *slog.Logger
}

type api struct {
	Options
	answers httpapi.Answers
	mux     *http.ServeMux

	mu sync.Mutex
	// deploying counts the deployments in progress by image digest.
	deploying map[string]int
}

// Handler returns the API.
func Handler(o Options) http.Handler { return newAPI(o, requestTimeout) }

func newAPI(o Options, timeout time.Duration) http.Handler {
	answers := httpapi.Answers{Log: o.Log, Status: statusOf, Timeout: timeout}
	a := &api{Options: o, answers: answers, mux: http.NewServeMux(), deploying: map[string]int{}}
	for _, r := range a.routes() {
		handle := r.stream
		if handle == nil {
			handle = a.answer(r)
		}
		a.mux.HandleFunc(r.method+" "+r.path, handle)
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.answers.Refuse(w, r, http.StatusNotFound, fmt.Errorf("there is no %s %s", r.Method, r.URL.Path))
	})
	return a.mux
}

func (a *api) answer(route route) http.HandlerFunc {
	most := int64(maxBodyBytes)
	if route.upload {
		most = maxUploadBytes
	}
	return a.answers.Serve(cmp.Or(route.timeout, a.answers.Timeout), most, func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return route.handle(r)
	})
}

func statusOf(err error) int {
	var (
		wrong *run.SpecificationError
		bad   *repo.BadImageError
		large *http.MaxBytesError
	)
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, &wrong), errors.As(err, &bad), errors.Is(err, errBadPush), errors.Is(err, runtime.ErrNoImage), errors.Is(err, runtime.ErrArchitecture), errors.Is(err, runtime.ErrMissing):
		return http.StatusBadRequest
	case errors.Is(err, runtime.ErrUnknown), errors.Is(err, run.ErrUnknown), errors.Is(err, repo.ErrUnknown):
		return http.StatusNotFound
	case errors.Is(err, runtime.ErrExists), errors.Is(err, runtime.ErrChanged), errors.Is(err, errInUse), errors.Is(err, errNoAddress), errors.Is(err, errReadOnly):
		return http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// events streams events until the reader leaves; ?since=SEQ and ?follow=false as with the agent's.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	query, err := events.ParseQuery(r)
	if err != nil {
		a.answers.Refuse(w, r, http.StatusBadRequest, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	if err := events.Stream(w, r, a.Manager.Events().Ring, query, lineEvents{json.NewEncoder(w)}); err != nil {
		a.Log.Debug("cannot send events", "error", err)
	}
}

// lineEvents writes a JSON object for each event, one a line.
type lineEvents struct{ encoder *json.Encoder }

func (l lineEvents) Write(event edge.Event, _ uint64) error { return l.encoder.Encode(event) }

func (l lineEvents) Alive() error { return nil }
