package bench

import "testing"

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
