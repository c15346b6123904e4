package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

var start = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// board is a small node, with 4 processors, 1 GB and 100 Mbit/s.
func board(name string) engine.Node {
	return engine.Node{
		Name: name, State: engine.NodeReady, CPUs: 4, CPUUsedPercent: 5, Load1: 0.2,
		MemoryBytes: 1e9, MemoryUsedBytes: 2e8, DiskFreeBytes: 9e9,
		Weir: true, UplinkBPS: 100e6, Out: engine.Room{BudgetBPS: 95e6}, Availability: 0.99, PullBPS: 80e6,
	}
}

// web is a service with an image of 10 MB, which takes a second on a board.
func web(change ...func(*spec.Spec)) engine.Service {
	s := spec.Spec{
		Name: "web", Image: "busybox", ImageBytes: 10e6, MaxUsers: 50, StartUpSeconds: 1.5,
		ResponseSeconds: 5, Labels: map[string]string{}, Algorithm: "hybrid",
	}
	for _, c := range change {
		c(&s)
	}
	return engine.Service{Spec: s}
}

func running(service, node string, number int, users, cpus float64) engine.Instance {
	return engine.Instance{
		ID: engine.InstanceID(service, number), Service: service, Node: node, State: engine.InstanceRunning,
		Since: start.Add(-time.Hour), Users: users, CPUs: cpus,
	}
}

func newEngine(t interface{ Fatal(...any) }) *engine.Engine {
	e, err := engine.New(engine.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// only returns the one decision of a round.
func only(t *testing.T, r engine.Result) engine.Decision {
	t.Helper()
	if len(r.Decisions) != 1 {
		t.Fatalf("%d decisions: %+v", len(r.Decisions), r.Decisions)
	}
	return r.Decisions[0]
}

func TestFirstInstance(t *testing.T) {
	busy, far := board("a"), board("c")
	busy.CPUUsedPercent, far.State = 60, engine.NodeStale
	r := newEngine(t).Round(engine.Input{At: start, Nodes: []engine.Node{busy, board("b"), far}, Services: []engine.Service{web()}})
	d := only(t, r)
	if d.Action != engine.Start || d.Node != "b" || d.Instance != "web-1" || d.Cause != engine.CauseCapacity {
		t.Errorf("%+v", d)
	}
	for _, want := range []string{"no instance runs: another instance on b is ready in about 2.5 s, 1 s of it for the image"} {
		if !strings.Contains(d.Reason, want) {
			t.Errorf("%s\nwant %s", d.Reason, want)
		}
	}
	if len(d.Alternatives) != 2 || d.Alternatives[0].Node != "b" || d.Alternatives[1].Node != "a" {
		t.Errorf("alternatives: %+v", d.Alternatives)
	}
	if len(d.Excluded) != 1 || d.Excluded[0] != (engine.Excluded{Reason: "does not answer", Nodes: 1, Example: "c"}) {
		t.Errorf("excluded: %+v", d.Excluded)
	}
}
