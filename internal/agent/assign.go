package agent

import (
	"errors"

	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
)

// What is done to containers' devices and told to the classifiers, so that packets
// carry the number of their container and are no larger than the uplinks can take,
// and how that is undone.

// assignDevice makes the packets of one device carry the container's number. Where
// they do, nothing is touched.
func (a *Agent) assignDevice(c *container, at *attachment) {
	err := a.attachTap(c, at)
	if at.assigned = err == nil; !at.assigned {
		// Most often: the device went between look-up and now.
		c.unattached = true
		c.obstacle = "its packets cannot be told apart: " + err.Error()
		a.log.Debug("assign a device", "name", c.Name, "error", err)
	}
}

// assignNumbers makes the packets of every controlled container carry its number, and
// limits their size to what the uplinks' rates can take.
func (a *Agent) assignNumbers() {
	a.keepFlows()
	for _, c := range a.registry.byNumber {
		for i := range c.attachments {
			at := &c.attachments[i]
			if !at.assigned {
				a.assignDevice(c, at)
			}
			if at.assigned && at.saved {
				a.limitPackets(c, at)
			}
		}
	}
	for _, u := range a.uplinks {
		a.assignCgroups(u)
		a.assignClasses(u)
		a.assignPublished(u)
	}
	a.assignFragments()
	a.watchOrigins()
}

// assignCgroups makes the classifier of an uplink know those containers by their
// cgroup whose packets come with their socket.
func (a *Agent) assignCgroups(u *link) {
	if !u.installed() {
		return
	}
	for _, s := range u.controlled {
		if s.cgroupAssigned || s.CgroupPath == "" || !s.bringsSockets() {
			continue
		}
		err := u.classifier.AssignCgroup(s.CgroupPath, s.number)
		s.cgroupAssigned, s.cgroupRefused = err == nil, err
		if err != nil { // tried again: another that stops may make room
			a.log.Debug("assign a cgroup", "name", s.Name, "error", err)
		}
	}
}

// unassignCgroups is the reverse of assignCgroups for one container.
func (a *Agent) unassignCgroups(c *container) {
	for _, s := range c.shares {
		if !s.cgroupAssigned && s.cgroupRefused == nil {
			continue
		}
		s.cgroupAssigned, s.cgroupRefused = false, nil
		if !s.uplink.installed() {
			continue
		}
		if err := s.uplink.classifier.UnassignCgroup(c.number); err != nil {
			a.log.Warn("unassign a cgroup", "name", c.Name, "error", err)
		}
	}
}

// limitSaved limits the packets of devices of which the state file has come to know
// what they were.
func (a *Agent) limitSaved() {
	for _, c := range a.registry.byNumber {
		for i := range c.attachments {
			if at := &c.attachments[i]; !at.saved {
				at.saved = true
				a.limitPackets(c, at)
			}
		}
	}
}

// limitPackets limits what a container's device is handed at once to what the
// uplinks, and the container's share of them, can take.
func (a *Agent) limitPackets(c *container, at *attachment) {
	want := at.gsoBefore
	for _, s := range c.shares {
		if bytes := s.class.PacketBytes; bytes > 0 {
			want = min(want, bytes)
		}
	}
	if at.GSOMaxBytes == want || at.refusedLimit == want {
		return
	}
	ns, err := kernel.OpenNetNS(c.NetNSPath)
	if err == nil {
		err = ns.SetGSOMaxBytes(at.Interface, want)
		ns.Close()
	}
	if err != nil {
		// Not fatal: larger packets are cut up at the uplink.
		at.refusedLimit = want
		a.log.Debug("limit a container's packets", "name", c.Name, "error", err)
		return
	}
	at.GSOMaxBytes = want
}

// undo gives devices back as they were. Devices that are gone, or assigned to
// another container meanwhile, are left alone.
func undo(netNSPath string, number uint16, attachments []attachment) error {
	var errs []error
	for _, at := range attachments {
		if assigned, err := identity.TapNumber(at.Tap); err != nil || assigned != number {
			continue
		}
		errs = append(errs, identity.DetachTap(at.Tap))
		if at.gsoBefore == 0 {
			continue
		}
		ns, err := kernel.OpenNetNS(netNSPath)
		if err != nil {
			continue
		}
		if err := ns.SetGSOMaxBytes(at.Interface, at.gsoBefore); !errors.Is(err, kernel.ErrNoLink) {
			errs = append(errs, err)
		}
		ns.Close()
	}
	return errors.Join(errs...)
}
