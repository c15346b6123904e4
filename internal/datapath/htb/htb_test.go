package htb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// ops are all that were tried, refused ones included.
func (d *device) ops() int {
	n := 0
	for _, ops := range d.tried {
		n += len(ops)
	}
	return n
}

// leafKinds counts the queues of the device by kind.
func (d *device) kinds() map[string]int {
	kinds := map[string]int{}
	for _, q := range d.qdiscs {
		kinds[q.Options.Kind()]++
	}
	return kinds
}

func apply(t *testing.T, b *Backend, tree tree) {
	t.Helper()
	if err := b.program(tree); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

func TestApplyTwice(t *testing.T) {
	for _, lacks := range []string{"", "fq_codel"} {
		t.Run("without "+lacks, func(t *testing.T) {
			d := &device{lacks: lacks}
			b := New(d, testIfindex)
			tree := treeOf(10e6, container(16, 100, 3e6, ceiling(5e6)), container(17, 1, 3e3))
			apply(t, b, tree)
			tried, dumps := d.ops(), d.dumps

			apply(t, b, tree)
			if d.ops() != tried || d.dumps != dumps {
				t.Errorf("the same tree again: %d changes, %d looks", d.ops()-tried, d.dumps-dumps)
			}
			b.Forget()
			apply(t, b, tree)
			if d.ops() != tried || d.dumps == dumps {
				t.Errorf("the same tree compared with the kernel: %d looks, changes:\n%s", d.dumps-dumps, lines(d.tried[len(d.tried)-1]))
			}
			// A new agent finds what the old one left.
			next := New(d, testIfindex)
			apply(t, next, tree)
			if d.ops() != tried {
				t.Errorf("the same tree by another agent:\n%s", lines(d.tried[len(d.tried)-1]))
			}
			if next.Name() != b.Name() {
				t.Errorf("%s became %s", b.Name(), next.Name())
			}
		})
	}
}

func TestApplyWithoutFqCodel(t *testing.T) {
	d := &device{lacks: "fq_codel"}
	b := New(d, testIfindex)
	tree := treeOf(100e6, container(16, 100, 50e6))
	apply(t, b, tree)
	if b.Name() != "htb+bfifo" || d.kinds()["bfifo"] != 3 {
		t.Errorf("%s with queues %v", b.Name(), d.kinds())
	}
	// It is not asked for again.
	tree.classes = append(tree.classes, container(17, 100, 10e6))
	tried := len(d.tried)
	apply(t, b, tree)
	if len(d.tried) != tried+1 {
		t.Errorf("one container more took %d calls", len(d.tried)-tried)
	}
}

// What cannot be done without is named, once, with what to do.
func TestApplyWithoutSchedulers(t *testing.T) {
	for _, lacks := range []string{"tbf", "htb"} {
		b := New(&device{lacks: lacks}, testIfindex)
		err := b.program(treeOf(100e6, container(16, 100, 50e6), container(17, 100, 40e6)))
		if err == nil || !strings.Contains(err.Error(), "no "+lacks+" qdisc") || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("without %s: %v", lacks, err)
		}
	}
}

// Somebody deletes everything, and then a container starts: the kernel knows
// neither its class nor its share. That is no reason to think it has no
// fq_codel.
func TestApplyAfterSomebodyDeletedAll(t *testing.T) {
	d := &device{}
	b := New(d, testIfindex)
	apply(t, b, treeOf(100e6, container(16, 100, 50e6)))
	d.drop(directHandle)
	tree := treeOf(100e6, container(16, 100, 50e6), container(17, 100, 40e6))
	apply(t, b, tree)
	if b.Name() != "htb+fq_codel" || d.kinds()["fq_codel"] != 3 {
		t.Errorf("%s with queues %v", b.Name(), d.kinds())
	}
}

func TestApplyAdoptsQueues(t *testing.T) {
	tree := treeOf(100e6, container(16, 100, 50e6))
	for _, leaf := range []leafKind{leafFqCodel, leafBFIFO} {
		t.Run(leaf.String(), func(t *testing.T) {
			d := built(t, tree, leaf)
			built := d.ops()
			b := New(d, testIfindex)
			apply(t, b, tree)
			if b.Name() != "htb+"+leaf.String() {
				t.Errorf("took it for %s", b.Name())
			}
			if d.ops() != built {
				t.Errorf("changed what it found:\n%s", lines(d.tried[len(d.tried)-1]))
			}
		})
	}
}

func TestApplyRefused(t *testing.T) {
	tree := treeOf(100e6, container(16, 100, 50e6), container(17, 100, 40e6))
	refusing := func(d *device, h kernel.Handle, times int) {
		d.refuse = func(op kernel.Op) error {
			if op.Class != nil && op.Class.Handle == h && times != 0 {
				times--
				return unix.ENOMEM
			}
			return nil
		}
	}
	t.Run("once", func(t *testing.T) {
		d := &device{}
		refusing(d, leafClass(16), 1)
		b := New(d, testIfindex)
		apply(t, b, tree)
		if left := changes(desired(tree, leafFqCodel), d.have()); len(left) > 0 {
			t.Errorf("left undone:\n%s", lines(left))
		}
	})
	t.Run("for good", func(t *testing.T) {
		d := &device{}
		refusing(d, leafClass(16), -1)
		b := New(d, testIfindex)
		err := b.program(tree)
		if !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "7e11:10") {
			t.Errorf("error %v does not tell what was refused", err)
		}
		if strings.Contains(err.Error(), "7e11:11") {
			t.Errorf("error %v tells of what was not refused", err)
		}
		// The others are in force.
		if d.class(leafClass(17)) < 0 || d.at(leafClass(17)) < 0 {
			t.Error("the other container has no class or no queue")
		}
		// Nothing is taken for granted after that.
		d.refuse = nil
		apply(t, b, tree)
		if left := changes(desired(tree, leafFqCodel), d.have()); len(left) > 0 {
			t.Errorf("left undone:\n%s", lines(left))
		}
	})
	t.Run("no such device", func(t *testing.T) {
		b := New(&device{}, testIfindex+1)
		if err := b.program(tree); !errors.Is(err, unix.ENODEV) {
			t.Errorf("error %v", err)
		}
	})
}

// Whatever somebody does between two trees, Apply gets the second one into the
// kernel.
func TestApplyReachesWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &device{}
		if rapid.Bool().Draw(t, "lacks fq_codel") {
			d.lacks = "fq_codel"
		}
		b := New(d, testIfindex)
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			tree := trees().Draw(t, "tree")
			// The first may trust what it remembers, the second looks.
			for range 2 {
				if err := b.program(tree); err != nil {
					t.Fatalf("apply: %v", err)
				}
				b.Forget()
			}
			before := d.ops()
			if err := b.program(tree); err != nil || d.ops() != before {
				t.Fatalf("again: %v\n%s", err, lines(d.tried[len(d.tried)-1]))
			}
			if want := map[string]string{"": "htb+fq_codel", "fq_codel": "htb+bfifo"}[d.lacks]; b.Name() != want {
				t.Fatalf("%s, want %s", b.Name(), want)
			}
			interfere(t, d)
		}
	})
}

func TestStats(t *testing.T) {
	d := built(t, treeOf(100e6, container(16, 100, 50e6)), leafFqCodel)
	b := New(d, testIfindex)
	for _, n := range []uint16{1, 16, 17} {
		b.members = append(b.members, &member{want: sched.Competitor{Number: n}, leaves: plainLeaf})
	}
	for _, count := range []bool{false, true, true} {
		// Only of those that are asked for, and are there. What was sent is the share's, which an
		// earlier agent that used traffic classes may have had count more than the leaf.
		got, err := b.stats([]uint16{16, 1, 17}, count, []stats{{number: 99}})
		if err != nil {
			t.Fatal(err)
		}
		sent := func(n uint16, backlog uint64) stats {
			s := stats{number: n, backlogBytes: backlog}
			s.traffic[sched.Unclassified] = sched.TrafficCounters{SentBytes: uint64(n) * 1000, SentPackets: uint32(n), BacklogBytes: backlog}
			if count {
				s.sentBytes, s.sentPackets = uint64(n|shareBit)*1000, uint32(n|shareBit)
			}
			return s
		}
		if want := []stats{{number: 99}, sent(1, 3), sent(16, 18)}; !slices.Equal(got, want) {
			t.Errorf("count %t: got %v, want %v", count, got, want)
		}
	}
}

func TestQueueStats(t *testing.T) {
	d := built(t, treeOf(100e6, container(16, 100, 50e6)), leafFqCodel)
	got, err := New(d, testIfindex).device.queueStats()
	if want := map[uint16]kernel.QueueStats{
		1:  {DroppedPackets: 2, MarkedPackets: 3},
		2:  {DroppedPackets: 3, MarkedPackets: 4},
		16: {DroppedPackets: 17, MarkedPackets: 18},
	}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestRemove(t *testing.T) {
	tree := treeOf(100e6, container(16, 100, 50e6))
	d := &device{}
	b := New(d, testIfindex)
	if err := b.Remove(); err != nil || d.ops() > 0 {
		t.Errorf("remove nothing: %v, %d changes", err, d.ops())
	}
	apply(t, b, tree)
	if err := b.Remove(); err != nil || len(d.qdiscs)+len(d.classes) > 0 {
		t.Errorf("remove: %v, left %v %v", err, d.qdiscs, d.classes)
	}
	if err := b.Remove(); err != nil {
		t.Errorf("remove again: %v", err)
	}
	// What was removed is not remembered.
	apply(t, b, tree)
	if len(d.qdiscs) == 0 {
		t.Error("apply after remove did nothing")
	}

	// Somebody else's is not ours to remove.
	foreign := &device{qdiscs: []kernel.Qdisc{{Handle: kernel.NewHandle(1, 0), Parent: kernel.HandleRoot, Options: kernel.HTB{}}}}
	if err := New(foreign, testIfindex).Remove(); err != nil || len(foreign.qdiscs) != 1 {
		t.Errorf("remove with somebody else's qdisc: %v, left %v", err, foreign.qdiscs)
	}
}

func TestOwns(t *testing.T) {
	for _, tc := range []struct {
		qdiscs []kernel.Qdisc
		want   bool
	}{
		{nil, false},
		{[]kernel.Qdisc{{Handle: directHandle, Parent: kernel.HandleRoot, Options: kernel.HTB{}}}, true},
		{[]kernel.Qdisc{{Handle: directHandle, Parent: kernel.HandleRoot, Options: kernel.Unknown{Name: "prio"}}}, false},
		{[]kernel.Qdisc{{Handle: htbHandle, Parent: kernel.HandleRoot, Options: kernel.HTB{}}}, false},
		{[]kernel.Qdisc{{Handle: kernel.NewHandle(1, 0), Parent: kernel.HandleRoot, Options: kernel.HTB{}}, {Handle: linkHandle, Parent: kernel.NewHandle(1, 1), Options: kernel.HTB{}}}, false},
		{[]kernel.Qdisc{{Handle: kernel.NewHandle(0xffff, 0), Parent: kernel.HandleIngress, Options: kernel.HTB{}}, {Handle: directHandle, Parent: kernel.HandleRoot, Options: kernel.HTB{}}}, true},
	} {
		if got := (*Backend)(nil).Owns(tc.qdiscs); got != tc.want {
			t.Errorf("Owns(%v) = %t", tc.qdiscs, got)
		}
	}
}

func TestLacksQdisc(t *testing.T) {
	queue := kernel.Qdisc{Handle: leafQdisc(16), Parent: leafClass(16), Options: kernel.FqCodel{}}
	class := kernel.Class{Handle: leafClass(16), Parent: shareClass(16), Options: kernel.HTBClass{}}
	add := &kernel.OpError{Op: kernel.Op{Verb: kernel.Add, Qdisc: &queue}, Err: fmt.Errorf("netlink receive: %w", unix.ENOENT)}
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"nothing", nil, false},
		{"something else", errors.New("no"), false},
		{"refused", add, true},
		{"refused, wrapped and joined", fmt.Errorf("schedule: %w", errors.Join(&kernel.OpError{Op: kernel.Op{Verb: kernel.Change, Class: &class}, Err: unix.EINVAL}, errors.Join(add))), false},
		{"among others", fmt.Errorf("schedule: %w", errors.Join(errors.New("no"), errors.Join(add))), true},
		{"a class is not there", errors.Join(&kernel.OpError{Op: kernel.Op{Verb: kernel.Add, Class: &class}, Err: unix.ENOENT}, add), false},
		{"a queue is not there", &kernel.OpError{Op: kernel.Op{Verb: kernel.Change, Qdisc: &queue}, Err: unix.ENOENT}, false},
		{"for another reason", &kernel.OpError{Op: kernel.Op{Verb: kernel.Add, Qdisc: &queue}, Err: unix.EEXIST}, false},
	} {
		if got := lacksQdisc(tc.err, "fq_codel"); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
	if lacksQdisc(add, "bfifo") {
		t.Error("took fq_codel for bfifo")
	}
}

// What is remembered of the last tree is as good as a look at the kernel.
func TestApplyRemembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &device{}
		b := New(d, testIfindex)
		for step := range rapid.IntRange(2, 5).Draw(t, "steps") {
			tree := trees().Draw(t, "tree")
			if rapid.Bool().Draw(t, "on the same terms") {
				tree.rateBPS = 1e9
				for i := range tree.classes {
					tree.classes[i].Weight, tree.classes[i].Priority = 100, 0
				}
			}
			looks := d.dumps
			if err := b.program(tree); err != nil {
				t.Fatalf("apply: %v", err)
			}
			if step > 0 && d.dumps > looks {
				t.Fatal("looked at the kernel again")
			}
			if left := changes(desired(tree, b.device.leaf), d.have()); len(left) > 0 {
				t.Fatalf("left undone:\n%s", lines(left))
			}
			// The tree is the caller's.
			clear(tree.classes)
		}
	})
}

// With a thousand containers, a change of one is compared as one.
func TestDifferencesAreWhatChanged(t *testing.T) {
	many := func() tree {
		tree := treeOf(1e9)
		for n := range uint16(1000) {
			tree.classes = append(tree.classes, container(16+n, 100, 900e3))
		}
		return tree
	}
	for _, tc := range []struct {
		name                 string
		change               func(*tree)
		classes, wereClasses int // besides the trunk's
	}{
		{"nothing", func(*tree) {}, 0, 0},
		{"one changes", func(tree *tree) { tree.classes[500].AllocatedBPS *= 2 }, 1, 1},
		{"one goes", func(tree *tree) { tree.classes = slices.Delete(tree.classes, 500, 501) }, 0, 1},
		{"the last goes", func(tree *tree) { tree.classes = tree.classes[:1000] }, 0, 1},
		{"one comes", func(tree *tree) { tree.classes = append(tree.classes, container(2000, 100, 900e3)) }, 1, 0},
		{"another rate", func(tree *tree) { tree.rateBPS *= 2 }, 1001, 1001},
		{"a smaller weight", func(tree *tree) { tree.classes[500].Weight = 1 }, 1001, 1001},
		{"another priority", func(tree *tree) { tree.classes[500].Priority = 1 }, 1001, 1001},
	} {
		tree := many()
		tc.change(&tree)
		want, have := differences(tree, many(), leafFqCodel)
		const trunkClasses, perClass = 3, 2
		if w, h := (len(want.classes)-trunkClasses)/perClass, (len(have.classes)-trunkClasses)/perClass; w != tc.classes || h != tc.wereClasses {
			t.Errorf("%s: %d classes are compared with %d, want %d with %d", tc.name, w, h, tc.classes, tc.wereClasses)
		}
	}
}
