package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ClassStats are the counters of one class.
type ClassStats struct {
	Handle       Handle
	SentBytes    uint64
	SentPackets  uint32
	BacklogBytes uint32
}

// QueueStats are the packets that one qdisc dropped and marked; both counters wrap.
type QueueStats struct {
	DroppedPackets uint32
	// MarkedPackets got ECN CE (RFC 3168) instead of a drop; 0 for qdiscs that do not mark.
	MarkedPackets uint32
}

// dumpReader reads lists of the network namespace in which it was opened. Unlike the libraries it keeps its
// socket and buffer, and makes no objects of what it reads: the control loop reads counters up to a hundred
// times a second, and a thousand containers have three thousand qdiscs.
type dumpReader struct {
	fd      int
	buffer  []byte
	request []byte
	// sequence distinguishes the answer to this request from leftovers of an earlier, abandoned
	// one.
	sequence uint32
	// interrupted: the list changed while the kernel answered, so it may be incomplete.
	interrupted bool
}

// Sizes of netlink headers.
const (
	sizeofHeader    = unix.SizeofNlMsghdr
	sizeofAttribute = unix.SizeofRtAttr
	// dumpBytes is the kernel's maximum size of one answer (net/netlink/af_netlink.c,
	// netlink_dump).
	dumpBytes = 64 << 10
	// shortDumpBytes is the least buffer: no message is larger (NLMSG_GOODSIZE,
	// include/linux/netlink.h), and the kernel fits the next ones to the buffer.
	shortDumpBytes = 8 << 10
)

func newDumpReader(bufferBytes int) (*dumpReader, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open traffic control: %w", os.NewSyscallError("socket", err))
	}
	return &dumpReader{fd: fd, buffer: make([]byte, bufferBytes)}, nil
}

// close closes the socket; later requests fail.
func (r *dumpReader) close() {
	_ = unix.Close(r.fd)
	r.fd = -1
}

// dump calls each with the objects of one kind at a device, filters with those of one parent; a list of
// qdiscs has those of all devices. Errors: nl.ErrDumpInterrupted after a list that may be incomplete.
func (r *dumpReader) dump(kind uint16, ifindex int, parent Handle, each func(object)) error {
	return r.ask(kind, tcmsg(ifindex, 0, parent), each)
}

// ask calls each with the objects of the list that a request with this body is for. They are valid during the
// call. Errors: those of dump.
func (r *dumpReader) ask(kind uint16, body []byte, each func(object)) error {
	r.sequence++
	r.interrupted = false
	request := binary.NativeEndian.AppendUint32(r.request[:0], uint32(sizeofHeader+len(body)))
	request = binary.NativeEndian.AppendUint16(request, kind)
	request = binary.NativeEndian.AppendUint16(request, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request = binary.NativeEndian.AppendUint32(request, r.sequence)
	request = binary.NativeEndian.AppendUint32(request, 0) // the kernel knows the socket's address
	request = append(request, body...)
	r.request = request
	if _, err := unix.Write(r.fd, request); err != nil {
		return os.NewSyscallError("write", err)
	}
	for {
		n, err := unix.Read(r.fd, r.buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			r.discardRest()
			return os.NewSyscallError("read", err)
		}
		done, err := r.parse(r.buffer[:n], each)
		switch {
		case err != nil:
			r.discardRest()
			return err
		case done && r.interrupted:
			return nl.ErrDumpInterrupted
		case done:
			return nil
		}
	}
}

// discardRest reads the rest of an abandoned list: until then the kernel refuses the next one with EBUSY. It
// does not wait, because the kernel queues another answer at each read while the list has more
// (net/netlink/af_netlink.c, netlink_recvmsg).
func (r *dumpReader) discardRest() {
	for {
		n, _, err := unix.Recvfrom(r.fd, r.buffer, unix.MSG_DONTWAIT)
		if n <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// object is a message about a qdisc, class or filter: a tcmsg and attributes. One about a device has an ifinfomsg
// in place of the tcmsg, with the index in the same place.
type object []byte

func (o object) ifindex() int   { return int(binary.NativeEndian.Uint32(o[4:])) }
func (o object) handle() Handle { return Handle(binary.NativeEndian.Uint32(o[8:])) }
func (o object) parent() Handle { return Handle(binary.NativeEndian.Uint32(o[12:])) }
func (o object) attrs() []byte  { return o[sizeofTcmsg:] }

// parse parses one answer and reports whether it was the last.
func (r *dumpReader) parse(b []byte, each func(object)) (done bool, err error) {
	for len(b) >= sizeofHeader {
		length := int(binary.NativeEndian.Uint32(b))
		if length < sizeofHeader || length > len(b) {
			return false, errShort
		}
		message := b[sizeofHeader:length]
		kind := binary.NativeEndian.Uint16(b[4:])
		mine := binary.NativeEndian.Uint32(b[8:]) == r.sequence
		interrupted := binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_DUMP_INTR != 0
		b = b[min(align(length), len(b)):]
		if !mine {
			continue
		}
		r.interrupted = r.interrupted || interrupted
		switch {
		case kind == unix.NLMSG_DONE:
			return true, dumpError(message)
		case kind == unix.NLMSG_ERROR:
			if len(message) < 4 {
				return false, errShort
			}
			return true, unix.Errno(-int32(binary.NativeEndian.Uint32(message)))
		case len(message) < sizeofTcmsg:
			return false, errShort
		default:
			each(message)
		}
	}
	return false, nil
}

// dumpError returns the error in the end of a list that the kernel cut short (net/netlink/af_netlink.c,
// netlink_dump_done), nil if the list is complete.
func dumpError(end []byte) error {
	if len(end) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(end)); code < 0 {
		return fmt.Errorf("the kernel cut the list short: %w", unix.Errno(-code))
	}
	return nil
}

// classStatsReader reads the counters of a device's classes.
type classStatsReader struct {
	*dumpReader
	// wanted are the requested classes, sorted.
	wanted []Handle
}

// read appends the counters of the classes with these handles. It requests all classes of their
// qdisc: the answer to a request for one class goes to every process that listens for changes
// (net/sched/sch_api.c, tclass_notify).
func (r *classStatsReader) read(ifindex int, handles []Handle, dst []ClassStats) ([]ClassStats, error) {
	r.wanted = append(r.wanted[:0], handles...)
	slices.Sort(r.wanted)
	// Of the qdisc that all of them are of, as the kernel goes through the 1024 classes of each fq_codel otherwise.
	var parent Handle
	if n := len(r.wanted); n > 0 && r.wanted[0].Major() == r.wanted[n-1].Major() {
		parent = NewHandle(r.wanted[0].Major(), 0)
	}
	err := r.dump(getClass, ifindex, parent, func(class object) { dst = r.add(class, dst) })
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) { // callers see which classes are missing
		return dst, fmt.Errorf("read class counters: %w", err)
	}
	return dst, nil
}

// add appends the counters of a class, if it is a requested one.
func (r *classStatsReader) add(class object, dst []ClassStats) []ClassStats {
	if _, wanted := slices.BinarySearch(r.wanted, class.handle()); !wanted {
		return dst
	}
	stats := parseClassStats(class.attrs())
	stats.Handle = class.handle()
	return append(dst, stats)
}

// addQueue adds the packets that a qdisc has dropped and marked, if it is at the device.
func addQueue(queues map[Handle]QueueStats, ifindex int, qdisc object) {
	if qdisc.ifindex() == ifindex {
		queues[qdisc.handle()] = parseQueueStats(qdisc.attrs())
	}
}

// attributeKindMask removes the flags from an attribute's type (NLA_TYPE_MASK,
// include/uapi/linux/netlink.h).
const attributeKindMask = 0x3fff

// align rounds a length up to the next start of a message or attribute.
func align(length int) int { return (length + 3) &^ 3 }

// attribute returns the value of one attribute in b; nil if it is missing.
func attribute(b []byte, kind uint16) []byte {
	value, _ := findAttribute(b, kind)
	return value
}

// findAttribute returns the value of one attribute in b, and its type with flags; nil if it is missing.
func findAttribute(b []byte, kind uint16) (value []byte, flags uint16) {
	for flags, value := range attributes(b) {
		if flags&attributeKindMask == kind {
			return value, flags
		}
	}
	return nil, 0
}

// attributes are the types, with flags, and values of the attributes in b, up to the first broken attribute.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= sizeofAttribute {
			length := int(binary.NativeEndian.Uint16(b))
			if length < sizeofAttribute || length > len(b) || !yield(binary.NativeEndian.Uint16(b[2:]), b[sizeofAttribute:length]) {
				return
			}
			b = b[min(align(length), len(b)):]
		}
	}
}

// The attributes in TCA_STATS2 (include/uapi/linux/gen_stats.h).
const (
	statsBasic = 1 // bytes u64, packets u32
	statsQueue = 3 // qlen, backlog, drops, requeues, overlimits u32
	statsApp   = 4 // specific to the kind of qdisc
)

// parseClassStats parses TCA_STATS2. Missing counters are zero.
func parseClassStats(attrs []byte) ClassStats {
	var s ClassStats
	stats := attribute(attrs, unix.TCA_STATS2)
	if b := attribute(stats, statsBasic); len(b) >= 12 {
		s.SentBytes = binary.NativeEndian.Uint64(b)
		s.SentPackets = binary.NativeEndian.Uint32(b[8:])
	}
	if b := attribute(stats, statsQueue); len(b) >= 12 {
		s.BacklogBytes = binary.NativeEndian.Uint32(b[4:])
	}
	return s
}

// The start of struct tc_fq_codel_xstats (include/uapi/linux/pkt_sched.h): type,
// then of a qdisc maxpacket, drop_overlimit, ecn_mark u32.
const (
	fqCodelStatsOfQdisc  = 0 // TCA_FQ_CODEL_XSTATS_QDISC
	fqCodelMarkOffset    = 12
	fqCodelMarkEndOffset = fqCodelMarkOffset + 4
)

// parseQueueStats parses the drops and marks of a qdisc. Missing counters are zero.
func parseQueueStats(attrs []byte) QueueStats {
	var q QueueStats
	stats := attribute(attrs, unix.TCA_STATS2)
	if b := attribute(stats, statsQueue); len(b) >= 12 {
		q.DroppedPackets = binary.NativeEndian.Uint32(b[8:])
	}
	// Other kinds have similar data there.
	if kind := unix.ByteSliceToString(attribute(attrs, unix.TCA_KIND)); kind != (FqCodel{}).Kind() {
		return q
	}
	if b := attribute(stats, statsApp); len(b) >= fqCodelMarkEndOffset && binary.NativeEndian.Uint32(b) == fqCodelStatsOfQdisc {
		q.MarkedPackets = binary.NativeEndian.Uint32(b[fqCodelMarkOffset:])
	}
	return q
}
