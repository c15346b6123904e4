//go:build netns

package sdn

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// bed is an Open vSwitch with its namespace.
type bed struct {
	*testbed.OVS
	t      *testing.T
	kernel bool // its bridges are in the kernel
	atHome bool // weir runs in the switch's namespace
	weir   *testbed.Process
}

// endProcess ends a process, by force if it must.
func endProcess(p *testbed.Process, how syscall.Signal) { _ = p.End(how, 10*time.Second) }

// newBed starts Open vSwitch without bridges, for those in user space.
func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOf(t, false)
}

// newKernelBed is newBed for bridges in the kernel, whose packets go through
// queues.
func newKernelBed(t *testing.T) *bed {
	t.Helper()
	kernelDatapath(t)
	must.Succeed(t, testbed.AwaitOVSProcessors())
	return newBedOf(t, true)
}

// kernelDatapath skips a test where no packet goes through queues.
func kernelDatapath(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/sys/module/openvswitch"); err != nil {
		t.Skip("this kernel has no module openvswitch loaded: the suite vm has one that has")
	}
}

func newBedOf(t *testing.T, kernel bool) *bed {
	t.Helper()
	if program := testbed.MissingOVSProgram(); program != "" {
		t.Skipf("no %s to test against: install openvswitch-switch (scripts/install-deps.sh test)", program)
	}
	b := &bed{t: t, kernel: kernel}
	var err error
	if b.OVS, err = testbed.NewOVS(t.Context(), t.TempDir(), kernel); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		if log, err := os.ReadFile(b.path("vswitchd.log")); err == nil && t.Failed() {
			t.Logf("ovs-vswitchd: %s", tail(string(log), 3000))
		}
	})
	if err := b.GoFirst(); err != nil {
		t.Log(err)
	}
	return b
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func (b *bed) path(name string) string { return b.Path(name) }
func (b *bed) database() string        { return b.DatabaseAddress() }
func (b *bed) control() string         { return b.path("sdn.sock") }

// restartDatabase kills ovsdb-server and starts it again after a while.
func (b *bed) restartDatabase(after time.Duration) {
	b.t.Helper()
	endProcess(b.Database, syscall.SIGKILL)
	time.Sleep(after)
	must.Succeed(b.t, b.StartDatabase(b.t.Context()))
}

func (b *bed) do(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return b.Run(ctx, nil, program, args...)
}

func (b *bed) must(program string, args ...string) string {
	b.t.Helper()
	out, err := b.do(program, args...)
	must.Succeed(b.t, err)
	return out
}

func (b *bed) vsctl(args ...string) string {
	b.t.Helper()
	return b.must("ovs-vsctl", append([]string{"--db=" + b.database(), "--timeout=15"}, args...)...)
}

func (b *bed) inSpace(in *testbed.Process, args ...string) string {
	b.t.Helper()
	return b.must("nsenter", append([]string{"--net=" + in.NetNSPath()}, args...)...)
}

// bridge makes a bridge that connects to weir.
func (b *bed) bridge(name string, dpid int) {
	b.t.Helper()
	must.Succeed(b.t, b.AddBridge(b.t.Context(), name, fmt.Sprintf("other-config:datapath-id=%016x", dpid)))
}

// host makes a namespace with an address at a port of a bridge.
func (b *bed) host(bridge, port string, number int, address string) *testbed.Process {
	b.t.Helper()
	h, err := b.AddHost(b.t.Context(), bridge, port, number, addressArgs(address)...)
	must.Succeed(b.t, err)
	return h
}

// address gives a host an address.
func (b *bed) address(host *testbed.Process, address string) {
	b.t.Helper()
	b.inSpace(host, append([]string{"ip", "address", "add", "dev", "eth0"}, addressArgs(address)...)...)
}

// addressArgs are the arguments of ip(8) for an address and its network.
func addressArgs(address string) []string {
	args := []string{address + bitsOf(address)}
	if strings.Contains(address, ":") {
		args = append(args, "nodad") // it is used at once
	}
	return args
}

// bitsOf is the length of the network that an address is in.
func bitsOf(address string) string {
	if strings.Contains(address, ":") {
		return "/64"
	}
	return "/24"
}

// pingOf is the program that pings an address.
func pingOf(address string) string {
	if strings.Contains(address, ":") {
		return "ping6"
	}
	return "ping"
}

// cable connects two bridges.
func (b *bed) cable(bridgeA, portA string, numberA int, bridgeB, portB string, numberB int) {
	b.t.Helper()
	must.Succeed(b.t, b.AddCable(b.t.Context(), bridgeA, portA, numberA, bridgeB, portB, numberB))
}

// startWeir starts weir sdn run.
func (b *bed) startWeir(args ...string) {
	b.t.Helper()
	b.weir = b.startController(b.path("of.sock"), b.control(), args...)
}

// startController starts weir sdn run with sockets for switches and for people.
func (b *bed) startController(listen, control string, args ...string) *testbed.Process {
	b.t.Helper()
	all := append([]string{"sdn", "run", "--listen", "unix:" + listen, "--socket", control, "--stats-interval", "500ms", "-v"}, args...)
	var in *testbed.Process
	if b.atHome {
		in = b.Space
	}
	weir, err := b.Start(in, harness.Program(b.t), all...)
	must.Succeed(b.t, err)
	b.t.Cleanup(func() {
		if b.t.Failed() {
			ps, _ := b.do(harness.Program(b.t), "sdn", "ps", "--socket", control)
			b.t.Logf("weir sdn ps: %s", ps)
			b.t.Logf("weir: %s", tail(weir.Said(), 6000))
		}
	})
	b.wait("weir sdn run", 10*time.Second, func() error {
		_, err := client.NewSDN(control).Status(b.t.Context())
		return err
	})
	return weir
}

func (b *bed) status() v1.SDN {
	b.t.Helper()
	return show[v1.SDN](b, "ps")
}

func (b *bed) flows() []v1.SDNFlow {
	b.t.Helper()
	return show[[]v1.SDNFlow](b, "flows")
}

func show[T any](b *bed, what string) (v T) {
	b.t.Helper()
	out := b.must(harness.Program(b.t), "sdn", what, "--socket", b.control(), "-o", "json")
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		b.t.Fatalf("weir sdn %s -o json: %v: %s", what, err, out)
	}
	return v
}

// wait tries until something is so.
func (b *bed) wait(what string, atMost time.Duration, try func() error) {
	b.t.Helper()
	harness.Await(b.t, what, atMost, try)
}

// entries are a bridge's flows as ovs-ofctl shows them.
func (b *bed) entries(bridge string) string {
	b.t.Helper()
	return b.must("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "unix:"+b.path(bridge+".mgmt"))
}

// entry waits until a bridge has an entry with some words, and returns it. Before the controller has seen
// copies of its first packets, a flow takes the entries of hosts.
func (b *bed) entry(bridge string, words ...string) (line string) {
	b.t.Helper()
	b.wait("an entry of "+bridge, 5*time.Second, func() error {
		entries := b.entries(bridge)
		if line = lineWith(entries, words...); line == "" {
			return fmt.Errorf("none with %q: %s", words, entries)
		}
		return nil
	})
	return line
}

// ping sends n packets in n/5 seconds and returns how many were answered.
func (b *bed) ping(from *testbed.Process, to string, n int) int {
	b.t.Helper()
	out, _ := b.do("nsenter", "--net="+from.NetNSPath(), "busybox", pingOf(to), "-A", "-q", "-c", fmt.Sprint(n), "-W", "1", "-w", "20", to)
	var sent, received int
	for line := range strings.Lines(out) {
		if _, err := fmt.Sscanf(line, "%d packets transmitted, %d packets received", &sent, &received); err == nil {
			return received
		}
	}
	b.t.Fatalf("ping: %s", out)
	return 0
}
