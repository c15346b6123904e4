package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench/liveport"
)

func newBenchModelCommand() *cobra.Command {
	var options liveport.Options
	var flags suiteFlags
	cmd := &cobra.Command{
		Use:   liveport.Suite,
		Short: "Hold the queueing model against real packets on a link of 100 Mbit/s",
		Long: `Hold the queueing model of weir model llq against real packets: three queues in front
of a link of 100 Mbit/s, with Poisson arrivals and exponential packet sizes, served by
a program as the model has it, and by HTB. The model is solved for what arrived;
throughput should agree within 2 %, the mean wait of EF within 15 %, and where they do
not the report says what the machine or HTB does otherwise. The paper's claims on
figures 3 to 5 are those of weir model llq --figures.

Everything runs in network namespaces of its own. Turns of AF and BE are 10 ms long, so
it takes about a minute a port until AF's and BE's throughput is within 2 %: many short
rounds, as those in which a processor stood still are done again, once.

Needs root. Exits with 1 when the suite could not run or a run failed.`,
		Example: `  weir bench model --report model.html
  weir bench model --only paper --repeat 20
  weir bench model -o json`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.Only, err = flags.parseOnly(); err != nil {
				return err
			}
			if err := options.Check(); err != nil {
				return cmdline.WithCode(cmdline.Usage, err)
			}
			return runOnBed(cmd, &flags, &options.RunOptions, func(ctx context.Context) (liveport.Report, error) {
				return liveport.Run(ctx, options)
			})
		},
	}
	set := cmd.Flags()
	addRunFlags(set, &options.RunOptions, 3*time.Second, 500*time.Millisecond, 3)
	set.Uint64Var(&options.Seed, "seed", 1, "seed of arrivals, sizes and turns")
	flags.addOnly(set, "measure the ports whose name matches a regular expression")
	flags.addWithin(set)
	flags.addReport(cmd)
	return cmd
}
