package htb

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Classes without a weight take equal turns, after those of their priority that
// have one and before those of the next.
func TestNoWeight(t *testing.T) {
	tree := treeOf(100e6,
		container(16, 0, 10e6), container(17, 100, 10e6), container(18, 300, 10e6),
		container(19, 0, 20e6, priority(5)), container(20, 200, 10e6, priority(5)), container(21, 0, 10e6, priority(5)),
		container(22, 0, 10e6, latency(time.Second)))
	for _, order := range []struct {
		name    string
		classes []class
	}{{"all", tree.classes}, {"none has a weight", []class{tree.classes[1], tree.classes[4]}}} {
		tree.classes = order.classes
		got := map[uint16]kernel.HTBClass{}
		for _, c := range desired(tree, leafFqCodel).classes {
			got[c.Handle.Minor()] = c.Options.(kernel.HTBClass)
		}
		const packet = 3125
		want := map[uint16]struct{ prio, quantum uint32 }{
			20: {2, packet * 200 / 64}, 19: {3, packet}, 21: {3, packet},
			17: {4, packet * 100 / 64}, 18: {4, packet * 300 / 64}, 16: {5, packet}, 22: {1, packet},
		}
		if len(order.classes) == 2 {
			want = map[uint16]struct{ prio, quantum uint32 }{19: {2, packet}, 16: {3, packet}}
		}
		for number, w := range want {
			if g := got[number]; g.Prio != w.prio || g.QuantumBytes != w.quantum {
				t.Errorf("%s: class %d has prio %d and quantum %d, want %d and %d", order.name, number, g.Prio, g.QuantumBytes, w.prio, w.quantum)
			}
		}
	}
}

// What goes first for the sake of its delay is held up by one packet of each other at
// most, whatever the weights.
func TestTurnsOfWhatGoesFirst(t *testing.T) {
	tree := treeOf(100e6,
		container(16, 10_000, 20e6, latency(time.Millisecond)), container(17, 100, 10e6, latency(time.Millisecond)),
		container(18, 10_000, 20e6, withClasses), container(19, 100, 10e6))
	first := 0
	for _, c := range desired(tree, leafFqCodel).classes {
		options := c.Options.(kernel.HTBClass)
		if innerBits(c.Handle) != 0 || options.Prio != latencyPrio {
			continue
		}
		first++
		if options.QuantumBytes != 3125 {
			t.Errorf("class %s has turns of %d bytes", c.Handle, options.QuantumBytes)
		}
	}
	if first != 3 {
		t.Errorf("%d leaves go first, want two with a bound and one of EF", first)
	}
}

// One without a weight does not change the turns of others.
func TestNoWeightLeavesTurnsAlone(t *testing.T) {
	classes := []class{container(16, 100, 1e6), container(17, 300, 1e6)}
	with := slices.Concat(classes, []class{container(18, 0, 1e6)})
	if a, b := weightUnit(classes), weightUnit(with); a != b || a != 64 {
		t.Errorf("the unit is %d, and %d with one that has no weight, want 64", a, b)
	}
}
