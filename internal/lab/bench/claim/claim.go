// Package claim judges what papers say by numbers: each is compared with what it should be,
// and a claim holds when all of its numbers do.
package claim

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

// Claim is something a paper says, and the numbers that it is judged by. It holds when every one of its numbers does.
type Claim struct {
	// Section is the paper's, such as "4.1".
	Section, Where, Says string
	// About is what the numbers are of; empty is Weir.
	About   string
	Numbers []Number
	// Control are the same numbers of what the claim is not about, such as a link without Weir. A claim all of
	// whose numbers hold for them as well says nothing. NoControl is why a claim has none, without a full stop.
	Control   []Number
	NoControl string
	// Design is the reason why Weir deviates on purpose. The numbers are then Weir's own targets.
	Design string
	// Otherwise is the reason when it is not reproduced.
	Otherwise string
	// Moot is why the numbers decide nothing, such as a link that limits both sides of a
	// comparison; empty if they decide.
	Moot string
}

// claimTolerance is the default tolerated relative deviation of a number's median. A single round may deviate roundFactor times as
// much: others use the machine, too. A relative tolerance of wideTolerance or more is one for rounds, too.
const (
	claimTolerance = 0.01
	roundFactor    = 3
	wideTolerance  = 0.5
)

// Rule is how a number is compared with its ideal.
type Rule int

// How numbers are compared.
const (
	Near    Rule = iota // as much, no more and no less
	AtLeast             // so much or more
	AtMost              // so much or less
)

// Number is one number of a claim, in a unit for readers.
type Number struct {
	Name, Unit string
	Rule       Rule
	// Ideal is what Rule compares with, Paper the paper's result; nil if the paper gives none.
	Ideal float64
	Paper *float64
	// IsLimit: Ideal is only the paper's result, or a limit, so pages show no ideal but Best, which is the best that is
	// possible; nil if that is not known.
	IsLimit  bool
	Best     *float64
	Measured *float64 // nil if it was not measured
	// Low and High are Measured in the lowest and highest round; nil if the report does not keep these.
	Low, High *float64
	// Tolerance replaces claimTolerance unless it is 0. Of an Ideal of 0 it is absolute.
	Tolerance float64
	// Resolution is how finely the paper gives its number.
	Resolution float64
}

// miss returns the relative deviation of a value from an ideal, the absolute one from 0; 0 within the rule.
func (n Number) miss(value, ideal float64) float64 {
	off := value/ideal - 1
	if ideal == 0 {
		off = value
	}
	switch n.Rule {
	case AtLeast:
		return max(0, -off)
	case AtMost:
		return max(0, off)
	}
	return math.Abs(off)
}

// allowed returns the tolerated deviation, as miss has it.
func (n Number) allowed() float64 {
	if n.Tolerance > 0 {
		return n.Tolerance
	}
	return claimTolerance
}

func (n Number) holds() bool { return n.allows(*n.Measured, 1) }

// allows reports whether a value is within factor times the tolerance.
func (n Number) allows(value, factor float64) bool {
	return n.miss(value, n.Ideal) <= factor*n.allowed()
}

// allowsRound reports whether a round is near enough.
func (n Number) allowsRound(value float64) bool {
	if n.Ideal != 0 && n.allowed() >= wideTolerance {
		return n.allows(value, 1)
	}
	return n.allows(value, roundFactor)
}

// rounds returns the lowest and the highest round; the median twice if they are not known.
func (n Number) rounds() (low, high float64) {
	if n.Low == nil || n.High == nil {
		return *n.Measured, *n.Measured
	}
	return *n.Low, *n.High
}

// decision returns what a number says: it is met by a median within its tolerance and rounds near it, and missed if all rounds are
// beyond its tolerance on one side.
func (n Number) decision() report.Decision {
	low, high := n.rounds()
	switch {
	case n.holds() && n.allowsRound(low) && n.allowsRound(high):
		return report.Met
	case n.allows(low, 1), n.allows(high, 1), n.holds(), low < n.Ideal && n.Ideal < high:
		return report.Undecided
	}
	return report.Missed
}

// lessThanPaper reports whether a smaller value is better and Weir's is clearly smaller than the paper's.
func (n Number) lessThanPaper() bool {
	return n.comparable() && n.limitsToPaper() && *n.Measured < *n.Paper*(1-clearly)
}

// closerThanPaper reports whether the paper misses the target despite rounding and Weir does not.
func (n Number) closerThanPaper() bool {
	if !n.comparable() || n.limitsToPaper() {
		return false
	}
	return n.miss(*n.Paper, n.Ideal) > n.allowed()+n.Resolution/2/n.Ideal
}

// limitsToPaper reports whether the paper's result is the limit.
func (n Number) limitsToPaper() bool { return n.Rule == AtMost && n.Ideal == *n.Paper }

// comparable reports whether Weir's number holds and none of its rounds reaches the paper's value, as far as that is rounded.
func (n Number) comparable() bool {
	if n.Paper == nil || !n.holds() {
		return false
	}
	return n.Low == nil || n.High == nil || *n.High < *n.Paper-n.Resolution/2 || *n.Low > *n.Paper+n.Resolution/2
}

// clearly is the relative difference from which a smaller number counts as better.
const clearly = 0.1

// Value returns the number for a report.
func (n Number) Value() report.Value {
	ideal := n.Best
	if !n.IsLimit {
		ideal = &n.Ideal
	}
	return report.Value{Name: n.Name, Unit: n.Unit, Paper: n.Paper, Ideal: ideal, Measured: n.Measured, Low: n.Low, High: n.High}
}

// finite returns the numbers, with values that are NaN or infinite, which JSON cannot hold, as not measured.
func finite(numbers []Number) []Number {
	numbers = slices.Clone(numbers)
	for i := range numbers {
		n := &numbers[i]
		for _, v := range []*float64{n.Measured, n.Low, n.High} {
			if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
				n.Measured, n.Low, n.High = nil, nil, nil
				break
			}
		}
	}
	return numbers
}

// outcome is what several numbers come to.
type outcome struct {
	// unknown: a number was not measured. holds: all medians are within their tolerances; failed are those that are not.
	unknown, holds bool
	failed         int
	// missed says which of the missed numbers is furthest from its ideal, and how far; empty if none is missed. undecided names numbers
	// whose rounds do not agree.
	missed    string
	undecided []string
	// less and closer name the numbers that are better than the paper's.
	less, closer []string
	// furthest says which number is furthest from its ideal, and how far.
	furthest string
}

func outcomeOf(numbers []Number) outcome {
	o := outcome{holds: true, unknown: len(numbers) == 0}
	furthest, furthestMissed := math.Inf(-1), math.Inf(-1)
	for _, n := range numbers {
		if n.Measured == nil {
			o.unknown = true
			continue
		}
		if !n.holds() {
			o.holds = false
			o.failed++
		}
		if n.lessThanPaper() {
			o.less = append(o.less, n.Name)
		}
		if n.closerThanPaper() {
			o.closer = append(o.closer, n.Name)
		}
		miss := n.miss(*n.Measured, n.Ideal)
		text := fmt.Sprintf("%s is off by %.2f %%, of %.3g %% allowed", n.Name, miss*100, n.allowed()*100)
		if n.Ideal == 0 {
			text = fmt.Sprintf("%s is off by %.2f, of %.3g allowed, in %s", n.Name, miss, n.allowed(), n.Unit)
		}
		beyond := miss - n.allowed()
		if beyond > furthest {
			furthest, o.furthest = beyond, text
		}
		switch n.decision() {
		case report.Missed:
			if beyond > furthestMissed {
				furthestMissed, o.missed = beyond, text
			}
		case report.Undecided:
			low, high := n.rounds()
			o.undecided = append(o.undecided, fmt.Sprintf("%s, %.4g to %.4g %s", n.Name, low, high, n.Unit))
		}
	}
	return o
}

// better says which numbers are better than the paper's; empty if none is.
func (o outcome) better() string {
	text := ""
	if len(o.less) > 0 {
		text += " Less than the paper's: " + strings.Join(o.less, "; ") + "."
	}
	if len(o.closer) > 0 {
		text += " The paper's own is further off: " + strings.Join(o.closer, "; ") + "."
	}
	return text
}

// Judge returns the judgement on a claim. Of a stored result earlier are the judgements by the build that measured. Numbers that the
// result has no rounds of have the values of then; a claim that was not judged then is not judged now.
func (c Claim) Judge(source string, earlier ...report.Claim) report.Claim {
	judged := report.Claim{Source: source, Section: c.Section, Where: c.Where, Says: c.Says, About: c.About}
	was := measure.Find(earlier, judged.IsSame)
	numbers := finite(withRounds(c.Numbers, was))
	for _, n := range numbers {
		judged.Values = append(judged.Values, n.Value())
	}
	found, control := outcomeOf(numbers), outcomeOf(finite(c.Control))
	controlled := len(c.Control) > 0
	because := "All numbers hold; " + found.furthest + "."
	if controlled {
		because += fmt.Sprintf(" Of the control %d of %d fail; %s.", control.failed, len(c.Control), control.furthest)
	} else if c.NoControl != "" {
		because += " There is no control: " + c.NoControl + "."
	}
	switch {
	case was == nil && len(earlier) > 0:
		judged.Judgement, judged.Reason = report.NotMeasured, "The build that measured did not judge this."
	case found.unknown:
		judged.Judgement, judged.Reason = report.NotMeasured, "This run left out cases or peers that it is about, or they failed."
	case c.Moot != "":
		judged.Judgement, judged.Reason = report.NotMeasured, c.Moot
	case found.missed != "":
		judged.Judgement, judged.Reason = report.NotReproduced, strings.ToUpper(found.missed[:1])+found.missed[1:]+". "+c.Otherwise
	case controlled && control.unknown:
		judged.Judgement, judged.Reason = report.NotMeasured, "Not missed, but this run left out the control, which must fail, or it failed."
	case found.holds && controlled && control.holds:
		judged.Judgement, judged.Reason = report.SaysNothing, "All numbers hold, also those of the control; "+control.furthest+"."
	case len(found.undecided) > 0:
		judged.Judgement, judged.Reason = report.ClaimUndecided, "The rounds do not agree: "+strings.Join(found.undecided, "; ")+"."
	case c.Design != "":
		judged.Judgement, judged.Reason = report.DifferentByDesign, c.Design
	case c.About == "" && found.better() != "": // what Weir does not do cannot exceed what the paper did
		judged.Judgement, judged.Reason = report.Exceeded, because+found.better()
	default:
		judged.Judgement, judged.Reason = report.Reproduced, because
	}
	return judged
}

// withRounds returns numbers with the values of an earlier judgement on them where they have no rounds.
func withRounds(numbers []Number, was *report.Claim) []Number {
	if was == nil {
		return numbers
	}
	numbers = slices.Clone(numbers)
	for i := range numbers {
		n := &numbers[i]
		if n.Low != nil && n.High != nil && *n.Low < *n.High {
			continue
		}
		if v := measure.Find(was.Values, func(v report.Value) bool { return v.Name == n.Name && v.Unit == n.Unit }); v != nil {
			n.Measured, n.Low, n.High = v.Measured, v.Low, v.High
		}
	}
	return numbers
}

// Over returns the number measured as the median of its rounds, with the lowest and the highest of these. Without
// rounds it stays as it is.
func (n Number) Over(rounds []float64) Number {
	if len(rounds) == 0 {
		return n
	}
	s := measure.SpreadOf(rounds)
	n.Measured = &s.Median
	if len(rounds) > 1 {
		n.Low, n.High = &s.Min, &s.Max
	}
	return n
}

// Units of numbers.
const (
	UnitRate = "Mbit/s"
	UnitTime = "ms"
	UnitPart = "%"
	UnitOf   = "times"
)

// That returns a claim with its numbers.
func That(where, text, otherwise string, numbers ...Number) Claim {
	return Claim{Where: where, Says: text, Otherwise: otherwise, Numbers: numbers}
}

// Within returns numbers with another tolerance.
func Within(tolerance float64, numbers []Number) []Number {
	for i := range numbers {
		numbers[i].Tolerance = tolerance
	}
	return numbers
}

// Like returns a number that should equal the paper's within tolerance.
func Like(name, unit string, paper float64, tolerance float64, measured *float64) Number {
	return Number{Name: name, Unit: unit, Rule: Near, Ideal: paper, Paper: &paper, IsLimit: true, Measured: measured, Tolerance: tolerance}
}

// NoMore returns a number that should not exceed the paper's; a clearly smaller one counts as
// exceeding the claim.
func NoMore(name, unit string, paper float64, measured *float64) Number {
	return Number{Name: name, Unit: unit, Rule: AtMost, Ideal: paper, Paper: &paper, IsLimit: true, Measured: measured}
}

// NoLess returns a number that should not be below its ideal; a larger one is just as good.
func NoLess(name, unit string, ideal float64, paper, measured *float64) Number {
	return Number{Name: name, Unit: unit, Rule: AtLeast, Ideal: ideal, Paper: paper, Measured: measured}
}
