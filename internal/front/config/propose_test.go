package config

import (
	"strings"
	"testing"
)

func TestProposal(t *testing.T) {
	for _, test := range []struct {
		proposal Proposal
		rateBPS  uint64
		says     string
	}{
		{Proposal{"eth0", 1e9, BasisSpeed}, 950e6, "below the speed of the link, 1gbit"},
		{Proposal{"eth0", 100e6, BasisSpeed}, 95e6, "100mbit"},
		{Proposal{"wlan0", 43_210_987, BasisMeasured}, 38e6, "a guess"},
		{Proposal{"ppp0", 0, BasisNone}, 100e6, "without any ground"},
		{Proposal{"null", 10e6, BasisSpeed}, 9_500_000, "10mbit"},
		{Proposal{"uplink", 1e9, BasisSpeed}, 950e6, "uplink: uplink\n"},
		{Proposal{"On", 1e9, BasisSpeed}, 950e6, "uplink: 'On'\n"},
		{Proposal{"1e3", 2500e6, BasisSpeed}, 2300e6, "2.5gbit"},
		{Proposal{"it's", 300, BasisMeasured}, 270, "guess"},
		{Proposal{"br-lan.7", 1e9, BasisSpeed}, 950e6, "1gbit"},
	} {
		text := test.proposal.YAML()
		got, err := Parse("proposed", []byte(text))
		if err != nil {
			// A link that slow is none that Weir takes.
			if test.rateBPS > 10_000 {
				t.Errorf("%+v: %v\n%s", test.proposal, err, text)
			}
			continue
		}
		if len(got.Uplinks) != 1 || got.Uplinks[0].Interface != test.proposal.Interface || got.Uplinks[0].RateBPS != test.rateBPS {
			t.Errorf("%+v becomes %+v\n%s", test.proposal, got.Uplinks, text)
		}
		if in := got.Uplinks[0].In; in != (test.proposal.Basis == BasisSpeed) || !strings.Contains(text, "in_rate: ") {
			t.Errorf("%+v shares received traffic: %t\n%s", test.proposal, in, text)
		}
		if got.Dashboard != defaultDashboard || !strings.Contains(text, test.says) {
			t.Errorf("%+v says\n%s", test.proposal, text)
		}
	}
}
