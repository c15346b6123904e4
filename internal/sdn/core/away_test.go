package core

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// entriesOf are the entries of a kind that a switch has.
func (s *simSwitch) entriesOf(kind uint64) (out []*openflow.FlowMod) {
	for _, e := range s.entries {
		if e.Cookie&cookieKindMask == kind {
			out = append(out, e)
		}
	}
	return out
}

// checkInstalled fails where a switch has of a known flow what its path and class do not
// say.
func (w *world) checkInstalled() {
	w.t.Helper()
	for _, f := range w.core.flows.byKey {
		for _, hop := range f.Path {
			i := slices.IndexFunc(w.switches[hop.Switch].entries, func(e *openflow.FlowMod) bool {
				return e.Cookie == cookieFlow|f.ID && e.Match.Field(openflow.OFPXMT_OFB_IN_PORT).Number() == uint64(hop.In)
			})
			if i < 0 {
				w.t.Errorf("%v has no entry of %v", hop.Switch, f.Key)
				continue
			}
			if queue, out := queueAndPort(w.switches[hop.Switch].entries[i].Instructions); out != outOf(hop) || queue != w.core.cfg.queue(f.Verdict) {
				w.t.Errorf("%v sends %v to queue %d of port %d; it is %v and leaves by %d", hop.Switch, f.Key, queue, out, f.Verdict.Level, hop.Out)
			}
		}
	}
}

// TestMovedBehindAnother: while no controller was there, the receiver of a flow moved to
// another port of a switch that is not the flow's first.
func TestMovedBehindAnother(t *testing.T) {
	w, left, right := twoSwitches(t)
	w.restartController()
	right[0].at = at(2, 7)
	w.connectAll()
	w.pass(3 * time.Second)
	w.send(right[0].at, right[0].broadcast())
	for range 40 { // the sender goes on
		w.send(left[0].at, left[0].frame(right[0], flow.UDP, 40000, 53, 20, 0))
		w.pass(250 * time.Millisecond)
	}
	w.quiet()
	w.send(left[0].at, left[0].frame(right[0], flow.UDP, 40000, 53, 20, 0))
	if got := w.delivered(right[0].at); len(got) != 1 {
		t.Errorf("%d packets came where the host is", len(got))
	}
	w.checkInstalled()
}

// TestClassWhileAway: a switch was away as a flow's class was corrected.
func TestClassWhileAway(t *testing.T) {
	w, left, right := twoSwitches(t)
	bulk := left[0].frame(right[0], flow.UDP, 40000, 53, 1300, 0)
	w.away[2] = true
	w.core.Disconnected(w.now, 2)
	for range 80 {
		for range 60 {
			w.send(left[0].at, bulk)
		}
		w.pass(250 * time.Millisecond)
		w.quiet()
	}
	if w.core.counters.Reclassified != 1 {
		t.Fatalf("%d flows corrected", w.core.counters.Reclassified)
	}
	w.connect(2)
	w.pass(time.Second)
	w.checkInstalled()
}

// TestLinkBack: a cable that carried nothing for a while, with both ports up, is a link
// again, though what came over it before the first LLDP was taken for a host's.
func TestLinkBack(t *testing.T) {
	w, left, right := twoSwitches(t)
	w.unplug(at(1, 9))
	w.pass(8 * time.Second)
	w.cable(at(1, 9), at(2, 9))
	for _, s := range append(left, right...) {
		w.send(s.at, s.broadcast())
	}
	w.pass(3 * time.Second)
	if n := len(w.core.links.graph.Links()); n != 1 {
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
	if n := len(w.core.links.graph.Links()); n != 1 {
		t.Errorf("%d links", n)
	}
}

// TestEqualPaths: flows to one host for which there is no room take several shortest
// paths; the switches' entry of the host does not follow each packet.
func TestEqualPaths(t *testing.T) {
	w, s := ring(t)
	w.core.cfg.MaxFlows = 1
	for _, one := range s {
		w.send(one.at, one.broadcast())
	}
	round := func() {
		for port := range uint16(20) {
			w.send(s[1].at, s[1].frame(s[3], flow.UDP, 40000, 9000+port, 20, 0))
		}
	}
	round()
	before := w.switches[2].entriesOf(cookieStation)
	round()
	if !slices.Equal(before, w.switches[2].entriesOf(cookieStation)) {
		t.Error("entries of hosts were sent again")
	}
	w.quiet()
	w.send(s[1].at, s[1].frame(s[3], flow.UDP, 40000, 9000, 20, 0))
	if got := w.delivered(s[3].at); len(got) != 1 {
		t.Errorf("%d packets came", len(got))
	}
}

// TestMiddleForgets: a switch in the middle of paths that has lost entries gets those of
// the paths that are known, not of others as short: links that are lost are looked for
// in them.
func TestMiddleForgets(t *testing.T) {
	w := newWorld(t, nil)
	for d := range topology.DPID(3) {
		w.add(d+1, 9)
	}
	w.cable(at(1, 1), at(2, 1))
	for i := range uint32(4) {
		w.cable(at(2, 2+i), at(3, 2+i))
	}
	w.connectAll()
	w.pass(4 * time.Second)
	a, b := simHostAt(at(1, 9), 1), simHostAt(at(3, 9), 2)
	w.send(a.at, a.broadcast())
	w.send(b.at, b.broadcast())
	talk := func() {
		for port := range uint16(20) {
			w.send(a.at, a.frame(b, flow.UDP, 40000, 9000+port, 20, 0))
			w.send(b.at, b.frame(a, flow.UDP, 9000+port, 40000, 20, 0))
		}
	}
	talk()
	w.pass(3500 * time.Millisecond)
	w.switches[2].entries = slices.DeleteFunc(w.switches[2].entries, func(e *openflow.FlowMod) bool { return e.Cookie&cookieKindMask == cookieFlow })
	talk()
	w.checkInstalled()
}

// TestDisowned: entries of flows that a controller finds and has no room for are not left
// to lead to where a host was.
func TestDisowned(t *testing.T) {
	w, left, right := twoSwitches(t)
	w.restartController()
	w.core.cfg.MaxFlows = 1
	for i := range right {
		right[i].at = at(2, uint32(5+i%4))
	}
	w.connectAll()
	w.pass(3 * time.Second)
	for _, s := range right {
		w.send(s.at, s.broadcast())
	}
	for range 40 {
		for i := range left {
			w.send(left[i].at, left[i].frame(right[i], flow.UDP, 40000, 53, 20, 0))
		}
		w.pass(250 * time.Millisecond)
	}
	w.quiet()
	for i := range left {
		w.send(left[i].at, left[i].frame(right[i], flow.UDP, 40000, 53, 20, 0))
		if got := w.delivered(right[i].at); len(got) != 1 {
			t.Errorf("host %d gets %d packets", i, len(got))
		}
	}
}

// TestNextHopMoved: the next hop of a routed flow has moved while no controller was there,
// and says nothing by itself: it is asked for, as its sender asks for the gateway only.
func TestNextHopMoved(t *testing.T) { forEach(t, testNextHopMoved) }

func testNextHopMoved(t *testing.T, v version) {
	w, a, b, _ := routedWorld(t, v)
	w.askGateways(a, b)
	w.send(a.at, a.packet(b.addr, 53, 64))
	w.restartController()
	w.switches[3].ports = append(w.switches[3].ports, openflow.PortDesc{PortNo: 4, Name: "p"})
	b.at = at(3, 4)
	w.connectAll()
	for range 48 { // 12 s
		w.send(a.at, a.packet(b.addr, 53, 64))
		w.pass(250 * time.Millisecond)
		for _, got := range w.delivered(b.at) {
			if kind := uint16(got.data[12])<<8 | uint16(got.data[13]); kind == topology.EtherTypeLLDP {
				continue
			} else if r, ok := readResolution(kind, got.data); ok && r.request && r.target == b.addr {
				w.send(b.at, b.says(false, b.gateway))
			}
		}
		w.quiet()
	}
	w.send(a.at, a.packet(b.addr, 53, 64))
	checkRouted(t, w, w.delivered(b.at), b, 63)
}

// TestFullTableLinkLost: a flow whose entry sends to a link that is lost takes another way
// on a switch without room too: its entry is there already.
func TestFullTableLinkLost(t *testing.T) {
	w, s := ring(t)
	for _, one := range s {
		w.send(one.at, one.broadcast())
	}
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	path := w.flowTo(53).Path
	w.core.switches.byID[path[0].Switch].fullUntil = w.now.Add(fullPause)
	w.unplug(at(path[0].Switch, path[0].Out))
	w.pass(8 * time.Second)
	w.quiet()
	w.send(s[0].at, s[0].frame(s[1], flow.UDP, 40000, 53, 20, 0))
	if got := w.delivered(s[1].at); len(got) != 1 {
		t.Errorf("%d packets came", len(got))
	}
}
