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
