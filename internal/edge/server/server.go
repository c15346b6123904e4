// Package server is weir-edge's API: HTTP with JSON on a Unix socket, by the rules of
// the agent's. What there is stands in routes. Everything that is not a success has a
// v1.Error as its body. Who may open the socket may do everything: that is root.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/edge/runtime"
)

const (
	requestTimeout = 30 * time.Second
	// deployTimeout bounds a deployment, which may have to fetch an image.
	deployTimeout = 30 * time.Minute
	headerTimeout = 5 * time.Second
	maxBodyBytes  = 256 << 10
)

// Manager is what the API shows; *run.Manager is it.
type Manager interface {
	Deploy(ctx context.Context, document []byte) (edge.Deployed, error)
	Remove(ctx context.Context, service string) error
	Instances() []edge.Instance
	Nodes() []edge.Node
	Services() []edge.Service
	Explain(service string) (edge.Explanation, error)
	Events() *run.Events
}

type api struct {
	m   Manager
	log *slog.Logger
}

type route struct {
	method, path, summary string
	// request and response are of the types of the bodies; nil where there is none.
	request, response any
	timeout           time.Duration
	handle            func(*http.Request) (any, error)
	stream            http.HandlerFunc
}

func (a *api) routes() []route {
	return []route{
		{
			method: "GET", path: "/v1/instances", summary: "The instances of all services", response: []edge.Instance{},
			handle: func(*http.Request) (any, error) { return a.m.Instances(), nil },
		},
		{
			method: "GET", path: "/v1/nodes", summary: "All nodes and what they have left", response: []edge.Node{},
			handle: func(*http.Request) (any, error) { return a.m.Nodes(), nil },
		},
		{
			method: "GET", path: "/v1/services", summary: "All services and what their users see of them", response: []edge.Service{},
			handle: func(*http.Request) (any, error) { return a.m.Services(), nil },
		},
		{
			method: "POST", path: "/v1/services", summary: "Deploy a service: its specification, or PiCasso's deployment descriptor",
			request: json.RawMessage{}, response: edge.Deployed{}, timeout: deployTimeout, handle: a.deploy,
		},
		{
			method: "DELETE", path: "/v1/services/{name}", summary: "Remove a service and all its instances", response: struct{}{},
			handle: func(r *http.Request) (any, error) { return struct{}{}, a.m.Remove(r.Context(), r.PathValue("name")) },
		},
		{
			method: "GET", path: "/v1/services/{name}/explain", summary: "Why a service has the instances that it has", response: edge.Explanation{},
			handle: func(r *http.Request) (any, error) { return a.m.Explain(r.PathValue("name")) },
		},
		{
			method: "GET", path: "/v1/events", summary: "What happened lately and what happens, one JSON object a line", response: edge.Event{},
			stream: a.events,
		},
	}
}

func (a *api) deploy(r *http.Request) (any, error) {
	document, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the specification: %w", err)
	}
	return a.m.Deploy(r.Context(), document)
}

// New returns a server of a manager's API.
func New(m Manager, log *slog.Logger) *http.Server {
	a := &api{m: m, log: log}
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		handle := r.stream
		if handle == nil {
			handle = a.answer(r)
		}
		mux.HandleFunc(r.method+" "+r.path, handle)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, http.StatusNotFound, fmt.Errorf("there is no %s %s", r.Method, r.URL.Path))
	})
	return &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
}

func (a *api) answer(route route) http.HandlerFunc {
	timeout := route.timeout
	if timeout == 0 {
		timeout = requestTimeout
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(requestTimeout))
		_ = control.SetWriteDeadline(time.Now().Add(timeout + requestTimeout))
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		body, err := route.handle(r.WithContext(ctx))
		if err != nil {
			a.log.Debug("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
			a.refuse(w, statusOf(err), err)
			return
		}
		a.write(w, http.StatusOK, "application/json", body)
	}
}

// refuse says what is wrong with a request, as problem details (RFC 9457).
func (a *api) refuse(w http.ResponseWriter, status int, err error) {
	a.write(w, status, "application/problem+json", v1.Error{
		Title: http.StatusText(status), Status: status, Detail: err.Error(), Message: err.Error(),
	})
}

func (a *api) write(w http.ResponseWriter, status int, kind string, body any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.log.Debug("answer a request", "error", err)
	}
}

func statusOf(err error) int {
	var wrong *run.SpecificationError
	switch {
	case errors.As(err, &wrong), errors.Is(err, runtime.ErrNoImage), errors.Is(err, runtime.ErrArchitecture):
		return http.StatusBadRequest
	case errors.Is(err, runtime.ErrUnknown), errors.Is(err, run.ErrUnknown):
		return http.StatusNotFound
	case errors.Is(err, runtime.ErrExists):
		return http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// events are a stream that goes on until the reader leaves; ?since=SEQ and
// ?follow=false as with the agent's.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	since, follow := uint64(0), true
	var err error
	if text := query.Get("since"); text != "" {
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			a.refuse(w, http.StatusBadRequest, fmt.Errorf("since=%q is not the number of an event", text))
			return
		}
	}
	if text := query.Get("follow"); text != "" {
		if follow, err = strconv.ParseBool(text); err != nil {
			a.refuse(w, http.StatusBadRequest, fmt.Errorf("follow=%q is neither true nor false", text))
			return
		}
	}
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	for {
		list, more := a.m.Events().Since(since)
		_ = control.SetWriteDeadline(time.Now().Add(requestTimeout))
		for _, event := range list {
			if encoder.Encode(event) != nil {
				return
			}
			since = event.Seq
		}
		if control.Flush() != nil || !follow && len(list) == 0 {
			return
		}
		if len(list) > 0 {
			continue
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}
