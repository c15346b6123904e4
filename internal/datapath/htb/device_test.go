package htb

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// device is the queueing of one device as the kernel keeps it, with the rules
// of net/sched that a plan has to obey:
//
//   - what is added needs its parent, and is refused if it is there (EEXIST),
//     also when another qdisc is in its place; what is changed or deleted must
//     be there (ENOENT);
//   - nothing changes its kind, HTB not its own parameters (EINVAL), and a
//     class keeps its parent whatever a change says;
//   - a class with others below it cannot be deleted (EBUSY), has no qdisc
//     (EINVAL), and keeps the quantum and prio it had;
//   - a deleted qdisc or class takes along what hangs on it;
//   - not everything is told as it was set.
type device struct {
	qdiscs  []kernel.Qdisc
	classes []kernel.Class
	// lacks is a kind of qdisc that this kernel does not have.
	lacks string
	// refuse, if set, may refuse an op for reasons of its own.
	refuse func(kernel.Op) error
	// tried are the ops of every call, dumps how often the state was read.
	tried [][]kernel.Op
	dumps int
}

const testIfindex = 7

func (d *device) Qdiscs(ifindex int) ([]kernel.Qdisc, error) {
	d.dumps++
	if ifindex != testIfindex {
		return nil, unix.ENODEV
	}
	list := []kernel.Qdisc{
		{Handle: kernel.NewHandle(0xffff, 0), Parent: kernel.HandleIngress, Options: kernel.Unknown{Name: "clsact"}},
	}
	if len(d.qdiscs) == 0 {
		list = append(list, kernel.Qdisc{Parent: kernel.HandleRoot, Options: kernel.Unknown{Name: "noqueue"}})
	}
	return append(list, d.qdiscs...), nil
}

func (d *device) Classes(ifindex int) ([]kernel.Class, error) {
	if ifindex != testIfindex {
		return nil, unix.ENODEV
	}
	list := slices.Clone(d.classes)
	if d.qdisc(linkHandle) >= 0 {
		list = append(list, kernel.Class{Handle: htbParent, Parent: linkHandle, Options: kernel.Unknown{Name: "tbf"}})
	}
	return list, nil
}

func (d *device) ClassStats(ifindex int, handles []kernel.Handle, dst []kernel.ClassStats) ([]kernel.ClassStats, error) {
	if ifindex != testIfindex {
		return dst, unix.ENODEV
	}
	for _, c := range d.classes {
		if slices.Contains(handles, c.Handle) {
			n := uint32(c.Handle.Minor())
			dst = append(dst, kernel.ClassStats{Handle: c.Handle,
				SentBytes: uint64(n) * 1000, SentPackets: n, BacklogBytes: n + 2})
		}
	}
	return dst, nil
}

func (d *device) QueueStats(ifindex int) (map[kernel.Handle]kernel.QueueStats, error) {
	if ifindex != testIfindex {
		return nil, unix.ENODEV
	}
	queues := map[kernel.Handle]kernel.QueueStats{}
	for _, q := range d.qdiscs {
		major := uint32(q.Handle.Major())
		queues[q.Handle] = kernel.QueueStats{DroppedPackets: major + 1, MarkedPackets: major + 2}
	}
	return queues, nil
}

func (d *device) Apply(ifindex int, ops []kernel.Op) error {
	if ifindex != testIfindex {
		return unix.ENODEV
	}
	d.tried = append(d.tried, slices.Clone(ops))
	var errs []error
	for _, op := range ops {
		if err := d.do(op); err != nil {
			errs = append(errs, &kernel.OpError{Op: op, Err: err})
		}
	}
	return errors.Join(errs...)
}

func (d *device) do(op kernel.Op) error {
	if d.refuse != nil {
		if err := d.refuse(op); err != nil {
			return err
		}
	}
	if op.Class != nil {
		return d.doClass(op.Verb, *op.Class)
	}
	return d.doQdisc(op.Verb, *op.Qdisc)
}

func (d *device) qdisc(h kernel.Handle) int {
	return slices.IndexFunc(d.qdiscs, func(q kernel.Qdisc) bool { return q.Handle == h })
}

func (d *device) at(parent kernel.Handle) int {
	return slices.IndexFunc(d.qdiscs, func(q kernel.Qdisc) bool { return q.Parent == parent })
}

func (d *device) class(h kernel.Handle) int {
	return slices.IndexFunc(d.classes, func(c kernel.Class) bool { return c.Handle == h })
}

func (d *device) isInner(h kernel.Handle) bool {
	return slices.ContainsFunc(d.classes, func(c kernel.Class) bool { return c.Parent == h })
}

// doQdisc follows tc_modify_qdisc and tc_get_qdisc (net/sched/sch_api.c).
func (d *device) doQdisc(verb kernel.Verb, q kernel.Qdisc) error {
	if q.Parent != kernel.HandleRoot && d.qdisc(kernel.NewHandle(q.Parent.Major(), 0)) < 0 {
		return unix.ENOENT
	}
	at := d.at(q.Parent)
	if verb == kernel.Delete {
		switch {
		case at < 0:
			return unix.ENOENT
		case d.qdiscs[at].Handle != q.Handle:
			return unix.EINVAL
		}
		d.drop(q.Handle)
		return nil
	}
	if at < 0 || d.qdiscs[at].Handle != q.Handle {
		switch {
		case at >= 0, d.qdisc(q.Handle) >= 0 && verb == kernel.Add:
			return unix.EEXIST
		case d.qdisc(q.Handle) >= 0:
			return errors.New("the kernel would move it here; no plan should count on that")
		case verb == kernel.Change, q.Options.Kind() == d.lacks:
			return unix.ENOENT
		}
		if q.Parent != kernel.HandleRoot {
			switch d.qdiscs[d.qdisc(kernel.NewHandle(q.Parent.Major(), 0))].Options.Kind() {
			case "htb":
				if d.class(q.Parent) < 0 {
					return unix.ENOENT
				}
				if d.isInner(q.Parent) {
					return unix.EINVAL
				}
			case "tbf":
			default:
				return unix.EOPNOTSUPP
			}
		}
		if err := valid(q.Options); err != nil {
			return err
		}
		q.Options = kept(q.Options)
		d.qdiscs = append(d.qdiscs, q)
		return nil
	}
	switch old := d.qdiscs[at]; {
	case verb == kernel.Add:
		return unix.EEXIST
	case old.Options.Kind() != q.Options.Kind(), q.Options.Kind() == "htb":
		return unix.EINVAL
	}
	if err := valid(q.Options); err != nil {
		return err
	}
	d.qdiscs[at].Options = kept(q.Options)
	return nil
}

// doClass follows tc_ctl_tclass and htb_change_class (net/sched/sch_htb.c).
func (d *device) doClass(verb kernel.Verb, c kernel.Class) error {
	major := d.qdisc(kernel.NewHandle(c.Handle.Major(), 0))
	if major < 0 {
		return unix.ENOENT
	}
	if d.qdiscs[major].Options.Kind() != "htb" {
		return unix.EOPNOTSUPP
	}
	at := d.class(c.Handle)
	options, _ := c.Options.(kernel.HTBClass)
	switch {
	case verb == kernel.Delete && at < 0:
		return unix.ENOENT
	case verb == kernel.Delete:
		if d.isInner(c.Handle) {
			return unix.EBUSY
		}
		d.drop(c.Handle)
		return nil
	case verb == kernel.Add && at >= 0:
		return unix.EEXIST
	case verb == kernel.Change && at < 0:
		return unix.ENOENT
	case options.RateBytesPerSec == 0 || options.CeilBytesPerSec == 0:
		return unix.EINVAL
	}
	options.Prio = min(options.Prio, 7)
	if verb == kernel.Change {
		if old := d.classes[at].Options.(kernel.HTBClass); d.isInner(c.Handle) {
			options.QuantumBytes, options.Prio = old.QuantumBytes, old.Prio
		}
		d.classes[at].Options = options
		return nil
	}
	if c.Parent != kernel.HandleRoot {
		if d.class(c.Parent) < 0 {
			return unix.ENOENT // the kernel makes it a root class; no plan should want that
		}
		// A leaf that gets a class loses its queue.
		if queue := d.at(c.Parent); queue >= 0 {
			d.drop(d.qdiscs[queue].Handle)
		}
	}
	c.Options = options
	d.classes = append(d.classes, c)
	return nil
}

// drop removes a qdisc or class and all that hangs on it.
func (d *device) drop(h kernel.Handle) {
	var below []kernel.Handle
	hangs := func(handle, parent kernel.Handle) bool {
		return parent == h || h.Minor() == 0 && (parent.Major() == h.Major() || handle.Major() == h.Major() && handle != h)
	}
	d.qdiscs = slices.DeleteFunc(d.qdiscs, func(q kernel.Qdisc) bool {
		if hangs(q.Handle, q.Parent) {
			below = append(below, q.Handle)
		}
		return q.Handle == h
	})
	d.classes = slices.DeleteFunc(d.classes, func(c kernel.Class) bool {
		if hangs(c.Handle, c.Parent) {
			below = append(below, c.Handle)
		}
		return c.Handle == h
	})
	for _, b := range below {
		d.drop(b)
	}
}

// valid holds parameters to what the kernel accepts.
func valid(o kernel.Options) error {
	switch o := o.(type) {
	case kernel.TBF:
		// tbf_change: a bucket must hold something, and a peak be one.
		if o.RateBytesPerSec == 0 || o.Burst == 0 || o.LimitBytes == 0 ||
			o.PeakBytesPerSec != 0 && (o.PeakBytesPerSec <= o.RateBytesPerSec || o.MaxPacketBytes == 0) {
			return unix.EINVAL
		}
	case kernel.FqCodel:
		if o.QuantumBytes == 0 || o.QuantumBytes > 1<<20 || o.IntervalMicroseconds <= o.TargetMicroseconds {
			return unix.EINVAL
		}
	}
	return nil
}

// kept is what the kernel tells of parameters that it was given, as TC.Qdiscs
// reads it.
func kept(o kernel.Options) kernel.Options {
	switch o := o.(type) {
	case kernel.TBF:
		o.MaxPacketBytes = 0
		return o
	case kernel.FqCodel:
		o.TargetMicroseconds = codelTime(o.TargetMicroseconds)
		o.IntervalMicroseconds = codelTime(o.IntervalMicroseconds)
		return o
	}
	return o
}

// codelTime is a time that went through the kernel's units of 1024 ns and was
// rounded to hundreds when read.
func codelTime(us uint32) uint32 {
	units := uint64(us) * 1000 >> 10
	told := uint32(units << 10 / 1000)
	return (told + 50) / 100 * 100
}
