package kernel

import (
	"slices"
	"testing"
)

func TestStackedOn(t *testing.T) {
	const eth0, eth1, vlan, gre, wg, ppp, veth, idle, down = 2, 3, 4, 5, 6, 7, 8, 9, 10
	links := []Link{
		{Index: 1, Name: "lo", Kind: "device", Up: true},
		{Index: eth0, Name: "eth0", Kind: "device", Up: true},
		{Index: eth1, Name: "eth1", Kind: "device", Up: true},
		// Not in the order in which they are stacked.
		{Index: ppp, Name: "ppp0", Kind: "ppp", Up: true},
		{Index: vlan, Name: "eth0.7", Kind: "vlan", Up: true},
		{Index: gre, Name: "gre1", Kind: "gre", Up: true},
		{Index: wg, Name: "wg0", Kind: "wireguard", Up: true},
		{Index: veth, Name: "veth1", Kind: "veth", Up: true},
		{Index: idle, Name: "vxlan5", Kind: "vxlan", Up: true},
		{Index: down, Name: "eth0.8", Kind: "vlan"},
	}
	under := map[int][]int{vlan: {eth0}, ppp: {vlan}, gre: {eth1}, wg: {eth1, eth0}, idle: {eth0}, down: {eth0}}
	routed := map[int]bool{eth0: true, eth1: true, vlan: true, ppp: true, gre: true, wg: true, veth: true, down: true}
	for _, test := range []struct {
		name    string
		uplinks []int
		want    []Stacked
	}{
		{"a chain, and one of two ways", []int{eth0}, []Stacked{
			{"ppp0", "ppp", "eth0"}, {"eth0.7", "vlan", "eth0"}, {"wg0", "wireguard", "eth0"}}},
		{"another device", []int{eth1}, []Stacked{{"gre1", "gre", "eth1"}, {"wg0", "wireguard", "eth1"}}},
		{"the upper end is the uplink", []int{ppp}, nil},
		{"uplinks on each other", []int{eth0, vlan}, []Stacked{
			{"ppp0", "ppp", "eth0.7"}, {"wg0", "wireguard", "eth0"}}},
		{"no uplinks", nil, nil},
	} {
		if got := stackedOn(test.uplinks, links, under, routed); !slices.Equal(got, test.want) {
			t.Errorf("%s: found %v, want %v", test.name, got, test.want)
		}
	}
}

func TestDefaultsOutside(t *testing.T) {
	const lo, eth0, br0, vlan, wg, wwan0, br1, eth1, eth1vlan, bond0, eth2, off = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
	links := []Link{
		{Index: lo, Name: "lo", Loopback: true}, {Index: vlan, Name: "br0.7", Kind: "vlan"}, {Index: br0, Name: "br0", Kind: "bridge"},
		{Index: eth0, Name: "eth0", Kind: "device", MasterIndex: br0}, {Index: wg, Name: "wg0"}, {Index: wwan0, Name: "wwan0"},
		{Index: br1, Name: "br1", Kind: "bridge"}, {Index: eth1, Name: "eth1", Kind: "device", MasterIndex: br1},
		{Index: eth1vlan, Name: "eth1.7", Kind: "vlan", MasterIndex: br1}, {Index: bond0, Name: "bond0", Kind: "bond", MasterIndex: br1},
		{Index: eth2, Name: "eth2", Kind: "device", MasterIndex: bond0}, {Index: off, Name: "off", Kind: "device", Down: true, MasterIndex: br1},
		{Index: 15, Name: "eth3", Kind: "device", MasterIndex: bond0},
		{Index: 13, Name: "veth", Kind: "veth", MasterIndex: br1}, {Index: 14, Name: "vnet0", Kind: "tuntap", MasterIndex: br0},
	}
	const ovs, brEx, brInt, eth4, brExVLAN, patch = 20, 21, 22, 23, 24, 25
	links = append(links, Link{Index: brEx, Name: "br-ex", Kind: openVSwitch}, Link{Index: brExVLAN, Name: "br-ex.7", Kind: "vlan"},
		Link{Index: ovs, Name: "ovs-system", Kind: openVSwitch, Down: true}, Link{Index: brInt, Name: "br-int", Kind: openVSwitch},
		Link{Index: eth4, Name: "eth4", Kind: "device", MasterIndex: ovs}, Link{Index: patch, Name: "vnet1", Kind: "tuntap", MasterIndex: ovs})
	under := map[int][]int{vlan: {br0}, wg: {vlan, wwan0}, eth1vlan: {eth1}, brExVLAN: {brEx}}
	for _, test := range []struct {
		name              string
		uplinks, defaults []int
		want              []string
	}{
		{"the uplink itself", []int{eth0}, []int{eth0}, nil},
		{"its bridge, a VLAN on that, a tunnel on that", []int{eth0}, []int{wg}, nil},
		{"another device", []int{eth0}, []int{wwan0}, []string{"wwan0"}},
		{"what the uplink is stacked on", []int{vlan}, []int{br0}, []string{"br0"}},
		{"one of two", []int{eth0}, []int{wwan0, br0}, []string{"wwan0"}},
		{"both of two", []int{eth0, wwan0}, []int{wwan0, br0}, nil},
		{"one of two, the other off", []int{eth0}, []int{off, br0}, nil},
		{"none of two", []int{wwan0}, []int{eth0, vlan}, []string{"br0.7", "eth0"}},
		{"another port of its bridge, and a VLAN on it", []int{eth1}, []int{br1}, []string{"bond0"}},
		{"another port of its bond", []int{eth1, eth2}, []int{br1}, []string{"eth3"}},
		{"another device on the card below it", []int{eth1vlan, bond0}, []int{br1}, []string{"eth1"}},
		{"a port's bridge without a default route", []int{eth0, eth1}, []int{br0}, nil},
		{"a port of Open vSwitch's", []int{eth4}, []int{brEx}, nil},
		{"a port of Open vSwitch's, and a VLAN on an internal one", []int{eth4}, []int{brExVLAN}, nil},
		{"another internal port", []int{brInt}, []int{brEx}, []string{"eth4"}},
		{"no port of Open vSwitch's", []int{eth0}, []int{brEx}, []string{"br-ex"}},
		{"no default route", []int{eth0}, nil, nil},
		{"the loopback", []int{eth0}, []int{lo}, nil},
	} {
		used := slices.Concat(test.defaults, test.uplinks)
		if got := defaultsOutside(test.uplinks, links, under, used); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestPPPoEDevices(t *testing.T) {
	sessions := "Id       Address              Device\n1D000000 00:90:1a:41:bb:cc     eth0.7\n"
	if got, want := pppoeDevices(sessions), []string{"eth0.7"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if got := pppoeDevices("Id       Address              Device\n"); len(got) != 0 {
		t.Errorf("found %v without a session", got)
	}
}
