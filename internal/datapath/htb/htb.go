package htb

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
)

// TrafficControl is what the scheduler needs of the kernel; *kernel.TC is it.
type TrafficControl interface {
	Qdiscs(ifindex int) ([]kernel.Qdisc, error)
	Classes(ifindex int) ([]kernel.Class, error)
	QueueStats(ifindex int) (map[kernel.Handle]kernel.QueueStats, error)
	ClassStats(ifindex int, handles []kernel.Handle, dst []kernel.ClassStats) ([]kernel.ClassStats, error)
	Apply(ifindex int, ops []kernel.Op) error
}

// Backend is HTB on one device. It is not safe for concurrent use.
type Backend struct {
	tc      TrafficControl
	ifindex int
	leaf    leafKind
	// controlQueue is a bfifo everywhere.
	controlQueue kernel.Handle

	division
	loop

	// wanted is what the kernel is to have, applied what it has, if known says so;
	// otherwise it has to be asked.
	wanted, applied tree
	known           bool

	// Scratch space.
	kernelStats []kernel.ClassStats
	handles     []kernel.Handle
}

var _ sched.Backend = (*Backend)(nil)

// New returns the scheduler of the device with index ifindex. It touches
// nothing until Apply.
func New(tc TrafficControl, ifindex int) *Backend {
	return &Backend{tc: tc, ifindex: ifindex}
}

// Name implements sched.Backend.
func (b *Backend) Name() string { return "htb+" + b.leaf.String() }

// Forget implements sched.Backend.
func (b *Backend) Forget() { b.known = false }

// Majors implements sched.Backend.
func (*Backend) Majors() sched.Majors { return sched.Majors{Classes: classMajor, Direct: directMajor} }

// Apply implements sched.Backend.
func (b *Backend) Apply(want sched.Tree) error {
	b.want(want)
	b.following = false
	return b.put()
}

// want takes up what is wanted.
func (b *Backend) want(want sched.Tree) {
	b.take(want)
	b.wanted.rateBPS, b.wanted.mtuBytes = want.RateBPS, want.MTUBytes
	b.wanted.controlNumber, b.wanted.hostNumber = want.ControlNumber, want.HostNumber
}

// put brings the classifier and the kernel to what everybody has now.
func (b *Backend) put() error {
	if err := b.setDirect(); err != nil {
		return err
	}
	b.wanted.classes = b.wanted.classes[:0]
	for _, m := range b.members {
		b.wanted.classes = append(b.wanted.classes, b.class(m))
	}
	if err := b.program(b.wanted); err != nil {
		return err
	}
	return b.tellTraffic()
}

// program brings the kernel to a tree.
func (b *Backend) program(want tree) error {
	b.controlQueue = leafQdisc(want.controlNumber)
	var refused error
	for range 1 + retries {
		ops, err := b.changes(want)
		if err == nil && len(ops) > 0 {
			err = b.tc.Apply(b.ifindex, ops)
		}
		if err == nil {
			want.classes = append(b.applied.classes[:0], want.classes...)
			b.applied, b.known = want, true
			return nil
		}
		refused = err
		// Either the kernel has no fq_codel, or its state is not what we
		// remember: look and try once more.
		if b.leaf == leafFqCodel && lacksQdisc(err, leafFqCodel.String()) {
			b.leaf = leafBFIFO
		}
		b.Forget()
	}
	return explain("schedule uplink", refused)
}

// explain turns what may be hundreds of refusals of doing something into one that says
// enough.
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

// changes lists what turns what the kernel has into tree: by what was applied
// last where that is known, which costs what changed rather than what is there.
func (b *Backend) changes(tree tree) ([]kernel.Op, error) {
	if b.known {
		return changes(differences(tree, b.applied, b.leaf)), nil
	}
	observed, err := b.observe()
	if err != nil {
		return nil, err
	}
	b.adopt(&tree, observed)
	return changes(desired(tree, b.leaf), observed), nil
}

// lacksQdisc says whether err holds the kernel's refusal of a kind of qdisc
// that it does not have. A class that is not there is refused with the same
// number.
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

// refusals lists what the kernel refused.
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

// observe reads what of ours the kernel has.
func (b *Backend) observe() (state, error) {
	var s state
	qdiscs, err := b.tc.Qdiscs(b.ifindex)
	if err != nil {
		return s, err
	}
	if !b.Owns(qdiscs) {
		return s, nil
	}
	classes, err := b.tc.Classes(b.ifindex)
	if err != nil {
		return s, err
	}
	var codel, fifo bool
	for _, q := range qdiscs {
		// A qdisc without a handle is the kernel's default.
		if q.Handle.Major() != 0 && q.Parent != kernel.HandleIngress {
			s.qdiscs = append(s.qdiscs, q)
			codel = codel || q.Options.Kind() == leafFqCodel.String()
			fifo = fifo || q.Options.Kind() == leafBFIFO.String() && q.Handle != b.controlQueue
		}
	}
	// Adopt the queues that are there: replacing them would lose what they hold. Those
	// of EF, and of classes with a bound on delay, are FIFOs everywhere.
	if fifo && !codel {
		b.leaf = leafBFIFO
	}
	for _, c := range classes {
		if c.Handle.Major() == classMajor || c.Handle.Major() == directMajor {
			s.classes = append(s.classes, c)
		}
	}
	return s, nil
}

// Owns says whether the root of a device's qdiscs is this scheduler's.
func (*Backend) Owns(qdiscs []kernel.Qdisc) bool { return ownRoot(qdiscs) >= 0 }

// ownRoot is the index of the root qdisc if it is this scheduler's, or -1. The
// link was the root once: a tree of that time is made anew.
func ownRoot(qdiscs []kernel.Qdisc) int {
	return slices.IndexFunc(qdiscs, func(q kernel.Qdisc) bool {
		return q.Parent == kernel.HandleRoot && (q.Handle == directHandle || q.Handle == linkHandle)
	})
}

// stats are the counters of one class since it was made.
type stats struct {
	number       uint16
	sentBytes    uint64
	backlogBytes uint64
	sentPackets  uint32 // wraps
	// traffic are those of the leaves of traffic classes.
	traffic [sched.NumTrafficClasses]sched.TrafficCounters
}

// stats appends the counters of the classes with these numbers to dst, in any
// order. Classes that are not there are left out.
func (b *Backend) stats(numbers []uint16, dst []stats) ([]stats, error) {
	b.handles = b.handles[:0]
	for _, n := range numbers {
		b.handles = b.counting(n, b.handles)
	}
	read, err := b.tc.ClassStats(b.ifindex, b.handles, b.kernelStats[:0])
	b.kernelStats = read
	if err != nil {
		return dst, err
	}
	from := len(dst)
	for _, s := range read {
		number := numberOf(s.Handle.Minor())
		if m := b.member(number); m != nil && m.divided {
			dst = addCounted(dst, from, number, s)
			continue
		}
		dst = append(dst, stats{
			number:       number,
			sentBytes:    s.SentBytes,
			backlogBytes: uint64(s.BacklogBytes),
			sentPackets:  s.SentPackets,
		})
	}
	return dst, nil
}

// queueStats tells how many packets were dropped from each queue and marked in it,
// by the minor of its leaf. It costs more than stats.
func (b *Backend) queueStats() (map[uint16]kernel.QueueStats, error) {
	queues, err := b.tc.QueueStats(b.ifindex)
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
	qdiscs, err := b.tc.Qdiscs(b.ifindex)
	if err != nil {
		return err
	}
	b.Forget()
	root := ownRoot(qdiscs)
	if root < 0 {
		return nil
	}
	return b.tc.Apply(b.ifindex, []kernel.Op{{Verb: kernel.Delete, Qdisc: &qdiscs[root]}})
}
