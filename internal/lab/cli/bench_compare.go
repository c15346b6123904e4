package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/liveport"
	"github.com/weir-project/weir/internal/lab/bench/llq"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/bench/picasso"
	"github.com/weir-project/weir/internal/lab/bench/sdn"
	"github.com/weir-project/weir/internal/lab/report"
)

func newBenchCompareCommand() *cobra.Command {
	var all bool
	var format *cmdline.Output
	cmd := &cobra.Command{
		Use:   "compare A.json B.json",
		Short: "Say what changed beyond noise between two results",
		Long: `Compare two results that weir bench or weir model printed with -o json, quantity by
quantity: medians with their 95 % confidence intervals, and whether the repeats of
one may come from the same distribution as those of the other (Mann-Whitney U test,
p at most 0.05). It takes at least four repeats on each side (--repeat 5) to tell
anything. What is computed, as by weir model, has no noise: any difference counts.

Another machine, kernel, build or command is said, and compared all the same. A file
with fields that this version does not know, or with values of the wrong kind, is
refused with line and column.

Exits with 1 when the results have nothing in common, not when something changed.`,
		Example: `  weir bench cost --repeat 5 -o json >before.json
  weir bench cost --repeat 5 -o json >after.json
  weir bench compare before.json after.json`,
		Args: cmdline.ExactArgs("A.json", "B.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var read [2]report.Report
			for i, path := range args {
				var err error
				if read[i], err = readResult(path); err != nil {
					return err
				}
			}
			found, err := report.Compare(read[0], read[1])
			if err != nil {
				return err
			}
			if *format == cmdline.JSON {
				return cmdline.PrintJSON(cmd.OutOrStdout(), found)
			}
			if err := found.WriteText(cmd.OutOrStdout(), all); err != nil {
				return fmt.Errorf("print: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also show what did not change")
	format = cmdline.AddOutputFlag(cmd)
	return cmd
}

// readResult reads what weir bench or weir model printed.
func readResult(path string) (report.Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return report.Report{}, fmt.Errorf("read the result: %w", err)
	}
	found, err := parseResult(data)
	if err != nil {
		return found, fmt.Errorf("read the result %s: %w", path, err)
	}
	return found, nil
}

// parseResult reads a result of the kind that it says it is.
func parseResult(data []byte) (report.Report, error) {
	kind, err := report.ParseKind(data)
	if err != nil {
		return report.Report{}, err
	}
	found := emptyResult(kind)
	err = report.Parse(data, found)
	return found.Base(), err
}

// emptyResult returns a result to read one of a kind into.
func emptyResult(kind report.Kind) report.Result {
	switch kind.Suite {
	case "":
	case netmodes.Suite:
		return &netmodes.Report{}
	case llq.Suite, llq.SuiteFigures:
		return &llq.Report{}
	case liveport.Suite:
		return &liveport.Report{}
	case sdn.Suite:
		return &sdn.Report{}
	case picasso.Suite:
		return &picasso.Report{}
	default:
		return &bench.Report{}
	}
	switch {
	case kind.Sweep != "":
		return &llqSweepReport{}
	case kind.Model != "":
		return &llqReport{}
	}
	return &report.Report{}
}
