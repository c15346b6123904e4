// Package identity says which container a packet belongs to. It owns the BPF programs and
// their maps.
//
// A container is a number here (see bpf/intf.h). A program at a tap, where all
// its packets pass (Inspector finds it), writes the number into the packet; or
// its cgroup has the number, in host mode. A program at the uplink turns it into
// the class that the scheduler knows, and counts what was offered. The programs
// belong to the devices they are attached to: they go on working when the agent
// is dead, and a new agent finds them again (OpenUplink, TapNumber).
package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
)

// Numbers of the data path (bpf/intf.h, where they are explained).
const (
	NumberHost    = uint16(uplinkWeirNumberWEIR_NUMBER_HOST)
	NumberControl = uint16(uplinkWeirNumberWEIR_NUMBER_CONTROL)
	NumberFirst   = uint16(uplinkWeirNumberWEIR_NUMBER_FIRST)
	NumberLast    = uint16(uplinkWeirNumberWEIR_NUMBER_LAST)
	numbers       = int(uplinkWeirNumberWEIR_NUMBERS)

	// NumberNone is nobody's: what OfferedBytes tells of it is what came
	// from unknown namespaces (Origins).
	NumberNone = uint16(uplinkWeirNumberWEIR_NUMBER_NONE)
)

// struct weir_activity: its size, and where its fields are.
const (
	activityBytes       = 32
	classedBytesOffset  = 0
	directBytesOffset   = 8
	mayGoDirectOffset   = 24
	directPacketsOffset = 28
)

// Uplink is the classifier at an uplink.
type Uplink struct {
	hook       kernel.Hook
	activities *ebpf.Map
	memory     *ebpf.Memory
	scratch    []byte
	direct     []sched.Direct
	bounds     sched.Bounds // as last set
	// containers share the budget for their control traffic; as last set.
	containers uint32
	majors     sched.Majors
	cgroups    cgroups
	published  published
	fragments  fragments
	globals    globals
	classes    classes
	// flowMaps are those of the flows, by name; none without.
	flowMaps map[string]*ebpf.Map
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

// OpenUplink attaches the classifier to the device with index ifindex. One that
// is there already is replaced without a packet passing unclassified; its
// counters, the cgroups that it knew, and who may go direct are kept.
func OpenUplink(ifindex int, majors sched.Majors, origins *Origins) (*Uplink, error) {
	u := &Uplink{hook: kernel.Hook{Ifindex: ifindex, Egress: true}, majors: majors}
	if err := u.attach(origins); err != nil {
		return nil, fmt.Errorf("classify at uplink: %w", err)
	}
	memory, err := u.activities.Memory()
	if err != nil {
		u.close()
		return nil, fmt.Errorf("map the uplink's counters: %w", err)
	}
	u.memory = memory
	if err := u.readDirect(); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

func (u *Uplink) attach(origins *Origins) error {
	old, err := u.hook.Find(uplinkProgWeirUplink)
	if err != nil {
		return err
	}
	shared := origins.shared()
	adopted := maps.Clone(shared)
	if old != nil {
		defer old.Close()
		for _, name := range []string{uplinkMapActivities, uplinkMapCgroups, uplinkMapPublished, uplinkMapFragmentsFrom, uplinkMapMinors, uplinkMapClassActivity} {
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
	if err := savePriority(spec, u.hook.Ifindex); err != nil {
		return err
	}
	device, err := kernel.LinkByIndex(u.hook.Ifindex)
	if err != nil {
		return fmt.Errorf("look at the uplink: %w", err)
	}
	if !device.Ethernet {
		if err := spec.Variables[uplinkVarLinkHeaderBytes].Set(uint32(0)); err != nil {
			return fmt.Errorf("set the size of link headers: %w", err)
		}
	}
	err = errors.Join(
		spec.Variables[uplinkVarClassMajor].Set(uint32(u.majors.Classes)),
		spec.Variables[uplinkVarDirectMajor].Set(uint32(u.majors.Direct)))
	if err != nil {
		return fmt.Errorf("set the scheduler's majors: %w", err)
	}
	objects, err := loadUplinkProgram(spec, adopted)
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		// Maps of another version: start new ones.
		objects, err = loadUplinkProgram(spec, shared)
	}
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer objects.Program.Close()
	u.activities = objects.Activities
	if origins.flows != nil {
		u.flowMaps = origins.flows.shared()
	}
	u.classes = classes{minors: objects.Minors, activities: objects.ClassActivity}
	u.globals = globals{values: objects.Globals, offsets: map[string]uint32{
		uplinkVarControlByteNs:     spec.Variables[uplinkVarControlByteNs].Offset,
		uplinkVarControlContainers: spec.Variables[uplinkVarControlContainers].Offset,
		uplinkVarCgroupLevels:      spec.Variables[uplinkVarCgroupLevels].Offset,
		uplinkVarDirectMaxBytes:    spec.Variables[uplinkVarDirectMaxBytes].Offset,
		uplinkVarLinkByteShiftedNs: spec.Variables[uplinkVarLinkByteShiftedNs].Offset,
		uplinkVarPublishedPorts:    spec.Variables[uplinkVarPublishedPorts].Offset,
		uplinkVarStamping:          spec.Variables[uplinkVarStamping].Offset,
		uplinkVarUnknownByteNs:     spec.Variables[uplinkVarUnknownByteNs].Offset,
	}}
	u.cgroups = cgroups{entries: objects.Cgroups, setLevels: u.setCgroupLevels}
	u.published = published{entries: objects.Published, setCount: u.setPublishedPorts}
	u.fragments = fragments{entries: objects.FragmentsFrom}
	// Before it runs: it must know these from the first packet on.
	err = errors.Join(u.cgroups.read(), u.published.read(), u.fragments.read())
	if err == nil {
		err = u.hook.Attach(objects.Program, old)
	}
	if err != nil {
		u.close()
	}
	return err
}

// loaded are what is loaded for one uplink.
type loaded struct {
	Program       *ebpf.Program `ebpf:"weir_uplink"`
	Activities    *ebpf.Map     `ebpf:"activities"`
	Cgroups       *ebpf.Map     `ebpf:"cgroups"`
	Published     *ebpf.Map     `ebpf:"published"`
	FragmentsFrom *ebpf.Map     `ebpf:"fragments_from"`
	Globals       *ebpf.Map     `ebpf:".bss"`
	Minors        *ebpf.Map     `ebpf:"minors"`
	ClassActivity *ebpf.Map     `ebpf:"class_activity"`
}

// loadUplinkProgram loads the program that the kernel has all for, or else the one
// that needs less. Either has the same name in the kernel.
func loadUplinkProgram(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (objects loaded, err error) {
	for _, name := range []string{uplinkProgWeirUplink, uplinkProgWeirUplinkOld} {
		one := spec.Copy()
		program := one.Programs[name]
		program.Name = uplinkProgWeirUplink
		one.Programs = map[string]*ebpf.ProgramSpec{uplinkProgWeirUplink: program}
		err = load(one, &objects, maps)
		if err == nil || errors.Is(err, ebpf.ErrMapIncompatible) {
			break
		}
	}
	return objects, err
}

// ProbeDirect says whether this kernel lets the classifier see that nobody
// waits at the uplink, so that packets may go direct.
func ProbeDirect() error {
	spec, err := loadUplink()
	if err != nil {
		return err
	}
	delete(spec.Programs, uplinkProgWeirUplinkOld)
	var objects struct {
		Program *ebpf.Program `ebpf:"weir_uplink"`
	}
	if err := load(spec, &objects, nil); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	return objects.Program.Close()
}

// readDirect reads who may go direct, as an earlier agent left it.
func (u *Uplink) readDirect() error {
	all := make([]byte, numbers*activityBytes)
	if _, err := u.memory.ReadAt(all, 0); err != nil {
		return fmt.Errorf("read the uplink's counters: %w", err)
	}
	for number := range numbers {
		activity := all[number*activityBytes:][:activityBytes]
		may := binary.NativeEndian.Uint32(activity[mayGoDirectOffset:]) != 0
		if may || binary.NativeEndian.Uint64(activity[directBytesOffset:]) != 0 {
			u.direct = append(u.direct, sched.Direct{Number: uint16(number), May: may})
		}
	}
	return nil
}

// directPercent is the part of the link's rate up to which packets go direct.
const directPercent = 98

// SetDirect says who may go direct within bounds, in the order of numbers. Numbers
// that are not among them may not, and what they sent so is forgotten, for the next
// that gets the number. No system call is made while the bounds and how many containers
// there are stay the same. Budgets for control traffic are parts of what bounds say of it.
func (u *Uplink) SetDirect(bounds sched.Bounds, want []sched.Direct) error {
	if bounds != u.bounds {
		byteNS := 8e9 / (float64(bounds.RateBPS) * directPercent / 100) * (1 << uplinkWeirLinkWEIR_LINK_BYTE_SHIFT)
		err := errors.Join(
			u.globals.set(uplinkVarDirectMaxBytes, binary.NativeEndian.AppendUint32(nil, bounds.DirectBytes)),
			u.globals.set(uplinkVarLinkByteShiftedNs, binary.NativeEndian.AppendUint64(nil, uint64(math.Ceil(byteNS)))),
			u.globals.set(uplinkVarControlByteNs, binary.NativeEndian.AppendUint64(nil, byteTimeNS(bounds.ControlBPS))))
		if err != nil {
			return err
		}
		u.bounds = bounds
	}
	if err := u.setContainers(want); err != nil {
		return err
	}
	have, rest := u.direct, want
	for len(have) > 0 || len(rest) > 0 {
		var err error
		switch {
		case len(have) == 0 || len(rest) > 0 && rest[0].Number < have[0].Number:
			err = u.setDirect(rest[0])
			rest = rest[1:]
		case len(rest) == 0 || have[0].Number < rest[0].Number:
			err = errors.Join(
				u.setDirect(sched.Direct{Number: have[0].Number}),
				u.write(have[0].Number, directBytesOffset, make([]byte, 8)),
				u.write(have[0].Number, directPacketsOffset, make([]byte, 4)))
			have = have[1:]
		default:
			if rest[0] != have[0] {
				err = u.setDirect(rest[0])
			}
			have, rest = have[1:], rest[1:]
		}
		if err != nil {
			return err
		}
	}
	u.direct = append(u.direct[:0], want...)
	return nil
}

// byteTimeNS is how long a byte takes at a rate, rounded up; 0 for none.
func byteTimeNS(bps uint64) uint64 {
	if bps == 0 {
		return 0
	}
	return (8e9 + bps - 1) / bps
}

// setContainers tells among how many containers the budget for their control
// traffic is divided.
func (u *Uplink) setContainers(all []sched.Direct) error {
	var containers uint32
	for _, d := range all {
		if d.Number >= NumberFirst {
			containers++
		}
	}
	if containers == u.containers {
		return nil
	}
	err := u.globals.set(uplinkVarControlContainers, binary.NativeEndian.AppendUint32(nil, containers))
	if err == nil {
		u.containers = containers
	}
	return err
}

func (u *Uplink) setDirect(d sched.Direct) error {
	var may uint32
	if d.May {
		may = 1
	}
	return u.write(d.Number, mayGoDirectOffset, binary.NativeEndian.AppendUint32(nil, may))
}

// write writes into what the program keeps of a number.
func (u *Uplink) write(number uint16, offset int, bytes []byte) error {
	if _, err := u.memory.WriteAt(bytes, int64(int(number)*activityBytes+offset)); err != nil {
		return fmt.Errorf("tell the classifier who may go direct: %w", err)
	}
	return nil
}

// DirectSent is what a number has sent direct; the packets wrap. No system call is
// made.
func (u *Uplink) DirectSent(number uint16) (bytes uint64, packets uint32, err error) {
	var activity [activityBytes]byte
	if _, err := u.memory.ReadAt(activity[:], int64(int(number)*activityBytes)); err != nil {
		return 0, 0, fmt.Errorf("read the uplink's counters: %w", err)
	}
	return binary.NativeEndian.Uint64(activity[directBytesOffset:]),
		binary.NativeEndian.Uint32(activity[directPacketsOffset:]), nil
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
		activity := u.scratch[i*activityBytes:][:activityBytes]
		dst[i] = binary.NativeEndian.Uint64(activity[classedBytesOffset:]) +
			binary.NativeEndian.Uint64(activity[directBytesOffset:])
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
	u.published.entries.Close()
	u.fragments.entries.Close()
	u.globals.values.Close()
	u.classes.minors.Close()
	u.classes.activities.Close()
}

// UplinkAttached says whether a device has a classifier that sees all packets (one
// that programs of others come before may not), and packets have their priority back
// below it. OpenUplink puts it first again, and back what is missing.
func UplinkAttached(ifindex int) (bool, error) {
	program, first, err := kernel.Hook{Ifindex: ifindex, Egress: true}.FindPlace(uplinkProgWeirUplink)
	if err != nil || program == nil {
		return false, err
	}
	if err := program.Close(); err != nil || !first {
		return false, err
	}
	return belowAttached(ifindex)
}

// Followers names the programs and filters of others that see packets after the
// classifier of a device and may put them into another class; none if there is none.
func Followers(ifindex int) ([]string, error) {
	return kernel.Hook{Ifindex: ifindex, Egress: true}.After(uplinkProgWeirUplink, belowProgWeirBelow)
}

// DetachUplink removes the classifier from a device.
func DetachUplink(ifindex int) error {
	return errors.Join(detachBelow(ifindex), kernel.Hook{Ifindex: ifindex, Egress: true}.Detach(uplinkProgWeirUplink))
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
