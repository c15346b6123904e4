package sched

// ServiceCurve is a latency as HFSC has it: M1BPS for the time DMS, then M2BPS.
type ServiceCurve struct {
	M1BPS, M2BPS uint64
	DMS          float64
}

// CurveFor returns the service curve for a rate and a latency on a link, as CNTC computes it (section 3.2, formulas 1
// and 2): a packet of others, of mtuBytes, takes a part of the latency. It returns false if that takes all of it.
func CurveFor(rateBPS uint64, latencyMS float64, linkBPS uint64, mtuBytes uint32) (ServiceCurve, bool) {
	if linkBPS == 0 {
		return ServiceCurve{}, false
	}
	dMS := latencyMS - float64(mtuBytes)*8e3/float64(linkBPS)
	if dMS <= 0 {
		return ServiceCurve{}, false
	}
	return ServiceCurve{M1BPS: uint64(float64(rateBPS) * latencyMS / dMS), M2BPS: rateBPS, DMS: dMS}, true
}
