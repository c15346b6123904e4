package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/web"
	"github.com/weir-project/weir/internal/lab/testbed"
)

const (
	// edgePage is where the page of weir-edge is by default.
	edgePage = "127.0.0.1:7483"
	// edgePort is the service's, for users.
	edgePort = 8080
	// edgeMaxUsers is what one instance of the demo's service can serve.
	edgeMaxUsers = 10
	// edgeAvailability, in percent, takes two nodes of 99 %, which is what is assumed of a new
	// node.
	edgeAvailability = 99.9
	// edgePatience bounds each wait for something that weir-edge does.
	edgePatience = 60 * time.Second
	edgePicture  = time.Second
	edgeService  = "shop"
	edgeImage    = "weir-demo/pages:1"
)

func newDemoEdgeCommand() *cobra.Command {
	d := &edgeDemo{}
	cmd := &cobra.Command{
		Use:   "edge",
		Short: "Show weir-edge at work on three nodes",
		Long: `Show weir-edge at work: a service is pushed and deployed, a crowd comes, replicas start
on other nodes, a node dies, its instances start elsewhere, and it comes back. Each second
the picture of 'weir-edge top' is shown.

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

// edgeDemo is one run: the nodes, weir-edge and the crowd.
type edgeDemo struct {
	demoStage
	nodes int
	once  bool

	program, edgeProgram string

	cluster *testbed.Cluster
	manager *testbed.Edge
	text    string             // of the scene
	leave   context.CancelFunc // ends the crowd
	crowd   chan struct{}      // closed when it has gone
}

func (d *edgeDemo) show(ctx context.Context) error {
	if err := d.play(ctx); err != nil || d.once {
		return err
	}
	d.scene("That was all. The crowd stays until you press Ctrl-C.")
	d.watch(ctx, func() bool { return false })
	return nil
}

func (d *edgeDemo) checkPrograms() (err error) {
	if err := checkDemoPrograms(true); err != nil {
		return err
	}
	if _, err := os.Stat("/usr/sbin/haproxy"); err != nil {
		return errors.New("HAProxy is not installed: apt-get install haproxy")
	}
	if d.program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if d.edgeProgram = os.Getenv("WEIR_EDGE_BIN"); d.edgeProgram == "" {
		d.edgeProgram, err = cmdline.BesideThis("weir-edge")
	}
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
	d.manager = d.cluster.NewEdge(d.edgeProgram, d.dir)
	if d.nodes > 1 {
		if err := d.manager.LoadProxyImage(ctx); err != nil {
			return err
		}
	}
	if err := d.cluster.Engines[0].ImportService(ctx, edgeImage, map[string]string{"/bin/weir-lab": d.program},
		[]string{"/bin/weir-lab", "traffic", "pages", "--work", "20ms", "--workers", "4", "--queue", "8", "--bytes", "2000"}); err != nil {
		return err
	}
	if err := d.startManager(ctx); err != nil {
		return err
	}
	if d.openPage("page", edgePage, web.NewEdge(web.Feed(d.manager.Socket()), nil, web.Pages{}, slog.New(slog.DiscardHandler))) {
		d.say("The page is at %s.", d.pageURL)
	}
	return nil
}

func (d *edgeDemo) startManager(ctx context.Context) (err error) {
	repository := net.JoinHostPort(d.cluster.Nodes[0].Addr.String(), "7482")
	d.say("Starting weir-edge run --repository %s.", repository)
	if err := d.manager.Start("--agent", filepath.Join(d.dir, "none"), "--repository", repository); err != nil {
		return err
	}
	err = d.manager.Await(ctx, edgePatience, func(s edge.Snapshot) error {
		if ready(s) < d.nodes {
			return errors.New("it is not so yet")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait until weir-edge knows all nodes: %w", err)
	}
	return nil
}

// ready returns the number of ready nodes.
func ready(s edge.Snapshot) (count int) {
	for _, n := range s.Nodes {
		if n.State == "ready" {
			count++
		}
	}
	return count
}

// comes lets a crowd of another size come to the first node.
func (d *edgeDemo) comes(ctx context.Context, users int) {
	d.goes()
	ctx, d.leave = context.WithCancel(ctx)
	gone := make(chan struct{})
	d.crowd = gone
	url := fmt.Sprintf("http://%s/", net.JoinHostPort(d.cluster.Nodes[0].Addr.String(), fmt.Sprint(edgePort)))
	go func() {
		defer close(gone)
		profile.Crowd{URL: url, Users: users, Timeout: 5 * time.Second, Dial: d.dial}.Run(ctx)
	}()
}

// goes ends the crowd.
func (d *edgeDemo) goes() {
	if d.leave != nil {
		d.leave()
		<-d.crowd
		d.leave = nil
	}
}

// dial connects from the network that the nodes are on.
func (d *edgeDemo) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	entered := testbed.InNetNS(d.cluster.Host.NetNSPath(), func() error {
		conn, err = (&net.Dialer{Timeout: 5 * time.Second, FallbackDelay: -1}).DialContext(ctx, network, address)
		return nil
	})
	return conn, errors.Join(entered, err)
}

// specification returns the demo's service.
func (d *edgeDemo) specification() map[string]any {
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

func (d *edgeDemo) close() error {
	problems := []error{d.closePage()}
	d.goes()
	if d.manager != nil && d.manager.Process() != nil {
		_ = d.manager.Process().End(syscall.SIGTERM, demoPatience) // its engines end anyway
	}
	if d.cluster != nil {
		problems = append(problems, d.cluster.Close())
	}
	return errors.Join(append(problems, d.removeDir())...)
}
