package core

import (
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// behind has a host of an ordinary bridge send: all ports there see it.
func (w *world) behind(ports []topology.Port, frame []byte) {
	for _, p := range ports {
		w.arrive(p, frame)
	}
}

// TestLoopThroughBridge: of the ports that lead to one bridge, of one switch or of
// several that are linked, one stays open; a broadcast goes round no more than
// once, flows reach hosts behind the bridge, and ports come back when the
// bridge goes.
func TestLoopThroughBridge(t *testing.T) {
	w := newWorld(t, nil)
	for d := range topology.DPID(2) {
		w.add(d+1, 9)
	}
	w.cable(at(1, 1), at(2, 1))
	loop := []topology.Port{at(1, 5), at(1, 6), at(2, 5)}
	w.bridge(loop...)
	w.connectAll()
	w.pass(4 * time.Second)
	blocked := func() (out []topology.Port) {
		for _, n := range w.core.Snapshot(false).Switches {
			for _, p := range n.Ports {
				if p.Blocked {
					out = append(out, at(n.DPID, p.Number))
				}
			}
		}
		return out
	}
	if got := blocked(); len(got) != 2 || got[0] != at(1, 6) || got[1] != at(2, 5) {
		t.Fatalf("blocked: %v", got)
	}
	here, there, behind := simHostAt(at(1, 9), 1), simHostAt(at(2, 9), 2), simHostAt(at(1, 5), 3)
	w.quiet()
	for range 3 {
		w.send(here.at, here.broadcast()) // fails when it goes round
		w.behind(loop, behind.broadcast())
		w.send(there.at, there.broadcast())
	}
	w.pass(time.Second)
	w.quiet()
	w.behind(loop, behind.broadcast())
	for _, s := range []simHost{here, there} {
		if got := w.delivered(s.at); len(got) != 1 {
			t.Errorf("a broadcast from behind the bridge came %d times to %v", len(got), s.at)
		}
	}
	w.send(there.at, there.frame(behind, flow.UDP, 40000, 53, 20, 0))
	if path := w.flowTo(53).Path; path[len(path)-1].Switch != 1 || path[len(path)-1].Out != 5 {
		t.Errorf("the way to a host behind the bridge is %v", path)
	}
	clear(w.hubs)
	w.pass(8 * time.Second)
	if got := blocked(); len(got) != 0 {
		t.Errorf("blocked without the bridge: %v", got)
	}
	w.quiet()
	w.send(here.at, here.broadcast())
	if got := w.delivered(at(1, 6)); len(got) != 1 {
		t.Errorf("a port that was let in again got %d broadcasts", len(got))
	}
}

// TestBridgeJoins: a bridge that is the only way between two switches stays open.
func TestBridgeJoins(t *testing.T) {
	w := newWorld(t, nil)
	w.add(1, 9)
	w.add(2, 9)
	w.bridge(at(1, 5), at(2, 5))
	w.connectAll()
	w.pass(4 * time.Second)
	w.quiet()
	s := simHostAt(at(1, 9), 1)
	w.send(s.at, s.broadcast())
	if got := w.delivered(at(2, 9)); len(got) != 1 {
		t.Errorf("a broadcast came %d times over the bridge", len(got))
	}
}
