package testbed

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestPlanAvoidsTakenAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var random [8]byte
		copy(random[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "random"))
		var taken []netip.Prefix
		for _, n := range rapid.SliceOfN(rapid.Uint32Range(0, 15), 0, 12).Draw(t, "taken blocks") {
			block, err := nthSubnet(benchmarkRange, planBits, n)
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, block)
		}
		plan, err := planAddresses(random, taken)
		if err != nil {
			t.Fatal(err)
		}
		used := []netip.Prefix{plan.host4, plan.bridge4, plan.engineBridge, plan.enginePool, plan.overlay4, plan.routed4, plan.beyond4}
		for i, prefix := range used {
			if !benchmarkRange.Overlaps(prefix) || overlapsAny(prefix, taken) {
				t.Errorf("%s is outside %s or taken", prefix, benchmarkRange)
			}
			if overlapsAny(prefix, used[i+1:]) {
				t.Errorf("%s overlaps with another subnet of %v", prefix, used)
			}
		}
		if !plan.host4.Masked().Contains(plan.peer4.Addr()) || !plan.host6.Masked().Contains(plan.peer6.Addr()) {
			t.Errorf("host and neighbour are not on one link: %+v", plan)
		}
	})
}

func TestPlanFailsWhenAllIsTaken(t *testing.T) {
	if _, err := planAddresses([8]byte{}, []netip.Prefix{benchmarkRange}); err == nil {
		t.Error("planned addresses although the whole range is taken")
	}
}

func TestNthAddress(t *testing.T) {
	for _, test := range []struct {
		prefix string
		n      uint32
		want   string // empty: an error
	}{
		{"198.18.4.1/22", 2, "198.18.4.2/22"},
		{"198.18.4.1/22", 1023, "198.18.7.255/22"},
		{"198.18.4.1/22", 1024, ""},
		{"fd00::1/64", 300, "fd00::12c/64"},
	} {
		got, err := nthAddress(netip.MustParsePrefix(test.prefix), test.n)
		if (err != nil) != (test.want == "") || err == nil && got.String() != test.want {
			t.Errorf("nthAddress(%s, %d) = %s, %v; want %q", test.prefix, test.n, got, err, test.want)
		}
	}
}
