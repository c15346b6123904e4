package testbed

import (
	"strings"
	"testing"
	"time"
)

func TestLongestPause(t *testing.T) {
	p := &PauseWatch{}
	p.read(strings.NewReader(`{"cpu": 0, "until_ns": 1000, "length_ns": 100}
		{"cpu": 1, "until_ns": 1050, "length_ns": 300}
		{"cpu": 0, "until_ns": 5000, "length_ns": 20}
		{"cpu": 0, "until_`))
	for _, test := range []struct{ fromNS, untilNS, want int64 }{
		{0, 740, 0}, {0, 751, 300}, {0, 2000, 300}, {1049, 2000, 300}, {1050, 2000, 0}, {4990, 4995, 20}, {0, 9000, 300},
	} {
		if got := p.Longest(test.fromNS, test.untilNS); got != time.Duration(test.want) {
			t.Errorf("from %d until %d: %d ns, want %d", test.fromNS, test.untilNS, got, test.want)
		}
	}
}
