package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/exposition"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"

	"github.com/weir-project/weir/api/v1/transport"
)

// Handler serves /v1/sdn, /v1/sdn/flows, /v1/sdn/topology.svg (for a page) and /metrics.
// queues returns the states of queues and may be nil.
func (c *Controller) Handler(queues func() map[topology.Port]qos.PortState) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sdn", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.view(queues)) })
	mux.HandleFunc("GET /v1/sdn/flows", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.Flows()) })
	mux.HandleFunc("GET /v1/sdn/topology.svg", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		_ = DrawTopology(w, c.view(queues), false) // a write error means that the reader is gone
	})
	mux.Handle("GET /metrics", c.Metrics(queues))
	return mux
}

// Metrics serves /metrics only, for listeners that must not reveal flows and hosts.
func (c *Controller) Metrics(queues func() map[topology.Port]qos.PortState) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", exposition.ContentType)
		_ = writeMetrics(w, c.view(queues)) // a write error means that the reader is gone
	})
	return mux
}

func (c *Controller) view(queues func() map[topology.Port]qos.PortState) v1.SDN {
	if queues == nil {
		return c.View(nil)
	}
	return c.View(queues())
}

func writeJSON(w http.ResponseWriter, v any) {
	_ = httpapi.WriteJSON(w, http.StatusOK, "application/json", v) // an error means that the reader is gone
}

// ServeHTTP runs a server on a listener until ctx ends.
func ServeHTTP(ctx context.Context, l net.Listener, s *http.Server) error {
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the controller's state: %w", err)
	}
	return nil
}

// Client is a client of a running controller's API.
type Client struct{ peer *transport.Peer }

// NewClient returns a client of the controller at a socket.
func NewClient(socket string) *Client {
	return &Client{transport.Local("the controller", socket, "weir sdn run", errNotRunning)}
}

var errNotRunning = errors.New("no controller is running")

// answerTimeout limits a request to the controller.
const answerTimeout = 10 * time.Second

// Status returns the controller's switches, links and counters.
func (c *Client) Status(ctx context.Context) (v1.SDN, error) { return get[v1.SDN](ctx, c, "/v1/sdn") }

// Flows returns the flows that the controller knows.
func (c *Client) Flows(ctx context.Context) ([]v1.SDNFlow, error) {
	return get[[]v1.SDNFlow](ctx, c, "/v1/sdn/flows")
}

func get[T any](ctx context.Context, c *Client, path string) (v T, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return v, c.peer.Call(ctx, http.MethodGet, path, nil, &v)
}
