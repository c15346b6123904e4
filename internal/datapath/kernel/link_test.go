package kernel

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

// A list that changes while the kernel tells it is asked for again, but not for ever.
func TestInterruptedList(t *testing.T) {
	for _, tc := range []struct {
		interruptions, asks int
		err                 error
	}{{0, 1, nil}, {3, 4, nil}, {dumpAttempts, dumpAttempts, netlink.ErrDumpInterrupted}} {
		asks := 0
		links, err := listLinks(func() ([]netlink.Link, error) {
			if asks++; asks <= tc.interruptions {
				return nil, netlink.ErrDumpInterrupted
			}
			return []netlink.Link{&netlink.Dummy{}}, nil
		})
		if asks != tc.asks || !errors.Is(err, tc.err) || (len(links) == 1) != (err == nil) {
			t.Errorf("%d interruptions: asked %d times, %v, %v", tc.interruptions, asks, links, err)
		}
	}
}

func TestBelow(t *testing.T) {
	const elsewhere = 3
	links := []Link{
		{Index: 1, Name: "lo", Kind: "device", PeerNetNSID: SameNetNS},
		{Index: 2, Name: "eth0", Kind: "device", PeerNetNSID: SameNetNS, MasterIndex: 5},
		{Index: 3, Name: "eth1", Kind: "device", PeerNetNSID: SameNetNS, MasterIndex: 5},
		{Index: 4, Name: "eth0.7", Kind: "vlan", PeerIndex: 2, PeerNetNSID: SameNetNS, MasterIndex: 8},
		{Index: 5, Name: "bond0", Kind: "bond", PeerNetNSID: SameNetNS},
		{Index: 6, Name: "veth", Kind: "veth", PeerIndex: 2, PeerNetNSID: SameNetNS},
		{Index: 7, Name: "mv", Kind: "macvlan", PeerIndex: 2, PeerNetNSID: elsewhere},
		{Index: 8, Name: "br0", Kind: "bridge", PeerNetNSID: SameNetNS},
	}
	for name, want := range map[string][]string{
		"eth0.7": {"eth0"},
		"bond0":  {"eth0", "eth1"},
		"eth0":   nil,
		"veth":   nil, // its other end gets packets, not what is below
		"mv":     nil, // out of reach
		"br0":    nil, // its ports are of all kinds
	} {
		at := slices.IndexFunc(links, func(l Link) bool { return l.Name == name })
		var got []string
		for _, l := range below(links[at], links) {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("below %s are %v, want %v", name, got, want)
		}
	}
}

func TestAllBelow(t *testing.T) {
	links := []Link{
		{Index: 2, Name: "eth0", Kind: "device", MasterIndex: 4},
		{Index: 3, Name: "eth1", Kind: "device", MasterIndex: 4},
		{Index: 4, Name: "bond0", Kind: "bond"},
		{Index: 5, Name: "bond0.7", Kind: "vlan", PeerIndex: 4, PeerNetNSID: SameNetNS, MasterIndex: 8},
		{Index: 6, Name: "eth2", Kind: "device", MasterIndex: 8},
		{Index: 7, Name: "veth", Kind: "veth", MasterIndex: 8},
		{Index: 8, Name: "br0", Kind: "bridge"},
		{Index: 9, Name: "br0.9", Kind: "vlan", PeerIndex: 8, PeerNetNSID: SameNetNS},
		{Index: 10, Name: "ovs-system", Kind: "openvswitch"},
		{Index: 11, Name: "ovs0", Kind: "openvswitch"},
		{Index: 12, Name: "eth3", Kind: "device", MasterIndex: 10},
		{Index: 13, Name: "vnet0", Kind: "tuntap", MasterIndex: 10},
	}
	for name, want := range map[string][]string{
		"bond0.7": {"bond0", "eth0", "eth1"},
		"br0":     {"bond0.7", "eth2", "bond0", "eth0", "eth1"},
		"br0.9":   {"br0", "bond0.7", "eth2", "bond0", "eth0", "eth1"},
		"ovs0":    {"eth3"},
		"eth2":    nil, // its bridge is above
		"veth":    nil,
	} {
		at := slices.IndexFunc(links, func(l Link) bool { return l.Name == name })
		var got []string
		for _, l := range allBelow(links[at], links) {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("below %s are %v, want %v", name, got, want)
		}
	}
}

// TestEntrances: VLANs on a bridge, and internal ports of Open vSwitch, are ways into the host as well.
func TestEntrances(t *testing.T) {
	links := []Link{
		{Index: 2, Name: "br0.7.8", Kind: "vlan", PeerIndex: 5, PeerNetNSID: SameNetNS}, // before what it is on
		{Index: 3, Name: "br0", Kind: "bridge", PeerNetNSID: SameNetNS},
		{Index: 4, Name: "br1", Kind: "bridge", PeerNetNSID: SameNetNS},
		{Index: 5, Name: "br0.7", Kind: "vlan", PeerIndex: 3, PeerNetNSID: SameNetNS},
		{Index: 6, Name: "br1.7", Kind: "vlan", PeerIndex: 4, PeerNetNSID: SameNetNS},
		{Index: 7, Name: "moved", Kind: "vlan", PeerIndex: 3, PeerNetNSID: 1},
		{Index: 8, Name: "macvlan", Kind: "macvlan", PeerIndex: 3, PeerNetNSID: SameNetNS},
		{Index: 9, Name: "red", Kind: "vrf", PeerNetNSID: SameNetNS},
		{Index: 10, Name: "br-ex", Kind: openVSwitch, PeerNetNSID: SameNetNS},
		{Index: 11, Name: "ovs-system", Kind: openVSwitch, PeerNetNSID: SameNetNS},
		{Index: 12, Name: "br-ex.7", Kind: "vlan", PeerIndex: 10, PeerNetNSID: SameNetNS},
	}
	for bridge, want := range map[int][]string{3: {"br0", "br0.7", "br0.7.8"}, 9: {"red"}, 11: {"ovs-system", "br-ex", "br-ex.7"}, 99: nil} {
		var got []string
		for _, l := range entrances(bridge, links) {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of bridge %d: %v, want %v", bridge, got, want)
		}
	}
}

// TestAllAbove: frames that a port receives may be for its bridge, and for VLANs and macvlans on either.
func TestAllAbove(t *testing.T) {
	links := []Link{
		{Index: 2, Name: "eth0", Kind: "device", MasterIndex: 5, PeerNetNSID: SameNetNS},
		{Index: 3, Name: "vrrp.1", Kind: "macvlan", PeerIndex: 4, PeerNetNSID: SameNetNS}, // before what it is on
		{Index: 4, Name: "br0.7", Kind: "vlan", PeerIndex: 5, PeerNetNSID: SameNetNS},
		{Index: 5, Name: "br0", Kind: "bridge", PeerNetNSID: SameNetNS},
		{Index: 6, Name: "veth1", Kind: "veth", MasterIndex: 5, PeerIndex: 2, PeerNetNSID: 1},
		{Index: 7, Name: "moved", Kind: "vlan", PeerIndex: 2, PeerNetNSID: 1},
		{Index: 8, Name: "eth1", Kind: "device", MasterIndex: 10, PeerNetNSID: SameNetNS},
		{Index: 9, Name: "br-ex", Kind: openVSwitch, PeerNetNSID: SameNetNS},
		{Index: 10, Name: "ovs-system", Kind: openVSwitch, PeerNetNSID: SameNetNS},
		{Index: 11, Name: "docker0", Kind: "bridge", PeerNetNSID: SameNetNS},
		{Index: 12, Name: "macvtap0", Kind: "macvtap", PeerIndex: 13, PeerNetNSID: SameNetNS}, // a virtual machine's
		{Index: 13, Name: "eth2", Kind: "device", PeerNetNSID: SameNetNS},
		{Index: 14, Name: "ipvtap0", Kind: "ipvtap", PeerIndex: 13, PeerNetNSID: SameNetNS},
	}
	for name, tc := range map[string]struct {
		indexes []int
		want    []string
	}{
		"a port":   {[]int{2}, []string{"br0", "br0.7", "vrrp.1"}},
		"a switch": {[]int{8}, []string{"br-ex", "ovs-system"}},
		"both":     {[]int{2, 8}, []string{"br-ex", "br0", "br0.7", "ovs-system", "vrrp.1"}},
		"no port":  {[]int{11}, nil},
		"taps":     {[]int{13}, nil},
		"none":     {nil, nil},
	} {
		var got []string
		for _, l := range AllAbove(tc.indexes, links) {
			got = append(got, l.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("above %s are %v, want %v", name, got, tc.want)
		}
	}
}

// TestUntaggedAbove: of a bond and its bridge with one MAC the bridge takes frames, of VLANs and ipvlans none does.
func TestUntaggedAbove(t *testing.T) {
	links := []Link{
		{Index: 2, Name: "eth0", Kind: "device", MasterIndex: 6, Ethernet: true, MAC: [6]byte{2, 1}, PeerNetNSID: SameNetNS},
		{Index: 3, Name: "vrrp.1", Kind: "macvlan", PeerIndex: 5, Ethernet: true, MAC: [6]byte{2, 2}, PeerNetNSID: SameNetNS},
		{Index: 4, Name: "br0.7", Kind: "vlan", PeerIndex: 5, Ethernet: true, MAC: [6]byte{2, 3}, PeerNetNSID: SameNetNS},
		{Index: 5, Name: "br0", Kind: "bridge", Ethernet: true, MAC: [6]byte{2, 1}, PeerNetNSID: SameNetNS},
		{Index: 6, Name: "bond0", Kind: "bond", MasterIndex: 5, Ethernet: true, MAC: [6]byte{2, 1}, PeerNetNSID: SameNetNS},
		{Index: 7, Name: "eth1", Kind: "device", Ethernet: true, MAC: [6]byte{2, 4}, PeerNetNSID: SameNetNS},
		{Index: 8, Name: "eth1.7", Kind: "vlan", PeerIndex: 7, MasterIndex: 9, Ethernet: true, MAC: [6]byte{2, 4}, PeerNetNSID: SameNetNS},
		{Index: 9, Name: "br7", Kind: "bridge", Ethernet: true, MAC: [6]byte{2, 4}, PeerNetNSID: SameNetNS},
		{Index: 10, Name: "shim", Kind: "ipvlan", PeerIndex: 7, Ethernet: true, MAC: [6]byte{2, 4}, PeerNetNSID: SameNetNS},
	}
	for index, want := range map[int]map[[6]byte]int{
		2: {{2, 1}: 5, {2, 2}: 3}, 7: {}, 8: {{2, 4}: 9},
	} {
		if got := UntaggedAbove(index, links); !maps.Equal(got, want) {
			t.Errorf("above %d are %v, want %v", index, got, want)
		}
	}
}

// TestMasters: what a port sends may have passed its bridge, and for Open vSwitch an internal port.
func TestMasters(t *testing.T) {
	links := []Link{
		{Index: 2, Name: "eth0", Kind: "device", MasterIndex: 4}, {Index: 3, Name: "br0", Kind: "bridge"},
		{Index: 4, Name: "bond0", Kind: "bond", MasterIndex: 3}, {Index: 5, Name: "br1", Kind: "bridge"},
		{Index: 6, Name: "br-ex", Kind: openVSwitch}, {Index: 7, Name: "eth1", Kind: "device", MasterIndex: 8},
		{Index: 8, Name: "ovs-system", Kind: openVSwitch},
	}
	for port, want := range map[int][]string{2: {"bond0", "br0"}, 7: {"br-ex", "ovs-system"}, 3: nil} {
		at, got := slices.IndexFunc(links, func(l Link) bool { return l.Index == port }), []string(nil)
		for _, l := range masters(links[at], links) {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("above %s are %v, want %v", links[at].Name, got, want)
		}
	}
}
