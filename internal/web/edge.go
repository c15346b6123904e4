package web

import (
	"log/slog"
	"net/http"

	"github.com/weir-project/weir/third_party/uplot"
)

// NewEdge returns a server of weir-edge's page, of what that asks of feed, weir-edge's API,
// and of what Prometheus asks for. It only looks: nothing that changes something is passed on, whoever asks.
func NewEdge(feed http.Handler, log *slog.Logger) *http.Server {
	g := newGate(nil)
	return g.server(edgeHandler(feed, g, maxRequests), log)
}

func edgeHandler(feed http.Handler, g *gate, atOnce int) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/snapshot", &recent{feed: feed})
	for _, path := range []string{"GET /v1/events", "GET /v1/services/{name}/explain", "GET /metrics"} {
		mux.Handle(path, feed)
	}
	mux.HandleFunc("GET /uplot.js", text("text/javascript; charset=utf-8", uplot.Script))
	mux.HandleFunc("GET /uplot.css", text("text/css; charset=utf-8", uplot.Style))
	serveFiles(mux, "/edge.js", "/app.css", "/icon.svg")
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, "static/edge.html") })
	return g.bound(mux, atOnce)
}
