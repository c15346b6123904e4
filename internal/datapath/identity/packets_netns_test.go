//go:build netns

package identity_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

// model is a flow that packets are made of.
type model struct {
	proto                int
	initiator, responder netip.AddrPort
	tags                 int
	options              []byte // of a SYN
	extensions           []uint8
	ipOptions            int // words
	ttl                  uint8
}

// randomAddress is one of a family, never the same in two flows but by chance.
func randomAddress(r *rand.Rand, six bool) netip.Addr {
	if !six {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], r.Uint32())
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], r.Uint64())
	binary.BigEndian.PutUint64(b[8:], r.Uint64())
	return netip.AddrFrom16(b)
}

func randomPort(r *rand.Rand) uint16 {
	known := []uint16{22, 25, 53, 80, 110, 123, 443, 554, 873, 1194, 1883, 3478, 5060, 5222, 5432, 6881, 8080, 27015, 51413}
	if r.IntN(3) > 0 {
		return known[r.IntN(len(known))]
	}
	return uint16(r.Uint32())
}

func randomFlow(r *rand.Rand) model {
	six := r.IntN(2) == 0
	m := model{
		proto:     []int{flow.TCP, flow.UDP}[r.IntN(2)],
		initiator: netip.AddrPortFrom(randomAddress(r, six), uint16(r.Uint32())),
		responder: netip.AddrPortFrom(randomAddress(r, six), randomPort(r)),
		ttl:       uint8(r.Uint32()),
	}
	if r.IntN(4) == 0 {
		m.tags = r.IntN(5)
	}
	if r.IntN(4) == 0 {
		m.ipOptions = r.IntN(11)
	}
	for r.IntN(3) == 0 && len(m.extensions) < 9 {
		m.extensions = append(m.extensions, []uint8{0, 43, 60, 51}[r.IntN(4)])
	}
	for _, option := range [][]byte{{2, 4, uint8(r.Uint32()), uint8(r.Uint32())}, {4, 2}, {1}, {3, 3, uint8(r.Uint32())}, {8, 10, 0, 0, 0, 1, 0, 0, 0, 0}, {99, 0}} {
		if r.IntN(2) == 0 && len(m.options)+len(option) <= 40 {
			m.options = append(m.options, option...)
		}
	}
	for len(m.options)%4 != 0 {
		m.options = append(m.options, 1)
	}
	return m
}

// plainFlow is one whose headers are all within reach.
func plainFlow(r *rand.Rand) model {
	m := randomFlow(r)
	m.tags = min(m.tags, 3)
	m.extensions = m.extensions[:min(len(m.extensions), 7)]
	return m
}

// transport is a packet's transport header and payload.
func (m model) transport(out, first bool, size int) []byte {
	src, dst := m.initiator.Port(), m.responder.Port()
	if !out {
		src, dst = dst, src
	}
	b := binary.BigEndian.AppendUint16(nil, src)
	b = binary.BigEndian.AppendUint16(b, dst)
	if m.proto == flow.UDP {
		b = binary.BigEndian.AppendUint16(b, uint16(8+size))
		return append(b, make([]byte, 2+size)...)
	}
	flags, options := byte(0x10), []byte(nil)
	if first {
		flags, options = 2, m.options
	}
	b = append(b, make([]byte, 8)...)
	b = append(b, byte(5+len(options)/4)<<4, flags, 0xfa, 0xf0, 0, 0, 0, 0)
	return append(append(b, options...), make([]byte, size)...)
}

// frame is an Ethernet frame of the flow.
func (m model) frame(out, first bool, size int) []byte {
	src, dst := m.initiator.Addr(), m.responder.Addr()
	if !out {
		src, dst = dst, src
	}
	payload := m.transport(out, first, size)
	b := make([]byte, 12)
	for range m.tags {
		b = append(b, 0x81, 0, 0, 7)
	}
	if src.Is4() {
		length := 20 + 4*m.ipOptions + len(payload)
		b = append(b, 8, 0, 0x45+byte(m.ipOptions), 0, byte(length>>8), byte(length), 0, 1, 0, 0, m.ttl, byte(m.proto), 0, 0)
		b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
		for range m.ipOptions {
			b = append(b, 1, 1, 1, 1)
		}
		return append(b, payload...)
	}
	var chain []byte
	next := byte(m.proto)
	for _, kind := range m.extensions {
		length := byte(0)
		if kind == 51 { // counts words of four, but two
			length = 1
		}
		header := append([]byte{next, length}, make([]byte, 6)...)
		if kind == 51 {
			header = append(header, make([]byte, 4)...)
		}
		chain, next = append(header, chain...), kind
	}
	payload = append(chain, payload...)
	b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, byte(len(payload)>>8), byte(len(payload)), next, m.ttl)
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	return append(b, payload...)
}

// randomPacket is a packet that could begin a flow.
func randomPacket(r *rand.Rand) []byte {
	m := randomFlow(r)
	packet := m.frame(true, r.IntN(4) > 0, r.IntN(64))
	if r.IntN(20) == 0 && m.initiator.Addr().Is4() { // a fragment, also later ones
		binary.BigEndian.PutUint16(packet[14+4*m.tags+6:], uint16(r.IntN(0x4000)))
	}
	return packet
}

// damage changes bytes, or cuts a packet off.
func damage(r *rand.Rand, packet []byte) []byte {
	packet = append([]byte(nil), packet...)
	for range 1 + r.IntN(3) {
		at := 12 + r.IntN(min(len(packet)-12, 70))
		packet[at] = byte(r.Uint32())
	}
	if r.IntN(2) == 0 {
		packet = packet[:15+r.IntN(len(packet)-14)]
	}
	return runnable(packet)
}

// runnable makes a packet as long as the kernel wants one for BPF_PROG_TEST_RUN: of
// what it takes for IP the header. Inside of VLAN tags it may be cut off anywhere.
func runnable(packet []byte) []byte {
	least := 15
	switch binary.BigEndian.Uint16(packet[12:]) {
	case 0x0800:
		least = 14 + 20
	case 0x86dd:
		least = 14 + 40
	}
	return append(packet, make([]byte, max(0, least-len(packet)))...)
}

func fragment4(m model, id uint32, offset, size int, more bool) []byte {
	b := m.frame(true, true, size)
	if offset > 0 {
		copy(b[34:], make([]byte, 8)) // no ports
	}
	binary.BigEndian.PutUint16(b[18:], uint16(id))
	field := uint16(offset / 8)
	if more {
		field |= 0x2000
	}
	binary.BigEndian.PutUint16(b[20:], field)
	return b
}

func fragment6(m model, id uint32, offset, size int, more bool) []byte {
	m.extensions = []uint8{60}
	b := m.frame(true, true, size)
	b[14+6] = 44 // the extension becomes a fragment header
	field := uint16(offset)
	if more {
		field |= 1
	}
	binary.BigEndian.PutUint16(b[56:], field)
	binary.BigEndian.PutUint32(b[58:], id)
	if offset > 0 {
		copy(b[62:], make([]byte, 8))
	}
	return b
}

// hostile are packets that a parser may stumble over.
func hostile() map[string][]byte {
	r := rand.New(rand.NewPCG(10, 11))
	four := model{proto: flow.TCP, initiator: netip.MustParseAddrPort("198.18.0.1:1000"), responder: netip.MustParseAddrPort("198.18.0.2:443"), ttl: 64}
	six := four
	six.initiator, six.responder = netip.MustParseAddrPort("[fd00::1]:1000"), netip.MustParseAddrPort("[fd00::2]:443")
	with := func(m model, change func(*model)) []byte {
		m.initiator = netip.AddrPortFrom(m.initiator.Addr(), uint16(r.Uint32()))
		change(&m)
		return m.frame(true, true, 10)
	}
	out := map[string][]byte{
		"IP options":          with(four, func(m *model) { m.ipOptions = 10 }),
		"VLAN in VLAN":        with(four, func(m *model) { m.tags = 2 }),
		"five tags":           with(six, func(m *model) { m.tags = 5 }),
		"zero-length option":  with(four, func(m *model) { m.options = []byte{2, 0, 3, 0} }),
		"option past the end": with(four, func(m *model) { m.options = []byte{1, 1, 2, 40} }),
		"40 empty options":    with(four, func(m *model) { m.options = make([]byte, 40) }),
		"40 of nothing": with(four, func(m *model) {
			m.options = []byte("\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01")
		}),
		"eight extensions":       with(six, func(m *model) { m.extensions = []uint8{60, 60, 60, 60, 60, 60, 60, 60} }),
		"seven extensions":       with(six, func(m *model) { m.extensions = []uint8{60, 43, 0, 51, 60, 60, 60} }),
		"nothing but a header":   runnable(with(four, func(*model) {})[:15]),
		"a header of 0 words":    with(four, func(*model) {}),
		"an extension too large": with(six, func(m *model) { m.extensions = []uint8{0} }),
	}
	out["a header of 0 words"][14] = 0x40
	out["an extension too large"][14+41] = 0xff
	return out
}

// randomTree asks for every feature of the first packet.
func randomTree(r *rand.Rand) *apps.Compact {
	c := &apps.Compact{Roots: [2][]uint16{{0}, {0}}}
	thresholds := map[uint8]uint32{0: 6, 1: 30000, 2: 1000, 3: 20000, 4: 100, 5: 100, 6: 100, 7: 0, 8: 3, 9: 0, 10: 4, 11: 1, 12: 1, 13: 20, 14: 100}
	var add func(depth int) uint16
	add = func(depth int) uint16 {
		at := len(c.Nodes)
		c.Nodes = append(c.Nodes, apps.CompactNode{})
		if depth == 0 {
			c.Nodes[at] = apps.CompactNode{
				Feature: apps.LeafFeature, Type: uint8(r.IntN(apps.NumTypes)), Level: uint8(r.IntN(apps.NumLevels)),
				TypeConfidence: uint16(r.Uint32()), LevelConfidence: uint16(r.Uint32()),
			}
			return uint16(at)
		}
		f := uint8(r.IntN(15))
		n := apps.CompactNode{Feature: f, Threshold: thresholds[f]}
		n.Left = add(depth - 1)
		n.Right = add(depth - 1)
		c.Nodes[at] = n
		return uint16(at)
	}
	add(10)
	c.MinConfidence = 20000
	return c
}
