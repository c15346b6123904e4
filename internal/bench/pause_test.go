package bench

import (
	"strings"
	"testing"
	"time"
)

func TestLongestPause(t *testing.T) {
	p := &pauses{}
	p.read(strings.NewReader(`{"cpu": 0, "until_ns": 1000, "length_ns": 100}
		{"cpu": 1, "until_ns": 1050, "length_ns": 300}
		{"cpu": 0, "until_ns": 5000, "length_ns": 20}
		{"cpu": 0, "until_`))
	for _, test := range []struct{ fromNS, untilNS, want int64 }{
		{0, 740, 0}, {0, 751, 300}, {0, 2000, 300}, {1049, 2000, 300}, {1050, 2000, 0}, {4990, 4995, 20}, {0, 9000, 300},
	} {
		if got := p.longest(test.fromNS, test.untilNS); got != time.Duration(test.want) {
			t.Errorf("from %d until %d: %d ns, want %d", test.fromNS, test.untilNS, got, test.want)
		}
	}
}

func TestPauseNote(t *testing.T) {
	const again = "2 runs were done again because a processor stood still for 10ms or longer, which no scheduler can make up for"
	for _, test := range []struct {
		report Report
		want   string
	}{
		{Report{}, ""},
		{Report{RepeatedRuns: 2}, again + "."},
		{Report{RepeatedRuns: 2, PausedRuns: 1}, again + "; in 1 that count one did so as well."},
		{Report{PausesUnknown: true}, "Whether processors stood still meanwhile is not known: what watches them ended early (it takes CAP_SYS_NICE)."},
	} {
		if got := test.report.pauseNote(); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.report, got, test.want)
		}
	}
}
