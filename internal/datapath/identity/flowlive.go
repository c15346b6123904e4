package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/share/sched"
)

// Flow is a live flow at one moment.
type Flow struct {
	// Initiator and Responder are its endpoints, as the container sees them.
	Initiator, Responder netip.AddrPort
	// Proto is 6 for TCP and 17 for UDP.
	Proto uint8
	// Bytes, with headers, and packets sent by the initiator and by the responder.
	Bytes   [2]uint64
	Packets [2]uint32
	// Idle is the time since the last packet, Age the time since the first.
	Idle, Age time.Duration
	// Class and Type are the verdict of Stage 1 or 2; 0 if there was no classifier.
	Class                           sched.TrafficClass
	Type, Stage                     uint8
	TypeConfidence, LevelConfidence float64
	// DSCPClass is the class that the last packet's DSCP selected instead of Class;
	// sched.Unclassified if it selected none or the number's DSCP is not trusted.
	DSCPClass sched.TrafficClass
	// Bulk: its verdict is EF, but it sends as a transfer does, so Class is BE (bpf/police.h). It
	// sent RunBytes within Run when that began.
	Bulk     bool
	RunBytes uint32
	Run      time.Duration
	// Doubtful: the verdict was too uncertain for its class, so Class is BE.
	Doubtful bool
	// DelayNs is the mean queueing delay of the flow's packets at the uplink, in nanoseconds, over
	// DelayPackets sampled packets; 0 without samples.
	DelayNs      uint64
	DelayPackets uint32
}

// nowMS returns the present time on the clock of struct weir_bucket.
func nowMS() uint32 {
	var ts unix.Timespec
	// It cannot fail: the clock exists and the pointer is valid.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint32(ts.Nano() >> 20)
}

// bucketsAtOnce is the number of buckets read with one system call.
const bucketsAtOnce = 256

// Each calls fn with the flows of a number, in any order, until fn returns false. A number without
// a table has no flows.
func (f *Flows) Each(number uint16, fn func(Flow) bool) error {
	table, err := f.table(number)
	if err != nil || table == nil {
		return err
	}
	defer table.Close()
	n := min(bucketsAtOnce, int(table.MaxEntries()))
	keys, buckets := make([]uint32, n), make([]flowWeirBucket, n)
	var cursor ebpf.MapBatchCursor
	for {
		got, err := table.BatchLookup(&cursor, keys, buckets, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read the flows of number %d: %w", number, err)
		}
		now := nowMS()
		for i := range buckets[:got] {
			if !buckets[i].each(now, fn) {
				return nil
			}
		}
		if err != nil { // the last batch
			return nil
		}
	}
}

func (b *flowWeirBucket) each(nowMS uint32, fn func(Flow) bool) bool {
	for i, tag := range b.Tags {
		if tag < 2 || b.Flows[i].Tuple.Kind != uint8(flowWeirFlowKindWEIR_FLOW_WHOLE) {
			continue
		}
		if !fn(b.Flows[i].flow(nowMS, b.SeenMs[i])) {
			return false
		}
	}
	return true
}

func (w *flowWeirFlow) flow(nowMS, seenMS uint32) Flow {
	since := func(ms uint32) time.Duration {
		// The flow may have sent a packet after the time was taken.
		const justNowMS = 60000
		if ms-nowMS < justNowMS {
			return 0
		}
		return time.Duration(nowMS-ms) << 20
	}
	a := netip.AddrPortFrom(address(w.Tuple.A, w.Tuple.Family), hostOrder(w.Tuple.PortA))
	b := netip.AddrPortFrom(address(w.Tuple.B, w.Tuple.Family), hostOrder(w.Tuple.PortB))
	if w.InitiatorIsB != 0 {
		a, b = b, a
	}
	const all = 0xffff
	var delayNs uint64
	if w.DelayPackets > 0 {
		delayNs = w.DelayNs / uint64(w.DelayPackets)
	}
	out := Flow{
		Initiator: a, Responder: b, Proto: w.Tuple.Proto, Bytes: w.Bytes, Packets: w.Packets,
		Idle: since(seenMS), Age: since(w.BeganMs), Class: sched.TrafficClass(w.TrafficClass), Type: w.Type, Stage: w.Stage,
		TypeConfidence: float64(w.TypeConfidence) / all, LevelConfidence: float64(w.LevelConfidence) / all,
		DSCPClass: sched.TrafficClass(w.DscpClass), DelayNs: delayNs, DelayPackets: w.DelayPackets,
		Doubtful: w.Policer == uint8(flowWeirPolicerWEIR_POLICER_REFUSED),
	}
	if w.Policer == uint8(flowWeirPolicerWEIR_POLICER_BULK) {
		out.Class, out.Bulk, out.RunBytes, out.Run = sched.BE, true, w.Load.RunBytes, time.Duration(w.RunMs)<<20
	}
	return out
}

func hostOrder(port uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
}

func address(words [4]uint32, family uint8) netip.Addr {
	var b []byte
	for _, w := range words {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	if family == 4 {
		b = b[:4]
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
