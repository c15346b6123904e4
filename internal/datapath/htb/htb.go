package htb

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// TrafficControl is the kernel interface of the scheduler. Implementation: *kernel.TC.
type TrafficControl interface {
	Qdiscs(ifindex int) ([]kernel.Qdisc, error)
	Classes(ifindex int) ([]kernel.Class, error)
	QueueStats(ifindex int) (map[kernel.Handle]kernel.QueueStats, error)
	ClassStats(ifindex int, handles []kernel.Handle, dst []kernel.ClassStats) ([]kernel.ClassStats, error)
	Apply(ifindex int, ops []kernel.Op) error
}

// Backend schedules one device with HTB. It is not safe for concurrent use.
type Backend struct {
	device deviceTree

	division
	loop

	scratch scratch
}

// deviceTree is the present and the wanted HTB tree of one device.
type deviceTree struct {
	tc      TrafficControl
	ifindex int
	leaf    leafKind
	// controlQueue is always a bfifo.
	controlQueue kernel.Handle
	// wanted is the tree that the kernel should have. applied is the tree that it has, valid if
	// known is set; otherwise the kernel must be asked.
	wanted, applied tree
	known           bool
	// changed: more of the wanted tree than allocations may differ from applied. terms are those of applied.
	changed bool
	terms   terms
	// draining: a member may have unused leaves.
	draining bool
}

// scratch is memory reused in each turn.
type scratch struct {
	offered []uint64
	// awake are the active members.
	awake       []*member
	asked       []uint16
	lacking     []uint16
	read        []stats
	direct      []sched.Direct
	kernelStats []kernel.ClassStats
	handles     []kernel.Handle
}

var _ sched.Backend = (*Backend)(nil)

// New returns the scheduler of the device with index ifindex. It touches
// nothing until Apply.
func New(tc TrafficControl, ifindex int) *Backend {
	return &Backend{device: deviceTree{tc: tc, ifindex: ifindex}}
}

// Name implements sched.Backend.
func (b *Backend) Name() string { return "htb+" + b.device.leaf.String() }

// Forget implements sched.Backend.
func (b *Backend) Forget() { b.device.known = false }

// Majors implements sched.Backend.
func (*Backend) Majors() sched.Majors { return sched.Majors{Classes: classMajor, Direct: directMajor} }

// Apply implements sched.Backend.
func (b *Backend) Apply(want sched.Tree) error {
	b.setWanted(want)
	b.following = false
	return b.applyAllocations()
}

// setWanted sets the wanted tree.
func (b *Backend) setWanted(want sched.Tree) {
	b.setMembers(want)
	b.device.changed, b.device.draining = true, true
	b.device.wanted.rateBPS, b.device.wanted.mtuBytes = want.RateBPS, want.MTUBytes
	b.device.wanted.overheadBytes, b.device.wanted.packetTime = want.OverheadBytes, want.PacketTime
	b.device.wanted.controlNumber, b.device.wanted.hostNumber = want.ControlNumber, want.HostNumber
}

// applyAllocations applies the present allocations to the classifier and the kernel.
func (b *Backend) applyAllocations() error {
	b.device.changed = true // until all of it is in force
	if err := b.setDirect(); err != nil {
		return err
	}
	b.device.wanted.classes = b.device.wanted.classes[:0]
	for _, m := range b.members {
		b.device.wanted.classes = append(b.device.wanted.classes, b.class(m))
	}
	if err := b.program(b.device.wanted); err != nil {
		return err
	}
	if err := b.tellTraffic(b.members); err != nil {
		return err
	}
	b.device.changed = false
	return nil
}

// applyReallocated applies the classes of reallocated members, where nothing else differs from what is in force;
// otherwise, and after a refusal, everything.
func (b *Backend) applyReallocated() error {
	d := &b.device
	if d.changed || !d.known {
		return b.applyAllocations()
	}
	d.changed = true // until all of it is in force
	var wanted, had state
	for _, m := range b.reused.reallocated {
		i, _ := indexOf(b.members, m.want.Number)
		if want := b.class(m); want != d.wanted.classes[i] { // equal where it is the second time
			d.wanted.classes[i] = want
			d.terms.add(&wanted, want)
			d.terms.add(&had, d.applied.classes[i])
		}
	}
	if ops := changes(wanted, had); len(ops) > 0 {
		if err := d.tc.Apply(d.ifindex, ops); err != nil {
			b.Forget()
			return b.applyAllocations()
		}
	}
	for _, m := range b.reused.reallocated {
		i, _ := indexOf(b.members, m.want.Number)
		d.applied.classes[i] = d.wanted.classes[i]
	}
	if err := b.tellTraffic(b.reused.reallocated); err != nil {
		return err
	}
	d.changed = false
	return nil
}

// program applies a tree to the kernel.
func (b *Backend) program(want tree) error {
	b.device.controlQueue = leafQdisc(want.controlNumber)
	var refused error
	for range 1 + retries {
		ops, err := b.changes(want)
		if err == nil && len(ops) > 0 {
			err = b.device.tc.Apply(b.device.ifindex, ops)
		}
		if err == nil {
			want.classes = append(b.device.applied.classes[:0], want.classes...)
			b.device.applied, b.device.known, b.device.terms = want, true, termsOf(want, b.device.leaf)
			return nil
		}
		refused = err
		// Either the kernel has no fq_codel, or its state differs from applied: read it and try
		// once more.
		if b.device.leaf == leafFqCodel && lacksQdisc(err, leafFqCodel.String()) {
			b.device.leaf = leafBFIFO
		}
		b.Forget()
	}
	return explain("schedule uplink", refused)
}

// explain condenses up to hundreds of refusals into one error.
func explain(doing string, err error) error {
	for _, needed := range []string{kernel.TBF{}.Kind(), kernel.HTB{}.Kind()} {
		if lacksQdisc(err, needed) {
			return fmt.Errorf("this kernel has no %[1]s qdisc, which Weir needs: try modprobe sch_%[1]s; `weir doctor` tells more", needed)
		}
	}
	if all := refusals(err); len(all) > 1 {
		return fmt.Errorf("%s: %w (and %d refusals more)", doing, all[0], len(all)-1)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// retries: both reasons for a refusal may apply, one after the other.
const retries = 2

// changes returns the operations that turn the kernel's state into tree. If the last applied tree
// is known, the cost depends on the differences only.
func (b *Backend) changes(tree tree) ([]kernel.Op, error) {
	if b.device.known {
		return changes(differences(tree, b.device.applied, b.device.leaf)), nil
	}
	observed, err := b.device.observe()
	if err != nil {
		return nil, err
	}
	b.adopt(&tree, observed)
	return changes(desired(tree, b.device.leaf), observed), nil
}

// lacksQdisc reports whether err contains the kernel's refusal of an unsupported kind of qdisc. A
// missing class has the same error number.
func lacksQdisc(err error, kind string) bool {
	var qdiscs []*kernel.Qdisc
	refusedClass := map[kernel.Handle]bool{}
	for _, refused := range refusals(err) {
		switch op := refused.Op; {
		case op.Class != nil:
			refusedClass[op.Class.Handle] = true
		case op.Verb == kernel.Add && op.Qdisc.Options.Kind() == kind && errors.Is(refused, unix.ENOENT):
			qdiscs = append(qdiscs, op.Qdisc)
		}
	}
	return slices.ContainsFunc(qdiscs, func(q *kernel.Qdisc) bool { return !refusedClass[q.Parent] })
}

// refusals returns the refused operations in err.
func refusals(err error) []*kernel.OpError {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var list []*kernel.OpError
		for _, err := range joined.Unwrap() {
			list = append(list, refusals(err)...)
		}
		return list
	}
	var refused *kernel.OpError
	if errors.As(err, &refused) {
		return []*kernel.OpError{refused}
	}
	return nil
}

// observe reads the qdiscs and classes of this scheduler from the kernel.
func (d *deviceTree) observe() (state, error) {
	var s state
	qdiscs, err := d.tc.Qdiscs(d.ifindex)
	if err != nil {
		return s, err
	}
	if ownRoot(qdiscs) < 0 {
		return s, nil
	}
	classes, err := d.tc.Classes(d.ifindex)
	if err != nil {
		return s, err
	}
	var codel, fifo bool
	for _, q := range qdiscs {
		// A qdisc without a handle is the kernel's default.
		if q.Handle.Major() != 0 && q.Parent != kernel.HandleIngress {
			s.qdiscs = append(s.qdiscs, q)
			codel = codel || q.Options.Kind() == leafFqCodel.String()
			fifo = fifo || q.Options.Kind() == leafBFIFO.String() && q.Handle != d.controlQueue
		}
	}
	// Adopt existing queues: replacing them would lose their packets. Queues of EF, and of classes
	// with a latency bound, are always FIFOs.
	if fifo && !codel {
		d.leaf = leafBFIFO
	}
	for _, c := range classes {
		if c.Handle.Major() == classMajor || c.Handle.Major() == directMajor {
			s.classes = append(s.classes, c)
		}
	}
	return s, nil
}

// Owns reports whether the root of a device's qdiscs is this scheduler's.
func (*Backend) Owns(qdiscs []kernel.Qdisc) bool { return ownRoot(qdiscs) >= 0 }

// ownRoot returns the index of the root qdisc if it is this scheduler's, or -1.
func ownRoot(qdiscs []kernel.Qdisc) int {
	return slices.IndexFunc(qdiscs, func(q kernel.Qdisc) bool {
		return q.Parent == kernel.HandleRoot && q.Handle == directHandle && q.Options.Kind() == kernel.HTB{}.Kind()
	})
}

// stats holds the counters of one class since it was made.
type stats struct {
	number       uint16
	sentBytes    uint64
	backlogBytes uint64
	sentPackets  uint32 // wraps
	// traffic holds the counters of the leaves of traffic classes.
	traffic [sched.NumTrafficClasses]sched.TrafficCounters
}

// stats appends the counters of the members with these numbers to dst, by number, without missing
// classes. What they sent is read with count only.
func (b *Backend) stats(numbers []uint16, count bool, dst []stats) ([]stats, error) {
	b.scratch.handles = b.scratch.handles[:0]
	for _, n := range numbers {
		b.scratch.handles = b.member(n).leaves.handles(n, b.scratch.handles)
		if count {
			b.scratch.handles = append(b.scratch.handles, shareClass(n))
		}
	}
	read, err := b.device.tc.ClassStats(b.device.ifindex, b.scratch.handles, b.scratch.kernelStats[:0])
	b.scratch.kernelStats = read
	if err != nil {
		return dst, err
	}
	slices.SortFunc(read, func(s, t kernel.ClassStats) int {
		return cmp.Compare(numberOf(s.Handle.Minor()), numberOf(t.Handle.Minor()))
	})
	for _, s := range read {
		dst = addCounted(dst, s)
	}
	return dst, nil
}

// queueStats returns the dropped and marked packets of each queue, by the minor of its leaf. It
// costs more than stats.
func (d *deviceTree) queueStats() (map[uint16]kernel.QueueStats, error) {
	queues, err := d.tc.QueueStats(d.ifindex)
	if err != nil {
		return nil, err
	}
	byMinor := make(map[uint16]kernel.QueueStats, len(queues))
	for handle, q := range queues {
		if minor := handle.Major(); minor < shareBit {
			byMinor[minor] = q
		}
	}
	return byMinor, nil
}

// Remove implements sched.Backend.
func (b *Backend) Remove() error {
	qdiscs, err := b.device.tc.Qdiscs(b.device.ifindex)
	if err != nil {
		return err
	}
	b.Forget()
	root := ownRoot(qdiscs)
	if root < 0 {
		return nil
	}
	return b.device.tc.Apply(b.device.ifindex, []kernel.Op{{Verb: kernel.Delete, Qdisc: &qdiscs[root]}})
}
