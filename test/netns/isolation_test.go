//go:build netns

package netns

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// Containers that want more than their share, and have every capability in
// namespaces of their own to get it. Attacker and victim have the same weight
// and offer more than the link can carry, so each is entitled to half of it.
//
// Everything that arrives and is not the victim's counts as the attacker's, so
// that an attacker gains nothing in the eyes of the test by being taken for
// the host or by fragments that the meter cannot tell.
//
// Both offer datagrams at a steady rate. With TCP, what one side leaves idle
// for a moment goes to the other, as it should, and the test could not tell
// that from a successful attack.

// attackTolerance is for what an honest sender may have too much: over two
// seconds the tree is exact to about half a percent, and a queue that is full
// at the end and was empty at the beginning adds as much again. An attack that
// works gains a third and more.
const attackTolerance = 0.015

// Both offer more than a link of slowBPS carries.
const (
	attackWindow = 2 * time.Second
	victimBPS    = 26 * mbit
	attackerBPS  = 40 * mbit
)

// arena is where attacker and victim meet.
type arena struct {
	bed              *harness.Bed
	attacker, victim *harness.Container
	// forged are values by which the attacker may hope to pass for another.
	forged []forgery
}

func newArena(b *harness.Bed, mode testbed.Mode) *arena {
	const firstNumber = 16
	return &arena{
		bed: b, attacker: b.AddMode("attacker", mode, nil), victim: b.AddMode("victim", mode, nil),
		forged: forgeries(firstNumber + 1),
	}
}

// forgery is what a packet would have to carry to be taken for another's.
type forgery struct {
	queueMapping, priority, mark uint32
}

// forgeries are the tags and classes of all others on the uplink: the
// victim, the host, control traffic. An attacker does not know the numbers,
// but they are small.
func forgeries(victim uint32) []forgery {
	const (
		tagBase       = 0xc000      // bpf/intf.h
		priorityMagic = 0x3a57      // bpf/intf.h
		major         = 0x7e11_0000 // HTB takes a priority of this major as a class
		direct        = 0x7e0f_0000 // and this one as the way past all classes
		classOfTest   = 0x0001_0001 // of a qdisc that does not exist
		bestPriority  = 15          // TC_PRIO_MAX
	)
	return []forgery{
		{tagBase | victim, priorityMagic<<18 | victim<<4, victim},
		{tagBase | 1, priorityMagic<<18 | 1<<4, 1},
		{tagBase | 2, priorityMagic<<18 | 2<<4, 2},
		{tagBase | victim, major | victim, victim},
		{0, major | 1, 1},
		{0, major | 2, 2},
		{0, direct, 0},
		{0xffff, classOfTest, 0xffff_ffff},
		{0, bestPriority, 0},
	}
}

// attack is a way to send that might get more than the sender's share.
type attack struct {
	name string
	// modes are those it makes sense in; nil means all but ipvlan, where it
	// would be another macvlan.
	modes []testbed.Mode
	// start sends until the test ends.
	start func(*testing.T, *arena)
	// byHost: the attack makes the host send. That is the host's traffic, by
	// the host's policy, for any reason to send; so there are three shares.
	byHost bool
	// reserve: the attack can have what is kept for the host, besides.
	reserve bool
	// onHost: a container in the host's network can do it without capabilities for that.
	onHost bool
}

// direct are the modes in which a container's device is on the uplink.
var direct = []testbed.Mode{testbed.ModeMacvlan, testbed.ModeIPvlanL2}

var attacks = []attack{
	{name: "none", onHost: true, start: func(t *testing.T, a *arena) { a.plain(t) }},
	{name: "socket options", onHost: true, start: attackBySocketOptions},
	{name: "BPF before the tap", start: func(t *testing.T, a *arena) { attackByBPF(t, a, link.Head()) }},
	{name: "BPF behind the tap", start: func(t *testing.T, a *arena) { attackByBPF(t, a, link.Tail()) }},
	{name: "own qdisc and largest packets", start: attackByQdisc},
	{name: "other addresses", start: attackByAddresses},
	{name: "victim's addresses", start: func(t *testing.T, a *arena) { attackByFrames(t, a, false) }},
	{name: "frames past the own qdisc", onHost: true, start: func(t *testing.T, a *arena) { attackByFrames(t, a, true) }},
	{name: "routed from a namespace within", start: attackFromWithin},
	{name: "device on the host's uplink", modes: []testbed.Mode{testbed.ModeBridge}, start: attackByHostsDevice},
	{name: "device in a namespace within", modes: []testbed.Mode{testbed.ModeMacvlan}, start: attackByDevice},
	{name: "forwarded as the host", modes: direct, start: func(t *testing.T, a *arena) {
		attackByForwarding(t, a, forgery{})
	}},
	{name: "forwarded as the victim", modes: direct, start: func(t *testing.T, a *arena) {
		attackByForwarding(t, a, a.forged[0])
	}},
	{name: "forwarded past the tap", modes: direct, start: attackPastTap},
	{name: "forwarded by a namespace within", modes: direct, start: func(t *testing.T, a *arena) {
		attackByForwarder(t, a, false)
	}},
	{name: "forwarded by a namespace of nobody", modes: direct, reserve: true, start: func(t *testing.T, a *arena) {
		attackByForwarder(t, a, true)
	}},
	{name: "forwarded to a group", modes: direct, start: attackByGroup},
	{name: "fragments", start: attackByFragments},
	{name: "fragmented by the host", modes: []testbed.Mode{testbed.ModeBridge}, start: attackFragmentedByHost},
	{name: "answers of the host", modes: []testbed.Mode{testbed.ModeBridge}, start: attackByReflection, byHost: true},
	{name: "64 connections", onHost: true, start: func(t *testing.T, a *arena) {
		t.Cleanup(a.bed.Send(a.attacker, harness.Load{Protocol: traffic.TCP, Connections: 64}).Stop)
	}},
	{name: "tiny packets", onHost: true, start: func(t *testing.T, a *arena) {
		t.Cleanup(a.bed.Send(a.attacker, harness.Load{Protocol: traffic.UDP, PayloadBytes: 18, RateBPS: attackerBPS}).Stop)
	}},
}

// in says whether an attack makes sense in a mode.
func (a attack) in(mode testbed.Mode) bool {
	if a.modes == nil {
		return mode != testbed.ModeIPvlanL2 && (mode != testbed.ModeHost || a.onHost)
	}
	return slices.Contains(a.modes, mode)
}

// TestIsolation: none of it gets the attacker more than it is entitled to.
func TestIsolation(t *testing.T) {
	t.Parallel()
	for _, mode := range []testbed.Mode{testbed.ModeBridge, testbed.ModeMacvlan, testbed.ModeIPvlanL2, testbed.ModeOverlay, testbed.ModeHost} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel() // each mode has a link of its own
			b := newBed(t)
			a := newArena(b, mode)
			if mode == testbed.ModeBridge {
				must.Succeed(t, b.Host.GiveCgroup(a.attacker.NetContainer))
			}
			agent := b.StartAgent(harness.AgentOptions{Rate: slowRate})
			for _, name := range []string{"attacker", "victim"} {
				if got := agent.Container(name); got.State != v1.StateOK || got.EntitledBPS == 0 {
					t.Fatalf("not controlled: %+v", got)
				}
			}
			b.Send(a.victim, harness.Load{Protocol: traffic.UDP, RateBPS: victimBPS, PayloadBytes: 1200})
			b.WarmUp()
			for _, attack := range attacks {
				if !attack.in(mode) {
					continue
				}
				t.Run(attack.name, func(t *testing.T) {
					attack.start(t, a)
					time.Sleep(500 * time.Millisecond)
					shares, available := 2.0, float64(slowBPS)
					if attack.byHost {
						shares = 3
					}
					if attack.reserve {
						available *= 0.99
					}
					a.check(t, available/shares)
				})
				time.Sleep(200 * time.Millisecond) // until its queues are empty
			}
		})
	}
}

// check fails when the victim gets less than its share, in bits per second, or
// all others together more than what that leaves.
//
// An attack that works does so all the time. A machine that is too busy to let
// both send looks like one for a moment, so only what is wrong in each of a few
// windows counts, and not what pauses of the machine explain.
func (a *arena) check(t *testing.T, shareBPS float64) {
	t.Helper()
	const windows, maxWindows = 4, 6
	var wrong []string
	explained := ""
	for range maxWindows {
		m := a.bed.MeasureFor(attackWindow)
		what := fmt.Sprintf("attacker %.3f Mbit/s, victim %.3f, entitled to %.3f and %.3f; CPU: %s",
			(m.SumBPS()-m.BPS[a.victim.Slot])/mbit, m.BPS[a.victim.Slot]/mbit, (slowBPS-shareBPS)/mbit, shareBPS/mbit, m.CPU)
		problem := a.judge(m, shareBPS)
		if problem == "" {
			t.Log(what)
			return
		}
		problem += ": " + what
		if a.judge(m.WithSlack(), shareBPS) == "" {
			explained = problem
			continue
		}
		if wrong = append(wrong, problem); len(wrong) == windows {
			t.Error(strings.Join(wrong, "\n\t"))
			return
		}
	}
	harness.SkipBusy(t, fmt.Sprintf("this machine stood still again and again, which explains what was measured: %s", explained))
}

// checkAtOnce fails when the attacker gains in the first second. An attack that works gains a third.
func (a *arena) checkAtOnce(t *testing.T) {
	t.Helper()
	time.Sleep(100 * time.Millisecond)
	m := a.bed.MeasureFor(time.Second).WithSlack()
	attacker := m.SumBPS() - m.BPS[a.victim.Slot]
	if attacker > slowBPS/2*1.1+m.Slack*slowBPS {
		t.Errorf("the attacker got %.3f Mbit/s at once, the victim %.3f; CPU: %s", attacker/mbit, m.BPS[a.victim.Slot]/mbit, m.CPU)
	}
	t.Logf("at once: attacker %.3f Mbit/s, victim %.3f", attacker/mbit, m.BPS[a.victim.Slot]/mbit)
}

// judge says what is wrong in a window; empty if nothing is.
func (a *arena) judge(m harness.Measurement, shareBPS float64) string {
	victim, slack := m.BPS[a.victim.Slot], m.Slack*slowBPS
	attacker := m.SumBPS() - victim
	switch {
	case m.SumBPS() > slowBPS*(1+harness.ShareTolerance): // which no pause explains
		return "more was sent than the link has"
	case attacker > (slowBPS-shareBPS)*(1+attackTolerance)+slack:
		return "the attacker got more"
	case m.SumBPS() < harness.LinkUse*slowBPS-slack:
		return "the link was idle at times, so both sent too little to prove anything"
	case victim < shareBPS*(1-attackTolerance)-slack:
		return "the victim got less"
	case attacker < shareBPS/4:
		return "the attacker sent too little to prove anything"
	}
	return ""
}

// sockets makes sockets of a family and a type where enter calls, and sets each up.
func sockets(t *testing.T, enter func(func() error) error, family, kind, count int, set func(i, fd int) error) []int {
	t.Helper()
	var fds []int
	must.Succeed(t, enter(func() error {
		for i := range count {
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
			fds = append(fds, fd)
			if set != nil {
				if err := set(i, fd); err != nil {
					return fmt.Errorf("set up socket %d: %w", i, err)
				}
			}
		}
		return nil
	}))
	return fds
}

// sockets makes UDP sockets of the attacker's.
func (a *arena) sockets(t *testing.T, count int, set func(i, fd int) error) []int {
	t.Helper()
	return sockets(t, a.attacker.Enter, unix.AF_INET, unix.SOCK_DGRAM, count, set)
}

// flood sends datagrams that fill frames, by turns from all sockets, to the
// attacker's slot.
func (a *arena) flood(t *testing.T, fds []int) {
	t.Helper()
	const udpHeaderBytes = 8
	c := a.attacker
	to := &unix.SockaddrInet4{Port: harness.BasePort + a.attacker.Slot, Addr: c.PeerAddr.As4()}
	pump(t, fds, [][]byte{make([]byte, c.MTUBytes-ipv4HeaderBytes-udpHeaderBytes)}, to)
}

// plain sends what needs no tricks: to use up the attacker's own share, so that
// gains by tricks come on top.
func (a *arena) plain(t *testing.T) {
	t.Helper()
	t.Cleanup(a.bed.Send(a.attacker, harness.Load{Protocol: traffic.UDP, RateBPS: victimBPS, PayloadBytes: 1200}).Stop)
}

// pump sends packets at attackerBPS, by turns and from all sockets by turns,
// until the test ends. Packets are of about the same size.
func pump(t *testing.T, fds []int, packets [][]byte, to unix.Sockaddr) {
	t.Helper()
	const interval = 2 * time.Millisecond
	batch := max(1, int(attackerBPS/8*interval.Seconds())/len(packets[0]))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	turn, sent := 0, 0
	go func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for ctx.Err() == nil {
			for range batch {
				if unix.Sendto(fds[turn%len(fds)], packets[turn%len(packets)], unix.MSG_DONTWAIT, to) == nil { // a full buffer is as good
					sent++
				}
				turn++
			}
			<-ticker.C
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if sent == 0 {
			t.Error("not a packet could be sent: this proves nothing")
		}
	})
}

// inside runs a tool in a container's namespace.
func inside(b *harness.Bed, netNSPath string, args ...string) {
	b.Run(append([]string{"nsenter", "--net=" + netNSPath, "--"}, args...)...)
}

// attackBySocketOptions sets what any socket can be told about its packets.
func attackBySocketOptions(t *testing.T, a *arena) {
	a.flood(t, a.sockets(t, len(a.forged)+1, func(i, fd int) error {
		if i == len(a.forged) {
			return nil // its own share, besides
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(int32(a.forged[i].mark))),
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, []int{0xe0, 0xb8, 0x10}[i%3]), // CS7, EF, low delay
			// Last: IP_TOS sets a priority of its own.
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(int32(a.forged[i].priority))),
		)
	}))
}

// attackByBPF forges every field at the egress hook of the container's own
// device, for most packets, and keeps programs after its own from running.
func attackByBPF(t *testing.T, a *arena, anchor link.Anchor) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "forge", Type: ebpf.SchedCLS, License: "GPL", Instructions: forge(a.forged, false),
	})
	must.Succeed(t, err)
	t.Cleanup(func() { program.Close() })
	err = a.attacker.Enter(func() error {
		device, err := netlink.LinkByName(a.attacker.Interface())
		if err != nil {
			return err
		}
		attached, err := link.AttachTCX(link.TCXOptions{
			Interface: device.Attrs().Index, Program: program, Attach: ebpf.AttachTCXEgress, Anchor: anchor,
		})
		if err == nil {
			t.Cleanup(func() { attached.Close() })
		}
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip("this kernel has no tcx")
	} else if err != nil {
		t.Fatal(err)
	}
	a.flood(t, a.sockets(t, 1, nil))
}

// forge gives each packet one of the forgeries, or none, at random. In a queue
// every packet gets one, but for queue_mapping, which the kernel has chosen by
// then and takes for an index.
func forge(forged []forgery, queued bool) asm.Instructions {
	// struct __sk_buff in linux/bpf.h
	const markOffset, queueMappingOffset, priorityOffset, tcIndexOffset = 8, 12, 32, 44
	choices := len(forged)
	if !queued {
		choices++
	}
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnGetPrandomU32.Call(),
		asm.Mod.Imm32(asm.R0, int32(choices)),
	}
	// A label is the number of a forgery; the last one is the end.
	for i, f := range forged {
		code = append(code, asm.JNE.Imm(asm.R0, int32(i), fmt.Sprint(i+1)).WithSymbol(fmt.Sprint(i)))
		for _, field := range []struct {
			offset int16
			value  uint32
		}{{markOffset, f.mark}, {queueMappingOffset, f.queueMapping}, {priorityOffset, f.priority}, {tcIndexOffset, f.queueMapping}} {
			if queued && field.offset == queueMappingOffset {
				continue
			}
			code = append(code,
				asm.Mov.Imm32(asm.R1, int32(field.value)),
				asm.StoreMem(asm.R6, field.offset, asm.R1, asm.Word))
		}
		code = append(code, asm.Ja.Label(fmt.Sprint(len(forged))))
	}
	const pass = 0 // TC_ACT_OK: no other program runs
	return append(code, asm.Mov.Imm(asm.R0, pass).WithSymbol(fmt.Sprint(len(forged))), asm.Return())
}

// attackByQdisc replaces the queueing on the container's own device by a tree
// that has the uplink's handles, and takes back the limit of packet size.
func attackByQdisc(t *testing.T, a *arena) {
	b, path, device := a.bed, a.attacker.NetNSPath(), a.attacker.Interface()
	inside(b, path, "tc", "qdisc", "replace", "dev", device, "root", "handle", "7e11:", "htb", "default", "11")
	inside(b, path, "tc", "class", "add", "dev", device, "parent", "7e11:", "classid", "7e11:11", "htb", "rate", "10gbit", "quantum", "60000")
	inside(b, path, "ip", "link", "set", device, "gso_max_size", "65536", "gso_max_segs", "65535", "txqueuelen", "10000")
	t.Cleanup(func() { inside(b, path, "tc", "qdisc", "del", "dev", device, "root") })
	t.Cleanup(b.Send(a.attacker, harness.Load{Protocol: traffic.TCP, Connections: 16}).Stop)
	attackBySocketOptions(t, a)
}

// attackByAddresses sends from a hundred addresses and under another MAC
// address.
func attackByAddresses(t *testing.T, a *arena) {
	b, path, device := a.bed, a.attacker.NetNSPath(), a.attacker.Interface()
	before := a.mac(t, path, device)
	inside(b, path, "ip", "link", "set", device, "address", "02:00:5e:00:53:01")
	t.Cleanup(func() { inside(b, path, "ip", "link", "set", device, "address", before) })
	var addresses []netip.Addr
	for i := range 100 {
		// The upper half of the subnet, where no container is.
		raw := a.attacker.Addr.As4()
		raw[2], raw[3] = raw[2]|1, byte(100+i)
		address := netip.AddrFrom4(raw)
		addresses = append(addresses, address)
		inside(b, path, "ip", "addr", "add", address.String()+"/32", "dev", device)
		t.Cleanup(func() { inside(b, path, "ip", "addr", "del", address.String()+"/32", "dev", device) })
	}
	a.flood(t, a.sockets(t, len(addresses), func(i, fd int) error {
		return unix.Bind(fd, &unix.SockaddrInet4{Addr: addresses[i].As4()})
	}))
}

// attackByFrames sends frames that carry the victim's addresses; past also
// goes past the queueing and the egress hook of the container's own device
// (PACKET_QDISC_BYPASS) and asks for priorities. The host's device is refused.
func attackByFrames(t *testing.T, a *arena, past bool) {
	from := a.victim
	if past {
		from = a.attacker
	}
	datagram := make([]byte, a.attacker.MTUBytes-ipv4HeaderBytes)
	frame := append(a.headers(t, from, 0, len(datagram), 0, 0), a.udp(datagram)...)
	a.plain(t)
	fds, to := a.packetSockets(t, func(i, fd int) error {
		if !past {
			return nil
		}
		err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
		if a.attacker.Mode() == testbed.ModeHost && errors.Is(err, unix.EPERM) {
			err = nil
		}
		return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(int32(a.forged[i].priority))))
	})
	pump(t, fds, [][]byte{frame}, to)
}

// attackByFragments sends datagrams in two fragments each, which NAT puts
// together on the host and takes apart again. Only the first one has IP
// options: there is no room for them in the second, so the kernel makes new
// packets instead of passing on the old ones (ip_do_fragment in
// net/ipv4/ip_output.c), and of a packet's fields only some are copied.
func attackByFragments(t *testing.T, a *arena) {
	const moreFragments, optionBytes = 0x2000, 40
	first := (a.attacker.MTUBytes - ipv4HeaderBytes - optionBytes) / 8 * 8
	datagram := a.udp(make([]byte, 2*first))
	var frames [][]byte
	for id := range uint16(512) {
		frames = append(frames,
			append(a.headers(t, a.attacker, optionBytes, first, id, moreFragments), datagram[:first]...),
			append(a.headers(t, a.attacker, 0, first, id, uint16(first/8)), datagram[first:]...))
	}
	fds, to := a.packetSockets(t, nil)
	pump(t, fds[:1], frames, to)
	a.plain(t)
}

// attackFragmentedByHost sends packets that the host has to take apart for its
// uplink.
func attackFragmentedByHost(t *testing.T, a *arena) {
	a.bed.Run("ip", "link", "set", a.bed.Host.UplinkName, "mtu", "1300")
	t.Cleanup(func() { a.bed.Run("ip", "link", "set", a.bed.Host.UplinkName, "mtu", "1500") })
	a.flood(t, a.sockets(t, 1, func(_, fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	}))
	a.plain(t)
}

// attackByReflection pings the host in the name of the neighbour, to whom the
// host then answers.
func attackByReflection(t *testing.T, a *arena) {
	router := a.attacker.Addr.As4()
	router[2], router[3] = router[2]&^3, 1 // of the bridge's /22
	echo := make([]byte, 1200)
	const echoRequest = 8
	echo[0] = echoRequest
	binary.BigEndian.PutUint16(echo[2:], checksum(echo))
	frame := append(a.frame(t, a.attacker, unix.IPPROTO_ICMP, a.attacker.PeerAddr, netip.AddrFrom4(router), 0, len(echo), 0, 0), echo...)
	fds, to := a.packetSockets(t, nil)
	pump(t, fds[:1], [][]byte{frame}, to)
	a.plain(t)
}

// packetSockets makes a packet socket for each forgery, which send through the
// attacker's interface.
func (a *arena) packetSockets(t *testing.T, set func(i, fd int) error) (fds []int, to *unix.SockaddrLinklayer) {
	t.Helper()
	const ipv4 = 0x0008 // ETH_P_IP in network order
	must.Succeed(t, a.attacker.Enter(func() error {
		device, err := netlink.LinkByName(a.attacker.Interface())
		if err == nil {
			to = &unix.SockaddrLinklayer{Ifindex: device.Attrs().Index, Protocol: ipv4}
		}
		return err
	}))
	return sockets(t, a.attacker.Enter, unix.AF_PACKET, unix.SOCK_RAW, len(a.forged), set), to
}

// mac is the MAC address of an interface in a namespace.
func (a *arena) mac(t *testing.T, netNSPath, name string) (mac string) {
	t.Helper()
	err := testbed.InNetNS(netNSPath, func() error {
		device, err := netlink.LinkByName(name)
		if err == nil {
			mac = device.Attrs().HardwareAddr.String()
		}
		return err
	})
	must.Succeed(t, err)
	return mac
}

const ipv4HeaderBytes = 20

// headers are those of Ethernet and IPv4 for a datagram or a fragment of one
// from a container to the neighbour.
func (a *arena) headers(t *testing.T, from *harness.Container, optionBytes, payloadBytes int, id, fragment uint16) []byte {
	t.Helper()
	return a.frame(t, from, unix.IPPROTO_UDP, from.Addr, a.attacker.PeerAddr, optionBytes, payloadBytes, id, fragment)
}

// frame is the beginning of a frame with the MAC address of a container, to
// what the attacker's network has as a router. Options are there for their
// size only.
func (a *arena) frame(t *testing.T, sender *harness.Container, protocol byte, from, to netip.Addr, optionBytes, payloadBytes int, id, fragment uint16) []byte {
	t.Helper()
	router := map[testbed.Mode][2]string{
		testbed.ModeBridge:   {a.bed.Host.NetNSPath(), "containers"},
		testbed.ModeMacvlan:  {a.bed.Host.PeerNetNSPath(), a.bed.Host.PeerInterface},
		testbed.ModeIPvlanL2: {a.bed.Host.PeerNetNSPath(), a.bed.Host.PeerInterface},
		testbed.ModeOverlay:  {a.bed.Host.PeerNetNSPath(), "vxlan0"},
		testbed.ModeHost:     {a.bed.Host.PeerNetNSPath(), a.bed.Host.PeerInterface},
	}[a.attacker.Mode()]
	var frame []byte
	for _, interfaceOf := range [][2]string{router, {sender.NetNSPath(), sender.Interface()}} {
		mac, err := net.ParseMAC(a.mac(t, interfaceOf[0], interfaceOf[1]))
		must.Succeed(t, err)
		frame = append(frame, mac...)
	}
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IP)
	const noOperation = 1
	header := append(make([]byte, ipv4HeaderBytes), bytes.Repeat([]byte{noOperation}, optionBytes)...)
	header[0], header[8], header[9] = byte(0x40|len(header)/4), 64, protocol
	binary.BigEndian.PutUint16(header[2:], uint16(len(header)+payloadBytes))
	binary.BigEndian.PutUint16(header[4:], id)
	binary.BigEndian.PutUint16(header[6:], fragment)
	copy(header[12:], from.AsSlice())
	copy(header[16:], to.AsSlice())
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return append(frame, header...)
}

// checksum is that of RFC 1071, of an even number of bytes.
func checksum(data []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	sum = sum&0xffff + sum>>16
	return ^uint16(sum + sum>>16)
}

// udp fills in the header of a datagram to the attacker's slot; without a
// checksum, as IPv4 allows.
func (a *arena) udp(datagram []byte) []byte {
	binary.BigEndian.PutUint16(datagram, 4000)
	binary.BigEndian.PutUint16(datagram[2:], uint16(harness.BasePort+a.attacker.Slot))
	binary.BigEndian.PutUint16(datagram[4:], uint16(len(datagram)))
	return datagram
}

// enter calls fn as a process of the attacker's in a namespace that it made.
func (a *arena) enter(netNSPath string, fn func() error) error {
	return a.attacker.Enter(func() error { return testbed.InNetNS(netNSPath, fn) })
}

// within makes a namespace inside the attacker's.
func within(t *testing.T, a *arena) (netNSPath string) {
	t.Helper()
	name := filepath.Base(a.attacker.NetNSPath()) + "-within"
	a.bed.Run("ip", "netns", "add", name)
	t.Cleanup(func() { a.bed.Run("ip", "netns", "del", name) })
	return testbed.NetNSDir + "/" + name
}

// attackFromWithin routes the packets of a namespace of its own through the
// attacker's, to which it is connected by a veth pair.
func attackFromWithin(t *testing.T, a *arena) {
	b, path := a.bed, a.attacker.NetNSPath()
	inner := within(t, a)
	inside(b, path, "ip", "link", "add", "inner", "type", "veth", "peer", "name", "outer", "netns", inner)
	t.Cleanup(func() { inside(b, path, "ip", "link", "del", "inner") })
	raw := a.attacker.Addr.As4()
	raw[2], raw[3] = raw[2]|1, 77 // where no container is
	address := netip.AddrFrom4(raw).String()
	inside(b, path, "ip", "link", "set", "inner", "up")
	inside(b, path, "ip", "route", "add", address, "dev", "inner")
	inside(b, path, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv4.conf.inner.proxy_arp=1")
	inside(b, inner, "ip", "link", "set", "outer", "up")
	inside(b, inner, "ip", "addr", "add", address+"/32", "dev", "outer")
	inside(b, inner, "ip", "route", "add", "default", "dev", "outer")
	a.floodFrom(t, inner)
	a.plain(t)
}

// attackByDevice puts one more device on the uplink: the kernel attaches a
// macvlan device on another one to the interface below both.
func attackByDevice(t *testing.T, a *arena) {
	b, path := a.bed, a.attacker.NetNSPath()
	inner := within(t, a)
	inside(b, path, "ip", "link", "add", "link", a.attacker.Interface(), "name", "second", "netns", inner, "type", "macvlan", "mode", "bridge")
	inside(b, inner, "ip", "link", "set", "second", "up")
	inside(b, inner, "ip", "addr", "add", a.spare(78)+"/22", "dev", "second")
	a.floodFrom(t, inner)
	a.plain(t)
}

// attackByHostsDevice puts a device on the host's uplink into the attacker's namespace: a capability for
// networks in the host's user namespace suffices, and the attacker's veth tells which namespace is the
// host's.
func attackByHostsDevice(t *testing.T, a *arena) {
	b, path, address := a.bed, a.attacker.NetNSPath(), a.bed.Host.PeerAddr.As4()
	address[2], address[3] = address[2]|1, 79 // where no container is
	inside(b, path, "ip", "link", "add", "link", fmt.Sprint("if", b.UplinkIndex()), "link-netnsid", a.hostNetNSID(t), "name", "out", "type", "macvlan", "mode", "bridge")
	t.Cleanup(func() { inside(b, path, "ip", "link", "del", "out") })
	inside(b, path, "ip", "addr", "add", netip.AddrFrom4(address).String()+"/32", "dev", "out")
	inside(b, path, "ip", "link", "set", "out", "up")
	a.flood(t, a.sockets(t, len(a.forged), func(i, fd int) error {
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(int32(a.forged[i].priority))),
			unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "out"))
	}))
	a.plain(t)
	// It must not work until the agent has found the device either.
	a.checkAtOnce(t)
}

// hostNetNSID is the number of the host's namespace in the attacker's.
func (a *arena) hostNetNSID(t *testing.T) (id string) {
	t.Helper()
	must.Succeed(t, testbed.InNetNS(a.attacker.NetNSPath(), func() error {
		device, err := netlink.LinkByName(a.attacker.Interface())
		if err == nil {
			id = fmt.Sprint(device.Attrs().NetNsID)
		}
		return err
	}))
	return id
}

// floodFrom floods from a namespace of the attacker's, with forged priorities.
func (a *arena) floodFrom(t *testing.T, netNSPath string) {
	t.Helper()
	enter := func(fn func() error) error { return a.enter(netNSPath, fn) }
	a.flood(t, sockets(t, enter, unix.AF_INET, unix.SOCK_DGRAM, len(a.forged), func(i, fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(int32(a.forged[i].priority)))
	}))
}

// TestLookalikes: names and labels that look like those of others get a
// container nothing, and the name of the other container selects the other.
func TestLookalikes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("victim", labels("weight", "100"))
	lookalikes := []string{"victim2", "static:victim2", "Victim", "victim.", "host."}
	for _, name := range lookalikes {
		b.Add(name, map[string]string{
			"weir-weight": "10000", "com.example.weir.weight": "10000", "weight": "10000",
		})
	}
	agent := b.StartAgent(harness.AgentOptions{})
	for name, got := range agent.Containers() {
		if name != "host" && (got.Policy != harness.Policy(v1.Policy{Weight: 100}) || got.State != v1.StateOK) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	before := agent.Containers()
	for _, change := range []struct{ asked, meant string }{
		{"victim", "victim"}, {"static:victim", "victim"}, {"static:victim2", "victim2"}, {"static:static:victim2", "static:victim2"},
	} {
		b.MustWeir("set", change.asked, "--weight", "500")
		for name, got := range agent.Containers() {
			want := before[name].Policy
			if name == change.meant {
				want.Weight = 500
			}
			if got.Policy != want {
				t.Errorf("weir set %s: %s has %+v, want %+v", change.asked, name, got.Policy, want)
			}
		}
		b.MustWeir("reset", change.asked)
	}
	if refused := b.Weir("set", "host", "--weight", "500"); refused.Code != 1 || !strings.Contains(refused.Stderr, "host class") {
		t.Errorf("weir set host: %+v", refused)
	}
}

// A host-mode container that may make packet sockets cannot send past the queues by them: while
// the agent runs and after it was killed, until Weir is taken away.
func TestHostModeBypass(t *testing.T) {
	// Not in parallel: what another test starts while this process is in the container's cgroup would
	// stay there, with its packet sockets.
	b := newBed(t)
	c := b.AddMode("one", testbed.ModeHost, labels("max", "5mbit"))
	bypass := func() error {
		return c.Enter(func() error {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
		})
	}
	for _, end := range []func(*harness.Agent){(*harness.Agent).Kill, func(*harness.Agent) {}} {
		agent := b.StartAgent(harness.AgentOptions{})
		if got := agent.Container("one"); got.State != v1.StateOK {
			t.Errorf("got %+v", got)
		}
		must.Succeed(t, identity.Bypass{}.Allow(c.CgroupPath())) // as another program may
		b.Await("it to be forbidden again", 10*time.Second, func() (bool, string) {
			err := bypass()
			return errors.Is(err, unix.EPERM), fmt.Sprint(err)
		})
		if end(agent); !errors.Is(bypass(), unix.EPERM) {
			t.Errorf("PACKET_QDISC_BYPASS: %v", bypass())
		}
		b.MustWeir("down", "--state-dir", b.Files.StateDir())
		must.Succeed(t, bypass())
	}
}
