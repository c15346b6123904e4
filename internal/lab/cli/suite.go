package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/share/policy"
)

// suiteFlags are the flags that several benchmarks have, as written.
type suiteFlags struct {
	only, report string
	within       time.Duration
	noVerdict    bool
	format       *cmdline.Output
}

// addRunFlags adds the flags of single runs, with their defaults.
func addRunFlags(set *pflag.FlagSet, o *measure.RunOptions, duration, warmup time.Duration, repeat int) {
	set.DurationVar(&o.Duration, "duration", duration, "time counted in every run")
	set.DurationVar(&o.Warmup, "warmup", warmup, "time before that, not counted")
	set.IntVar(&o.Repeat, "repeat", repeat, "interleaved rounds; results are their medians")
}

// addReport adds the flags for what is printed and written.
func (f *suiteFlags) addReport(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.report, "report", "", "also write an HTML report to this file")
	f.format = cmdline.AddOutputFlag(cmd)
}

func (f *suiteFlags) addOnly(set *pflag.FlagSet, help string) {
	set.StringVar(&f.only, "only", "", help)
}

func (f *suiteFlags) addWithin(set *pflag.FlagSet) {
	set.DurationVar(&f.within, "within", 0, "start no run after that long; what was not measured is left out (default never)")
}

func (f *suiteFlags) addVerdict(set *pflag.FlagSet) {
	set.BoolVar(&f.noVerdict, "no-verdict", false, "only look: a missed target is no error")
}

// parseOnly returns the expression of --only, nil without one.
func (f *suiteFlags) parseOnly() (*regexp.Regexp, error) {
	if f.only == "" {
		return nil, nil
	}
	only, err := regexp.Compile(f.only)
	if err != nil {
		return nil, cmdline.Usagef("--only: %w", err)
	}
	return only, nil
}

// requireRoot returns an error without root, which the test bed needs.
func requireRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("the test bed needs root: run with sudo")
	}
	return nil
}

// prepare completes options that were checked.
func (f *suiteFlags) prepare(cmd *cobra.Command, o *measure.RunOptions) (err error) {
	if o.WeirBinary, err = cmdline.BesideThis("weir"); err != nil {
		return fmt.Errorf("find the weir that is to be measured: %w", err)
	}
	if f.within > 0 {
		o.Until = time.Now().Add(f.within)
	}
	o.Command, o.Version, o.Progress = strings.Join(os.Args, " "), cmdline.Version, cmd.ErrOrStderr()
	return nil
}

// runOnBed runs a suite with a test bed, which needs root, as runSuite does.
func runOnBed[R report.Result](cmd *cobra.Command, f *suiteFlags, o *measure.RunOptions, run func(context.Context) (R, error)) error {
	if err := requireRoot(); err != nil {
		return err
	}
	return runSuite(cmd, f, o, run)
}

// runSuite runs a suite, and shows what it found.
func runSuite[R report.Result](cmd *cobra.Command, f *suiteFlags, o *measure.RunOptions, run func(context.Context) (R, error)) error {
	if err := f.prepare(cmd, o); err != nil {
		return err
	}
	found, err := run(cmd.Context())
	if err != nil {
		return err
	}
	return f.show(cmd, found)
}

// show prints a result, and then writes its page if one is wanted. Failed runs are an error,
// as are missed targets without --no-verdict.
func (f *suiteFlags) show(cmd *cobra.Command, found report.Result) error {
	var err error
	if *f.format == cmdline.JSON {
		err = cmdline.PrintJSON(cmd.OutOrStdout(), found)
	} else {
		err = found.WriteText(cmd.OutOrStdout())
	}
	if err != nil {
		return fmt.Errorf("print the results: %w", err)
	}
	// After the numbers: they took long, and must not be lost with a page that cannot be written.
	base := found.Base()
	if f.report != "" {
		if err := writePage(f.report, base); err != nil {
			return err
		}
	}
	if failed := found.Failed(); failed > 0 {
		return fmt.Errorf("runs failed in %d cases", failed)
	}
	if missed := base.Missed(); len(missed) > 0 && !f.noVerdict {
		return missedError(missed, len(base.Verdicts))
	}
	return nil
}

// missedError names the targets that were missed or are undecided.
func missedError(missed []report.Verdict, all int) error {
	var targets []string
	what := "missed"
	for _, verdict := range missed {
		text := fmt.Sprintf("%s: %s (%s)", verdict.Target, verdict.Measured, verdict.Limit)
		if verdict.Undecided {
			what = "missed or undecided"
			text += ", " + verdict.Word()
		}
		targets = append(targets, text)
	}
	return fmt.Errorf("%d of %d targets %s (--no-verdict to look only): %s", len(missed), all, what, strings.Join(targets, "; "))
}

// distinct refuses the values of a list flag if one is there twice: it would be measured
// twice, and the results be told apart by nothing. text is how a value is written.
func distinct[T comparable](flag string, values []T, text func(T) string) error {
	seen := map[T]bool{}
	for _, value := range values {
		if seen[value] {
			return cmdline.Usagef("%s has %s twice: name each once", flag, text(value))
		}
		seen[value] = true
	}
	return nil
}

// plainText writes a value as it is.
func plainText[T any](value T) string { return fmt.Sprint(value) }

// linkText writes the rate of a link, which may be none.
func linkText(rateBPS uint64) string {
	if rateBPS == 0 {
		return "none"
	}
	return policy.FormatRate(rateBPS)
}
