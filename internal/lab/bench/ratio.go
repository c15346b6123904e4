package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

// A peer's costs are ratios to those of another peer in the same round, so that what changes on the
// machine from round to round counts for both.

// ratioAim is what a peer's ratio to another in each case of a kind should be.
type ratioAim struct {
	name       string
	peer, over string
	value      func(observation) float64
	// Aim has a bound of 0 if the ratio is only reported.
	report.Aim
}

const ofNone, ofCutAlike = "of no control", "of HTB with packets cut alike"

// The aims of the suite about cost.
var (
	aimTCP       = &ratioAim{"TCP without a rate, of HTB's", PeerWeir, PeerHTB, observation.bitsPerSecond, report.Aim{Bound: 0.98, Better: report.Higher}}
	aimPackets   = &ratioAim{"64-byte UDP without a rate, of HTB's", PeerWeir, PeerHTB, observation.packetsPerSecond, report.Aim{Bound: 1, Better: report.Higher}}
	aimInTCP     = &ratioAim{"TCP that comes in without a rate, " + ofNone, PeerWeir, PeerNone, observation.bitsPerSecond, report.Aim{Bound: 0.7, Better: report.Higher}}
	aimOutTCP    = &ratioAim{"TCP that goes out beside --in-rate, of without", PeerWeirIn, PeerWeir, observation.bitsPerSecond, report.Aim{Bound: 0.97, Better: report.Higher}}
	aimOutUDP    = &ratioAim{"64-byte UDP that goes out beside --in-rate, of without", PeerWeirIn, PeerWeir, observation.packetsPerSecond, report.Aim{Bound: 0.95, Better: report.Higher}}
	aimsFigure12 = []*ratioAim{
		figure12("low, "+ofNone, PeerWeirLow, PeerNone, 0.6), figure12("low, "+ofCutAlike, PeerWeirLow, PeerHTBLow, 1.5),
		figure12("exact, "+ofNone, PeerWeir, PeerNone, 1.3), figure12("exact, "+ofCutAlike, PeerWeir, PeerHTBExact, 1.2),
		figure12("balanced, "+ofNone, PeerWeirBalanced, PeerNone, 0),
	}
	ratioAims = append([]*ratioAim{aimTCP, aimPackets, aimInTCP, aimOutTCP, aimOutUDP}, aimsFigure12...)
)

// figure12 is about the processor time of a gigabit; a bound of 0 is none.
func figure12(name, peer, over string, bound float64) *ratioAim {
	return &ratioAim{"processor time with precision " + name, peer, over, observation.secondsPerGbit, report.Aim{Bound: bound, Better: report.Lower}}
}

// Ratio is a peer's value over another's of the same round.
type Ratio struct {
	Of   string `json:"of"` // the aim
	Over string `json:"over"`
	report.Aim
	report.Median
	// Decision is empty for what is only reported. Why says what failed.
	Decision report.Decision `json:"decision,omitempty"`
	Why      string          `json:"why,omitempty"`
}

// ratio compares what was observed of both peers of an aim.
func (a *ratioAim) ratio(of, over *Observed[observation]) Ratio {
	r := Ratio{Of: a.name, Over: a.over, Aim: a.Aim}
	var ratios []float64
	for _, one := range of.Seen {
		other := measure.Find(over.Seen, func(o observation) bool { return o.Round == one.Round })
		if other != nil {
			ratios = append(ratios, a.Ratio(a.value(one), a.value(*other)))
		}
	}
	if len(ratios) > 0 {
		r.Median, r.Decision = a.Judge(ratios)
	} else {
		r.Decision, r.Why = report.Undecided, "no round with both"
	}
	for peer, observed := range map[string]*Observed[observation]{a.peer: of, a.over: over} {
		if observed.Failure != nil {
			r.Decision, r.Why = report.Undecided, peer+" failed"
		}
	}
	if a.Bound == 0 {
		r.Decision = ""
	}
	return r
}

// ratios returns those of a peer in a case to the peers that take part.
func (r *runner) ratios(c Case, peer string) []Ratio {
	var list []Ratio
	for _, aim := range c.Ratios {
		takesPart := slices.ContainsFunc(r.peers, func(p namedPeer) bool { return p.name == aim.over })
		if aim.peer == peer && takesPart {
			list = append(list, aim.ratio(r.Of(runKey{c.ID(), peer}), r.Of(runKey{c.ID(), aim.over})))
		}
	}
	return list
}

// wanted returns the peers of each case that take part in the rounds after those done: all in the first
// ones, and then those of undecided ratios. A peer that failed decides nothing any more.
func (r *runner) wanted(cases []Case, done int) [][]namedPeer {
	wanted := make([][]namedPeer, len(cases))
	for i, c := range cases {
		undecided := map[string]bool{}
		for _, one := range r.peers {
			for _, ratio := range r.ratios(c, one.name) {
				if done > 0 && ratio.Decision == report.Undecided && ratio.Why == "" {
					undecided[one.name], undecided[ratio.Over] = true, true
				}
			}
		}
		for _, one := range r.peers {
			if c.takesPart(one.name) && (done == 0 || undecided[one.name]) {
				wanted[i] = append(wanted[i], one)
			}
		}
	}
	return wanted
}

// inTurn returns the peers in another order each round. Odd rounds reverse it: the machine's drift
// within a round is for a peer as often as against it.
func inTurn(peers []namedPeer, round int) []namedPeer {
	if len(peers) == 0 {
		return nil
	}
	first := round / 2 % len(peers)
	turn := slices.Concat(peers[first:], peers[:first])
	if round%2 == 1 {
		slices.Reverse(turn)
	}
	return turn
}

// text returns a ratio with its interval.
func (r Ratio) text() string {
	if r.Count == 0 {
		return "-"
	}
	text := measure.Percent(r.Median.Median)
	if r.Low != nil && r.High != nil {
		text += fmt.Sprintf(" (%s to %s)", measure.Percent(*r.Low), measure.Percent(*r.High))
	}
	return text
}

func (r Ratio) limit() string {
	switch {
	case r.Bound == 0:
		return "-"
	case r.Better == report.Higher:
		return fmt.Sprintf("at least %g %%", r.Bound*100)
	}
	return fmt.Sprintf("at most %g %%", r.Bound*100)
}

// short is by which part of its bound a ratio's median is on the wrong side.
func (r Ratio) short() float64 {
	short := 1 - r.Median.Median/r.Bound
	if r.Better == report.Lower {
		return -short
	}
	return short
}

// ratioVerdicts returns one verdict for each aim, on its worst case: what is missed comes before what is
// undecided, and that before what is met.
func ratioVerdicts(results []CaseResult) []report.Verdict {
	type found struct {
		Ratio
		where string
	}
	var list []report.Verdict
	for _, aim := range ratioAims {
		var all []found
		for _, result := range results {
			for _, ratio := range result.Ratios {
				if ratio.Of == aim.name && ratio.Decision != "" {
					all = append(all, found{ratio, result.id() + disturbance(result)})
				}
			}
		}
		if len(all) == 0 {
			continue
		}
		worst := slices.MaxFunc(all, func(x, y found) int {
			return cmp.Or(byDecision(x.Decision, y.Decision), cmp.Compare(x.short(), y.short()))
		})
		where := fmt.Sprintf("%s, %d rounds", worst.where, worst.Count)
		if worst.Why != "" {
			where += ", " + worst.Why
		}
		one := report.Verdict{
			Target: aim.name, Limit: worst.limit(), Measured: worst.text(), Where: where,
			Met: worst.Decision == report.Met, Undecided: worst.Decision == report.Undecided,
		}
		if !one.Met {
			one.Change = ToMeet(aim.name)
		}
		list = append(list, one)
	}
	return list
}

func (r Report) ratioTable() report.Table {
	t := report.Table{Title: "Ratios, round by round, with the median's interval of 95 % by order statistics", Header: []string{"CASE", "PEER", "WHAT", "LIMIT", "RATIO", "ROUNDS", "VERDICT"}}
	for _, result := range r.Results {
		for _, ratio := range result.Ratios {
			verdict := string(cmp.Or(ratio.Decision, "reported"))
			if ratio.Why != "" {
				verdict += ": " + ratio.Why
			}
			t.Add(result.id(), result.Peer, ratio.Of, ratio.limit(), ratio.text(), fmt.Sprint(ratio.Count), verdict)
		}
	}
	return t
}
