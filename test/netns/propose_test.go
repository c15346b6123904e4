//go:build netns

package netns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/test/harness"
)

// TestProposal: an agent without a configuration says what it could be and how to accept
// it, and what it proposes works.
func TestProposal(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	nowhere := filepath.Join(b.Dir, "missing.yaml")
	const unconfigured = 78
	b.Run("ip", "route", "del", "default")
	b.Run("ip", "-6", "route", "flush", "default")
	result := b.Weir("agent", "--config", nowhere)
	if result.Code != unconfigured || !strings.Contains(result.Stderr, "no default route") {
		t.Errorf("without a route: exit code %d, %s", result.Code, result.Stderr)
	}

	// What the neighbour answers comes at 20 Mbit/s.
	b.Run("ip", "route", "add", "default", "via", b.Host.PeerAddr.String(), "dev", b.Host.UplinkName)
	b.RunPeer("tc", "qdisc", "add", "dev", b.Host.PeerInterface, "root", "tbf", "rate", "20mbit", "burst", "1600", "limit", "100000")
	result = b.Weir("agent", "--config", nowhere)
	accept := "weir agent --propose >" + nowhere + " && weir agent --config " + nowhere
	if result.Code != unconfigured || !strings.Contains(result.Stderr, "uplink: "+b.Host.UplinkName) || !strings.Contains(result.Stderr, accept) {
		t.Errorf("exit code %d, %s", result.Code, result.Stderr)
	}

	proposal := b.MustWeir("agent", "--propose")
	proposed, err := config.Parse("proposal", []byte(proposal))
	if err != nil {
		t.Fatalf("%v:\n%s", err, proposal)
	}
	// A machine that stands still makes links look slower, and none faster.
	if rate := proposed.Uplinks[0].RateBPS; rate > 20e6 || rate < 2e6 || !strings.Contains(proposal, "a guess") {
		t.Errorf("proposes %d bit/s for a link of 20 Mbit/s:\n%s", rate, proposal)
	}
	b.RunPeer("tc", "qdisc", "del", "dev", b.Host.PeerInterface, "root")

	if err := os.WriteFile(b.Files.ConfigPath(), []byte(proposal), 0o644); err != nil {
		t.Fatal(err)
	}
	agent := b.StartAgent(harness.AgentOptions{KeepConfig: true, UplinksInConfig: true, Rate: "-"})
	status, err := agent.Client.Status(t.Context())
	if err != nil || len(status.Uplinks) != 1 || status.Uplinks[0].Name != b.Host.UplinkName || status.Uplinks[0].RateBPS != proposed.Uplinks[0].RateBPS {
		t.Errorf("shares out %+v, %v", status.Uplinks, err)
	}
}
