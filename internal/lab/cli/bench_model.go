package cli

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/lab/bench/liveport"
)

func newBenchModelCommand() *cobra.Command {
	var options liveport.Options
	var page, only string
	var within time.Duration
	var format *cmdline.Output
	cmd := &cobra.Command{
		Use:   liveport.Suite,
		Short: "Hold the queueing model against real packets on a link of 100 Mbit/s",
		Long: `Hold the queueing model of weir model llq against real packets: three queues in front
of a link of 100 Mbit/s, with Poisson arrivals and exponential packet sizes, served by
a program as the model has it, and by HTB. The model is solved for what arrived;
throughput should agree within 2 %, the mean wait of EF within 15 %, and where they do
not the report says what the machine or HTB does otherwise. The paper's claims on
figures 3 to 5 are in it, too.

Everything runs in network namespaces of its own. Turns of AF and BE are 10 ms long, so
it takes about a minute a port until AF's and BE's throughput is within 2 %: many short
rounds, as those in which a processor stood still are done again, once.

Needs root. Exits with 1 when the suite could not run or a run failed.`,
		Example: `  weir bench model --report model.html
  weir bench model --only paper --repeat 20
  weir bench model -o json`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if only != "" {
				if options.Only, err = regexp.Compile(only); err != nil {
					return cmdline.Usagef("--only: %w", err)
				}
			}
			if err := options.Check(); err != nil {
				return cmdline.WithCode(cmdline.Usage, err)
			}
			if os.Geteuid() != 0 {
				return errors.New("the test bed needs root: run with sudo")
			}
			options.Command, options.Version, options.Progress = strings.Join(os.Args, " "), version, cmd.ErrOrStderr()
			if options.WeirBinary, err = os.Executable(); err != nil {
				return fmt.Errorf("find the weir that is to be measured: %w", err)
			}
			if within > 0 {
				options.Until = time.Now().Add(within)
			}
			found, err := liveport.Run(cmd.Context(), options)
			if err != nil {
				return err
			}
			return show(cmd, *format, page, found.Report, found, false)
		},
	}
	set := cmd.Flags()
	set.DurationVar(&options.Duration, "duration", 3*time.Second, "time counted in every run")
	set.DurationVar(&options.Warmup, "warmup", 500*time.Millisecond, "time before that, not counted")
	set.IntVar(&options.Repeat, "repeat", 3, "interleaved rounds; results are their medians")
	set.Uint64Var(&options.Seed, "seed", 1, "seed of arrivals, sizes and turns")
	set.StringVar(&only, "only", "", "measure the ports whose name matches a regular expression")
	set.DurationVar(&within, "within", 0, "start no run after that long; what was not measured is left out (default never)")
	set.StringVar(&page, "report", "", "also write an HTML report to this file")
	format = cmdline.AddOutputFlag(cmd)
	return cmd
}
