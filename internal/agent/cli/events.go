package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/connect"
	"github.com/weir-project/weir/internal/share/policy"
)

func newEventsCommand(socket *string) *cobra.Command {
	var (
		since  uint64
		follow bool
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show events: containers, policies, uplinks, guarantees not in force",
		Long: `Show the recent events that the agent has kept and, with --follow, new ones until an
interrupt or the end of the agent: containers that start and stop, policies that change
or are refused, shares that are degraded and repaired, uplinks and engines that are lost
and come back. With -o json, one object a line; --since takes its "seq", also after a
restart of the agent.`,
		Example: `  weir events
  weir events --follow -o json --since 1767323045123`,
		Args: cmdline.ExactArgs(),
	}
	format := cmdline.AddOutputFlag(cmd)
	cmd.Flags().Uint64Var(&since, "since", 0, "only events after the one with this number")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events")
	flags := connect.Add(cmd, socket)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		write := writeEvent
		if *format == cmdline.JSON {
			write = func(w io.Writer, e v1.Event) error { return json.NewEncoder(w).Encode(e) }
		}
		agent, err := flags.Open()
		if err != nil {
			return err
		}
		err = agent.Events(cmd.Context(), since, follow, func(e v1.Event) error {
			if err := write(cmd.OutOrStdout(), e); err != nil {
				return fmt.Errorf("print: %w", err)
			}
			return nil
		})
		if cmd.Context().Err() != nil {
			return nil // an interrupt is the normal end
		}
		return err
	}
	return cmd
}

// writeEvent writes an event as one line of text.
func writeEvent(w io.Writer, e v1.Event) error {
	words := []string{e.At.Local().Format("2006-01-02 15:04:05.000"), strings.ReplaceAll(string(e.Kind), "_", " ")}
	switch {
	case e.Container != "":
		words = append(words, cmdline.Printable(e.Container))
	case e.Uplink != "":
		words = append(words, cmdline.Printable(e.Uplink))
	}
	if e.Policy != nil {
		summary := policySummary(*e.Policy)
		if e.In != nil {
			// Its classes are those of the flows, in both directions.
			in := v1.Policy{Weight: e.In.Weight, MinBPS: e.In.MinBPS, MaxBPS: e.In.MaxBPS, Priority: e.In.Priority, LatencyMS: e.In.LatencyMS}
			summary += "; in: " + policySummary(in)
		}
		words = append(words, "("+summary+")")
	}
	line := strings.Join(words, " ")
	if e.Message != "" {
		line += ": " + cmdline.Printable(e.Message)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// policySummary describes a policy in a few words.
func policySummary(p v1.Policy) string {
	words := []string{fmt.Sprintf("weight %d", p.Weight)}
	add := func(asked bool, format string, value any) {
		if asked {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add(p.MinBPS > 0, "minimum %s", policy.FormatRate(p.MinBPS))
	add(p.MaxBPS > 0, "maximum %s", policy.FormatRate(p.MaxBPS))
	add(p.Priority > 0, "priority %d", p.Priority)
	add(p.LatencyMS > 0, "latency %s", cmdline.FormatMS(p.LatencyMS))
	add(p.Class != v1.ClassNone, "class %s", p.Class)
	add(p.Class != v1.ClassNone && p.EFMax != policy.Default().EFMax, "EF at most %s", policy.FormatPart(p.EFMax))
	add(p.Class != v1.ClassNone && p.AFMin != policy.Default().AFMin, "AF at least %s", policy.FormatPart(p.AFMin))
	add(p.DSCP != v1.DSCPNone, "DSCP %s", p.DSCP)
	return strings.Join(words, ", ")
}
