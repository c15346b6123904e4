package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/web"
	"github.com/weir-project/weir/internal/lab/testbed"

	"github.com/weir-project/weir/api/v1/transport"
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
	nodes    int
	once     bool
	out, log io.Writer

	program, edgeProgram, dir string

	cluster *testbed.Cluster
	manager *testbed.Process
	peer    *transport.Peer
	page    *http.Server
	pageURL string
	text    string             // of the scene
	leave   context.CancelFunc // ends the crowd
	crowd   chan struct{}      // closed when it has gone
}

func (d *edgeDemo) say(format string, args ...any) { fmt.Fprintf(d.log, format+"\n", args...) }

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
	if d.dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	d.say("Making a network and %d private Docker engines on it; that takes some seconds.", d.nodes)
	// The repository is on the demo's own network.
	if d.cluster, err = testbed.NewCluster(ctx, d.nodes, d.nodes > 1, "--insecure-registry=198.18.0.0/15"); err != nil {
		return err
	}
	if d.nodes > 1 {
		if err := d.loadProxyImage(ctx); err != nil {
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
	d.openPage()
	return nil
}

// loadProxyImage is `weir-edge proxy-image | docker load` on all nodes.
func (d *edgeDemo) loadProxyImage(ctx context.Context) error {
	archive, err := d.edge("proxy-image")
	if err != nil {
		return err
	}
	for _, engine := range d.cluster.Engines {
		if err := engine.Load(ctx, bytes.NewReader(archive)); err != nil {
			return err
		}
	}
	return nil
}

// edge runs a command of weir-edge on the first node.
func (d *edgeDemo) edge(args ...string) ([]byte, error) {
	cmd := d.cluster.Engines[0].Command(d.edgeProgram, append(args, "--socket", d.socket())...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("weir-edge %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out, nil
}

func (d *edgeDemo) socket() string { return filepath.Join(d.dir, "edge.sock") }

func (d *edgeDemo) startManager(ctx context.Context) (err error) {
	repository := net.JoinHostPort(d.cluster.Nodes[0].Addr.String(), "7482")
	d.say("Starting weir-edge run --repository %s.", repository)
	cmd := d.cluster.Engines[0].Command(d.edgeProgram, "run", "--socket", d.socket(), "--docker", d.cluster.Engines[0].Socket(), "--agent", filepath.Join(d.dir, "none"),
		"--state-dir", filepath.Join(d.dir, "state"), "--repository", repository)
	if d.manager, err = testbed.StartProcess("weir-edge", cmd); err != nil {
		return err
	}
	d.peer = &transport.Peer{
		Name: "weir-edge", Base: "http://weir-edge", HTTP: transport.Unix(d.socket()),
		Unreachable: func(err error) error { return fmt.Errorf("ask weir-edge: %w", err) },
		Refused:     func(_ int, message string) error { return errors.New(message) },
	}
	return d.await(ctx, "weir-edge knows all nodes", func(s edge.Snapshot) bool { return ready(s) == d.nodes })
}

// ready is how many nodes are.
func ready(s edge.Snapshot) (count int) {
	for _, n := range s.Nodes {
		if n.State == "ready" {
			count++
		}
	}
	return count
}

// await waits, without pictures.
func (d *edgeDemo) await(ctx context.Context, what string, holds func(edge.Snapshot) bool) error {
	ctx, cancel := context.WithTimeout(ctx, edgePatience)
	defer cancel()
	err := d.manager.Await(ctx, demoPoll, func(ctx context.Context) error {
		seen, err := d.snapshot(ctx)
		if err == nil && !holds(seen) {
			err = errors.New("it is not so yet")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

func (d *edgeDemo) snapshot(ctx context.Context) (s edge.Snapshot, err error) {
	return s, d.peer.Call(ctx, http.MethodGet, "/v1/snapshot", nil, &s)
}

func (d *edgeDemo) openPage() {
	listener, err := listenForPage(edgePage)
	if err != nil {
		d.say("Going on without the page: %v.", err)
		return
	}
	d.page = web.NewEdge(web.Feed(d.socket()), slog.New(slog.DiscardHandler))
	d.pageURL = servePage(d.page, listener)
	d.say("The page is at %s.", d.pageURL)
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

// specification is the demo's service.
func (d *edgeDemo) specification() ([]byte, error) {
	qos := map[string]any{"responseTime": 2}
	if d.nodes > 1 {
		qos["availability"] = edgeAvailability
	}
	return json.Marshal(map[string]any{
		"par":   map[string]any{"serviceName": edgeService, "imageName": edgeImage, "maxUsers": edgeMaxUsers},
		"QoS":   qos,
		"ports": []any{map[string]any{"host": edgePort, "container": 80}},
	})
}

func (d *edgeDemo) close() error {
	var problems []error
	if d.page != nil {
		problems = append(problems, d.page.Close())
	}
	d.goes()
	if d.manager != nil {
		_ = d.manager.End(syscall.SIGTERM, demoPatience) // its engines end anyway
	}
	if d.cluster != nil {
		problems = append(problems, d.cluster.Close())
	}
	if d.dir != "" {
		problems = append(problems, os.RemoveAll(d.dir))
	}
	return errors.Join(problems...)
}
