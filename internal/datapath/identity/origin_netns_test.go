//go:build netns

package identity

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

// watch watches origins and limits unknown origins to a rate.
func (b *bed) watch(unknownBPS uint64) {
	b.t.Helper()
	b.inHost(b.origins.Watch)
	must.Succeed(b.t, b.uplink.LimitUnknownOrigins(unknownBPS))
}

// inode is that of a namespace.
func (b *bed) inode(netNS string) uint32 {
	b.t.Helper()
	id, err := kernel.NetNSIdentity(path(netNS))
	must.Succeed(b.t, err)
	return uint32(id.Inode)
}

func (b *bed) set(netNS string, number uint16) {
	b.t.Helper()
	must.Succeed(b.t, b.origins.Set(b.inode(netNS), number))
}

// expectUnknown asserts that what do sends is an unknown origin's: wantBytes, of
// which the host is counted from atLeast to atMost and nobody else anything.
func (b *bed) expectUnknown(what string, wantBytes, atLeast, atMost uint64, do func()) {
	b.t.Helper()
	enough := func(counted []uint64) bool {
		return counted[NumberNone] >= wantBytes && counted[NumberHost] >= atLeast
	}
	for n, got := range b.count(do, enough) {
		switch uint16(n) {
		case NumberNone:
			if got < wantBytes {
				b.t.Errorf("%s: %d bytes counted for unknown origins, want %d", what, got, wantBytes)
			}
		case NumberHost:
			if got < atLeast || got > atMost {
				b.t.Errorf("%s: %d bytes let through, want %d to %d", what, got, atLeast, atMost)
			}
		case NumberControl:
		default:
			if got != 0 {
				b.t.Errorf("%s: %d bytes counted for number %d", what, got, n)
			}
		}
	}
}

// What a namespace is said to be decides, whatever tag there is; what is not
// said makes an unknown origin.
func TestOrigins(t *testing.T) {
	for _, of := range []struct{ kind, mode string }{{"macvlan", "bridge"}, {"ipvlan", "l2"}, {"ipvlan", "l3"}} {
		t.Run(of.kind+" "+of.mode, func(t *testing.T) {
			if err := kernel.ProbeLink(of.kind); err != nil {
				t.Skipf("this kernel has no %s: %v", of.kind, err)
			}
			testOrigins(t, of.kind, of.mode)
		})
	}
}

func testOrigins(t *testing.T, kind, mode string) {
	b := newBed(t)
	one := b.directContainer("one", 101, kind, mode)
	bridged := b.bridgeContainer("bridged")
	b.assign(bridged, v1.ModeBridge, NumberFirst+1)
	b.meet(bridged)
	const plenty, narrow = 1e9, 100e3
	b.watch(plenty)
	for i, target := range b.targets() {
		if i > 0 {
			time.Sleep(300 * time.Millisecond) // the debt of the last few packets
		}
		all := frameBytes(target)
		plain := func() { b.sendIn(one, target, 0) }
		forged := func() { b.sendIn(one, target, forgedPriority) }
		must.Succeed(t, b.uplink.LimitUnknownOrigins(plenty))
		b.expectUnknown("within the limit", all, all, all+slackBytes, plain)
		b.expectUnknown("forged, within the limit", all, all, all+slackBytes, forged)
		unknown, err := b.origins.UnknownOrigins()
		if err != nil || !slices.Equal(unknown, []uint32{b.inode(one)}) {
			t.Errorf("unknown origins %v, %v, want %d", unknown, err, b.inode(one))
		}
		if unknown, err := b.origins.UnknownOrigins(); len(unknown) != 0 || err != nil {
			t.Errorf("unknown origins once more: %v, %v", unknown, err)
		}
		// 100 ms at once, and what the time taken allows.
		must.Succeed(t, b.uplink.LimitUnknownOrigins(narrow))
		b.expectUnknown("beyond the limit", all, 1, all/2, plain)
		// Others are not in the unknown origins' way, nor they in theirs.
		b.expect("host", NumberHost, all, func() { b.sendIn(b.hostNS(), target, 0) })
		b.expect("bridged", NumberFirst+1, all, func() { b.sendIn(bridged, target, 0) })

		b.set(one, NumberFirst)
		b.expect("known", NumberFirst, all, plain)
		b.expect("known, forged", NumberFirst, all, forged)
		b.set(one, NumberHost)
		b.expect("the host's", NumberHost, all, plain)
		b.expect("the host's, forged", NumberHost, all, forged)
		b.set(one, NumberNone)
		b.expect("judged by tags", NumberHost, all, plain)
		b.expect("judged by tags, forged", victim, all, forged)

		if mode != "l3" { // which does without Ethernet's addresses
			testOriginsToGroup(b, one, target)
		}
		must.Succeed(t, b.origins.Forget(b.inode(one)))
	}
	if err := b.origins.Forget(1); err != nil {
		t.Errorf("forget a namespace that was never set: %v", err)
	}

	// As when the agent dies: nobody watches, and the classifier is not told.
	must.Succeed(t, b.origins.Unwatch())
	target := b.targets()[0]
	b.expect("no longer watched", NumberHost, frameBytes(target), func() { b.sendIn(one, target, 0) })
	// In the middle of a transmission, on every processor.
	type note struct { // struct weir_origin
		device, sinceTicks uint64
		netns, _           uint32
	}
	left := make([]note, ebpf.MustPossibleCPU())
	for i := range left {
		left[i] = note{device: 1, sinceTicks: 1, netns: b.inode(one)}
	}
	must.Succeed(t, b.origins.origins.Put(uint32(0), left))
	b.expect("a note left behind", NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 0) })
	// As the next agent: what the last one said is not in force any more.
	b.set(one, NumberFirst)
	old := b.origins
	var err error
	if b.origins, err = NewOrigins(); err != nil {
		t.Fatal(err)
	}
	b.open()
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	b.expect("a new agent", NumberHost, frameBytes(target), func() { b.sendIn(one, target, 0) })
	b.watch(plenty)
	b.expectUnknown("watched by a new agent", frameBytes(target), frameBytes(target), frameBytes(target)+slackBytes,
		func() { b.sendIn(one, target, 0) })
}

// In frames for a group, which ipvlan leaves to a thread to send, it is the same.
func testOriginsToGroup(b *bed, one string, target netip.AddrPort) {
	all := frameBytes(target)
	b.run("ip", "-n", one, "neigh", "replace", target.Addr().String(), "lladdr", "33:33:00:00:00:01", "dev", "eth0")
	send := func(priority uint32) func() {
		return func() {
			b.sendIn(one, target, priority)
			time.Sleep(50 * time.Millisecond)
		}
	}
	b.expect("to a group, judged by tags, forged", victim, all, send(forgedPriority))
	b.set(one, NumberFirst)
	b.expect("to a group, known", NumberFirst, all, send(0))
	b.expect("to a group, known, forged", NumberFirst, all, send(forgedPriority))
	must.Succeed(b.t, b.origins.Forget(b.inode(one)))
	const plenty = 1e9
	must.Succeed(b.t, b.uplink.LimitUnknownOrigins(plenty))
	b.expectUnknown("to a group, an unknown origin", all, all, all+slackBytes, send(forgedPriority))
	b.run("ip", "-n", one, "neigh", "del", target.Addr().String(), "dev", "eth0")
	b.meet(one)
}

// The namespace of an overlay is one that packets come from, too. What it sends
// at once, though the uplink takes several packets, is of one origin.
func TestOriginsOfOverlay(t *testing.T) {
	b := newBed(t)
	far := netip.MustParseAddr("198.18.0.200")
	hidden := b.overlay("hid", 77, b.host.PeerAddr.Prev(), b.host.PeerAddr)
	one := b.overlayContainer(hidden, "one", far)
	b.assign(one, v1.ModeOverlay, NumberFirst)
	target := netip.AddrPortFrom(far, 9)
	all := frameBytes(target) + packets*(14+20+8+8)
	b.watch(1e9)
	b.expectUnknown("not known", all, all, all+slackBytes, func() { b.sendIn(one, target, 0) })
	b.set(hidden, NumberNone)
	b.expect("known", NumberFirst, all, func() { b.sendIn(one, target, 0) })

	b.set(hidden, NumberFirst+1)
	for _, device := range [][2]string{{hidden, "vx0"}, {hidden, "br0"}, {hidden, "vone"}, {one, "eth0"}} {
		b.run("ip", "-n", device[0], "link", "set", device[1], "mtu", "1500")
	}
	const large = 1472
	b.expect("in fragments", NumberFirst+1, large+2*(14+20), func() {
		err := testbed.InNetNS(path(one), func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return errors.Join(
				unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT),
				unix.Sendto(fd, make([]byte, large), 0, &unix.SockaddrInet4{Port: int(target.Port()), Addr: far.As4()}))
		})
		must.Succeed(t, err)
	})
}
