package flow

import (
	"encoding/binary"
	"net/netip"
)

// Endpoint is one side of a flow.
type Endpoint struct {
	Addr [16]byte // an IPv4 address uses the first four bytes
	IPv6 bool
	Port uint16
}

func endpoint(addr []byte, port uint16) Endpoint {
	e := Endpoint{Port: port, IPv6: len(addr) == 16}
	copy(e.Addr[:], addr)
	return e
}

func (e Endpoint) String() string {
	address := netip.AddrFrom16(e.Addr)
	if !e.IPv6 {
		address = netip.AddrFrom4([4]byte(e.Addr[:]))
	}
	return netip.AddrPortFrom(address, e.Port).String()
}

// Headers are the parsed headers of a packet: both endpoints, the fields used for features,
// and the payload length.
type Headers struct {
	Src, Dst Endpoint
	Proto    int
	TTL      int
	Payload  int
	// TCP only.
	SYN, ACK, FIN, RST bool
	Window             int
	MSS                int // 0 without the option
	WScale             int // -1 without the option
}

// Parse parses a packet from its IP header on. It returns false for protocols other than
// TCP and UDP, for all fragments but the first, and for truncated headers.
func Parse(b []byte) (Headers, bool) {
	h := Headers{WScale: -1}
	if len(b) < 1 {
		return h, false
	}
	switch b[0] >> 4 {
	case 4:
		return parseIPv4(h, b)
	case 6:
		return parseIPv6(h, b)
	}
	return h, false
}

func parseIPv4(h Headers, b []byte) (Headers, bool) {
	if len(b) < 20 {
		return h, false
	}
	size, length := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if length == 0 { // the network card fills it in
		length = len(b)
	}
	if size < 20 || len(b) < size || length < size || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
		return h, false
	}
	h.TTL, h.Proto = int(b[8]), int(b[9])
	return parseTransport(h, b[12:16], b[16:20], b[size:], length-size)
}

// maxExtensions limits the chain of IPv6 extension headers.
const maxExtensions = 8

func parseIPv6(h Headers, b []byte) (Headers, bool) {
	if len(b) < 40 {
		return h, false
	}
	length, next := int(binary.BigEndian.Uint16(b[4:])), int(b[6])
	h.TTL = int(b[7])
	src, dst := b[8:24], b[24:40]
	b = b[40:]
	if length == 0 { // a jumbogram, or the network card fills it in
		length = len(b)
	}
	for range maxExtensions {
		size := 0
		switch next {
		case 0, 43, 60, 135: // hop by hop, routing, destination, mobility
			if len(b) < 8 {
				return h, false
			}
			size = int(b[1])*8 + 8
		case 44: // fragment
			if len(b) < 8 || binary.BigEndian.Uint16(b[2:])&0xfff8 != 0 {
				return h, false
			}
			size = 8
		case 51: // authentication
			if len(b) < 8 {
				return h, false
			}
			size = int(b[1])*4 + 8
		default:
			h.Proto = next
			return parseTransport(h, src, dst, b, length)
		}
		if len(b) < size || length < size {
			return h, false
		}
		next, b, length = int(b[0]), b[size:], length-size
	}
	return h, false
}

func parseTransport(h Headers, src, dst, b []byte, length int) (Headers, bool) {
	if len(b) < 8 {
		return h, false
	}
	h.Src = endpoint(src, binary.BigEndian.Uint16(b))
	h.Dst = endpoint(dst, binary.BigEndian.Uint16(b[2:]))
	switch h.Proto {
	case UDP:
		h.Payload = max(length-8, 0)
		return h, true
	case TCP:
		if len(b) < 20 {
			return h, false
		}
		size := int(b[12]>>4) * 4
		if size < 20 || length < size {
			return h, false
		}
		h.FIN, h.SYN, h.RST, h.ACK = b[13]&1 != 0, b[13]&2 != 0, b[13]&4 != 0, b[13]&16 != 0
		h.Window = int(binary.BigEndian.Uint16(b[14:]))
		h.Payload = length - size
		h.options(b[20:min(size, len(b))])
		return h, true
	}
	return h, false
}

// options parses the MSS and window scale options.
func (h *Headers) options(b []byte) {
	for len(b) > 0 {
		switch {
		case b[0] == 0:
			return
		case b[0] == 1:
			b = b[1:]
			continue
		case len(b) < 2 || b[1] < 2 || int(b[1]) > len(b):
			return
		case b[0] == 2 && b[1] == 4:
			h.MSS = int(binary.BigEndian.Uint16(b[2:]))
		case b[0] == 3 && b[1] == 3:
			h.WScale = int(b[2])
		}
		b = b[b[1]:]
	}
}
