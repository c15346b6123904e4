package agent

import (
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
)

// Of IPv4 fragments that the host makes little says whose they are, and that can be
// forged. Classifiers believe it of what comes in by taps, and by bridges where forged
// tags are cleared.

// bridgeKeeper clears forged tags at bridges; *identity.Bridges is it.
type bridgeKeeper interface {
	// Attach has forged tags cleared at a bridge. Where they are nothing is touched.
	Attach(ifindex int) error
	// Detach ends that at all bridges but those to be kept.
	Detach(kept map[int]bool) error
	Close() error
}

// bridges are those that containers are ports of, by index.
type bridges struct {
	keeper bridgeKeeper
	// refused says why forged tags are not cleared at a bridge; nil where they are.
	refused map[int]error
	// unchecked: somebody may have changed what is there.
	unchecked bool
	// leftover: there may be bridges that nobody needs looked after any more.
	leftover bool
}

func newBridges(keeper bridgeKeeper) *bridges {
	return &bridges{keeper: keeper, refused: map[int]error{}, leftover: true}
}

// keep has forged tags cleared at the bridges that are wanted, and at no others.
func (b *bridges) keep(wanted map[int]bool) error {
	for ifindex := range b.refused {
		if !wanted[ifindex] {
			delete(b.refused, ifindex)
			b.leftover = true
		}
	}
	for ifindex := range wanted {
		if refused, known := b.refused[ifindex]; !known || refused != nil || b.unchecked {
			b.refused[ifindex] = b.keeper.Attach(ifindex)
		}
	}
	b.unchecked = false
	if !b.leftover {
		return nil
	}
	err := b.keeper.Detach(wanted)
	b.leftover = err != nil
	return err
}

// assignFragments has the classifiers believe the tags of fragments from the devices
// where nobody but a tap can have written them.
func (a *Agent) assignFragments() {
	devices, wanted := map[int]bool{}, map[int]bool{}
	for _, c := range a.registry.byNumber {
		for _, at := range c.attachments {
			if !at.assigned || at.Mode != v1.ModeBridge {
				continue
			}
			devices[at.Tap.Ifindex] = true
			if at.BridgeIndex != 0 {
				wanted[at.BridgeIndex] = true
			}
		}
	}
	if err := a.bridges.keep(wanted); err != nil {
		a.log.Warn("clear forged tags at bridges no more", "error", err)
	}
	for ifindex := range wanted {
		if a.bridges.refused[ifindex] == nil {
			devices[ifindex] = true
		}
	}
	for _, c := range a.registry.byNumber {
		c.fragmentsRefused = nil
		for _, at := range c.attachments {
			if refused := a.bridges.refused[at.BridgeIndex]; refused != nil {
				c.fragmentsRefused = refused
			}
		}
	}
	for _, u := range a.uplinks {
		if !u.installed() {
			continue
		}
		if err := u.classifier.SetFragmentDevices(devices); err != nil {
			a.log.Warn("believe fragments from devices", "uplink", u.name, "error", err)
		}
	}
}

// fragmentsComplaint says why fragments of a container count as the host's; "" where
// they do not.
func (c *container) fragmentsComplaint() string {
	if c.fragmentsRefused == nil || c.number == 0 {
		return ""
	}
	return fmt.Sprintf("IPv4 packets of it that the host takes apart, for a smaller MTU or after NAT, count as the host's: %v", c.fragmentsRefused)
}
