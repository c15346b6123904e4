package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/sdn/controller"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/ovsdb"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/internal/share/policy"
)

// sdnQueueFlags are the flags that configure the queues of ports.
type sdnQueueFlags struct {
	ovsdb        []string
	rates        []string
	efMax, afMin string
	file         string
	qos          string
	replace      bool
	set          *pflag.FlagSet
}

func (f *sdnQueueFlags) add(set *pflag.FlagSet) {
	set.StringSliceVar(&f.ovsdb, "ovsdb", nil, "Open vSwitch's database, to make queues: unix:PATH or tcp:ADDR:PORT; may be repeated")
	set.StringArrayVar(&f.rates, "rate", nil, "rate of every port, or of one as PORT=RATE; may be repeated (default: the speed that the device reports)")
	set.StringVar(&f.efMax, "ef-max", "50%", "maximum of EF, as a part of a port's rate")
	set.StringVar(&f.afMin, "af-min", "30%", "minimum of AF, as a part of a port's rate")
	set.StringVar(&f.file, "queues", "", "file with up to 8 queues and the traffic of each, in place of --ef-max and --af-min (docs/sdn.md)")
	set.StringVar(&f.qos, "qos", qos.TypeHTB, "linux-htb: Open vSwitch makes the queues; linux-noop: weir makes them, with short delays, on the switch's host (docs/sdn.md)")
	f.set = set
	set.BoolVar(&f.replace, "replace", false, "put aside a QoS that another configured on a port, until weir sdn down")
}

// options returns the connection and queue options that all databases share.
func (f *sdnQueueFlags) options() (o ovsdb.Options, err error) {
	o = ovsdb.Options{PortRateBPS: map[string]uint64{}, Replace: f.replace}
	for _, s := range f.rates {
		name, text, one := strings.Cut(s, "=")
		switch _, twice := o.PortRateBPS[name]; {
		case !one && o.RateBPS != 0, one && twice:
			return o, cmdline.Usagef("--rate %s: given twice: write each port once", s)
		case one && name == "":
			return o, cmdline.Usagef("--rate %s: want PORT=RATE, such as eth1=100mbit, or a rate for all ports", s)
		case !one:
			text = s
		}
		rate, err := policy.ParseRate(text)
		if err != nil {
			return o, cmdline.Usagef("--rate %s %w", s, err)
		}
		if one {
			o.PortRateBPS[name] = rate
		} else {
			o.RateBPS = rate
		}
	}
	if o.Type = f.qos; o.Type != qos.TypeHTB && o.Type != qos.TypeNoop {
		return o, cmdline.Usagef("--qos %q is neither %s nor %s", o.Type, qos.TypeHTB, qos.TypeNoop)
	}
	if o.Queues, err = f.queueMap(); err != nil {
		return o, err
	}
	for _, address := range f.ovsdb {
		if err := ovsdb.CheckAddress(address); err != nil {
			return o, cmdline.Usagef("--ovsdb %w", err)
		}
	}
	return o, nil
}

// queueMap returns the queues of every port.
func (f *sdnQueueFlags) queueMap() (qos.Map, error) {
	if f.file != "" {
		if f.set.Changed("ef-max") || f.set.Changed("af-min") {
			return qos.Map{}, cmdline.Usagef("--queues replaces --ef-max and --af-min: write them in %s", f.file)
		}
		b, err := os.ReadFile(f.file)
		if err != nil {
			return qos.Map{}, cmdline.Usagef("read the queues: %w", err)
		}
		m, err := qos.ReadMap(b)
		if err != nil {
			return m, cmdline.Usagef("--queues %s: %w", f.file, err)
		}
		return m, nil
	}
	var shares qos.Shares
	var err error
	if shares.EFMax, err = parsePercent(f.efMax); err != nil {
		return qos.Map{}, cmdline.Usagef("--ef-max %w", err)
	}
	if shares.AFMin, err = parsePercent(f.afMin); err != nil {
		return qos.Map{}, cmdline.Usagef("--af-min %w", err)
	}
	if err := shares.Check(); err != nil {
		return qos.Map{}, cmdline.WithCode(cmdline.Usage, err)
	}
	return shares.Map(), nil
}

// assign sets the queues of traffic classes and application types.
func assign(config *core.Config, m qos.Map, levels apps.Levels) {
	for l, id := range m.Levels {
		config.Queues[l] = openflow.Queue(id)
	}
	config.TypeQueues = map[int]core.TypeQueue{}
	for i, id := range m.Types {
		config.TypeQueues[i] = core.TypeQueue{Queue: openflow.Queue(id), Level: levels[i]}
	}
}

// parsePercent reads a percentage as a fraction.
func parsePercent(s string) (float64, error) {
	number, ok := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is not a percentage such as 30%%", s)
	}
	return v / 100, nil
}

// managers configure the queues in several Open vSwitch databases.
type managers []*ovsdb.Manager

func (f *sdnQueueFlags) managers(o ovsdb.Options, c *controller.Controller, log *slog.Logger) managers {
	var out managers
	o.Controls, o.Promised, o.Log = c.Controls, c.PromisedAt, log
	for _, address := range f.ovsdb {
		o.Address = address
		out = append(out, ovsdb.New(o))
	}
	return out
}

func (m managers) status() map[topology.Port]qos.PortState {
	out := map[topology.Port]qos.PortState{}
	for _, one := range m {
		maps.Copy(out, one.Status())
	}
	return out
}

func (m managers) kick() {
	for _, one := range m {
		one.Kick()
	}
}

// defaultOVSDB is where Open vSwitch's database listens.
const defaultOVSDB = "unix:/var/run/openvswitch/db.sock"

func newSDNQueuesCommand() *cobra.Command {
	var f sdnQueueFlags
	var remove, watch bool
	var by string
	cmd := &cobra.Command{
		Use:   "queues BRIDGE --rate RATE",
		Short: "Give a bridge that others control queues by DSCP, PCP or mark",
		Long: `Give the ports of an Open vSwitch bridge queues for EF, AF and BE, which take packets by
their DSCP field, the priority of their VLAN tag or their mark. The bridge may be
controlled by OVN, Incus, Proxmox or no controller at all (NORMAL): no OpenFlow entry is
added, and packets for which its controller chose a queue stay in that queue. Run it on
the switch's host as root, and again when ports were added or the host has started, or
let it --watch. --remove takes the queues back.`,
		Example: "weir sdn queues vmbr0 --rate eth0=1gbit --rate tap100i0=200mbit --watch\nweir sdn queues vmbr0 --rate 1gbit --by mark/0xf00\nweir sdn queues vmbr0 --remove",
		Args:    cmdline.ExactArgs("BRIDGE"),
	}
	set := cmd.Flags()
	f.add(set)
	set.StringVar(&by, "by", string(qos.FieldDSCP), "what chooses the queue: dscp, pcp (priority of the VLAN tag), mark or mark/MASK (skb->mark, whose bits in MASK are the queue's number)")
	set.BoolVar(&watch, "watch", false, "go on until stopped: new ports get queues, and what others removed comes back, within a second")
	set.BoolVar(&remove, "remove", false, "remove the queues of the bridge, and restore the previous queueing of ports")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := f.options()
		if err != nil {
			return err
		}
		if len(f.ovsdb) == 0 {
			f.ovsdb = []string{defaultOVSDB}
		}
		if len(f.ovsdb) > 1 {
			return cmdline.Usagef("--ovsdb: a bridge is in one database")
		}
		if remove && (watch || set.Changed("by")) {
			return cmdline.Usagef("--remove takes neither --by nor --watch: it removes the queues of the bridge once, whatever chose them")
		}
		if remove {
			return giveBack(cmd.Context(), cmd, f.ovsdb, args[0])
		}
		if o.By, err = qos.ParseBy(by); err != nil {
			return cmdline.Usagef("--by %w", err)
		}
		o.Address, o.Bridge, o.Log = f.ovsdb[0], args[0], slog.New(slog.DiscardHandler)
		states, err := ovsdb.New(o).Once(cmd.Context())
		if err != nil {
			return err
		}
		if err = printQueues(cmd, args[0], states); !watch {
			return err
		}
		o.Log = cmdline.NewLogger(cmd.ErrOrStderr(), false)
		if err != nil {
			o.Log.Warn("not all ports have queues", "reason", err)
		}
		return ovsdb.New(o).Run(cmd.Context())
	}
	return cmd
}

// printQueues prints the states of ports, and fails unless each port that leads through a device has
// its queues.
func printQueues(cmd *cobra.Command, bridge string, states map[string]qos.PortState) error {
	t, without := cmdline.TextTable{Header: []string{"PORT", "RATE", "STATE"}, Note: "REASON"}, 0
	for _, name := range slices.Sorted(maps.Keys(states)) {
		s := states[name]
		if s.State == "" {
			s.State, s.Reason = "-", "it leads to another bridge, a tunnel or the host: no device sends for it"
		} else if s.State != "ok" {
			without++
		}
		t.Add([]string{cmdline.Printable(name), cmdline.RateOrDash(s.RateBPS), s.State}, cmdline.Printable(s.Reason))
	}
	if err := t.Print(cmd.OutOrStdout(), cmdline.TerminalWidth(cmd.OutOrStdout())); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	switch {
	case len(states) == 0:
		return fmt.Errorf("bridge %s has no ports", bridge)
	case without > 0:
		return fmt.Errorf("%s of bridge %s without queues in force: see the reasons", cmdline.Counted(without, "port"), bridge)
	}
	return nil
}

func newSDNDownCommand() *cobra.Command {
	var addresses []string
	cmd := &cobra.Command{
		Use:   "down --ovsdb unix:PATH",
		Short: "Remove Weir's queues, and restore the previous queueing of ports",
		Long: `Remove Weir's queues from Open vSwitch's database, in one transaction a port, and
put back the QoS that a port had before. Flow entries end by themselves. Where weir sdn
run made the queues itself (--qos linux-noop) run this on the switch's host, as root: the
earlier queueing of a port's device is put back too.

Stop weir sdn run first: it would make the queues again.`,
		Example: "weir sdn down --ovsdb unix:/var/run/openvswitch/db.sock",
		Args:    cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(addresses) == 0 {
				return cmdline.Usagef("--ovsdb is missing: %s", cmd.UseLine())
			}
			for _, address := range addresses {
				if err := ovsdb.CheckAddress(address); err != nil {
					return cmdline.Usagef("--ovsdb %w", err)
				}
			}
			return giveBack(cmd.Context(), cmd, addresses, "")
		},
	}
	cmd.Flags().StringSliceVar(&addresses, "ovsdb", nil, "Open vSwitch's database: unix:PATH or tcp:ADDR:PORT; may be repeated")
	return cmd
}

func giveBack(ctx context.Context, cmd *cobra.Command, addresses []string, bridge string) error {
	for _, address := range addresses {
		names, err := ovsdb.Remove(ctx, address, bridge)
		for _, name := range names {
			fmt.Fprintf(cmd.OutOrStdout(), "%s given back\n", cmdline.Printable(name))
		}
		if err != nil {
			return err
		}
		if len(names) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "weir: no port of %s has queues of weir\n", cmdline.Printable(cmp.Or(bridge, address)))
		}
	}
	return nil
}
