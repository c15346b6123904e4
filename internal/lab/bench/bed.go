package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/report/machine"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

const (
	// BasePort is the port container 1 sends to; echoPort is where pings go.
	BasePort = 5201
	echoPort = BasePort - 1

	// maxBedContainers is limited by a bridge's ports (BR_MAX_PORTS is 1024) and by the test bed's
	// addresses.
	maxBedContainers = 1000

	toolTimeout = 20 * time.Second
	// EthernetMTUBytes is how long an IP packet on the link may be.
	EthernetMTUBytes    = 1500
	ethernetHeaderBytes = 14

	engineImage  = "weir-bench"
	binaryInside = "/bin/weir-lab"
)

// Bed is the network for all cases: a host, its neighbour, containers, and receivers at the
// neighbour.
type Bed struct {
	Host   *testbed.Host
	engine *testbed.Engine // nil: containers are network namespaces
	sink   *traffic.Sink
	echo   *traffic.Echo
	// line leads to a server beyond the neighbour, which answers pings; nil before a case asks for it.
	line    *testbed.DelayLine
	farEcho *traffic.Echo
	// namespaces are the containers made without an engine, by mode; cases reuse them.
	namespaces map[testbed.Mode][]*testbed.NetContainer
}

// Placed is a container of a case on the bed.
type Placed struct {
	Container
	// Mode is how the container reaches the network.
	Mode      testbed.Mode
	NetNSPath string
	// CgroupPath is the container's cgroup (version 2) if its packets reach the uplink with their
	// sockets, else empty.
	CgroupPath string
	// Address is the container's address, PeerAddress the neighbour's on the same network, MTUBytes
	// the largest IP packet between them.
	Address, PeerAddress netip.Addr
	MTUBytes             int
	// ID is the engine's; empty without one.
	ID string
	// Enter runs a function whose new sockets belong to the container.
	Enter func(func() error) error
}

// NewBed builds the bed for cases that use up to ports receiver ports.
func NewBed(ctx context.Context, options Options, ports int) (b *Bed, err error) {
	b = &Bed{namespaces: map[testbed.Mode][]*testbed.NetContainer{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("build the test bed: %w", err), b.Close())
		}
	}()
	if b.Host, err = testbed.NewHost(ctx, testbed.HostOptions{}); err != nil {
		return b, err
	}
	err = testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		if b.sink, err = traffic.NewSink(BasePort, ports); err != nil {
			return err
		}
		b.echo, err = traffic.NewEcho(echoPort)
		return err
	})
	if err != nil || !options.Docker {
		return b, err
	}
	b.engine, err = testbed.StartEngine(ctx, testbed.EngineOptions{
		NetNSPath:   b.Host.NetNSPath(),
		BridgeCIDR:  b.Host.EngineBridgeCIDR().String(),
		AddressPool: b.Host.EngineAddressPool().String(),
	})
	if err != nil {
		return b, err
	}
	return b, b.engine.ImportBinary(ctx, engineImage, map[string]string{binaryInside: testbed.LabProgram(options.WeirBinary)})
}

// Close removes the bed.
func (b *Bed) Close() error {
	var problems []error
	if b.echo != nil {
		problems = append(problems, b.echo.Close())
	}
	if b.farEcho != nil {
		problems = append(problems, b.farEcho.Close())
	}
	if b.line != nil {
		problems = append(problems, b.line.Close())
	}
	if b.sink != nil {
		problems = append(problems, b.sink.Close())
	}
	if b.engine != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		problems = append(problems, b.engine.Stop(ctx))
	}
	if b.Host != nil {
		problems = append(problems, b.Host.Close())
	}
	return errors.Join(problems...)
}

// Place makes the containers of a case: started with labels by the engine, or
// namespaces. The caller calls remove when the case is over, after an error too,
// and again if that fails.
func (b *Bed) Place(ctx context.Context, c Case) (containers []Placed, remove func() error, err error) {
	if b.engine == nil {
		containers, err = b.placeNamespaces(ctx, c)
		return containers, func() error { return nil }, err
	}
	var ids []string
	remove = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		var problems []error
		ids = slices.DeleteFunc(ids, func(id string) bool {
			err := b.engine.Remove(ctx, id)
			problems = append(problems, err)
			return err == nil
		})
		return errors.Join(problems...)
	}
	for _, one := range c.Containers {
		started, err := b.engine.Run(ctx, testbed.RunOptions{Name: one.Name, Image: engineImage, Labels: labels(one, c.Incoming)})
		if err != nil {
			return nil, remove, err
		}
		ids = append(ids, started.ID)
		containers = append(containers, Placed{
			Container:   one,
			Mode:        testbed.ModeBridge,
			NetNSPath:   started.NetNSPath(),
			Address:     started.Addresses["bridge"],
			PeerAddress: b.Host.PeerAddr,
			MTUBytes:    EthernetMTUBytes,
			ID:          started.ID,
			Enter:       func(fn func() error) error { return testbed.InNetNS(started.NetNSPath(), fn) },
		})
	}
	return containers, remove, nil
}

func (b *Bed) placeNamespaces(ctx context.Context, c Case) ([]Placed, error) {
	mode := c.mode()
	if err := b.attachOnly(ctx, mode); err != nil {
		return nil, err
	}
	var containers []Placed
	for i, one := range c.Containers {
		if i == len(b.namespaces[mode]) {
			made, err := b.Host.AddContainerMode(ctx, one.Name, mode)
			if err != nil {
				return nil, err
			}
			b.namespaces[mode] = append(b.namespaces[mode], made)
		}
		made := b.namespaces[mode][i]
		containers = append(containers, Placed{
			Container:   one,
			Mode:        mode,
			NetNSPath:   made.NetNSPath(),
			CgroupPath:  made.CgroupPath(),
			Address:     made.Addr,
			PeerAddress: made.PeerAddr,
			MTUBytes:    made.MTUBytes,
			Enter:       made.Enter,
		})
	}
	return containers, nil
}

// directKinds names the kinds of devices on the uplink: it has devices of one kind at a time.
var directKinds = map[testbed.Mode]string{
	testbed.ModeMacvlan: "macvlan", testbed.ModeMacvlanPrivate: "macvlan",
	testbed.ModeIPvlanL2: "ipvlan-l2", testbed.ModeIPvlanL3: "ipvlan-l3",
}

// attachOnly attaches the containers of a mode with devices on the uplink, and detaches containers with devices of another kind.
func (b *Bed) attachOnly(ctx context.Context, mode testbed.Mode) error {
	kind, direct := directKinds[mode]
	if !direct {
		return nil
	}
	for other, placed := range b.namespaces {
		if its, direct := directKinds[other]; !direct || its == kind {
			continue
		}
		for _, one := range placed {
			if err := b.Host.Detach(ctx, one); err != nil {
				return err
			}
		}
	}
	for _, one := range b.namespaces[mode] {
		if err := b.Host.Reattach(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// dropMissingModes returns the cases without those in modes that this kernel lacks, and these modes.
func (b *Bed) dropMissingModes(ctx context.Context, cases []Case) (rest []Case, missing []testbed.Mode, err error) {
	tried := map[testbed.Mode]bool{}
	for _, c := range cases {
		if mode := c.mode(); mode.IsIPvlan() && !tried[mode] {
			tried[mode] = true
			_, err := b.placeNamespaces(ctx, Case{Mode: mode, Containers: c.Containers[:1]})
			if errors.Is(err, testbed.ErrNoIPvlan) {
				missing = append(missing, mode)
			} else if err != nil {
				return nil, nil, err
			}
		}
		if !slices.Contains(missing, c.mode()) {
			rest = append(rest, c)
		}
	}
	return rest, missing, nil
}

// labels returns a container's policy as labels, for what it sends or for what it receives.
func labels(c Container, incoming bool) map[string]string {
	prefix := "weir."
	if incoming {
		prefix = "weir.in."
	}
	labels := map[string]string{prefix + "weight": strconv.FormatUint(uint64(c.Weight), 10)}
	if c.MinBPS > 0 {
		labels[prefix+"min"] = policy.FormatRate(c.MinBPS)
	}
	if c.MaxBPS > 0 {
		labels[prefix+"max"] = policy.FormatRate(c.MaxBPS)
	}
	if c.Priority > 0 {
		labels[prefix+"priority"] = strconv.FormatUint(uint64(c.Priority), 10)
	}
	if c.LatencyMS > 0 {
		labels[prefix+"latency"] = formatLatency(c.LatencyMS)
	}
	maps.Copy(labels, c.Labels)
	return labels
}

// formatLatency formats milliseconds as labels and flags have them.
func formatLatency(ms float64) string { return strconv.FormatFloat(ms, 'f', -1, 64) + "ms" }

// NewMeter starts counting received bytes at the neighbour.
func (b *Bed) NewMeter(containers, bins int, binWidth time.Duration) (m *meter.Meter, err error) {
	err = testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		m, err = meter.New(meter.Options{
			Interface: b.Host.PeerInterface,
			BasePort:  BasePort,
			Slots:     containers,
			BinWidth:  binWidth,
			Bins:      bins,
		})
		return err
	})
	return m, err
}

// newSender returns a sender for the load of container i.
func (b *Bed) newSender(ctx context.Context, c Case, containers []Placed, i int, overload float64) (s *traffic.Sender, err error) {
	options := senderOptions(c, containers[i], overload)
	options.Target = netip.AddrPortFrom(containers[i].PeerAddress, BasePort+uint16(i))
	err = containers[i].Enter(func() (err error) {
		s, err = traffic.NewSender(ctx, options)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", containers[i].Name, err)
	}
	return s, nil
}

// senderOptions are those of a container's load, without its target.
func senderOptions(c Case, one Placed, overload float64) traffic.SenderOptions {
	load := one.Load
	options := traffic.SenderOptions{
		Protocol:        load.Protocol,
		Connections:     load.Connections,
		PayloadBytes:    load.PayloadBytes,
		SegmentsPerSend: load.SegmentsPerSend,
		RateBPS:         load.RateBPS,
	}
	if load.Protocol == traffic.UDP && load.RateBPS == 0 && !load.Flood {
		// Nothing pushes back on a sender behind a bridge, so without a pace
		// it would take the CPU from all others.
		options.RateBPS = uint64(overload * float64(c.LinkBPS))
	}
	if load.Protocol == traffic.UDP && load.PayloadBytes == 0 {
		headerBytes := traffic.WireBytesUDP(one.PeerAddress, 0) - ethernetHeaderBytes
		options.PayloadBytes = one.MTUBytes - headerBytes
	}
	return options
}

// newPinger returns a pinger in a container.
func (b *Bed) newPinger(from Placed) (p *traffic.Pinger, err error) {
	err = from.Enter(func() (err error) {
		p, err = traffic.NewPinger(traffic.PingOptions{Target: netip.AddrPortFrom(from.PeerAddress, echoPort)})
		return err
	})
	return p, err
}

// OnHost runs a tool in the host's network namespace.
func (b *Bed) OnHost(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	_, err := Output(b.Host.Command(ctx, name, args...))
	return err
}

// OnHostAll runs tools in the host's network namespace, one after the other up to the first that
// fails.
func (b *Bed) OnHostAll(ctx context.Context, commands [][]string) error {
	for _, command := range commands {
		if err := b.OnHost(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Output runs a command and returns its output; its error includes standard error.
func Output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if err != nil {
		said := strings.TrimSpace(string(out))
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			said = strings.TrimSpace(said + " " + string(exit.Stderr))
		}
		return out, fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, said)
	}
	return out, nil
}

// Environment describes the machine and what stands for containers on it.
func (b *Bed) Environment(ctx context.Context, version string) report.Environment {
	e := machine.Read(version)
	e.TC = testbed.SaysOr(ctx, report.Unknown, "tc", "-V")
	e.Containers = "network namespaces"
	if b.engine != nil {
		e.Containers = testbed.SaysOr(ctx, "docker "+report.Unknown, "dockerd", "--version")
	}
	return e
}
