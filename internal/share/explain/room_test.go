package explain

import (
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// TestRoom: of a refused minimum that no other program places, the other node with room is named, with a
// command whose words a shell does not change, with exactly the refused minimum.
func TestRoom(t *testing.T) {
	refused := v1.Container{Name: "cam", Runtime: "docker", Direction: v1.Direction{Policy: v1.Policy{MinBPS: 30e6}, Shares: []v1.Share{{Controlled: true}}}}
	with := func(change func(*v1.Container)) v1.Container {
		c := refused
		change(&c)
		return c
	}
	const noRoom = "no other node of weir-edge has room for it"
	room := v1.Room{Node: "c", FreeBPS: 40e6}
	for _, tc := range []struct {
		c     v1.Container
		image string
		room  v1.Room
		says  string
	}{
		{refused, "shop/cam:1", room, "node c has room for it, 40mbit: on a manager docker service create --name cam --label weir-edge.manage=true --container-label weir.min=30mbit shop/cam:1, with the options that it was started with (a volume of this host stays here, and keeps it from moving), and then docker rm -f cam here; weir-edge moves"},
		{refused, "", room, "node c has room for it, 40mbit: on a manager docker service create --name cam --label weir-edge.manage=true --container-label weir.min=30mbit IMAGE, with"},
		{refused, "sha256:" + strings.Repeat("0a", 32), room, "node c has room for it, 40mbit: on a manager docker service create --name cam --label weir-edge.manage=true --container-label weir.min=30mbit IMAGE, with"},
		{refused, "cam; reboot", room, "node c has room for it, 40mbit: on a manager docker service create --name cam --label weir-edge.manage=true --container-label weir.min=30mbit IMAGE, with"},
		{with(func(c *v1.Container) { c.Policy.MinBPS = 12_345_678 }), "cam", v1.Room{Node: "a", FreeBPS: 12_399_999},
			"node a has room for it, 12.3mbit: on a manager docker service create --name cam --label weir-edge.manage=true --container-label weir.min=12345678bit cam, with"},
		{refused, "cam", v1.Room{Node: "a", FreeBPS: 30e6 - 1}, noRoom},
		{refused, "cam", v1.Room{}, noRoom},
		{refused, "cam", v1.Room{Node: "-d", FreeBPS: 95e6}, noRoom},
		{refused, "cam", v1.Room{Node: "b; reboot", FreeBPS: 95e6}, noRoom},
		{refused, "cam", v1.Room{Node: strings.Repeat("b", 300), FreeBPS: 95e6}, noRoom},
		{with(func(c *v1.Container) { c.Name = "cam;x" }), "cam", room, ""},
		{with(func(c *v1.Container) { c.Shares = []v1.Share{{Controlled: true, AdmittedBPS: 30e6}} }), "cam", room, ""},
		{with(func(c *v1.Container) { c.Shares = []v1.Share{{}} }), "cam", room, ""},
		{with(func(c *v1.Container) { c.Groups = []string{"shop"} }), "cam", room, ""},
		{with(func(c *v1.Container) { c.Runtime = "podman" }), "cam", room, ""},
		{with(func(c *v1.Container) { c.Name = "edgeproxy-shop" }), "cam", room, ""},
	} {
		if got := Room(&tc.c, tc.image, tc.room); (got == "") != (tc.says == "") || !strings.HasPrefix(got, tc.says) {
			t.Errorf("%+v of %q beside %+v: %q, want %q", tc.c, tc.image, tc.room, got, tc.says)
		}
	}
}

func TestNote(t *testing.T) {
	e := v1.Explanation{Policy: []v1.ExplainedValue{{Name: "weight"}, {Name: "min", Notes: []string{"refused"}}}}
	Note(&e, "min", "node c has room")
	Note(&e, "dscp", "not there")
	if strings.Join(e.Policy[1].Notes, ", ") != "refused, node c has room" || len(e.Policy[0].Notes) > 0 {
		t.Errorf("%+v", e.Policy)
	}
}
