package cli

import (
	"cmp"
	"context"
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
)

func newTopCommand(g *global) *cobra.Command {
	var (
		once     bool
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live nodes, instances, users and decisions",
		Long: `Show live what nodes have left, how many users services have and where their instances
are, and what was decided last. Where not all fits, the oldest events are left out first.`,
		Args: cmdline.ExactArgs(),
	}
	format := cmdline.AddOutputFlag(cmd)
	cmd.Flags().BoolVar(&once, "once", false, "print one picture and stop, as is done where there is no terminal")
	cmd.Flags().DurationVar(&interval, "interval", 500*time.Millisecond, "time between two pictures")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if interval < 50*time.Millisecond {
			return cmdline.Usagef("--interval %s is too short: give 50ms or more", interval)
		}
		client := server.NewClient(g.socket)
		sample, err := sampleTop(cmd.Context(), client)
		if err != nil {
			return err
		}
		switch {
		case *format == cmdline.JSON:
			return cmdline.PrintJSON(cmd.OutOrStdout(), sample.snapshot)
		case once || !cmdline.IsTerminal(cmd.OutOrStdout()):
			_, err := io.WriteString(cmd.OutOrStdout(), renderTop(sample, topWidth, 0))
			return err
		}
		return cmdline.Show(cmd.Context(), cmd.OutOrStdout(), interval, &topModel{client: client, sample: sample, width: topWidth})
	}
	return cmd
}

const (
	// topWidth is the width in characters without a terminal.
	topWidth = 120
	// topEvents is the maximum number of events shown.
	topEvents = 12
)

// topSample is weir-edge's state at one moment.
type topSample struct {
	snapshot edge.Snapshot
	events   []edge.Event // newest last
}

func sampleTop(ctx context.Context, client *server.Client) (s topSample, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if s.snapshot, err = client.Snapshot(ctx); err != nil {
		return s, err
	}
	err = client.Events(ctx, false, func(e edge.Event) error {
		s.events = append(s.events, e)
		if len(s.events) > topEvents {
			s.events = s.events[1:]
		}
		return nil
	})
	return s, err
}

// renderTop draws a sample for a terminal of width x height characters; height 0 means unlimited.
func renderTop(s topSample, width, height int) string {
	lines := slices.Concat(topHead(s.snapshot), []string{""}, topNodes(s.snapshot), []string{""}, topServices(s.snapshot))
	events := topEventLines(s.events)
	if height > 0 {
		room := max(height-len(lines)-2, 0)
		events = events[max(len(events)-room, 0):]
	}
	if len(events) > 0 {
		lines = append(append(lines, ""), events...)
	}
	if height > 0 && len(lines) > height {
		lines = append(lines[:height-1], fmt.Sprintf("%d more lines", len(lines)-height+1))
	}
	for i := range lines {
		lines[i] = strings.TrimRight(cmdline.Cut(lines[i], width), " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func topHead(s edge.Snapshot) []string {
	users, ready := 0, 0
	for _, service := range s.Services {
		users += service.Users
	}
	for _, n := range s.Nodes {
		if n.State == "ready" {
			ready++
		}
	}
	head := fmt.Sprintf("%d of %d nodes are ready, %s, %s, %s", ready, len(s.Nodes),
		cmdline.Counted(len(s.Services), "service"), cmdline.Counted(len(s.Instances), "instance"), cmdline.Counted(users, "user"))
	if s.DryRun {
		head += ", dry run: nothing is changed"
	}
	return []string{head}
}

// tableLines returns a table as lines.
func tableLines(head string, rows [][]string) []string {
	var b strings.Builder
	_ = printTable(&b, head, rows) // a strings.Builder takes everything
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

func topNodes(s edge.Snapshot) []string {
	var rows [][]string
	for _, n := range s.Nodes {
		cpu, memory, uplink := "-", "-", "-"
		if measured(n) {
			cpu, memory = part(n.CPUUsedPercent), part(percent(n.MemoryUsedBytes, n.MemoryBytes))
			uplink = part(percent(n.UplinkSentBPS, n.UplinkBPS))
		}
		promised, free := promises(n)
		rows = append(rows, []string{
			n.Name, n.State, strconv.Itoa(n.Instances), cpu, memory,
			uplink, uplinkRate(n, n.UplinkSentBPS), promised, free, nodeReason(n),
		})
	}
	return tableLines("NODE STATE INSTANCES CPU MEMORY UPLINK SENDS PROMISED FREE REASON", rows)
}

func percent(of, all uint64) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(of) / float64(all)
}

// part draws a percentage as a bar with its number.
func part(percent float64) string {
	return cmdline.Bar(percent/100, 0, 5) + fmt.Sprintf("%4.0f%%", percent)
}

// topServices returns the services, and below each its instances.
func topServices(s edge.Snapshot) []string {
	if len(s.Services) == 0 {
		return []string{noServices(s)}
	}
	var rows [][]string
	for _, service := range s.Services {
		rows = append(rows, []string{
			service.Name, "", fmt.Sprintf("%d of %d answer", service.Running, service.Instances), users(service.Users, service.Waiting),
			waits(service.ResponseMS, service.ResponseEnd), rate(service.MinBPS), cmp.Or(service.Reason, reasonNow(s.Decisions, service.Name)),
		})
		for _, i := range s.Instances {
			if i.Service == service.Name {
				rows = append(rows, []string{"  " + cmp.Or(i.Instance, "-"), cmp.Or(i.Node, "-"), i.State, users(i.Users+i.Waiting, i.Waiting), waits(i.ResponseMS, i.ResponseEnd), partOfMinimum(i), i.Reason})
			}
		}
	}
	return tableLines("SERVICE NODE STATE USERS RESPONSE MIN REASON", rows)
}

func users(all, waiting int) string {
	if waiting > 0 {
		return fmt.Sprintf("%d (%d wait)", all, waiting)
	}
	return strconv.Itoa(all)
}

// reasonNow returns the reason of a service's decision in the last round.
func reasonNow(decisions []edge.Decision, service string) string {
	for _, d := range decisions {
		if d.Service == service {
			return d.Action + ": " + d.Reason
		}
	}
	return ""
}

func topEventLines(events []edge.Event) []string {
	var lines []string
	for _, e := range events {
		var b strings.Builder
		_ = printEvent(&b, e)
		lines = append(lines, strings.TrimRight(b.String(), "\n"))
	}
	return lines
}

// topModel is the live view of weir-edge top.
type topModel struct {
	client        *server.Client
	sample        topSample
	err           error
	width, height int
}

// Press implements [cmdline.Picture].
func (m *topModel) Press(string) {}

// Resize implements [cmdline.Picture].
func (m *topModel) Resize(width, height int) { m.width, m.height = width, height }

// Question implements [cmdline.Picture].
func (m *topModel) Question() func(context.Context) func() {
	return func(ctx context.Context) func() {
		sample, err := sampleTop(ctx, m.client)
		return func() { m.setSample(sample, err) }
	}
}

// setSample shows a new sample. On an error the old sample stays, with the error below it.
func (m *topModel) setSample(sample topSample, err error) {
	if m.err = err; err == nil {
		m.sample = sample
	}
}

// footLines is the number of lines below the view.
const footLines = 2

// View implements [cmdline.Picture].
func (m *topModel) View() string {
	foot := "q to quit"
	if m.err != nil {
		foot = cmdline.Printable(m.err.Error())
	}
	height := m.height
	if height > 0 {
		height = max(height-footLines, 3)
	}
	return renderTop(m.sample, m.width, height) + "\n" + cmdline.Cut(foot, m.width)
}
