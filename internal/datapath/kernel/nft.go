package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Of include/uapi/linux/netfilter/nf_tables.h and netfilter.h.
const (
	nftGetChain     = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETCHAIN
	nftGetFlowtable = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETFLOWTABLE

	nftaTable, nftaChainName, nftaChainHook         = 1, 3, 4
	nftaFlowtableName, nftaFlowtableHook            = 2, 3
	nftaFlowtableFlags, flowtableOffloaded          = 7, 1
	nftaHookNumber, nftaHookDevice, nftaHookDevices = 1, 3, 4
	nftaFlowtableDevices                            = 3
	nftaDeviceName, nftaDevicePrefix                = 1, 2

	familyInet, familyNetdev   = 1, 5
	inetIngress, netdevIngress = 5, 0
)

// nftKind is a kind of what nftables has at hooks: how to ask for it, and attributes of the answers.
type nftKind struct {
	message, name, hook, devices, flags uint16
	what                                string
}

var (
	nftChains     = nftKind{nftGetChain, nftaChainName, nftaChainHook, nftaHookDevices, 0, "nftables chain"}
	nftFlowtables = nftKind{nftGetFlowtable, nftaFlowtableName, nftaFlowtableHook, nftaFlowtableDevices, nftaFlowtableFlags, "nftables flow table"}
)

// IngressChains names the chains and flow tables of nftables at the ingress hook of a device of the
// current namespace; none on a kernel without nftables.
func IngressChains(device string) ([]string, error) {
	return atIngress(device, false, nftChains, nftFlowtables)
}

// FlowTables names the flow tables of nftables at the ingress hook of a device of the current namespace: packets of
// their flows are forwarded from there. With offloaded it names only those whose flows the card forwards.
func FlowTables(device string, offloaded bool) ([]string, error) {
	return atIngress(device, offloaded, nftFlowtables)
}

func atIngress(device string, offloaded bool, kinds ...nftKind) ([]string, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask for nftables: %w", err)
	}
	defer conn.Close()
	return namesAtIngress(conn, device, offloaded, kinds)
}

func namesAtIngress(conn *netlink.Conn, device string, offloaded bool, kinds []nftKind) (names []string, err error) {
	for _, ask := range kinds {
		answers, err := requestList(conn, ask.message, make([]byte, 4)) // struct nfgenmsg: all families
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // no nftables
		}
		if err != nil {
			return nil, fmt.Errorf("list what nftables has at %s: %w", device, err)
		}
		for _, answer := range answers {
			hook := nftHook{nftKind: ask, device: device}
			if name, err := hook.read(answer.Data); err != nil {
				return nil, fmt.Errorf("list what nftables has at %s: %w", device, err)
			} else if name != "" && (hook.offloaded || !offloaded) {
				names = append(names, ask.what+" "+name)
			}
		}
	}
	return names, nil
}

// nftHook reads where a chain or flow table hangs.
type nftHook struct {
	nftKind
	device           string
	number           uint32
	there, offloaded bool
}

// read returns the name of a chain or flow table if it hangs at ingress of the device, and "" otherwise.
func (h *nftHook) read(data []byte) (string, error) {
	if len(data) < 4 {
		return "", unix.EBADMSG
	}
	attributes, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return "", fmt.Errorf("read an answer: %w", err)
	}
	var table, name string
	for attributes.Next() {
		switch attributes.Type() {
		case nftaTable:
			table = attributes.String()
		case h.name:
			name = attributes.String()
		case h.hook:
			attributes.Nested(h.readHook)
		case h.flags:
			raw := attributes.Bytes() // in network order
			h.offloaded = len(raw) == 4 && raw[3]&flowtableOffloaded != 0
		}
	}
	if err := attributes.Err(); err != nil {
		return "", fmt.Errorf("read an answer: %w", err)
	}
	family, ingress := data[0], h.devices == nftaFlowtableDevices // which have no other hook
	ingress = ingress || family == familyNetdev && h.number == netdevIngress || family == familyInet && h.number == inetIngress
	if !h.there || !ingress {
		return "", nil
	}
	return table + " " + name, nil
}

func (h *nftHook) readHook(attributes *netlink.AttributeDecoder) error {
	for attributes.Next() {
		switch kind := attributes.Type(); {
		case kind == nftaHookNumber:
			if raw := attributes.Bytes(); len(raw) == 4 {
				h.number = uint32(raw[0])<<24 | uint32(raw[1])<<16 | uint32(raw[2])<<8 | uint32(raw[3])
			}
		case kind == h.devices:
			attributes.Nested(func(devices *netlink.AttributeDecoder) error {
				for devices.Next() {
					h.there = h.there || h.covers(devices.Type(), devices.Bytes())
				}
				return devices.Err()
			})
		case kind == nftaHookDevice:
			h.there = h.there || h.covers(nftaDeviceName, attributes.Bytes())
		}
	}
	return attributes.Err()
}

// covers reports whether an attribute names the device, by its whole name or by a prefix ("eth*", from Linux 6.16:
// commit 6d07a289504a, a name without a terminating NUL; then commit 4039ce7ef404, a kind of its own).
func (h *nftHook) covers(kind uint16, value []byte) bool {
	name, isTerminated := strings.CutSuffix(string(value), "\x00")
	if kind == nftaDeviceName && isTerminated {
		return name == h.device
	}
	return (kind == nftaDeviceName || kind == nftaDevicePrefix) && strings.HasPrefix(h.device, name)
}
