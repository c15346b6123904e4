package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/top"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/connect"
)

func newFlowsCommand(socket *string) *cobra.Command {
	var limit uint
	cmd := &cobra.Command{
		Use:   "flows [NAME]",
		Short: "Show live flows with their applications and traffic classes",
		Long: `Show the live flows of the containers whose class is auto, or of one of them, the
latest first. A line has both endpoints, as the container sees them; the type of
application that the classifier assumes; the traffic class; the stage of the
classifier that decided (1: the first packet, 2: the first six packets with payload,
dscp: the DSCP field) and its confidence in the class; the bytes that the initiator sent and
received; and the time since the last packet.

Application and class are voted for apart, so the likeliest application may be one of
another class.

WHY says why a flow is not of the class of its verdict. "bulk" is a flow that sends as a
transfer does: this much within this time. It is be for as long as it does. "uncertain" is a verdict below
min_confidence, which is be.

DELAY is the mean queueing delay of the flow's measured packets at the uplink. The last
line names the classifier in force (classifier in the config file).

A flow that was silent for five minutes is none any more. Fragments belong to the
flow of their first one.`,
		Example: `  weir set web --class auto
  weir flows web
  weir flows -o json --limit 0`,
		Args: cmdline.AtMostArgs("NAME"),
	}
	format := cmdline.AddOutputFlag(cmd)
	cmd.Flags().UintVar(&limit, "limit", 100, "maximum number of flows per container; 0 for no limit but 20,000 in total")
	flags := connect.Add(cmd, socket)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		agent, err := flags.Open()
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

// describeClassifier describes the classifier in force, in one line.
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

// printFlows writes flows as a table.
func printFlows(w io.Writer, flows []v1.Flow, now time.Time) error {
	t := cmdline.TextTable{
		Header: []string{"CONTAINER", "PROTO", "INITIATOR", "RESPONDER", "APPLICATION", "CLASS", "STAGE", "CERTAIN",
			"WHY", "DELAY", "SENT", "RECEIVED", "PACKETS", "SEEN"},
		Dispensable: []string{"PACKETS", "STAGE", "CERTAIN", "RECEIVED", "PROTO"},
	}
	for _, f := range flows {
		application, class, stage, certain := cmp.Or(f.Application, "-"), string(f.Class), fmt.Sprint(f.Stage), fmt.Sprintf("%.0f%%", 100*f.Confidence)
		switch {
		case f.ByDSCP:
			stage, certain = "dscp", "-"
		case f.Stage == 0:
			application, class, stage, certain = "-", "-", "-", "-"
		}
		t.Add([]string{
			cmdline.Printable(f.Container), f.Protocol, f.Initiator, f.Responder, application, class, stage, certain, cmp.Or(f.Why, "-"),
			top.FlowDelay(f), cmdline.BytesOrDash(f.SentBytes), cmdline.BytesOrDash(f.ReceivedBytes), fmt.Sprint(f.SentPackets + f.ReceivedPackets), cmdline.FormatAgo(now.Sub(f.LastSeenAt)),
		}, "")
	}
	if err := t.Print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
