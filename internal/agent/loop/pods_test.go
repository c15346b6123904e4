package loop

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// TestPods: what weir-k8s reports is in force when it is answered, and is there again after a
// restart; a pod that ended meanwhile is not.
func TestPods(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	here := t.TempDir()
	reported := func(id string) discovery.Container {
		return discovery.Container{ID: id, Name: "shop/" + id, Runtime: v1.RuntimeKubernetes, HostNetwork: true, CgroupPath: here, Labels: map[string]string{"weir.min": "60mbit"}}
	}
	first, second := reported("first"), reported("second")
	second.CgroupPath = filepath.Join(here, "gone")
	for _, test := range []struct {
		pod  discovery.Container
		want v1.State
	}{{first, v1.StateOK}, {second, v1.StateRejected}, {first, v1.StateOK}} {
		state, err := b.Learn(ctx, discovery.Event{Source: v1.RuntimeKubernetes, Updated: &test.pod})
		if err != nil || state.State != test.want || state.MinimumInForce == nil || *state.MinimumInForce != (test.want == v1.StateOK) {
			t.Errorf("%s: %v, %+v", test.pod.Name, err, state)
		}
	}
	if state, err := b.Learn(ctx, discovery.Event{Source: v1.RuntimeKubernetes, RemovedID: "none"}); err != nil || state != (v1.PodState{}) {
		t.Errorf("of a pod that stopped: %v, %+v", err, state)
	}
	known := func(b *bench) (names []string, source v1.Source) {
		for _, c := range b.containers.all() {
			names = append(names, c.Seen.Name)
		}
		for _, s := range b.status().Sources {
			if s.Name == v1.RuntimeKubernetes {
				source = s
			}
		}
		return names, source
	}
	must.Succeed(t, b.do(ctx, func() {
		b.containers.forgetGonePods()
		if names, source := known(b); len(names) != 2 || !source.Connected {
			t.Errorf("with weir-k8s, which reports ends: %v, %+v", names, source)
		}
		must.Succeed(t, b.save())
	}))
	other := reported("other")
	other.Runtime, other.CgroupPath = v1.RuntimeContainerd, second.CgroupPath
	next := newBench(t, 100e6)
	if _, source := known(next); source.Name != "" {
		t.Errorf("where there was no weir-k8s: %+v", source)
	}
	next.Agent.store = b.Agent.store
	next.recall()
	next.containers.learn(discovery.Event{Source: v1.RuntimeContainerd, Updated: &other})
	next.containers.forgetGonePods()
	if next.containers.byKey[key{v1.RuntimeContainerd, "other"}] == nil {
		t.Error("a container of containerd, whose end weir-k8s reports, was forgotten")
	}
	next.containers.learn(discovery.Event{Source: v1.RuntimeContainerd, Disconnected: errors.New("left")})
	next.containers.forgetGonePods()
	if names, source := known(next); len(names) != 1 || names[0] != "shop/first" || source.Connected || source.Reason == "" {
		t.Errorf("after a restart: %v, %+v", names, source)
	}
}

// TestPodIsSaved: the answer about a pod that is to be admitted waits for the state file if that lacks the minimum that it says is
// in force. The next turn writes the rest.
func TestPodIsSaved(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	pod := discovery.Container{ID: "web", Name: "shop/web", Runtime: v1.RuntimeKubernetes, HostNetwork: true, CgroupPath: t.TempDir()}
	saved := func() (name string, admittedBPS uint64) {
		file, err := state.Open(b.dir)
		must.Succeed(t, err)
		for _, c := range file.Containers {
			name, admittedBPS = c.Name, c.AdmittedBPS["up0"]
		}
		return name, admittedBPS
	}
	for _, tc := range []struct {
		name, min string
		admit     bool
		wantName  string
		wantBPS   uint64
	}{
		{"shop/web", "", true, "", 0},
		{"shop/web", "60mbit", false, "", 0},
		{"shop/web", "60mbit", true, "shop/web", 60e6},
		{"shop/renamed", "60mbit", true, "shop/web", 60e6},
		{"shop/web", "50mbit", true, "shop/web", 50e6},
		{"shop/refused", "120mbit", true, "shop/web", 50e6},
	} {
		pod.Name, pod.Labels = tc.name, nil
		if tc.min != "" {
			pod.Labels = map[string]string{"weir.min": tc.min}
		}
		_, err := b.Learn(ctx, discovery.Event{Source: v1.RuntimeKubernetes, Updated: &pod, Admit: tc.admit})
		must.Succeed(t, err)
		if name, bps := saved(); name != tc.wantName || bps != tc.wantBPS {
			t.Errorf("%s with %q, admit %t: the file has %s with %d", tc.name, tc.min, tc.admit, name, bps)
		}
	}
	pod.Name, pod.Labels = "shop/web", map[string]string{"weir.min": "40mbit"}
	for full := range 2 { // it is not in force either when it is asked again
		blocked := filepath.Join(b.dir, "state.json.new")
		must.Succeed(t, os.MkdirAll(blocked, 0o755))
		state, err := b.Learn(ctx, discovery.Event{Source: v1.RuntimeKubernetes, Updated: &pod, Admit: true})
		if err != nil || *state.MinimumInForce || !strings.Contains(state.Reason, "make room or mend the disk") {
			t.Errorf("time %d, with a file that cannot be written: %+v, %v", full+1, state, err)
		}
		must.Succeed(t, os.Remove(blocked))
	}
	pod.Name, pod.Labels = "shop/refused", map[string]string{"weir.min": "120mbit"}
	_, err := b.Learn(ctx, discovery.Event{Source: v1.RuntimeKubernetes, Updated: &pod})
	must.Succeed(t, err)
	must.Succeed(t, b.do(ctx, func() { b.control(time.Now()) }))
	if name, bps := saved(); name != "shop/refused" || bps != 40e6 {
		t.Errorf("after the next turn the file has %s with %d", name, bps)
	}
}

// refusingTaps is a kernel that takes no tap.
type refusingTaps struct{ fakeTaps }

func (*refusingTaps) Attach(identity.Tap, uint16) (uint32, error) {
	return 0, errors.New("no such device")
}

// TestMinimumInForce: a minimum of the resolved policy is in force where each uplink keeps it, for all packets. Nothing
// else of the policy counts.
func TestMinimumInForce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		labels []string
		change func(*bench, *container)
		want   bool
	}{
		{"no minimum", nil, func(_ *bench, c *container) { c.Obstacle = "all of it is the host's" }, true},
		{"a minimum", []string{"min=60mbit"}, nil, true},
		{"one that does not fit", []string{"min=100mbit"}, nil, false},
		{"one that was cut", []string{"min=60mbit"}, func(b *bench, c *container) { c.shares[0].class.GuaranteedBPS = 50e6 }, false},
		{"a latency that cannot be kept", []string{"min=90mbit", "latency=400us"}, nil, true},
		{"a wrong weight", []string{"min=60mbit"}, func(b *bench, c *container) {
			c.Seen.Labels["weir.weight"] = "heavy"
			b.containers.resolve(c)
		}, true},
		{"one that cannot be read", nil, func(b *bench, c *container) {
			c.Seen.Labels["weir.min"] = "fast"
			b.containers.resolve(c)
		}, true},
		{"a label that weir set lowers", []string{"min=100mbit"}, func(b *bench, c *container) {
			c.set = policy.Values{MinBPS: new(uint64(10e6))}
			b.containers.resolve(c)
			b.plan()
		}, true},
		{"one of weir set alone", nil, func(b *bench, c *container) {
			c.set = policy.Values{MinBPS: new(uint64(100e6))}
			b.containers.resolve(c)
			b.plan()
		}, false},
		{"no number", []string{"min=60mbit"}, func(_ *bench, c *container) { c.Number = 0 }, false},
		{"a tap that failed", []string{"min=60mbit"}, func(b *bench, c *container) {
			b.attach.Taps = &refusingTaps{}
			c.Devices = []attach.Device{{Attachment: identity.Attachment{Interface: "eth0", Mode: v1.ModeBridge, Tap: identity.Tap{Ifindex: 7}}}}
			b.reconcile()
		}, false},
		{"answers of the host's", []string{"min=60mbit"}, func(_ *bench, c *container) { c.Seen.RoutingMesh = true }, false},
		{"a cgroup that is refused", []string{"min=60mbit"}, func(b *bench, c *container) {
			c.Mode, c.Seen.HostNetwork, c.Seen.CgroupPath = v1.ModeHost, true, "/pod"
			b.classifier.err = errors.New("no cgroup")
			b.reconcile()
		}, false},
		{"received traffic, which is not shared", []string{"in.min=60mbit"}, nil, false},
		{"received traffic, which is not shared yet", []string{"in.min=60mbit"}, func(b *bench, c *container) { b.shareIncoming(c) }, false},
		{"received traffic", []string{"min=60mbit", "in.min=60mbit"}, func(b *bench, c *container) {
			in := b.shareIncoming(c)
			in.device.Advance(func() sched.Tree { return in.plan(b.containers.byKey, b.containers.controlled()) })
			b.reconcile()
		}, true},
	} {
		b := newBench(t, 100e6)
		c := b.start("c", tc.labels...).container
		if tc.change != nil {
			tc.change(b, c)
		}
		if got := c.minimumInForce(); got != tc.want {
			state, reason := c.state()
			t.Errorf("%s: %t; %s: %s", tc.name, got, state, reason)
		}
	}
}

// shareIncoming adds an uplink for received traffic, which is not set up yet.
func (b *bench) shareIncoming(c *container) *link {
	in := b.uplinks.incoming(b.link, UplinkConfig{Name: "up0", In: uplink.InConfig{Shared: true, RateBPS: 100e6}})
	in.index = len(b.uplinks.list)
	b.uplinks.list = append(b.uplinks.list, in)
	in.host = b.containers.host.addShare(in)
	c.addShare(in)
	return in
}
