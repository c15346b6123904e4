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

	"github.com/moby/moby/client"
	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/httpapi"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/web"
)

const (
	// edgePage is where the page of weir-edge is by default.
	edgePage = "127.0.0.1:7483"
	// edgePort is the service's, for users.
	edgePort = 8080
	// edgeMaxUsers is what one instance of the demo's service can serve.
	edgeMaxUsers = 10
	// edgeAvailability, in percent, takes two nodes of 99 %, which is what a node is taken for
	// that nobody has watched for long.
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

	host    *testbed.Host
	places  []*testbed.NetContainer
	engines []*testbed.Engine
	manager *edgeProcess
	peer    *httpapi.Peer
	page    *http.Server
	pageURL string
	text    string             // of the scene
	leave   context.CancelFunc // ends the crowd
	crowd   chan struct{}      // closed when it has gone
}

// edgeProcess is weir-edge.
type edgeProcess struct {
	signal func(os.Signal) error
	end    chan struct{}
	said   *bytes.Buffer // to be read when it has ended
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
	d.edgeProgram = filepath.Join(filepath.Dir(d.program), "weir-edge")
	if named := os.Getenv("WEIR_EDGE_BIN"); named != "" {
		d.edgeProgram = named
	}
	if _, err := os.Stat(d.edgeProgram); err != nil {
		return fmt.Errorf("find weir-edge: %w: `make build` puts it beside weir", err)
	}
	return nil
}

func (d *edgeDemo) setUp(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	d.say("Making a network and %d private Docker engines on it; that takes some seconds.", d.nodes)
	if d.host, err = testbed.NewHost(ctx, testbed.HostOptions{}); err != nil {
		return err
	}
	for i := range d.nodes {
		if err := d.addNode(ctx, i); err != nil {
			return err
		}
	}
	if err := d.engines[0].ImportService(ctx, edgeImage, map[string]string{"/bin/weir": d.program},
		[]string{"/bin/weir", "traffic", "pages", "--work", "20ms", "--workers", "4", "--queue", "8", "--bytes", "2000"}); err != nil {
		return err
	}
	if err := d.startManager(ctx); err != nil {
		return err
	}
	d.openPage()
	return nil
}

// addNode starts an engine that is a node of the swarm, the first as its manager.
func (d *edgeDemo) addNode(ctx context.Context, i int) error {
	place, err := d.host.AddContainerMode(ctx, fmt.Sprint("node", i+1), testbed.ModeBridge)
	if err != nil {
		return err
	}
	local, overlay := d.host.EnginePools()
	engine, err := testbed.StartEngine(ctx, testbed.EngineOptions{
		NetNSPath: place.NetNSPath(), BridgeCIDR: d.host.EngineBridgeCIDR().String(), AddressPool: local.String(),
		ExtraArgs: []string{"--insecure-registry=198.18.0.0/15"}, // the repository is on the demo's own network
	})
	if err != nil {
		return err
	}
	d.places, d.engines = append(d.places, place), append(d.engines, engine)
	switch {
	case d.nodes == 1:
		return nil
	case i == 0:
		err = engine.InitSwarm(ctx, place.Addr, overlay)
	default:
		err = engine.JoinSwarm(ctx, d.engines[0], place.Addr)
	}
	if err != nil {
		return err
	}
	return d.loadProxyImage(ctx, engine)
}

// loadProxyImage is `weir-edge proxy-image | docker load` on a node.
func (d *edgeDemo) loadProxyImage(ctx context.Context, engine *testbed.Engine) error {
	archive, err := d.edge("proxy-image")
	if err != nil {
		return err
	}
	progress, err := engine.API().ImageLoad(ctx, bytes.NewReader(archive), client.ImageLoadWithQuiet(true))
	if err != nil {
		return fmt.Errorf("load the proxy's image: %w", err)
	}
	defer progress.Close()
	if _, err := io.Copy(io.Discard, progress); err != nil {
		return fmt.Errorf("load the proxy's image: %w", err)
	}
	return nil
}

// edge runs a command of weir-edge on the first node.
func (d *edgeDemo) edge(args ...string) ([]byte, error) {
	cmd := d.engines[0].Command(d.edgeProgram, append(args, "--socket", d.socket())...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("weir-edge %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out, nil
}

func (d *edgeDemo) socket() string { return filepath.Join(d.dir, "edge.sock") }

func (d *edgeDemo) startManager(ctx context.Context) error {
	repository := net.JoinHostPort(d.places[0].Addr.String(), "7482")
	d.say("Starting weir-edge run --repository %s.", repository)
	cmd := d.engines[0].Command(d.edgeProgram, "run", "--socket", d.socket(), "--docker", d.engines[0].Socket(), "--agent", filepath.Join(d.dir, "none"),
		"--state-dir", filepath.Join(d.dir, "state"), "--repository", repository)
	p := &edgeProcess{end: make(chan struct{}), said: &bytes.Buffer{}}
	cmd.Stderr = p.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start weir-edge: %w", err)
	}
	p.signal = cmd.Process.Signal
	go func() {
		_ = cmd.Wait()
		close(p.end)
	}()
	d.manager = p
	d.peer = &httpapi.Peer{
		Name: "weir-edge", Base: "http://weir-edge", HTTP: httpapi.Unix(d.socket()),
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
	for {
		seen, err := d.snapshot(ctx)
		if err == nil && holds(seen) {
			return nil
		}
		select {
		case <-d.manager.end:
			return fmt.Errorf("wait until %s: weir-edge has ended and said:\n%s", what, d.manager.said)
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, errors.Join(ctx.Err(), err))
		case <-time.After(demoPoll):
		}
	}
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
	url := fmt.Sprintf("http://%s/", net.JoinHostPort(d.places[0].Addr.String(), fmt.Sprint(edgePort)))
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
	entered := testbed.InNetNS(d.host.NetNSPath(), func() error {
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
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var problems []error
	if d.page != nil {
		problems = append(problems, d.page.Close())
	}
	d.goes()
	if d.manager != nil {
		_ = d.manager.signal(syscall.SIGTERM) // fails if it has ended
		select {
		case <-d.manager.end:
		case <-time.After(demoPatience):
			_ = d.manager.signal(syscall.SIGKILL)
			<-d.manager.end
		}
	}
	for _, engine := range d.engines {
		problems = append(problems, engine.Stop(ctx))
	}
	if d.host != nil {
		problems = append(problems, d.host.Close())
	}
	if d.dir != "" {
		problems = append(problems, os.RemoveAll(d.dir))
	}
	return errors.Join(problems...)
}
