package engine_test

import (
	"maps"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestFewComeCloser: however often an instance was moved too early, and so over however long a
// time users count, it goes to the one user who comes to another node all the time.
func TestFewComeCloser(t *testing.T) {
	for _, regrets := range []int{0, 1, 3, 6} {
		e := newEngine(t)
		in := crowd(web(), boards("ab"), 1, 0.2, running("web", "b", 1, 1, 0.1))
		in.Links = []engine.Link{{From: "a", To: "b", RoundTripSeconds: 0.1}}
		in.Memory.Services = map[string]engine.ServiceMemory{"web": {Move: engine.Pace{Level: regrets}, Means: engine.Means{At: start.Add(-time.Second / 2)}}}
		moved := false
		for range 2 * 3600 {
			r := e.Round(in)
			if d := r.Decisions[0]; d.Action == engine.Move {
				moved = d.Node == "a"
				break
			}
			in = later(in, r, time.Second/2)
		}
		if !moved {
			t.Errorf("%d times moved too early: within an hour it does not go to where its user is", regrets)
		}
	}
}

// TestLongAgo: what users waited an hour ago is no reason for another instance now, and what
// they did a few seconds ago counts on.
func TestLongAgo(t *testing.T) {
	for away, want := range map[time.Duration]engine.Cause{time.Hour: engine.CauseNone, 5 * time.Second: engine.CauseResponse} {
		e := newEngine(t)
		in := crowd(web(func(s *spec.Spec) { s.ResponseSeconds = 1 }), boards("ab"), 5, 1.5, running("web", "a", 1, 5, 0.1))
		r := e.Round(in)
		in.Demand[0].Users = 0
		for range away / time.Second {
			in = later(in, r, time.Second)
			r = e.Round(in)
		}
		in.Demand[0].Users, in.Demand[0].ResponseSeconds = 5, 0.8
		if d := only(t, e.Round(later(in, r, time.Second))); d.Cause != want {
			t.Errorf("users who come after %v: %s", away, d.Reason)
		}
	}
}

// TestCutOffFollowsNobody: who does not reach most nodes does not take for where users come to
// what is seen meanwhile.
func TestCutOffFollowsNobody(t *testing.T) {
	e := newEngine(t)
	in := crowd(web(), boards("abc"), 10, 0.1, running("web", "a", 1, 10, 0.1))
	r := e.Round(in)
	before := maps.Clone(r.Memory.Services["web"].Entries)
	in.Nodes[0].State, in.Nodes[1].State, in.Demand[0].Node = engine.NodeGone, engine.NodeGone, "c"
	for range 20 {
		in = later(in, r, time.Second)
		r = e.Round(in)
	}
	if d := only(t, r); d.Cause != engine.CauseCutOff || before["a"] != 10 || !maps.Equal(before, r.Memory.Services["web"].Entries) {
		t.Errorf("%s: users came to %v, and now to %v", d.Cause, before, r.Memory.Services["web"].Entries)
	}
}
