package core

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Routes are the IPv4 networks between which packets are routed.
type Routes struct {
	gateways []netip.Prefix // the gateway's address with its network's length
	static   []Route        // longest prefix first
}

// Route sends what goes to a network to a router of another.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// NewRoutes checks what an operator wrote. A gateway is the address by which the
// stations of a network reach others, with the network's length.
func NewRoutes(gateways []netip.Prefix, static []Route) (*Routes, error) {
	r := &Routes{gateways: gateways, static: slices.Clone(static)}
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
	for i, s := range r.static {
		g, ok := r.gatewayOf(s.Via)
		switch {
		case !s.To.IsValid() || !s.To.Addr().Is4() || s.To != s.To.Masked():
			return nil, fmt.Errorf("route %v: want an IPv4 network such as 203.0.113.0/24", s.To)
		case !ok:
			return nil, fmt.Errorf("route %v: %v is in the network of no gateway", s.To, s.Via)
		case g.Addr() == s.Via:
			return nil, fmt.Errorf("route %v: %v is the gateway itself", s.To, s.Via)
		case slices.ContainsFunc(r.static[:i], func(o Route) bool { return o.To == s.To }):
			return nil, fmt.Errorf("route %v is there twice", s.To)
		}
	}
	slices.SortStableFunc(r.static, func(a, b Route) int { return b.To.Bits() - a.To.Bits() })
	return r, nil
}

func checkGateway(g netip.Prefix) error {
	if !g.IsValid() || !g.Addr().Is4() || g.Addr().IsMulticast() || g.Addr().IsUnspecified() {
		return errors.New("want an IPv4 address with its network's length, such as 198.18.1.1/24")
	}
	if g.Bits() > 30 {
		return errors.New("a network of this length has no room for stations")
	}
	if g.Addr() == g.Masked().Addr() || !g.Contains(g.Addr().Next()) {
		return errors.New("this is the address of the network or its broadcast, not a station's")
	}
	return nil
}

// gatewayOf is the gateway of the network that an address is in.
func (r *Routes) gatewayOf(a netip.Addr) (netip.Prefix, bool) {
	for _, g := range r.gateways {
		if g.Contains(a) {
			return g, true
		}
	}
	return netip.Prefix{}, false
}

// isGateway tells whether an address is one of a gateway's.
func (r *Routes) isGateway(a netip.Addr) bool {
	g, ok := r.gatewayOf(a)
	return ok && g.Addr() == a
}

// nextHop is the station that a packet goes to next, by the longest prefix.
func (r *Routes) nextHop(to netip.Addr) (netip.Addr, bool) {
	g, connected := r.gatewayOf(to)
	for _, s := range r.static {
		if s.To.Contains(to) && !(connected && g.Bits() >= s.To.Bits()) {
			return s.Via, true
		}
	}
	return to, connected
}
