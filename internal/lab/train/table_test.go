package train

import (
	"math"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

func TestReadTable(t *testing.T) {
	flows, err := ReadTable(strings.NewReader("\ufeffextra,group,app_type,proto,dst_port,seq_len1,seq_iat1_us,cap_rank,ttl_c2s\n"+
		"x,g1,WEB,6,443,-517,12,3,NaN\n\"a\nb\",g2,VOIP,17,5060,,,1,64\n"), apps.Types, true)
	if err != nil {
		t.Fatal(err)
	}
	a, b := flows[0], flows[1]
	if a.Group != "g1" || a.Type != "WEB" || a.Rank != 3 || a.Line != 2 || a.Values[flow.DstPort] != 443 || a.Values[flow.SeqLen1] != -517 || a.Values[flow.SeqLen1+1] != 12 {
		t.Errorf("%+v", a)
	}
	for _, i := range []int{flow.SrcPort, flow.TTLClient, flow.SYN} {
		if !math.IsNaN(a.Values[i]) {
			t.Errorf("%s is %v, want a missing value", columns[i].name, a.Values[i])
		}
	}
	if b.Line != 3 || b.Values[flow.TTLClient] != 64 || !math.IsNaN(b.Values[flow.SeqLen1]) || b.Bytes() != 0 {
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
			if _, err := ReadTable(strings.NewReader(c.text), apps.Types, true); err == nil || !strings.Contains(err.Error(), c.want) {
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
		flows, err := ReadTable(strings.NewReader(text), apps.Types, false)
		if err != nil {
			return
		}
		ports := flow.KnownPorts(apps.Types)
		for _, fl := range flows {
			for _, feature := range flow.Features(apps.Types) {
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
