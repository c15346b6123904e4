package train

import (
	"testing"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

// judgedOf returns flows of one type in groups of a size, of which the part right is judged right.
func judgedOf(count, size int, right float64) []Judged {
	web, _ := typeIndex("WEB")
	bulk, _ := typeIndex("BULK")
	levels := apps.DefaultLevels()
	var out []Judged
	for i := range count {
		f := flow.New()
		f.Group = string(rune('a' + i/size))
		verdict := bulk
		// Whole groups are right, or none of them.
		if float64(i/size*size) < right*float64(count) {
			verdict = web
		}
		v := apps.Verdict{Type: verdict, Level: levels[verdict]}
		out = append(out, Judged{Flow: f, Type: web, Verdicts: [2]apps.Verdict{v, v}})
	}
	return out
}

// sameFlows returns the verdicts of one classifier on the flows of another.
func sameFlows(of, verdicts []Judged) []Judged {
	out := make([]Judged, len(of))
	for i := range of {
		out[i] = verdicts[i]
		out[i].Flow = of[i].Flow
	}
	return out
}

// TestContrast: intervals hold the rate and get wider with fewer groups; the difference is of the same samples, so a classifier
// does not differ from itself, and one that is right wherever the other is has no less.
func TestContrast(t *testing.T) {
	levels, width := apps.DefaultLevels(), 0.0
	for _, size := range []int{1, 4, 10} {
		a := judgedOf(40, size, 0.75)
		b := sameFlows(a, judgedOf(40, size, 0.25))
		list, err := Compare(a, b, 0, levels, 1)
		if err != nil || len(list) != 4 || list[0].Name != "application type" || list[2].Name != "WEB" || list[3].Name != "AF" {
			t.Fatalf("%v: %+v", err, list)
		}
		for _, c := range list {
			if c.Flows != 40 || c.A.Value < 0.7 || c.B.Value > 0.35 || c.Difference.Value != c.A.Value-c.B.Value {
				t.Errorf("groups of %d: %+v", size, c)
			}
			for _, i := range []Interval{c.A, c.B, c.Difference} {
				if i.Low >= i.Value || i.High <= i.Value || i.Low < 0 || i.High > 1 {
					t.Errorf("groups of %d, %s: interval %+v", size, c.Name, i)
				}
			}
		}
		now := list[0].A.High - list[0].A.Low
		if now <= width {
			t.Errorf("groups of %d: an interval %.2f wide, with more groups %.2f", size, now, width)
		}
		if size == 1 && (now < 0.2 || now > 0.33) { // 2 x 1.96 x sqrt(0.75 x 0.25 / 40) = 0.27
			t.Errorf("40 flows of groups of their own: an interval %.2f wide", now)
		}
		width = now
		if same, _ := Compare(a, a, 0, levels, 1); same[0].Difference != (Interval{}) || same[0].A != list[0].A {
			t.Errorf("a classifier and itself: %+v, beside another %+v", same[0], list[0])
		}
	}
	if _, err := Compare(judgedOf(3, 1, 1), judgedOf(3, 1, 1), 0, levels, 1); err == nil {
		t.Error("verdicts on other flows are no error")
	}
}
