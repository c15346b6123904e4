package cli

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/cmdline"
)

// TestNamesCannotDriveTheTerminal: what others chose arrives as text.
func TestNamesCannotDriveTheTerminal(t *testing.T) {
	hostile := "x\x1b]0;owned\a\x1b[2J\n\u202ey"
	agent := busyHost()
	for i := range agent.containers {
		agent.containers[i].Name = hostile
		agent.containers[i].Reason = "label " + hostile
		agent.containers[i].Mode, agent.containers[i].State = v1.Mode(hostile), v1.State(hostile)
		agent.containers[i].Policy.Class, agent.containers[i].Policy.DSCP = v1.Class(hostile), v1.DSCP(hostile)
		agent.containers[i].PolicyFrom.Weight, agent.containers[i].PolicyFrom.DSCP = v1.Layer(hostile), v1.Layer(hostile)
		for j := range agent.containers[i].Shares {
			agent.containers[i].Shares[j].Uplink = hostile
		}
	}
	agent.status.Uplinks[0].Name, agent.status.Reason = hostile, hostile
	agent.status.Sources = []v1.Source{{Name: hostile, Reason: hostile}}
	socket := agent.serve(t)
	for _, args := range [][]string{{"ps"}, {"ps", "--output", "wide"}, {"ps", "--output", "json"}, {"top", "--once"}, {"set", "web", "--weight", "3"}, {"doctor"}} {
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
		table := cmdline.TextTable{
			Header: []string{"NAME", "MODE", "STATE"}, Note: "REASON", Dispensable: []string{"MODE"},
		}
		for _, c := range agent.containers {
			table.Add([]string{c.Name, string(c.Mode), string(c.State)}, c.Reason)
		}
		var b strings.Builder
		if err := table.Print(&b, width); err != nil {
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
