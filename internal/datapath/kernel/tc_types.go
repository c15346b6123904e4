package kernel

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mdlayher/netlink"
)

// Handle names a qdisc (minor 0) or a class, as tc writes it: major:minor in
// hexadecimal.
type Handle uint32

// Handles with special meanings (include/uapi/linux/pkt_sched.h).
const (
	HandleRoot    Handle = 0xffffffff
	HandleIngress Handle = 0xfffffff1
)

// NewHandle joins a major and a minor.
func NewHandle(major, minor uint16) Handle {
	return Handle(uint32(major)<<16 | uint32(minor))
}

// Major returns the upper half, which names the qdisc.
func (h Handle) Major() uint16 { return uint16(h >> 16) }

// Minor returns the lower half, which names the class within the qdisc.
func (h Handle) Minor() uint16 { return uint16(h) }

func (h Handle) String() string {
	switch {
	case h == HandleRoot:
		return "root"
	case h == HandleIngress:
		return "ingress"
	case h.Minor() == 0:
		return fmt.Sprintf("%x:", h.Major())
	default:
		return fmt.Sprintf("%x:%x", h.Major(), h.Minor())
	}
}

// Qdisc is a queueing discipline of a device. Two Qdiscs are the same
// configuration when they are ==.
type Qdisc struct {
	Handle, Parent Handle
	Options        Options
}

func (q Qdisc) String() string {
	where := "parent " + q.Parent.String()
	if q.Parent == HandleRoot {
		where = "root"
	}
	return fmt.Sprintf("%s handle %s %s", where, q.Handle, q.Options)
}

// Class is a class of a classful qdisc.
type Class struct {
	Handle, Parent Handle
	Options        Options
}

func (c Class) String() string {
	return fmt.Sprintf("parent %s classid %s %s", c.Parent, c.Handle, c.Options)
}

// Options are the parameters of one kind of qdisc or class, in the kernel's own units, so that
// values set and values read back are ==.
type Options interface {
	// Kind returns the kernel's name of the qdisc, e.g. "htb".
	Kind() string
	// String returns the parameters in tc's notation.
	String() string
	// attribute returns the value of TCA_OPTIONS and whether it is nested.
	attribute() (value []byte, nested bool, err error)
}

// tickNS is tc's unit of time: 64 ns (PSCHED_SHIFT, include/net/pkt_sched.h).
const tickNS = 64

// Ticks is the depth of a bucket, as time at the bucket's rate in units of 64 ns.
type Ticks uint32

// BurstTicks returns the depth of a bucket of burstBytes filled at rateBytesPerSec.
func BurstTicks(burstBytes, rateBytesPerSec uint64) Ticks {
	if rateBytesPerSec == 0 {
		return 0
	}
	ticks := math.Ceil(float64(burstBytes) / float64(rateBytesPerSec) * 1e9 / tickNS)
	return Ticks(min(ticks, math.MaxUint32))
}

// Bytes returns the size of a bucket of that depth at a rate.
func (t Ticks) Bytes(rateBytesPerSec uint64) uint64 {
	return uint64(math.Round(float64(t) * tickNS / 1e9 * float64(rateBytesPerSec)))
}

// Netlink attributes of the qdiscs that x/sys/unix lacks (include/uapi/linux/pkt_sched.h).
const (
	tcaTBFParms   = 1
	tcaTBFRate64  = 4
	tcaTBFPRate64 = 5
	tcaTBFPBurst  = 7

	tcaHTBParms     = 1
	tcaHTBInit      = 2
	tcaHTBDirectQln = 5
	tcaHTBRate64    = 6
	tcaHTBCeil64    = 7

	htbVersion = 3

	tcaFqCodelTarget   = 1
	tcaFqCodelLimit    = 2
	tcaFqCodelInterval = 3
	tcaFqCodelQuantum  = 6
	tcaFqCodelMemory   = 9
	linkLayerEthernet  = 1
	sizeofRatespec     = 12
	sizeofTBFParms     = 2*sizeofRatespec + 12
	sizeofHTBParms     = 2*sizeofRatespec + 20
	sizeofHTBGlob      = 20
	maxRate32          = math.MaxUint32
)

// FrameOverheadBytes is what Ethernet sends besides each frame as qdiscs count it: preamble, checksum
// and gap. ShortestFrameBytes is the size that the card fills up shorter frames to.
const (
	FrameOverheadBytes = 24
	ShortestFrameBytes = 60
)

// ratespec writes struct tc_ratespec. Naming the link layer makes a rate table unnecessary. The
// kernel adds the overhead to each packet, a GSO packet of several frames included, and counts at
// least the shortest frame with it (include/net/sch_generic.h, psched_l2t_ns).
func ratespec(b []byte, rateBytesPerSec uint64, overheadBytes uint16) {
	b[1] = linkLayerEthernet
	if overheadBytes > 0 {
		binary.NativeEndian.PutUint16(b[2:], overheadBytes)
		binary.NativeEndian.PutUint16(b[6:], ShortestFrameBytes+overheadBytes) // mpu
	}
	binary.NativeEndian.PutUint32(b[8:], uint32(min(rateBytesPerSec, maxRate32)))
}

func ratespecRate(b []byte) uint64     { return uint64(binary.NativeEndian.Uint32(b[8:])) }
func ratespecOverhead(b []byte) uint16 { return binary.NativeEndian.Uint16(b[2:]) }

func overheadText(bytes uint16) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf(" overhead %d mpu %d", bytes, ShortestFrameBytes+bytes)
}

// TBF is a token bucket filter, which limits everything that passes to a rate.
type TBF struct {
	RateBytesPerSec uint64
	// OverheadBytes is what each packet counts more than its size.
	OverheadBytes uint16
	Burst         Ticks
	// Packets larger than MaxPacketBytes are cut up before they are queued (net/sched/sch_tbf.c,
	// tbf_segment); the kernel accepts that limit only with a peak rate, PeakBytesPerSec. 0 means
	// no limit. The kernel does not report MaxPacketBytes.
	PeakBytesPerSec uint64
	MaxPacketBytes  uint32
	LimitBytes      uint32
}

// Kind implements Options.
func (TBF) Kind() string { return "tbf" }

func (t TBF) String() string {
	s := fmt.Sprintf("tbf rate %dbps burst %db limit %db",
		t.RateBytesPerSec, t.Burst.Bytes(t.RateBytesPerSec), t.LimitBytes)
	s += overheadText(t.OverheadBytes)
	if t.MaxPacketBytes != 0 {
		s += fmt.Sprintf(" peakrate %dbps mtu %db", t.PeakBytesPerSec, t.MaxPacketBytes)
	}
	return s
}

func (t TBF) attribute() ([]byte, bool, error) {
	parms := make([]byte, sizeofTBFParms)
	ratespec(parms, t.RateBytesPerSec, t.OverheadBytes)
	binary.NativeEndian.PutUint32(parms[24:], t.LimitBytes)
	binary.NativeEndian.PutUint32(parms[28:], uint32(t.Burst))
	ae := netlink.NewAttributeEncoder()
	if t.PeakBytesPerSec != 0 {
		ratespec(parms[sizeofRatespec:], t.PeakBytesPerSec, 0)
	}
	ae.Bytes(tcaTBFParms, parms)
	if t.RateBytesPerSec > maxRate32 {
		ae.Uint64(tcaTBFRate64, t.RateBytesPerSec)
	}
	if t.PeakBytesPerSec != 0 {
		if t.PeakBytesPerSec > maxRate32 {
			ae.Uint64(tcaTBFPRate64, t.PeakBytesPerSec)
		}
		ae.Uint32(tcaTBFPBurst, t.MaxPacketBytes)
	}
	b, err := ae.Encode()
	return b, true, err
}

func decodeTBF(b []byte) (TBF, error) {
	var t TBF
	err := eachAttribute(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case tcaTBFParms:
			parms := ad.Bytes()
			if len(parms) < sizeofTBFParms {
				return errShort
			}
			t.RateBytesPerSec = max(t.RateBytesPerSec, ratespecRate(parms))
			t.OverheadBytes = ratespecOverhead(parms)
			t.PeakBytesPerSec = max(t.PeakBytesPerSec, ratespecRate(parms[sizeofRatespec:]))
			t.LimitBytes = binary.NativeEndian.Uint32(parms[24:])
			t.Burst = Ticks(binary.NativeEndian.Uint32(parms[28:]))
		case tcaTBFRate64:
			t.RateBytesPerSec = ad.Uint64()
		case tcaTBFPRate64:
			t.PeakBytesPerSec = ad.Uint64()
		}
		return nil
	})
	return t, err
}

// HTB is the hierarchical token bucket qdisc itself.
type HTB struct {
	// DefaultMinor is the class of packets that name no class.
	DefaultMinor uint16
	// DirectPackets bounds the queue of packets that belong to no class.
	DirectPackets uint32
}

// Kind implements Options.
func (HTB) Kind() string { return "htb" }

func (h HTB) String() string {
	return fmt.Sprintf("htb default %x direct_qlen %d", h.DefaultMinor, h.DirectPackets)
}

func (h HTB) attribute() ([]byte, bool, error) {
	glob := make([]byte, sizeofHTBGlob)
	binary.NativeEndian.PutUint32(glob[0:], htbVersion)
	binary.NativeEndian.PutUint32(glob[4:], 10) // rate2quantum, unused: every class sets its quantum
	binary.NativeEndian.PutUint32(glob[8:], uint32(h.DefaultMinor))
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(tcaHTBInit, glob)
	ae.Uint32(tcaHTBDirectQln, h.DirectPackets)
	b, err := ae.Encode()
	return b, true, err
}

func decodeHTB(b []byte) (HTB, error) {
	var h HTB
	err := eachAttribute(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case tcaHTBInit:
			glob := ad.Bytes()
			if len(glob) < sizeofHTBGlob {
				return errShort
			}
			h.DefaultMinor = uint16(binary.NativeEndian.Uint32(glob[8:]))
		case tcaHTBDirectQln:
			h.DirectPackets = ad.Uint32()
		}
		return nil
	})
	return h, err
}

// HTBClass is a class of HTB. It may always send at its rate, and up to its ceiling while its
// parent has idle rate.
type HTBClass struct {
	RateBytesPerSec uint64
	CeilBytesPerSec uint64
	// OverheadBytes is what each packet counts more than its size, for rate and ceiling.
	OverheadBytes uint16
	// Burst and CeilBurst are the depths of the two buckets.
	Burst, CeilBurst Ticks
	// QuantumBytes is the size of a class's turn when it borrows.
	QuantumBytes uint32
	// Prio is the order of classes that may send at the same time: 0 to 7, lower first.
	Prio uint32
}

// Kind implements Options.
func (HTBClass) Kind() string { return "htb" }

func (c HTBClass) String() string {
	return fmt.Sprintf("htb prio %d quantum %d rate %dbps burst %db ceil %dbps cburst %db",
		c.Prio, c.QuantumBytes,
		c.RateBytesPerSec, c.Burst.Bytes(c.RateBytesPerSec),
		c.CeilBytesPerSec, c.CeilBurst.Bytes(c.CeilBytesPerSec)) + overheadText(c.OverheadBytes)
}

func (c HTBClass) attribute() ([]byte, bool, error) {
	parms := make([]byte, sizeofHTBParms)
	ratespec(parms, c.RateBytesPerSec, c.OverheadBytes)
	ratespec(parms[sizeofRatespec:], c.CeilBytesPerSec, c.OverheadBytes)
	binary.NativeEndian.PutUint32(parms[24:], uint32(c.Burst))
	binary.NativeEndian.PutUint32(parms[28:], uint32(c.CeilBurst))
	binary.NativeEndian.PutUint32(parms[32:], c.QuantumBytes)
	binary.NativeEndian.PutUint32(parms[40:], c.Prio)
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(tcaHTBParms, parms)
	if c.RateBytesPerSec > maxRate32 {
		ae.Uint64(tcaHTBRate64, c.RateBytesPerSec)
	}
	if c.CeilBytesPerSec > maxRate32 {
		ae.Uint64(tcaHTBCeil64, c.CeilBytesPerSec)
	}
	b, err := ae.Encode()
	return b, true, err
}

func decodeHTBClass(b []byte) (HTBClass, error) {
	var c HTBClass
	err := eachAttribute(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case tcaHTBParms:
			parms := ad.Bytes()
			if len(parms) < sizeofHTBParms {
				return errShort
			}
			c.RateBytesPerSec = max(c.RateBytesPerSec, ratespecRate(parms))
			c.OverheadBytes = ratespecOverhead(parms)
			c.CeilBytesPerSec = max(c.CeilBytesPerSec, ratespecRate(parms[sizeofRatespec:]))
			c.Burst = Ticks(binary.NativeEndian.Uint32(parms[24:]))
			c.CeilBurst = Ticks(binary.NativeEndian.Uint32(parms[28:]))
			c.QuantumBytes = binary.NativeEndian.Uint32(parms[32:])
			c.Prio = binary.NativeEndian.Uint32(parms[40:])
		case tcaHTBRate64:
			c.RateBytesPerSec = ad.Uint64()
		case tcaHTBCeil64:
			c.CeilBytesPerSec = ad.Uint64()
		}
		return nil
	})
	return c, err
}

// BFIFO is a first-in first-out queue bounded in bytes.
type BFIFO struct{ LimitBytes uint32 }

// Kind implements Options.
func (BFIFO) Kind() string { return "bfifo" }

func (f BFIFO) String() string { return fmt.Sprintf("bfifo limit %db", f.LimitBytes) }

func (f BFIFO) attribute() ([]byte, bool, error) {
	return binary.NativeEndian.AppendUint32(nil, f.LimitBytes), false, nil
}

// FqCodel has one queue per flow, each held to a target delay (RFC 8290).
type FqCodel struct {
	TargetMicroseconds   uint32
	IntervalMicroseconds uint32
	QuantumBytes         uint32
	MemoryLimitBytes     uint32
	// LimitPackets bounds the queue on kernels that do not count memory.
	LimitPackets uint32
}

// Kind implements Options.
func (FqCodel) Kind() string { return "fq_codel" }

func (f FqCodel) String() string {
	return fmt.Sprintf("fq_codel target %dus interval %dus quantum %d memory_limit %db limit %dp",
		f.TargetMicroseconds, f.IntervalMicroseconds, f.QuantumBytes, f.MemoryLimitBytes, f.LimitPackets)
}

func (f FqCodel) attribute() ([]byte, bool, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(tcaFqCodelTarget, f.TargetMicroseconds)
	ae.Uint32(tcaFqCodelLimit, f.LimitPackets)
	ae.Uint32(tcaFqCodelInterval, f.IntervalMicroseconds)
	ae.Uint32(tcaFqCodelQuantum, f.QuantumBytes)
	ae.Uint32(tcaFqCodelMemory, f.MemoryLimitBytes)
	b, err := ae.Encode()
	return b, true, err
}

func decodeFqCodel(b []byte) (FqCodel, error) {
	var f FqCodel
	err := eachAttribute(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case tcaFqCodelTarget:
			f.TargetMicroseconds = roundCodelTime(ad.Uint32())
		case tcaFqCodelLimit:
			f.LimitPackets = ad.Uint32()
		case tcaFqCodelInterval:
			f.IntervalMicroseconds = roundCodelTime(ad.Uint32())
		case tcaFqCodelQuantum:
			f.QuantumBytes = ad.Uint32()
		case tcaFqCodelMemory:
			f.MemoryLimitBytes = ad.Uint32()
		}
		return nil
	})
	return f, err
}

// roundCodelTime corrects the kernel's rounding to units of 1024 ns: it returns 4999 for 5000.
func roundCodelTime(us uint32) uint32 { return (us + 50) / 100 * 100 }

// Unknown holds the parameters of a qdisc or class that Weir has no type for. They suffice to
// compare and restore it.
type Unknown struct {
	Name string
	// Raw is the value of TCA_OPTIONS as the kernel gave it.
	Raw string
	// Nested: Raw contains attributes.
	Nested bool
}

// Kind implements Options.
func (u Unknown) Kind() string { return u.Name }

func (u Unknown) String() string { return u.Name }

func (u Unknown) attribute() ([]byte, bool, error) { return []byte(u.Raw), u.Nested, nil }

// decodeOptions converts raw parameters to the type of their kind.
func decodeOptions(kind string, isClass bool, raw []byte, nested bool) (Options, error) {
	var (
		o   Options
		err error
	)
	switch {
	case kind == "htb" && isClass:
		o, err = decodeHTBClass(raw)
	case kind == "htb":
		o, err = decodeHTB(raw)
	case kind == "tbf" && !isClass:
		o, err = decodeTBF(raw)
	case kind == "bfifo" && len(raw) >= 4:
		o = BFIFO{LimitBytes: binary.NativeEndian.Uint32(raw)}
	case kind == "fq_codel" && !isClass:
		o, err = decodeFqCodel(raw)
	default:
		o = Unknown{Name: kind, Raw: string(raw), Nested: nested}
	}
	if err != nil {
		return nil, fmt.Errorf("decode %s parameters: %w", kind, err)
	}
	return o, nil
}
