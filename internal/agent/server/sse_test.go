package server

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/test/must"
)

// sent are server-sent events as "name id", from a request with Last-Event-ID.
func sent(ctx context.Context, t *testing.T, client *testClient, query, last string) *bufio.Scanner {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://weir/v1/events"+query, nil)
	must.Succeed(t, err)
	r.Header.Set("Accept", "text/html;q=0.1, text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	response, err := client.http.Do(r)
	must.Succeed(t, err)
	t.Cleanup(func() { response.Body.Close() })
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("content type %q", kind)
	}
	blocks := bufio.NewScanner(response.Body)
	blocks.Split(func(data []byte, end bool) (int, []byte, error) {
		if i := strings.Index(string(data), "\n\n"); i >= 0 {
			return i + 2, data[:i], nil
		}
		return 0, nil, nil
	})
	if !blocks.Scan() || blocks.Text() != "retry: 1000" {
		t.Errorf("begins with %q", blocks.Text())
	}
	return blocks
}

// next is the kind and the id of the next event.
func next(blocks *bufio.Scanner) string {
	if !blocks.Scan() {
		return "end"
	}
	var kind, id string
	for line := range strings.Lines(blocks.Text()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "event":
			kind = value
		case "id":
			id = value
		}
	}
	return strings.TrimSpace(kind + " " + id)
}

func TestServerSentEvents(t *testing.T) {
	a, client := serveAgent(t)
	a.events.Add(v1.Event{Kind: v1.EventAgentStarted}, v1.Event{Kind: v1.EventStarted, Container: "two\nlines"})
	first := a.events.Since(0).Events[0].Seq
	started, second := fmt.Sprintf("agent_started %d", first), fmt.Sprintf("started %d", first+1)
	for _, tc := range []struct {
		name, query, last string
		want              []string
	}{
		{"all", "?follow=false", "", []string{started, second, "end"}},
		{"after the first", "?follow=false", fmt.Sprint(first), []string{second, "end"}},
		{"the header wins", "?follow=false&since=0", fmt.Sprint(first), []string{second, "end"}},
		{"nothing is new", "?follow=false", fmt.Sprint(first + 1), []string{"end"}},
		{"of the future", "?follow=false", fmt.Sprint(first + 2), []string{"reset", started, second, "end"}},
		{"of an agent before", "?follow=false", "17", []string{"reset", started, second, "end"}},
		{"just before this agent", "?follow=false", fmt.Sprint(first - 1), []string{started, second, "end"}},
	} {
		blocks := sent(t.Context(), t, client, tc.query, tc.last)
		for _, want := range tc.want {
			if got := next(blocks); got != want {
				t.Errorf("%s: %q, want %q", tc.name, got, want)
			}
		}
	}
	// One who follows gets what happens, goes, and gets the rest.
	ctx, leave := context.WithCancel(t.Context())
	blocks := sent(ctx, t, client, "", fmt.Sprint(first+1))
	a.events.Add(v1.Event{Kind: v1.EventStopped})
	if got, want := next(blocks), fmt.Sprintf("stopped %d", first+2); got != want {
		t.Errorf("as it happens: %q, want %q", got, want)
	}
	leave()
	a.events.Add(v1.Event{Kind: v1.EventDegraded})
	if got, want := next(sent(t.Context(), t, client, "", fmt.Sprint(first+2))), fmt.Sprintf("degraded %d", first+3); got != want {
		t.Errorf("resumed: %q, want %q", got, want)
	}
	// Who was away for too long starts over.
	for range 2000 {
		a.events.Add(v1.Event{Kind: v1.EventStarted})
	}
	blocks = sent(t.Context(), t, client, "?follow=false", fmt.Sprint(first+3))
	if got, then := next(blocks), next(blocks); got != "reset" || !strings.HasPrefix(then, "started ") {
		t.Errorf("too late: %q, %q", got, then)
	}
	if status, problem := request(t, client, "GET", "/v1/events?since=1e3", ""); status != 400 || !strings.Contains(problem.Detail, "1e3") {
		t.Errorf("%d, %+v", status, problem)
	}
}

// A hundred streams that are not read hold up neither the agent nor other requests, and tell
// what was missed when they are read again.
func TestUnreadStreams(t *testing.T) {
	a := &fakeAgent{events: stats.NewEvents(time.Now())}
	a.events.Add(v1.Event{Kind: v1.EventStarted})
	socket := serve(t, New(a, slog.New(slog.DiscardHandler)).Socket(access.Admin))
	var streams []*bufio.Reader
	for range 100 {
		conn, err := net.Dial("unix", socket)
		must.Succeed(t, err)
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(conn, "GET /v1/events HTTP/1.1\r\nHost: weir\r\nAccept: text/event-stream\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		stream := bufio.NewReader(conn)
		if line, err := stream.ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
			t.Fatalf("%q, %v", line, err)
		}
		streams = append(streams, stream)
	}
	client := newTestClient(socket)
	batch := slices.Repeat([]v1.Event{{Kind: v1.EventDegraded, Message: strings.Repeat("x", 300)}}, 500)
	for range 10 {
		a.events.Add(batch...)
		if _, err := client.Status(t.Context()); err != nil {
			t.Errorf("somebody else: %v", err)
		}
	}
	a.events.Add(v1.Event{Kind: v1.EventStopped})
	var reading sync.WaitGroup // one that waited for the others to be read would be given up
	for i, stream := range streams {
		reading.Go(func() {
			var kinds []string
			for len(kinds) == 0 || kinds[len(kinds)-1] != "stopped" {
				line, err := stream.ReadString('\n')
				if err != nil {
					t.Errorf("stream %d ends: %v", i, err)
					return
				}
				if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "event: "); ok {
					kinds = append(kinds, kind)
				}
			}
			if len(kinds) > 4000 || !slices.Contains(kinds, "reset") {
				t.Errorf("stream %d has %d events and no reset", i, len(kinds))
			}
		})
	}
	reading.Wait()
}
