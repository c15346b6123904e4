package alloc

import "math/bits"

// Part is a part of a container's share: a rate in bits per second or, where that is
// 0, a percentage of the share, 0 to 100.
type Part struct {
	BPS     uint64
	Percent float64
}

// Of is that part of a share; never more than the share.
func (p Part) Of(shareBPS uint64) uint64 {
	if p.BPS > 0 {
		return min(p.BPS, shareBPS)
	}
	return min(uint64(float64(shareBPS)*p.Percent/100), shareBPS)
}

// ClassParts is how a container's share is to be divided among its traffic classes.
type ClassParts struct {
	// EFMax is up to which rate EF goes first; more of it competes as BE.
	EFMax Part
	// AFMin is what AF has before BE gets any.
	AFMin Part
}

// ClassRates are the parts of a share, in bits per second; their sum is the share.
type ClassRates struct {
	EFBPS uint64 // the most that goes first
	AFBPS uint64 // the least that AF has
	BEBPS uint64 // what the two leave when both are used up
}

// Of divides a share. EF goes first, so where the two do not fit AF has what EF's
// maximum leaves.
func (p ClassParts) Of(shareBPS uint64) ClassRates {
	var r ClassRates
	r.EFBPS = p.EFMax.Of(shareBPS)
	r.AFBPS = min(p.AFMin.Of(shareBPS), shareBPS-r.EFBPS)
	r.BEBPS = shareBPS - r.EFBPS - r.AFBPS
	return r
}

// Turns are the proportion in which AF and BE share what EF leaves: that of the parts
// set aside for them. So AF never has less than its own, whatever EF does; and what EF
// does not use it does not all lose to BE, which would make AF the worse of the two
// (design, section 3, point 6: a minimum is a floor). Where nothing is set aside for
// AF it takes one turn of 64, and where for none of them, equal turns.
func (r ClassRates) Turns() (af, be uint64) {
	const few = 64
	switch {
	case r.AFBPS > 0:
		return r.AFBPS, r.BEBPS
	case r.BEBPS == 0:
		return 1, 1
	}
	return 1, few - 1
}

// Divide is what the classes of a container get of its share when they want so much
// (Unlimited for as much as there is), and what of EF goes first; the rest of it
// competes as BE, and is not in ef.
func (r ClassRates) Divide(wantEF, wantAF, wantBE uint64) (ef, af, be uint64) {
	ef = min(wantEF, r.EFBPS)
	wantBE = addSaturated(wantBE, wantEF-ef)
	left := r.EFBPS - ef + r.AFBPS + r.BEBPS
	turnAF, turnBE := r.Turns()
	hi, lo := bits.Mul64(left, turnAF)
	af, _ = bits.Div64(hi, lo, turnAF+turnBE)
	af = min(af, wantAF)
	be = min(left-af, wantBE)
	return ef, min(left-be, wantAF), be
}
