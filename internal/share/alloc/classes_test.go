package alloc_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/share/alloc"
)

// usual are the parts of a container that asks for no others.
var usual = alloc.ClassParts{EFMax: alloc.Part{Percent: 50}, AFMin: alloc.Part{Percent: 30}}

func TestClasses(t *testing.T) {
	const all = alloc.Unlimited
	for _, tc := range []struct {
		name                   string
		parts                  alloc.ClassParts
		share                  uint64
		wantEF, wantAF, wantBE uint64
		ef, af, be             uint64
	}{
		{"all want all", usual, 100e6, all, all, all, 50e6, 30e6, 20e6},
		{"EF wants little", usual, 100e6, 1e6, all, all, 1e6, 59.4e6, 39.6e6},
		{"no EF", usual, 100e6, 0, all, all, 0, 60e6, 40e6},
		{"AF wants little", usual, 100e6, 50e6, 10e6, all, 50e6, 10e6, 40e6},
		{"AF within its minimum", usual, 100e6, all, 30e6, all, 50e6, 30e6, 20e6},
		{"BE wants little", usual, 100e6, 40e6, all, 5e6, 40e6, 55e6, 5e6},
		{"EF alone: what is too much competes as BE", usual, 100e6, all, 0, 0, 50e6, 0, 50e6},
		{"EF alone, within its maximum", usual, 100e6, 40e6, 0, 0, 40e6, 0, 0},
		{"AF alone", usual, 100e6, 0, all, 0, 0, 100e6, 0},
		{"BE alone", usual, 100e6, 0, 0, all, 0, 0, 100e6},
		{"nothing goes first", alloc.ClassParts{AFMin: alloc.Part{Percent: 30}}, 100e6, 30e6, all, 70e6, 0, 30e6, 70e6},
		{"nothing for BE", alloc.ClassParts{EFMax: alloc.Part{Percent: 70}, AFMin: alloc.Part{Percent: 30}}, 64e6, all, all, all, 44.8e6, 19.2e6, 0},
		{"rates", alloc.ClassParts{EFMax: alloc.Part{BPS: 2e6}, AFMin: alloc.Part{BPS: 6e6}}, 10e6, all, all, all, 2e6, 6e6, 2e6},
		{"rates above the share", alloc.ClassParts{EFMax: alloc.Part{BPS: 20e6}, AFMin: alloc.Part{BPS: 6e6}}, 10e6, all, 0, all, 10e6, 0, 0},
		{"AF's minimum does not fit", alloc.ClassParts{EFMax: alloc.Part{BPS: 8e6}, AFMin: alloc.Part{BPS: 6e6}}, 10e6, all, 2e6, 0, 8e6, 2e6, 0},
		{"no minimum of AF", alloc.ClassParts{EFMax: alloc.Part{Percent: 20}}, 80e6, all, all, all, 16e6, 1e6, 63e6},
		{"all for EF, which wants little", alloc.ClassParts{EFMax: alloc.Part{Percent: 100}}, 80e6, 20e6, all, all, 20e6, 30e6, 30e6},
		{"no share", usual, 0, all, all, all, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ef, af, be := tc.parts.Of(tc.share).Divide(tc.wantEF, tc.wantAF, tc.wantBE)
			if ef != tc.ef || af != tc.af || be != tc.be {
				t.Errorf("EF %d, AF %d, BE %d; want %d, %d, %d", ef, af, be, tc.ef, tc.af, tc.be)
			}
		})
	}
}

// TestClassProperties: the share is kept and used, EF up to its maximum first, AF's
// minimum before BE, nobody gets more than it wants or less for wanting more.
func TestClassProperties(t *testing.T) {
	rate := rapid.OneOf(rapid.Uint64Range(0, 2e9), rapid.SampledFrom([]uint64{0, 1, alloc.Unlimited}))
	part := rapid.Custom(func(t *rapid.T) alloc.Part {
		if rapid.Bool().Draw(t, "a rate") {
			return alloc.Part{BPS: rapid.Uint64Range(1, 2e9).Draw(t, "rate")}
		}
		return alloc.Part{Percent: rapid.Float64Range(0, 100).Draw(t, "percent")}
	})
	rapid.Check(t, func(t *rapid.T) {
		parts := alloc.ClassParts{EFMax: part.Draw(t, "EF"), AFMin: part.Draw(t, "AF")}
		share := rapid.Uint64Range(0, 1e15).Draw(t, "share")
		r := parts.Of(share)
		if r.EFBPS+r.AFBPS+r.BEBPS != share {
			t.Fatalf("%+v is not %d together", r, share)
		}
		wantEF, wantAF, wantBE := rate.Draw(t, "wants EF"), rate.Draw(t, "wants AF"), rate.Draw(t, "wants BE")
		ef, af, be := r.Divide(wantEF, wantAF, wantBE)
		if ef != min(wantEF, r.EFBPS) {
			t.Fatalf("EF has %d of %d, at most %d", ef, wantEF, r.EFBPS)
		}
		wantsBE := wantBE + (wantEF - ef)
		if wantsBE < wantBE {
			wantsBE = alloc.Unlimited
		}
		if ef+af+be > share || af > wantAF || be > wantsBE {
			t.Fatalf("EF %d, AF %d, BE %d of %d", ef, af, be, share)
		}
		if (af < wantAF || be < wantsBE) && ef+af+be != share {
			t.Fatalf("EF %d, AF %d, BE %d leave some of %d", ef, af, be, share)
		}
		if af < min(wantAF, r.AFBPS) {
			t.Fatalf("AF has %d of %d, at least %d", af, wantAF, r.AFBPS)
		}
		more := wantAF + rapid.Uint64Range(0, 1e9).Draw(t, "more")
		if _, again, _ := r.Divide(wantEF, max(more, wantAF), wantBE); again < af {
			t.Fatalf("AF that wants more has %d, not %d", again, af)
		}
	})
}
