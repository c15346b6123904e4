package attach

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Packet sockets of a host-mode container could send past the uplinks' queues. A program at its
// cgroup forbids that (bpf/bypass.bpf.c). Nothing can be attached there that keeps such a socket from
// a device below an uplink.

// Bypass keeps the sockets of a cgroup from sending past the uplinks' queues. Implementation:
// identity.Bypass.
type Bypass interface {
	Forbid(cgroupPath string) error
	Allow(cgroupPath string) error
}

// applyBypass keeps the sockets of a host-mode container from sending past the uplinks' queues.
func (a *Attacher) applyBypass(c *Container) {
	if a.Bypass == nil || !c.hasCgroupOnly() {
		return
	}
	path := c.Seen.CgroupPath
	if err := c.bypass.Apply(path, func() error { return a.Bypass.Forbid(path) }); err != nil {
		a.log.Debug("cannot forbid packet sockets to send past the queues", "name", c.Seen.Name, "error", err)
	}
}

// allowBypass undoes applyBypass, also that of an earlier agent.
func (a *Attacher) allowBypass(c *Container) {
	if a.Bypass == nil || !c.hasCgroupOnly() {
		return
	}
	c.bypass = identity.Applied[string]{}
	if err := a.Bypass.Allow(c.Seen.CgroupPath); err != nil && !errors.Is(err, kernel.ErrNoCgroup) {
		a.log.Warn("cannot allow packet sockets again to send past the queues", "name", c.Seen.Name, "error", err)
	}
}

// bypassComplaint returns why packet sockets of a container may send past the uplinks' queues, or "".
func (c *Container) bypassComplaint() string {
	switch err := c.bypass.Err(); {
	case !c.hasCgroupOnly():
	case errors.Is(err, identity.ErrOlderSockets):
		return "its packet sockets may send past the uplink's queues: " + err.Error() + "; restart it"
	case err != nil && !c.Seen.Lacks.NetRaw:
		return "its packet sockets may send past the uplink's queues: take CAP_NET_RAW from it: " + err.Error()
	}
	return ""
}

// belowComplaint returns through which devices below the uplink a container's packet sockets may
// send, or "".
func (u *Uplink) belowComplaint(c *Container) string {
	// It is not known what configured services may do.
	if len(u.below) == 0 || !c.isContainer() || !c.hasCgroupOnly() || c.Seen.Configured || c.Seen.Lacks.NetRaw {
		return ""
	}
	return fmt.Sprintf("its packet sockets may send through %s, below %s: take NET_RAW from it (cap_drop), or use another network",
		strings.Join(u.below, ", "), u.Name())
}

// checkBelow looks up the devices below an uplink.
func (a *Attacher) checkBelow(u *Uplink) {
	u.below = nil
	if u.Classifier() == nil {
		return
	}
	below, err := kernel.AllBelow(u.Ifindex())
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		a.log.Warn("cannot look for devices below the uplink", "uplink", u.Name(), "error", err)
	}
	for _, l := range below {
		u.below = append(u.below, l.Name)
	}
}
