package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net"
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

// table is a routing table of a family.
type table struct{ family, id int }

// preference is the lowest metric of a table's default routes, and the devices with it.
type preference struct {
	metric  int
	devices []int
}

// usedDefaults returns the devices of the preferred default routes that the policy-routing rules of
// the current namespace apply to forwarded packets. links lists its devices.
func usedDefaults(preferred map[table]preference, links []Link) ([]int, error) {
	rules, err := consistently(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("list routing rules: %w", err)
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if !slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Family == family }) {
			// The kernel has no rules for this family (CONFIG_IP_MULTIPLE_TABLES).
			rules = append(rules, plainRule(netlink.Rule{Family: family, Table: unix.RT_TABLE_MAIN}))
		}
	}
	var addresses []netlink.Addr
	if slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Src != nil }) {
		addresses, err = consistently(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
	}
	return defaultsOfRules(rules, preferred, links, addresses), nil
}

// defaultsOfRules computes usedDefaults. rules are in the order in which the kernel applies them.
func defaultsOfRules(rules []netlink.Rule, preferred map[table]preference, links []Link, addresses []netlink.Addr) (devices []int) {
	decided := map[int]bool{} // by family
	for _, rule := range rules {
		best, has := preferred[table{rule.Family, rule.Table}]
		if !has || decided[rule.Family] || rule.SuppressPrefixlen >= 0 || sparesContainers(rule, best.devices, links, addresses) {
			continue
		}
		devices = append(devices, best.devices...)
		if rule.Invert && rule.Mark != 0 { // all but one mark, which is that of a tunnel's own packets
			rule.Invert, rule.Mark, rule.Mask = false, 0, nil
		}
		decided[rule.Family] = rule == plainRule(rule)
	}
	return devices
}

// plainRule returns a rule for the same table that applies to all packets.
func plainRule(rule netlink.Rule) netlink.Rule {
	plain := *netlink.NewRule()
	plain.Priority, plain.Family, plain.Table, plain.Protocol = rule.Priority, rule.Family, rule.Table, rule.Protocol
	return plain
}

// sparesContainers reports whether a rule leaves the default route of containers' packets as it is. It
// is for some destinations, as a route to these would be; for sockets bound to a device; for packets
// that come in from a network outside; or for answers of the addresses of the devices that its own
// default route leads through, as hosts with several cards have it.
func sparesContainers(rule netlink.Rule, devices []int, links []Link, addresses []netlink.Addr) bool {
	switch {
	case rule.Invert:
		return false
	case rule.Dst != nil, rule.OifName != "":
		return true
	case rule.IifName != "":
		return slices.ContainsFunc(links, func(l Link) bool { return l.Name == rule.IifName && l.Outward() && !l.Loopback })
	case rule.Src == nil:
		return false
	}
	return slices.ContainsFunc(addresses, func(a netlink.Addr) bool {
		within, _ := a.Mask.Size()
		bits, _ := rule.Src.Mask.Size()
		return slices.Contains(devices, a.LinkIndex) && a.Contains(rule.Src.IP) && bits >= within
	})
}

// probes are addresses that a route to the rest of the world leads to. The first of a family is of no host
// (RFC 5737, RFC 3849), which hardened hosts have no route to; the second is of a root name server. Nothing
// is sent there.
var probes = [...]net.IP{
	net.IPv4(203, 0, 113, 1), net.IPv4(198, 41, 0, 4),
	net.ParseIP("2001:db8::1"), net.ParseIP("2001:503:ba3e::2:30"),
}

// DefaultLink returns the device through which unmarked packets leave for the rest of the world by all
// rules and tables, IPv4 before IPv6. It asks for single routes, as a list may have a million. Errors:
// ErrNoLink.
func DefaultLink() (Link, error) {
	for _, probe := range probes {
		routes, err := netlink.RouteGet(probe)
		if err != nil || len(routes) == 0 {
			continue // unreachable
		}
		if link, err := LinkByIndex(routes[0].LinkIndex); !errors.Is(err, ErrNoLink) && !link.Loopback {
			return link, err
		}
	}
	return Link{}, ErrNoLink
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
