package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/cmdline"
)

func newFlowsCommand(g *global) *cobra.Command {
	var limit uint
	cmd := &cobra.Command{
		Use:   "flows [NAME]",
		Short: "Show live flows, what applications they are of, and their class",
		Long: `Show the live flows of the containers whose class is auto, or of one of them: its
two sides, as the container sees them, the type of application that it is taken for,
the traffic class, which stage of the classifier said so (1 by the first packet, 2 by
the first six with payload, dscp: its packets say so themselves) and how certain it is, what was sent and received by who
began it, and how long ago its last packet was. Those seen last come first.

DELAY is how long its packets waited at the uplink, on average over those that were
measured since it began. The last line says which classifier judges (classifier in the config
file).

A flow that was silent for five minutes is none any more. Fragments belong to the
flow of their first one.`,
		Example: `  weir set web --class auto
  weir flows web
  weir flows -o json --limit 0`,
		Args: cmdline.AtMostArgs("NAME"),
	}
	format := cmdline.AddOutputFlag(cmd)
	cmd.Flags().UintVar(&limit, "limit", 100, "so many flows of each container at most; 0 for as many as there may be (20,000 of all)")
	connect := addConnectionFlags(cmd, g)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		agent, err := connect.open()
		if err != nil {
			return err
		}
		flows, err := agent.Flows(cmd.Context(), strings.Join(args, ""), limit)
		if err != nil {
			return err
		}
		if *format == cmdline.JSON {
			return cmdline.PrintJSON(cmd.OutOrStdout(), flows)
		}
		status, err := agent.Status(cmd.Context())
		if err != nil {
			return err
		}
		if len(flows) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "There is no live flow of a container whose class is auto: weir set NAME --class auto")
		}
		if err := printFlows(cmd.OutOrStdout(), flows, time.Now()); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "classifier: %s\n", cmdline.Printable(describeClassifier(status.Classifier, time.Now())))
		return err
	}
	return cmd
}

// describeClassifier says which classifier is in force, in one line.
func describeClassifier(c v1.Classifier, now time.Time) string {
	text := c.Source
	if c.SHA256 != "" {
		text += fmt.Sprintf(" (sha256 %.12s)", c.SHA256)
	}
	if c.Nodes > 0 {
		text += fmt.Sprintf(", %d nodes, trained from %d flows of %d groups", c.Nodes, c.Flows, c.Groups)
	}
	if len(c.Levels) > 0 {
		text += ", with " + strings.Join(c.Levels, ", ")
	}
	if c.MinConfidence > 0 {
		text += fmt.Sprintf(", verdicts less certain than %.0f%% are be", 100*c.MinConfidence)
	}
	if c.InForceSince.IsZero() {
		return text + "; in force as soon as a container's class is auto"
	}
	return text + "; in force for " + max(now.Sub(c.InForceSince), 0).Truncate(time.Second).String()
}

// printFlows lists flows for people.
func printFlows(w io.Writer, flows []v1.Flow, now time.Time) error {
	t := textTable{
		header: []string{"CONTAINER", "PROTO", "INITIATOR", "RESPONDER", "APPLICATION", "CLASS", "STAGE", "CERTAIN",
			"DELAY", "SENT", "RECEIVED", "PACKETS", "SEEN"},
		dispensable: []string{"PACKETS", "STAGE", "CERTAIN", "RECEIVED", "PROTO"},
	}
	for _, f := range flows {
		application, class, stage, certain := cmp.Or(f.Application, "-"), string(f.Class), fmt.Sprint(f.Stage), fmt.Sprintf("%.0f%%", 100*f.Confidence)
		switch {
		case f.ByDSCP:
			stage, certain = "dscp", "-"
		case f.Stage == 0:
			application, class, stage, certain = "-", "-", "-", "-"
		}
		t.add([]string{
			cmdline.Printable(f.Container), f.Protocol, f.Initiator, f.Responder, application, class, stage, certain,
			flowDelay(f), bytesOrDash(f.SentBytes), bytesOrDash(f.ReceivedBytes), fmt.Sprint(f.SentPackets + f.ReceivedPackets), formatAgo(now.Sub(f.LastSeenAt)),
		}, "")
	}
	if err := t.print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// flowDelay is how long a flow's packets waited.
func flowDelay(f v1.Flow) string {
	if f.DelayMS == 0 {
		return "-"
	}
	return formatMS(f.DelayMS)
}

// formatAgo says how long ago something was.
func formatAgo(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return d.Truncate(time.Second).String()
}
