//go:build netns

package identity

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
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
	must.Succeed(b.t, err)
}

// Fragments are their container's, those that the host puts together for NAT and
// takes apart again as well.
func TestFragments(t *testing.T) {
	b := newBed(t)
	b.wantHeadroom()
	one, direct := b.bridgeContainer("one"), b.macvlanContainer("two", 101)
	b.assign(one, v1.ModeBridge, NumberFirst)
	b.assign(direct, v1.ModeMacvlan, NumberFirst+1)
	b.believeFragments(one)
	b.meet(one)
	b.listen(b.targets()[0].Port())
	for _, target := range b.targets() {
		b.expectFragments("bridge", one, target, NumberFirst)
		b.expectFragments("macvlan", direct, target, NumberFirst+1)
	}
	// What is believed outlives the agent, and is known to the next.
	b.open()
	b.expectFragments("after a restart", one, b.targets()[0], NumberFirst)
	must.Succeed(t, b.uplink.SetIndexDevices(nil))
	b.expectFragments("of a bridge that is not believed", one, b.targets()[0], NumberHost)
}

// TestFragmentsBehindVLAN: fragments are their container's where its packets come into the host by a VLAN
// on its bridge, whose device overwrites their priority.
func TestFragmentsBehindVLAN(t *testing.T) {
	if err := kernel.ProbeLink("vlan"); err != nil {
		t.Skipf("this kernel has no vlan: %v", err)
	}
	b := newBed(t)
	b.wantHeadroom()
	one := b.bridgeContainer("one")
	in := func(command string) {
		program, args, _ := strings.Cut(command, " ")
		b.run(program, append([]string{"-n", b.hostNS()}, strings.Fields(args)...)...)
	}
	in("ip link add link containers name containers.7 type vlan id 7")
	in("ip link set containers.7 up")
	in("ip link set containers type bridge vlan_filtering 1")
	in("bridge vlan add dev containers vid 7 self")
	in("bridge vlan add dev veth1 vid 7 pvid untagged")
	addresses, err := exec.Command("ip", "-n", b.hostNS(), "-o", "addr", "show", "dev", "containers", "scope", "global").Output()
	must.Succeed(t, err)
	for line := range strings.Lines(string(addresses)) {
		address := strings.Fields(line)[3]
		in("ip addr del " + address + " dev containers")
		in("ip addr add " + address + " dev containers.7")
	}
	b.assign(one, v1.ModeBridge, NumberFirst)
	b.believeFragments(one)
	b.meet(one)
	b.listen(b.targets()[0].Port())
	for _, target := range b.targets() {
		b.expectFragments("behind a VLAN", one, target, NumberFirst)
	}
}

// expectFragments asserts that fragmented datagrams of a namespace are a number's, and
// nobody else's.
func (b *bed) expectFragments(what, netNS string, target netip.AddrPort, number uint16) {
	b.t.Helper()
	const datagrams = 20
	counted := b.count(func() { b.sendFragmented(netNS, target, datagrams) }, func(counted []uint64) bool {
		var sum uint64
		for n, bytes := range counted {
			if uint16(n) != NumberControl {
				sum += bytes
			}
		}
		return sum >= datagrams*datagramBytes
	})
	for n, bytes := range counted {
		switch {
		case uint16(n) == number && bytes < datagrams*datagramBytes:
			b.t.Errorf("%s to %s: %d bytes counted for number %d, want %d", what, target, bytes, n, datagrams*datagramBytes)
		case uint16(n) != number && uint16(n) != NumberControl && bytes > slackBytes:
			b.t.Errorf("%s to %s: %d bytes counted for number %d, want all for %d", what, target, bytes, n, number)
		}
	}
}

// believeFragments does what the agent does, so that fragments of bridge containers
// which the host takes apart are believed to be theirs.
func (b *bed) believeFragments(containers ...string) {
	b.t.Helper()
	devices := map[int]bool{}
	for _, netNS := range containers {
		at := b.inspect(netNS)[0]
		devices[at.Tap.Ifindex] = true
		b.inHost(func() error {
			entrances, err := kernel.Entrances(map[int]bool{at.BridgeIndex: true})
			for _, entrance := range entrances[at.BridgeIndex] {
				devices[entrance.Index] = true
				b.attachBridge(entrance.Index)
			}
			return err
		})
	}
	must.Succeed(b.t, b.uplink.SetIndexDevices(devices))
}

func (b *bed) attachBridge(ifindex int) {
	b.t.Helper()
	b.inHost(func() error {
		bridges, err := NewBridges()
		if err != nil {
			return err
		}
		return errors.Join(bridges.Attach(ifindex), bridges.Close())
	})
}

// Fragments of a namespace that no engine knows, which has no tap, are nobody else's,
// whatever it writes into them and whoever puts them together on the way.
func TestForgedFragments(t *testing.T) {
	b := newBed(t)
	b.wantHeadroom()
	one, unknown, routed := b.bridgeContainer("one"), b.bridgeContainer("unk"), b.routedContainer("rtd")
	tap := b.assign(one, v1.ModeBridge, victim)
	for _, ns := range []string{one, unknown, routed} {
		b.meet(ns)
	}
	target := b.targets()[0]
	b.listen(target.Port())
	bridge := b.inspect(one)[0].BridgeIndex
	forged := int64(uplinkWeirTagWEIR_TAG_BASE) | int64(victim)

	// Not believed at all: then without the program. It must be what makes the difference.
	undo := b.forgeIn(unknown, "eth0", offsetTCIndex, forged)
	b.expectFragments("forged, and no bridge is believed", unknown, target, NumberHost)
	must.Succeed(t, b.uplink.SetIndexDevices(map[int]bool{bridge: true, tap.Ifindex: true}))
	b.expectFragments("forged, at a bridge where nothing is cleared", unknown, target, victim)
	undo()
	b.believeFragments(one)

	forgers := map[string]func(ns string) (undo func()){
		"by a program": func(ns string) func() { return b.forgeIn(ns, "eth0", offsetTCIndex, forged) },
		// For this nobody needs any right outside of the namespace.
		"by the class of a filter": func(ns string) func() { return b.forgeByFilter(ns, forged) },
	}
	for _, netfilter := range []string{"0", "1"} {
		if !b.setBridgeNetfilter(netfilter) && netfilter == "1" {
			continue
		}
		for name, forge := range forgers {
			name := fmt.Sprintf("%s, netfilter at the bridge: %s", name, netfilter)
			undoUnknown, undoRouted, undoOne := forge(unknown), forge(routed), forge(one)
			b.expectFragments("forged "+name, unknown, target, NumberHost)
			b.expectFragments("not behind a bridge, forged "+name, routed, target, NumberHost)
			b.expectFragments("the container's own, "+name, one, target, victim)
			b.expect("whole packets, forged "+name, NumberHost, frameBytes(target), func() { b.sendIn(unknown, target, 0) })
			undoUnknown()
			undoRouted()
			undoOne()
		}
	}

	// With a tap they are its own, forged or not.
	b.assign(routed, v1.ModeBridge, NumberFirst)
	b.believeFragments(one, routed)
	undo = b.forgeIn(routed, "eth0", offsetTCIndex, forged)
	b.expectFragments("with a tap, not behind a bridge", routed, target, NumberFirst)
	undo()

	// The program is first, is not attached twice, and goes.
	b.inHost(func() error {
		program, first, err := bridgeHook(bridge).FindPlace(bridgeProgWeirBridge)
		if err != nil || program == nil || !first {
			return fmt.Errorf("at the bridge: %v, first %t, %w", program, first, err)
		}
		before, err := program.Info()
		if err != nil {
			return err
		}
		program.Close()
		b.attachBridge(bridge)
		again, err := bridgeHook(bridge).Find(bridgeProgWeirBridge)
		if err != nil || again == nil {
			return fmt.Errorf("attached again: %v, %w", again, err)
		}
		defer again.Close()
		after, err := again.Info()
		if err != nil {
			return err
		}
		idBefore, _ := before.ID()
		if idAfter, _ := after.ID(); idBefore != idAfter {
			t.Error("what was as it should be was replaced")
		}
		if err := DetachBridges(); err != nil {
			return err
		}
		if left, err := bridgeHook(bridge).Find(bridgeProgWeirBridge); left != nil || err != nil {
			return fmt.Errorf("left at the bridge: %v, %w", left, err)
		}
		return nil
	})
}

// A device that others call a master and is no bridge is refused: packets that come in
// by it do not pass its hook.
func TestBridgeOfAnotherKind(t *testing.T) {
	b := newBed(t)
	b.inHost(func() error {
		bridges, err := NewBridges()
		if err != nil {
			return err
		}
		defer bridges.Close()
		if err := bridges.Attach(b.ifindex); err == nil || !strings.Contains(err.Error(), b.host.UplinkName+" is a device of kind veth and not a bridge") {
			t.Errorf("at a veth: %v", err)
		}
		if err := bridges.Attach(1 << 30); !errors.Is(err, kernel.ErrNoLink) {
			t.Errorf("at no device: %v", err)
		}
		return nil
	})
}

// forgeByFilter has the class of a clsact filter, which is tc_index, in every packet
// that leaves by eth0.
func (b *bed) forgeByFilter(netNS string, value int64) (undo func()) {
	b.t.Helper()
	b.run("tc", "-n", netNS, "qdisc", "add", "dev", "eth0", "clsact")
	b.run("tc", "-n", netNS, "filter", "add", "dev", "eth0", "egress", "bpf",
		"bytecode", "1,6 0 0 4294967295,", "classid", fmt.Sprintf("1:%x", value))
	return func() { b.run("tc", "-n", netNS, "qdisc", "del", "dev", "eth0", "clsact") }
}

// setBridgeNetfilter has netfilter see, and so put together, what bridges of the host
// forward, or not. It reports false where the kernel lacks that.
func (b *bed) setBridgeNetfilter(on string) bool {
	b.t.Helper()
	const path = "/proc/sys/net/bridge/bridge-nf-call-iptables"
	if _, err := os.Stat(path); err != nil {
		b.t.Logf("netfilter does not see bridges here: %v", err)
		return false
	}
	b.inHost(func() error { return os.WriteFile(path, []byte(on), 0) })
	return true
}

// routedContainer has a veth that is no port of a bridge.
func (b *bed) routedContainer(suffix string) string {
	b.t.Helper()
	ns := b.netNS(suffix)
	b.run("ip", "-n", b.hostNS(), "link", "add", "v"+suffix, "type", "veth", "peer", "name", "eth0", "netns", ns)
	for _, end := range []struct{ ns, device, address4, address6 string }{
		{b.hostNS(), "v" + suffix, "198.19.255.1/30", "fd00:ff::1/64"},
		{ns, "eth0", "198.19.255.2/30", "fd00:ff::2/64"},
	} {
		b.run("ip", "-n", end.ns, "addr", "add", end.address4, "dev", end.device)
		b.run("ip", "-n", end.ns, "-6", "addr", "add", end.address6, "dev", end.device, "nodad")
		b.run("ip", "-n", end.ns, "link", "set", end.device, "up")
	}
	b.run("ip", "-n", ns, "route", "add", "default", "via", "198.19.255.1")
	b.run("ip", "-n", ns, "-6", "route", "add", "default", "via", "fd00:ff::1")
	return ns
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
	defer program.Close()
	hook := kernel.Hook{NetNSPath: path(netNS), Egress: true}
	err := testbed.InNetNS(path(netNS), func() error {
		l, err := kernel.LinkByName(device)
		hook.Ifindex = l.Index
		return err
	})
	must.Succeed(b.t, errors.Join(err, hook.Attach(program, nil)))
	return func() {
		must.Succeed(b.t, hook.Detach(forgerName))
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
