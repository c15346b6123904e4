//go:build netns

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	nl "github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// TestFeaturesAndQueues: the kernel tells a device's features by their names, and lists its filters and queues.
func TestFeaturesAndQueues(t *testing.T) {
	enterNewNetNS(t)
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
	if must.Succeed(t, err); leased != 0 || isAtLeast(t, 6, 8) && all != 4 {
		t.Errorf("%d queues, %d leased", all, leased)
	}
	if leased, err := LeasedQueues(1 << 20); leased != 0 || err != nil && !errors.Is(err, ErrNoLink) {
		t.Errorf("of a missing device: %d, %v", leased, err)
	}
}

// enterNewNetNS moves the test into a network namespace of its own. The thread stays locked: it ends with the test's
// goroutine, and the namespace with it.
func enterNewNetNS(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	ns, err := netns.New()
	must.Succeed(t, err)
	must.Succeed(t, ns.Close())
}

// isAtLeast reports whether the kernel is Linux major.minor or later.
func isAtLeast(t *testing.T, major, minor int) bool {
	t.Helper()
	release, err := Release()
	must.Succeed(t, err)
	var has [2]int
	_, err = fmt.Sscanf(release, "%d.%d", &has[0], &has[1])
	must.Succeed(t, err)
	return slices.Compare(has[:], []int{major, minor}) >= 0
}

// TestChainOfPrefix: a chain of nftables whose devices are "va*" is at the ingress of each device with such a name, as
// the kernel tells it.
func TestChainOfPrefix(t *testing.T) {
	if !isAtLeast(t, 6, 17) {
		t.Skip("needs NFTA_DEVICE_PREFIX (Linux 6.17)")
	}
	enterNewNetNS(t)
	must.Succeed(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "va0"}, PeerName: "vb0"}))
	conn, err := nl.Dial(unix.NETLINK_NETFILTER, nil)
	must.Succeed(t, err)
	defer conn.Close()
	if _, err := requestList(conn, nftGetChain, make([]byte, 4)); err != nil {
		t.Skipf("needs nftables: %v", err)
	}
	zero := make([]byte, 4)
	devices := nltest.MustMarshalAttributes([]nl.Attribute{{Type: nftaDevicePrefix, Data: []byte("va\x00")}})
	hook := nltest.MustMarshalAttributes([]nl.Attribute{{Type: nftaHookNumber, Data: zero}, {Type: unix.NFTA_HOOK_PRIORITY, Data: zero},
		{Type: nftaHookDevices | nl.Nested, Data: devices}})
	const create, nftables = nl.Create, unix.NFNL_SUBSYS_NFTABLES << 8
	message := func(kind nl.HeaderType, flags nl.HeaderFlags, header []byte, attributes ...nl.Attribute) nl.Message {
		return nl.Message{Header: nl.Header{Type: kind, Flags: nl.Request | flags}, Data: append(header, nltest.MustMarshalAttributes(attributes)...)}
	}
	batch := binary.BigEndian.AppendUint16([]byte{0, 0}, unix.NFNL_SUBSYS_NFTABLES)
	_, err = conn.SendMessages([]nl.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, slices.Clone(batch)),
		message(nftables|unix.NFT_MSG_NEWTABLE, create, []byte{familyNetdev, 0, 0, 0}, nl.Attribute{Type: nftaTable, Data: []byte("fw\x00")}),
		message(nftables|unix.NFT_MSG_NEWCHAIN, create|nl.Acknowledge, []byte{familyNetdev, 0, 0, 0},
			nl.Attribute{Type: nftaTable, Data: []byte("fw\x00")}, nl.Attribute{Type: nftaChainName, Data: []byte("in\x00")},
			nl.Attribute{Type: nftaChainHook | nl.Nested, Data: hook}, nl.Attribute{Type: unix.NFTA_CHAIN_TYPE, Data: []byte("filter\x00")}),
		message(unix.NFNL_MSG_BATCH_END, 0, slices.Clone(batch)),
	})
	must.Succeed(t, err)
	_, err = conn.Receive()
	must.Succeed(t, err)
	for device, want := range map[string][]string{"va0": {"nftables chain fw in"}, "vb0": nil, "v": nil} {
		if got, err := IngressChains(device); err != nil || !slices.Equal(got, want) {
			t.Errorf("at %s: %q, %v, want %q", device, got, err, want)
		}
	}
}
