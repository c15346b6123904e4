// Package alloc computes the ideal allocation of an uplink's rate to
// containers: what every scheduler of Weir aims at and is measured against.
//
// # Problem
//
// An uplink sends C bits per second. Container i has a weight w, a floor m, a
// ceiling M, a priority p and a demand d. How much may each send, so that
// floors and ceilings hold, the rest is shared by weight, nothing is wasted
// while a container wants it, and what some leave idle goes to others by priority?
//
// # Method
//
// Picture vessels of width w side by side, each with a false bottom at m/w and
// a lid at M/w, and pour C into them: the water finds one level L. That is
// weighted max-min with floors and ceilings:
//
//	sum of clamp(L*w, m, M) = C        the entitlement of i is clamp(L*w, m, M)
//
// A floor lifts a container to m; it is not added on top of its share (qCon,
// figures 9 to 11). Everyone then gets min(d, entitlement). What is left is
// poured again, highest priority first, into those that want more: their false
// bottom is what they have, their lid is min(d, M). So with equal priorities
// the result is the entitlement computed over those that are sending.
//
// Weight 0 is a vessel without width: water never rises in it, so it is
// entitled to its floor and no more (CNTC's rate-style container). It lives on
// what others leave: within its priority it comes after those that have a
// weight, and containers of weight 0 share among themselves as if their weights
// were equal.
//
// The sum is piecewise linear and rises with L, so L lies between two of the
// at most 2n levels at which a container leaves its bottom or reaches its lid.
// These are sorted and swept once: O(n log n). All arithmetic is exact: levels
// are fractions of two 64-bit numbers, compared by 128-bit cross products.
// Shares are rounded down to whole bits per second and the bits that remain go
// one each to the largest fractions (largest remainder, or Hamilton's, method),
// so that sums are exact and the order of the input does not matter.
//
// # Sources
//
// qCon: "qCon: QoS-Aware Network Resource Management for Fog Computing",
// Sensors 2018, section 3.3 (proportional share, minimum, maximum) and section
// 4.1 (the cases in the tests). Its Algorithm 1 depends on the order in which
// it visits containers and leaks credit (TestAlgorithm1); the level does neither. CNTC: "CNTC: A
// Container Aware Network Traffic Control Framework", section 3.2 (latency) and
// section 4 (priority).
//
// # Limits
//
// Fluid, memoryless and of one link: no packets, no bursts, no past. Demands
// must be known or guessed by the caller. A capacity above 2^64/n bits per
// second counts as that (18 petabits for a thousand containers). A share may be off by one bit per
// second from the real number, and in [Allocator.Allocate], where the rounded
// entitlements are the bottoms, by at most one bit per second per container.
package alloc

import (
	"cmp"
	"math/bits"
	"slices"
)

// Unlimited is the demand of a container that wants all it can get, and the
// ceiling of one without a maximum.
const Unlimited = ^uint64(0)

// Container is one competitor for the uplink. Rates are bits per second.
type Container struct {
	Weight     uint32 // relative share; 0 for no share but the floor
	FloorBPS   uint64 // guaranteed rate, 0 for none; a lower ceiling wins
	CeilingBPS uint64 // never more; Unlimited for none
	Priority   uint32 // higher is served first with what others leave idle
	DemandBPS  uint64 // what it wants to send; Unlimited for "all it can get"
}

// width returns the width of a container's vessel when idle capacity is poured. Containers
// of weight 0 are poured separately, all with the same width.
func (c *Container) width() uint64 { return max(uint64(c.Weight), 1) }

// lid returns the most that the level can raise a container to.
func (c *Container) lid() uint64 {
	if c.Weight == 0 {
		return c.guarantee()
	}
	return c.CeilingBPS
}

// guarantee returns the effective floor: the ceiling caps the floor.
func (c *Container) guarantee() uint64 { return min(c.FloorBPS, c.CeilingBPS) }

// Entitle returns the entitlement of each container, in bits per second: the
// rate it can always have, however much others send. The result has the order
// and length of containers. DemandBPS and Priority do not change a share
// (Priority only breaks a tie for the last bit). Design, section 3, point 1;
// qCon, section 3.3, equations 6 to 9.
//
// The sum is exactly capacityBPS, unless every container that has a weight is at
// its ceiling; then it is the sum of these and of the floors of those that have
// none. Floors that exceed the capacity together (the
// link's rate was lowered after they were admitted) are all cut by the same
// factor, and no container gets more than its cut floor.
func Entitle(capacityBPS uint64, containers []Container) []uint64 {
	return new(Allocator).Entitle(nil, capacityBPS, capacityBPS, containers)
}

// Allocate returns what each container may send now, in bits per second, given
// all demands. The result has the order and length of containers.
// entitled is what [Entitle] returned for the same capacity and containers.
// Design, section 3, points 2 and 3; CNTC, section 4.1, for priorities.
//
// No container gets more than its demand or its ceiling, or less than the smaller of
// its demand and its entitlement. What that leaves goes to those that want
// more, highest priority first, by level within one priority, containers of
// weight 0 after the others there. The sum is exactly the smaller of capacityBPS and what all want together.
//
// If floors were cut (see [Entitle]), what silent containers leave first
// restores the floors of those that are sending, regardless of priority.
// Entitlements that exceed the capacity together are cut like floors.
//
// Allocate panics if entitled and containers differ in length.
func Allocate(capacityBPS uint64, containers []Container, entitled []uint64) []uint64 {
	return new(Allocator).Allocate(nil, capacityBPS, containers, entitled)
}

// Allocator computes entitlements and allocations without allocating memory
// once its scratch space has grown to the number of containers. The zero value
// is ready. It keeps nothing between calls that changes a result, and must not
// be used by two goroutines at once.
type Allocator struct {
	vessels   []vessel
	turns     []turn
	fractions []fraction
}

// Entitle is the function [Entitle], writing to dst, which is grown if it is too
// short, and returned. Floors are cut if they exceed floorsBPS together; the rest of the
// capacity is poured as ever.
func (a *Allocator) Entitle(dst []uint64, capacityBPS, floorsBPS uint64, containers []Container) []uint64 {
	capacity := clip(capacityBPS, len(containers))
	floors := min(clip(floorsBPS, len(containers)), capacity)
	dst = slices.Grow(dst[:0], len(containers))[:len(containers)]
	a.vessels = a.vessels[:0]
	for i := range containers {
		c := &containers[i]
		dst[i] = c.guarantee()
		a.vessels = append(a.vessels, vessel{
			index:  i,
			weight: c.width(),
			bottom: c.guarantee(),
			lid:    c.lid(),
		})
	}
	tie := func(i, j int) int { return compareClaims(&containers[i], &containers[j]) }
	if total, ok := sum(dst); !ok || total > floors {
		a.scale(dst, floors, tie)
		if floors == capacity {
			return dst
		}
		for i := range a.vessels {
			v := &a.vessels[i]
			if v.bottom = dst[i]; containers[i].Weight == 0 {
				v.lid = v.bottom
			}
		}
	}
	a.pour(dst, a.vessels, capacity, tie)
	return dst
}

// Allocate is the function [Allocate], writing to dst, which is grown if it is
// too short, and returned. dst and entitled must not overlap.
func (a *Allocator) Allocate(dst []uint64, capacityBPS uint64, containers []Container, entitled []uint64) []uint64 {
	if len(entitled) != len(containers) {
		panic("alloc: Allocate needs one entitlement per container")
	}
	capacity := clip(capacityBPS, len(containers))
	dst = slices.Grow(dst[:0], len(containers))[:len(containers)]
	tie := func(i, j int) int {
		return cmp.Or(
			compareClaims(&containers[i], &containers[j]),
			cmp.Compare(containers[j].DemandBPS, containers[i].DemandBPS),
			cmp.Compare(entitled[j], entitled[i]))
	}

	// Each container gets min(demand, entitlement).
	for i := range containers {
		dst[i] = min(entitled[i], containers[i].wants())
	}
	given, ok := sum(dst)
	if !ok || given > capacity {
		a.scale(dst, capacity, tie)
		return dst
	}
	left := capacity - given

	// Idle capacity first restores floors that were cut, regardless of priority. The level
	// of a cut floor is its fraction, so its width is the floor itself.
	a.vessels = a.vessels[:0]
	for i := range containers {
		c := &containers[i]
		if owed := min(c.guarantee(), c.DemandBPS); dst[i] < owed {
			a.vessels = append(a.vessels, vessel{
				index:  i,
				weight: clip(c.guarantee(), len(containers)),
				bottom: dst[i],
				lid:    owed,
			})
		}
	}
	left = a.raise(dst, a.vessels, left, tie)

	// The rest is poured by priority; within one priority first for containers with a
	// weight, then for the others.
	a.vessels = a.vessels[:0]
	for i := range containers {
		c := &containers[i]
		if wants := c.wants(); dst[i] < wants {
			a.vessels = append(a.vessels, vessel{
				index:  i,
				weight: c.width(),
				bottom: dst[i],
				lid:    wants,
				rank:   c.rank(),
			})
		}
	}
	slices.SortFunc(a.vessels, func(x, y vessel) int { return cmp.Compare(y.rank, x.rank) })
	for rest := a.vessels; len(rest) > 0 && left > 0; {
		n := 1
		for n < len(rest) && rest[n].rank == rest[0].rank {
			n++
		}
		left = a.raise(dst, rest[:n], left, tie)
		rest = rest[n:]
	}
	return dst
}

// wants returns what the container would send on an idle link.
func (c *Container) wants() uint64 { return min(c.DemandBPS, c.CeilingBPS) }

// rank returns the order in which idle capacity is offered, higher first.
func (c *Container) rank() uint64 {
	rank := 2 * uint64(c.Priority)
	if c.Weight > 0 {
		rank++
	}
	return rank
}

// compareClaims orders containers by what they ask for, larger first. Only containers with
// identical requests compare equal, so ties do not depend on the input order.
func compareClaims(x, y *Container) int {
	return cmp.Or(
		cmp.Compare(y.Weight, x.Weight),
		cmp.Compare(y.FloorBPS, x.FloorBPS),
		cmp.Compare(y.CeilingBPS, x.CeilingBPS),
		cmp.Compare(y.Priority, x.Priority))
}

// vessel is a container in the water-filling model: its content is at least bottom, at most
// lid, and in between weight times the level.
type vessel struct {
	index       int // of the container
	weight      uint64
	bottom, lid uint64
	rank        uint64 // order of pouring, higher first
}

// turn is a level at which a vessel leaves its bottom (full is false) or reaches
// its lid. The level is amount/weight.
type turn struct {
	amount, weight uint64
	full           bool
}

// fraction is the numerator of the part of a share lost by rounding down. Compared
// fractions have the same denominator.
type fraction struct {
	index     int
	numerator uint64
}

// raise pours left on top of the vessels' bottoms and returns what does not fit.
func (a *Allocator) raise(dst []uint64, vessels []vessel, left uint64, tie func(i, j int) int) uint64 {
	for _, v := range vessels {
		left += v.bottom
	}
	return a.pour(dst, vessels, left, tie)
}

// pour finds the level at which the vessels hold amount together and writes what
// each holds, in whole bits, to dst. It returns what is left when all are full.
// The bottoms must not exceed amount together, nor a bottom its lid; the weights
// must be positive and their sum must fit 64 bits.
func (a *Allocator) pour(dst []uint64, vessels []vessel, amount uint64, tie func(i, j int) int) uint64 {
	// fixed is the sum of the vessels at their bottom or lid, width the sum of
	// the weights of the others: at level x, all hold fixed + width*x.
	fixed, width, room := uint64(0), uint64(0), uint64(0)
	a.turns = a.turns[:0]
	for _, v := range vessels {
		room = addSaturated(room, v.lid-v.bottom)
		fixed += v.bottom
		if v.bottom == v.lid {
			continue
		}
		if v.bottom == 0 {
			width += v.weight
		} else {
			a.turns = append(a.turns, turn{amount: v.bottom, weight: v.weight})
		}
		if v.lid < amount { // the level cannot reach a higher lid
			a.turns = append(a.turns, turn{amount: v.lid, weight: v.weight, full: true})
		}
	}
	if room <= amount-fixed {
		for _, v := range vessels {
			dst[v.index] = v.lid
		}
		return amount - fixed - room
	}
	slices.SortFunc(a.turns, func(x, y turn) int {
		return compareProducts(x.amount, y.weight, y.amount, x.weight)
	})
	// Up to the level, the vessels hold at most amount, so no sum here exceeds
	// it; and there is a width left, as not all are full.
	for _, t := range a.turns {
		if compareProducts(width, t.amount, amount-fixed, t.weight) > 0 {
			break
		}
		if t.full {
			fixed += t.amount
			width -= t.weight
		} else {
			fixed -= t.amount
			width += t.weight
		}
	}
	level := amount - fixed // divided by width

	held := uint64(0)
	a.fractions = a.fractions[:0]
	for _, v := range vessels {
		share, remainder := mulDiv(v.weight, level, width)
		switch {
		case share < v.bottom:
			share = v.bottom
		case share >= v.lid:
			share = v.lid
		case remainder > 0:
			a.fractions = append(a.fractions, fraction{v.index, remainder})
		}
		dst[v.index] = share
		held += share
	}
	a.roundUp(dst, amount-held, tie)
	return 0
}

// scale multiplies every rate by the factor that makes their sum capacity, which
// must be less than their sum and at most clip(Unlimited, len(rates)).
func (a *Allocator) scale(rates []uint64, capacity uint64, tie func(i, j int) int) {
	total := uint64(0)
	for i := range rates {
		rates[i] = clip(rates[i], len(rates))
		total += rates[i]
	}
	held := uint64(0)
	a.fractions = a.fractions[:0]
	for i := range rates {
		share, remainder := mulDiv(rates[i], capacity, total)
		if remainder > 0 {
			a.fractions = append(a.fractions, fraction{i, remainder})
		}
		rates[i] = share
		held += share
	}
	a.roundUp(rates, capacity-held, tie)
}

// roundUp gives one bit per second to each of the n largest fractions.
func (a *Allocator) roundUp(dst []uint64, n uint64, tie func(i, j int) int) {
	if n == 0 {
		return
	}
	slices.SortFunc(a.fractions, func(x, y fraction) int {
		if x.numerator != y.numerator {
			return cmp.Compare(y.numerator, x.numerator)
		}
		return cmp.Or(tie(x.index, y.index), cmp.Compare(x.index, y.index))
	})
	for _, f := range a.fractions[:n] {
		dst[f.index]++
	}
}

// sum adds rates up; ok is false if the sum does not fit 64 bits.
func sum(rates []uint64) (total uint64, ok bool) {
	for _, r := range rates {
		var carry uint64
		if total, carry = bits.Add64(total, r, 0); carry > 0 {
			return 0, false
		}
	}
	return total, true
}

// addSaturated returns x + y, or Unlimited on overflow.
func addSaturated(x, y uint64) uint64 {
	if total, carry := bits.Add64(x, y, 0); carry == 0 {
		return total
	}
	return Unlimited
}

// clip caps a rate so that the sum of n of them cannot overflow 64 bits.
func clip(rate uint64, n int) uint64 { return min(rate, Unlimited/uint64(max(n, 1))) }

// compareProducts compares a*b with c*d.
func compareProducts(a, b, c, d uint64) int {
	ah, al := bits.Mul64(a, b)
	ch, cl := bits.Mul64(c, d)
	if ah != ch {
		return cmp.Compare(ah, ch)
	}
	return cmp.Compare(al, cl)
}

// mulDiv returns the whole part and the remainder of x*y/z. A whole part that
// does not fit 64 bits is Unlimited.
func mulDiv(x, y, z uint64) (whole, remainder uint64) {
	hi, lo := bits.Mul64(x, y)
	if hi >= z {
		return Unlimited, 0
	}
	return bits.Div64(hi, lo, z)
}
