package loop

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
)

func TestMatch(t *testing.T) {
	one := func(id, name string, labels ...string) *container {
		c := &container{Container: attach.Container{Seen: discovery.Container{ID: id, Name: name, Labels: map[string]string{}}}}
		for _, label := range labels {
			key, value, _ := strings.Cut(label, "=")
			c.Seen.Labels[key] = value
		}
		return c
	}
	compose := func(service string) string { return policy.LabelComposeService + "=" + service }
	web := one("aaaa1111bbbb2222", "web")
	db := one("aaaa3333bbbb4444", "db")
	odd := one("cccc", "aaaa3333") // a name that looks like the start of somebody's ID
	twin, twin2 := one("dddd1111", "twin"), one("dddd2222", "twin")
	backup := one("eeee1111", "shop-backup-1", compose("backup"))
	shop, shop2 := one("eeee2222", "shop-web-1", compose("front")), one("eeee3333", "shop-web-2", compose("front"))
	task := one("ffff1111", "stack_api.1.x7", policy.LabelSwarmService+"=stack_api", policy.LabelSwarmStack+"=stack")
	plain := one("ffff2222", "lone.1.y8", policy.LabelSwarmService+"=lone")
	infra, app, sidecar := one("01231111", "0123456789ab-infra"), one("01232222", "pod-app"), one("01233333", "pod-sidecar")
	infra.Seen.Pod.Name, app.Seen.Pod.Name, sidecar.Seen.Pod.Name = "shelf", "shelf", "shelf"
	vpn, behind := one("45671111", "shop-vpn-1", compose("vpn")), one("45672222", "shop-behind-1", compose("behind"))
	claims := one("89ab1111", "claims", compose("backup")) // says its image
	claims.Seen.ImageLabels = claims.Seen.Labels
	perhaps := one("89ab2222", "perhaps", compose("backup")) // says perhaps its image
	perhaps.Seen.ImageUnknown = "it is gone"
	all := []*container{claims, perhaps, web, db, odd, twin, twin2, backup, shop, shop2, task, plain, infra, app, sidecar, vpn, behind}
	owners := map[*container]string{app: infra.Seen.ID, sidecar: infra.Seen.ID, behind: vpn.Seen.ID}
	var list []v1.Container
	for _, c := range all {
		list = append(list, v1.Container{ID: c.Seen.ID, Name: c.Seen.Name, Groups: groups(c), CountedWith: owners[c]})
	}
	for _, tc := range []struct {
		name string
		want []*container
	}{
		{"web", []*container{web}},
		{"aaaa1111bbbb2222", []*container{web}},
		{"aaaa1", []*container{web}},
		{"aaaa", []*container{web, db}},
		{"aaa", nil}, // too short for an ID
		{"aaaa3333", []*container{odd}},
		{"cccc", []*container{odd}},
		{"twin", []*container{twin, twin2}},
		{"dddd2222", []*container{twin2}},
		{"", nil},
		{"nobody", nil},
		{"WEB", nil},
		{"backup", []*container{backup}},
		{"front", []*container{shop, shop2}},
		{"shop-web-2", []*container{shop2}},
		{"stack_api", []*container{task}},
		{"api", []*container{task}},
		{"stack", nil},
		{"lone", []*container{plain}},
		{"shelf", []*container{infra}},    // a pod is its network's owner
		{"pod-app", []*container{app}},    // but a name is a name
		{"behind", []*container{behind}},  // and so is that of a service's only container
		{"0123", []*container{infra}},     // the same network all three
		{"4567", []*container{vpn}},       // and here
		{"45672", []*container{behind}},   // but not here
		{"shop-vpn-1", []*container{vpn}}, // whatever it is of
	} {
		var got []*container
		for _, i := range match(tc.name, list) {
			got = append(got, all[i])
		}
		if !slices.Equal(got, tc.want) {
			var names []string
			for _, c := range got {
				names = append(names, c.Seen.Name)
			}
			t.Errorf("%q matches %q", tc.name, names)
		}
	}
}

func TestFind(t *testing.T) {
	b := newBench(t, 100e6)
	web := b.start("web")
	web.container.Seen.ID = "aaaa1111bbbb2222"
	b.start("db").container.Seen.ID = "aaaa3333bbbb4444"
	for _, tc := range []struct {
		name string
		want *share
		err  error
		says string
	}{
		{"web", web, nil, ""},
		{"aaaa", nil, ErrAmbiguous, `"aaaa": use the name or the ID of the one you mean: web (aaaa1111bbbb, docker), db (aaaa3333bbbb, docker)`},
		{"host", b.host, nil, ""},
		{"", nil, ErrUnknown, ""},
		{"aaaa1", web, nil, ""},
		{"aaa", nil, ErrUnknown, ""}, // shorter than an abbreviated ID
		{"nobody", nil, ErrUnknown, `"nobody"; ` + "`weir ps`"},
	} {
		got, err := b.containers.find(tc.name)
		if (got == nil) != (tc.want == nil) || got != nil && got != tc.want.container || !errors.Is(err, tc.err) || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("find %q: %+v, %v", tc.name, got, err)
		}
	}
}

// A container in another's network has no share: it is said where its policy
// belongs.
func TestSharedNetwork(t *testing.T) {
	b := newBench(t, 100e6)
	infra, app := b.start("infra"), b.start("app", "min=10mbit")
	infra.container.NetNS = kernel.NetNSID{Dev: 4, Inode: 77}
	b.containers.free(app.container)
	app.container.NetNS = infra.container.NetNS
	b.plan()
	if got := attach.Plan(&app.container.Container, attach.Observation{Owner: &infra.container.Container}).Obstacle; got != "it shares the network of infra and is counted there, so its own labels have no effect (weir.min): give them to infra, or use `weir set infra`" {
		t.Errorf("with labels: %q", got)
	}
	// Whoever looks finds the one that decisions are made on.
	infra.container.Seen.Pod.Name, app.container.Seen.Pod.Name = "shelf", "shelf"
	b.publish(epoch)
	ctx := b.serve()
	seen, err := b.Latest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := b.containers.find("shelf"); err != nil || c != infra.container {
		t.Errorf("decisions find %+v, %v", c, err)
	}
	if i, err := Find(seen.Containers, "shelf"); err != nil || seen.Containers[i].ID != infra.container.Seen.ID {
		t.Errorf("readers find %d, %v", i, err)
	}
	_, err = b.Set(ctx, "app", v1.PolicyChange{Weight: ptr("300")})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "`weir set infra`") || app.container.policy().Weight != 100 {
		t.Errorf("set: %v, weight %d", err, app.container.policy().Weight)
	}
	infra.container.Seen.Labels["weir.min"] = "10mbit"
	for _, same := range []string{"the labels of infra", "no labels"} {
		if got := attach.Plan(&app.container.Container, attach.Observation{Owner: &infra.container.Container}).Obstacle; got != "" {
			t.Errorf("with %s: %q", same, got)
		}
		clear(app.container.Seen.Labels)
	}
	if view := app.container.view(b.containers.owners()); view.State != v1.StateOK || view.Reason != "it shares the network of infra and is counted there" {
		t.Errorf("without labels: %s, %q", view.State, view.Reason)
	}
}
