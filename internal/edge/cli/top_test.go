package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/front/cmdline"
)

func busyTop() topSample {
	s := topSample{snapshot: edge.Snapshot{
		Nodes: []edge.Node{
			{Name: "a", State: "ready", Instances: 2, CPUUsedPercent: 50, MemoryBytes: 100, MemoryUsedBytes: 25, UplinkBPS: 100e6, UplinkSentBPS: 100e6, FreeBPS: 75e6},
			{Name: "b", State: "gone", Reason: "no answer \x1b[2J"},
		},
		Services:  []edge.Service{{Name: "shop", Users: 18, Waiting: 3, Running: 1, Instances: 2, ResponseMS: 41, MinBPS: 20e6}},
		Instances: []edge.Instance{{Service: "shop", Node: "a", Instance: "shop.1", State: "running", Users: 10, MinBPS: 15e6, ServiceMinBPS: 20e6}, {Service: "shop", Node: "a", Instance: "shop.2", State: "starting"}},
		Decisions: []edge.Decision{{Action: "start", Service: "shop", Reason: "more users than room"}},
	}}
	for i := range 5 {
		s.events = append(s.events, edge.Event{At: time.Unix(int64(i), 0), Kind: edge.EventStarted, Service: "shop", Message: "event " + string(rune('0'+i))})
	}
	return s
}

func TestRenderTop(t *testing.T) {
	text := renderTop(busyTop(), 160, 0)
	for _, want := range []string{"1 of 2 nodes are ready, 1 service, 2 instances, 18 users", "██▌··  50%", "█████ 100%", "18 (3 wait)", "1 of 2 answer", "41ms", "start: more users than room", "shop.1", "20mbit", "15mbit of 20mbit", "event 4"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, " 0%") {
		t.Errorf("a node that nobody measures has a measured nothing:\n%s", text)
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("a node's reason commands the terminal: %q", text)
	}
	if empty := renderTop(topSample{snapshot: edge.Snapshot{At: time.Unix(1, 0)}}, 80, 0); !strings.Contains(empty, "No service is deployed") {
		t.Errorf("without a service:\n%s", empty)
	}
	if waiting := renderTop(topSample{}, 100, 0); !strings.Contains(waiting, "does not know yet what runs") || strings.Contains(waiting, "deploy") {
		t.Errorf("before the first round:\n%s", waiting)
	}
	// It is as wide and as high as the terminal, and leaves older events out.
	for height := 3; height < 20; height++ {
		text := renderTop(busyTop(), 40, height)
		if lines := strings.Count(text, "\n"); lines > height {
			t.Errorf("%d lines where %d fit", lines, height)
		}
		for line := range strings.Lines(text) {
			if len([]rune(line)) > 41 {
				t.Errorf("%q is wider than 40", line)
			}
		}
	}
	if text := renderTop(busyTop(), 100, 14); strings.Contains(text, "event 0") || !strings.Contains(text, "event 4") {
		t.Errorf("old events are shown in the place of new ones:\n%s", text)
	}
}

// The picture outlives a weir-edge that does not answer for a moment.
func TestTopModel(t *testing.T) {
	m := &topModel{sample: busyTop(), width: 120}
	m.Resize(60, 20)
	m.setSample(topSample{}, errNoAnswer)
	if view := m.View(); !strings.Contains(view, "shop.1") || !strings.Contains(view, errNoAnswer.Error()) || strings.Count(view, "\n") > 20 {
		t.Errorf("the picture is\n%s", view)
	}
	m.setSample(topSample{}, nil)
	if view := m.View(); !strings.Contains(view, "q to quit") || strings.Contains(view, "shop.1") {
		t.Errorf("then it is\n%s", view)
	}
}

var errNoAnswer = cmdline.Usagef("no answer")
