package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/connect"
	"github.com/weir-project/weir/internal/share/explain"
)

func newExplainCommand(socket *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Say why a container gets what it gets",
		Long: `Explain a container's entitlement and its present allocation, and what it would need
to get more; the layer that each value of its policy comes from; and, if it has traffic
classes, the rate of each class, and whether it sends more EF than its EF maximum.
Of a container of docker run whose minimum is refused, explain also names the node of
weir-edge with room for it, and what moves it there. If weir sdn run runs on this host, it
names the queue of each class of the container's DSCP marks at switches, and the port that
ignores the marks or drops EF.

NAME is as for weir set; "host" is the host class.`,
		Example: `  weir explain web
  weir explain web -o json`,
		Args: cmdline.ExactArgs("NAME"),
	}
	format := cmdline.AddOutputFlag(cmd)
	flags := connect.Add(cmd, socket)
	cmd.ValidArgsFunction = flags.CompleteNames
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		agent, err := flags.Open()
		if err != nil {
			return err
		}
		explanation, err := agent.Explain(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		explain.Note(&explanation, "dscp", atSwitches(cmd.Context(), *socket, addressOf, &explanation.Container)...)
		if *format == cmdline.JSON {
			return cmdline.PrintJSON(cmd.OutOrStdout(), explanation)
		}
		return printExplanation(cmd.OutOrStdout(), explanation)
	}
	return cmd
}

// printExplanation writes an explanation as text.
func printExplanation(w io.Writer, e v1.Explanation) error {
	var b strings.Builder
	width := cmdline.TerminalWidth(w)
	list := func(indent int, sentences []string) {
		for _, sentence := range sentences {
			lines := []string{cmdline.Printable(sentence)}
			if width > 0 {
				lines = cmdline.Wrap(lines[0], max(width-indent-2, cmdline.MinNoteWidth))
			}
			for i, line := range lines {
				mark := "- "
				if i > 0 {
					mark = "  "
				}
				b.WriteString(strings.Repeat(" ", indent) + mark + line + "\n")
			}
		}
	}
	fmt.Fprintf(&b, "%s (%s, %s): %s\n", cmdline.Printable(e.Container.Name), cmdline.Printable(e.Container.Runtime), e.Container.Mode, e.Container.State)
	if e.Container.Reason != "" {
		list(2, []string{e.Container.Reason})
	}
	if len(e.Container.Members) > 0 {
		list(2, []string{"its containers: " + strings.Join(e.Container.Members, ", ")})
	}
	asks := func(title string, values []v1.ExplainedValue) {
		fmt.Fprintf(&b, "\n%s\n", title)
		for _, v := range values {
			from := ""
			if v.From != "" {
				from = fmt.Sprintf(" (%s)", v.From)
			}
			fmt.Fprintf(&b, "  %-8s %s%s\n", v.Name, v.Value, from)
			list(4, v.Notes)
		}
	}
	gets := func(may string, shares []v1.ExplainedShare) {
		for _, s := range shares {
			what := ""
			if len(e.InShares) > 0 {
				what = map[string]string{"send": ", of sent traffic", "receive": ", of received traffic"}[may]
			}
			fmt.Fprintf(&b, "\nAt %s%s\n", cmdline.Printable(s.Uplink), what)
			fmt.Fprintf(&b, "  entitled to %s, because\n", cmdline.RateOrDash(s.EntitledBPS))
			list(4, s.Entitled)
			fmt.Fprintf(&b, "  may %s up to %s now, because\n", may, cmdline.RateOrDash(s.AllocatedBPS))
			list(4, s.Allocated)
			b.WriteString("  to get more\n")
			list(4, s.ForMore)
			for _, c := range s.Classes {
				fmt.Fprintf(&b, "  of that %s sends %s now, because\n", c.Class, cmdline.RateOrDash(c.RateBPS))
				list(4, c.Because)
			}
		}
	}
	asks("Asks for", e.Policy)
	gets("send", e.Shares)
	if len(e.InShares) > 0 {
		asks("Asks for, of received traffic", e.InPolicy)
		gets("receive", e.InShares)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
