package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"unsafe"

	"github.com/mdlayher/netlink"
	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What takes received packets off a device before any hook sees them, besides XDP (Link) and nftables' flow
// tables (FlowTables).

// OffloadsTC reports whether the card of a device forwards flows by itself where rules of tc or flow tables say so:
// its feature hw-tc-offload is on. Errors: ErrNoLink.
func OffloadsTC(name string) (bool, error) {
	on, err := hasFeature(name, "hw-tc-offload")
	if err != nil {
		return false, fmt.Errorf("ask %s for its features: %w", name, err)
	}
	return on, nil
}

// OffloadedFilters names the filters at a device's ingress hook that are also in its card, which takes the packets
// that they forward or drop.
func OffloadedFilters(ifindex int) ([]string, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("open traffic control: %w", err)
	}
	defer conn.Close()
	return offloadedFilters(conn, ifindex)
}

func offloadedFilters(conn *netlink.Conn, ifindex int) (names []string, err error) {
	const inCard = 1 << 2 // TCA_CLS_FLAGS_IN_HW of include/uapi/linux/pkt_cls.h
	counts := map[string]int{}
	err = Hook{Ifindex: ifindex}.eachFilter(conn, func(_ filterKey, kind string, options []byte) error {
		flags := filterKinds[kind].flags
		if flags == 0 {
			return nil
		}
		return eachAttribute(options, func(ad *netlink.AttributeDecoder) error {
			if ad.Type() == flags && ad.Uint32()&inCard != 0 {
				counts[kind]++
			}
			return nil
		})
	})
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		names = append(names, fmt.Sprintf("offloaded tc filters (%s: %d)", kind, counts[kind]))
	}
	return names, err
}

// hasFeature reports whether a feature of a device, by the name that `ethtool -k` prints, is on.
func hasFeature(device, feature string) (on bool, err error) {
	// Structs of include/uapi/linux/ethtool.h; ethSSFeatures is ETH_SS_FEATURES.
	const ethSSFeatures, nameBytes, most = 4, 32, 256
	info := struct {
		cmd, reserved uint32
		sets          uint64
		count         uint32
		_             uint32
	}{cmd: unix.ETHTOOL_GSSET_INFO, sets: 1 << ethSSFeatures}
	if known, err := ethtool(device, unsafe.Pointer(&info)); err != nil || !known || info.sets == 0 {
		return false, err
	}
	if info.count > most {
		return false, fmt.Errorf("%d features are more than %d", info.count, most)
	}
	names := struct {
		cmd, set, count uint32
		names           [most][nameBytes]byte
	}{cmd: unix.ETHTOOL_GSTRINGS, set: ethSSFeatures, count: info.count}
	if known, err := ethtool(device, unsafe.Pointer(&names)); err != nil || !known {
		return false, err
	}
	values := struct {
		cmd, blocks uint32
		block       [most / 32]struct{ available, requested, active, neverChanged uint32 }
	}{cmd: unix.ETHTOOL_GFEATURES, blocks: (info.count + 31) / 32}
	if known, err := ethtool(device, unsafe.Pointer(&values)); err != nil || !known {
		return false, err
	}
	for i, raw := range names.names[:info.count] {
		if name, _, _ := bytes.Cut(raw[:], []byte{0}); string(name) == feature {
			return values.block[i/32].active>>(i%32)&1 != 0, nil
		}
	}
	return false, nil
}

// Of include/uapi/linux/netdev.h.
const (
	netdevFamily       = "netdev"
	netdevQueueGet     = 10
	netdevQueueIfindex = 2
	netdevQueueLease   = 8
)

// LeasedQueues returns how many queues of a device are leased to a device elsewhere, as a netkit, which takes their
// packets (Linux 7.1); 0 on kernels without leases.
func LeasedQueues(ifindex int) (leased int, err error) {
	_, leased, err = queuesOf(ifindex)
	if err != nil {
		return 0, fmt.Errorf("list the queues of device %d: %w", ifindex, err)
	}
	return leased, nil
}

// queuesOf counts the queues of a device; none on kernels that do not tell.
func queuesOf(ifindex int) (all, leased int, err error) {
	family, err := nl.GenlFamilyGet(netdevFamily)
	if errors.Is(err, os.ErrNotExist) { // before Linux 6.3
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	conn, err := netlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	return countQueues(conn, family.ID, ifindex)
}

func countQueues(conn *netlink.Conn, family uint16, ifindex int) (all, leased int, err error) {
	request, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: netdevQueueIfindex, Data: binary.NativeEndian.AppendUint32(nil, uint32(ifindex))},
	})
	if err != nil {
		return 0, 0, err
	}
	const version, headerBytes = 1, 4 // struct genlmsghdr
	queues, err := requestList(conn, family, append([]byte{netdevQueueGet, version, 0, 0}, request...))
	switch {
	case errors.Is(err, unix.EOPNOTSUPP): // before Linux 6.8
		return 0, 0, nil
	case errors.Is(err, unix.ENODEV):
		return 0, 0, ErrNoLink
	case err != nil:
		return 0, 0, err
	}
	for _, queue := range queues {
		if len(queue.Data) < headerBytes {
			return 0, 0, errShort
		}
		all++
		err := eachAttribute(queue.Data[headerBytes:], func(ad *netlink.AttributeDecoder) error {
			if ad.Type() == netdevQueueLease {
				leased++
			}
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return all, leased, nil
}
