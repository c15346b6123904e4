package cli

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/cmdline"
)

func TestExplain(t *testing.T) {
	share := func(entitled, allocated uint64) []v1.Share {
		return []v1.Share{{Uplink: "eth0", Controlled: true, EntitledBPS: entitled, AllocatedBPS: allocated, WantsMore: true}}
	}
	agent := &fakeAgent{
		status: v1.Status{Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, Present: true}}},
		containers: []v1.Container{
			{
				ID: "0123456789abcdef", Name: "web", Runtime: "docker", Mode: v1.ModeBridge, State: v1.StateOK, Direction: v1.Direction{Policy: v1.Policy{Weight: 100, MinBPS: 40e6, LatencyMS: 2.5}, PolicyFrom: v1.PolicyFrom{
					Weight: v1.LayerBuiltIn, Min: v1.LayerSet, Max: v1.LayerBuiltIn,
					Priority: v1.LayerBuiltIn, Latency: v1.LayerLabels, Class: v1.LayerBuiltIn,
				}, Shares: share(40e6, 40e6)},
			},
			{ID: "1123456789abcdef", Name: "backup", Runtime: "docker", Mode: v1.ModeBridge, Direction: v1.Direction{Policy: v1.Policy{Weight: 200}, Shares: share(60e6, 60e6)}, State: v1.StateOK},
			{
				ID: "3123456789abcdef", Name: "vpn", Runtime: "docker", Mode: v1.ModeHost, State: v1.StateDegraded, Reason: "it uses the host's network and is counted in the host class", Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0"}}},
			},
			{
				ID: "5123", Name: "<b>\x1b[31m</b>", Runtime: "static", Mode: v1.ModeNone, State: v1.StateOK, Direction: v1.Direction{Shares: []v1.Share{{Uplink: "\x1b]0;x\a"}}},
			},
			{ID: "host", Name: "host", Runtime: "host", Mode: v1.ModeHost, State: v1.StateOK, Direction: v1.Direction{Policy: v1.Policy{Weight: 100}, Shares: []v1.Share{{Uplink: "eth0", Controlled: true, EntitledBPS: 1e6}}}},
		},
	}
	agent.containers[0].Shares[0].AdmittedBPS, agent.containers[0].Shares[0].LatencyMS = 40e6, 2.5
	socket := agent.serve(t)
	for name, args := range map[string][]string{
		"explain": {"web"}, "explain-json": {"web", "-o", "json"}, "explain-backup": {"1123"}, "explain-vpn": {"vpn"}, "explain-host": {"host"}, "explain-escapes": {"5123"},
	} {
		code, stdout, stderr := run(append([]string{"--socket", socket, "explain"}, args...)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: code %d, %s", name, code, stderr)
		}
		compareGolden(t, name, stdout)
		if strings.ContainsAny(stdout, "\x1b\a") {
			t.Errorf("%s: an escape sequence reaches the terminal: %q", name, stdout)
		}
	}
	code, stdout, stderr := run("--socket", socket, "explain", "nobody")
	if code != cmdline.Failed || stdout != "" || !strings.Contains(stderr, fmt.Sprintf("no such container: %q", "nobody")) {
		t.Errorf("code %d, %q, %q", code, stdout, stderr)
	}
}
