package attach

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Device is a device of a container with the changes that Weir made to it.
type Device struct {
	identity.Attachment
	// GSOBefore is the device's packet limit before Weir changed it; 0 if unknown.
	GSOBefore uint32
	// Saved is set once the state file holds GSOBefore. Only then may the limit be changed.
	Saved bool

	tap   identity.Applied[tapping]
	limit identity.Applied[uint32]
	// flowsErr is the reason why the tap does not classify flows.
	flowsErr error
	// followers are the programs and filters of others behind the tap, as last seen.
	followers kernel.Others
	// attached is the ID of the program at the tap; 0 if there is none, or those of flows.
	attached uint32
	// isNamed: received frames name it. unknown is why these count as the host's all the same, as last decided;
	// "" if they do not.
	isNamed bool
	unknown string
}

// tapping is the configuration of a tap.
type tapping struct {
	tap    identity.Tap
	number uint16
	// flows: the tap gives each packet the class of its flow.
	flows bool
}

// isVeth reports whether the device with index ifindex in the agent's namespace is the host end of
// this veth.
func (d *Device) isVeth(ifindex int) bool {
	return d.Tap.NetNSPath == "" && d.Tap.Ifindex == ifindex
}

// again returns a found device together with the changes recorded for it in before.
func again(found identity.Attachment, before []Device) Device {
	for _, old := range before {
		if old.Interface == found.Interface && old.Tap.Ifindex == found.Tap.Ifindex {
			old.Attachment = found
			return old
		}
	}
	return Device{Attachment: found, GSOBefore: found.GSOMaxBytes}
}

// applyDevice attaches the tap that writes the container's number into packets of one device, and
// limits the size of those packets. It does nothing if both are in force.
func (a *Attacher) applyDevice(c *Container, d *Device) {
	want := tapping{d.Tap, c.Number, c.flows.hasTable}
	looked := d.tap.InForce(want)
	if err := d.tap.Apply(want, func() error { return a.attachTap(c, d) }); err != nil {
		// Usually the device was removed between look-up and now.
		c.Unattached = true
		c.Obstacle = "its packets cannot be told apart: " + err.Error()
		a.log.Debug("cannot assign a device", "name", c.Seen.Name, "error", err)
		return
	}
	switch {
	case looked:
	case a.hasOnlyOurProgram(d):
		d.followers = kernel.Others{}
	default:
		followers, err := a.Taps.Followers(d.Tap)
		if err != nil {
			a.log.Debug("cannot look for programs behind a tap", "name", c.Seen.Name, "interface", d.Interface, "error", err)
		} else {
			d.followers = followers
		}
	}
	if d.Saved {
		a.limitPackets(c, d)
	}
}

// isUnchanged reports whether the program that was attached to a tap is still there, alone, for a
// fifth of what it costs to look at all that may have changed.
func (a *Attacher) isUnchanged(d *Device) bool {
	return len(d.followers.Diverting)+len(d.followers.Indexing) == 0 && a.hasOnlyOurProgram(d)
}

// hasOnlyOurProgram reports whether the program that was attached to a tap is there, and no other.
func (a *Attacher) hasOnlyOurProgram(d *Device) bool {
	if d.attached == 0 || d.flowsErr != nil {
		return false
	}
	sole, err := a.Taps.SoleProgram(d.Tap)
	return err == nil && sole == d.attached
}

// followerComplaint returns what may take the container's number from its packets, or "".
func (c *Container) followerComplaint() string {
	const where = "%s behind Weir's program at the host's end of its %s "
	for _, d := range c.Devices {
		switch {
		case len(d.followers.Diverting) > 0:
			return fmt.Sprintf(where+"may redirect its packets, which count as the host's then: remove it, or attach it at the bridge",
				strings.Join(d.followers.Diverting, ", "), d.Interface)
		case len(d.followers.Indexing) > 0:
			return indexLost + fmt.Sprintf(where+overwrites,
				strings.Join(d.followers.Indexing, ", "), d.Interface)
		}
	}
	return ""
}

// attachTap attaches the tap of a device. The tap writes the container's number into each packet
// and, if the container has a flow table, the class of its flow.
func (a *Attacher) attachTap(c *Container, d *Device) (err error) {
	d.attached, d.flowsErr = 0, nil
	if a.Flows != nil && c.flows.hasTable {
		if d.flowsErr = a.Flows.AttachFlows(d.Tap, c.Number); d.flowsErr == nil {
			return nil
		}
		a.log.Debug("cannot classify the flows of a device", "name", c.Seen.Name, "interface", d.Interface, "error", d.flowsErr)
	}
	d.attached, err = a.Taps.Attach(d.Tap, c.Number)
	return err
}

// limitPackets limits the packet size of a container's device to what the uplinks and the
// container's share can take. A refused limit is not retried: the uplink then cuts larger packets
// up.
func (a *Attacher) limitPackets(c *Container, d *Device) {
	want := d.GSOBefore
	if c.Want.PacketBytes > 0 {
		want = min(want, c.Want.PacketBytes)
	}
	if d.GSOMaxBytes == want || d.limit.Refused(want) {
		return
	}
	d.limit.Recheck()
	err := d.limit.Apply(want, func() error {
		ns, err := kernel.OpenNetNS(c.Seen.NetNSPath)
		if err != nil {
			return err
		}
		defer ns.Close()
		return ns.SetGSOMaxBytes(d.Interface, want)
	})
	if err != nil {
		a.log.Debug("cannot limit a container's packets", "name", c.Seen.Name, "error", err)
		return
	}
	d.GSOMaxBytes = want
}

// LimitSaved limits the packet size of devices whose old limit the state file now holds.
func (a *Attacher) LimitSaved(all []*Container) {
	for _, c := range controlled(all) {
		for i := range c.Devices {
			if d := &c.Devices[i]; !d.Saved {
				d.Saved = true
				a.limitPackets(c, d)
			}
		}
	}
}

// Undo restores the devices to their state before Weir. It skips devices that are gone or belong to
// another container by now.
func Undo(netNSPath string, number uint16, devices []Device) error {
	var errs []error
	for _, d := range devices {
		if assigned, err := identity.TapNumber(d.Tap); err != nil || assigned != number {
			continue
		}
		errs = append(errs, identity.DetachTap(d.Tap))
		if d.GSOBefore == 0 {
			continue
		}
		ns, err := kernel.OpenNetNS(netNSPath)
		if err != nil {
			continue
		}
		if err := ns.SetGSOMaxBytes(d.Interface, d.GSOBefore); !errors.Is(err, kernel.ErrNoLink) {
			errs = append(errs, err)
		}
		ns.Close()
	}
	return errors.Join(errs...)
}
