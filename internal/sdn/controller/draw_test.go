package controller

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// TestDrawTopology: the drawing is well-formed, whatever switches call their
// ports, and shows every switch, link and host once.
func TestDrawTopology(t *testing.T) {
	for _, one := range []struct {
		name            string
		s               v1.SDN
		switches, links int
		hosts, loops    int
		busy            int
	}{
		{name: "nothing"},
		{name: "one", s: v1.SDN{Switches: []v1.SDNSwitch{{DPID: "0000000000000001", Connected: true}}}, switches: 1},
		{name: "several", switches: 3, links: 3, hosts: 2, loops: 1, busy: 1, s: v1.SDN{
			Switches: []v1.SDNSwitch{
				{DPID: "0000000000000001", Connected: true, Ports: []v1.SDNPort{{Number: 1, Name: `<script>"&`, Hosts: []string{"02:00:00:00:00:01", "02:00:00:00:00:02"}}, {Number: 5, RateBPS: 10e6, SentBPS: 95e5}}},
				{DPID: "0000000000000002", Connected: true, Ports: []v1.SDNPort{{Number: 9, State: "blocked"}}},
				{DPID: "0000000000000003"},
			},
			Links: []v1.SDNLink{
				{ADPID: "0000000000000001", APort: 5, BDPID: "0000000000000002", BPort: 6},
				{ADPID: "0000000000000001", APort: 7, BDPID: "0000000000000002", BPort: 8},
				{ADPID: "0000000000000002", APort: 3, BDPID: "0000000000000003", BPort: 4},
				{ADPID: "0000000000000002", APort: 3, BDPID: "forgotten", BPort: 4},
			},
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			var b strings.Builder
			if err := DrawTopology(&b, one.s, true); err != nil {
				t.Fatal(err)
			}
			decoder := xml.NewDecoder(strings.NewReader(b.String()))
			for {
				if _, err := decoder.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%v: %s", err, b.String())
				}
			}
			for what, want := range map[string]int{"<rect": one.switches, "<line": one.links, "<circle": one.hosts, `class="link busy"`: one.busy, ">5: 9.5mbit<": one.busy, `<path class="blocked"`: one.loops} {
				if got := strings.Count(b.String(), what); got != want {
					t.Errorf("%d of %s, want %d", got, what, want)
				}
			}
			if strings.Contains(b.String(), "<script") || strings.Contains(b.String(), "NaN") {
				t.Error(b.String())
			}
		})
	}
}
