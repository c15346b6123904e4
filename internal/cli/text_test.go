package cli

import (
	"fmt"
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/cmdline"
)

// TestNamesCannotDriveTheTerminal: what others chose arrives as text.
func TestNamesCannotDriveTheTerminal(t *testing.T) {
	hostile := "x\x1b]0;owned\a\x1b[2J\n\u202ey"
	agent := busyHost()
	for i := range agent.containers {
		agent.containers[i].Name = hostile
		agent.containers[i].Reason = "label " + hostile
		for j := range agent.containers[i].Shares {
			agent.containers[i].Shares[j].Uplink = hostile
		}
	}
	agent.status.Uplinks[0].Name, agent.status.Reason = hostile, hostile
	agent.status.Sources = []v1.Source{{Name: hostile, Reason: hostile}}
	socket := agent.serve(t)
	for _, args := range [][]string{{"ps"}, {"top", "--once"}, {"set", "web", "--weight", "3"}, {"doctor"}} {
		_, stdout, stderr := run(append(args, "--socket", socket)...)
		if at := strings.IndexAny(stdout+stderr, "\x1b\a\u202e"); at >= 0 {
			t.Errorf("weir %v prints control characters: %q", args, (stdout + stderr)[max(at-10, 0):])
		}
	}
	failing := &fakeAgent{err: fmt.Errorf("no such container: %s", hostile)}
	if _, _, stderr := run("ps", "--socket", failing.serve(t)); strings.ContainsAny(stderr, "\x1b\a\u202e") {
		t.Errorf("an error prints control characters: %q", stderr)
	}
}

// TestTableOnATerminal: nothing is wider than the terminal, and no reason is lost.
func TestTableOnATerminal(t *testing.T) {
	agent := busyHost()
	for _, width := range []int{70, 80, 100, 160} {
		table := textTable{
			header: []string{"NAME", "MODE", "STATE"}, note: "REASON", dispensable: []string{"MODE"},
		}
		for _, c := range agent.containers {
			table.add([]string{c.Name, string(c.Mode), string(c.State)}, c.Reason)
		}
		var b strings.Builder
		if err := table.print(&b, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if got := cmdline.TextWidth(strings.TrimSuffix(line, "\n")); got > width {
				t.Errorf("%d columns in a line for %d: %q", got, width, line)
			}
		}
		if words := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(words, agent.containers[2].Reason) {
			t.Errorf("at %d columns the reason is cut: %s", width, b.String())
		}
	}
}

// manyContainers is a host with so many containers, of which only the last sends.
func manyContainers(n int) topSample {
	sample := topSample{Status: v1.Status{Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 1e8}}}}
	for i := range n {
		c := v1.Container{Name: fmt.Sprintf("c%d", i+1), Shares: []v1.Share{{Uplink: "eth0"}}}
		if i == n-1 {
			c.Shares[0].RateBPS = 5e7
		}
		sample.Containers = append(sample.Containers, c)
	}
	return sample
}

// TestTopFitsTheTerminal: with 30 containers at 80x24 the uplink, the headings and
// whoever sends are visible, and all others can be reached.
func TestTopFitsTheTerminal(t *testing.T) {
	var model tea.Model = &topModel{order: byRate, sample: manyContainers(30)}
	press := func(key tea.KeyMsg) string {
		model, _ = model.Update(key)
		return model.View()
	}
	model, _ = model.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	seen := map[string]bool{}
	text := model.View()
	for range 5 {
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if len(lines) > 24 {
			t.Fatalf("%d lines on a terminal of 24:\n%s", len(lines), text)
		}
		if !strings.HasPrefix(lines[0], "eth0 ") || !strings.HasPrefix(lines[2], "NAME ") {
			t.Fatalf("the head is not visible:\n%s", text)
		}
		for _, line := range lines[3:] {
			seen[strings.SplitN(line, " ", 2)[0]] = true
		}
		text = press(tea.KeyMsg{Type: tea.KeyPgDown})
	}
	for i := range 30 {
		if name := fmt.Sprintf("c%d", i+1); !seen[name] {
			t.Errorf("%s was not shown", name)
		}
	}
	text = press(tea.KeyMsg{Type: tea.KeyHome})
	if first := strings.Split(text, "\n")[3]; !strings.HasPrefix(first, "c30 ") {
		t.Errorf("who sends is not on top: %q", first)
	}
	if !strings.Contains(text, "12 more below (0 sending)") {
		t.Errorf("nothing says how many more there are:\n%s", text)
	}
	text = press(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("s")})
	if first := strings.Split(text, "\n")[3]; !strings.HasPrefix(first, "c1 ") || !strings.Contains(text, "(1 sending)") {
		t.Errorf("not sorted by start:\n%s", text)
	}
	// At the end, there is nothing to scroll to; a lower terminal shows the end, too.
	press(tea.KeyMsg{Type: tea.KeyEnd})
	text = press(tea.KeyMsg{Type: tea.KeyDown})
	if !strings.Contains(text, "c30 ") || strings.Contains(text, "below") {
		t.Errorf("not at the end:\n%s", text)
	}
	for height := 1; height < 40; height++ {
		model, _ = model.Update(tea.WindowSizeMsg{Width: 80, Height: height})
		if view := model.View(); strings.Count(view, "\n") > max(height, 7) {
			t.Errorf("%d lines on a terminal of %d", strings.Count(view, "\n"), height)
		}
	}
}
