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

// TestDivide: a minimum is in force where users come to, once for all instances.
func TestDivide(t *testing.T) {
	promises := engine.Promises{
		"web-1": {Service: "web", Node: "a"}, "web@c": {Service: "web", Node: "c", MinBPS: 5e6, Claim: true}, "free-1": {Service: "free", Node: "a"},
	}
	path := func(node string) engine.Path { return engine.Path{Instance: "web-1", Node: node} }
	for name, test := range map[string]struct {
		users  map[engine.Path]float64
		before engine.Hundredths
		want   string // what is sent, and the users, in Mbit/s
	}{
		"nobody":                 {nil, nil, "0 a:20+0"},
		"at its own node":        {map[engine.Path]float64{path("a"): 7}, nil, "0 a:20+0"},
		"at another":             {map[engine.Path]float64{path("b"): 1}, nil, "20 a:0+0 b:0+20"},
		"half and half":          {map[engine.Path]float64{path("a"): 5, path("b"): 5}, nil, "10 a:10+0 b:0+10"},
		"at three":               {map[engine.Path]float64{path("a"): 5, path("b"): 3, path("c"): 2}, nil, "10 a:10+0 b:0+6 c:0+4"},
		"one of many":            {map[engine.Path]float64{path("a"): 50, path("b"): 1}, nil, "0 a:20+0"},
		"about as before":        {map[engine.Path]float64{path("a"): 54, path("b"): 46}, engine.Hundredths{path("a"): 50, path("b"): 50}, "10 a:10+0 b:0+10"},
		"a quarter each":         {map[engine.Path]float64{path("a"): 1, path("b"): 1, path("c"): 1, path("d"): 1}, nil, "15 a:5+0 b:0+5 c:0+5 d:0+5"},
		"a few elsewhere":        {map[engine.Path]float64{path("a"): 60, path("b"): 36, path("c"): 1.9}, nil, "7 a:12+0 b:0+7"},
		"few are left":           {map[engine.Path]float64{path("a"): 2, path("b"): 98}, engine.Hundredths{path("a"): 8, path("b"): 92}, "20 a:0+0 b:0+20"},
		"none is left":           {map[engine.Path]float64{path("b"): 98}, engine.Hundredths{path("a"): 3, path("b"): 97}, "20 a:0+0 b:0+20"},
		"few more elsewhere":     {map[engine.Path]float64{path("a"): 96, path("b"): 4}, engine.Hundredths{path("a"): 100}, "0 a:20+0"},
		"nobody there any more":  {map[engine.Path]float64{path("a"): 5}, engine.Hundredths{path("a"): 94, path("b"): 6}, "0 a:20+0"},
		"clearly another":        {map[engine.Path]float64{path("a"): 59, path("b"): 41}, engine.Hundredths{path("a"): 50, path("b"): 50}, "8 a:11+0 b:0+8"},
		"what cannot be":         {map[engine.Path]float64{path("a"): math.NaN(), path("b"): math.Inf(1), path("c"): -1}, nil, "0 a:20+0"},
		"of an instance unknown": {map[engine.Path]float64{{Instance: "web-9", Node: "b"}: 4}, nil, "0 a:20+0"},
		"more than all before":   {map[engine.Path]float64{path("b"): 5, path("c"): 5}, engine.Hundredths{path("b"): 50, path("c"): 60}, "20 a:0+0 b:0+10 c:0+10"},
	} {
		d, after := engine.Divide(map[string]uint64{"web": 20e6}, promises, nil, test.users, test.before)
		got := fmt.Sprint(d.Sent["web-1"] / 1e6)
		for _, node := range []string{"a", "b", "c", "d"} {
			if n, there := d.Needs[engine.Entry{Service: "web", Node: node}]; there {
				got += fmt.Sprintf(" %s:%d+%d", node, n.LocalBPS/1e6, n.RelayedBPS/1e6)
				if n.AckBPS != n.RelayedBPS/16 || n.StartingBPS != 0 {
					t.Errorf("%s: %+v", name, n)
				}
			}
		}
		if got != test.want || d.Parts["web-1"] != 20e6 {
			t.Errorf("%s: %s, want %s: %+v", name, got, test.want, d)
		}
		if again, _ := engine.Divide(map[string]uint64{"web": 20e6}, promises, nil, test.users, after); fmt.Sprint(again) != fmt.Sprint(d) {
			t.Errorf("%s: once more %+v, was %+v", name, again, d)
		}
	}
}

// TestInstancesAddNone: however many instances there are on however many nodes, they have the
// service's minimum together.
func TestInstancesAddNone(t *testing.T) {
	p := func(node string) engine.Promise { return engine.Promise{Service: "web", Node: node} }
	path := func(instance, node string) engine.Path { return engine.Path{Instance: instance, Node: node} }
	four := engine.Promises{"web-1": p("a"), "web-2": p("a"), "web-3": p("a"), "web-4": p("a")}
	two := engine.Promises{"web-1": p("a"), "web-2": p("b")}
	moved := engine.Promises{"web-1": p("a"), "web-2": {Service: "web", Node: "b", Replaces: "web-1"}}
	stopping := engine.Promises{"web-1": {Service: "web", Node: "a", Stopping: true}, "web-2": p("b")}
	for name, test := range map[string]struct {
		promises engine.Promises
		starting map[string]bool
		users    map[engine.Path]float64
		want     string // of each node and each instance
	}{
		"one engine": {four, nil, map[engine.Path]float64{path("web-1", "a"): 3, path("web-2", "a"): 1}, "map[a:6] map[web-1:4.5 web-2:1.5]"},
		"nobody":     {four, nil, nil, "map[a:6] map[web-1:1.5 web-2:1.5 web-3:1.5 web-4:1.5]"},
		"alike":      {two, nil, nil, "map[a:3 b:3] map[web-1:3 web-2:3]"},
		"at both":    {two, nil, map[engine.Path]float64{path("web-1", "a"): 1, path("web-2", "b"): 3}, "map[a:1.5 b:4.5] map[web-1:1.5 web-2:4.5]"},
		"at one":     {two, nil, map[engine.Path]float64{path("web-1", "a"): 2, path("web-2", "a"): 1}, "map[a:6.12375 b:1.98] map[web-1:4.02 web-2:1.98]"},
		// What is kept for one that starts is beside what users have.
		"one more here": {four, map[string]bool{"web-4": true}, map[engine.Path]float64{path("web-1", "a"): 3}, "map[a:6] map[web-1:6 web-4:1.5]"},
		"one more":      {two, map[string]bool{"web-2": true}, map[engine.Path]float64{path("web-1", "a"): 3}, "map[a:6 b:3] map[web-1:6 web-2:3]"},
		"in its place":  {moved, map[string]bool{"web-2": true}, map[engine.Path]float64{path("web-1", "a"): 3}, "map[a:6 b:6] map[web-1:6 web-2:6]"},
		"it answers":    {moved, nil, map[engine.Path]float64{path("web-1", "a"): 3}, "map[a:6 b:6] map[web-1:6]"},
		"it ends":       {stopping, nil, nil, "map[b:6] map[web-2:6]"},
	} {
		d, _ := engine.Divide(map[string]uint64{"web": 6e6}, test.promises, test.starting, test.users, nil)
		nodes, parts := map[string]float64{}, map[string]float64{}
		for at, need := range d.Needs {
			nodes[at.Node] = float64(need.BPS()) / 1e6
		}
		for id, bps := range d.Parts {
			parts[id] = float64(bps) / 1e6
		}
		if got := fmt.Sprint(nodes, parts); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestDivideAmongMany: of many nodes with few users each a few have no part, and not all.
func TestDivideAmongMany(t *testing.T) {
	const nodes = 60
	promises := engine.Promises{"web-1": {Service: "web", Node: "own"}}
	minBPS := map[string]uint64{"web": 100e6}
	path := func(node int) engine.Path { return engine.Path{Instance: "web-1", Node: fmt.Sprint("n", node)} }
	for name, first := range map[string]float64{"the same": 1, "one with more": 3} {
		users := map[engine.Path]float64{}
		for node := range nodes {
			users[path(node)] = 1
		}
		users[path(0)] = first
		d, after := engine.Divide(minBPS, promises, nil, users, nil)
		if d.Needs[engine.Entry{Service: "web", Node: "own"}].LocalBPS != 0 || d.Sent["web-1"] != 100e6 || len(after) < nodes*9/10 {
			t.Errorf("%s: %d nodes have parts, %d bit/s of 100 Mbit/s are sent", name, len(after), d.Sent["web-1"])
		}
		if again, _ := engine.Divide(minBPS, promises, nil, users, after); again.Sent["web-1"] != 100e6 {
			t.Errorf("%s: once more %d bit/s", name, again.Sent["web-1"])
		}
	}
}

// TestClaims: what a minimum takes is promised, never beyond what a node has, and given back
// when it is not in force any more.
func TestClaims(t *testing.T) {
	nodes := boards("ab")
	nodes[1].Out.OtherMinBPS = 80e6 // of 95
	at := func(node string) engine.Entry { return engine.Entry{Service: "web", Node: node} }
	needs := func(b uint64) engine.Division {
		return engine.Division{MinBPS: map[string]uint64{"web": 20e6}, Needs: map[engine.Entry]engine.Need{at("b"): {LocalBPS: b}, at("gone"): {LocalBPS: 1e6}}}
	}
	claim := engine.Promise{Service: "web", Node: "b", MinBPS: 15e6, Claim: true}
	now := engine.Promises{"web-1": {Service: "web", Node: "a"}}
	after := engine.AdmitClaims(nodes, now, now, needs(20e6), nil)
	if len(after) != 2 || after["web@b"] != claim {
		t.Errorf("%+v", after)
	}
	for _, node := range []engine.Node{{Name: "b", State: engine.NodeStale, Weir: true, Out: engine.Room{BudgetBPS: 95e6}}, {Name: "b", State: engine.NodeReady, Out: engine.Room{BudgetBPS: 95e6}}, {Name: "b", State: engine.NodeReady, Weir: true, ReadOnly: true, Out: engine.Room{BudgetBPS: 95e6}}} {
		if p := engine.AdmitClaims([]engine.Node{node}, now, now, needs(20e6), nil); len(p) != 1 {
			t.Errorf("on %+v: %+v", node, p)
		}
	}
	small := engine.Promises{"web-1": now["web-1"], "web@b": {Service: "web", Node: "b", MinBPS: 1e6, Claim: true}}
	for name, test := range map[string]struct {
		seen, now engine.Promises
		needs     uint64
		inForce   uint64
		want      uint64
	}{
		"a little too much stays": {after, after, 13e6, 0, 15e6},
		"too much":                {after, after, 12.5e6, 0, 12.5e6},
		"in force":                {after, after, 0, 15e6, 15e6},
		"partly in force":         {after, after, 0, 4e6, 4e6},
		"not any more":            {after, after, 0, 0, 0},
		"a small one":             {small, small, 0, 0, 0},
		"it was not seen":         {now, after, 0, 0, 15e6},
		"it was another":          {small, after, 1e6, 1e6, 15e6},
	} {
		p := engine.AdmitClaims(nodes, test.seen, test.now, needs(test.needs), map[engine.Entry]uint64{at("b"): test.inForce})
		if _, there := p["web@b"]; p["web@b"].MinBPS != test.want || there != (test.want > 0) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestInstanceInPlaceOfClaim: an instance needs no room for what its service claims on the node
// already, and no other service has it.
func TestInstanceInPlaceOfClaim(t *testing.T) {
	e := newEngine(t)
	nodes := boards("b")
	now := engine.Promises{"web@b": {Service: "web", Node: "b", MinBPS: 60e6, Claim: true}}
	decide := func(service string, there ...engine.Instance) engine.Decision {
		s := web(func(s *spec.Spec) {
			s.Name, s.Labels, s.NumUsers, s.MaxUsers = service, map[string]string{"weir.min": "50mbit"}, 40, 10
		})
		in := engine.Input{At: start, Nodes: nodes, Services: []engine.Service{s}, Instances: there, Claims: []engine.Claim{{Service: "web", Node: "b", MinBPS: 60e6}}}
		return e.Round(in).Decisions[0]
	}
	if d := decide("other"); d.Action != engine.Keep || !strings.Contains(d.Reason, "cannot promise 50mbit more") {
		t.Errorf("%+v", d)
	}
	d := decide("web")
	if d.Action != engine.Start || d.Alternatives[0].FreeBPS != 95e6 || d.MinBPS != 50e6 {
		t.Fatalf("%+v", d)
	}
	after, admitted, refused := e.Admit(nodes, now, now, []engine.Decision{d})
	if len(admitted) != 1 || after["web-1"] != (engine.Promise{Service: "web", Node: "b"}) || after["web@b"].MinBPS != 60e6 {
		t.Errorf("%+v, refused %+v", after, refused)
	}
	// One more is expected to serve its part.
	if d := decide("web", running("web", "b", 1, 0, 0)); d.Action != engine.Start || d.MinBPS != 25e6 {
		t.Errorf("%+v", d)
	}
	d.Service, d.Instance = "other", "other-1"
	if _, admitted, refused := e.Admit(nodes, now, now, []engine.Decision{d}); len(admitted) != 0 || len(refused) != 1 {
		t.Errorf("%+v was admitted", admitted)
	}
}

// TestDivided: whatever users do, all of them together have the minimum, the nodes of instances
// send as much as others relay, and nothing is promised that a node does not have.
func TestDivided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := boards("abc")
		for i := range nodes {
			nodes[i].Out.OtherMinBPS = rapid.Uint64Range(0, 95e6).Draw(t, "other")
		}
		promises, users, starting := engine.Promises{}, map[engine.Path]float64{}, map[string]bool{}
		minBPS := map[string]uint64{"web": rapid.Uint64Range(0, 90e6).Draw(t, "min")}
		for i := range rapid.IntRange(1, 6).Draw(t, "instances") {
			id := engine.InstanceID("web", i+1)
			promises[id] = engine.Promise{Service: "web", Node: nodes[rapid.IntRange(0, 2).Draw(t, "node")].Name, Stopping: rapid.Bool().Draw(t, "stopping")}
			starting[id] = rapid.Bool().Draw(t, "starting")
			for _, node := range nodes {
				users[engine.Path{Instance: id, Node: node.Name}] = odd(50).Draw(t, "users")
			}
		}
		var parts engine.Hundredths
		for range 3 {
			var d engine.Division
			d, parts = engine.Divide(minBPS, promises, starting, users, parts)
			m := minBPS["web"]
			about := func(what string, got, want uint64) {
				if got > want || want-got > 20 {
					t.Fatalf("%s: %d of %d: %+v", what, got, want, d)
				}
			}
			var atUsers, relayed, sent, bySent, kept uint64
			for _, n := range d.Needs {
				atUsers, relayed, sent, kept = atUsers+n.LocalBPS+n.RelayedBPS, relayed+n.RelayedBPS, sent+n.SentBPS, max(kept, n.StartingBPS)
			}
			for id := range promises {
				bySent += d.Sent[id]
			}
			about("users", atUsers, m)
			about("relayed", min(relayed, sent), max(relayed, sent))
			about("sent", min(bySent, sent), max(bySent, sent))
			if kept > m {
				t.Fatalf("%d is kept for instances that start: %+v", kept, d)
			}
			before := maps.Clone(promises)
			promises = engine.AdmitClaims(nodes, promises, promises, d, map[engine.Entry]uint64{})
			for id, p := range before {
				if !p.Claim && promises[id] != p {
					t.Fatalf("%s: %+v became %+v", id, p, promises[id])
				}
			}
			for _, node := range nodes {
				all := node.Out.OtherMinBPS
				for _, p := range promises {
					if p.Node == node.Name {
						all += p.MinBPS
					}
				}
				if all > node.Out.BudgetBPS {
					t.Fatalf("%s has %d, and %d is promised", node.Name, node.Out.BudgetBPS, all)
				}
			}
			for path := range users {
				users[path] = odd(50).Draw(t, "users")
			}
		}
	})
}
