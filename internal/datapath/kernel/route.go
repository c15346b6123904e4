package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DefaultRoute is the route to the rest of the world.
type DefaultRoute struct {
	Link Link
	// Gateway is the next router; invalid on a link without one, such as PPP.
	Gateway netip.Addr
}

// ErrNoDefaultRoute: the host has no default route.
var ErrNoDefaultRoute = errors.New("no default route")

// FindDefaultRoute returns the default route of the main table that the kernel prefers: the lowest
// metric, IPv4 before IPv6. Errors: ErrNoDefaultRoute.
func FindDefaultRoute() (DefaultRoute, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		var found []netlink.Route
		filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}
		err := netlink.RouteListFilteredIter(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE, func(r netlink.Route) bool {
			bits := 0
			if r.Dst != nil {
				bits, _ = r.Dst.Mask.Size()
			}
			if bits == 0 {
				found = append(found, r)
			}
			return true
		})
		if err != nil {
			return DefaultRoute{}, fmt.Errorf("list routes: %w", err)
		}
		slices.SortStableFunc(found, func(a, b netlink.Route) int { return cmp.Compare(a.Priority, b.Priority) })
		for _, r := range found {
			index, gateway := r.LinkIndex, r.Gw
			if len(r.MultiPath) > 0 {
				index, gateway = r.MultiPath[0].LinkIndex, r.MultiPath[0].Gw
			}
			link, err := LinkByIndex(index)
			if errors.Is(err, ErrNoLink) || err == nil && link.Loopback {
				continue
			}
			if err != nil {
				return DefaultRoute{}, err
			}
			address, _ := netip.AddrFromSlice(gateway)
			return DefaultRoute{Link: link, Gateway: address.Unmap()}, nil
		}
	}
	return DefaultRoute{}, ErrNoDefaultRoute
}
