package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
)

// Observation is the observed state of a container's network.
type Observation struct {
	// InHost: the container uses the host's network. Elsewhere: its processes are in another
	// network namespace all the same.
	InHost, Elsewhere bool
	NetNS             kernel.NetNSID
	NetNSID           int
	// Owner is the controlled container whose network namespace this one has joined.
	Owner *Container
	// Found lists the attachments through which its packets reach the host.
	Found []identity.Attachment
	// TapNumber is the number that its first tap assigns; 0 for none.
	TapNumber uint16
	// NetworkMounts are the network file systems that it can write to.
	NetworkMounts []string
	// Err is the error of inspecting its network; identity.ErrInFlux while the network is changing.
	Err error
}

// Observe inspects the network of a container and changes nothing. all lists the running containers.
// What may take long as the container has much of it is left to look, which completes the observation
// and reads nothing that changes. It may run in another goroutine: one at a time, or else the caller
// calls LeaveInspector. It is nil if the observation is complete.
func (a *Attacher) Observe(c *Container, all []*Container) (seen Observation, look func() Observation) {
	seen = a.observeNetNS(c, all)
	inspects := seen.Err == nil && seen.Owner == nil && seen.NetNS != kernel.NetNSID{}
	// Processes that the configuration file names may have all mounts of the host.
	process, found := strings.CutSuffix(c.Seen.NetNSPath, "/ns/net")
	reads := seen.Err == nil && found && !c.Seen.Configured
	if !inspects && !reads {
		return seen, nil
	}
	subject, numbered, inspector := c.Seen, c.Number != 0, a.inspector
	return seen, func() Observation {
		if inspects {
			a.inspect(&seen, inspector, &subject, numbered)
		}
		if reads {
			var err error
			if seen.NetworkMounts, err = kernel.NetworkMounts(process + "/mountinfo"); err != nil {
				a.log.Debug("cannot look for network file systems", "name", subject.Name, "error", err)
			}
		}
		return seen
	}
}

// LeaveInspector leaves the inspector to the look that is under way.
func (a *Attacher) LeaveInspector() { a.inspector = identity.NewInspector() }

// observeNetNS observes whose network a container has.
func (a *Attacher) observeNetNS(c *Container, all []*Container) (seen Observation) {
	switch {
	case c.Seen.NoNetwork:
		return seen
	case c.Seen.HostNetwork:
		return observeHost(c)
	}
	seen.NetNS, seen.Err = kernel.NetNSIdentity(c.Seen.NetNSPath)
	if seen.Err != nil {
		return seen
	}
	here, err := kernel.NetNSIdentity(kernel.CurrentNetNS)
	switch {
	case err != nil:
		return Observation{Err: err}
	case here == seen.NetNS:
		return observeHost(c)
	}
	if c.Seen.Configured {
		if seen.NetNSID, seen.Err = kernel.NetNSIDHere(c.Seen.NetNSPath); seen.Err != nil {
			return seen
		}
	}
	seen.Owner = Owner(seen.NetNS, c, all)
	return seen
}

// inspect adds the attachments of a container, which has a number already if numbered is set.
func (a *Attacher) inspect(seen *Observation, inspector *identity.Inspector, c *discovery.Container, numbered bool) {
	seen.Found, seen.Err = inspector.Inspect(c.NetNSPath, c.Interface)
	for _, at := range seen.Found {
		if !numbered && at.Obstacle == "" {
			var err error
			if seen.TapNumber, err = identity.TapNumber(at.Tap); err != nil {
				a.log.Debug("cannot ask a tap for its number", "name", c.Name, "error", err)
			}
			break
		}
	}
}

func observeHost(c *Container) Observation {
	return Observation{
		InHost:    true,
		Elsewhere: c.Seen.Configured && c.Seen.CgroupPath != "" && kernel.CgroupElsewhere("/proc", c.Seen.CgroupPath),
	}
}

// Decision is the consequence of an Observation for a container.
type Decision struct {
	Mode    v1.Mode
	NetNS   kernel.NetNSID
	NetNSID int
	// Release: the kernel changes for the container have to be undone and its number freed.
	Release bool
	// Devices are the devices whose packets get its number.
	Devices []Device
	// Controlled: the container gets a number, Preferred if that is free.
	Controlled bool
	Preferred  uint16
	// Obstacle is the reason why all or part of it is not controlled.
	Obstacle string
	// Unattached: the agent has to look for its devices again; with Soon, in a moment.
	Unattached, Soon bool
}

// Plan decides from an observation how a container is to be attached.
func Plan(c *Container, seen Observation) Decision {
	as := planNetwork(c, seen)
	if len(seen.NetworkMounts) > 0 {
		written := "what it writes to " + strings.Join(seen.NetworkMounts, ", ") + " is sent by the host, as the host's: bound that by host: max"
		as.Obstacle = strings.TrimPrefix(as.Obstacle+"; "+written, "; ")
	}
	return as
}

func planNetwork(c *Container, seen Observation) Decision {
	// The previous decision may still hold.
	as := Decision{Mode: c.Mode, NetNS: seen.NetNS, NetNSID: seen.NetNSID, Devices: c.Devices}
	if seen.NetNS == (kernel.NetNSID{}) {
		as.NetNS, as.NetNSID = c.NetNS, c.NetNSID
	}
	switch {
	case c.Seen.NoNetwork:
		as.Mode, as.Release = v1.ModeNone, true
	case seen.InHost:
		return planHost(c, seen)
	case errors.Is(seen.Err, identity.ErrInFlux):
		as.Unattached, as.Soon, as.Obstacle = true, true, "its network is being changed"
	case seen.Err != nil:
		as.Unattached, as.Obstacle = true, "its network cannot be inspected: "+seen.Err.Error()
		// A container whose network is gone is about to stop (its source will report it) or has not
		// come up yet. Any other error may mean that the agent lacks file descriptors or memory.
		if c.Number == 0 || isGone(seen.Err) {
			as.Mode, as.Release = v1.ModeNone, true
		}
	case seen.Owner != nil:
		as.Mode, as.Release, as.Obstacle = seen.Owner.Mode, true, sharedObstacle(c, seen.Owner)
	default:
		planDevices(&as, c, seen)
	}
	if as.Release {
		as.Devices = nil
	}
	return as
}

// planHost plans for a container in the host's network, whose packets are identified by the cgroup
// of their socket.
func planHost(c *Container, seen Observation) Decision {
	as := Decision{Mode: v1.ModeHost}
	switch {
	case c.Seen.CgroupPath == "":
		as.Release = true
		as.Obstacle = "it uses the host's network, where it is known by its cgroup, and no cgroup v2 of it was found; it is counted in the host class"
	default:
		as.Release, as.Controlled = len(c.Devices) > 0, true
	}
	if seen.Elsewhere {
		as.Obstacle = "its processes are in another network namespace, and only what its cgroup sends in the host's is controlled: name their netns in the config file"
	}
	return as
}

// planDevices plans for a container with attachments of its own.
func planDevices(as *Decision, c *Container, seen Observation) {
	as.Devices = nil
	var obstacles []string
	for _, at := range seen.Found {
		if at.Obstacle != "" {
			through := at.Interface
			if at.Mode != v1.ModeNone {
				through += fmt.Sprintf(" (%s)", at.Mode)
			}
			obstacles = append(obstacles, fmt.Sprintf("traffic through %s is not controlled: %s", through, at.Obstacle))
			continue
		}
		as.Devices = append(as.Devices, again(at, c.Devices))
	}
	as.Obstacle = strings.Join(obstacles, "; ")
	switch {
	case len(seen.Found) == 0: // no device yet, or none any more
		as.Mode, as.Unattached, as.Release = v1.ModeNone, true, true
	case len(as.Devices) == 0:
		as.Mode, as.Release = seen.Found[0].Mode, true
	default:
		// A tap that an earlier agent attached keeps its number, and the container its
		// class.
		as.Mode, as.Controlled, as.Preferred = as.Devices[0].Mode, true, seen.TapNumber
	}
}

// isGone reports whether err means that a network namespace or device does not exist.
func isGone(err error) bool {
	for _, gone := range []error{kernel.ErrNoNetNS, kernel.ErrNoLink, fs.ErrNotExist, unix.ENODEV, unix.ENXIO, unix.ENOTDIR, unix.ESRCH} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// sharedObstacle returns the message for a container that uses the network of owner and has labels that
// owner does not have; "" for others, whose packets get what owner's get.
func sharedObstacle(c, owner *Container) string {
	var without []string
	for _, label := range slices.Sorted(maps.Keys(c.Seen.Labels)) {
		own := strings.HasPrefix(label, policy.Prefix) || label == policy.LabelKubernetesMax
		if at, has := owner.Seen.Labels[label]; own && (!has || at != c.Seen.Labels[label]) {
			without = append(without, label)
		}
	}
	if without == nil {
		return ""
	}
	return fmt.Sprintf("it shares the network of %[1]s and is counted there, so its own labels have no effect (%[2]s): give them to %[1]s, or use `weir set %[1]s`",
		owner.Seen.Name, strings.Join(without, ", "))
}
