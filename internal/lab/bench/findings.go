package bench

import (
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/claim"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

// paperClaims are all claims of a paper.
type paperClaims struct {
	source string
	claims []claim.Claim
}

// claimsOf returns the claims of a suite, with numbers from the findings.
func claimsOf(suite string, f findings) paperClaims {
	switch suite {
	case SuiteQCon:
		return paperClaims{claim.PaperQCon, qconClaims(f)}
	case SuiteCNTC:
		return paperClaims{claim.PaperCNTC, cntcClaims(f)}
	}
	return paperClaims{}
}

// judgedOnly returns cases with the peers whose runs judge a claim of the suite or a target of Weir's own, without the cases that
// have none.
func judgedOnly(suite string, cases []Case) (judged []Case) {
	f := findings{asked: map[[3]string]bool{}}
	for _, c := range cases {
		for _, peer := range c.peers() {
			f.results = append(f.results, CaseResult{
				Group: c.Group, Case: c.Name, Peer: peer, Runs: 1, Cost: &Cost{}, Latency: &Latency{}, LinkUse: &measure.Spread{}, Overhead: &Overhead{},
			})
		}
	}
	claimsOf(suite, f)
	for _, c := range cases {
		c.Peers = slices.DeleteFunc(slices.Clone(c.peers()), func(peer string) bool {
			cost := c.Measures.has(MeasureCost) && len(c.Ratios) == 0 // without a target
			ratio := slices.ContainsFunc(c.Ratios, func(aim *ratioAim) bool { return aim.over == peer })
			lost := peer == PeerNone && c.Measures.has(MeasureOverhead)
			return !ratio && !lost && (cost || !strings.HasPrefix(peer, PeerWeir)) && !f.asked[[3]string{c.Group, c.Name, peer}]
		})
		if len(c.Peers) > 0 {
			judged = append(judged, c)
		}
	}
	return judged
}

// JudgeAgain judges the claims of a paper on a stored report by the rules of this build. The rounds of processor time are not stored.
func (r *Report) JudgeAgain() {
	rounds := claim.RoundsOf(r.Quantities)
	for i := range r.Results {
		result := &r.Results[i]
		of := result.id() + ", " + result.Peer
		for k := range result.Shares {
			share := &result.Shares[k]
			name := "share of " + share.Container
			if share.Phase != "" {
				name += ", " + share.Phase
			}
			rounds.Restore(of, name, &share.Measured)
		}
		rounds.Restore(of, "link use", result.LinkUse)
		if l := result.Latency; l != nil {
			rounds.Restore(of, "mean round trip", &l.MeanMS)
			rounds.Restore(of, "99th percentile of round trips", &l.P99MS)
		}
	}
	r.Claims = report.JudgedAgain(r.Claims, judgeClaims(r.Suite, r.Results, r.Claims...))
}

// judgeClaims judges the claims of a suite by its results; claim.Claim.Judge says what earlier judgements are for.
func judgeClaims(suite string, results []CaseResult, earlier ...report.Claim) []report.Claim {
	paper := claimsOf(suite, findings{results: results})
	var list []report.Claim
	for _, one := range paper.claims {
		judged := one.Judge(paper.source, earlier...)
		for i := range judged.Values {
			// What a paper found of others is no ideal, and that of a case that was left out is not known.
			if v := &judged.Values[i]; one.About != "" || v.Measured == nil && v.Paper == nil {
				v.Ideal = nil
			}
		}
		list = append(list, judged)
	}
	return list
}

// findings looks up results for claims.
type findings struct {
	results []CaseResult
	// asked notes what was looked up; nil notes nothing.
	asked map[[3]string]bool
}

// of returns the result of a peer in a case; nil if there is none.
func (f findings) of(group, name, peer string) *CaseResult {
	if f.asked != nil {
		f.asked[[3]string{group, name, peer}] = true
	}
	return measure.Find(f.results, func(r CaseResult) bool { return r.Group == group && r.Case == name && r.Peer == peer && r.Runs > 0 })
}

// shares returns a case's shares with a peer, compared with the ideal and the paper.
func (f findings) shares(peer, group, name string) []claim.Number {
	result := f.of(group, name, peer)
	if result == nil {
		return []claim.Number{{Name: name, Unit: claim.UnitRate}}
	}
	var list []claim.Number
	for _, share := range result.Shares {
		list = append(list, share.number(name+", "))
	}
	return list
}

// number returns a share compared with the ideal; with only a minimum it must not be below.
func (s Share) number(of string) claim.Number {
	n := claim.Number{Name: of + s.Container, Unit: claim.UnitRate, Ideal: float64(s.IdealBPS) / 1e6, Measured: report.Number(s.Measured.Median / 1e6)}
	n.Low, n.High = report.Number(s.Measured.Min/1e6), report.Number(s.Measured.Max/1e6)
	if s.Phase != "" {
		n.Name = of + s.Phase + ", " + s.Container
	}
	if s.MinBPS > 0 && s.IdealBPS == s.MinBPS {
		n.Rule = claim.AtLeast
	}
	if s.PaperBPS != nil {
		n.Paper = report.Number(*s.PaperBPS / 1e6)
	}
	return n
}

// quotient returns a value of one peer divided by another's in the same case.
func (f findings) quotient(n claim.Number, group, name, peer, over string, value func(CaseResult) float64) claim.Number {
	return divided(n, f.of(group, name, peer), f.of(group, name, over), value)
}

// divided returns a value of one result divided by another's.
func divided(n claim.Number, a, b *CaseResult, value func(CaseResult) float64) claim.Number {
	n.Unit = claim.UnitOf
	if a == nil || b == nil || value(*b) <= 0 {
		return n
	}
	if a.Runs != b.Runs {
		n.Measured = report.Number(value(*a) / value(*b))
		return n
	}
	return n.Over(a.over(b, func(a, b CaseResult) float64 { return value(a) / value(b) }))
}

// over returns a value of each round of two results of as many rounds.
func (c CaseResult) over(other *CaseResult, value func(a, b CaseResult) float64) (rounds []float64) {
	for i := range c.Runs {
		if v := value(c.round(i), other.round(i)); !math.IsNaN(v) && !math.IsInf(v, 0) {
			rounds = append(rounds, v)
		}
	}
	return rounds
}

// round returns what claims compare of one round.
func (c CaseResult) round(i int) CaseResult {
	c.Shares = slices.Clone(c.Shares)
	for k := range c.Shares {
		c.Shares[k].Measured = c.Shares[k].Measured.Round(i)
	}
	if c.LinkUse != nil {
		use := c.LinkUse.Round(i)
		c.LinkUse = &use
	}
	if c.Cost != nil {
		cost := *c.Cost
		cost.CPUUse = cost.CPUUse.Round(i)
		c.Cost = &cost
	}
	if c.Latency != nil {
		latency := *c.Latency
		latency.MeanMS, latency.P99MS = latency.MeanMS.Round(i), latency.P99MS.Round(i)
		c.Latency = &latency
	}
	return c
}

var figureNumber = regexp.MustCompile(`(figure|table)s? (\d+)([a-z]?)(?: and (\d+)([a-z]?))?`)

// OnlyOf returns the flag that runs the cases of a claim, which names its figure or table; empty if it takes the
// whole suite.
func OnlyOf(o Options, where string) string {
	claimed := figureNumber.FindStringSubmatch(where)
	cases, err := o.Cases()
	if claimed == nil || err != nil {
		return ""
	}
	var groups []string
	for _, c := range cases {
		group, _, _ := strings.Cut(c.Group, ",") // without the network mode
		of := figureNumber.FindStringSubmatch(group)
		if of == nil || of[1] != claimed[1] || slices.Contains(groups, group) {
			continue
		}
		for _, i := range []int{2, 4} {
			if of[i] == claimed[2] && (of[i+1] == "" || claimed[3] == "" || of[i+1] == claimed[3]) {
				groups = append(groups, group)
				break
			}
		}
	}
	if len(groups) == 0 {
		return ""
	}
	return "--only '^(" + strings.Join(groups, "|") + ")[:,]'"
}
