package llq

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/sdn/controller"
)

// switchBed is figure 6 of SDN-LLQ: two hosts, an Open vSwitch in the kernel and
// its controller, in network namespaces of their own. The database, the sockets
// and the logs are in a directory of their own too.
type switchBed struct {
	dir              string
	space            *process // holds the switch's network namespace
	sender, receiver *process // hold the hosts'
	weir             *process
	processes        []*process // in the order of their start
}

// process is a program that runs for as long as the bed, or until it is stopped.
type process struct {
	cmd   *exec.Cmd
	said  strings.Builder
	ended chan struct{}
}

func (p *process) netns() string { return fmt.Sprintf("/proc/%d/ns/net", p.cmd.Process.Pid) }

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Addresses of the hosts, in a network that nobody else sees.
const (
	senderCIDR   = "198.18.66.1/24"
	receiverCIDR = "198.18.66.2/24"
)

var receiverAddr = netip.MustParsePrefix(receiverCIDR).Addr()

const (
	bridgeName = "br0"
	portIn     = "p1"
	portOut    = "p2" // towards the receiver, the one that is congested
	ovsSchema  = "/usr/share/openvswitch/vswitch.ovsschema"
	ovsModule  = "/sys/module/openvswitch"
	patience   = 30 * time.Second
)

// programs are what the bed drives.
var programs = []string{"ip", "nsenter", "sleep", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"}

// checkSwitchBed says what the machine lacks, and what to do about it.
func checkSwitchBed() error {
	if _, err := os.Stat(ovsModule); err != nil {
		return errors.New("this kernel has no openvswitch module loaded, and Open vSwitch's userspace datapath sends nothing to queues: " +
			"load it (modprobe openvswitch; Debian's kernels have it), or run this in a virtual machine that has, as make test-vm does")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s: install openvswitch-switch, iproute2 and util-linux", program)
		}
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
	if b.dir, err = os.MkdirTemp("", "weir-sdn-"); err != nil {
		return b, err
	}
	if err := ovsCountsProcessors(ctx); err != nil {
		return b, err
	}
	for _, space := range []**process{&b.space, &b.sender, &b.receiver} {
		if *space, err = b.namespace(ctx); err != nil {
			return b, err
		}
	}
	if err := b.startSwitch(ctx); err != nil {
		return b, err
	}
	if err := b.connectHost(ctx, b.sender, portIn, senderCIDR); err != nil {
		return b, err
	}
	return b, b.connectHost(ctx, b.receiver, portOut, receiverCIDR)
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

// startSwitch starts Open vSwitch with a bridge that waits for its controller.
func (b *switchBed) startSwitch(ctx context.Context) error {
	if err := b.run(ctx, nil, "ovsdb-tool", "create", b.path("conf.db"), ovsSchema); err != nil {
		return err
	}
	if _, err := b.start(b.space, "ovsdb-server", b.path("conf.db"), "--remote=p"+b.database(), "-vconsole:off", "--log-file="+b.path("ovsdb.log")); err != nil {
		return err
	}
	err := b.await(ctx, "ovsdb-server", func() error {
		return b.vsctl(ctx, "--no-wait", "init")
	})
	if err != nil {
		return err
	}
	if _, err := b.start(b.space, "ovs-vswitchd", b.database(), "-vconsole:off", "--log-file="+b.path("vswitchd.log")); err != nil {
		return err
	}
	return b.vsctl(ctx, "add-br", bridgeName, "--", "set", "bridge", bridgeName, "datapath_type=system", "protocols=OpenFlow13", "fail_mode=secure",
		"--", "set-controller", bridgeName, "unix:"+b.path("of.sock"), "--", "set", "controller", bridgeName, "max_backoff=1000")
}

// namespace starts a process that holds a network namespace.
func (b *switchBed) namespace(ctx context.Context) (*process, error) {
	cmd := exec.Command("sleep", "86400")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p, err := b.startCommand(cmd)
	if err != nil {
		return nil, err
	}
	return p, b.run(ctx, p, "ip", "link", "set", "lo", "up")
}

// connectHost gives a namespace an interface at a port of the switch.
func (b *switchBed) connectHost(ctx context.Context, s *process, port, cidr string) error {
	for _, one := range []struct {
		in   *process
		args []string
	}{
		{b.space, []string{"link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(s.cmd.Process.Pid)}},
		{b.space, []string{"link", "set", port, "up"}},
		{s, []string{"address", "add", cidr, "dev", "eth0"}},
		{s, []string{"link", "set", "eth0", "up"}},
	} {
		if err := b.run(ctx, one.in, "ip", one.args...); err != nil {
			return err
		}
	}
	return b.vsctl(ctx, "add-port", bridgeName, port)
}

func (b *switchBed) path(name string) string { return filepath.Join(b.dir, name) }
func (b *switchBed) database() string        { return "unix:" + b.path("db.sock") }
func (b *switchBed) control() string         { return b.path("sdn.sock") }

func (b *switchBed) vsctl(ctx context.Context, args ...string) error {
	return b.run(ctx, nil, "ovs-vsctl", append([]string{"--db=" + b.database(), "--timeout=15"}, args...)...)
}

// environment keeps Open vSwitch's programs out of the machine's folders.
func (b *switchBed) environment() []string {
	return append(os.Environ(), "OVS_RUNDIR="+b.dir, "OVS_LOGDIR="+b.dir, "OVS_DBDIR="+b.dir, "OVS_SYSCONFDIR="+b.dir)
}

// run runs a program, in a namespace or, without one, in the caller's.
func (b *switchBed) run(ctx context.Context, in *process, program string, args ...string) error {
	if in != nil {
		program, args = "nsenter", append([]string{"--net=" + in.netns(), "--", program}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = b.environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// start starts a program in a namespace, which ends with the bed.
func (b *switchBed) start(in *process, program string, args ...string) (*process, error) {
	cmd := exec.Command("nsenter", append([]string{"--net=" + in.netns(), "--", program}, args...)...)
	cmd.Env = b.environment()
	return b.startCommand(cmd)
}

func (b *switchBed) startCommand(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		// Pdeathsig is about the thread, which must live as long as we do.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is told to end
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	b.processes = append(b.processes, p)
	return p, nil
}

// await tries until something is so.
func (b *switchBed) await(ctx context.Context, what string, try func() error) error {
	for end := time.Now().Add(patience); ; {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v: %w", what, patience, err)
		}
		if err := bench.WaitUntil(ctx, traffic.MonotonicNS()+(100*time.Millisecond).Nanoseconds()); err != nil {
			return err
		}
	}
}

// startWeir starts weir sdn run, and waits until the switch obeys it.
func (b *switchBed) startWeir(ctx context.Context, program string, args ...string) (err error) {
	all := append([]string{"sdn", "run", "--listen", "unix:" + b.path("of.sock"), "--socket", b.control(), "--stats-interval", "500ms", "--no-second-look"}, args...)
	if b.weir, err = b.start(b.space, program, all...); err != nil {
		return err
	}
	return b.await(ctx, "the switch with its controller", func() error {
		s, err := controller.NewClient(b.control()).Status(ctx)
		if err != nil {
			return err
		}
		if len(s.Switches) != 1 || !s.Switches[0].Connected || len(s.Switches[0].Ports) < 2 {
			return fmt.Errorf("weir sdn run knows %d switches", len(s.Switches))
		}
		return nil
	})
}

// congested is what the controller knows of the port that is congested.
func (b *switchBed) congested(ctx context.Context) (v1.SDNPort, error) {
	s, err := controller.NewClient(b.control()).Status(ctx)
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

// settleBPS is what the flows send together while they find their queues.
const settleBPS = 5e6

// settle sends the flows until each goes through its queue, or all through the only
// one: Open vSwitch takes its time to send a new flow's packets where its entry says.
func (b *switchBed) settle(ctx context.Context, r *traffic.Receiver) (err error) {
	options := traffic.TimedOptions{PayloadBytes: sentFrameBytes - measure.UDPHeaderBytes, IntervalNS: sentFrameBytes * 8 * 1e9 / settleBPS}
	for _, flow := range sentFlows {
		options.Targets = append(options.Targets, netip.AddrPortFrom(receiverAddr, flow.port))
	}
	var sender *traffic.Timed
	err = testbed.InNetNS(b.sender.netns(), func() (err error) {
		sender, err = traffic.NewTimed(options)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sender.Stop()) }()
	sender.Start(traffic.MonotonicNS())
	return b.await(ctx, "flows in their queues", func() error {
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

// close ends everything, the last first, and leaves nothing behind.
func (b *switchBed) close() {
	for i := len(b.processes) - 1; i >= 0; i-- {
		b.processes[i].stop()
	}
	_ = os.RemoveAll(b.dir)
}
