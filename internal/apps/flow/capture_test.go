package flow

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"
)

// ipv4 is a packet from its IP header on.
func ipv4(proto byte, src, dst byte, transport []byte) []byte {
	b := make([]byte, 20, 20+len(transport))
	b[0], b[8], b[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(transport)))
	copy(b[12:], []byte{198, 18, 0, src, 198, 18, 0, dst})
	return append(b, transport...)
}

func udp(src, dst uint16, payload int) []byte {
	b := make([]byte, 8+payload)
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return b
}

func tcp(src, dst uint16, flags byte, options []byte, payload int) []byte {
	b := make([]byte, 20, 20+len(options)+payload)
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	b[12], b[13] = byte(20+len(options))<<2, flags
	binary.BigEndian.PutUint16(b[14:], 64240)
	b = append(b, options...)
	return append(b, make([]byte, payload)...)
}

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
		ethernet(ipv4(6, 1, 2, tcp(51000, 443, 2, synOptions, 0))),
		ethernet(ipv4(6, 2, 1, tcp(443, 51000, 18, synOptions[:4], 0))),
		ethernet(ipv4(6, 1, 2, tcp(51000, 443, 16, nil, 0))),
		ethernet(ipv4(6, 1, 2, tcp(51000, 443, 24, nil, 517))),
		ethernet(ipv4(17, 1, 3, udp(40000, 53, 30)), 0x81, 0, 0, 5),
		ethernet(ipv4(6, 2, 1, tcp(443, 51000, 24, nil, 1400))),
		ethernet(ipv4(17, 3, 1, udp(53, 40000, 90)), 0x81, 0, 0, 5),
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
				Proto: 6, SrcPort: 51000, DstPort: 443, SYN: 1, MSSClient: 1460, WindowClient: 64240, WScaleClient: 7, TTLClient: 64,
				SYNACK: 1, MSSServer: 1460, WScaleServer: -1, HandshakeUS: 10000,
				ClientLen1: 517, ClientLen1 + 1: 30000, ClientLen1 + 2: -1, ServerLen1: 1400, ServerLen1 + 1: 50000,
				SeqLen1: 517, SeqLen1 + 1: 30000, SeqLen1 + 2: -1400, SeqLen1 + 3: 20000, SeqLen1 + 4: 0, SeqLen1 + 5: -1,
				PktsClient: 3, PktsServer: 2, BytesClient: 517, BytesServer: 1400,
			} {
				if web.Values[i] != want {
					t.Errorf("%s = %v, want %v", columns[i].name, web.Values[i], want)
				}
			}
			if dns.Values[DstPort] != 53 || dns.Values[SeqLen1] != 30 || dns.Values[SeqLen1+2] != -90 || dns.Values[SYN] != 0 {
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
		if len(flows) != 2 || flows[0].Values[PktsClient] != 3 {
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

func TestParse(t *testing.T) {
	v6 := make([]byte, 40)
	v6[0], v6[6], v6[7] = 0x60, 0, 61 // hop by hop comes next
	transport := udp(546, 547, 12)
	v6 = append(v6, 17, 0, 0, 0, 0, 0, 0, 0)
	v6 = append(v6, transport...)
	binary.BigEndian.PutUint16(v6[4:], uint16(8+len(transport)))
	h, ok := Parse(v6)
	if !ok || h.Dst.Port != 547 || h.Payload != 12 || h.TTL != 61 || !h.Src.IPv6 || h.Dst.String() != "[0:0:0:0:0:0:0:0]:547" {
		t.Errorf("%+v %v", h, ok)
	}
	later := ipv4(17, 1, 2, udp(1, 2, 3))
	later[7] = 1 // not the first fragment
	icmp := ipv4(1, 1, 2, make([]byte, 8))
	zeroLength := ipv4(6, 1, 2, tcp(1, 2, 2, []byte{2, 0, 1, 1}, 0))
	if h, ok := Parse(zeroLength); !ok || h.MSS != 0 {
		t.Errorf("an option of no length: %+v %v", h, ok)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "version": {0x50}, "short": {0x45, 0}, "fragment": later, "icmp": icmp,
		"short IPv6": v6[:39], "short extension": v6[:44], "short UDP": ipv4(17, 1, 2, make([]byte, 7)), "short TCP": ipv4(6, 1, 2, make([]byte, 19)),
		"endless": append(append([]byte{}, v6[:40]...), make([]byte, 9*8)...),
	} {
		if name == "endless" {
			binary.BigEndian.PutUint16(b[4:], 9*8)
		}
		if h, ok := Parse(b); ok {
			t.Errorf("%s: %+v", name, h)
		}
	}
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

func TestFlowsEnd(t *testing.T) {
	packet := func(from, to byte, sp, dp uint16, flags byte) Headers {
		h, ok := Parse(ipv4(6, from, to, tcp(sp, dp, flags, nil, 1)))
		if !ok {
			t.Fatal("not parsed")
		}
		return h
	}
	tracker := NewTracker()
	tracker.Add(packet(2, 1, 80, 5000, 18), 0) // the answer to a SYN that was missed
	tracker.Add(packet(1, 2, 5000, 80, 16), time.Second)
	tracker.Add(packet(1, 2, 5000, 80, 17), time.Second)
	tracker.Add(packet(1, 2, 5000, 80, 2), 2*time.Second)   // the same ports again
	tracker.Add(packet(1, 2, 5000, 80, 16), 10*time.Minute) // after a long silence
	flows := tracker.Flows()
	if len(flows) != 3 {
		t.Fatalf("%d flows, want 3", len(flows))
	}
	if flows[0].Values[DstPort] != 80 || flows[0].Values[SYNACK] != 1 || flows[0].Values[SYN] != 0 || flows[1].Values[SYN] != 1 {
		t.Errorf("%+v", flows[0])
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
			if fl.Values[PktsClient]+fl.Values[PktsServer] < 1 {
				t.Fatalf("a flow without packets: %+v", fl)
			}
		}
	})
}
