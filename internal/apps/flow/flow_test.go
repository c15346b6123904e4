package flow

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/test/packets"
)

var types = []string{"VOIP", "GAME", "SERVICES", "CHAT", "MULTIMEDIA", "WEB", "INTERACTIVE", "EMAIL", "BULK", "P2P"}

func TestParse(t *testing.T) {
	v6 := make([]byte, 40)
	v6[0], v6[6], v6[7] = 0x60, 0, 61 // hop by hop comes next
	transport := packets.UDP(546, 547, 12)
	v6 = append(v6, 17, 0, 0, 0, 0, 0, 0, 0)
	v6 = append(v6, transport...)
	binary.BigEndian.PutUint16(v6[4:], uint16(8+len(transport)))
	h, ok := Parse(v6)
	if !ok || h.Dst.Port != 547 || h.Payload != 12 || h.TTL != 61 || !h.Src.IPv6 || h.Dst.String() != "[::]:547" {
		t.Errorf("%+v %v", h, ok)
	}
	later := packets.IPv4(17, 1, 2, packets.UDP(1, 2, 3))
	later[7] = 1 // not the first fragment
	icmp := packets.IPv4(1, 1, 2, make([]byte, 8))
	zeroLength := packets.IPv4(6, 1, 2, packets.TCP(1, 2, 2, []byte{2, 0, 1, 1}, 0))
	if h, ok := Parse(zeroLength); !ok || h.MSS != 0 {
		t.Errorf("an option of no length: %+v %v", h, ok)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "version": {0x50}, "short": {0x45, 0}, "fragment": later, "icmp": icmp,
		"short IPv6": v6[:39], "short extension": v6[:44], "short UDP": packets.IPv4(17, 1, 2, make([]byte, 7)), "short TCP": packets.IPv4(6, 1, 2, make([]byte, 19)),
		"endless": append(append([]byte{}, v6[:40]...), make([]byte, 9*8)...),
	} {
		if name == "endless" {
			binary.BigEndian.PutUint16(b[4:], 9*8)
		}
		if h, ok := Parse(b); ok {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// extended is IPv6 with UDP behind one extension header.
func extended(kind byte, header ...byte) []byte {
	transport := packets.UDP(1000, 2000, 4)
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
		"IPv4, no length":  {func() []byte { b := packets.IPv4(17, 1, 2, packets.UDP(1, 2000, 4)); b[2], b[3] = 0, 0; return b }(), true},
		"IPv4, short":      {make([]byte, 19, 20)[:19:19], false},
		"IPv4, bad header": {func() []byte { b := packets.IPv4(17, 1, 2, packets.UDP(1, 2, 4)); b[0] = 0x44; return b }(), false},
		"TCP, bad offset":  {func() []byte { b := packets.IPv4(6, 1, 2, packets.TCP(1, 2, 2, nil, 0)); b[32] = 0x10; return b }(), false},
	} {
		h, ok := Parse(c.packet)
		if ok != c.ok || (ok && (h.Dst.Port != 2000 || h.Payload != 4)) {
			t.Errorf("%s: %+v, %v", name, h, ok)
		}
	}
}

func TestFlowsEnd(t *testing.T) {
	packet := func(from, to byte, sp, dp uint16, flags byte) Headers {
		h, ok := Parse(packets.IPv4(6, from, to, packets.TCP(sp, dp, flags, nil, 1)))
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

func TestPorts(t *testing.T) {
	ports := KnownPorts(types)
	name := func(proto, port int) string {
		if s := ports.Service(proto, port); s > 0 {
			return types[s-1]
		}
		return ""
	}
	for _, c := range []struct {
		proto, port int
		want        string
	}{
		{UDP, 53, "SERVICES"}, {TCP, 443, "WEB"}, {UDP, 443, "WEB"}, {TCP, 25, "EMAIL"}, {UDP, 25, ""}, {TCP, 6881, "P2P"},
		{UDP, 5060, "VOIP"}, {UDP, 5004, "VOIP"}, {UDP, 5353, "SERVICES"}, {UDP, 5100, "GAME"}, {TCP, 22, "INTERACTIVE"},
		{UDP, 20000, "SERVICES"}, {UDP, 20002, "VOIP"}, {TCP, 65535, ""}, {1, 53, ""}, {TCP, -1, ""}, {TCP, 65536, ""},
	} {
		if got := name(c.proto, c.port); got != c.want {
			t.Errorf("proto %d port %d: %q, want %q", c.proto, c.port, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"WEB tcp 80":          "line 1: 3 words",
		"#\nRADIO tcp 80 x":   `line 2: "RADIO" is none of`,
		"WEB sctp 80 x":       `"sctp" is none of tcp, udp and both`,
		"WEB tcp 80-70 x":     `"80-70" is neither a port`,
		"WEB tcp 80,65536 x":  `"65536" is neither a port`,
		"WEB tcp eighty,80 x": `"eighty" is neither`,
	} {
		if _, err := ParsePorts(text, types); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestFeatures(t *testing.T) {
	f := New()
	for i, v := range map[int]float64{
		Proto: TCP, SrcPort: 20, DstPort: 40001, SYN: 1, WScaleClient: -1,
		SeqLen1: 100, SeqLen1 + 1: 5, SeqLen1 + 2: -1400, SeqLen1 + 3: -2065, SeqLen1 + 4: 200, SeqLen1 + 5: 900,
		SeqLen1 + 6: 0, SeqLen1 + 7: -1, SeqLen1 + 8: 0, SeqLen1 + 9: -1, SeqLen1 + 10: 0, SeqLen1 + 11: -1,
	} {
		f.Values[i] = v
	}
	want := map[string]float64{
		"service": 9, "dst_service": 0, "src_service": 9, "dst_range": 2, "src_range": 0, "dst_high": 156, "dst_low": 65,
		"first_side": 1, "packets": 3, "largest": 1400, "smallest": 100, "turns": 2, "longest_gap_us": 900, "seq_iat2_us": 0, "seq_len2": -1400,
	}
	codes := map[uint8]string{}
	for _, feature := range Features(types) {
		if other, ok := codes[feature.Code]; ok {
			t.Errorf("%s and %s have the code %d", feature.Name, other, feature.Code)
		}
		codes[feature.Code] = feature.Name
		v := feature.Of(f, KnownPorts(types))
		if w, ok := want[feature.Name]; ok && v != w {
			t.Errorf("%s = %v, want %v", feature.Name, v, w)
		}
		if !math.IsNaN(v) && float64(feature.Word(v)) != v+float64(feature.Offset) {
			t.Errorf("%s: %v has the word %d", feature.Name, v, feature.Word(v))
		}
	}
	empty := New()
	for _, feature := range Features(types) {
		if v := feature.Of(empty, KnownPorts(types)); !math.IsNaN(v) && feature.Name != "service" {
			t.Logf("%s of nothing is %v", feature.Name, v)
		}
	}
	sets := FeatureSets()
	for _, feature := range Features(types) {
		if _, ok := sets[feature.Name]; ok {
			t.Errorf("%s is a feature and a set", feature.Name)
		}
	}
	for name := range sets {
		if _, err := Select([]string{name}, types); err != nil {
			t.Errorf("set %s: %v", name, err)
		}
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

// TestFirstPacket compares the flow of one packet with a Tracker's.
func TestFirstPacket(t *testing.T) {
	options := []byte{1, 2, 4, 5, 180, 3, 3, 7, 0}
	for name, b := range map[string][]byte{
		"SYN": packets.TCP(51000, 443, 2, append(options, 0, 0, 0), 0), "SYN-ACK": packets.TCP(443, 51000, 18, nil, 0),
		"no option's end": packets.TCP(51000, 443, 2, []byte{2, 9, 0, 0}, 0), "data": packets.TCP(51000, 443, 24, nil, 517),
	} {
		h, ok := Parse(packets.IPv4(TCP, 1, 2, b))
		if !ok {
			t.Fatalf("%s is not parsed", name)
		}
		var got Flow
		got.FirstPacket(h)
		tracker := NewTracker()
		tracker.Add(h, 0)
		features := Features(types)
		a, b := Values(&got, features, KnownPorts(types)), Values(tracker.Flows()[0], features, KnownPorts(types))
		for i := range a {
			if a[i] != b[i] {
				t.Errorf("%s: %s is %v, a Tracker's %v", name, features[i].Name, a[i], b[i])
			}
		}
		if name == "SYN" && (h.MSS != 1460 || h.WScale != 7) {
			t.Errorf("options: %+v", h)
		}
		if name == "SYN-ACK" && (got.Values[DstPort] != 443 || got.Values[SYNACK] != 1) {
			t.Errorf("the sender of a SYN-ACK began the flow: %v", got.Values)
		}
	}
}
