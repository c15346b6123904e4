package bench

import (
	"fmt"

	"github.com/weir-project/weir/internal/report"
)

// quantities collects what reports are compared by.
type quantities []report.Quantity

// add adds a value of a case with those of all its runs; without any it is left out.
func (q *quantities) add(of, name, unit string, better report.Better, value *Spread) {
	if value == nil || len(value.values) == 0 {
		return
	}
	*q = append(*q, report.Quantity{Case: of, Name: name, Unit: unit, Better: better, Values: value.values})
}

// quantities are all numbers of a suite. A share has no good direction: less of it is
// more for others.
func (r Report) quantities() []report.Quantity {
	var list quantities
	for _, result := range r.Results {
		of := result.id() + ", " + result.Peer
		for _, share := range result.Shares {
			name := "share of " + share.Container
			if share.Phase != "" {
				name += ", " + share.Phase
			}
			list.add(of, name, "bit/s", "", &share.Measured)
		}
		list.add(of, "link use", "fraction", report.Higher, result.LinkUse)
		if o := result.Overshoot; o != nil {
			list.add(of, "overshoot", "fraction", report.Lower, &o.Fraction)
		}
		for _, reaction := range result.Reactions {
			what := fmt.Sprintf(" at %.1f s (%s)", reaction.AtMS/1000, reaction.Change)
			list.add(of, "settled after the change"+what, "ms", report.Lower, &reaction.SettleMS)
			list.add(of, "time within 5 %"+what, "fraction", report.Higher, &reaction.Held)
		}
		if c := result.Cost; c != nil {
			list.add(of, "processor time of a gigabit", "s", report.Lower, &c.CPUSecondsPerGbit)
			list.add(of, "packets a second", "1/s", report.Higher, &c.PacketsPerSecond)
		}
		if l := result.Latency; l != nil {
			list.add(of, "mean round trip", "ms", report.Lower, &l.MeanMS)
			list.add(of, "99th percentile of round trips", "ms", report.Lower, &l.P99MS)
		}
		if a := result.Agent; a != nil {
			list.add(of, "agent's processor time, of a core", "fraction", report.Lower, &a.CPUOfCore)
			list.add(of, "agent's memory", "bytes", report.Lower, &a.ResidentBytes)
			list.add(of, "agent's start", "ms", report.Lower, &a.StartMS)
			list.add(of, "99th percentile of the control loop's period", "ms", report.Lower, &a.TurnP99MS)
			list.add(of, "scrape", "ms", report.Lower, a.ScrapeMS)
		}
	}
	return list
}

// quantities are all numbers of the network modes.
func (r NetmodesReport) quantities() []report.Quantity {
	var list quantities
	for _, one := range r.Results {
		of := one.settingName() + ", " + one.what()
		list.add(of, "throughput", "bit/s", report.Higher, &one.RateBPS)
		list.add(of, "senders' processor time", "s/s", report.Lower, &one.CPU)
		list.add(of, "context switches", "1/s", report.Lower, &one.Switches)
		list.add(of, "page faults", "1/s", report.Lower, &one.Faults)
		list.add(of, "migrations", "1/s", report.Lower, one.Migrations)
		list.add(of, "cycles", "1/s", report.Lower, one.Cycles)
		list.add(of, "instructions per cycle", "", report.Higher, one.IPC)
	}
	return list
}
