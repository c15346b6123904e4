package cli

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
	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/policy"
)

func newTopCommand(g *global) *cobra.Command {
	var (
		once     bool
		flows    bool
		interval time.Duration
		order    = byRate
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live who sends how much",
		Long: `Show live who sends how much. The bar is what a container sends, as a part of the
uplink; the mark | is what it is entitled to. DELAY is how long its packets waited
at the uplink: median and 99th percentile.

Below a container with traffic classes is what each of them sends and how long its
packets wait; "held" is EF above its maximum, which is served as be (weir explain).

Who sends most is on top; s sorts by start instead. Where not all fit, the arrow
keys, page up and page down, home and end move through the list. f shows the live
flows of the containers whose class is auto instead, and back; there left and right
choose one container.`,
		Args: cmdline.ExactArgs(),
	}
	format := cmdline.AddOutputFlag(cmd)
	connect := addConnectionFlags(cmd, g)
	cmd.Flags().BoolVar(&flows, "flows", false, "show flows; with -o json, also flows")
	cmd.Flags().BoolVar(&once, "once", false, "print one picture and stop, as is done where there is no terminal")
	cmd.Flags().DurationVar(&interval, "interval", 500*time.Millisecond, "time between two pictures")
	cmd.Flags().Var(&order, "sort", "who is on top: rate, or start for those that started first")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(
		[]string{string(byRate), string(byStart)}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if interval < 50*time.Millisecond {
			return cmdline.Usagef("--interval %s is too short: give 50ms or more", interval)
		}
		client, err := connect.open()
		if err != nil {
			return err
		}
		sample, err := sampleTop(cmd.Context(), client)
		if err == nil && flows {
			sample.Flows, err = client.Flows(cmd.Context(), "", topFlowsOfEach)
		}
		if err != nil {
			return err
		}
		switch {
		case *format == cmdline.JSON:
			return cmdline.PrintJSON(cmd.OutOrStdout(), sample)
		case flows && (once || !cmdline.IsTerminal(cmd.OutOrStdout())):
			view := topFlows{shown: true}
			view.take(sample, time.Now())
			_, err := io.WriteString(cmd.OutOrStdout(), view.render(topWindow{width: onceWidth(cmd.OutOrStdout())}))
			return err
		case once || !cmdline.IsTerminal(cmd.OutOrStdout()):
			_, err := io.WriteString(cmd.OutOrStdout(), renderTop(computeTop(sample, order), topWindow{width: onceWidth(cmd.OutOrStdout())}))
			return err
		}
		model := &topModel{client: client, interval: interval, order: order, sample: sample, window: topWindow{width: defaultWidth}}
		model.flows.shown = flows
		model.flows.take(sample, time.Now())
		return cmdline.Show(cmd, model)
	}
	return cmd
}

// topOrder is how containers are sorted.
type topOrder string

const (
	byRate  topOrder = "rate"
	byStart topOrder = "start"
)

func (o *topOrder) String() string { return string(*o) }

// Set implements pflag.Value.
func (o *topOrder) Set(s string) error {
	switch topOrder(s) {
	case byRate, byStart:
		*o = topOrder(s)
		return nil
	}
	return fmt.Errorf("%q is neither rate nor start", s)
}

// Type implements pflag.Value.
func (o *topOrder) Type() string { return "rate|start" }

// topSample is what the agent says at one moment.
type topSample struct {
	Status     v1.Status      `json:"status"`
	Containers []v1.Container `json:"containers"`
	// Flows are asked for where they are shown.
	Flows []v1.Flow `json:"flows,omitempty"`
}

func sampleTop(ctx context.Context, client *client.Client) (topSample, error) {
	seen, err := client.Snapshot(ctx)
	return topSample{Status: seen.Status, Containers: seen.Containers}, err
}

// topPicture is a sample as it is shown: text, and bars as parts of the
// uplink.
type topPicture struct {
	notice  string
	uplinks []topUplink
}

type topUplink struct {
	title string
	rows  []topRow
}

type topRow struct {
	name, weight, min, max, entitled, rate, delay, backlog, dropped, state string
	rateBPS                                                                uint64
	// sent and entitledPart are parts of the uplink, 0 to 1.
	sent, entitledPart float64
	// classes are its traffic classes, which follow it; isClass is one of them.
	classes []topRow
	isClass bool
}

func computeTop(sample topSample, order topOrder) topPicture {
	status := sample.Status
	picture := topPicture{notice: status.Reason}
	for _, source := range status.Sources {
		if !source.Connected {
			picture.notice = strings.TrimPrefix(picture.notice+"; "+source.Name+": "+source.Reason, "; ")
		}
	}
	picture.notice = cmdline.Printable(picture.notice)
	for i, uplink := range status.Uplinks {
		linkBPS := float64(max(uplink.RateBPS, 1))
		shown := topUplink{
			title: fmt.Sprintf("%s  %s of %s (%.0f%%)  %s", cmdline.Printable(uplink.Name),
				policy.FormatRateShort(uplink.SentBPS), policy.FormatRate(uplink.RateBPS),
				100*float64(uplink.SentBPS)/linkBPS, uplink.Scheduler),
		}
		for _, c := range sample.Containers {
			if i < len(c.Shares) {
				shown.rows = append(shown.rows, computeRow(c, c.Shares[i], linkBPS))
			}
		}
		if order == byRate {
			slices.SortStableFunc(shown.rows, func(a, b topRow) int { return cmp.Compare(b.rateBPS, a.rateBPS) })
		}
		shown.rows = withClasses(shown.rows)
		picture.uplinks = append(picture.uplinks, shown)
	}
	return picture
}

func computeRow(c v1.Container, share v1.Share, linkBPS float64) topRow {
	state := string(c.State)
	if c.Reason != "" {
		state += ": " + cmdline.Printable(c.Reason)
	}
	return topRow{
		name:         cmdline.Printable(c.Name),
		rateBPS:      share.RateBPS,
		weight:       fmt.Sprint(c.Policy.Weight),
		min:          rateOrDash(c.Policy.MinBPS),
		max:          rateOrDash(c.Policy.MaxBPS),
		entitled:     rateOrDash(share.EntitledBPS),
		rate:         rateOrDash(share.RateBPS),
		delay:        delayOrDash(share.DelayP50MS, share.DelayP99MS),
		backlog:      bytesOrDash(share.BacklogBytes),
		dropped:      fmt.Sprint(share.DroppedPackets),
		state:        state,
		sent:         min(float64(share.RateBPS)/linkBPS, 1),
		entitledPart: min(float64(share.EntitledBPS)/linkBPS, 1),
		classes:      computeClasses(share, linkBPS),
	}
}

// computeClasses are the traffic classes of a share of which there are several.
func computeClasses(share v1.Share, linkBPS float64) []topRow {
	if len(share.Classes) < 2 {
		return nil
	}
	var rows []topRow
	for _, c := range share.Classes {
		rows = append(rows, topRow{
			state: heldState(c),
			name:  "  " + string(c.Class), isClass: true, rateBPS: c.RateBPS,
			min: rateOrDash(c.MinBPS), max: rateOrDash(c.MaxBPS), rate: rateOrDash(c.RateBPS),
			delay: delayOrDash(c.DelayP50MS, c.DelayP99MS), backlog: bytesOrDash(c.BacklogBytes), dropped: fmt.Sprint(c.DroppedPackets),
			sent: min(float64(c.RateBPS)/linkBPS, 1),
		})
	}
	return rows
}

// withClasses puts each container's classes after it.
func withClasses(rows []topRow) []topRow {
	var all []topRow
	for _, r := range rows {
		all = append(append(all, r), r.classes...)
	}
	return all
}

func bytesOrDash(bytes uint64) string {
	switch {
	case bytes == 0:
		return "-"
	case bytes < 10_000:
		return fmt.Sprintf("%dB", bytes)
	case bytes < 10_000_000:
		return fmt.Sprintf("%dkB", bytes/1000)
	default:
		return fmt.Sprintf("%dMB", bytes/1_000_000)
	}
}

const (
	defaultWidth = 120
	minBarWidth  = 10
	maxBarWidth  = 50
	maxNameWidth = 24
	// stateWidth is what a state and the beginning of its reason take.
	stateWidth = 13
)

// dispensable are the columns that a narrow terminal does without, in the
// order in which they go.
var dispensable = []string{"QUEUED", "MIN", "MAX", "DROPPED", "WEIGHT", "DELAY", "ENTITLED"}

// topWindow is the part of a picture that a terminal shows.
type topWindow struct {
	// width and height are the terminal's, in characters; a height of 0 is one
	// that everything fits into.
	width, height int
	// first is the row of each uplink's table that is on top.
	first int
}

// onceWidth is the width of a picture that is printed once.
func onceWidth(w io.Writer) int {
	if width := cmdline.TerminalWidth(w); width > 0 {
		return width
	}
	return defaultWidth
}

// minRows is how many rows of each table are shown however low the terminal is.
const minRows = 1

// rows is how many rows each uplink's table has room for.
func (w topWindow) rows(p topPicture) int {
	if w.height == 0 {
		return math.MaxInt
	}
	// The title, a blank line, the headings, and the line that says how many
	// rows are not shown; a blank line between two uplinks.
	const headLines = 4
	used := len(p.uplinks)*(headLines+1) - 1
	if p.notice != "" {
		used++
	}
	return max((w.height-used)/max(len(p.uplinks), 1), minRows)
}

// scrolled moves the window by so many rows, as far as there are any.
func (w topWindow) scrolled(p topPicture, by int) topWindow {
	last := 0
	for _, u := range p.uplinks {
		last = max(last, len(u.rows)-w.rows(p))
	}
	w.first = max(min(w.first+by, last), 0)
	return w
}

// renderTop draws a picture for a terminal.
func renderTop(picture topPicture, window topWindow) string {
	window = window.scrolled(picture, 0) // there may be fewer than before
	var b strings.Builder
	line := func(text string) { b.WriteString(strings.TrimRight(cmdline.Cut(text, window.width), " ") + "\n") }
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
		topUplink{title: uplink.title, rows: shown}.render(window.width, line)
		if below := uplink.rows[above+len(shown):]; above+len(below) > 0 {
			line(hiddenRows(above, below))
		}
	}
	return b.String()
}

// hiddenRows says what is not shown of a table.
func hiddenRows(above int, below []topRow) string {
	var parts []string
	if above > 0 {
		parts = append(parts, fmt.Sprintf("%d more above", above))
	}
	if len(below) > 0 {
		sending := 0
		for _, r := range below {
			if r.rateBPS > 0 && !r.isClass {
				sending++
			}
		}
		parts = append(parts, fmt.Sprintf("%d more below (%d sending)", len(below), sending))
	}
	return strings.Join(parts, ", ")
}

// render draws the table of one uplink.
func (u topUplink) render(width int, line func(string)) {
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
			text.WriteString(bar(r.sent, r.entitledPart, barWidth) + "  " + r.state)
		}
		line(text.String())
	}
}

// bar draws a part of the uplink, in eighths of a character, with a mark at
// another.
func bar(part, mark float64, width int) string {
	const eighths = " ▏▎▍▌▋▊▉"
	filled := int(part*float64(width)*8 + 0.5)
	at := min(int(mark*float64(width)), width-1)
	var b strings.Builder
	for i := range width {
		switch rest := filled - i*8; {
		case i == at && mark > 0 && rest < 8:
			b.WriteRune('|')
		case rest >= 8:
			b.WriteRune('█')
		case rest > 0:
			b.WriteRune([]rune(eighths)[rest])
		default:
			b.WriteRune('·')
		}
	}
	return b.String()
}
