package cli

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

func TestPrintFlows(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var b strings.Builder
	err := printFlows(&b, []v1.Flow{
		{
			Container: "phone", Protocol: "udp", Initiator: "198.18.0.2:4000", Responder: "198.18.9.1:5060", Application: "VOIP",
			Class: v1.ClassEF, Stage: 2, Confidence: 0.914, SentBytes: 1 << 20, SentPackets: 5000, ReceivedPackets: 4, LastSeenAt: now,
		},
		{
			Container: "phone", Protocol: "tcp", Initiator: "198.18.0.2:4001", Responder: "198.18.9.1:5401", Application: "SERVICES",
			Class: v1.ClassBE, Why: "bulk: 18 kB in 12ms", Stage: 2, Confidence: 0.6, SentBytes: 1 << 20, SentPackets: 700, ReceivedPackets: 400, LastSeenAt: now,
		},
		{Container: "phone\x1b[2J", Protocol: "tcp", Initiator: "[fd00::2]:5", Responder: "[fd00::3]:443", SentBytes: 60, SentPackets: 1, LastSeenAt: now.Add(-95 * time.Second)},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "flows", b.String())
}

// TestNoFlows: a table without a line says what there is to do.
func TestNoFlows(t *testing.T) {
	socket := (&fakeAgent{}).serve(t)
	if code, stdout, stderr := run("flows", "--socket", socket); code != 0 || !strings.Contains(stdout, "classifier: ") || !strings.Contains(stderr, "weir set NAME --class auto") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}
