package htb

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

var halfAndThird = alloc.ClassParts{EFMax: alloc.Part{Percent: 50}, AFMin: alloc.Part{Percent: 30}}

// withClasses divides the traffic of a class.
func withClasses(c *class) {
	c.Traffic = sched.TrafficClasses{Ordered: true, Parts: halfAndThird}
	c.Leaves = orderedLeaves
}

func TestClassTree(t *testing.T) {
	tree := treeOf(100e6, container(16, 100, 40e6, allocated(60e6), withClasses), container(17, 100, 40e6))
	compareGolden(t, "classes", lines(changes(desired(tree, leafFqCodel), state{})))
}

// TestClassRates: the leaves' rates are the guarantee, EF has its maximum of it, and
// turns are in proportion to the parts.
func TestClassRates(t *testing.T) {
	part := rapid.Custom(func(t *rapid.T) alloc.Part {
		if rapid.Bool().Draw(t, "a rate") {
			return alloc.Part{BPS: rapid.Uint64Range(1, 2e9).Draw(t, "rate")}
		}
		return alloc.Part{Percent: rapid.Float64Range(0, 100).Draw(t, "percent")}
	})
	rapid.Check(t, func(t *rapid.T) {
		parts := alloc.ClassParts{EFMax: part.Draw(t, "EF"), AFMin: part.Draw(t, "AF")}
		guaranteed := rapid.Uint64Range(0, 1e10).Draw(t, "guaranteed")
		share := guaranteed + rapid.Uint64Range(0, 1e10).Draw(t, "more")
		r := ratesOf(parts, share, guaranteed)
		ef, af, be := r.leafBPS[sched.EF], r.leafBPS[sched.AF], r.leafBPS[sched.BE]
		if ef+af+be != guaranteed {
			t.Fatalf("%d, %d and %d are not the guarantee of %d", ef, af, be, guaranteed)
		}
		if ef < min(r.parts.EFBPS, guaranteed) {
			t.Fatalf("EF has %d of %d", ef, r.parts.EFBPS)
		}
		const packetBytes = 1514
		turnBytes := rapid.SampledFrom([]uint32{1, 3, 64}).Draw(t, "turn") * packetBytes
		afQuantum, beQuantum := r.turns(turnBytes, packetBytes)
		for _, quantum := range []uint32{afQuantum, beQuantum} {
			if quantum < packetBytes || quantum > maxQuantumPackets*packetBytes {
				t.Fatalf("turns of %d and %d bytes", afQuantum, beQuantum)
			}
		}
		turnAF, turnBE := r.parts.Turns()
		want := float64(turnAF) / float64(turnAF+turnBE)
		if got := float64(afQuantum) / (float64(afQuantum) + float64(beQuantum)); got < want-0.017 || got > want+0.017 {
			t.Fatalf("AF has %.3f of the turns, want %.3f", got, want)
		}
	})
}

// queues is a device whose queues all hold the same number of bytes, and whose list of classes lacks a class.
type queues struct {
	*device
	backlogBytes uint32
	missing      kernel.Handle
}

func (q *queues) ClassStats(_ int, handles []kernel.Handle, dst []kernel.ClassStats) ([]kernel.ClassStats, error) {
	for _, h := range handles {
		if h != q.missing {
			dst = append(dst, kernel.ClassStats{Handle: h, BacklogBytes: q.backlogBytes})
		}
	}
	return dst, nil
}

// A container that begins or ceases to have classes keeps its old leaves until they are
// empty, and packets go to leaves that are there at any time.
func TestClassesChange(t *testing.T) {
	const number = 16
	d := &queues{device: &device{}}
	traffic := &fakeTraffic{offered: make([]uint64, 100), directBytes: make([]uint64, 100), minors: map[uint16]sched.Minors{}, efBPS: map[uint16]uint64{}}
	tree := sched.Tree{RateBPS: 100e6, ControlNumber: controlNumber, HostNumber: hostNumber, Competitors: []sched.Competitor{
		{Number: hostNumber, Weight: 100, CeilingBPS: alloc.Unlimited}, {Number: number, Weight: 100, CeilingBPS: alloc.Unlimited},
	}}
	b := New(d, testIfindex)
	must.Succeed(t, errors.Join(b.Connect(tree, traffic), b.Apply(tree)))
	there := func(h kernel.Handle) bool {
		return slices.ContainsFunc(d.classes, func(c kernel.Class) bool { return c.Handle == h })
	}
	check := func(when string, plain, ordered bool) {
		t.Helper()
		if there(leafClass(number)) != plain || there(trafficClass(number, sched.EF)) != ordered || there(guaranteeClass(number)) != ordered {
			t.Errorf("%s: the plain leaf is there: %v, those of classes: %v", when, there(leafClass(number)), there(trafficClass(number, sched.EF)))
		}
		minors := traffic.minors[number]
		for kind := range minors {
			minor := minors[kind]
			if minor == 0 {
				minor = number
			}
			if !there(kernel.NewHandle(classMajor, minor)) {
				t.Errorf("%s: packets of class %d go to %x, which is not there", when, kind, minor)
			}
		}
	}
	turns := func(count int) {
		t.Helper()
		for range count {
			turn, err := b.Turn(time.Now(), false)
			if err != nil {
				t.Fatal(err)
			}
			if b.member(number).draining() && turn.Next > idleInterval {
				t.Fatalf("packets are left in silence: the next turn is in %s", turn.Next)
			}
		}
	}
	set := func(ordered bool) {
		t.Helper()
		tree.Competitors[1].Traffic = sched.TrafficClasses{Ordered: ordered, Parts: halfAndThird}
		must.Succeed(t, b.Apply(tree))
	}
	check("without classes", true, false)
	set(true)
	check("it has just got them", true, true)
	d.backlogBytes = 1
	turns(20)
	check("packets are left", true, true)
	d.backlogBytes, d.missing = 0, leafClass(number)
	turns(1)
	check("the list lacks the plain leaf", true, true)
	d.missing = 0
	turns(1)
	check("with classes", false, true)
	m := b.member(number)
	if got, want := traffic.efBPS[number], halfAndThird.Of(max(m.allocatedBPS, m.guaranteedBPS)).EFBPS; got != want || got == 0 {
		t.Errorf("EF is held to %d, want %d", got, want)
	}
	set(false)
	check("it has just lost them", true, true)
	set(true)
	check("it has them again", true, true)
	turns(drainAfter)
	check("again with classes", false, true)
	set(false)
	turns(drainAfter)
	check("again without", true, false)
	if traffic.efBPS[number] != 0 {
		t.Errorf("EF is still held to %d", traffic.efBPS[number])
	}
	set(true)
	d.backlogBytes = 1
	turns(drainAtMost)
	check("a queue that does not empty", false, true)
}

// Leaves of an agent that wanted others are taken over and drained.
func TestClassesAreAdopted(t *testing.T) {
	tree := treeOf(100e6, container(16, 100, 40e6))
	d := built(t, tree, leafFqCodel)
	b := New(d, testIfindex)
	wanted := sched.Tree{RateBPS: 100e6, ControlNumber: controlNumber, HostNumber: hostNumber, Competitors: []sched.Competitor{
		{Number: hostNumber, Weight: 100, CeilingBPS: alloc.Unlimited},
		{Number: 16, Weight: 100, CeilingBPS: alloc.Unlimited, Traffic: sched.TrafficClasses{Ordered: true, Parts: halfAndThird}},
	}}
	must.Succeed(t, b.Apply(wanted))
	if m := b.member(16); m.leaves != plainLeaf|orderedLeaves || !m.draining() {
		t.Errorf("has %b", m.leaves)
	}
}

// Nothing of a container whose EF has no part of its share goes first: to the
// classifier, 0 is no limit.
func TestNoEF(t *testing.T) {
	const number = 16
	traffic := &fakeTraffic{offered: make([]uint64, 100), directBytes: make([]uint64, 100), minors: map[uint16]sched.Minors{}, efBPS: map[uint16]uint64{}}
	tree := sched.Tree{RateBPS: 100e6, ControlNumber: controlNumber, HostNumber: hostNumber, Competitors: []sched.Competitor{
		{Number: hostNumber, Weight: 100, CeilingBPS: alloc.Unlimited},
		{Number: number, Weight: 100, CeilingBPS: alloc.Unlimited, Traffic: sched.TrafficClasses{Ordered: true}},
	}}
	b := New(&queues{device: &device{}}, testIfindex)
	must.Succeed(t, errors.Join(b.Connect(tree, traffic), b.Apply(tree)))
	if got := traffic.efBPS[number]; got != 1 {
		t.Errorf("EF is held to %d bit/s, want 1", got)
	}
}

// TestEFWithinMaximum: of a container whose EF may fill its maximum, no more EF is admitted than its class sends.
func TestEFWithinMaximum(t *testing.T) {
	b := newBed(t, 100e6)
	m := b.start(maximum(10e6), func(c *sched.Competitor) {
		c.Traffic = sched.TrafficClasses{Ordered: true, Parts: alloc.ClassParts{EFMax: alloc.Part{Percent: 100}}}
	})
	for _, c := range desired(b.device.applied, leafFqCodel).classes {
		if c.Handle != trafficClass(m.want.Number, sched.EF) {
			continue
		}
		admitted, sent := b.traffic.efBPS[m.want.Number], c.Options.(kernel.HTBClass).CeilBytesPerSec*8
		if admitted > sent || admitted < 9.9e6 {
			t.Errorf("%d bit/s of EF are admitted, %d sent", admitted, sent)
		}
	}
}
