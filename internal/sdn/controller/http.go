package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Handler shows what the controller knows: /v1/sdn, /v1/sdn/flows and /metrics.
// queues tells of queues and may be nil.
func (c *Controller) Handler(queues func() map[topology.Port]qos.PortState) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sdn", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.view(queues)) })
	mux.HandleFunc("GET /v1/sdn/flows", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.Flows()) })
	mux.Handle("GET /metrics", c.Metrics(queues))
	return mux
}

// Metrics is for a network: it shows /metrics and nothing else, no flows and no
// stations.
func (c *Controller) Metrics(queues func() map[topology.Port]qos.PortState) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = writeMetrics(w, c.view(queues)) // the reader may have gone
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
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the reader may have gone
}

// ServeHTTP serves a handler until ctx ends.
func ServeHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the controller's state: %w", err)
	}
	return nil
}

// Client asks a running controller over its Unix socket.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the controller at a socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket, &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dial}}}
}

// Status is what the controller knows.
func (c *Client) Status(ctx context.Context) (v1.SDN, error) { return get[v1.SDN](ctx, c, "/v1/sdn") }

// Flows are its flows.
func (c *Client) Flows(ctx context.Context) ([]v1.SDNFlow, error) {
	return get[[]v1.SDNFlow](ctx, c, "/v1/sdn/flows")
}

func get[T any](ctx context.Context, c *Client, path string) (v T, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://weir"+path, nil)
	if err != nil {
		return v, fmt.Errorf("ask the controller: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			return v, fmt.Errorf("ask the controller at %s: %w: is weir sdn run running? --socket names another", c.socket, op.Err)
		}
		return v, fmt.Errorf("ask the controller at %s: %w", c.socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return v, fmt.Errorf("ask the controller at %s: %s", c.socket, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&v); err != nil {
		return v, fmt.Errorf("read the controller's answer: %w", err)
	}
	return v, nil
}
