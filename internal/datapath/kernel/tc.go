package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

var errShort = errors.New("message is shorter than its kind")

// Verb is the operation on a qdisc or class.
type Verb uint8

// The verbs of an Op, in tc's terms.
const (
	// Add fails if the object exists.
	Add Verb = iota + 1
	// Change alters parameters in place, and keeps queued packets.
	Change
	// Delete removes the object and everything below it.
	Delete
)

func (v Verb) String() string {
	return [...]string{"?", "add", "change", "delete"}[v]
}

// Op is one change to a device's queueing: a Verb and a Qdisc or a Class.
type Op struct {
	Verb  Verb
	Qdisc *Qdisc
	Class *Class
}

func (o Op) String() string {
	if o.Class != nil {
		if o.Verb == Delete {
			return fmt.Sprintf("class delete classid %s", o.Class.Handle)
		}
		return fmt.Sprintf("class %s %s", o.Verb, o.Class)
	}
	if o.Verb == Delete {
		return fmt.Sprintf("qdisc delete parent %s handle %s", o.Qdisc.Parent, o.Qdisc.Handle)
	}
	return fmt.Sprintf("qdisc %s %s", o.Verb, o.Qdisc)
}

// OpError is an Op that the kernel refused. Earlier operations of the batch are in force; later
// ones were still tried.
type OpError struct {
	Op  Op
	Err error
}

func (e *OpError) Error() string { return fmt.Sprintf("tc %s: %v", e.Op, e.Err) }

func (e *OpError) Unwrap() error { return e.Err }

// TC is a connection to the kernel's traffic control in the network namespace in which it was
// opened. It is not safe for concurrent use.
type TC struct{ stats classStatsReader }

// OpenTC opens a netlink socket in the caller's network namespace.
func OpenTC() (*TC, error) {
	socket, err := openRouteSocket(dumpBytes)
	if err != nil {
		return nil, err
	}
	return &TC{classStatsReader{routeSocket: socket}}, nil
}

// Close closes the socket.
func (t *TC) Close() error { return t.stats.close() }

// sizeofTcmsg is the size of struct tcmsg (include/uapi/linux/rtnetlink.h).
const sizeofTcmsg = 20

func tcmsg(ifindex int, handle, parent Handle) []byte {
	b := make([]byte, sizeofTcmsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(ifindex))
	binary.NativeEndian.PutUint32(b[8:], uint32(handle))
	binary.NativeEndian.PutUint32(b[12:], uint32(parent))
	return b
}

func (o Op) message(ifindex int) (netlink.Message, error) {
	var (
		m       netlink.Message
		data    []byte
		options Options
	)
	set, del := uint16(unix.RTM_NEWQDISC), uint16(unix.RTM_DELQDISC)
	if o.Class != nil {
		set, del = unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS
		data, options = tcmsg(ifindex, o.Class.Handle, o.Class.Parent), o.Class.Options
	} else {
		data, options = tcmsg(ifindex, o.Qdisc.Handle, o.Qdisc.Parent), o.Qdisc.Options
	}
	m.Header.Flags = netlink.Request
	m.Header.Type = netlink.HeaderType(set)
	switch o.Verb {
	case Add:
		m.Header.Flags |= netlink.Create | netlink.Excl
	case Delete:
		m.Header.Type = netlink.HeaderType(del)
		m.Data = data
		return m, nil
	}
	value, nested, err := options.attribute()
	if err != nil {
		return m, fmt.Errorf("encode %s: %w", o, err)
	}
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.TCA_KIND, options.Kind())
	if len(value) > 0 {
		typ := uint16(unix.TCA_OPTIONS)
		if nested {
			typ |= unix.NLA_F_NESTED
		}
		ae.Bytes(typ, value)
	}
	attrs, err := ae.Encode()
	if err != nil {
		return m, fmt.Errorf("encode %s: %w", o, err)
	}
	m.Data = slices.Concat(data, attrs)
	return m, nil
}

// batchOps is the number of changes per system call: the answers, if the kernel refuses all, must fit the socket's
// receive buffer.
const batchOps = 64

// Apply makes the changes in order, several per system call. It tries every change; the error joins
// an *OpError for each refused one.
func (t *TC) Apply(ifindex int, ops []Op) error {
	var errs []error
	for batch := range slices.Chunk(ops, batchOps) {
		changes := make([]netlink.Message, len(batch))
		for i, op := range batch {
			m, err := op.message(ifindex)
			if err != nil {
				return errors.Join(append(errs, err)...)
			}
			changes[i] = m
		}
		refused, err := t.stats.change(changes)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("change traffic control: %w", err))...)
		}
		for _, i := range slices.Sorted(maps.Keys(refused)) {
			errs = append(errs, &OpError{Op: batch[i], Err: refused[i]})
		}
	}
	return errors.Join(errs...)
}

func eachAttribute(b []byte, fn func(*netlink.AttributeDecoder) error) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	for ad.Next() {
		if err := fn(ad); err != nil {
			return err
		}
	}
	return ad.Err()
}

// requestList returns the kernel's answer to a request for a list, and repeats it if the answer is
// incomplete (consistently). The library drops the end of an answer, and with it the mark of a change
// after the last entry.
func requestList(conn *netlink.Conn, kind uint16, data []byte) ([]netlink.Message, error) {
	return consistently(func() ([]netlink.Message, error) {
		messages, err := conn.Execute(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | netlink.Dump}, Data: data,
		})
		for _, m := range messages {
			if m.Header.Flags&netlink.DumpInterrupted != 0 {
				return nil, nl.ErrDumpInterrupted
			}
		}
		return messages, err
	})
}

// list returns the objects of one kind at a device, as parse makes them of messages that it keeps no part of.
func list[T any](t *TC, kind uint16, ifindex int, parse func(object) (T, error)) ([]T, error) {
	all, err := consistently(func() ([]T, error) {
		var all []T
		var broken error
		err := t.stats.dumpDevice(kind, ifindex, 0, func(o object) {
			// A dump of qdiscs ignores the requested index.
			if o.ifindex() != ifindex || broken != nil {
				return
			}
			var one T
			one, broken = parse(o)
			all = append(all, one)
		})
		return all, cmp.Or(err, broken)
	})
	if err != nil {
		return nil, fmt.Errorf("list queueing of device %d: %w", ifindex, err)
	}
	return all, nil
}

// The requests for lists.
const (
	getQdisc  = unix.RTM_GETQDISC
	getClass  = unix.RTM_GETTCLASS
	getFilter = unix.RTM_GETTFILTER
)

// rawOptions returns kind and options in the attributes of a qdisc or class. The options are a part of attrs.
func rawOptions(attrs []byte) (kind string, raw []byte, nested bool, err error) {
	raw, flags := findAttribute(attrs, unix.TCA_OPTIONS)
	if kind = unix.ByteSliceToString(attribute(attrs, unix.TCA_KIND)); kind == "" {
		err = errShort
	}
	return kind, raw, flags&unix.NLA_F_NESTED != 0, err
}

func parseOptions(attrs []byte, isClass bool) (Options, error) {
	kind, raw, nested, err := rawOptions(attrs)
	if err != nil {
		return nil, err
	}
	return decodeOptions(kind, isClass, raw, nested)
}

// Qdiscs lists the qdiscs of a device, ingress qdiscs included.
func (t *TC) Qdiscs(ifindex int) ([]Qdisc, error) {
	return list(t, getQdisc, ifindex, func(o object) (Qdisc, error) {
		options, err := parseOptions(o.attrs(), false)
		return Qdisc{Handle: o.handle(), Parent: o.parent(), Options: options}, err
	})
}

// QueueStats returns the packets that each qdisc of a device has dropped and marked itself, without
// those below it. A class does not count the drops of an AQM such as fq_codel in its queue.
func (t *TC) QueueStats(ifindex int) (map[Handle]QueueStats, error) {
	queues, err := consistently(func() (map[Handle]QueueStats, error) {
		queues := map[Handle]QueueStats{}
		err := t.stats.dumpDevice(getQdisc, ifindex, 0, func(qdisc object) { addQueue(queues, ifindex, qdisc) })
		return queues, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the counters of queues: %w", err)
	}
	return queues, nil
}

// Classes lists the classes of a device.
func (t *TC) Classes(ifindex int) ([]Class, error) {
	return list(t, getClass, ifindex, func(o object) (Class, error) {
		options, err := parseOptions(o.attrs(), true)
		return Class{Handle: o.handle(), Parent: o.parent(), Options: options}, err
	})
}

// ClassStats appends to dst the counters of the classes with these handles, in any order, without
// missing classes.
func (t *TC) ClassStats(ifindex int, handles []Handle, dst []ClassStats) ([]ClassStats, error) {
	return t.stats.read(ifindex, handles, dst)
}

// HasFilters reports whether a qdisc of a device has filters.
func (t *TC) HasFilters(ifindex int, parent Handle) (bool, error) {
	has, err := consistently(func() (has bool, err error) {
		err = t.stats.dumpDevice(getFilter, ifindex, parent, func(object) { has = true })
		return has, err
	})
	if err != nil {
		return false, fmt.Errorf("list filters of %s: %w", parent, err)
	}
	return has, nil
}
