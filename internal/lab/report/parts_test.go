package report

import (
	"reflect"
	"testing"
)

// TestParts: what suites build their reports of.
func TestParts(t *testing.T) {
	one, failures := Table{Title: "one"}, Table{Title: "failures"}
	failures.AddFailure("web", "a\nb")
	if got := Filled(one, failures); !reflect.DeepEqual(got, []Table{{Title: "failures", Rows: [][]string{{"web", "a; b"}}}}) {
		t.Errorf("Filled = %+v", got)
	}
	want := []Series{{Name: "a", Role: Measured}, {Name: "b", Role: Measured, Colour: 1}}
	if got := MeasuredSeries("a", "b"); !reflect.DeepEqual(got, want) {
		t.Errorf("MeasuredSeries = %+v, want %+v", got, want)
	}
	seven := 7.0
	panel := LinePanel("p", []float64{1, 2}, 2, func(series, at int) *float64 {
		if series == 0 && at == 1 {
			return nil
		}
		return &seven
	})
	if !reflect.DeepEqual(panel, Panel{Title: "p", X: []float64{1, 2}, Values: [][]*float64{{&seven, nil}, {&seven, &seven}}}) {
		t.Errorf("LinePanel = %+v", panel)
	}
	if got := (Report{}).Failed(); got != 0 {
		t.Errorf("a report has %d failures", got)
	}
}
