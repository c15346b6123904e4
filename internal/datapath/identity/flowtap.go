package identity

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// back returns the hook for packets to the container.
func (t Tap) back() kernel.Hook {
	hook := t.hook()
	hook.Egress = !hook.Egress
	return hook
}

// AttachFlows attaches the tap program that assigns packets to number, as Taps.Attach does, and to
// the traffic class of their flow. The number needs a table (OpenTable). It does nothing if that is
// in force already. Errors: those of Taps.Attach; a kernel that cannot load the program.
func (f *Flows) AttachFlows(tap Tap, number uint16) error {
	want := newTapConstants(tap, number)
	if err := f.readTags(want); err != nil {
		return err
	}
	var missing []attachFlow
	for _, a := range []attachFlow{{tap.hook(), flowProgWeirTap}, {tap.back(), flowProgWeirBack}} {
		there, err := f.attached(a, want)
		if err != nil {
			return fmt.Errorf("classify a container's flows: %w", err)
		}
		if !there {
			missing = append(missing, a)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	programs, err := f.load(want)
	if err != nil {
		return err
	}
	for _, program := range programs {
		defer program.Close()
	}
	for _, a := range missing {
		if err := a.attach(programs[a.program]); err != nil {
			return fmt.Errorf("classify a container's flows: %w", err)
		}
	}
	return nil
}

// attachFlow is a program's name and its hook.
type attachFlow struct {
	hook    kernel.Hook
	program string
}

func (a attachFlow) attach(program *ebpf.Program) error {
	old, err := a.hook.Find(a.program)
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
	}
	return a.hook.Attach(program, old)
}

// attached reports whether the program is attached, before all others, with these constants and
// flow maps.
func (f *Flows) attached(a attachFlow, want tapConstants) (bool, error) {
	old, first, err := a.hook.FindPlace(a.program)
	if err != nil || old == nil {
		return false, err
	}
	defer old.Close()
	info, err := old.Info()
	if err != nil {
		return false, err
	}
	maps, _ := info.MapIDs()
	had, err := readTapConstants(old)
	return err == nil && first && had == want && info.Tag == f.tags[a.program] && slices.Contains(maps, f.treesID), nil
}

// readTags computes, once, the tags of this version of the programs.
func (f *Flows) readTags(constants tapConstants) error {
	if f.tags != nil {
		return nil
	}
	programs, err := f.load(constants)
	if err != nil {
		return err
	}
	tags := map[string]string{}
	for name, program := range programs {
		info, err := program.Info()
		if err != nil {
			return fmt.Errorf("ask for a flow program's tag: %w", err)
		}
		tags[name] = info.Tag
		if err := program.Close(); err != nil {
			return fmt.Errorf("close a flow program: %w", err)
		}
	}
	f.tags = tags
	return nil
}

// load loads the programs of a tap; the result is keyed by name.
func (f *Flows) load(constants tapConstants) (map[string]*ebpf.Program, error) {
	spec := f.spec.Copy()
	err := errors.Join(
		spec.Variables[flowVarContainerNumber].Set(constants.Number),
		spec.Variables[flowVarTagPriority].Set(constants.Priority))
	if err != nil {
		return nil, fmt.Errorf("set the constants of the flow programs: %w", err)
	}
	var objects struct {
		Tap  *ebpf.Program `ebpf:"weir_tap"`
		Back *ebpf.Program `ebpf:"weir_back"`
	}
	if err := load(spec, &objects, only(f.shared(), spec)); err != nil {
		return nil, fmt.Errorf("load flow programs: %w", err)
	}
	return map[string]*ebpf.Program{flowProgWeirTap: objects.Tap, flowProgWeirBack: objects.Back}, nil
}

// ProbeFlows returns an error if this kernel cannot classify flows.
func ProbeFlows() error {
	f, err := OpenFlows()
	if err != nil {
		return err
	}
	programs, err := f.load(tapConstants{})
	for _, program := range programs {
		program.Close()
	}
	return errors.Join(err, f.Close())
}
