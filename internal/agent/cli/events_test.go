package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/cmdline"
)

func TestEvents(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.Local)
	agent := &fakeAgent{events: stats.NewEvents(at)}
	agent.events.Add(
		v1.Event{At: at, Kind: v1.EventAgentStarted, Message: "version 1.2"},
		v1.Event{At: at, Kind: v1.EventStarted, Container: "web", Policy: &v1.Policy{Weight: 300, MinBPS: 20e6, MaxBPS: 80e6, Priority: 10, LatencyMS: 2.5, Class: v1.ClassEF, EFMax: v1.Part{Percent: 20}, AFMin: v1.Part{Percent: 30}}},
		v1.Event{At: at, Kind: v1.EventPolicyChanged, Container: "web", Policy: &v1.Policy{Weight: 100}, In: &v1.Policy{Weight: 200, MaxBPS: 8e6, Class: v1.ClassAuto}},
		v1.Event{At: at, Kind: v1.EventDegraded, Container: "evil\x1b[2J\nname\u009b", Message: "a\tb"},
		v1.Event{At: at, Kind: v1.EventUplinkLost, Uplink: "eth0", Message: "eth0 is gone"},
	)
	socket := agent.serve(t)
	code, stdout, stderr := run("events", "--socket", socket)
	const stamp = "2026-01-02 03:04:05.678 "
	want := stamp + "agent started: version 1.2\n" +
		stamp + "started web (weight 300, minimum 20mbit, maximum 80mbit, priority 10, latency 2.5ms, class ef, EF at most 20%)\n" +
		stamp + "policy changed web (weight 100; in: weight 200, maximum 8mbit)\n" +
		stamp + "degraded evil\\x1b[2J\\nname\\u009b: a\\tb\n" +
		stamp + "uplink lost eth0: eth0 is gone\n"
	if code != 0 || stdout != want || stderr != "" {
		t.Errorf("exit code %d, %q, printed\n%s want\n%s", code, stderr, stdout, want)
	}

	// For programs: one object a line, after the event that they saw last.
	code, stdout, _ = run("events", "-o", "json", "--socket", socket, "--since", fmt.Sprint(at.UnixMilli()+2))
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || len(lines) != 2 {
		t.Fatalf("exit code %d, printed %q", code, stdout)
	}
	var e v1.Event
	if err := json.Unmarshal([]byte(lines[1]), &e); err != nil || e.Seq != uint64(at.UnixMilli())+4 || e.Kind != v1.EventUplinkLost || !e.At.Equal(at) {
		t.Errorf("%+v, %v", e, err)
	}

	// With --follow it ends with the agent.
	done := make(chan int)
	go func() {
		code, _, _ := run("events", "--follow", "--socket", socket)
		done <- code
	}()
	time.AfterFunc(20*time.Millisecond, agent.events.Close)
	if code := <-done; code != 0 {
		t.Errorf("the agent stopped: exit code %d", code)
	}
	for args, says := range map[string]string{"--since soon": "soon", "extra": "unexpected"} {
		code, _, stderr := run(append([]string{"events", "--socket", socket}, strings.Fields(args)...)...)
		if code != cmdline.Usage || !strings.Contains(stderr, says) {
			t.Errorf("events %s: exit code %d, %q", args, code, stderr)
		}
	}
}
