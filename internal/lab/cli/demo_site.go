package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/web"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

const (
	// siteRateBPS is the rate of the nodes' uplinks, siteLinkBPS that of the switches' ports.
	siteRateBPS, siteLinkBPS = 10_000_000, 20_000_000
	// siteMinBPS is the camera's minimum, siteBound how long the call's packets may be on their way.
	siteMinBPS = 6_000_000
	siteBound  = 10 * time.Millisecond
	// The call sends as voice does: 160 bytes of RTP each 20 ms, both ways.
	callBytes, callInterval = 172, 20 * time.Millisecond
	// Ports at each node.
	siteCallPort, siteBackupPort = 5004, 5201
	siteScene                    = 4 * time.Second
	sitePatience                 = 30 * time.Second
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
		Short: "Show agents, weir-edge and weir-sdn at work on two nodes behind switches",
		Long: `Show one system at work: two nodes with an agent each, at two switches of an Open vSwitch
that weir-sdn controls. A call goes between the nodes; weir-edge deploys a camera with
weir.min on one, which has viewers on the other, and has the minimum promised at the uplink
and on each link between; backups fill the uplinks, and then a desk without an agent fills
the link between the switches. Each second the demo prints the delay of the call and the
rates of the camera and of all that comes in, measured where they arrive, and at last
weir-edge explain and weir sdn links say why.

Queues of switches take Open vSwitch's module in the kernel (modprobe openvswitch). Without
it the switches run in user space, which sends nothing to queues: then only the uplinks are
filled, and the demo says so. Its ovs-vswitchd goes before all other programs of this
machine then (SCHED_FIFO): waiting for a processor would delay the call.

Everything is in network namespaces with addresses from 198.18.0.0/15. All of it is removed
at the end, also when interrupted. Needs root, and Open vSwitch, Docker (they need not run),
HAProxy and busybox-static installed.`,
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

	demoPrograms
	ovs     *testbed.OVS
	sdn     *testbed.Process
	nodes   [2]siteNode
	desk    *testbed.Process
	engine  *testbed.Engine // of the first node
	manager *testbed.Edge
	viewers demoUsers
	stop    []func()   // traffic, the last one first
	counted siteCounts // at the end of the last span
	beside  []siteSpan // the seconds with backups
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
	if d.demoPrograms, err = findDemoPrograms(); err != nil {
		return err
	}
	if missing := testbed.MissingOVSProgram(); missing != "" {
		return fmt.Errorf("%s is not installed: apt-get install openvswitch-switch", missing)
	}
	return nil
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
	d.sdn, err = d.ovs.Start(d.ovs.Space, d.weirProgram, "sdn", "run", "--listen", d.ovs.ControllerAddress(), "--socket", d.sdnSocket(),
		"--ovsdb", d.ovs.DatabaseAddress(), "--rate", rate, "--ef-max", "20%", "--af-min", "20%", "--trust", "n1", "--trust", "n2", "--stats-interval", "500ms")
	if err != nil {
		return err
	}
	if err := d.makeSwitches(ctx); err != nil {
		return err
	}
	d.say("Starting weir agent --uplink eth0 --rate %s on both nodes, and a private Docker engine on node 1.", policy.FormatRate(siteRateBPS))
	for i := range d.nodes {
		if err := d.makeNode(ctx, i); err != nil {
			return err
		}
	}
	if err := d.await(ctx, "the switches know the nodes, and the agents their containers", d.ready); err != nil {
		return err
	}
	if err := d.startManager(ctx); err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	d.openPage(web.KindAgent, demoDashboard, web.New(web.Feed(d.nodes[0].agentDir.Socket()), nil, d.pages(), quiet))
	d.openPage(web.KindSDN, sitePage, web.NewSDN(web.Feed(d.sdnSocket()), d.pages(), quiet))
	d.openPage(web.KindEdge, edgePage, web.NewEdge(web.Feed(d.manager.Socket()), d.agentOf, d.pages(), quiet))
	if d.pageURL != "" {
		d.say("The page of node 1's agent is at %s, and leads to those of weir-edge and of the switches.", d.pageURL)
	}
	return nil
}

// startManager starts weir-edge on node 1.
func (d *siteDemo) startManager(ctx context.Context) error {
	users := siteNodes[1].Addr().String()
	d.say("Starting weir-edge run --sdn unix://... --sdn-users %s on node 1.", users)
	d.manager = testbed.NewEdge([]*testbed.Engine{d.engine}, d.edgeProgram, d.dir)
	if err := d.manager.Start("--agent", d.nodes[0].agentDir.Socket(), "--sdn", "unix://"+d.sdnSocket(), "--sdn-users", users); err != nil {
		return err
	}
	err := d.manager.Await(ctx, sitePatience, func(s edge.Snapshot) error {
		if ready(s) != 1 {
			return fmt.Errorf("it knows %+v", s.Nodes)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait until weir-edge knows node 1 and its agent: %w", err)
	}
	return nil
}

// agentOf returns how the page of weir-edge asks the agent of its only node.
func (d *siteDemo) agentOf(string) web.Getter {
	return func(ctx context.Context, path string) (*http.Response, error) {
		return client.Unix(d.nodes[0].agentDir.Socket()).Get(ctx, path)
	}
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
		"backup": {},
	}
	var listed []testbed.AgentContainer
	for number, name := range []string{"call", "backup"} {
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
	options := testbed.AgentOptions{Program: d.weirProgram, Dir: n.agentDir, Uplink: "eth0", Rate: policy.FormatRate(siteRateBPS)}
	if i == 0 {
		if err := d.startEngine(ctx); err != nil {
			return err
		}
		options.Docker = d.engine.Socket()
	}
	if n.agent, err = testbed.StartAgent(n.space.NetNSPath(), options); err != nil {
		return err
	}
	return testbed.InNetNS(n.space.NetNSPath(), func() (err error) {
		if n.receiver, err = traffic.NewReceiver(siteCallPort); err != nil {
			return err
		}
		sink, err := traffic.NewSink(siteBackupPort, 1)
		if err == nil {
			d.stop = append(d.stop, func() { _ = sink.Close() })
		}
		return err
	})
}

// startEngine starts the engine of node 1, which routes for its other containers by then: an engine that has
// to turn routing on drops what is not of its own.
func (d *siteDemo) startEngine(ctx context.Context) (err error) {
	if d.engine, err = testbed.StartEngine(ctx, testbed.EngineOptions{NetNSPath: d.nodes[0].space.NetNSPath()}); err != nil {
		return err
	}
	command := []string{"/bin/weir-lab", "traffic", "pages", "--work", "0s", "--workers", "16", "--queue", "16", "--bytes", "200000"}
	return d.engine.ImportService(ctx, edgeVideo, map[string]string{"/bin/weir-lab": d.program}, command)
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
	d.viewers.goAway()
	if d.manager != nil && d.manager.Process() != nil {
		_ = d.manager.Process().End(syscall.SIGTERM, demoPatience) // its engine ends anyway
	}
	for i := range d.nodes {
		if d.nodes[i].receiver != nil {
			problems = append(problems, d.nodes[i].receiver.Close())
		}
		if d.nodes[i].agent != nil {
			problems = append(problems, d.nodes[i].agent.End(syscall.SIGTERM, demoPatience))
		}
	}
	if d.engine != nil {
		problems = append(problems, d.engine.Stop(context.Background()))
	}
	if d.ovs != nil {
		d.ovs.Close()
	}
	return errors.Join(append(problems, d.removeDir())...)
}
