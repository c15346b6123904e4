package cli

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/front/web"
	"github.com/weir-project/weir/internal/sdn/controller"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/ovsdb"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// defaultSDNSocket is where the controller serves `weir sdn ps`.
const defaultSDNSocket = "/run/weir/sdn.sock"

type sdnRunFlags struct {
	config       string
	listen       []string
	socket, http string
	api          sdnAPIFlags
	tls          sdnTLSFlags
	levels       []string
	model        string
	after        sdnTimeFlags
	packetIns    uint32
	maxFlows     int
	takeover     time.Duration
	priority     uint8
	routing      sdnRouteFlags
	trust        []string
	strict       bool
	noSecondLook bool
	verbose      bool
	queues       sdnQueueFlags
}

// sdnTimeFlags are the times after which something ends or is asked again.
type sdnTimeFlags struct{ idle, echo, timeout, stats time.Duration }

// sdnTLSFlags are the paths of PEM files.
type sdnTLSFlags struct{ cert, key, ca string }

type sdnRouteFlags struct{ gateways, routes []string }

func newSDNRunCommand() *cobra.Command {
	var f sdnRunFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Control OpenFlow switches: every flow to the queue of its class",
		Long: `Control OpenFlow 1.3 switches, such as Open vSwitch. The first packet of a flow
comes to the controller, which names the application by the classifier of 'weir
classify' and gives the flow an entry on every switch of a shortest path, with the
queue of its traffic class (EF, AF or BE) and the port.

Flow entries stay when the controller stops or dies: known flows go on, new flows to
known hosts are best effort. A controller that starts again takes them over.

Switches may have several controllers, each with --takeover-after: one is the master,
the others are standbys, which show the network and take over when the master is gone.

Ports that lead to hosts whose agent marks packets (weir.dscp=mark) may be trusted with
--trust: what comes in there is queued by its DSCP field, and no flow waits for the
controller. Above the rate of its EF queue EF is dropped there.

With --ovsdb every port of the switches gets three queues: EF (2), AF (1) and BE
(0, for all other traffic too), or those of the file --queues. Queues stay as well;
'weir sdn down' removes them. Open vSwitch makes them, or with --qos linux-noop weir
itself, which then runs on the switch's host.`,
		Example: `  weir sdn run --ovsdb unix:/var/run/openvswitch/db.sock --rate 100mbit
  ovs-vsctl set-controller br0 tcp:127.0.0.1:6653 -- set bridge br0 protocols=OpenFlow13 fail_mode=secure`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.readConfig(cmd.Flags()); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmdline.NewLogger(cmd.ErrOrStderr(), f.verbose))
		},
	}
	set := cmd.Flags()
	set.StringVar(&f.config, "config", config.SDNPath, "config file, whose keys are the options below; flags override it; the default one may be missing (docs/sdn.md)")
	set.StringSliceVar(&f.listen, "listen", []string{"tcp:127.0.0.1:6653"}, "address for switches to connect to: tcp:ADDR:PORT, tls:ADDR:PORT or unix:PATH")
	set.StringVar(&f.socket, "socket", defaultSDNSocket, "Unix socket for weir sdn ps, flows and topology")
	set.StringVar(&f.http, "http", "", "also serve /metrics at this address and, if it is local to this machine, a page of the network, e.g. 127.0.0.1:7484")
	f.api.add(set)
	set.StringVar(&f.tls.cert, "cert", "", "the controller's certificate for tls, PEM")
	set.StringVar(&f.tls.key, "key", "", "key of --cert, PEM")
	set.StringVar(&f.tls.ca, "ca", "", "certificate of the authority that signs the switches' certificates, PEM")
	set.StringVar(&f.model, "model", "", "classifier, as weir classify train writes it (default: the built-in one)")
	set.StringArrayVar(&f.levels, "level", nil, "traffic class of an application type, e.g. WEB=BE; may be repeated")
	set.DurationVar(&f.after.idle, "idle-timeout", 30*time.Second, "silence after which a flow's entries end")
	set.DurationVar(&f.after.echo, "echo-interval", controller.DefaultEchoInterval, "silence after which a switch gets an echo request")
	set.DurationVar(&f.after.timeout, "echo-timeout", controller.DefaultEchoTimeout, "silence after which a switch's connection is closed")
	set.DurationVar(&f.after.stats, "stats-interval", 5*time.Second, "interval between requests for the counters of flows and queues")
	set.Uint32Var(&f.packetIns, "packet-ins", 5000, "packets per second that a switch may send to the controller; 0 for no limit")
	set.IntVar(&f.maxFlows, "max-flows", 100000, "flows with entries of their own; others are best effort")
	set.DurationVar(&f.takeover, "takeover-after", 0, "with other controllers of the same switches: take over when their master has not renewed its role for this long, 1s or more (default: this is the only controller)")
	set.Uint8Var(&f.priority, "priority", 100, "election priority, 0 to 255; of the controllers that could take over the highest wins")
	set.StringArrayVar(&f.routing.gateways, "gateway", nil, "route between networks: a network's gateway address and prefix length, e.g. 198.18.1.1/24 or 2001:db8:1::1/64; may be repeated")
	set.StringArrayVar(&f.routing.routes, "route", nil, "static route to another network, as NETWORK=ROUTER with a router in the network of a gateway, e.g. 0.0.0.0/0=198.18.1.254; may be repeated")
	set.StringArrayVar(&f.trust, "trust", nil, "queue what comes in at a port by its DSCP field, as an agent marks it: PORT, or SWITCH:PORT with the datapath identifier; may be repeated")
	set.BoolVar(&f.strict, "strict", false, "hold packets of an unknown flow until the controller decides, instead of best effort meanwhile; without a controller they are lost")
	set.BoolVar(&f.noSecondLook, "no-second-look", false, "do not correct classes by the statistics of flows")
	f.queues.add(set)
	set.BoolVarP(&f.verbose, "verbose", "v", false, "log more")
	return cmd
}

// readConfig sets the flags that the configuration file has and the command line has not.
func (f *sdnRunFlags) readConfig(set *pflag.FlagSet) error {
	optionOf := func(flag *pflag.Flag) string { return strings.ReplaceAll(flag.Name, "-", "_") }
	flags, options, given := map[string]*pflag.Flag{}, []string{}, map[string]bool{}
	set.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "config" && flag.Name != "help" {
			flags[optionOf(flag)] = flag
			options = append(options, optionOf(flag))
		}
	})
	set.Visit(func(flag *pflag.Flag) { given[optionOf(flag)] = true })
	err := config.LoadFlags(f.config, options, func(option, key, text string) error {
		switch {
		case key != "" && option == "trust":
			text = key + ":" + text
		case key != "":
			text = key + "=" + text
		}
		if given[option] {
			return nil
		}
		flags[option].Changed = true
		return flags[option].Value.Set(text)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist) && !set.Changed("config"):
		return nil
	case err != nil:
		return cmdline.Usagef("%w", err)
	}
	return nil
}

func (f *sdnRunFlags) run(ctx context.Context, log *slog.Logger) error {
	if err := f.checkLoose(); err != nil {
		return err
	}
	queues, err := f.queues.options()
	if err != nil {
		return err
	}
	var databases managers
	options, err := f.options(log, queues, func(at topology.Port) uint64 { return databases.status()[at].RateBPS })
	if err != nil {
		return err
	}
	secure, err := f.tls.config()
	if err != nil {
		return err
	}
	if err := f.checkAddresses(secure != nil); err != nil {
		return err
	}
	sdnTurn.set(log)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(sdnGarbagePercent)
	}
	var listeners []net.Listener
	for _, address := range f.listen {
		l, err := controller.Listen(address, secure)
		if err != nil {
			return err
		}
		defer l.Close()
		listeners = append(listeners, l)
	}
	options.Core.QueueStates = func() map[topology.Port]qos.PortState { return databases.status() }
	options.PromisesChanged = func() { databases.kick() }
	c := controller.New(options)
	group, ctx := errgroup.WithContext(ctx)
	databases = f.queues.managers(queues, c, log)
	for _, m := range databases {
		group.Go(func() error { return m.Run(ctx) })
	}
	api, err := httpapi.Listen("controller", f.socket, "")
	if err != nil {
		return err
	}
	defer api.Close()
	group.Go(func() error {
		return controller.ServeHTTP(ctx, api, httpapi.NewServer(c.Changing(c.Handler(databases.status)), log))
	})
	if f.api.address != "" {
		l, server, err := f.api.open(c, databases.status, log)
		if err != nil {
			return err
		}
		defer l.Close()
		group.Go(func() error { return controller.ServeHTTP(ctx, l, server) })
	}
	if f.http != "" {
		l, server, err := f.page(c, databases, log)
		if err != nil {
			return err
		}
		defer l.Close()
		group.Go(func() error { return controller.ServeHTTP(ctx, l, server) })
	}
	group.Go(func() error { return c.Run(ctx, listeners...) })
	for _, l := range listeners {
		log.Info("waiting for switches", "address", l.Addr().String())
	}
	return group.Wait()
}

// sdnGarbagePercent is the GOGC default of the controller: a collection starts when the
// heap has grown by this percentage. Frequent collections would delay waiting packets. The
// GOGC variable overrides it.
const sdnGarbagePercent = 200

// checkAddresses validates the addresses of --listen and --http before any listener opens.
func (f *sdnRunFlags) checkAddresses(secure bool) error {
	for _, address := range f.listen {
		if err := controller.CheckListen(address, secure); err != nil {
			return cmdline.Usagef("--listen %w", err)
		}
	}
	if f.api.address != "" {
		if err := f.api.check(); err != nil {
			return err
		}
	}
	if f.http != "" && controller.CheckListen("tcp:"+f.http, false) != nil {
		return cmdline.Usagef("--http %q: want ADDR:PORT, such as 127.0.0.1:7484", f.http)
	}
	return nil
}

// checkLoose returns a usage error for flags that have no effect without another flag.
func (f *sdnRunFlags) checkLoose() error {
	written := f.queues.set.Changed
	secure := slices.ContainsFunc(f.listen, func(address string) bool { return strings.HasPrefix(address, "tls:") })
	switch {
	case (written("cert") || written("key") || written("ca")) && !secure:
		return cmdline.Usagef("--cert, --key and --ca are for --listen tls:ADDR:PORT, which is missing: switches would connect without TLS")
	case f.api.isLoose(written):
		return cmdline.Usagef("--api ADDR:PORT is missing, at which the other --api options and --tokens let other hosts ask")
	case written("priority") && f.takeover == 0:
		return cmdline.Usagef("--priority needs --takeover-after, with which controllers elect a master")
	}
	for _, name := range []string{"ef-max", "af-min", "qos", "queues", "rate", "replace"} {
		if isBound := name != "qos" && name != "replace"; written(name) && len(f.queues.ovsdb) == 0 && (len(f.trust) == 0 || !isBound) {
			return cmdline.Usagef("--%s needs --ovsdb, in which queues are made", name)
		}
	}
	return nil
}

// page returns the listener and the server of --http. On a loopback address it serves the
// page; on any other address only /metrics.
func (f *sdnRunFlags) page(c *controller.Controller, databases managers, log *slog.Logger) (net.Listener, *http.Server, error) {
	address, err := config.ParseDashboard(f.http)
	if err != nil {
		l, err := controller.Listen("tcp:"+f.http, nil)
		if err == nil {
			log.Info("metrics only: the page needs a local address, such as 127.0.0.1:7484", "address", "http://"+l.Addr().String()+"/metrics")
		}
		return l, httpapi.NewServer(c.Metrics(databases.status), log), err
	}
	l, err := controller.Listen("tcp:"+address, nil)
	if err != nil {
		return nil, nil, err
	}
	log.Info("page", "address", "http://"+l.Addr().String()+"/")
	pages := web.PagesBeside(f.socket)
	if l, err = pages.Announce(web.KindSDN, l); err != nil {
		log.Warn("other pages have no link to the page", "reason", err)
	}
	return l, web.NewSDN(c.Handler(databases.status), pages, log), nil
}

// options checks the flags and returns the controller's options. rateOf returns the rate of a port by the
// databases, 0 if it is not known.
func (f *sdnRunFlags) options(log *slog.Logger, queues ovsdb.Options, rateOf func(topology.Port) uint64) (controller.Options, error) {
	switch {
	case f.after.idle < time.Second || f.after.idle > 65535*time.Second:
		return controller.Options{}, cmdline.Usagef("--idle-timeout %v is not within 1s and 65535s", f.after.idle)
	case f.after.echo < 10*time.Millisecond || f.after.timeout <= f.after.echo:
		return controller.Options{}, cmdline.Usagef("--echo-timeout %v must be longer than --echo-interval %v, which is 10ms or more", f.after.timeout, f.after.echo)
	case f.after.stats < 100*time.Millisecond:
		return controller.Options{}, cmdline.Usagef("--stats-interval %v is less than 100ms", f.after.stats)
	case f.takeover != 0 && f.takeover < time.Second:
		return controller.Options{}, cmdline.Usagef("--takeover-after %v is less than 1s", f.takeover)
	case f.maxFlows < 1:
		return controller.Options{}, cmdline.Usagef("--max-flows %d is less than 1", f.maxFlows)
	}
	model, err := f.readModel()
	if err != nil {
		return controller.Options{}, err
	}
	classifier, err := core.NewClassifier(model)
	if err != nil {
		return controller.Options{}, err
	}
	routes, err := f.routing.parse()
	if err != nil {
		return controller.Options{}, err
	}
	config := core.Config{
		Queues: core.DefaultQueues(), IdleTimeoutSeconds: uint16(f.after.idle / time.Second), FailSafe: !f.strict, MaxFlows: f.maxFlows,
		PacketInsPerSecond: f.packetIns, LLDPInterval: time.Second, StatsInterval: f.after.stats, SecondLook: !f.noSecondLook,
		TakeoverAfter: f.takeover, Routes: routes,
	}
	if config.Trust, err = parseTrust(f.trust, queues, rateOf); err != nil {
		return controller.Options{}, err
	}
	if config.Trust != nil && len(f.queues.ovsdb)+len(f.queues.rates) == 0 {
		return controller.Options{}, cmdline.Usagef("--trust needs --rate, or --ovsdb, which tells the speed of a port: it bounds the EF that comes in there")
	}
	assign(&config, queues.Queues, model.Levels)
	var id [8]byte
	var claim [2]byte
	_, _ = rand.Read(config.LLDPKey[:]) // rand.Read never fails
	_, _ = rand.Read(id[:])
	_, _ = rand.Read(claim[:])
	config.Claim = core.Claim(f.priority, binary.BigEndian.Uint16(claim[:]))
	config.FirstFlowID = binary.BigEndian.Uint64(id[:])
	return controller.Options{
		Core: config, Classifier: classifier, HandshakeTimeout: controller.DefaultHandshakeTimeout,
		EchoInterval: f.after.echo, EchoTimeout: f.after.timeout, MaxSwitches: controller.DefaultMaxSwitches, Log: log,
	}, nil
}

// parse returns the routes of --gateway and --route, or nil if neither is set.
func (f *sdnRouteFlags) parse() (*core.Routes, error) {
	var gateways []netip.Prefix
	var static []core.Route
	for _, s := range f.gateways {
		g, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, cmdline.Usagef("--gateway %s: want an address with its network's length, such as 198.18.1.1/24 or 2001:db8:1::1/64", s)
		}
		gateways = append(gateways, g)
	}
	for _, s := range f.routes {
		to, via, _ := strings.Cut(s, "=")
		network, err := netip.ParsePrefix(to)
		router, viaErr := netip.ParseAddr(via)
		if err != nil || viaErr != nil {
			return nil, cmdline.Usagef("--route %s: want NETWORK=ROUTER, such as 0.0.0.0/0=198.18.1.254", s)
		}
		static = append(static, core.Route{To: network, Via: router})
	}
	if len(gateways)+len(static) == 0 {
		return nil, nil
	}
	routes, err := core.NewRoutes(gateways, static)
	if err != nil {
		return nil, cmdline.WithCode(cmdline.Usage, err)
	}
	return routes, nil
}

// readModel returns the classifier of --model with the traffic classes of the level flags.
func (f *sdnRunFlags) readModel() (*apps.Model, error) {
	model, err := config.LoadClassifier(f.model)
	if err != nil {
		return nil, cmdline.Usagef("--model: %w", err)
	}
	if err := model.Levels.Override(f.levels); err != nil {
		return nil, cmdline.WithCode(cmdline.Usage, err)
	}
	return model, nil
}

// config returns the mutual TLS configuration of tls listeners, or nil without TLS flags.
func (f *sdnTLSFlags) config() (*tls.Config, error) {
	if f.cert == "" && f.key == "" && f.ca == "" {
		return nil, nil
	}
	if f.cert == "" || f.key == "" || f.ca == "" {
		return nil, cmdline.Usagef("TLS needs all of --cert, --key and --ca")
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, cmdline.Usagef("read the controller's certificate: %w", err)
	}
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, cmdline.Usagef("read the switches' authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, cmdline.Usagef("read the switches' authority: %s holds no certificate in PEM", f.ca)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}, nil
}
