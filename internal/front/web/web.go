// Package web is the dashboard: a page in the browser that shows what every
// container gets and why, and the data it reads, on a loopback address.
//
// # Problem
//
// A page needs a TCP port, and other users of this machine can reach that. So can every web
// site that is open in a browser here: its scripts can send requests to 127.0.0.1 and, with a
// name that leads there, read the answers (DNS rebinding).
//
// # Method
//
// Without a token the page may be read, and of the agent's API the snapshot, events, flows,
// histories, policies and explanations, by the same handlers as on the socket. A change of a
// policy needs a token with the role admin in each request (change.go): a browser sends no such
// proof by itself. A request must be for a loopback host, and no answer allows another origin
// to read it. The page may load nothing from elsewhere and is shown in no frame.
//
// Requests read the latest snapshot and never enter the control loop. A page of an agent asks once, and then
// follows: at the start of each second of the clock it gets a snapshot, which is encoded once for all pages and written
// with one system call for each. A slow page delays no other, and is closed after answerTimeout. Other pages ask each second
// (web/src/turns.ts); a snapshot is encoded at most five times a second for them. Pages that follow, other requests at
// once, those with a token, and connections have a bound each. Snapshots from the cache count as connections only,
// because pages ask for them at one moment.
//
// # Limits
//
// Every user of this machine may read, not only the socket's group. A browser has about six connections to an address,
// and a page that follows takes one of them: three pages of a browser follow, and others ask each second, as hidden
// pages do, and those that are refused. A response that is under way is not taken back: a page that gets snapshots more
// than three seconds late asks each second, too, and so gets one when there is room for it.
package web

import (
	"bytes"
	"context"
	"embed"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/third_party/uplot"
)

// The page, as `make web` makes it from web/.
//
//go:embed static
var static embed.FS

const (
	// maxRequests and maxTokenRequests limit concurrent requests without and with a token; cached
	// responses do not count, and as many pages as maxRequests may follow besides.
	// A request for events lasts as long as its reader follows them.
	maxRequests, maxTokenRequests = 128, 32
	// followInterval is the time between two snapshots for a page that follows.
	followInterval = time.Second
	// answerTimeout limits the time to send a response, or a snapshot to a page that follows.
	answerTimeout = 15 * time.Second
	// idleTimeout closes idle connections. A page that follows seldom asks for more, and each of them takes memory;
	// others ask each second.
	idleTimeout = 3 * time.Second
	// maxHeaderBytes limits the request header.
	maxHeaderBytes = 16 << 10
	// snapshotAge is how long a response is cached.
	snapshotAge = 200 * time.Millisecond
)

// contentPolicy allows the page to load from this server alone.
const contentPolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// New returns the server of the dashboard with the parts of the agent's API (feed) that it
// needs, and links to other pages. Changes of policies need a token with the role admin.
func New(feed http.Handler, tokens *access.Tokens, pages Pages, log *slog.Logger) *http.Server {
	g := newGate(tokens)
	return g.server(handler(feed, g, pages, maxRequests), log)
}

// server returns an HTTP server for a handler, with limits for connections.
func (g *gate) server(handler http.Handler, log *slog.Logger) *http.Server {
	s := httpapi.NewServer(handler, log)
	s.IdleTimeout, s.MaxHeaderBytes = idleTimeout, maxHeaderBytes
	g.places.Watch(s, func(conn net.Conn) string { return access.Network(conn.RemoteAddr().String()) })
	return s
}

func handler(feed http.Handler, g *gate, pages Pages, atOnce int) http.Handler {
	mux := agentPage(&recent{feed: feed}, feed, pages)
	mux.Handle("GET /v1/access", feed)
	mux.Handle("GET /v1/containers/{name}/policy", feed)
	for _, change := range changes {
		mux.Handle(change, feed)
	}
	return g.bound(mux, atOnce)
}

// agentPage serves the page of an agent, without changes.
func agentPage(snapshot, feed http.Handler, pages Pages) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/snapshot", snapshot)
	for _, path := range []string{"GET /v1/events", "GET /v1/containers/{name}/explain", "GET /v1/containers/{name}/history", "GET /v1/flows"} {
		mux.Handle(path, feed)
	}
	pages.serve(mux, KindAgent)
	serveFiles(mux, "/{$}", "/app.js")
	serveShared(mux)
	return mux
}

// serveShared serves what all pages load.
func serveShared(mux *http.ServeMux) {
	serveFiles(mux, "/app.css", "/icon.svg")
	mux.HandleFunc("GET /uplot.js", text("text/javascript; charset=utf-8", uplot.Script))
	mux.HandleFunc("GET /uplot.css", text("text/css; charset=utf-8", uplot.Style))
}

// serveFiles serves files of the folder static.
func serveFiles(mux *http.ServeMux, names ...string) {
	page, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the name is a valid path
	}
	files := http.FileServerFS(page)
	for _, name := range names {
		mux.Handle("GET "+name, files)
	}
}

// bound returns the routes behind the gate, with a limit of concurrent requests.
func (g *gate) bound(routes *http.ServeMux, atOnce int) http.Handler {
	g.routes, g.next = routes, atMost(atOnce, maxTokenRequests, routes)
	return guard(g)
}

// atMost limits concurrent requests without a token and with one, and pages that follow without a token to as many as
// other requests without one. Requests that a cache answers do not count: pages send them at the same moment, and the
// first request does the work of all.
func atMost(withoutToken, withToken int, routes *http.ServeMux) http.Handler {
	all := map[bool]chan struct{}{false: make(chan struct{}, withoutToken), true: make(chan struct{}, withToken)}
	following := make(chan struct{}, withoutToken)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known := access.CallerFrom(r.Context()) != anonymous
		places := all[known]
		if follows(r) {
			if !known {
				places = following
			}
		} else if route, _ := routes.Handler(r); isCached(route) {
			routes.ServeHTTP(w, r)
			return
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			tooMany(w)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// follows reports whether a page asks for a snapshot each second.
func follows(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/v1/snapshot") && r.URL.Query().Get("follow") == "true"
}

func isCached(route http.Handler) bool {
	_, cached := route.(*recent)
	return cached
}

func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	turnAway(w, http.StatusServiceUnavailable, "too many pages and readers at once: close some")
}

// guard refuses requests that come from other web sites.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-cache") // a newer agent has a newer page
		if !isLoopbackHost(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, "this is the dashboard of the machine that it runs on: open it at http://127.0.0.1 or http://localhost and its port")
			return
		}
		// Events set later ones as they go on.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
		next.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, status int, message string) {
	_ = httpapi.WriteProblem(w, status, message) // a client that is gone needs no answer
}

func text(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(body)))
	}
}

// recent caches feed's last response for snapshotAge, so that many pages cost no more than
// a few. A failure answers the requests that waited for it, and is not kept. A request that follows
// gets a response a line, until one fails or its reader is gone.
type recent struct {
	feed http.Handler
	mu   sync.Mutex
	at   time.Time
	last answer
}

// answer is a recorded answer.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(data []byte) (int, error) { return a.body.Write(data) }

func (s *recent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, s.feed)
}

// serve is ServeHTTP with another feed.
func (s *recent) serve(w http.ResponseWriter, r *http.Request, feed http.Handler) {
	if follows(r) {
		s.follow(w, r, feed)
		return
	}
	body, status, kind := s.fetch(r, feed)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // saves the writes of chunks
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// follow writes a response at the start of each second. When it ends, the page's next request reports the failure.
func (s *recent) follow(w http.ResponseWriter, r *http.Request, feed http.Handler) {
	header, control := w.Header(), http.NewResponseController(w)
	header.Set("Content-Type", "application/x-ndjson")
	header.Set("Transfer-Encoding", "identity") // it ends with its connection: chunks would take three writes each
	header.Set("X-Accel-Buffering", "no")       // a proxy passes on what it has
	w.WriteHeader(http.StatusOK)
	for control.Flush() == nil {
		select {
		case <-time.After(time.Until(time.Now().Truncate(followInterval).Add(followInterval))):
		case <-r.Context().Done():
			return
		}
		body, status, _ := s.fetch(r, feed)
		_ = control.SetWriteDeadline(time.Now().Add(answerTimeout))
		if status != http.StatusOK {
			return
		}
		if _, err := w.Write(body); err != nil {
			return
		}
	}
}

// fetch returns the cached or a new response; its body must not be changed.
func (s *recent) fetch(r *http.Request, feed http.Handler) (body []byte, status int, kind string) {
	asked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	waited := s.at.After(asked)
	if !waited && (s.last.status != http.StatusOK || time.Since(s.at) > snapshotAge) {
		// Others wait for the answer when this caller is gone.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerTimeout)
		defer cancel()
		fresh := answer{header: http.Header{}, status: http.StatusOK}
		request := r.WithContext(ctx)
		request.URL = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath} // all requests have this answer, whatever their query
		feed.ServeHTTP(&fresh, request)
		s.last, s.at = fresh, time.Now()
	}
	return s.last.body.Bytes(), s.last.status, s.last.header.Get("Content-Type")
}
