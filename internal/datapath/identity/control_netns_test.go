//go:build netns

package identity

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// arpBytes is an ARP request, as the uplink counts it.
const arpBytes = 42

// sendARP sends n ARP requests from a device of a namespace, as fast as it can.
func (b *bed) sendARP(netNS, device string, n int) {
	b.t.Helper()
	request := make([]byte, arpBytes-14)
	copy(request, []byte{0, 1, 8, 0, 6, 4, 0, 1})
	b.sendFrames(netNS, device, [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, unix.ETH_P_ARP, request, n)
}

// sendFrames sends n frames to a MAC address from a device of a namespace, as fast as it can.
func (b *bed) sendFrames(netNS, device string, target [6]byte, etherType uint16, payload []byte, n int) {
	b.t.Helper()
	err := testbed.InNetNS(path(netNS), func() error {
		l, err := kernel.LinkByName(device)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrLinklayer{Ifindex: l.Index, Halen: 6, Protocol: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, etherType))}
		copy(to.Addr[:], target[:])
		for range n {
			if err := unix.Sendto(fd, payload, 0, to); err != nil {
				return err
			}
		}
		return nil
	})
	must.Succeed(b.t, err)
}

// Whoever floods the control class meets a budget of his own: address resolution
// of everybody else still goes through it. The link is one on which a few packets
// a second are all that the class guarantees.
func TestControlBudgets(t *testing.T) {
	b := newBed(t)
	one, two, unknown := b.macvlanContainer("one", 101), b.macvlanContainer("two", 102), b.macvlanContainer("unk", 103)
	b.assign(one, v1.ModeMacvlan, NumberFirst)
	b.assign(two, v1.ModeMacvlan, NumberFirst+1)
	b.set(one, NumberFirst)
	b.set(two, NumberFirst+1)
	b.watch(1e9)
	link := sched.Bounds{RateBPS: 2e6, DirectBytes: 1514, ControlBPS: 20e3}
	must.Succeed(t, b.uplink.SetDirect(link, []sched.Direct{{Number: NumberHost, May: true}, {Number: NumberFirst, May: true}, {Number: NumberFirst + 1, May: true}}))
	const flood = 400
	uplink := b.host.UplinkName
	dhcp := netip.AddrPortFrom(b.host.PeerAddr, 67)
	for _, from := range []struct {
		what   string
		number uint16 // whose the packets beyond the budget are
		bytes  uint64
		flood  func()
		others map[string]func()
	}{
		{"packets of the host that look like DHCP", NumberHost, frameBytes(dhcp), func() { b.sendIn(b.hostNS(), dhcp, 0) },
			map[string]func(){"the host": func() { b.sendARP(b.hostNS(), uplink, 4) }}},
		{"ARP of unknown origin", NumberHost, flood * arpBytes, func() { b.sendARP(unknown, "eth0", flood) },
			map[string]func(){
				"the host":    func() { b.sendARP(b.hostNS(), uplink, 4) },
				"a container": func() { b.sendARP(two, "eth0", 4) }}},
		{"ARP of a container", NumberFirst, flood * arpBytes, func() { b.sendARP(one, "eth0", flood) },
			map[string]func(){
				"the host":          func() { b.sendARP(b.hostNS(), uplink, 4) },
				"another container": func() { b.sendARP(two, "eth0", 4) }}},
		{"ARP of the host", NumberHost, flood * arpBytes, func() { b.sendARP(b.hostNS(), uplink, flood) },
			map[string]func(){"a container": func() { b.sendARP(two, "eth0", 4) }}},
	} {
		t.Run(from.what, func(t *testing.T) {
			b.t = t
			time.Sleep(300 * time.Millisecond) // what is left of the debts
			counted := b.count(from.flood, func(counted []uint64) bool {
				return counted[from.number]+counted[NumberControl] >= from.bytes
			})
			// A burst, one packet more, and what the time taken allows.
			if got := counted[NumberControl]; got == 0 || got > 2200 {
				t.Errorf("%d bytes of %d are control traffic, want a burst", got, from.bytes)
			}
			for who, ask := range from.others {
				counted := b.count(ask, func(counted []uint64) bool { return counted[NumberControl] >= 4*arpBytes })
				if got := counted[NumberControl]; got < 4*arpBytes {
					t.Errorf("then %d bytes of the ARP of %s are control traffic, want %d", got, who, 4*arpBytes)
				}
			}
		})
	}
	b.t = t
}
