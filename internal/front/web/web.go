// Package web is the dashboard: a page in the browser that shows what every
// container gets and why, and the data it reads, on a loopback address.
//
// # Problem
//
// A page needs a TCP port, and whatever can reach one can try it: other users of
// this machine, and every web site that somebody here has open, whose scripts can
// send requests to 127.0.0.1 and, with a name that leads there, read the answers
// (DNS rebinding).
//
// # Method
//
// Whoever can reach it may look: at the page, and of the agent's API at the snapshot, the
// events, flows, histories, policies and their explanations, which the same handlers serve
// as on its socket. Whoever
// changes a policy sends a token with the role admin with each request (change.go):
// a browser sends nothing by itself that would let anybody in. A request must be for a
// loopback host, and no answer allows another origin to read it. The page itself may
// load nothing from elsewhere and is shown in no frame.
//
// Readers take the latest snapshot and never enter the control loop. It is written
// as JSON at most five times a second, for however many pages, and the number of
// requests at once, and of connections, is bounded: of those with a token, and of all others.
//
// # Limits
//
// Every user of this machine may look, not only the socket's group.
package web

import (
	"bytes"
	"embed"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/access"
	"github.com/weir-project/weir/internal/httpapi"
	"github.com/weir-project/weir/third_party/uplot"
)

// The page, as `make web` makes it from web/.
//
//go:embed static
var static embed.FS

const (
	// maxRequests is how many requests are answered at once; one for events goes
	// on for as long as its reader follows them. Those with a token are counted apart.
	maxRequests, maxTokenRequests = 128, 32
	// answerTimeout bounds how long an answer may take to be read.
	answerTimeout = 15 * time.Second
	// idleTimeout ends connections that ask for nothing.
	idleTimeout = 30 * time.Second
	// maxHeaderBytes bounds what a request may send.
	maxHeaderBytes = 16 << 10
	// snapshotAge is how old a snapshot may be that is sent once more.
	snapshotAge = 200 * time.Millisecond
)

// contentPolicy lets the page load what comes from here, and nothing else.
const contentPolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// New returns a server of the page and of what it asks of feed, the agent's API. Whoever
// has one of the tokens with the role admin may change policies; without tokens nobody.
func New(feed http.Handler, tokens *access.Tokens, log *slog.Logger) *http.Server {
	g := newGate(tokens)
	return g.server(handler(feed, g, maxRequests), log)
}

// server is one of a handler, with its bounds.
func (g *gate) server(handler http.Handler, log *slog.Logger) *http.Server {
	s := httpapi.NewServer(handler, log)
	s.IdleTimeout, s.MaxHeaderBytes = idleTimeout, maxHeaderBytes
	g.places.Watch(s, func(conn net.Conn) string { return access.Network(conn.RemoteAddr().String()) })
	return s
}

func handler(feed http.Handler, g *gate, atOnce int) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/snapshot", &recent{feed: feed})
	for _, path := range []string{"GET /v1/events", "GET /v1/access", "GET /v1/containers/{name}/policy", "GET /v1/containers/{name}/explain", "GET /v1/containers/{name}/history", "GET /v1/flows"} {
		mux.Handle(path, feed)
	}
	for _, change := range changes {
		mux.Handle(change, feed)
	}
	serveFiles(mux, "/{$}", "/app.js", "/app.css", "/icon.svg")
	mux.HandleFunc("GET /uplot.js", text("text/javascript; charset=utf-8", uplot.Script))
	mux.HandleFunc("GET /uplot.css", text("text/css; charset=utf-8", uplot.Style))
	return g.bound(mux, atOnce)
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

// bound puts a gate before routes, that so many may ask at once.
func (g *gate) bound(routes *http.ServeMux, atOnce int) http.Handler {
	g.routes, g.next = routes, atMost(atOnce, maxTokenRequests, routes)
	return guard(g)
}

// atMost bounds how many requests are answered at once, of those who only look and of
// those who have shown a token.
func atMost(looking, withToken int, next http.Handler) http.Handler {
	all := map[bool]chan struct{}{false: make(chan struct{}, looking), true: make(chan struct{}, withToken)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		places := all[access.Of(r.Context()) != anybody]
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			tooMany(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	turnAway(w, http.StatusServiceUnavailable, "too many pages and readers at once: close some")
}

// guard refuses what only a web site of somebody else, or nobody, asks for.
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
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// Whoever is gone before the answer does not need it.
	_ = json.NewEncoder(w).Encode(v1.Error{Title: http.StatusText(status), Status: status, Detail: message, Message: message})
}

func text(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(body)))
	}
}

// recent keeps feed's last answer for a moment, so that many pages cost no more
// than a few.
type recent struct {
	feed http.Handler
	mu   sync.Mutex
	at   time.Time
	last answer
}

// answer is a whole answer, kept.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(data []byte) (int, error) { return a.body.Write(data) }

func (s *recent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, status, kind := s.ask(r)
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever is gone before the answer does not need it
}

// ask returns an answer that is never changed.
func (s *recent) ask(r *http.Request) (body []byte, status int, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.status != http.StatusOK || time.Since(s.at) > snapshotAge {
		fresh := answer{header: http.Header{}, status: http.StatusOK}
		s.feed.ServeHTTP(&fresh, r)
		s.last, s.at = fresh, time.Now()
	}
	return s.last.body.Bytes(), s.last.status, s.last.header.Get("Content-Type")
}
