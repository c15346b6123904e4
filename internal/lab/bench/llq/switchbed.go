package llq

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// switchBed is figure 6 of SDN-LLQ: two hosts, an Open vSwitch in the kernel and its
// controller, in network namespaces of their own.
type switchBed struct {
	*testbed.OVS
	dir              string
	sender, receiver *testbed.Process // hold the hosts' network namespaces
	weir             *testbed.Process
}

// Addresses of the hosts, in a network that only they see.
const (
	senderCIDR   = "198.18.66.1/24"
	receiverCIDR = "198.18.66.2/24"
)

var receiverAddr = netip.MustParsePrefix(receiverCIDR).Addr()

const (
	bridgeName = "br0"
	portIn     = "p1"
	portOut    = "p2" // towards the receiver, the one that is congested
	ovsModule  = "/sys/module/openvswitch"
	patience   = 30 * time.Second
)

// checkSwitchBed returns an error that names what the machine lacks, and the remedy.
func checkSwitchBed() error {
	if _, err := os.Stat(ovsModule); err != nil {
		return errors.New("this kernel has no openvswitch module loaded, and Open vSwitch's userspace datapath sends nothing to queues: " +
			"load it (modprobe openvswitch; Debian's kernels have it), or run this in a virtual machine that has, as make test-vm does")
	}
	if program := testbed.MissingOVSProgram(); program != "" {
		return fmt.Errorf("there is no %s: install openvswitch-switch, iproute2 and util-linux", program)
	}
	return nil
}

// newSwitchBed builds the bed without a controller.
func newSwitchBed(ctx context.Context) (b *switchBed, err error) {
	if err := checkSwitchBed(); err != nil {
		return nil, err
	}
	b = &switchBed{}
	defer func() {
		if err != nil {
			b.close()
			b, err = nil, fmt.Errorf("build the test bed: %w", err)
		}
	}()
	if b.dir, err = testbed.MakeTempDir(); err != nil {
		return b, err
	}
	if err := ovsCountsProcessors(ctx); err != nil {
		return b, err
	}
	if b.OVS, err = testbed.NewOVS(ctx, b.dir, true); err != nil {
		return b, err
	}
	if err := b.AddBridge(ctx, bridgeName); err != nil {
		return b, err
	}
	if b.sender, err = b.AddHost(ctx, bridgeName, portIn, 1, senderCIDR); err != nil {
		return b, err
	}
	b.receiver, err = b.AddHost(ctx, bridgeName, portOut, 2, receiverCIDR)
	return b, err
}

// ovsCountsProcessors waits until the machine has been up for as long as Open
// vSwitch 3.1 takes to count its processors: until then it starts no thread for
// packets that the kernel has no entry for (count_cpu_cores of lib/ovs-thread.c).
func ovsCountsProcessors(ctx context.Context) error {
	const counted = 12 * time.Second
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return fmt.Errorf("read for how long the machine has been up: %w", err)
	}
	var up float64
	if _, err := fmt.Sscan(string(b), &up); err != nil {
		return fmt.Errorf("read for how long the machine has been up: %w", err)
	}
	return bench.WaitUntil(ctx, traffic.MonotonicNS()+int64(max(0, counted.Seconds()-up)*1e9))
}

func (b *switchBed) control() string { return b.Path("sdn.sock") }

// await waits until try has no error.
func (b *switchBed) await(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := testbed.Await(ctx, 100*time.Millisecond, try); err != nil {
		return fmt.Errorf("%s: not within %v: %w", what, patience, err)
	}
	return nil
}

// startWeir starts weir sdn run, and waits until the switch obeys it.
func (b *switchBed) startWeir(ctx context.Context, program string, args ...string) (err error) {
	all := append([]string{"sdn", "run", "--listen", "unix:" + b.Path("of.sock"), "--socket", b.control(), "--stats-interval", "500ms", "--no-second-look"}, args...)
	if b.weir, err = b.Start(b.Space, program, all...); err != nil {
		return err
	}
	return b.await(ctx, "the switch with its controller", func(ctx context.Context) error {
		s, err := client.NewSDN(b.control()).Status(ctx)
		if err != nil {
			return err
		}
		if len(s.Switches) != 1 || !s.Switches[0].Connected || len(s.Switches[0].Ports) < 2 {
			return fmt.Errorf("weir sdn run knows %d switches", len(s.Switches))
		}
		return nil
	})
}

// congested returns the controller's view of the congested port.
func (b *switchBed) congested(ctx context.Context) (v1.SDNPort, error) {
	s, err := client.NewSDN(b.control()).Status(ctx)
	if err != nil {
		return v1.SDNPort{}, err
	}
	for _, n := range s.Switches {
		for _, p := range n.Ports {
			if p.Name == portOut {
				return p, nil
			}
		}
	}
	return v1.SDNPort{}, errors.New("weir sdn ps does not show " + portOut)
}

// hasQueues fails until that port has its queues.
func (b *switchBed) hasQueues(ctx context.Context) error {
	p, err := b.congested(ctx)
	if err == nil && (p.State != "ok" || len(p.Queues) != len(sentFlows)) {
		err = fmt.Errorf("weir sdn ps shows %s as %s with %d queues: %s", p.Name, p.State, len(p.Queues), p.Reason)
	}
	return err
}

// placed returns the sending host as a container.
func (b *switchBed) placed() bench.Placed {
	return bench.Placed{
		PeerAddress: receiverAddr, Enter: func(fn func() error) error { return testbed.InNetNS(b.sender.NetNSPath(), fn) },
	}
}

// settleBPS is what the flows send together while they find their queues.
const settleBPS = 5e6

// settle sends the flows until each goes through its queue, or all through the only
// one: Open vSwitch takes its time to send a new flow's packets where its entry says.
func (b *switchBed) settle(ctx context.Context, r *traffic.Receiver) (err error) {
	sender, err := newSender(b.placed(), settleBPS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sender.Stop()) }()
	sender.Start(traffic.MonotonicNS())
	return b.await(ctx, "flows in their queues", func(ctx context.Context) error {
		if arrivals, _ := r.Take(); slices.ContainsFunc(arrivals, func(one []traffic.Arrival) bool { return len(one) == 0 }) {
			return errors.New("nothing arrives of some flow")
		}
		p, err := b.congested(ctx)
		if err != nil {
			return err
		}
		for _, q := range p.Queues {
			if float64(q.RateBPS)*float64(len(p.Queues)) < settleBPS/2 {
				return fmt.Errorf("queue %d of %d sends %d bit/s", q.ID, len(p.Queues), q.RateBPS)
			}
		}
		if len(p.Queues) == 0 {
			return errors.New("the switch counts no queue")
		}
		return nil
	})
}

// close ends everything, and leaves nothing behind.
func (b *switchBed) close() {
	if b.OVS != nil {
		b.Close()
	}
	_ = os.RemoveAll(b.dir)
}
