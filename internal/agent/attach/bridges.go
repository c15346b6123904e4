package attach

import (
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// An IPv4 fragment that the host makes carries only a tag to tell its container, and a tag can be
// forged. Classifiers trust the tag of a fragment only if it came in through a tap, or through a
// bridge where forged tags are cleared.

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

// fragmentDevices returns the devices whose fragments carry trustworthy tags: taps of containers,
// and bridges where forged tags are cleared.
func (a *Attacher) fragmentDevices(list []*Container) map[int]bool {
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
		a.log.Warn("detach the program that clears forged tags from bridges", "error", err)
	}
	for ifindex, cleared := range a.bridges.cleared {
		if cleared.Err() == nil {
			devices[ifindex] = true
		}
	}
	for _, c := range list {
		c.fragments = nil
		for _, d := range c.Devices {
			if cleared := a.bridges.cleared[d.BridgeIndex]; cleared != nil && cleared.Err() != nil {
				c.fragments = cleared.Err()
			}
		}
	}
	return devices
}

// fragmentsComplaint returns why fragments of a container count as the host's, or "".
func (c *Container) fragmentsComplaint() string {
	if c.fragments == nil || c.Number == 0 {
		return ""
	}
	return fmt.Sprintf("its IPv4 packets that the host fragments, for a smaller MTU or after NAT, count as the host's: %v", c.fragments)
}
