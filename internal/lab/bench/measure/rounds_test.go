package measure

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestOverdue(t *testing.T) {
	if Overdue(time.Time{}) || Overdue(time.Now().Add(time.Hour)) || !Overdue(time.Now().Add(-time.Second)) {
		t.Error("no time is never too late, an hour from now is not, a second ago is")
	}
}

// itself is a run that nothing disturbs but its pause.
func itself(pause time.Duration) []float64 { return []float64{0, pause.Seconds()} }

func TestLeastDisturbed(t *testing.T) {
	const ms = time.Millisecond
	never, later, before := time.Time{}, time.Now().Add(time.Hour), time.Now().Add(-time.Second)
	for _, test := range []struct {
		name         string
		until        time.Time
		pauses       []time.Duration // of the runs, one after the other
		want         time.Duration
		wantRepeated []time.Duration
	}{
		{"none", never, []time.Duration{0, 9 * ms}, 0, nil},
		{"the first", never, []time.Duration{9 * ms, 0}, 0, []time.Duration{9 * ms}},
		{"all, the first least", never, []time.Duration{3 * ms, 9 * ms, 5 * ms, 0}, 3 * ms, []time.Duration{3 * ms, 9 * ms}},
		{"all, the second least", never, []time.Duration{9 * ms, 3 * ms, 5 * ms, 0}, 3 * ms, []time.Duration{9 * ms, 3 * ms}},
		{"all, the last least", never, []time.Duration{9 * ms, 5 * ms, 3 * ms, 0}, 3 * ms, []time.Duration{9 * ms, 5 * ms}},
		{"time is short", later, []time.Duration{3 * ms, 9 * ms, 0}, 3 * ms, []time.Duration{3 * ms}},
		{"too late for another", before, []time.Duration{3 * ms, 0}, 3 * ms, nil},
	} {
		runs := 0
		var repeated []time.Duration
		got, err := LeastDisturbed(test.until, func() (time.Duration, error) {
			runs++
			return test.pauses[runs-1], nil
		}, itself, func(pause time.Duration) { repeated = append(repeated, pause) })
		if err != nil || got != test.want || !slices.Equal(repeated, test.wantRepeated) {
			t.Errorf("%s: the run with %v counts, %v were repeated, %v; want %v, %v", test.name, got, repeated, err, test.want, test.wantRepeated)
		}
	}
}

func TestLeastDisturbedFails(t *testing.T) {
	failure := errors.New("no such case")
	_, err := LeastDisturbed(time.Time{}, func() (time.Duration, error) { return 0, failure }, itself,
		func(time.Duration) { t.Error("what failed was repeated") })
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
}
