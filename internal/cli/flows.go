package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
)

func newFlowsCommand(g *global) *cobra.Command {
	var limit uint
	cmd := &cobra.Command{
		Use:   "flows [NAME]",
		Short: "Show live flows, what applications they are of, and their class",
		Long: `Show the live flows of the containers whose class is auto, or of one of them: its
two sides, as the container sees them, the type of application that it is taken for,
the traffic class, which stage of the classifier said so (1 by the first packet, 2 by
the first six with payload) and how certain it is, what was sent and received by who
began it, and how long ago its last packet was. Those seen last come first.

A flow that was silent for five minutes is none any more. Fragments belong to the
flow of their first one.`,
		Example: `  weir set web --class auto
  weir flows web
  weir flows -o json --limit 0`,
		Args: cobra.MaximumNArgs(1),
	}
	format := addOutputFlag(cmd)
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
		if *format == outputJSON {
			return printJSON(cmd.OutOrStdout(), flows)
		}
		return printFlows(cmd.OutOrStdout(), flows, time.Now())
	}
	return cmd
}

// printFlows lists flows for people.
func printFlows(w io.Writer, flows []v1.Flow, now time.Time) error {
	t := textTable{
		header: []string{"CONTAINER", "PROTO", "INITIATOR", "RESPONDER", "APPLICATION", "CLASS", "STAGE", "CERTAIN",
			"SENT", "RECEIVED", "PACKETS", "SEEN"},
		dispensable: []string{"PACKETS", "STAGE", "CERTAIN", "RECEIVED", "PROTO"},
	}
	for _, f := range flows {
		application, class, stage, certain := f.Application, string(f.Class), fmt.Sprint(f.Stage), fmt.Sprintf("%.0f%%", 100*f.Confidence)
		if f.Stage == 0 {
			application, class, stage, certain = "-", "-", "-", "-"
		}
		t.add([]string{
			printable(f.Container), f.Protocol, f.Initiator, f.Responder, application, class, stage, certain,
			bytesOrDash(f.SentBytes), bytesOrDash(f.ReceivedBytes), fmt.Sprint(f.SentPackets + f.ReceivedPackets), formatAgo(now.Sub(f.LastSeenAt)),
		}, "")
	}
	if err := t.print(w, terminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// formatAgo says how long ago something was.
func formatAgo(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return d.Truncate(time.Second).String()
}
