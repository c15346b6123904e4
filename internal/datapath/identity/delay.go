package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Limits of enum weir_delay in bpf/intf.h.
const (
	delayUnitShift  = int(delayWeirDelayWEIR_DELAY_UNIT_SHIFT)
	delayStepsShift = int(delayWeirDelayWEIR_DELAY_STEPS_SHIFT)
	delaySteps      = int(delayWeirDelayWEIR_DELAY_STEPS)
	delayBuckets    = int(delayWeirDelayWEIR_DELAY_BUCKETS)
	delaysBytes     = 4 * delayBuckets // sizeof(struct weir_delays)
)

// Delays measures the queueing delay at an uplink, from its egress hook to the driver, of a sample
// of packets (bpf/delay.h). It ends with Close or with the process.
type Delays struct {
	uplink  *Uplink
	program *ebpf.Program
	tracing link.Link // nil while paused
	delays  *ebpf.Map
	// counted are the numbers that delays has entries of.
	counted map[uint16]bool
	buffer  [delaysBytes]byte
}

// OpenDelays starts to measure at u, in the calling thread's network namespace. Call it again after
// the uplink was opened anew. Errors: the kernel cannot trace (it lacks CONFIG_DEBUG_INFO_BTF or
// CONFIG_BPF_EVENTS, or forbids it).
func OpenDelays(u *Uplink) (*Delays, error) {
	d, err := openDelays(uint32(u.hook.Ifindex), u.majors, u.flowMaps)
	if err != nil {
		return nil, fmt.Errorf("measure delays: %w", err)
	}
	d.uplink = u
	if err := u.setStamping(true); err != nil {
		return nil, errors.Join(fmt.Errorf("measure delays: %w", err), d.Close())
	}
	return d, nil
}

// ProbeDelays returns an error if this kernel cannot measure delays.
func ProbeDelays() error {
	d, err := openDelays(0, sched.Majors{}, nil)
	if err != nil {
		return err
	}
	return d.Close()
}

func openDelays(ifindex uint32, majors sched.Majors, flowMaps map[string]*ebpf.Map) (*Delays, error) {
	netns, err := kernel.NetNSIdentity(kernel.CurrentNetNS)
	if err != nil {
		return nil, err
	}
	spec, err := loadDelay()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		spec.Variables[delayVarUplinkIfindex].Set(ifindex),
		spec.Variables[delayVarUplinkNetns].Set(uint32(netns.Inode)),
		spec.Variables[delayVarClassMajor].Set(uint32(majors.Classes)),
		spec.Variables[delayVarDirectMajor].Set(uint32(majors.Direct)))
	if err != nil {
		return nil, fmt.Errorf("set the delay program's constants: %w", err)
	}
	var objects struct {
		Program *ebpf.Program `ebpf:"weir_transmit"`
		Delays  *ebpf.Map     `ebpf:"delays"`
	}
	if err := load(spec, &objects, only(flowMaps, spec)); err != nil {
		return nil, fmt.Errorf("load program: %w", err)
	}
	d := &Delays{program: objects.Program, delays: objects.Delays, counted: map[uint16]bool{}}
	if err := d.Resume(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Pause stops the tracing of outgoing packets, and so nearly all of the cost. Packets that are
// queued at the next Resume are still measured.
func (d *Delays) Pause() error {
	if d.tracing == nil {
		return nil
	}
	err := d.tracing.Close()
	d.tracing = nil
	if err != nil {
		return fmt.Errorf("pause measuring delays: %w", err)
	}
	return nil
}

// Resume ends a pause.
func (d *Delays) Resume() error {
	if d.tracing != nil {
		return nil
	}
	tracing, err := link.AttachTracing(link.TracingOptions{Program: d.program})
	if err != nil {
		return fmt.Errorf("attach to tracepoint net_dev_start_xmit: %w", err)
	}
	d.tracing = tracing
	return nil
}

// Read fills dst with the delays of a number's packets of all traffic classes, since the first reading.
func (d *Delays) Read(number uint16, dst *Histogram) error {
	*dst = Histogram{}
	for class := range sched.TrafficClass(sched.NumTrafficClasses) {
		if err := d.add(number, class, dst); err != nil {
			return err
		}
	}
	return nil
}

// ReadClass fills dst with the delays of a number's packets that were served as one traffic class.
func (d *Delays) ReadClass(number uint16, class sched.TrafficClass, dst *Histogram) error {
	*dst = Histogram{}
	return d.add(number, class, dst)
}

// delayTag returns the key of the delays of a number's packets that were served as one traffic class.
func delayTag(number uint16, class sched.TrafficClass) uint32 {
	return uint32(number) | uint32(class)<<uplinkWeirTagWEIR_TAG_CLASS_SHIFT
}

func (d *Delays) add(number uint16, class sched.TrafficClass, dst *Histogram) error {
	tag := delayTag(number, class)
	err := d.delays.Lookup(tag, d.buffer[:])
	if errors.Is(err, ebpf.ErrKeyNotExist) { // the first reading
		clear(d.buffer[:])
		d.counted[number] = true
		err = d.delays.Update(tag, d.buffer[:], ebpf.UpdateNoExist)
	}
	if err != nil {
		return fmt.Errorf("read the delays of number %d: %w", number, err)
	}
	for i := range dst.packets {
		dst.packets[i] += binary.NativeEndian.Uint32(d.buffer[4*i:])
	}
	return nil
}

// Keep drops the delays of numbers for which keep returns false. They count from their next reading.
func (d *Delays) Keep(keep func(number uint16) bool) {
	for number := range d.counted {
		if keep(number) {
			continue
		}
		delete(d.counted, number)
		for class := range sched.TrafficClass(sched.NumTrafficClasses) {
			_ = d.delays.Delete(delayTag(number, class)) // the class may never have been read
		}
	}
}

// Close stops measuring.
func (d *Delays) Close() error {
	var err error
	if d.uplink != nil {
		err = d.uplink.setStamping(false)
	}
	return errors.Join(err, d.Pause(), d.program.Close(), d.delays.Close())
}

// Histogram is a histogram of packet delays. The zero value is empty. Counts are modulo 2^32, as in
// the kernel: differences are right as long as fewer packets lie between two readings.
type Histogram struct {
	packets [delayBuckets]uint32
}

// Sub subtracts an earlier reading of the same number.
func (h *Histogram) Sub(earlier *Histogram) {
	for i := range h.packets {
		h.packets[i] -= earlier.packets[i]
	}
}

// Packets returns the number of packets, estimated from the sample.
func (h *Histogram) Packets() uint64 {
	var packets uint64
	for _, n := range h.packets {
		packets += uint64(n)
	}
	return packets
}

// Quantile returns the delay that the fraction q of the packets, 0 to 1, did not exceed; 0 if there
// are no packets. Its error is at most the width of a bucket: a quarter of the delay, or one
// microsecond. Delays above 17 s count as 17 s.
func (h *Histogram) Quantile(q float64) time.Duration {
	total := h.Packets()
	if total == 0 {
		return 0
	}
	// The rank of the wanted packet in the order of delays.
	rank := max(1, uint64(math.Ceil(min(max(q, 0), 1)*float64(total))))
	var below uint64
	for i, n := range h.packets {
		if below+uint64(n) < rank {
			below += uint64(n)
			continue
		}
		low, high := delayBounds(i)
		inside := float64(rank-below) / float64(n)
		return low + time.Duration(inside*float64(high-low))
	}
	panic("a rank above the number of packets")
}

// delayBounds returns the range of delays in a bucket: from low to below high (bucket_of in
// bpf/delay.bpf.c).
func delayBounds(bucket int) (low, high time.Duration) {
	bound := func(bucket int) time.Duration {
		if bucket < delaySteps {
			return time.Duration(bucket) << delayUnitShift
		}
		log, step := bucket/delaySteps-1, bucket%delaySteps
		return time.Duration(delaySteps+step) << (log + delayUnitShift)
	}
	return bound(bucket), bound(bucket + 1)
}
