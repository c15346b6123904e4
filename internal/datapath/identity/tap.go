package identity

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Taps attaches the program that assigns packets at taps to container numbers.
type Taps struct {
	spec *ebpf.CollectionSpec
	// tag identifies this version of the program.
	tag    string
	socket *kernel.HookSocket
}

// NewTaps prepares the program, for taps in the network namespace of the caller and in others. Errors: the kernel cannot load it.
func NewTaps() (*Taps, error) {
	spec, err := loadTap()
	if err != nil {
		return nil, err
	}
	t := &Taps{spec: spec}
	program, err := t.load(tapConstants{})
	if err != nil {
		return nil, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return nil, fmt.Errorf("ask for the tap program's tag: %w", err)
	}
	t.tag = info.Tag
	t.socket, err = kernel.OpenHookSocket()
	return t, err
}

// Close closes the handles; the programs at taps stay.
func (t *Taps) Close() { t.socket.Close() }

// tapConstants are the constants that a program was loaded with: those of bpf/tap.bpf.c, in their
// order.
type tapConstants struct{ Number, Priority uint32 }

func newTapConstants(tap Tap, number uint16) tapConstants {
	c := tapConstants{Number: uint32(number)}
	if tap.Priority {
		c.Priority = 1
	}
	return c
}

func (t *Taps) load(constants tapConstants) (*ebpf.Program, error) {
	spec := t.spec.Copy()
	err := errors.Join(
		spec.Variables[tapVarContainerNumber].Set(constants.Number),
		spec.Variables[tapVarTagPriority].Set(constants.Priority))
	if err != nil {
		return nil, fmt.Errorf("set the tap program's constants: %w", err)
	}
	var objects struct {
		Program *ebpf.Program `ebpf:"weir_tap"`
	}
	if err := spec.LoadAndAssign(&objects, nil); err != nil {
		return nil, fmt.Errorf("load tap program: %w", err)
	}
	return objects.Program, nil
}

// hook returns the hook of a tap, which uses the socket of the taps.
func (t *Taps) hook(tap Tap) kernel.Hook { return t.socket.At(tap.hook()) }

func (t Tap) hook() kernel.Hook {
	return kernel.Hook{NetNSPath: t.NetNSPath, Ifindex: t.Ifindex, Egress: t.Egress}
}

// Attach attaches the tap program with number, before programs of others, and returns its ID. It does
// nothing if that is in force already. Errors: kernel.ErrNoNetNS; kernel.ErrNotFirst if another program
// insists on being first.
func (t *Taps) Attach(tap Tap, number uint16) (id uint32, err error) {
	want := newTapConstants(tap, number)
	old, first, err := t.hook(tap).FindPlace(tapProgWeirTap)
	if err != nil {
		return 0, fmt.Errorf("assign a container's packets: %w", err)
	}
	if old != nil {
		defer old.Close()
		info, err := old.Info()
		if err != nil {
			return 0, fmt.Errorf("assign a container's packets: %w", err)
		}
		if had, err := readTapConstants(old); err == nil && first && had == want && info.Tag == t.tag {
			id, _ := info.ID()
			return uint32(id), nil
		}
	}
	program, err := t.load(want)
	if err != nil {
		return 0, err
	}
	defer program.Close()
	if old != nil {
		// Before the tap, because a correct tap is not looked at again.
		if err := tap.back().Detach(flowProgWeirBack); err != nil {
			return 0, err
		}
	}
	if err := t.hook(tap).Attach(program, old); err != nil {
		return 0, fmt.Errorf("assign a container's packets: %w", err)
	}
	return kernel.ProgramID(program), nil
}

// Followers returns the programs and filters of others that see packets after a tap at a veth and may
// take their number away. Errors: kernel.ErrNoNetNS.
func (t *Taps) Followers(tap Tap) (kernel.Others, error) {
	if tap.Egress {
		return kernel.Others{}, nil // in the container's reach; its number has other ways to the uplink
	}
	return t.hook(tap).After(tapProgWeirTap)
}

// SoleProgram returns the ID of the only program at a tap; 0 if there is none, or more than one. It
// costs a fraction of Attach and Followers. Errors: kernel.ErrNoNetNS.
func (t *Taps) SoleProgram(tap Tap) (uint32, error) { return t.hook(tap).SoleProgram() }

// DetachTap removes the programs from a tap.
func DetachTap(tap Tap) error {
	return errors.Join(tap.hook().Detach(tapProgWeirTap), tap.back().Detach(flowProgWeirBack))
}

// DetachTaps removes the programs, of whatever version, from the taps at all veths of the current
// namespace, and returns how many these were.
func DetachTaps() (count int, err error) {
	links, err := kernel.Links()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, l := range links {
		if l.Kind != "veth" {
			continue
		}
		tap := Tap{Ifindex: l.Index}
		has, err := tap.hook().Has(tapProgWeirTap)
		if has {
			count++
			err = DetachTap(tap)
		}
		if !errors.Is(err, kernel.ErrNoLink) { // gone since the list
			errs = append(errs, err)
		}
	}
	return count, errors.Join(errs...)
}

// TapNumber returns the number that a tap assigns, or 0 for none. Errors: kernel.ErrNoNetNS.
func TapNumber(tap Tap) (uint16, error) {
	program, err := tap.hook().Find(tapProgWeirTap)
	if err != nil || program == nil {
		return 0, err
	}
	defer program.Close()
	constants, err := readTapConstants(program)
	return uint16(constants.Number), err
}

// readTapConstants returns the constants that a program was loaded with.
func readTapConstants(program *ebpf.Program) (tapConstants, error) {
	m, err := mapOf(program, ".rodata")
	if err != nil {
		return tapConstants{}, err
	}
	if m == nil {
		return tapConstants{}, errors.New("tap program has no constants")
	}
	defer m.Close()
	var value []byte
	if err := m.Lookup(uint32(0), &value); err != nil {
		return tapConstants{}, fmt.Errorf("read the tap program's number: %w", err)
	}
	var constants tapConstants
	if _, err := binary.Decode(value, binary.NativeEndian, &constants); err != nil {
		return tapConstants{}, fmt.Errorf("read the tap program's number: %w", err)
	}
	return constants, nil
}
