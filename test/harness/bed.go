package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/must"
)

const (
	// BasePort is the destination port of slot 0.
	BasePort = 5200
	// HostSlot is where the host itself sends to.
	HostSlot = Slots - 1
	// UnknownSlot is where containers send to that no agent was told of.
	UnknownSlot = Slots - 2
	// Slots is how many senders a bed tells apart.
	Slots = 16

	// BinWidth and bins are the meter's time series.
	BinWidth = 5 * time.Millisecond
	bins     = 4000

	setUpTimeout = 30 * time.Second
	toolTimeout  = 10 * time.Second
)

// Bed is a host, its neighbour, and what is needed to judge the link between
// them.
type Bed struct {
	Host  *testbed.Host
	Meter *meter.Meter
	// Dir is a directory of the bed's own; it holds the agent's Files.
	Dir   string
	Files testbed.AgentDir

	tb         testing.TB
	program    string
	containers []*Container
	senders    []*traffic.Sender
	pauses     *testbed.PauseWatch // from the first measurement of shares on
	leaves     *leafWatch          // of the last CheckSharesFor, or nil
}

// Container is a container of the agent's config file.
type Container struct {
	*testbed.NetContainer
	// Slot is where it sends to.
	Slot   int
	Labels map[string]string
}

// NewBed makes a bed that lasts as long as the test.
func NewBed(tb testing.TB, options testbed.HostOptions) *Bed {
	tb.Helper()
	b := &Bed{tb: tb, program: Program(tb)}
	ctx, cancel := context.WithTimeout(context.Background(), setUpTimeout)
	defer cancel()
	var err error
	// Not tb.TempDir: its name has the test's, and a socket's path is short.
	if b.Dir, err = testbed.MakeTempDir(); err != nil {
		tb.Fatal(err)
	}
	b.Files = testbed.AgentDir(b.Dir)
	tb.Cleanup(func() { b.check(os.RemoveAll(b.Dir)) })
	if err := os.Chmod(b.Dir, 0o755); err != nil { // for tests as another user
		tb.Fatal(err)
	}
	b.Host, err = testbed.NewHost(ctx, options)
	if errors.Is(err, testbed.ErrNoLinkKind) {
		tb.Skip(err)
	}
	must.Succeed(tb, err)
	tb.Cleanup(func() {
		b.check(b.Host.Close())
		if leaked, err := b.Host.Leaked(); err != nil || len(leaked) > 0 {
			tb.Errorf("left behind: network namespaces %v, %v", leaked, err)
		}
	})
	b.MeterAt(b.Host.PeerInterface)
	tb.Cleanup(func() { b.check(b.Meter.Close()) })
	must.Succeed(b.tb, testbed.InNetNS(b.Host.PeerNetNSPath(), func() error {
		sink, err := traffic.NewSink(BasePort, Slots)
		if err == nil {
			tb.Cleanup(func() { b.check(sink.Close()) })
		}
		return err
	}))
	return b
}

// MeterAt measures from now on what arrives at one of the neighbour's interfaces.
func (b *Bed) MeterAt(peerInterface string) {
	b.tb.Helper()
	must.Succeed(b.tb, testbed.InNetNS(b.Host.PeerNetNSPath(), func() error {
		if b.Meter != nil {
			b.check(b.Meter.Close())
		}
		made, err := meter.New(meter.Options{
			Interface: peerInterface, BasePort: BasePort, Slots: Slots,
			BinWidth: BinWidth, Bins: bins,
		})
		if err == nil {
			b.Meter = made
		}
		return err
	}))
}

func (b *Bed) check(err error) {
	b.tb.Helper()
	if err != nil {
		b.tb.Error(err)
	}
}

// Add attaches a container to the host's bridge, which the agent's config file
// will list.
func (b *Bed) Add(name string, labels map[string]string) *Container {
	b.tb.Helper()
	return b.AddMode(name, testbed.ModeBridge, labels)
}

// AddMode attaches a container in any mode, which the agent's config file will
// list. It skips the test where the kernel lacks the mode.
func (b *Bed) AddMode(name string, mode testbed.Mode, labels map[string]string) *Container {
	b.tb.Helper()
	c := b.addUnknown(name, mode)
	c.Slot, c.Labels = len(b.containers), labels
	b.containers = append(b.containers, c)
	return c
}

// AddUnknown attaches a container that no agent is told of.
func (b *Bed) AddUnknown(name string) *Container {
	b.tb.Helper()
	return b.addUnknown(name, testbed.ModeBridge)
}

func (b *Bed) addUnknown(name string, mode testbed.Mode) *Container {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setUpTimeout)
	defer cancel()
	made, err := b.Host.AddContainerMode(ctx, name, mode)
	if errors.Is(err, testbed.ErrNoIPvlan) {
		b.tb.Skip(testbed.ErrNoIPvlan)
	} else if err != nil {
		b.tb.Fatal(err)
	}
	return &Container{NetContainer: made, Slot: UnknownSlot}
}

// Through is a container as seen through one more network, which it is
// attached to; it is in the config file once. What it sends this way goes to a
// slot of its own.
func (b *Bed) Through(c *Container, mode testbed.Mode, slot int) *Container {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setUpTimeout)
	defer cancel()
	second, err := b.Host.Attach(ctx, c.NetContainer, mode)
	must.Succeed(b.tb, err)
	return &Container{NetContainer: second, Slot: slot, Labels: c.Labels}
}

// WriteConfig writes the agent's config file: the containers added so far and
// settings, which are further keys.
func (b *Bed) WriteConfig(settings map[string]any) string {
	b.tb.Helper()
	var listed []testbed.AgentContainer
	for _, c := range b.containers {
		listed = append(listed, testbed.ListContainer(c.Name, c.Mode(), c.NetNSPath(), c.CgroupPath(), c.Labels))
	}
	must.Succeed(b.tb, b.Files.WriteConfig(listed, settings))
	return b.Files.ConfigPath()
}

// Run runs a tool in the host's network namespace and returns what it prints.
func (b *Bed) Run(args ...string) string {
	b.tb.Helper()
	return b.run(b.Host.Command, args)
}

// RunPeer is Run at the neighbour.
func (b *Bed) RunPeer(args ...string) string {
	b.tb.Helper()
	return b.run(b.Host.PeerCommand, args)
}

func (b *Bed) run(command func(context.Context, string, ...string) *exec.Cmd, args []string) string {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := command(ctx, args[0], args[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		b.tb.Fatalf("%s: %v: %s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

// Result is how a command of weir's ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Weir runs a command of weir's in the host's network namespace, against the
// bed's agent.
func (b *Bed) Weir(args ...string) Result {
	b.tb.Helper()
	return b.WeirAs(nil, args...)
}

// WeirAs is Weir behind a wrapper that changes who runs it, such as setpriv.
func (b *Bed) WeirAs(wrapper []string, args ...string) Result {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	command := append(append([]string{}, wrapper...), b.program)
	command = append(append(command, args...), "--socket", b.Files.Socket())
	var stdout, stderr bytes.Buffer
	cmd := b.Host.Command(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.tb.Fatal(err)
	}
	if ctx.Err() != nil {
		b.tb.Fatalf("weir %s did not end within %v: %s", strings.Join(args, " "), toolTimeout, stderr.String())
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// MustWeir is Weir for commands that have to succeed; it returns what they
// print.
func (b *Bed) MustWeir(args ...string) string {
	b.tb.Helper()
	result := b.Weir(args...)
	if result.Code != 0 {
		b.tb.Fatalf("weir %s: exit code %d: %s", strings.Join(args, " "), result.Code, result.Stderr)
	}
	return result.Stdout
}

// UplinkIndex is the index of the uplink.
func (b *Bed) UplinkIndex() int {
	b.tb.Helper()
	var link kernel.Link
	err := testbed.InNetNS(b.Host.NetNSPath(), func() (err error) {
		link, err = kernel.LinkByName(b.Host.UplinkName)
		return err
	})
	must.Succeed(b.tb, err)
	return link.Index
}

// atIngress are the programs of Weir's that see received traffic through an interface of the host's.
var atIngress = map[string]bool{"weir_tap": true, "weir_bridge": true}

// Programs lists where on the host's interfaces a program of Weir's is
// attached, such as "uplink: weir_uplink".
func (b *Bed) Programs(name string) []string {
	b.tb.Helper()
	var found []string
	ns, err := kernel.OpenNetNS(b.Host.NetNSPath())
	must.Succeed(b.tb, err)
	defer ns.Close()
	err = testbed.InNetNS(b.Host.NetNSPath(), func() error {
		links, err := ns.Links()
		if err != nil {
			return err
		}
		for _, l := range links {
			program, err := kernel.Hook{Ifindex: l.Index, Egress: !atIngress[name]}.Find(name)
			if err != nil {
				return fmt.Errorf("look at %s: %w", l.Name, err)
			}
			if program != nil {
				program.Close()
				found = append(found, l.Name+": "+name)
			}
		}
		return nil
	})
	must.Succeed(b.tb, err)
	return found
}

// Target is where slot's traffic goes, over IPv4 or IPv6.
func (b *Bed) Target(slot int, v6 bool) netip.AddrPort {
	address := b.Host.PeerAddr
	if v6 {
		address = b.Host.PeerAddr6
	}
	return netip.AddrPortFrom(address, uint16(BasePort+slot))
}

// Load is what a container sends.
type Load struct {
	Protocol    traffic.Protocol
	Connections int
	// RateBPS paces the sender; 0 is all it can.
	RateBPS uint64
	// PayloadBytes is the size of a UDP datagram without headers; 0 fills
	// a frame of the container's network.
	PayloadBytes int
	V6           bool
	// SocketPriority is SO_PRIORITY of a UDP sender's socket.
	SocketPriority uint32
}

// Some loads.
var (
	TCP = Load{Protocol: traffic.TCP, Connections: 1}
	// Flood is three times a link of 100 Mbit/s: beyond what any container
	// can have there, and without a processor spent on nothing else.
	Flood = Load{Protocol: traffic.UDP, RateBPS: 300e6}
)

// Send lets a container send until the test ends or Stop.
func (b *Bed) Send(c *Container, load Load) *traffic.Sender {
	b.tb.Helper()
	target := c.PeerAddr
	if load.V6 {
		target = c.PeerAddr6
	}
	if load.PayloadBytes == 0 {
		// Fragments have no port that the meter could tell them by.
		const ethernetHeaderBytes = 14
		load.PayloadBytes = c.MTUBytes + ethernetHeaderBytes - traffic.WireBytesUDP(target, 0)
	}
	return b.send(c.Enter, netip.AddrPortFrom(target, uint16(BasePort+c.Slot)), load)
}

// SendTo lets a container send to any address until the test ends or Stop.
func (b *Bed) SendTo(c *Container, target netip.AddrPort, load Load) *traffic.Sender {
	b.tb.Helper()
	return b.send(c.Enter, target, load)
}

// SendFrom sends from any network namespace to a slot.
func (b *Bed) SendFrom(netNSPath string, slot int, load Load) *traffic.Sender {
	b.tb.Helper()
	enter := func(fn func() error) error { return testbed.InNetNS(netNSPath, fn) }
	return b.send(enter, b.Target(slot, load.V6), load)
}

func (b *Bed) send(enter func(func() error) error, target netip.AddrPort, load Load) *traffic.Sender {
	b.tb.Helper()
	var sender *traffic.Sender
	err := enter(func() (err error) {
		sender, err = traffic.NewSender(b.tb.Context(), traffic.SenderOptions{
			Target: target, Protocol: load.Protocol, Connections: load.Connections,
			RateBPS: load.RateBPS, PayloadBytes: load.PayloadBytes, SocketPriority: load.SocketPriority,
		})
		return err
	})
	must.Succeed(b.tb, err)
	b.tb.Cleanup(sender.Stop)
	b.senders = append(b.senders, sender)
	sender.Start(0)
	return sender
}
