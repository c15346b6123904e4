package topology

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// EtherTypeLLDP is the Ethernet type of LLDP (IEEE 802.1AB, 8.3).
const EtherTypeLLDP = 0x88cc

// lldpTo is the nearest-bridge group address, which bridges never forward (IEEE 802.1AB,
// table 7-1).
var lldpTo = [6]byte{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}

// probeTo is a multicast address without members, so that bridges flood its frames to all
// ports.
var probeTo = [6]byte{0x03, 'W', 'e', 'i', 'r', 1}

// Types of TLVs. IEEE 802.1AB, 8.4.
const (
	tlvEnd        = 0
	tlvChassis    = 1
	tlvPort       = 2
	tlvTTL        = 3
	tlvSpecific   = 127 // organizationally specific TLV
	subtypeLocal  = 7   // locally assigned chassis and port names
	ttlSeconds    = 120
	signatureLen  = 16
	signatureType = 1
)

// organization is the identifier of the signature TLV. Bit 1 of its first byte marks it as
// locally administered.
var organization = [3]byte{0x02, 'W', 'e'}

// Signer signs and verifies the LLDP frames of one controller. Its key is secret and new at
// every start.
type Signer struct{ Key [32]byte }

// Errors of frames that do not prove a link.
var (
	ErrForeign = errors.New("LLDP of another sender")
	ErrForged  = errors.New("LLDP with a wrong signature")
	ErrStale   = errors.New("LLDP of an earlier round")
)

func (s *Signer) signature(p Port, round uint64) []byte {
	mac := hmac.New(sha256.New, s.Key[:])
	_ = binary.Write(mac, binary.BigEndian, struct {
		Port  Port
		Round uint64
	}{p, round})
	return mac.Sum(nil)[:signatureLen]
}

// Frame returns the signed LLDP frame of a port for a round.
func (s *Signer) Frame(p Port, source [6]byte, round uint64) []byte {
	b := append(append(lldpTo[:], source[:]...), EtherTypeLLDP>>8, EtherTypeLLDP&0xff)
	tlv := func(kind int, parts ...[]byte) {
		n := 0
		for _, part := range parts {
			n += len(part)
		}
		b = binary.BigEndian.AppendUint16(b, uint16(kind<<9|n))
		for _, part := range parts {
			b = append(b, part...)
		}
	}
	tlv(tlvChassis, []byte{subtypeLocal}, binary.BigEndian.AppendUint64(nil, uint64(p.Switch)))
	tlv(tlvPort, []byte{subtypeLocal}, binary.BigEndian.AppendUint32(nil, p.Number))
	tlv(tlvTTL, []byte{0, ttlSeconds})
	tlv(tlvSpecific, organization[:], []byte{signatureType}, binary.BigEndian.AppendUint64(nil, round), s.signature(p, round))
	tlv(tlvEnd)
	return b
}

// Probe returns an LLDP frame readdressed so that ordinary bridges forward it.
func Probe(frame []byte) []byte {
	return append(probeTo[:len(probeTo):len(probeTo)], frame[len(probeTo):]...)
}

// IsProbe reports whether a frame is a probe, not LLDP of the direct neighbour.
func IsProbe(frame []byte) bool { return len(frame) >= 6 && [6]byte(frame) == probeTo }

// Open returns the port that sent a frame. The frame must be of the present or the previous
// round, so that recordings cannot be replayed.
func (s *Signer) Open(frame []byte, round uint64) (Port, error) {
	if len(frame) < 14 || binary.BigEndian.Uint16(frame[12:]) != EtherTypeLLDP {
		return Port{}, ErrForeign
	}
	var p Port
	var signed []byte
	for b := frame[14:]; len(b) >= 2; {
		head := binary.BigEndian.Uint16(b)
		kind, n := int(head>>9), int(head&0x1ff)
		if kind == tlvEnd || len(b) < 2+n {
			break
		}
		value := b[2 : 2+n]
		b = b[2+n:]
		switch {
		case kind == tlvChassis && n == 9 && value[0] == subtypeLocal:
			p.Switch = DPID(binary.BigEndian.Uint64(value[1:]))
		case kind == tlvPort && n == 5 && value[0] == subtypeLocal:
			p.Number = binary.BigEndian.Uint32(value[1:])
		case kind == tlvSpecific && n == 12+signatureLen && [3]byte(value) == organization && value[3] == signatureType:
			signed = value[4:]
		}
	}
	if signed == nil {
		return Port{}, ErrForeign
	}
	sent := binary.BigEndian.Uint64(signed)
	if !hmac.Equal(signed[8:], s.signature(p, sent)) {
		return Port{}, ErrForged
	}
	if sent > round || round-sent > 1 {
		return Port{}, ErrStale
	}
	return p, nil
}
