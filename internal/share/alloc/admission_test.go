package alloc_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/share/alloc"
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

func TestAdmitLatency(t *testing.T) {
	for _, tc := range []struct {
		name            string
		floor           uint64
		onTheWay, asked time.Duration
		min             time.Duration // 0: admitted
		want            string
	}{
		// On a link of 100 Mbit/s two packets take half a millisecond.
		{"CNTC's own numbers", 100_000, 500 * time.Microsecond, 20 * time.Millisecond, 0, ""},
		{"just above what the link needs", 1, 500 * time.Microsecond, 500*time.Microsecond + 1, 0, ""},
		{
			"what the link needs", mbit, 500 * time.Microsecond, 500 * time.Microsecond, 500*time.Microsecond + 1,
			"latency 500µs cannot be guaranteed: packets of others that are on their way already may hold the link for that long; the smallest is 501µs at the uplink's rate (minimum 1mbit); ask for that",
		},
		{
			"a slow link", 900_000, 24224 * time.Microsecond, 20 * time.Millisecond, 24224*time.Microsecond + 1,
			"latency 20ms cannot be guaranteed: packets of others that are on their way already may hold the link for that long; the smallest is 24.3ms at the uplink's rate (minimum 900kbit); ask for that",
		},
		{
			"no floor", 0, time.Millisecond, time.Second, time.Millisecond + 1,
			"latency 1s cannot be guaranteed without a minimum rate; set one",
		},
		{
			"longer than time", mbit, math.MaxInt64, math.MaxInt64, math.MaxInt64,
			"latency 2562047h47m16.854775807s cannot be guaranteed: packets of others that are on their way already may hold the link for that long; the smallest is 2562047h47m16.854775807s at the uplink's rate (minimum 1mbit); ask for that",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := alloc.AdmitLatency(tc.floor, tc.onTheWay, tc.asked)
			if tc.min == 0 {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var refused *alloc.LatencyError
			if !errors.As(err, &refused) || refused.Min != tc.min || refused.Asked != tc.asked {
				t.Fatalf("error %#v", err)
			}
			if err.Error() != tc.want {
				t.Errorf("error %v\nwant  %s", err, tc.want)
			}
		})
	}
}

// TestAdmitLatencyProperties: what a refusal says is the smallest is admitted, and
// nothing below it.
func TestAdmitLatencyProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor := rapid.Uint64Range(1, 1e12).Draw(t, "floor")
		onTheWay := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "on the way"))
		asked := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "asked"))
		err := alloc.AdmitLatency(floor, onTheWay, asked)
		var refused *alloc.LatencyError
		switch {
		case err == nil && asked <= onTheWay:
			t.Fatalf("%v is admitted where packets of others take %v", asked, onTheWay)
		case err == nil:
		case !errors.As(err, &refused) || refused.Min <= asked:
			t.Fatalf("error %v", err)
		case alloc.AdmitLatency(floor, onTheWay, refused.Min) != nil || alloc.AdmitLatency(floor, onTheWay, refused.Min-1) == nil:
			t.Fatalf("%v is not the smallest that is admitted", refused.Min)
		}
	})
}
