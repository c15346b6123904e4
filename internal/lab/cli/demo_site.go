package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/web"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

const (
	// siteRateBPS is the rate of the nodes' uplinks, siteLinkBPS that of the switches' ports.
	siteRateBPS, siteLinkBPS = 10_000_000, 20_000_000
	// siteCameraBPS is what the camera sends, siteMinBPS its minimum, siteBound how long the call's
	// packets may be on their way.
	siteCameraBPS, siteMinBPS = 3_800_000, 4_000_000
	siteBound                 = 10 * time.Millisecond
	// The call sends as voice does: 160 bytes of RTP each 20 ms, both ways.
	callBytes, callInterval = 172, 20 * time.Millisecond
	cameraBytes             = 1400
	// Ports at each node.
	siteCallPort, siteCameraPort, siteBackupPort = 5004, 5006, 5201
	siteScene                                    = 4 * time.Second
	sitePatience                                 = 30 * time.Second
	// sitePage is where the page of the switches is by default.
	sitePage = "127.0.0.1:7484"
)

// The nodes' addresses, and that of a desk at the switch of the first one.
var siteNodes = []netip.Prefix{netip.MustParsePrefix("198.18.66.1/24"), netip.MustParsePrefix("198.18.66.2/24")}

const siteDesk = "198.18.66.3/24"

func newDemoSiteCommand() *cobra.Command {
	d := &siteDemo{}
	cmd := &cobra.Command{
		Use:   "site",
		Short: "Show agents and weir-sdn at work on two nodes behind switches",
		Long: `Show one system at work: two nodes with an agent each, at two switches of an Open vSwitch
that weir-sdn controls. A call goes between the nodes, a camera on one sends to the other,
and backups fill the uplinks; then a desk without an agent fills the link between the
switches. The call stays below its bound, the camera keeps its minimum at the uplink and on
each link, and at last weir explain and weir sdn links say why. Delays and rates are
measured where packets arrive.

Queues of switches take Open vSwitch's module in the kernel (modprobe openvswitch). Without
it the switches run in user space, which sends nothing to queues: then only the uplinks are
filled, and the demo says so. Its ovs-vswitchd goes before all other programs of this
machine then (SCHED_FIFO): waiting for a processor would delay the call.

Everything is in network namespaces with addresses from 198.18.0.0/15. All of it is removed
at the end, also when interrupted. Needs root and Open vSwitch installed (it need not run).`,
		Example: `  weir demo site
  weir demo site --once`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.out, d.log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return runDemo(cmd.Context(), d)
		},
	}
	cmd.Flags().BoolVar(&d.once, "once", false, "end after the last scene instead of when interrupted")
	return cmd
}

// siteDemo is one run: switches, nodes, and the traffic between them.
type siteDemo struct {
	demoStage
	once   bool
	kernel bool // switches use the kernel's datapath

	program string // weir
	ovs     *testbed.OVS
	sdn     *testbed.Process
	nodes   [2]siteNode
	desk    *testbed.Process
	camera  *traffic.Timed
	stop    []func()     // traffic, the last one first
	full    [][]siteSpan // the seconds with full uplinks, by scene: between scenes nothing is measured
}

// siteNode is a node: its network namespace, its agent, and its containers.
type siteNode struct {
	space      *testbed.Process
	containers map[string]*testbed.Process
	agent      *testbed.Agent
	agentDir   testbed.AgentDir
	receiver   *traffic.Receiver
}

func (d *siteDemo) checkPrograms() (err error) {
	if err := checkDemoPrograms(false); err != nil {
		return err
	}
	if missing := testbed.MissingOVSProgram(); missing != "" {
		return fmt.Errorf("%s is not installed: apt-get install openvswitch-switch", missing)
	}
	d.program, err = cmdline.BesideThis("weir")
	return err
}

func (d *siteDemo) setUp(ctx context.Context) (err error) {
	if err := d.makeDir(); err != nil {
		return err
	}
	_, err = os.Stat("/sys/module/openvswitch")
	d.kernel = err == nil
	datapath := "in user space, as this kernel has no module openvswitch"
	if d.kernel {
		datapath = "in the kernel"
		if err := testbed.AwaitOVSProcessors(); err != nil {
			return err
		}
	}
	d.say("Making two switches of an Open vSwitch %s, and a link between them.", datapath)
	if d.ovs, err = testbed.NewOVS(ctx, d.dir, d.kernel); err != nil {
		return err
	}
	if err := d.ovs.GoFirst(); err != nil {
		d.say("Other programs may delay the call: %v.", err)
	}
	rate := policy.FormatRate(siteLinkBPS)
	d.say("Starting weir sdn run --ovsdb ... --rate %s --trust n1 --trust n2.", rate)
	d.sdn, err = d.ovs.Start(d.ovs.Space, d.program, "sdn", "run", "--listen", d.ovs.ControllerAddress(), "--socket", d.sdnSocket(),
		"--ovsdb", d.ovs.DatabaseAddress(), "--rate", rate, "--ef-max", "20%", "--af-min", "20%", "--trust", "n1", "--trust", "n2", "--stats-interval", "500ms")
	if err != nil {
		return err
	}
	if err := d.makeSwitches(ctx); err != nil {
		return err
	}
	d.say("Starting weir agent --uplink eth0 --rate %s on both nodes.", policy.FormatRate(siteRateBPS))
	for i := range d.nodes {
		if err := d.makeNode(ctx, i); err != nil {
			return err
		}
	}
	if err := d.await(ctx, "the switches know the nodes, and the agents their containers", d.ready); err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	d.openPage(web.KindAgent, demoDashboard, web.New(web.Feed(d.nodes[0].agentDir.Socket()), nil, d.pages(), quiet))
	d.openPage(web.KindSDN, sitePage, web.NewSDN(web.Feed(d.sdnSocket()), d.pages(), quiet))
	if d.pageURL != "" {
		d.say("The page of node 1's agent is at %s, and leads to that of the switches.", d.pageURL)
	}
	return nil
}

func (d *siteDemo) sdnSocket() string { return d.ovs.Path("sdn.sock") }

// makeSwitches makes two bridges with a cable, the nodes at one each, and the desk at the first.
func (d *siteDemo) makeSwitches(ctx context.Context) (err error) {
	for i := range d.nodes {
		if err := d.ovs.AddBridge(ctx, fmt.Sprint("br", i+1), fmt.Sprintf("other-config:datapath-id=%016d", i+1)); err != nil {
			return err
		}
	}
	if err := d.ovs.AddCable(ctx, "br1", "l12", 7, "br2", "l21", 7); err != nil {
		return err
	}
	for i := range d.nodes {
		if d.nodes[i].space, err = d.ovs.AddHost(ctx, fmt.Sprint("br", i+1), fmt.Sprint("n", i+1), 9, siteNodes[i].String()); err != nil {
			return err
		}
	}
	d.desk, err = d.ovs.AddHost(ctx, "br1", "desk", 8, siteDesk)
	return err
}

// makeNode makes a node's containers and starts its agent.
func (d *siteDemo) makeNode(ctx context.Context, i int) (err error) {
	n := &d.nodes[i]
	n.containers = map[string]*testbed.Process{}
	labels := map[string]map[string]string{
		"call": {
			policy.LabelClass: "ef", policy.LabelDSCP: "mark", policy.LabelMin: "500kbit",
			policy.LabelLatency: siteBound.String(),
		},
		"camera": {policy.LabelMin: policy.FormatRate(siteMinBPS)},
		"backup": {},
	}
	var listed []testbed.AgentContainer
	for number, name := range []string{"call", "camera", "backup"} {
		if name == "camera" && i > 0 {
			continue
		}
		if n.containers[name], err = d.ovs.AddContainer(ctx, n.space, number); err != nil {
			return err
		}
		listed = append(listed, testbed.ListContainer(name, testbed.ModeBridge, n.containers[name].NetNSPath(), "", labels[name]))
	}
	n.agentDir = testbed.NodeAgentDir(d.dir, fmt.Sprint(i+1))
	if err := os.Mkdir(string(n.agentDir), 0o700); err != nil {
		return fmt.Errorf("make the agent's folder: %w", err)
	}
	if err := n.agentDir.WriteConfig(listed, nil); err != nil {
		return err
	}
	n.agent, err = testbed.StartAgent(n.space.NetNSPath(), testbed.AgentOptions{
		Program: d.program, Dir: n.agentDir, Uplink: "eth0", Rate: policy.FormatRate(siteRateBPS),
	})
	if err != nil {
		return err
	}
	return testbed.InNetNS(n.space.NetNSPath(), func() (err error) {
		if n.receiver, err = traffic.NewReceiver(siteCallPort, siteCameraPort); err != nil {
			return err
		}
		sink, err := traffic.NewSink(siteBackupPort, 1)
		if err == nil {
			d.stop = append(d.stop, func() { _ = sink.Close() })
		}
		return err
	})
}

// ready returns an error until the controller has the link, the queues where there are any, and trust, and both
// agents control their containers.
func (d *siteDemo) ready(ctx context.Context) error {
	s, err := client.NewSDN(d.sdnSocket()).Status(ctx)
	if err != nil {
		return err
	}
	if len(s.Links) != 1 {
		return fmt.Errorf("weir sdn knows %d links", len(s.Links))
	}
	for _, one := range s.Switches {
		for _, p := range one.Ports {
			if strings.HasPrefix(p.Name, "br") {
				continue // the bridge's own port has no queues
			}
			if d.kernel && p.State != "ok" || strings.HasPrefix(p.Name, "n") && (p.Trust == nil || p.Trust.Refused != "") {
				return fmt.Errorf("port %s is %s", p.Name, p.State)
			}
		}
	}
	for i := range d.nodes {
		agent := client.Unix(d.nodes[i].agentDir.Socket())
		list, err := agent.Containers(ctx)
		agent.Close()
		if err != nil {
			return err
		}
		ok := 0
		for _, c := range list {
			if c.EntitledBPS > 0 && c.State == v1.StateOK {
				ok++
			}
		}
		if ok < len(d.nodes[i].containers) {
			return fmt.Errorf("the agent of node %d controls %d containers", i+1, ok)
		}
		if out, err := d.ovs.Run(ctx, d.nodes[i].space, "busybox", "ping", "-c", "1", "-W", "1", siteNodes[1-i].Addr().String()); err != nil {
			return fmt.Errorf("node %d does not reach the other: %w: %s", i+1, err, out)
		}
	}
	return nil
}

// await waits until ready has no error.
func (d *siteDemo) await(ctx context.Context, what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, sitePatience)
	defer cancel()
	if err := d.sdn.Await(ctx, 200*time.Millisecond, ready); err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

func (d *siteDemo) close() error {
	for i := len(d.stop) - 1; i >= 0; i-- {
		d.stop[i]()
	}
	problems := []error{d.closePages()}
	for i := range d.nodes {
		if d.nodes[i].receiver != nil {
			problems = append(problems, d.nodes[i].receiver.Close())
		}
		if d.nodes[i].agent != nil {
			problems = append(problems, d.nodes[i].agent.End(syscall.SIGTERM, demoPatience))
		}
	}
	if d.ovs != nil {
		d.ovs.Close()
	}
	return errors.Join(append(problems, d.removeDir())...)
}
