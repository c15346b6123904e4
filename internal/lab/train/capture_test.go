package train

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/test/packets"
)

func ethernet(ip []byte, tags ...byte) []byte {
	b := append(make([]byte, 12), tags...)
	kind := []byte{0x08, 0x00}
	if ip[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return append(append(b, kind...), ip...)
}

var synOptions = []byte{2, 4, 5, 180, 1, 3, 3, 7} // MSS 1460, scale 7

// conversation is a TCP connection and a question by UDP, at 0, 10, ... ms.
func conversation() [][]byte {
	return [][]byte{
		ethernet(packets.IPv4(6, 1, 2, packets.TCP(51000, 443, 2, synOptions, 0))),
		ethernet(packets.IPv4(6, 2, 1, packets.TCP(443, 51000, 18, synOptions[:4], 0))),
		ethernet(packets.IPv4(6, 1, 2, packets.TCP(51000, 443, 16, nil, 0))),
		ethernet(packets.IPv4(6, 1, 2, packets.TCP(51000, 443, 24, nil, 517))),
		ethernet(packets.IPv4(17, 1, 3, packets.UDP(40000, 53, 30)), 0x81, 0, 0, 5),
		ethernet(packets.IPv4(6, 2, 1, packets.TCP(443, 51000, 24, nil, 1400))),
		ethernet(packets.IPv4(17, 3, 1, packets.UDP(53, 40000, 90)), 0x81, 0, 0, 5),
	}
}

func pcapOf(packets [][]byte) []byte {
	var b bytes.Buffer
	le := binary.LittleEndian
	head := le.AppendUint32(nil, 0xa1b2c3d4)
	head = append(head, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0)
	b.Write(le.AppendUint32(head, linkEthernet))
	for i, p := range packets {
		record := le.AppendUint32(nil, 100)
		record = le.AppendUint32(record, uint32(i)*10000)
		record = le.AppendUint32(record, uint32(len(p)))
		b.Write(le.AppendUint32(record, uint32(len(p))))
		b.Write(p)
	}
	return b.Bytes()
}

func block(order binary.ByteOrder, kind uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	b := make([]byte, 8, len(body)+12)
	order.PutUint32(b, kind)
	order.PutUint32(b[4:], uint32(len(body)+12))
	b = append(b, body...)
	size := make([]byte, 4)
	order.PutUint32(size, uint32(len(body)+12))
	return append(b, size...)
}

func pcapngOf(order binary.ByteOrder, packets [][]byte) []byte {
	words := func(w ...uint32) []byte {
		b := make([]byte, 4*len(w))
		for i := range w {
			order.PutUint32(b[4*i:], w[i])
		}
		return b
	}
	out := block(order, blockSection, words(0x1a2b3c4d, 0x00010000, 0xffffffff, 0xffffffff))
	link := make([]byte, 8)
	order.PutUint16(link, linkEthernet)
	option := make([]byte, 8) // if_tsresol: nanoseconds
	order.PutUint16(option, 9)
	order.PutUint16(option[2:], 1)
	option[4] = 9
	out = append(out, block(order, blockInterface, append(append(link, option...), 0, 0, 0, 0))...)
	for i, p := range packets {
		at := uint64(100e9) + uint64(i)*10e6
		body := append(words(0, uint32(at>>32), uint32(at), uint32(len(p)), uint32(len(p))), p...)
		out = append(out, block(order, blockEnhanced, body)...)
	}
	return append(out, block(order, 0x0bad, []byte{1, 2, 3, 4})...) // of another kind
}

func TestReadCapture(t *testing.T) {
	for name, data := range map[string][]byte{
		"pcap": pcapOf(conversation()), "pcapng": pcapngOf(binary.LittleEndian, conversation()),
		"pcapng, big-endian": pcapngOf(binary.BigEndian, conversation()),
	} {
		t.Run(name, func(t *testing.T) {
			if !IsCapture(data) {
				t.Error("not taken for a capture")
			}
			flows, err := ReadCapture(bytes.NewReader(data))
			if err != nil || len(flows) != 2 {
				t.Fatalf("%d flows, %v", len(flows), err)
			}
			web, dns := flows[0], flows[1]
			if web.Tuple != "tcp 198.18.0.1:51000 > 198.18.0.2:443" {
				t.Error(web.Tuple)
			}
			for i, want := range map[int]float64{
				flow.Proto: 6, flow.SrcPort: 51000, flow.DstPort: 443, flow.SYN: 1, flow.MSSClient: 1460, flow.WindowClient: 64240, flow.WScaleClient: 7, flow.TTLClient: 64,
				flow.SYNACK: 1, flow.MSSServer: 1460, flow.WScaleServer: -1, flow.HandshakeUS: 10000,
				flow.ClientLen1: 517, flow.ClientLen1 + 1: 30000, flow.ClientLen1 + 2: -1, flow.ServerLen1: 1400, flow.ServerLen1 + 1: 50000,
				flow.SeqLen1: 517, flow.SeqLen1 + 1: 30000, flow.SeqLen1 + 2: -1400, flow.SeqLen1 + 3: 20000, flow.SeqLen1 + 4: 0, flow.SeqLen1 + 5: -1,
				flow.PktsClient: 3, flow.PktsServer: 2, flow.BytesClient: 517, flow.BytesServer: 1400,
			} {
				if web.Values[i] != want {
					t.Errorf("%s = %v, want %v", columns[i].name, web.Values[i], want)
				}
			}
			if dns.Values[flow.DstPort] != 53 || dns.Values[flow.SeqLen1] != 30 || dns.Values[flow.SeqLen1+2] != -90 || dns.Values[flow.SYN] != 0 {
				t.Errorf("%+v", dns)
			}
		})
	}
}

// TestCutOffCapture: the flows up to the cut are there, with an error.
func TestCutOffCapture(t *testing.T) {
	for name, whole := range map[string][]byte{"pcap": pcapOf(conversation()), "pcapng": pcapngOf(binary.LittleEndian, conversation()[:7])} {
		cut := len(whole) - 60
		if name == "pcapng" {
			cut -= 40
		}
		flows, err := ReadCapture(bytes.NewReader(whole[:cut]))
		if err == nil || !strings.Contains(err.Error(), "cut off in the middle of a packet: what came before was read") {
			t.Errorf("%s: error %v", name, err)
		}
		if len(flows) != 2 || flows[0].Values[flow.PktsClient] != 3 {
			t.Errorf("%s: %d flows before the cut", name, len(flows))
		}
	}
	damaged := pcapOf(conversation())
	binary.LittleEndian.PutUint32(damaged[24+8:], 1<<30)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":      {nil, "too short for a capture"},
		"text":       {[]byte("not a capture"), "neither pcap nor pcapng"},
		"header":     {damaged[:20], "its header is cut off"},
		"size":       {damaged, "it is damaged there"},
		"block size": {append(append([]byte{}, pcapngMagic...), 5, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a), "a block has 5 bytes"},
		"byte order": {append(append([]byte{}, pcapngMagic...), 28, 0, 0, 0, 1, 2, 3, 4), "no byte order"},
		"interface":  {append(pcapngOf(binary.LittleEndian, nil), block(binary.LittleEndian, blockEnhanced, append([]byte{9}, make([]byte, 19)...))...), "from interface 9 of 1"},
		"short":      {append(pcapngOf(binary.LittleEndian, nil), block(binary.LittleEndian, blockEnhanced, make([]byte, 8))...), "shorter than its kind"},
	} {
		if _, err := ReadCapture(bytes.NewReader(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func FuzzReadCapture(f *testing.F) {
	f.Add(pcapOf(conversation()))
	f.Add(pcapngOf(binary.LittleEndian, conversation()))
	f.Add(pcapngOf(binary.BigEndian, conversation()[:2]))
	f.Add(pcapOf(conversation())[:200])
	f.Fuzz(func(t *testing.T, data []byte) {
		flows, _ := ReadCapture(bytes.NewReader(data))
		for _, fl := range flows {
			if fl.Values[flow.PktsClient]+fl.Values[flow.PktsServer] < 1 {
				t.Fatalf("a flow without packets: %+v", fl)
			}
		}
	})
}

func TestLinkHeaders(t *testing.T) {
	icmp := packets.IPv4(1, 1, 2, make([]byte, 8))
	for link, before := range map[uint32]int{linkRaw: 0, linkNull: 4, linkCooked: 16, linkCooked2: 20} {
		frame := append(make([]byte, before), icmp...)
		switch link {
		case linkCooked:
			frame[14] = 8
		case linkCooked2:
			frame[0] = 8
		}
		if got := network(link, frame); !bytes.Equal(got, icmp) {
			t.Errorf("link type %d: %v", link, got)
		}
		if got := network(link, frame[:max(before-1, 0)]); len(got) > 0 {
			t.Errorf("link type %d, too short: %v", link, got)
		}
	}
	if network(9999, icmp) != nil || network(linkEthernet, append(make([]byte, 12), 8, 6, 1)) != nil {
		t.Error("what is no IP was taken for IP")
	}
}

func TestTags(t *testing.T) {
	ip := packets.IPv4(17, 1, 2, packets.UDP(1, 2, 3))
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
	if err != nil || len(flows) != 1 || flows[0].Values[flow.BytesServer] != 90 {
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
