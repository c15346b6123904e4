package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/policy"
)

func newBenchPicassoCommand() *cobra.Command {
	var o bench.PicassoOptions
	var page, uplink string
	cmd := &cobra.Command{
		Use:   bench.SuitePicasso,
		Short: "Repeat PiCasso's evaluation, and hold Weir's placement against Swarm's own",
		Long: `Repeat the evaluation of the PiCasso paper on four nodes that are Docker engines in
network namespaces, with a fortieth of this machine's processors and 1 GB each, 5 ms from
their users, on links of 100 Mbit/s:

  success      requests answered well against 5 to 1000 users, sizes of images (figure 3, table I)
  replicas     response time and processors with 1, 2 and 4 instances on 1, 2 and 4 nodes (figures 5 to 8)
  cost         how long engines and instances take to start (figure 9)
  competition  response time, throughput and minimums while backups fill all uplinks: with
               Weir's agents and weir-edge, and with Swarm's own placement without them

Each of the paper's claims gets a verdict and a reason. All parts take about six minutes;
the paper's runs are --requests 10000 --for 10m.

Needs root, dockerd, busybox-static and, for the competition, haproxy and weir-edge; nginx
is measured where it is installed.`,
		Example: `  weir bench picasso --report picasso.html
  weir bench picasso --parts competition
  weir bench picasso --parts success --users 5,100 --requests 500`,
		Args: cmdline.ExactArgs(),
	}
	set := cmd.Flags()
	set.StringSliceVar(&o.Parts, "parts", bench.PicassoParts(), "what to measure")
	set.IntVar(&o.Requests, "requests", 2000, "requests of each run")
	set.DurationVar(&o.For, "for", 6*time.Second, "no request begins after that long in a run")
	set.IntSliceVar(&o.Users, "users", []int{5, 50, 100, 500, 1000}, "crowds of figure 3")
	set.IntVar(&o.Starts, "starts", 3, "how often each server is started for figure 9")
	set.DurationVar(&o.Duration, "duration", 10*time.Second, "time counted of each side of the competition")
	set.StringVar(&uplink, "uplink", "20mbit", "uplink of each node in the competition")
	set.StringVar(&o.Nginx, "nginx", "", "nginx to measure (default the one in PATH)")
	set.StringVar(&o.EdgeBinary, "weir-edge", "", "weir-edge to measure (default the one beside this program, or in PATH)")
	set.StringVar(&page, "report", "", "also write an HTML report to this file")
	format := cmdline.AddOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.CompetitionLinkBPS, err = policy.ParseRate(uplink); err != nil {
			return cmdline.Usagef("--uplink %s %w", uplink, err)
		}
		if err := o.Check(); err != nil {
			return cmdline.WithCode(cmdline.Usage, err)
		}
		if os.Geteuid() != 0 {
			return errors.New("the test bed needs root: run with sudo")
		}
		if o.WeirBinary, err = os.Executable(); err != nil {
			return fmt.Errorf("find the weir that is to be measured: %w", err)
		}
		if slices.Contains(o.Parts, bench.PicassoCompetition) && o.EdgeBinary == "" {
			if o.EdgeBinary, err = bench.FindEdge(o.WeirBinary); err != nil {
				return err
			}
		}
		o.Command, o.Version, o.Progress = strings.Join(os.Args, " "), version, cmd.ErrOrStderr()
		found, err := bench.RunPicasso(cmd.Context(), o)
		if err != nil {
			return err
		}
		return show(cmd, *format, page, found.Report, found)
	}
	return cmd
}
