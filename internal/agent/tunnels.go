package agent

import (
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
)

// Packets that the host puts into a tunnel (WireGuard, GRE, PPPoE, a VXLAN of its
// own) come to the uplink as the host's. Where routes lead through such a device,
// what containers send that way is not theirs any more, and they are told which
// device to name as an uplink.

// tunnelsInterval is how often devices on top of uplinks are looked for, which
// takes a list of all devices and routes.
const tunnelsInterval = 30 * time.Second

// checkTunnels looks for devices on top of the uplinks that routes lead through.
func (a *Agent) checkTunnels(now time.Time) {
	if now.Before(a.tunnelsFrom) {
		return
	}
	a.tunnelsFrom = now.Add(tunnelsInterval)
	var indexes []int
	for _, u := range a.uplinks {
		if u.installed() {
			indexes = append(indexes, u.device.Ifindex())
		}
	}
	stacked, err := kernel.StackedOn(indexes)
	if err != nil {
		a.log.Warn("look for tunnels through the uplinks", "error", err)
		return
	}
	a.setTunnels(stacked)
}

// setTunnels takes up which devices are on top of the uplinks.
func (a *Agent) setTunnels(stacked []kernel.Stacked) {
	for _, u := range a.uplinks {
		through := slices.DeleteFunc(slices.Clone(stacked), func(s kernel.Stacked) bool { return s.On != u.name })
		u.tunnels = identity.TunnelProblem(through)
	}
}

// isRouted says whether the host's routes decide where the container's packets
// leave: those of macvlan and ipvlan leave through the device below.
func (c *container) isRouted() bool {
	switch c.mode {
	case v1.ModeBridge, v1.ModeOverlay, v1.ModeHost:
		return c.number != identity.NumberHost && c.number != 0
	}
	return false
}
