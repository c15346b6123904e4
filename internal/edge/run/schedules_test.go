package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/test/must"
)

// TestSchedules: a scheduler that counts minimums leaves the engine none, and another minimum, health check or port
// of users starts other instances. Elsewhere it does not.
func TestSchedules(t *testing.T) {
	document := func(rate string) string {
		return `{"par": {"serviceName": "s", "imageName": "i:1"}, "labels": {"weir.min": "` + rate + `", "weir.weight": "3"}}`
	}
	for schedules, wantBPS := range map[bool]uint64{true: 0, false: 5e6} {
		o := Options{Schedules: schedules}
		five, parsed, err := o.serviceOf(document("5mbit"), "i:1")
		must.Succeed(t, err)
		six, _, err := o.serviceOf(document("6mbit"), "i:1")
		must.Succeed(t, err)
		if parsed.MinBPS() != wantBPS || five.Labels["weir.min"] != "5mbit" || parsed.Labels["weir.weight"] != "3" {
			t.Errorf("schedules %t: the engine has %v, instances %v", schedules, parsed.Labels, five.Labels)
		}
		if other := five.Made != six.Made; other != schedules {
			t.Errorf("schedules %t: another minimum is another version: %t", schedules, other)
		}
	}
	for _, schedules := range []bool{true, false} {
		o, made := Options{Schedules: schedules}, map[string]string{}
		for _, rest := range []string{`"ports": [{"host": 80, "container": 80}]`, `"ports": [{"host": 81, "container": 80}]`,
			`"ports": [{"host": 80, "container": 80}], "labels": {"weir-edge.health": "/ok"}`} {
			is, _, err := o.serviceOf(`{"par": {"serviceName": "s", "imageName": "i:1"}, `+rest+`}`, "i:1")
			must.Succeed(t, err)
			made[is.Made] = rest
		}
		if other := len(made) == 3; other != schedules || !other && len(made) != 1 {
			t.Errorf("schedules %t: versions %v", schedules, made)
		}
	}
	l, c := newLives(), runtime.Instance{ID: "s-1", Service: "s", Phase: runtime.Running, Health: runtime.HealthServed}
	l.noteRun(c)
	with := &observation{specs: map[string]spec.Spec{"s": {Ports: []spec.Port{{Host: 80, Container: 80}}}}}
	if state, reason := l.stateOf(with, c); state != engine.InstanceRunning {
		t.Errorf("one that gets users from the engine is %s: %s", state, reason)
	}
}

// TestWaits: the time that an instance may take to start, and took, begins when it has a node and its image.
func TestWaits(t *testing.T) {
	l, o := newLives(), &observation{specs: map[string]spec.Spec{"s": {}}}
	was := time.Now().Add(-time.Hour)
	l.since["s-1"] = stateSince{engine.InstanceStarting, was, was}
	l.starting["s-1"] = &start{at: was}
	for _, waits := range []bool{false, true} {
		o.state.Instances = []runtime.Instance{{ID: "s-1", Service: "s", Phase: runtime.Starting, Waits: waits, Reason: "the scheduler: no room"}}
		i := l.instances(o)[0]
		if i.State != engine.InstanceStarting || i.Reason != "the scheduler: no room" || i.Since.After(was) != waits {
			t.Errorf("waits %t: %+v", waits, i)
		}
		if took := time.Since(was) - l.starting["s-1"].transfer; took < time.Minute != waits {
			t.Errorf("waits %t: its start-up took %v", waits, took)
		}
	}
}

// TestHangs: an instance that answered and does not any more is unhealthy, and one that starts again is starting.
func TestHangs(t *testing.T) {
	l, o := newLives(), &observation{specs: map[string]spec.Spec{"s": {Ports: []spec.Port{{Host: 80, Container: 80}}}}}
	for _, step := range []struct {
		run    string
		health runtime.Health
		want   engine.InstanceState
	}{
		{"uid/0", runtime.HealthStarting, engine.InstanceStarting}, {"uid/0", runtime.HealthServed, engine.InstanceRunning},
		{"uid/0", runtime.HealthStarting, engine.InstanceUnhealthy}, {"uid/0", runtime.HealthStarting, engine.InstanceUnhealthy},
		{"uid/0", runtime.HealthServed, engine.InstanceRunning}, {"uid/1", runtime.HealthStarting, engine.InstanceStarting},
	} {
		o.state.Instances = []runtime.Instance{{ID: "s-1", Service: "s", Phase: runtime.Running, Run: step.run, Health: step.health}}
		if i := l.instances(o)[0]; i.State != step.want {
			t.Errorf("%+v: it is %s: %s", step, i.State, i.Reason)
		}
	}
}

// TestMeasuresPods: an agent knows a pod by its name, which is the instance's container here.
func TestMeasuresPods(t *testing.T) {
	m, o := newManager(t), shop(1, 0)
	for id, want := range map[string]uint64{"i": 7e6, "shop/edge-shop-1-xyz": 3e6, "shop/edge-shop-2": 0} {
		o.state.Instances = []runtime.Instance{{ID: "shop-1", Service: "shop", Node: "a", ContainerID: id}}
		connections := 4
		o.nodes[0].Reported.Containers = []monitor.Container{{ID: "i", SentBPS: 7e6}, {ID: "uid", Name: "shop/edge-shop-1-xyz", SentBPS: 3e6, Connections: &connections}}
		i := engine.Instance{ID: "shop-1", Service: "shop", Node: "a"}
		if m.measureInstance(o, &i); i.SentBPS != want || (i.Users == 4) != (want == 3e6) {
			t.Errorf("%s sends %d bit/s, want %d", id, i.SentBPS, want)
		}
	}
}

// TestCountsConnections: users of pods are the connections that agents count, and unknown as long as one agent does not count.
func TestCountsConnections(t *testing.T) {
	pod := func(name string, connections int) monitor.Container {
		return monitor.Container{ID: "uid-" + name, Name: "shop/" + name, Connections: &connections}
	}
	for name, test := range map[string]struct {
		change func(*observation)
		want   string
	}{
		"all":                {func(*observation) {}, "[{web a 5 true} {web b 0 false}]"},
		"one is not counted": {func(o *observation) { o.nodes[1].Reported.Containers[0].Connections = nil }, "[]"},
		"it does not serve": {func(o *observation) {
			o.nodes[1].Reported.Containers = nil
			o.state.Instances[2].Health = runtime.HealthStarting
		}, "[{web a 5 true}]"},
		"its agent is gone":    {func(o *observation) { o.nodes[1].Reported.State = monitor.StateNoWeir }, "[]"},
		"its agent is silent":  {func(o *observation) { o.nodes[1].Reported.State = monitor.StateStale }, "[{web a 5 true} {web b 0 false}]"},
		"its node is silent":   {func(o *observation) { o.nodes[1].Node.Ready = false }, "[{web a 5 true}]"},
		"it has not begun":     {func(o *observation) { o.state.Instances[2].Phase = runtime.Starting }, "[{web a 5 true}]"},
		"of another service":   {func(o *observation) { o.state.Instances[0].Service = "other" }, "[{web a 3 true} {web b 0 false}]"},
		"a node is not listed": {func(o *observation) { o.nodes = o.nodes[:1] }, "[{web a 5 true}]"},
	} {
		o := &observation{nodes: []Measured{
			{Node: runtime.Node{Name: "a", Ready: true}, Reported: monitor.Node{State: monitor.StateReady, Containers: []monitor.Container{pod("1", 2), pod("2", 3)}}},
			{Node: runtime.Node{Name: "b", Ready: true}, Reported: monitor.Node{State: monitor.StateReady, Containers: []monitor.Container{pod("3", 0)}}},
		}}
		for i, node := range []string{"a", "a", "b"} {
			o.state.Instances = append(o.state.Instances, runtime.Instance{Service: "web", Node: node, ContainerID: fmt.Sprint("shop/", i+1), Phase: runtime.Running, Health: runtime.HealthServed})
		}
		test.change(o)
		var got []string
		for _, d := range o.connections("web") {
			got = append(got, fmt.Sprint("{", d.Service, " ", d.Node, " ", d.Users, " ", d.Asked, "}"))
		}
		slices.Sort(got)
		if fmt.Sprint(got) != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
	for schedules, want := range map[bool]bool{true: true, false: false} {
		if o := (Options{Schedules: schedules, Nodes: Unmeasured{}}); o.isUncounted() != want {
			t.Errorf("schedules %t: uncounted %t", schedules, !want)
		}
	}
	if o := (Options{Schedules: true, Nodes: &Agents{}}); o.isUncounted() {
		t.Error("agents count nothing")
	}
}

// TestUnused: what a specification says of response times and proxies has no effect without proxies, and deploy names those keys.
func TestUnused(t *testing.T) {
	said := func(o Options, document string) string {
		t.Helper()
		s, err := spec.Parse([]byte(`{"par": {"serviceName": "s", "imageName": "i:1"}` + document + `}`))
		must.Succeed(t, err)
		return strings.Join(o.unused(&s), "\n")
	}
	const slow, tcp = `, "QoS": {"responseTime": 5}`, `, "labels": {"weir-edge.mode": "tcp"}`
	counted, uncounted := Options{Schedules: true, Nodes: &Agents{}}, Options{Schedules: true, Nodes: Unmeasured{}}
	for want, got := range map[string]string{
		"QoS.responseTime starts no instances":                                               said(counted, slow),
		"weir-edge.mode has no effect":                                                       said(counted, tcp),
		"nothing counts users: give --agents, and the agents of the DaemonSet a certificate": said(uncounted, ""),
	} {
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := said(counted, "") + said(Options{Nodes: Unmeasured{}}, slow); got != "" {
		t.Errorf("it says %q", got)
	}
}

// apartEngine has two nodes, and notes of which services an instance has to be apart.
type apartEngine struct {
	*fakeEngine
	apart map[string]bool
}

func (e *apartEngine) Nodes(ctx context.Context) ([]runtime.Node, error) {
	nodes, err := e.fakeEngine.Nodes(ctx)
	other := nodes[0]
	other.Name = "b"
	return append(nodes, other), err
}

func (e *apartEngine) Start(ctx context.Context, s runtime.Service, instance, node string) error {
	e.mu.Lock()
	e.apart[s.Name] = e.apart[s.Name] || s.Apart
	e.mu.Unlock()
	return e.fakeEngine.Start(ctx, s, instance, node)
}

// TestScheduledServices: where each service has its own address, two services may have the same port, and the engine
// distinguishes the instances of a service with an availability.
func TestScheduledServices(t *testing.T) {
	for _, schedules := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m, e := newManager(t), &apartEngine{&fakeEngine{ledger: bench{promises: engine.Promises{}}}, map[string]bool{}}
			m.opts.Runtime, m.opts.Nodes, m.opts.Engine, m.opts.Schedules = e, Unmeasured{}, newDecider(t), schedules
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- m.Run(ctx) }()
			var errs []error
			for _, name := range []string{"one", "two"} {
				_, err := m.Deploy(ctx, []byte(`{"par": {"serviceName": "`+name+`", "imageName": "i:1"}, "QoS": {"availability": 99.9}, "ports": [{"host": 80, "container": 80}]}`))
				errs = append(errs, err)
			}
			if errs[0] != nil || (errs[1] == nil) != schedules {
				t.Errorf("schedules %t: %v", schedules, errs)
			}
			time.Sleep(time.Minute)
			e.mu.Lock()
			if !e.apart["one"] {
				t.Errorf("schedules %t: an instance for availability may go beside another: %v", schedules, e.apart)
			}
			e.mu.Unlock()
			cancel()
			must.Succeed(t, <-ended)
		})
	}
}
