package kernel

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// filterSkipStats leaves the counters of devices out of a list (RTEXT_FILTER_SKIP_STATS,
// include/uapi/linux/rtnetlink.h), two thirds of it.
const filterSkipStats = 1 << 3

// listDevices lists the devices of the current namespace with the attributes that newLink reads. The library parses all
// devices but veths: each container has a veth, of which the library makes fifty objects. Errors: nl.ErrDumpInterrupted
// after a list that may be incomplete.
func listDevices() ([]netlink.Link, error) {
	reader, err := openRouteSocket(listBytes)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	request := append(make([]byte, unix.SizeofIfInfomsg), nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(filterSkipStats)).Serialize()...)
	var links []netlink.Link
	var broken error
	err = reader.dump(unix.RTM_GETLINK, request, func(device object) {
		link := veth(device)
		if link == nil {
			var err error
			// A copy: the library keeps parts of what it is given.
			if link, err = netlink.LinkDeserialize(nil, bytes.Clone(device)); err != nil {
				broken = err
				return
			}
		}
		links = append(links, link)
	})
	return links, cmp.Or(err, broken)
}

// listBytes is the most that the kernel puts into one answer (net/netlink/af_netlink.c, netlink_dump).
const listBytes = 32 << 10

// veth returns the device of a message, or nil if it is no veth.
func veth(device object) netlink.Link {
	const sizeofHeader = unix.SizeofIfInfomsg
	if len(device) < sizeofHeader {
		return nil
	}
	attrs := device[sizeofHeader:]
	kind := attribute(attribute(attrs, unix.IFLA_LINKINFO), unix.IFLA_INFO_KIND)
	if unix.ByteSliceToString(kind) != "veth" || binary.NativeEndian.Uint16(device[2:]) != unix.ARPHRD_ETHER {
		return nil
	}
	flags := binary.NativeEndian.Uint32(device[8:])
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: device.ifindex(), RawFlags: flags, EncapType: "ether", NetNsID: SameNetNS}}
	a := &link.LinkAttrs
	if flags&unix.IFF_UP != 0 {
		a.Flags |= unix.IFF_UP
	}
	for kind, value := range attributes(attrs) {
		number := func() int {
			if len(value) < 4 {
				return 0
			}
			return int(int32(binary.NativeEndian.Uint32(value)))
		}
		switch kind & attributeKindMask {
		case unix.IFLA_ADDRESS:
			a.HardwareAddr = bytes.Clone(value)
		case unix.IFLA_IFNAME:
			a.Name = unix.ByteSliceToString(value)
		case unix.IFLA_MTU:
			a.MTU = number()
		case unix.IFLA_LINK:
			a.ParentIndex = number()
		case unix.IFLA_MASTER:
			a.MasterIndex = number()
		case unix.IFLA_LINK_NETNSID:
			a.NetNsID = number()
		case unix.IFLA_NUM_TX_QUEUES:
			a.NumTxQueues = number()
		case unix.IFLA_GSO_MAX_SIZE:
			a.GSOMaxSize = uint32(number())
		case unix.IFLA_XDP:
			if mode := attribute(value, nl.IFLA_XDP_ATTACHED); len(mode) > 0 && mode[0] != nl.XDP_ATTACHED_NONE {
				a.Xdp = &netlink.LinkXdp{Attached: true}
			}
		}
	}
	return link
}
