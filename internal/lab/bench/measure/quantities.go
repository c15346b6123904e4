package measure

import "github.com/weir-project/weir/internal/lab/report"

// Quantities collects what reports are compared by.
type Quantities []report.Quantity

// Add adds a value of a case with those of all its runs; without any it is left out.
func (q *Quantities) Add(of, name, unit string, better report.Better, value *Spread) {
	if value == nil || len(value.values) == 0 {
		return
	}
	*q = append(*q, report.Quantity{Case: of, Name: name, Unit: unit, Better: better, Values: value.values})
}
