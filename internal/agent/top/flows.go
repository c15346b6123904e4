package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/cmdline"
)

// topFlowsOfEach is how many flows of each container are asked for.
const topFlowsOfEach = 500

// topFlows is the view of flows: those of one container, or of all.
type topFlows struct {
	shown bool
	// names are the containers whose flows are looked at; chosen is which of them is
	// shown, from 1, 0 for all.
	names  []string
	chosen int
	flows  []topFlow
	at     time.Time
}

// topFlow is a flow, and what it sent and received since the sample before, in bits
// per second; known says that there was one.
type topFlow struct {
	v1.Flow
	bps   uint64
	known bool
}

// take takes a sample in. Who sends most comes first.
func (t *topFlows) take(sample topSample, now time.Time) {
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
	before := map[string]topFlow{}
	for _, f := range t.flows {
		before[flowKey(f.Flow)] = f
	}
	elapsed := now.Sub(t.at).Seconds()
	flows := make([]topFlow, 0, len(sample.Flows))
	for _, f := range sample.Flows {
		shown := topFlow{Flow: f}
		bytes := f.SentBytes + f.ReceivedBytes
		if was, known := before[flowKey(f)]; known && elapsed > 0 && bytes >= was.SentBytes+was.ReceivedBytes {
			shown.known = true
			shown.bps = uint64(float64(bytes-was.SentBytes-was.ReceivedBytes) * 8 / elapsed)
		}
		flows = append(flows, shown)
	}
	slices.SortStableFunc(flows, func(a, b topFlow) int { return cmp.Compare(b.bps, a.bps) })
	t.flows, t.at = flows, now
}

// flowKey tells flows apart, also later ones between the same ports.
func flowKey(f v1.Flow) string {
	return fmt.Sprint(f.ID, f.Protocol, f.Initiator, f.Responder)
}

// name is the container that is shown; "" for all.
func (t *topFlows) name() string {
	if t.chosen == 0 || t.chosen > len(t.names) {
		return ""
	}
	return t.names[t.chosen-1]
}

// choose goes on to the next container, or back.
func (t *topFlows) choose(by int) {
	if n := len(t.names) + 1; t.shown {
		t.chosen = ((t.chosen+by)%n + n) % n
	}
}

// list are the flows that are shown.
func (t *topFlows) list() []topFlow {
	name := t.name()
	return slices.DeleteFunc(slices.Clone(t.flows), func(f topFlow) bool { return name != "" && f.Container != name })
}

// rows is how many flows there is room for: beside the title, a blank line, the
// headings, and the line that says how many are not shown.
func (t *topFlows) rows(window topWindow) int {
	const headLines = 4
	if window.height == 0 {
		return max(len(t.flows), 1)
	}
	return max(window.height-headLines, minRows)
}

// scrolled moves the window by so many flows, as far as there are any.
func (t *topFlows) scrolled(window topWindow, by int) topWindow {
	window.first = max(min(window.first+by, len(t.list())-t.rows(window)), 0)
	return window
}

// render draws the flows for a terminal.
func (t *topFlows) render(window topWindow) string {
	window = t.scrolled(window, 0) // there may be fewer than before
	list := t.list()
	title := "flows of " + cmdline.Printable(t.name())
	if t.name() == "" {
		title = "flows of all containers whose class is auto"
	}
	var b strings.Builder
	line := func(text string) { b.WriteString(strings.TrimRight(cmdline.Cut(text, window.width), " ") + "\n") }
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
	table := textTable{
		header:      []string{"CONTAINER", "PROTO", "INITIATOR", "RESPONDER", "APPLICATION", "CLASS", "RATE", "DELAY", "SENT", "RECEIVED", "SEEN"},
		dispensable: []string{"SEEN", "RECEIVED", "SENT", "PROTO", "CONTAINER", "DELAY"},
	}
	for _, f := range shown {
		rate := "-"
		if f.known {
			rate = rateOrDash(f.bps)
		}
		table.add([]string{
			cmdline.Cut(cmdline.Printable(f.Container), maxNameWidth), f.Protocol, f.Initiator, f.Responder, cmp.Or(f.Application, "-"), cmp.Or(string(f.Class), "-"),
			rate, flowDelay(f.Flow), bytesOrDash(f.SentBytes), bytesOrDash(f.ReceivedBytes), formatAgo(t.at.Sub(f.LastSeenAt)),
		}, "")
	}
	_ = table.print(&drawn, window.width) // a strings.Builder takes everything
	for text := range strings.Lines(drawn.String()) {
		line(strings.TrimSuffix(text, "\n"))
	}
	if hidden := len(list) - len(shown); hidden > 0 {
		line(fmt.Sprintf("%d more above, %d more below", window.first, hidden-window.first))
	}
	return b.String()
}
