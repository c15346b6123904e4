package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/test/must"
)

// source is a source of containers that runs as a test says.
type source func(ctx context.Context, events chan<- discovery.Event) error

func (source) Name() string { return "docker" }

func (s source) Run(ctx context.Context, events chan<- discovery.Event) error { return s(ctx, events) }

// report reports that containers run whose IDs are numbers.
func (s source) report(ctx context.Context, events chan<- discovery.Event, containers int) bool {
	for i := range containers {
		c := discovery.Container{ID: fmt.Sprint(i), Name: fmt.Sprint("c", i), Runtime: "docker", StartedAt: epoch, NoNetwork: true}
		if !discovery.Send(ctx, s, events, discovery.Event{Updated: &c}) {
			return false
		}
	}
	return true
}

// TestEventsOfOneSourceTogether: events that a source reports while the loop is at work are handled together afterwards.
func TestEventsOfOneSourceTogether(t *testing.T) {
	const waiting = 100
	b := newBench(t, 100e6)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	busy, sent := make(chan struct{}), make(chan struct{})
	b.config.Sources = []discovery.Source{source(func(ctx context.Context, events chan<- discovery.Event) error {
		<-busy
		if source(nil).report(ctx, events, waiting) {
			close(sent)
		}
		<-ctx.Done()
		return nil
	})}
	ended := make(chan error, 1)
	go func() { ended <- b.work(ctx, nil) }()
	before := 0
	must.Succeed(t, b.do(ctx, func() {
		close(busy)
		select {
		case <-sent:
		case <-time.After(5 * time.Second):
			t.Error("the source waits for the loop")
		}
		before = len(b.scheduler.applied)
	}))
	for known, after := 0, 0; known < waiting; {
		must.Succeed(t, b.do(ctx, func() { known, after = len(b.containers.byKey), len(b.scheduler.applied) }))
		if known == waiting && after-before > 3 {
			t.Errorf("%d events caused %d reconciliations", waiting, after-before)
		}
	}
	cancel()
	must.Succeed(t, <-ended)
}

// TestSourcesFail: what sources reported before the last one of them failed is saved.
func TestSourcesFail(t *testing.T) {
	for range 20 { // in half of them the loop sees the failure before the events
		b := newBench(t, 100e6)
		busy, sent := make(chan struct{}), make(chan struct{})
		b.config.Sources = []discovery.Source{source(func(ctx context.Context, events chan<- discovery.Event) error {
			defer close(sent)
			<-busy
			source(nil).report(ctx, events, 3)
			return errors.New("for a test")
		})}
		go func() {
			_ = b.do(t.Context(), func() { close(busy); <-sent; time.Sleep(5 * time.Millisecond) })
		}()
		if err := b.work(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "watch docker: for a test") {
			t.Fatalf("it ends with: %v", err)
		}
		store, err := state.Open(b.dir)
		must.Succeed(t, err)
		if n := len(store.Containers); n != 3 {
			t.Fatalf("%d containers are saved", n)
		}
	}
}

// Each value has its own layer: what is set of one leaves the others, and what
// the layers below say of them, as they are.
func TestSetKeepsOtherLayers(t *testing.T) {
	b := newBench(t, 100e6)
	b.containers.rules.Defaults.Priority = new(uint32(4))
	c := b.start("c", "weight=200", "max=50mbit")
	must.Succeed(t, b.set(c.container, v1.PolicyChange{Min: new("10mbit")}))
	b.containers.rules.Policies = []policy.Rule{{Selector: policy.Selector{Name: "c*"}, Values: policy.Values{Weight: new(uint32(700)), MinBPS: new(uint64(5e6))}}}
	b.containers.resolve(c.container)
	view := c.container.view(b.containers.owners())
	if want := (v1.Policy{Weight: 700, MinBPS: 10e6, MaxBPS: 50e6, Priority: 4, EFMax: policy.Default().EFMax, AFMin: policy.Default().AFMin}); view.Policy != want {
		t.Errorf("policy %+v, want %+v", view.Policy, want)
	}
	want := v1.PolicyFrom{
		Weight: v1.LayerPolicies, Min: v1.LayerSet, Max: v1.LayerLabels,
		Priority: v1.LayerDefaults, Latency: v1.LayerBuiltIn, Class: v1.LayerBuiltIn,
		EFMax: v1.LayerBuiltIn, AFMin: v1.LayerBuiltIn, DSCP: v1.LayerBuiltIn,
	}
	if view.PolicyFrom != want {
		t.Errorf("from %+v, want %+v", view.PolicyFrom, want)
	}
	if err := b.set(c.container, v1.PolicyChange{Min: new("60mbit")}); err == nil || !strings.Contains(err.Error(), "above the maximum 50mbit") {
		t.Errorf("a minimum above the label's maximum: %v", err)
	}
	if c.container.policy().MinBPS != 10e6 {
		t.Errorf("a change that was refused left %+v", c.container.policy())
	}
	if got := b.host.container.view(b.containers.owners()).PolicyFrom; got.Weight != v1.LayerBuiltIn {
		t.Errorf("the host's is from %+v", got)
	}
	if got := hostResolution(v1.Policy{Weight: 50, MinBPS: 1e6}, v1.Policy{}).From; got.Weight != v1.LayerHost || got.Min != v1.LayerHost || got.Max != v1.LayerBuiltIn {
		t.Errorf("the host's is from %+v", got)
	}
}

// Labels of an image may not ask for guarantees, also not after a restart of the
// agent.
func TestImageLabels(t *testing.T) {
	b := newBench(t, 100e6)
	labels := map[string]string{"weir.min": "40mbit", "weir.weight": "30", "com.example": "x"}
	seen := discovery.Container{ID: "3", Name: "greedy", Runtime: "docker", StartedAt: epoch, Labels: labels, ImageLabels: labels, NoNetwork: true}
	b.containers.learn(discovery.Event{Source: "docker", Updated: &seen})
	check := func(c *container, when string) {
		t.Helper()
		state, reason := c.state()
		if c.policy() != (v1.Policy{Weight: 30, EFMax: policy.Default().EFMax, AFMin: policy.Default().AFMin}) || state != v1.StateDegraded || !strings.Contains(reason, "trust_image_labels") || len(c.Seen.ImageLabels) != 2 {
			t.Errorf("%s: %+v, %s, %q", when, c.policy(), state, reason)
		}
	}
	check(b.containers.byKey[key{"docker", "3"}], "a start")
	must.Succeed(t, b.save())
	next := newBench(t, 100e6)
	next.Agent.store = b.Agent.store
	next.recall()
	check(next.containers.byKey[key{"docker", "3"}], "a restart")
}

// TestImageGone: what was known of a container's image counts until it ends, also after a restart of the agent, and also if the
// image's name stands for another image. Of an image that was never known, no label is believed.
func TestImageGone(t *testing.T) {
	b := newBench(t, 100e6)
	known := discovery.Container{
		ID: "3", Name: "web", Runtime: "containerd", StartedAt: epoch, Image: "web:1", NoNetwork: true,
		Labels: map[string]string{"weir.min": "40mbit", "weir.priority": "1", policy.LabelNerdctlName: "web"}, ImageLabels: map[string]string{"weir.priority": "1"},
	}
	known.Pod.Name = known.Name
	gone := known
	gone.Name, gone.Pod.Name, gone.ImageLabels, gone.ImageUnknown = "3", "3", nil, "its image web:1 is gone"
	pulled := known
	pulled.Name, pulled.Pod.Name, pulled.ImageLabels = "3", "3", map[string]string{policy.LabelNerdctlName: "web"}
	renamed := known
	renamed.Name, renamed.Pod.Name = "shop", "shop"
	renamed.Labels = map[string]string{"weir.min": "40mbit", "weir.priority": "1", policy.LabelNerdctlName: "shop"}
	restarted, other, unseen, hosts := gone, gone, gone, gone
	restarted.StartedAt, other.Image, unseen.ID, hosts.ID = epoch.Add(1), "web:2", "4", "5"
	hosts.StartedAt = time.Time{}
	knownHosts := known
	knownHosts.ID, knownHosts.StartedAt = "5", time.Time{}
	learn := func(b *bench, what string, seen discovery.Container, name string, min uint64) {
		t.Helper()
		b.containers.learn(discovery.Event{Source: "containerd", Updated: &seen})
		c := b.containers.byKey[key{"containerd", seen.ID}]
		if p := c.policy(); c.Seen.Name != name || c.Seen.Pod.Name != name || p.MinBPS != min || p.Priority != policy.Default().Priority {
			t.Errorf("%s: %s has %+v", what, c.Seen.Name, p)
		}
	}
	learn(b, "known", known, "web", 40e6)
	learn(b, "gone", gone, "web", 40e6)
	learn(b, "its name stands for another image", pulled, "web", 40e6)
	learn(b, "renamed", renamed, "shop", 40e6)
	learn(b, "renamed back", known, "web", 40e6)
	must.Succeed(t, b.save())
	next := newBench(t, 100e6)
	next.Agent.store = b.Agent.store
	next.recall()
	learn(next, "gone after a restart", gone, "web", 40e6)
	learn(b, "restarted", restarted, "3", 0)
	learn(b, "known again", known, "web", 40e6)
	learn(b, "of another image", other, "3", 0)
	learn(b, "never known", unseen, "3", 0)
	learn(b, "in the host's network", knownHosts, "web", 40e6)
	learn(b, "in the host's network, which has no start", hosts, "3", 0)
}

// TestRenamed: Docker's own name of a container counts, whatever is known of its image.
func TestRenamed(t *testing.T) {
	b := newBench(t, 100e6)
	for _, name := range []string{"web", "shop"} {
		b.containers.learn(discovery.Event{Source: "docker", Updated: &discovery.Container{ID: "3", Name: name, Runtime: "docker", StartedAt: epoch, Image: "web:1", NoNetwork: true}})
		if got := b.containers.byKey[key{"docker", "3"}].Seen.Name; got != name {
			t.Errorf("called %s, not %s", got, name)
		}
	}
}

// TestEventsThatUndo: what begins and ends among events that are handled together is in the events for users.
func TestEventsThatUndo(t *testing.T) {
	one := func(id string, started time.Duration) *discovery.Container {
		return &discovery.Container{ID: id, Name: id, Runtime: "docker", StartedAt: epoch.Add(started), NoNetwork: true}
	}
	docker := func(e discovery.Event) discovery.Event { e.Source = "docker"; return e }
	up := func(c ...discovery.Container) discovery.Event {
		return docker(discovery.Event{Snapshot: &discovery.Snapshot{Containers: c}})
	}
	down := docker(discovery.Event{Disconnected: errors.New("left")})
	starts := func(id string, started time.Duration) discovery.Event {
		return docker(discovery.Event{Updated: one(id, started)})
	}
	ends := func(id string) discovery.Event { return docker(discovery.Event{RemovedID: id}) }
	for _, tc := range []struct {
		what   string
		events []discovery.Event
		want   string
		turns  int // reconciliations
	}{
		{"nothing is undone", []discovery.Event{starts("a", 0), starts("b", 0), starts("a", 0), {Source: "docker", Updated: &discovery.Container{ID: "c", Name: "c", Runtime: "docker", NoNetwork: true}}, starts("c", 0), ends("known"), ends("none")}, "stopped known, started a, started b, started c", 1},
		{"a start", []discovery.Event{starts("a", 0), starts("b", 0), ends("a"), ends("b")}, "started a, started b, stopped a, stopped b", 2},
		{"a restart", []discovery.Event{starts("a", 0), starts("a", 1)}, "started a, stopped a, started a", 2},
		{"a start that is not in the next list", []discovery.Event{starts("a", 0), up(*one("known", 0))}, "started a, stopped a", 2},
		{"a disconnection", []discovery.Event{down, up(*one("known", 0))}, "source_lost, source_connected", 2},
		{"a connection", []discovery.Event{down, down, up(*one("known", 0)), starts("a", 0), down}, "source_lost, source_connected, started a, source_lost", 3},
	} {
		b := newBench(t, 100e6)
		b.containers.learn(up(*one("known", 0)))
		b.reconcile()
		before, turns := b.events.Last(), 0
		for _, e := range tc.events {
			published := b.publishedAt
			b.containers.learnNext(e, b.reconcile)
			if b.publishedAt != published {
				turns++
			}
		}
		b.reconcile()
		var got []string
		for _, e := range b.events.Since(before).Events {
			got = append(got, strings.TrimSpace(string(e.Kind)+" "+e.Container))
		}
		if text := strings.Join(got, ", "); text != tc.want || turns+1 != tc.turns {
			t.Errorf("%s: %d reconciliations; %s\nwant %s", tc.what, turns+1, text, tc.want)
		}
	}
}
