package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/policy"
)

func newPsCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List containers, their policies and what they get",
		Args:  cmdline.ExactArgs(),
	}
	format := cmdline.AddOutputFlag(cmd, cmdline.Wide)
	connect := addConnectionFlags(cmd, g)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		agent, err := connect.open()
		if err != nil {
			return err
		}
		containers, err := agent.Containers(cmd.Context())
		if err != nil {
			return err
		}
		if *format == cmdline.JSON {
			return cmdline.PrintJSON(cmd.OutOrStdout(), containers)
		}
		return printTable(cmd.OutOrStdout(), containers, *format == cmdline.Wide)
	}
	return cmd
}

func printContainers(w io.Writer, containers []v1.Container) error {
	return printTable(w, containers, false)
}

// printTable lists containers; wide, with the layer that each value of a policy
// comes from.
func printTable(w io.Writer, containers []v1.Container, wide bool) error {
	from := func(value string, layer v1.Layer) string {
		if !wide || layer == v1.LayerBuiltIn || layer == "" {
			return value
		}
		return fmt.Sprintf("%s (%s)", value, layer)
	}
	t := textTable{
		header:      []string{"NAME", "MODE", "WEIGHT", "MIN", "MAX", "PRIORITY", "LATENCY", "ENTITLED", "RATE", "DELAY", "DROPPED", "STATE"},
		note:        "REASON",
		dispensable: []string{"DROPPED", "DELAY", "LATENCY", "PRIORITY", "MODE", "WEIGHT"},
	}
	classes := wide || slices.ContainsFunc(containers, func(c v1.Container) bool { return c.Policy.Class != v1.ClassNone })
	if classes {
		t.header = slices.Insert(t.header, classColumn, "CLASS")
		t.dispensable = append([]string{"CLASS"}, t.dispensable...)
	}
	if wide {
		t.dispensable = nil
	}
	several := slices.ContainsFunc(containers, func(c v1.Container) bool { return len(c.Shares) > 1 })
	if several {
		t.header = slices.Insert(t.header, 1, "UPLINK")
	}
	for _, c := range containers {
		for _, share := range c.Shares {
			row := []string{
				cmdline.Printable(c.Name),
				string(c.Mode),
				from(strconv.FormatUint(uint64(c.Policy.Weight), 10), c.PolicyFrom.Weight),
				from(rateOrDash(c.Policy.MinBPS), c.PolicyFrom.Min),
				from(rateOrDash(c.Policy.MaxBPS), c.PolicyFrom.Max),
				from(strconv.FormatUint(uint64(c.Policy.Priority), 10), c.PolicyFrom.Priority),
				from(latencyOrDash(c.Policy.LatencyMS), c.PolicyFrom.Latency),
				rateOrDash(share.EntitledBPS),
				rateOrDash(share.RateBPS),
				delayOrDash(share.DelayP50MS, share.DelayP99MS),
				strconv.FormatUint(share.DroppedPackets, 10),
				string(c.State),
			}
			rows := [][]string{row}
			if classes {
				class := from(cmp.Or(string(c.Policy.Class), "-"), c.PolicyFrom.Class)
				if wide && c.Policy.DSCP != v1.DSCPNone {
					class += ", " + from("dscp "+string(c.Policy.DSCP), c.PolicyFrom.DSCP)
				}
				rows[0] = slices.Insert(row, classColumn, class)
			}
			if wide {
				rows = append(rows, classRows(share)...)
			}
			for i, row := range rows {
				if several {
					row = slices.Insert(row, 1, cmdline.Printable(share.Uplink))
				}
				reason := ""
				if i == 0 {
					reason = cmdline.Printable(strings.Join(slices.DeleteFunc([]string{c.Reason, heldNote(share.Classes)}, func(s string) bool { return s == "" }), "; "))
				}
				t.add(row, reason)
			}
		}
	}
	if err := t.print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// classColumn is where the class stands among the columns, before there is one for
// uplinks.
const classColumn = 7

// classRows are the traffic classes of a share, in the columns of a container.
func classRows(share v1.Share) [][]string {
	var rows [][]string
	for _, c := range share.Classes {
		state := ""
		if c.Held {
			state = "held"
		}
		rows = append(rows, []string{
			"  " + string(c.Class), "", "", rateOrDash(c.MinBPS), rateOrDash(c.MaxBPS), "", "", "", "",
			rateOrDash(c.RateBPS), delayOrDash(c.DelayP50MS, c.DelayP99MS), strconv.FormatUint(c.DroppedPackets, 10), state,
		})
	}
	return rows
}

// heldNote says what of a container's EF does not go first; "" for nothing.
func heldNote(classes []v1.ClassShare) string {
	for _, c := range classes {
		switch {
		case !c.Held:
		case c.ExcessBPS == 0:
			return fmt.Sprintf("some of its EF was above %s and served as be", policy.FormatRateShort(c.MaxBPS))
		default:
			return fmt.Sprintf("%s of its EF is above %s and served as be", policy.FormatRateShort(c.ExcessBPS), policy.FormatRateShort(c.MaxBPS))
		}
	}
	return ""
}

// heldState is heldNote of one class, for a narrow column.
func heldState(c v1.ClassShare) string {
	if !c.Held {
		return ""
	}
	return "held: " + heldNote([]v1.ClassShare{c})
}

func latencyOrDash(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return formatMS(ms)
}

// delayOrDash is the median and the 99th percentile.
func delayOrDash(p50MS, p99MS float64) string {
	if p99MS == 0 {
		return "-"
	}
	return strings.TrimSuffix(formatMS(p50MS), "ms") + "/" + formatMS(p99MS)
}

// formatMS writes milliseconds with two digits that count.
func formatMS(ms float64) string {
	digits := 0
	switch {
	case ms < 1:
		digits = 2
	case ms < 10:
		digits = 1
	}
	return strconv.FormatFloat(ms, 'f', digits, 64) + "ms"
}

func rateOrDash(bps uint64) string {
	if bps == 0 {
		return "-"
	}
	return policy.FormatRateShort(bps)
}
