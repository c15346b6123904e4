package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// classStatsReader reads the counters of a device's classes.
type classStatsReader struct {
	*routeSocket
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
	err := r.dumpDevice(getClass, ifindex, parent, func(class object) { dst = r.add(class, dst) })
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
