package kernel

import (
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestDefaultsOfRules: of default routes in several tables those count that rules apply to containers.
func TestDefaultsOfRules(t *testing.T) {
	const eth0, eth1, wwan0, docker0 = 2, 3, 4, 5
	const backup, second = 100, 101
	links := []Link{
		{Index: 1, Name: "lo", Kind: "device", Loopback: true}, {Index: eth0, Name: "eth0", Kind: "device"},
		{Index: eth1, Name: "eth1", Kind: "device"}, {Index: docker0, Name: "docker0", Kind: "bridge"},
	}
	preferred := map[table]preference{
		{unix.AF_INET, unix.RT_TABLE_MAIN}:    {devices: []int{eth0}},
		{unix.AF_INET, unix.RT_TABLE_DEFAULT}: {devices: []int{wwan0}},
		{unix.AF_INET, backup}:                {devices: []int{wwan0}},
		{unix.AF_INET, second}:                {devices: []int{eth1}},
		{unix.AF_INET6, unix.RT_TABLE_MAIN}:   {devices: []int{eth1}},
	}
	prefix := func(text string) *net.IPNet {
		_, p, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	addresses := []netlink.Addr{
		{IPNet: prefix("198.18.1.0/24"), LinkIndex: eth1}, {IPNet: prefix("198.18.7.0/24"), LinkIndex: docker0},
		{IPNet: prefix("198.18.2.1/32"), LinkIndex: wwan0},
	}
	lookup := func(table int, change ...func(*netlink.Rule)) netlink.Rule {
		rule := plainRule(netlink.Rule{Family: unix.AF_INET, Table: table})
		for _, c := range change {
			c(&rule)
		}
		return rule
	}
	from := func(text string) func(*netlink.Rule) { return func(r *netlink.Rule) { r.Src = prefix(text) } }
	marked := func(r *netlink.Rule) { r.Mark = 1 }
	main := []int{eth0}
	for _, test := range []struct {
		name string
		rule netlink.Rule // the one before those that each host has
		want []int
	}{
		{"of a table without a default route", lookup(7), main},
		{"for all", lookup(backup), []int{wwan0}},
		{"without the default route", lookup(backup, func(r *netlink.Rule) { r.SuppressPrefixlen = 0 }), main},
		{"of a mark", lookup(backup, marked), []int{wwan0, eth0}},
		{"of all but a mark", lookup(backup, marked, func(r *netlink.Rule) { r.Invert = true }), []int{wwan0}},
		{"of nothing", lookup(backup, func(r *netlink.Rule) { r.Invert = true }), []int{wwan0, eth0}},
		{"of what comes from containers", lookup(backup, func(r *netlink.Rule) { r.IifName = "docker0" }), []int{wwan0, eth0}},
		{"of what the host sends", lookup(backup, func(r *netlink.Rule) { r.IifName = "lo" }), []int{wwan0, eth0}},
		{"of what comes from outside", lookup(backup, func(r *netlink.Rule) { r.IifName = "eth1" }), main},
		{"of sockets at a device", lookup(second, func(r *netlink.Rule) { r.OifName = "eth1" }), main},
		{"to a network", lookup(backup, func(r *netlink.Rule) { r.Dst = prefix("198.19.0.0/16") }), main},
		{"from containers", lookup(backup, from("198.18.7.0/24")), []int{wwan0, eth0}},
		{"from all private networks", lookup(second, from("198.18.0.0/15")), []int{eth1, eth0}},
		{"from the second card", lookup(second, from("198.18.1.4/32")), main},
		{"from the second card's network", lookup(second, from("198.18.1.0/24")), main},
		{"from the second card, by another", lookup(backup, from("198.18.1.4/32")), []int{wwan0, eth0}},
		{"from PPP", lookup(backup, from("198.18.2.1/32")), main},
		{"not from the second card", lookup(second, from("198.18.1.4/32"), func(r *netlink.Rule) { r.Invert = true }), []int{eth1, eth0}},
	} {
		rules := []netlink.Rule{lookup(unix.RT_TABLE_LOCAL), test.rule, lookup(unix.RT_TABLE_MAIN), lookup(unix.RT_TABLE_DEFAULT)}
		if got := defaultsOfRules(rules, preferred, links, addresses); !slices.Equal(got, test.want) {
			t.Errorf("a rule %s: %v, want %v", test.name, got, test.want)
		}
	}
	both := []netlink.Rule{lookup(unix.RT_TABLE_MAIN), lookup(unix.RT_TABLE_MAIN, func(r *netlink.Rule) { r.Family = unix.AF_INET6 })}
	if got := defaultsOfRules(both, preferred, links, addresses); !slices.Equal(got, []int{eth0, eth1}) {
		t.Errorf("both families: %v", got)
	}
}
