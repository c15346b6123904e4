package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/test/must"
)

// fakeEdge answers as weir-edge in a directory, with the nodes that the function returns.
func fakeEdge(t *testing.T, dir string, nodes func() []edge.Node) {
	t.Helper()
	fakeDaemon(t, filepath.Join(dir, "edge.sock"), func() any { return nodes() })
}

// fakeDaemon answers every request to a socket with what the function returns.
func fakeDaemon(t *testing.T, socket string, answer func() any) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	must.Succeed(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(answer())
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
}

// TestRoomElsewhere: of a refused minimum that no other program places, the other node with the most room
// is named, with a command that a shell takes as it is meant and that asks for the very minimum.
func TestRoomElsewhere(t *testing.T) {
	dir := t.TempDir()
	var nodes []edge.Node
	fakeEdge(t, dir, func() []edge.Node { return nodes })
	refused := v1.Container{Name: "cam", Runtime: "docker", Direction: v1.Direction{Policy: v1.Policy{MinBPS: 30e6}, Shares: []v1.Share{{Controlled: true}}}}
	with := func(change func(*v1.Container)) v1.Container {
		c := refused
		change(&c)
		return c
	}
	for _, tc := range []struct {
		socket string
		c      v1.Container
		nodes  []edge.Node
		says   string
	}{
		{"weir.sock", refused, []edge.Node{{Name: "a", State: "ready", FreeBPS: 8e6}, {Name: "b", State: "ready", FreeBPS: 31e6}, {Name: "c", State: "ready", FreeBPS: 40e6}, {Name: "d", State: "stale", FreeBPS: 90e6}, {Name: "here", State: "ready", FreeBPS: 95e6}},
			"node c has room for it, 40mbit: docker service create --name cam --label weir-edge.manage=true --container-label weir.min=30mbit IMAGE, with"},
		{"weir.sock", refused, []edge.Node{{Name: "a", State: "ready", FreeBPS: 8e6}, {Name: "here", State: "ready", FreeBPS: 95e6}}, "no other node of weir-edge has room for it"},
		{"weir.sock", with(func(c *v1.Container) { c.Policy.MinBPS = 12_345_678 }), []edge.Node{{Name: "a", State: "ready", FreeBPS: 12_399_999}, {Name: "here"}},
			"node a has room for it, 12.3mbit: docker service create --name cam --label weir-edge.manage=true --container-label weir.min=12345678bit IMAGE, with"},
		{"weir.sock", refused, []edge.Node{{Name: "$(reboot)", State: "ready", FreeBPS: 95e6}, {Name: "b", State: "ready", FreeBPS: 31e6}}, "node b has room for it"},
		{"weir.sock", refused, []edge.Node{{Name: "-d", State: "ready", FreeBPS: 95e6}, {Name: "b; reboot", State: "ready", FreeBPS: 95e6}}, "no other node of weir-edge has room for it"},
		{"weir.sock", with(func(c *v1.Container) { c.Name = "cam;x" }), []edge.Node{{Name: "a", State: "ready", FreeBPS: 95e6}, {Name: "here"}}, ""},
		{"weir.sock", refused, []edge.Node{{Name: "engine", State: "ready", FreeBPS: 95e6}}, ""},
		{"weir.sock", with(func(c *v1.Container) { c.Shares = []v1.Share{{Controlled: true, AdmittedBPS: 30e6}} }), nil, ""},
		{"weir.sock", with(func(c *v1.Container) { c.Groups = []string{"shop"} }), nil, ""},
		{"weir.sock", with(func(c *v1.Container) { c.Name = "edgeproxy-shop" }), nil, ""},
		{"none/weir.sock", refused, nil, ""},
	} {
		nodes = tc.nodes
		if got := roomElsewhere(t.Context(), filepath.Join(dir, tc.socket), "here", &tc.c); (got == "") != (tc.says == "") || !strings.HasPrefix(got, tc.says) {
			t.Errorf("%+v: %q, want %q", tc.c, got, tc.says)
		}
	}
}

// TestTellRoomElsewhere: each refusal of a minimum is followed by one event that names the node with room, and
// refusals of other things and of containers that have ended are not.
func TestTellRoomElsewhere(t *testing.T) {
	dir := t.TempDir()
	fakeEdge(t, dir, func() []edge.Node { return []edge.Node{{Name: "c", State: "ready", FreeBPS: 40e6}, {Name: "d"}} })
	cam := v1.Container{ID: "1", Name: "cam", Runtime: "docker", Direction: v1.Direction{Policy: v1.Policy{MinBPS: 30e6}, Shares: []v1.Share{{Controlled: true}}}}
	web := v1.Container{ID: "2", Name: "web", Runtime: "docker", Direction: v1.Direction{Shares: []v1.Share{{Controlled: true}}}}
	latest := func(context.Context) (*stats.Snapshot, error) {
		s := &stats.Snapshot{}
		s.Containers = []v1.Container{cam, web}
		return s, nil
	}
	ring, log, ended := stats.NewEvents(time.Now()), &strings.Builder{}, make(chan struct{})
	for _, id := range []string{"1", "2", "3", "1"} {
		ring.Add(v1.Event{Kind: v1.EventRefused, ID: id, Runtime: "docker", Container: "cam"})
	}
	ring.Add(v1.Event{Kind: v1.EventDegraded, ID: "1", Runtime: "docker"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		tellRoomElsewhere(ctx, ring, latest, filepath.Join(dir, "weir.sock"), slog.New(slog.NewTextHandler(log, nil)))
		close(ended)
	}()
	told := func() []v1.Event {
		return ring.Newest(10, func(e v1.Event) bool { return e.Kind == v1.EventRoomElsewhere })
	}
	for deadline := time.Now().Add(20 * time.Second); len(told()) < 2 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	cancel()
	<-ended
	list := told()
	if len(list) != 2 || list[0].ID != "1" || !strings.HasPrefix(list[0].Message, "node c has room for it, 40mbit: docker service create --name cam") {
		t.Errorf("%+v", list)
	}
	if strings.Count(log.String(), "node c has room for it") != 2 {
		t.Errorf("the log has %q", log)
	}
}
