// Package packets builds IP packets for tests.
package packets

import "encoding/binary"

// IPv4 is a packet from its IP header on.
func IPv4(proto byte, src, dst byte, transport []byte) []byte {
	b := make([]byte, 20, 20+len(transport))
	b[0], b[8], b[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(transport)))
	copy(b[12:], []byte{198, 18, 0, src, 198, 18, 0, dst})
	return append(b, transport...)
}

// UDP is a datagram of payload bytes with its header.
func UDP(src, dst uint16, payload int) []byte {
	b := make([]byte, 8+payload)
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return b
}

// TCP is a segment of payload bytes with its header; flags are FIN 1, SYN 2, RST 4, ACK 16.
func TCP(src, dst uint16, flags byte, options []byte, payload int) []byte {
	b := make([]byte, 20, 20+len(options)+payload)
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	b[12], b[13] = byte(20+len(options))<<2, flags
	binary.BigEndian.PutUint16(b[14:], 64240)
	b = append(b, options...)
	return append(b, make([]byte, payload)...)
}
