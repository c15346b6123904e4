package sched_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
)

func TestLinkPacketBytes(t *testing.T) {
	for _, tc := range []struct {
		rateBPS uint64
		want    uint32
	}{
		{0, 1514},
		{1, 1514},
		{1e6, 1514},
		{10e6, 1514},
		{48.448e6, 1514}, // a frame takes 250 us
		{50e6, 1562},
		{100e6, 3125},
		{1e9, 31_250},
		{2e9, 62_500},
		{2.097152e9, 65_536},
		{5e9, 65_536},
		{100e9, 65_536},
		{1e15, 65_536}, // policy.MaxRateBPS
	} {
		if got := sched.LinkPacketBytes(tc.rateBPS, 0); got != tc.want {
			t.Errorf("at %d bit/s: %d, want %d", tc.rateBPS, got, tc.want)
		}
	}
}

// No packet holds the link for more than 250 us, unless it is one frame.
func TestLinkPacketHoldsTheLinkBriefly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Uint64Range(1, 1e15).Draw(t, "rate")
		bytes := sched.LinkPacketBytes(rate, 0)
		if bytes < sched.FrameBytes || bytes > 65_536 {
			t.Fatalf("%d bytes", bytes)
		}
		if seconds := float64(bytes) * 8 / float64(rate); bytes > sched.FrameBytes && seconds > 250e-6*1.000001 {
			t.Fatalf("%d bytes take %g s", bytes, seconds)
		}
	})
}

// One packet is at most the share of 10 ms, in frames and powers of two.
func TestMaxPacketBytesOfAShare(t *testing.T) {
	for _, tc := range []struct {
		rateBPS, entitledBPS uint64
		want                 uint32
	}{
		{100e6, 100e6, 3125}, // the link's
		{100e6, 5e6, 3125},
		{100e6, 2.43e6, 3028},
		{100e6, 2.42e6, 1514},
		{100e6, 0, 1514},
		{1e9, 10e6, 12_112},
		{1e9, 2e6, 1514},
		{10e9, 1e9, 65_536},
		{10e9, 40e6, 48_448},
	} {
		if got := sched.MaxPacketBytes(tc.rateBPS, tc.entitledBPS, 0); got != tc.want {
			t.Errorf("entitled to %d of %d bit/s: %d, want %d", tc.entitledBPS, tc.rateBPS, got, tc.want)
		}
	}
}

func TestCeilingOr(t *testing.T) {
	for _, tc := range []struct{ ceiling, rate, want uint64 }{
		{alloc.Unlimited, 100, 100},
		{50, 100, 50},
		{100, 100, 100},
		{150, 100, 100},
		{math.MaxUint64 - 1, 100, 100},
	} {
		if got := (sched.Competitor{CeilingBPS: tc.ceiling}).CeilingOr(tc.rate); got != tc.want {
			t.Errorf("ceiling %d on a link of %d: %d, want %d", tc.ceiling, tc.rate, got, tc.want)
		}
	}
}
