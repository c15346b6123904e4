package core

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Lengths of headers.
const (
	ethernetBytes = 14
	ipv4Bytes     = 20
	ipv6Bytes     = 40
	icmpBytes     = 8
)

// gatewayHops is the TTL or hop limit of packets that a gateway originates.
const gatewayHops = 64

// family holds what differs between IPv4 and IPv6.
type family struct {
	etherType uint16
	icmp      uint8 // IP protocol number of ICMP
	// Types of ICMP.
	echoRequest, echoReply, unreachable, timeExceeded byte
	// ICMP codes of unreachable: the scope of an address was exceeded; the next hop does
	// not answer. Code 0 means no route.
	beyondScope, noAnswer byte
	headerBytes           int // header length without options and extensions
	errorBytes            int // largest packet with an ICMP error, in bytes
}

var (
	inet4 = family{ // RFC 792, RFC 1812
		etherType: etherIPv4, headerBytes: ipv4Bytes, icmp: 1, echoRequest: 8, echoReply: 0, unreachable: 3, timeExceeded: 11, noAnswer: 1, errorBytes: 576,
	}
	inet6 = family{ // RFC 4443
		etherType: etherIPv6, headerBytes: ipv6Bytes, icmp: 58, echoRequest: 128, echoReply: 129, unreachable: 1, timeExceeded: 3, beyondScope: 2, noAnswer: 3,
		errorBytes: 1280,
	}
)

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return &inet4
	}
	return &inet6
}

// ip is the parsed IPv4 or IPv6 header of an untagged frame.
type ip struct {
	class    byte  // type of service, traffic class
	hops     uint8 // TTL, hop limit
	proto    uint8 // for IPv6, the protocol after the extension headers
	src, dst netip.Addr
	// fragment reports a fragment of a packet; later one that is not the first fragment.
	fragment, later bool
	packet          []byte // from the IP header on, without frame padding
	upper           []byte // payload after the IP headers; nil if the headers are truncated or malformed
	cut             bool   // the end of the packet is missing in the frame
}

// readIP parses the IP header of a frame; ok is false if the frame is not IP.
func readIP(frame []byte) (h ip, ok bool) {
	if len(frame) < ethernetBytes {
		return h, false
	}
	b := frame[ethernetBytes:]
	switch kind := binary.BigEndian.Uint16(frame[ethernetBytes-2:]); {
	case kind == etherIPv4 && len(b) >= ipv4Bytes && b[0]>>4 == 4:
		return readIPv4(b)
	case kind == etherIPv6 && len(b) >= ipv6Bytes && b[0]>>4 == 6:
		return readIPv6(b), true
	}
	return h, false
}

func readIPv4(b []byte) (h ip, ok bool) {
	header, whole, fragment := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:])), binary.BigEndian.Uint16(b[6:])
	if header < ipv4Bytes || len(b) < header || whole > 0 && whole < header {
		return h, false
	}
	h = ip{
		class: b[1], hops: b[8], proto: b[9], src: netip.AddrFrom4([4]byte(b[12:])), dst: netip.AddrFrom4([4]byte(b[16:])),
		fragment: fragment&0x3fff != 0, later: fragment&0x1fff != 0,
	}
	h.end(b, whole)
	if !h.later {
		h.upper = h.packet[header:]
	}
	return h, true
}

func readIPv6(b []byte) ip {
	h := ip{
		class: byte(binary.BigEndian.Uint16(b) >> 4), hops: b[7], proto: b[6],
		src: netip.AddrFrom16([16]byte(b[8:])), dst: netip.AddrFrom16([16]byte(b[24:])),
	}
	whole := 0
	if n := int(binary.BigEndian.Uint16(b[4:])); n > 0 {
		whole = ipv6Bytes + n
	}
	h.end(b, whole)
	h.skipExtensions(h.packet[ipv6Bytes:])
	return h
}

// end sets the packet without frame padding. A length of 0 means that the network card
// fills it in.
func (h *ip) end(b []byte, whole int) {
	if whole == 0 {
		whole = len(b)
	}
	h.packet, h.cut = b[:min(whole, len(b))], whole > len(b)
}

// maxExtensions limits the chain of IPv6 extension headers.
const maxExtensions = 8

// skipExtensions finds the payload after the IPv6 extension headers (RFC 8200, section 4).
func (h *ip) skipExtensions(b []byte) {
	for range maxExtensions {
		size := 8
		switch h.proto {
		case 0, 43, 60: // hop by hop, routing, destination
			if len(b) >= 2 {
				size = int(b[1])*8 + 8
			}
		case 51: // authentication, RFC 4302
			if len(b) >= 2 {
				size = int(b[1])*4 + 8
			}
		case 44: // fragment
			if len(b) >= 4 {
				h.fragment, h.later = true, binary.BigEndian.Uint16(b[2:])&0xfff8 != 0
			}
		default:
			h.upper = b
			return
		}
		if len(b) < size {
			return
		}
		if h.proto, b = b[0], b[size:]; h.later {
			return
		}
	}
}

// checksum returns the Internet checksum (RFC 1071) over parts. All parts except the last
// have an even length.
func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, b := range parts {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
		if len(b)%2 == 1 {
			sum += uint32(b[len(b)-1]) << 8
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
	}
	return ^uint16(sum)
}

// pseudoHeader returns the pseudo-header of the ICMPv6 checksum (RFC 8200, section 8.1), or
// nil for ICMPv4.
func pseudoHeader(src, dst netip.Addr, upperBytes int) []byte {
	if src.Is4() {
		return nil
	}
	b := slices.Concat(src.AsSlice(), dst.AsSlice())
	return append(binary.BigEndian.AppendUint32(b, uint32(upperBytes)), 0, 0, 0, inet6.icmp)
}

func ethernet(to openflow.MAC, kind uint16) []byte {
	return binary.BigEndian.AppendUint16(append(to[:], gatewayMAC[:]...), kind)
}

// icmpFrame returns a frame of a gateway with an ICMP message, taking class, hop limit and
// addresses from h. It fills in the checksums.
func icmpFrame(to openflow.MAC, h ip, icmp []byte) []byte {
	icmp[2], icmp[3] = 0, 0
	binary.BigEndian.PutUint16(icmp[2:], checksum(pseudoHeader(h.src, h.dst, len(icmp)), icmp))
	var header []byte
	if h.src.Is4() {
		header = make([]byte, ipv4Bytes)
		header[0], header[1], header[8], header[9] = 0x45, h.class, h.hops, inet4.icmp
		binary.BigEndian.PutUint16(header[2:], uint16(ipv4Bytes+len(icmp)))
		copy(header[12:], h.src.AsSlice())
		copy(header[16:], h.dst.AsSlice())
		binary.BigEndian.PutUint16(header[10:], checksum(header))
	} else {
		header = make([]byte, ipv6Bytes)
		binary.BigEndian.PutUint16(header, 6<<12|uint16(h.class)<<4)
		binary.BigEndian.PutUint16(header[4:], uint16(len(icmp)))
		header[6], header[7] = inet6.icmp, h.hops
		copy(header[8:], h.src.AsSlice())
		copy(header[24:], h.dst.AsSlice())
	}
	return slices.Concat(ethernet(to, familyOf(h.src).etherType), header, icmp)
}

// icmpError returns a gateway's ICMP error about a received frame, or nil if no error may
// be sent (RFC 1122, 3.2.2; RFC 4443, 2.4): for later fragments, ICMP errors and malformed
// headers.
func icmpError(kind, code byte, gateway netip.Addr, frame []byte, h *ip) []byte {
	f := familyOf(h.src)
	if h.upper == nil || h.proto == f.icmp && (len(h.upper) == 0 || !f.mayComplain(h.upper[0])) {
		return nil
	}
	quoted := min(len(h.packet), f.errorBytes-icmpBytes-f.headerBytes)
	icmp := append(make([]byte, icmpBytes), h.packet[:quoted]...)
	icmp[0], icmp[1] = kind, code
	return icmpFrame(openflow.MAC(frame[6:12]), ip{hops: gatewayHops, src: gateway, dst: h.src}, icmp)
}

// icmpRedirect is the ICMPv6 redirect type, which counts as an error here.
const icmpRedirect = 137

// mayComplain reports whether an ICMP message of a type may be answered with an ICMP error.
func (f *family) mayComplain(kind byte) bool {
	if f == &inet4 {
		return kind == f.echoRequest
	}
	return kind >= f.echoRequest && kind != icmpRedirect
}

// echoReply returns the reply to a ping of a gateway, or nil for other packets.
func echoReply(frame []byte, h *ip) []byte {
	f := familyOf(h.dst)
	if h.cut || h.fragment || h.proto != f.icmp || len(h.upper) < icmpBytes || h.upper[0] != f.echoRequest {
		return nil
	}
	icmp := slices.Clone(h.upper)
	icmp[0] = f.echoReply
	return icmpFrame(openflow.MAC(frame[6:12]), ip{class: h.class, hops: gatewayHops, src: h.dst, dst: h.src}, icmp)
}
