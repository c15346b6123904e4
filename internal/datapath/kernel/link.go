package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is a network device.
type Link struct {
	Index int
	Name  string
	// Kind is the kernel's name of the type, e.g. "veth", "bridge"; "device"
	// for hardware.
	Kind string
	// PeerIndex is the other end of a veth, or the device below a VLAN or macvlan; PeerNetNSID is
	// the ID of that device's namespace, or SameNetNS.
	PeerIndex   int
	PeerNetNSID int
	// UplinkIndex is, of an IFB of Weir's, the uplink whose received packets are shared there; 0 for other devices.
	UplinkIndex int
	// MasterIndex is the bridge, bond or team that the device is a port of.
	MasterIndex int
	// GSOMaxBytes is the largest packet that the device takes at once.
	GSOMaxBytes uint32
	// MTUBytes is the largest IP packet that the device sends in one frame.
	MTUBytes uint32
	Up       bool
	// Down: it is switched off or has no carrier, so it sends nothing.
	Down     bool
	Loopback bool
	// XDP: a program sees what the device receives before every hook, and may forward or drop it there.
	XDP bool
	// Ethernet: its frames have an Ethernet header, and it has the address MAC there.
	Ethernet bool
	MAC      [6]byte
	// VXLANPort and VNI are the UDP port and identifier of a VXLAN; the port is 0 for other devices,
	// and for a VXLAN without an identifier of its own.
	VXLANPort uint16
	VNI       uint32
	// maxTxQueues is the number of transmit queues that it has room for.
	maxTxQueues int
}

// SameNetNS is the ID of a namespace in itself, and of a namespace without an ID.
const SameNetNS = -1

// ErrNoLink: the device does not exist.
var ErrNoLink = errors.New("no such network device")

func newLink(l netlink.Link) Link {
	a := l.Attrs()
	link := Link{
		Index: a.Index, Name: a.Name, Kind: l.Type(),
		PeerIndex: a.ParentIndex, PeerNetNSID: a.NetNsID, MasterIndex: a.MasterIndex,
		GSOMaxBytes: a.GSOMaxSize,
		MTUBytes:    uint32(a.MTU),
		Up:          a.Flags&unix.IFF_UP != 0,
		Down:        a.RawFlags&unix.IFF_UP == 0 || a.RawFlags&unix.IFF_RUNNING == 0,
		Loopback:    a.RawFlags&unix.IFF_LOOPBACK != 0,
		XDP:         a.Xdp != nil && a.Xdp.Attached,
		Ethernet:    a.EncapType == "ether",
		maxTxQueues: a.NumTxQueues,
	}
	if link.Ethernet {
		copy(link.MAC[:], a.HardwareAddr)
	}
	if vxlan, is := l.(*netlink.Vxlan); is && !vxlan.FlowBased {
		link.VXLANPort, link.VNI = uint16(vxlan.Port), uint32(vxlan.VxlanId)
	}
	return link
}

// lookUp returns the device that ask finds by its name or index. Errors: ErrNoLink.
func lookUp[K string | int](ask func(K) (netlink.Link, error), which K) (netlink.Link, error) {
	l, err := ask(which)
	switch {
	case errors.As(err, &netlink.LinkNotFoundError{}):
		return nil, ErrNoLink
	case err != nil:
		return nil, fmt.Errorf("look up network device %v: %w", which, err)
	}
	return l, nil
}

// linkOf is lookUp with the device as a Link.
func linkOf[K string | int](ask func(K) (netlink.Link, error), which K) (Link, error) {
	l, err := lookUp(ask, which)
	if err != nil {
		return Link{}, err
	}
	return newLink(l), nil
}

// LinkByName returns the device of that name in the current namespace. Errors: ErrNoLink.
func LinkByName(name string) (Link, error) { return linkOf(netlink.LinkByName, name) }

// LinkByIndex returns the device with that index in the current namespace. Errors: ErrNoLink.
func LinkByIndex(index int) (Link, error) { return linkOf(netlink.LinkByIndex, index) }

// dumpAttempts is how often consistently asks.
const dumpAttempts = 20

// consistently returns the kernel's answer to a request for a list. If the list changes meanwhile,
// the kernel marks its answer as incomplete (NLM_F_DUMP_INTR), and the request is repeated.
func consistently[T any](ask func() (T, error)) (T, error) {
	for range dumpAttempts - 1 {
		if list, err := ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	list, err := ask()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		err = fmt.Errorf("it changed during each of %d attempts: %w", dumpAttempts, err)
	}
	return list, err
}

// Links lists the devices of the current namespace.
func Links() ([]Link, error) { return listLinks(listDevices) }

func listLinks(ask func() ([]netlink.Link, error)) ([]Link, error) {
	list, err := consistently(ask)
	if err != nil {
		return nil, fmt.Errorf("list network devices: %w", err)
	}
	links := make([]Link, len(list))
	for i, l := range list {
		links[i] = newLink(l)
	}
	return links, nil
}

// Below lists the devices of the current namespace that a device passes its packets to: the one
// below a VLAN or macvlan, the ports of a bond or team. Errors: ErrNoLink.
func Below(index int) ([]Link, error) {
	l, err := LinkByIndex(index)
	if err != nil {
		return nil, err
	}
	if !handsOn[l.Kind] {
		return nil, nil // saves listing all devices
	}
	links, err := Links()
	if err != nil {
		return nil, err
	}
	return below(l, links), nil
}

// handsOn lists the kinds of devices that pass packets to other host devices.
var handsOn = map[string]bool{
	"vlan": true, "macvlan": true, "macvtap": true, "ipvlan": true, "ipvtap": true, "bond": true, "team": true,
}

// AllBelow lists the devices of the current namespace that packets of a device may leave by: those
// below it, the ports of a bridge or Open vSwitch that lead to a network outside, and what is below
// these. Errors: ErrNoLink.
func AllBelow(index int) ([]Link, error) {
	l, err := LinkByIndex(index)
	if err != nil {
		return nil, err
	}
	if !handsOn[l.Kind] && l.Kind != "bridge" && l.Kind != openVSwitch {
		return nil, nil // saves listing all devices
	}
	links, err := Links()
	if err != nil {
		return nil, err
	}
	return allBelow(l, links), nil
}

func allBelow(l Link, links []Link) (all []Link) {
	known := map[int]bool{l.Index: true}
	for from := []Link{l}; len(from) > 0; from = from[1:] {
		for _, lower := range exits(from[0], links) {
			if !known[lower.Index] {
				known[lower.Index] = true
				all, from = append(all, lower), append(from, lower)
			}
		}
	}
	return all
}

// exits returns the devices among links that l's packets may leave by next: those below it, or its
// outward ports. The ports of all bridges of Open vSwitch have the same master.
func exits(l Link, links []Link) (ports []Link) {
	if l.Kind != "bridge" && l.Kind != openVSwitch {
		return below(l, links)
	}
	masters := sameSwitch(l, links)
	for _, port := range links {
		if slices.Contains(masters, port.MasterIndex) && port.Outward() {
			ports = append(ports, port)
		}
	}
	return ports
}

// openVSwitch is the kind of the datapath of Open vSwitch, which is the master of all ports, and of
// its internal ports, which have no master.
const openVSwitch = "openvswitch"

// sameSwitch returns the indexes of l and, if it belongs to Open vSwitch, of all devices among links
// that do: the kernel does not tell which ones packets pass from one to the other.
func sameSwitch(l Link, links []Link) []int {
	indexes := []int{l.Index}
	for _, other := range links {
		if l.Kind == openVSwitch && other.Kind == l.Kind && other.Index != l.Index {
			indexes = append(indexes, other.Index)
		}
	}
	return indexes
}

// Entrances lists, for each of these bridges, the devices of the current namespace by which packets
// of its ports come into the host: the bridge itself, or all of Open vSwitch's, and VLANs on these.
func Entrances(bridges map[int]bool) (map[int][]Link, error) {
	links, err := Links()
	if err != nil {
		return nil, err
	}
	found := map[int][]Link{}
	for bridge := range bridges {
		if list := entrances(bridge, links); len(list) > 0 {
			found[bridge] = list
		}
	}
	return found, nil
}

func entrances(bridge int, links []Link) (all []Link) {
	at := slices.IndexFunc(links, func(l Link) bool { return l.Index == bridge })
	if at < 0 {
		return nil
	}
	for next := sameSwitch(links[at], links); len(next) > 0; next = next[1:] {
		for _, l := range links {
			switch {
			case l.Index == next[0]:
				all = append(all, l)
			case l.Kind == "vlan" && l.PeerIndex == next[0] && l.PeerNetNSID == SameNetNS:
				next = append(next, l.Index)
			}
		}
	}
	return all
}

// Masters lists the devices of the current namespace whose packets may leave by the one with that
// index as their port, at any depth: its bridge, bond or team, or all of Open vSwitch's. Errors:
// ErrNoLink.
func Masters(index int) ([]Link, error) {
	l, err := LinkByIndex(index)
	if err != nil || l.MasterIndex == 0 {
		return nil, err // saves listing all devices
	}
	links, err := Links()
	if err != nil {
		return nil, err
	}
	return masters(l, links), nil
}

func masters(l Link, links []Link) (all []Link) {
	for range links {
		at := slices.IndexFunc(links, func(other Link) bool { return other.Index == l.MasterIndex })
		if at < 0 {
			break
		}
		l = links[at]
		indexes := sameSwitch(l, links)
		for _, other := range links {
			if slices.Contains(indexes, other.Index) {
				all = append(all, other)
			}
		}
	}
	return all
}

// Outward reports whether the device, as the port of a bridge, leads to a network outside, unlike
// those of containers and virtual machines.
func (l Link) Outward() bool {
	return slices.Contains([]string{"device", "vlan", "bond", "team"}, l.Kind)
}

// Above lists the devices of the current namespace that pass their packets to the one with that
// index.
func Above(index int) ([]Link, error) {
	links, err := Links()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(links), func(l Link) bool {
		return !slices.ContainsFunc(below(l, links), func(lower Link) bool { return lower.Index == index })
	}), nil
}

// UntaggedAbove returns the indexes, by MAC, of those devices of AllAbove that take frames without a VLAN
// tag which the device with that index receives. Of several with one MAC, as a bond and its bridge, the
// upper takes them; ipvlan devices have the MAC of the device below, which tells frames apart by address.
func UntaggedAbove(index int, links []Link) map[[6]byte]int {
	untagged := slices.DeleteFunc(slices.Clone(links), func(l Link) bool {
		return (l.Kind == "vlan" || l.Kind == "ipvlan") && l.Index != index
	})
	indexes := map[[6]byte]int{}
	for _, l := range AllAbove([]int{index}, untagged) { // lower ones come first
		if l.Ethernet {
			indexes[l.MAC] = l.Index
		}
	}
	return indexes
}

// AllAbove returns those of links that may take frames which the ones with these indexes receive: bridges
// and others that they are ports of, VLANs and macvlans on them, and what is above these; not macvtap and
// ipvtap devices, whose frames are for virtual machines. It does not ask below for each device: there may
// be thousands of VLANs.
func AllAbove(indexes []int, links []Link) (all []Link) {
	known, masters, switched := map[int]bool{}, map[int]bool{}, false
	for _, index := range indexes {
		known[index] = true
	}
	for before := -1; before != len(all); {
		before = len(all)
		for _, l := range links {
			if known[l.Index] {
				masters[l.MasterIndex] = true
				switched = switched || l.Kind == openVSwitch
			}
		}
		for _, l := range links {
			isTap := l.Kind == "macvtap" || l.Kind == "ipvtap"
			isOn := handsOn[l.Kind] && !isTap && l.PeerNetNSID == SameNetNS && known[l.PeerIndex]
			if !known[l.Index] && (isOn || masters[l.Index] || switched && l.Kind == openVSwitch) {
				known[l.Index] = true
				all = append(all, l)
			}
		}
	}
	return all
}

// below returns the devices among links that l passes its packets to.
func below(l Link, links []Link) []Link {
	if !handsOn[l.Kind] {
		return nil
	}
	is := func(Link) bool { return false }
	switch l.Kind {
	case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap":
		if l.PeerNetNSID == SameNetNS {
			is = func(other Link) bool { return other.Index == l.PeerIndex }
		}
	case "bond", "team":
		is = func(other Link) bool { return other.MasterIndex == l.Index }
	}
	return slices.DeleteFunc(slices.Clone(links), func(other Link) bool { return !is(other) })
}

// VLANPriorities returns a VLAN's egress map, from priorities to code points (PCP); nil for another
// kind of device. Errors: ErrNoLink.
func VLANPriorities(index int) (map[uint32]uint32, error) {
	l, err := lookUp(netlink.LinkByIndex, index)
	if err != nil {
		return nil, err
	}
	if vlan, is := l.(*netlink.Vlan); is {
		return vlan.EgressQosMap, nil
	}
	return nil, nil
}

// SetGSOMaxBytes limits the packets that a device of the current namespace takes at once. Errors:
// ErrNoLink.
func SetGSOMaxBytes(index int, bytes uint32) error {
	l, err := lookUp(netlink.LinkByIndex, index)
	if err != nil {
		return err
	}
	return setGSOMaxBytes(netlink.LinkSetGSOMaxSize, l, bytes)
}

func setGSOMaxBytes(set func(netlink.Link, int) error, l netlink.Link, bytes uint32) error {
	if err := set(l, int(bytes)); err != nil {
		return fmt.Errorf("limit packets of %s to %d bytes: %w", l.Attrs().Name, bytes, err)
	}
	return nil
}

// LinkEvent reports a device that appeared, changed or went.
type LinkEvent struct {
	Link    Link
	Deleted bool
}

// WatchLinks reports changes of devices in the current namespace until ctx ends; then it closes the
// channel. It also closes the channel when the kernel has dropped events: the caller then lists the
// devices and watches again.
func WatchLinks(ctx context.Context) (<-chan LinkEvent, error) {
	// The library closes its socket only through done, not when the kernel has dropped events:
	// without this each such case would leak a socket.
	ctx, done := context.WithCancel(ctx)
	updates := make(chan netlink.LinkUpdate, 64)
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{
		// Some ten events for each container that starts or stops.
		ReceiveBufferSize: 4 << 20, ReceiveBufferForceSize: true,
	})
	if err != nil {
		done()
		return nil, fmt.Errorf("watch network devices: %w", err)
	}
	events := make(chan LinkEvent)
	go func() {
		defer done()
		defer close(events)
		for u := range updates {
			event := LinkEvent{Link: newLink(u.Link), Deleted: u.Header.Type == unix.RTM_DELLINK}
			select {
			case events <- event:
			case <-ctx.Done():
			}
		}
	}()
	return events, nil
}

// LinkSpeedBPS returns the speed that a device reports, in bits per second; 0 if it reports none.
func LinkSpeedBPS(name string) (uint64, error) {
	// struct ethtool_cmd (include/uapi/linux/ethtool.h).
	const speedUnknown = 0xffffffff
	command := struct {
		cmd, supported, advertising         uint32
		speed                               uint16
		duplex, port, phyAddress, transceiv uint8
		autoneg, mdio                       uint8
		maxTxPackets, maxRxPackets          uint32
		speedHigh                           uint16
		tpMDIX, tpMDIXCtrl                  uint8
		lpAdvertising                       uint32
		reserved                            [2]uint32
	}{cmd: unix.ETHTOOL_GSET}
	known, err := ethtool(name, unsafe.Pointer(&command))
	if err != nil {
		return 0, fmt.Errorf("ask %s for its speed: %w", name, err)
	}
	if !known {
		return 0, nil
	}
	mbit := uint32(command.speedHigh)<<16 | uint32(command.speed)
	if mbit == speedUnknown || mbit == 0xffff {
		return 0, nil
	}
	return uint64(mbit) * 1e6, nil
}

// ethtool sends a command of include/uapi/linux/ethtool.h to a device, and reports whether the
// device's driver knows it. /sys/class/net is no alternative: it shows another namespace if only the
// network namespace was changed. Errors: ErrNoLink.
func ethtool(name string, command unsafe.Pointer) (known bool, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: command}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	switch errno {
	case 0:
		return true, nil
	case unix.EOPNOTSUPP, unix.EINVAL:
		return false, nil
	case unix.ENODEV:
		return false, ErrNoLink
	}
	return false, os.NewSyscallError("ioctl", errno)
}

// MayChooseQueue reports whether the device has room for several transmit queues.
func (l Link) MayChooseQueue() bool { return l.maxTxQueues > 1 }

// ChoosesQueue reports whether the device has several transmit queues in use. Errors: ErrNoLink.
func (l Link) ChoosesQueue() (bool, error) {
	if !l.MayChooseQueue() {
		return false, nil
	}
	// struct ethtool_channels (include/uapi/linux/ethtool.h). Most veths use one of many.
	channels := struct {
		cmd                                         uint32
		maxRx, maxTx, maxOther, maxCombined         uint32
		rxCount, txCount, otherCount, combinedCount uint32
	}{cmd: unix.ETHTOOL_GCHANNELS}
	known, err := ethtool(l.Name, unsafe.Pointer(&channels))
	if err != nil {
		return false, fmt.Errorf("ask %s for its transmit queues: %w", l.Name, err)
	}
	return !known || channels.txCount+channels.combinedCount > 1, nil
}
