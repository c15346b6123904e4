//go:build netns

package identity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// Every test here sends a known number of packets and asserts for whom the
// uplink program counted them: all of them, and for nobody else.

const (
	packets      = 100
	payloadBytes = 1000
	callPort     = 5060
	// slackBytes is what a namespace says of its own accord meanwhile
	// (neighbours, multicast listeners) where that is counted too.
	slackBytes = 1500
	victim     = NumberFirst + 100 // another container's number
)

// majors are those that slowUplink gives its qdiscs.
var majors = sched.Majors{Classes: 0x7e11, Direct: 0x7e0f}

func TestMain(m *testing.M) {
	if mode := os.Getenv("WEIR_TEST_HELPER"); mode != "" {
		if err := helper(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// helper is what runs in processes of its own, in a cgroup.
func helper(mode string) error {
	target, err := netip.ParseAddrPort(os.Getenv("WEIR_TEST_TARGET"))
	if err != nil {
		return err
	}
	switch mode {
	case "send":
		return send(target, 0)
	case "forge":
		return send(target, forgedPriority)
	case "exchange":
		return exchange(target)
	case "bypass":
		return bypass()
	case "serve":
		listener, err := net.Listen("tcp", target.String())
		if err != nil {
			return err
		}
		fmt.Println("ready")
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		_, err = conn.Write(make([]byte, packets*payloadBytes))
		return errors.Join(err, conn.Close())
	}
	return errors.New(mode)
}

// forgedPriority is the tag of victim.
const forgedPriority = uint32(uplinkWeirPriorityWEIR_PRIORITY_MAGIC)<<uplinkWeirPriorityWEIR_PRIORITY_MAGIC_SHIFT |
	uint32(victim)<<uplinkWeirPriorityWEIR_PRIORITY_TAG_SHIFT

// send sends packets to target, with a priority if that is not 0.
func send(target netip.AddrPort, priority uint32) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
	if err != nil {
		return err
	}
	defer conn.Close()
	if priority != 0 {
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		var set error
		err = raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, int(int32(priority)))
		})
		if err := errors.Join(err, set); err != nil {
			return fmt.Errorf("SO_PRIORITY: %w", err)
		}
	}
	for sent := 0; sent < packets; {
		_, err := conn.Write(make([]byte, payloadTo(target)))
		switch {
		case err == nil:
			sent++
			if sent == packets/2 {
				// What waits until the neighbour's address is known is ninety of them at
				// most (net.ipv4.neigh.default.unres_qlen_bytes), and all come at once.
				time.Sleep(20 * time.Millisecond)
			}
		case errors.Is(err, unix.ECONNREFUSED): // the answer to one before
		default:
			return err
		}
	}
	return nil
}

// frameBytes is what send sends at the least, as the uplink counts it.
// payloadTo is what a packet to target carries: a call's are small, or they would be bulk.
func payloadTo(target netip.AddrPort) int {
	if target.Port() == callPort {
		return payloadBytes / 5
	}
	return payloadBytes
}

func frameBytes(target netip.AddrPort) uint64 {
	headers := 14 + 20 + 8
	if target.Addr().Is6() {
		headers += 20
	}
	return packets * uint64(headers+payloadTo(target))
}

// bed is a test host with a classifier at its uplink.
type bed struct {
	t       testing.TB
	host    *testbed.Host
	origins *Origins
	uplink  *Uplink
	// ifindex is the uplink's.
	ifindex int
}

func newBed(t testing.TB) *bed {
	t.Helper()
	host, err := testbed.NewHost(context.Background(), testbed.HostOptions{})
	must.Succeed(t, err)
	origins, err := NewOrigins()
	must.Succeed(t, err)
	b := &bed{t: t, host: host, origins: origins}
	t.Cleanup(func() {
		if err := b.origins.Close(); err != nil {
			t.Error(err)
		}
		if b.uplink != nil {
			b.uplink.Close()
		}
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	b.inHost(func() error {
		l, err := kernel.LinkByName(host.UplinkName)
		b.ifindex = l.Index
		return err
	})
	b.open()
	b.meet(b.hostNS())
	return b
}

// meet lets a namespace and the neighbour find each other, so that they need
// not while packets are counted: none waits for an address any more.
func (b *bed) meet(netNS string) {
	b.t.Helper()
	for _, target := range b.targets() {
		before := b.offeredData()
		// A packet to target at least: smaller ones look for neighbours and listeners.
		for deadline := time.Now().Add(10 * time.Second); b.offeredData() < before+payloadBytes; {
			if time.Now().After(deadline) {
				b.t.Fatalf("%s does not get through to %s", netNS, target)
			}
			must.Succeed(b.t, testbed.InNetNS(path(netNS), func() error { return trickle(target, 1, 0) }))
			time.Sleep(10 * time.Millisecond)
		}
		for last := before; last != b.offeredData(); time.Sleep(20 * time.Millisecond) {
			last = b.offeredData()
		}
	}
}

// offeredData is what was counted for everybody but the control class.
func (b *bed) offeredData() uint64 {
	b.t.Helper()
	var sum uint64
	for number, bytes := range b.offered() {
		if uint16(number) != NumberControl {
			sum += bytes
		}
	}
	return sum
}

// open opens the classifier, as an agent that starts.
func (b *bed) open() {
	b.t.Helper()
	if b.uplink != nil {
		b.uplink.Close()
	}
	b.inHost(func() (err error) {
		b.uplink, err = OpenUplink(b.ifindex, majors, b.origins)
		return err
	})
}

func (b *bed) inHost(fn func() error) {
	b.t.Helper()
	must.Succeed(b.t, testbed.InNetNS(b.host.NetNSPath(), fn))
}

func (b *bed) run(name string, args ...string) {
	b.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// netNS makes a namespace beside the host's and returns its name.
func (b *bed) netNS(suffix string) string {
	b.t.Helper()
	name := strings.TrimSuffix(b.hostNS(), "host") + suffix
	b.run("ip", "netns", "add", name)
	b.t.Cleanup(func() { b.run("ip", "netns", "del", name) })
	b.run("ip", "-n", name, "link", "set", "lo", "up")
	return name
}

func (b *bed) hostNS() string { return filepath.Base(b.host.NetNSPath()) }

func path(netNS string) string { return filepath.Join(testbed.NetNSDir, netNS) }

// inspect looks at a container as the agent does, from the host's namespace.
func (b *bed) inspect(netNS string) []Attachment {
	b.t.Helper()
	var found []Attachment
	b.inHost(func() (err error) {
		found, err = NewInspector().Inspect(path(netNS), "")
		return err
	})
	return found
}

// assign assigns a container's only attachment to number, which must be found in mode.
func (b *bed) assign(netNS string, mode v1.Mode, number uint16) Tap {
	b.t.Helper()
	found := b.inspect(netNS)
	if len(found) != 1 || found[0].Mode != mode || found[0].Tap.Ifindex == 0 || found[0].Obstacle != "" {
		b.t.Fatalf("found %+v, want one %s attachment", found, mode)
	}
	b.inHost(func() error {
		taps, err := NewTaps()
		if err != nil {
			return err
		}
		defer taps.Close()
		if _, err := taps.Attach(found[0].Tap, number); err != nil {
			return err
		}
		got, err := TapNumber(found[0].Tap)
		if err == nil && got != number {
			return fmt.Errorf("the tap says it is assigned to %d, not %d", got, number)
		}
		return err
	})
	return found[0].Tap
}

// offered reads the uplink's counters.
func (b *bed) offered() []uint64 {
	b.t.Helper()
	offered := make([]uint64, numbers)
	must.Succeed(b.t, b.uplink.OfferedBytes(offered))
	return offered
}

// count is what is counted for each number of what do sends. It waits until that
// is enough: a packet that crosses from one namespace into another may be left to
// a thread of the kernel's (ksoftirqd).
func (b *bed) count(do func(), enough func(counted []uint64) bool) []uint64 {
	b.t.Helper()
	before := b.offered()
	do()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		counted := b.offered()
		for n := range counted {
			counted[n] -= before[n]
		}
		if enough(counted) || time.Now().After(deadline) {
			return counted
		}
	}
}

// expect asserts that all that do sends, wantBytes at least, is counted for
// number, and nothing for any other but the control class.
func (b *bed) expect(what string, number uint16, wantBytes uint64, do func()) {
	b.t.Helper()
	for n, got := range b.count(do, func(counted []uint64) bool { return counted[number] >= wantBytes }) {
		switch {
		case uint16(n) == number && (got < wantBytes || got > wantBytes+slackBytes):
			b.t.Errorf("%s: %d bytes counted for number %d, want %d", what, got, n, wantBytes)
		case uint16(n) == number || uint16(n) == NumberControl:
		case n != int(victim) && got <= slackBytes: // its own: reports of multicast listeners
		case got != 0:
			b.t.Errorf("%s: %d bytes counted for number %d, want all for %d", what, got, n, number)
		}
	}
}

// targets are where the tests send to: the neighbour, over IPv4 and IPv6.
func (b *bed) targets() []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(b.host.PeerAddr, 9), netip.AddrPortFrom(b.host.PeerAddr6, 9)}
}

// sendIn sends from a namespace, in this process and its cgroup.
func (b *bed) sendIn(netNS string, target netip.AddrPort, priority uint32) {
	b.t.Helper()
	must.Succeed(b.t, testbed.InNetNS(path(netNS), func() error { return send(target, priority) }))
}

// helper prepares a process of its own in a namespace and a cgroup, which ends with the test.
func (b *bed) helper(mode, netNS, cgroup string, target netip.AddrPort) *exec.Cmd {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "nsenter", "--net="+path(netNS), "--", os.Args[0])
	cmd.Env = append(os.Environ(), "WEIR_TEST_HELPER="+mode, "WEIR_TEST_TARGET="+target.String())
	cmd.Stderr = os.Stderr
	dir, err := os.Open(cgroup)
	must.Succeed(b.t, err)
	b.t.Cleanup(func() { dir.Close() })
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	return cmd
}

func (b *bed) sendFromCgroup(mode, netNS, cgroup string, target netip.AddrPort) {
	b.t.Helper()
	must.Succeed(b.t, b.helper(mode, netNS, cgroup, target).Run())
}

// cgroup makes a cgroup below the root of the version 2 hierarchy.
func (b *bed) cgroup(below ...string) string {
	b.t.Helper()
	mount, err := cgroup.FindRoot("/proc")
	must.Succeed(b.t, err)
	dir := filepath.Join(mount, strings.TrimSuffix("weir-test-"+b.hostNS(), "-host"))
	for _, part := range append([]string{""}, below...) {
		dir = filepath.Join(dir, part)
		made := dir
		if err := os.Mkdir(made, 0o755); err == nil {
			b.t.Cleanup(func() {
				if err := os.Remove(made); err != nil && !errors.Is(err, os.ErrNotExist) {
					b.t.Error(err)
				}
			})
		} else if !errors.Is(err, os.ErrExist) {
			b.t.Fatal(err)
		}
	}
	return dir
}

// forgeAtUplink attaches a program before the classifier that writes a field
// of every packet, as something on its way could have done.
func (b *bed) forgeAtUplink(offset int16, value int64) (undo func()) {
	b.t.Helper()
	if err := kernel.ProbeTCX(); err != nil {
		b.t.Skipf("nothing comes before the classifier here: %v", err)
	}
	program := b.forger(offset, value)
	b.inHost(func() error {
		return link.RawAttachProgram(link.RawAttachProgramOptions{
			Target: b.ifindex, Program: program, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
	})
	return func() {
		b.inHost(func() error {
			return link.RawDetachProgram(link.RawDetachProgramOptions{
				Target: b.ifindex, Program: program, Attach: ebpf.AttachTCXEgress})
		})
		program.Close()
	}
}

// forgerName is what the kernel calls a program that forger makes.
const forgerName = "forge"

// forger is a program that writes a field of every packet.
func (b *bed) forger(offset int16, value int64) *ebpf.Program {
	b.t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: forgerName, Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, int32(value)),
			asm.StoreMem(asm.R1, offset, asm.R2, asm.Word),
			asm.Mov.Imm(asm.R0, -1), // TC_ACT_UNSPEC
			asm.Return(),
		},
	})
	must.Succeed(b.t, err)
	return program
}

// Offsets in struct __sk_buff (include/uapi/linux/bpf.h).
const (
	offsetQueueMapping = 12
	offsetPriority     = 32
	offsetTCIndex      = 44
)

func (b *bed) bridgeContainer(name string) string {
	b.t.Helper()
	c, err := b.host.AddContainer(context.Background(), name)
	must.Succeed(b.t, err)
	return filepath.Base(c.NetNSPath())
}

func (b *bed) macvlanContainer(suffix string, index byte) string {
	b.t.Helper()
	return b.directContainer(suffix, index, "macvlan", "bridge")
}

// directContainer makes a container with a device of a kind and mode on the
// uplink.
func (b *bed) directContainer(suffix string, index byte, kind, mode string) string {
	b.t.Helper()
	ns := b.netNS(suffix)
	b.run("ip", "-n", b.hostNS(), "link", "add", "mv0", "link", b.host.UplinkName, "type", kind, "mode", mode)
	b.run("ip", "-n", b.hostNS(), "link", "set", "mv0", "netns", ns, "name", "eth0")
	addr4, addr6 := b.host.PeerAddr.As4(), b.host.PeerAddr6.As16()
	addr4[3], addr6[15] = index, index
	b.run("ip", "-n", ns, "addr", "add", netip.AddrFrom4(addr4).String()+"/22", "dev", "eth0")
	b.run("ip", "-n", ns, "-6", "addr", "add", netip.AddrFrom16(addr6).String()+"/64", "dev", "eth0", "nodad")
	b.run("ip", "-n", ns, "link", "set", "eth0", "up")
	b.meet(ns)
	return ns
}

func TestBridgePackets(t *testing.T) {
	b := newBed(t)
	one, two := b.bridgeContainer("one"), b.bridgeContainer("two")
	b.assign(one, v1.ModeBridge, NumberFirst)
	b.assign(two, v1.ModeBridge, NumberFirst+1)
	b.meet(one)
	b.meet(two)
	for _, target := range b.targets() {
		b.expect(fmt.Sprint("one to ", target), NumberFirst, frameBytes(target), func() { b.sendIn(one, target, 0) })
		b.expect(fmt.Sprint("two to ", target), NumberFirst+1, frameBytes(target), func() { b.sendIn(two, target, 0) })
		b.expect(fmt.Sprint("forged priority to ", target), NumberFirst, frameBytes(target), func() { b.sendIn(one, target, forgedPriority) })
		b.expect(fmt.Sprint("host to ", target), NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 0) })
	}
}

func TestMacvlanPackets(t *testing.T) {
	b := newBed(t)
	one, two := b.macvlanContainer("one", 101), b.macvlanContainer("two", 102)
	tap := b.assign(one, v1.ModeMacvlan, NumberFirst)
	b.assign(two, v1.ModeMacvlan, NumberFirst+1)
	for _, target := range b.targets() {
		b.expect(fmt.Sprint("one to ", target), NumberFirst, frameBytes(target), func() { b.sendIn(one, target, 0) })
		b.expect(fmt.Sprint("two to ", target), NumberFirst+1, frameBytes(target), func() { b.sendIn(two, target, 0) })
		b.expect(fmt.Sprint("forged priority to ", target), NumberFirst, frameBytes(target), func() { b.sendIn(one, target, forgedPriority) })
		undo := b.forgeAtUplink(offsetQueueMapping, int64(uplinkWeirTagWEIR_TAG_BASE)|int64(victim))
		b.expect(fmt.Sprint("forged queue to ", target), NumberFirst, frameBytes(target), func() { b.sendIn(one, target, 0) })
		undo()
	}

	// A second program there, or a new version, replaces the first.
	b.assign(one, v1.ModeMacvlan, NumberFirst+2)
	target := b.targets()[0]
	b.expect("assigned anew", NumberFirst+2, frameBytes(target), func() { b.sendIn(one, target, 0) })

	// A container with the rights to can remove its tap; its cgroup remains.
	b.inHost(func() error { return DetachTap(tap) })
	b.expect("tap removed, cgroup unknown", NumberHost, frameBytes(target), func() { b.sendIn(one, target, 0) })
	cgroup := b.cgroup("one")
	must.Succeed(t, b.uplink.AssignCgroup(cgroup, NumberFirst))
	for _, target := range b.targets() {
		b.expect(fmt.Sprint("tap removed, to ", target), NumberFirst, frameBytes(target), func() { b.sendFromCgroup("send", one, cgroup, target) })
		b.expect(fmt.Sprint("tap removed, forged, to ", target), NumberFirst, frameBytes(target), func() { b.sendFromCgroup("forge", one, cgroup, target) })
	}
}

// overlay is a VXLAN network as Docker makes it: bridge and VXLAN device in a
// namespace of their own, the outer socket in the host's. Returns the hidden
// namespace.
func (b *bed) overlay(suffix string, id int, local, remote netip.Addr) string {
	b.t.Helper()
	hidden := b.netNS(suffix)
	b.run("ip", "-n", b.hostNS(), "link", "add", "vx0", "type", "vxlan", "id", fmt.Sprint(id), "dstport", "4789",
		"local", local.String(), "remote", remote.String())
	b.run("ip", "-n", b.hostNS(), "link", "set", "vx0", "netns", hidden)
	b.run("ip", "-n", hidden, "link", "add", "br0", "type", "bridge")
	b.run("ip", "-n", hidden, "link", "set", "br0", "up")
	b.run("ip", "-n", hidden, "link", "set", "vx0", "master", "br0", "up")
	return hidden
}

// overlayContainer attaches a container to an overlay. The far end is not
// there: its address is in the neighbour table.
func (b *bed) overlayContainer(hidden, suffix string, far ...netip.Addr) string {
	b.t.Helper()
	ns := b.netNS(suffix)
	b.run("ip", "-n", hidden, "link", "add", "v"+suffix, "type", "veth", "peer", "name", "eth0", "netns", ns)
	b.run("ip", "-n", hidden, "link", "set", "v"+suffix, "master", "br0", "up")
	b.run("ip", "-n", ns, "link", "set", "eth0", "up", "mtu", "1450")
	for _, addr := range far {
		bits := "/24"
		if addr.Is6() {
			bits = "/64"
		}
		b.run("ip", "-n", ns, "addr", "add", addr.Prev().String()+bits, "dev", "eth0", "nodad")
		b.run("ip", "-n", ns, "neigh", "add", addr.String(), "dev", "eth0", "lladdr", "02:00:00:00:00:99")
	}
	return ns
}

func TestOverlayPackets(t *testing.T) {
	b := newBed(t)
	far4 := netip.MustParseAddr("198.18.0.200")
	far6 := netip.MustParseAddr("fd00:77::c8")
	host4, host6 := b.host.PeerAddr.Prev(), b.host.PeerAddr6.Prev()
	for i, outer := range []struct {
		name          string
		local, remote netip.Addr
		bytes         int
	}{
		{"IPv4", host4, b.host.PeerAddr, 14 + 20 + 8 + 8},
		{"IPv6", host6, b.host.PeerAddr6, 14 + 40 + 8 + 8},
	} {
		t.Run("outer "+outer.name, func(t *testing.T) {
			b.t = t
			n := fmt.Sprint(i)
			hidden := b.overlay("hid"+n, 77+i, outer.local, outer.remote)
			one := b.overlayContainer(hidden, "a"+n, far4, far6)
			two := b.overlayContainer(hidden, "b"+n, far4, far6)
			tap := b.assign(one, v1.ModeOverlay, NumberFirst)
			if tap.NetNSPath == "" || !tap.Priority || tap.Egress {
				t.Errorf("tap %+v", tap)
			}
			b.assign(two, v1.ModeOverlay, NumberFirst+1)
			time.Sleep(1200 * time.Millisecond) // reports of multicast listeners
			for _, target := range []netip.AddrPort{netip.AddrPortFrom(far4, 9), netip.AddrPortFrom(far6, 9)} {
				want := frameBytes(target) + packets*uint64(outer.bytes)
				b.expect(fmt.Sprint("one to ", target), NumberFirst, want, func() { b.sendIn(one, target, 0) })
				b.expect(fmt.Sprint("two to ", target), NumberFirst+1, want, func() { b.sendIn(two, target, 0) })
				b.expect(fmt.Sprint("forged priority to ", target), NumberFirst, want, func() { b.sendIn(one, target, forgedPriority) })
			}
			b.inHost(func() error { return DetachTap(tap) })
			b.inHost(func() error {
				if number, err := TapNumber(tap); number != 0 || err != nil {
					return fmt.Errorf("assigned to %d after detaching, %w", number, err)
				}
				return nil
			})
		})
	}
	b.t = t
}

func TestCgroupPackets(t *testing.T) {
	b := newBed(t)
	container, nested := b.cgroup("container"), b.cgroup("container", "nested", "deeper")
	outside := b.cgroup("outside")
	must.Succeed(t, b.uplink.AssignCgroup(container, NumberFirst))
	host := b.hostNS()
	for _, target := range b.targets() {
		want := frameBytes(target)
		b.expect("container", NumberFirst, want, func() { b.sendFromCgroup("send", host, container, target) })
		b.expect("cgroup inside", NumberFirst, want, func() { b.sendFromCgroup("send", host, nested, target) })
		b.expect("another cgroup", NumberHost, want, func() { b.sendFromCgroup("send", host, outside, target) })
		b.expect("forged priority", NumberFirst, want, func() { b.sendFromCgroup("forge", host, nested, target) })
		undo := b.forgeAtUplink(offsetQueueMapping, int64(uplinkWeirTagWEIR_TAG_BASE)|int64(victim))
		b.expect("forged queue", NumberFirst, want, func() { b.sendFromCgroup("send", host, container, target) })
		b.expect("forged queue of the host's", NumberHost, want, func() { b.sendFromCgroup("send", host, outside, target) })
		undo()
		undo = b.forgeAtUplink(offsetPriority, int64(forgedPriority&^(0x3fff<<4)|uint32(NumberControl)<<4))
		b.expect("forged tag of the control class", NumberHost, want, func() { b.sendFromCgroup("send", host, outside, target) })
		undo()
	}

	// What was assigned outlives the agent, and is known to the next.
	b.open()
	target := b.targets()[0]
	assigned := b.uplink.cgroups.byNumber
	if of, err := kernel.LookUpCgroup(container); len(assigned) != 1 || assigned[NumberFirst] != of || err != nil {
		t.Errorf("a new agent finds cgroups %v, want only %v, %v", assigned, of, err)
	}
	b.uplink.Apply(Table{}) // says nothing of the number
	b.expect("after a restart", NumberFirst, frameBytes(target), func() { b.sendFromCgroup("send", host, container, target) })
	// A classifier with other constants takes over what the last one knew.
	b.uplink.Close()
	b.inHost(func() (err error) {
		b.uplink, err = OpenUplink(b.ifindex, sched.Majors{Classes: majors.Classes + 1, Direct: majors.Direct}, b.origins)
		return err
	})
	b.expect("after an update", NumberFirst, frameBytes(target), func() { b.sendFromCgroup("send", host, container, target) })

	// The innermost counts; a number has one cgroup.
	must.Succeed(t, b.uplink.AssignCgroup(nested, NumberFirst+1))
	b.expect("assigned inside", NumberFirst+1, frameBytes(target), func() { b.sendFromCgroup("send", host, nested, target) })
	must.Succeed(t, b.uplink.AssignCgroup(outside, NumberFirst+1))
	b.expect("moved away", NumberFirst, frameBytes(target), func() { b.sendFromCgroup("send", host, nested, target) })
	b.expect("moved here", NumberFirst+1, frameBytes(target), func() { b.sendFromCgroup("send", host, outside, target) })
	for _, number := range slices.Collect(maps.Keys(b.uplink.cgroups.byNumber)) {
		if err := b.uplink.UnassignCgroup(number); err != nil {
			t.Error(err)
		}
	}
	b.expect("unassigned", NumberHost, frameBytes(target), func() { b.sendFromCgroup("send", host, container, target) })
}

// What a listener answers before there is a connection is its container's too.
func TestCgroupConnections(t *testing.T) {
	b := newBed(t)
	cgroup := b.cgroup("server")
	must.Succeed(t, b.uplink.AssignCgroup(cgroup, NumberFirst))
	for _, address := range []netip.Addr{b.host.PeerAddr.Prev(), b.host.PeerAddr6.Prev()} {
		server := netip.AddrPortFrom(address, 5201)
		cmd := b.helper("serve", b.hostNS(), cgroup, server)
		stdout, err := cmd.StdoutPipe()
		must.Succeed(t, err)
		must.Succeed(t, cmd.Start())
		if _, err := stdout.Read(make([]byte, 16)); err != nil { // it listens
			t.Fatal(err)
		}
		before := b.offered()
		err = testbed.InNetNS(b.host.PeerNetNSPath(), func() error {
			conn, err := net.Dial("tcp", server.String())
			if err != nil {
				return err
			}
			defer conn.Close()
			received := 0
			for buffer := make([]byte, 1<<16); ; {
				n, err := conn.Read(buffer)
				if received += n; err != nil {
					break
				}
			}
			if received != packets*payloadBytes {
				return fmt.Errorf("received %d bytes", received)
			}
			return nil
		})
		must.Succeed(t, errors.Join(err, cmd.Wait()))
		after := b.offered()
		if got := after[NumberFirst] - before[NumberFirst]; got < packets*payloadBytes {
			t.Errorf("%d bytes counted for the server of %s", got, server)
		}
		// The last acknowledgement is the kernel's own when the server has
		// closed first (TIME_WAIT).
		if got := after[NumberHost] - before[NumberHost]; got > 100 {
			t.Errorf("%d bytes counted for the host, for a connection to %s", got, server)
		}
	}
}

func TestAssignCgroupErrors(t *testing.T) {
	b := newBed(t)
	mount, err := cgroup.FindRoot("/proc")
	must.Succeed(t, err)
	dir := b.cgroup("gone")
	must.Succeed(t, os.Remove(dir))
	file := filepath.Join(b.cgroup("file"), "cgroup.procs")
	deep := "x"
	for range maxCgroupLevels {
		b.cgroup(strings.Split(deep, "/")...)
		deep += "/x"
	}
	for _, test := range []struct{ path, says string }{
		{dir, "no such cgroup"},
		{t.TempDir(), "is not in a cgroup v2 hierarchy"},
		{mount, "is the root of all cgroups"},
		{file, "is a file in a cgroup"},
	} {
		if err := b.uplink.AssignCgroup(test.path, NumberFirst); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want an error that says %q", test.path, err, test.says)
		}
	}
	if err := b.uplink.AssignCgroup(dir, NumberFirst); !errors.Is(err, kernel.ErrNoCgroup) {
		t.Errorf("gone: %v", err)
	}
	// One level more than the program tries.
	path := b.cgroup()
	for i := range maxCgroupLevels + 1 {
		err := b.uplink.AssignCgroup(path, NumberFirst+uint16(i))
		if i < maxCgroupLevels && err != nil {
			t.Errorf("level %d: %v", i+1, err)
		}
		if i == maxCgroupLevels && (err == nil || !strings.Contains(err.Error(), "different levels")) {
			t.Errorf("level %d: %v, want an error", i+1, err)
		}
		path = filepath.Join(path, "x")
	}
}

// While a container's devices come and go, nothing is seen that never was.
func TestInspectWhileDevicesGo(t *testing.T) {
	b := newBed(t)
	ns := b.netNS("flux")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = exec.Command("ip", "-n", b.hostNS(), "link", "add", "vflux", "type", "veth", "peer", "name", "eth0", "netns", ns).Run()
			_ = exec.Command("ip", "-n", b.hostNS(), "link", "del", "vflux").Run()
		}
	}()
	seen := map[string]int{}
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		err := testbed.InNetNS(b.host.NetNSPath(), func() error {
			found, err := NewInspector().Inspect(path(ns), "")
			switch {
			case errors.Is(err, ErrInFlux):
				seen["in flux"]++
			case err != nil:
				return err
			case len(found) == 0:
				seen["nothing"]++
			default:
				seen[string(found[0].Mode)]++
				if found[0].Mode != v1.ModeBridge {
					return fmt.Errorf("found %+v", found)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-done
	t.Log(seen)
	if seen["bridge"] == 0 || seen["nothing"] == 0 {
		t.Errorf("the devices did not come and go: %v", seen)
	}
}

// What leads to namespaces inside a container, or to nowhere, is told apart.
func TestInspectInnerNamespaces(t *testing.T) {
	b := newBed(t)
	outer, inner := b.netNS("outer"), b.netNS("inner")
	b.run("ip", "-n", outer, "link", "add", "vin", "type", "veth", "peer", "name", "eth0", "netns", inner)
	b.run("ip", "-n", outer, "link", "add", "va", "type", "veth", "peer", "name", "vb")
	b.run("ip", "-n", outer, "link", "add", "mv", "link", "va", "type", "macvlan")
	if found := b.inspect(outer); len(found) != 0 {
		t.Errorf("a container whose devices lead inwards: found %+v", found)
	}
	b.run("ip", "-n", outer, "link", "set", "mv", "netns", inner)
	found := b.inspect(inner)
	if len(found) != 1 || found[0].Mode != v1.ModeMacvlan || found[0].Tap.Ifindex != 0 || found[0].Obstacle == "" {
		t.Errorf("macvlan on another container's device: found %+v", found)
	}
}
