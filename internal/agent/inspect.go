package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
)

// inspect finds out how a container is attached, and whether it can be
// controlled. Its packets get its number later (assignNumbers), when the class
// is there.
func (a *Agent) inspect(c *container) {
	c.unattached, c.obstacle = false, ""
	if c.NoNetwork {
		c.mode = v1.ModeNone
		a.release(c)
		return
	}
	if c.HostNetwork {
		a.inspectHostMode(c)
		return
	}
	netns, err := kernel.NetNSIdentity(c.NetNSPath)
	if err != nil {
		a.lostDevices(c, err)
		return
	}
	here, err := kernel.NetNSIdentity(kernel.CurrentNetNS)
	if err != nil {
		a.lostDevices(c, err)
		return
	}
	if here == netns {
		a.inspectHostMode(c)
		return
	}
	c.netns = netns
	if c.Configured { // for inspectConfigured
		if c.netnsID, err = kernel.NetNSIDHere(c.NetNSPath); err != nil {
			a.lostDevices(c, err)
			return
		}
	}
	if owner := a.registry.sharesNetNS(c); owner != nil {
		c.mode = owner.mode
		c.obstacle = c.sharesNetwork(owner)
		a.release(c)
		return
	}
	found, err := a.inspector.Inspect(c.NetNSPath, c.Interface)
	if errors.Is(err, identity.ErrInFlux) {
		// What was known of it may still hold.
		c.unattached = true
		c.obstacle = "its network is being changed"
		a.rescanSoon()
		return
	}
	if err != nil {
		a.lostDevices(c, err)
		return
	}
	a.takeAttachments(c, found)
}

// takeAttachments gives a container that is attached in the ways found a
// number.
func (a *Agent) takeAttachments(c *container, found []identity.Attachment) {
	if len(found) == 0 {
		// No device yet, or none any more.
		c.mode, c.unattached = v1.ModeNone, true
		a.release(c)
		return
	}
	c.mode = found[0].Mode
	var attachments []attachment
	var obstacles []string
	for _, at := range found {
		if at.Obstacle != "" {
			through := at.Interface
			if at.Mode != v1.ModeNone {
				through += fmt.Sprintf(" (%s)", at.Mode)
			}
			obstacles = append(obstacles, fmt.Sprintf("traffic through %s is not controlled: %s", through, at.Obstacle))
			continue
		}
		attachments = append(attachments, c.attachment(at))
	}
	if c.obstacle = strings.Join(obstacles, "; "); len(attachments) == 0 {
		a.release(c)
		return
	}
	c.mode = attachments[0].Mode
	c.attachments = attachments
	if c.number != 0 {
		return
	}
	// A tap that an earlier agent attached keeps its number, and the container
	// its class.
	preferred, err := identity.TapNumber(attachments[0].Tap)
	if err != nil {
		a.log.Debug("ask a tap for its number", "name", c.Name, "error", err)
	}
	a.number(c, preferred)
}

// inspectHostMode is inspect for a container in the host's network: its
// packets are known by the cgroup of their socket.
func (a *Agent) inspectHostMode(c *container) {
	c.mode, c.netns = v1.ModeHost, kernel.NetNSID{}
	if c.CgroupPath == "" {
		c.obstacle = "it uses the host's network, where it is known by its cgroup, and no cgroup v2 of it was found; it is counted in the host class"
		a.release(c)
		return
	}
	if len(c.attachments) > 0 {
		a.release(c)
	}
	if c.number == 0 {
		a.number(c, 0)
	}
	if c.obstacle == "" && c.Configured && kernel.CgroupElsewhere("/proc", c.CgroupPath) {
		c.obstacle = "its processes are in another network namespace, and only what its cgroup sends in the host's is controlled: name their netns in the config file"
	}
}

// number gives a container a number, the preferred one if it is free. Of any other an
// earlier agent may have left something.
func (a *Agent) number(c *container, preferred uint16) {
	if a.registry.assign(c, preferred) {
		if c.number != preferred {
			a.forgetTraffic(c, c.number)
		}
		return
	}
	c.obstacle = "all container numbers are in use; it is counted in the host class"
	c.attachments, c.unattached = nil, true
}

// lostDevices notes that a container's devices cannot be looked at. If they are
// gone it is on its way out (its source will say so), or not there yet. Otherwise,
// as when the agent is short of files or memory, what is known of it may still hold.
func (a *Agent) lostDevices(c *container, err error) {
	c.unattached = true
	c.obstacle = "its network cannot be looked at: " + err.Error()
	a.log.Debug("look at a container's network", "name", c.Name, "error", err)
	if c.number == 0 || isGone(err) {
		c.mode = v1.ModeNone
		a.release(c)
	}
}

// isGone says whether err is what one gets of a network or device that is not there.
func isGone(err error) bool {
	for _, gone := range []error{kernel.ErrNoNetNS, kernel.ErrNoLink, fs.ErrNotExist, unix.ENODEV, unix.ENXIO, unix.ENOTDIR, unix.ESRCH} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// inspectMissing looks again at containers without devices, and returns how
// many those are.
func (a *Agent) inspectMissing() int {
	missing := a.registry.unattached()
	for _, c := range missing {
		a.inspect(c)
	}
	return len(missing)
}

// inspectConfigured looks again at containers from the config file, of which nobody
// tells when they get another device, as engines do: at those whose network
// namespace may have that ID, as the agent's counts. It returns how many those
// are.
func (a *Agent) inspectConfigured(netnsID int) int {
	inspected := 0
	for _, c := range a.registry.all() {
		if c.Configured && (c.netnsID == netnsID || c.netnsID == kernel.SameNetNS) {
			a.inspect(c)
			inspected++
		}
	}
	return inspected
}

func (a *Agent) inspectAll() {
	for _, c := range a.registry.all() {
		a.inspect(c)
	}
}

// inspectSome looks again at a few of the containers, the next ones in turn.
func (a *Agent) inspectSome() {
	controlled := a.registry.controlled()
	first, _ := slices.BinarySearchFunc(controlled, a.checked+1, func(c *container, number uint16) int {
		return cmp.Compare(c.number, number)
	})
	for i := range min(checkedContainers, len(controlled)) {
		c := controlled[(first+i)%len(controlled)]
		a.checked = c.number
		a.inspect(c)
		for i := range c.attachments {
			// Perhaps somebody took the tap away.
			c.attachments[i].assigned = false
		}
	}
}
