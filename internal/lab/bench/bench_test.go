package bench

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
)

func TestLeastDisturbed(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name         string
		pauses       []time.Duration // of the runs, one after the other
		want         time.Duration
		wantRepeated []time.Duration
	}{
		{"none", []time.Duration{0, 9 * ms}, 0, nil},
		{"the first", []time.Duration{9 * ms, 0}, 0, []time.Duration{9 * ms}},
		{"all, the first least", []time.Duration{3 * ms, 9 * ms, 5 * ms, 0}, 3 * ms, []time.Duration{3 * ms, 9 * ms}},
		{"all, the second least", []time.Duration{9 * ms, 3 * ms, 5 * ms, 0}, 3 * ms, []time.Duration{9 * ms, 3 * ms}},
		{"all, the last least", []time.Duration{9 * ms, 5 * ms, 3 * ms, 0}, 3 * ms, []time.Duration{9 * ms, 5 * ms}},
	} {
		runs := 0
		var repeated []time.Duration
		got, err := leastDisturbed(func() (observation, error) {
			runs++
			return observation{pause: test.pauses[runs-1]}, nil
		}, measure.MaxAttempts, func(pause time.Duration) { repeated = append(repeated, pause) })
		if err != nil || got.pause != test.want || !slices.Equal(repeated, test.wantRepeated) {
			t.Errorf("%s: the run with %v counts, %v were repeated, %v; want %v, %v", test.name, got.pause, repeated, err, test.want, test.wantRepeated)
		}
	}
}

func TestLeastDisturbedFails(t *testing.T) {
	failure := errors.New("no such case")
	_, err := leastDisturbed(func() (observation, error) { return observation{}, failure }, measure.MaxAttempts,
		func(time.Duration) { t.Error("what failed was repeated") })
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
}
