package htb

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/golden"
)

// compareGolden compares text with a file of testdata.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", name+".golden"), got)
}

func lines(ops []kernel.Op) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintln(&b, op)
	}
	return b.String()
}

const (
	hostNumber    = 1
	controlNumber = 2
)

func treeOf(rateBPS uint64, classes ...class) tree {
	host := class{Competitor: sched.Competitor{Number: hostNumber, Weight: 100, CeilingBPS: alloc.Unlimited},
		GuaranteedBPS: rateBPS / 100, AllocatedBPS: rateBPS / 100}
	return tree{rateBPS: rateBPS, controlNumber: controlNumber, hostNumber: hostNumber,
		classes: append([]class{host}, classes...)}
}

// container is a class whose allocation is its guarantee.
func container(number uint16, weight uint32, bps uint64, options ...func(*class)) class {
	c := class{Competitor: sched.Competitor{Number: number, Weight: weight, CeilingBPS: alloc.Unlimited}, GuaranteedBPS: bps, AllocatedBPS: bps}
	for _, option := range options {
		option(&c)
	}
	return c
}

func allocated(bps uint64) func(*class)    { return func(c *class) { c.AllocatedBPS = bps } }
func ceiling(bps uint64) func(*class)      { return func(c *class) { c.CeilingBPS = bps } }
func packets(bytes uint32) func(*class)    { return func(c *class) { c.PacketBytes = bytes } }
func latency(d time.Duration) func(*class) { return func(c *class) { c.Latency = d } }

func priority(p uint32) func(*class) { return func(c *class) { c.Priority = p } }
func built(t *testing.T, tree tree, leaf leafKind) *device {
	t.Helper()
	d := &device{}
	if err := d.Apply(testIfindex, changes(desired(tree, leaf), state{})); err != nil {
		t.Fatalf("build the tree: %v", err)
	}
	return d
}

// have is what a new backend sees of a device.
func (d *device) have() state {
	b := New(d, testIfindex)
	b.device.controlQueue = leafQdisc(controlNumber)
	s, err := b.device.observe()
	if err != nil {
		panic(err)
	}
	return s
}

// The planned kernel state of typical hosts. Rates are bytes per second, as tc
// writes them ("bps").
func TestPlanFromNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		leaf leafKind
		tree tree
	}{
		{"one-container", leafFqCodel, treeOf(100e6, container(16, 100, 99e6))},
		{"one-container-without-fq_codel", leafBFIFO, treeOf(100e6, container(16, 100, 99e6))},
		{"three-weights", leafFqCodel, treeOf(100e6,
			container(16, 100, 16.5e6), container(17, 200, 33e6), container(18, 300, 49.5e6))},
		{"minimum-and-maximum", leafFqCodel, treeOf(100e6,
			container(16, 100, 69e6, allocated(80e6)),
			container(17, 100, 30e6, allocated(20e6)), // idle: less allocated than guaranteed
			container(18, 100, 10e6, ceiling(10e6)))},
		{"10-mbit", leafFqCodel, treeOf(10e6, container(16, 1, 100e3), container(17, 100, 9.8e6))},
		{"5-gbit", leafFqCodel, treeOf(5e9, container(16, 100, 4.95e9))},
		{"weights-1-to-1000", leafFqCodel, treeOf(1e9, container(16, 1, 989e3), container(17, 1000, 989e6))},
		{"priorities", leafFqCodel, treeOf(1e9,
			container(16, 100, 90e6, priority(1000)), container(17, 100, 90e6, priority(10)), container(18, 100, 90e6, priority(10)),
			container(19, 100, 90e6, priority(9)), container(20, 100, 90e6, priority(8)), container(21, 100, 90e6, priority(7)),
			container(22, 100, 90e6, priority(6)), container(23, 100, 90e6, priority(5)), container(24, 100, 90e6, priority(4)))},
		{"latency", leafFqCodel, treeOf(100e6,
			container(16, 100, 49e6), container(17, 100, 49e6, latency(20*time.Millisecond)), container(18, 1, 1e6, latency(time.Millisecond)))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ops := changes(desired(tc.tree, tc.leaf), state{})
			compareGolden(t, tc.name, lines(ops))
			if err := (&device{}).Apply(testIfindex, ops); err != nil {
				t.Errorf("the kernel refuses it: %v", err)
			}
		})
	}
}

func TestPlanOfChanges(t *testing.T) {
	const leaf = leafFqCodel
	two := treeOf(100e6, container(16, 100, 49.5e6), container(17, 100, 49.5e6))
	foreign := func(h, parent kernel.Handle) kernel.Class {
		return kernel.Class{Handle: h, Parent: parent, Options: kernel.HTBClass{RateBytesPerSec: 1, CeilBytesPerSec: 1}}
	}
	for _, tc := range []struct {
		name string
		// before is done to a device that holds two.
		before func(d *device)
		want   tree
		plan   string
	}{
		{"nothing changed", nil, two, ""},
		{
			"another allocation", nil,
			treeOf(100e6, container(16, 100, 49.5e6, allocated(89e6)), container(17, 100, 49.5e6)),
			`class change parent 7e11:ffff classid 7e11:4010 htb prio 0 quantum 1514 rate 11125000bps burst 14251b ceil 12500000bps cburst 53126b
qdisc change parent 7e11:10 handle 10: fq_codel target 20000us interval 100000us quantum 1514 memory_limit 3145728b limit 1038p
`,
		},
		{
			"another guarantee", nil,
			treeOf(100e6, container(16, 100, 40e6, allocated(49.5e6)), container(17, 100, 49.5e6)),
			`class change parent 7e11:4010 classid 7e11:10 htb prio 2 quantum 4882 rate 5000000bps burst 23125b ceil 12500000bps cburst 53126b
`,
		},
		{
			"another weight", nil,
			treeOf(100e6, container(16, 150, 49.5e6), container(17, 100, 49.5e6)),
			`class change parent 7e11:4010 classid 7e11:10 htb prio 2 quantum 7324 rate 6187500bps burst 27875b ceil 12500000bps cburst 53126b
`,
		},
		{
			"a container starts", nil,
			treeOf(100e6, container(16, 100, 49.5e6), container(17, 100, 49.5e6), container(32, 100, 8e3)),
			`class add parent 7e11:ffff classid 7e11:4020 htb prio 0 quantum 1514 rate 3125bps burst 3128b ceil 12500000bps cburst 53126b
class add parent 7e11:4020 classid 7e11:20 htb prio 2 quantum 4882 rate 1000bps burst 3129b ceil 12500000bps cburst 53126b
qdisc add parent 7e11:20 handle 20: fq_codel target 16384000us interval 32768000us quantum 1514 memory_limit 917504b limit 303p
`,
		},
		{
			"a container stops: its leaf goes before its share", nil,
			treeOf(100e6, container(17, 100, 49.5e6)),
			`class delete classid 7e11:10
class delete classid 7e11:4010
`,
		},
		{
			"leftovers of somebody else", func(d *device) {
				d.classes = append(d.classes,
					foreign(kernel.NewHandle(classMajor, 0x4444), rootClass),
					foreign(kernel.NewHandle(classMajor, 0x444), kernel.NewHandle(classMajor, 0x4444)))
			},
			two,
			`class delete classid 7e11:444
class delete classid 7e11:4444
`,
		},
		{
			"another queue in the place of ours", func(d *device) {
				d.drop(leafQdisc(16))
				d.qdiscs = append(d.qdiscs, kernel.Qdisc{Handle: kernel.NewHandle(0x99, 0), Parent: leafClass(16), Options: kernel.Unknown{Name: "sfq"}})
			},
			two,
			`qdisc delete parent 7e11:10 handle 99:
qdisc add parent 7e11:10 handle 10: fq_codel target 22400us interval 100000us quantum 1514 memory_limit 1835008b limit 606p
`,
		},
		{
			"our queue under another class", func(d *device) {
				d.drop(leafQdisc(16))
				d.drop(leafQdisc(17))
				q := termsOf(two, leaf).leafOf(two.classes[1])
				q.Parent = leafClass(17)
				d.qdiscs = append(d.qdiscs, q)
			},
			two,
			`qdisc delete parent 7e11:11 handle 10:
qdisc add parent 7e11:10 handle 10: fq_codel target 22400us interval 100000us quantum 1514 memory_limit 1835008b limit 606p
qdisc add parent 7e11:11 handle 11: fq_codel target 22400us interval 100000us quantum 1514 memory_limit 1835008b limit 606p
`,
		},
		{
			"our queue of another kind", func(d *device) {
				d.drop(leafQdisc(16))
				d.qdiscs = append(d.qdiscs, kernel.Qdisc{Handle: leafQdisc(16), Parent: leafClass(16), Options: kernel.Unknown{Name: "pfifo"}})
			},
			two,
			`qdisc delete parent 7e11:10 handle 10:
qdisc add parent 7e11:10 handle 10: fq_codel target 22400us interval 100000us quantum 1514 memory_limit 1835008b limit 606p
`,
		},
		{
			"a class that somebody deleted", func(d *device) { d.drop(leafClass(16)) }, two,
			`class add parent 7e11:4010 classid 7e11:10 htb prio 2 quantum 4882 rate 6187500bps burst 27875b ceil 12500000bps cburst 53126b
qdisc add parent 7e11:10 handle 10: fq_codel target 22400us interval 100000us quantum 1514 memory_limit 1835008b limit 606p
`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := built(t, two, leaf)
			if tc.before != nil {
				tc.before(d)
			}
			ops := changes(desired(tc.want, leaf), d.have())
			if got := lines(ops); got != tc.plan {
				t.Errorf("planned:\n%swant:\n%s", got, tc.plan)
			}
			if err := d.Apply(testIfindex, ops); err != nil {
				t.Errorf("the kernel refuses it: %v", err)
			}
			if left := changes(desired(tc.want, leaf), d.have()); len(left) > 0 {
				t.Errorf("still to do after that:\n%s", lines(left))
			}
		})
	}
}

// What cannot be moved or converted makes the whole tree anew, in one go.
func TestPlanStartsAnew(t *testing.T) {
	tree := treeOf(100e6, container(16, 100, 99e6))
	fresh := lines(changes(desired(tree, leafFqCodel), state{}))
	for _, tc := range []struct {
		name   string
		before func(d *device)
	}{
		{"the link is of another kind", func(d *device) { d.qdiscs[d.qdisc(linkHandle)].Options = kernel.Unknown{Name: "prio"} }},
		{"the way past the classes has another default", func(d *device) {
			d.qdiscs[d.qdisc(directHandle)].Options = kernel.HTB{DefaultMinor: 2, DirectPackets: directPackets}
		}},
		{"HTB has another default class", func(d *device) {
			d.qdiscs[d.qdisc(htbHandle)].Options = kernel.HTB{DefaultMinor: 16, DirectPackets: directPackets}
		}},
		{"something else is in the place of HTB", func(d *device) {
			d.drop(htbHandle)
			d.qdiscs = append(d.qdiscs, kernel.Qdisc{Handle: kernel.NewHandle(0x99, 0), Parent: htbParent, Options: kernel.Unknown{Name: "pfifo"}})
		}},
		{"a leaf is outside of its share", func(d *device) { d.classes[d.class(leafClass(16))].Parent = rootClass }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := built(t, tree, leafFqCodel)
			tc.before(d)
			ops := changes(desired(tree, leafFqCodel), d.have())
			if want := "qdisc delete parent root handle 7e0f:\n" + fresh; lines(ops) != want {
				t.Errorf("planned:\n%swant:\n%s", lines(ops), want)
			}
			if err := d.Apply(testIfindex, ops); err != nil {
				t.Errorf("the kernel refuses it: %v", err)
			}
		})
	}
}

func TestHandlesAreApart(t *testing.T) {
	// Of a container's number, its share, the root class and control traffic,
	// no two may meet.
	if identity.NumberLast >= shareBit {
		t.Errorf("numbers reach %#x, where shares begin", identity.NumberLast)
	}
	if share := shareClass(identity.NumberLast); share == rootClass || share.Minor()&^uint16(shareBit) != identity.NumberLast {
		t.Errorf("the last container's share is %s", share)
	}
	if identity.NumberHost != hostNumber || identity.NumberControl != controlNumber || identity.NumberFirst <= controlNumber {
		t.Errorf("numbers: host %d, control %d, containers from %d", identity.NumberHost, identity.NumberControl, identity.NumberFirst)
	}
	for _, major := range []uint16{directMajor, linkMajor, classMajor} {
		if major <= identity.NumberLast {
			t.Errorf("the queue of container %#x has the handle of the trunk", major)
		}
	}
}

// trees draws trees as the agent makes them: guarantees and allocations of the
// ideal allocation.
func trees() *rapid.Generator[tree] {
	return rapid.Custom(func(t *rapid.T) tree {
		rate := uint64(math.Pow(10, rapid.Float64Range(6, 11).Draw(t, "log10 of the rate")))
		numbers := rapid.SliceOfNDistinct(rapid.Uint16Range(16, 40), 0, 12, rapid.ID).Draw(t, "numbers")
		slices.Sort(numbers)
		competing := make([]alloc.Container, len(numbers))
		floors := rate / 2
		for i := range competing {
			floor := rapid.SampledFrom([]uint64{0, floors / 10, floors / 3}).Draw(t, "floor")
			floors -= floor
			ceiling := alloc.Unlimited
			if rapid.Bool().Draw(t, "has a ceiling") {
				ceiling = max(floor, rapid.Uint64Range(8000, 2*rate).Draw(t, "ceiling"))
			}
			competing[i] = alloc.Container{
				Weight:     rapid.SampledFrom([]uint32{0, 1, 2, 7, 100, 300, 9999, 10000}).Draw(t, "weight"),
				FloorBPS:   floor,
				CeilingBPS: ceiling,
				Priority:   rapid.Uint32Range(0, 12).Draw(t, "priority"),
				DemandBPS:  rapid.SampledFrom([]uint64{0, rate / 100, rate / 3, alloc.Unlimited}).Draw(t, "demand"),
			}
		}
		guaranteed := alloc.Entitle(rate-2*(rate/100), competing)
		given := alloc.Allocate(rate, competing, alloc.Entitle(rate, competing))
		tree := treeOf(rate)
		tree.mtuBytes = rapid.SampledFrom([]uint32{0, 1500, 1280, 9000, 65535}).Draw(t, "MTU")
		for i, c := range competing {
			one := class{
				Competitor: sched.Competitor{
					Number: numbers[i], FloorBPS: c.FloorBPS, CeilingBPS: c.CeilingBPS, Weight: c.Weight, Priority: c.Priority,
				},
				GuaranteedBPS: guaranteed[i], AllocatedBPS: given[i],
			}
			if rapid.IntRange(0, 3).Draw(t, "classes") == 0 {
				withClasses(&one)
				one.Leaves |= rapid.SampledFrom([]leaves{0, plainLeaf}).Draw(t, "leaves")
			}
			tree.classes = append(tree.classes, one)
		}
		return tree
	})
}

var leafKinds = rapid.SampledFrom([]leafKind{leafFqCodel, leafBFIFO})

// interfere does to a device what somebody with tc may do.
func interfere(t *rapid.T, d *device) {
	stray := kernel.HTBClass{RateBytesPerSec: 1, CeilBytesPerSec: 1}
	for range rapid.IntRange(0, 4).Draw(t, "interferences") {
		var leaf kernel.Handle
		if len(d.classes) > 0 {
			leaf = d.classes[rapid.IntRange(0, len(d.classes)-1).Draw(t, "which class")].Handle
		}
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			_ = d.doClass(kernel.Delete, kernel.Class{Handle: leaf})
		case 1:
			if at := d.at(leaf); at >= 0 {
				_ = d.doQdisc(kernel.Delete, d.qdiscs[at])
			}
		case 2:
			if d.at(leaf) < 0 {
				_ = d.doQdisc(kernel.Add, kernel.Qdisc{Handle: kernel.NewHandle(0x99, 0), Parent: leaf, Options: kernel.Unknown{Name: "sfq"}})
			}
		case 3:
			minor := rapid.Uint16Range(3, 0x6000).Draw(t, "a class of theirs")
			_ = d.doClass(kernel.Add, kernel.Class{Handle: kernel.NewHandle(classMajor, minor), Parent: rootClass, Options: stray})
		case 4:
			if leaf != 0 {
				_ = d.doClass(kernel.Change, kernel.Class{Handle: leaf, Options: stray})
			}
		case 5:
			minor := rapid.Uint16Range(2, 0x6000).Draw(t, "a class of theirs beside the link")
			_ = d.doClass(kernel.Add, kernel.Class{Handle: kernel.NewHandle(directMajor, minor), Parent: kernel.HandleRoot, Options: stray})
		}
	}
}

// From whatever is there, one plan leads to what is wanted, and the kernel
// takes every step of it.
func TestPlanReachesWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &device{}
		steps := rapid.IntRange(1, 4).Draw(t, "steps")
		for range steps {
			want := desired(trees().Draw(t, "tree"), leafKinds.Draw(t, "leaf"))
			ops := changes(want, d.have())
			if err := d.Apply(testIfindex, ops); err != nil {
				t.Fatalf("the kernel refuses: %v\nof the plan\n%s", err, lines(ops))
			}
			if left := changes(want, d.have()); len(left) > 0 {
				t.Fatalf("still to do:\n%s", lines(left))
			}
			if len(d.classes) != len(want.classes) || len(d.qdiscs) != len(want.qdiscs) {
				t.Fatalf("%d classes and %d qdiscs, want %d and %d", len(d.classes), len(d.qdiscs), len(want.classes), len(want.qdiscs))
			}
			interfere(t, d)
		}
	})
}

// What nobody interferes with keeps its queue when only rates, weights and
// priorities change.
func TestPlanKeepsQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := trees().Draw(t, "before")
		after := trees().Draw(t, "after")
		after.classes = slices.Clone(before.classes)
		leaf := leafKinds.Draw(t, "leaf")
		for i := range after.classes {
			c := &after.classes[i]
			c.GuaranteedBPS = rapid.Uint64Range(0, after.rateBPS).Draw(t, "guaranteed")
			c.AllocatedBPS = rapid.Uint64Range(0, after.rateBPS).Draw(t, "allocated")
			c.Weight = rapid.Uint32Range(1, 10000).Draw(t, "weight")
			c.Priority = rapid.Uint32Range(0, 1000).Draw(t, "priority")
		}
		for _, op := range changes(desired(after, leaf), desired(before, leaf)) {
			if op.Verb != kernel.Change {
				t.Fatalf("not a change: %s", op)
			}
		}
	})
}

// link is the token bucket filter of a state.

// The rates of a tree make sense to HTB, which checks nothing.
func TestRatesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := trees().Draw(t, "tree")
		s := desired(tree, leafKinds.Draw(t, "leaf"))
		class := map[kernel.Handle]kernel.HTBClass{}
		for _, c := range s.classes {
			class[c.Handle] = c.Options.(kernel.HTBClass)
		}
		packet := tree.packetBytes()
		outer := s.link()
		link := outer.RateBytesPerSec
		if link != tree.rateBPS/8 {
			t.Fatalf("the outer bound is %d for a link of %d bit/s", link, tree.rateBPS)
		}
		root := class[rootClass]
		if root.RateBytesPerSec > link || root.RateBytesPerSec < link*998/1000 || root.CeilBytesPerSec != root.RateBytesPerSec {
			t.Fatalf("the root of a link of %d has rate %d and ceiling %d", link, root.RateBytesPerSec, root.CeilBytesPerSec)
		}
		if outer.MaxPacketBytes != 0 && outer.MaxPacketBytes < sched.FrameBytes {
			t.Fatalf("packets are cut to %d bytes", outer.MaxPacketBytes)
		}

		control := class[leafClass(controlNumber)]
		sum := control.RateBytesPerSec
		if control.RateBytesPerSec == 0 || control.CeilBytesPerSec > link/10 || control.Prio != 0 {
			t.Fatalf("control traffic: %s", control)
		}
		for _, c := range tree.classes {
			if c.Leaves != 0 {
				guarantee, leaves := class[guaranteeClass(c.Number)], uint64(0)
				sum += guarantee.RateBytesPerSec
				for _, kind := range trafficKinds {
					leaf := class[trafficClass(c.Number, kind)]
					leaves += leaf.RateBytesPerSec
					if leaf.QuantumBytes < packet || leaf.Prio < 1 || leaf.Prio > 7 || (kind == sched.EF) != (leaf.Prio == latencyPrio) {
						t.Fatalf("container %d, class %d: %s", c.Number, kind, leaf)
					}
				}
				if leaves > guarantee.RateBytesPerSec+3*uint64(packet) || guarantee.CeilBytesPerSec > link ||
					c.CeilingBPS != alloc.Unlimited && guarantee.CeilBytesPerSec > c.CeilingBPS/8 {
					t.Fatalf("container %d: leaves %d, guarantee %s", c.Number, leaves, guarantee)
				}
				continue
			}
			leaf, share := class[leafClass(c.Number)], class[shareClass(c.Number)]
			sum += leaf.RateBytesPerSec
			if leaf.RateBytesPerSec > max(share.RateBytesPerSec, 1) || share.RateBytesPerSec > link {
				t.Fatalf("container %d: leaf %d, share %d, link %d", c.Number, leaf.RateBytesPerSec, share.RateBytesPerSec, link)
			}
			if leaf.RateBytesPerSec > leaf.CeilBytesPerSec || leaf.CeilBytesPerSec > link ||
				c.CeilingBPS != alloc.Unlimited && leaf.CeilBytesPerSec > c.CeilingBPS/8 {
				t.Fatalf("container %d with ceiling %d: %s", c.Number, c.CeilingBPS, leaf)
			}
			// A turn must hold a packet, or HTB goes round for nothing; and a
			// bucket one, as far as its depth can be told. A maximum's bucket
			// holds no more than a millisecond: what is saved up exceeds it.
			if leaf.QuantumBytes < packet ||
				leaf.Burst != math.MaxUint32 && leaf.Burst.Bytes(leaf.RateBytesPerSec)+1 < uint64(packet) ||
				c.CeilingBPS >= tree.rateBPS && leaf.CeilBurst != math.MaxUint32 && leaf.CeilBurst.Bytes(leaf.CeilBytesPerSec)+1 < uint64(packet) ||
				c.CeilingBPS < tree.rateBPS && leaf.CeilBurst.Bytes(leaf.CeilBytesPerSec) > leaf.CeilBytesPerSec/1000+64 {
				t.Fatalf("container %d cannot take a packet of %d bytes: %s", c.Number, packet, leaf)
			}
			if leaf.Prio < 1 || leaf.Prio > 7 {
				t.Fatalf("container %d: prio %d", c.Number, leaf.Prio)
			}
			// Order of priorities and weights.
			for _, o := range tree.classes {
				if o.Leaves != 0 {
					continue
				}
				other := class[leafClass(o.Number)]
				same := c.Priority == o.Priority && (c.Weight == 0) == (o.Weight == 0)
				if c.Priority > o.Priority && leaf.Prio > other.Prio || same && leaf.Prio != other.Prio ||
					c.Priority == o.Priority && c.Weight > o.Weight && leaf.Prio > other.Prio {
					t.Fatalf("priorities %d and %d became %d and %d, with weights %d and %d",
						c.Priority, o.Priority, leaf.Prio, other.Prio, c.Weight, o.Weight)
				}
				if c.Weight > o.Weight && leaf.QuantumBytes < other.QuantumBytes {
					t.Fatalf("weights %d and %d became %d and %d", c.Weight, o.Weight, leaf.QuantumBytes, other.QuantumBytes)
				}
			}
		}
		// Every rate of zero became one byte per second.
		if slack := uint64(len(tree.classes)); sum > link+slack {
			t.Fatalf("guarantees of %d on a link of %d", sum, link)
		}
	})
}
