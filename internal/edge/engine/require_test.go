package engine_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// find returns the first decision with a cause.
func find(t *testing.T, r engine.Result, cause engine.Cause) engine.Decision {
	t.Helper()
	for _, d := range r.Decisions {
		if d.Cause == cause {
			return d
		}
	}
	t.Fatalf("nothing is decided because of %s: %+v", cause, r.Decisions)
	return engine.Decision{}
}

func boards(names string) (list []engine.Node) {
	for _, name := range strings.Split(names, "") {
		list = append(list, board(name))
	}
	return list
}

// TestAvailability: as many nodes as 1 - product(1 - a) takes.
func TestAvailability(t *testing.T) {
	for _, tc := range []struct {
		percent, node float64
		want          int
	}{
		{99, 0.99, 1}, {99.01, 0.99, 2}, {99.99, 0.99, 2}, {99.999, 0.99, 3}, {99.9999, 0.99, 3},
		{99.99, 0.9, 4}, {99.99, 0, 2}, {99.99, 1, 2}, {50, 0.5, 1}, {0, 0.5, 1},
	} {
		nodes := boards("abcde")
		for i := range nodes {
			nodes[i].Availability = tc.node
		}
		s := web(func(s *spec.Spec) { s.AvailabilityPercent = tc.percent })
		r := newEngine(t).Round(engine.Input{At: start, Nodes: nodes, Services: []engine.Service{s}})
		on := map[string]bool{}
		for _, d := range r.Decisions {
			on[d.Node] = d.Action == engine.Start
		}
		if len(on) != tc.want || len(r.Decisions) != tc.want {
			t.Errorf("%v %% on nodes of %v: %d decisions on %v, want %d", tc.percent, tc.node, len(r.Decisions), on, tc.want)
		}
	}
	// More than there are nodes: what there is, and a reason.
	s := web(func(s *spec.Spec) { s.AvailabilityPercent = 99.999 })
	r := newEngine(t).Round(engine.Input{At: start, Nodes: boards("ab"), Services: []engine.Service{s}})
	want := "the service has to be there for 99.999 % of the time, and its nodes are for 99.99 %, but no node can have it: 2 has an instance already (a)"
	if d := r.Decisions[2]; len(r.Decisions) != 3 || d.Action != engine.Keep || d.Reason != want {
		t.Errorf("%+v\nwant %s", d, want)
	}
	s.Spec.Limits.Instances = 1
	r = newEngine(t).Round(engine.Input{At: start, Nodes: boards("ab"), Services: []engine.Service{s}})
	if d := r.Decisions[1]; !strings.Contains(d.Reason, "limits.instances allows no more than 1") {
		t.Error(d.Reason)
	}
}

// TestApart: a scheduler that takes node a where it may gets no more instances than availability takes, of which the
// last waits for a node of its own.
func TestApart(t *testing.T) {
	for nodes, want := range map[string]string{"ab": "web-1 on a, web-2 on b", "abc": "web-1 on a, web-2 on b"} {
		s := web(func(s *spec.Spec) { s.AvailabilityPercent = 99.9 })
		e := newEngine(t)
		in := engine.Input{At: start, Nodes: boards(nodes), Services: []engine.Service{s}, Uncounted: true}
		var has []string
		for range 30 {
			r := e.Round(in)
			for i := range in.Instances {
				in.Instances[i].State = engine.InstanceRunning
			}
			for _, d := range r.Decisions {
				if d.Action == engine.Keep {
					continue
				}
				on := "a"
				if d.Apart {
					on = d.Node
				}
				has = append(has, d.Instance+" on "+on)
				in.Instances = append(in.Instances, engine.Instance{ID: d.Instance, Service: "web", Node: on, State: engine.InstanceStarting, Since: in.At})
			}
			in = later(in, r, time.Second)
		}
		if got := strings.Join(has, ", "); got != want {
			t.Errorf("on %s: %s, want %s", nodes, got, want)
		}
	}
}

func TestEstimateAvailability(t *testing.T) {
	const day = 86400
	for _, tc := range []struct{ up, total, prior, want float64 }{
		{0, 0, 0.99, 0.99}, {day, day, 0.99, 0.995}, {0, day, 0.99, 0.495}, {9 * day, 9 * day, 0.9, 0.99},
		{math.NaN(), math.Inf(1), 0.5, 0.5}, {5, 1, 0.5, (1 + 0.5*day) / (1 + day)},
	} {
		if got := engine.EstimateAvailability(tc.up, tc.total, tc.prior); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// TestRoomOnOtherNodes: instances for availability have room for users, too, wherever
// the image is.
func TestRoomOnOtherNodes(t *testing.T) {
	nodes := boards("abc")
	nodes[0].Images = []string{"busybox"}
	s := web(func(s *spec.Spec) { s.NumUsers, s.AvailabilityPercent, s.ImageBytes = 150, 99.9, 100e6 })
	r := newEngine(t).Round(engine.Input{At: start, Nodes: nodes, Services: []engine.Service{s}})
	on := map[string]bool{}
	for _, d := range r.Decisions {
		on[d.Node] = d.Action == engine.Start
	}
	if len(r.Decisions) != 3 || len(on) < 2 {
		t.Errorf("%d decisions on %v, want 3 on two nodes: %+v", len(r.Decisions), on, r.Decisions)
	}
}

// TestRoom: room for QoS.numUsers at all times.
func TestRoom(t *testing.T) {
	s := web(func(s *spec.Spec) { s.NumUsers = 101 })
	r := newEngine(t).Round(engine.Input{At: start, Nodes: boards("ab"), Services: []engine.Service{s}})
	if len(r.Decisions) != 3 || !strings.HasPrefix(r.Decisions[1].Reason, "there has to be room for 101 users, and 1 instance has room for 50") {
		t.Errorf("%+v", r.Decisions)
	}
}

// TestSlowPull: a start may take as long as the image takes to the node.
func TestSlowPull(t *testing.T) {
	for _, tc := range []struct {
		pullBPS uint64
		seconds time.Duration
		fails   bool
	}{{0, 60, false}, {0, 80, true}, {100e3, 3000, false}, {100e3, 5000, true}} { // 10 MB take 800 s at 100 kbit/s
		in := engine.Input{At: start.Add(tc.seconds * time.Second), Nodes: boards("a"), Services: []engine.Service{web()}}
		in.Nodes[0].PullBPS = tc.pullBPS
		in.Instances = []engine.Instance{{ID: "web-1", Service: "web", Node: "a", State: engine.InstanceStarting, Since: start}}
		if d := newEngine(t).Round(in).Decisions[0]; (d.Cause == engine.CauseFailed) != tc.fails {
			t.Errorf("at %d bit/s after %d s: %s: %s", tc.pullBPS, tc.seconds, d.Action, d.Reason)
		}
	}
}

// TestElsewhere: what cannot stay where it is goes elsewhere, one new for one old.
func TestElsewhere(t *testing.T) {
	minimum := func(s *spec.Spec) { s.Labels = map[string]string{"weir.min": "5mbit"} }
	for _, tc := range []struct {
		cause  engine.Cause
		change func(*engine.Input)
		reason string
	}{
		{engine.CauseNodeGone, func(in *engine.Input) { in.Nodes[0].State = engine.NodeGone }, "web-1 was on a, which does not answer any more: it goes to b is ready"},
		{engine.CauseNodeGone, func(in *engine.Input) { in.Nodes = in.Nodes[1:] }, "web-1 was on a"},
		{engine.CauseDraining, func(in *engine.Input) { in.Nodes[0].State = engine.NodeDraining }, "web-1 is on a, which is being drained"},
		{engine.CauseRefused, func(in *engine.Input) {
			in.Instances[0].MinRefused, in.Instances[0].Reason = true, "2mbit is free"
		}, "a does not keep its part of the minimum 5mbit of web (2mbit is free)"},
	} {
		e := newEngine(t)
		in := crowd(web(minimum), boards("abc"), 10, 0.1, running("web", "a", 1, 10, 0.1))
		in.Nodes[2].CPUUsedPercent = 50
		tc.change(&in)
		d := find(t, e.Round(in), tc.cause)
		if d.Action != engine.Move || d.Replaces != "web-1" || d.From != "a" || d.Instance != "web-2" || d.MinBPS != 5e6 || !strings.Contains(d.Reason, tc.reason) {
			t.Errorf("%s: %+v", tc.cause, d)
		}
		if d.Node != "b" {
			t.Errorf("%s: to %s", tc.cause, d.Node)
		}
		// While that starts nothing more happens.
		in.Instances = append(in.Instances, engine.Instance{ID: d.Instance, Service: "web", Node: d.Node, State: engine.InstanceStarting, Since: start, Replaces: "web-1"})
		if d := only(t, e.Round(in)); d.Action != engine.Keep {
			t.Errorf("%s, while it starts: %+v", tc.cause, d)
		}
		// Once it runs the old one is stopped, if there is somebody to be told.
		in.Instances[1].State = engine.InstanceRunning
		d = e.Round(in).Decisions[0]
		if gone := tc.cause == engine.CauseNodeGone; gone != (d.Action == engine.Keep) || !gone && (d.Action != engine.Stop || d.Instance != "web-1") {
			t.Errorf("%s, when it runs: %+v", tc.cause, d)
		}
	}
}

// TestBackAgain: a node that was gone comes back with its instance, which was replaced.
func TestBackAgain(t *testing.T) {
	in := crowd(web(), boards("ab"), 10, 0.1, running("web", "a", 1, 0, 0), running("web", "b", 2, 10, 0.1))
	in.Instances[1].Replaces = "web-1"
	if d := newEngine(t).Round(in).Decisions[0]; d.Action != engine.Stop || d.Instance != "web-1" || !strings.Contains(d.Reason, "web-2 on b answers in its place") {
		t.Errorf("%+v", d)
	}
}

// TestNameAgain: the name of an instance that was replaced is not given again while the
// one in its place runs, which would take it for the old one.
func TestNameAgain(t *testing.T) {
	in := crowd(web(), boards("ab"), 60, 0.1, running("web", "a", 2, 60, 0.1))
	in.Instances[0].Replaces = "web-1"
	if d := only(t, newEngine(t).Round(in)); d.Instance != "web-3" {
		t.Errorf("%+v", d)
	}
}

// TestReceivedOnce: what one service of a round is promised of what a node receives is missing for the next one.
func TestReceivedOnce(t *testing.T) {
	in := engine.Input{At: start, Nodes: boards("a")}
	in.Nodes[0].In.BudgetBPS = 5e6
	for _, name := range []string{"web", "wiki"} {
		in.Services = append(in.Services, web(func(s *spec.Spec) { s.Name, s.Labels = name, map[string]string{"weir.in.min": "3mbit"} }))
	}
	first, second := newEngine(t).Round(in).Decisions[0], newEngine(t).Round(in).Decisions[1]
	if first.Action != engine.Start || first.InMinBPS != 3e6 || second.Action != engine.Keep || !strings.Contains(second.Reason, "cannot promise 3mbit more of what it receives") {
		t.Errorf("%+v, %+v", first, second)
	}
}

// TestNowhere: each reason why a node cannot have an instance.
func TestNowhere(t *testing.T) {
	for _, tc := range []struct {
		want   string
		change func(*engine.Input)
	}{
		{"there is no node", func(in *engine.Input) { in.Nodes = nil }},
		{"1 is being drained (a)", func(in *engine.Input) { in.Nodes[0].State = engine.NodeDraining }},
		{"1 does not answer (a)", func(in *engine.Input) { in.Nodes[0].State = engine.NodeStale }},
		{"1 has no Weir agent, so no minimum holds there (a)", func(in *engine.Input) { in.Nodes[0].Weir = false }},
		{"1 cannot promise 5mbit more (a)", func(in *engine.Input) { in.Nodes[0].Out.OtherMinBPS = 91e6 }},
		{"1 cannot promise 5mbit more (a)", func(in *engine.Input) {
			in.Claims = []engine.Claim{{Service: "x", Node: "a", MinBPS: math.MaxUint64}}
		}},
		{"1 shares nothing of what it receives, so no weir.in.min holds there: start its Weir agent with --in-rate (a)", func(in *engine.Input) {
			in.Services[0].Spec.Labels["weir.in.min"] = "3mbit"
		}},
		{"1 cannot promise 3mbit more of what it receives (a)", func(in *engine.Input) {
			in.Services[0].Spec.Labels = map[string]string{"weir.in.min": "3mbit"}
			in.Nodes[0].In = engine.Room{BudgetBPS: 10e6, OtherMinBPS: 7e6 + 1}
		}},
		{"1 has no Weir agent, so no minimum holds there (a)", func(in *engine.Input) {
			in.Services[0].Spec.Labels, in.Nodes[0].Weir = map[string]string{"weir.in.min": "3mbit"}, false
		}},
		{"1 has not enough memory (a)", func(in *engine.Input) { in.Services[0].Spec.Limits.MemoryBytes = 900e6 + 1 }},
		{"1 has not enough disk space for the image (a)", func(in *engine.Input) { in.Nodes[0].DiskFreeBytes = 29e6 }},
		{"1 an instance failed there: it ended with exit status 1 (a)", func(in *engine.Input) {
			in.Memory.Services = map[string]engine.ServiceMemory{"web": {Failures: map[string]engine.Failure{"a": {Pace: engine.Pace{Level: 1, Until: start.Add(time.Second)}, Reason: "it ended with exit status 1"}}}}
		}},
	} {
		s := web(func(s *spec.Spec) { s.Labels = map[string]string{"weir.min": "5mbit"} })
		in := engine.Input{At: start, Nodes: boards("a"), Services: []engine.Service{s}}
		tc.change(&in)
		if d := only(t, newEngine(t).Round(in)); d.Action != engine.Keep || !strings.HasSuffix(d.Reason, tc.want) || !strings.HasPrefix(d.Reason, "no instance runs, but ") {
			t.Errorf("%s\nwant %s", d.Reason, tc.want)
		}
	}
	// A node that is exhausted is better than none.
	busy := board("a")
	busy.Load1 = 100
	if d := only(t, newEngine(t).Round(engine.Input{At: start, Nodes: []engine.Node{busy}, Services: []engine.Service{web()}})); d.Action != engine.Start || d.Alternatives[0].Exhausted != "its load is high" {
		t.Errorf("%+v", d)
	}
	// An algorithm that takes none does not keep a service from running.
	s := web(func(s *spec.Spec) { s.Algorithm, s.Rule, s.NumUsers = "rule", "false", 60 })
	r := newEngine(t).Round(crowd(s, boards("ab"), 0, 0, running("web", "a", 1, 0, 0)))
	if d := only(t, r); d.Action != engine.Start || !strings.Contains(d.Reason, "the algorithm rule takes none of the nodes (the rule does not accept it)") {
		t.Errorf("%+v", d)
	}
}

// TestFailures: an image that starts nowhere is not tried everywhere.
func TestFailures(t *testing.T) {
	e := newEngine(t)
	in := engine.Input{At: start, Nodes: boards("abcdefghij"), Services: []engine.Service{web()}}
	starts, waited := 0, false
	for range 1800 {
		r := e.Round(in)
		in.Instances = in.Instances[:0]
		for _, d := range r.Decisions {
			if d.Action == engine.Start {
				starts++
				in.Instances = append(in.Instances, engine.Instance{ID: d.Instance, Service: "web", Node: d.Node, State: engine.InstanceFailed, Since: in.At, Reason: "exec format error"})
			}
			waited = waited || strings.Contains(d.Reason, "it failed on 3 nodes and runs on none") && strings.Contains(d.Reason, "exec format error")
			if d.Action == engine.Stop && (d.Cause != engine.CauseFailed || !strings.Contains(d.Reason, ": exec format error; none is started there for")) {
				t.Errorf("%+v", d)
			}
		}
		in = later(in, r, time.Second)
	}
	if starts < 5 || starts > 20 || !waited {
		t.Errorf("%d starts in half an hour, waited: %v", starts, waited)
	}
}

// TestRefusedByThree: a minimum that three nodes refused stays with the third for a while; and
// who goes to users, and is refused there, waits longer until it does so again.
func TestRefusedByThree(t *testing.T) {
	e := newEngine(t)
	in := crowd(web(func(s *spec.Spec) { s.Labels = map[string]string{"weir.min": "5mbit"} }), boards("abcde"), 10, 0.1, running("web", "a", 1, 10, 0.1))
	in.Instances[0].MinRefused = true
	in.Memory.Services = map[string]engine.ServiceMemory{"web": {
		Move: engine.Pace{Last: start.Add(-time.Second)}, Failures: map[string]engine.Failure{"b": {Pace: engine.Pace{Level: 1, Until: start.Add(-time.Second)}}, "c": {Pace: engine.Pace{Level: 1, Until: start}}},
	}}
	r := e.Round(in)
	if d := only(t, r); d.Action != engine.Keep || d.Cause != engine.CauseRefused || !strings.HasSuffix(d.Reason, "it was refused or failed on 3 nodes; another one is tried in 40 s") {
		t.Fatalf("%+v", d)
	}
	r = e.Round(later(in, r, 39*time.Second))
	if d := only(t, r); d.Action != engine.Keep {
		t.Fatalf("%+v", d)
	}
	if n := r.Memory.Services["web"].Move.Level; n != 1 {
		t.Errorf("%d regrets of one", n)
	}
	if d := only(t, e.Round(later(in, r, 40*time.Second))); d.Action != engine.Move || d.From != "a" {
		t.Errorf("%+v", d)
	}
}

// TestTooLate: what starts, or does not answer, for too long has failed.
func TestTooLate(t *testing.T) {
	for state, seconds := range map[engine.InstanceState]float64{engine.InstanceStarting: 60 + 5*(1+1.5), engine.InstanceUnhealthy: 10} {
		in := crowd(web(), boards("ab"), 10, 0.1, running("web", "a", 1, 10, 0.1))
		in.Instances[0].State = state
		e := newEngine(t)
		in.Instances[0].Since = start.Add(-time.Duration(seconds * float64(time.Second)))
		if d := only(t, e.Round(in)); d.Action != engine.Keep {
			t.Errorf("%s for %v s: %+v", state, seconds, d)
		}
		in.Instances[0].Since = in.Instances[0].Since.Add(-time.Second)
		r := e.Round(in)
		if len(r.Decisions) != 2 || r.Decisions[0].Action != engine.Stop || r.Decisions[1].Action != engine.Start || r.Decisions[1].Node != "b" {
			t.Errorf("%s for %v s: %+v", state, seconds+1, r.Decisions)
		}
	}
}

// TestCutOff: who sees fewer than half of the nodes changes nothing.
func TestCutOff(t *testing.T) {
	in := crowd(web(), boards("abc"), 10, 0.1, running("web", "a", 1, 10, 0.1), running("old", "c", 1, 0, 0))
	in.Nodes[0].State, in.Nodes[1].State = engine.NodeGone, engine.NodeGone
	if d := only(t, newEngine(t).Round(in)); d.Action != engine.Keep || d.Cause != engine.CauseCutOff || !strings.Contains(d.Reason, "(a, b)") {
		t.Errorf("%+v", d)
	}
	in.Nodes[1].Away = true // of the other two one answers
	if r := newEngine(t).Round(in); len(r.Decisions) != 2 || r.Decisions[0].Action != engine.Stop || r.Decisions[1].Action != engine.Move || r.Decisions[1].Node != "c" {
		t.Errorf("%+v", r.Decisions)
	}
}

// TestRemoved: what should not run is stopped, once it can be.
func TestRemoved(t *testing.T) {
	in := engine.Input{At: start, Nodes: boards("abc"), Instances: []engine.Instance{running("old", "a", 1, 0, 0), running("old", "b", 2, 0, 0), running("old", "c", 3, 0, 0), running("old", "x", 4, 0, 0)}}
	in.Nodes[1].State, in.Instances[2].State = engine.NodeGone, engine.InstanceStopping
	if d := only(t, newEngine(t).Round(in)); d.Action != engine.Stop || d.Instance != "old-1" || d.Cause != engine.CauseRemoved {
		t.Errorf("%+v", d)
	}
}

// TestPriority: who has the higher weir.priority gets the last room.
func TestPriority(t *testing.T) {
	named := func(name, priority string) engine.Service {
		return web(func(s *spec.Spec) {
			s.Name, s.Labels = name, map[string]string{"weir.min": "60mbit", "weir.priority": priority}
		})
	}
	r := newEngine(t).Round(engine.Input{At: start, Nodes: boards("a"), Services: []engine.Service{named("a", "1"), named("b", "2"), named("b", "3")}})
	if len(r.Decisions) != 2 || r.Decisions[0].Service != "b" || r.Decisions[0].Action != engine.Start || r.Decisions[1].Action != engine.Keep {
		t.Errorf("%+v", r.Decisions)
	}
}

// TestTwoRefused: of two instances on a node that refuses their minimum each is one refusal,
// not one in every round.
func TestTwoRefused(t *testing.T) {
	e := newEngine(t)
	in := crowd(web(func(s *spec.Spec) { s.Labels = map[string]string{"weir.min": "5mbit"} }), boards("abc"), 10, 0.1, running("web", "a", 1, 5, 0.1), running("web", "a", 2, 5, 0.1))
	in.Instances[0].MinRefused, in.Instances[1].MinRefused = true, true
	in.Instances[1].Since = start.Add(-time.Minute)
	in.Memory.Services = map[string]engine.ServiceMemory{"web": {Failures: map[string]engine.Failure{"b": {Pace: engine.Pace{Level: 1, Until: start}}, "c": {Pace: engine.Pace{Level: 1, Until: start}}}}}
	for range 160 {
		r := e.Round(in)
		if d := r.Decisions[0]; d.Action != engine.Keep || r.Memory.Services["web"].Failures["a"].Level != 2 {
			t.Fatalf("%+v, %+v", d, r.Memory.Services["web"].Failures)
		}
		in = later(in, r, time.Second/2)
	}
	if d := e.Round(in).Decisions[0]; d.Action != engine.Move || d.From != "a" {
		t.Errorf("after 80 s: %+v", d)
	}
}

// TestFailedStart: that an instance could not start says nothing of whether one would help: the
// next one is started elsewhere. When three nodes have failed it waits.
func TestFailedStart(t *testing.T) {
	e := newEngine(t)
	s := web(func(s *spec.Spec) {
		s.MaxUsers, s.ResponseSeconds, s.Algorithm, s.ReplicationSeconds = 0, 0.5, "remote", 60
	})
	in := crowd(s, boards("abcdefg"), 40, 2, running("web", "a", 1, 40, 4))
	in.Nodes[0].CPUUsedPercent = 100
	on := ""
	for range 60 {
		r := e.Round(in)
		for _, d := range r.Decisions {
			switch d.Action {
			case engine.Start:
				on += d.Node
				in.Instances = append(in.Instances, engine.Instance{ID: d.Instance, Service: "web", Node: d.Node, State: engine.InstanceFailed, Since: in.At.Add(time.Second)})
			case engine.Stop:
				in.Instances = in.Instances[:1]
			}
		}
		in = later(in, r, time.Second)
	}
	if on != "bcd" {
		t.Errorf("started on %q", on)
	}
}
