package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestManage: the task of a service of users leaves a node that has refused its minimum for a while, for a
// node that can promise it; otherwise it is said why it stays.
func TestManage(t *testing.T) {
	e := newEngine(t)
	managed := web(func(s *spec.Spec) { s.Labels, s.MaxUsers = map[string]string{"weir.min": "50mbit"}, 0 })
	managed.Bound.Managed = true
	task := running("web", "a", 1, 0, 0.1)
	task.MinRefused, task.Reason = true, "50mbit of 95mbit are left"
	for name, test := range map[string]struct {
		change func(*engine.Input)
		action engine.Action
		says   string
	}{
		"to the one with room": {func(in *engine.Input) { in.Nodes[1].Out.OtherMinBPS = 46e6 }, engine.Move, "a does not keep its part of the minimum 50mbit of web (50mbit of 95mbit are left): it goes to c"},
		"promised to another": {func(in *engine.Input) {
			in.Claims = []engine.Claim{{Service: "shop", Node: "b", MinBPS: 46e6}}
		}, engine.Move, "it goes to c"},
		"none has room": {func(in *engine.Input) { in.Nodes[1].Out.OtherMinBPS, in.Nodes[2].Weir = 46e6, false }, engine.Keep, "no node can have it"},
		"kept":          {func(in *engine.Input) { in.Services[0].Bound.Stays = "the volume data keeps it there" }, engine.Keep, "(50mbit of 95mbit are left), but the volume data keeps it there"},
		"not refused":   {func(in *engine.Input) { in.Instances[0].MinRefused = false }, engine.Keep, "stays where it is"},
		"no task":       {func(in *engine.Input) { in.Instances = nil }, engine.Keep, "stays where it is"},
		"not managed":   {func(in *engine.Input) { in.Services[0].Bound.Managed = false }, engine.Move, "it goes to b is ready"},
	} {
		in := engine.Input{At: start, Nodes: boards("abc"), Services: []engine.Service{managed}, Instances: []engine.Instance{task}}
		test.change(&in)
		var d engine.Decision
		for round := range 21 { // ten seconds
			r := e.Round(in)
			if d = r.Decisions[0]; d.Action == engine.Move && round < 20 && in.Services[0].Bound.Managed {
				t.Errorf("%s: it goes after %d rounds", name, round)
			}
			if d.Action != engine.Keep {
				break
			}
			in = later(in, r, time.Second/2)
		}
		if d.Action != test.action || !strings.Contains(d.Reason, test.says) {
			t.Errorf("%s: %+v", name, d)
		}
		if in.Services[0].Bound.Managed && d.Instance != "" {
			t.Errorf("%s: it starts %s", name, d.Instance)
		}
	}
}

// TestManageInTurn: where the swarm cannot run a task it does not go again soon, and one that every node
// refuses waits longer each time.
func TestManageInTurn(t *testing.T) {
	e := newEngine(t)
	managed := web(func(s *spec.Spec) { s.Labels, s.MaxUsers = map[string]string{"weir.min": "50mbit"}, 0 })
	managed.Bound.Managed = true
	task := running("web", "a", 1, 0, 0.1)
	task.MinRefused = true
	in := engine.Input{At: start, Nodes: boards("abc"), Services: []engine.Service{managed}, Instances: []engine.Instance{task}}
	next := func() (to string, after float64) {
		began := in.At
		for range 3600 {
			r := e.Round(in)
			in = later(in, r, time.Second/2)
			in.Instances = in.Instances[:1]
			if d := r.Decisions[0]; d.Action == engine.Move {
				return d.Node, in.At.Sub(began).Seconds()
			}
		}
		t.Fatal("it does not go anywhere")
		return "", 0
	}
	first, _ := next()
	// The swarm has no room for it there, so it is still at a.
	failed := task
	failed.Node, failed.State, failed.MinRefused, failed.Since, failed.Reason = first, engine.InstanceFailed, false, in.At, "no suitable node"
	in.Instances = append(in.Instances, failed)
	second, _ := next()
	if first == second || second == "a" {
		t.Errorf("it goes to %s, and then to %s", first, second)
	}
	last := 0.0
	for range 5 { // refused wherever it comes
		in.Instances[0].Node, in.Instances[0].Since = second, in.At
		second, last = next()
	}
	if last < 40 {
		t.Errorf("after so many moves the next one comes after %.1f s", last)
	}
}
