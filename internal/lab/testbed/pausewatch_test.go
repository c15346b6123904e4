package testbed

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestPauses(t *testing.T) {
	p := &PauseWatch{}
	p.read(strings.NewReader(`{"cpu": 0, "until_ns": 1000, "length_ns": 100}
		{"cpu": 1, "until_ns": 1050, "length_ns": 300}
		{"cpu": 0, "until_ns": 5000, "length_ns": 20}
		{"cpu": 0, "until_`))
	for _, test := range []struct{ fromNS, untilNS, longest, sum int64 }{
		{0, 740, 0, 0}, {0, 751, 300, 1}, {0, 2000, 300, 400}, {1049, 2000, 300, 1}, {1050, 2000, 0, 0},
		{4990, 4995, 20, 5}, {0, 9000, 300, 420},
	} {
		if got := p.Longest(test.fromNS, test.untilNS); got != time.Duration(test.longest) {
			t.Errorf("from %d until %d: at most %d ns, want %d", test.fromNS, test.untilNS, got, test.longest)
		}
		if got := p.Total(test.fromNS, test.untilNS); got != time.Duration(test.sum)/time.Duration(runtime.NumCPU()) {
			t.Errorf("from %d until %d: %d ns on average, want %d in all", test.fromNS, test.untilNS, got, test.sum)
		}
	}
}
