package core

import (
	"testing"
	"time"
)

// TestLinkBack: a cable that carried nothing for a while, with both ports up, is a link
// again, though what came over it before the first LLDP was taken for a host's.
func TestLinkBack(t *testing.T) {
	w, left, right := twoSwitches(t)
	delete(w.cables, at(1, 9))
	delete(w.cables, at(2, 9))
	w.pass(8 * time.Second)
	w.cable(at(1, 9), at(2, 9))
	for _, s := range append(left, right...) {
		w.send(s.at, s.broadcast())
	}
	w.pass(3 * time.Second)
	if n := len(w.core.graph.Links()); n != 1 {
		t.Errorf("%d links", n)
	}
}

// TestDeadConnection: a switch's connection is dead long before that is noticed; stations
// behind it, which its neighbour sees meanwhile, keep no link from being found.
func TestDeadConnection(t *testing.T) {
	w, left, right := twoSwitches(t)
	w.restartController()
	w.connect(1)
	w.away[1] = true
	w.connect(2)
	port := uint16(50000)
	w.talk(12*time.Second, left, right, &port)
	w.core.Disconnected(w.now, 1)
	w.connect(1)
	w.pass(3 * time.Second)
	if n := len(w.core.graph.Links()); n != 1 {
		t.Errorf("%d links", n)
	}
}
