package claim

import (
	"math"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/lab/report"
)

func TestJudge(t *testing.T) {
	value := report.Number
	for _, test := range []struct {
		name    string
		claim   Claim
		want    report.Judgement
		because string
	}{
		{"as the paper's", That("", "", "", Like("n", UnitOf, 2, 0.1, value(2.1))), report.Reproduced, "All numbers hold; n is off by 5.00 %, of 10 % allowed."},
		{"too far off", That("", "", "Why.", Like("n", UnitOf, 2, 0.1, value(1.7))), report.NotReproduced, "N is off by 15.00 %, of 10 % allowed. Why."},
		{"no more", That("", "", "", NoMore("n", UnitTime, 2, value(1.9))), report.Reproduced, "All numbers hold"},
		{"clearly less", That("", "", "", NoMore("n", UnitTime, 2, value(1.7))), report.Exceeded, "of 1 % allowed. Less than the paper's: n."},
		{"more", That("", "", "Why.", NoMore("n", UnitTime, 2, value(2.1))), report.NotReproduced, "Why."},
		{"no less", That("", "", "", NoLess("n", UnitPart, 30, nil, value(60))), report.Reproduced, "All numbers hold"},
		{"less", That("", "", "Why.", NoLess("n", UnitPart, 30, nil, value(20))), report.NotReproduced, "Why."},
		{"of nothing", That("", "", "", NoMore("n", UnitPart, 0, value(0.5))), report.NotReproduced, "N is off by 0.50, of 0.01 allowed, in %"},
		{"the worst counts", That("", "", "", Like("a", "", 1, 0.5, value(1.1)), Like("b", "", 1, 0.1, value(1.09))), report.Reproduced, "b is off by 9.00 %"},
		{
			// The paper's 43 of 47, here of 50, is further off than rounding to whole numbers explains.
			"closer than the paper",
			That("", "", "", Number{Name: "n", Unit: UnitRate, Ideal: 50, Paper: value(43 / 0.94), Measured: value(50), Resolution: 1 / 0.94}),
			report.Exceeded, "The paper's own is further off: n.",
		},
		{
			"as close as the paper's rounding tells",
			That("", "", "", Number{Name: "n", Unit: UnitRate, Ideal: 50, Paper: value(47 / 0.94), Measured: value(50), Resolution: 1 / 0.94}),
			report.Reproduced, "All numbers hold",
		},
		{
			"clearly less, but a round reaches the paper's", That("", "", "", Number{Name: "n", Rule: AtMost, Ideal: 2, Paper: value(2), Measured: value(1.2), Low: value(0.5), High: value(2)}),
			report.Reproduced, "All numbers hold",
		},
		{
			"closer than the paper in the median, but not in each round",
			That("", "", "", Number{Name: "n", Unit: UnitRate, Ideal: 50, Paper: value(43 / 0.94), Measured: value(50), Low: value(46), High: value(51), Resolution: 1 / 0.94}),
			report.ClaimUndecided, "n, 46 to 51 Mbit/s",
		},
		{"less than the paper's, not by Weir", Claim{About: "modes", Numbers: []Number{NoMore("n", UnitTime, 2, value(1))}}, report.Reproduced, "All numbers hold"},
		{"no number was measured", That("", "", "", Like("n", "", 1, 0.1, value(math.Inf(1)))), report.NotMeasured, "left out"},
		{"nor a round", That("", "", "", Number{Name: "n", Ideal: 1, Measured: value(1), Low: value(math.NaN()), High: value(1)}), report.NotMeasured, "left out"},
		{"one is missing", That("", "", "", Like("a", "", 1, 0.1, value(1)), Like("b", "", 1, 0.1, nil)), report.NotMeasured, "left out"},
		{"no number", That("", "", ""), report.NotMeasured, "left out"},
		{"on purpose", Claim{Numbers: []Number{Like("n", "", 1, 0.1, value(1))}, Design: "Other."}, report.DifferentByDesign, "Other."},
		{"moot", Claim{Numbers: []Number{Like("n", "", 1, 0.1, value(9))}, Moot: "Nobody can."}, report.NotMeasured, "Nobody can."},
	} {
		judged := test.claim.Judge("the paper")
		if judged.Judgement != test.want || !strings.Contains(judged.Reason, test.because) || judged.Source != "the paper" {
			t.Errorf("%s: %s: %s, want %s: %s", test.name, judged.Judgement, judged.Reason, test.want, test.because)
		}
	}
}

// TestControl: a claim whose control holds says nothing, however well its numbers hold, and one whose control is
// missing is not judged; a number that does not hold needs no control.
func TestControl(t *testing.T) {
	is := func(measured ...float64) (numbers []Number) {
		for _, m := range measured {
			numbers = append(numbers, Like("n", UnitOf, 1, 0.1, report.Number(m)))
		}
		return numbers
	}
	missing := []Number{Like("n", UnitOf, 1, 0.1, nil)}
	for _, test := range []struct {
		name    string
		claim   Claim
		want    report.Judgement
		because string
	}{
		{"fails", Claim{Numbers: is(1), Control: is(1, 2, 3)}, report.Reproduced, "Of the control 2 of 3 fail; n is off by 200.00 %"},
		{"holds", Claim{Numbers: is(1), Control: is(1, 1.05)}, report.SaysNothing, "also those of the control; n is off by 5.00 %"},
		{"holds, and Weir differs on purpose", Claim{Numbers: is(1), Control: is(1), Design: "Other."}, report.SaysNothing, "control"},
		{"is missing", Claim{Numbers: is(1), Control: missing}, report.NotMeasured, "left out the control"},
		{"of what does not hold", Claim{Numbers: is(2), Control: missing, Otherwise: "Why."}, report.NotReproduced, "Why."},
		{"none, with the reason", Claim{Numbers: is(1), NoControl: "it is about nothing"}, report.Reproduced, "There is no control: it is about nothing."},
	} {
		if judged := test.claim.Judge(""); judged.Judgement != test.want || !strings.Contains(judged.Reason, test.because) {
			t.Errorf("a control that %s: %s: %s, want %s: %s", test.name, judged.Judgement, judged.Reason, test.want, test.because)
		}
	}
}

// TestRounds: a claim holds if its median does and no round is more than three times as far off as that may be, or than that with a wide
// tolerance. It is not reproduced if all rounds miss it on one side, and is undecided otherwise.
func TestRounds(t *testing.T) {
	in := func(n Number, rounds ...float64) Number { return n.Over(rounds) }
	near, most := Like("n", UnitOf, 10, 0.1, nil), NoMore("n", UnitOf, 10, nil)
	least := NoLess("n", UnitOf, 10, nil, nil)
	wide := Like("n", UnitOf, 8, 0.875, nil)
	other := most
	other.Name = "m"
	for _, test := range []struct {
		name    string
		claim   Claim
		want    report.Judgement
		because string
	}{
		{"of a wide tolerance, just within it", That("", "", "", in(wide, 1, 8, 15)), report.Reproduced, "All numbers hold"},
		{"of a wide tolerance, one beyond it", That("", "", "", in(wide, 1, 8, 16)), report.ClaimUndecided, "n, 1 to 16 times"},
		{"of a wide tolerance, one at nothing", That("", "", "", in(wide, 0, 8, 8)), report.ClaimUndecided, "n, 0 to 8 times"},
		{"of nothing, with a wide tolerance", That("", "", "", in(Number{Name: "n", Rule: AtMost, Tolerance: 2}, 1, 2, 5)), report.Reproduced, "All numbers hold"},
		{"all near", That("", "", "", in(near, 9.1, 10, 10.9)), report.Reproduced, "All numbers hold"},
		{"one a little too high", That("", "", "", in(near, 9.1, 10, 12.9)), report.Reproduced, "All numbers hold"},
		{"one much too high", That("", "", "", in(near, 9.1, 10, 13.1)), report.ClaimUndecided, "n, 9.1 to 13.1 times"},
		{"only one near", That("", "", "", in(near, 10.9, 11.2, 12)), report.ClaimUndecided, "n, 10.9 to 12 times"},
		{"some too low, the others too high", That("", "", "", in(near, 8, 8, 12)), report.ClaimUndecided, "n, 8 to 12 times"},
		{"all too high", That("", "", "Why.", in(near, 11.1, 12, 13)), report.NotReproduced, "Why."},
		{"at most, one a little more", That("", "", "", in(most, 2, 3, 10.2)), report.Reproduced, "All numbers hold"},
		{"at most, one more", That("", "", "", in(most, 2, 3, 10.4)), report.ClaimUndecided, "n, 2 to 10.4 times"},
		{"at most, all more", That("", "", "Why.", in(most, 10.2, 11, 12)), report.NotReproduced, "Why."},
		{"at least, one less", That("", "", "", in(least, 9, 11, 12)), report.ClaimUndecided, "n, 9 to 12 times"},
		{"of nothing, one more", That("", "", "", in(NoMore("n", UnitTime, 0, nil), 0, 0, 0.1)), report.ClaimUndecided, "n, 0 to 0.1 ms"},
		{"one fails, another further off is undecided", That("", "", "Why.", in(near, 12, 13), in(other, 9, 40, 50)), report.NotReproduced, "N is off by 25.00 %, of 10 % allowed. Why."},
		{"on purpose, but undecided", Claim{Numbers: []Number{in(near, 10, 14)}, Design: "Other."}, report.ClaimUndecided, "n, 10 to 14 times"},
		{"the control in some rounds", Claim{Numbers: []Number{in(near, 10, 10)}, Control: []Number{in(near, 10, 12, 13)}}, report.Reproduced, "Of the control 1 of 1 fail"},
		{"undecided, and the control holds", Claim{Numbers: []Number{in(near, 10, 10, 20)}, Control: []Number{in(near, 10)}}, report.SaysNothing, "also those of the control"},
	} {
		judged := test.claim.Judge("the paper")
		if judged.Judgement != test.want || !strings.Contains(judged.Reason, test.because) {
			t.Errorf("%s: %s: %s, want %s: %s", test.name, judged.Judgement, judged.Reason, test.want, test.because)
		}
	}
}

// TestJudgeStored: numbers of a stored result without rounds have the values of the earlier judgement, others their own. A claim that
// was not judged then is not judged.
func TestJudgeStored(t *testing.T) {
	median := Like("n", UnitOf, 10, 0.1, nil).Over([]float64{10, 10}) // what a result without rounds comes to
	earlier := That("figure 1", "ten", "", median.Over([]float64{6, 10, 12})).Judge("the paper")
	if earlier.Judgement != report.ClaimUndecided {
		t.Fatalf("%+v", earlier)
	}
	other := median
	other.Name = "m"
	for name, test := range map[string]struct {
		claim Claim
		want  report.Judgement
		low   float64
	}{
		"the same":            {That("figure 1", "ten", "", median), report.ClaimUndecided, 6},
		"another rule":        {That("figure 1", "ten", "", Within(0.2, []Number{median})...), report.Reproduced, 6},
		"with its own rounds": {That("figure 1", "ten", "", median.Over([]float64{9, 10, 11})), report.Reproduced, 9},
		"another number":      {That("figure 1", "ten", "", other), report.Reproduced, 10},
		"another claim":       {That("figure 2", "ten", "", median), report.NotMeasured, 10},
	} {
		judged := test.claim.Judge("the paper", earlier)
		if low := *judged.Values[0].Low; judged.Judgement != test.want || low != test.low {
			t.Errorf("%s: %s, lowest %v, want %s, %v", name, judged.Judgement, low, test.want, test.low)
		}
	}
}

// TestWithin: a tolerance holds for all numbers of a claim.
func TestWithin(t *testing.T) {
	measured := 104.0
	for tolerance, want := range map[float64]report.Judgement{0.05: report.Reproduced, 0.01: report.NotReproduced} {
		numbers := Within(tolerance, []Number{Like("delay", UnitTime, 100, 0.5, &measured)})
		if got := That("figure 1", "it is 100 ms", "", numbers...).Judge("").Judgement; got != want {
			t.Errorf("within %v: %v, want %v", tolerance, got, want)
		}
	}
}

// TestOver: a number is the median of its rounds, with the lowest and the highest; one round has no interval, and none
// changes nothing.
func TestOver(t *testing.T) {
	before := Number{Name: "n", Measured: report.Number(9)}
	three, one, none := before.Over([]float64{3, 1, 2}), before.Over([]float64{4}), before.Over(nil)
	if *three.Measured != 2 || *three.Low != 1 || *three.High != 3 {
		t.Errorf("of three rounds: %+v", three)
	}
	if *one.Measured != 4 || one.Low != nil || one.High != nil {
		t.Errorf("of one round: %+v", one)
	}
	if *none.Measured != 9 || none.Low != nil || none.High != nil {
		t.Errorf("of none: %+v", none)
	}
}

// TestValues: a claim that was not measured keeps the paper's values, and a limit is no ideal.
func TestValues(t *testing.T) {
	judged := That("", "", "", Like("a", "", 2, 0.1, nil), NoMore("b", "", 3, nil), NoLess("c", "", 100, report.Number(100), nil)).Judge("")
	if judged.Judgement != report.NotMeasured || len(judged.Values) != 3 {
		t.Fatalf("%+v", judged)
	}
	for i, want := range []float64{2, 3, 100} {
		if v := judged.Values[i]; *v.Paper != want || v.Measured != nil || (v.Ideal != nil) != (i == 2) {
			t.Errorf("%s: %+v", v.Name, v)
		}
	}
}
