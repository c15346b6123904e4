package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
)

// refuser is an agent that refuses the minimum of cam, and not that of web.
type refuser struct{ *fakeAgent }

func (a refuser) Latest(context.Context) (*stats.Snapshot, error) {
	s := &stats.Snapshot{Places: []stats.Place{{Image: "shop/cam:1"}, {Image: "shop/web:1"}}}
	shares := []v1.Share{{Controlled: true}}
	s.Containers = []v1.Container{
		{ID: "1", Name: "cam", Runtime: "docker", State: v1.StateRejected, Direction: v1.Direction{Policy: v1.Policy{MinBPS: 30e6}, Shares: shares}},
		{ID: "2", Name: "web", Runtime: "docker", State: v1.StateOK, Direction: v1.Direction{Shares: shares}},
	}
	return s, nil
}

// TestRoomElsewhere: the node that weir-edge named last is in the explanation of a refused minimum, until weir-edge has
// been silent for too long. Of two weir-edge the last message counts, and the end of one removes nothing.
func TestRoomElsewhere(t *testing.T) {
	api := New(refuser{&fakeAgent{events: stats.NewEvents(time.Now())}}, slog.New(slog.DiscardHandler))
	client := newTestClient(serve(t, api.Socket(access.Admin)))
	explained := func(name string) string {
		t.Helper()
		e, err := client.Explain(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range e.Policy {
			if v.Name == "min" {
				return strings.Join(v.Notes, "; ")
			}
		}
		return ""
	}
	want := func(when, words string) {
		t.Helper()
		if got := explained("cam"); (words == "") == strings.Contains(got, "weir-edge") || !strings.Contains(got, words) {
			t.Errorf("%s: %q, want %q", when, got, words)
		}
		if got := explained("web"); got != "" {
			t.Errorf("%s, of what is not refused: %q", when, got)
		}
	}
	say := func(node string, bps uint64) {
		t.Helper()
		if err := client.SetRoom(t.Context(), v1.Room{Node: node, FreeBPS: bps}); err != nil {
			t.Fatal(err)
		}
	}
	want("weir-edge has said nothing", "")
	say("c", 40e6)
	want("said", "node c has room for it, 40mbit: on a manager docker service create --name cam --label weir-edge.manage=true --container-label weir.min=30mbit shop/cam:1")
	say("d", 90e6)
	want("another weir-edge speaks", "node d has room for it, 90mbit")
	say("", 0)
	want("no room any more", "no other node of weir-edge has room for it")
	say("c", 40e6)
	api.room.Load().at = time.Now().Add(-v1.RoomSilence - time.Millisecond)
	want("weir-edge is silent", "")
	say("c", 40e6)
	want("it is back", "node c has room for it")
	for body, status := range map[string]int{`{"node": 1}`: 400, "": 400, `{"node": "` + strings.Repeat("c", maxBodyBytes) + `"}`: 413, `{"host": "c"}`: 400, "{} 1": 400, "{}": 200} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://weir/v1/room", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != status {
			t.Errorf("%.40q: %s", body, answer.Status)
		}
	}
	answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/room", strings.NewReader("{}"))
	api.ServeHTTP(answer, request.WithContext(access.WithCaller(t.Context(), access.Caller{Name: "a reader", Role: access.Read})))
	if answer.Code != http.StatusForbidden {
		t.Errorf("a reader says it: %d", answer.Code)
	}
}

// TestFollowRefusals: each refusal of a minimum is followed by one event that names the node with room, also
// when weir-edge says so later; refusals of other things and of containers that have ended are not.
func TestFollowRefusals(t *testing.T) {
	log := &strings.Builder{}
	events := stats.NewEvents(time.Now())
	api := New(refuser{&fakeAgent{events: events}}, slog.New(slog.NewTextHandler(log, nil)))
	client := newTestClient(serve(t, api.Socket(access.Admin)))
	say := func(node string, bps uint64) {
		t.Helper()
		if err := client.SetRoom(t.Context(), v1.Room{Node: node, FreeBPS: bps}); err != nil {
			t.Fatal(err)
		}
	}
	refuse := func(id string) { events.Add(v1.Event{Kind: v1.EventRefused, ID: id, Runtime: "docker"}) }
	await := func(n int) (list []v1.Event) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if list = events.Newest(10, func(e v1.Event) bool { return e.Kind == v1.EventRoomElsewhere }); len(list) == n {
				return list
			}
		}
		t.Fatalf("%d events: %+v", n, list)
		return nil
	}
	for _, id := range []string{"1", "2", "3"} {
		refuse(id)
	}
	events.Add(v1.Event{Kind: v1.EventDegraded, ID: "1", Runtime: "docker"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { api.FollowRefusals(ctx); close(ended) }()
	say("c", 40e6)
	await(1)
	say("d", 90e6) // that is no refusal
	refuse("1")
	list := await(2) // the newest first
	cancel()
	<-ended
	for i, words := range []string{"node d has room for it, 90mbit: ", "node c has room for it, 40mbit: "} {
		if e := list[i]; e.ID != "1" || e.Container != "cam" || !strings.HasPrefix(e.Message, words) || strings.Count(log.String(), words) != 1 {
			t.Errorf("%+v, want %q; the log has %q", e, words, log)
		}
	}
}
