package attach

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Of an IPv4 packet that the host fragments, or sends through a bridge that the uplink is a port of,
// only tc_index still tells the container, and that can be forged. Classifiers trust it only if the
// packet came in through a tap, or through a bridge, or a VLAN on that, where forged tags are cleared.

// Bridges clears forged tags of packets that enter through a bridge. Implementation:
// *identity.Bridges.
type Bridges interface {
	// Entrances lists the devices by which packets of these bridges' ports come into the host.
	Entrances(bridges map[int]bool) (map[int][]kernel.Link, error)
	// Attach attaches the program that clears forged tags to an entrance. It does nothing if the
	// program is attached already.
	Attach(ifindex int) error
	// Followers names programs and filters behind that program that may take the number away.
	Followers(ifindex int) (kernel.Others, error)
	// Detach removes the program from all devices but the kept ones.
	Detach(kept map[int]bool) error
	Close() error
}

// bridges is the set of bridges that containers are ports of.
type bridges struct {
	Bridges
	// listed are the bridges, by ifindex, that entrances are of; nil if these have to be listed again.
	listed    map[int]bool
	entrances map[int][]kernel.Link
	listErr   error
	cleared   map[int]*clearance // by ifindex of an entrance
	// leftover is set while the program may still be attached to bridges without containers.
	leftover bool
}

// bridged is what the bridges of a container mean for its packets.
type bridged struct {
	// err is the reason why those with a tag in tc_index only count as the host's.
	err error
	// entrances are the indexes of the devices by which those for the host come in.
	entrances []int
}

// clearance is the state of one entrance.
type clearance struct {
	identity.Applied[bool]
	// followers are the programs and filters of others behind the program; lookErr is why they are
	// not known.
	followers kernel.Others
	lookErr   error
}

// apply attaches the program to the entrances of the wanted bridges and removes it from all others.
func (b *bridges) apply(wanted map[int]bool) error {
	b.list(wanted)
	kept := map[int]bool{}
	for _, entrances := range b.entrances {
		for _, at := range entrances {
			kept[at.Index] = true
			b.clear(at.Index)
		}
	}
	for ifindex := range b.cleared {
		if !kept[ifindex] {
			delete(b.cleared, ifindex)
			b.leftover = true
		}
	}
	if !b.leftover {
		return nil
	}
	err := b.Detach(kept)
	b.leftover = err != nil
	return err
}

// list looks for the entrances of the wanted bridges, unless it knows them.
func (b *bridges) list(wanted map[int]bool) {
	if b.listed != nil && maps.Equal(b.listed, wanted) {
		return
	}
	found, err := b.Entrances(wanted)
	if b.listErr = err; err == nil {
		b.listed, b.entrances = wanted, found
	}
}

// clear attaches the program to an entrance, and looks at what comes after it.
func (b *bridges) clear(ifindex int) {
	if b.cleared[ifindex] == nil {
		b.cleared[ifindex] = &clearance{}
	}
	at := b.cleared[ifindex]
	looked := at.InForce(true)
	if err := at.Apply(true, func() error { return b.Attach(ifindex) }); err == nil && !looked {
		at.followers, at.lookErr = b.Followers(ifindex)
	}
}

// recheck makes the next apply verify all bridges.
func (b *bridges) recheck() {
	b.listed = nil
	for _, cleared := range b.cleared {
		cleared.Recheck()
	}
}

// overwrites says what filters and programs of others do to a tag in tc_index, and what to do.
const overwrites = "may overwrite their tag: remove it, or let it end with continue or pipe, without a class"

// problem returns why tags in tc_index of packets from a bridge's ports are lost or not trusted, or nil.
func (b *bridges) problem(bridge int) error {
	if b.listErr != nil {
		return b.listErr
	}
	if len(b.entrances[bridge]) == 0 {
		return kernel.ErrNoLink
	}
	for _, at := range b.entrances[bridge] {
		cleared := b.cleared[at.Index]
		if err := cmp.Or(cleared.Err(), cleared.lookErr); err != nil {
			return err
		}
		if followers := cleared.followers.Indexing; len(followers) > 0 {
			return fmt.Errorf("%s behind Weir's program at %s "+overwrites, strings.Join(followers, ", "), at.Name)
		}
	}
	return nil
}

// indexDevices returns the devices whose packets carry trustworthy tags in tc_index: taps of containers,
// and entrances of bridges where forged tags are cleared.
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
		c.bridged = bridged{}
		for _, d := range c.Devices {
			for _, at := range a.bridges.entrances[d.BridgeIndex] {
				c.bridged.entrances = append(c.bridged.entrances, at.Index)
			}
			if err := a.bridges.problem(d.BridgeIndex); wanted[d.BridgeIndex] && err != nil {
				c.bridged.err = err
			}
		}
	}
	return devices
}

// indexLost is the effect of a tag in tc_index that is lost or not to be trusted.
const indexLost = "its IPv4 packets that the host fragments, or sends through a bridge that the uplink is a port of, count as the host's: "

// indexComplaint returns why packets of a container with a tag in tc_index only count as the host's, or "".
func (c *Container) indexComplaint() string {
	if c.bridged.err == nil || c.Number == 0 {
		return ""
	}
	return indexLost + c.bridged.err.Error()
}

// passedComplaint returns what may take the container's number from its packets on their way to the
// uplink, or "".
func (u *Uplink) passedComplaint(c *Container) string {
	for _, at := range u.passed {
		// Packets go from port to port without passing the bridge's egress.
		bridged := slices.ContainsFunc(c.Devices, func(d Device) bool {
			return d.Mode == v1.ModeBridge && !slices.ContainsFunc(u.passed, func(p identity.Passed) bool { return p.Link.Index == d.BridgeIndex })
		})
		names := at.Diverting
		if bridged && len(names) == 0 {
			names = at.Indexing
		}
		if len(names) > 0 && (bridged || c.Mode == v1.ModeOverlay) {
			return fmt.Sprintf("its packets may count as the host's: %s at egress of %s, which they pass before %s, may redirect them or overwrite their tag: remove it, or let it end with continue or pipe, without a class",
				strings.Join(names, ", "), at.Link.Name, u.Name())
		}
	}
	return ""
}
