package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
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

	"github.com/weir-project/weir/internal/access"
	"github.com/weir-project/weir/internal/agent"
	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/config"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/discovery/docker"
	"github.com/weir-project/weir/internal/discovery/static"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/server"
	"github.com/weir-project/weir/internal/unixsock"
	"github.com/weir-project/weir/internal/web"
)

type agentFlags struct {
	config    string
	uplink    string
	rate      string
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

func newAgentCommand(g *global) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent --uplink IF --rate RATE",
		Short: "Share out an uplink (the daemon)",
		Long: `Share out what leaves through an uplink. The agent watches the container engines
on this host and gives every container what its labels ask for.

What it puts into the kernel goes on working when the agent stops or dies; a new
agent takes over where the old one left. 'weir down' removes everything.`,
		Example: `  weir agent --uplink eth0 --rate 100mbit
  weir agent --config /etc/weir/weir.yaml
  weir agent --propose >/etc/weir/weir.yaml`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.propose {
				return printProposal(cmd.Context(), cmd.OutOrStdout())
			}
			told := cmd.Flags().Changed("uplink") || cmd.Flags().Changed("rate")
			if _, err := os.Stat(f.config); errors.Is(err, fs.ErrNotExist) && !told {
				return unconfigured(cmd.Context(), f.config)
			}
			settings, err := f.settings(cmd, g)
			if err != nil {
				return err
			}
			reload := func() (config.Config, error) { return f.settings(cmd, g) }
			return f.run(cmd.Context(), settings, reload, newLogger(cmd.ErrOrStderr(), f.verbose))
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *agentFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", config.DefaultPath, "config file; the default one may be missing")
	flags.StringVar(&f.uplink, "uplink", "", "network device that is shared out")
	flags.StringVar(&f.rate, "rate", "", "what the uplink may send, e.g. 100mbit (default: the speed it reports)")
	flags.StringVar(&f.stateDir, "state-dir", config.DefaultStateDir, "folder of what must outlive the agent")
	flags.StringVar(&f.dashboard, "dashboard", "", "loopback address of a page that shows what every container gets, e.g. 127.0.0.1:7480, or none")
	flags.StringVar(&f.listen, "listen", "", "address where programs on other hosts may ask, e.g. 192.0.2.1:7481, or none; the config file names the certificates")
	flags.StringVar(&f.docker, "docker", config.DefaultDockerSocket, "Docker's socket, or none")
	flags.StringVar(&f.podman, "podman", config.DefaultPodmanSocket, "Podman's socket, or none")
	flags.BoolVar(&f.replace, "replace", false, "put a qdisc aside that somebody configured on the uplink")
	flags.BoolVar(&f.anySpeed, "ignore-link-speed", false, "allow a rate above the speed the uplink reports (virtual devices report one that means nothing)")
	flags.BoolVar(&f.propose, "propose", false, "print a configuration for this host, by its default route and the speed of that link, and end")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "log more")
}

// settings joins the config file and the flags, which win.
func (f *agentFlags) settings(cmd *cobra.Command, g *global) (config.Config, error) {
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
	if changed("socket") {
		settings.Socket = g.socket
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

// uplinks joins the uplinks of the config file and the flags for one.
func (f *agentFlags) uplinks(list []config.Uplink, changed func(string) bool) ([]config.Uplink, error) {
	if len(list) == 0 {
		list = []config.Uplink{{}}
	}
	if changed("uplink") {
		// That one alone, with what the file says of it, or of its only one.
		i := slices.IndexFunc(list, func(u config.Uplink) bool { return u.Interface == f.uplink })
		switch {
		case i >= 0:
			list = []config.Uplink{list[i]}
		case len(list) > 1:
			list = []config.Uplink{{}}
		}
		list[0].Interface = f.uplink
	}
	if slices.ContainsFunc(list, func(u config.Uplink) bool { return u.Interface == "" }) {
		return nil, cmdline.Usagef("which uplink? Give --uplink IF, the device that leads to the network (see `ip route show default`), or name it in %s", f.config)
	}
	for _, flag := range []string{"rate", "replace"} {
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
	if changed("replace") {
		list[0].Replace = f.replace
	}
	return list, nil
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

func newLogger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// sources are where the settings say that containers are.
func sources(settings config.Config, log *slog.Logger) []discovery.Source {
	var list []discovery.Source
	for _, engine := range []struct {
		name string
		config.Engine
	}{{"docker", settings.Docker}, {"podman", settings.Podman}} {
		if engine.Enabled == config.Off {
			continue
		}
		var source discovery.Source = docker.New(docker.Options{Name: engine.name, Socket: engine.Socket, Logger: log})
		if engine.Enabled == config.Auto {
			source = discovery.Optional{Source: source, Path: engine.Socket}
		}
		list = append(list, source)
	}
	if len(settings.Containers) > 0 {
		var containers []discovery.Container
		for _, c := range settings.Containers {
			containers = append(containers, discovery.Container{
				Name: c.Name, Runtime: static.Runtime, Labels: c.Labels,
				NetNSPath: c.NetNSPath, CgroupPath: c.CgroupPath, Interface: c.Interface,
			})
		}
		list = append(list, static.New(static.Runtime, containers, log))
	}
	return list
}

// niceness puts the agent before ordinary programs: it needs little of the
// processor, but on time, most of all when containers take all of it.
const niceness = -15

// timerSlackNanoseconds is how late its timers may be: little to the control
// loop, and much to a thread of Go's runtime that sleeps for 20 µs at a time
// while anything runs. With the kernel's 50 µs the agent switches threads twice
// as often when idle, for a fifth of the processor time it takes.
const timerSlackNanoseconds = 1_000_000

// prioritize gives all threads of the process that niceness and timer slack. What takes
// CAP_SYS_NICE the unit has done (packaging/weir.service).
func prioritize() error {
	return eachThread(func(id int) error {
		// A thread has this file as a process has (proc(5)).
		path := fmt.Sprintf("/proc/%d/timerslack_ns", id)
		return errors.Join(
			unix.Setpriority(unix.PRIO_PROCESS, id, niceness),
			os.WriteFile(path, strconv.AppendInt(nil, timerSlackNanoseconds, 10), 0))
	})
}

// openDashboard shows what feed has at a loopback address. A port that somebody
// else has is no reason for containers to be without their guarantees.
func openDashboard(address string, feed http.Handler, tokens *access.Tokens, log *slog.Logger) *http.Server {
	page := web.New(feed, tokens, log)
	listener, err := web.Listen(address)
	if err != nil {
		log.Error("go on without the dashboard", "error", err)
		return page
	}
	log.Info("dashboard", "address", "http://"+listener.Addr().String())
	go func() {
		if err := page.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve the dashboard", "error", err)
		}
	}()
	return page
}

func (f *agentFlags) run(ctx context.Context, settings config.Config, reload func() (config.Config, error), log *slog.Logger) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // also while it starts: it must not end it
	defer signal.Stop(hangups)
	debug.SetMemoryLimit(memoryLimit(0))
	// One goroutine does the work; more processors would only wake each other.
	runtime.GOMAXPROCS(1)
	if err := prioritize(); err != nil {
		log.Debug("run before others", "error", err)
	}
	initial, err := f.agentSettings(settings)
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Config{
		Uplinks:            initial.Uplinks,
		ReserveBasisPoints: initial.ReserveBasisPoints,
		Host:               initial.Host,
		Rules:              initial.Rules,
		Classifier:         initial.Classifier,
		Reload: func() (agent.Settings, error) {
			again, err := reload()
			if err == nil {
				err = onlyByRestart(settings, again)
			}
			if err != nil {
				return agent.Settings{}, err
			}
			return f.agentSettings(again)
		},
		StateDir: settings.StateDir,
		Sources:  sources(settings, log),
		Version:  version,
		Logger:   log,
		Ready: func() {
			// A service manager that started it goes on from here (sd_notify(3)).
			if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
				log.Error("tell the service manager", "error", err)
			}
		},
	})
	if err != nil {
		return err
	}
	listener, err := unixsock.Listen("weir agent", settings.Socket, settings.SocketGroup)
	if err != nil {
		a.Close()
		return err
	}
	api := server.New(a, log)
	tokens := access.NewTokens(settings.TokensPath, log)
	role := access.Admin
	if settings.SocketGroupReads {
		role = access.Read
	}
	socket := api.Socket(role)
	go func() {
		if err := socket.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve the agent's socket", "error", err)
		}
	}()
	if settings.Dashboard != "" {
		page := openDashboard(settings.Dashboard, api, tokens, log)
		defer page.Close()
	}
	if settings.Listen.Address != "" {
		if remote := openRemote(api, settings.Listen, tokens, log); remote != nil {
			defer remote.Close()
		}
	}
	running, stopped := context.WithCancel(ctx)
	go limitMemory(running, a.Latest)
	go reloadOn(running, hangups, a.Reload, log)
	err = a.Run(ctx)
	stopped()
	if err == nil && ctx.Err() != nil {
		log.Info("told to stop; what is in the kernel stays in force, `weir down` removes it")
	}
	// A request that ended Run (down) still gets its answer.
	shutdown, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	closeErr := socket.Shutdown(shutdown)
	if errors.Is(closeErr, context.DeadlineExceeded) { // somebody who asked for events does not read them
		closeErr = socket.Close()
	}
	api.Outlast()
	return errors.Join(err, closeErr)
}
