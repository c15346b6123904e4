package identity

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Bridges keeps forged tags from entering the host through bridges that containers are ports of, those
// of Open vSwitch and VLANs on any included (bpf/bridge.bpf.c).
type Bridges struct {
	program *ebpf.Program
	// tag identifies this version of the program.
	tag string
}

// NewBridges loads the program. Errors: the kernel cannot load it.
func NewBridges() (*Bridges, error) {
	var objects bridgeObjects
	if err := loadBridgeObjects(&objects, nil); err != nil {
		return nil, fmt.Errorf("load bridge program: %w", err)
	}
	info, err := objects.WeirBridge.Info()
	if err != nil {
		objects.Close()
		return nil, fmt.Errorf("ask for the bridge program's tag: %w", err)
	}
	return &Bridges{program: objects.WeirBridge, tag: info.Tag}, nil
}

// Close closes the program. Where it is attached it stays in force.
func (b *Bridges) Close() error { return b.program.Close() }

func bridgeHook(ifindex int) kernel.Hook { return kernel.Hook{Ifindex: ifindex} }

// Entrances lists the devices by which packets of these bridges' ports come into the host
// (kernel.Entrances).
func (*Bridges) Entrances(bridges map[int]bool) (map[int][]kernel.Link, error) {
	return kernel.Entrances(bridges)
}

// entranceKinds are the kinds of devices that the program is for.
var entranceKinds = []string{"bridge", "vlan", "openvswitch"}

// Attach attaches the program to an entrance, before programs of others. The program clears forged
// tags of packets that enter the host. It does nothing if the program is attached already. Errors:
// kernel.ErrNoLink; kernel.ErrNotFirst if another program insists on being first; a device of
// another kind, such as a VRF, whose packets do not pass the hook.
func (b *Bridges) Attach(ifindex int) error {
	device, err := kernel.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	if !slices.Contains(entranceKinds, device.Kind) {
		return fmt.Errorf("%s is a device of kind %s and not a bridge", device.Name, device.Kind)
	}
	if err := b.attach(ifindex); err != nil {
		return fmt.Errorf("clear forged tags at %s: %w", device.Name, err)
	}
	return nil
}

func (b *Bridges) attach(ifindex int) error {
	old, first, err := bridgeHook(ifindex).FindPlace(bridgeProgWeirBridge)
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
		info, err := old.Info()
		if err != nil {
			return fmt.Errorf("ask for the bridge program's tag: %w", err)
		}
		if first && info.Tag == b.tag {
			return nil
		}
	}
	return bridgeHook(ifindex).Attach(b.program, old)
}

// Followers names programs and filters of others behind the program at an entrance that may take
// containers' numbers away. The redirect of received packets leaves tc_index as it is.
func (*Bridges) Followers(ifindex int) (kernel.Others, error) {
	return bridgeHook(ifindex).After(bridgeProgWeirBridge, incomingProgWeirIncoming)
}

// Detach removes the program from all devices except the kept indexes.
func (*Bridges) Detach(kept map[int]bool) error { return detachBridges(kept) }

// DetachBridges removes the program from all devices.
func DetachBridges() error { return detachBridges(nil) }

func detachBridges(kept map[int]bool) error {
	links, err := kernel.Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if slices.Contains(entranceKinds, l.Kind) && !kept[l.Index] {
			errs = append(errs, bridgeHook(l.Index).Detach(bridgeProgWeirBridge))
		}
	}
	return errors.Join(errs...)
}

// Passed is a device that packets pass before they leave by one of its ports.
type Passed struct {
	Link kernel.Link
	// Others are at its egress.
	kernel.Others
}

// PassedBefore lists the devices that packets may pass before they leave by the one with that index,
// such as the bridge that it is a port of, as far as programs and filters of others there may take
// containers' numbers away. Errors: kernel.ErrNoLink.
func PassedBefore(ifindex int) ([]Passed, error) {
	masters, err := kernel.Masters(ifindex)
	if err != nil {
		return nil, err
	}
	var passed []Passed
	for _, l := range masters {
		others, err := kernel.Hook{Ifindex: l.Index, Egress: true}.After("", uplinkProgWeirUplink, belowProgWeirBelow, clearProgWeirClear)
		if err != nil {
			return nil, err
		}
		if len(others.Diverting)+len(others.Indexing) > 0 {
			passed = append(passed, Passed{l, others})
		}
	}
	return passed, nil
}
