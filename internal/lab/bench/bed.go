package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/policy"
)

const (
	// basePort is the port container 1 sends to; echoPort is where pings go.
	basePort = 5201
	echoPort = basePort - 1

	// maxBedContainers is what a bridge has ports for (BR_MAX_PORTS is 1024)
	// and the test bed addresses.
	maxBedContainers = 1000

	toolTimeout = 20 * time.Second
	// ethernetMTUBytes is how long an IP packet on the link may be.
	ethernetMTUBytes    = 1500
	ethernetHeaderBytes = 14

	engineImage  = "weir-bench"
	binaryInside = "/bin/weir"
)

// bed is what all cases run on: a host with its neighbour, containers, and
// receivers at the neighbour.
type bed struct {
	host   *testbed.Host
	engine *testbed.Engine // nil: containers are network namespaces
	sink   *traffic.Sink
	echo   *traffic.Echo
	// namespaces are the containers made so far without an engine, by mode;
	// cases share them.
	namespaces map[testbed.Mode][]*testbed.NetContainer
}

// placed is a container of a case on the bed.
type placed struct {
	Container
	// Mode is how the container reaches the network.
	Mode      testbed.Mode
	NetNSPath string
	// CgroupPath is the container's cgroup (version 2) where its packets come to
	// the uplink with their sockets. Otherwise it is empty.
	CgroupPath string
	// Address is the container's, PeerAddress the neighbour's on the same
	// network, MTUBytes how long an IP packet between them may be.
	Address, PeerAddress netip.Addr
	MTUBytes             int
	// ID is the engine's; empty without one.
	ID string
	// enter calls a function so that sockets it makes are the container's.
	enter func(func() error) error
}

// newBed builds the bed for cases that send to up to so many ports.
func newBed(ctx context.Context, options Options, ports int) (b *bed, err error) {
	b = &bed{namespaces: map[testbed.Mode][]*testbed.NetContainer{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("build the test bed: %w", err), b.close())
		}
	}()
	if b.host, err = testbed.NewHost(ctx, testbed.HostOptions{}); err != nil {
		return b, err
	}
	err = testbed.InNetNS(b.host.PeerNetNSPath(), func() (err error) {
		if b.sink, err = traffic.NewSink(basePort, ports); err != nil {
			return err
		}
		b.echo, err = traffic.NewEcho(echoPort)
		return err
	})
	if err != nil || !options.Docker {
		return b, err
	}
	b.engine, err = testbed.StartEngine(ctx, testbed.EngineOptions{
		NetNSPath:   b.host.NetNSPath(),
		BridgeCIDR:  b.host.EngineBridgeCIDR().String(),
		AddressPool: b.host.EngineAddressPool().String(),
	})
	if err != nil {
		return b, err
	}
	return b, b.engine.ImportBinary(ctx, engineImage, map[string]string{binaryInside: options.WeirBinary})
}

func (b *bed) close() error {
	var problems []error
	if b.echo != nil {
		problems = append(problems, b.echo.Close())
	}
	if b.sink != nil {
		problems = append(problems, b.sink.Close())
	}
	if b.engine != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		problems = append(problems, b.engine.Stop(ctx))
	}
	if b.host != nil {
		problems = append(problems, b.host.Close())
	}
	return errors.Join(problems...)
}

// place makes the containers of a case: started with labels by the engine, or
// namespaces. The caller calls remove when the case is over.
func (b *bed) place(ctx context.Context, c Case) (containers []placed, remove func() error, err error) {
	if b.engine == nil {
		containers, err = b.placeNamespaces(ctx, c)
		return containers, func() error { return nil }, err
	}
	remove = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		var problems []error
		for _, one := range containers {
			problems = append(problems, b.engine.Remove(ctx, one.ID))
		}
		return errors.Join(problems...)
	}
	for _, one := range c.Containers {
		started, err := b.engine.Run(ctx, testbed.RunOptions{Name: one.Name, Image: engineImage, Labels: labels(one)})
		if err != nil {
			return nil, remove, errors.Join(err, remove())
		}
		containers = append(containers, placed{
			Container:   one,
			Mode:        testbed.ModeBridge,
			NetNSPath:   started.NetNSPath(),
			Address:     started.Addresses["bridge"],
			PeerAddress: b.host.PeerAddr,
			MTUBytes:    ethernetMTUBytes,
			ID:          started.ID,
			enter:       func(fn func() error) error { return testbed.InNetNS(started.NetNSPath(), fn) },
		})
	}
	return containers, remove, nil
}

func (b *bed) placeNamespaces(ctx context.Context, c Case) ([]placed, error) {
	mode := c.mode()
	var containers []placed
	for i, one := range c.Containers {
		if i == len(b.namespaces[mode]) {
			made, err := b.host.AddContainerMode(ctx, one.Name, mode)
			if err != nil {
				return nil, err
			}
			b.namespaces[mode] = append(b.namespaces[mode], made)
		}
		made := b.namespaces[mode][i]
		containers = append(containers, placed{
			Container:   one,
			Mode:        mode,
			NetNSPath:   made.NetNSPath(),
			CgroupPath:  made.CgroupPath(),
			Address:     made.Addr,
			PeerAddress: made.PeerAddr,
			MTUBytes:    made.MTUBytes,
			enter:       made.Enter,
		})
	}
	return containers, nil
}

// labels are what a user would write on the container.
func labels(c Container) map[string]string {
	labels := map[string]string{"weir.weight": strconv.FormatUint(uint64(c.Weight), 10)}
	if c.MinBPS > 0 {
		labels["weir.min"] = policy.FormatRate(c.MinBPS)
	}
	if c.MaxBPS > 0 {
		labels["weir.max"] = policy.FormatRate(c.MaxBPS)
	}
	if c.Priority > 0 {
		labels["weir.priority"] = strconv.FormatUint(uint64(c.Priority), 10)
	}
	if c.LatencyMS > 0 {
		labels["weir.latency"] = formatLatency(c.LatencyMS)
	}
	maps.Copy(labels, c.Labels)
	return labels
}

// formatLatency spells milliseconds as labels and flags do.
func formatLatency(ms float64) string { return strconv.FormatFloat(ms, 'f', -1, 64) + "ms" }

// newMeter starts to count at the neighbour.
func (b *bed) newMeter(containers, bins int, binWidth time.Duration) (m *meter.Meter, err error) {
	err = testbed.InNetNS(b.host.PeerNetNSPath(), func() (err error) {
		m, err = meter.New(meter.Options{
			Interface: b.host.PeerInterface,
			BasePort:  basePort,
			Slots:     containers,
			BinWidth:  binWidth,
			Bins:      bins,
		})
		return err
	})
	return m, err
}

// newSender makes a sender in container number i for a load.
func (b *bed) newSender(ctx context.Context, c Case, containers []placed, i int, overload float64) (s *traffic.Sender, err error) {
	load, to := containers[i].Load, containers[i].PeerAddress
	options := traffic.SenderOptions{
		Target:          netip.AddrPortFrom(to, basePort+uint16(i)),
		Protocol:        load.Protocol,
		Connections:     load.Connections,
		PayloadBytes:    load.PayloadBytes,
		SegmentsPerSend: load.SegmentsPerSend,
		RateBPS:         load.RateBPS,
	}
	if load.Protocol == traffic.UDP && load.RateBPS == 0 && !load.Flood {
		// Nothing pushes back on a sender behind a bridge, so without a pace
		// it would take the CPU from everyone else.
		options.RateBPS = uint64(overload * float64(c.LinkBPS))
	}
	if load.Protocol == traffic.UDP && load.PayloadBytes == 0 {
		headerBytes := traffic.WireBytesUDP(to, 0) - ethernetHeaderBytes
		options.PayloadBytes = containers[i].MTUBytes - headerBytes
	}
	err = containers[i].enter(func() (err error) {
		s, err = traffic.NewSender(ctx, options)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", containers[i].Name, err)
	}
	return s, nil
}

// newPinger makes a pinger in a container.
func (b *bed) newPinger(from placed) (p *traffic.Pinger, err error) {
	err = from.enter(func() (err error) {
		p, err = traffic.NewPinger(traffic.PingOptions{Target: netip.AddrPortFrom(from.PeerAddress, echoPort)})
		return err
	})
	return p, err
}

// onHost runs a tool in the host's network namespace.
func (b *bed) onHost(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	_, err := output(b.host.Command(ctx, name, args...))
	return err
}

// output runs a command to its end and returns what it printed; its error
// carries what it complained about.
func output(cmd *exec.Cmd) ([]byte, error) {
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
