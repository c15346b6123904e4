//go:build netns

package kernel

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// TestFeaturesAndQueues: the kernel tells a device's features by their names, and lists its filters and queues.
func TestFeaturesAndQueues(t *testing.T) {
	release, err := Release()
	must.Succeed(t, err)
	must.Succeed(t, inNewNetNS(func() error {
		must.Succeed(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "va", NumRxQueues: 2, NumTxQueues: 2}, PeerName: "vb"}))
		device, err := netlink.LinkByName("va")
		must.Succeed(t, err)
		must.Succeed(t, netlink.LinkSetUp(device))
		for _, on := range []bool{true, false} {
			change := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_SGRO}
			if on {
				change.data = 1
			}
			_, err := ethtool("va", unsafe.Pointer(&change))
			must.Succeed(t, err)
			if got, err := hasFeature("va", "rx-gro"); err != nil || got != on {
				t.Errorf("rx-gro is %v: %v, %v", on, got, err)
			}
		}
		if on, err := OffloadsTC("va"); err != nil || on {
			t.Errorf("hw-tc-offload of a veth: %v, %v", on, err)
		}
		if _, err := OffloadsTC("missing"); !errors.Is(err, ErrNoLink) {
			t.Errorf("of a missing device: %v", err)
		}
		must.Succeed(t, Hook{Ifindex: device.Attrs().Index}.addClsact())
		must.Succeed(t, netlink.FilterAdd(&netlink.U32{FilterAttrs: netlink.FilterAttrs{
			LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 7, Protocol: unix.ETH_P_ALL}}))
		if names, err := OffloadedFilters(device.Attrs().Index); err != nil || len(names) > 0 {
			t.Errorf("filters in the card of a veth: %q, %v", names, err)
		}
		all, leased, err := queuesOf(device.Attrs().Index)
		var major, minor int
		_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor)
		tells := major > 6 || major == 6 && minor >= 8
		if must.Succeed(t, err); leased != 0 || tells && all != 4 {
			t.Errorf("%d queues, %d leased", all, leased)
		}
		if leased, err := LeasedQueues(1 << 20); leased != 0 || err != nil && !errors.Is(err, ErrNoLink) {
			t.Errorf("of a missing device: %d, %v", leased, err)
		}
		return nil
	}))
}
