package cli

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/test/must"
)

// TestRoomElsewhere: of a refused minimum that no other program places, the other node with the most room
// is named, with a command that a shell takes as it is meant and that asks for the very minimum.
func TestRoomElsewhere(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "edge.sock"))
	must.Succeed(t, err)
	var nodes []edge.Node
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(nodes)
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
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
			"node c has room for it, 40mbit: docker service create --name cam --constraint node.hostname==c --container-label weir.min=30mbit IMAGE, with"},
		{"weir.sock", refused, []edge.Node{{Name: "a", State: "ready", FreeBPS: 8e6}, {Name: "here", State: "ready", FreeBPS: 95e6}}, "no other node of weir-edge has room for it"},
		{"weir.sock", with(func(c *v1.Container) { c.Policy.MinBPS = 12_345_678 }), []edge.Node{{Name: "a", State: "ready", FreeBPS: 12_399_999}, {Name: "here"}},
			"node a has room for it, 12.3mbit: docker service create --name cam --constraint node.hostname==a --container-label weir.min=12345678bit IMAGE, with"},
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
