package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/exposition"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Handler serves /v1/sdn, /v1/sdn/flows, /v1/sdn/topology.svg (for a page), /v1/links, /v1/paths and
// /metrics, which only read. Answers have a deadline. queues returns the states of queues and may be nil.
func (c *Controller) Handler(queues func() map[topology.Port]qos.PortState) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sdn", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.View(queues)) })
	mux.HandleFunc("GET /v1/sdn/flows", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, withEnds(c.Flows(), r.URL.Query()["end"]))
	})
	mux.HandleFunc("GET /v1/sdn/topology.svg", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		_ = DrawTopology(w, c.View(queues), false) // a write error means that the reader is gone
	})
	c.addLinks(mux, queues)
	mux.Handle("GET /metrics", c.Metrics(queues))
	return c.bounded(mux)
}

// bounded sets the time in which requests are read and answered: a client that does not read its answer
// loses the connection.
func (c *Controller) bounded(h http.Handler) http.Handler {
	answers := c.answers()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers.Bound(w, changeTimeout)
		h.ServeHTTP(w, r)
	})
}

// withEnds returns the flows that begin or end at one of ends (ADDRESS:PORT), or all if there are none.
func withEnds(flows []v1.SDNFlow, ends []string) []v1.SDNFlow {
	if len(ends) == 0 {
		return flows
	}
	return slices.DeleteFunc(slices.Clone(flows), func(f v1.SDNFlow) bool {
		return !slices.ContainsFunc(strings.Fields(f.Flow), func(word string) bool { return slices.Contains(ends, word) })
	})
}

// Metrics serves /metrics only, for listeners that must not reveal flows and hosts.
func (c *Controller) Metrics(queues func() map[topology.Port]qos.PortState) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", exposition.ContentType)
		_ = writeMetrics(w, c.View(queues)) // a write error means that the reader is gone
	})
	return c.bounded(mux)
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
