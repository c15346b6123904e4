package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/web"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/policy"
)

const (
	// edgePage is where the page of weir-edge is by default.
	edgePage = "127.0.0.1:7483"
	// edgePort is the shop's, for users; cameraPort, garagePort and backupPort are the others'.
	edgePort, cameraPort, garagePort, backupPort = 8080, 8081, 8082, 9000
	// edgeMaxUsers is what one instance of the shop can serve.
	edgeMaxUsers = 10
	// edgeAvailability, in percent, takes two nodes of 99 %, which is what is assumed of a new
	// node.
	edgeAvailability = 99.9
	// edgeUplinkBPS is the rate of each node's uplink, cameraMinBPS the minimum of the camera: more than
	// half of an uplink can promise.
	edgeUplinkBPS, cameraMinBPS = 20_000_000, 12_000_000
	cameraViewers               = 8
	// edgePatience bounds each wait for something that weir-edge does.
	edgePatience = 60 * time.Second
	edgePicture  = time.Second
	edgePoll     = 100 * time.Millisecond
	// toldLines of results are on a terminal's screen.
	toldLines   = 10
	edgeService = "shop"
	edgeCamera  = "camera"
	edgeGarage  = "garage"
	edgeImage   = "weir-demo/pages:1"
	// edgeVideo serves parts of a video as fast as the uplink takes them.
	edgeVideo = "weir-demo/video:1"
)

func newDemoEdgeCommand() *cobra.Command {
	d := &edgeDemo{}
	cmd := &cobra.Command{
		Use:   "edge",
		Short: "Show weir-edge and its agents at work on three nodes",
		Long: `Show weir-edge at work on three nodes, each with an agent: a shop is pushed and deployed, a
crowd comes and replicas start on other nodes; a camera with weir.min has it beside backups
that take what they can; a second camera on its node is refused the minimum, weir explain
says why, and weir-edge places it on a node with room; a node dies, its instances start
elsewhere, and it comes back. All that is said of users is measured at their sockets.

Everything is real and nothing of this machine's is touched: the nodes are private Docker
engines in network namespaces, with addresses from 198.18.0.0/15, that form a Swarm; nodes
get the image from weir-edge's repository. With --nodes 1 it is one plain engine. All of it
is removed at the end, also when interrupted.

Needs root, and Docker (it need not run), HAProxy and busybox-static installed; weir-edge is
the one beside this program.`,
		Example: `  weir demo edge
  weir demo edge --nodes 1 --once`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.nodes != 1 && d.nodes != 3 {
				return cmdline.Usagef("--nodes %d: give 1 or 3", d.nodes)
			}
			d.out, d.log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return runDemo(cmd.Context(), d)
		},
	}
	cmd.Flags().IntVar(&d.nodes, "nodes", 3, "how many nodes: 3, or 1")
	cmd.Flags().BoolVar(&d.once, "once", false, "end after the last scene instead of when interrupted")
	return cmd
}

// edgeDemo is one run: the nodes with their agents, weir-edge and the users.
type edgeDemo struct {
	demoStage
	nodes int
	once  bool

	demoPrograms

	cluster *testbed.Cluster
	agents  []*testbed.Agent
	clients map[string]*client.Client // of the agents, by the nodes' addresses
	manager *testbed.Edge
	text    string // of the scene
	told    []string

	shoppers        demoUsers
	viewers, garage edgeViewers
	backups         []*demoUsers // of each node
	seen            edge.Snapshot
}

// edgeViewers are the users of a camera, who follow it from node to node.
type edgeViewers struct {
	demoUsers
	port    int
	watched string // where they are
}

func (d *edgeDemo) show(ctx context.Context) error {
	if err := d.play(ctx); err != nil || d.once {
		return err
	}
	d.scene("That was all. The users stay until you press Ctrl-C.")
	d.watch(ctx, func(edge.Snapshot) bool { return false })
	return nil
}

func (d *edgeDemo) checkPrograms() (err error) {
	d.demoPrograms, err = findDemoPrograms()
	return err
}

func (d *edgeDemo) setUp(ctx context.Context) (err error) {
	if err := d.makeDir(); err != nil {
		return err
	}
	d.say("Making a network and %d private Docker engines on it; that takes some seconds.", d.nodes)
	// The repository is on the demo's own network.
	if d.cluster, err = testbed.NewCluster(ctx, d.nodes, d.nodes > 1, "--insecure-registry=198.18.0.0/15"); err != nil {
		return err
	}
	d.manager = testbed.NewEdge(d.cluster.Engines, d.edgeProgram, d.dir)
	if d.nodes > 1 {
		if err := d.manager.LoadProxyImage(ctx); err != nil {
			return err
		}
	}
	for image, args := range map[string][]string{
		edgeImage: {"--work", "20ms", "--workers", "4", "--queue", "8", "--bytes", "2000"},
		edgeVideo: {"--work", "0s", "--workers", "64", "--queue", "64", "--bytes", "5000000"},
	} {
		command := append([]string{"/bin/weir-lab", "traffic", "pages"}, args...)
		if err := d.cluster.Engines[0].ImportService(ctx, image, map[string]string{"/bin/weir-lab": d.program}, command); err != nil {
			return err
		}
	}
	if err := d.cluster.Distribute(ctx, edgeVideo); err != nil {
		return err
	}
	d.clients = map[string]*client.Client{}
	d.say("Starting weir agent on each node, with an uplink of %s.", policy.FormatRate(edgeUplinkBPS))
	for node := range d.nodes {
		agent, err := d.cluster.StartAgent(ctx, node, d.weirProgram, d.dir, map[string]any{"rate": policy.FormatRate(edgeUplinkBPS)})
		if err != nil {
			return err
		}
		d.agents = append(d.agents, agent)
		d.clients[d.cluster.Nodes[node].Addr.String()] = client.Unix(d.agentDir(node).Socket())
	}
	if err := d.startManager(ctx); err != nil {
		return err
	}
	d.openPage(web.KindEdge, edgePage, web.NewEdge(web.Feed(d.manager.Socket()), d.agentOf, d.pages(), slog.New(slog.DiscardHandler)))
	if d.pageURL != "" {
		d.say("The page is at %s; a node's row opens the page of its agent.", d.pageURL)
	}
	d.shoppers.name, d.viewers.name, d.garage.name = edgeService, edgeCamera, edgeGarage
	d.viewers.port, d.garage.port = cameraPort, garagePort
	for _, users := range []*demoUsers{&d.shoppers, &d.viewers.demoUsers, &d.garage.demoUsers} {
		users.dial = d.dial
	}
	return nil
}

// agentOf returns how the page asks the agent of a node.
func (d *edgeDemo) agentOf(node string) web.Getter {
	return func(ctx context.Context, path string) (*http.Response, error) {
		s, err := d.manager.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(s.Nodes, func(n edge.Node) bool { return n.Name == node })
		if at < 0 {
			return nil, fmt.Errorf("weir-edge knows no node %q", node)
		}
		agent := d.clients[cmp.Or(s.Nodes[at].Address, d.cluster.Nodes[0].Addr.String())] // one engine alone has none
		if agent == nil {
			return nil, fmt.Errorf("node %q has no agent", node)
		}
		return agent.Get(ctx, path)
	}
}

// agentDir returns the folder of a node's agent.
func (d *edgeDemo) agentDir(node int) testbed.AgentDir {
	return testbed.NodeAgentDir(d.dir, d.cluster.Nodes[node].Addr.String())
}

func (d *edgeDemo) startManager(ctx context.Context) (err error) {
	repository := net.JoinHostPort(d.cluster.Nodes[0].Addr.String(), "7482")
	d.say("Starting weir-edge run --repository %s --agents ...", repository)
	agents := []string{"--agents", "unix://" + testbed.NodeAgentDir(d.dir, "{address}").Socket()}
	if d.nodes == 1 {
		agents = []string{"--agent", d.agentDir(0).Socket()}
	}
	if err := d.manager.Start(append(agents, "--repository", repository)...); err != nil {
		return err
	}
	err = d.manager.Await(ctx, edgePatience, func(s edge.Snapshot) error {
		if ready(s) < d.nodes {
			return errors.New("it is not so yet")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait until weir-edge knows all nodes and agents: %w", err)
	}
	return nil
}

// ready returns the number of ready nodes with an agent.
func ready(s edge.Snapshot) (count int) {
	for _, n := range s.Nodes {
		if n.State == "ready" && n.Weir {
			count++
		}
	}
	return count
}

// url returns a port of a node.
func (d *edgeDemo) url(node, port int) string {
	return fmt.Sprintf("http://%s/", net.JoinHostPort(d.cluster.Nodes[node].Addr.String(), fmt.Sprint(port)))
}

// dial connects from the network that the nodes are on.
func (d *edgeDemo) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	entered := testbed.InNetNS(d.cluster.Host.NetNSPath(), func() error {
		conn, err = (&net.Dialer{Timeout: 5 * time.Second, FallbackDelay: -1}).DialContext(ctx, network, address)
		return nil
	})
	return conn, errors.Join(entered, err)
}

// shop returns the shop's specification.
func (d *edgeDemo) shop() map[string]any {
	qos := map[string]any{"responseTime": 2}
	if d.nodes > 1 {
		qos["availability"] = edgeAvailability
	}
	return map[string]any{
		"par":   map[string]any{"serviceName": edgeService, "imageName": edgeImage, "maxUsers": edgeMaxUsers},
		"QoS":   qos,
		"ports": []any{map[string]any{"host": edgePort, "container": 80}},
	}
}

// video returns the specification of the camera that these viewers watch.
func (v *edgeViewers) video() map[string]any {
	return map[string]any{
		"par":    map[string]any{"serviceName": v.name, "imageName": edgeVideo},
		"ports":  []any{map[string]any{"host": v.port, "container": 80}},
		"limits": map[string]any{"instances": 1},
		"labels": map[string]any{policy.LabelMin: policy.FormatRate(cameraMinBPS)},
	}
}

// camera returns the camera's. A rule keeps it from the first node, which manages the swarm and does not
// die, while another one can have it.
func (d *edgeDemo) camera(first string) map[string]any {
	document := d.viewers.video()
	if d.nodes > 1 {
		document["algorithm"], document["rule"] = "rule", fmt.Sprintf("option.node != %q", first)
	}
	return document
}

func (d *edgeDemo) close() error {
	problems := []error{d.closePages()}
	for _, users := range append(d.backups, &d.shoppers, &d.viewers.demoUsers, &d.garage.demoUsers) {
		users.goAway()
	}
	if d.manager != nil && d.manager.Process() != nil {
		_ = d.manager.Process().End(syscall.SIGTERM, demoPatience) // its engines end anyway
	}
	for _, agent := range d.agents {
		problems = append(problems, agent.End(syscall.SIGTERM, demoPatience))
	}
	if d.cluster != nil {
		problems = append(problems, d.cluster.Close())
	}
	return errors.Join(append(problems, d.removeDir())...)
}
