package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/loop"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/test/must"
)

// fakeAgent remembers what it was asked and answers err, or something to tell
// apart.
type fakeAgent struct {
	err     error
	called  string // the last call
	events  *stats.Events
	change  v1.PolicyChange
	left    time.Duration // until the call's deadline
	uplinks []v1.Uplink
	weight  uint32 // of web: how often it was set

	learning sync.Mutex // several connections report
	learned  []discovery.Event
}

// heard returns the first count events that the agent has learned.
func (a *fakeAgent) heard(count int) []discovery.Event {
	a.learning.Lock()
	defer a.learning.Unlock()
	return a.learned[:count]
}

func (a *fakeAgent) call(ctx context.Context, format string, args ...any) {
	a.called = fmt.Sprintf(format, args...)
	if deadline, ok := ctx.Deadline(); ok {
		a.left = time.Until(deadline)
	}
}

func (a *fakeAgent) Snapshot(ctx context.Context) (v1.Snapshot, error) {
	a.call(ctx, "snapshot")
	return v1.Snapshot{
		Status:     v1.Status{Uplink: "up0", RateBPS: 100e6, Uplinks: a.uplinks},
		Containers: []v1.Container{{Name: "web", Direction: v1.Direction{RateBPS: 1 << 40, Policy: v1.Policy{Weight: a.weight}}}, {Name: "host"}},
	}, a.err
}

func (a *fakeAgent) Latest(ctx context.Context) (*stats.Snapshot, error) {
	seen, err := a.Snapshot(ctx)
	return &stats.Snapshot{Snapshot: seen, Places: make([]stats.Place, len(seen.Containers))}, err
}

func (a *fakeAgent) Events() *stats.Events { return a.events }

func (a *fakeAgent) Flows(ctx context.Context, name string, most int) ([]v1.Flow, error) {
	a.call(ctx, "flows %q %d", name, most)
	return []v1.Flow{{Container: "web", Application: "VOIP"}}, a.err
}

func (a *fakeAgent) History() *stats.History { return new(stats.History) }

func (a *fakeAgent) Set(ctx context.Context, name string, change v1.PolicyChange, conditions ...loop.Condition) (v1.Container, error) {
	if err := a.meets(name, conditions); err != nil {
		return v1.Container{}, err
	}
	a.call(ctx, "set %s", name)
	a.change = change
	a.weight++
	return v1.Container{Name: name, State: v1.StateOK, Direction: v1.Direction{Policy: v1.Policy{Weight: a.weight}}}, a.err
}

func (a *fakeAgent) Reset(ctx context.Context, name string, conditions ...loop.Condition) (v1.Container, error) {
	if err := a.meets(name, conditions); err != nil {
		return v1.Container{}, err
	}
	a.call(ctx, "reset %s", name)
	a.weight = 0
	return v1.Container{Name: name}, a.err
}

// meets asks the conditions for a change of a container, as it is now.
func (a *fakeAgent) meets(name string, conditions []loop.Condition) error {
	for _, condition := range conditions {
		if err := condition(v1.Container{Name: name, Direction: v1.Direction{Policy: v1.Policy{Weight: a.weight}}}); err != nil {
			return err
		}
	}
	return nil
}

func (a *fakeAgent) Try(ctx context.Context, name string, change v1.PolicyChange) (v1.Policy, error) {
	a.call(ctx, "try %s", name)
	a.change = change
	return v1.Policy{Weight: 300}, a.err
}

func (a *fakeAgent) Reload(ctx context.Context) (v1.Reloaded, error) {
	a.call(ctx, "reload")
	return v1.Reloaded{Changes: []string{"eth0: a new uplink"}}, a.err
}

func (a *fakeAgent) Learn(ctx context.Context, event discovery.Event) (v1.PodState, error) {
	a.learning.Lock()
	defer a.learning.Unlock()
	a.call(ctx, "learn")
	a.learned = append(a.learned, event)
	return v1.PodState{State: v1.StateOK}, a.err
}

func (a *fakeAgent) Down(ctx context.Context) error {
	a.call(ctx, "down")
	return a.err
}

// serve puts handler on a Unix socket and returns its path.
func serve(t *testing.T, s *http.Server) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "weir.sock")
	listener, err := httpapi.Listen("weir agent", socket, "")
	must.Succeed(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return socket
}

// testClient also makes requests by hand.
type testClient struct {
	*client.Client
	http *http.Client
}

func newTestClient(socket string) *testClient {
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) }
	return &testClient{client.Unix(socket), &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

func serveAgent(t *testing.T) (*fakeAgent, *testClient) {
	t.Helper()
	a := &fakeAgent{events: stats.NewEvents(time.Now())}
	return a, newTestClient(serve(t, New(a, slog.New(slog.DiscardHandler)).Socket(access.Admin)))
}

func ptr(s string) *string { return &s }

func TestClientAndServer(t *testing.T) {
	a, client := serveAgent(t)
	ctx := t.Context()
	called := func(want string) {
		t.Helper()
		if a.called != want {
			t.Errorf("the agent was asked for %q, want %q", a.called, want)
		}
		if a.left <= 0 || a.left > requestTimeout {
			t.Errorf("%s: %s to answer", want, a.left)
		}
	}
	list, err := client.Containers(ctx)
	if err != nil || len(list) != 2 || list[0].RateBPS != 1<<40 {
		t.Errorf("containers: %+v, %v", list, err)
	}
	called("snapshot")
	status, err := client.Status(ctx)
	if err != nil || status.Uplink != "up0" || status.RateBPS != 100e6 {
		t.Errorf("status: %+v, %v", status, err)
	}
	called("snapshot")
	seen, err := client.Snapshot(ctx)
	if err != nil || len(seen.Containers) != 2 || seen.Status.Uplink != "up0" {
		t.Errorf("snapshot: %+v, %v", seen, err)
	}
	called("snapshot")
	if err := client.Down(ctx); err != nil {
		t.Errorf("down: %v", err)
	}
	called("down")
	if done, err := client.Reload(ctx); err != nil || len(done.Changes) != 1 {
		t.Errorf("reload: %v, %v", done, err)
	}
	called("reload")

	change := v1.PolicyChange{Weight: ptr("300"), Max: ptr("none"), Class: ptr("")}
	for _, name := range []string{"web", "a/b", "with space", "ünïcode", "100%", "a?b=c#d", "%2e%2e", "policy", "..."} {
		container, err := client.Set(ctx, name, change)
		if err != nil || container.Name != name {
			t.Errorf("set %q: %+v, %v", name, container, err)
		}
		called("set " + name)
		if !reflect.DeepEqual(a.change, change) {
			t.Errorf("set %q: %+v arrived", name, a.change)
		}
		if _, err = client.Reset(ctx, name); err != nil {
			t.Errorf("reset %q: %v", name, err)
		}
		called("reset " + name)
	}
}

// rawRequest makes one request by hand.
func rawRequest(t *testing.T, client *testClient, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://weir"+path, strings.NewReader(body))
	must.Succeed(t, err)
	response, err := client.http.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(data)
}

// request makes one request by hand, and reads what is wrong with it.
func request(t *testing.T, client *testClient, method, path, body string) (int, v1.Error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://weir"+path, strings.NewReader(body))
	must.Succeed(t, err)
	response, err := client.http.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	var problem v1.Error
	data, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	kind := "application/json"
	if response.StatusCode != http.StatusOK {
		kind = "application/problem+json"
	}
	if got := response.Header.Get("Content-Type"); got != kind {
		t.Errorf("%s %s: content type %q", method, path, got)
	}
	err = json.Unmarshal(data, &problem)
	if response.StatusCode != http.StatusOK && (err != nil || problem.Message == "" || problem.Detail != problem.Message ||
		problem.Status != response.StatusCode || problem.Title != http.StatusText(response.StatusCode)) {
		t.Errorf("%s %s: no reason in %q", method, path, data)
	}
	return response.StatusCode, problem
}

func TestBadRequests(t *testing.T) {
	a, client := serveAgent(t)
	const set = "/v1/containers/web/policy"
	for _, tc := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"PATCH", set, "", 400, "read the policy"},
		{"PATCH", set, "weight=3", 400, "invalid character"},
		{"PATCH", set, `{"weight": 3}`, 400, `weight is a number; write text, as in labels, such as {"weight": "300"}`},
		{"PATCH", set, `{"wieght": "3"}`, 400, `unknown field "wieght"`},
		{"PATCH", set, `{"weight": "3"`, 400, "unexpected EOF"},
		{"PATCH", set, `{"weight": "3"} {"min": "5mbit"}`, 400, "data after the JSON object"},
		{"POST", "/v1/room", `null`, 400, "the request is null, not a JSON object"},
		{"POST", "/v1/room", `{"free_bps": 10000000000000000}`, 400, "is no rate: at most"},
		{"PATCH", set, "null", 400, "write an object"},
		{"PATCH", set, `[]`, 400, "cannot unmarshal array"},
		{"PATCH", set, `{"weight": "` + strings.Repeat("3", maxBodyBytes) + `"}`, 413, "more than 65536 bytes"},
		{"PATCH", set, strings.Repeat(" ", maxBodyBytes+1) + `{"weight": "3"}`, 413, "more than 65536 bytes"},
		{"GET", set + "/", "", 404, "there is no GET " + set},
		{"PUT", set, "{}", 404, "there is no PUT"},
		{"POST", "/v1/containers", "{}", 404, "there is no POST"},
		{"GET", "/v1/down", "", 404, "there is no GET"},
		{"GET", "/", "", 404, "there is no GET /"},
		{"GET", "/v2/status", "", 404, "there is no GET /v2/status"},
		{"GET", "/v1/containers/web", "", 404, "there is no"},
	} {
		status, problem := request(t, client, tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(problem.Message, tc.says) {
			t.Errorf("%s %s %.40q: %d %q, want %d", tc.method, tc.path, tc.body, status, problem.Message, tc.status)
		}
	}
	if a.called != "" {
		t.Errorf("the agent was asked for %q", a.called)
	}
	if status, _ := request(t, client, "PATCH", set, "{}\n"); status != 200 || a.called != "set web" {
		t.Errorf("an empty change: %d, %q", status, a.called)
	}
}

func TestErrors(t *testing.T) {
	a, client := serveAgent(t)
	for _, tc := range []struct {
		err    error
		status int
	}{
		{fmt.Errorf("%w: web", loop.ErrUnknown), 404},
		{fmt.Errorf("%w: min", loop.ErrRefused), 409},
		{errors.Join(fmt.Errorf("%w: web", loop.ErrAmbiguous)), 409},
		{fmt.Errorf("agent is busy or stopping: try again (%w)", context.DeadlineExceeded), 503},
		{errors.New("no"), 500},
	} {
		a.err = tc.err
		for _, r := range [][2]string{
			{"GET", "/v1/status"}, {"GET", "/v1/containers"}, {"POST", "/v1/down"},
			{"PATCH", "/v1/containers/web/policy"}, {"DELETE", "/v1/containers/web/policy"},
		} {
			if status, problem := request(t, client, r[0], r[1], "{}"); status != tc.status || problem.Message != tc.err.Error() {
				t.Errorf("%s %s: %d %q, want %d %q", r[0], r[1], status, problem.Message, tc.status, tc.err)
			}
		}
		// And the user reads just that.
		if _, err := client.Reset(t.Context(), "web"); err == nil || err.Error() != tc.err.Error() {
			t.Errorf("the client says %v, want %v", err, tc.err)
		}
	}
}

// Events are read from the past, and as they happen.
func TestEvents(t *testing.T) {
	a, client := serveAgent(t)
	kinds := func(since uint64, follow bool) (kinds []string) {
		t.Helper()
		err := client.Events(t.Context(), since, follow, func(e v1.Event) error {
			kinds = append(kinds, fmt.Sprintf("%s %s%d", e.Kind, e.Container, e.Missed))
			return nil
		})
		if err != nil {
			t.Errorf("events: %v", err)
		}
		return kinds
	}
	if got := kinds(0, false); got != nil {
		t.Errorf("before anything happened: %q", got)
	}
	a.events.Add(v1.Event{Kind: v1.EventStarted, Container: "a"}, v1.Event{Kind: v1.EventStopped, Container: "a"})
	if got, want := kinds(0, false), []string{"started a0", "stopped a0"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	last := a.events.Since(0).Events[1].Seq
	if seen, err := client.Snapshot(t.Context()); err != nil || seen.Status.LastEvent != last {
		t.Errorf("the snapshot's last event is %d, want %d (%v)", seen.Status.LastEvent, last, err)
	}
	if status, err := client.Status(t.Context()); err != nil || status.LastEvent != last {
		t.Errorf("the status's last event is %d, want %d (%v)", status.LastEvent, last, err)
	}
	first := a.events.Since(0).Events[0].Seq
	if got, want := kinds(first, false), []string{"stopped a0"}; !slices.Equal(got, want) {
		t.Errorf("events after the first %q, want %q", got, want)
	}

	// Whoever follows gets each as it happens, until the agent stops.
	arrived, ended := make(chan v1.Event, 5000), make(chan error)
	go func() {
		ended <- client.Events(t.Context(), first+1, true, func(e v1.Event) error { arrived <- e; return nil })
	}()
	for _, name := range []string{"b", "c"} {
		a.events.Add(v1.Event{Kind: v1.EventStarted, Container: name})
		if e := <-arrived; e.Container != name {
			t.Errorf("%+v arrived, want the start of %s", e, name)
		}
	}

	// Whoever gives up is let go.
	enough := errors.New("enough")
	if err := client.Events(t.Context(), 0, true, func(v1.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("given up: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := client.Events(ctx, 0, true, func(v1.Event) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}

	// Who comes too late is told how much there was.
	for range 2000 {
		a.events.Add(v1.Event{Kind: v1.EventStarted, Container: "d"})
	}
	got := kinds(first, false)
	if want := fmt.Sprintf("missed %d", 2003-len(got)+1); got[0] != want || len(got) < 1000 {
		t.Errorf("%d events, the first is %q, want %q", len(got), got[0], want)
	}
	a.events.Close()
	if err := <-ended; err != nil {
		t.Errorf("the agent stops: %v", err)
	}
	for _, query := range []string{"since=x", "since=-1", "follow=perhaps"} {
		status, problem := request(t, client, "GET", "/v1/events?"+query, "")
		if status != 400 || !strings.Contains(problem.Message, query[strings.Index(query, "=")+1:]) {
			t.Errorf("%s: %d %q", query, status, problem.Message)
		}
	}
}

// A reader that does not read holds nobody up.
func TestSlowReader(t *testing.T) {
	a, client := serveAgent(t)
	a.events.Add(v1.Event{Kind: v1.EventStarted})
	woken, asleep := make(chan struct{}), make(chan struct{}, 1)
	var seen, missed uint64
	ended := make(chan error)
	go func() {
		ended <- client.Events(t.Context(), 0, true, func(e v1.Event) error {
			if seen == 0 {
				asleep <- struct{}{}
				<-woken
			}
			if e.Kind == v1.EventMissed {
				missed += e.Missed
			} else {
				seen++
			}
			return nil
		})
	}()
	<-asleep
	const events = 20_000 // more than the socket's buffers and the ring hold
	long := strings.Repeat("x", 1000)
	for range events {
		a.events.Add(v1.Event{Kind: v1.EventDegraded, Message: long})
	}
	a.events.Close()
	close(woken)
	must.Succeed(t, <-ended)
	if missed == 0 || seen+missed != events+1 {
		t.Errorf("read %d and missed %d of %d", seen, missed, events+1)
	}
}
