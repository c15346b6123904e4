package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/front/access"
)

// Requests for all flows whose responses are not read take memory for two of them, and delay
// neither other roles nor requests for a few flows.
func TestLargeResponses(t *testing.T) {
	api := newAPI(&fakeAgent{}, slog.New(slog.DiscardHandler), 200*time.Millisecond)
	running, read := make(chan struct{}, 100), make(chan struct{})
	handler := api.limitLarge(manyFlows, func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-read
	})
	ask := func(role access.Role, query string) <-chan int {
		status := make(chan int, 1)
		r := httptest.NewRequest(http.MethodGet, "/v1/flows"+query, nil)
		go func() {
			w := httptest.NewRecorder()
			handler(w, r.WithContext(access.WithCaller(r.Context(), access.Caller{Role: role})))
			status <- w.Code
		}()
		return status
	}
	begins := func(what string) {
		t.Helper()
		select {
		case <-running:
		case <-time.After(patience):
			t.Fatalf("%s is held up", what)
		}
	}
	var first []<-chan int
	for range maxLarge {
		first = append(first, ask(access.Read, "?limit=0"))
		begins("the first who ask for much")
	}
	for _, query := range []string{"", "?limit=0", "?limit=100", "?container=web&limit=101", "?container=web&limit=0"} {
		if status := <-ask(access.Read, query); status != http.StatusServiceUnavailable {
			t.Errorf("one more, for %q: %d", query, status)
		}
	}
	if len(running) > 0 {
		t.Errorf("%d more were begun", len(running))
	}
	ask(access.Root, "?limit=0")
	begins("root")
	ask(access.Admin, "")
	begins("an administrator")
	ask(access.Read, "?container=web&limit=100")
	begins("who asks for a few")
	waits := ask(access.Admin, "")
	begins("another administrator")
	close(read)
	for _, waits := range append(first, waits) {
		if status := <-waits; status != http.StatusOK {
			t.Errorf("who waited to be read: %d", status)
		}
	}
	if status := <-ask(access.Read, ""); status != http.StatusOK {
		t.Errorf("afterwards: %d", status)
	}
}
