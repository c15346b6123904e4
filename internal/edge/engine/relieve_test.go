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
	in.Nodes[0].Out.BudgetBPS = 10e6
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
	// The users of what moved stay at a, where their claim is still too large: no other move frees that, so
	// the other instances stay.
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
	in.Nodes[0].Out.BudgetBPS = 6e6
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

// TestRelieveInTurn: uplinks that become slow one after the other are left at once, and those that were
// left lately once they have been slow for a while, which doubles. One that is forgotten begins anew.
func TestRelieveInTurn(t *testing.T) {
	e := newEngine(t)
	s := web(func(s *spec.Spec) { s.Labels = map[string]string{"weir.min": "5mbit"} })
	in := crowd(s, boards("abc"), 5, 0.1, running("web", "a", 1, 5, 0.1))
	// after is how many seconds it takes until it goes, while it is always the uplink where it is that is slow.
	after := func() float64 {
		t.Helper()
		i, began := &in.Instances[0], in.At
		in.Nodes = boards("abc")
		in.Nodes[i.Node[0]-'a'].Out.BudgetBPS = 4e6
		i.MinCut = true
		in.Claims = []engine.Claim{{Service: "web", Node: i.Node, MinBPS: 5e6}}
		for range 300 {
			r := e.Round(in)
			in = later(in, r, time.Second/2)
			d := find(t, r, engine.CauseRefused)
			if d.Action != engine.Move {
				if !strings.Contains(d.Reason, "it was left for that lately") {
					t.Errorf("%+v", d)
				}
				continue
			}
			i.ID, i.Node, i.MinCut = d.Instance, d.Node, false
			i.Since = in.At
			return in.At.Sub(began).Seconds() - 0.5
		}
		t.Fatal("it stays")
		return 0
	}
	for turn, want := range []float64{0, 0, 10, 10, 20, 20, 40, 40} {
		if took := after(); took != want {
			t.Fatalf("turn %d: it goes after %v s, want %v", turn, took, want)
		}
	}
	in.At = in.At.Add(time.Hour)
	if took := after(); took != 0 {
		t.Errorf("after an hour it goes after %v s", took)
	}
}

// TestRelieveReceived: what is promised of what a node receives is too much as well, and only while it is.
func TestRelieveReceived(t *testing.T) {
	s := web(func(s *spec.Spec) { s.Labels = map[string]string{"weir.in.min": "5mbit"} })
	in := crowd(s, boards("abc"), 5, 0.1, running("web", "a", 1, 5, 0.1))
	in.Claims = []engine.Claim{{Service: "web", Node: "a", InMinBPS: 5e6}}
	in.Instances[0].MinCut, in.Nodes[2].In.BudgetBPS = true, 5e6 // c alone has room
	for budget, moves := range map[uint64]bool{4e6: true, 5e6: false} {
		in.Nodes[0].In.BudgetBPS = budget
		r := newEngine(t).Round(in)
		moved := slices.ContainsFunc(r.Decisions, func(d engine.Decision) bool {
			return d.Action == engine.Move && d.Node == "c" && d.Cause == engine.CauseRefused && d.MinBPS == 0 && d.InMinBPS == 5e6 && strings.Contains(d.Reason, "minimums there, in 5mbit of web")
		})
		if moved != moves {
			t.Errorf("of 5 Mbit/s %d fit: %+v", budget, r.Decisions)
		}
	}
}

// TestRelieveFlapping: an uplink that is slow for a moment, each minute, is left once in many.
func TestRelieveFlapping(t *testing.T) {
	e := newEngine(t)
	s := web(func(s *spec.Spec) { s.Labels = map[string]string{"weir.min": "5mbit"} })
	in := crowd(s, boards("abc"), 5, 0.1, running("web", "a", 1, 5, 0.1))
	in.Claims = []engine.Claim{{Service: "web", Node: "a", MinBPS: 5e6}}
	left := map[int]bool{} // by the minute
	for half := range 2 * 600 {
		slow := half%120 < 10
		in.Nodes = boards("abc")
		if in.Instances[0].MinCut = slow; slow {
			in.Nodes[0].Out.BudgetBPS = 4e6
		}
		r := e.Round(in)
		in = later(in, r, time.Second/2)
		for _, d := range r.Decisions {
			if d.Cause == engine.CauseRefused && d.Action == engine.Move {
				left[half/120] = true // and it comes back at once
			}
		}
	}
	if len(left) != 2 || !left[0] || !left[5] { // which is when the first time is forgotten
		t.Errorf("it was left in minutes %v", left)
	}
}

// TestRelieveExclusive: what may have one instance only stays.
func TestRelieveExclusive(t *testing.T) {
	s := web(func(s *spec.Spec) {
		s.Labels, s.Container = map[string]string{"weir.min": "5mbit"}, &spec.Container{Mounts: []spec.Mount{{Type: "volume", Source: "data", Target: "/data"}}}
	})
	in := crowd(s, boards("abc"), 5, 0.1, running("web", "a", 1, 5, 0.1))
	in.Instances[0].MinCut, in.Nodes[0].Out.BudgetBPS = true, 4e6
	in.Claims = []engine.Claim{{Service: "web", Node: "a", MinBPS: 5e6}}
	if d := find(t, newEngine(t).Round(in), engine.CauseRefused); d.Action != engine.Keep || !strings.Contains(d.Reason, "one instance at a time") {
		t.Errorf("%+v", d)
	}
}
