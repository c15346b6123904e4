package measure

import (
	"fmt"
	"io"
	"time"

	"github.com/weir-project/weir/internal/lab/report"
)

// RunOptions are the options that all suites have.
type RunOptions struct {
	// Duration is counted in every run, after Warmup.
	Duration, Warmup time.Duration
	// Repeat is the number of interleaved rounds.
	Repeat int
	// Until is when the last run may start; later runs are left out. Zero is never.
	Until time.Time
	// WeirBinary is the weir that is measured, Version its version, Command the command
	// line, both for the report.
	WeirBinary, Version, Command string
	// Progress gets a line per run.
	Progress io.Writer
	// Journal keeps runs that have ended, and says when the last one has to; nil: nothing is kept.
	Journal *Journal
}

// CheckRuns returns an error if no run is possible, or runs are shorter than least.
func (o RunOptions) CheckRuns(least time.Duration) error {
	if o.Repeat < 1 || o.Duration < least || o.Warmup < 0 {
		return fmt.Errorf("rounds must be positive, the duration %v or longer, the warm-up not negative", least)
	}
	return nil
}

// NewReport returns the report of a suite that began at started, without results.
func (o RunOptions) NewReport(suite, note string, started time.Time, where report.Environment) report.Report {
	return report.Report{
		Format: report.Format, Title: "weir bench " + suite, Note: note,
		Provenance: report.Provenance{Command: o.Command, StartedAt: started, Repeat: o.Repeat, Environment: where},
	}
}
