package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench/picasso"
	"github.com/weir-project/weir/internal/share/policy"
)

func newBenchPicassoCommand() *cobra.Command {
	var o picasso.Options
	var flags suiteFlags
	var uplink string
	cmd := &cobra.Command{
		Use:   picasso.Suite,
		Short: "Repeat PiCasso's evaluation, and hold Weir's placement against Swarm's own",
		Long: `Repeat the evaluation of the PiCasso paper on four nodes that are Docker engines in
network namespaces, with a fortieth of this machine's processors and 1 GB each, 5 ms from
their users, on links of 100 Mbit/s:

  success      requests answered well against 5 to 1000 users, sizes of images (figure 3, table I)
  replicas     response time and processors with 1, 2 and 4 instances on 1, 2 and 4 nodes (figures 5 to 8)
  capacity     how many replicas a node stands, each with users who arrive (section IV.C)
  cost         how long engines and instances take to start (figure 9)
  competition  response time, throughput and minimums where some uplinks are busy: with
               Weir's agents and weir-edge, and with Swarm's own placement without them
  memory       what weir-edge takes of ten nodes with their agents

Each of the paper's claims gets a verdict and a reason. All parts take about sixteen
minutes, eight of them the competition, and ten nodes 2 GB of memory; the paper's runs are
--requests 10000 --for 10m. docs/measurements/edge.md says what the competition compares.

Needs root, dockerd, busybox-static and, for the last two, haproxy and weir-edge; nginx and
tomcat are measured where they are installed (nginx-light and tomcat10-common; make bench
installs them), and in place of tomcat otherwise a server of our own. Exits with 1 when a
run failed or Weir missed one of its own targets; with --no-verdict a missed target is
only shown.`,
		Example: `  weir bench picasso --report picasso.html
  weir bench picasso --parts competition --nodes 4 --orders 4
  weir bench picasso --parts success --users 5,100 --requests 500`,
		Args: cmdline.ExactArgs(),
	}
	set := cmd.Flags()
	set.StringSliceVar(&o.Parts, "parts", picasso.Parts(), "what to measure")
	set.IntVar(&o.Requests, "requests", 2000, "requests of each run")
	set.DurationVar(&o.For, "for", 6*time.Second, "no request begins after that long in a run")
	set.IntSliceVar(&o.Users, "users", []int{5, 50, 100, 500, 1000}, "crowds of figure 3")
	set.IntVar(&o.Repeat, "repeat", 1, "rounds of the crowds of figures 3 and 5 to 8 and of the replicas of a node; a claim shows medians with the lowest and highest round")
	set.IntVar(&o.Starts, "starts", 3, "how often each server is started for figure 9")
	set.DurationVar(&o.Duration, "duration", 8*time.Second, "time of each load of the competition")
	set.IntSliceVar(&o.Nodes, "nodes", []int{4, 6}, "how many nodes the competition has, of which one half is busy")
	set.IntVar(&o.Orders, "orders", 2, "how often it is drawn which nodes are busy; every second draw is the one before, turned round")
	set.StringVar(&uplink, "uplink", "20mbit", "uplink of each node in the competition")
	set.StringVar(&o.Nginx, "nginx", "", "nginx to measure (default the one in PATH)")
	set.StringVar(&o.EdgeBinary, "weir-edge", "", "weir-edge to measure (default the one beside this program, or in PATH)")
	flags.addVerdict(set)
	flags.addReport(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.CompetitionLinkBPS, err = policy.ParseRate(uplink); err != nil {
			return cmdline.Usagef("--uplink %s %w", uplink, err)
		}
		if err := o.Check(); err != nil {
			return cmdline.WithCode(cmdline.Usage, err)
		}
		if err := cmp.Or(distinct("--parts", o.Parts, plainText), distinct("--users", o.Users, plainText), distinct("--nodes", o.Nodes, plainText)); err != nil {
			return err
		}
		return runOnBed(cmd, &flags, &o.RunOptions, func(ctx context.Context) (found picasso.Report, err error) {
			if picasso.NeedsEdge(o.Parts) && o.EdgeBinary == "" {
				if o.EdgeBinary, err = picasso.FindEdge(o.WeirBinary); err != nil {
					return found, err
				}
			}
			return picasso.Run(ctx, o)
		})
	}
	return cmd
}
