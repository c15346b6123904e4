package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench/llq"
)

func newBenchLLQCommand() *cobra.Command {
	var options llq.Options
	var rates []string
	var flags suiteFlags
	cmd := &cobra.Command{
		Use:   llq.Suite,
		Short: "Repeat SDN-LLQ's experiment: voice, video and generic data on one link",
		Long: `Repeat the experiment of the SDN-LLQ paper (IEEE Access 2017, section V): a container
sends voice, video and generic data, marked EF, AF31 and CS1, frames of 1000 bytes in
turn, at 5 to 150 Mbit/s in all over a link of 100 Mbit/s. For each rate: delay, jitter,
throughput and loss of each flow, with one queue (fifo), with HTB and priorities by hand
(htb), and with weir.class=auto and weir.dscp=trust (weir). Figures 7 to 13 and the
paper's numbers stand beside this machine's, and each claim gets a verdict.

Everything runs in network namespaces of its own. The runs of a peer that does not order
flows here, such as a Weir that has weir.class not in force, fail.

Needs root. Exits with 1 when the suite could not run, a run failed, or Weir missed one
of its own targets; with --no-verdict a missed target is only shown.`,
		Example: `  weir bench llq --report llq.html
  weir bench llq --rates 60mbit,105mbit --peers fifo,htb --duration 10s --repeat 5 -o json`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.TotalsBPS, err = parseRates("--rates", rates); err != nil {
				return err
			}
			if err := options.Check(); err != nil {
				return cmdline.WithCode(cmdline.Usage, err)
			}
			if err := distinct("--peers", options.Peers, plainText); err != nil {
				return err
			}
			return runOnBed(cmd, &flags, &options.RunOptions, func(ctx context.Context) (llq.Report, error) {
				return llq.Run(ctx, options)
			})
		},
	}
	set := cmd.Flags()
	set.StringSliceVar(&rates, "rates", rateTexts(llq.Totals()), "what the three flows send together")
	set.StringSliceVar(&options.Peers, "peers", llq.Peers(), "peers to run")
	addRunFlags(set, &options.RunOptions, 2*time.Second, 500*time.Millisecond, 1)
	set.Lookup("warmup").Usage += "; longer until queues are full"
	flags.addVerdict(set)
	flags.addWithin(set)
	flags.addReport(cmd)
	return cmd
}
