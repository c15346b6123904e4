package runtime

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/weir-project/weir/test/must"
)

// endless is an engine whose answers have a start and then the same again and again, for a client that
// takes 1 MiB.
func endless(t *testing.T, start, again string) (api *client.Client, sent *atomic.Int64) {
	t.Helper()
	sent = new(atomic.Int64)
	more := strings.Repeat(again, 64<<10/len(again))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.51")
		if strings.HasSuffix(r.URL.Path, "/_ping") {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		for _, err := io.WriteString(w, start); err == nil; {
			var n int
			n, err = io.WriteString(w, more)
			sent.Add(int64(n))
		}
	}))
	socket := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must.Succeed(t, err)
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	api, err = newClient(socket, 1<<20)
	must.Succeed(t, err)
	return api, sent
}

// TestEndlessAnswers: an engine whose answers do not end takes little of weir-edge's memory and time.
func TestEndlessAnswers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	list := func(api *client.Client) error {
		_, err := api.TaskList(ctx, client.TaskListOptions{})
		return err
	}
	inspect := func(api *client.Client) error {
		_, err := api.ContainerInspect(ctx, "logs", client.ContainerInspectOptions{})
		return err
	}
	watch := func(api *client.Client) error {
		events := api.Events(ctx, client.EventsListOptions{})
		for {
			select {
			case <-events.Messages:
			case err := <-events.Err:
				return err
			}
		}
	}
	pull := func(api *client.Client) error {
		progress, err := api.ImagePull(ctx, "image", client.ImagePullOptions{})
		must.Succeed(t, err)
		defer progress.Close()
		for _, err := range progress.JSONMessages(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for name, test := range map[string]struct {
		start, again string
		ask          func(*client.Client) error
		says         string
	}{
		"a list of short elements":   {`[{}`, ",{}", list, "its lists have more than 4096 elements"},
		"a list of long elements":    {`[{}`, `,{"ID":"` + strings.Repeat("x", 4000) + `"}`, list, "it has more than 1 MiB"},
		"a list of one element":      {`[{"ID":"`, "x", list, "it has more than 1 MiB"},
		"an object":                  {`{"Id":"`, "x", inspect, "it has more than 1 MiB"},
		"a list in an object":        {`{"Mounts":[{}`, ",{}", inspect, "its lists have more than 4096 elements"},
		"an object with many labels": {`{"Config":{"Labels":{"":""`, `,"":""`, inspect, "its objects have more than 32768 members"},
		"an event":                   {`{}{"Type":"`, "x", watch, "it has more than 1 MiB"},
		"a line of a pull":           {`{}{"status":"`, "x", pull, "it has more than 1 MiB"},
	} {
		api, sent := endless(t, test.start, test.again)
		if err := test.ask(api); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
		if got := sent.Load(); got > 4<<20 { // what sockets hold as well
			t.Errorf("%s: %d bytes were read", name, got)
		}
	}
}

// TestEndlessStreams: streams go on as long as each of their objects has an end, and of a log the
// beginning is read.
func TestEndlessStreams(t *testing.T) {
	event := `{"Type":"container","Action":"` + strings.Repeat("x", 8000) + `"}`
	api, _ := endless(t, "", event)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events := api.Events(ctx, client.EventsListOptions{})
	for count := 0; count*len(event) < 4<<20; count++ {
		select {
		case <-events.Messages:
		case err := <-events.Err:
			t.Fatalf("a stream of events ended after %d: %v", count, err)
		}
	}
	api, _ = endless(t, "", "\x02\x00\x00\x00\x00\x00\x00\x04[[[[")
	if said, err := LastWords(ctx, api, "c"); err != nil || !strings.HasPrefix(said, "[[[[") {
		t.Errorf("last words %.40q, %v", said, err)
	}
}
