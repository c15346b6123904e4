package kernel

import (
	"errors"
	"fmt"
	"maps"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// markPreference is the preference of Weir's filters by mark, after those that tools add.
const markPreference = 0x7e12

// markMatch is a u32 match on the first word of the IP header: version and DSCP field.
type markMatch struct{ value, mask uint32 }

func markMatches(dscp uint8) [2]markMatch {
	const v4Mask, v6Mask = 0xf0fc0000, 0xffc00000
	return [2]markMatch{{4<<28 | uint32(dscp)<<18, v4Mask}, {6<<28 | uint32(dscp)<<22, v6Mask}}
}

// SetMarks has a classful qdisc of a device put packets into the class of their DSCP field, if their
// priority names no class of it, and reports whether anything changed. Without classes it removes its
// filters. Filters of others stay, and those with a lower preference decide first.
func SetMarks(ifindex int, qdisc Handle, classes map[uint8]Handle) (changed bool, err error) {
	attrs := netlink.FilterAttrs{LinkIndex: ifindex, Parent: uint32(qdisc), Priority: markPreference, Protocol: unix.ETH_P_ALL}
	want := map[markMatch]uint32{}
	for dscp, class := range classes {
		for _, m := range markMatches(dscp) {
			want[m] = uint32(class)
		}
	}
	has, found, err := markFilters(attrs)
	if err != nil || maps.Equal(has, want) {
		return false, err
	}
	if found {
		if err := netlink.FilterDel(&netlink.U32{FilterAttrs: attrs}); err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("remove filters by mark from device %d: %w", ifindex, err)
		}
	}
	for m, class := range want {
		filter := &netlink.U32{FilterAttrs: attrs, ClassId: class, Sel: &netlink.TcU32Sel{
			Flags: netlink.TC_U32_TERMINAL, Nkeys: 1, Keys: []netlink.TcU32Key{{Mask: m.mask, Val: m.value}},
		}}
		if err := netlink.FilterAdd(filter); err != nil {
			return true, fmt.Errorf("add a filter by mark to device %d (is the module cls_u32 there?): %w", ifindex, err)
		}
	}
	return true, nil
}

// markFilters returns the classes by match of Weir's filters, and whether there are any.
func markFilters(attrs netlink.FilterAttrs) (has map[markMatch]uint32, found bool, err error) {
	device := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: attrs.LinkIndex}}
	list, err := consistently(func() ([]netlink.Filter, error) { return netlink.FilterList(device, attrs.Parent) })
	if err != nil {
		return nil, false, fmt.Errorf("list filters of device %d: %w", attrs.LinkIndex, err)
	}
	has = map[markMatch]uint32{}
	for _, f := range list {
		if f.Attrs().Priority != markPreference {
			continue
		}
		found = true
		if u, ok := f.(*netlink.U32); ok && u.ClassId != 0 && u.Sel != nil && len(u.Sel.Keys) == 1 {
			has[markMatch{u.Sel.Keys[0].Val, u.Sel.Keys[0].Mask}] = u.ClassId
		}
	}
	return has, found, nil
}
