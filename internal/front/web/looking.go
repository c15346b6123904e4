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
	return g.bound(pageOf("edge", feed, []string{"/v1/snapshot"}, []string{"/v1/events", "/v1/services/{name}/explain", "/metrics"}), atOnce)
}

// NewSDN is NewEdge for the page of weir sdn run.
func NewSDN(feed http.Handler, log *slog.Logger) *http.Server {
	g := newGate(nil)
	return g.server(sdnHandler(feed, g, maxRequests), log)
}

func sdnHandler(feed http.Handler, g *gate, atOnce int) http.Handler {
	return g.bound(pageOf("sdn", feed, []string{"/v1/sdn", "/v1/sdn/topology.svg"}, []string{"/metrics"}), atOnce)
}

// pageOf serves a page that only looks, and paths of feed: of those that are kept the
// last answer for a moment.
func pageOf(name string, feed http.Handler, kept, passed []string) *http.ServeMux {
	mux := http.NewServeMux()
	for _, path := range kept {
		mux.Handle("GET "+path, &recent{feed: feed})
	}
	for _, path := range passed {
		mux.Handle("GET "+path, feed)
	}
	mux.HandleFunc("GET /uplot.js", text("text/javascript; charset=utf-8", uplot.Script))
	mux.HandleFunc("GET /uplot.css", text("text/css; charset=utf-8", uplot.Style))
	serveFiles(mux, "/"+name+".js", "/app.css", "/icon.svg")
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, "static/"+name+".html") })
	return mux
}
