package top

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// manyContainers is a host with so many containers, of which only the last sends.
func manyContainers(n int) Sample {
	sample := Sample{Status: v1.Status{Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 1e8}}}}
	for i := range n {
		c := v1.Container{Name: fmt.Sprintf("c%d", i+1), Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0"}}}}
		if i == n-1 {
			c.Shares[0].RateBPS = 5e7
		}
		sample.Containers = append(sample.Containers, c)
	}
	return sample
}

// With 30 containers at 80x24 the uplink, the headings and the container that sends are
// visible, and all others can be reached.
func TestTopFitsTheTerminal(t *testing.T) {
	model := &Model{order: ByRate, sample: manyContainers(30)}
	press := func(key string) string {
		model.Press(key)
		return model.View()
	}
	model.Resize(80, 24)
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
		text = press("pgdown")
	}
	for i := range 30 {
		if name := fmt.Sprintf("c%d", i+1); !seen[name] {
			t.Errorf("%s was not shown", name)
		}
	}
	text = press("home")
	if first := strings.Split(text, "\n")[3]; !strings.HasPrefix(first, "c30 ") {
		t.Errorf("who sends is not on top: %q", first)
	}
	if !strings.Contains(text, "12 more below (0 sending)") {
		t.Errorf("nothing says how many more there are:\n%s", text)
	}
	text = press("s")
	if first := strings.Split(text, "\n")[3]; !strings.HasPrefix(first, "c1 ") || !strings.Contains(text, "(1 sending)") {
		t.Errorf("not sorted by start:\n%s", text)
	}
	// At the end, there is nothing to scroll to; a lower terminal shows the end, too.
	press("end")
	text = press("down")
	if !strings.Contains(text, "c30 ") || strings.Contains(text, "below") {
		t.Errorf("not at the end:\n%s", text)
	}
	for height := 1; height < 40; height++ {
		model.Resize(80, height)
		if view := model.View(); strings.Count(view, "\n") > max(height, 7) {
			t.Errorf("%d lines on a terminal of %d", strings.Count(view, "\n"), height)
		}
	}
}

// TestBothDirections: what a container receives is in the line below it, and counts for the order.
func TestBothDirections(t *testing.T) {
	sample := manyContainers(2)
	sample.Status.Uplinks[0].In = &v1.UplinkIn{RateBPS: 5e7, ReceivedBPS: 4e7}
	for i, bps := range []uint64{6e7, 1e6} {
		sample.Containers[i].In = &v1.Direction{Policy: v1.Policy{Weight: 7}, Shares: []v1.Share{{Uplink: "eth0", RateBPS: bps}}}
	}
	lines := strings.Split(Render(Compute(sample, ByRate), Window{Width: DefaultWidth}), "\n")
	for i, want := range []string{"eth0  0bit of 100mbit (0%)  in 40mbit of 50mbit (80%)", "", "NAME", "c1 ", "  in ", "c2 ", "  in "} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	if fields := strings.Fields(lines[4]); fields[1] != "7" || fields[5] != "60mbit" {
		t.Errorf("what c1 receives is shown as %q", lines[4])
	}
}
