package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/cmdline"
)

// flowsPerContainer is the limit of flows requested per container.
const flowsPerContainer = 500

// flowView shows the flows of one container, or of all.
type flowView struct {
	shown bool
	// names lists the containers with flows; chosen is the container shown, counted from 1, or 0
	// for all.
	names  []string
	chosen int
	flows  []flowRow
	at     time.Time
}

// flowRow is a flow with its rate since the previous sample, in bits per second, or unknownBPS if
// that did not have the flow.
type flowRow struct {
	v1.Flow
	bps int64
}

const unknownBPS = -1

// setSample shows the flows of a sample, highest rate first.
func (t *flowView) setSample(sample Sample, now time.Time) {
	if !t.shown {
		return
	}
	chosen := t.name()
	t.names = t.names[:0]
	for _, c := range sample.Containers {
		if c.Policy.Class == v1.ClassAuto && c.Runtime != "host" && c.CountedWith == "" {
			t.names = append(t.names, c.Name)
		}
	}
	slices.Sort(t.names)
	t.chosen = slices.Index(t.names, chosen) + 1
	before := map[string]flowRow{}
	for _, f := range t.flows {
		before[flowKey(f.Flow)] = f
	}
	elapsed := now.Sub(t.at).Seconds()
	flows := make([]flowRow, 0, len(sample.Flows))
	for _, f := range sample.Flows {
		shown := flowRow{Flow: f, bps: unknownBPS}
		bytes := f.SentBytes + f.ReceivedBytes
		if was, known := before[flowKey(f)]; known && elapsed > 0 && bytes >= was.SentBytes+was.ReceivedBytes {
			shown.bps = int64(float64(bytes-was.SentBytes-was.ReceivedBytes) * 8 / elapsed)
		}
		flows = append(flows, shown)
	}
	slices.SortStableFunc(flows, func(a, b flowRow) int { return cmp.Compare(b.bps, a.bps) })
	t.flows, t.at = flows, now
}

// flowKey returns a key that distinguishes flows, even successive ones between the same ports.
func flowKey(f v1.Flow) string {
	return fmt.Sprint(f.ID, f.Protocol, f.Initiator, f.Responder)
}

// name returns the name of the container shown; "" for all.
func (t *flowView) name() string {
	if t.chosen == 0 || t.chosen > len(t.names) {
		return ""
	}
	return t.names[t.chosen-1]
}

// choose selects the next container, or the previous one.
func (t *flowView) choose(by int) {
	if n := len(t.names) + 1; t.shown {
		t.chosen = ((t.chosen+by)%n + n) % n
	}
}

// list returns the flows to show.
func (t *flowView) list() []flowRow {
	name := t.name()
	return slices.DeleteFunc(slices.Clone(t.flows), func(f flowRow) bool { return name != "" && f.Container != name })
}

// rows returns the number of flows that fit beside the title, a blank line, the headings, and the
// line with the number of hidden rows.
func (t *flowView) rows(window Window) int {
	const headLines = 4
	if window.Height == 0 {
		return max(len(t.flows), 1)
	}
	return max(window.Height-headLines, minRows)
}

// scrolled moves the window by a number of flows, within the list.
func (t *flowView) scrolled(window Window, by int) Window {
	window.first = max(min(window.first+by, len(t.list())-t.rows(window)), 0)
	return window
}

// render draws the flows for a terminal.
func (t *flowView) render(window Window) string {
	window = t.scrolled(window, 0) // the list may be shorter than before
	list := t.list()
	title := "flows of " + cmdline.Printable(t.name())
	if t.name() == "" {
		title = "flows of all containers whose class is auto"
	}
	var b strings.Builder
	line := func(text string) { b.WriteString(strings.TrimRight(cmdline.Cut(text, window.Width), " ") + "\n") }
	line(fmt.Sprintf("%s: %d", title, len(list)))
	line("")
	switch {
	case len(t.names) == 0:
		line("no container has the class auto: weir set NAME --class auto")
		return b.String()
	case len(list) == 0:
		line("none was seen in the last five minutes")
		return b.String()
	}
	shown := list[window.first:min(window.first+t.rows(window), len(list))]
	var drawn strings.Builder
	table := cmdline.TextTable{
		Header:      []string{"CONTAINER", "PROTO", "INITIATOR", "RESPONDER", "APPLICATION", "CLASS", "RATE", "DELAY", "SENT", "RECEIVED", "SEEN"},
		Dispensable: []string{"SEEN", "RECEIVED", "SENT", "PROTO", "CONTAINER", "DELAY"},
	}
	for _, f := range shown {
		rate := "-"
		if f.bps != unknownBPS {
			rate = cmdline.RateOrDash(uint64(f.bps))
		}
		table.Add([]string{
			cmdline.Cut(cmdline.Printable(f.Container), maxNameWidth), f.Protocol, f.Initiator, f.Responder, cmp.Or(f.Application, "-"), cmp.Or(string(f.Class), "-"),
			rate, FlowDelay(f.Flow), cmdline.BytesOrDash(f.SentBytes), cmdline.BytesOrDash(f.ReceivedBytes), cmdline.FormatAgo(t.at.Sub(f.LastSeenAt)),
		}, "")
	}
	_ = table.Print(&drawn, window.Width) // writing to a strings.Builder cannot fail
	for text := range strings.Lines(drawn.String()) {
		line(strings.TrimSuffix(text, "\n"))
	}
	if hidden := len(list) - len(shown); hidden > 0 {
		line(fmt.Sprintf("%d more above, %d more below", window.first, hidden-window.first))
	}
	return b.String()
}

// FlowDelay returns the queueing delay of a flow as text.
func FlowDelay(f v1.Flow) string {
	if f.DelayMS == 0 {
		return "-"
	}
	return cmdline.FormatMS(f.DelayMS)
}
