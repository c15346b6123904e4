//go:build netns

package identity

import (
	"slices"
	"testing"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// A tunnel of the host's own on the uplink is named once a route leads through it.
func TestStackedOnUplink(t *testing.T) {
	b := newBed(t)
	host := b.hostNS()
	b.run("ip", "-n", host, "link", "add", "tunnel5", "type", "vxlan", "id", "5", "dstport", "4790", "remote", b.host.PeerAddr.String())
	b.run("ip", "-n", host, "link", "set", "tunnel5", "up")
	find := func() (found []kernel.Stacked) {
		b.inHost(func() (err error) {
			found, _, err = kernel.StackedOn([]int{b.ifindex})
			return err
		})
		return found
	}
	if found := find(); len(found) != 0 {
		t.Errorf("without a route there are %v", found)
	}
	b.run("ip", "-n", host, "addr", "add", "198.18.255.1/30", "dev", "tunnel5")
	want := []kernel.Stacked{{Name: "tunnel5", Kind: "vxlan", On: b.host.UplinkName}}
	if found := find(); !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// Devices by which packets leave past an uplink are named: another port of its bridge, another hop of
// the default route. What is below the bridge is found.
func TestAroundUplink(t *testing.T) {
	if err := kernel.ProbeLink("vlan"); err != nil {
		t.Skipf("this kernel has no vlan: %v", err)
	}
	b := newBed(t)
	host := b.hostNS()
	outside := func(what string, want ...string) {
		t.Helper()
		b.inHost(func() error {
			_, found, err := kernel.StackedOn([]int{b.ifindex})
			slices.Sort(found)
			if !slices.Equal(found, want) {
				t.Errorf("%s: packets leave by %v, want %v", what, found, want)
			}
			return err
		})
	}
	for _, args := range [][]string{
		{"link", "add", "card", "type", "veth", "peer", "name", "unplugged"},
		{"link", "add", "link", "card", "name", "card.7", "type", "vlan", "id", "7"},
		{"link", "add", "lan", "type", "bridge"},
		{"link", "set", b.host.UplinkName, "master", "lan"},
		{"link", "set", "card.7", "master", "lan"},
		{"link", "set", "lan", "up"},
		{"link", "set", "card", "up"},
		{"link", "set", "card.7", "up"},
		{"route", "replace", "default", "dev", "lan"},
	} {
		b.run("ip", append([]string{"-n", host}, args...)...)
	}
	outside("the other port is unplugged")
	b.run("ip", "-n", host, "link", "set", "unplugged", "up")
	outside("another port", "card.7")
	b.run("ip", "-n", host, "route", "replace", "default", "nexthop", "dev", "lan", "nexthop", "dev", "card")
	outside("another hop", "card", "card.7")
	b.inHost(func() error {
		lan, err := kernel.LinkByName("lan")
		if err != nil {
			return err
		}
		below, err := kernel.AllBelow(lan.Index)
		if err == nil && (len(below) != 2 || below[0].Name != "card.7" || below[1].Name != "card") {
			t.Errorf("below the bridge are %v", below)
		}
		return err
	})
}
