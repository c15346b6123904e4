package run

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// cam is a managed service with a minimum, whose task is at a and goes to b.
func cam() runtime.Managed {
	return runtime.Managed{
		Spec: spec.Spec{Name: "cam", Labels: map[string]string{"weir.min": "30mbit"}}, Wanted: true, Bound: "b", Node: "a", ContainerID: "c1",
	}
}

// TestArrival: a move ends when the agent of the new node knows the task, when the swarm cannot run it there,
// and when it is not wanted any more.
func TestArrival(t *testing.T) {
	kept := monitor.Container{ID: "c1", MinBPS: 30e6, AdmittedBPS: 30e6, State: v1.StateOK}
	refused := monitor.Container{ID: "c1", MinBPS: 30e6, State: v1.StateRejected, Reason: "8mbit are left"}
	for name, test := range map[string]struct {
		change func(*runtime.Managed, *Measured)
		since  time.Duration
		says   string
		failed bool
	}{
		"on its way":       {func(*runtime.Managed, *Measured) {}, 0, "", false},
		"runs":             {func(t *runtime.Managed, _ *Measured) { t.Node = "b" }, 0, "", false},
		"the agent has it": {func(t *runtime.Managed, b *Measured) { t.Node, b.Reported.Containers = "b", []monitor.Container{kept} }, 0, "which keeps its minimum 30mbit", false},
		"the agent refuses": {func(t *runtime.Managed, b *Measured) {
			t.Node, b.Reported.Containers = "b", []monitor.Container{refused}
		}, 0, "8mbit are left", true},
		"the agent refuses another value": {func(t *runtime.Managed, b *Measured) {
			other := kept
			other.State, other.Reason = v1.StateRejected, "weir.in.min"
			t.Node, b.Reported.Containers = "b", []monitor.Container{other}
		}, 0, "which keeps its minimum 30mbit", false},
		"the node does not share what it receives": {func(t *runtime.Managed, b *Measured) {
			t.Spec.Labels = map[string]string{"weir.in.min": "3mbit"}
			t.Node, b.Reported.Containers, b.Reported.State, b.Reported.Engine.Out.BudgetBPS = "b", []monitor.Container{{ID: "c1", State: v1.StateOK}}, monitor.StateReady, 95e6
		}, 0, "--in-rate", true},
		"no room":           {func(t *runtime.Managed, _ *Measured) { t.Waits = "no suitable node" }, 0, "the swarm cannot run it on b: no suitable node", true},
		"its label goes":    {func(t *runtime.Managed, _ *Measured) { t.Wanted = false }, 0, "not to be moved any more", false},
		"the node dies":     {func(_ *runtime.Managed, b *Measured) { b.Node.Ready = false }, 0, "b, where it was to go, has gone", true},
		"the node has left": {func(t *runtime.Managed, _ *Measured) { t.Bound = "n9" }, 0, "n9, where it was to go, has gone", true},
		"it takes too long": {func(*runtime.Managed, *Measured) {}, bindTimeout + time.Second, "after 5m0s", true},
		"a container of that": {func(t *runtime.Managed, b *Measured) {
			t.ContainerID, b.Reported.Containers = "", []monitor.Container{{}}
		}, 0, "", false},
	} {
		service := cam()
		o := &observation{nodes: []Measured{{Node: runtime.Node{Name: "a", Ready: true}}, {Node: runtime.Node{Name: "b", Ready: true}}}}
		test.change(&service, &o.nodes[1])
		if said, failed := o.arrival(&service, time.Now().Add(-test.since)); !strings.Contains(said, test.says) || (said == "") != (test.says == "") || failed != test.failed {
			t.Errorf("%s: %q, in vain: %v", name, said, failed)
		}
	}
}

// TestBind: a move sets its constraint once the node has promised the minimum, and only then.
func TestBind(t *testing.T) {
	claim := engine.ClaimID(engine.Entry{Service: "cam", Node: "b"})
	for name, test := range map[string]struct {
		promised, in uint64
		node         string
		told         bool
	}{"promised": {30e6, 3e6, "b", true}, "in part": {29e6, 3e6, "b", false}, "not": {0, 0, "b", false}, "not received": {30e6, 2e6, "b", false}, "taken back": {0, 0, "", true}} {
		service, told := cam(), false
		service.Bind = func(_ context.Context, node string) error { told = node == test.node; return nil }
		step := bindStep{service: &service, node: test.node, decision: engine.Decision{MinBPS: 30e6, InMinBPS: 3e6}}
		step.apply(t.Context(), engine.Promises{claim: {MinBPS: test.promised, InMinBPS: test.in, Claim: true}})
		if told != test.told || (step.err == nil) != test.told {
			t.Errorf("%s: told %v, %v", name, told, step.err)
		}
	}
}

// TestNamesakes: a managed service that has the name of a service of weir-edge's own is left alone, and an event says so.
func TestNamesakes(t *testing.T) {
	free := cam()
	free.Spec.Name, free.Bound = "free", ""
	o := &observation{state: runtime.State{Services: []runtime.Service{{Name: "cam"}, {Name: "free"}}, Managed: []runtime.Managed{cam(), free, {Spec: spec.Spec{Name: "other"}}}}}
	o.dropNamesakes()
	if len(o.state.Managed) != 1 || o.managed("other") == nil || len(o.problems) != 2 || o.problems[0].service != "cam" {
		t.Errorf("%+v, %+v", o.state.Managed, o.problems)
	}
	// What binds it to a node is taken back.
	l, division := &lives{tasks: map[string]boundSince{}}, engine.Division{Needs: map[engine.Entry]engine.Need{}}
	if binds := l.planBinds(o, nil, &division); len(binds) != 1 || binds[0].service.Spec.Name != "cam" || binds[0].node != "" || len(division.Needs) > 0 {
		t.Errorf("%+v, %+v", binds, division.Needs)
	}
}

// TestReturns: a move that is being taken back is asked again, without a word and without a claim.
func TestReturns(t *testing.T) {
	service := cam()
	service.Bound, service.Returns = "", true
	o := &observation{state: runtime.State{Managed: []runtime.Managed{service}}}
	l, division := &lives{tasks: map[string]boundSince{}}, engine.Division{Needs: map[engine.Entry]engine.Need{}}
	binds := l.planBinds(o, nil, &division)
	if len(binds) != 1 || binds[0].node != "" || binds[0].said != "" || len(division.Needs) > 0 {
		t.Errorf("%+v, %+v", binds, division.Needs)
	}
}

// TestExplainManaged: a managed service is explained with and without a task; others are not deployed.
func TestExplainManaged(t *testing.T) {
	m := newManager(t)
	v := newView(m.opts)
	v.Decisions = []edge.Decision{{Service: "cam", Action: "keep"}}
	for _, instances := range [][]edge.Instance{nil, {{Service: "cam", Image: "cam:1"}}} {
		v.Instances = instances
		m.view.Store(v)
		e, err := m.Explain("cam")
		if err != nil || e.Service.Running != len(instances) || len(e.Instances) != len(instances) || len(e.Now) != 1 || !strings.Contains(e.Service.Reason, "your own Swarm service") {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if _, err := m.Explain("other"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}
