package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/lab/bench"
)

func newBenchSDNCommand() *cobra.Command {
	var o bench.SDNOptions
	cmd := &cobra.Command{
		Use:   bench.SuiteSDN,
		Short: "Measure how fast the OpenFlow controller answers, beside os-ken",
		Long: `Measure how many new flows a second weir sdn run answers, and how soon, with
switches that this command plays on the loopback address: every packet-in is a new
flow of one of eight services, and counts when its packet-out is there. Delays are
those at half of that rate. Memory is that of a fresh controller with 10,000 flows.

With --os-ken its learning switch, which installs entries by MAC address and
classifies nothing, is measured in the same way after it. Load and controller share
the machine's processors: packet-ins for each second of the controller's processor
time say more on a busy one. "waited/ran" is how long the controller waited for a
processor at half load, to how long it had one: delays mean something where it is
well below 1. "CPU-s/s" is the processor time that the controller took for each
second at full load, "load's" that of the switches that are played. Switches end their oldest flows, so that 10,000 are there at a time.
Needs no root.`,
		Example: `  python3 -m venv /tmp/os-ken && /tmp/os-ken/bin/pip install os-ken
  weir bench sdn --os-ken /tmp/os-ken/bin/python`,
		Args: cmdline.ExactArgs(),
	}
	cmd.Flags().IntVar(&o.Switches, "switches", 100, "switches that are played")
	cmd.Flags().DurationVar(&o.Duration, "duration", 5*time.Second, "time of each run")
	cmd.Flags().StringVar(&o.Python, "os-ken", "", "Python interpreter that has os-ken, to compare with")
	format := cmdline.AddOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.Weir, err = os.Executable(); err != nil {
			return fmt.Errorf("find the program to measure: %w", err)
		}
		if o.Duration < 100*time.Millisecond {
			return cmdline.Usagef("--duration %v is less than 100ms", o.Duration)
		}
		o.Progress = cmd.ErrOrStderr()
		found, err := bench.SDN(cmd.Context(), o)
		if err != nil {
			return err
		}
		if *format == cmdline.JSON {
			return cmdline.PrintJSON(cmd.OutOrStdout(), found)
		}
		if err := found.WriteText(cmd.OutOrStdout()); err != nil {
			return fmt.Errorf("print the results: %w", err)
		}
		return nil
	}
	return cmd
}
