package engine_test

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestDivide: a minimum is in force where users come to, and at its own node once.
func TestDivide(t *testing.T) {
	promises := engine.Promises{
		"web-1": {Service: "web", Node: "a", MinBPS: 20e6}, "web@c": {Service: "web", Node: "c", MinBPS: 5e6, Relay: true},
		"free-1": {Service: "free", Node: "a"},
	}
	path := func(node string) engine.Path { return engine.Path{Instance: "web-1", Node: node} }
	at := func(node string) engine.Entry { return engine.Entry{Service: "web", Node: node} }
	for name, test := range map[string]struct {
		users  map[engine.Path]float64
		before engine.Hundredths
		want   string // local at a, sent, relayed at b and c, in Mbit/s
	}{
		"nobody":                 {nil, nil, "20 0 0 0"},
		"at its own node":        {map[engine.Path]float64{path("a"): 7}, nil, "20 0 0 0"},
		"at another":             {map[engine.Path]float64{path("b"): 1}, nil, "0 20 21 0"},
		"half and half":          {map[engine.Path]float64{path("a"): 5, path("b"): 5}, nil, "10 10 10 0"},
		"at three":               {map[engine.Path]float64{path("a"): 5, path("b"): 3, path("c"): 2}, nil, "10 10 6 4"},
		"one of many":            {map[engine.Path]float64{path("a"): 50, path("b"): 1}, nil, "20 0 0 0"},
		"about as before":        {map[engine.Path]float64{path("a"): 54, path("b"): 46}, engine.Hundredths{path("b"): 50}, "10 10 10 0"},
		"a quarter each":         {map[engine.Path]float64{path("a"): 1, path("b"): 1, path("c"): 1, path("d"): 1}, nil, "5 15 5 5"},
		"a few elsewhere":        {map[engine.Path]float64{path("a"): 60, path("b"): 36, path("c"): 1.9}, nil, "12 7 7 0"},
		"few are left":           {map[engine.Path]float64{path("a"): 2, path("b"): 98}, engine.Hundredths{path("b"): 92}, "0 20 21 0"},
		"none is left":           {map[engine.Path]float64{path("b"): 98}, engine.Hundredths{path("b"): 97}, "0 20 21 0"},
		"few more elsewhere":     {map[engine.Path]float64{path("a"): 96, path("b"): 4}, nil, "20 0 0 0"},
		"nobody there any more":  {map[engine.Path]float64{path("a"): 5}, engine.Hundredths{path("b"): 6}, "20 0 0 0"},
		"clearly another":        {map[engine.Path]float64{path("a"): 59, path("b"): 41}, engine.Hundredths{path("b"): 50}, "11 8 8 0"},
		"what cannot be":         {map[engine.Path]float64{path("a"): math.NaN(), path("b"): math.Inf(1), path("c"): -1}, nil, "20 0 0 0"},
		"of an instance unknown": {map[engine.Path]float64{{Instance: "web-9", Node: "b"}: 4}, nil, "20 0 0 0"},
		"more than all before":   {map[engine.Path]float64{path("b"): 5, path("c"): 5}, engine.Hundredths{path("b"): 50, path("c"): 60}, "0 20 10 10"},
	} {
		d, after := engine.Divide(promises, test.users, test.before)
		mbit := func(bps uint64) uint64 { return bps / 1e6 }
		got := fmt.Sprint(mbit(d.Local[at("a")]), mbit(d.Sent["web-1"]), mbit(d.Relayed[at("b")]), mbit(d.Relayed[at("c")]))
		if got != test.want || len(d.Local) != 1 {
			t.Errorf("%s: %s, want %s: %+v", name, got, test.want, d)
		}
		if again, _ := engine.Divide(promises, test.users, after); fmt.Sprint(again) != fmt.Sprint(d) {
			t.Errorf("%s: once more %+v, was %+v", name, again, d)
		}
	}
}

// TestDivideAmongMany: of many nodes with few users each a few have no part, and not all.
func TestDivideAmongMany(t *testing.T) {
	const nodes = 60
	promises := engine.Promises{"web-1": {Service: "web", Node: "own", MinBPS: 100e6}}
	path := func(node int) engine.Path { return engine.Path{Instance: "web-1", Node: fmt.Sprint("n", node)} }
	for name, first := range map[string]float64{"the same": 1, "one with more": 3} {
		users := map[engine.Path]float64{}
		for node := range nodes {
			users[path(node)] = 1
		}
		users[path(0)] = first
		d, after := engine.Divide(promises, users, nil)
		if d.Local[engine.Entry{Service: "web", Node: "own"}] != 0 || d.Sent["web-1"] != 100e6 || len(after) < nodes*9/10 {
			t.Errorf("%s: %d nodes have parts, %d bit/s of 100 Mbit/s are sent", name, len(after), d.Sent["web-1"])
		}
		if again, _ := engine.Divide(promises, users, after); again.Sent["web-1"] != 100e6 {
			t.Errorf("%s: once more %d bit/s", name, again.Sent["web-1"])
		}
	}
}

// TestRelays: what is relayed is promised, never beyond what a node has, and given back
// when it is not in force any more.
func TestRelays(t *testing.T) {
	nodes := boards("ab")
	nodes[1].OtherMinBPS = 80e6 // of 95
	at := func(node string) engine.Entry { return engine.Entry{Service: "web", Node: node} }
	now := engine.Promises{"web-1": {Service: "web", Node: "a", MinBPS: 20e6}}
	wants := map[engine.Entry]uint64{at("b"): 20e6, at("gone"): 1e6}
	after := engine.AdmitRelays(nodes, now, wants, nil)
	if want := (engine.Promise{Service: "web", Node: "b", MinBPS: 15e6, Relay: true}); len(after) != 2 || after["web@b"] != want {
		t.Errorf("%+v", after)
	}
	for _, node := range []engine.Node{{Name: "b", State: engine.NodeStale, Weir: true, BudgetBPS: 95e6}, {Name: "b", State: engine.NodeReady, BudgetBPS: 95e6}, {Name: "b", State: engine.NodeReady, Weir: true, ReadOnly: true, BudgetBPS: 95e6}} {
		if p := engine.AdmitRelays([]engine.Node{node}, now, wants, nil); len(p) != 1 {
			t.Errorf("on %+v: %+v", node, p)
		}
	}
	// A little more than is needed stays.
	for wanted, want := range map[uint64]uint64{14e6: 15e6, 13e6: 13e6} {
		p := engine.AdmitRelays(nodes, after, map[engine.Entry]uint64{at("b"): wanted}, map[engine.Entry]uint64{at("b"): 0})
		if p["web@b"].MinBPS != want {
			t.Errorf("%d is wanted: %+v", wanted, p)
		}
	}
	// A small one goes all the same when nobody needs it.
	small := engine.Promises{"web-1": now["web-1"], "web@b": {Service: "web", Node: "b", MinBPS: 1e6, Relay: true}}
	if p := engine.AdmitRelays(nodes, small, nil, map[engine.Entry]uint64{at("b"): 0}); len(p) != 1 {
		t.Errorf("nobody needs it: %+v", p)
	}
	// It is not wanted any more.
	for _, tc := range []struct {
		inForce map[engine.Entry]uint64
		want    uint64
	}{
		{nil, 15e6}, // nobody has looked
		{map[engine.Entry]uint64{at("b"): 15e6}, 15e6},
		{map[engine.Entry]uint64{at("b"): 4e6}, 4e6},
		{map[engine.Entry]uint64{at("b"): 0}, 0},
	} {
		p := engine.AdmitRelays(nodes, after, nil, tc.inForce)
		if _, there := p["web@b"]; p["web@b"].MinBPS != tc.want || there != (tc.want > 0) {
			t.Errorf("in force %v: %+v", tc.inForce, p)
		}
	}
}

// TestInstanceInPlaceOfRelay: an instance needs no room for what is relayed to its users
// already, and nobody else has it.
func TestInstanceInPlaceOfRelay(t *testing.T) {
	e := newEngine(t)
	nodes := boards("b")
	now := engine.Promises{"web@b": {Service: "web", Node: "b", MinBPS: 60e6, Relay: true}}
	decide := func(service string) engine.Decision {
		s := web(func(s *spec.Spec) { s.Name, s.Labels = service, map[string]string{"weir.min": "50mbit"} })
		in := engine.Input{At: start, Nodes: nodes, Services: []engine.Service{s}, Relays: []engine.Relay{{Service: "web", Node: "b", MinBPS: 60e6}}}
		return only(t, e.Round(in))
	}
	if d := decide("other"); d.Action != engine.Keep || !strings.Contains(d.Reason, "cannot promise 50mbit more") {
		t.Errorf("%+v", d)
	}
	d := decide("web")
	if d.Action != engine.Start || d.Alternatives[0].FreeBPS != 85e6 {
		t.Fatalf("%+v", d)
	}
	after, admitted, refused := e.Admit(nodes, now, now, []engine.Decision{d})
	if len(admitted) != 1 || after["web-1"].MinBPS != 50e6 || after["web@b"].MinBPS != 10e6 {
		t.Errorf("%+v, refused %+v", after, refused)
	}
	d.Service, d.Instance = "other", "other-1"
	if _, admitted, refused := e.Admit(nodes, now, now, []engine.Decision{d}); len(admitted) != 0 || len(refused) != 1 {
		t.Errorf("%+v was admitted", admitted)
	}
}

// TestDivided: whatever users do, an instance's own uplink has to keep its minimum and no
// more, and with relays nothing is promised that a node does not have.
func TestDivided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := boards("abc")
		for i := range nodes {
			nodes[i].OtherMinBPS = rapid.Uint64Range(0, 95e6).Draw(t, "other")
		}
		promises, sums := engine.Promises{}, map[string]uint64{}
		users := map[engine.Path]float64{}
		for i := range rapid.IntRange(0, 6).Draw(t, "instances") {
			n := rapid.IntRange(0, 2).Draw(t, "node")
			id := engine.InstanceID("web", i+1)
			p := engine.Promise{Service: "web", Node: nodes[n].Name, MinBPS: rapid.Uint64Range(0, 30e6).Draw(t, "min")}
			if sums[p.Node]+p.MinBPS+nodes[n].OtherMinBPS > nodes[n].BudgetBPS {
				continue
			}
			sums[p.Node] += p.MinBPS
			promises[id] = p
			for _, node := range nodes {
				users[engine.Path{Instance: id, Node: node.Name}] = odd(50).Draw(t, "users")
			}
		}
		var parts engine.Hundredths
		for range 3 {
			var d engine.Division
			d, parts = engine.Divide(promises, users, parts)
			for id, p := range promises {
				if !p.Relay && d.Sent[id] > p.MinBPS {
					t.Fatalf("%s sends %d of %d", id, d.Sent[id], p.MinBPS)
				}
			}
			for _, node := range nodes {
				own := d.Local[engine.Entry{Service: "web", Node: node.Name}]
				for id, p := range promises {
					if p.Node == node.Name {
						own += d.Sent[id]
					}
				}
				if own != sums[node.Name] {
					t.Fatalf("%s keeps %d, and %d is promised", node.Name, own, sums[node.Name])
				}
			}
			before := maps.Clone(promises)
			promises = engine.AdmitRelays(nodes, promises, d.Relayed, map[engine.Entry]uint64{})
			for id, p := range before {
				if !p.Relay && promises[id] != p {
					t.Fatalf("%s: %+v became %+v", id, p, promises[id])
				}
			}
			for _, node := range nodes {
				all := node.OtherMinBPS
				for _, p := range promises {
					if p.Node == node.Name {
						all += p.MinBPS
					}
				}
				if all > node.BudgetBPS {
					t.Fatalf("%s has %d, and %d is promised", node.Name, node.BudgetBPS, all)
				}
			}
			for path := range users {
				users[path] = odd(50).Draw(t, "users")
			}
		}
	})
}
