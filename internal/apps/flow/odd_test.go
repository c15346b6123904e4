package flow

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// extended is IPv6 with UDP behind one extension header.
func extended(kind byte, header ...byte) []byte {
	transport := udp(1000, 2000, 4)
	b := make([]byte, 40)
	b[0], b[6] = 0x60, kind
	b = append(append(b, header...), transport...)
	binary.BigEndian.PutUint16(b[4:], uint16(len(header)+len(transport)))
	return b
}

func TestExtensionHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		packet []byte
		ok     bool
	}{
		"first fragment":   {extended(44, 17, 0, 0, 1, 0, 0, 0, 0), true},
		"later fragment":   {extended(44, 17, 0, 0, 9, 0, 0, 0, 0), false},
		"authentication":   {extended(51, 17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), true},
		"too long":         {extended(0, 17, 9, 0, 0, 0, 0, 0, 0), false},
		"short AH":         {extended(51, 17, 0)[:44], false},
		"short fragment":   {extended(44, 17, 0)[:44], false},
		"no length":        {func() []byte { b := extended(17); b[4], b[5] = 0, 0; return b }(), true},
		"IPv4, no length":  {func() []byte { b := ipv4(17, 1, 2, udp(1, 2000, 4)); b[2], b[3] = 0, 0; return b }(), true},
		"IPv4, short":      {make([]byte, 19, 20)[:19:19], false},
		"IPv4, bad header": {func() []byte { b := ipv4(17, 1, 2, udp(1, 2, 4)); b[0] = 0x44; return b }(), false},
		"TCP, bad offset":  {func() []byte { b := ipv4(6, 1, 2, tcp(1, 2, 2, nil, 0)); b[32] = 0x10; return b }(), false},
	} {
		h, ok := Parse(c.packet)
		if ok != c.ok || (ok && (h.Dst.Port != 2000 || h.Payload != 4)) {
			t.Errorf("%s: %+v, %v", name, h, ok)
		}
	}
}

func TestTags(t *testing.T) {
	ip := ipv4(17, 1, 2, udp(1, 2, 3))
	for name, c := range map[string]struct {
		frame []byte
		ok    bool
	}{
		"two tags":    {ethernet(ip, 0x88, 0xa8, 0, 1, 0x81, 0, 0, 2), true},
		"PPPoE":       {append(append(make([]byte, 12), 0x88, 0x64, 0x11, 0, 0, 1, 0, 40, 0, 0x21), ip...), true},
		"five tags":   {ethernet(ip, bytes.Repeat([]byte{0x81, 0, 0, 1}, 5)...), false},
		"half a tag":  {append(make([]byte, 12), 0x81, 0, 0), false},
		"short":       {make([]byte, 13), false},
		"short PPPoE": {append(make([]byte, 12), 0x88, 0x64, 1), false},
	} {
		if got := network(linkEthernet, c.frame); (got != nil && bytes.Equal(got, ip)) != c.ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestOldBlocks reads what newer programs no longer write: simple and obsolete
// packet blocks, and clocks that count halves of a second.
func TestOldBlocks(t *testing.T) {
	le := binary.LittleEndian
	packets := conversation()
	data := pcapngOf(le, nil)
	size := le.AppendUint32(nil, uint32(len(packets[4])))
	data = append(data, block(le, blockSimple, append(size, packets[4]...))...)
	body := append(make([]byte, 12), size...)
	data = append(data, block(le, blockPacket, append(append(body, size...), packets[6]...))...)
	flows, err := ReadCapture(bytes.NewReader(data))
	if err != nil || len(flows) != 1 || flows[0].Values[BytesServer] != 90 {
		t.Errorf("%d flows, %v", len(flows), err)
	}
	s := pcapngSection{order: le}
	for want, option := range map[float64][]byte{
		0.5: {9, 0, 1, 0, 0x81, 0, 0, 0}, 1e-3: {2, 0, 1, 0, 'x', 0, 0, 0, 9, 0, 1, 0, 3, 0, 0, 0}, 1e-6: {9, 0, 200, 0, 1},
	} {
		if got := s.unit(option); math.Abs(got-want) > 1e-12 {
			t.Errorf("unit %v, want %v", got, want)
		}
	}
	for kind, short := range map[uint32]int{blockInterface: 4, blockSimple: 0} {
		data := slices.Concat(pcapngOf(le, nil)[:28], block(le, kind, make([]byte, max(short, 4))))
		if _, err := ReadCapture(bytes.NewReader(data)); err == nil || !strings.Contains(err.Error(), "shorter than its kind") {
			t.Errorf("block %d: %v", kind, err)
		}
	}
	long := append(pcapngOf(le, nil), block(le, blockEnhanced, append(make([]byte, 12), 99, 0, 0, 0, 99, 0, 0, 0))...)
	if _, err := ReadCapture(bytes.NewReader(long)); err == nil {
		t.Error("a packet longer than its block was read")
	}
	if order, unit, ok := pcapMagic([]byte{0xa1, 0xb2, 0x3c, 0x4d}); !ok || order != binary.BigEndian || unit != time.Nanosecond {
		t.Error("big-endian pcap with nanoseconds is not known")
	}
	if IsCapture([]byte{1}) {
		t.Error("one byte was taken for a capture")
	}
}

func TestPortRanges(t *testing.T) {
	for port, want := range map[float64]float64{0: 0, 1023: 0, 1024: 1, 32768: 2, 49152: 3, 65535: 3} {
		if got := portRange(port); got != want {
			t.Errorf("%v is in range %v, want %v", port, got, want)
		}
	}
	if !math.IsNaN(portRange(math.NaN())) {
		t.Error("an unknown port has a range")
	}
	if _, err := Select([]string{"colour"}, types); err == nil || !strings.Contains(err.Error(), "the sets dst, handshake") {
		t.Errorf("%v", err)
	}
	if firstSide(nil) != 0 || firstSide([]float64{-1}) != 2 || extreme(nil, math.Max) != 0 {
		t.Error("summaries of few packets")
	}
	f := New()
	f.Values[BytesClient], f.Values[BytesServer] = 3, 4
	if f.Bytes() != 7 {
		t.Error(f.Bytes())
	}
}
