package agent

import (
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/kernel"
)

// A container whose packets the host's routes may lead into a tunnel is told which
// device to name; one that sends past those routes is not, and nobody where there
// is no tunnel.
func TestTunnelsAreTold(t *testing.T) {
	b := newBench(t, 100e6)
	bridged, below := b.start("bridged", "max=10mbit"), b.start("below", "max=10mbit")
	bridged.mode, below.mode = v1.ModeBridge, v1.ModeMacvlan
	check := func(when string, want v1.State, says string) {
		t.Helper()
		if state, reason := bridged.state(); state != want || !strings.Contains(reason, says) {
			t.Errorf("%s: %s, %q", when, state, reason)
		}
		if state, reason := below.state(); state != v1.StateOK {
			t.Errorf("%s: macvlan is %s, %q", when, state, reason)
		}
	}
	check("without a tunnel", v1.StateOK, "")
	b.setTunnels([]kernel.Stacked{{Name: "wg0", Kind: "wireguard", On: b.link.name}})
	check("with one", v1.StateDegraded, "wg0 (wireguard on "+b.link.name+")")
	b.setTunnels([]kernel.Stacked{{Name: "wg0", Kind: "wireguard", On: "other"}})
	check("through another uplink", v1.StateOK, "")
}
