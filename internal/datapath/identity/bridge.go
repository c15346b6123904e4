package identity

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/kernel"
)

// Bridges keeps forged tags from entering the host by the bridges that containers are
// ports of (bpf/bridge.bpf.c).
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

// Close lets go of the program. Where it is attached it stays.
func (b *Bridges) Close() error { return b.program.Close() }

func bridgeHook(ifindex int) kernel.Hook { return kernel.Hook{Ifindex: ifindex} }

// bridgeKind is what the kernel calls a bridge.
const bridgeKind = "bridge"

// Attach clears forged tags of what enters the host by a bridge, before programs of
// others see it. Where that is so already nothing is touched. Errors: kernel.ErrNoLink;
// kernel.ErrNotFirst where somebody else insists on being first; the device is of another
// kind, such as a VRF, where packets do not pass the hook.
func (b *Bridges) Attach(ifindex int) error {
	device, err := kernel.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	if device.Kind != bridgeKind {
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

// Detach removes the program from all bridges but those to be kept, by index.
func (*Bridges) Detach(kept map[int]bool) error { return detachBridges(kept) }

// DetachBridges removes the program from all bridges.
func DetachBridges() error { return detachBridges(nil) }

func detachBridges(kept map[int]bool) error {
	links, err := kernel.Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if l.Kind == bridgeKind && !kept[l.Index] {
			errs = append(errs, bridgeHook(l.Index).Detach(bridgeProgWeirBridge))
		}
	}
	return errors.Join(errs...)
}
