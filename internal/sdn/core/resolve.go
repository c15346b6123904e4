package core

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Address resolution: ARP (RFC 826) for IPv4, neighbour discovery (RFC 4861) for IPv6.

const (
	arpBytes = 28
	// solicitBytes is the length of a neighbour solicitation or advertisement without
	// options.
	solicitBytes = 24
)

// Types, flags and options of neighbour discovery. RFC 4861, sections 4.3, 4.4 and
// 4.6.1.
const (
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136

	flagRouter, flagSolicited, flagOverride = 0x80, 0x40, 0x20

	optionSourceMAC = 1
	optionTargetMAC = 2

	// neighbourHops is the hop limit that proves that a message was not forwarded by a
	// router.
	neighbourHops = 255
)

var (
	broadcastMAC = openflow.MAC{255, 255, 255, 255, 255, 255}
	// allNodes is the IPv6 all-nodes multicast address, with its MAC address.
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = openflow.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// resolution is a parsed ARP or neighbour discovery message.
type resolution struct {
	request bool
	target  netip.Addr // of a request
	asker   netip.Addr // sender of a request
	// ip is the address whose MAC address the message announces; invalid if it announces
	// none.
	ip  netip.Addr
	mac openflow.MAC
	// weak says that the message must not replace a known MAC address of ip.
	weak bool
}

// readResolution parses an ARP or neighbour discovery message; ok is false for other
// frames.
func readResolution(etherType uint16, frame []byte) (resolution, bool) {
	switch etherType {
	case etherARP:
		return readARP(frame)
	case etherIPv6:
		return readND(frame)
	}
	return resolution{}, false
}

func readARP(frame []byte) (r resolution, ok bool) {
	if len(frame) < ethernetBytes+arpBytes {
		return r, false
	}
	b := frame[ethernetBytes:]
	if [6]byte(b) != [6]byte{0, 1, 8, 0, 6, 4} || b[6] != 0 || b[7] != 1 && b[7] != 2 {
		return r, false
	}
	sender := netip.AddrFrom4([4]byte(b[14:]))
	return resolution{
		request: b[7] == 1, target: netip.AddrFrom4([4]byte(b[24:])), asker: sender, ip: sender, mac: openflow.MAC(b[8:14]),
	}, true
}

// readND parses neighbour solicitations and advertisements that pass the checks of RFC
// 4861, section 7.1.
func readND(frame []byte) (r resolution, ok bool) {
	h, ok := readIP(frame)
	b := h.upper
	if !ok || h.proto != inet6.icmp || h.hops != neighbourHops || h.fragment || h.cut || len(b) < solicitBytes || b[1] != 0 {
		return r, false
	}
	target := netip.AddrFrom16([16]byte(b[8:]))
	if h.src.IsMulticast() || target.IsMulticast() || checksum(pseudoHeader(h.src, h.dst, len(b)), b) != 0 {
		return r, false
	}
	options, ok := macOptions(b[solicitBytes:])
	switch {
	case !ok:
		return r, false
	case b[0] == neighbourSolicitation:
		r = resolution{request: true, target: target, asker: h.src}
		mac, told := options[optionSourceMAC]
		if told {
			r.ip, r.mac = h.src, mac
		}
		return r, !h.src.IsUnspecified() || h.dst.IsMulticast() && !told
	case b[0] == neighbourAdvertisement:
		if mac, told := options[optionTargetMAC]; told {
			r.ip, r.mac, r.weak = target, mac, b[4]&flagOverride == 0
		}
		return r, !h.dst.IsMulticast() || b[4]&flagSolicited == 0
	}
	return r, false
}

// macOptions returns the link-layer address options by type; false if any option has a
// wrong length.
func macOptions(b []byte) (map[byte]openflow.MAC, bool) {
	found := map[byte]openflow.MAC{}
	for len(b) > 0 {
		if len(b) < 8 || b[1] == 0 || len(b) < int(b[1])*8 {
			return nil, false
		}
		if b[1] == 1 {
			found[b[0]] = openflow.MAC(b[2:8])
		}
		b = b[int(b[1])*8:]
	}
	return found, true
}

// question returns the ARP request or neighbour solicitation of a gateway for an address.
func question(gateway, target netip.Addr) []byte {
	if target.Is4() {
		return arpFrame(1, broadcastMAC, gateway, openflow.MAC{}, target)
	}
	// The solicited-node multicast address (RFC 4291, section 2.7.1).
	end := target.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], end[13:])
	to := openflow.MAC{0x33, 0x33, 0xff, end[13], end[14], end[15]}
	return ndFrame(neighbourSolicitation, 0, optionSourceMAC, to, gateway, netip.AddrFrom16(group), target)
}

// answer returns the ARP reply or neighbour advertisement of a gateway for its address.
func answer(r *resolution, to openflow.MAC) []byte {
	switch {
	case r.target.Is4():
		return arpFrame(2, to, r.target, to, r.asker)
	case r.asker.IsUnspecified(): // duplicate address detection
		return ndFrame(neighbourAdvertisement, flagRouter|flagOverride, optionTargetMAC, allNodesMAC, r.target, allNodes, r.target)
	}
	return ndFrame(neighbourAdvertisement, flagRouter|flagSolicited|flagOverride, optionTargetMAC, to, r.target, r.asker, r.target)
}

func arpFrame(operation byte, to openflow.MAC, gateway netip.Addr, mac openflow.MAC, ip netip.Addr) []byte {
	b := append(ethernet(to, etherARP), 0, 1, 8, 0, 6, 4, 0, operation)
	return slices.Concat(b, gatewayMAC[:], gateway.AsSlice(), mac[:], ip.AsSlice())
}

func ndFrame(kind, flags, option byte, to openflow.MAC, gateway, dst, target netip.Addr) []byte {
	b := make([]byte, 4, solicitBytes+8)
	b[0] = kind
	b = binary.BigEndian.AppendUint32(b, uint32(flags)<<24)
	b = append(append(b, target.AsSlice()...), option, 1)
	return icmpFrame(to, ip{hops: neighbourHops, src: gateway, dst: dst}, append(b, gatewayMAC[:]...))
}
