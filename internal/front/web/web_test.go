package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/test/must"
)

// fakeFeed answers as the agent does, and counts.
type fakeFeed struct{ snapshots, others atomic.Int64 }

func (f *fakeFeed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/snapshot":
		f.snapshots.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":{"version":"1"}}`+"\n")
	case "/v1/events":
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"seq":1}`+"\n")
		if r.URL.Query().Get("follow") != "false" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	default:
		f.others.Add(1)
	}
}

func ask(h http.Handler, method, host, path string, body io.Reader) *http.Response {
	r := httptest.NewRequest(method, path, body)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	must.Succeed(t, err)
	return string(body)
}

func TestPageAndFeed(t *testing.T) {
	h := handler(&fakeFeed{}, newGate(nil), Pages{}, 4)
	for path, want := range map[string]string{
		"/": `<div id="app">`, "/app.js": "v1/snapshot", "/app.css": "prefers-color-scheme", "/uplot.js": "uPlot", "/uplot.css": ".uplot", "/icon.svg": "<svg",
		"/v1/snapshot": `"version":"1"`, "/v1/events?since=0&follow=false": `"seq":1`,
	} {
		r := ask(h, "GET", "127.0.0.1:7480", path, nil)
		if body := bodyOf(t, r); r.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %s, lacks %q", path, r.Status, want)
		}
		if kind := r.Header.Get("Content-Type"); kind == "" || strings.HasPrefix(kind, "text/plain") {
			t.Errorf("%s: content type %q", path, kind)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": contentPolicy, "X-Content-Type-Options": "nosniff",
			"Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if r := ask(h, "HEAD", "127.0.0.1:7480", path, nil); r.StatusCode != http.StatusOK {
			t.Errorf("HEAD %s: %s", path, r.Status)
		}
	}
	if !strings.HasPrefix(contentPolicy, "default-src 'self';") {
		t.Errorf("the page may load from elsewhere: %s", contentPolicy)
	}
}

// Of the agent's API nothing else is to be had, and nothing that changes anything.
func TestReadOnly(t *testing.T) {
	feed := &fakeFeed{}
	h := handler(feed, newGate(nil), Pages{}, 4)
	for _, path := range []string{"/v1/status", "/v1/containers", "/v1/down", "/v1/reload", "/v1/snapshot/", "/static/app.js", "/../web.go", "/index.html"} {
		if r := ask(h, "GET", "localhost", path, nil); r.StatusCode < 300 {
			t.Errorf("GET %s: %s", path, r.Status)
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"} {
		for _, path := range []string{"/", "/v1/snapshot", "/v1/events", "/v1/down", "/v1/containers/web/policy"} {
			r := ask(h, method, "localhost", path, strings.NewReader("{}"))
			if r.StatusCode != http.StatusMethodNotAllowed || !r.Close && r.Header.Get("Connection") != "close" || !strings.Contains(bodyOf(t, r), "weir set") {
				t.Errorf("%s %s: %s", method, path, r.Status)
			}
		}
	}
	if r := ask(h, "GET", "localhost", "/v1/snapshot", strings.NewReader("{}")); r.StatusCode != http.StatusBadRequest {
		t.Errorf("GET with a body: %s", r.Status)
	}
	if n := feed.others.Load() + feed.snapshots.Load(); n != 0 {
		t.Errorf("the agent was asked %d times", n)
	}
}

// A name that leads here is no reason to answer: any web site can have one.
func TestHost(t *testing.T) {
	h := handler(&fakeFeed{}, newGate(nil), Pages{}, 4)
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:7480": 200, "127.9.9.9:1": 200, "localhost": 200, "LOCALHOST:80": 200, "[::1]:7480": 200, "[::1]": 200,
		"": 421, "evil.example": 421, "evil.example:7480": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:80": 421,
		"10.0.0.1:7480": 421, "0.0.0.0:7480": 421, "[::]:7480": 421, "[fe80::1]": 421, "127.0.0.1:80:80": 421, "2130706433": 421, "127.1": 421,
	} {
		for _, path := range []string{"/", "/v1/snapshot"} {
			if r := ask(h, "GET", host, path, nil); r.StatusCode != want {
				t.Errorf("host %q, %s: %s, want %d", host, path, r.Status, want)
			}
		}
	}
}

// Many pages cost the agent no more than one.
func TestSnapshotsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &fakeFeed{}
		h := handler(feed, newGate(nil), Pages{}, 4)
		for times := range int64(3) {
			for range 1000 {
				if r := ask(h, "GET", "localhost", "/v1/snapshot", nil); r.StatusCode != http.StatusOK || r.Header.Get("Content-Length") != "27" {
					t.Fatal(r.Status, r.Header)
				}
			}
			if n := feed.snapshots.Load(); n != times+1 {
				t.Errorf("the agent was asked %d times, want %d", n, times+1)
			}
			time.Sleep(snapshotAge + 1)
		}
	})
}

// pipes is a listener for connections in memory, which have the clock of synctest.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// follow sends a page's request and returns what is answered.
func (p pipes) follow(t *testing.T, path string) (net.Conn, *bufio.Reader) {
	t.Helper()
	page, server := net.Pipe()
	p <- server
	_, err := io.WriteString(page, "GET "+path+"?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
	must.Succeed(t, err)
	return page, bufio.NewReader(page)
}

// TestPagesFollow: pages that ask once get a snapshot at each second of the clock, all of one answer of the agent.
// A slow page delays no other page, and is closed. maxRequests pages may follow, besides other requests.
func TestPagesFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pages, after = 4, 300 * time.Millisecond
		feed, listener := &fakeFeed{}, pipes(make(chan net.Conn))
		g := newGate(nil)
		mux := agentPage(&recent{feed: feed}, feed, Pages{})
		mux.Handle("GET /nodes/a/", http.StripPrefix("/nodes/a", agentPage(&recent{feed: feed}, feed, Pages{})))
		s := g.server(g.bound(mux, pages), slog.New(slog.DiscardHandler))
		go func() { _ = s.Serve(listener) }()
		defer s.Close()
		time.Sleep(after)

		status := func(r *bufio.Reader) (string, string) {
			t.Helper()
			answer, err := http.ReadResponse(r, nil)
			must.Succeed(t, err)
			return answer.Status, strings.Join(answer.TransferEncoding, "")
		}
		var lines []*bufio.Reader
		for i := range pages {
			page, r := listener.follow(t, []string{"", "", "", "/nodes/a"}[i]+"/v1/snapshot")
			defer page.Close()
			if got, encoding := status(r); got != "200 OK" || encoding != "" {
				t.Fatalf("page %d: %s, encoded %q", i, got, encoding)
			}
			lines = append(lines, r)
		}
		slow := lines[1] // it reads the head and no more
		_, r := listener.follow(t, "/v1/snapshot")
		if got, _ := status(r); !strings.HasPrefix(got, "503") {
			t.Errorf("one page more: %s", got)
		}
		for _, path := range []string{"/v1/snapshot", "/v1/events?follow=false"} {
			if r := ask(s.Handler, "GET", "localhost", path, nil); r.StatusCode != http.StatusOK {
				t.Errorf("%s beside pages that follow: %s", path, r.Status)
			}
		}
		asked := feed.snapshots.Load()
		for second := range 5 {
			for i, r := range lines {
				if r == slow {
					continue
				}
				line, err := r.ReadString('\n')
				if err != nil || !strings.HasPrefix(line, `{"status"`) {
					t.Fatalf("page %d: %q, %v", i, line, err)
				}
				if late := time.Since(time.Now().Truncate(time.Second)); late > 0 {
					t.Errorf("page %d gets snapshot %d %s after the second", i, second, late)
				}
			}
		}
		if n := feed.snapshots.Load() - asked; n != 2*5 { // of two agents
			t.Errorf("the agents were asked %d times in 5 seconds", n)
		}
		// The slow page is closed, and gives its place back.
		for _, r := range []*bufio.Reader{lines[0], lines[2], lines[3]} {
			go func() { _, _ = io.Copy(io.Discard, r) }()
		}
		time.Sleep(answerTimeout)
		page, r := listener.follow(t, "/v1/snapshot")
		defer page.Close()
		if got, _ := status(r); got != "200 OK" {
			t.Errorf("in place of a slow page: %s", got)
		}
	})
}

// TestFollowEnds: a page follows until the agent does not answer.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := time.Now().Add(2500 * time.Millisecond)
		h := handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if time.Now().After(broken) {
				refuse(w, http.StatusBadGateway, "it is gone")
				return
			}
			(&fakeFeed{}).ServeHTTP(w, r)
		}), newGate(nil), Pages{}, 4)
		r := ask(h, "GET", "localhost", "/v1/snapshot?follow=true", nil)
		if body := bodyOf(t, r); r.StatusCode != http.StatusOK || strings.Count(body, "\n") != 2 || strings.Contains(body, "gone") {
			t.Errorf("%s: %q", r.Status, body)
		}
	})
}

// TestFollowersWithTokens: requests with a token have places of their own, also those that follow.
func TestFollowersWithTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := http.NewServeMux()
		routes.HandleFunc("GET /v1/snapshot", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		h := atMost(1, 1, routes)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		follow := func(caller access.Caller) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(access.WithCaller(ctx, caller), http.MethodGet, "/v1/snapshot?follow=true", nil)
			go h.ServeHTTP(w, r)
			synctest.Wait()
			return w
		}
		for i, want := range []struct {
			caller access.Caller
			status int
		}{
			{anonymous, http.StatusOK},
			{anonymous, http.StatusServiceUnavailable},
			{access.Caller{Name: "me", Role: access.Admin}, http.StatusOK},
			{access.Caller{Name: "me", Role: access.Admin}, http.StatusServiceUnavailable},
		} {
			if w := follow(want.caller); w.Code != want.status {
				t.Errorf("request %d: %d, want %d", i, w.Code, want.status)
			}
		}
	})
}

// TestPagesAtOnce: all pages ask for the snapshot at the same moment, more of them than may send other
// requests at once. Each gets it, of one answer of the agent.
func TestPagesAtOnce(t *testing.T) {
	const pages = maxRequests + 64
	var arrived sync.WaitGroup
	arrived.Add(pages)
	feed := &fakeFeed{}
	s := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Wait()
		feed.ServeHTTP(w, r)
	}), nil, Pages{}, slog.New(slog.DiscardHandler))
	dashboard := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Done()
		dashboard.ServeHTTP(w, r)
	})
	listener, err := Listen("127.0.0.1:0")
	must.Succeed(t, err)
	go func() { _ = s.Serve(listener) }() // until it is closed
	defer s.Close()
	var asked sync.WaitGroup
	for range pages {
		asked.Go(func() {
			page := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
			r, err := page.Get("http://" + listener.Addr().String() + "/v1/snapshot")
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			if r.StatusCode != http.StatusOK {
				t.Errorf("a page got %s", r.Status)
			}
		})
	}
	asked.Wait()
	if n := feed.snapshots.Load(); n > 3 { // one, but for a busy machine
		t.Errorf("the agent was asked %d times", n)
	}
}

// What the agent says when it cannot answer is passed on, and not kept.
func TestFeedFails(t *testing.T) {
	h := handler(Feed(filepath.Join(t.TempDir(), "missing.sock")), newGate(nil), Pages{}, 4)
	for _, path := range []string{"/v1/snapshot", "/v1/events?follow=false"} {
		r := ask(h, "GET", "localhost", path, nil)
		if body := bodyOf(t, r); r.StatusCode != http.StatusBadGateway || !strings.Contains(body, `"the agent does not answer: `) {
			t.Errorf("%s: %s %s", path, r.Status, body)
		}
	}
}

// serveWith runs the dashboard of a feed, where some have tokens, and returns its address.
func serveWith(t *testing.T, feed http.Handler, tokens *access.Tokens) string {
	t.Helper()
	listener, err := Listen("127.0.0.1:0")
	must.Succeed(t, err)
	s := New(feed, tokens, Pages{}, slog.New(slog.DiscardHandler))
	go func() { _ = s.Serve(listener) }() // until it is closed
	t.Cleanup(func() { s.Close() })
	return listener.Addr().String()
}

// patience is for how long an answer may take that comes at once.
const patience = 30 * time.Second

// Readers of events come up to a number; those beyond it are told so, and one that
// leaves makes room.
func TestTooManyStreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	token, err := access.AddToken(path, "me", access.Admin)
	must.Succeed(t, err)
	address := serveWith(t, &fakeFeed{}, access.NewTokens(path, slog.New(slog.DiscardHandler)))
	for range budget.Strangers * 2 { // who say nothing
		conn, err := net.Dial("tcp", address)
		must.Succeed(t, err)
		defer conn.Close()
	}
	follow := func(ctx context.Context) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/events", nil)
		must.Succeed(t, err)
		response, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	first, leave := context.WithCancel(t.Context())
	for i := range maxRequests {
		ctx := t.Context()
		if i == 0 {
			ctx = first
		}
		r := follow(ctx)
		if line, err := bufio.NewReader(r.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"seq":1`) {
			t.Fatalf("reader %d: %q, %v", i, line, err)
		}
	}
	for _, path := range []string{"/v1/events", "/v1/flows", "/"} {
		// One that is let in goes on for as long as this waits.
		r, err := (&http.Client{Timeout: patience}).Get("http://" + address + path)
		must.Succeed(t, err)
		if body := bodyOf(t, r); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || !strings.Contains(body, "too many") {
			t.Errorf("%s: %s %s", path, r.Status, body)
		}
	}
	// Pages that are open go on.
	snapshot, err := (&http.Client{Timeout: patience}).Get("http://" + address + "/v1/snapshot")
	must.Succeed(t, err)
	if bodyOf(t, snapshot); snapshot.StatusCode != http.StatusOK {
		t.Errorf("a page beside %d readers: %s", maxRequests, snapshot.Status)
	}
	// Who may change something comes through.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/v1/access", nil)
	must.Succeed(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Timeout: patience}).Do(r)
	must.Succeed(t, err)
	if bodyOf(t, response); response.StatusCode != http.StatusOK {
		t.Errorf("an administrator beside %d readers: %s", maxRequests, response.Status)
	}
	leave()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		r, err := http.Get("http://" + address + "/v1/flows")
		must.Succeed(t, err)
		bodyOf(t, r)
		if r.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after one left: %s", r.Status)
		}
	}
}

func TestListen(t *testing.T) {
	taken, err := Listen("127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	if host, _, _ := net.SplitHostPort(taken.Addr().String()); host != "127.0.0.1" {
		t.Errorf("listens at %s", taken.Addr())
	}
	if _, err := Listen(taken.Addr().String()); err == nil || !strings.Contains(err.Error(), "another address") {
		t.Errorf("where somebody listens: %v", err)
	}
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "198.18.0.1:0", "example.com:0"} {
		if l, err := Listen(address); err == nil || !strings.Contains(err.Error(), "127.0.0.1:7480") {
			t.Errorf("%s: %v, %v", address, l, err)
		}
	}
}

// The page stays small: first paint over an ssh tunnel counts, too.
func TestSize(t *testing.T) {
	var all bytes.Buffer
	packed := gzip.NewWriter(&all)
	h := handler(&fakeFeed{}, newGate(nil), Pages{}, 4)
	for _, path := range []string{"/", "/app.js", "/app.css", "/uplot.js", "/uplot.css", "/icon.svg"} {
		if _, err := io.WriteString(packed, bodyOf(t, ask(h, "GET", "localhost", path, nil))); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, packed.Close())
	if all.Len() > 300_000 || all.Len() < 10_000 {
		t.Errorf("%d bytes compressed", all.Len())
	}
}

// The page reads what the agent writes: every name in web/src/api.ts is one of the
// wire types'.
func TestNamesOfThePage(t *testing.T) {
	checkNames(t, "api.ts", map[string]any{
		"Policy": v1.Policy{}, "PolicyFrom": v1.PolicyFrom{}, "Share": v1.Share{}, "Container": v1.Container{}, "Direction": v1.Direction{}, "Uplink": v1.Uplink{}, "UplinkIn": v1.UplinkIn{},
		"HistorySample": v1.HistorySample{}, "HistoryShare": v1.HistoryShare{}, "SharePreview": v1.SharePreview{}, "UplinkPreview": v1.UplinkPreview{}, "Preview": v1.Preview{}, "PolicyChange": v1.PolicyChange{}, "Access": v1.Access{},
		"Part": v1.Part{}, "ClassShare": v1.ClassShare{}, "Flow": v1.Flow{}, "Explanation": v1.Explanation{}, "ExplainedShare": v1.ExplainedShare{}, "ExplainedValue": v1.ExplainedValue{},
		"Source": v1.Source{}, "Status": v1.Status{}, "Snapshot": v1.Snapshot{}, "Event": v1.Event{},
	})
	checkNames(t, "sdnapi.ts", map[string]any{
		"SDN": v1.SDN{}, "SDNSwitch": v1.SDNSwitch{}, "SDNPort": v1.SDNPort{}, "SDNQueue": v1.SDNQueue{}, "SDNClass": v1.SDNClass{}, "SDNTrust": v1.SDNTrust{}, "SDNFlow": v1.SDNFlow{}, "SDNHop": v1.SDNHop{}, "SDNLinks": v1.SDNLinks{}, "SDNPromise": v1.SDNPromise{},
	})
	checkNames(t, "edgeapi.ts", map[string]any{
		"EdgeInstance": edge.Instance{}, "EdgeNode": edge.Node{}, "EdgeService": edge.Service{}, "EdgeDecision": edge.Decision{}, "EdgeClaim": edge.Claim{}, "EdgeExplanation": edge.Explanation{},
		"EdgeSnapshot": edge.Snapshot{}, "EdgeEvent": edge.Event{},
	})
}

func checkNames(t *testing.T, file string, types map[string]any) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "..", "web", "src", file))
	must.Succeed(t, err)
	found := regexp.MustCompile(`(?s)export interface (\w+)(?: extends \w+)? \{\n(.*?)\n\}`).FindAllStringSubmatch(string(source), -1)
	if len(found) != len(types) {
		t.Errorf("%d interfaces, want %d", len(found), len(types))
	}
	for _, one := range found {
		value, known := types[one[1]]
		if !known {
			t.Errorf("no wire type is %s", one[1])
			continue
		}
		names := map[string]bool{}
		for _, field := range reflect.VisibleFields(reflect.TypeOf(value)) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names[name] = true
		}
		for _, field := range regexp.MustCompile(`(?m)^  (\w+)\??: `).FindAllStringSubmatch(one[2], -1) {
			if !names[field[1]] {
				t.Errorf("%s has no %s", one[1], field[1])
			}
		}
	}
}
