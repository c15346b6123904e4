// Package classify ties packets to containers. It owns the BPF programs and
// their maps.
//
// A container is a number here (see bpf/intf.h). A program at the host end of
// each container's veth writes the number into the packet; a program at the
// uplink turns it into the class that the scheduler knows, and counts what was
// offered. Both belong to the devices they are attached to: they go on working
// when the agent is dead, and a new agent finds them again (Open, VethNumber).
package classify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/kernel"
)

// Numbers of the data path (bpf/intf.h, where they are explained).
const (
	NumberHost    = uint16(uplinkWeirNumberWEIR_NUMBER_HOST)
	NumberControl = uint16(uplinkWeirNumberWEIR_NUMBER_CONTROL)
	NumberFirst   = uint16(uplinkWeirNumberWEIR_NUMBER_FIRST)
	NumberLast    = uint16(uplinkWeirNumberWEIR_NUMBER_LAST)
	numbers       = int(uplinkWeirNumberWEIR_NUMBERS)
)

const activityBytes = 8 // sizeof(struct weir_activity)

// Uplink is the classifier at an uplink.
type Uplink struct {
	hook       kernel.Hook
	activities *ebpf.Map
	memory     *ebpf.Memory
	scratch    []byte
}

// OpenUplink attaches the classifier to the device with index ifindex, where
// htbMajor is the major of the scheduler's classes. A classifier that is
// there already is kept, with its counters; one of another version is
// replaced without a packet passing unclassified.
func OpenUplink(ifindex int, htbMajor uint16) (*Uplink, error) {
	u := &Uplink{hook: kernel.Hook{Ifindex: ifindex, Egress: true}}
	if err := u.attach(htbMajor); err != nil {
		return nil, fmt.Errorf("classify at uplink: %w", err)
	}
	memory, err := u.activities.Memory()
	if err != nil {
		u.activities.Close()
		return nil, fmt.Errorf("map the uplink's counters: %w", err)
	}
	u.memory = memory
	return u, nil
}

func (u *Uplink) attach(htbMajor uint16) error {
	old, err := u.hook.Find(uplinkProgWeirUplink)
	if err != nil {
		return err
	}
	replacements := map[string]*ebpf.Map{}
	if old != nil {
		defer old.Close()
		m, err := mapOf(old, uplinkMapActivities)
		if err != nil {
			return err
		}
		if m != nil {
			defer m.Close()
			replacements[uplinkMapActivities] = m
		}
	}
	spec, err := loadUplink()
	if err != nil {
		return err
	}
	if err := spec.Variables[uplinkVarHtbMajor].Set(uint32(htbMajor)); err != nil {
		return fmt.Errorf("set %s: %w", uplinkVarHtbMajor, err)
	}
	var objects struct {
		Program    *ebpf.Program `ebpf:"weir_uplink"`
		Activities *ebpf.Map     `ebpf:"activities"`
	}
	err = spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{MapReplacements: replacements})
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		// Counters of another version: start new ones.
		err = spec.LoadAndAssign(&objects, nil)
	}
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer objects.Program.Close()
	if old != nil {
		same, err := sameProgram(old, objects.Program)
		if err != nil {
			return err
		}
		if same {
			u.activities = objects.Activities
			return nil
		}
	}
	if err := u.hook.Attach(objects.Program, old); err != nil {
		objects.Activities.Close()
		return err
	}
	u.activities = objects.Activities
	return nil
}

// OfferedBytes fills dst, indexed by number, with the bytes that each
// container has handed to the uplink since the classifier was first attached,
// dropped ones included. No system call is made.
func (u *Uplink) OfferedBytes(dst []uint64) error {
	n := min(len(dst), numbers)
	if len(u.scratch) < n*activityBytes {
		u.scratch = make([]byte, n*activityBytes)
	}
	if _, err := u.memory.ReadAt(u.scratch[:n*activityBytes], 0); err != nil {
		return fmt.Errorf("read the uplink's counters: %w", err)
	}
	for i := range n {
		dst[i] = binary.NativeEndian.Uint64(u.scratch[i*activityBytes:])
	}
	return nil
}

// Close forgets the classifier, which goes on working.
func (u *Uplink) Close() error { return u.activities.Close() }

// UplinkAttached says whether a device has a classifier.
func UplinkAttached(ifindex int) (bool, error) {
	program, err := kernel.Hook{Ifindex: ifindex, Egress: true}.Find(uplinkProgWeirUplink)
	if err != nil || program == nil {
		return false, err
	}
	return true, program.Close()
}

// DetachUplink removes the classifier from a device.
func DetachUplink(ifindex int) error {
	return kernel.Hook{Ifindex: ifindex, Egress: true}.Detach(uplinkProgWeirUplink)
}

// Veths ties veths to container numbers.
type Veths struct {
	spec *ebpf.CollectionSpec
	// tag identifies this version of the program.
	tag string
}

// NewVeths prepares the program. Errors: the kernel cannot load it.
func NewVeths() (*Veths, error) {
	spec, err := loadVeth()
	if err != nil {
		return nil, err
	}
	v := &Veths{spec: spec}
	program, err := v.load(0)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return nil, fmt.Errorf("ask for the veth program's tag: %w", err)
	}
	v.tag = info.Tag
	return v, nil
}

func (v *Veths) load(number uint16) (*ebpf.Program, error) {
	spec := v.spec.Copy()
	if err := spec.Variables[vethVarContainerNumber].Set(uint32(number)); err != nil {
		return nil, fmt.Errorf("set %s: %w", vethVarContainerNumber, err)
	}
	var objects struct {
		Program *ebpf.Program `ebpf:"weir_veth"`
	}
	if err := spec.LoadAndAssign(&objects, nil); err != nil {
		return nil, fmt.Errorf("load veth program: %w", err)
	}
	return objects.Program, nil
}

// Attach ties everything that enters the host through the veth with index
// ifindex to number. Where that is so already, nothing is touched.
func (v *Veths) Attach(ifindex int, number uint16) error {
	hook := kernel.Hook{Ifindex: ifindex}
	old, err := hook.Find(vethProgWeirVeth)
	if err != nil {
		return fmt.Errorf("classify at veth: %w", err)
	}
	if old != nil {
		defer old.Close()
		info, err := old.Info()
		if err != nil {
			return fmt.Errorf("classify at veth: %w", err)
		}
		if had, err := vethNumber(old); err == nil && had == number && info.Tag == v.tag {
			return nil
		}
	}
	program, err := v.load(number)
	if err != nil {
		return err
	}
	defer program.Close()
	if err := hook.Attach(program, old); err != nil {
		return fmt.Errorf("classify at veth: %w", err)
	}
	return nil
}

// DetachVeth removes the program from a veth.
func DetachVeth(ifindex int) error {
	return kernel.Hook{Ifindex: ifindex}.Detach(vethProgWeirVeth)
}

// VethNumber tells the number that a veth is tied to, or 0 for none.
func VethNumber(ifindex int) (uint16, error) {
	program, err := kernel.Hook{Ifindex: ifindex}.Find(vethProgWeirVeth)
	if err != nil || program == nil {
		return 0, err
	}
	defer program.Close()
	return vethNumber(program)
}

// vethNumber reads the constant that a program was loaded with.
func vethNumber(program *ebpf.Program) (uint16, error) {
	constants, err := mapOf(program, ".rodata")
	if err != nil {
		return 0, err
	}
	if constants == nil {
		return 0, errors.New("veth program has no constants")
	}
	defer constants.Close()
	// container_number is the only constant.
	var value []byte
	if err := constants.Lookup(uint32(0), &value); err != nil {
		return 0, fmt.Errorf("read the veth program's number: %w", err)
	}
	if len(value) < 4 {
		return 0, errors.New("veth program has no number")
	}
	return uint16(binary.NativeEndian.Uint32(value)), nil
}

// mapOf opens the map of a loaded program whose name ends in suffix, or
// returns nil.
func mapOf(program *ebpf.Program, suffix string) (*ebpf.Map, error) {
	info, err := program.Info()
	if err != nil {
		return nil, fmt.Errorf("ask for a program's maps: %w", err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("open map %d: %w", id, err)
		}
		mapInfo, err := m.Info()
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("ask for the name of map %d: %w", id, err)
		}
		if strings.HasSuffix(mapInfo.Name, suffix) {
			return m, nil
		}
		m.Close()
	}
	return nil, nil
}

// sameProgram says whether two programs have the same code and constants.
func sameProgram(a, b *ebpf.Program) (bool, error) {
	ai, err := a.Info()
	if err != nil {
		return false, fmt.Errorf("compare programs: %w", err)
	}
	bi, err := b.Info()
	if err != nil {
		return false, fmt.Errorf("compare programs: %w", err)
	}
	if ai.Tag != bi.Tag {
		return false, nil
	}
	var constants [2]string
	for i, p := range []*ebpf.Program{a, b} {
		m, err := mapOf(p, ".rodata")
		if err != nil || m == nil {
			return false, err
		}
		var value []byte
		err = m.Lookup(uint32(0), &value)
		m.Close()
		if err != nil {
			return false, fmt.Errorf("compare programs: %w", err)
		}
		constants[i] = string(value)
	}
	return constants[0] == constants[1], nil
}
