package engine_test

import (
	"math"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

func seconds(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// TestHold: a reason has to last without a break.
func TestHold(t *testing.T) {
	var p engine.Pace
	for _, step := range []struct {
		at           float64
		reason, want bool
	}{
		{0, true, false}, {9.9, true, false}, {10, true, true}, {11, true, true},
		{12, false, false}, {13, true, false}, {22, true, false}, {23, true, true},
		{5, true, false}, {15, true, true}, // clocks went back
	} {
		if held := p.Hold(seconds(step.at), step.reason, 10); held != step.want {
			t.Errorf("%+v: %v", step, held)
		}
	}
	if p.Done(seconds(20)); !p.Since.IsZero() || p.Hold(seconds(21), true, 10) {
		t.Error("what is done needs a reason anew")
	}
	if !p.Hold(seconds(21), true, 0) {
		t.Error("a hold of nothing")
	}
}

// TestBackOff: holds and waits double up to a limit, and halve again.
func TestBackOff(t *testing.T) {
	var p engine.Pace
	for raised, want := range []float64{10, 20, 40, 80, 160, 320, 640, 640, 640} {
		if got := p.Doubled(10); got != want {
			t.Errorf("raised %d times: %v, want %v", raised, got, want)
		}
		p.Raise()
	}
	for _, want := range []float64{320, 160, 80, 40, 20, 10, 10} {
		if p.Relax(); p.Doubled(10) != want {
			t.Errorf("relaxed: %v, want %v", p.Doubled(10), want)
		}
	}
	if p.Level = math.MaxInt32; p.Doubled(10) != 640 {
		t.Errorf("a memory that cannot be: %v", p.Doubled(10))
	}
	if p.Level = -1; p.Doubled(10) != 10 {
		t.Errorf("a memory that cannot be: %v", p.Doubled(10))
	}
	p = engine.Pace{}
	if p.Blocked(start) > 0 {
		t.Error("nothing blocks at first")
	}
	if p.Block(start, 30); p.Blocked(seconds(10)) != 20 || p.Blocked(seconds(30)) > 0 {
		t.Errorf("blocked until %v", p.Until)
	}
}

// TestTooSoon: what is undone soon after raises the level, within a time that doubles with it.
func TestTooSoon(t *testing.T) {
	var p engine.Pace
	if p.RaiseIfWithin(start, 60); p.Level != 0 {
		t.Error("what was never done cannot be undone")
	}
	for _, step := range []struct {
		after float64
		want  int
	}{{60, 0}, {59, 1}, {119, 2}, {240, 2}, {239, 3}} {
		p.Done(start)
		if p.RaiseIfWithin(seconds(step.after), 60); p.Level != step.want {
			t.Errorf("%+v: %d", step, p.Level)
		}
	}
}

// TestMean: how far the mean has come depends on the time, not on how often it is measured.
func TestMean(t *testing.T) {
	for _, every := range []float64{0.1, 1, 5} {
		mean := engine.Mean(10)
		for at := 0.0; at < 4.99; at += every {
			mean.Add(20, every, 5)
		}
		if want := 20 - 10/math.E; math.Abs(float64(mean)-want) > 1e-9 {
			t.Errorf("every %v s: %v, want %v", every, mean, want)
		}
	}
	mean := engine.Mean(3)
	if mean.Add(7, 0, 5); mean != 3 {
		t.Errorf("no time has passed: %v", mean)
	}
	if mean.Add(7, 0, 0); mean != 7 {
		t.Errorf("no smoothing: %v", mean)
	}
}
