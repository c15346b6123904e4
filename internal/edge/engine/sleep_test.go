package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestSleep: a service that may sleep has no instance until a user comes, and none a minute after the
// last; a user who comes soon after that makes it stay for longer.
func TestSleep(t *testing.T) {
	s := web(func(s *spec.Spec) {
		s.Container, s.Ports = &spec.Container{Sleeps: true}, []spec.Port{{Host: 80, Container: 80}}
	})
	var memory engine.Memory
	round := func(seconds int, users float64, asked bool, instances ...engine.Instance) engine.Decision {
		r := newEngine(t).Round(engine.Input{
			At: start.Add(time.Duration(seconds) * time.Second), Nodes: boards("ab"), Services: []engine.Service{s}, Instances: instances, Memory: memory,
			Demand: []engine.Demand{{Service: "web", Node: "a", Users: users, Asked: asked}},
		})
		memory = r.Memory
		return r.Decisions[0]
	}
	one := running("web", "a", 1, 0, 0)
	if d := round(0, 0, false); d.Action != engine.Keep || d.Cause != engine.CauseNone || d.Facts.Wanted != 0 {
		t.Errorf("without users: %+v", d)
	}
	if d := round(1, 1, true); d.Action != engine.Start || !strings.HasPrefix(d.Reason, "a user has come, and no instance runs: another instance on a is ready in about 2.5 s, 1 s of it for the image") || strings.Contains(d.Reason, "expected to wait") {
		t.Errorf("with a user: %+v", d)
	}
	if d := round(2, 0, true, one); d.Action != engine.Keep || d.Cause == engine.CauseIdle {
		t.Errorf("after the user has left: %+v", d)
	}
	for _, asked := range []int{3, 50} { // a request in between counts, although no user is there
		round(asked, 0, asked == 50, one)
	}
	round(51, 0, false, one)
	if d := round(110, 0, false, one); d.Action != engine.Keep {
		t.Errorf("59 s after the last user: %+v", d)
	}
	if d := round(111, 0, false, one); d.Action != engine.Stop || d.Cause != engine.CauseIdle {
		t.Errorf("60 s after the last user: %+v", d)
	}
	if d := round(130, 1, true); d.Action != engine.Start || memory.Services["web"].Shrink.Level != 1 {
		t.Errorf("missed: %+v, %+v", d, memory)
	}
	s.Spec.NumUsers = 1
	if d := round(140, 0, false); d.Action != engine.Start {
		t.Errorf("with room for one user at all times: %+v", d)
	}
}
