package alloc_test

import (
	"slices"
	"testing"

	"github.com/weir-project/weir/internal/share/alloc"
)

const mbit = 1_000_000

// greedy is a container of a weight that sends all it can.
func greedy(weight uint32) alloc.Container {
	return alloc.Container{Weight: weight, CeilingBPS: alloc.Unlimited, DemandBPS: alloc.Unlimited}
}

// with returns greedy containers of the given weights, changed by each of change.
func with(weights []uint32, change ...func([]alloc.Container)) []alloc.Container {
	var cs []alloc.Container
	for _, w := range weights {
		cs = append(cs, greedy(w))
	}
	for _, c := range change {
		c(cs)
	}
	return cs
}

func floor(i int, bps uint64) func([]alloc.Container) {
	return func(cs []alloc.Container) { cs[i].FloorBPS = bps }
}

func ceiling(i int, bps uint64) func([]alloc.Container) {
	return func(cs []alloc.Container) { cs[i].CeilingBPS = bps }
}

func demand(i int, bps uint64) func([]alloc.Container) {
	return func(cs []alloc.Container) { cs[i].DemandBPS = bps }
}

func priority(i int, p uint32) func([]alloc.Container) {
	return func(cs []alloc.Container) { cs[i].Priority = p }
}

// TestQCon has the cases of qCon, section 4.1, figures 7 to 11, on its 100 Mbit/s
// link. The figures show what qCon achieved; the values here are the ideal, worked
// out by hand, to the bit. Every container sends all it can, so the allocation
// must be the entitlement.
func TestQCon(t *testing.T) {
	equal, rising := []uint32{1, 1, 1, 1, 1}, []uint32{1, 2, 3, 4, 5}
	floor30 := floor(0, 30*mbit)
	floor20 := floor(1, 20*mbit)
	floor15 := floor(2, 15*mbit)
	for _, tc := range []struct {
		name       string
		containers []alloc.Container
		want       []uint64
	}{
		// Figure 7: 100 by weight. The odd bit goes to the largest fraction,
		// and among identical containers to the first.
		{"fig 7, 1:1:1", with([]uint32{1, 1, 1}), []uint64{33_333_334, 33_333_333, 33_333_333}},
		{"fig 7, 1:2:3", with([]uint32{1, 2, 3}), []uint64{16_666_667, 33_333_333, 50 * mbit}},
		{"fig 7, 1:3:5", with([]uint32{1, 3, 5}), []uint64{11_111_111, 33_333_333, 55_555_556}},

		// Figure 8: weights 1 to 5, one more container each time.
		{"fig 8, one", with(rising[:1]), []uint64{100 * mbit}},
		{"fig 8, two", with(rising[:2]), []uint64{33_333_333, 66_666_667}},
		{"fig 8, three", with(rising[:3]), []uint64{16_666_667, 33_333_333, 50 * mbit}},
		{"fig 8, four", with(rising[:4]), []uint64{10 * mbit, 20 * mbit, 30 * mbit, 40 * mbit}},
		{"fig 8, five", with(rising), []uint64{6_666_667, 13_333_333, 20 * mbit, 26_666_667, 33_333_333}},

		// Figure 9: weights 1 to 5, floors added one by one. Level 70/14 = 5,
		// then 50/12, then 35/9. The last floor lies below C4's 4*35/9 =
		// 15.56 and so changes nothing; qCon took bandwidth from C4 and C5.
		{"fig 9, no floor", with(rising), []uint64{6_666_667, 13_333_333, 20 * mbit, 26_666_667, 33_333_333}},
		{"fig 9, C1", with(rising, floor30), []uint64{30 * mbit, 10 * mbit, 15 * mbit, 20 * mbit, 25 * mbit}},
		{"fig 9, C1 C2", with(rising, floor30, floor20), []uint64{30 * mbit, 20 * mbit, 12_500_000, 16_666_667, 20_833_333}},
		{
			"fig 9, C1 C2 C3", with(rising, floor30, floor20, floor15),
			[]uint64{30 * mbit, 20 * mbit, 15 * mbit, 15_555_556, 19_444_444},
		},
		{
			"fig 9, C1 C2 C3 C4", with(rising, floor30, floor20, floor15, floor(3, 15*mbit)),
			[]uint64{30 * mbit, 20 * mbit, 15 * mbit, 15_555_556, 19_444_444},
		},

		// Figure 10: equal weights, ceilings added one by one. Levels 100/5,
		// 90/4, 80/3, 65/2, 40/1.
		{"fig 10, no ceiling", with(equal), []uint64{20 * mbit, 20 * mbit, 20 * mbit, 20 * mbit, 20 * mbit}},
		{"fig 10, C1", with(equal, ceiling(0, 10*mbit)), []uint64{10 * mbit, 22_500_000, 22_500_000, 22_500_000, 22_500_000}},
		{
			"fig 10, C1 C2", with(equal, ceiling(0, 10*mbit), ceiling(1, 10*mbit)),
			[]uint64{10 * mbit, 10 * mbit, 26_666_667, 26_666_667, 26_666_666},
		},
		{
			"fig 10, C1 C2 C3", with(equal, ceiling(0, 10*mbit), ceiling(1, 10*mbit), ceiling(2, 15*mbit)),
			[]uint64{10 * mbit, 10 * mbit, 15 * mbit, 32_500_000, 32_500_000},
		},
		{
			"fig 10, C1 C2 C3 C4",
			with(equal, ceiling(0, 10*mbit), ceiling(1, 10*mbit), ceiling(2, 15*mbit), ceiling(3, 25*mbit)),
			[]uint64{10 * mbit, 10 * mbit, 15 * mbit, 25 * mbit, 40 * mbit},
		},

		// Figure 11: weights 1 to 3, a floor, then a ceiling. What the ceiling
		// sets free raises the level to 55/2 = 27.5, which does not reach C1's
		// floor, so all of it goes to C2; qCon raised both.
		{"fig 11, weights", with(rising[:3]), []uint64{16_666_667, 33_333_333, 50 * mbit}},
		{"fig 11, floor C1", with(rising[:3], floor30), []uint64{30 * mbit, 28 * mbit, 42 * mbit}},
		{"fig 11, floor C1, ceiling C3", with(rising[:3], floor30, ceiling(2, 15*mbit)), []uint64{30 * mbit, 55 * mbit, 15 * mbit}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := alloc.Entitle(100*mbit, tc.containers)
			if !slices.Equal(got, tc.want) {
				t.Errorf("Entitle  = %d\nwant       %d", got, tc.want)
			}
			if got := alloc.Allocate(100*mbit, tc.containers, got); !slices.Equal(got, tc.want) {
				t.Errorf("Allocate = %d\nwant       %d", got, tc.want)
			}
		})
	}
}

// TestCNTC has the cases of CNTC, sections 4.1 and 4.2, on its gigabit link, as
// the design has them: what is idle goes by strict priority, where CNTC measured
// five to one.
func TestCNTC(t *testing.T) {
	rateStyle := func(i int, bps uint64) func([]alloc.Container) {
		return func(cs []alloc.Container) { cs[i].FloorBPS, cs[i].CeilingBPS = bps, bps }
	}
	floors := func(cs []alloc.Container) { cs[0].FloorBPS, cs[1].FloorBPS = 100*mbit, 100*mbit }
	for _, tc := range []struct {
		name       string
		containers []alloc.Container
		entitled   []uint64
		allocated  []uint64
	}{
		// Figure 7(a): the number of connections does not count.
		{
			"fig 7a, CN2 alone", with([]uint32{1, 1}, demand(0, 0)),
			[]uint64{500 * mbit, 500 * mbit}, []uint64{0, 1000 * mbit},
		},
		{
			"fig 7a, both", with([]uint32{1, 1}),
			[]uint64{500 * mbit, 500 * mbit}, []uint64{500 * mbit, 500 * mbit},
		},

		// Figure 8: both have a floor, CN1 the higher priority. Priority is
		// about what others leave idle; between two that have weights and both
		// send all they can, nothing is.
		{
			"fig 8, weights, nothing idle", with([]uint32{1, 1}, floors, priority(0, 5), priority(1, 1)),
			[]uint64{500 * mbit, 500 * mbit}, []uint64{500 * mbit, 500 * mbit},
		},
		{
			// CNTC's containers have no weight: what their floors leave is idle.
			"fig 8", with([]uint32{0, 0}, floors, priority(0, 5), priority(1, 1)),
			[]uint64{100 * mbit, 100 * mbit}, []uint64{900 * mbit, 100 * mbit},
		},
		{
			"fig 8, the first wants less", with([]uint32{0, 0}, floors, priority(0, 5), priority(1, 1), demand(0, 300*mbit)),
			[]uint64{100 * mbit, 100 * mbit}, []uint64{300 * mbit, 700 * mbit},
		},
		{
			"fig 8, the same priority", with([]uint32{0, 0}, floors),
			[]uint64{100 * mbit, 100 * mbit}, []uint64{500 * mbit, 500 * mbit},
		},
		{
			"fig 8, a third is silent",
			with([]uint32{1, 1, 2}, floors, priority(0, 5), priority(1, 1), demand(2, 0)),
			[]uint64{250 * mbit, 250 * mbit, 500 * mbit}, []uint64{750 * mbit, 250 * mbit, 0},
		},
		{
			"fig 8, the third sends a little",
			with([]uint32{1, 1, 2}, floors, priority(0, 5), priority(1, 1), demand(2, 80*mbit)),
			[]uint64{250 * mbit, 250 * mbit, 500 * mbit}, []uint64{670 * mbit, 250 * mbit, 80 * mbit},
		},
		{
			"fig 8, the first wants little more",
			with([]uint32{1, 1, 2}, floors, priority(0, 5), priority(1, 1), demand(2, 0), demand(0, 300*mbit)),
			[]uint64{250 * mbit, 250 * mbit, 500 * mbit}, []uint64{300 * mbit, 700 * mbit, 0},
		},
		{
			"fig 8, five to one is a weight", with([]uint32{5, 1}, floors),
			[]uint64{833_333_333, 166_666_667}, []uint64{833_333_333, 166_666_667},
		},

		// Figure 9: CN1 and CN2 by weight 1:2; CN3 has 50 MB/s, CN4 30 MB/s
		// ("rate-style": neither more nor less). A stopped one is not there.
		{
			"fig 9, CN3 active", with([]uint32{1, 2, 1}, rateStyle(2, 400*mbit)),
			[]uint64{200 * mbit, 400 * mbit, 400 * mbit}, []uint64{200 * mbit, 400 * mbit, 400 * mbit},
		},
		{
			"fig 9, CN3 stopped", with([]uint32{1, 2}),
			[]uint64{333_333_333, 666_666_667}, []uint64{333_333_333, 666_666_667},
		},
		{
			"fig 9, CN3 silent", with([]uint32{1, 2, 1}, rateStyle(2, 400*mbit), demand(2, 0)),
			[]uint64{200 * mbit, 400 * mbit, 400 * mbit}, []uint64{333_333_333, 666_666_667, 0},
		},
		{
			"fig 9, CN4 active", with([]uint32{1, 2, 1}, rateStyle(2, 240*mbit)),
			[]uint64{253_333_333, 506_666_667, 240 * mbit}, []uint64{253_333_333, 506_666_667, 240 * mbit},
		},

		// Figure 10: weights 0.64 and 0.72, the others (here 2.64 together)
		// silent. With equal priorities the two share by weight; then
		// container2 comes before container1.
		{
			"fig 10, same priority", with([]uint32{64, 72, 264}, demand(2, 0)),
			[]uint64{160 * mbit, 180 * mbit, 660 * mbit}, []uint64{470_588_235, 529_411_765, 0},
		},
		{
			"fig 10, container2 first", with([]uint32{64, 72, 264}, demand(2, 0), priority(1, 1)),
			[]uint64{160 * mbit, 180 * mbit, 660 * mbit}, []uint64{160 * mbit, 840 * mbit, 0},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			entitled := alloc.Entitle(1000*mbit, tc.containers)
			if !slices.Equal(entitled, tc.entitled) {
				t.Errorf("Entitle  = %d\nwant       %d", entitled, tc.entitled)
			}
			if got := alloc.Allocate(1000*mbit, tc.containers, entitled); !slices.Equal(got, tc.allocated) {
				t.Errorf("Allocate = %d\nwant       %d", got, tc.allocated)
			}
		})
	}
}
