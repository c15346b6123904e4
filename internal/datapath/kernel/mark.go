package kernel

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MarkKind is a field of a packet whose value is its mark.
type MarkKind uint32

// The kinds of marks; bpf/mark.bpf.c has the same numbers.
const (
	MarkDSCP   MarkKind = iota // the DSCP field of IPv4 or IPv6
	MarkPCP                    // the priority of the outermost VLAN tag
	MarkPacket                 // skb->mark
)

// Marks are the classes of packets by their mark. Without any class there is no filter.
type Marks struct {
	Kind MarkKind
	// Mask are the bits of skb->mark that hold the value.
	Mask uint32
	// Classes are the classes by value; 0: the qdisc's default.
	Classes [64]Handle
}

// markFilter are the preference of Weir's filter by mark, after those that tools add, and its handle.
// The filter's name tells its marks, its program whose it is.
const (
	markFilter  = 0x7e12
	markProgram = "weir_mark"
	// outdated stands for the name of a filter of another build, also one with filters of the kind u32.
	outdated = "outdated"
)

// The masks of u32 filters by the DSCP field of IPv4 and IPv6, which an earlier build made.
const markIPv4Mask, markIPv6Mask = 0xf0fc0000, 0xffc00000

// markSpec parses the program once: ports are checked every second.
var markSpec = sync.OnceValues(loadMark)

// name identifies the marks in the name of their filter; "" without any class.
func (m Marks) name() string {
	if m.Classes == [64]Handle{} {
		return ""
	}
	name := fmt.Sprintf("weir_mark:%d/%x", m.Kind, m.Mask)
	for value, class := range m.Classes {
		if class != 0 {
			name += fmt.Sprintf(",%x=%x", value, class.Minor())
		}
	}
	return name
}

// SetMarks has a classful qdisc of a device put packets into the class of their mark, if their priority
// names no class of it, and reports whether anything changed. Without classes it removes its filter.
// Filters of others stay, and those with a lower preference decide first. Error: another program has a
// filter in the place of Weir's.
func SetMarks(ifindex int, qdisc Handle, marks Marks) (changed bool, err error) {
	loaded, err := markSpec()
	if err != nil {
		return false, fmt.Errorf("load the program of marks: %w", err)
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex, Parent: uint32(qdisc), Handle: markFilter, Priority: markFilter, Protocol: unix.ETH_P_ALL},
		Name:        marks.name(),
	}
	has, old, foreign, err := findMarks(filter.FilterAttrs, loaded.Programs[markProgram])
	if err != nil || has == filter.Name {
		return false, err
	}
	if foreign != "" {
		return false, fmt.Errorf("device %d has a filter of another program (%s) where Weir's by mark goes: "+
			"remove it, or give it another preference than %d (tc filter show dev DEVICE parent %v)", ifindex, foreign, markFilter, qdisc)
	}
	if old != nil && (filter.Name == "" || old.Type() != filter.Type()) {
		if err := netlink.FilterDel(old); err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("remove the filter by mark from device %d: %w", ifindex, err)
		}
	}
	if filter.Name == "" {
		return true, nil
	}
	spec := loaded.Copy()
	for name, value := range map[string]any{
		"weir_by": marks.Kind, "weir_mask": marks.Mask, "weir_shift": uint32(bits.TrailingZeros32(marks.Mask | 1<<31)), "weir_classes": marks.Classes,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return false, fmt.Errorf("set %s of the program of marks: %w", name, err)
		}
	}
	var objects markObjects
	if err := spec.LoadAndAssign(&objects, nil); err != nil {
		return false, fmt.Errorf("load the program of marks: %w", err)
	}
	defer objects.Close()
	filter.Fd = objects.WeirMark.FD()
	if err := netlink.FilterReplace(filter); err != nil {
		return false, fmt.Errorf("add a filter by mark to device %d (is the module cls_bpf there?): %w", ifindex, err)
	}
	return true, nil
}

// findMarks returns Weir's filter by mark and its name, outdated if another build made it; nil and "" if
// there is none. foreign is what another program has at the preference of Weir's, where no filter of another
// kind may be, or at its handle, which a new one would replace.
func findMarks(attrs netlink.FilterAttrs, spec *ebpf.ProgramSpec) (name string, found netlink.Filter, foreign string, err error) {
	device := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: attrs.LinkIndex}}
	list, err := consistently(func() ([]netlink.Filter, error) { return netlink.FilterList(device, attrs.Parent) })
	if err != nil {
		return "", nil, "", fmt.Errorf("list filters of device %d: %w", attrs.LinkIndex, err)
	}
	for _, f := range list {
		if f.Attrs().Priority != attrs.Priority {
			continue
		}
		switch f := f.(type) {
		case *netlink.U32:
			if s := f.Sel; s != nil && len(s.Keys) == 1 && (s.Keys[0].Mask == markIPv4Mask || s.Keys[0].Mask == markIPv6Mask) {
				attrs.Handle = 0 // all of this preference
				return outdated, &netlink.U32{FilterAttrs: attrs}, "", nil
			}
			foreign = f.Type()
		case *netlink.BpfFilter:
			info, err := programInfo(ebpf.ProgramID(f.Id))
			switch {
			case err != nil:
				return "", nil, "", err
			case info == nil: // it has gone
			case info.Name != spec.Name:
				if f.Handle == attrs.Handle {
					foreign = info.Name
				}
			case spec.Compatible(info) != nil:
				return outdated, f, "", nil
			default:
				return f.Name, f, "", nil
			}
		default:
			foreign = f.Type()
		}
	}
	return "", nil, foreign, nil
}
