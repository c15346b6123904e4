package sdn

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/lab/report"
)

// TestReport: targets are judged by Weir's controller, and os-ken's only where it ran.
func TestReport(t *testing.T) {
	r := &Report{Switches: 100, Controllers: []Controller{
		{Name: "weir", PacketInsPerSecond: 100_000, HalfP99MS: 1.01, ResidentBytes: 99e6},
	}}
	met := func(verdicts []report.Verdict) (list []bool) {
		for _, v := range verdicts {
			list = append(list, v.Met)
		}
		return list
	}
	r.complete()
	if got := met(r.Verdicts); !slices.Equal(got, []bool{true, false, true}) {
		t.Errorf("alone: %v", got)
	}
	r.Controllers = append(r.Controllers, Controller{Name: "os-ken", PacketInsPerSecond: 5100, HalfP99MS: 0.5})
	r.Ratio = 100_000.0 / 5100
	found := Report{Switches: r.Switches, Controllers: r.Controllers, Ratio: r.Ratio}
	found.complete()
	if got := met(found.Verdicts); !slices.Equal(got, []bool{true, false, true, false}) {
		t.Errorf("beside os-ken: %v", got)
	}
	if rows := len(found.Tables[0].Rows); rows != 2 {
		t.Errorf("the table has %d rows, want 2", rows)
	}
	if !strings.Contains(found.Note, "weir bench sdn --figures repeats its figures 7 to 13") {
		t.Errorf("the note does not say what judges the paper's claims: %s", found.Note)
	}
	none := Report{}
	none.complete()
	if len(none.Verdicts) != 0 {
		t.Errorf("of nothing: %+v", none.Verdicts)
	}
}
