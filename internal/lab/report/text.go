package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteText prints a report for a terminal: its note, its tables, and what
// became of claims and targets.
func (r Report) WriteText(w io.Writer) error {
	if r.Note != "" {
		fmt.Fprintf(w, "%s\n\n", r.Note)
	}
	tables := append([]Table{}, r.Tables...)
	if len(r.Verdicts) > 0 {
		tables = append(tables, r.verdictTable())
	}
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := t.WriteText(w); err != nil {
			return err
		}
	}
	r.writeClaims(w)
	e := r.Environment
	_, err := fmt.Fprintf(w, "\n%d x %s, kernel %s, TCP %s, Weir %s. %s\n", e.CPUs, e.CPUModel, e.Kernel, e.TCP, e.Weir, r.Pauses())
	return err
}

// WriteText prints a table for a terminal.
func (t Table) WriteText(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range append([][]string{t.Header}, t.Rows...) {
		fmt.Fprintln(tab, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return tab.Flush()
}

// writeClaims prints what became of each claim, and why where it is not what
// the paper says. The page has their numbers too.
func (r Report) writeClaims(w io.Writer) {
	if len(r.Claims) == r.Count(NotMeasured) {
		return
	}
	fmt.Fprintln(w, "\nCLAIMS OF PAPERS")
	for _, claim := range r.Claims {
		if claim.Judgement == NotMeasured {
			continue
		}
		fmt.Fprintf(w, "%-*s  %s, %s: %s\n", widestJudgement, claim.Judgement, claim.Source, claim.Where, claim.Says)
		if claim.Judgement != Reproduced && claim.Judgement != Exceeded {
			fmt.Fprintf(w, "%*s  %s\n", widestJudgement, "", claim.Reason)
		}
	}
	if left := r.Count(NotMeasured); left > 0 {
		fmt.Fprintf(w, "%d more were not measured: cases or peers were left out, or failed.\n", left)
	}
}

const widestJudgement = len(DifferentByDesign)

func (r Report) verdictTable() Table {
	t := Table{Header: []string{"TARGET OF WEIR", "LIMIT", "WORST", "VERDICT", "WHERE"}}
	for _, v := range r.Verdicts {
		word := v.Word()
		if !v.Met {
			word = strings.ToUpper(word)
		}
		t.Add(v.Target, v.Limit, v.Measured, word, v.Where)
	}
	return t
}

// Word returns a verdict as a word.
func (v Verdict) Word() string {
	switch {
	case v.Met:
		return string(Met)
	case v.Undecided:
		return string(Undecided)
	}
	return string(Missed)
}

// Text formats a number with as many digits as are useful; a dash for none.
func Text(value *float64) string {
	if value == nil {
		return "-"
	}
	return strconv.FormatFloat(*value, 'g', 4, 64)
}
