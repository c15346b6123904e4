//go:build netns

package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/harness"
)

// TestAdviseRate: the proposed rates are a little below those of the link, and the round trip through
// a queue that no agent rules shows.
func TestAdviseRate(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Fatal("iperf3 is needed: scripts/install-deps.sh test installs it")
	}
	b := newBed(t)
	const inBPS, outBPS = 30e6, 10e6
	b.RunPeer("tc", "qdisc", "add", "dev", b.Host.PeerInterface, "root", "tbf", "rate", "30mbit", "burst", "1600", "limit", "125000")
	peer := b.Host.PeerAddr.String()
	const port = "5301" // the bed's sink has those from 5201 on
	withoutServer := b.Weir("advise", "rate", peer, "--port", port)
	if withoutServer.Code != 1 || !strings.Contains(withoutServer.Stderr, "Connection refused") || !strings.Contains(withoutServer.Stderr, "`iperf3 -s` has to run on "+peer) {
		t.Errorf("without a server: exit code %d, %s", withoutServer.Code, withoutServer.Stderr)
	}
	server := b.Host.PeerCommand(t.Context(), "iperf3", "-s", "-p", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Signal(unix.SIGTERM); _ = server.Wait() })
	harness.Await(t, "iperf3 listens", 10*time.Second, func() error {
		if listening := b.RunPeer("ss", "-Hltn", "sport = :"+port); !strings.Contains(listening, port) {
			return fmt.Errorf("ss says %q", listening)
		}
		return nil
	})
	b.StartAgent(harness.AgentOptions{Rate: "10mbit"})
	var got struct {
		IdleMS  float64 `json:"idle_ms"`
		Out, In struct {
			SteadyBPS   float64 `json:"steady_bps"`
			ProposedBPS float64 `json:"proposed_bps"`
			BusyMS      float64 `json:"busy_ms"`
		}
		Warnings []string
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := b.Host.Command(ctx, harness.Program(t), "advise", "rate", peer, "--port", port, "--duration", "5s", "-o", "json", "--socket", b.Files.Socket()).Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	check := func(what string, steadyBPS, proposedBPS, linkBPS float64) {
		// A machine that stands still makes links look slower, and none faster.
		if steadyBPS > 1.03*linkBPS || steadyBPS < 0.8*linkBPS || proposedBPS > 0.98*linkBPS {
			t.Errorf("%s: %.0f bit/s, proposes %.0f for a link of %.0f", what, steadyBPS, proposedBPS, linkBPS)
		}
	}
	check("out", got.Out.SteadyBPS, got.Out.ProposedBPS, outBPS)
	check("in", got.In.SteadyBPS, got.In.ProposedBPS, inBPS)
	if got.IdleMS <= 0 || got.In.BusyMS < got.IdleMS+10 {
		t.Errorf("round trips of %g ms idle and %g ms through a queue of 33 ms", got.IdleMS, got.In.BusyMS)
	}
	if warnings := strings.Join(got.Warnings, ""); !strings.Contains(warnings, "shares "+b.Host.UplinkName+" here (rate 10mbit)") {
		t.Errorf("warns %q of an agent that limits the link", warnings)
	}
}
