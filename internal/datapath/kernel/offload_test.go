package kernel

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

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

// TestOffloadedFlowTables: a flow table is of the devices that it names, also by a prefix, and the card's if its flags
// say so.
func TestOffloadedFlowTables(t *testing.T) {
	of := func(name string, kind uint16, device string, flags uint32) []byte {
		devices := nltest.MustMarshalAttributes([]netlink.Attribute{{Type: kind, Data: []byte(device)}})
		hook := nltest.MustMarshalAttributes([]netlink.Attribute{{Type: nftaFlowtableDevices | netlink.Nested, Data: devices}})
		return append([]byte{familyInet, 0, 0, 0}, nltest.MustMarshalAttributes([]netlink.Attribute{
			{Type: nftaTable, Data: []byte("t\x00")}, {Type: nftaFlowtableName, Data: append([]byte(name), 0)},
			{Type: nftaFlowtableHook | netlink.Nested, Data: hook}, {Type: nftaFlowtableFlags, Data: binary.BigEndian.AppendUint32(nil, flags)},
		})...)
	}
	table := func(name, device string, flags uint32) []byte { return of(name, nftaDeviceName, device+"\x00", flags) }
	s := &fakeSocket{dumps: map[uint16][][]byte{nftGetFlowtable: {
		table("software", "eth0", 0), table("card", "eth0", flowtableOffloaded), table("counting", "eth0", 2), table("elsewhere", "eth1", flowtableOffloaded),
		table("shorter", "eth", 0), of("prefix", nftaDevicePrefix, "eth\x00", 0), of("name that is a prefix", nftaDeviceName, "eth", 0),
		of("all", nftaDevicePrefix, "\x00", 0), of("another prefix", nftaDevicePrefix, "wlan\x00", 0), of("unknown", 9, "eth0", 0),
	}}}
	for offloaded, want := range map[bool][]string{
		false: {"nftables flow table t software", "nftables flow table t card", "nftables flow table t counting",
			"nftables flow table t prefix", "nftables flow table t name that is a prefix", "nftables flow table t all"},
		true: {"nftables flow table t card"},
	} {
		got, err := namesAtIngress(s.open(), "eth0", offloaded, []nftKind{nftFlowtables})
		if must.Succeed(t, err); !slices.Equal(got, want) {
			t.Errorf("offloaded %v: %q, want %q", offloaded, got, want)
		}
	}
}

// TestOffloadedFilters: of filters those are named whose flags say that they are in the card. No kernel of the tests has
// such a card.
func TestOffloadedFilters(t *testing.T) {
	const inCard, notInCard, skipHW, skipSW = 4, 8, 1, 2
	filter := func(kind string, options ...netlink.Attribute) []byte {
		return append(make([]byte, sizeofTcmsg), nltest.MustMarshalAttributes([]netlink.Attribute{
			{Type: unix.TCA_KIND, Data: append([]byte(kind), 0)},
			{Type: unix.TCA_OPTIONS | netlink.Nested, Data: nltest.MustMarshalAttributes(options)},
		})...)
	}
	number := func(attribute uint16, value uint32) netlink.Attribute {
		return netlink.Attribute{Type: attribute, Data: binary.NativeEndian.AppendUint32(nil, value)}
	}
	s := &fakeSocket{dumps: map[uint16][][]byte{getFilter: {
		filter("flower", number(1, 7), number(22, inCard|skipSW)), filter("flower", number(22, inCard)),
		filter("flower", number(22, notInCard)), filter("flower"), filter("flower", number(3, inCard)),
		filter("u32", number(11, inCard)), filter("u32", number(11, skipHW)), filter("matchall", number(3, inCard)),
		filter("bpf", number(8, inCard), number(9, notInCard)), filter("basic", number(0, inCard)), filter("another", number(0, inCard)),
	}}}
	names, err := offloadedFilters(s.open(), 3)
	want := []string{"offloaded tc filters (flower: 2)", "offloaded tc filters (matchall: 1)", "offloaded tc filters (u32: 1)"}
	if must.Succeed(t, err); !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	s = &fakeSocket{dumps: map[uint16][][]byte{getFilter: {filter("bpf", number(9, inCard))}}}
	if names, err := offloadedFilters(s.open(), 3); err != nil || !slices.Equal(names, []string{"offloaded tc filters (bpf: 1)"}) {
		t.Errorf("of BPF: %q, %v", names, err)
	}
}
