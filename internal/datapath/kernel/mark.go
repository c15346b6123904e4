package kernel

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

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

// markFilter are the preference of Weir's filter by mark, after those that tools add, and its handle;
// markName begins its name.
const (
	markFilter = 0x7e12
	markName   = "weir_mark:"
)

// name identifies the marks in the name of their filter.
func (m Marks) name() string {
	name := fmt.Sprintf("%s%d/%x", markName, m.Kind, m.Mask)
	for value, class := range m.Classes {
		if class != 0 {
			name += fmt.Sprintf(",%x=%x", value, class.Minor())
		}
	}
	return name
}

// SetMarks has a classful qdisc of a device put packets into the class of their mark, if their priority
// names no class of it, and reports whether anything changed. Without classes it removes its filter.
// Filters of others stay, and those with a lower preference decide first.
func SetMarks(ifindex int, qdisc Handle, marks Marks) (changed bool, err error) {
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex, Parent: uint32(qdisc), Handle: markFilter, Priority: markFilter, Protocol: unix.ETH_P_ALL},
		Name:        marks.name(),
	}
	has, err := markFilterName(filter.FilterAttrs)
	switch {
	case err != nil || has == filter.Name || has == "" && marks.Classes == [64]Handle{}:
		return false, err
	case marks.Classes == [64]Handle{}:
		if err := netlink.FilterDel(filter); err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("remove the filter by mark from device %d: %w", ifindex, err)
		}
		return true, nil
	}
	spec, err := loadMark()
	if err != nil {
		return false, fmt.Errorf("load the program of marks: %w", err)
	}
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

// markFilterName returns the name of Weir's filter by mark, or "".
func markFilterName(attrs netlink.FilterAttrs) (string, error) {
	device := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: attrs.LinkIndex}}
	list, err := consistently(func() ([]netlink.Filter, error) { return netlink.FilterList(device, attrs.Parent) })
	if err != nil {
		return "", fmt.Errorf("list filters of device %d: %w", attrs.LinkIndex, err)
	}
	for _, f := range list {
		if b, ok := f.(*netlink.BpfFilter); ok && f.Attrs().Priority == attrs.Priority && strings.HasPrefix(b.Name, markName) {
			return b.Name, nil
		}
	}
	return "", nil
}
