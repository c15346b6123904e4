package harness

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/test/must"
)

func measured(bps ...float64) Measurement {
	m := Measurement{Duration: 3 * time.Second, CPU: "enough"}
	copy(m.BPS[:], bps)
	return m
}

// TestCheckSharesCanFail proves that what judges every measurement does
// complain, and of the right thing.
func TestCheckSharesCanFail(t *testing.T) {
	weights := func(weights ...string) (claims []Claim) {
		for _, w := range weights {
			claims = append(claims, Claim{Labels: map[string]string{"weir.weight": w}, DemandBPS: Unlimited})
		}
		return claims
	}
	const link = 60e6
	for _, test := range []struct {
		name     string
		measured Measurement
		claims   []Claim
		want     []string
	}{
		{"exact", measured(10e6, 20e6, 30e6), weights("1", "2", "3"), nil},
		{"within tolerance", measured(9.8e6, 20.3e6, 29.6e6), weights("1", "2", "3"), nil},
		{"equal instead of weighted", measured(20e6, 20e6, 20e6), weights("1", "2", "3"), []string{"container 0", "container 2"}},
		{"one starves", measured(0, 20e6, 40e6), weights("1", "2", "3"), []string{"container 0", "container 2"}},
		{"four percent too much", measured(10.4e6, 20e6, 29.6e6), weights("1", "2", "3"), []string{"container 0 is off by +4"}},
		{"link idle", measured(9.7e6, 19.4e6, 29e6), weights("1", "2", "3"), []string{"only 96"}},
		{"link exceeded", measured(10.2e6, 20.3e6, 30.4e6), weights("1", "2", "3"), []string{"above the link"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ideal, err := Ideal(link, test.claims)
			must.Succeed(t, err)
			err = CheckShares(link, test.measured, ideal)
			if (err != nil) != (test.want != nil) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestCheckSharesWithin(t *testing.T) {
	m := measured(20.3e6, 39.7e6)
	if err := CheckSharesWithin(0.02, 60e6, m, []uint64{20e6, 40e6}); err != nil {
		t.Error(err)
	}
	if err := CheckSharesWithin(0.01, 60e6, m, []uint64{20e6, 40e6}); err == nil {
		t.Error("1.5 % are within 1 %")
	}
}

func TestIdeal(t *testing.T) {
	ideal, err := Ideal(100e6, []Claim{
		{Labels: map[string]string{"weir.min": "50mbit"}, DemandBPS: Unlimited},
		{Labels: map[string]string{"weir.max": "10mbit"}, DemandBPS: Unlimited},
		{DemandBPS: 5e6},
		{DemandBPS: Unlimited},
	})
	must.Succeed(t, err)
	for i, want := range []uint64{50e6, 10e6, 5e6, 35e6} {
		if ideal[i] != want {
			t.Errorf("container %d: %d, want %d", i, ideal[i], want)
		}
	}
	if _, err := Ideal(100e6, []Claim{{Labels: map[string]string{"weir.min": "fast"}}}); err == nil {
		t.Error("a label that cannot be parsed was taken")
	}
}

// TestMeasurementsAddUp: a pause at the end of one measurement is also one before the next, and
// counts once.
func TestMeasurementsAddUp(t *testing.T) {
	var total Measurement
	total.add(Measurement{Duration: time.Second, BPS: [Slots]float64{4e6, 1e6}, OtherBPS: 2e6, Disturbed: true, Paused: 50, pausedBefore: 10})
	total.add(Measurement{Duration: 3 * time.Second, BPS: [Slots]float64{8e6, 1e6}, Paused: 45, pausedBefore: 40})
	want := Measurement{Duration: 4 * time.Second, BPS: [Slots]float64{7e6, 1e6}, OtherBPS: 0.5e6, Disturbed: true, Paused: 55, pausedBefore: 10}
	if total != want {
		t.Errorf("got %+v, want %+v", total, want)
	}
}

// TestCheckUndisturbed: slices in which a sender was held up are left out when they matter, and no other.
func TestCheckUndisturbed(t *testing.T) {
	const duration = 4 * slice
	right, wrong := Measurement{Duration: slice, BPS: [Slots]float64{10e6}}, Measurement{Duration: slice, BPS: [Slots]float64{5e6}}
	held := func(m Measurement) Measurement {
		m.Disturbed = true
		return m
	}
	// Half of the link goes wrong, for which a processor has to stand still for a
	// quarter of the time.
	paused := func(m Measurement, part float64) Measurement {
		m.Paused = time.Duration(part * float64(m.Duration))
		return held(m)
	}
	dry := func(m Measurement, part float64) Measurement {
		m.Dry = time.Duration(part * float64(m.Duration))
		return held(m)
	}
	for _, test := range []struct {
		name string
		// slices are what is measured, the last one again and again.
		slices   []Measurement
		ok       bool
		measured int
		skipped  bool
	}{
		{"right", []Measurement{right}, true, 4, false},
		{"right though held up", []Measurement{held(right)}, true, 4, false},
		{"wrong", []Measurement{wrong}, false, 4, false},
		{"wrong while held up", []Measurement{right, held(wrong), right}, true, 5, false},
		{"wrong while held up, again and again", []Measurement{held(wrong), right, held(wrong), held(wrong), right}, true, 7, false},
		{"wrong while held up and not", []Measurement{right, held(wrong), right, wrong}, false, 5, false},
		{"right only while held up", []Measurement{held(right), wrong}, false, 5, false},
		{"held up all the time", []Measurement{paused(wrong, 0.24)}, false, 4*Patience + 1, true},
		{"dry all the time, for want of processors", []Measurement{dry(wrong, 0.48)}, false, 4*Patience + 1, true},
		{"dry all the time, but for a short time each", []Measurement{dry(wrong, 0.44)}, false, 4*Patience + 1, false},
		{"dry all the time without a reason", []Measurement{held(wrong)}, false, 4*Patience + 1, false},
		{"held up all the time, but for a short time each", []Measurement{paused(wrong, 0.22)}, false, 4*Patience + 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			measured := 0
			err := checkUndisturbed(duration, func(time.Duration) Measurement {
				measured++
				return test.slices[min(measured, len(test.slices))-1]
			}, func(m Measurement) error {
				return CheckSharesWithin(ShareTolerance, 10e6, m, []uint64{10e6})
			}, t.Logf)
			if (err == nil) != test.ok || measured != test.measured || errors.Is(err, errHeldUp) != test.skipped {
				t.Errorf("%v after %d slices, want success %t after %d", err, measured, test.ok, test.measured)
			}
		})
	}
}

// TestRepeatHeldUp: a failure counts unless the machine stood still meanwhile.
func TestRepeatHeldUp(t *testing.T) {
	wrong := errors.New("wrong")
	for _, test := range []struct {
		name     string
		errs     []error // the last one again and again
		paused   bool
		want     error
		measured int
	}{
		{"right", []error{nil}, true, nil, 1},
		{"wrong on a steady machine, right later", []error{wrong, nil}, false, wrong, 1},
		{"wrong while it stood still, right later", []error{wrong, nil}, true, nil, 2},
		{"wrong whenever it stood still", []error{wrong}, true, errHeldUp, Patience},
	} {
		measured := 0
		err := repeatHeldUp(func() error {
			measured++
			return test.errs[min(measured, len(test.errs))-1]
		}, func(int64) bool { return test.paused }, t.Logf)
		if !errors.Is(err, test.want) || measured != test.measured {
			t.Errorf("%s: %v after %d", test.name, err, measured)
		}
	}
}

func TestToleranceForSteadySenders(t *testing.T) {
	steady, tcp, silent := Claim{DemandBPS: Unlimited, Steady: true}, Claim{DemandBPS: Unlimited}, Claim{}
	for _, test := range []struct {
		claims []Claim
		want   float64
	}{
		{[]Claim{steady, steady, silent}, SteadyTolerance},
		{[]Claim{steady, tcp}, ShareTolerance},
	} {
		if got := toleranceFor(test.claims); got != test.want {
			t.Errorf("%+v: %v, want %v", test.claims, got, test.want)
		}
	}
}

// TestMaximumIsNotExceeded: by more than 1 % and a frame, also where the machine
// paused, which only explains less.
func TestMaximumIsNotExceeded(t *testing.T) {
	for bps, good := range map[float64]bool{9.5e6: false, 9.8e6: true, 10e6: true, 10.1e6: true, 10.2e6: false} {
		m := Measurement{Duration: time.Second, BPS: [Slots]float64{bps}}
		if err := CheckMaximum(m, 0, 10e6); (err == nil) != good {
			t.Errorf("%v: %v", bps, err)
		}
	}
	m := Measurement{Duration: time.Second, BPS: [Slots]float64{10.2e6}, Slack: 0.1}
	if CheckMaximum(m, 0, 10e6) == nil {
		t.Error("a pause explains more than the maximum")
	}
	m.BPS[0] = 9e6
	if err := CheckMaximum(m, 0, 10e6); err != nil {
		t.Errorf("a pause explains less than the maximum: %v", err)
	}
}

// TestWaitsEnd: a wait is longer only where processors are short, and ends there, too.
func TestWaitsEnd(t *testing.T) {
	for _, test := range []struct {
		waited        time.Duration
		starved, want bool
	}{
		{time.Second, false, false},
		{time.Second + 1, false, true},
		{Patience * time.Second, true, false},
		{Patience*time.Second + 1, true, true},
	} {
		if got := isOver(test.waited, time.Second, test.starved); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}
