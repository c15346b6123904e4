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
		d, after := engine.Divide(map[string]engine.Rates{"web": {Out: 20e6}}, promises, nil, test.users, test.before)
		got := fmt.Sprint(d.Sent["web-1"].Out / 1e6)
		for _, node := range []string{"a", "b", "c", "d"} {
			if n, there := d.Needs[engine.Entry{Service: "web", Node: node}]; there {
				got += fmt.Sprintf(" %s:%d+%d", node, n.LocalBPS/1e6, n.RelayedBPS/1e6)
				if n.AckBPS != n.RelayedBPS/16 || n.StartingBPS != 0 {
					t.Errorf("%s: %+v", name, n)
				}
			}
		}
		if got != test.want || d.Parts["web-1"].Out != 20e6 {
			t.Errorf("%s: %s, want %s: %+v", name, got, test.want, d)
		}
		if again, _ := engine.Divide(map[string]engine.Rates{"web": {Out: 20e6}}, promises, nil, test.users, after); fmt.Sprint(again) != fmt.Sprint(d) {
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
		d, _ := engine.Divide(map[string]engine.Rates{"web": {Out: 6e6}}, test.promises, test.starting, test.users, nil)
		nodes, parts := map[string]float64{}, map[string]float64{}
		for at, need := range d.Needs {
			nodes[at.Node] = float64(need.BPS()) / 1e6
			if at.In {
				t.Errorf("%s: %+v is received", name, need)
			}
		}
		for id, bps := range d.Parts {
			parts[id] = float64(bps.Out) / 1e6
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
	minBPS := map[string]engine.Rates{"web": {Out: 100e6}}
	path := func(node int) engine.Path { return engine.Path{Instance: "web-1", Node: fmt.Sprint("n", node)} }
	for name, first := range map[string]float64{"the same": 1, "one with more": 3} {
		users := map[engine.Path]float64{}
		for node := range nodes {
			users[path(node)] = 1
		}
		users[path(0)] = first
		d, after := engine.Divide(minBPS, promises, nil, users, nil)
		if d.Needs[engine.Entry{Service: "web", Node: "own"}].LocalBPS != 0 || d.Sent["web-1"].Out != 100e6 || len(after) < nodes*9/10 {
			t.Errorf("%s: %d nodes have parts, %d bit/s of 100 Mbit/s are sent", name, len(after), d.Sent["web-1"].Out)
		}
		if again, _ := engine.Divide(minBPS, promises, nil, users, after); again.Sent["web-1"].Out != 100e6 {
			t.Errorf("%s: once more %d bit/s", name, again.Sent["web-1"].Out)
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
		return engine.Division{MinBPS: map[string]engine.Rates{"web": {Out: 20e6}}, Needs: map[engine.Entry]engine.Need{at("b"): {LocalBPS: b}, at("gone"): {LocalBPS: 1e6}}}
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

// TestDivideReceived: what users send is divided as what they get, each packet the other way, and proxies
// pass it on to instances of other nodes.
func TestDivideReceived(t *testing.T) {
	promises := engine.Promises{"web-1": {Service: "web", Node: "a"}}
	users := map[engine.Path]float64{{Instance: "web-1", Node: "a"}: 1, {Instance: "web-1", Node: "b"}: 1}
	at := func(node string, in bool) engine.Entry { return engine.Entry{Service: "web", Node: node, In: in} }
	for name, test := range map[string]struct {
		minimum engine.Rates
		want    map[engine.Entry]engine.Need
	}{
		"received only": {engine.Rates{In: 8e6}, map[engine.Entry]engine.Need{
			at("a", true): {LocalBPS: 4e6, SentBPS: 4e6}, at("b", true): {RelayedBPS: 4e6, AckBPS: 250e3}, at("b", false): {ForwardedBPS: 4e6},
		}},
		"both": {engine.Rates{Out: 16e6, In: 8e6}, map[engine.Entry]engine.Need{
			at("a", true): {LocalBPS: 4e6, SentBPS: 4e6}, at("b", true): {RelayedBPS: 4e6, AckBPS: 250e3},
			at("a", false): {LocalBPS: 8e6, SentBPS: 8e6}, at("b", false): {RelayedBPS: 8e6, AckBPS: 500e3, ForwardedBPS: 4e6},
		}},
	} {
		d, _ := engine.Divide(map[string]engine.Rates{"web": test.minimum}, promises, nil, users, nil)
		if half := (engine.Rates{Out: test.minimum.Out / 2, In: test.minimum.In / 2}); !maps.Equal(d.Needs, test.want) || d.Parts["web-1"] != test.minimum || d.Sent["web-1"] != half {
			t.Errorf("%s: %+v, want %+v", name, d, test.want)
		}
	}
	// An instance that starts has its part kept in both directions.
	promises["web-2"] = engine.Promise{Service: "web", Node: "c"}
	d, _ := engine.Divide(map[string]engine.Rates{"web": {Out: 16e6, In: 8e6}}, promises, map[string]bool{"web-2": true}, users, nil)
	if out, in := d.Needs[at("c", false)], d.Needs[at("c", true)]; out != (engine.Need{StartingBPS: 8e6}) || in != (engine.Need{StartingBPS: 4e6}) || d.Parts["web-2"] != (engine.Rates{Out: 8e6, In: 4e6}) {
		t.Errorf("%+v and %+v: %+v", out, in, d.Parts)
	}
}

// TestClaimsReceived: a node promises what it receives within that room alone, beside what it sends.
func TestClaimsReceived(t *testing.T) {
	out, in := engine.Entry{Service: "web", Node: "a"}, engine.Entry{Service: "web", Node: "a", In: true}
	needs := engine.Division{MinBPS: map[string]engine.Rates{"web": {Out: 20e6, In: 20e6}}, Needs: map[engine.Entry]engine.Need{out: {LocalBPS: 20e6}, in: {LocalBPS: 20e6}}}
	for name, test := range map[string]struct {
		room engine.Room
		want uint64
	}{
		"room": {engine.Room{BudgetBPS: 30e6}, 20e6}, "others'": {engine.Room{BudgetBPS: 30e6, OtherMinBPS: 15e6}, 15e6}, "not shared": {engine.Room{}, 0},
	} {
		nodes := boards("a")
		nodes[0].In = test.room
		p := engine.AdmitClaims(nodes, nil, nil, needs, nil)
		if want := (engine.Promise{Service: "web", Node: "a", Claim: true, MinBPS: 20e6, InMinBPS: test.want}); len(p) != 1 || p["web@a"] != want {
			t.Errorf("%s: %+v", name, p)
		}
		none := engine.Division{MinBPS: needs.MinBPS, Needs: map[engine.Entry]engine.Need{out: {LocalBPS: 20e6}}}
		if q := engine.AdmitClaims(nodes, p, p, none, nil); len(q) != 1 || q.ClaimBPS(out) != 20e6 || q.ClaimBPS(in) != 0 {
			t.Errorf("%s: given back: %+v", name, q)
		}
	}
	// What is passed on differs a little in the division of another weir-edge, too.
	passed := engine.Promises{"web@a": {Service: "web", Node: "a", MinBPS: 10e6, Claim: true}}
	for bps, want := range map[uint64]uint64{8e6: 10e6, 7e6: 7e6} {
		d := engine.Division{MinBPS: map[string]engine.Rates{"web": {In: 20e6}}, Needs: map[engine.Entry]engine.Need{out: {ForwardedBPS: bps}}}
		if p := engine.AdmitClaims(boards("a"), passed, passed, d, nil); p.ClaimBPS(out) != want {
			t.Errorf("%d is needed: %+v", bps, p)
		}
		if off := d.UsersOffBPS("web"); off != 0 {
			t.Errorf("what users get may differ by %d", off)
		}
	}
}

// TestDivided: whatever users do, all of them together have the minimum in each direction, the nodes of
// instances send as much as others relay, and nothing is promised that a node does not have.
func TestDivided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := boards("abc")
		for i := range nodes {
			nodes[i].Out.OtherMinBPS = rapid.Uint64Range(0, 95e6).Draw(t, "other")
			nodes[i].In.BudgetBPS = rapid.SampledFrom([]uint64{0, 30e6, 200e6}).Draw(t, "in budget")
			nodes[i].In.OtherMinBPS = rapid.Uint64Range(0, nodes[i].In.BudgetBPS).Draw(t, "other in")
		}
		promises, users, starting := engine.Promises{}, map[engine.Path]float64{}, map[string]bool{}
		minimum := rapid.Uint64Range(0, 90e6)
		minBPS := map[string]engine.Rates{"web": {Out: minimum.Draw(t, "min"), In: minimum.Draw(t, "in min")}}
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
			about := func(what string, got, want uint64) {
				if got > want || want-got > 20 {
					t.Fatalf("%s: %d of %d: %+v", what, got, want, d)
				}
			}
			for _, in := range []bool{false, true} {
				m := minBPS["web"].Of(in)
				var atUsers, relayed, sent, bySent, kept uint64
				for at, n := range d.Needs {
					if at.In == in {
						atUsers, relayed, sent, kept = atUsers+n.LocalBPS+n.RelayedBPS, relayed+n.RelayedBPS, sent+n.SentBPS, max(kept, n.StartingBPS)
					}
					if received := d.Needs[engine.Entry{Service: "web", Node: at.Node, In: true}]; !at.In && n.ForwardedBPS != received.RelayedBPS || at.In && n.ForwardedBPS > 0 {
						t.Fatalf("%s forwards %d, and relays %d", at.Node, n.ForwardedBPS, received.RelayedBPS)
					}
				}
				for id := range promises {
					bySent += d.Sent[id].Of(in)
				}
				about("users", atUsers, m)
				about("relayed", min(relayed, sent), max(relayed, sent))
				about("sent", min(bySent, sent), max(bySent, sent))
				if kept > m {
					t.Fatalf("%d is kept for instances that start: %+v", kept, d)
				}
			}
			before := maps.Clone(promises)
			promises = engine.AdmitClaims(nodes, promises, promises, d, map[engine.Entry]uint64{})
			for id, p := range before {
				if !p.Claim && promises[id] != p {
					t.Fatalf("%s: %+v became %+v", id, p, promises[id])
				}
			}
			for i := range nodes {
				for _, in := range []bool{false, true} {
					room := nodes[i].Room(in)
					all := room.OtherMinBPS
					for _, p := range promises {
						if p.Node == nodes[i].Name {
							all += p.Minimum().Of(in)
						}
					}
					if all > room.BudgetBPS {
						t.Fatalf("%s has %d, and %d is promised; received: %t", nodes[i].Name, room.BudgetBPS, all, in)
					}
				}
			}
			for path := range users {
				users[path] = odd(50).Draw(t, "users")
			}
		}
	})
}
