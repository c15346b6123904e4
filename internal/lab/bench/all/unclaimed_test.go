package all

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/weir-project/weir/internal/lab/bench/claim"
)

// TestUnclaimedIsComplete: each figure, table, formula and algorithm of a paper has claims or is in the list of items without.
func TestUnclaimedIsComplete(t *testing.T) {
	number := regexp.MustCompile(`(figure|table|formula|algorithm)s? (\d+)(?:( to | and )(\d+))?`)
	for _, paper := range []struct {
		source                            string
		figure, table, formula, algorithm int
		claimed                           string
	}{
		{claim.PaperQCon, 12, 1, 9, 1, "figure 3, figures 7 to 12, table 1"},
		{claim.PaperCNTC, 11, 1, 2, 1, "figure 1, figures 7 to 11"},
		{claim.PaperLLQ, 13, 2, 33, 3, "figures 3 to 13"},
		{claim.PaperNetmodes, 5, 2, 0, 0, "figures 3 to 5, tables 1 to 2"},
		{claim.PaperPicasso, 9, 1, 0, 0, "figure 3, figures 5 to 9, table 1"}, // its table I
	} {
		texts := map[bool]string{true: paper.claimed}
		for _, one := range Unclaimed() {
			if one.Source == paper.source {
				texts[false] += one.Item + "; "
			}
			if one.Section == "" {
				t.Errorf("%s, %s has no section", one.Source, one.Item)
			}
		}
		for kind, count := range map[string]int{"figure": paper.figure, "table": paper.table, "formula": paper.formula, "algorithm": paper.algorithm} {
			times := make([]int, count+1)
			for _, text := range texts {
				for _, match := range number.FindAllStringSubmatch(text, -1) {
					first, _ := strconv.Atoi(match[2])
					last, err := strconv.Atoi(match[4])
					if err != nil {
						last = first
					}
					for n := first; match[1] == kind && n <= last; n++ {
						times[n]++
					}
				}
			}
			for n := 1; n <= count; n++ {
				if times[n] != 1 {
					t.Errorf("%s: %s %d stands in %d of both, want one", paper.source, kind, n, times[n])
				}
			}
		}
	}
}
