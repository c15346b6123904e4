package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/share/policy"
)

// benchFlags are the flags of `weir bench` as written.
type benchFlags struct {
	suiteFlags
	rate     string
	noDocker bool
	options  bench.Options
}

// defaultReaders are the pages of the dashboard in the suite agent.
const defaultReaders = 100

func newBenchCommand() *cobra.Command {
	var flags benchFlags
	cmd := &cobra.Command{
		Use:   "bench SUITE",
		Short: "Measure Weir against the ideal, the papers and other tools",
		Long: `Measure how containers share an uplink, on a test bed of its own: a host, its
neighbour and the link between them are network namespaces with addresses from
198.18.0.0/15, containers run in a private Docker engine, and nothing of the
machine's own network is touched.

Suites:
  qcon      figures 3 and 7 to 12 and table 1 of the qCon paper (Sensors 2018)
  cntc      figures 1 and 7 to 11 of the CNTC paper (NPC 2019) in bridge,
            overlay, host and macvlan mode
  accuracy  error of shares from 10 Mbit/s to 5 Gbit/s, TCP against UDP,
            100 containers
  reaction  time to the new allocation after a start, a stop, a burst and
            weir set: two of each kind for a second of --duration, and five
            rounds unless --repeat says otherwise, so 100
  cap       by how much a maximum is exceeded in any 100 ms
  latency   round trips of a container with a latency bound, beside bulk and
            UDP floods of another, in every network mode
  in        shares, minimums, maximums, latency and reaction of what containers
            receive, also over a bottleneck with round trips of 20 and 50 ms
  cost      CPU time and packets per second, beside HTB and no control
  agent     CPU time and memory of the agent itself, also while pages of its
            dashboard are open and Prometheus asks; its start and the cost of
            a packet with up to 1000 containers

cntc, latency, in, cost and agent always use network namespaces as containers. A
case that needs more than --duration to mean something takes it: shares of 100
containers are a few packets in 10 seconds. A run in which a processor of the
machine stood still for 10 ms or longer, as those of a guest do, is done again, at
most twice; the report says how often. Nothing else is left out.

Peers: none (the link's own queue), fifo (a queue also where the link has no
rate), htb (tc by hand), tc (tc as the CNTC paper uses it), cni-bandwidth (the
CNI plugin with a small bucket), cni-bandwidth-containerd (with containerd's
bucket), policer (nftables, for received traffic), weir (--precision exact),
weir-balanced and weir-low (the other precisions), htb-exact and htb-low (HTB
with packets as large as theirs), weir-in (with --in-rate), ifb-fq_codel and
cake-ingress (an IFB by hand, for received traffic), drr and hfsc (those qdiscs by
hand). Peers that the kernel lacks are left out unless --peers names them, and
the report says so.

Suite cost takes seven rounds unless --repeat says otherwise, with the peers in
another order each round, and judges ratios to another peer of the same round by
the 95 % interval of their median (order statistics). A ratio is missed if all of
the interval is on the wrong side of the aim, met if all of it is on the right
side or within 1 % of the aim, and else undecided: after seven rounds such cases
alone take seven more, up to 21 in all. Fewer rounds decide nothing, and more are
judged once. What stays undecided is no success.

Suites qcon and cntc also judge what the papers say: reproduced, exceeded,
different by design or not reproduced, each with the reason; says nothing, if it
holds without Weir, too.

Needs root. Exits with 1 when the suite could not run, a run failed, or Weir
missed one of its own targets or one is undecided; with --no-verdict that is only
shown.`,
		Example: `  weir bench qcon --report qcon.html
  weir bench qcon --only 'figure 7' --duration 3s --peers htb,weir --no-docker
  weir bench cap --rate 1gbit -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmdline.Usagef("which suite? choose from %s", suiteNames(cmd))
			}
			return cmdline.ExactArgs("SUITE")(cmd, args)
		},
		ValidArgs: bench.SuiteNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.options.Suite = args[0]; !slices.Contains(bench.SuiteNames(), args[0]) {
				return cmdline.Usagef("unknown suite %q: choose from %s", args[0], suiteNames(cmd))
			}
			if flags.options.Judged && args[0] != bench.SuiteQCon && args[0] != bench.SuiteCNTC {
				return cmdline.Usagef("--judged is for qcon, cntc and netmodes: leave it out of %s", args[0])
			}
			if !cmd.Flags().Changed("repeat") {
				flags.options.Repeat = bench.Rounds(args[0])
			}
			return flags.run(cmd)
		},
	}
	options, set := &flags.options, cmd.Flags()
	set.StringVar(&flags.rate, "rate", "100mbit", "rate of the link, for suites that do not set their own")
	addRunFlags(set, &options.RunOptions, 10*time.Second, time.Second, 1)
	set.Lookup("repeat").Usage += "; cost takes 7 and reaction 5 unless it is given"
	set.StringSliceVar(&options.Peers, "peers", nil, "peers to run: "+strings.Join(bench.PeerNames(), ",")+" (default all)")
	set.StringVar(&options.PriorityBy, "priority-by", bench.PriorityByPolicy, "policy, or weight: priorities follow from weights, as in CNTC's figures 6 and 10")
	flags.addOnly(set, "run the cases whose \"group: name\" matches a regular expression")
	set.BoolVar(&options.Judged, "judged", false, "leave out runs of qcon and cntc that no claim and no target is judged by")
	set.BoolVar(&flags.noDocker, "no-docker", false, "use bare network namespaces as containers")
	set.Float64Var(&options.Overload, "overload", 1.5, "how many times the link's rate an unlimited UDP sender sends")
	set.Uint64Var(&options.Seed, "seed", 1, "seed of random weights")
	set.IntVar(&options.Containers, "containers", 50, "containers of the suite agent")
	set.IntVar(&options.Readers, "readers", defaultReaders, "pages of the dashboard that are open in the suite agent; 0 leaves out what looks at the agent")
	flags.addVerdict(set)
	flags.addReport(cmd)
	set.StringArrayVar(&options.AgentArgs, "agent-arg", nil, "further argument of the agent that is measured")
	cmd.AddCommand(newBenchNetmodesCommand(), newBenchCompareCommand(), newBenchAllCommand(), newBenchModelCommand(), newBenchLLQCommand(), newBenchSDNCommand(), newBenchPicassoCommand())
	return cmd
}

// suiteNames names all suites, those that are commands of their own as well.
func suiteNames(cmd *cobra.Command) string {
	names := bench.SuiteNames()
	for _, one := range cmd.Commands() {
		if one.IsAvailableCommand() {
			names = append(names, one.Name())
		}
	}
	return strings.Join(names, ", ")
}

func (f *benchFlags) run(cmd *cobra.Command) error {
	if err := f.parse(); err != nil {
		return err
	}
	return runOnBed(cmd, &f.suiteFlags, &f.options.RunOptions, func(ctx context.Context) (bench.Report, error) {
		return bench.Run(ctx, f.options)
	})
}

// parse reads the flags into options, and checks them before anything is started.
func (f *benchFlags) parse() (err error) {
	options := &f.options
	if options.RateBPS, err = policy.ParseRate(f.rate); err != nil {
		return cmdline.Usagef("--rate %s %w", f.rate, err)
	}
	if options.Only, err = f.parseOnly(); err != nil {
		return err
	}
	if _, err := options.Cases(); err != nil {
		return cmdline.WithCode(cmdline.Usage, err)
	}
	if err := distinct("--peers", options.Peers, plainText); err != nil {
		return err
	}
	options.Docker = !f.noDocker
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find a place for peers: %w", err)
	}
	options.CacheDir = filepath.Join(cache, "weir-bench")
	return nil
}
