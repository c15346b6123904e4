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
	"github.com/weir-project/weir/internal/agent/top"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/connect"
)

func newPsCommand(socket *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps [NAME]",
		Short: "List containers, their policies and what they get",
		Long: `List containers, their policies and what they get, or one of them. NAME is as for
weir set; "host" is the host class.

With --all-nodes it lists those of all nodes of a Kubernetes cluster that have an agent's pod, by
running kubectl, which runs weir ps in these pods. Nodes that do not answer are named with the
reason, and the exit code is 1.`,
		Example: `  weir ps
  weir ps web -o json
  weir ps --all-nodes -n kube-system`,
		Args: cmdline.AtMostArgs("NAME"),
	}
	format := cmdline.AddOutputFlag(cmd, cmdline.Wide)
	flags := connect.Add(cmd, socket)
	cluster := addClusterFlags(cmd)
	cmd.ValidArgsFunction = flags.CompleteNames
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cluster.check(cmd, args); err != nil {
			return err
		}
		if cluster.allNodes {
			containers, err := cluster.list(cmd.Context())
			switch {
			case containers == nil:
				return err
			case *format == cmdline.JSON:
				return cmp.Or(cmdline.PrintJSON(cmd.OutOrStdout(), containers), err)
			}
			return cmp.Or(printTable(cmd.OutOrStdout(), containers, *format == cmdline.Wide), err)
		}
		agent, err := flags.Open()
		if err != nil {
			return err
		}
		var containers []v1.Container
		if len(args) == 0 {
			containers, err = agent.Containers(cmd.Context())
		} else {
			var explained v1.Explanation
			explained, err = agent.Explain(cmd.Context(), args[0])
			containers = []v1.Container{explained.Container}
		}
		if err != nil {
			return err
		}
		if *format == cmdline.JSON {
			return cmdline.PrintJSON(cmd.OutOrStdout(), containers)
		}
		return printContainers(cmd.OutOrStdout(), containers, *format == cmdline.Wide)
	}
	return cmd
}

// printContainers is printTable for the containers of one agent.
func printContainers(w io.Writer, containers []v1.Container, wide bool) error {
	rows := make([]nodeContainer, len(containers))
	for i, c := range containers {
		rows[i].container = c
	}
	return printTable(w, rows, wide)
}

// printTable prints a table of containers, with their nodes if they have any; with wide, each policy value is
// followed by the layer that it comes from.
func printTable(w io.Writer, containers []nodeContainer, wide bool) error {
	from := func(value string, layer v1.Layer) string {
		if !wide || layer == v1.LayerBuiltIn || layer == "" {
			return value
		}
		return fmt.Sprintf("%s (%s)", value, layer)
	}
	t := cmdline.TextTable{
		Header:      []string{"NAME", "MODE", "WEIGHT", "MIN", "MAX", "PRIORITY", "LATENCY", "ENTITLED", "RATE", "DELAY", "DROPPED", "STATE"},
		Note:        "REASON",
		Dispensable: []string{"DROPPED", "DELAY", "LATENCY", "PRIORITY", "MODE", "WEIGHT"},
	}
	classes := wide || slices.ContainsFunc(containers, func(c nodeContainer) bool { return c.container.Policy.Class != v1.ClassNone })
	if classes {
		t.Header = slices.Insert(t.Header, classColumn, "CLASS")
		t.Dispensable = append([]string{"CLASS"}, t.Dispensable...)
	}
	if wide {
		t.Dispensable = nil
	}
	several := slices.ContainsFunc(containers, func(c nodeContainer) bool { return len(c.container.Shares) > 1 })
	if several {
		t.Header = slices.Insert(t.Header, 1, "UPLINK")
	}
	rowOf := func(c v1.Container, share v1.Share, name, mode, state string) []string {
		row := []string{
			name, mode,
			from(strconv.FormatUint(uint64(c.Policy.Weight), 10), c.PolicyFrom.Weight),
			from(cmdline.RateOrDash(c.Policy.MinBPS), c.PolicyFrom.Min),
			from(cmdline.RateOrDash(c.Policy.MaxBPS), c.PolicyFrom.Max),
			from(strconv.FormatUint(uint64(c.Policy.Priority), 10), c.PolicyFrom.Priority),
			from(cmdline.LatencyOrDash(c.Policy.LatencyMS), c.PolicyFrom.Latency),
			cmdline.RateOrDash(share.EntitledBPS),
			cmdline.RateOrDash(share.RateBPS),
			cmdline.DelayOrDash(share.DelayP50MS, share.DelayP99MS),
			strconv.FormatUint(share.DroppedPackets, 10),
			state,
		}
		if classes {
			class := from(cmp.Or(string(c.Policy.Class), "-"), c.PolicyFrom.Class)
			if wide && c.Policy.DSCP != v1.DSCPNone {
				class += ", " + from("dscp "+string(c.Policy.DSCP), c.PolicyFrom.DSCP)
			}
			row = slices.Insert(row, classColumn, class)
		}
		return row
	}
	onNodes := slices.ContainsFunc(containers, func(c nodeContainer) bool { return c.node != "" })
	if onNodes {
		t.Header = slices.Insert(t.Header, 0, "NODE")
	}
	for _, onNode := range containers {
		c := onNode.container
		in, _ := c.Received()
		for _, share := range c.Shares {
			rows := [][]string{rowOf(c, share, c.Name, string(c.Mode), string(c.State))}
			if wide {
				rows = append(rows, classRows(share)...)
			}
			if received := in.ShareAt(share.Uplink); received != nil {
				rows = append(rows, rowOf(in, *received, "  in", "", ""))
			}
			for i, row := range rows {
				if several {
					row = slices.Insert(row, 1, share.Uplink)
				}
				if onNodes {
					row = slices.Insert(row, 0, onNode.node)
				}
				reason := ""
				if i == 0 {
					reason = strings.Join(slices.DeleteFunc([]string{c.Reason, top.HeldNote(share.Classes)}, func(s string) bool { return s == "" }), "; ")
				}
				t.Add(row, reason)
			}
		}
	}
	if err := t.Print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// classColumn is the index of the traffic class column, before uplink columns are added.
const classColumn = 7

// classRows returns one row per traffic class of a share, in the columns of a container.
func classRows(share v1.Share) [][]string {
	var rows [][]string
	for _, c := range share.Classes {
		state := ""
		if c.Held {
			state = "held"
		}
		rows = append(rows, []string{
			"  " + string(c.Class), "", "", cmdline.RateOrDash(c.MinBPS), cmdline.RateOrDash(c.MaxBPS), "", "", "", "",
			cmdline.RateOrDash(c.RateBPS), cmdline.DelayOrDash(c.DelayP50MS, c.DelayP99MS), strconv.FormatUint(c.DroppedPackets, 10), state,
		})
	}
	return rows
}
