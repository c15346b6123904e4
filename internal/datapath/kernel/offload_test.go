package kernel

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"

	"github.com/weir-project/weir/test/must"
)

// TestLeasesAreCounted: of the queues that a kernel with leases lists, those that are leased. No kernel of the tests
// has a card that can lease.
func TestLeasesAreCounted(t *testing.T) {
	const family = 0x1f
	queue := func(more ...netlink.Attribute) []byte {
		return append([]byte{netdevQueueGet, 1, 0, 0}, nltest.MustMarshalAttributes(append([]netlink.Attribute{
			{Type: netdevQueueIfindex, Data: binary.NativeEndian.AppendUint32(nil, 3)},
		}, more...))...)
	}
	lease := netlink.Attribute{Type: netdevQueueLease | netlink.Nested, Data: nltest.MustMarshalAttributes([]netlink.Attribute{
		{Type: 1, Data: binary.NativeEndian.AppendUint32(nil, 8)},
	})}
	s := &fakeSocket{dumps: map[uint16][][]byte{family: {queue(), queue(lease), queue()}}}
	all, leased, err := countQueues(s.open(), family, 3)
	if must.Succeed(t, err); all != 3 || leased != 1 {
		t.Errorf("%d of %d queues are leased, want 1 of 3", leased, all)
	}
}

// TestOffloadedFlowTables: a flow table is of the device that it names, and the card's if its flags say so.
func TestOffloadedFlowTables(t *testing.T) {
	table := func(name, device string, flags uint32) []byte {
		devices := nltest.MustMarshalAttributes([]netlink.Attribute{{Type: nftaDeviceName, Data: append([]byte(device), 0)}})
		hook := nltest.MustMarshalAttributes([]netlink.Attribute{{Type: nftaFlowtableDevices | netlink.Nested, Data: devices}})
		return append([]byte{familyInet, 0, 0, 0}, nltest.MustMarshalAttributes([]netlink.Attribute{
			{Type: nftaTable, Data: []byte("t\x00")}, {Type: nftaFlowtableName, Data: append([]byte(name), 0)},
			{Type: nftaFlowtableHook | netlink.Nested, Data: hook}, {Type: nftaFlowtableFlags, Data: binary.BigEndian.AppendUint32(nil, flags)},
		})...)
	}
	s := &fakeSocket{dumps: map[uint16][][]byte{nftGetFlowtable: {
		table("software", "eth0", 0), table("card", "eth0", flowtableOffloaded), table("counting", "eth0", 2), table("elsewhere", "eth1", flowtableOffloaded),
	}}}
	for offloaded, want := range map[bool][]string{
		false: {"nftables flow table t software", "nftables flow table t card", "nftables flow table t counting"},
		true:  {"nftables flow table t card"},
	} {
		got, err := namesAtIngress(s.open(), "eth0", offloaded, []nftKind{nftFlowtables})
		if must.Succeed(t, err); !slices.Equal(got, want) {
			t.Errorf("offloaded %v: %q, want %q", offloaded, got, want)
		}
	}
}
