package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/lab/bench/llq"
)

func newBenchLLQCommand() *cobra.Command {
	var options llq.Options
	var rates []string
	var page string
	var noVerdict bool
	var within time.Duration
	var format *cmdline.Output
	cmd := &cobra.Command{
		Use:   llq.Suite,
		Short: "Repeat SDN-LLQ's experiment: voice, video and generic data on one link",
		Long: `Repeat the experiment of the SDN-LLQ paper (IEEE Access 2017, section V): a container
sends voice, video and generic data, frames of 1000 bytes in turn, at 5 to 150 Mbit/s
in all over a link of 100 Mbit/s. For each rate: delay, jitter, throughput and loss of
each flow, with one queue (fifo), with HTB and priorities by hand (htb), and with
weir.class=auto (weir). Figures 7 to 13 and the paper's numbers stand beside this
machine's, and each claim gets a verdict.

A peer that does not order flows here, such as a Weir that has weir.class not in force,
is left out and named. Everything runs in network namespaces of its own.

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
			found, err := llq.Run(cmd.Context(), options)
			if err != nil {
				return err
			}
			return show(cmd, *format, page, found.Report, found, noVerdict)
		},
	}
	set := cmd.Flags()
	set.StringSliceVar(&rates, "rates", rateTexts(llq.Totals()), "what the three flows send together")
	set.StringSliceVar(&options.Peers, "peers", llq.Peers(), "peers to run")
	set.DurationVar(&options.Duration, "duration", 2*time.Second, "time counted in every run")
	set.DurationVar(&options.Warmup, "warmup", 500*time.Millisecond, "time before that, not counted; longer until queues are full")
	set.IntVar(&options.Repeat, "repeat", 1, "interleaved rounds; results are their medians")
	set.BoolVar(&noVerdict, "no-verdict", false, noVerdictHelp)
	set.DurationVar(&within, "within", 0, "start no run after that long; what was not measured is left out (default never)")
	set.StringVar(&page, "report", "", "also write an HTML report to this file")
	format = cmdline.AddOutputFlag(cmd)
	return cmd
}
