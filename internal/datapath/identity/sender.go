package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/share/sched"
)

// senderBuckets is the size of the table of flows seen on the link (bpf/sender.h): 65536 flows in
// 3.5 MB.
const senderBuckets = 1 << 13

// Sender is the sender of a flow.
type Sender struct {
	Number uint16
	// Class is the class of its last packet.
	Class sched.TrafficClass
}

// Sender returns the container that a packet received at an uplink is for: the one that sent a
// packet of the same flow within the last five minutes. local and remote are the endpoints on the
// link, after NAT. proto is 6 for TCP, 17 for UDP. It returns false if the flow belongs to no
// number with a table.
func (f *Flows) Sender(proto uint8, local, remote netip.AddrPort) (Sender, bool, error) {
	none := Sender{}
	var config flowWeirFlowConfig
	if err := f.configs.Lookup(uint32(NumberNone), &config); err != nil {
		return none, false, fmt.Errorf("find a flow's sender: %w", err)
	}
	if config.Keys == ([flowKeys]uint64{}) {
		return none, false, nil
	}
	var table *ebpf.Map
	if err := f.senders.Lookup(uint32(0), &table); err != nil {
		return none, false, fmt.Errorf("find a flow's sender: %w", err)
	}
	defer table.Close()
	words := tupleWords(proto, local, remote)
	hash := config.hash(words)
	var bucket uplinkWeirSenderBucket
	if err := table.Lookup(hash&config.BucketMask, &bucket); err != nil {
		return none, false, fmt.Errorf("find a flow's sender: %w", err)
	}
	const held = uint32(flowWeirFlowTagWEIR_FLOW_TAG_HELD)
	for i, tag := range bucket.Tags {
		if tag != hash&^3|held || !sameTuple(&bucket, i, words) {
			continue
		}
		return f.holder(Sender{Number: bucket.Numbers[i], Class: sched.TrafficClass(bucket.Classes[i])}, bucket.SeenMs[i])
	}
	return none, false, nil
}

// holder returns the sender if it held its number before the packet was seen, and the packet is
// recent enough.
func (f *Flows) holder(sender Sender, seenMS uint32) (Sender, bool, error) {
	var config flowWeirFlowConfig
	if err := f.configs.Lookup(uint32(sender.Number), &config); err != nil {
		return Sender{}, false, fmt.Errorf("find a flow's sender: %w", err)
	}
	if config.Keys == ([flowKeys]uint64{}) || !isHolders(nowMS(), seenMS, config.SinceMs) {
		return Sender{}, false, nil
	}
	return sender, true, nil
}

// isHolders reports whether a packet seen at seenMS belongs to the holder of a number since
// sinceMS, and is recent enough. It compares ages, because the clock wraps after 52 days.
func isHolders(nowMS, seenMS, sinceMS uint32) bool {
	const idleMS = 300000 // WEIR_IDLE_MS in bpf/table.h
	const justNowMS = 60000
	if seenMS-nowMS < justNowMS { // after the time was taken
		return true
	}
	age := nowMS - seenMS
	return age <= idleMS && age <= nowMS-sinceMS
}

// sinceMS returns the present time less one step of the coarse clock that the programs use, so it
// is never later than theirs.
func sinceMS() uint32 {
	// The longest step (a kernel with CONFIG_HZ=100), and a margin.
	const stepMS = 16
	var ts unix.Timespec
	// It cannot fail: the clock exists and the pointer is valid.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &ts)
	return uint32(ts.Nano()>>20) - stepMS
}

// openSenders makes the table if it does not exist.
func (f *Flows) openSenders() error {
	var id uint32
	err := f.senders.Lookup(uint32(0), &id)
	if err == nil {
		return nil
	}
	if !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("look for the table of senders: %w", err)
	}
	spec := f.specs[uplinkMapSenderTable].InnerMap.Copy()
	spec.MaxEntries = senderBuckets
	table, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("make the table of senders: %w", err)
	}
	defer table.Close()
	err = f.configure(NumberNone, func(c *flowWeirFlowConfig) { c.Keys, c.BucketMask = f.keys, senderBuckets-1 })
	if err != nil {
		return err
	}
	if err := f.senders.Update(uint32(0), table, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("set up the table of senders: %w", err)
	}
	return nil
}

// tupleWords returns struct weir_tuple as words, the lesser endpoint first.
func tupleWords(proto uint8, a, b netip.AddrPort) [10]uint32 {
	side := func(e netip.AddrPort) (words [4]uint32, port uint16) {
		address := e.Addr().Unmap()
		bytes := append(address.AsSlice(), make([]byte, 12)...)
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(bytes[4*i:])
		}
		return words, hostOrder(e.Port())
	}
	at, aPort := side(a)
	bt, bPort := side(b)
	low := func(w [4]uint32) uint64 { return uint64(w[1])<<32 | uint64(w[0]) }
	high := func(w [4]uint32) uint64 { return uint64(w[3])<<32 | uint64(w[2]) }
	if low(at) > low(bt) || low(at) == low(bt) && (high(at) > high(bt) || high(at) == high(bt) && aPort > bPort) {
		at, bt, aPort, bPort = bt, at, bPort, aPort
	}
	family := uint32(6)
	if a.Addr().Unmap().Is4() {
		family = 4
	}
	return [10]uint32{
		at[0], at[1], at[2], at[3], bt[0], bt[1], bt[2], bt[3],
		uint32(bPort)<<16 | uint32(aPort), family<<8 | uint32(proto),
	}
}

// hash computes weir_hash of bpf/table.h.
func (c *flowWeirFlowConfig) hash(words [10]uint32) uint32 {
	sum := c.Keys[10]
	for i, word := range words {
		sum += uint64(word) * c.Keys[i]
	}
	return uint32(sum >> 32)
}

func sameTuple(bucket *uplinkWeirSenderBucket, i int, words [10]uint32) bool {
	t := &bucket.Tuples[i]
	for n := range 4 {
		if t.A[n] != words[n] || t.B[n] != words[4+n] {
			return false
		}
	}
	return uint32(t.PortB)<<16|uint32(t.PortA) == words[8] && uint32(t.Family)<<8|uint32(t.Proto) == words[9] && t.Kind == 0
}
