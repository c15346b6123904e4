package htb

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// threeQueues are those of a port whose map is the default.
func threeQueues(rateBPS uint64) PortTree {
	return PortTree{RateBPS: rateBPS, MTUBytes: 1500, Queues: []PortQueue{
		{ID: 0, MinBPS: rateBPS / 5, MaxBPS: rateBPS, Priority: 2},
		{ID: 1, MinBPS: rateBPS * 3 / 10, MaxBPS: rateBPS, Priority: 1},
		{ID: 2, MinBPS: rateBPS / 2, MaxBPS: rateBPS, Priority: 0},
	}}
}

// TestPort: a port's queues are where Open vSwitch sends packets, are made once, and
// change in place.
func TestPort(t *testing.T) {
	d := &device{}
	p := NewPort(d, testIfindex)
	apply := func(want PortTree, changed bool) {
		t.Helper()
		if did, err := p.Apply(want); err != nil || did != changed {
			t.Fatalf("changed %t, %v; want %t", did, err, changed)
		}
	}
	want := threeQueues(100e6)
	apply(want, true)
	compareGolden(t, "port", lines(d.tried[0]))
	tried := len(d.tried)
	apply(want, false)
	// A controller that starts again finds them.
	p = NewPort(d, testIfindex)
	apply(want, false)
	if len(d.tried) != tried {
		t.Errorf("what is there is changed: %v", d.tried[tried:])
	}
	apply(threeQueues(50e6), true)
	for _, op := range d.tried[tried] {
		if op.Verb != kernel.Change {
			t.Errorf("another rate: %s", op)
		}
	}
	two := threeQueues(50e6)
	two.Queues = two.Queues[:2]
	apply(two, true)
	if d.class(portClass(2)) >= 0 || d.qdisc(portQueue(2)) >= 0 || d.class(portClass(1)) < 0 {
		t.Errorf("classes %v, qdiscs %v", d.classes, d.qdiscs)
	}
	if err := p.Clear(); err != nil || len(d.qdiscs) > 0 || len(d.classes) > 0 {
		t.Errorf("%v: %v, %v are left", err, d.qdiscs, d.classes)
	}
	if err := p.Clear(); err != nil {
		t.Errorf("nothing to clear: %v", err)
	}
}

// TestPortWithoutFqCodel: where the kernel has no AQM queues are bounded in time.
func TestPortWithoutFqCodel(t *testing.T) {
	d := &device{lacks: leafFqCodel.String()}
	if changed, err := NewPort(d, testIfindex).Apply(threeQueues(100e6)); err != nil || !changed {
		t.Fatalf("%t, %v", changed, err)
	}
	if at := d.qdisc(portQueue(2)); at < 0 || d.qdiscs[at].Options.Kind() != leafBFIFO.String() {
		t.Errorf("qdiscs %v", d.qdiscs)
	}
	if changed, err := NewPort(d, testIfindex).Apply(threeQueues(100e6)); err != nil || changed {
		t.Errorf("again: %t, %v", changed, err)
	}
	d = &device{lacks: "tbf"}
	if _, err := NewPort(d, testIfindex).Apply(threeQueues(100e6)); err == nil || !strings.Contains(err.Error(), "modprobe sch_tbf") {
		t.Errorf("without tbf: %v", err)
	}
	d = &device{refuse: func(op kernel.Op) error {
		if op.Class != nil && op.Class.Handle == portClass(1) {
			return unix.EPERM
		}
		return nil
	}}
	if _, err := NewPort(d, testIfindex).Apply(threeQueues(100e6)); err == nil || !strings.Contains(err.Error(), "make queues") {
		t.Errorf("refused: %v", err)
	}
}

// TestPortOwner: nobody's queueing is taken for somebody else's.
func TestPortOwner(t *testing.T) {
	ours, agent := &device{}, &device{}
	if _, err := NewPort(ours, testIfindex).Apply(threeQueues(1e9)); err != nil {
		t.Fatal(err)
	}
	if err := New(agent, testIfindex).program(treeOf(100e6, container(16, 100, 1e6))); err != nil {
		t.Fatal(err)
	}
	htb1 := kernel.Qdisc{Handle: portClasses, Parent: kernel.HandleRoot, Options: kernel.HTB{DefaultMinor: 1}}
	class := func(minor uint16) kernel.Class {
		return kernel.Class{Handle: kernel.NewHandle(1, minor), Parent: kernel.HandleRoot, Options: kernel.HTBClass{RateBytesPerSec: 1, CeilBytesPerSec: 1}}
	}
	for name, c := range map[string]struct {
		d    *device
		want PortOwner
	}{
		"nothing":      {&device{}, PortFree},
		"ours":         {ours, PortOurs},
		"an agent's":   {agent, PortUplink},
		"Open vSwitch": {&device{qdiscs: []kernel.Qdisc{htb1}, classes: []kernel.Class{class(0xfffe), class(1)}}, PortSwitch},
		"HTB by hand":  {&device{qdiscs: []kernel.Qdisc{htb1}, classes: []kernel.Class{class(1), class(10)}}, PortForeign},
		"another kind": {&device{qdiscs: []kernel.Qdisc{{Handle: 0x50000, Parent: kernel.HandleRoot, Options: kernel.Unknown{Name: "cake"}}}}, PortForeign},
	} {
		got, what, err := NewPort(c.d, testIfindex).Owner()
		if err != nil || got != c.want || (what == "") != (c.want == PortFree) {
			t.Errorf("%s: %d (%s), %v; want %d", name, got, what, err, c.want)
		}
	}
}

func TestPortCounters(t *testing.T) {
	d := &device{}
	p := NewPort(d, testIfindex)
	if _, err := p.Apply(threeQueues(100e6)); err != nil {
		t.Fatal(err)
	}
	got, err := p.Counters([]int{0, 2, 5})
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if want := (PortCounters{SentBytes: 3000, SentPackets: 3, DroppedPackets: portQueueMajor + 2 + 1}); got[2] != want {
		t.Errorf("queue 2: %+v, want %+v", got[2], want)
	}
}

// TestPortQuanta: queues of one priority take turns as their minimums are, at least a
// packet and at most as much as HTB takes.
func TestPortQuanta(t *testing.T) {
	tree := PortTree{RateBPS: 100e6, MTUBytes: 1500, Queues: []PortQueue{
		{ID: 0, MinBPS: 12000, MaxBPS: 100e6}, {ID: 1, MinBPS: 24000, MaxBPS: 100e6}, {ID: 2, MinBPS: 90e6, MaxBPS: 95e6},
	}}
	var turns []uint32
	for _, c := range tree.desired(leafFqCodel).classes[1:] {
		turns = append(turns, c.Options.(kernel.HTBClass).QuantumBytes)
	}
	if packet := turns[0]; !slices.Equal(turns, []uint32{packet, 2 * packet, maxQuantumPackets * packet}) || packet < 1514 {
		t.Errorf("turns of %v bytes", turns)
	}
}
