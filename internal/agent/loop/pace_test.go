package loop

import (
	"testing"
	"time"
)

// TestPace: an event hastens a turn that is due late, and leaves one that is due sooner where it is.
func TestPace(t *testing.T) {
	now := time.Now()
	p := newPace(now, wakeInterval)
	defer p.Stop()
	for _, step := range []struct {
		interval, after, want time.Duration
	}{
		{restInterval, 100 * time.Millisecond, 100*time.Millisecond + wakeInterval},
		{30 * time.Millisecond, 29 * time.Millisecond, 30 * time.Millisecond},
		{30 * time.Millisecond, 5 * time.Millisecond, 5*time.Millisecond + wakeInterval},
		{wakeInterval, wakeInterval / 2, wakeInterval},
		{30 * time.Millisecond, 40 * time.Millisecond, 30 * time.Millisecond}, // a tick waits
	} {
		p.turn(now, step.interval)
		p.hasten(now.Add(step.after))
		if got := p.due.Sub(now); got != step.want {
			t.Errorf("a turn after %s, an event after %s: the turn is due after %s, want %s", step.interval, step.after, got, step.want)
		}
		p.hasten(now.Add(step.after + time.Millisecond))
		if got := p.due.Sub(now); got != step.want {
			t.Errorf("a turn after %s: a second event moves it to %s", step.interval, got)
		}
	}
}

// TestTicks: the turns come when they are due.
func TestTicks(t *testing.T) {
	began := time.Now()
	p := newPace(began, wakeInterval)
	defer p.Stop()
	p.turn(<-p.C, restInterval)
	p.hasten(time.Now())
	if now := <-p.C; now.Sub(began) < 2*wakeInterval {
		t.Errorf("two turns within %s", now.Sub(began))
	}
}

// TestPaceUnwoken: once nothing wakes the loop, it does not rest.
func TestPaceUnwoken(t *testing.T) {
	now := time.Now()
	p := newPace(now, wakeInterval)
	defer p.Stop()
	p.longest = repairInterval
	for wanted, want := range map[time.Duration]time.Duration{restInterval: repairInterval, wakeInterval: wakeInterval} {
		if p.turn(now, wanted); p.due.Sub(now) != want {
			t.Errorf("the schedulers want a turn in %s, it is due in %s", wanted, p.due.Sub(now))
		}
	}
}
