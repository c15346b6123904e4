package core

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Routes are the gateways and static routes of IPv4 and IPv6.
type Routes struct {
	gateways []netip.Prefix // gateway addresses with their prefix lengths
	static   []Route        // longest prefix first
}

// Route is a static route: packets to a network go through a router in a gateway's network.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// linkLocal is the second address of every IPv6 gateway, derived from gatewayMAC (RFC 4291,
// appendix A).
var linkLocal = netip.MustParsePrefix("fe80::57:65ff:fe69:7200/64")

// NewRoutes validates gateways and static routes. A gateway is the router address of a
// network, with the network's prefix length.
func NewRoutes(gateways []netip.Prefix, static []Route) (*Routes, error) {
	r := &Routes{gateways: slices.Clone(gateways), static: slices.Clone(static)}
	for i, g := range gateways {
		if err := checkGateway(g); err != nil {
			return nil, fmt.Errorf("gateway %v: %w", g, err)
		}
		for _, other := range gateways[:i] {
			if g.Overlaps(other) {
				return nil, fmt.Errorf("gateway %v: its network overlaps with that of %v: every network has one gateway", g, other)
			}
		}
	}
	if slices.ContainsFunc(gateways, func(g netip.Prefix) bool { return g.Addr().Is6() }) {
		r.gateways = append(r.gateways, linkLocal)
	}
	for i, s := range r.static {
		g, ok := r.gatewayOf(s.Via)
		switch {
		case !s.To.IsValid() || s.To.Addr().Is4In6() || s.To.Addr().IsMulticast() || s.To != s.To.Masked():
			return nil, fmt.Errorf("route %v: want a network such as 203.0.113.0/24 or 2001:db8:9::/48", s.To)
		case s.To.Addr().Is4() != s.Via.Is4():
			return nil, fmt.Errorf("route %v: %v is not of the same version of IP", s.To, s.Via)
		case !ok:
			return nil, fmt.Errorf("route %v: %v is in the network of no gateway", s.To, s.Via)
		case g.Addr() == s.Via:
			return nil, fmt.Errorf("route %v: %v is the gateway itself", s.To, s.Via)
		case slices.ContainsFunc(r.static[:i], func(o Route) bool { return o.To == s.To }):
			return nil, fmt.Errorf("route %v is given twice", s.To)
		}
	}
	slices.SortStableFunc(r.static, func(a, b Route) int { return b.To.Bits() - a.To.Bits() })
	return r, nil
}

func checkGateway(g netip.Prefix) error {
	a := g.Addr()
	switch {
	case a.IsLinkLocalUnicast() && a.Is6():
		return fmt.Errorf("want an address of the hosts' network, such as 2001:db8:1::1/64: every gateway has %v beside it", linkLocal.Addr())
	case !g.IsValid() || a.Is4In6() || a.IsMulticast() || a.IsUnspecified() || a.IsLoopback():
		return errors.New("want an address with its network's length, such as 198.18.1.1/24 or 2001:db8:1::1/64")
	case a.BitLen()-g.Bits() < 2:
		return errors.New("a network of this length has no room for hosts")
	case a == g.Masked().Addr() || a.Is4() && !g.Contains(a.Next()):
		return errors.New("this is the address of the network or its broadcast, not a host's")
	}
	return nil
}

// gatewayOf returns the gateway of an address's network.
func (r *Routes) gatewayOf(a netip.Addr) (netip.Prefix, bool) {
	for _, g := range r.gateways {
		if g.Contains(a) {
			return g, true
		}
	}
	return netip.Prefix{}, false
}

// isGateway reports whether an address belongs to a gateway.
func (r *Routes) isGateway(a netip.Addr) bool {
	g, ok := r.gatewayOf(a)
	return ok && g.Addr() == a
}

// speaker returns the source address for a gateway's packets to a station: the gateway of
// the station's network or, for a station behind a router, any of the same IP version.
func (r *Routes) speaker(to netip.Addr) (netip.Addr, bool) {
	if g, near := r.gatewayOf(to); near {
		return g.Addr(), true
	}
	if !slices.ContainsFunc(r.static, func(s Route) bool { return s.To.Addr().Is4() == to.Is4() }) {
		return netip.Addr{}, false
	}
	i := slices.IndexFunc(r.gateways, func(g netip.Prefix) bool { return g.Addr().Is4() == to.Is4() })
	return r.gateways[i].Addr(), true
}

// nextHop returns the next hop of a packet by longest prefix match.
func (r *Routes) nextHop(to netip.Addr) (netip.Addr, bool) {
	g, connected := r.gatewayOf(to)
	for _, s := range r.static {
		if s.To.Contains(to) && !(connected && g.Bits() >= s.To.Bits()) {
			return s.Via, true
		}
	}
	return to, connected
}
