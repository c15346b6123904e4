package web

import (
	"log/slog"
	"net/http"

	"github.com/weir-project/weir/third_party/uplot"
)

// NewEdge returns the server of weir-edge's dashboard. It serves the page, the metrics and
// the parts of weir-edge's API (feed) that the page reads, but no changes.
func NewEdge(feed http.Handler, log *slog.Logger) *http.Server {
	g := newGate(nil)
	return g.server(edgeHandler(feed, g, maxRequests), log)
}

func edgeHandler(feed http.Handler, g *gate, atOnce int) http.Handler {
	return g.bound(pageOf("edge", feed, []string{"/v1/snapshot"}, []string{"/v1/events", "/v1/services/{name}/explain", "/metrics"}), atOnce)
}

// NewSDN returns the server of the dashboard of weir sdn run, also without changes.
func NewSDN(feed http.Handler, log *slog.Logger) *http.Server {
	g := newGate(nil)
	return g.server(sdnHandler(feed, g, maxRequests), log)
}

func sdnHandler(feed http.Handler, g *gate, atOnce int) http.Handler {
	return g.bound(pageOf("sdn", feed, []string{"/v1/sdn", "/v1/sdn/topology.svg"}, []string{"/metrics"}), atOnce)
}

// pageOf serves a page and paths of feed, without changes. Responses of kept paths are
// cached for snapshotAge.
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
