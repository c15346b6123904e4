package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestRelieve: of a node whose uplink has become too slow no more instances go elsewhere than make the
// rest fit, those of the lowest priority first; and however often that happens, the node counts as one
// that has not failed.
func TestRelieve(t *testing.T) {
	e := newEngine(t)
	named := func(name, priority string) engine.Service {
		return web(func(s *spec.Spec) {
			s.Name, s.Labels = name, map[string]string{"weir.min": "5mbit", "weir.priority": priority}
		})
	}
	in := engine.Input{
		At: start, Nodes: boards("abc"), Services: []engine.Service{named("first", "2"), named("last", "0"), named("second", "1")},
		Instances: []engine.Instance{running("first", "a", 1, 5, 0.1), running("second", "a", 1, 5, 0.1), running("last", "a", 1, 5, 0.1)},
	}
	for i := range in.Instances {
		in.Instances[i].MinCut = true
		in.Claims = append(in.Claims, engine.Claim{Service: in.Instances[i].Service, Node: "a", MinBPS: 5e6})
	}
	in.Nodes[0].BudgetBPS = 10e6
	r := e.Round(in)
	moved := map[string]string{}
	for _, d := range r.Decisions {
		if d.Action == engine.Move {
			moved[d.Service] = d.Node
			if d.From != "a" || d.Cause != engine.CauseRefused || !strings.Contains(d.Reason, "the uplink of a has become too slow") {
				t.Errorf("%+v", d)
			}
		}
	}
	if len(moved) != 1 || moved["last"] == "" || len(r.Memory.Services["last"].Failures) > 0 {
		t.Fatalf("moved: %v, %+v", moved, r.Memory.Services["last"])
	}
	// While that starts the others stay.
	in.Instances = append(in.Instances, engine.Instance{ID: "last-2", Service: "last", Node: moved["last"], State: engine.InstanceStarting, Since: in.At, Replaces: "last-1"})
	in.Claims = append(in.Claims, engine.Claim{Service: "last", Node: moved["last"], MinBPS: 5e6})
	for range 6 {
		in = later(in, r, time.Second/2)
		r = e.Round(in)
		for _, d := range r.Decisions {
			if d.Action != engine.Keep {
				t.Errorf("while last-2 starts: %+v", d)
			}
		}
	}
	// Its users stay at a, where the claim is still too much: that frees nothing for the others, who stay.
	staying := in
	staying.Instances = slices.Clone(in.Instances)
	staying.Instances = slices.DeleteFunc(staying.Instances, func(i engine.Instance) bool { return i.ID == "last-1" })
	staying.Instances[len(staying.Instances)-1].State = engine.InstanceRunning
	for _, d := range e.Round(staying).Decisions {
		if d.Action != engine.Keep {
			t.Errorf("while users of last stay at a: %+v", d)
		}
	}
	// Slower still: all but the first go.
	in.Nodes[0].BudgetBPS = 6e6
	moved = map[string]string{}
	for _, d := range e.Round(in).Decisions {
		if d.Action == engine.Move {
			moved[d.Service] = d.Node
		}
	}
	if len(moved) != 1 || moved["second"] == "" {
		t.Errorf("moved: %v", moved)
	}
}

// TestRelieveInTurn: uplinks that become slow one after the other are left at once, also those that were
// left before.
func TestRelieveInTurn(t *testing.T) {
	e := newEngine(t)
	s := web(func(s *spec.Spec) { s.Labels = map[string]string{"weir.min": "5mbit"} })
	in := crowd(s, boards("abc"), 5, 0.1, running("web", "a", 1, 5, 0.1))
	var r engine.Result
	for turn := range 12 {
		i := &in.Instances[0]
		in.Nodes = boards("abc")
		in.Nodes[i.Node[0]-'a'].BudgetBPS = 4e6
		i.MinCut = true
		in.Claims = []engine.Claim{{Service: "web", Node: i.Node, MinBPS: 5e6}}
		r = e.Round(in)
		d := find(t, r, engine.CauseRefused)
		if d.Action != engine.Move || d.Node == i.Node {
			t.Fatalf("turn %d: %+v", turn, d)
		}
		i.ID, i.Node, i.MinCut = d.Instance, d.Node, false
		in = later(in, r, 5*time.Second)
		i.Since = in.At
	}
}

// TestRelieveExclusive: what may have one instance only stays.
func TestRelieveExclusive(t *testing.T) {
	s := web(func(s *spec.Spec) {
		s.Labels, s.Container = map[string]string{"weir.min": "5mbit"}, &spec.Container{Mounts: []spec.Mount{{Type: "volume", Source: "data", Target: "/data"}}}
	})
	in := crowd(s, boards("abc"), 5, 0.1, running("web", "a", 1, 5, 0.1))
	in.Instances[0].MinCut, in.Nodes[0].BudgetBPS = true, 4e6
	in.Claims = []engine.Claim{{Service: "web", Node: "a", MinBPS: 5e6}}
	if d := find(t, newEngine(t).Round(in), engine.CauseRefused); d.Action != engine.Keep || !strings.Contains(d.Reason, "one instance at a time") {
		t.Errorf("%+v", d)
	}
}
