package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/api/v1/transport"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/front/httpapi"
)

// Pages of several daemons.
//
// Problem: the agent, weir-edge and weir sdn run have a page each, at ports of the operator's choice,
// and a browser lets no page read another origin. Method: a daemon announces its page in a file beside
// its socket, which is where those of the others are, and holds a lock on it, which ends with the daemon.
// Pages link to each other, and a server relays what its page reads of others: of switches from their
// page, of a node from its agent, as weir-edge asks it. Limits: only requests for reading are relayed,
// only of paths that the page of that daemon serves, and only JSON, because an agent is another machine
// that must not put a script into this origin.

// The kinds of pages, which are the names of the files, too.
const (
	KindAgent = "agent"
	KindEdge  = "edge"
	KindSDN   = "sdn"
)

// pageLink is the page of a daemon.
type pageLink struct {
	Kind string `json:"kind"`
	URL  string `json:"url"`
}

// Pages are the pages of the daemons of this host; the zero value has none.
type Pages struct{ dir string }

// PagesBeside returns the pages that are announced in the folder of a daemon's socket.
func PagesBeside(socket string) Pages { return Pages{filepath.Dir(socket)} }

func (p Pages) path(kind string) string { return filepath.Join(p.dir, kind+".page") }

// announced is a listener whose page is announced until it is closed.
type announced struct {
	net.Listener
	file *os.File
}

func (a *announced) Close() error {
	_ = os.Remove(a.file.Name()) // without the lock the file says nothing
	_ = a.file.Close()
	return a.Listener.Close()
}

// Announce announces the page at a listener until that is closed. It fails if a page of that kind is
// announced already.
func (p Pages) Announce(kind string, l net.Listener) (net.Listener, error) {
	file, err := os.OpenFile(p.path(kind), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return l, fmt.Errorf("announce the page: %w", err)
	}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteString(l.Addr().String())
	}
	if err != nil {
		_ = file.Close()
		return l, fmt.Errorf("announce the page in %s: %w", file.Name(), err)
	}
	return &announced{l, file}, nil
}

// find returns the URL of a page that is announced, or "".
func (p Pages) find(kind string) string {
	if p.dir == "" {
		return ""
	}
	file, err := os.Open(p.path(kind))
	if err != nil {
		return ""
	}
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(file, 128))
	if err != nil {
		return ""
	}
	address, err := config.ParseDashboard(string(text))
	if err != nil || address == "" {
		return ""
	}
	return "http://" + address + "/"
}

// serve adds the list of pages, and what others' pages read of switches.
func (p Pages) serve(mux *http.ServeMux, kind string) {
	mux.HandleFunc("GET /v1/pages", func(w http.ResponseWriter, _ *http.Request) {
		list := []pageLink{}
		for _, kind := range []string{KindAgent, KindEdge, KindSDN} {
			if url := p.find(kind); url != "" {
				list = append(list, pageLink{kind, url})
			}
		}
		_ = httpapi.WriteJSON(w, http.StatusOK, "application/json", list) // a client that is gone needs no answer
	})
	if kind == KindSDN {
		return
	}
	switches := relay(func(ctx context.Context, path string) (*http.Response, error) {
		url := p.find(KindSDN)
		if url == "" {
			return nil, errors.New("no page of weir sdn run is open on this host: --http 127.0.0.1:7484 opens one")
		}
		peer := transport.Peer{
			Name: "weir sdn run", Base: strings.TrimSuffix(url, "/"), HTTP: toPages,
			Unreachable: func(err error) error { return fmt.Errorf("ask weir sdn run: %w", err) },
			Refused:     func(_ int, message string) error { return errors.New(message) },
		}
		return peer.Send(ctx, http.MethodGet, path, nil, nil)
	})
	for _, path := range []string{"/v1/sdn", "/v1/sdn/flows", "/v1/links"} {
		mux.Handle("GET "+path, switches)
	}
}

// toPages is for pages of this host.
var toPages = transport.Client(&http.Transport{IdleConnTimeout: idleTimeout})

// Getter sends a request for a path of a daemon's API, and returns the answer if that is a success. The
// caller closes its body.
type Getter func(ctx context.Context, path string) (*http.Response, error)

// maxRelayedBytes limits a relayed answer; that of an agent with two thousand containers is smaller.
const maxRelayedBytes = 8 << 20

// relay passes requests on, and JSON back.
func relay(get Getter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		answer, err := get(ctx, r.URL.RequestURI())
		if err != nil {
			refuse(w, http.StatusBadGateway, err.Error())
			return
		}
		defer answer.Body.Close()
		kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
		if kind != "application/json" && kind != "application/x-ndjson" {
			refuse(w, http.StatusBadGateway, fmt.Sprintf("the answer is not JSON, but %q", kind))
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = io.Copy(w, io.LimitReader(answer.Body, maxRelayedBytes)) // a client that is gone needs no answer
	})
}

// nodeTimeout is how long a node's snapshot is kept after the last request to its agent, longer than that may take:
// a page that follows does not lose the snapshot that it shares.
const nodeTimeout = 2 * answerTimeout

// nodeSnapshots has the last snapshot of each node with an open page: one request to the node's agent answers all
// pages of a node.
type nodeSnapshots struct {
	mu sync.Mutex
	of map[string]*nodeSnapshot
}

type nodeSnapshot struct {
	recent
	asked time.Time // guarded by the mutex of nodeSnapshots
}

// handler returns the handler of a node's snapshot, which asks feed for a new one. It forgets nodes whose
// page is not open any more.
func (n *nodeSnapshots) handler(node string, feed http.Handler) http.Handler {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for name, snapshot := range n.of {
		if now.Sub(snapshot.asked) > nodeTimeout {
			delete(n.of, name)
		}
	}
	snapshot := n.of[node]
	if snapshot == nil {
		snapshot = &nodeSnapshot{}
		n.of[node] = snapshot
	}
	snapshot.asked = now
	fresh := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		snapshot.asked = time.Now() // by a page that follows
		n.mu.Unlock()
		feed.ServeHTTP(w, r)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { snapshot.serve(w, r, fresh) })
}

// serveNodes adds the pages of nodes' agents, at nodes/NAME/. agentOf returns nil for a node without one;
// it is nil itself if no agent may be asked.
func (p Pages) serveNodes(mux *http.ServeMux, agentOf func(node string) Getter) {
	if agentOf == nil {
		return
	}
	snapshots := nodeSnapshots{of: map[string]*nodeSnapshot{}}
	mux.HandleFunc("GET /nodes/{node}/", func(w http.ResponseWriter, r *http.Request) {
		node := r.PathValue("node")
		if agentOf(node) == nil {
			refuseNode(w, node)
			return
		}
		feed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			get := agentOf(node) // a page that follows may outlast its node, or the address of the agent
			if get == nil {
				refuseNode(w, node)
				return
			}
			relay(get).ServeHTTP(w, r)
		})
		http.StripPrefix("/nodes/"+node, agentPage(snapshots.handler(node, feed), feed, p)).ServeHTTP(w, r)
	})
}

func refuseNode(w http.ResponseWriter, node string) {
	refuse(w, http.StatusNotFound, fmt.Sprintf("no node %q with an agent is known", node))
}
