//go:build netns

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/test/must"
)

// What is probed for is there or not as the kernel itself says.
func TestProbeLink(t *testing.T) {
	for _, kind := range []string{"veth", "vxlan", "macvlan"} {
		if err := ProbeLink(kind); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := ProbeLink("no-such-kind"); err == nil {
		t.Error("a kind that there is not was found")
	}
	if err := ProbeRedirect(); err != nil {
		t.Errorf("a redirect to an IFB: %v", err)
	}
	// ipvlan is optional: what the probe says is what ip-link finds.
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	run := func(args ...string) error { return exec.Command("ip", args...).Run() }
	must.Succeed(t, run("netns", "add", name))
	t.Cleanup(func() { _ = run("netns", "del", name) })
	must.Succeed(t, run("-n", name, "link", "add", "va", "type", "veth", "peer", "name", "vb"))
	has := run("-n", name, "link", "add", "vc", "link", "va", "type", "ipvlan", "mode", "l2") == nil
	if probed := ProbeLink("ipvlan"); (probed == nil) != has {
		t.Errorf("ipvlan: %v, while ip-link says %v", probed, has)
	}
}

func TestLookUpCgroup(t *testing.T) {
	mount, err := cgroup.FindRoot("/proc")
	must.Succeed(t, err)
	dir, err := os.MkdirTemp(mount, "weir-test-")
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	root, err := LookUpCgroup(mount)
	if err != nil || root.Level != 0 {
		t.Errorf("the root: %+v, %v", root, err)
	}
	cgroup, err := LookUpCgroup(dir)
	if err != nil || cgroup.Level != 1 || cgroup.ID == root.ID {
		t.Errorf("a cgroup below the root: %+v, %v", cgroup, err)
	}
}

// A program in another namespace is entered, and left.
func TestInNetNS(t *testing.T) {
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	must.Succeed(t, exec.Command("ip", "netns", "add", name).Run())
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	path := "/run/netns/" + name
	want, err := NetNSIdentity(path)
	must.Succeed(t, err)
	outside, err := NetNSIdentity(CurrentNetNS)
	must.Succeed(t, err)
	failure := errors.New("failure")
	err = InNetNS(path, func() error {
		if inside, err := NetNSIdentity(CurrentNetNS); err != nil || inside != want {
			t.Errorf("inside: %v, %v, want %v", inside, err, want)
		}
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("the function's error: %v", err)
	}
	if after, err := NetNSIdentity(CurrentNetNS); err != nil || after != outside {
		t.Errorf("outside: %v, %v, want %v", after, err, outside)
	}
	found := false
	for candidate := range NetNSPaths() {
		if id, err := NetNSIdentity(candidate); err == nil {
			found = found || id == want
			if id == outside {
				t.Errorf("%s is the current namespace", candidate)
			}
		}
	}
	if !found {
		t.Error("the namespace is not listed")
	}

	// What is not a namespace.
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	fifo := filepath.Join(t.TempDir(), "fifo")
	must.Succeed(t, unix.Mkfifo(fifo, 0o600))
	start := time.Now()
	for _, path := range []string{file, fifo, file + "-gone"} {
		if err := InNetNS(path, func() error { return nil }); !errors.Is(err, ErrNoNetNS) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestListAfterBrokenAnswer: the rest of a list that cannot be parsed does not refuse the next request.
func TestListAfterBrokenAnswer(t *testing.T) {
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	must.Succeed(t, exec.Command("ip", "netns", "add", name).Run())
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	must.Succeed(t, exec.Command("ip", "-n", name, "link", "add", "va", "type", "veth", "peer", "name", "vb").Run())
	must.Succeed(t, InNetNS("/run/netns/"+name, func() error {
		device, err := LinkByName("va")
		must.Succeed(t, err)
		tc, err := OpenTC()
		must.Succeed(t, err)
		defer tc.Close()
		const classes = 500 // several answers
		root := NewHandle(0x7e11, 0)
		ops := []Op{{Verb: Add, Qdisc: &Qdisc{Handle: root, Parent: HandleRoot, Options: HTB{DirectPackets: 1}}}}
		for i := range classes {
			ops = append(ops, Op{Verb: Add, Class: &Class{Handle: NewHandle(0x7e11, uint16(i+1)), Parent: root, Options: HTBClass{
				RateBytesPerSec: 1e6, CeilBytesPerSec: 1e6, Burst: 1e6, CeilBurst: 1e6, QuantumBytes: 1514}}})
		}
		must.Succeed(t, tc.Apply(device.Index, ops))
		whole := tc.stats.buffer
		tc.stats.buffer = whole[:sizeofHeader+4] // the kernel cuts its messages
		if _, err := tc.Classes(device.Index); !errors.Is(err, errShort) {
			t.Errorf("a message that is cut: %v", err)
		}
		tc.stats.buffer = whole
		if list, err := tc.Classes(device.Index); err != nil || len(list) != classes {
			t.Errorf("the next request: %d classes, %v", len(list), err)
		}
		return nil
	}))
}

// TestDefaultLink: rules count, and IPv6 where there is no IPv4.
func TestDefaultLink(t *testing.T) {
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	run := func(arguments string) {
		t.Helper()
		must.Succeed(t, exec.Command("ip", strings.Fields(arguments)...).Run())
	}
	run("netns add " + name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	for i, step := range []struct{ command, want string }{
		{"link add eth0 type veth peer name wlan0", ""},
		{"link set eth0 up", ""},
		{"link set wlan0 up", ""},
		{"addr add 198.18.0.1/30 dev eth0", ""},
		{"-6 route add default dev wlan0", "wlan0"},
		{"route add default via 198.18.0.2", "eth0"},
		{"route add default dev wlan0 table 51820", "eth0"},
		{"-6 route add unreachable 2001:db8::/32", "eth0"}, // as hardened hosts do
		{"route add blackhole 203.0.113.0/24", "eth0"},
		{"rule add not fwmark 51820 table 51820", "wlan0"}, // as wg-quick does
		{"rule del not fwmark 51820 table 51820", "eth0"},
		{"route add 0.0.0.0/1 dev wlan0", "eth0"},
		{"route add 128.0.0.0/1 dev wlan0", "wlan0"}, // as OpenVPN does
		{"route replace blackhole 128.0.0.0/1", "wlan0"},
		{"-6 route del default dev wlan0", ""},
	} {
		run("-n " + name + " " + step.command)
		must.Succeed(t, InNetNS("/run/netns/"+name, func() error {
			link, err := DefaultLink()
			if link.Name != step.want || (step.want == "") != errors.Is(err, ErrNoLink) {
				t.Errorf("step %d, %s: %q, %v; want %q", i, step.command, link.Name, err, step.want)
			}
			return nil
		}))
	}
}

// On kernels without tcx programs are filters, in other namespaces too.
func TestFilterInNetNS(t *testing.T) {
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	must.Succeed(t, exec.Command("ip", "netns", "add", name).Run())
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "weir_test", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	must.Succeed(t, err)
	defer program.Close()
	info, err := program.Info()
	must.Succeed(t, err)
	want, _ := info.ID()
	qdiscs := func() string {
		out, err := exec.Command("tc", "-n", name, "qdisc", "show", "dev", "lo").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for _, egress := range []bool{false, true} {
		err := InNetNS("/run/netns/"+name, func() error {
			hook := Hook{Ifindex: 1, Egress: egress}
			for range 2 { // the second time in place of itself
				if err := hook.attachFilter(program, filterHandle); err != nil {
					return err
				}
			}
			filters, err := hook.filters()
			if err != nil || len(filters) != 1 || filters[0].id != want {
				return fmt.Errorf("filters %v, %w, want one of program %d", filters, err, want)
			}
			if !strings.Contains(qdiscs(), "clsact") {
				return fmt.Errorf("no clsact in the namespace: %s", qdiscs())
			}
			return hook.removeFilter(filters[0].filter)
		})
		if err != nil {
			t.Error(err)
		}
		if left := qdiscs(); strings.Contains(left, "clsact") {
			t.Errorf("left behind: %s", left)
		}
	}

	// A filter of another kind with the same preference refuses ours; the program comes first by tcx.
	if ProbeTCX() != nil {
		return
	}
	for _, args := range []string{"qdisc add dev lo clsact", "filter add dev lo ingress pref 1 protocol all u32 match u32 0 0"} {
		out, err := exec.Command("tc", append([]string{"-n", name}, strings.Fields(args)...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tc %s: %v: %s", args, err, out)
		}
	}
	must.Succeed(t, Hook{NetNSPath: "/run/netns/" + name, Ifindex: 1}.Attach(program, nil))
}

// TestMarks: packets go to the class of their mark, by DSCP (also behind VLAN tags), PCP and
// skb->mark, unless their priority names one; a second time changes nothing, and filters of others stay, in the place of
// Weir's, too.
func TestMarks(t *testing.T) {
	name := fmt.Sprintf("weir-marks-%d", os.Getpid())
	run := func(args ...string) string {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("ip", "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	run("ip", "-n", name, "link", "set", "lo", "up")
	run("tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "1")
	for _, class := range []string{"1:1", "1:2", "1:3"} {
		run("tc", "-n", name, "class", "add", "dev", "lo", "parent", "1:", "classid", class, "htb", "rate", "1gbit")
	}
	run("tc", "-n", name, "filter", "add", "dev", "lo", "parent", "1:", "prio", "9", "u32", "match", "u8", "0", "0", "at", "-14", "flowid", "1:9")
	inside := func(do func() error) {
		t.Helper()
		must.Succeed(t, InNetNS("/run/netns/"+name, do))
	}
	set := func(kind MarkKind, mask uint32, classes map[uint8]Handle) {
		t.Helper()
		marks := Marks{Kind: kind, Mask: mask}
		for value, class := range classes {
			marks.Classes[value] = class
		}
		for _, want := range []bool{true, false} {
			inside(func() error {
				if changed, err := SetMarks(1, NewHandle(1, 0), marks); err != nil || changed != want {
					return fmt.Errorf("changed: %v, %w, want %v", changed, err, want)
				}
				return nil
			})
		}
	}
	// What an earlier build left is replaced: filters of another kind, and a program with other instructions.
	run("tc", "-n", name, "filter", "add", "dev", "lo", "parent", "1:", "prio", "0x7e12", "protocol", "all", "u32", "match", "u32", "0x40b80000", "0xf0fc0000", "at", "0", "flowid", "1:2")
	byDSCP := map[uint8]Handle{46: NewHandle(1, 3), 10: NewHandle(1, 2), 44: NewHandle(1, 3)}
	set(MarkDSCP, 0, byDSCP)
	named := Marks{Kind: MarkDSCP}
	for value, class := range byDSCP {
		named.Classes[value] = class
	}
	attach := func(program string) {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: program, Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
		must.Succeed(t, err)
		defer p.Close()
		inside(func() error {
			return netlink.FilterReplace(&netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: 1, Parent: uint32(NewHandle(1, 0)), Handle: markFilter, Priority: markFilter, Protocol: unix.ETH_P_ALL}, Name: named.name(), Fd: p.FD(),
			})
		})
	}
	foreign := func(program string) {
		t.Helper()
		before := run("tc", "-n", name, "filter", "show", "dev", "lo", "parent", "1:")
		inside(func() error {
			if changed, err := SetMarks(1, NewHandle(1, 0), Marks{}); err != nil || changed {
				return fmt.Errorf("without marks, beside a filter of %s: changed %v, %w", program, changed, err)
			}
			if changed, err := SetMarks(1, NewHandle(1, 0), named); err == nil || changed || !strings.Contains(err.Error(), "filter of another program ("+program+")") {
				return fmt.Errorf("beside a filter of %s: changed %v, %w", program, changed, err)
			}
			return nil
		})
		if after := run("tc", "-n", name, "filter", "show", "dev", "lo", "parent", "1:"); after != before {
			t.Errorf("the filter of %s was\n%sand is\n%s", program, before, after)
		}
	}
	attach("other") // with the name of Weir's
	foreign("other")
	run("tc", "-n", name, "filter", "del", "dev", "lo", "parent", "1:", "prio", "0x7e12")
	run("tc", "-n", name, "filter", "add", "dev", "lo", "parent", "1:", "prio", "0x7e12", "protocol", "all", "u32", "match", "u32", "0", "0", "flowid", "1:2")
	foreign("u32")
	run("tc", "-n", name, "filter", "del", "dev", "lo", "parent", "1:", "prio", "0x7e12")
	attach(markProgram)
	set(MarkDSCP, 0, byDSCP)
	run("tc", "-n", name, "filter", "del", "dev", "lo", "parent", "1:", "prio", "9")
	sent := func(class string) (packets int) {
		text := run("tc", "-n", name, "-s", "class", "show", "dev", "lo", "classid", class)
		_, rest, _ := strings.Cut(text, "bytes ")
		if _, err := fmt.Sscan(rest, &packets); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return packets
	}
	arrives := func(what, class string, send func() error) {
		t.Helper()
		before := sent(class)
		inside(send)
		if n := sent(class) - before; n < 10 {
			t.Errorf("%s: %d of 10 packets in class %s", what, n, class)
		}
	}
	for _, c := range []struct {
		address string
		tos     int
		class   string
	}{{"127.0.0.1", 46 << 2, "1:3"}, {"127.0.0.1", 44<<2 | 2, "1:3"}, {"::1", 46 << 2, "1:3"}, {"127.0.0.1", 10 << 2, "1:2"}, {"::1", 0, "1:1"}, {"127.0.0.1", 12 << 2, "1:1"}} {
		arrives(fmt.Sprintf("octet %#x to %s", c.tos, c.address), c.class, func() error { return sendMarked(c.address, c.tos, 0) })
	}
	const tag, outer = "\x81\x00", "\x88\xa8"
	const ip4, ip6 = "\x08\x00\x45\xb8", "\x86\xdd\x6b\x80" // EF
	for what, frame := range map[string]string{"IPv4": ip4, "IPv6": ip6, "a tag": tag + "\x00\x07" + ip4, "two tags": outer + "\x20\x07" + tag + "\x40\x08" + ip6} {
		arrives(what, "1:3", func() error { return sendFrames(frame) })
	}
	arrives("ARP", "1:1", func() error { return sendFrames("\x08\x06\x45\xb8") })

	set(MarkPCP, 0, map[uint8]Handle{5: NewHandle(1, 3), 2: NewHandle(1, 2)})
	for frame, class := range map[string]string{
		tag + "\xa0\x07" + ip4: "1:3", tag + "\x5f\xff" + ip4: "1:2", tag + "\x20\x07" + ip4: "1:1",
		outer + "\xa0\x07" + tag + "\x40\x08" + ip4: "1:3", ip4: "1:1",
	} {
		arrives(fmt.Sprintf("%x", frame), class, func() error { return sendFrames(frame) })
	}

	// A tag that the kernel keeps beside the packet.
	push, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "push", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, 0x0081), asm.LoadImm(asm.R3, 0xa007, asm.DWord), asm.FnSkbVlanPush.Call(), asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}})
	must.Succeed(t, err)
	defer push.Close()
	inside(func() error { return Hook{Ifindex: 1, Egress: true}.Attach(push, nil) })
	arrives("a tag beside the packet", "1:3", func() error { return sendFrames(ip4) })
	inside(func() error { return Hook{Ifindex: 1, Egress: true}.Detach("push") })

	set(MarkPacket, 0xf0, map[uint8]Handle{1: NewHandle(1, 2), 2: NewHandle(1, 3)})
	for mark, class := range map[int]string{0x20: "1:3", 0x12f1f: "1:2", 0x2: "1:1", 0x30: "1:1"} {
		arrives(fmt.Sprintf("mark %#x", mark), class, func() error { return sendMarked("::1", 46<<2, mark) })
	}
	set(MarkPacket, 0xf0, nil)
	if left := run("tc", "-n", name, "filter", "show", "dev", "lo"); left != "" {
		t.Errorf("left are %s", left)
	}
}

// TestHookOfMissingDevice: a device that is gone is no unknown failure, and leaves nothing to detach.
func TestHookOfMissingDevice(t *testing.T) {
	if err := ProbeTCX(); err != nil {
		t.Skipf("this kernel has no tcx: %v", err)
	}
	for _, egress := range []bool{false, true} {
		h := Hook{Ifindex: 1 << 30, Egress: egress}
		if has, err := h.Has("any"); has || !errors.Is(err, ErrNoLink) {
			t.Errorf("egress %t: has %t, %v", egress, has, err)
		}
		must.Succeed(t, h.Detach("any"))
	}
}

// sendFrames sends ten frames through the loopback device, which go on with tail behind their addresses.
func sendFrames(tail string) error {
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	frame := append([]byte(strings.Repeat("\x02", 12)+tail), make([]byte, 60)...)
	for range 10 {
		err = errors.Join(err, unix.Sendto(s, frame, 0, &unix.SockaddrLinklayer{Ifindex: 1}))
	}
	return err
}

// sendMarked sends ten datagrams with a traffic class octet and an skb->mark to a local address.
func sendMarked(address string, tos, mark int) error {
	client, err := net.Dial("udp", net.JoinHostPort(address, "9"))
	if err != nil {
		return err
	}
	defer client.Close()
	raw, err := client.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	level, option := unix.IPPROTO_IP, unix.IP_TOS
	if strings.Contains(address, ":") {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = errors.Join(unix.SetsockoptInt(int(fd), level, option, tos), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark))
	}); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	for range 10 {
		_, _ = client.Write(make([]byte, 100)) // nothing listens, and ICMP says so
		_, _ = client.Write(nil)
	}
	return nil
}

// TestCountConnections: of a namespace's connections those count that others have opened and use.
func TestCountConnections(t *testing.T) {
	names := [2]string{fmt.Sprintf("weir-test-%d-a", os.Getpid()), fmt.Sprintf("weir-test-%d-b", os.Getpid())}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	for _, name := range names {
		run("netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	}
	run("link", "add", "v", "netns", names[0], "type", "veth", "peer", "name", "v", "netns", names[1])
	var listeners [2]net.Listener
	path := func(of int) string { return "/run/netns/" + names[of] }
	for i, name := range names {
		run("-n", name, "address", "add", fmt.Sprintf("198.18.77.%d/24", i+1), "dev", "v")
		run("-n", name, "link", "set", "v", "up")
		run("-n", name, "link", "set", "lo", "up")
	}
	for i := range names {
		must.Succeed(t, InNetNS(path(i), func() (err error) {
			listeners[i], err = net.Listen("tcp", ":8000") // of both families
			return err
		}))
		defer listeners[i].Close()
	}
	// request opens a connection from one namespace, on which the program reads what is sent.
	request := func(from, to int, address string) (user, program net.Conn) {
		t.Helper()
		must.Succeed(t, InNetNS(path(from), func() (err error) {
			user, err = net.Dial("tcp", address+":8000")
			return err
		}))
		program, err := listeners[to].Accept()
		must.Succeed(t, err)
		t.Cleanup(func() { user.Close(); program.Close() })
		return user, program
	}
	ask := func(user, program net.Conn) {
		t.Helper()
		_, err := user.Write([]byte("ask"))
		must.Succeed(t, err)
		_, err = program.Read(make([]byte, 3))
		must.Succeed(t, err)
	}
	user, program := request(1, 0, "198.18.77.1")
	ask(user, program)
	_, err := program.Write([]byte("answer")) // so it is idle
	must.Succeed(t, err)
	_, err = user.Read(make([]byte, 6))
	must.Succeed(t, err)
	ask(request(1, 0, "198.18.77.1")) // not answered
	unread, _ := request(1, 0, "198.18.77.1")
	_, err = unread.Write([]byte("ask")) // not read
	must.Succeed(t, err)
	ask(request(0, 0, "127.0.0.1"))   // its own
	ask(request(0, 1, "198.18.77.2")) // to others
	check := func(when string, want [2]int) {
		t.Helper()
		for i := range names {
			if count, err := CountConnections(path(i)); err != nil || count != want[i] {
				t.Errorf("%s %d has %d, %v, want %d", when, i, count, err, want[i])
			}
		}
	}
	check("at first", [2]int{3, 1})
	time.Sleep(busyWithin + time.Second)
	check("later", [2]int{2, 1})
	if _, err := CountConnections(path(0) + "-gone"); !errors.Is(err, ErrNoNetNS) {
		t.Error(err)
	}
}
