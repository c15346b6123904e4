package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/server"
)

func newTopCommand(g *global) *cobra.Command {
	var (
		once     bool
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live who sends how much",
		Long: `Show live who sends how much. The bar is what a container sends, as a part of the
uplink; the mark | is what it is entitled to. DELAY is how long its packets waited
at the uplink: median and 99th percentile.`,
		Args: exactArgs(),
	}
	format := addOutputFlag(cmd)
	cmd.Flags().BoolVar(&once, "once", false, "print one picture and stop")
	cmd.Flags().DurationVar(&interval, "interval", 500*time.Millisecond, "time between two pictures")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if interval < 50*time.Millisecond {
			return usagef("--interval %s is too short: give 50ms or more", interval)
		}
		client := server.NewClient(g.socket)
		sample, err := sampleTop(cmd.Context(), client)
		if err != nil {
			return err
		}
		switch {
		case *format == outputJSON:
			return printJSON(cmd.OutOrStdout(), sample)
		case once:
			_, err := io.WriteString(cmd.OutOrStdout(), renderTop(computeTop(sample), defaultWidth))
			return err
		}
		model := &topModel{client: client, interval: interval, picture: computeTop(sample), width: defaultWidth}
		program := tea.NewProgram(model, tea.WithContext(cmd.Context()), tea.WithAltScreen(),
			tea.WithOutput(cmd.OutOrStdout()))
		if _, err := program.Run(); err != nil && cmd.Context().Err() == nil {
			return fmt.Errorf("show: %w", err)
		}
		return nil
	}
	return cmd
}

// topSample is what the agent says at one moment.
type topSample struct {
	Status     v1.Status      `json:"status"`
	Containers []v1.Container `json:"containers"`
}

func sampleTop(ctx context.Context, client *server.Client) (topSample, error) {
	seen, err := client.Snapshot(ctx)
	return topSample(seen), err
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
	// sent and entitledPart are parts of the uplink, 0 to 1.
	sent, entitledPart float64
}

func computeTop(sample topSample) topPicture {
	status := sample.Status
	picture := topPicture{notice: status.Reason}
	for _, source := range status.Sources {
		if !source.Connected {
			picture.notice = strings.TrimPrefix(picture.notice+"; "+source.Name+": "+source.Reason, "; ")
		}
	}
	for i, uplink := range status.Uplinks {
		linkBPS := float64(max(uplink.RateBPS, 1))
		shown := topUplink{
			title: fmt.Sprintf("%s  %s of %s (%.0f%%)  %s", uplink.Name,
				policy.FormatRateShort(uplink.SentBPS), policy.FormatRate(uplink.RateBPS),
				100*float64(uplink.SentBPS)/linkBPS, uplink.Scheduler),
		}
		for _, c := range sample.Containers {
			if i < len(c.Shares) {
				shown.rows = append(shown.rows, computeRow(c, c.Shares[i], linkBPS))
			}
		}
		picture.uplinks = append(picture.uplinks, shown)
	}
	return picture
}

func computeRow(c v1.Container, share v1.Share, linkBPS float64) topRow {
	state := string(c.State)
	if c.Reason != "" {
		state += ": " + c.Reason
	}
	return topRow{
		name:         c.Name,
		weight:       fmt.Sprint(c.Policy.Weight),
		min:          rateOrDash(c.Policy.MinBPS),
		max:          rateOrDash(c.Policy.MaxBPS),
		entitled:     rateOrDash(share.EntitledBPS),
		rate:         rateOrDash(share.RateBPS),
		delay:        delayOrDash(share),
		backlog:      bytesOrDash(share.BacklogBytes),
		dropped:      fmt.Sprint(share.DroppedPackets),
		state:        state,
		sent:         min(float64(share.RateBPS)/linkBPS, 1),
		entitledPart: min(float64(share.EntitledBPS)/linkBPS, 1),
	}
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

// renderTop draws a picture for a terminal that is width characters wide.
func renderTop(picture topPicture, width int) string {
	var b strings.Builder
	line := func(text string) { b.WriteString(strings.TrimRight(cut(text, width), " ") + "\n") }
	if picture.notice != "" {
		line(picture.notice)
	}
	for i, uplink := range picture.uplinks {
		if i > 0 {
			line("")
		}
		line(uplink.title)
		line("")
		uplink.render(width, line)
	}
	return b.String()
}

// render draws the table of one uplink.
func (u topUplink) render(width int, line func(string)) {
	header := []string{"NAME", "WEIGHT", "MIN", "MAX", "ENTITLED", "RATE", "DELAY", "QUEUED", "DROPPED"}
	table := [][]string{header}
	for _, r := range u.rows {
		table = append(table, []string{
			cut(r.name, maxNameWidth), r.weight, r.min, r.max, r.entitled, r.rate, r.delay, r.backlog, r.dropped})
	}
	columns := make([]int, len(header))
	used := 0
	for i := range header {
		for _, row := range table {
			columns[i] = max(columns[i], utf8.RuneCountInString(row[i]))
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
			pad := strings.Repeat(" ", columns[j]-utf8.RuneCountInString(cell))
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

func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// topModel is the live picture.
type topModel struct {
	client   *server.Client
	interval time.Duration
	picture  topPicture
	err      error
	width    int
}

type (
	topTick   struct{}
	topResult struct {
		sample topSample
		err    error
	}
)

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return m.wait() }

func (m *topModel) wait() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return topTick{} })
}

// Update implements tea.Model.
func (m *topModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.KeyMsg:
		switch message.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		}
	case tea.WindowSizeMsg:
		m.width = message.Width
	case topTick:
		return m, func() tea.Msg {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			sample, err := sampleTop(ctx, m.client)
			return topResult{sample, err}
		}
	case topResult:
		// An agent that restarts is not the end of the picture.
		if m.err = message.err; m.err == nil {
			m.picture = computeTop(message.sample)
		}
		return m, m.wait()
	}
	return m, nil
}

// View implements tea.Model.
func (m *topModel) View() string {
	text := renderTop(m.picture, m.width)
	if m.err != nil {
		text += "\n" + cut(m.err.Error(), m.width) + "\n"
	}
	return text + "\nq to quit\n"
}
