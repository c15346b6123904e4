package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// database is a service with a local volume on b.
func database() engine.Service {
	s := web(func(s *spec.Spec) {
		s.Container = &spec.Container{Mounts: []spec.Mount{{Type: "volume", Source: "data", Target: "/data"}}}
		s.NumUsers, s.MaxUsers, s.AvailabilityPercent = 100, 10, 99.999
	})
	s.Bound.Node = "b"
	return s
}

// TestKept: what has a local volume has one instance, on its node.
func TestKept(t *testing.T) {
	s, nodes := database(), boards("abc")
	decide := func(instances ...engine.Instance) engine.Result {
		return newEngine(t).Round(engine.Input{At: start, Nodes: nodes, Services: []engine.Service{s}, Instances: instances})
	}
	starts := func(r engine.Result) (on []string) {
		for _, d := range r.Decisions {
			if d.Action == engine.Start || d.Action == engine.Move {
				on = append(on, d.Node)
			}
		}
		return on
	}
	name := s.Spec.Name
	at := func(state engine.InstanceState) engine.Instance {
		return engine.Instance{ID: engine.InstanceID(name, 1), Service: name, Node: "b", State: state, Since: start}
	}
	if on := starts(decide()); len(on) != 1 || on[0] != "b" {
		t.Errorf("it starts on %v", on)
	}
	for _, state := range []engine.InstanceState{engine.InstanceRunning, engine.InstanceFailed, engine.InstanceStopping, engine.InstanceStarting, engine.InstanceUnknown} {
		if on := starts(decide(at(state))); len(on) > 0 {
			t.Errorf("beside one that is %s another one starts on %v", state, on)
		}
	}
	if d := find(t, decide(at(engine.InstanceStopping)), engine.CauseOrder); !strings.Contains(d.Reason, "until "+engine.InstanceID(name, 1)+" has ended, because the volume data is for one instance at a time") {
		t.Error(d.Reason)
	}
	nodes[1].State = engine.NodeDraining
	if d := find(t, decide(at(engine.InstanceRunning)), engine.CauseDraining); d.Action != engine.Keep || !strings.Contains(d.Reason, "the volume data keeps it there") {
		t.Errorf("%+v", d)
	}
	nodes[1].State = engine.NodeGone
	r := decide(at(engine.InstanceRunning))
	if d := find(t, r, engine.CauseNodeGone); len(starts(r)) > 0 || !strings.Contains(d.Reason, "is not b, where the volume data keeps it") {
		t.Errorf("%+v", d)
	}
	// A volume that any node can mount may follow, but not before the other one has ended.
	nodes[1].State, s.Bound.Node = engine.NodeDraining, ""
	s.Spec.Container.Mounts[0].Options = spec.Options{"type": "nfs"}
	r = decide(at(engine.InstanceRunning))
	if d := find(t, r, engine.CauseDraining); d.Action != engine.Stop || len(starts(r)) > 0 {
		t.Errorf("%+v", r.Decisions)
	}
	if on := starts(decide(at(engine.InstanceStopping))); len(on) > 0 {
		t.Errorf("it starts on %v", on)
	}
	if on := starts(decide()); len(on) != 1 || on[0] == "b" {
		t.Errorf("it starts on %v", on)
	}
}

// TestMisplaced: a service that is deployed again for another node moves there, unless its data are on the old node. An
// unknown node, such as one whose engine was installed anew, moves no service.
func TestMisplaced(t *testing.T) {
	volume, free, failed := database(), web(), engine.InstanceFailed
	data := "is on a, and the service is for b, but the volume data is for one instance at a time: remove the service"
	for name, test := range map[string]struct {
		service engine.Service
		node    string
		version string // of the instance
		state   engine.InstanceState
		action  engine.Action
		says    string
	}{
		"moved":                        {free, "b", "2", engine.InstanceRunning, engine.Move, "web-1 is on a, and the service is for b now: "},
		"unknown":                      {free, "x", "2", engine.InstanceRunning, "", ""},
		"where it is":                  {free, "a", "2", engine.InstanceRunning, "", ""},
		"its data":                     {volume, "b", "2", engine.InstanceRunning, engine.Keep, data},
		"its data of another version":  {volume, "b", "1", engine.InstanceRunning, engine.Keep, data},
		"its data, failed":             {volume, "b", "2", failed, engine.Keep, data},
		"its data, failed before that": {volume, "b", "1", failed, engine.Keep, data},
	} {
		test.service.Bound.Node, test.service.Versions.Wanted = test.node, "2"
		of := test.service.Spec.Name
		r := newEngine(t).Round(engine.Input{At: start, Nodes: boards("abc"), Services: []engine.Service{test.service}, Instances: []engine.Instance{
			{ID: engine.InstanceID(of, 1), Service: of, Node: "a", State: test.state, Version: test.version, Since: start},
		}})
		i := slices.IndexFunc(r.Decisions, func(d engine.Decision) bool { return d.Cause == engine.CauseUpdate })
		switch {
		case test.action == "" && i < 0:
		case test.action == "" || i < 0 || r.Decisions[i].Action != test.action || !strings.Contains(r.Decisions[i].Reason, test.says):
			t.Errorf("%s: %+v", name, r.Decisions)
		case test.action == engine.Move && (r.Decisions[i].Node != "b" || r.Decisions[i].Replaces != engine.InstanceID(of, 1)):
			t.Errorf("%s: %+v", name, r.Decisions[i])
		case test.action == engine.Keep && slices.ContainsFunc(r.Decisions, func(d engine.Decision) bool { return d.Action != engine.Keep }):
			t.Errorf("%s: %+v", name, r.Decisions)
		}
	}
}

// TestAwaits: a service starts after the one that it needs.
func TestAwaits(t *testing.T) {
	s := web()
	s.Bound.Awaits = "db"
	in := engine.Input{At: start, Nodes: boards("a"), Services: []engine.Service{s}}
	if d := find(t, newEngine(t).Round(in), engine.CauseOrder); d.Action != engine.Keep || !strings.Contains(d.Reason, "it waits until db answers") {
		t.Errorf("%+v", d)
	}
	in.Services[0].Bound.Awaits = ""
	if d := newEngine(t).Round(in).Decisions[0]; d.Action != engine.Start {
		t.Errorf("%+v", d)
	}
}

// TestLeast: as many instances as the Compose file says.
func TestLeast(t *testing.T) {
	s := web(func(s *spec.Spec) { s.Container = &spec.Container{Instances: 3} })
	r := newEngine(t).Round(engine.Input{At: start, Nodes: boards("ab"), Services: []engine.Service{s}})
	if len(r.Decisions) != 3 || !strings.Contains(r.Decisions[1].Reason, "there have to be 3 instances, and 1 is there") {
		t.Errorf("%+v", r.Decisions)
	}
}
