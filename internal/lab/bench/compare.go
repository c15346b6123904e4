package bench

import "math"

// compare adds values that need several results: a peer's overhead against none in the same case,
// and a case compared with its baseline.
func compare(cases []Case, results []CaseResult) {
	find := findings{results: results}.of
	for _, c := range cases {
		for _, peer := range PeerNames() {
			result := find(c.Group, c.Name, peer)
			if result == nil {
				continue
			}
			if none := find(c.Group, c.Name, PeerNone); c.Measures.has(MeasureOverhead) && peer != PeerNone && none != nil {
				result.Overhead = overhead(c, *result, *none)
			}
			var baseline *CaseResult
			if c.Baseline != "" {
				if baseline = find(c.Group, c.Baseline, peer); baseline == nil {
					continue
				}
			}
			if result.Latency != nil {
				result.Latency.judge(c, baseline)
			}
			if a := result.Agent; a != nil && a.ScrapeMS != nil && baseline != nil {
				added := a.CPUOfCore.Median - baseline.Agent.CPUOfCore.Median
				a.ScrapeCPU = &added
			}
			if result.Cost != nil && baseline != nil && baseline.Cost.PacketsPerSecond.Median > 0 {
				ratio := result.Cost.PacketsPerSecond.Median / baseline.Cost.PacketsPerSecond.Median
				result.Cost.PacketsOfBaseline = &ratio
			}
		}
	}
}

// judge sets the latency limit of a case, relative to its baseline if it has one.
func (l *Latency) judge(c Case, baseline *CaseResult) {
	limit := c.MaxLatencyMS
	if baseline != nil {
		p99, p999 := baseline.Latency.P99MS.Median, baseline.Latency.P999MS.Median
		if baseline.Latency.Lost > 0 { // it must not allow more
			p99, p999 = 0, 0
		}
		l.BaselineP99MS, l.BaselineP999MS = &p99, &p999
		limit += *l.BaselineP99MS
	}
	if c.MaxLatencyMS > 0 {
		l.LimitMS = &limit
	}
}

// overhead compares a peer with none in one case; nil if nothing arrived with none.
func overhead(c Case, with, none CaseResult) *Overhead {
	o := &Overhead{Senders: len(with.Shares)}
	if paper, ok := c.PaperOverhead[with.Peer]; ok {
		o.Paper = &paper
	}
	o.Of = overheadBandwidth
	fraction, added := lost(with, none)
	if math.IsNaN(fraction) || math.IsInf(fraction, 0) {
		return nil
	}
	if o.Fraction = fraction; c.Measures.has(MeasureLatency) {
		o.Of, o.AddedMS = overheadRoundTrip, &added
	}
	return o
}

// lost returns the round trip that is added, in milliseconds and of that with none, or else the bandwidth that is lost.
func lost(with, none CaseResult) (fraction, addedMS float64) {
	if with.Latency == nil || none.Latency == nil {
		return 1 - with.sentBPS()/none.sentBPS(), 0
	}
	addedMS = with.Latency.MeanMS.Median - none.Latency.MeanMS.Median
	return addedMS / none.Latency.MeanMS.Median, addedMS
}

const (
	overheadBandwidth = "bandwidth"
	overheadRoundTrip = "round trip"
)

// sentBPS returns the rate of all containers together, in bits per second.
func (c CaseResult) sentBPS() float64 {
	var sum float64
	for _, share := range c.Shares {
		sum += share.Measured.Median
	}
	return sum
}
