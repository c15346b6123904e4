package core

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Lengths of headers, and of the part of a packet that an ICMP error quotes
// (RFC 792).
const (
	ethernetBytes = 14
	ipv4Bytes     = 20
	icmpBytes     = 8
	arpBytes      = 28
	quotedBytes   = 8
)

// ICMP's types and codes. RFC 792.
const (
	protocolICMP     = 1
	icmpEchoReply    = 0
	icmpUnreachable  = 3 // its code 0: network, 1: host
	icmpEchoRequest  = 8
	icmpTimeExceeded = 11
)

// gatewayTTL is that of packets which a gateway sends itself.
const gatewayTTL = 64

// ipv4 is the header of a packet behind an untagged Ethernet header.
type ipv4 struct {
	headerBytes int
	ttl, proto  uint8
	fragment    bool
	src, dst    netip.Addr
}

func readIPv4(frame []byte) (h ipv4, ok bool) {
	if len(frame) < ethernetBytes+ipv4Bytes {
		return h, false
	}
	b := frame[ethernetBytes:]
	h = ipv4{
		headerBytes: int(b[0]&15) * 4, ttl: b[8], proto: b[9], fragment: binary.BigEndian.Uint16(b[6:])&0x3fff != 0,
		src: netip.AddrFrom4([4]byte(b[12:])), dst: netip.AddrFrom4([4]byte(b[16:])),
	}
	return h, b[0]>>4 == 4 && h.headerBytes >= ipv4Bytes && len(b) >= h.headerBytes
}

// arp is a packet of RFC 826 for IPv4 over Ethernet.
type arp struct {
	request            bool
	senderMAC          openflow.MAC
	senderIP, targetIP netip.Addr
}

func readARP(frame []byte) (a arp, ok bool) {
	if len(frame) < ethernetBytes+arpBytes {
		return a, false
	}
	b := frame[ethernetBytes:]
	if [6]byte(b) != [6]byte{0, 1, 8, 0, 6, 4} || b[6] != 0 || b[7] != 1 && b[7] != 2 {
		return a, false
	}
	return arp{
		request: b[7] == 1, senderMAC: openflow.MAC(b[8:14]), senderIP: netip.AddrFrom4([4]byte(b[14:])), targetIP: netip.AddrFrom4([4]byte(b[24:])),
	}, true
}

func ethernet(to openflow.MAC, kind uint16) []byte {
	return binary.BigEndian.AppendUint16(append(to[:], gatewayMAC[:]...), kind)
}

// arpFrame is a gateway's request, of which the target is all zeroes, or answer.
func arpFrame(gateway netip.Addr, mac openflow.MAC, ip netip.Addr) []byte {
	to, operation := mac, byte(2)
	if mac == (openflow.MAC{}) {
		to, operation = openflow.MAC{255, 255, 255, 255, 255, 255}, 1
	}
	b := append(ethernet(to, etherARP), 0, 1, 8, 0, 6, 4, 0, operation)
	return slices.Concat(b, gatewayMAC[:], gateway.AsSlice(), mac[:], ip.AsSlice())
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// icmpError is what a gateway says about a packet, or nil where nobody may be told
// (RFC 1122, 3.2.2): of fragments and of other errors.
func icmpError(kind, code byte, gateway netip.Addr, frame []byte, h *ipv4) []byte {
	packet := frame[ethernetBytes:]
	if h.fragment || h.proto == protocolICMP && (len(packet) <= h.headerBytes || packet[h.headerBytes] != icmpEchoRequest) {
		return nil
	}
	icmp := append(make([]byte, icmpBytes), packet[:min(len(packet), h.headerBytes+quotedBytes)]...)
	icmp[0], icmp[1] = kind, code
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
	ip := make([]byte, ipv4Bytes)
	ip[0], ip[8], ip[9] = 0x45, gatewayTTL, protocolICMP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(icmp)))
	copy(ip[12:], gateway.AsSlice())
	copy(ip[16:], h.src.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return slices.Concat(ethernet(openflow.MAC(frame[6:12]), etherIPv4), ip, icmp)
}

// echoReply answers a ping of a gateway; nil for all else.
func echoReply(frame []byte, h *ipv4) []byte {
	whole := int(binary.BigEndian.Uint16(frame[ethernetBytes+2:]))
	if h.fragment || h.proto != protocolICMP || whole < h.headerBytes+icmpBytes || len(frame) < ethernetBytes+whole {
		return nil
	}
	packet := slices.Clone(frame[ethernetBytes : ethernetBytes+whole])
	ip, icmp := packet[:h.headerBytes], packet[h.headerBytes:]
	if icmp[0] != icmpEchoRequest {
		return nil
	}
	ip[8] = gatewayTTL
	copy(ip[12:], h.dst.AsSlice())
	copy(ip[16:], h.src.AsSlice())
	icmp[0] = icmpEchoReply
	for _, part := range []struct{ of, at []byte }{{ip, ip[10:12]}, {icmp, icmp[2:4]}} {
		clear(part.at)
		binary.BigEndian.PutUint16(part.at, checksum(part.of))
	}
	return append(ethernet(openflow.MAC(frame[6:12]), etherIPv4), packet...)
}
