//go:build netns

package netns

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// Attacks of TestIsolation by containers whose device is on the uplink: they
// forward packets, which have no socket then, and have the tap in their reach.

// attackByForwarding forwards the packets of a namespace within through a
// second device on the uplink, which no packet leaves unforged.
func attackByForwarding(t *testing.T, a *arena, forged forgery) {
	path := a.attacker.NetNSPath()
	device := a.second(t, path)
	forgeInQueue(t, a.bed, path, device, forged)
	a.floodFrom(t, a.feeder(t, path, device))
	a.plain(t)
}

// attackPastTap forwards through the container's own device, from which it
// takes the tap away, again and again.
func attackPastTap(t *testing.T, a *arena) {
	path := a.attacker.NetNSPath()
	index := 0
	err := testbed.InNetNS(path, func() error {
		device, err := netlink.LinkByName(a.attacker.Interface())
		if err == nil {
			index = device.Attrs().Index
		}
		return err
	})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		for ctx.Err() == nil {
			if err := (kernel.Hook{NetNSPath: path, Ifindex: index, Egress: true}).Detach("weir_tap"); err != nil {
				done <- err
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		done <- nil
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	a.floodFrom(t, a.feeder(t, path, a.attacker.Interface()))
	a.plain(t)
}

// attackByForwarder has another namespace within forward, through a second
// device on the uplink that it was given. With abandoned no process is in there any
// more, and only a socket keeps it.
func attackByForwarder(t *testing.T, a *arena, abandoned bool) {
	process := a.namespace(t)
	path := process.NetNSPath()
	device := a.second(t, path)
	forgeInQueue(t, a.bed, path, device, forgery{})
	inner := a.feeder(t, path, device)
	if abandoned {
		a.socket(t, path)
		kill(process)
		time.Sleep(6 * time.Second) // until the agent has noticed
	}
	a.floodFrom(t, inner)
	a.plain(t)
}

// attackByGroup forwards in frames for a group: ipvlan sends these on later, by a
// thread of the kernel.
func attackByGroup(t *testing.T, a *arena) {
	path := a.attacker.NetNSPath()
	device := a.second(t, path)
	forgeInQueue(t, a.bed, path, device, a.forged[0])
	inner := a.feeder(t, path, device)
	inside(a.bed, path, "ip", "neigh", "replace", a.attacker.PeerAddr.String(), "lladdr", "01:00:5e:01:02:03", "dev", device)
	a.floodFrom(t, inner)
	a.plain(t)
}

// socket keeps a namespace alive until the test ends.
func (a *arena) socket(t *testing.T, netNSPath string) {
	t.Helper()
	err := testbed.InNetNS(netNSPath, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			t.Cleanup(func() { unix.Close(fd) })
		}
		return err
	})
	must.Succeed(t, err)
}

// namespace starts a process of the attacker's in a network namespace of its
// own, which nothing else holds.
func (a *arena) namespace(t *testing.T) *testbed.Process {
	t.Helper()
	if a.attacker.CgroupPath() == "" {
		t.Skip("processes cannot be told apart: there are no cgroups of version 2")
	}
	cgroup, err := os.Open(a.attacker.CgroupPath())
	must.Succeed(t, err)
	defer cgroup.Close()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET, UseCgroupFD: true, CgroupFD: int(cgroup.Fd()),
	}
	return startProcess(t, "a process of the attacker", cmd)
}

// startProcess starts a command that is killed when the test ends.
func startProcess(t *testing.T, name string, cmd *exec.Cmd) *testbed.Process {
	t.Helper()
	process, err := testbed.StartProcess(name, cmd)
	must.Succeed(t, err)
	t.Cleanup(func() { kill(process) })
	return process
}

func kill(process *testbed.Process) {
	process.Signal(syscall.SIGKILL)
	<-process.Ended()
}

// second puts one more device on the uplink, on top of the attacker's, and into
// a namespace of the attacker's.
func (a *arena) second(t *testing.T, netNSPath string) (device string) {
	t.Helper()
	const name = "second"
	kind := map[testbed.Mode][]string{
		testbed.ModeMacvlan:  {"macvlan", "mode", "bridge"},
		testbed.ModeIPvlanL2: {"ipvlan", "mode", "l2"},
	}[a.attacker.Mode()]
	inside(a.bed, a.attacker.NetNSPath(), append([]string{
		"ip", "link", "add", "link", a.attacker.Interface(), "name", name, "netns", netNSPath, "type"}, kind...)...)
	if netNSPath == a.attacker.NetNSPath() { // otherwise it goes with its namespace
		t.Cleanup(func() { inside(a.bed, netNSPath, "ip", "link", "del", name) })
	}
	inside(a.bed, netNSPath, "ip", "link", "set", name, "up")
	inside(a.bed, netNSPath, "ip", "addr", "add", a.spare(78)+"/32", "dev", name)
	return name
}

// spare is an address of the attacker's network that no container has.
func (a *arena) spare(last byte) string {
	raw := a.attacker.Addr.As4()
	raw[2], raw[3] = raw[2]|1, last
	return netip.AddrFrom4(raw).String()
}

// feeder makes a namespace whose packets another one of the attacker's routes
// to the neighbour, through a device.
func (a *arena) feeder(t *testing.T, router, device string) (netNSPath string) {
	t.Helper()
	process := a.namespace(t)
	inner := process.NetNSPath()
	b, address := a.bed, a.spare(77)
	inside(b, router, "ip", "link", "add", "inner", "type", "veth", "peer", "name", "outer", "netns", fmt.Sprint(process.Pid()))
	if router == a.attacker.NetNSPath() {
		t.Cleanup(func() { inside(b, router, "ip", "link", "del", "inner") })
		t.Cleanup(func() { inside(b, router, "ip", "route", "del", a.attacker.PeerAddr.String()+"/32") })
	}
	inside(b, router, "ip", "link", "set", "inner", "up")
	inside(b, router, "ip", "route", "add", address, "dev", "inner")
	inside(b, router, "ip", "route", "add", a.attacker.PeerAddr.String()+"/32", "dev", device)
	inside(b, router, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv4.conf.inner.proxy_arp=1")
	inside(b, inner, "ip", "link", "set", "outer", "up")
	inside(b, inner, "ip", "addr", "add", address+"/32", "dev", "outer")
	inside(b, inner, "ip", "route", "add", "default", "dev", "outer")
	return inner
}

// forgeInQueue gives every packet that leaves a device a forgery: by a filter
// of its qdisc, which comes behind every tap.
func forgeInQueue(t *testing.T, b *harness.Bed, netNSPath, device string, forged forgery) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "forge", Type: ebpf.SchedCLS, License: "GPL", Instructions: forge([]forgery{forged}, true),
	})
	must.Succeed(t, err)
	defer program.Close()
	inside(b, netNSPath, "tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1")
	inside(b, netNSPath, "tc", "class", "add", "dev", device, "parent", "1:", "classid", "1:1", "htb", "rate", "10gbit", "quantum", "60000")
	addFilter(t, netNSPath, device, netlink.MakeHandle(1, 0), program)
}

// addFilter has a program see the packets of a device at a qdisc, or at a hook of clsact.
func addFilter(t *testing.T, netNSPath, device string, parent uint32, program *ebpf.Program) {
	t.Helper()
	must.Succeed(t, testbed.InNetNS(netNSPath, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: parent, Priority: 1, Protocol: unix.ETH_P_ALL},
			Fd:          program.FD(), Name: program.String(), DirectAction: true,
		})
	}))
}

// TestForwardedAfterRestart: a new agent watches again.
func TestForwardedAfterRestart(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	a := newArena(b, testbed.ModeMacvlan)
	agent := b.StartAgent(harness.AgentOptions{Rate: slowRate})
	b.Send(a.victim, harness.Load{Protocol: traffic.UDP, RateBPS: victimBPS, PayloadBytes: 1200})
	attackByForwarding(t, a, forgery{})
	time.Sleep(500 * time.Millisecond)
	agent.Kill()
	b.StartAgent(harness.AgentOptions{Rate: slowRate})
	b.WarmUp()
	a.check(t, slowBPS/2)
}

// TestNamespacesOfTheHost: what the host itself has on the uplink in other
// namespaces than its own is not held for a container's. The kernel watches
// only while there is a container with a device there.
func TestNamespacesOfTheHost(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := b.AddMode("one", testbed.ModeMacvlan, nil)
	agent := b.StartAgent(harness.AgentOptions{Rate: slowRate})
	if !agent.Tracing() {
		t.Error("the agent holds no tracepoint")
	}
	name := strings.TrimSuffix(filepath.Base(b.Host.NetNSPath()), "host") + "own"
	b.Run("ip", "netns", "add", name)
	t.Cleanup(func() { b.Run("ip", "netns", "del", name) })
	path := testbed.NetNSDir + "/" + name
	raw := b.Host.PeerAddr.As4()
	raw[3] += 200
	b.Run("ip", "link", "add", "link", b.Host.UplinkName, "name", "own", "netns", name, "type", "macvlan", "mode", "bridge")
	inside(b, path, "ip", "addr", "add", netip.AddrFrom4(raw).String()+"/22", "dev", "own")
	inside(b, path, "ip", "link", "set", "own", "up")
	send := func(t *testing.T) {
		t.Helper()
		const offered = slowBPS * 8 / 10
		sender := b.SendFrom(path, harness.UnknownSlot, harness.Load{Protocol: traffic.UDP, RateBPS: offered, PayloadBytes: 1200})
		defer sender.Stop()
		b.WarmUp() // the agent finds out meanwhile
		b.Check(2*time.Second, func(m harness.Measurement) error {
			if got := m.BPS[harness.UnknownSlot]; got < 0.95*offered-m.Slack*slowBPS {
				return fmt.Errorf("%.3f Mbit/s of %.3f arrive; CPU: %s", got/mbit, float64(offered)/mbit, m.CPU)
			}
			return nil
		})
	}
	process := startProcess(t, "a process of the host", exec.Command("nsenter", "--net="+path, "--", "sleep", "600"))
	t.Run("with a process", send)
	kill(process)
	t.Run("with a name only", send)

	b.Run("ip", "netns", "del", filepath.Base(one.NetNSPath()))
	b.Await("no tracepoint held", 10*time.Second, func() (bool, string) {
		return !agent.Tracing(), "it holds one"
	})
}
