package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/report"
)

// claim is something a paper says and how a run of a suite judges it. What it
// says in numbers is looked up in the results; a claim holds when every one of
// its numbers does.
type claim struct {
	where, says string
	numbers     func(findings) []number
	// design says why Weir does something else on purpose. Its numbers are then
	// what Weir promises instead.
	design string
	// otherwise is the reason when it is not reproduced.
	otherwise string
}

// paperClaims are all claims of a paper.
type paperClaims struct {
	source string
	claims []claim
}

// claimsOf has the claims that a suite judges.
func claimsOf(suite string) paperClaims {
	switch suite {
	case suiteQCon:
		return paperClaims{"qCon (Sensors 2018)", qconClaims()}
	case suiteCNTC:
		return paperClaims{"CNTC (NPC 2019)", cntcClaims()}
	}
	return paperClaims{}
}

// judgeClaims judges the claims of a suite by its results.
func judgeClaims(suite string, results []CaseResult) []report.Claim {
	paper := claimsOf(suite)
	var list []report.Claim
	for _, one := range paper.claims {
		list = append(list, one.judge(paper.source, findings{results}))
	}
	return list
}

// claimTolerance is by how much a number may miss what it should be.
const claimTolerance = 0.01

// rule is how a number is compared with its ideal.
type rule int

const (
	near    rule = iota // as much, no more and no less
	atLeast             // so much or more
	atMost              // so much or less
)

// number is one number of a claim, in a unit for readers.
type number struct {
	name, unit string
	rule       rule
	// ideal is what it should be, paper what the paper reached, nil where it
	// gives no number.
	ideal    float64
	paper    *float64
	measured *float64 // nil if it was not measured
	// tolerance replaces claimTolerance unless it is 0.
	tolerance float64
	// resolution is how finely the paper gives its number.
	resolution float64
	// paperScale takes the ideal to what the paper counts: goodput of a link
	// whose rate includes what no program sees. 0 stands for 1.
	paperScale float64
}

// miss is by which fraction a value misses an ideal, 0 if it does not.
func (n number) miss(value, ideal float64) float64 {
	off := value/ideal - 1
	if ideal == 0 {
		off = value
	}
	switch n.rule {
	case atLeast:
		return max(0, -off)
	case atMost:
		return max(0, off)
	}
	return math.Abs(off)
}

// allowed is by how much it may miss.
func (n number) allowed() float64 {
	if n.tolerance > 0 {
		return n.tolerance
	}
	return claimTolerance
}

func (n number) holds() bool { return n.miss(*n.measured, n.ideal) <= n.allowed() }

// beats says that the paper's number, in spite of its rounding, misses what it
// should be and the measured one does not; or that less is better and it is
// clearly less.
func (n number) beats() bool {
	if n.paper == nil || !n.holds() {
		return false
	}
	if n.rule == atMost && n.ideal == *n.paper {
		return *n.measured < *n.paper*(1-clearly)
	}
	ideal := n.ideal
	if n.paperScale > 0 {
		ideal *= n.paperScale
	}
	rounding := n.resolution / 2 / ideal
	return n.miss(*n.paper, ideal) > n.allowed()+rounding
}

// clearly is what a smaller number must be smaller by to be called better.
const clearly = 0.1

func (n number) value() report.Value {
	return report.Value{Name: n.name, Unit: n.unit, Paper: n.paper, Ideal: report.Number(n.ideal), Measured: n.measured}
}

// judge compares a claim with what was found.
func (c claim) judge(source string, found findings) report.Claim {
	judged := report.Claim{Source: source, Where: c.where, Says: c.says}
	numbers := c.numbers(found)
	holds, beats, unknown := true, false, len(numbers) == 0
	furthest := worst{}
	for _, n := range numbers {
		if n.measured == nil {
			unknown = true
			continue
		}
		judged.Values = append(judged.Values, n.value())
		holds = holds && n.holds()
		beats = beats || n.beats()
		miss := n.miss(*n.measured, n.ideal)
		furthest.see(miss-n.allowed(), fmt.Sprintf("%s is off by %.2f %%, of %.3g %% allowed", n.name, miss*100, n.allowed()*100))
	}
	because := "All numbers hold; " + furthest.where + "."
	switch {
	case unknown:
		judged.Judgement, judged.Reason = report.NotMeasured, "This run left out cases or peers that it is about, or they failed."
	case !holds:
		judged.Judgement, judged.Reason = report.NotReproduced, capital(furthest.where)+". "+c.otherwise
	case c.design != "":
		judged.Judgement, judged.Reason = report.DifferentByDesign, c.design
	case beats:
		judged.Judgement, judged.Reason = report.Exceeded, because+" The paper's own was further off."
	default:
		judged.Judgement, judged.Reason = report.Reproduced, because
	}
	return judged
}

// capital begins a sentence.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// findings are the results that claims are looked up in.
type findings struct{ results []CaseResult }

// of is what a peer made of a case; nil if it did not.
func (f findings) of(group, name, peer string) *CaseResult {
	i := slices.IndexFunc(f.results, func(r CaseResult) bool {
		return r.Group == group && r.Case == name && r.Peer == peer && r.Runs > 0
	})
	if i < 0 {
		return nil
	}
	return &f.results[i]
}

// shares are those of a case with Weir, each to be as the ideal, beside the
// paper's numbers.
func (f findings) shares(group, name string) []number {
	result := f.of(group, name, PeerWeir)
	if result == nil {
		return []number{{name: name, unit: unitRate}}
	}
	var list []number
	for _, share := range result.Shares {
		list = append(list, share.number(name+", "))
	}
	return list
}

const (
	unitRate = "Mbit/s"
	unitTime = "ms"
	unitPart = "%"
	unitOf   = "times"
)

// number is a share to be as the ideal; who only gets a minimum should have no
// less than that.
func (s Share) number(of string) number {
	n := number{name: of + s.Container, unit: unitRate, ideal: float64(s.IdealBPS) / 1e6, measured: report.Number(s.Measured.Median / 1e6)}
	if s.Phase != "" {
		n.name = of + s.Phase + ", " + s.Container
	}
	if s.MinBPS > 0 && s.IdealBPS == s.MinBPS {
		n.rule = atLeast
	}
	if s.PaperBPS != nil {
		n.paper = report.Number(*s.PaperBPS / 1e6)
	}
	return n
}

// quotient is a number of one peer over another's in the same case.
func (f findings) quotient(n number, group, name, peer, over string, value func(CaseResult) float64) number {
	n.unit = unitOf
	a, b := f.of(group, name, peer), f.of(group, name, over)
	if a != nil && b != nil && value(*b) > 0 {
		n.measured = report.Number(value(*a) / value(*b))
	}
	return n
}
