package core

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Ethernet types.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8 // IEEE 802.1ad
	// etherLeast is the smallest Ethernet type; smaller values are lengths (IEEE 802.3).
	etherLeast = 0x0600
)

// vlanPresent is OFPVID_PRESENT, which marks a tagged packet in vlan_vid.
const vlanPresent = 0x1000

// Key identifies a flow by its MAC addresses and, for TCP and UDP, IP addresses and ports.
// All other packets between two stations are one flow per Ethernet type and IP protocol.
type Key struct {
	SrcMAC, DstMAC openflow.MAC
	VLAN           uint16 // with vlanPresent; 0 means untagged
	EtherType      uint16
	Proto          uint8         // IP protocol; 0 if not IP
	Src, Dst       flow.Endpoint // TCP and UDP only
}

// ported reports whether a key is of TCP or UDP.
func (k *Key) ported() bool { return k.Proto == flow.TCP || k.Proto == flow.UDP }

// addressed reports whether a key has IP addresses but no ports.
func (k *Key) addressed() bool {
	return (k.EtherType == etherIPv4 || k.EtherType == etherIPv6) && k.Dst != (flow.Endpoint{})
}

// Reverse returns the key of the reverse flow.
func (k Key) Reverse() Key {
	k.SrcMAC, k.DstMAC, k.Src, k.Dst = k.DstMAC, k.SrcMAC, k.Dst, k.Src
	return k
}

func (k Key) String() string {
	switch k.Proto {
	case flow.TCP:
		return fmt.Sprintf("tcp %v > %v", k.Src, k.Dst)
	case flow.UDP:
		return fmt.Sprintf("udp %v > %v", k.Src, k.Dst)
	}
	name := map[uint16]string{etherIPv4: "ip", etherIPv6: "ipv6", etherARP: "arp"}[k.EtherType]
	if name == "" {
		name = fmt.Sprintf("%#04x", k.EtherType)
	}
	switch {
	case k.EtherType == etherIPv4 && k.Proto == inet4.icmp:
		name = "icmp"
	case k.EtherType == etherIPv6 && k.Proto == inet6.icmp:
		name = "icmpv6"
	case k.Proto != 0:
		name += fmt.Sprintf(" protocol %d", k.Proto)
	}
	if k.addressed() {
		return fmt.Sprintf("%s %v > %v", name, address(k.Src), address(k.Dst))
	}
	return fmt.Sprintf("%s %v > %v", name, k.SrcMAC, k.DstMAC)
}

// hash returns the FNV-1a hash of the key, which selects among equal-cost paths. The two
// directions of a flow are hashed independently.
func (k *Key) hash() uint32 {
	h := uint32(2166136261)
	mix := func(b ...byte) {
		for _, x := range b {
			h = (h ^ uint32(x)) * 16777619
		}
	}
	mix(k.SrcMAC[:]...)
	mix(k.DstMAC[:]...)
	mix(k.Src.Addr[:]...)
	mix(k.Dst.Addr[:]...)
	mix(k.Proto, byte(k.Src.Port>>8), byte(k.Src.Port), byte(k.Dst.Port>>8), byte(k.Dst.Port))
	return h ^ h>>16
}

// Frame is a parsed packet-in: the flow key and, for TCP and UDP, the headers for the
// classifier.
type Frame struct {
	Key
	headers flow.Headers
	l4      bool // the TCP or UDP headers are present
	dscp    uint8
	// vague reports that no flow entry can match exactly this flow: fragments, IPv6
	// extension headers, a second VLAN tag, and 802.3 length frames, for which Open vSwitch
	// uses a type of its own.
	vague bool
}

// ReadFrame parses an Ethernet frame, which may be truncated after its headers. It returns
// false if the Ethernet header is incomplete.
func ReadFrame(b []byte) (Frame, bool) {
	var f Frame
	if len(b) < 14 {
		return f, false
	}
	copy(f.DstMAC[:], b)
	copy(f.SrcMAC[:], b[6:])
	f.EtherType = binary.BigEndian.Uint16(b[12:])
	rest := b[14:]
	if tag(f.EtherType) { // vlan_vid is that of the outer tag, of either type
		if len(rest) < 4 {
			return f, false
		}
		f.VLAN = vlanPresent | binary.BigEndian.Uint16(rest)&0xfff
		f.EtherType = binary.BigEndian.Uint16(rest[2:])
		rest = rest[4:]
	}
	switch {
	case f.EtherType == etherIPv4 || f.EtherType == etherIPv6:
		f.readIP(rest)
	case tag(f.EtherType) || f.EtherType < etherLeast:
		f.vague = true
	}
	return f, true
}

func tag(etherType uint16) bool { return etherType == etherVLAN || etherType == etherQinQ }

func (f *Frame) readIP(b []byte) {
	f.vague = true
	switch {
	case f.EtherType == etherIPv4 && len(b) >= 20 && b[0]>>4 == 4:
		f.Proto, f.dscp = b[9], b[1]>>2
	case f.EtherType == etherIPv6 && len(b) >= 40 && b[0]>>4 == 6:
		f.Proto, f.dscp = b[6], b[0]&15<<2|b[1]>>6
	default:
		return
	}
	if h, ok := flow.Parse(b); ok && !fragmented(b) {
		f.headers, f.l4, f.vague = h, true, false
		f.Proto, f.Src, f.Dst = uint8(h.Proto), h.Src, h.Dst
		return
	}
	switch f.Proto {
	case flow.TCP, flow.UDP, 0, 43, 44, 51, 60, 135: // ports are missing; IPv6's extension headers
		f.Proto = 0
	default:
		f.vague = false
	}
}

// fragmented reports whether an IP packet is a fragment. Switches match no ports on
// fragments, not even the first (OFPC_FRAG_NORMAL).
func fragmented(b []byte) bool {
	if b[0]>>4 == 4 {
		h, _ := readIPv4(b)
		return h.fragment
	}
	return readIPv6(b).fragment
}

// Verdict is the application and traffic class of a flow.
type Verdict struct {
	Level apps.Level
	// Type is an index of apps.Types, or -1 if there is no application, as for ARP or ICMP.
	Type       int
	Confidence float64 // in the class, 0 to 1
	// Second reports that the verdict comes from the second look.
	Second bool
	// kept is the queue of an adopted flow if that queue belongs to no class; otherwise 0.
	kept openflow.Queue
}

// TypeName returns the application type's name, or "-".
func (v Verdict) TypeName() string {
	if v.Type < 0 || v.Type >= len(apps.Types) {
		return "-"
	}
	return apps.Types[v.Type]
}

// Classifier classifies flows by their first packets: the paper's step 5.
type Classifier struct {
	compact  *apps.Compact
	features [256]*flow.Feature
	ports    *flow.Ports
	seen     sync.Pool // pool of flow.Flow
}

// NewClassifier returns the classifier of a trained model.
func NewClassifier(m *apps.Model) (*Classifier, error) {
	compact, err := m.Compact()
	if err != nil {
		return nil, fmt.Errorf("prepare classifier: %w", err)
	}
	c := &Classifier{compact: compact, ports: flow.KnownPorts(apps.Types), seen: sync.Pool{New: func() any { return flow.New() }}}
	all := flow.Features(apps.Types)
	for i := range all {
		c.features[all[i].Code] = &all[i]
	}
	return c, nil
}

// First returns the verdict on a flow's first packet. Without TCP or UDP that is BE.
func (c *Classifier) First(f *Frame) Verdict {
	if !f.l4 {
		return Verdict{Level: apps.BE, Type: -1, Confidence: 1}
	}
	seen := c.seen.Get().(*flow.Flow)
	defer c.seen.Put(seen)
	seen.FirstPacket(f.headers)
	v := c.compact.Verdict(0, func(code uint8) uint32 {
		feature := c.features[code]
		return feature.Word(feature.Of(seen, c.ports))
	})
	return Verdict{Level: v.Level, Type: v.Type, Confidence: v.LevelConfidence}
}
