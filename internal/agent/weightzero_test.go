package agent

import (
	"testing"
	"time"
)

// TestControlReactsWithoutWeight: who has no weight is entitled to nothing, and is
// followed as fast as others in what it gets and leaves.
func TestControlReactsWithoutWeight(t *testing.T) {
	b := newBench(t, 100e6)
	first, second, third := b.start("first", "weight=0", "priority=5"), b.start("second", "weight=0", "priority=1"), b.start("third", "weight=1")
	l := newLink(b)
	expect := func(when string, wantFirst, wantSecond, wantThird float64) {
		t.Helper()
		if !near(first.allocatedBPS, uint64(wantFirst)) || !near(second.allocatedBPS, uint64(wantSecond)) || !near(third.allocatedBPS, uint64(wantThird)) {
			t.Errorf("%s: allocated %s, want %.1f, %.1f and %.1f Mbit/s", when, allocations(first, second, third), wantFirst/1e6, wantSecond/1e6, wantThird/1e6)
		}
	}
	l.run(3 * time.Second)
	l.greedy[first], l.greedy[second] = true, true
	l.run(2 * reaction)
	expect("all is idle but these two", 100e6, 0, 0)
	l.run(time.Second)
	l.greedy[first] = false
	l.paceBPS[first] = 30e6
	l.run(4 * reaction) // its queue has to drain first
	expect("the first wants less", float64(first.demand.DemandBPS), 100e6-float64(first.demand.SteadyBPS()), 0)
	if first.demand.DemandBPS > 34.5e6 {
		t.Errorf("a sender of 30 Mbit/s is allowed for %d", first.demand.DemandBPS)
	}
	l.greedy[third] = true
	l.run(2 * reaction)
	expect("one with a weight starts", 0, 0, 100e6)
}
