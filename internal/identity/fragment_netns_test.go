//go:build netns

package identity

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// datagramBytes takes three frames.
const datagramBytes = 3000

// sendFragmented sends datagrams that are larger than a frame from a namespace.
func (b *bed) sendFragmented(netNS string, target netip.AddrPort, datagrams int) {
	b.t.Helper()
	err := testbed.InNetNS(path(netNS), func() error {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
		if err != nil {
			return err
		}
		defer conn.Close()
		for range datagrams {
			if _, err := conn.Write(make([]byte, datagramBytes)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Fragments are their container's, those that the host puts together for NAT and
// takes apart again as well.
func TestFragments(t *testing.T) {
	b := newBed(t)
	b.wantHeadroom()
	one := b.bridgeContainer("one")
	b.assign(one, v1.ModeBridge, NumberFirst)
	b.meet(one)
	const datagrams = 20
	b.listen(b.targets()[0].Port())
	for _, target := range b.targets() {
		counted := b.count(func() { b.sendFragmented(one, target, datagrams) }, func(counted []uint64) bool {
			return counted[NumberFirst]+counted[NumberHost] >= datagrams*datagramBytes
		})
		if got := counted[NumberFirst]; got < datagrams*datagramBytes {
			t.Errorf("to %s: %d bytes counted for the container and %d for the host, want %d for the container",
				target, got, counted[NumberHost], datagrams*datagramBytes)
		}
	}
}

// A namespace that no engine knows has no tap. What it writes into its packets
// before they cross its veth makes them nobody else's.
func TestForgedAcrossVeth(t *testing.T) {
	b := newBed(t)
	unknown := b.bridgeContainer("unk")
	b.meet(unknown)
	for name, forged := range map[string]struct {
		offset int16
		value  int64
	}{
		"tc_index":      {offsetTCIndex, int64(uplinkWeirTagWEIR_TAG_BASE) | int64(victim)},
		"queue_mapping": {offsetQueueMapping, int64(uplinkWeirTagWEIR_TAG_BASE) | int64(victim)},
		"priority":      {offsetPriority, int64(forgedPriority)},
	} {
		undo := b.forgeIn(unknown, "eth0", forged.offset, forged.value)
		for _, target := range b.targets() {
			b.expect(fmt.Sprintf("forged %s to %s", name, target), NumberHost, frameBytes(target), func() { b.sendIn(unknown, target, 0) })
		}
		undo()
	}
}

// forgeIn writes a field of every packet that leaves through a device of a
// namespace.
func (b *bed) forgeIn(netNS, device string, offset int16, value int64) (undo func()) {
	b.t.Helper()
	program := b.forger(offset, value)
	err := testbed.InNetNS(path(netNS), func() error {
		l, err := kernel.LinkByName(device)
		if err != nil {
			return err
		}
		return link.RawAttachProgram(link.RawAttachProgramOptions{
			Target: l.Index, Program: program, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return func() {
		err := testbed.InNetNS(path(netNS), func() error {
			l, err := kernel.LinkByName(device)
			if err != nil {
				return err
			}
			return link.RawDetachProgram(link.RawDetachProgramOptions{
				Target: l.Index, Program: program, Attach: ebpf.AttachTCXEgress})
		})
		if err != nil {
			b.t.Fatal(err)
		}
		program.Close()
	}
}

// wantHeadroom makes the uplink a device that wants more room for headers than a
// veth, as wireless ones and those below tunnels do: fragments are copied then. A
// veth wants what the bridge of its other end does.
func (b *bed) wantHeadroom() {
	b.t.Helper()
	peer := filepath.Base(b.host.PeerNetNSPath())
	for _, command := range []string{
		"link add tunnel type vxlan id 9 dstport 4790 local " + b.host.PeerAddr.String(),
		"link add bridge type bridge",
		"link set tunnel master bridge",
		"link set neighbour master bridge",
		"addr add " + b.host.PeerAddr.String() + "/22 dev bridge",
		"-6 addr add " + b.host.PeerAddr6.String() + "/64 dev bridge nodad",
		"addr flush dev neighbour",
		"link set bridge up",
	} {
		b.run("ip", append([]string{"-n", peer}, strings.Fields(command)...)...)
	}
	b.meet(b.hostNS())
}
