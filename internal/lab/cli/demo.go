package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
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

// The bounds of --rate. A slower link has no room for the demo's minimums in
// whole packets, and the link between namespaces says it is no faster.
const (
	minDemoRateBPS = 1_000_000
	maxDemoRateBPS = 10_000_000_000
)

func newDemoCommand() *cobra.Command {
	var (
		rate     string
		duration time.Duration
		noDocker bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show Weir at work on a network of its own",
		Long: `Show Weir at work: containers start, send, fall silent and get other policies,
scene by scene, while the live view of 'weir top' shows what each of them gets.

Everything is real and nothing of this machine's is touched: the link is between
two network namespaces with addresses from 198.18.0.0/15, the containers run in
a private Docker engine, the agent is this program. All of it is removed at the
end, also when interrupted. Without a terminal, a picture is printed every second.

Needs root, and Docker installed (it need not run) unless --no-docker is given.`,
		Example: `  weir demo
  weir demo --rate 1gbit
  weir demo --no-docker --duration 30s`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			rateBPS, err := policy.ParseRate(rate)
			switch {
			case err != nil:
				return cmdline.Usagef("--rate %s %w", rate, err)
			case rateBPS < minDemoRateBPS, rateBPS > maxDemoRateBPS:
				return cmdline.Usagef("--rate %s: give %s to %s", rate, policy.FormatRate(minDemoRateBPS), policy.FormatRate(maxDemoRateBPS))
			case duration < 0:
				return cmdline.Usagef("--duration %v is negative", duration)
			}
			d := &demo{
				script: newDemoScript(rateBPS), rateBPS: rateBPS, duration: duration, docker: !noDocker,
				demoStage: demoStage{out: cmd.OutOrStdout(), log: cmd.ErrOrStderr()}, places: map[string]place{},
			}
			return runDemo(cmd.Context(), d)
		},
	}
	cmd.AddCommand(newDemoEdgeCommand(), newDemoSiteCommand())
	flags := cmd.Flags()
	flags.StringVar(&rate, "rate", "100mbit", "rate of the link")
	flags.DurationVar(&duration, "duration", 0, "how long to show (default until interrupted)")
	flags.BoolVar(&noDocker, "no-docker", false, "use bare network namespaces as containers")
	return cmd
}

// demo is one run: the network, the engine, the agent and the containers.
type demo struct {
	script   demoScript
	rateBPS  uint64
	duration time.Duration // 0: until interrupted
	docker   bool

	demoStage
	binary string
	host   *testbed.Host
	sink   *traffic.Sink
	engine *testbed.Engine // nil without Docker
	agent  *testbed.Agent
	client *client.Client
	places map[string]place
	// downloads are what servers of the neighbour's send, and who receives it.
	downloads []download
}

type download struct {
	sender   *traffic.Sender
	receiver *traffic.Download
}

func (d *demo) checkPrograms() error {
	err := checkDemoPrograms(d.docker)
	if errors.Is(err, errNoEngine) {
		return fmt.Errorf("%w, or leave it out with --no-docker", err)
	}
	return err
}

func (d *demo) setUp(ctx context.Context) (err error) {
	if d.binary, err = cmdline.BesideThis("weir"); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := d.makeDir(); err != nil {
		return err
	}
	d.say("Making two network namespaces and a link of %s between them.", policy.FormatRate(d.rateBPS))
	if d.host, err = testbed.NewHost(ctx, testbed.HostOptions{}); err != nil {
		return err
	}
	err = testbed.InNetNS(d.host.PeerNetNSPath(), func() (err error) {
		d.sink, err = traffic.NewSink(demoPort, len(d.script.actors))
		return err
	})
	if err != nil {
		return err
	}
	if d.docker {
		d.say("Starting a private Docker engine; that takes some seconds.")
		d.engine, err = testbed.StartEngine(ctx, testbed.EngineOptions{
			NetNSPath:   d.host.NetNSPath(),
			BridgeCIDR:  d.host.EngineBridgeCIDR().String(),
			AddressPool: d.host.EngineAddressPool().String(),
		})
		if err != nil {
			return fmt.Errorf("%w (--no-docker does without)", err)
		}
		if err := d.engine.ImportBinary(ctx, demoImage, map[string]string{"/bin/weir-lab": testbed.LabProgram(d.binary)}); err != nil {
			return err
		}
	}
	return d.startAgent(ctx)
}

const (
	// demoImage has this program and a shell in it.
	demoImage = "weir-demo"
	// demoPort is where the first container sends to, the others to the ports
	// after it.
	demoPort = 5201
	// demoDashboard is where the documentation has the dashboard, too.
	demoDashboard = "127.0.0.1:7480"
	// demoPatience bounds each wait for something that takes a moment.
	demoPatience = 15 * time.Second
	demoPoll     = 20 * time.Millisecond
)

// netns returns the path at which the agent looks for a container without an engine: a link to
// its namespace, made when the container starts.
func (d *demo) netns(name string) string { return filepath.Join(d.dir, "netns-"+name) }

func (d *demo) agentDir() testbed.AgentDir { return testbed.AgentDir(d.dir) }

func (d *demo) startAgent(ctx context.Context) (err error) {
	options := testbed.AgentOptions{
		Program: d.binary, Dir: d.agentDir(), Uplink: d.host.UplinkName, Rate: policy.FormatRate(d.rateBPS),
	}
	options.Args = []string{"--in-rate", options.Rate}
	var listed []testbed.AgentContainer // those that no engine knows
	if d.docker {
		options.Docker = d.engine.Socket()
	} else {
		for _, a := range d.script.actors {
			listed = append(listed, testbed.AgentContainer{Name: a.name, NetNS: d.netns(a.name), Labels: a.labels})
		}
	}
	if err := d.agentDir().WriteConfig(listed, nil); err != nil {
		return err
	}
	d.say("Starting weir agent --uplink %[1]s --rate %[2]s --in-rate %[2]s.", options.Uplink, options.Rate)
	if d.agent, err = d.host.StartAgent(options); err != nil {
		return err
	}
	d.client = client.Unix(d.agentDir().Socket())
	err = d.until(ctx, "the agent answers", func(ctx context.Context) error {
		_, err := d.client.Status(ctx)
		return err
	})
	if err == nil {
		d.openPage(web.KindAgent, demoDashboard, web.New(web.Feed(d.agentDir().Socket()), nil, d.pages(), slog.New(slog.DiscardHandler)))
	}
	return err
}

// until waits until ready has no error.
func (d *demo) until(ctx context.Context, what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	if err := d.agent.Await(ctx, demoPoll, ready); err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

// start implements stage.
func (d *demo) start(ctx context.Context, a actor) error {
	if _, started := d.places[a.name]; started {
		return nil
	}
	var err error
	if d.docker {
		_, err = d.engine.Run(ctx, testbed.RunOptions{Name: a.name, Image: demoImage, Labels: a.labels})
		d.places[a.name] = &dockerPlace{engine: d.engine, name: a.name}
	} else {
		var c *testbed.NetContainer
		if c, err = d.host.AddContainer(ctx, a.name); err == nil {
			d.places[a.name] = &netnsPlace{path: c.NetNSPath()}
			err = os.Symlink(c.NetNSPath(), d.netns(a.name))
		}
	}
	if err != nil {
		return err
	}
	return d.until(ctx, a.name+" is under control", func(ctx context.Context) error {
		containers, err := d.client.Containers(ctx)
		if err != nil {
			return err
		}
		for _, c := range containers {
			if c.Name == a.name && c.EntitledBPS > 0 {
				return nil
			}
		}
		return errors.New("it is not")
	})
}

// speak implements stage.
func (d *demo) speak(ctx context.Context, a actor) error {
	options := a.load
	options.Target = netip.AddrPortFrom(d.host.PeerAddr, demoPort+a.port)
	return d.places[a.name].speak(ctx, options)
}

// silence implements stage.
func (d *demo) silence(ctx context.Context, a actor) error { return d.places[a.name].silence(ctx) }

// download implements stage.
func (d *demo) download(ctx context.Context, a actor, connections int) error {
	netNS, err := d.places[a.name].netNS(ctx)
	if err != nil {
		return err
	}
	within := func(path string) func(func() error) error {
		return func(fn func() error) error { return testbed.InNetNS(path, fn) }
	}
	sender, receiver, err := traffic.NewDownload(ctx, traffic.DownloadOptions{
		SenderOptions: traffic.SenderOptions{Protocol: traffic.TCP, Connections: connections, Target: netip.AddrPortFrom(d.host.PeerAddr, 0)},
		InServer:      within(d.host.PeerNetNSPath()), InClient: within(netNS),
	})
	if err != nil {
		return err
	}
	d.downloads = append(d.downloads, download{sender, receiver})
	sender.Start(traffic.MonotonicNS())
	return nil
}

// endDownloads implements stage.
func (d *demo) endDownloads() {
	for _, one := range d.downloads {
		one.sender.Stop()
		_ = one.receiver.Close() // what is left is not counted
	}
	d.downloads = nil
}

// set implements stage.
func (d *demo) set(ctx context.Context, a actor, change v1.PolicyChange) error {
	_, err := d.client.Set(ctx, a.name, change)
	return err
}

// reset implements stage.
func (d *demo) reset(ctx context.Context, a actor) error {
	_, err := d.client.Reset(ctx, a.name)
	return err
}

func (d *demo) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*demoPatience)
	defer cancel()
	problems := []error{d.closePages()}
	d.endDownloads()
	for _, p := range d.places {
		p.close()
	}
	if d.agent != nil {
		problems = append(problems, d.endAgent(ctx))
	}
	if d.engine != nil {
		problems = append(problems, d.engine.Stop(ctx))
	}
	if d.sink != nil {
		problems = append(problems, d.sink.Close())
	}
	if d.host != nil {
		problems = append(problems, d.host.Close())
	}
	return errors.Join(append(problems, d.removeDir())...)
}

// place is where an actor runs.
type place interface {
	speak(context.Context, traffic.SenderOptions) error
	silence(context.Context) error
	// netNS is the path of its network namespace.
	netNS(context.Context) (string, error)
	close()
}

// dockerPlace is a container in which `weir traffic send` is run.
type dockerPlace struct {
	engine *testbed.Engine
	name   string
	ended  chan struct{} // closed when it has sent its last; nil before the first
}

func (p *dockerPlace) speak(ctx context.Context, options traffic.SenderOptions) error {
	args := []string{
		"weir-lab", "traffic", "send", "--to", options.Target.String(), "--protocol", string(options.Protocol),
		"--connections", strconv.Itoa(max(options.Connections, 1)),
		"--segments", strconv.Itoa(max(options.SegmentsPerSend, 1)), "--duration", "24h",
	}
	if options.RateBPS > 0 {
		args = append(args, "--rate", policy.FormatRate(options.RateBPS))
	}
	ended := make(chan struct{})
	p.ended = ended
	go func() {
		// That it failed shows in the picture: the container is silent.
		_, _ = p.engine.Exec(ctx, p.name, args...)
		close(ended)
	}()
	return nil
}

func (p *dockerPlace) silence(ctx context.Context) error {
	if _, err := p.engine.Exec(ctx, p.name, "killall", "weir-lab"); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
	return nil
}

func (p *dockerPlace) netNS(ctx context.Context) (string, error) {
	c, err := p.engine.Container(ctx, p.name)
	if err != nil {
		return "", err
	}
	return c.NetNSPath(), nil
}

func (*dockerPlace) close() {} // ends with the engine

// netnsPlace is a namespace in which this process has sockets.
type netnsPlace struct {
	path   string
	sender *traffic.Sender // nil while silent
}

func (p *netnsPlace) speak(ctx context.Context, options traffic.SenderOptions) error {
	return testbed.InNetNS(p.path, func() (err error) {
		if p.sender, err = traffic.NewSender(ctx, options); err != nil {
			return err
		}
		p.sender.Start(traffic.MonotonicNS())
		return nil
	})
}

func (p *netnsPlace) netNS(context.Context) (string, error) { return p.path, nil }

func (p *netnsPlace) silence(context.Context) error {
	p.close()
	return nil
}

func (p *netnsPlace) close() {
	if p.sender != nil {
		p.sender.Stop()
		p.sender = nil
	}
}

// endAgent takes the agent down as `weir down` does, and by force if it will not.
func (d *demo) endAgent(ctx context.Context) error {
	down, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	if err := d.client.Down(down); err != nil {
		// It may not have come far enough to answer.
		d.agent.Signal(syscall.SIGTERM)
	}
	return d.agent.End(0, demoPatience)
}
