package alloc_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/share/alloc"
)

func TestEdges(t *testing.T) {
	for _, tc := range []struct {
		name       string
		capacity   uint64
		containers []alloc.Container
		entitled   []uint64
		allocated  []uint64
	}{
		{"nobody", 100, nil, []uint64{}, []uint64{}},
		{"no capacity", 0, with([]uint32{1, 2}, floor(0, 10)), []uint64{0, 0}, []uint64{0, 0}},
		{"no capacity, no floors", 0, with([]uint32{1, 2}), []uint64{0, 0}, []uint64{0, 0}},
		{"one bit", 1, with([]uint32{1, 2, 1}), []uint64{0, 1, 0}, []uint64{0, 1, 0}},
		{"weight 0 has no share", 100, with([]uint32{0, 1, 3}), []uint64{0, 25, 75}, []uint64{0, 25, 75}},
		{"weight 0 has its floor", 100, with([]uint32{0, 1, 3}, floor(0, 20)), []uint64{20, 20, 60}, []uint64{20, 20, 60}},
		{"weight 0, a ceiling below the floor wins", 100, with([]uint32{0, 1}, floor(0, 20), ceiling(0, 5)), []uint64{5, 95}, []uint64{5, 95}},
		{
			"weight 0 comes after the others of its priority", 100,
			with([]uint32{0, 1, 3}, floor(0, 20), demand(1, 10), demand(2, 30)), []uint64{20, 20, 60}, []uint64{60, 10, 30},
		},
		{
			"and gets nothing while one of them wants more", 100,
			with([]uint32{0, 1, 3}, demand(2, 30)), []uint64{0, 25, 75}, []uint64{0, 70, 30},
		},
		{
			"but comes before a lower priority", 100,
			with([]uint32{0, 1, 3}, priority(0, 1), demand(2, 30)), []uint64{0, 25, 75}, []uint64{45, 25, 30},
		},
		{
			"only weight 0: all but the floors is idle, and shared as if of equal weight", 100,
			with([]uint32{0, 0}, floor(0, 20), floor(1, 60)), []uint64{20, 60}, []uint64{40, 60},
		},
		{"only weight 0, no floors", 100, with([]uint32{0, 0}), []uint64{0, 0}, []uint64{50, 50}},
		{"all at their ceilings", 100, with([]uint32{1, 1}, ceiling(0, 10), ceiling(1, 20)), []uint64{10, 20}, []uint64{10, 20}},
		{"ceiling 0", 100, with([]uint32{1, 1}, ceiling(0, 0)), []uint64{0, 100}, []uint64{0, 100}},
		{"a ceiling below the floor wins", 100, with([]uint32{1, 1}, floor(0, 80), ceiling(0, 30)), []uint64{30, 70}, []uint64{30, 70}},
		{"floors take all", 100, with([]uint32{1, 9}, floor(0, 60), floor(1, 40)), []uint64{60, 40}, []uint64{60, 40}},
		{
			"the level rests between a ceiling and a floor", 100,
			with([]uint32{1, 1}, ceiling(0, 20), floor(1, 80)), []uint64{20, 80}, []uint64{20, 80},
		},
		{
			"floors above the capacity are cut alike", 100,
			with([]uint32{1, 9, 5}, floor(0, 150), floor(1, 50)), []uint64{75, 25, 0}, []uint64{75, 25, 0},
		},
		{
			"cut floors round up the largest fraction", 100,
			with([]uint32{1, 1, 1}, floor(0, 1000), floor(1, 999), floor(2, 998)),
			[]uint64{34, 33, 33}, []uint64{34, 33, 33}, // 33.37, 33.33, 33.30
		},
		{
			"what is idle restores cut floors, whatever the priority", 100,
			with([]uint32{1, 1, 1}, floor(0, 60), floor(1, 60), floor(2, 80), demand(2, 0), priority(0, 9)),
			[]uint64{30, 30, 40}, []uint64{50, 50, 0},
		},
		{
			"cut floors are restored in proportion to the floors", 100,
			with([]uint32{1, 1, 1}, floor(0, 60), floor(1, 180), floor(2, 160), demand(2, 0)),
			[]uint64{15, 45, 40}, []uint64{25, 75, 0},
		},
		{
			"and goes by priority after that", 100,
			with([]uint32{1, 1, 1}, floor(0, 40), floor(1, 40), floor(2, 80), demand(2, 0), priority(0, 9)),
			[]uint64{25, 25, 50}, []uint64{60, 40, 0},
		},
		{"silence", 100, with([]uint32{1, 1}, demand(0, 0), demand(1, 0)), []uint64{50, 50}, []uint64{0, 0}},
		{
			"priorities in three steps", 100,
			with([]uint32{1, 1, 1, 1}, demand(0, 40), priority(0, 2), demand(1, 30), priority(1, 1), demand(2, 0)),
			[]uint64{25, 25, 25, 25}, []uint64{40, 30, 0, 30},
		},
		{
			"a low priority waits", 100,
			with([]uint32{1, 1, 1, 1}, priority(0, 1), demand(2, 0), demand(3, 0), ceiling(0, 60)),
			[]uint64{25, 25, 25, 25}, []uint64{60, 40, 0, 0},
		},
		{
			"beyond any link, alone", math.MaxUint64,
			with([]uint32{1}), []uint64{math.MaxUint64}, []uint64{math.MaxUint64},
		},
		{
			"beyond any link, two share half of 2^64", math.MaxUint64, with([]uint32{1, 1}),
			[]uint64{1 << 62, 1<<62 - 1}, []uint64{1 << 62, 1<<62 - 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := alloc.Entitle(tc.capacity, tc.containers)
			if !slices.Equal(got, tc.entitled) {
				t.Errorf("Entitle  = %d\nwant       %d", got, tc.entitled)
			}
			if got := alloc.Allocate(tc.capacity, tc.containers, got); !slices.Equal(got, tc.allocated) {
				t.Errorf("Allocate = %d\nwant       %d", got, tc.allocated)
			}
		})
	}
}

// TestTies: between two that differ in one thing only, the odd bit goes to the one
// that asks for more, whatever the order.
func TestTies(t *testing.T) {
	for _, tc := range []struct {
		name     string
		more     func([]alloc.Container)
		capacity uint64
		entitled []uint64
		want     []uint64
	}{
		{"weight 2 of 3, both 0.5", func(cs []alloc.Container) { cs[0].FloorBPS, cs[1].FloorBPS, cs[0].Weight = 1, 1, 2 }, 1, nil, []uint64{1, 0}},
		{"weight, of two with floors", func(cs []alloc.Container) { cs[0].Weight, cs[1].Weight = 1, 0 }, 7, []uint64{0, 0}, []uint64{7, 0}},
		{"floor", floor(0, 1), 7, nil, []uint64{4, 3}},
		{"ceiling", ceiling(1, 10), 7, nil, []uint64{4, 3}},
		{"priority", priority(0, 1), 7, nil, []uint64{4, 3}},
		{"demand", demand(1, 10), 7, []uint64{1, 1}, []uint64{4, 3}},
		{"entitlement", func([]alloc.Container) {}, 7, []uint64{2, 1}, []uint64{4, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, swap := range []bool{false, true} {
				cs, entitled, want := with([]uint32{1, 1}, tc.more), slices.Clone(tc.entitled), slices.Clone(tc.want)
				if swap {
					slices.Reverse(cs)
					slices.Reverse(entitled)
					slices.Reverse(want)
				}
				if entitled == nil {
					if entitled = alloc.Entitle(tc.capacity, cs); !slices.Equal(entitled, want) {
						t.Errorf("swapped %v: Entitle = %d; want %d", swap, entitled, want)
					}
				}
				if got := alloc.Allocate(tc.capacity, cs, entitled); !slices.Equal(got, want) {
					t.Errorf("swapped %v: Allocate = %d; want %d", swap, got, want)
				}
			}
		})
	}
}

// TestStaleEntitlements: entitlements of a faster link do not overload a slower.
func TestStaleEntitlements(t *testing.T) {
	got := alloc.Allocate(50, with([]uint32{1, 1}), []uint64{75, 25})
	if want := []uint64{38, 12}; !slices.Equal(got, want) { // 37.5, 12.5: the larger entitlement rounds up
		t.Errorf("Allocate = %d; want %d", got, want)
	}
}

func TestAllocatePanicsOnMismatch(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	alloc.Allocate(100, with([]uint32{1, 1}), []uint64{100})
}

// network is a link and its containers.
type network struct {
	capacity   uint64
	containers []alloc.Container
}

// networks draws links of up to a terabit and containers of all kinds. Small
// numbers are as likely as large ones: there, rounding shows.
var networks = rapid.Custom(func(t *rapid.T) network {
	rate := func(name string, limit uint64) uint64 {
		return rapid.Uint64Range(0, max(limit>>rapid.IntRange(0, 40).Draw(t, name+" shift"), 1)).Draw(t, name)
	}
	capacity := rate("capacity", 1e12)
	overload := rapid.SampledFrom([]uint64{1, 1, 1, 4}).Draw(t, "overload")
	n := rapid.IntRange(0, 9).Draw(t, "n")
	containers := make([]alloc.Container, n)
	for i := range containers {
		c := greedy(rapid.OneOf(rapid.Uint32Range(1, 5), rapid.Uint32Range(0, 10000)).Draw(t, "weight"))
		if rapid.Bool().Draw(t, "has floor") {
			c.FloorBPS = overload * rate("floor", capacity/uint64(n))
		}
		if rapid.IntRange(0, 2).Draw(t, "has ceiling") == 0 {
			c.CeilingBPS = rate("ceiling", capacity)
		}
		switch rapid.IntRange(0, 2).Draw(t, "has demand") {
		case 0:
			c.DemandBPS = rate("demand", capacity)
		case 1:
			c.DemandBPS = 0
		}
		c.Priority = rapid.Uint32Range(0, 3).Draw(t, "priority")
		containers[i] = c
	}
	return network{capacity, containers}
})

// reference pours amount into vessels with exact fractions, by another method
// than the package: guess the level, pin whoever breaks a bound on the side that
// breaks more, and guess again (as CSS sizes flexible boxes).
func reference(amount *big.Rat, weights, bottoms, lids []uint64) []*big.Rat {
	got := make([]*big.Rat, len(weights))
	room := new(big.Rat)
	for _, lid := range lids {
		room.Add(room, rat(lid))
	}
	if room.Cmp(amount) <= 0 {
		for i, lid := range lids {
			got[i] = rat(lid)
		}
		return got
	}
	for {
		left, width := new(big.Rat).Set(amount), new(big.Rat)
		for i := range got {
			if got[i] != nil {
				left.Sub(left, got[i])
			} else {
				width.Add(width, rat(weights[i]))
			}
		}
		if width.Sign() == 0 {
			return got
		}
		level := left.Quo(left, width)
		excess := new(big.Rat)
		clamped := make([]*big.Rat, len(got))
		for i := range got {
			if got[i] != nil {
				continue
			}
			share := new(big.Rat).Mul(level, rat(weights[i]))
			clamped[i] = share
			if share.Cmp(rat(bottoms[i])) < 0 {
				clamped[i] = rat(bottoms[i])
			} else if share.Cmp(rat(lids[i])) > 0 {
				clamped[i] = rat(lids[i])
			}
			excess.Add(excess, clamped[i]).Sub(excess, share)
		}
		for i := range got {
			if got[i] != nil {
				continue
			}
			share := new(big.Rat).Mul(level, rat(weights[i]))
			if side := clamped[i].Cmp(share); excess.Sign() == 0 || side == excess.Sign() {
				got[i] = clamped[i]
			}
		}
	}
}

func rat(n uint64) *big.Rat { return new(big.Rat).SetInt(new(big.Int).SetUint64(n)) }

func guarantee(c alloc.Container) uint64 { return min(c.FloorBPS, c.CeilingBPS) }
func wants(c alloc.Container) uint64     { return min(c.DemandBPS, c.CeilingBPS) }

func total(rates []uint64) uint64 {
	sum := uint64(0)
	for _, r := range rates {
		sum += r
	}
	return sum
}

// capped is the smaller of limit and the sum of what f says of the containers.
func capped(limit uint64, cs []alloc.Container, f func(alloc.Container) uint64) uint64 {
	sum := new(big.Int)
	for _, c := range cs {
		sum.Add(sum, new(big.Int).SetUint64(f(c)))
	}
	if l := new(big.Int).SetUint64(limit); sum.Cmp(l) > 0 {
		return limit
	}
	return sum.Uint64()
}

// floorsFit: whether all floors can be kept.
func (n network) floorsFit() bool {
	return capped(n.capacity+1, n.containers, guarantee) <= n.capacity
}

// pick lists what f says of the containers.
func pick(cs []alloc.Container, f func(alloc.Container) uint64) []uint64 {
	list := make([]uint64, len(cs))
	for i, c := range cs {
		list[i] = f(c)
	}
	return list
}

// widthOf is the weight by which what is idle is shared.
func widthOf(c alloc.Container) uint64 { return uint64(max(c.Weight, 1)) }

// lidOf is the most a container can be entitled to.
func lidOf(c alloc.Container) uint64 {
	if c.Weight == 0 {
		return guarantee(c)
	}
	return c.CeilingBPS
}

// closeTo: whether got is want rounded up or down.
func closeTo(got uint64, want *big.Rat) bool {
	off := new(big.Rat).Sub(rat(got), want)
	return off.Abs(off).Cmp(big.NewRat(1, 1)) < 0
}

func TestEntitleProperties(t *testing.T) { rapid.Check(t, checkEntitle) }

func FuzzEntitle(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkEntitle)) }

func checkEntitle(t *rapid.T) {
	n := networks.Draw(t, "network")
	got := alloc.Entitle(n.capacity, n.containers)

	// The sum is the capacity, unless all that have a weight are at their ceilings.
	if want := capped(n.capacity, n.containers, lidOf); total(got) != want {
		t.Fatalf("sum of %d is %d; want %d", got, total(got), want)
	}
	// Floors and ceilings hold; if floors do not fit, nobody gets more than its own.
	fit := n.floorsFit()
	for i, c := range n.containers {
		if got[i] > c.CeilingBPS || fit && got[i] < guarantee(c) || !fit && got[i] > guarantee(c) {
			t.Fatalf("%d of %d breaks a bound of %+v (floors fit: %v)", i, got, c, fit)
		}
	}
	// The shares are those of the definition.
	var want []*big.Rat
	floors := pick(n.containers, guarantee)
	if fit {
		want = reference(rat(n.capacity), pick(n.containers, widthOf), floors, pick(n.containers, lidOf))
	} else {
		want = reference(rat(n.capacity), floors, make([]uint64, len(floors)), floors)
	}
	for i := range got {
		if !closeTo(got[i], want[i]) {
			t.Fatalf("%d of %d: want %s", i, got, want[i].FloatString(3))
		}
	}
	// With the same bounds, more weight never means less.
	for i, c := range n.containers {
		for j, d := range n.containers {
			same := c.FloorBPS == d.FloorBPS && c.CeilingBPS == d.CeilingBPS
			if same && c.Weight < d.Weight && got[i] > got[j] {
				t.Fatalf("%+v gets %d, but %+v gets %d", c, got[i], d, got[j])
			}
		}
	}
	// Without a weight there is no more than the floor.
	for i, c := range n.containers {
		if c.Weight == 0 && got[i] > guarantee(c) {
			t.Fatalf("%+v is entitled to %d", c, got[i])
		}
	}
	// Demand does not matter.
	for i := range n.containers {
		n.containers[i].DemandBPS = 0
	}
	if silent := alloc.Entitle(n.capacity, n.containers); !slices.Equal(silent, got) {
		t.Fatalf("with other demands %d; want %d", silent, got)
	}
}

// TestEntitleWithinFloors: floors that exceed what they can have together are cut by the same factor,
// and the rest of the capacity is divided as beside floors of that size.
func TestEntitleWithinFloors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := networks.Draw(t, "network")
		floors := rapid.Uint64Range(0, n.capacity).Draw(t, "floors")
		got := new(alloc.Allocator).Entitle(nil, n.capacity, floors, n.containers)
		all := new(big.Int)
		for _, c := range n.containers {
			all.Add(all, new(big.Int).SetUint64(guarantee(c)))
		}
		cut := slices.Clone(n.containers)
		if all.Cmp(new(big.Int).SetUint64(floors)) > 0 {
			for i, c := range cut {
				part := new(big.Int).Mul(new(big.Int).SetUint64(guarantee(c)), new(big.Int).SetUint64(floors))
				cut[i].FloorBPS = part.Div(part, all).Uint64()
			}
		}
		for i, want := range alloc.Entitle(n.capacity, cut) {
			if off := max(got[i], want) - min(got[i], want); off > uint64(len(cut)) {
				t.Fatalf("with floors of %d together %+v is entitled to %d, want %d", floors, n.containers[i], got[i], want)
			}
		}
	})
}

// TestEntitleMonotone: a higher weight or floor never means less for oneself nor
// more for another, a lower ceiling never more for oneself nor less for another,
// and more capacity never less for anyone. One bit may move by rounding.
func TestEntitleMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := networks.Filter(func(n network) bool { return len(n.containers) > 0 && n.floorsFit() }).Draw(t, "network")
		before := alloc.Entitle(n.capacity, n.containers)
		changed := network{n.capacity, slices.Clone(n.containers)}
		i := rapid.IntRange(0, len(n.containers)-1).Draw(t, "who")
		c := &changed.containers[i]
		var up []int // who may only gain; all others may only lose
		switch rapid.SampledFrom([]string{"weight", "floor", "ceiling", "capacity"}).Draw(t, "what") {
		case "weight":
			c.Weight = rapid.Uint32Range(c.Weight, 10001).Draw(t, "weight")
			up = []int{i}
		case "floor":
			most := n.capacity // that is admitted
			if free := most - capped(most, slices.Delete(slices.Clone(n.containers), i, i+1), guarantee); c.CeilingBPS > free {
				most = free
			}
			c.FloorBPS = rapid.Uint64Range(c.FloorBPS, max(most, c.FloorBPS)).Draw(t, "floor")
			up = []int{i}
		case "ceiling":
			c.CeilingBPS = rapid.Uint64Range(0, c.CeilingBPS).Draw(t, "ceiling")
			for j := range before {
				if j != i {
					up = append(up, j)
				}
			}
		case "capacity":
			changed.capacity = rapid.Uint64Range(n.capacity, 2e12).Draw(t, "new capacity")
			for j := range before {
				up = append(up, j)
			}
		}
		if !changed.floorsFit() {
			t.Fatalf("drew floors that are not admitted: %+v", changed)
		}
		after := alloc.Entitle(changed.capacity, changed.containers)
		for j := range before {
			gains := slices.Contains(up, j)
			if gains && after[j]+1 < before[j] || !gains && after[j] > before[j]+1 {
				t.Fatalf("%d of %d: now %d", j, before, after)
			}
		}
	})
}

func TestAllocateProperties(t *testing.T) { rapid.Check(t, checkAllocate) }

func FuzzAllocate(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkAllocate)) }

func checkAllocate(t *rapid.T) {
	n := networks.Draw(t, "network")
	entitled := alloc.Entitle(n.capacity, n.containers)
	got := alloc.Allocate(n.capacity, n.containers, entitled)

	// Work conservation: all of the capacity, or all that is wanted.
	if want := capped(n.capacity, n.containers, wants); total(got) != want {
		t.Fatalf("sum of %d is %d; want %d", got, total(got), want)
	}
	due := capped(n.capacity+1, n.containers, func(c alloc.Container) uint64 { return min(guarantee(c), c.DemandBPS) })
	for i, c := range n.containers {
		if got[i] > wants(c) {
			t.Fatalf("%d of %d is more than %+v may or wants to send", i, got, c)
		}
		if got[i] < min(c.DemandBPS, entitled[i]) {
			t.Fatalf("%d of %d is less than the entitlement %d", i, got, entitled[i])
		}
		if due <= n.capacity && got[i] < min(c.DemandBPS, guarantee(c)) {
			t.Fatalf("%d of %d: floor of %+v is not kept", i, got, c)
		}
	}
	// Priority is strict: who gets more than it is owed leaves no one hungry
	// above it, nor, without a weight, one beside it that has one.
	for i, c := range n.containers {
		for j, d := range n.containers {
			extra := got[i] > max(entitled[i], min(guarantee(c), c.DemandBPS))
			before := d.Priority > c.Priority || d.Priority == c.Priority && c.Weight == 0 && d.Weight > 0
			if extra && before && got[j] < wants(d) {
				t.Fatalf("%d: %+v gets idle capacity before %+v", got, c, d)
			}
		}
	}
	for i, want := range referenceAllocate(n, entitled) {
		if !closeTo(got[i], want) {
			t.Fatalf("%d of %d: want %s", i, got, want.FloatString(3))
		}
	}
}

// referenceAllocate follows the definition step by step, with reference.
func referenceAllocate(n network, entitled []uint64) []*big.Rat {
	got := make([]*big.Rat, len(entitled))
	left := rat(n.capacity)
	for i, c := range n.containers {
		got[i] = rat(min(c.DemandBPS, entitled[i]))
		left.Sub(left, got[i])
	}
	// raise gives left to the members of a group, up to their lids. It works in
	// whole bits, as the package rounds after each step.
	raise := func(member func(alloc.Container) bool, weight, lid func(alloc.Container) uint64) {
		var index []int
		var weights, bottoms, lids []uint64
		amount := new(big.Rat).Set(left)
		for i, c := range n.containers {
			if member(c) && got[i].Cmp(rat(lid(c))) < 0 {
				index = append(index, i)
				weights, lids = append(weights, weight(c)), append(lids, lid(c))
				bottoms = append(bottoms, got[i].Num().Uint64())
				amount.Add(amount, got[i])
			}
		}
		for k, share := range reference(amount, weights, bottoms, lids) {
			i := index[k]
			left.Sub(left, new(big.Rat).Sub(share, got[i]))
			got[i] = share
		}
	}
	raise(
		func(alloc.Container) bool { return true },
		guarantee,
		func(c alloc.Container) uint64 { return min(guarantee(c), c.DemandBPS) })
	for p := 3; p >= 0; p-- {
		for _, weighted := range []bool{true, false} {
			if left.Sign() > 0 {
				raise(func(c alloc.Container) bool { return int(c.Priority) == p && c.Weight > 0 == weighted }, widthOf, wants)
			}
		}
	}
	return got
}

// TestAllocateIsEntitlementOfSenders: with equal priorities, weights, and containers that
// send all they can or nothing, the allocation is the entitlement computed over
// those that are sending. Each entitlement is rounded by less than a bit before
// it becomes a bound, so the difference is less than a bit per container.
func TestAllocateIsEntitlementOfSenders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := networks.Draw(t, "network")
		var senders []alloc.Container
		for i := range n.containers {
			c := &n.containers[i]
			c.Priority, c.Weight = 5, max(c.Weight, 1)
			if c.DemandBPS > 0 {
				c.DemandBPS = alloc.Unlimited
				senders = append(senders, *c)
			}
		}
		want := alloc.Entitle(n.capacity, senders)
		got := alloc.Allocate(n.capacity, n.containers, alloc.Entitle(n.capacity, n.containers))
		k := 0
		for i, c := range n.containers {
			if c.DemandBPS == 0 {
				if got[i] != 0 {
					t.Fatalf("%d of %d is silent", i, got)
				}
				continue
			}
			if off := max(got[i], want[k]) - min(got[i], want[k]); off > uint64(len(n.containers)) {
				t.Fatalf("%d of %d: want %d", i, got, want[k])
			}
			k++
		}
	})
}

// TestAllocateRewardsDemand: asking for more never means less, so that a control
// loop which raises demands cannot swing back.
func TestAllocateRewardsDemand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := networks.Filter(func(n network) bool { return len(n.containers) > 0 }).Draw(t, "network")
		entitled := alloc.Entitle(n.capacity, n.containers)
		before := alloc.Allocate(n.capacity, n.containers, entitled)
		i := rapid.IntRange(0, len(n.containers)-1).Draw(t, "who")
		n.containers[i].DemandBPS = rapid.Uint64Range(n.containers[i].DemandBPS, alloc.Unlimited).Draw(t, "new demand")
		after := alloc.Allocate(n.capacity, n.containers, entitled)
		if after[i]+1 < before[i] {
			t.Fatalf("%d of %d: now %d", i, before, after)
		}
	})
}

// TestOrderIndependence: a container's share does not depend on its place.
func TestOrderIndependence(t *testing.T) {
	type row struct {
		c                   alloc.Container
		entitled, allocated uint64
	}
	table := func(n network) []row {
		entitled := alloc.Entitle(n.capacity, n.containers)
		allocated := alloc.Allocate(n.capacity, n.containers, entitled)
		var rows []row
		for i, c := range n.containers {
			rows = append(rows, row{c, entitled[i], allocated[i]})
		}
		slices.SortFunc(rows, func(a, b row) int { // identical ones by share
			return cmp.Compare(fmt.Sprintf("%020d", a), fmt.Sprintf("%020d", b))
		})
		return rows
	}
	rapid.Check(t, func(t *rapid.T) {
		n := networks.Draw(t, "network")
		// Entitle must not see demands, so containers that differ in nothing
		// else are identical to it and may swap a bit: make them differ in
		// nothing.
		for i := range n.containers {
			n.containers[i].Weight = max(n.containers[i].Weight, 1) // 0 and 1 are the same
			for j := range i {
				a, b := n.containers[j], n.containers[i]
				b.DemandBPS = a.DemandBPS
				if a == b {
					n.containers[i] = b
				}
			}
		}
		want := table(n)
		shuffled := network{n.capacity, rapid.Permutation(n.containers).Draw(t, "shuffled")}
		if got := table(shuffled); !slices.Equal(got, want) {
			t.Fatalf("in another order:\n%+v\nwant\n%+v", got, want)
		}
	})
}

// TestAnyNumbers: whatever 64 bits hold, sums and bounds are right.
func TestAnyNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		any64 := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, alloc.Unlimited, alloc.Unlimited - 1, 1 << 63}))
		containers := rapid.SliceOf(rapid.Custom(func(t *rapid.T) alloc.Container {
			return alloc.Container{
				Weight:     rapid.Uint32().Draw(t, "weight"),
				FloorBPS:   any64.Draw(t, "floor"),
				CeilingBPS: any64.Draw(t, "ceiling"),
				Priority:   rapid.Uint32().Draw(t, "priority"),
				DemandBPS:  any64.Draw(t, "demand"),
			}
		})).Draw(t, "containers")
		capacity := any64.Draw(t, "capacity")
		limit := min(capacity, alloc.Unlimited/uint64(max(len(containers), 1)))
		fit := network{limit - min(limit, 1), containers}.floorsFit()

		entitled := alloc.Entitle(capacity, containers)
		if want := capped(limit, containers, lidOf); total(entitled) != want {
			t.Fatalf("sum of entitlements %d is %d; want %d", entitled, total(entitled), want)
		}
		allocated := alloc.Allocate(capacity, containers, entitled)
		if want := capped(limit, containers, wants); total(allocated) != want {
			t.Fatalf("sum of allocations %d is %d; want %d", allocated, total(allocated), want)
		}
		for i, c := range containers {
			if entitled[i] > c.CeilingBPS || fit && entitled[i] < guarantee(c) ||
				allocated[i] > wants(c) || allocated[i] < min(c.DemandBPS, entitled[i]) {
				t.Fatalf("%+v: entitled %d, allocated %d", c, entitled[i], allocated[i])
			}
		}
		// Entitlements that are not of this network break no sum and no bound.
		for i := range entitled {
			entitled[i] = any64.Draw(t, "entitled")
		}
		allocated = alloc.Allocate(capacity, containers, entitled)
		if want := capped(limit, containers, wants); total(allocated) != want {
			t.Fatalf("sum of allocations %d is %d; want %d", allocated, total(allocated), want)
		}
		for i, c := range containers {
			if allocated[i] > wants(c) {
				t.Fatalf("%+v: allocated %d", c, allocated[i])
			}
		}
	})
}

// many is a network of a thousand containers of all kinds, always the same.
func many() network {
	n := network{capacity: 10_000 * mbit}
	for i := range uint64(1000) {
		c := greedy(uint32(1 + i*7919%10000))
		if i%3 == 0 {
			c.FloorBPS = (1 + i%17) * mbit
		}
		if i%5 == 0 {
			c.CeilingBPS = (20 + i%23) * mbit
		}
		if i%4 == 0 {
			c.DemandBPS = i % 29 * mbit
		}
		c.Priority = uint32(i % 3)
		n.containers = append(n.containers, c)
	}
	return n
}

func TestAllocatorReusesMemory(t *testing.T) {
	n := many()
	var a alloc.Allocator
	entitled := a.Entitle(nil, n.capacity, n.capacity, n.containers)
	allocated := a.Allocate(nil, n.capacity, n.containers, entitled)
	again := slices.Clone(allocated)
	if allocs := testing.AllocsPerRun(10, func() {
		entitled = a.Entitle(entitled, n.capacity, n.capacity, n.containers)
		allocated = a.Allocate(allocated, n.capacity, n.containers, entitled)
	}); allocs > 0 {
		t.Errorf("%v allocations per run", allocs)
	}
	if !slices.Equal(allocated, again) {
		t.Error("a used Allocator gives another result than a new one")
	}
	if got := a.Entitle(entitled, 100, 100, with([]uint32{1})); !slices.Equal(got, []uint64{100}) {
		t.Errorf("after a large network, a small one gets %d", got)
	}
}

func BenchmarkEntitle1000(b *testing.B) {
	n := many()
	var a alloc.Allocator
	var entitled []uint64
	for b.Loop() {
		entitled = a.Entitle(entitled, n.capacity, n.capacity, n.containers)
	}
}

func BenchmarkAllocate1000(b *testing.B) {
	n := many()
	var a alloc.Allocator
	entitled := a.Entitle(nil, n.capacity, n.capacity, n.containers)
	var allocated []uint64
	for b.Loop() {
		allocated = a.Allocate(allocated, n.capacity, n.containers, entitled)
	}
}
