package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-project/weir/test/must"
)

// announce opens a page of a kind until the test ends, and returns its URL.
func announce(t *testing.T, p Pages, kind string, server *http.Server) string {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	must.Succeed(t, err)
	l, err = p.Announce(kind, l)
	must.Succeed(t, err)
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { server.Close() })
	return "http://" + l.Addr().String() + "/"
}

// reply is ask for the parts of an answer.
func reply(t *testing.T, h http.Handler, method, host, path string) (status int, kind, body string) {
	t.Helper()
	r := ask(h, method, host, path, nil)
	return r.StatusCode, r.Header.Get("Content-Type"), bodyOf(t, r)
}

// TestPages: a page is announced while its daemon runs, and no longer: neither when it has closed it, nor
// when it was killed and has left its file. Others' files name no other machine.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	p := PagesBeside(filepath.Join(dir, "weir.sock"))
	list := func() string {
		_, _, body := reply(t, handler(&fakeFeed{}, newGate(nil), p, 4), "GET", "localhost", "/v1/pages")
		return body
	}
	if got := list(); got != "[]\n" {
		t.Errorf("none is open: %s", got)
	}
	listen := func() net.Listener {
		l, err := Listen("127.0.0.1:0")
		must.Succeed(t, err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	edge, err := p.Announce(KindEdge, listen())
	must.Succeed(t, err)
	agent, err := p.Announce(KindAgent, listen())
	must.Succeed(t, err)
	defer agent.Close()
	want := `[{"kind":"agent","url":"http://` + agent.Addr().String() + `/"},{"kind":"edge","url":"http://` + edge.Addr().String() + `/"}]` + "\n"
	if got := list(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := p.Announce(KindEdge, listen()); err == nil {
		t.Error("a second weir-edge announces its page")
	}
	if got := list(); got != want {
		t.Errorf("after that: %s, want %s", got, want)
	}
	edge.Close()
	if _, err := os.Stat(p.path(KindEdge)); err == nil || strings.Contains(list(), KindEdge) {
		t.Error("a page that was closed is announced")
	}
	must.Succeed(t, os.WriteFile(p.path(KindEdge), []byte("127.0.0.1:7483"), 0o644)) // its daemon was killed
	if got := list(); strings.Contains(got, KindEdge) {
		t.Errorf("a page whose daemon was killed: %s", got)
	}
	edge, err = p.Announce(KindEdge, listen())
	must.Succeed(t, err)
	defer edge.Close()
	if got := list(); !strings.Contains(got, edge.Addr().String()) {
		t.Errorf("after a restart: %s", got)
	}
	must.Succeed(t, os.WriteFile(p.path(KindEdge), []byte("evil.example:80"), 0o644))
	if got := list(); strings.Contains(got, KindEdge) {
		t.Errorf("a page of another machine: %s", got)
	}
	if got := (Pages{}).find(KindAgent); got != "" {
		t.Errorf("without a folder: %s", got)
	}
}

// TestRelayedSwitches: the agent's page reads of switches what their page tells everybody here, and
// nothing else.
func TestRelayedSwitches(t *testing.T) {
	p := Pages{t.TempDir()}
	h := handler(&fakeFeed{}, newGate(nil), p, 4)
	if status, _, body := reply(t, h, "GET", "localhost", "/v1/sdn"); status != http.StatusBadGateway || !strings.Contains(body, "--http") {
		t.Errorf("no page of switches: %d", status)
	}
	kind := "application/json"
	announce(t, p, KindSDN, NewSDN(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Set-Cookie", "a=b")
		_, _ = io.WriteString(w, `["`+r.URL.RequestURI()+`"]`)
	}), p, slog.New(slog.DiscardHandler)))
	for path, want := range map[string]int{
		"/v1/sdn": 200, "/v1/links": 200, "/v1/sdn/flows?end=198.18.0.1:1": 200, "/v1/sdn/flows": 502, "/v1/sdn/topology.svg": 404,
	} {
		r := ask(h, "GET", "localhost", path, nil)
		if body := bodyOf(t, r); r.StatusCode != want || want == 200 && body != `["`+path+`"]` || r.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %s %s", path, r.Status, body)
		}
	}
	if status, _, _ := reply(t, h, "POST", "localhost", "/v1/sdn"); status != http.StatusMethodNotAllowed {
		t.Errorf("a change: %d", status)
	}
	kind = "text/javascript"
	if status, kind, _ := reply(t, h, "GET", "localhost", "/v1/sdn/flows?end=x"); status != http.StatusBadGateway || strings.Contains(kind, "javascript") {
		t.Errorf("a script: %d, %s", status, kind)
	}
}

// TestNodesOfThePage: weir-edge's page has the page of each node's agent, of what the agent answers, for
// looking only. An agent is another machine: it cannot put a page or a script there, nor fill the memory.
func TestNodesOfThePage(t *testing.T) {
	kind, body := "application/json", `{"status":{"version":"7"}}`
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}))
	defer agent.Close()
	asked := ""
	h := edgeHandler(&fakeFeed{}, func(node string) Getter {
		if node != "a" {
			return nil
		}
		return func(ctx context.Context, path string) (*http.Response, error) {
			asked = path
			if strings.HasSuffix(path, "/history") {
				return nil, errors.New("it refuses")
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, agent.URL+path, nil)
			must.Succeed(t, err)
			return http.DefaultClient.Do(request)
		}
	}, newGate(nil), Pages{}, 4)
	for _, c := range []struct {
		request string
		status  int
		has     string
		asked   string
	}{
		{"GET /nodes/a/", 200, `src="app.js"`, ""}, {"GET /nodes/a/app.js", 200, "v1/snapshot", ""}, {"GET /nodes/a/app.css", 200, "prefers-color-scheme", ""},
		{"GET /nodes/a/uplot.js", 200, "uPlot", ""}, {"GET /nodes/a/v1/pages", 200, "[]", ""},
		{"GET /nodes/a/v1/snapshot", 200, `"version":"7"`, "/v1/snapshot"},
		{"GET /nodes/a/v1/flows?container=x&limit=3", 200, "", "/v1/flows?container=x&limit=3"},
		{"GET /nodes/a/v1/containers/web/explain", 200, "", "/v1/containers/web/explain"},
		{"GET /nodes/a/v1/containers/web/history", 502, "it refuses", "/v1/containers/web/history"},
		{"GET /nodes/b/v1/snapshot", 404, "no node", ""}, {"GET /nodes/a/v1/tokens", 404, "", ""}, {"GET /nodes/a/v1/access", 404, "", ""},
		{"GET /nodes/a/v1/containers/web/policy", 404, "", ""}, {"POST /nodes/a/v1/down", 405, "", ""}, {"PATCH /nodes/a/v1/containers/web/policy", 405, "", ""},
		{"GET /nodes/a/../../v1/down", 307, "", ""},
	} {
		asked = ""
		method, path, _ := strings.Cut(c.request, " ")
		r := ask(h, method, "127.0.0.1:7483", path, nil)
		if got := bodyOf(t, r); r.StatusCode != c.status || !strings.Contains(got, c.has) || asked != c.asked || r.Header.Get("Content-Security-Policy") != contentPolicy {
			t.Errorf("%s: %s, %.100s, the agent was asked %q", c.request, r.Status, got, asked)
		}
	}
	for _, kind = range []string{"text/html", "text/javascript", "image/svg+xml", ""} {
		if status, answered, _ := reply(t, h, "GET", "localhost", "/nodes/a/v1/flows"); status != http.StatusBadGateway || !strings.Contains(answered, "json") {
			t.Errorf("%q: %d, %s", kind, status, answered)
		}
	}
	kind, body = "application/json", strings.Repeat(" ", 2*maxRelayedBytes)
	if _, _, got := reply(t, h, "GET", "localhost", "/nodes/a/v1/flows"); len(got) != maxRelayedBytes {
		t.Errorf("%d bytes are relayed", len(got))
	}
	if status, _, _ := reply(t, h, "GET", "nodes.example", "/nodes/a/v1/snapshot"); status != http.StatusMisdirectedRequest {
		t.Errorf("a name that leads here: %d", status)
	}
}

// TestNodeSnapshotsAreShared: many pages of a node cost its agent no more than one, and those who wait for a
// failure, which is not kept, no more time than one. What others get is not cut off with the page that
// asked first.
func TestNodeSnapshotsAreShared(t *testing.T) {
	const pages = 50
	var asked atomic.Int64
	var arrived sync.WaitGroup
	broken := false
	snapshots := nodeSnapshots{of: map[string]*nodeSnapshot{}}
	feed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		arrived.Wait()
		time.Sleep(50 * time.Millisecond)
		if broken || r.Context().Err() != nil {
			refuse(w, http.StatusBadGateway, "it does not answer")
		}
	})
	for _, want := range []int{http.StatusBadGateway, http.StatusOK} {
		broken = want != http.StatusOK
		asked.Store(0)
		arrived.Add(pages)
		first, leave := context.WithCancel(t.Context())
		var done sync.WaitGroup
		ask := func(ctx context.Context) {
			w := httptest.NewRecorder()
			snapshots.handler("a", feed).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/snapshot", nil))
			if w.Code != want {
				t.Errorf("%d, want %d", w.Code, want)
			}
		}
		done.Go(func() { ask(first) })
		for asked.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		leave()
		for range pages {
			done.Go(func() {
				arrived.Done()
				ask(t.Context())
			})
		}
		done.Wait()
		if n := asked.Load(); n > 3 { // one, but for a busy machine
			t.Errorf("%d: the agent was asked %d times", want, n)
		}
	}
}

// TestNodeSnapshotsAreForgotten: a node whose page is not open any more takes no memory.
func TestNodeSnapshotsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snapshots := nodeSnapshots{of: map[string]*nodeSnapshot{}}
		for _, node := range []string{"a", "a", "b"} {
			snapshots.handler(node, &fakeFeed{})
			time.Sleep(nodeTimeout - 1)
		}
		if len(snapshots.of) != 2 {
			t.Errorf("%d nodes are kept", len(snapshots.of))
		}
		time.Sleep(2 * time.Nanosecond)
		snapshots.handler("c", &fakeFeed{})
		if len(snapshots.of) != 1 {
			t.Errorf("%d nodes are kept after that", len(snapshots.of))
		}
		follows, leave := context.WithTimeout(t.Context(), 2*nodeTimeout)
		defer leave()
		r := httptest.NewRequestWithContext(follows, http.MethodGet, "/v1/snapshot?follow=true", nil)
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(answerTimeout) })
		go snapshots.handler("c", slow).ServeHTTP(httptest.NewRecorder(), r)
		for follows.Err() == nil {
			snapshots.handler("d", &fakeFeed{})
			if snapshots.of["c"] == nil {
				t.Error("the node of a page that follows is forgotten")
				break
			}
			time.Sleep(time.Second)
		}
		leave()
		time.Sleep(2 * answerTimeout) // until the last request is answered
	})
}

// TestNodeOfFollowerEnds: a page that follows a node asks the agent that the node has at each second, without its own
// query, and ends when the node is gone.
func TestNodeOfFollowerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paths []string
		gone := time.Now().Add(2500 * time.Millisecond)
		h := edgeHandler(&fakeFeed{}, func(string) Getter {
			if time.Now().After(gone) {
				return nil
			}
			return func(_ context.Context, path string) (*http.Response, error) {
				paths = append(paths, path)
				return &http.Response{
					StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader("{}\n")),
				}, nil
			}
		}, newGate(nil), Pages{}, 4)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/nodes/a/v1/snapshot?follow=true", nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if ctx.Err() != nil || w.Body.String() != "{}\n{}\n" {
			t.Errorf("%q, %v", w.Body, ctx.Err())
		}
		if got := strings.Join(paths, " "); got != "/v1/snapshot /v1/snapshot" {
			t.Errorf("the agent was asked for %s", got)
		}
	})
}

// TestNodePagesAskOnce: pages of one node share its snapshots, and those of two do not.
func TestNodePagesAskOnce(t *testing.T) {
	asked := map[string]int{}
	h := edgeHandler(&fakeFeed{}, func(node string) Getter {
		return func(context.Context, string) (*http.Response, error) {
			asked[node]++
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"status":{"version":"` + node + `"}}`)),
			}, nil
		}
	}, newGate(nil), Pages{}, 4)
	for range 50 {
		for _, node := range []string{"a", "b"} {
			if status, _, body := reply(t, h, "GET", "localhost", "/nodes/"+node+"/v1/snapshot"); status != http.StatusOK || !strings.Contains(body, `"`+node+`"`) {
				t.Fatalf("%s: %d %s", node, status, body)
			}
		}
	}
	if asked["a"] > 3 || asked["b"] > 3 { // once, but for a busy machine
		t.Errorf("agents were asked %v times", asked)
	}
}
