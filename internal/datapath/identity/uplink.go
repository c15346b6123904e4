// Package identity identifies the container of each packet. It owns the BPF programs and their
// maps.
//
// A container is a number here (see bpf/intf.h). A program at a tap, which all its packets pass
// (Inspector finds it), writes the number into each packet; in host mode the container's cgroup has
// the number. A program at the uplink turns the number into the scheduler's class, and counts the
// offered bytes. The programs belong to their devices: they keep working when the agent is dead,
// and a new agent finds them again (OpenUplink, TapNumber).
package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Numbers in the data path (bpf/intf.h explains them).
const (
	NumberHost    = uint16(uplinkWeirNumberWEIR_NUMBER_HOST)
	NumberControl = uint16(uplinkWeirNumberWEIR_NUMBER_CONTROL)
	NumberFirst   = uint16(uplinkWeirNumberWEIR_NUMBER_FIRST)
	NumberLast    = uint16(uplinkWeirNumberWEIR_NUMBER_LAST)
	numbers       = int(uplinkWeirNumberWEIR_NUMBERS)

	// NumberNone has no holder. OfferedBytes uses it for traffic from unknown namespaces (Origins).
	NumberNone = uint16(uplinkWeirNumberWEIR_NUMBER_NONE)
)

// The size of struct weir_activity, and the offsets of its fields.
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
	counters   counters
	direct     []sched.Direct
	bounds     sched.Bounds // as last set
	// containers is the number that share the budget for control traffic, as last set.
	containers uint32
	majors     sched.Majors
	// framesOf is the device whose frames it sees: itself, or the uplink that an IFB is for.
	framesOf  int
	crossings *ebpf.Map
	cgroups   cgroups
	published owners[uplinkWeirPublished, uint32]
	indexTags indexTags
	globals   globals
	classes   classes
	// applied are the settings of the last Apply.
	applied settings
	// carry are the programs for tunnels on top of the uplink, by kind.
	carry map[string]*ebpf.Program
	// flowMaps are the maps of the flows, by name; empty without flows.
	flowMaps map[string]*ebpf.Map
}

// counters are the activities in the agent's memory, with scratch space.
type counters struct {
	memory  *ebpf.Memory
	scratch []byte
}

// globals are the program variables that user space writes.
type globals struct {
	values  *ebpf.Map
	offsets map[string]uint32
	// wake is the map of wake_ns, which the program writes, too.
	wake *ebpf.Map
}

// set writes the variable called name, and all others of values again.
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

// setStamping sets whether packets get time stamps, for Delays.
func (u *Uplink) setStamping(on bool) error {
	var value uint32
	if on {
		value = 1
	}
	return u.globals.set(uplinkVarStamping, binary.NativeEndian.AppendUint32(nil, value))
}

// OpenUplink attaches the classifier to the device with index ifindex. It replaces an earlier
// classifier without any packet passing unclassified, and keeps its counters, cgroups and direct
// settings.
func OpenUplink(ifindex int, majors sched.Majors, origins *Origins) (*Uplink, error) {
	return openUplink(&Uplink{hook: kernel.Hook{Ifindex: ifindex, Egress: true}, majors: majors, framesOf: ifindex}, origins)
}

func openUplink(u *Uplink, origins *Origins) (*Uplink, error) {
	if err := u.attach(origins); err != nil {
		return nil, fmt.Errorf("classify at uplink: %w", err)
	}
	memory, err := u.activities.Memory()
	if err != nil {
		u.close()
		return nil, fmt.Errorf("map the uplink's counters: %w", err)
	}
	u.counters.memory = memory
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
	spec, err := readUplink()
	if err != nil {
		return err
	}
	adopted := origins.shared()
	if old != nil {
		defer old.Close()
		for _, name := range []string{uplinkMapActivities, uplinkMapCgroups, uplinkMapPublished, uplinkMapIndexFrom, uplinkMapMinors, uplinkMapClassActivity, uplinkMapCrossings} {
			m, err := mapOf(old, name)
			if err != nil {
				return err
			}
			if m == nil {
				continue
			}
			defer m.Close()
			if spec.Maps[name].Compatible(m) == nil { // a map of another version is replaced by a new map
				adopted[name] = m
			}
		}
	}
	if err := savePriority(spec, u.hook.Ifindex); err != nil {
		return err
	}
	device, err := kernel.LinkByIndex(u.framesOf)
	if err != nil {
		return fmt.Errorf("look up the uplink's device: %w", err)
	}
	if !device.Ethernet {
		if err := spec.Variables[uplinkVarLinkHeaderBytes].Set(uint32(0)); err != nil {
			return fmt.Errorf("set the size of link headers: %w", err)
		}
	}
	err = errors.Join(
		spec.Variables[uplinkVarIncoming].Set(flag(u.framesOf != u.hook.Ifindex)),
		spec.Variables[uplinkVarClassMajor].Set(uint32(u.majors.Classes)),
		spec.Variables[uplinkVarDirectMajor].Set(uint32(u.majors.Direct)))
	if err != nil {
		return fmt.Errorf("set the scheduler's majors: %w", err)
	}
	objects, err := loadUplinkProgram(spec, adopted)
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer objects.Program.Close()
	u.carry = map[string]*ebpf.Program{"vxlan": objects.Carry, "wireguard": objects.CarryHash}
	u.activities, u.crossings = objects.Activities, objects.Crossings
	if origins.flows != nil {
		u.flowMaps = origins.flows.shared()
	}
	u.classes = classes{minors: objects.Minors, activities: objects.ClassActivity}
	u.globals = globals{values: objects.Globals, wake: objects.Wake, offsets: map[string]uint32{
		uplinkVarControlByteNs:     spec.Variables[uplinkVarControlByteNs].Offset,
		uplinkVarControlContainers: spec.Variables[uplinkVarControlContainers].Offset,
		uplinkVarCgroupLevels:      spec.Variables[uplinkVarCgroupLevels].Offset,
		uplinkVarDirectMaxBytes:    spec.Variables[uplinkVarDirectMaxBytes].Offset,
		uplinkVarLinkByteShiftedNs: spec.Variables[uplinkVarLinkByteShiftedNs].Offset,
		uplinkVarNoteSenders:       spec.Variables[uplinkVarNoteSenders].Offset,
		uplinkVarOverheadBytes:     spec.Variables[uplinkVarOverheadBytes].Offset,
		uplinkVarPublishedPorts:    spec.Variables[uplinkVarPublishedPorts].Offset,
		uplinkVarStamping:          spec.Variables[uplinkVarStamping].Offset,
		uplinkVarUnknownByteNs:     spec.Variables[uplinkVarUnknownByteNs].Offset,
	}}
	u.cgroups = cgroups{entries: objects.Cgroups, setLevels: u.setCgroupLevels}
	u.published = newPublished(objects.Published)
	u.indexTags = indexTags{entries: objects.IndexFrom}
	// Before the program runs: it needs these from the first packet on.
	err = errors.Join(u.cgroups.read(), u.published.read(), u.indexTags.read())
	if err == nil {
		err = u.countPublished()
	}
	if err == nil {
		err = u.hook.Attach(objects.Program, old)
	}
	if err != nil {
		u.close()
	}
	return err
}

// loaded are the objects loaded for one uplink.
type loaded struct {
	Program       *ebpf.Program `ebpf:"weir_uplink"`
	Carry         *ebpf.Program `ebpf:"weir_carry"`
	CarryHash     *ebpf.Program `ebpf:"weir_carry_hash"`
	Activities    *ebpf.Map     `ebpf:"activities"`
	Cgroups       *ebpf.Map     `ebpf:"cgroups"`
	Published     *ebpf.Map     `ebpf:"published"`
	IndexFrom     *ebpf.Map     `ebpf:"index_from"`
	Globals       *ebpf.Map     `ebpf:".bss"`
	Wake          *ebpf.Map     `ebpf:".data.wake"`
	Minors        *ebpf.Map     `ebpf:"minors"`
	ClassActivity *ebpf.Map     `ebpf:"class_activity"`
	Crossings     *ebpf.Map     `ebpf:"crossings"`
}

// readUplink returns the classifier's objects, with a ring of wake-ups of one page, the least that the kernel takes.
func readUplink() (*ebpf.CollectionSpec, error) {
	spec, err := loadUplink()
	if err == nil {
		spec.Maps[uplinkMapWakeups].MaxEntries = uint32(os.Getpagesize())
		if strconv.IntSize == 32 {
			// What a kernel of 32 bits allocates for one entry begins 4 bytes after a multiple of 8, where a
			// 64-bit addition stops an ARMv7 kernel. All entries at once (1 MB) are aligned.
			spec.Maps[uplinkMapClassActivity].Flags &^= unix.BPF_F_NO_PREALLOC
		}
	}
	return spec, err
}

// loadUplinkProgram loads the full program, or else the one that needs fewer kernel features. Both
// have the same name in the kernel.
func loadUplinkProgram(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (objects loaded, err error) {
	for _, name := range []string{uplinkProgWeirUplink, uplinkProgWeirUplinkOld} {
		one := spec.Copy()
		program := one.Programs[name]
		program.Name = uplinkProgWeirUplink
		delete(one.Programs, uplinkProgWeirUplinkOld)
		one.Programs[uplinkProgWeirUplink] = program
		one.Programs[uplinkProgWeirCarryHash].Name = uplinkProgWeirCarry
		if err = load(one, &objects, maps); err == nil {
			break
		}
	}
	return objects, err
}

// probeUplink returns an error if this kernel can load no version of the classifier.
func probeUplink() error {
	spec, err := loadUplink()
	if err != nil {
		return err
	}
	objects, err := loadUplinkProgram(spec, nil)
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	return errors.Join(objects.Program.Close(), objects.Carry.Close(), objects.CarryHash.Close(), objects.Activities.Close(), objects.Cgroups.Close(), objects.Published.Close(),
		objects.IndexFrom.Close(), objects.Globals.Close(), objects.Wake.Close(), objects.Minors.Close(), objects.ClassActivity.Close(), objects.Crossings.Close())
}

// ProbeDirect returns an error if this kernel cannot show the classifier an empty queue, without
// which packets cannot go direct.
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

// readDirect reads the direct settings of an earlier agent.
func (u *Uplink) readDirect() error {
	all := make([]byte, numbers*activityBytes)
	if _, err := u.counters.memory.ReadAt(all, 0); err != nil {
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

// directPercent is the percentage of the link's rate up to which packets go direct.
const directPercent = 98

// SetDirect sets the containers whose packets may go direct within bounds, sorted by number. All
// other numbers may not, and their direct counters are cleared for the next holder. Budgets for
// control traffic are parts of the one in bounds. It makes no system call while the bounds and the
// number of containers stay the same.
func (u *Uplink) SetDirect(bounds sched.Bounds, want []sched.Direct) error {
	if bounds != u.bounds {
		byteNS := 8e9 / (float64(bounds.RateBPS) * directPercent / 100) * (1 << uplinkWeirLinkWEIR_LINK_BYTE_SHIFT)
		err := errors.Join(
			u.globals.set(uplinkVarDirectMaxBytes, binary.NativeEndian.AppendUint32(nil, bounds.DirectBytes)),
			u.globals.set(uplinkVarOverheadBytes, binary.NativeEndian.AppendUint32(nil, uint32(bounds.OverheadBytes))),
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

// byteTimeNS returns the time of one byte at a rate, in nanoseconds, rounded up; 0 for no rate.
func byteTimeNS(bps uint64) uint64 {
	if bps == 0 {
		return 0
	}
	return (8e9 + bps - 1) / bps
}

// setContainers sets the number of containers that divide the budget for control traffic.
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

// write writes bytes into the program's record of a number.
func (u *Uplink) write(number uint16, offset int, bytes []byte) error {
	if _, err := u.counters.memory.WriteAt(bytes, int64(int(number)*activityBytes+offset)); err != nil {
		return fmt.Errorf("set the containers that may go direct: %w", err)
	}
	return nil
}

// DirectSent returns the bytes and packets that a number has sent direct; packets wrap. It makes no
// system call.
func (u *Uplink) DirectSent(number uint16) (bytes uint64, packets uint32, err error) {
	var activity [activityBytes]byte
	if _, err := u.counters.memory.ReadAt(activity[:], int64(int(number)*activityBytes)); err != nil {
		return 0, 0, fmt.Errorf("read the uplink's counters: %w", err)
	}
	return binary.NativeEndian.Uint64(activity[directBytesOffset:]),
		binary.NativeEndian.Uint32(activity[directPacketsOffset:]), nil
}

// OfferedBytes fills dst, indexed by number, with the bytes that each container has handed to the
// uplink since the classifier was first attached, dropped packets and the overhead of SetDirect
// included. It makes no system call.
func (u *Uplink) OfferedBytes(dst []uint64) error {
	n := min(len(dst), numbers)
	if len(u.counters.scratch) < n*activityBytes {
		u.counters.scratch = make([]byte, n*activityBytes)
	}
	if _, err := u.counters.memory.ReadAt(u.counters.scratch[:n*activityBytes], 0); err != nil {
		return fmt.Errorf("read the uplink's counters: %w", err)
	}
	for i := range n {
		activity := u.counters.scratch[i*activityBytes:][:activityBytes]
		dst[i] = binary.NativeEndian.Uint64(activity[classedBytesOffset:]) +
			binary.NativeEndian.Uint64(activity[directBytesOffset:])
	}
	return nil
}

// Close closes the handles; the classifier keeps working.
func (u *Uplink) Close() error {
	u.close()
	return nil
}

func (u *Uplink) close() {
	for _, program := range u.carry {
		program.Close()
	}
	u.activities.Close()
	u.crossings.Close()
	u.cgroups.entries.Close()
	u.published.entries.Close()
	u.indexTags.entries.Close()
	u.globals.values.Close()
	u.globals.wake.Close()
	u.classes.minors.Close()
	u.classes.activities.Close()
}

// HasUplink reports whether a device has a classifier, working or not. Errors: kernel.ErrNoLink.
func HasUplink(ifindex int) (bool, error) {
	return kernel.Hook{Ifindex: ifindex, Egress: true}.Has(uplinkProgWeirUplink)
}

// UplinkAttached reports whether a device has a working classifier: it sees all packets (no program
// of others comes first), and the devices below restore priorities. OpenUplink repairs both.
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

// Followers returns the names of programs and filters of others that see packets after the device's
// classifier and may redirect them or change their class.
func Followers(ifindex int) ([]string, error) {
	others, err := kernel.Hook{Ifindex: ifindex, Egress: true}.After(uplinkProgWeirUplink, belowProgWeirBelow, clearProgWeirClear)
	return others.Diverting, err
}

// DetachUplink removes the classifier from a device.
func DetachUplink(ifindex int) error {
	return errors.Join(detachBelow(ifindex), kernel.Hook{Ifindex: ifindex, Egress: true}.Detach(uplinkProgWeirUplink))
}

// mapOf opens the map of a loaded program whose name ends in suffix, or returns nil.
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
