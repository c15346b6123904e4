package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// ClassStats are the counters of one class.
type ClassStats struct {
	Handle       Handle
	SentBytes    uint64
	SentPackets  uint32
	BacklogBytes uint32
}

// QueueStats are what one queueing discipline did to packets; both wrap.
type QueueStats struct {
	DroppedPackets uint32
	// MarkedPackets had the ECN field set to CE (RFC 3168) in place of a drop; 0 of
	// kinds that do not mark.
	MarkedPackets uint32
}

// classStatsReader reads the counters of a device's classes. The control loop
// does so up to a hundred times a second, so it has a socket and a buffer of
// its own and makes no garbage.
type classStatsReader struct {
	fd      int
	buffer  []byte
	request [sizeofHeader + sizeofTcmsg]byte
	// wanted are the classes that are asked for, in order.
	wanted []Handle
	// sequence tells the answer to this request from what an earlier one,
	// given up half way, left in the socket.
	sequence uint32
}

// Sizes of what a netlink message starts with.
const (
	sizeofHeader    = unix.SizeofNlMsghdr
	sizeofAttribute = unix.SizeofRtAttr
	// dumpBytes is the most that the kernel puts into one answer
	// (net/netlink/af_netlink.c, netlink_dump).
	dumpBytes = 64 << 10
)

func newClassStatsReader() (*classStatsReader, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open traffic control: %w", os.NewSyscallError("socket", err))
	}
	return &classStatsReader{fd: fd, buffer: make([]byte, dumpBytes)}, nil
}

func (r *classStatsReader) close() { _ = unix.Close(r.fd) }

// read appends the counters of the classes that handles name. The kernel tells
// of all classes of a device at once; one alone it tells to everybody who
// listens for changes (net/sched/sch_api.c, tclass_notify).
func (r *classStatsReader) read(ifindex int, handles []Handle, dst []ClassStats) ([]ClassStats, error) {
	r.wanted = append(r.wanted[:0], handles...)
	slices.Sort(r.wanted)
	r.sequence++
	request := r.request[:]
	binary.NativeEndian.PutUint32(request[0:], uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], getClass)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(request[8:], r.sequence)
	copy(request[sizeofHeader:], tcmsg(ifindex, 0, 0))
	if err := unix.Sendto(r.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return dst, fmt.Errorf("ask for class counters: %w", err)
	}
	for {
		n, _, err := unix.Recvfrom(r.fd, r.buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return dst, fmt.Errorf("read class counters: %w", err)
		}
		var done bool
		dst, done, err = r.parse(r.buffer[:n], dst)
		if err != nil {
			return dst, fmt.Errorf("read class counters: %w", err)
		}
		if done {
			return dst, nil
		}
	}
}

// parse takes one answer apart and reports whether it was the last.
func (r *classStatsReader) parse(b []byte, dst []ClassStats) ([]ClassStats, bool, error) {
	for len(b) >= sizeofHeader {
		length := int(binary.NativeEndian.Uint32(b))
		if length < sizeofHeader || length > len(b) {
			return dst, false, errShort
		}
		message := b[sizeofHeader:length]
		kind := binary.NativeEndian.Uint16(b[4:])
		mine := binary.NativeEndian.Uint32(b[8:]) == r.sequence
		b = b[min(align(length), len(b)):]
		switch {
		case !mine:
		case kind == unix.NLMSG_DONE:
			return dst, true, nil
		case kind == unix.NLMSG_ERROR:
			if len(message) < 4 {
				return dst, false, errShort
			}
			return dst, true, unix.Errno(-int32(binary.NativeEndian.Uint32(message)))
		case len(message) >= sizeofTcmsg:
			handle := Handle(binary.NativeEndian.Uint32(message[8:]))
			if _, wanted := slices.BinarySearch(r.wanted, handle); wanted {
				stats := parseClassStats(message[sizeofTcmsg:])
				stats.Handle = handle
				dst = append(dst, stats)
			}
		}
	}
	return dst, false, nil
}

// attributeKindMask leaves the flags of an attribute's kind out
// (NLA_TYPE_MASK, include/uapi/linux/netlink.h).
const attributeKindMask = 0x3fff

// align is the next place where a message or attribute may start.
func align(length int) int { return (length + 3) &^ 3 }

// attribute finds the value of one attribute among those in b; nil if there
// is none.
func attribute(b []byte, kind uint16) []byte {
	for len(b) >= sizeofAttribute {
		length := int(binary.NativeEndian.Uint16(b))
		if length < sizeofAttribute || length > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&attributeKindMask == kind {
			return b[sizeofAttribute:length]
		}
		b = b[min(align(length), len(b)):]
	}
	return nil
}

// What is in TCA_STATS2 (include/uapi/linux/gen_stats.h).
const (
	statsBasic = 1 // bytes u64, packets u32
	statsQueue = 3 // qlen, backlog, drops, requeues, overlimits u32
	statsApp   = 4 // of the qdisc's own kind
)

// parseClassStats reads TCA_STATS2. What is not there is zero.
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

// parseQueueStats reads what a qdisc did to packets. What is not there is zero.
func parseQueueStats(attrs []byte) QueueStats {
	var q QueueStats
	stats := attribute(attrs, unix.TCA_STATS2)
	if b := attribute(stats, statsQueue); len(b) >= 12 {
		q.DroppedPackets = binary.NativeEndian.Uint32(b[8:])
	}
	// What other kinds have there looks alike.
	if kind := unix.ByteSliceToString(attribute(attrs, unix.TCA_KIND)); kind != (FqCodel{}).Kind() {
		return q
	}
	if b := attribute(stats, statsApp); len(b) >= fqCodelMarkEndOffset && binary.NativeEndian.Uint32(b) == fqCodelStatsOfQdisc {
		q.MarkedPackets = binary.NativeEndian.Uint32(b[fqCodelMarkOffset:])
	}
	return q
}
