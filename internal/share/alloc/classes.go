package alloc

import "math/bits"

// Part is a part of a container's share: a rate in bits per second or, if that is 0, a
// percentage of the share from 0 to 100.
type Part struct {
	BPS     uint64
	Percent float64
}

// Of returns the part in bits per second, at most the share.
func (p Part) Of(shareBPS uint64) uint64 {
	if p.BPS > 0 {
		return min(p.BPS, shareBPS)
	}
	return min(uint64(float64(shareBPS)*p.Percent/100), shareBPS)
}

// ClassParts configures how a container's share is divided among its traffic classes.
type ClassParts struct {
	// EFMax is the rate up to which EF is served first; EF above it competes as BE.
	EFMax Part
	// AFMin is the rate that AF gets before BE.
	AFMin Part
}

// ClassRates are the parts of a share in bits per second; their sum is the share.
type ClassRates struct {
	EFBPS uint64 // maximum of EF with precedence
	AFBPS uint64 // minimum of AF
	BEBPS uint64 // remainder when EF and AF use all of theirs
}

// Of divides a share. If EF's maximum and AF's minimum exceed it, AF gets what EF's maximum
// leaves.
func (p ClassParts) Of(shareBPS uint64) ClassRates {
	var r ClassRates
	r.EFBPS = p.EFMax.Of(shareBPS)
	r.AFBPS = min(p.AFMin.Of(shareBPS), shareBPS-r.EFBPS)
	r.BEBPS = shareBPS - r.EFBPS - r.AFBPS
	return r
}

// Turns returns the ratio in which AF and BE share the rate that EF leaves: the ratio of
// their own parts. So AF always gets at least its minimum, and idle EF rate is divided
// between both instead of all going to BE (design, section 3, point 6: a minimum is a
// floor). Without an AF minimum the ratio is 1 to 64; if both parts are 0, it is even.
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

// Divide returns the rates of EF, AF and BE for given demands (Unlimited: as much as
// possible). ef is the EF traffic with precedence; EF above the maximum competes as BE and
// is counted there.
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
