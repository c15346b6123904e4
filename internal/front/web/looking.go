package web

import (
	"log/slog"
	"net/http"
)

// NewEdge returns the server of weir-edge's dashboard. It serves the page, the metrics and
// the parts of weir-edge's API (feed) that the page reads, but no changes; and the pages of nodes,
// of what their agents (agentOf) answer weir-edge.
func NewEdge(feed http.Handler, agentOf func(node string) Getter, pages Pages, log *slog.Logger) *http.Server {
	g := newGate(nil)
	return g.server(edgeHandler(feed, agentOf, g, pages, maxRequests), log)
}

func edgeHandler(feed http.Handler, agentOf func(node string) Getter, g *gate, pages Pages, atOnce int) http.Handler {
	mux := pageOf(KindEdge, feed, pages, []string{"/v1/snapshot"}, []string{"/v1/events", "/v1/services/{name}/explain", "/metrics"})
	pages.serveNodes(mux, agentOf)
	return g.bound(mux, atOnce)
}

// NewSDN returns the server of the dashboard of weir sdn run, also without changes.
func NewSDN(feed http.Handler, pages Pages, log *slog.Logger) *http.Server {
	g := newGate(nil)
	return g.server(sdnHandler(feed, g, pages, maxRequests), log)
}

func sdnHandler(feed http.Handler, g *gate, pages Pages, atOnce int) http.Handler {
	mux := pageOf(KindSDN, feed, pages, []string{"/v1/sdn", "/v1/sdn/topology.svg", "/v1/links"}, []string{"/metrics"})
	mux.HandleFunc("GET /v1/sdn/flows", func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("end") {
			refuse(w, http.StatusForbidden, "this page lists flows by their end only: add ?end=ADDRESS:PORT, or use weir sdn flows, which lists all")
			return
		}
		feed.ServeHTTP(w, r)
	})
	return g.bound(mux, atOnce)
}

// pageOf serves a page and paths of feed, without changes. Responses of kept paths are
// cached for snapshotAge.
func pageOf(name string, feed http.Handler, pages Pages, kept, passed []string) *http.ServeMux {
	mux := http.NewServeMux()
	for _, path := range kept {
		mux.Handle("GET "+path, &recent{feed: feed})
	}
	for _, path := range passed {
		mux.Handle("GET "+path, feed)
	}
	pages.serve(mux, name)
	serveFiles(mux, "/"+name+".js")
	serveShared(mux)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, "static/"+name+".html") })
	return mux
}
