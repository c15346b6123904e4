// Package classify ties packets to containers. It owns the BPF programs and
// their maps.
//
// A container is a number here (see bpf/intf.h). A program at a tap, where all
// its packets pass (Inspector finds it), writes the number into the packet; or
// its cgroup has the number, in host mode. A program at the uplink turns it into
// the class that the scheduler knows, and counts what was offered. The programs
// belong to the devices they are attached to: they go on working when the agent
// is dead, and a new agent finds them again (OpenUplink, TapNumber).
package classify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
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

	// NumberNone is nobody's: what OfferedBytes tells of it is what strangers
	// sent (Origins).
	NumberNone = uint16(uplinkWeirNumberWEIR_NUMBER_NONE)
)

const activityBytes = 16 // sizeof(struct weir_activity)

// Uplink is the classifier at an uplink.
type Uplink struct {
	hook       kernel.Hook
	activities *ebpf.Map
	memory     *ebpf.Memory
	scratch    []byte
	htbMajor   uint16
	cgroups    cgroups
	globals    globals
}

// globals are the variables of a program that user space writes.
type globals struct {
	values  *ebpf.Map
	offsets map[string]uint32
}

// set sets the bytes of the variable called name.
func (g globals) set(name string, bytes []byte) error {
	var values []byte
	if err := g.values.Lookup(uint32(0), &values); err != nil {
		return fmt.Errorf("read the classifier's variables: %w", err)
	}
	copy(values[g.offsets[name]:], bytes)
	if err := g.values.Update(uint32(0), values, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("set %s of the classifier: %w", name, err)
	}
	return nil
}

func (u *Uplink) setCgroupLevels(packed uint64) error {
	return u.globals.set(uplinkVarCgroupLevels, binary.NativeEndian.AppendUint64(nil, packed))
}

// setStamping says whether packets are stamped, for Delays.
func (u *Uplink) setStamping(on bool) error {
	var value uint32
	if on {
		value = 1
	}
	return u.globals.set(uplinkVarStamping, binary.NativeEndian.AppendUint32(nil, value))
}

// OpenUplink attaches the classifier to the device with index ifindex, where
// htbMajor is the major of the scheduler's classes. One that is there already
// is replaced without a packet passing unclassified; its counters and the
// cgroups that it knew are kept.
func OpenUplink(ifindex int, htbMajor uint16, origins *Origins) (*Uplink, error) {
	u := &Uplink{hook: kernel.Hook{Ifindex: ifindex, Egress: true}, htbMajor: htbMajor}
	if err := u.attach(htbMajor, origins); err != nil {
		return nil, fmt.Errorf("classify at uplink: %w", err)
	}
	memory, err := u.activities.Memory()
	if err != nil {
		u.close()
		return nil, fmt.Errorf("map the uplink's counters: %w", err)
	}
	u.memory = memory
	return u, nil
}

func (u *Uplink) attach(htbMajor uint16, origins *Origins) error {
	old, err := u.hook.Find(uplinkProgWeirUplink)
	if err != nil {
		return err
	}
	shared := origins.shared()
	adopted := maps.Clone(shared)
	if old != nil {
		defer old.Close()
		for _, name := range []string{uplinkMapActivities, uplinkMapCgroups} {
			m, err := mapOf(old, name)
			if err != nil {
				return err
			}
			if m != nil {
				defer m.Close()
				adopted[name] = m
			}
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
		Cgroups    *ebpf.Map     `ebpf:"cgroups"`
		Globals    *ebpf.Map     `ebpf:".bss"`
	}
	err = spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{MapReplacements: adopted})
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		// Maps of another version: start new ones.
		err = spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{MapReplacements: shared})
	}
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer objects.Program.Close()
	u.activities = objects.Activities
	u.globals = globals{values: objects.Globals, offsets: map[string]uint32{
		uplinkVarCgroupLevels:   spec.Variables[uplinkVarCgroupLevels].Offset,
		uplinkVarStamping:       spec.Variables[uplinkVarStamping].Offset,
		uplinkVarStrangerByteNs: spec.Variables[uplinkVarStrangerByteNs].Offset,
	}}
	u.cgroups = cgroups{entries: objects.Cgroups, setLevels: u.setCgroupLevels}
	// Before it runs: it must know the cgroups from the first packet on.
	err = u.cgroups.read()
	if err == nil {
		err = u.hook.Attach(objects.Program, old)
	}
	if err != nil {
		u.close()
	}
	return err
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
func (u *Uplink) Close() error {
	u.close()
	return nil
}

func (u *Uplink) close() {
	u.activities.Close()
	u.cgroups.entries.Close()
	u.globals.values.Close()
}

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
