package attach

import (
	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// Of an IPv4 packet that the host fragments, or sends through a bridge that the uplink is a port of,
// only tc_index still tells the container, and that can be forged. Classifiers trust it only if the
// packet came in through a tap, or through a bridge where forged tags are cleared.

// Bridges clears forged tags of packets that enter through a bridge. Implementation:
// *identity.Bridges.
type Bridges interface {
	// Attach attaches the program that clears forged tags to a bridge. It does nothing if the
	// program is attached already.
	Attach(ifindex int) error
	// Detach removes the program from all bridges but the kept ones.
	Detach(kept map[int]bool) error
	Close() error
}

// bridges is the set of bridges that containers are ports of.
type bridges struct {
	Bridges
	cleared map[int]*identity.Applied[bool] // by ifindex
	// leftover is set while the program may still be attached to bridges without containers.
	leftover bool
}

// apply attaches the program to the wanted bridges and removes it from all others.
func (b *bridges) apply(wanted map[int]bool) error {
	for ifindex := range b.cleared {
		if !wanted[ifindex] {
			delete(b.cleared, ifindex)
			b.leftover = true
		}
	}
	for ifindex := range wanted {
		if b.cleared[ifindex] == nil {
			b.cleared[ifindex] = &identity.Applied[bool]{}
		}
		_ = b.cleared[ifindex].Apply(true, func() error { return b.Attach(ifindex) })
	}
	if !b.leftover {
		return nil
	}
	err := b.Detach(wanted)
	b.leftover = err != nil
	return err
}

// recheck makes the next apply verify all bridges.
func (b *bridges) recheck() {
	for _, cleared := range b.cleared {
		cleared.Recheck()
	}
}

// indexDevices returns the devices whose packets carry trustworthy tags in tc_index: taps of containers,
// and bridges where forged tags are cleared.
func (a *Attacher) indexDevices(list []*Container) map[int]bool {
	devices, wanted := map[int]bool{}, map[int]bool{}
	for _, c := range list {
		for i := range c.Devices {
			d := &c.Devices[i]
			if !d.tap.InForce(tapping{d.Tap, c.Number, c.flows.hasTable}) || d.Mode != v1.ModeBridge {
				continue
			}
			devices[d.Tap.Ifindex] = true
			if d.BridgeIndex != 0 {
				wanted[d.BridgeIndex] = true
			}
		}
	}
	if err := a.bridges.apply(wanted); err != nil {
		a.log.Warn("a program that clears forged tags may still be attached to bridges without containers; trying again, all else is in force", "error", err)
	}
	for ifindex, cleared := range a.bridges.cleared {
		if cleared.Err() == nil {
			devices[ifindex] = true
		}
	}
	for _, c := range list {
		c.indexErr = nil
		for _, d := range c.Devices {
			if cleared := a.bridges.cleared[d.BridgeIndex]; cleared != nil && cleared.Err() != nil {
				c.indexErr = cleared.Err()
			}
		}
	}
	return devices
}

// indexLost is the effect of a tag in tc_index that is lost or not to be trusted.
const indexLost = "its IPv4 packets that the host fragments, or sends through a bridge that the uplink is a port of, count as the host's: "

// indexComplaint returns why packets of a container with a tag in tc_index only count as the host's, or "".
func (c *Container) indexComplaint() string {
	if c.indexErr == nil || c.Number == 0 {
		return ""
	}
	return indexLost + c.indexErr.Error()
}
