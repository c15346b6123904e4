package kernel

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Stacked is a device with a route whose packets leave through another device inside packets of the
// host: a tunnel, a VLAN, PPP.
type Stacked struct {
	Name string
	Kind string
	// On is the device through which its packets finally leave.
	On string
}

// StackedOn lists the devices of the current namespace that are stacked on the devices with these
// indexes and have a route. Devices among the indexes themselves are omitted. outside has the names of
// the devices by which packets of the preferred default routes that rules use leave past these indexes.
func StackedOn(uplinks []int) (stacked []Stacked, outside []string, err error) {
	list, err := consistently(listDevices)
	if err != nil {
		return nil, nil, fmt.Errorf("list network devices: %w", err)
	}
	routed, defaults, preferred, err := routedDevices()
	if err != nil {
		return nil, nil, err
	}
	links := make([]Link, len(list))
	under := map[int][]int{}
	for i, l := range list {
		links[i] = newLink(l)
		if carriers := carriersOf(l, links[i], defaults); len(carriers) > 0 {
			under[links[i].Index] = carriers
		}
	}
	addPPPoE(links, under)
	used, err := usedDefaults(preferred, links)
	if err != nil {
		return nil, nil, err
	}
	return stackedOn(uplinks, links, under, routed), defaultsOutside(uplinks, links, under, used), nil
}

// TunnelOverheadBytes is what a tunnel adds to a packet: WireGuard's header and tag over IPv6, and a link
// header; over IPv4 the rest is for its padding.
const TunnelOverheadBytes = 94

// IsTunnel reports whether the device sends its packets inside packets of the host.
func (l Link) IsTunnel() bool {
	return slices.Contains([]string{
		"wireguard", "tuntap", "gre", "gretap", "ip6gre", "ip6gretap", "erspan", "ip6erspan", "ipip", "ip6tnl", "sit",
		"vxlan", "geneve", "vti", "vti6", "xfrm", "gtp", "bareudp",
	}, l.Kind)
}

// defaultsOutside returns the names of those of the used default routes' devices that do not lead to an
// uplink: they are none, have none as a port, and are not stacked on one of these. For a device with an
// uplink as a port it names the other ports that lead to a network outside. Devices that send nothing
// are omitted.
func defaultsOutside(uplinks []int, links []Link, under map[int][]int, used []int) (names []string) {
	leads, visited := map[int]bool{}, map[int]bool{}
	for _, index := range uplinks {
		leads[index], visited[index] = true, true
	}
	for before := -1; before != len(leads); { // a bridge may be stacked on, a bond a port of it
		before = len(leads)
		for _, l := range links {
			if leads[l.Index] && l.MasterIndex != 0 {
				leads[l.MasterIndex] = true
			}
			by := slices.Concat(under[l.Index], sameSwitch(l, links))
			if slices.ContainsFunc(by, func(index int) bool { return leads[index] }) {
				leads[l.Index] = true
			}
		}
	}
	aside, next := map[int]bool{}, slices.Clone(used)
	for ; len(next) > 0; next = next[1:] {
		at := slices.IndexFunc(links, func(l Link) bool { return l.Index == next[0] })
		if at < 0 || visited[next[0]] {
			continue
		}
		visited[next[0]] = true
		if !leads[next[0]] {
			aside[next[0]] = true
			continue
		}
		for _, index := range under[next[0]] {
			if leads[index] { // a tunnel takes one of them
				next = append(next, index)
			}
		}
		for _, lower := range exits(links[at], links) {
			next = append(next, lower.Index)
		}
	}
	for _, l := range links {
		if aside[l.Index] && !l.Loopback && !l.Down {
			names = append(names, l.Name)
		}
	}
	return names
}

// stackedOn computes StackedOn. under holds the indexes of the devices that each link passes its
// packets to; routed holds the devices with a route.
func stackedOn(uplinks []int, links []Link, under map[int][]int, routed map[int]bool) []Stacked {
	names := map[int]string{}
	on := map[int]int{}
	for _, l := range links {
		names[l.Index] = l.Name
	}
	for _, index := range uplinks {
		on[index] = index
	}
	for found := true; found; { // a tunnel may be on a VLAN on the uplink
		found = false
		for _, l := range links {
			if _, known := on[l.Index]; known {
				continue
			}
			for _, index := range under[l.Index] {
				if uplink, known := on[index]; known {
					on[l.Index], found = uplink, true
					break
				}
			}
		}
	}
	var stacked []Stacked
	for _, l := range links {
		uplink, is := on[l.Index]
		if is && l.Up && routed[l.Index] && !slices.Contains(uplinks, l.Index) {
			stacked = append(stacked, Stacked{Name: l.Name, Kind: l.Kind, On: names[uplink]})
		}
	}
	return stacked
}

// carriersOf returns the devices that l may pass its packets to. For a tunnel these lead to its far
// end or, if that is unknown, are those of the default routes.
func carriersOf(l netlink.Link, link Link, defaults []int) []int {
	var remote net.IP
	switch tunnel := l.(type) {
	case *netlink.Vxlan:
		remote = tunnel.Group
	case *netlink.Geneve:
		remote = tunnel.Remote
	case *netlink.Gretap:
		remote = tunnel.Remote
	case *netlink.Gretun:
		remote = tunnel.Remote
	case *netlink.Iptun:
		remote = tunnel.Remote
	case *netlink.Ip6tnl:
		remote = tunnel.Remote
	case *netlink.Sittun:
		remote = tunnel.Remote
	case *netlink.Vti:
		remote = tunnel.Remote
	default:
		switch link.Kind {
		case "wireguard", "tuntap", "ip6gre", "ip6gretap", "erspan", "ip6erspan", "xfrm":
		case "veth":
			return nil // its other end gets the packets and is examined itself
		default:
			if link.PeerIndex != 0 && link.PeerNetNSID == SameNetNS {
				return []int{link.PeerIndex}
			}
			return nil
		}
	}
	if link.PeerIndex != 0 && link.PeerNetNSID == SameNetNS {
		return []int{link.PeerIndex}
	}
	if len(remote) > 0 && !remote.IsUnspecified() {
		if routes, err := netlink.RouteGet(remote); err == nil && len(routes) > 0 {
			return []int{routes[0].LinkIndex}
		}
	}
	return slices.DeleteFunc(slices.Clone(defaults), func(index int) bool { return index == link.Index })
}

// routedDevices returns the devices of all routes, except link-local and multicast routes, the
// devices of default routes in the main table and, by table, those of the preferred ones.
func routedDevices() (routed map[int]bool, defaults []int, preferred map[table]preference, err error) {
	routed, preferred = map[int]bool{}, map[table]preference{}
	err = visitRoutes(netlink.FAMILY_ALL, unix.RT_TABLE_UNSPEC, func(r netlink.Route) {
		if r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast()) {
			return
		}
		hops := []int{r.LinkIndex}
		for _, hop := range r.MultiPath {
			hops = append(hops, hop.LinkIndex)
		}
		if isDefault(r) {
			of := table{r.Family, r.Table}
			best, known := preferred[of]
			if !known || r.Priority < best.metric {
				best = preference{metric: r.Priority}
			}
			if r.Priority == best.metric {
				best.devices = append(best.devices, hops...)
			}
			preferred[of] = best
		}
		for _, index := range hops {
			routed[index] = true
			if isDefault(r) && r.Table == unix.RT_TABLE_MAIN && !slices.Contains(defaults, index) {
				defaults = append(defaults, index)
			}
		}
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return routed, defaults, preferred, nil
}

// addPPPoE adds to under the devices of PPPoE sessions, for all PPP devices: the kernel does not
// tell which session belongs to which device.
func addPPPoE(links []Link, under map[int][]int) {
	sessions, err := os.ReadFile("/proc/thread-self/net/pppoe")
	if err != nil {
		return // the kernel has no PPPoE
	}
	var carriers []int
	for _, name := range pppoeDevices(string(sessions)) {
		if at := slices.IndexFunc(links, func(l Link) bool { return l.Name == name }); at >= 0 {
			carriers = append(carriers, links[at].Index)
		}
	}
	for _, l := range links {
		if l.Kind == "ppp" || strings.HasPrefix(l.Name, "ppp") {
			under[l.Index] = carriers
		}
	}
}

// pppoeDevices returns the devices in the kernel's list of sessions, which has the columns Id,
// Address and Device below a heading.
func pppoeDevices(sessions string) []string {
	var devices []string
	for i, line := range strings.Split(sessions, "\n") {
		if fields := strings.Fields(line); i > 0 && len(fields) == 3 {
			devices = append(devices, fields[2])
		}
	}
	return devices
}
