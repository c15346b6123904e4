package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench/llq"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/sdn"
	"github.com/weir-project/weir/internal/share/policy"
)

// benchSDNFlags say what of the suite is measured.
type benchSDNFlags struct {
	suiteFlags
	speed   sdn.Options
	figures bool
	rates   []string
	repeat  int
}

func newBenchSDNCommand() *cobra.Command {
	var f benchSDNFlags
	cmd := &cobra.Command{
		Use:   sdn.Suite,
		Short: "Measure the OpenFlow controller's speed, or what its queues do",
		Long: `Measure how many new flows a second weir sdn run answers, and how soon, with
switches that this command plays on the loopback address: every packet-in is a new
flow of one of eight services, and counts when its packet-out is there. Delays are
those at 50,000 packet-ins a second, or at half of what the controller can answer if
that is less, sent at random times by one thread that runs before all others, if it may
(root); they count from when a packet-in was due to when the kernel had its packet-out.
SENT LATE is the part of them that is the sender's. Memory is that of a fresh controller
with 10,000 flows.

With --os-ken its learning switch, which installs entries by MAC address and
classifies nothing, is measured in the same way after it. The load has a processor of
its own and the controller the others, except in the row "weir beside the load", where
they share all (as with one processor): there, packet-ins for each second of processor
time say more on a busy one. WAITED/RAN is how long the controller waited for a
processor at half load, to how long it had one: delays mean something where it is
well below 1. CPU-S/S is the processor time that the controller took for each
second at full load, LOAD'S CPU-S/S that of the switches that are played. Switches end
their oldest flows, so that 10,000 are there at a time. Needs no root.

With --figures, what the queues do instead: the set-up of the SDN-LLQ paper's figure 6,
two hosts, a switch and a controller at 100 Mbit/s, with voice, video and generic
data. Figures 7 to 13 and the paper's numbers stand beside this machine's, with one
queue (fifo) and with those of weir sdn (weir), and each claim gets a verdict. This
needs root, Open vSwitch, and a kernel that has its module: the userspace datapath
sends nothing to queues.

Exits with 1 when a run failed or weir missed one of its own targets; with --no-verdict
a missed target is only shown.`,
		Example: `  python3 -m venv /tmp/os-ken && /tmp/os-ken/bin/pip install os-ken
  weir bench sdn --os-ken /tmp/os-ken/bin/python
  modprobe openvswitch && weir bench sdn --figures --report sdn.html`,
		Args: cmdline.ExactArgs(),
	}
	set := cmd.Flags()
	set.IntVar(&f.speed.Switches, "switches", 100, "switches that are played")
	set.DurationVar(&f.speed.Duration, "duration", 5*time.Second, "time of each run")
	set.StringVar(&f.speed.Python, "os-ken", "", "Python interpreter that has os-ken, to compare with")
	set.BoolVar(&f.figures, "figures", false, "repeat the SDN-LLQ paper's figures 7 to 13 instead")
	set.StringSliceVar(&f.rates, "rates", rateTexts(llq.Totals()), "with --figures: what the three flows send together")
	set.IntVar(&f.repeat, "repeat", 1, "with --figures: interleaved rounds; results are their medians")
	f.addVerdict(set)
	f.addReport(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		run, wrong, why := f.runSpeed, []string{"rates", "repeat"}, "needs --figures"
		if f.figures {
			run, wrong, why = f.runFigures, []string{"switches", "os-ken"}, "is not for --figures"
		}
		for _, name := range wrong {
			if set.Changed(name) {
				return cmdline.Usagef("--%s %s", name, why)
			}
		}
		return run(cmd)
	}
	return cmd
}

func (f *benchSDNFlags) runSpeed(cmd *cobra.Command) error {
	if f.speed.Duration < 100*time.Millisecond {
		return cmdline.Usagef("--duration %v is less than 100ms", f.speed.Duration)
	}
	if f.speed.Switches < 1 || f.speed.Switches > sdn.MostSwitches {
		return cmdline.Usagef("--switches %d is not within 1 and %d", f.speed.Switches, sdn.MostSwitches)
	}
	if f.speed.Python != "" {
		if err := sdn.CheckOSKen(cmd.Context(), f.speed.Python); err != nil {
			return cmdline.Usagef("--os-ken: %v", err)
		}
	}
	return runSuite(cmd, &f.suiteFlags, &f.speed.RunOptions, func(ctx context.Context) (sdn.Report, error) {
		return sdn.Run(ctx, f.speed)
	})
}

// figuresWarmup is longer than Open vSwitch takes to send a new flow's packets
// where its entry says, which is half a second where it has time.
const figuresWarmup = 1500 * time.Millisecond

func (f *benchSDNFlags) runFigures(cmd *cobra.Command) (err error) {
	options := llq.Options{
		Peers: llq.FigurePeers(), RunOptions: measure.RunOptions{Duration: f.speed.Duration, Warmup: figuresWarmup, Repeat: f.repeat},
	}
	if options.TotalsBPS, err = parseRates("--rates", f.rates); err != nil {
		return err
	}
	if err := options.Check(); err != nil {
		return cmdline.WithCode(cmdline.Usage, err)
	}
	return runOnBed(cmd, &f.suiteFlags, &options.RunOptions, func(ctx context.Context) (llq.Report, error) {
		return llq.Figures(ctx, options)
	})
}

// parseRates reads a list of rates.
func parseRates(flag string, texts []string) ([]uint64, error) {
	var list []uint64
	for _, text := range texts {
		rate, err := policy.ParseRate(text)
		if err != nil {
			return nil, cmdline.Usagef("%s %s %w", flag, text, err)
		}
		list = append(list, rate)
	}
	return list, distinct(flag, list, policy.FormatRate)
}

func rateTexts(rates []uint64) []string {
	var texts []string
	for _, rate := range rates {
		texts = append(texts, policy.FormatRate(rate))
	}
	return texts
}
