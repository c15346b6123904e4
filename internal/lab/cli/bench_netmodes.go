package cli

import (
	"cmp"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/advise"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

// netmodesFlags are the flags of `weir bench netmodes` as written.
type netmodesFlags struct {
	suiteFlags
	links, protocols    []string
	agent, measurements string
	save                bool
	options             netmodes.Options
}

func newBenchNetmodesCommand() *cobra.Command {
	var flags netmodesFlags
	cmd := &cobra.Command{
		Use:   netmodes.Suite,
		Short: "Measure what each network mode of containers costs on this machine",
		Long: `Measure what each network mode of containers costs on this machine: a native
process and containers in bridge, host, macvlan, ipvlan (L2 and L3) and overlay
mode send 64- and 1024-byte messages over TCP and UDP, as netperf does, one and
several at once, on a link of 20 Mbit/s and on one without limit, without and with
Weir's agent. For each: throughput, processor time, context switches, page faults,
migrations, softirq time and, where the machine has counters, cycles and
instructions per cycle. The claims of the paper on network modes of IoT containers (2018) are
judged by it.

Everything runs in network namespaces of its own with addresses of 198.18.0.0/15.
Modes of ipvlan are left out, and named, where the kernel has none. The paper's runs take a
minute (--duration 60s); all cases take about twenty minutes at 2 s.

Needs root. Exits with 1 when the suite could not run or a run failed.`,
		Example: `  weir bench netmodes --report netmodes.html
  weir bench netmodes --save
  weir bench netmodes --modes bridge,host --links 20mbit --duration 60s
  weir bench netmodes --containers 64 --protocols udp --bytes 64 -o json`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	flags.add(cmd)
	flags.addReport(cmd)
	cmd.Flags().BoolVar(&flags.options.Judged, "judged", false, "leave out cases that no claim of the paper is judged by")
	cmd.Flags().BoolVar(&flags.save, "save", false, "keep the result for weir advise")
	cmd.Flags().StringVar(&flags.measurements, "measurements", defaultMeasurements, "file to keep it in")
	return cmd
}

// add adds what is measured to a command's flags.
func (f *netmodesFlags) add(cmd *cobra.Command) {
	set, o := cmd.Flags(), &f.options
	set.StringSliceVar(&o.Modes, "modes", netmodes.Modes(), "modes to measure")
	set.StringSliceVar(&f.protocols, "protocols", []string{string(traffic.TCP), string(traffic.UDP)}, "protocols to measure")
	set.IntSliceVar(&o.MessageBytes, "bytes", []int{64, 1024}, "sizes of messages in bytes")
	set.IntVar(&o.Containers, "containers", 4, "how many send at once at most: 1 to 4, then powers of two up to 64")
	set.StringSliceVar(&f.links, "links", []string{"20mbit", "none"}, "rates of the link; none is no limit")
	set.StringVar(&f.agent, "agent", "both", "measure without the agent, with it, or both")
	addRunFlags(set, &o.RunOptions, 2*time.Second, 300*time.Millisecond, 1)
	f.addWithin(set)
}

func (f *netmodesFlags) run(cmd *cobra.Command) error {
	if err := f.parse(); err != nil {
		return err
	}
	found, err := f.measure(cmd)
	if err != nil {
		return err
	}
	if f.save {
		if err := keep(f.measurements, found); err != nil {
			return err
		}
	}
	return f.show(cmd, found)
}

// parse turns what was written into options and says what is wrong with it
// before anything is started.
func (f *netmodesFlags) parse() error {
	o := &f.options
	o.LinksBPS, o.Protocols = nil, nil
	for _, text := range f.links {
		rate := uint64(0)
		if text != "none" {
			var err error
			if rate, err = policy.ParseRate(text); err != nil {
				return cmdline.Usagef("--links %s %w", text, err)
			}
		}
		o.LinksBPS = append(o.LinksBPS, rate)
	}
	for _, name := range f.protocols {
		o.Protocols = append(o.Protocols, traffic.Protocol(name))
	}
	switch f.agent {
	case "without":
		o.Agent = []bool{false}
	case "with":
		o.Agent = []bool{true}
	case "both":
		o.Agent = []bool{false, true}
	default:
		return cmdline.Usagef("--agent %s: choose without, with or both", f.agent)
	}
	if f.save && o.Judged {
		return cmdline.Usagef("--save with --judged: weir advise needs all cases")
	}
	if err := o.Check(); err != nil {
		return cmdline.WithCode(cmdline.Usage, err)
	}
	err := cmp.Or(
		distinct("--modes", o.Modes, plainText), distinct("--protocols", o.Protocols, plainText),
		distinct("--bytes", o.MessageBytes, plainText), distinct("--links", o.LinksBPS, linkText))
	if err != nil {
		return err
	}
	return requireRoot()
}

// measure runs the suite.
func (f *netmodesFlags) measure(cmd *cobra.Command) (found netmodes.Report, err error) {
	if err := f.prepare(cmd, &f.options.RunOptions); err != nil {
		return found, err
	}
	return netmodes.Run(cmd.Context(), f.options)
}

// keep keeps a result for advice. One with failed runs is kept as well: what failed
// is not in it.
func keep(path string, found netmodes.Report) error {
	return saveMeasurements(path, func(w io.Writer) error { return cmdline.PrintJSON(w, found) })
}

// adviceDuration is counted in every run that advice is taken from; adviceRounds are what
// tells a mode's difference from what runs differ by.
const (
	adviceDuration = time.Second
	adviceRounds   = 3
)

// adviceBytes are the sizes of messages that advice is measured for. Between 64 and 1024
// bytes TCP begins to gather messages and the order of modes turns round: without a size
// in the middle that is not seen.
var adviceBytes = []int{64, 256, 1024}

// refreshMeasurements measures what advice needs, which is containers under Weir's control,
// and keeps it.
func refreshMeasurements(cmd *cobra.Command, path string) error {
	var flags netmodesFlags
	flags.add(&cobra.Command{}) // for the defaults
	flags.agent = "with"
	o := &flags.options
	o.Modes = slices.DeleteFunc(o.Modes, func(mode string) bool { return mode == advise.Native })
	o.MessageBytes, o.Duration, o.Repeat = adviceBytes, adviceDuration, adviceRounds
	if err := flags.parse(); err != nil {
		return err
	}
	found, err := flags.measure(cmd)
	if err != nil {
		return err
	}
	return keep(path, found)
}
