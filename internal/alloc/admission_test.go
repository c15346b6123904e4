package alloc_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/alloc"
)

func TestAdmit(t *testing.T) {
	link := alloc.Admission{CapacityBPS: 100 * mbit, ReserveBPS: 5 * mbit}
	for _, tc := range []struct {
		name                string
		others, held, asked uint64
		want                string // empty: admitted
	}{
		{"first", 0, 0, 95 * mbit, ""},
		{"fits exactly", 65 * mbit, 0, 30 * mbit, ""},
		{"raised", 65 * mbit, 10 * mbit, 30 * mbit, ""},
		{"no floor", 95 * mbit, 0, 0, ""},
		{
			"one bit too much", 65 * mbit, 0, 30*mbit + 1,
			"minimum 30000001bit cannot be guaranteed: 30mbit is free (uplink 100mbit, reserve 5mbit, other minimums 65mbit); ask for at most 30mbit or lower the minimum of another container",
		},
		{
			"raised too high", 65 * mbit, 10 * mbit, 31 * mbit,
			"minimum 31mbit cannot be guaranteed: 30mbit is free (uplink 100mbit, reserve 5mbit, other minimums 65mbit); ask for at most 30mbit or lower the minimum of another container",
		},
		{
			"nothing free", 95 * mbit, 0, 1 * mbit,
			"minimum 1mbit cannot be guaranteed: 0bit is free (uplink 100mbit, reserve 5mbit, other minimums 95mbit); lower the minimum of another container",
		},
		// The link's rate was lowered after 120 had been admitted.
		{"kept on a slower link", 90 * mbit, 30 * mbit, 30 * mbit, ""},
		{"lowered on a slower link", 90 * mbit, 30 * mbit, 20 * mbit, ""},
		{
			"raised on a slower link", 120 * mbit, 30 * mbit, 31 * mbit,
			"minimum 31mbit cannot be guaranteed: 0bit is free (uplink 100mbit, reserve 5mbit, other minimums 120mbit); lower the minimum of another container",
		},
		{"more than 64 bits together", math.MaxUint64, 0, math.MaxUint64, "minimum 18446744073709551615bit cannot be guaranteed: 0bit is free (uplink 100mbit, reserve 5mbit, other minimums 18446744073709551615bit); lower the minimum of another container"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := link.Admit(tc.others, tc.held, tc.asked)
			if tc.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var refused *alloc.FloorError
			if !errors.As(err, &refused) || err.Error() != tc.want {
				t.Fatalf("error %v\nwant  %s", err, tc.want)
			}
			if refused.AskedBPS != tc.asked || refused.HeldBPS != tc.held || refused.OthersBPS != tc.others {
				t.Errorf("%+v does not repeat the question", refused)
			}
		})
	}
	if got := (alloc.Admission{CapacityBPS: 1, ReserveBPS: 2}).BudgetBPS(); got != 0 {
		t.Errorf("a reserve above the capacity leaves %d", got)
	}
}

// TestAdmitKeepsPromises: whatever is asked in whatever order, admitted floors fit
// the budget, so that entitlements keep all of them, and what an error says is free
// would have been admitted.
func TestAdmitKeepsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		link := alloc.Admission{
			CapacityBPS: rapid.Uint64Range(0, 1e12).Draw(t, "capacity"),
			ReserveBPS:  rapid.Uint64Range(0, 1e12).Draw(t, "reserve"),
		}
		containers := make([]alloc.Container, rapid.IntRange(1, 6).Draw(t, "n"))
		for i := range containers {
			containers[i] = greedy(1)
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			c := &containers[rapid.IntRange(0, len(containers)-1).Draw(t, "who")]
			asked := rapid.Uint64Range(0, max(link.BudgetBPS(), 1)).Draw(t, "asked")
			others := total(pick(containers, guarantee)) - c.FloorBPS
			err := link.Admit(others, c.FloorBPS, asked)
			var refused *alloc.FloorError
			switch {
			case err == nil:
				c.FloorBPS = asked
			case !errors.As(err, &refused):
				t.Fatalf("error %v", err)
			case refused.FreeBPS >= asked || refused.FreeBPS < c.FloorBPS:
				t.Fatalf("held %d, asked %d: %+v", c.FloorBPS, asked, refused)
			case link.Admit(others, c.FloorBPS, refused.FreeBPS) != nil || link.Admit(others, c.FloorBPS, refused.FreeBPS+1) == nil:
				t.Fatalf("%+v: what is free is not the most that is admitted", refused)
			}
			if total(pick(containers, guarantee)) > link.BudgetBPS() {
				t.Fatalf("floors %d exceed %d", pick(containers, guarantee), link.BudgetBPS())
			}
			for i, e := range alloc.Entitle(link.CapacityBPS, containers) {
				if e < containers[i].FloorBPS {
					t.Fatalf("admitted floor %d is entitled to %d", containers[i].FloorBPS, e)
				}
			}
		}
	})
}

func TestCurve(t *testing.T) {
	for _, tc := range []struct {
		name    string
		floor   uint64
		latency time.Duration
		packet  int
		want    alloc.ServiceCurve
	}{
		// CNTC's example with the rate at which its numbers hold.
		{"CNTC", mbit, 20 * time.Millisecond, 1500, alloc.ServiceCurve{BurstBPS: 2_500_000, BurstFor: 8 * time.Millisecond, FloorBPS: mbit}},
		{"rounds up", 3 * mbit, 7 * time.Millisecond, 1500, alloc.ServiceCurve{BurstBPS: 7 * mbit, BurstFor: 3 * time.Millisecond, FloorBPS: 3 * mbit}},
		{"no packet", mbit, time.Millisecond, 0, alloc.ServiceCurve{BurstBPS: mbit, BurstFor: time.Millisecond, FloorBPS: mbit}},
		{"no length", mbit, time.Millisecond, -1, alloc.ServiceCurve{BurstBPS: mbit, BurstFor: time.Millisecond, FloorBPS: mbit}},
		{"not a whole bit", 10, 3 * time.Second, 1, alloc.ServiceCurve{BurstBPS: 14, BurstFor: 2200 * time.Millisecond, FloorBPS: 10}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := alloc.Curve(tc.floor, tc.latency, tc.packet); err != nil || got != tc.want {
				t.Errorf("Curve = %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestLatencyInfeasible(t *testing.T) {
	for _, tc := range []struct {
		name    string
		floor   uint64
		latency time.Duration
		packet  int
		min     time.Duration
		want    string
	}{
		{
			"CNTC's own numbers", 100_000, 20 * time.Millisecond, 1500, 120*time.Millisecond + 1,
			"latency 20ms cannot be guaranteed: with a minimum of 100kbit and packets of 1500 bytes the smallest is 121ms; ask for that or raise the minimum",
		},
		{
			"exactly one packet", mbit, 12 * time.Millisecond, 1500, 12*time.Millisecond + 1,
			"latency 12ms cannot be guaranteed: with a minimum of 1mbit and packets of 1500 bytes the smallest is 12.1ms; ask for that or raise the minimum",
		},
		{
			"short", 1000 * mbit, 5 * time.Microsecond, 1514, 12113 * time.Nanosecond,
			"latency 5µs cannot be guaranteed: with a minimum of 1gbit and packets of 1514 bytes the smallest is 12.2µs; ask for that or raise the minimum",
		},
		{
			"no floor", 0, time.Second, 1500, math.MaxInt64,
			"latency 1s cannot be guaranteed without a minimum rate; set one",
		},
		{
			"longer than time", 1, time.Second, math.MaxInt, math.MaxInt64,
			"latency 1s cannot be guaranteed without a minimum rate; set one",
		},
		{
			"nearly longer than time", 1, time.Second, 1_152_921_504, 9_223_372_032_000_000_001,
			"latency 1s cannot be guaranteed: with a minimum of 1bit and packets of 1152921504 bytes the smallest is 2562047h47m12.000000001s; ask for that or raise the minimum",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := alloc.MinLatency(tc.floor, tc.packet); got != tc.min {
				t.Errorf("MinLatency = %d; want %d", got, tc.min)
			}
			_, err := alloc.Curve(tc.floor, tc.latency, tc.packet)
			var refused *alloc.LatencyError
			if !errors.As(err, &refused) || refused.Min != tc.min || refused.Asked != tc.latency {
				t.Fatalf("error %#v", err)
			}
			if err.Error() != tc.want {
				t.Errorf("error %v\nwant  %s", err, tc.want)
			}
		})
	}
}

// TestCurveProperties: a curve exists exactly from MinLatency on, and serves within
// the bound what the floor promises for it.
func TestCurveProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor := rapid.Uint64Range(1, 1e12).Draw(t, "floor")
		packet := rapid.IntRange(0, 65536).Draw(t, "packet")
		smallest := alloc.MinLatency(floor, packet)
		if _, err := alloc.Curve(floor, smallest, packet); err != nil {
			t.Fatal(err)
		}
		if _, err := alloc.Curve(floor, smallest-1, packet); err == nil {
			t.Fatalf("less than the smallest latency %v is taken", smallest)
		}
		latency := smallest + time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "more"))
		curve, err := alloc.Curve(floor, latency, packet)
		if err != nil {
			t.Fatal(err)
		}
		if curve.BurstBPS < floor || curve.BurstFor <= 0 || curve.BurstFor > latency {
			t.Fatalf("curve %+v", curve)
		}
		served := float64(curve.BurstBPS) * curve.BurstFor.Seconds()
		promised := float64(floor) * latency.Seconds()
		if served < promised*(1-1e-12) || served > promised*(1+1e-12)+curve.BurstFor.Seconds() {
			t.Fatalf("%+v serves %g bits, promised %g", curve, served, promised)
		}
	})
}
