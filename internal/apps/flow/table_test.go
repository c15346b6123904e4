package flow

import (
	"math"
	"strings"
	"testing"
)

var types = []string{"VOIP", "GAME", "SERVICES", "CHAT", "MULTIMEDIA", "WEB", "INTERACTIVE", "EMAIL", "BULK", "P2P"}

func TestReadTable(t *testing.T) {
	flows, err := ReadTable(strings.NewReader("\ufeffextra,group,app_type,proto,dst_port,seq_len1,seq_iat1_us,cap_rank,ttl_c2s\n"+
		"x,g1,WEB,6,443,-517,12,3,NaN\n\"a\nb\",g2,VOIP,17,5060,,,1,64\n"), types, true)
	if err != nil {
		t.Fatal(err)
	}
	a, b := flows[0], flows[1]
	if a.Group != "g1" || a.Type != "WEB" || a.Rank != 3 || a.Line != 2 || a.Values[DstPort] != 443 || a.Values[SeqLen1] != -517 || a.Values[SeqLen1+1] != 12 {
		t.Errorf("%+v", a)
	}
	for _, i := range []int{SrcPort, TTLClient, SYN} {
		if !math.IsNaN(a.Values[i]) {
			t.Errorf("%s is %v, want a missing value", columns[i].name, a.Values[i])
		}
	}
	if b.Line != 3 || b.Values[TTLClient] != 64 || !math.IsNaN(b.Values[SeqLen1]) || b.Bytes() != 0 {
		t.Errorf("%+v", b)
	}
}

func TestBadTables(t *testing.T) {
	const head = "group,app_type,proto,dst_port,src_port,cap_rank\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {"", "it is empty"},
		"no columns":      {"a,b\n1,2\n", "line 1: no column proto, dst_port, app_type: docs/classifier.md lists the columns"},
		"no label":        {"proto,dst_port\n6,80\n", "no column app_type"},
		"twice":           {"proto,dst_port,app_type,proto\n", "line 1: two columns are called proto"},
		"NaN where not":   {head + "g,WEB,6,80,1,1\ng,WEB,6,NaN,1,1\n", "line 3: dst_port: it is missing"},
		"no number":       {head + "g,WEB,tcp,80,1,1\n", `line 2: proto: "tcp" is not a number`},
		"half a port":     {head + "g,WEB,6,80.5,1,1\n", `line 2: dst_port: "80.5" is not a whole number`},
		"port":            {head + "g,WEB,6,70000,1,1\n", "line 2: dst_port: 70000 is not within 0 and 65535"},
		"infinite":        {head + "g,WEB,6,Inf,1,1\n", "line 2: dst_port: Inf is not within"},
		"unknown class":   {head + "g,WEB,6,80,1,1\ng,RADIO,6,80,1,1\n", `line 3: app_type: "RADIO" is none of VOIP, GAME`},
		"empty class":     {head + "g,,6,80,1,1\n", `line 2: app_type: "" is none of`},
		"rank":            {head + "g,WEB,6,80,1,x\n", `line 2: cap_rank: "x"`},
		"short line":      {head + "g,WEB,6,80,1\n", "line 2: wrong number of fields"},
		"quotes":          {head + "g,WEB,6,80,1,\"1\n", "line 2"},
		"quotes in names": {"a,\"b\n", "read table of flows"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadTable(strings.NewReader(c.text), types, true); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzReadTable(f *testing.F) {
	f.Add("proto,dst_port,app_type\n6,80,WEB\n")
	f.Add("proto,dst_port\n17,NaN\n")
	f.Add("\ufeffproto,dst_port,seq_len1\n6,1,-5\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		flows, err := ReadTable(strings.NewReader(text), types, false)
		if err != nil {
			return
		}
		ports := KnownPorts(types)
		for _, fl := range flows {
			for _, feature := range Features(types) {
				v := feature.Of(fl, ports)
				if math.IsInf(v, 0) {
					t.Fatalf("%s is %v", feature.Name, v)
				}
				if n := len(feature.Values); n > 0 && !math.IsNaN(v) && (v < 0 || int(v) >= n) {
					t.Fatalf("%s is %v of %d", feature.Name, v, n)
				}
			}
		}
	})
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
