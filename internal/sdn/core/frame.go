package core

import (
	"encoding/binary"
	"fmt"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/appid/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Ethernet types.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8 // IEEE 802.1ad
	// etherLeast is the least Ethernet type; what is below is a length (IEEE 802.3).
	etherLeast = 0x0600
)

// vlanPresent is OFPVID_PRESENT: it stands in vlan_vid for "with a tag".
const vlanPresent = 0x1000

// Key is what a flow is known by: its hosts and, of TCP and UDP, addresses and
// ports. All else between two hosts is one flow for each Ethernet type and IP
// protocol.
type Key struct {
	SrcMAC, DstMAC openflow.MAC
	VLAN           uint16 // with vlanPresent; 0 is untagged
	EtherType      uint16
	Proto          uint8         // of IP; 0 is no IP
	Src, Dst       flow.Endpoint // of TCP and UDP
}

// ported tells that a key is of TCP or UDP.
func (k *Key) ported() bool { return k.Proto == flow.TCP || k.Proto == flow.UDP }

// Reverse is the key of the flow that answers.
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
	if k.Proto != 0 {
		name += fmt.Sprintf(" protocol %d", k.Proto)
	}
	if k.addressed() {
		return fmt.Sprintf("%s %v > %v", name, address(k.Src), address(k.Dst))
	}
	return fmt.Sprintf("%s %v > %v", name, k.SrcMAC, k.DstMAC)
}

// hash is FNV-1a of the key's bytes: it chooses among paths, the same for both
// directions of a flow's hosts only by chance.
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

// Frame is what is read of a packet-in's data: its key and, of TCP and UDP, what
// the classifier looks at.
type Frame struct {
	Key
	headers flow.Headers
	l4      bool // headers are there
	// vague tells that no entry would match this flow and no other: fragments, what
	// is behind IPv6's extension headers or a second tag, and frames with a length
	// in place of the type, for which Open vSwitch has a type of its own.
	vague bool
}

// ReadFrame reads an Ethernet frame, which may be cut off behind its headers. It
// returns false for what is no whole Ethernet header.
func ReadFrame(b []byte) (Frame, bool) {
	var f Frame
	if len(b) < 14 {
		return f, false
	}
	copy(f.DstMAC[:], b)
	copy(f.SrcMAC[:], b[6:])
	f.EtherType = binary.BigEndian.Uint16(b[12:])
	rest := b[14:]
	if tag(f.EtherType) { // OpenFlow's vlan_vid is that of the outer tag, whichever it is
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
		f.Proto = b[9]
	case f.EtherType == etherIPv6 && len(b) >= 40 && b[0]>>4 == 6:
		f.Proto = b[6]
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

// fragmented tells that an IP packet is a fragment: switches match the ports of none,
// not even of the first (OFPC_FRAG_NORMAL).
func fragmented(b []byte) bool {
	if b[0]>>4 == 4 {
		h, _ := readIPv4(b)
		return h.fragment
	}
	return readIPv6(b).fragment
}

// Verdict is what a flow was taken for.
type Verdict struct {
	Level appid.Level
	// Type is an index of appid.Types, or -1 for what is no application's flow:
	// ARP, ICMP and the like.
	Type       int
	Confidence float64 // in the level, 0 to 1
	// kept is the queue of a flow that was found there, of no level's; 0: none.
	kept openflow.Queue
}

// TypeName is the application type's name, or "-".
func (v Verdict) TypeName() string {
	if v.Type < 0 || v.Type >= len(appid.Types) {
		return "-"
	}
	return appid.Types[v.Type]
}

// Classifier names the application of a flow from its first packet: the paper's
// step 5.
type Classifier struct {
	compact  *appid.Compact
	features [256]*flow.Feature
	ports    *flow.Ports
}

// NewClassifier makes one of a trained model.
func NewClassifier(m *appid.Model) (*Classifier, error) {
	compact, err := m.Compact()
	if err != nil {
		return nil, fmt.Errorf("prepare classifier: %w", err)
	}
	c := &Classifier{compact: compact, ports: flow.KnownPorts(appid.Types)}
	all := flow.Features(appid.Types)
	for i := range all {
		c.features[all[i].Code] = &all[i]
	}
	return c, nil
}

// First is the verdict on a flow's first packet. Of what is neither TCP nor UDP
// it is BE.
func (c *Classifier) First(f *Frame) Verdict {
	if !f.l4 {
		return Verdict{Level: appid.BE, Type: -1, Confidence: 1}
	}
	seen := flow.FirstPacket(f.headers)
	v := c.compact.Verdict(0, func(code uint8) uint32 {
		feature := c.features[code]
		return feature.Word(feature.Of(seen, c.ports))
	})
	return Verdict{Level: v.Level, Type: v.Type, Confidence: v.LevelConfidence}
}
