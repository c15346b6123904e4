package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
)

// Who follows an agent over its restart misses nothing that is kept, and learns that
// something may be lost.
func TestFollowOverARestart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "weir.sock")
	start := func(events *stats.Events) (stop func()) {
		t.Helper()
		listener, err := httpapi.Listen("weir agent", socket, "")
		if err != nil {
			t.Fatal(err)
		}
		s := New(&fakeAgent{events: events}, slog.New(slog.DiscardHandler)).Socket(access.Admin)
		done := make(chan error, 1)
		go func() { done <- s.Serve(listener) }()
		return func() {
			s.Close()
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("serve: %v", err)
			}
		}
	}
	first := stats.NewEvents(time.Now())
	first.Add(v1.Event{Kind: v1.EventStarted, Container: "a"})
	stop := start(first)

	got := make(chan string, 100)
	enough := errors.New("enough")
	ended := make(chan error, 1)
	go func() {
		ended <- client.Unix(socket).Follow(t.Context(), 0, client.Follower{
			Reset: func() error { got <- "reset"; return nil },
			Event: func(e v1.Event) error {
				got <- fmt.Sprint(e.Kind, " ", e.Container)
				if e.Container == "last" {
					return enough
				}
				return nil
			},
			Lost: func(err error) { got <- "lost" },
		})
	}()
	wait := func(want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case g := <-got:
				if g != w {
					t.Errorf("%q, want %q", g, w)
				}
			case <-time.After(15 * time.Second):
				t.Fatalf("no %q", w)
			}
		}
	}
	wait("started a")
	first.Add(v1.Event{Kind: v1.EventStopped, Container: "a"})
	wait("stopped a")

	// The network breaks off: what happened meanwhile comes later.
	stop()
	wait("lost")
	first.Add(v1.Event{Kind: v1.EventStarted, Container: "b"})
	stop = start(first)
	var seen []string
	for len(seen) == 0 || seen[len(seen)-1] == "lost" {
		seen = append(seen, <-got)
	}
	if last := seen[len(seen)-1]; last != "started b" || slices.Contains(seen, "reset") {
		t.Errorf("after a break: %q", strings.Join(seen, ", "))
	}

	// Another agent knows nothing of what was before it.
	stop()
	second := stats.NewEvents(time.Now().Add(time.Hour))
	second.Add(v1.Event{Kind: v1.EventAgentStarted})
	defer start(second)()
	for {
		if g := <-got; g != "lost" {
			if g != "reset" {
				t.Errorf("after a restart: %q, want a reset", g)
			}
			break
		}
	}
	wait("agent_started ")
	second.Add(v1.Event{Kind: v1.EventStarted, Container: "last"})
	wait("started last")
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("ended by %v", err)
	}
}

// The client's ways to change only what was seen.
func TestClientChangesWhatItSaw(t *testing.T) {
	_, c := serveAgent(t)
	policy, etag, err := c.Policy(t.Context(), "web")
	if err != nil || policy.Name != "web" || etag == "" {
		t.Fatalf("%+v, %q, %v", policy, etag, err)
	}
	if _, err := c.SetIf(t.Context(), "web", etag, v1.PolicyChange{}); err != nil {
		t.Errorf("the first: %v", err)
	}
	var said *client.Error
	if _, err := c.SetIf(t.Context(), "web", etag, v1.PolicyChange{}); !errors.As(err, &said) || said.Status != http.StatusPreconditionFailed {
		t.Errorf("the second: %v", err)
	}
	if _, err := c.ResetIf(t.Context(), "web", etag); !errors.As(err, &said) || said.Status != http.StatusPreconditionFailed {
		t.Errorf("the third: %v", err)
	}
	if p, err := c.Preview(t.Context(), "web", v1.PolicyChange{}); err != nil || p.After.Weight != 300 {
		t.Errorf("%+v, %v", p, err)
	}
}
