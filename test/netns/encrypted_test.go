//go:build netns

package netns

import (
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
)

// TestEncryptedOverlay: IPsec wraps the outer packets of an overlay network, as
// Docker does with `--opt encrypted`, and they still count for their container.
func TestEncryptedOverlay(t *testing.T) {
	t.Parallel()
	harness.NeedESP(t)
	b := newBed(t)
	const rateBPS = 20 * mbit
	one := b.AddMode("one", testbed.ModeOverlay, labels("weight", "100"))
	two := b.AddMode("two", testbed.ModeOverlay, labels("weight", "300"))
	encrypt(t, b)
	agent := b.StartAgent(harness.AgentOptions{Rate: "20mbit"})
	// ESP makes packets longer: what fills a frame of the overlay would not
	// leave.
	load := harness.Load{Protocol: traffic.UDP, RateBPS: rateBPS, PayloadBytes: 1200}
	b.Send(one, load)
	b.Send(two, load)
	b.CheckEncrypted(agent, map[string]float64{"one": rateBPS / 4, "two": rateBPS / 4 * 3})
}

// encrypt makes the host send its VXLAN packets to the neighbour by ESP, in
// transport mode.
func encrypt(t *testing.T, b *harness.Bed) {
	t.Helper()
	source := strings.Fields(b.Run("ip", "-4", "-o", "addr", "show", "dev", b.Host.UplinkName))[3]
	source, _, _ = strings.Cut(source, "/")
	target := b.Host.PeerAddr.String()
	state := append([]string{"ip"}, harness.ESPState(source, target)...)
	b.Run(state...)
	b.RunPeer(state...)
	policy := func(direction string) []string {
		return []string{
			"ip", "xfrm", "policy", "add", "src", source, "dst", target, "proto", "udp", "dport", "4789", "dir", direction,
			"tmpl", "src", source, "dst", target, "proto", "esp", "mode", "transport",
		}
	}
	b.Run(policy("out")...)
	b.RunPeer(policy("in")...)
}
