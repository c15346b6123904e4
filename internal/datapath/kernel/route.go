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

// visitRoutes calls visit for each unicast route of a table, or of all (RT_TABLE_UNSPEC). Routes may
// be visited again if they change meanwhile. There may be a million, so it keeps none.
func visitRoutes(family, table int, visit func(netlink.Route)) error {
	filter := &netlink.Route{Table: table, Type: unix.RTN_UNICAST}
	_, err := consistently(func() (struct{}, error) {
		return struct{}{}, netlink.RouteListFilteredIter(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE, func(r netlink.Route) bool {
			visit(r)
			return true
		})
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	return nil
}

// isDefault reports whether a route has all addresses as its destination.
func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	bits, _ := r.Dst.Mask.Size()
	return bits == 0
}

// ErrNoDefaultRoute: the host has no default route.
var ErrNoDefaultRoute = errors.New("no default route")

// FindDefaultRoute returns the default route of the main table that the kernel prefers: the lowest
// metric, IPv4 before IPv6. Errors: ErrNoDefaultRoute.
func FindDefaultRoute() (DefaultRoute, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		var found []netlink.Route
		err := visitRoutes(family, unix.RT_TABLE_MAIN, func(r netlink.Route) {
			if isDefault(r) {
				found = append(found, r)
			}
		})
		if err != nil {
			return DefaultRoute{}, err
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
