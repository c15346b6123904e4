package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/share/policy"
)

func newPsCommand(g *global) *cobra.Command {
	return cmdline.PrintAnswer(&cobra.Command{
		Use:   "ps",
		Short: "List the instances of services, their nodes and their users",
		Long: `List the instances of services, their nodes and their users. MIN is what the users of an
instance get of the minimum of its service (weir.min), which all users of the service get
together: "5mbit of 20mbit"; after "in" what they may send (weir.in.min). Of "5 (2 wait)" USERS 2 wait, at the node's proxy, for a place at
an instance.`,
		Args: cmdline.ExactArgs(),
	}, func(ctx context.Context, _ []string) ([]edge.Instance, error) {
		return server.NewClient(g.socket).Instances(ctx)
	}, func(cmd *cobra.Command, list []edge.Instance) error {
		if len(list) == 0 {
			seen, err := server.NewClient(g.socket).Snapshot(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), noServices(seen))
		}
		return printInstances(cmd.OutOrStdout(), list)
	})
}

// noServices says why no service is listed.
func noServices(seen edge.Snapshot) string {
	if seen.At.IsZero() {
		return "weir-edge does not know yet what runs: weir-edge events says what it waits for"
	}
	return "No service is deployed: weir-edge deploy FILE"
}

// printTable prints rows below a head. The last column is a note.
func printTable(w io.Writer, head string, rows [][]string) error {
	names := strings.Fields(head)
	last := len(names) - 1
	t := cmdline.TextTable{Header: names[:last], Note: names[last]}
	for _, row := range rows {
		for i := range row {
			row[i] = cmdline.Printable(row[i])
		}
		t.Add(row[:last], row[last])
	}
	return t.Print(w, 0)
}

func printInstances(w io.Writer, list []edge.Instance) error {
	var rows [][]string
	for _, i := range list {
		rows = append(rows, []string{i.Service, cmp.Or(i.Node, "-"), cmp.Or(i.Instance, "-"), i.State, users(i.Users+i.Waiting, i.Waiting), waits(i.ResponseMS, i.ResponseEnd), partOfMinimum(i), i.Reason})
	}
	return printTable(w, "SERVICE NODE INSTANCE STATE USERS RESPONSE MIN REASON", rows)
}

// waits formats a response time, and what it is if users wait longer.
func waits(ms float64, end edge.ResponseEnd) string {
	if ms == 0 || end == edge.ResponseDelivered || end == "" {
		return milliseconds(ms)
	}
	return milliseconds(ms) + " " + string(end)
}

// response formats what the users of a service wait.
func response(s *edge.Service) string {
	text := waits(s.ResponseMS, s.ResponseEnd)
	if s.ResponseP95MS > 0 {
		text += fmt.Sprintf(" (95 %% within %s; %s of the mean for delivery)", milliseconds(s.ResponseP95MS), milliseconds(s.DeliveryMS))
	}
	return text
}

// partOfMinimum formats an instance's parts of the minimums of its service: "5mbit of 20mbit, in 2mbit of
// 8mbit".
func partOfMinimum(i edge.Instance) string {
	var parts []string
	if i.ServiceMinBPS > 0 {
		parts = append(parts, policy.FormatRateShort(i.MinBPS)+" of "+policy.FormatRateShort(i.ServiceMinBPS))
	}
	if i.ServiceInMinBPS > 0 {
		parts = append(parts, "in "+policy.FormatRateShort(i.InMinBPS)+" of "+policy.FormatRateShort(i.ServiceInMinBPS))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func milliseconds(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return strconv.FormatFloat(ms, 'f', 0, 64) + "ms"
}

func rate(bps uint64) string {
	if bps == 0 {
		return "-"
	}
	return policy.FormatRateShort(bps)
}

// uplinkRate formats a rate of a node's uplink, which may be 0; "-" where it is not measured.
func uplinkRate(n edge.Node, bps uint64) string {
	if n.UplinkBPS == 0 {
		return "-"
	}
	return policy.FormatRateShort(bps)
}

// promises formats what a node has promised and can still promise, and after "in" that of what it receives.
func promises(n edge.Node) (promised, free string) {
	promised, free = uplinkRate(n, n.PromisedBPS), uplinkRate(n, n.FreeBPS)
	if n.InPromisedBPS > 0 || n.InFreeBPS > 0 {
		promised += ", in " + policy.FormatRateShort(n.InPromisedBPS)
		free += ", in " + policy.FormatRateShort(n.InFreeBPS)
	}
	return promised, free
}

// picasso is the output format of the paper's Monitoring Manager.
const picasso cmdline.Output = "picasso"

func newNodesCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List nodes and what they have left",
		Long: `List nodes and what they have left. PROMISED is what the minimums of services take there,
relays and acknowledgements included (weir-edge explain SERVICE adds them up); FREE is what
can still be promised; after "in" the same of what the node receives. With -o picasso, one JSON object of all nodes with what their agents
said last, as PiCasso's Monitoring Manager has it (section III.B.2).`,
		Args: cmdline.ExactArgs(),
	}
	format := cmdline.AddOutputFlag(cmd, picasso)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client := server.NewClient(g.socket)
		if *format == picasso {
			all, err := client.Monitored(cmd.Context())
			if err != nil {
				return err
			}
			return cmdline.PrintJSON(cmd.OutOrStdout(), all)
		}
		list, err := client.Nodes(cmd.Context())
		if err != nil {
			return err
		}
		if *format == cmdline.JSON {
			return cmdline.PrintJSON(cmd.OutOrStdout(), list)
		}
		return printNodes(cmd.OutOrStdout(), list)
	}
	return cmd
}

func printNodes(w io.Writer, list []edge.Node) error {
	var rows [][]string
	for _, n := range list {
		cpu, memory := "-", "-"
		if measured(n) {
			cpu, memory = fmt.Sprintf("%.0f%%", n.CPUUsedPercent), fmt.Sprintf("%.0f%%", percent(n.MemoryUsedBytes, n.MemoryBytes))
		}
		promised, free := promises(n)
		rows = append(rows, []string{
			n.Name, n.State, strconv.Itoa(n.Instances), cpu, memory,
			rate(n.UplinkBPS), uplinkRate(n, n.UplinkSentBPS), promised, free, nodeReason(n),
		})
	}
	return printTable(w, "NODE STATE INSTANCES CPU MEMORY UPLINK SENDS PROMISED FREE REASON", rows)
}

// measured reports whether the node's use is measured; a running node never uses exactly 0.
func measured(n edge.Node) bool { return n.Weir || n.CPUUsedPercent > 0 || n.MemoryUsedBytes > 0 }

// nodeReason returns why a node accepts fewer instances than others.
func nodeReason(n edge.Node) string {
	if !n.Weir && n.Reason == "" {
		return "no Weir agent: no minimum can be promised there"
	}
	return n.Reason
}

func newEventsCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show recent and current events",
		Long:  `Show recent events and, with --follow, those that follow. With -o json, one object a line.`,
		Args:  cmdline.ExactArgs(),
	}
	format := cmdline.AddOutputFlag(cmd)
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with what happens from now on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, none := cmd.OutOrStdout(), true
		err := server.NewClient(g.socket).Events(cmd.Context(), *follow, func(e edge.Event) error {
			none = false
			if *format == cmdline.JSON {
				return writeLine(out, e)
			}
			return printEvent(out, e)
		})
		if cmd.Context().Err() != nil {
			return nil
		}
		if err == nil && none && *format != cmdline.JSON {
			fmt.Fprintln(cmd.ErrOrStderr(), "Nothing has happened yet.")
		}
		return err
	}
	return cmd
}

// writeLine writes an event as one line of JSON, as weir events does.
func writeLine(w io.Writer, e edge.Event) error {
	if err := json.NewEncoder(w).Encode(e); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func printEvent(w io.Writer, e edge.Event) error {
	kind := string(e.Kind)
	if e.Decision != nil {
		kind = e.Decision.Action
	}
	if e.DryRun {
		kind += " (dry run)"
	}
	about := e.Instance
	if about == "" {
		about = strings.TrimSpace(e.Service + " " + e.Node)
	}
	if _, err := fmt.Fprintf(w, "%s  %-9s  %-16s  %s\n", e.At.Local().Format(time.DateTime), kind, cmdline.Printable(about), cmdline.Printable(e.Message)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func newExplainCommand(g *global) *cobra.Command {
	return cmdline.PrintAnswer(&cobra.Command{
		Use:   "explain SERVICE",
		Short: "Say why a service has the instances that it has",
		Long: `Say what was decided about a service in the last round and why, what that went by,
what else could have been done, and what was decided and done before.

If the service has a minimum, a table adds up what it takes on each node: what USERS who
connect there get of it (all nodes together: the minimum; RELAYED of it comes from instances
of other nodes), acknowledgements and requests for that (+ACKS), what instances there send to
proxies of other nodes (+SENT), and what is kept for instances that start (+STARTING). A
minimum of what users send has a table of its own, each packet the other way; what proxies
pass on to instances of other nodes is in the first (+FORWARDED). Below are the places where it holds: uplinks and, with a controller of switches (weir-edge run
--sdn), the links on the way to users.`,
		Args: cmdline.ExactArgs("SERVICE"),
	}, func(ctx context.Context, args []string) (edge.Explanation, error) {
		return server.NewClient(g.socket).Explain(ctx, args[0])
	}, func(cmd *cobra.Command, e edge.Explanation) error { return printExplanation(cmd.OutOrStdout(), e) })
}

func printExplanation(w io.Writer, e edge.Explanation) error {
	var b strings.Builder
	s := e.Service
	fmt.Fprintf(&b, "%s (%s): %s, %d of %s answer, response %s\n\n", s.Name, s.Image, cmdline.Counted(s.Users, "user"), s.Running, cmdline.Counted(s.Instances, "instance"), response(&s))
	if s.Reason != "" {
		fmt.Fprintf(&b, "%s\n\n", s.Reason)
	}
	if err := printInstances(&b, e.Instances); err != nil {
		return err
	}
	if s.MinBPS > 0 || s.InMinBPS > 0 {
		head := "What proxies pass on of what users may send"
		if s.MinBPS > 0 {
			head = fmt.Sprintf("Minimum %s: what all users get together, by the nodes where they connect", rate(s.MinBPS))
		}
		if err := printMinimum(&b, head, s.Claims, false, s.MinBPS > 0); err != nil {
			return err
		}
		head = fmt.Sprintf("Minimum in %s: what all users may send together, by the nodes where they connect", rate(s.InMinBPS))
		if err := printMinimum(&b, head, s.Claims, true, s.InMinBPS > 0); err != nil {
			return err
		}
		b.WriteString("\n")
		if err := printPlaces(&b, s.Claims); err != nil {
			return err
		}
	}
	b.WriteString("\nNow\n")
	for _, d := range e.Now {
		fmt.Fprintf(&b, "  %s: %s\n", d.Action, d.Reason)
		b.WriteString(considered(d))
	}
	b.WriteString("\nEarlier\n")
	if len(e.Earlier) == 0 {
		b.WriteString("  nothing has changed\n")
	}
	for _, event := range e.Earlier {
		b.WriteString("  ")
		if err := printEvent(&b, event); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, cmdline.PrintableLines(b.String()))
	return err
}

// printMinimum prints the claims of one direction, below a head; nothing where there are none, unless the
// service has a minimum of that direction.
func printMinimum(w io.Writer, head string, claims []edge.Claim, in, always bool) error {
	claims = slices.DeleteFunc(slices.Clone(claims), func(c edge.Claim) bool { return c.In != in })
	if len(claims) == 0 && !always {
		return nil
	}
	fmt.Fprintf(w, "\n%s\n", head)
	return printClaims(w, claims)
}

// printClaims prints what a minimum takes on each node, and the sums. Users are the minimum; what
// is relayed to them passes another node's uplink too.
func printClaims(w io.Writer, claims []edge.Claim) error {
	forwards := slices.ContainsFunc(claims, func(c edge.Claim) bool { return c.ForwardedBPS > 0 })
	head := "NODE USERS RELAYED +ACKS +SENT +STARTING =PROMISED REASON"
	if forwards {
		head = "NODE USERS RELAYED +ACKS +SENT +FORWARDED +STARTING =PROMISED REASON"
	}
	var all edge.Claim
	var rows [][]string
	row := func(name string, c edge.Claim) {
		cells := []string{name, rate(c.UsersBPS), rate(c.RelayedBPS), rate(c.AckBPS), rate(c.SentBPS)}
		if forwards {
			cells = append(cells, rate(c.ForwardedBPS))
		}
		rows = append(rows, append(cells, rate(c.StartingBPS), rate(c.PromisedBPS), c.Reason))
	}
	for _, c := range claims {
		row(c.Node, c)
		all.UsersBPS, all.RelayedBPS, all.AckBPS = all.UsersBPS+c.UsersBPS, all.RelayedBPS+c.RelayedBPS, all.AckBPS+c.AckBPS
		all.SentBPS, all.StartingBPS = all.SentBPS+c.SentBPS, all.StartingBPS+c.StartingBPS
		all.ForwardedBPS, all.PromisedBPS = all.ForwardedBPS+c.ForwardedBPS, all.PromisedBPS+c.PromisedBPS
	}
	row("all", all)
	return printTable(w, head, rows)
}

// printPlaces prints where a minimum holds.
func printPlaces(w io.Writer, claims []edge.Claim) error {
	var rows [][]string
	for _, c := range claims {
		for _, p := range c.Places {
			rows = append(rows, []string{c.Node, p.Where, rate(p.PromisedBPS), p.State, p.Since.Local().Format(time.DateTime), p.Reason})
		}
	}
	return printTable(w, "NODE WHERE PROMISED STATE SINCE REASON", rows)
}

// considered returns the alternatives of a decision, one per line; -o json prints all of them.
func considered(d edge.Decision) string {
	var alternatives []struct {
		Node            string  `json:"node"`
		TransferSeconds float64 `json:"transfer_seconds"`
		StartUpSeconds  float64 `json:"start_up_seconds"`
		ResponseSeconds float64 `json:"response_seconds"`
		Refused         string  `json:"refused"`
	}
	var excluded []struct {
		Reason  string `json:"reason"`
		Nodes   int    `json:"nodes"`
		Example string `json:"example"`
	}
	_ = json.Unmarshal(d.Alternatives, &alternatives) // absent, or of a newer weir-edge
	_ = json.Unmarshal(d.Excluded, &excluded)
	var b strings.Builder
	for _, a := range alternatives {
		fmt.Fprintf(&b, "    on %s: ready in %.1f s, users would wait %s", a.Node, a.TransferSeconds+a.StartUpSeconds, milliseconds(a.ResponseSeconds*1000))
		if a.Refused != "" {
			fmt.Fprintf(&b, "; not taken: %s", a.Refused)
		}
		b.WriteString("\n")
	}
	for _, e := range excluded {
		fmt.Fprintf(&b, "    not on %s: %s (%s)\n", e.Example, e.Reason, cmdline.Counted(e.Nodes, "node"))
	}
	return b.String()
}
