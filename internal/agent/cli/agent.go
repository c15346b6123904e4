package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/agent/loop"
	"github.com/weir-project/weir/internal/agent/response"
	"github.com/weir-project/weir/internal/agent/server"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/front/web"
	"github.com/weir-project/weir/internal/share/policy"
)

type agentFlags struct {
	config    string
	uplink    string
	rate      string
	inRate    string
	ratesFile string
	precision string
	stateDir  string
	dashboard string
	listen    string
	docker    string
	podman    string
	replace   bool
	anySpeed  bool
	propose   bool
	verbose   bool
}

func newAgentCommand(socket *string) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent --uplink IF --rate RATE",
		Short: "Share out an uplink (the daemon)",
		Long: `Share an uplink between containers: what they send and, with --in-rate, what they
receive. The agent watches the container engines on this host and gives every container
what its labels ask for.

Its configuration in the kernel stays in force when the agent stops or dies, and a new
agent takes it over. 'weir down' removes everything.`,
		Example: `  weir agent --uplink eth0 --rate 100mbit
  weir agent --uplink auto --rate 95mbit --in-rate 95mbit
  weir agent --config /etc/weir/weir.yaml
  weir agent --propose >/etc/weir/weir.yaml    # read it, correct the rate`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.propose {
				return printProposal(cmd.Context(), cmd.OutOrStdout())
			}
			told := cmd.Flags().Changed("uplink") || cmd.Flags().Changed("rate")
			if _, err := os.Stat(f.config); errors.Is(err, fs.ErrNotExist) && !told {
				return unconfigured(cmd.Context(), f.config)
			}
			settings, err := f.settings(cmd, socket)
			if err != nil {
				return err
			}
			log := cmdline.NewLogger(cmd.ErrOrStderr(), f.verbose)
			f.logRates(log)
			reload := func() (config.Config, error) {
				again, err := f.settings(cmd, socket)
				if err == nil {
					f.logRates(log)
				}
				return again, err
			}
			return f.run(cmd.Context(), settings, reload, log)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *agentFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", config.DefaultPath, "config file; the default one may be missing")
	flags.StringVar(&f.uplink, "uplink", "", "network device to share, or auto: that of the default route, whichever it is (default: auto if a rate is given)")
	flags.StringVar(&f.rate, "rate", "", "rate of the uplink, e.g. 100mbit (default: 98 % of the speed that it reports)")
	flags.StringVar(&f.inRate, "in-rate", "", "rate at which to share received traffic, e.g. 95mbit, or auto: 95 % of the speed that the uplink reports (default: not shared)")
	flags.StringVar(&f.ratesFile, "rates-file", "", "file with uplinks: whose rates override the configuration file and --rate; it may be missing, and weir reload reads it again")
	flags.StringVar(&f.precision, "precision", "", "how exactly shares and bounds hold, against the processor time that takes: exact, balanced or low (default: exact)")
	flags.StringVar(&f.stateDir, "state-dir", config.DefaultStateDir, "directory for state that outlives the agent")
	flags.StringVar(&f.dashboard, "dashboard", "", "loopback address of the dashboard, e.g. 127.0.0.1:7480, or none")
	flags.StringVar(&f.listen, "listen", "", "address of the API for other hosts, e.g. 192.0.2.1:7481, or none; the config file names the certificates")
	flags.StringVar(&f.docker, "docker", config.DefaultDockerSocket, "Docker's socket, or none")
	flags.StringVar(&f.podman, "podman", config.DefaultPodmanSocket, "Podman's socket, or none")
	flags.BoolVar(&f.replace, "replace", false, "replace a qdisc that is configured on the uplink")
	flags.BoolVar(&f.anySpeed, "ignore-link-speed", false, "allow a rate above the speed that the uplink reports (that of a virtual device means nothing)")
	flags.BoolVar(&f.propose, "propose", false, "print a configuration for this host and exit; the rate is a guess, of 100mbit, where neither the device's speed nor echoes tell one")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "log more")
}

// settings merges the config file and the flags; flags win.
func (f *agentFlags) settings(cmd *cobra.Command, socket *string) (config.Config, error) {
	settings, err := config.Load(f.config)
	if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("config") {
		settings, err = config.Default(), nil
	}
	if err != nil {
		return settings, cmdline.WithCode(cmdline.Usage, err)
	}
	changed := cmd.Flags().Changed
	if settings.Uplinks, err = f.uplinks(settings.Uplinks, changed); err != nil {
		return settings, err
	}
	if err := f.takeRates(settings.Uplinks); err != nil {
		return settings, cmdline.WithCode(cmdline.Usage, err)
	}
	if changed("socket") {
		settings.Socket = *socket
	}
	if changed("state-dir") {
		settings.StateDir = f.stateDir
	}
	if changed("dashboard") {
		if settings.Dashboard, err = config.ParseDashboard(f.dashboard); err != nil {
			return settings, cmdline.Usagef("--dashboard: %q %w", f.dashboard, err)
		}
	}
	if changed("listen") {
		if settings.Listen.Address, err = config.ParseListen(f.listen); err != nil {
			return settings, cmdline.Usagef("--listen: %q %w", f.listen, err)
		}
	}
	if err := checkListen(settings.Listen, f.config); err != nil {
		return settings, err
	}
	engineFlag(changed("docker"), f.docker, &settings.Docker)
	engineFlag(changed("podman"), f.podman, &settings.Podman)
	return settings, nil
}

// uplinks merges the uplinks of the config file with the flags for a single uplink.
func (f *agentFlags) uplinks(list []config.Uplink, changed func(string) bool) ([]config.Uplink, error) {
	if len(list) == 0 {
		list = []config.Uplink{{}}
	}
	if changed("uplink") {
		// --uplink selects one: use the file's entry of that name, or the file's only entry.
		i := slices.IndexFunc(list, func(u config.Uplink) bool { return u.Interface == f.uplink })
		switch {
		case i >= 0:
			list = []config.Uplink{list[i]}
		case len(list) > 1:
			list = []config.Uplink{{}}
		}
		list[0].Interface = f.uplink
	}
	// An empty option is a mistake, of a script say.
	if list[0].Interface == "" && (changed("uplink") || list[0].RateBPS == 0 && !changed("rate")) {
		file := f.config
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			file += ", which is not there"
		}
		return nil, cmdline.Usagef("which uplink? Give --uplink IF, the device that leads to the network (see `ip route show default`), or auto to follow that route, or name it in %s", file)
	}
	if list[0].Interface == "" {
		list[0].Interface = uplink.Auto
	}
	if len(list) > 1 && slices.ContainsFunc(list, func(u config.Uplink) bool { return u.Interface == uplink.Auto }) {
		return nil, cmdline.Usagef("%s is an uplink beside others: it follows the default route, so list it alone, or name each device", uplink.Auto)
	}
	for _, flag := range []string{"rate", "in-rate", "precision", "replace"} {
		if changed(flag) && len(list) > 1 {
			return nil, cmdline.Usagef("--%s of which uplink? %s names several: say it there, or give --uplink", flag, f.config)
		}
	}
	if changed("rate") {
		rateBPS, err := policy.ParseRate(f.rate)
		if err != nil {
			return nil, cmdline.Usagef("--rate %s %w", f.rate, err)
		}
		list[0].RateBPS = rateBPS
	}
	if changed("in-rate") {
		inRateBPS, err := config.ParseInRate(f.inRate)
		if err != nil {
			return nil, cmdline.Usagef("--in-rate %s %w", f.inRate, err)
		}
		list[0].In, list[0].InRateBPS = true, inRateBPS
	}
	if changed("precision") {
		precision, err := policy.ParsePrecision(f.precision)
		if err != nil {
			return nil, cmdline.Usagef("--precision: %w", err)
		}
		list[0].Precision = precision
	}
	if changed("replace") {
		list[0].Replace = f.replace
	}
	return list, nil
}

// takeRates puts the rates of the file --rates-file into uplinks, of which auto, or none, is the first one. A program that
// learns of rates writes that file; devices that the agent does not share are none of its mistakes. A device may also be
// what an uplink stands for, as auto and a bridge do: its rates are in force while that is so, except that sharing
// received traffic then begins at auto only.
func (f *agentFlags) takeRates(list []config.Uplink) error {
	if f.ratesFile == "" {
		return nil
	}
	rates, err := config.Load(f.ratesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	only := config.Default()
	for _, r := range rates.Uplinks {
		only.Uplinks = append(only.Uplinks, config.Uplink{Interface: r.Interface, RateBPS: r.RateBPS, In: r.In, InRateBPS: r.InRateBPS})
	}
	if !reflect.DeepEqual(rates, only) {
		return fmt.Errorf("%s says more than rates: write rate and in_rate, each uplink's under uplinks with its interface, and all else into %s", f.ratesFile, f.config)
	}
	for _, r := range rates.Uplinks {
		i := slices.IndexFunc(list, func(u config.Uplink) bool { return u.Interface == r.Interface })
		if r.Interface == uplink.Auto || r.Interface == "" {
			i = 0
		}
		if i < 0 {
			for i := range list {
				if list[i].Rates == nil {
					list[i].Rates = map[string]config.Rates{}
				}
				list[i].Rates[r.Interface] = config.Rates{RateBPS: r.RateBPS, InRateBPS: r.InRateBPS, In: r.In}
				list[i].In = list[i].In || r.In && list[i].Interface == uplink.Auto
			}
			continue
		}
		list[i].RateBPS = cmp.Or(r.RateBPS, list[i].RateBPS)
		if r.In {
			list[i].In, list[i].InRateBPS = true, r.InRateBPS
		}
	}
	return nil
}

// logRates names the file --rates-file if it is there: it outlives the program that writes it.
func (f *agentFlags) logRates(log *slog.Logger) {
	if f.ratesFile == "" {
		return
	}
	if text, err := os.ReadFile(f.ratesFile); err == nil {
		log.Info("rates of this file go before all others", "file", f.ratesFile, "text", string(text))
	}
}

func engineFlag(changed bool, value string, engine *config.Engine) {
	switch {
	case !changed:
	case value == "none":
		engine.Enabled = config.Off
	default:
		engine.Enabled, engine.Socket = config.On, value
	}
}

// niceness puts the agent before ordinary programs: it needs little processor time, but on time,
// most of all when containers use every processor.
const niceness = -15

// timerSlackNanoseconds is how late the kernel may fire the agent's timers. The control loop
// tolerates it; threads of Go's runtime, which sleep for 20 µs at a time while anything runs, save
// much. With the kernel's default of 50 µs an idle agent switches threads twice as often, for a
// fifth of its processor time.
const timerSlackNanoseconds = 1_000_000

// prioritize sets niceness and timer slack for all threads of the process. Settings that need
// CAP_SYS_NICE are in the unit file (packaging/weir.service).
func prioritize() error {
	return cmdline.EachThread(func(id int) error {
		// Each thread has this file, as each process has (proc(5)).
		path := fmt.Sprintf("/proc/%d/timerslack_ns", id)
		return errors.Join(
			unix.Setpriority(unix.PRIO_PROCESS, id, niceness),
			os.WriteFile(path, strconv.AppendInt(nil, timerSlackNanoseconds, 10), 0))
	})
}

// openDashboard serves the dashboard at a loopback address. If the port is in use, the agent runs
// without a dashboard: shares stay in force.
func openDashboard(address string, feed http.Handler, tokens *access.Tokens, pages web.Pages, log *slog.Logger) *http.Server {
	page := web.New(feed, tokens, pages, log)
	listener, err := web.Listen(address)
	if err != nil {
		log.Error("cannot open the dashboard; the agent runs without it", "error", err)
		return page
	}
	if listener, err = pages.Announce(web.KindAgent, listener); err != nil {
		log.Warn("other pages have no link to the dashboard", "reason", err)
	}
	log.Info("dashboard", "address", "http://"+listener.Addr().String())
	go func() {
		if err := page.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("cannot serve the dashboard", "error", err)
		}
	}()
	return page
}

// edgeProxies returns a list of the proxies of weir-edge among an agent's containers.
func edgeProxies(a *loop.Agent) func(context.Context) ([]response.Proxy, error) {
	return func(ctx context.Context) (list []response.Proxy, err error) {
		latest, err := a.Latest(ctx)
		if err != nil {
			return nil, err
		}
		for i, p := range latest.Places {
			if p.EdgeProxy {
				list = append(list, response.Proxy{ID: latest.Containers[i].ID, CgroupPath: p.CgroupPath})
			}
		}
		return list, nil
	}
}

func (f *agentFlags) run(ctx context.Context, settings config.Config, reload func() (config.Config, error), log *slog.Logger) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before the start: an early SIGHUP must not end the process
	defer signal.Stop(hangups)
	debug.SetMemoryLimit(memoryLimit(0))
	// One goroutine does the work; more processors would only wake each other.
	runtime.GOMAXPROCS(1)
	if err := prioritize(); err != nil {
		log.Debug("cannot run before others", "error", err)
	}
	initial, err := f.agentSettings(settings)
	if err != nil {
		return err
	}
	a, err := loop.New(loop.Config{
		Uplinks:            initial.Uplinks,
		ReserveBasisPoints: initial.ReserveBasisPoints,
		Host:               initial.Host,
		HostIn:             initial.HostIn,
		Rules:              initial.Rules,
		IgnoreDefaultRoute: initial.IgnoreDefaultRoute,
		Classifier:         initial.Classifier,
		Reload: func() (loop.Settings, error) {
			again, err := reload()
			if err == nil {
				err = onlyByRestart(settings, again)
			}
			if err != nil {
				return loop.Settings{}, err
			}
			return f.agentSettings(again)
		},
		StateDir: settings.StateDir,
		Sources:  sources(settings, log),
		Version:  cmdline.Version,
		Logger:   log,
		Ready: func() {
			// Tell a service manager that the agent is ready (sd_notify(3)).
			if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
				log.Error("cannot tell the service manager", "error", err)
			}
		},
	})
	if err != nil {
		return err
	}
	listener, err := httpapi.Listen("weir agent", settings.Socket, settings.SocketGroup)
	if err != nil {
		a.Close()
		return err
	}
	running, stopped := context.WithCancel(ctx)
	defer stopped()
	api := server.New(a, log)
	responses := response.New(edgeProxies(a), log)
	api.Responses = responses.Services
	go responses.Run(running)
	tokens := access.NewTokens(settings.TokensPath, log)
	role := access.Admin
	if settings.SocketGroupReads {
		role = access.Read
	}
	socket := api.Socket(role)
	go func() {
		if err := socket.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("cannot serve the agent's socket", "error", err)
		}
	}()
	if settings.Dashboard != "" {
		page := openDashboard(settings.Dashboard, api, tokens, web.PagesBeside(settings.Socket), log)
		defer page.Close()
	}
	if settings.Listen.Address != "" {
		if remote := openRemote(api, settings.Listen, tokens, log); remote != nil {
			defer remote.Close()
		}
	}
	go limitMemory(running, a.Latest)
	go api.FollowRefusals(running)
	go reloadOn(running, hangups, a.Reload, log)
	err = a.Run(ctx)
	stopped()
	if err == nil && ctx.Err() != nil {
		log.Info("stopping; the configuration in the kernel stays in force, `weir down` removes it")
	}
	// The request that ended Run (down) still gets its response.
	shutdown, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	closeErr := socket.Shutdown(shutdown)
	if errors.Is(closeErr, context.DeadlineExceeded) { // an event reader is slow
		closeErr = socket.Close()
	}
	api.Outlast()
	return errors.Join(err, closeErr)
}
