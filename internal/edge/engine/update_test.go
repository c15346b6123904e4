package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// updating is a service with the version "2" whose instances have the version "1", and may go back to it.
func updating(change ...func(*spec.Spec)) engine.Service {
	s := web(change...)
	s.Versions = engine.Versions{Wanted: "2", Before: "1"}
	return s
}

// made is an instance of a version in a state.
func made(version string, number int, state engine.InstanceState) engine.Instance {
	i := running("web", "a", number, 0, 0)
	i.Version, i.State = version, state
	return i
}

func roundAt(t *testing.T, seconds int, s engine.Service, memory engine.Memory, instances ...engine.Instance) engine.Result {
	t.Helper()
	return newEngine(t).Round(engine.Input{At: start.Add(time.Duration(seconds) * time.Second), Nodes: boards("ab"), Services: []engine.Service{s}, Instances: instances, Memory: memory})
}

// TestUpdateSteps: of two instances first the one that does not answer is replaced, on its node; the next
// when the new one answers.
func TestUpdateSteps(t *testing.T) {
	s := updating(func(s *spec.Spec) { s.NumUsers = 100 })
	d := find(t, roundAt(t, 0, s, engine.Memory{}, made("1", 1, engine.InstanceRunning), made("1", 2, engine.InstanceUnknown)), engine.CauseUpdate)
	if d.Action != engine.Move || d.Replaces != "web-2" || d.Node != "a" || d.Version != "2" || d.Instance != "web-3" {
		t.Errorf("%+v", d)
	}
	arriving := made("2", 3, engine.InstanceStarting)
	arriving.Replaces, arriving.Since = "web-2", start
	d = find(t, roundAt(t, 1, s, engine.Memory{}, made("1", 1, engine.InstanceRunning), made("1", 2, engine.InstanceRunning), arriving), engine.CauseUpdate)
	if d.Action != engine.Keep || !strings.Contains(d.Reason, "its turn comes when the one before it answers") {
		t.Errorf("%+v", d)
	}
	arriving.State = engine.InstanceRunning
	r := roundAt(t, 2, s, engine.Memory{}, made("1", 1, engine.InstanceRunning), made("1", 2, engine.InstanceRunning), arriving)
	if d := find(t, r, engine.CauseReplaced); d.Action != engine.Stop || d.Instance != "web-2" {
		t.Errorf("%+v", d)
	}
	if d := find(t, r, engine.CauseUpdate); d.Action != engine.Move || d.Replaces != "web-1" {
		t.Errorf("%+v", d)
	}
}

// TestUpdateElsewhere: where its node has no room for both, the new one goes to another node, and none is
// stopped while no node has.
func TestUpdateElsewhere(t *testing.T) {
	s := updating(func(s *spec.Spec) { s.Limits.MemoryBytes = 600e6 })
	old := made("1", 1, engine.InstanceRunning)
	old.LimitBytes = 600e6
	if d := find(t, roundAt(t, 0, s, engine.Memory{}, old), engine.CauseUpdate); d.Action != engine.Move || d.Node != "b" {
		t.Errorf("%+v", d)
	}
	other := running("other", "b", 1, 0, 0)
	other.LimitBytes = 600e6
	if d := find(t, roundAt(t, 0, s, engine.Memory{}, old, other), engine.CauseUpdate); d.Action != engine.Keep || !strings.Contains(d.Reason, "2 has not enough memory") {
		t.Errorf("%+v", d)
	}
}

// TestUpdateExclusive: with a local volume the old one ends first, and the new one starts when it has.
func TestUpdateExclusive(t *testing.T) {
	s := database()
	s.Versions = engine.Versions{Wanted: "2", Before: "1"}
	old := running("web", "b", 1, 0, 0)
	old.Version = "1"
	r := roundAt(t, 0, s, engine.Memory{}, old)
	if d := find(t, r, engine.CauseUpdate); d.Action != engine.Stop || !strings.Contains(d.Reason, "the volume data is for one instance at a time: it ends before the new one starts, and users wait for that long") {
		t.Errorf("%+v", d)
	}
	if d := find(t, roundAt(t, 1, s, r.Memory), engine.CauseCapacity); d.Action != engine.Start || d.Version != "2" {
		t.Errorf("%+v", d)
	}
}

// TestGoBack: a failure of the new version goes back, and is forgotten for the old one; one of the old
// version, or without a version to go back to, is as ever.
func TestGoBack(t *testing.T) {
	s := updating()
	failed := made("2", 2, engine.InstanceFailed)
	failed.Reason = "it ended"
	d := only(t, roundAt(t, 0, s, engine.Memory{}, made("1", 1, engine.InstanceRunning), failed))
	if d.Action != engine.GoBack || d.Version != "1" || !strings.Contains(d.Reason, "web-2 failed on a: it ended") {
		t.Errorf("%+v", d)
	}
	old := failed
	old.Version = "1"
	r := roundAt(t, 0, s, engine.Memory{}, old)
	if d := find(t, r, engine.CauseCapacity); d.Action != engine.Start || d.Version != "2" || len(r.Memory.Services["web"].Failures) > 0 {
		t.Errorf("%+v", r)
	}
	s.Versions.Before = ""
	r = roundAt(t, 0, s, engine.Memory{}, made("1", 1, engine.InstanceRunning), failed)
	if d := find(t, r, engine.CauseFailed); d.Action != engine.Stop || len(r.Memory.Services["web"].Failures) != 1 {
		t.Errorf("%+v", r)
	}
	s.Versions.Wanted = "3"
	if r = roundAt(t, 1, s, r.Memory, made("1", 1, engine.InstanceRunning)); len(r.Memory.Services["web"].Failures) > 0 || find(t, r, engine.CauseUpdate).Action != engine.Move {
		t.Errorf("%+v", r)
	}
}

// TestSettle: an update has ended when all instances have answered for ten seconds.
func TestSettle(t *testing.T) {
	s := updating()
	r := roundAt(t, 0, s, engine.Memory{}, made("2", 2, engine.InstanceRunning))
	if d := only(t, r); d.Action != engine.Keep {
		t.Errorf("%+v", d)
	}
	if r = roundAt(t, 9, s, r.Memory, made("2", 2, engine.InstanceUnknown)); only(t, r).Action != engine.Keep {
		t.Errorf("%+v", r)
	}
	for seconds, want := range map[int]engine.Action{19: engine.Keep, 20: engine.Settle} {
		first := roundAt(t, 10, s, r.Memory, made("2", 2, engine.InstanceRunning))
		if d := roundAt(t, seconds, s, first.Memory, made("2", 2, engine.InstanceRunning)).Decisions[0]; d.Action != want {
			t.Errorf("after %d s: %+v", seconds, d)
		}
	}
}

// TestLostUpdate: if the new one's node dies before it answers, nothing is missed that the old one is not
// there for.
func TestLostUpdate(t *testing.T) {
	nodes := boards("abc")
	nodes[1].State = engine.NodeGone
	lost := made("2", 2, engine.InstanceStarting)
	lost.Node, lost.Replaces = "b", "web-1"
	r := newEngine(t).Round(engine.Input{At: start, Nodes: nodes, Services: []engine.Service{updating()}, Instances: []engine.Instance{made("1", 1, engine.InstanceRunning), lost}})
	if d := only(t, r); d.Action != engine.Move || d.Replaces != "web-1" || d.Cause != engine.CauseUpdate {
		t.Errorf("%+v", d)
	}
}
