// Package top shows live tables of containers and their rates: a sample of the agent, computed into
// a picture, rendered for a terminal.
package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/connect"
	"github.com/weir-project/weir/internal/share/policy"
)

// NewCommand returns `weir top`.
func NewCommand(socket *string) *cobra.Command {
	var (
		once     bool
		flows    bool
		interval time.Duration
		order    = ByRate
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live rates of all containers",
		Long: `Show live rates of all containers. The bar is the rate of a container, as a part of the
uplink; the mark | is its entitlement. DELAY is the queueing delay of its packets at
the uplink: median and 99th percentile.

The lines below a container with traffic classes have the rate and delay of each class;
"held" is EF above its maximum, which is served as be (weir explain). The line in is what
the container receives, where that is shared (--in-rate).

The highest rate of both directions is on top; s sorts by start instead. The arrow keys, page up and
page down, home and end move through a long list. f switches between containers and
the live flows of containers whose class is auto; there left and right choose one
container.`,
		Args: cmdline.ExactArgs(),
	}
	format := cmdline.AddOutputFlag(cmd)
	flags := connect.Add(cmd, socket)
	cmd.Flags().BoolVar(&flows, "flows", false, "show flows instead of containers; with -o json, include flows")
	cmd.Flags().BoolVar(&once, "once", false, "print one picture and exit, which is the default without a terminal")
	cmd.Flags().DurationVar(&interval, "interval", 500*time.Millisecond, "time between two pictures")
	cmd.Flags().Var(&order, "sort", "order of containers: rate (highest first) or start (oldest first)")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(
		[]string{string(ByRate), string(ByStart)}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if interval < 50*time.Millisecond {
			return cmdline.Usagef("--interval %s is too short: give 50ms or more", interval)
		}
		client, err := flags.Open()
		if err != nil {
			return err
		}
		sample, err := Ask(cmd.Context(), client)
		if err == nil && flows {
			sample.Flows, err = client.Flows(cmd.Context(), "", flowsPerContainer)
		}
		if err != nil {
			return err
		}
		switch {
		case *format == cmdline.JSON:
			return cmdline.PrintJSON(cmd.OutOrStdout(), sample)
		case flows && (once || !cmdline.IsTerminal(cmd.OutOrStdout())):
			view := flowView{shown: true}
			view.setSample(sample, time.Now())
			_, err := io.WriteString(cmd.OutOrStdout(), view.render(Window{Width: onceWidth(cmd.OutOrStdout())}))
			return err
		case once || !cmdline.IsTerminal(cmd.OutOrStdout()):
			_, err := io.WriteString(cmd.OutOrStdout(), Render(Compute(sample, order), Window{Width: onceWidth(cmd.OutOrStdout())}))
			return err
		}
		model := NewModel(client, order, 0)
		model.flows.shown = flows
		model.setSample(sample, nil)
		return cmdline.Show(cmd.Context(), cmd.OutOrStdout(), interval, model)
	}
	return cmd
}

// Order is the sort order of containers.
type Order string

const (
	// ByRate puts the container with the highest rate on top.
	ByRate Order = "rate"
	// ByStart puts the oldest container on top.
	ByStart Order = "start"
)

func (o *Order) String() string { return string(*o) }

// Set implements pflag.Value.
func (o *Order) Set(s string) error {
	switch Order(s) {
	case ByRate, ByStart:
		*o = Order(s)
		return nil
	}
	return fmt.Errorf("%q is neither rate nor start", s)
}

// Type implements pflag.Value.
func (o *Order) Type() string { return "rate|start" }

// Sample is the agent's state at one moment.
type Sample struct {
	Status     v1.Status      `json:"status"`
	Containers []v1.Container `json:"containers"`
	// Flows is filled only if the display shows flows.
	Flows []v1.Flow `json:"flows,omitempty"`
}

// Ask fetches a sample from an agent.
func Ask(ctx context.Context, client *client.Client) (Sample, error) {
	seen, err := client.Snapshot(ctx)
	return Sample{Status: seen.Status, Containers: seen.Containers}, err
}

// Picture is a sample prepared for display: text, and bars as fractions of the uplink.
type Picture struct {
	notice  string
	uplinks []uplinkTable
}

type uplinkTable struct {
	title string
	rows  []tableRow
}

type tableRow struct {
	name, weight, min, max, entitled, rate, delay, backlog, dropped, state string
	rateBPS                                                                uint64
	// sent and entitledPart are fractions of the uplink, 0 to 1.
	sent, entitledPart float64
	// parts are the rows of its traffic classes, and of what it receives, shown below it; isPart marks
	// such a row.
	parts  []tableRow
	isPart bool
}

// Compute prepares a sample for display.
func Compute(sample Sample, order Order) Picture {
	status := sample.Status
	picture := Picture{notice: status.Reason}
	for _, source := range status.Sources {
		if !source.Connected {
			picture.notice = strings.TrimPrefix(picture.notice+"; "+source.Name+": "+source.Reason, "; ")
		}
	}
	picture.notice = cmdline.Printable(picture.notice)
	for i, uplink := range status.Uplinks {
		linkBPS := float64(max(uplink.RateBPS, 1))
		shown := uplinkTable{title: fmt.Sprintf("%s  %s  ", cmdline.Printable(uplink.Name), usage(uplink.SentBPS, uplink.RateBPS))}
		if uplink.In != nil {
			shown.title += fmt.Sprintf("in %s  ", usage(uplink.In.ReceivedBPS, uplink.In.RateBPS))
		}
		shown.title += uplink.Scheduler
		for _, c := range sample.Containers {
			if i >= len(c.Shares) {
				continue
			}
			row := computeRow(c, c.Shares[i], linkBPS)
			received, _ := c.Received()
			if in := received.ShareAt(uplink.Name); in != nil && uplink.In != nil {
				below := computeRow(received, *in, float64(max(uplink.In.RateBPS, 1)))
				below.name, below.state, below.isPart = "  in", "", true
				row.parts, row.rateBPS = append(row.parts, below), row.rateBPS+in.RateBPS
			}
			shown.rows = append(shown.rows, row)
		}
		if order == ByRate {
			slices.SortStableFunc(shown.rows, func(a, b tableRow) int { return cmp.Compare(b.rateBPS, a.rateBPS) })
		}
		shown.rows = withParts(shown.rows)
		picture.uplinks = append(picture.uplinks, shown)
	}
	return picture
}

// usage returns how much of a rate is used.
func usage(bps, ofBPS uint64) string {
	return fmt.Sprintf("%s of %s (%.0f%%)", policy.FormatRateShort(bps), policy.FormatRate(ofBPS), 100*float64(bps)/float64(max(ofBPS, 1)))
}

func computeRow(c v1.Container, share v1.Share, linkBPS float64) tableRow {
	state := cmdline.Printable(string(c.State))
	if c.Reason != "" {
		state += ": " + cmdline.Printable(c.Reason)
	}
	return tableRow{
		name:         cmdline.Printable(c.Name),
		rateBPS:      share.RateBPS,
		weight:       fmt.Sprint(c.Policy.Weight),
		min:          cmdline.RateOrDash(c.Policy.MinBPS),
		max:          cmdline.RateOrDash(c.Policy.MaxBPS),
		entitled:     cmdline.RateOrDash(share.EntitledBPS),
		rate:         cmdline.RateOrDash(share.RateBPS),
		delay:        cmdline.DelayOrDash(share.DelayP50MS, share.DelayP99MS),
		backlog:      cmdline.BytesOrDash(share.BacklogBytes),
		dropped:      fmt.Sprint(share.DroppedPackets),
		state:        state,
		sent:         min(float64(share.RateBPS)/linkBPS, 1),
		entitledPart: min(float64(share.EntitledBPS)/linkBPS, 1),
		parts:        computeClasses(share, linkBPS),
	}
}

// computeClasses returns the rows of a share's traffic classes, if it has several.
func computeClasses(share v1.Share, linkBPS float64) []tableRow {
	if len(share.Classes) < 2 {
		return nil
	}
	var rows []tableRow
	for _, c := range share.Classes {
		rows = append(rows, tableRow{
			state: heldState(c),
			name:  "  " + cmdline.Printable(string(c.Class)), isPart: true, rateBPS: c.RateBPS,
			min: cmdline.RateOrDash(c.MinBPS), max: cmdline.RateOrDash(c.MaxBPS), rate: cmdline.RateOrDash(c.RateBPS),
			delay: cmdline.DelayOrDash(c.DelayP50MS, c.DelayP99MS), backlog: cmdline.BytesOrDash(c.BacklogBytes), dropped: fmt.Sprint(c.DroppedPackets),
			sent: min(float64(c.RateBPS)/linkBPS, 1),
		})
	}
	return rows
}

// withParts inserts the rows of parts after their containers.
func withParts(rows []tableRow) []tableRow {
	var all []tableRow
	for _, r := range rows {
		all = append(append(all, r), r.parts...)
	}
	return all
}

const (
	// DefaultWidth is the width without a terminal, in characters.
	DefaultWidth = 120
	minBarWidth  = 10
	maxBarWidth  = 50
	maxNameWidth = 24
	// stateWidth is the room for a state and the beginning of its reason.
	stateWidth = 13
)

// dispensable lists the columns that a narrow terminal omits, in this order.
var dispensable = []string{"QUEUED", "MIN", "MAX", "DROPPED", "WEIGHT", "DELAY", "ENTITLED"}

// Window is the visible part of a picture.
type Window struct {
	// Width and Height are the terminal's, in characters; a height of 0 means unlimited.
	Width, Height int
	// first is the top row shown of each uplink's table.
	first int
}

// onceWidth returns the width of a picture that is printed once.
func onceWidth(w io.Writer) int {
	if width := cmdline.TerminalWidth(w); width > 0 {
		return width
	}
	return DefaultWidth
}

// minRows is the least number of rows shown of each table, however low the terminal is.
const minRows = 1

// rows returns the number of rows that each uplink's table has room for.
func (w Window) rows(p Picture) int {
	if w.Height == 0 {
		return math.MaxInt
	}
	// The title, a blank line, the headings, and the line with the number of hidden rows; a blank
	// line between two uplinks.
	const headLines = 4
	used := len(p.uplinks)*(headLines+1) - 1
	if p.notice != "" {
		used++
	}
	return max((w.Height-used)/max(len(p.uplinks), 1), minRows)
}

// scrolled moves the window by a number of rows, within the tables.
func (w Window) scrolled(p Picture, by int) Window {
	last := 0
	for _, u := range p.uplinks {
		last = max(last, len(u.rows)-w.rows(p))
	}
	w.first = max(min(w.first+by, last), 0)
	return w
}

// Render draws a picture for a terminal.
func Render(picture Picture, window Window) string {
	window = window.scrolled(picture, 0) // there may be fewer rows than before
	var b strings.Builder
	line := func(text string) { b.WriteString(strings.TrimRight(cmdline.Cut(text, window.Width), " ") + "\n") }
	if picture.notice != "" {
		line(picture.notice)
	}
	for i, uplink := range picture.uplinks {
		if i > 0 {
			line("")
		}
		line(uplink.title)
		line("")
		above := min(window.first, len(uplink.rows))
		shown := uplink.rows[above:]
		shown = shown[:min(window.rows(picture), len(shown))]
		uplinkTable{title: uplink.title, rows: shown}.render(window.Width, line)
		if below := uplink.rows[above+len(shown):]; above+len(below) > 0 {
			line(hiddenRows(above, below))
		}
	}
	return b.String()
}

// hiddenRows describes the rows of a table that are not shown.
func hiddenRows(above int, below []tableRow) string {
	var parts []string
	if above > 0 {
		parts = append(parts, fmt.Sprintf("%d more above", above))
	}
	if len(below) > 0 {
		sending := 0
		for _, r := range below {
			if r.rateBPS > 0 && !r.isPart {
				sending++
			}
		}
		parts = append(parts, fmt.Sprintf("%d more below (%d sending)", len(below), sending))
	}
	return strings.Join(parts, ", ")
}

// render draws the table of one uplink.
func (u uplinkTable) render(width int, line func(string)) {
	header := []string{"NAME", "WEIGHT", "MIN", "MAX", "ENTITLED", "RATE", "DELAY", "QUEUED", "DROPPED"}
	table := [][]string{header}
	for _, r := range u.rows {
		table = append(table, []string{
			cmdline.Cut(r.name, maxNameWidth), r.weight, r.min, r.max, r.entitled, r.rate, r.delay, r.backlog, r.dropped})
	}
	columns := make([]int, len(header))
	used := 0
	for i := range header {
		for _, row := range table {
			columns[i] = max(columns[i], cmdline.TextWidth(row[i]))
		}
		used += columns[i] + 2
	}
	hidden := map[int]bool{}
	for _, name := range dispensable {
		if used+minBarWidth+stateWidth <= width {
			break
		}
		i := slices.Index(header, name)
		hidden[i] = true
		used -= columns[i] + 2
	}
	barWidth := min(max(width-used-stateWidth, minBarWidth), maxBarWidth)
	for i, row := range table {
		var text strings.Builder
		for j, cell := range row {
			if hidden[j] {
				continue
			}
			pad := strings.Repeat(" ", columns[j]-cmdline.TextWidth(cell))
			if j == 0 {
				text.WriteString(cell + pad + "  ")
			} else {
				text.WriteString(pad + cell + "  ")
			}
		}
		if i > 0 {
			r := u.rows[i-1]
			text.WriteString(cmdline.Bar(r.sent, r.entitledPart, barWidth) + "  " + r.state)
		}
		line(text.String())
	}
}

// HeldNote describes the EF traffic of a container that is above its maximum and treated as BE; ""
// if there is none.
func HeldNote(classes []v1.ClassShare) string {
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

// heldState is a short HeldNote of one class, for a narrow column.
func heldState(c v1.ClassShare) string {
	if !c.Held {
		return ""
	}
	return "held: " + HeldNote([]v1.ClassShare{c})
}
