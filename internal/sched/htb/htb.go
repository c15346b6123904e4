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
	Drops(ifindex int) (map[kernel.Handle]uint32, error)
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
	// applied is what the kernel has, if known says so; otherwise it has to be
	// asked. Its Classes are kept in classes: the caller goes on using its own.
	applied sched.Tree
	classes []sched.Class
	known   bool
	stats   []kernel.ClassStats
	asked   []kernel.Handle
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

// Apply implements sched.Backend.
func (b *Backend) Apply(want sched.Tree) error {
	err := b.apply(want)
	for range retries {
		if err == nil {
			return nil
		}
		// Either the kernel has no fq_codel, or its state is not what we
		// remember: look and try once more.
		if b.leaf == leafFqCodel && lacksQdisc(err, leafFqCodel.String()) {
			b.leaf = leafBFIFO
		}
		b.Forget()
		err = b.apply(want)
	}
	if err == nil {
		return nil
	}
	b.Forget()
	return explain(err)
}

// explain turns what may be hundreds of refusals into one that says enough.
func explain(err error) error {
	for _, needed := range []string{kernel.TBF{}.Kind(), kernel.HTB{}.Kind()} {
		if lacksQdisc(err, needed) {
			return fmt.Errorf("this kernel has no %[1]s qdisc, which Weir needs: try modprobe sch_%[1]s; `weir doctor` tells more", needed)
		}
	}
	if all := refusals(err); len(all) > 1 {
		return fmt.Errorf("schedule uplink: %w (and %d refusals more)", all[0], len(all)-1)
	}
	return err
}

// retries: both reasons for a refusal may apply, one after the other.
const retries = 2

func (b *Backend) apply(tree sched.Tree) error {
	b.controlQueue = leafQdisc(tree.ControlNumber)
	ops, err := b.plan(tree)
	if err != nil {
		return err
	}
	if len(ops) > 0 {
		if err := b.tc.Apply(b.ifindex, ops); err != nil {
			return fmt.Errorf("schedule uplink: %w", err)
		}
	}
	b.classes = append(b.classes[:0], tree.Classes...)
	b.applied, b.known = tree, true
	b.applied.Classes = b.classes
	return nil
}

// plan lists what turns what the kernel has into tree: by what was applied
// last where that is known, which costs what changed rather than what is there.
func (b *Backend) plan(tree sched.Tree) ([]kernel.Op, error) {
	if b.known {
		return plan(differences(tree, b.applied, b.leaf)), nil
	}
	observed, err := b.observe()
	if err != nil {
		return nil, err
	}
	return plan(desired(tree, b.leaf), observed), nil
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
	if !Owns(qdiscs) {
		return s, nil
	}
	classes, err := b.tc.Classes(b.ifindex)
	if err != nil {
		return s, err
	}
	for _, q := range qdiscs {
		// A qdisc without a handle is the kernel's default.
		if q.Handle.Major() != 0 && q.Parent != kernel.HandleIngress {
			s.qdiscs = append(s.qdiscs, q)
			// Adopt the queues that are there: replacing them would lose
			// what they hold.
			if q.Options.Kind() == leafBFIFO.String() && q.Handle != b.controlQueue {
				b.leaf = leafBFIFO
			}
		}
	}
	for _, c := range classes {
		if c.Handle.Major() == Major || c.Handle.Major() == DirectMajor {
			s.classes = append(s.classes, c)
		}
	}
	return s, nil
}

// Owns says whether the root of a device's qdiscs is this scheduler's.
func Owns(qdiscs []kernel.Qdisc) bool { return ownRoot(qdiscs) >= 0 }

// ownRoot is the index of the root qdisc if it is this scheduler's, or -1. The
// link was the root once: a tree of that time is made anew.
func ownRoot(qdiscs []kernel.Qdisc) int {
	return slices.IndexFunc(qdiscs, func(q kernel.Qdisc) bool {
		return q.Parent == kernel.HandleRoot && (q.Handle == directHandle || q.Handle == linkHandle)
	})
}

// Stats implements sched.Backend.
func (b *Backend) Stats(numbers []uint16, dst []sched.Stats) ([]sched.Stats, error) {
	b.asked = b.asked[:0]
	for _, n := range numbers {
		b.asked = append(b.asked, leafClass(n))
	}
	stats, err := b.tc.ClassStats(b.ifindex, b.asked, b.stats[:0])
	b.stats = stats
	if err != nil {
		return dst, err
	}
	for _, s := range stats {
		dst = append(dst, sched.Stats{
			Number:       s.Handle.Minor(),
			SentBytes:    s.SentBytes,
			BacklogBytes: uint64(s.BacklogBytes),
			SentPackets:  s.SentPackets,
		})
	}
	return dst, nil
}

// Drops implements sched.Backend. A queue has its class's number.
func (b *Backend) Drops() (map[uint16]uint32, error) {
	drops, err := b.tc.Drops(b.ifindex)
	if err != nil {
		return nil, err
	}
	byNumber := make(map[uint16]uint32, len(drops))
	for handle, packets := range drops {
		if number := handle.Major(); number < shareBit {
			byNumber[number] = packets
		}
	}
	return byNumber, nil
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
