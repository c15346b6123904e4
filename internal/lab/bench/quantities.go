package bench

import (
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

// quantities returns all numbers of a suite. A share has no good direction: less of it is more
// for others.
func (r Report) quantities() []report.Quantity {
	var list measure.Quantities
	for _, result := range r.Results {
		of := result.id() + ", " + result.Peer
		for _, share := range result.Shares {
			name := "share of " + share.Container
			if share.Phase != "" {
				name += ", " + share.Phase
			}
			list.Add(of, name, "bit/s", "", &share.Measured)
		}
		list.Add(of, "largest share error", "fraction", report.Lower, result.shareErrors())
		list.Add(of, "link use", "fraction", report.Higher, result.LinkUse)
		if o := result.Overshoot; o != nil {
			list.Add(of, "overshoot", "fraction", report.Lower, &o.Fraction)
		}
		if in := result.Incoming; in != nil {
			list.Add(of, "of a minimum in the worst second", "fraction", report.Higher, in.MinimumKept)
			list.Add(of, "over a maximum in the first second", "fraction", report.Lower, in.FirstSecondOver)
			list.Add(of, "what arrives of the rate in the emptiest second", "fraction", report.Higher, in.ArrivesLeast)
			list.Add(of, "what arrives of the rate in the fullest second", "fraction", report.Lower, in.ArrivesMost)
		}
		for _, reaction := range result.Reactions {
			what := ": " + reaction.Change
			list.Add(of, "settled after the change"+what, "ms", report.Lower, &reaction.SettleMS)
			list.Add(of, "time within 5 %"+what, "fraction", report.Higher, &reaction.Held)
		}
		if c := result.Cost; c != nil {
			list.Add(of, "processor time of a gigabit", "s", report.Lower, &c.CPUSecondsPerGbit)
			list.Add(of, "packets a second", "1/s", report.Higher, &c.PacketsPerSecond)
		}
		if l := result.Latency; l != nil {
			list.Add(of, "mean round trip", "ms", report.Lower, &l.MeanMS)
			list.Add(of, "99th percentile of round trips", "ms", report.Lower, &l.P99MS)
			list.Add(of, "99.9th percentile of round trips", "ms", report.Lower, &l.P999MS)
		}
		if a := result.Agent; a != nil {
			list.Add(of, "agent's processor time, of a core", "fraction", report.Lower, &a.CPUOfCore)
			list.Add(of, "agent's memory", "bytes", report.Lower, &a.MemoryBytes)
			list.Add(of, "agent's start", "ms", report.Lower, &a.StartMS)
			list.Add(of, "99th percentile of the control loop's period", "ms", report.Lower, &a.TurnP99MS)
			list.Add(of, "scrape", "ms", report.Lower, a.ScrapeMS)
		}
	}
	return list
}

// shareErrors returns the largest error of the containers' shares in each round; nil without shares.
func (c CaseResult) shareErrors() *measure.Spread {
	if len(c.Shares) == 0 {
		return nil
	}
	var rounds []float64
	for i := range c.Runs {
		largest := 0.0
		for _, share := range c.round(i).Shares {
			largest = max(largest, share.worst())
		}
		rounds = append(rounds, largest)
	}
	spread := measure.SpreadOf(rounds)
	return &spread
}
