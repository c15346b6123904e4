package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	moby "github.com/moby/moby/client"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/runtime/docker"
	"github.com/weir-project/weir/internal/edge/runtime/kubernetes"
	"github.com/weir-project/weir/internal/edge/runtime/swarm"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/edge/store"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/front/web"
)

// stateDir is the folder of measurements, proxies' files and the repository.
const (
	stateDir         = "/var/lib/weir/edge"
	storeFile        = "edge.db"
	repositoryFolder = "repository"
	numberFile       = "lease-number"
)

// runOptions are the flags of run.
type runOptions struct {
	config string
	// rules are the algorithms from the configuration file: CEL expressions by name.
	rules map[string]string

	docker, network, agent, stateDir string
	kubernetes                       string // kubeconfig; empty: an engine
	record                           string
	dashboard                        string
	repository                       repositoryOptions
	agents                           agentOptions
	controllers                      []string // URLs for sdn
	sdn                              sdnOptions
	dryRun, verbose                  bool
}

func newRunCommand(g *global) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Manage the services of this host, of a swarm or of Kubernetes",
		Long: `Manage services of this host's Docker engine or, if that manages a swarm, of the
swarm's nodes, until told to stop: those deployed with 'weir-edge deploy' and, on a swarm,
your own services with the label weir-edge.manage=true. What runs then goes on, and the
next weir-edge finds it: what should run lives in the engine.

With --kubernetes it manages the services of a namespace of a Kubernetes cluster instead.

The Weir agent of this host, if there is one, tells what the host and its uplink have
left; without one no minimum can be promised. Except for Kubernetes HAProxy has to be
installed (apt-get install haproxy); its own service is not needed.`,
		Example: `  weir-edge run
  weir-edge run --dry-run
  weir-edge run --kubernetes ~/.kube/config`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.readConfig(cmd.Flags().Changed); err != nil {
				return err
			}
			if err := o.repository.checkLoose(cmd.Flags().Changed); err != nil {
				return err
			}
			return o.run(cmd, g.socket)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", config.EdgePath, "config file, which flags override; the default one may be missing")
	flags.StringVar(&o.docker, "docker", defaultDocker, "socket of the Docker engine")
	o.addKubernetes(cmd)
	flags.StringVar(&o.network, "network", "bridge", "Docker network of instances")
	flags.StringVar(&o.agent, "agent", client.DefaultSocket, "socket of this host's Weir agent")
	flags.StringVar(&o.agents.url, "agents", "", "URL of the Weir agents of the nodes of a swarm or of Kubernetes, with {address} for the node's: https://{address}:7481, or unix:///run/weir/{address}.sock for nodes that are namespaces of this machine")
	flags.StringVar(&o.agents.ca, "agents-ca", "", "file with the authority that the agents' certificates are from")
	flags.StringVar(&o.agents.cert, "agents-cert", "", "file with weir-edge's certificate for the agents")
	flags.StringVar(&o.agents.key, "agents-key", "", "file with its key")
	flags.StringVar(&o.agents.tokenFile, "agents-token-file", "", "file with a token of the agents, instead of a certificate")
	flags.StringSliceVar(&o.controllers, "sdn", nil, "controller of the switches between nodes and users (weir sdn run), which promises minimums on links: https://HOST:PORT, or unix:///run/weir/sdn.sock; once for each of several that can take over")
	flags.StringVar(&o.sdn.users, "sdn-users", "", "address of the router or host that users are behind, as switches see it")
	flags.StringVar(&o.sdn.ca, "sdn-ca", "", "file with the authority that the controller's certificate is from")
	flags.StringVar(&o.sdn.cert, "sdn-cert", "", "file with weir-edge's certificate for the controller")
	flags.StringVar(&o.sdn.key, "sdn-key", "", "file with its key")
	flags.StringVar(&o.sdn.tokenFile, "sdn-token-file", "", "file with a token of the controller, instead of a certificate")
	flags.StringVar(&o.stateDir, "state-dir", stateDir, "folder for measurements and the proxies' files")
	o.repository.addFlags(cmd)
	flags.StringVar(&o.dashboard, "dashboard", "", "loopback address of a page that shows nodes, instances and decisions, e.g. 127.0.0.1:7483")
	flags.BoolVar(&o.dryRun, "dry-run", false, "decide and say so, and change nothing")
	flags.StringVar(&o.record, "record", "", "new file for what rounds go by and decide, for weir-edge replay (some MB an hour)")
	flags.BoolVar(&o.verbose, "verbose", false, "log more")
	return cmd
}

// readConfig sets options from the configuration file, except those given as flags.
func (o *runOptions) readConfig(changed func(flag string) bool) error {
	o.sdn.url = strings.Join(o.controllers, ",")
	file, err := config.LoadEdge(o.config)
	if errors.Is(err, fs.ErrNotExist) && !changed("config") {
		return nil
	} else if err != nil {
		return cmdline.Usagef("%w", err)
	}
	for _, given := range []struct {
		flag  string
		to    *string
		value string
	}{
		{"docker", &o.docker, file.Docker},
		{"kubernetes", &o.kubernetes, file.Kubernetes},
		{"network", &o.network, file.Network},
		{"agent", &o.agent, file.Agent},
		{"state-dir", &o.stateDir, file.StateDir},
		{"dashboard", &o.dashboard, file.Dashboard},
		{"agents", &o.agents.url, file.Agents.URL},
		{"agents-ca", &o.agents.ca, file.Agents.CAPath},
		{"agents-cert", &o.agents.cert, file.Agents.CertificatePath},
		{"agents-key", &o.agents.key, file.Agents.KeyPath},
		{"agents-token-file", &o.agents.tokenFile, file.Agents.TokenPath},
		{"sdn", &o.sdn.url, file.SDN.URL},
		{"sdn-users", &o.sdn.users, file.SDN.Users},
		{"sdn-ca", &o.sdn.ca, file.SDN.CAPath},
		{"sdn-cert", &o.sdn.cert, file.SDN.CertificatePath},
		{"sdn-key", &o.sdn.key, file.SDN.KeyPath},
		{"sdn-token-file", &o.sdn.tokenFile, file.SDN.TokenPath},
		{"repository", &o.repository.address, file.Repository.Address},
		{"repository-cert", &o.repository.cert, file.Repository.CertificatePath},
		{"repository-key", &o.repository.key, file.Repository.KeyPath},
	} {
		if given.value != "" && !changed(given.flag) {
			*given.to = given.value
		}
	}
	if file.Repository.Labels != nil && !changed("repository-label") {
		o.repository.labels = file.Repository.Labels
	}
	o.rules = file.Rules
	return nil
}

// check returns an error for wrong options, before anything is created.
func (o *runOptions) check() error {
	if o.dashboard != "" {
		if _, err := config.ParseEdgeDashboard(o.dashboard); err != nil {
			return cmdline.Usagef("--dashboard: %q %w", o.dashboard, err)
		}
	}
	if err := o.agents.check(); err != nil {
		return err
	}
	if err := o.sdn.check(); err != nil {
		return err
	}
	switch {
	case o.kubernetes == "":
	case o.repository.at.IsValid():
		return cmdline.Usagef("--repository gives images to the engines of a swarm: leave it or --kubernetes out")
	case o.sdn.url != "":
		return cmdline.Usagef("--sdn promises minimums of services on Docker and Swarm: leave it or --kubernetes out")
	}
	return o.repository.check()
}

func (o *runOptions) addKubernetes(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.kubernetes, "kubernetes", "", "kubeconfig of a Kubernetes cluster to manage instead of Docker, in the namespace of its context; "+config.PodKubeconfig+" in a pod of the cluster, for that pod's namespace")
}

func (o *runOptions) run(cmd *cobra.Command, socket string) error {
	if err := o.check(); err != nil {
		return err
	}
	decisions := engine.Policy{Rules: o.rules}
	decider, err := engine.New(decisions)
	if err != nil {
		return cmdline.Usagef("%s: %w", o.config, err)
	}
	ctx := cmd.Context()
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	measurements, err := store.Open(filepath.Join(o.stateDir, storeFile), log)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run as root (sudo), or give another --state-dir", err)
	} else if err != nil {
		return err
	}
	defer measurements.Close()
	at, err := o.open(ctx, o.dryRun)
	if err != nil {
		return err
	}
	defer at.Close()
	if kube, is := at.Runtime.(*kubernetes.Runtime); is && !o.dryRun {
		identity, err := leaseIdentity(o.stateDir)
		if err != nil {
			return err
		}
		defer kube.Lead(ctx, identity, log)()
	}
	links, err := o.sdn.links()
	if err != nil {
		return err
	}
	services, err := repo.Open(filepath.Join(o.stateDir, repositoryFolder))
	if err != nil { // what is deployed needs no repository here
		err = fmt.Errorf("%w: mend it, or move %s away to begin anew", err, filepath.Join(o.stateDir, repositoryFolder))
		log.Error("nothing can be pushed or deployed from the repository; services are not affected", "error", err)
		services = repo.Unusable(err)
	}
	options := run.Options{
		Runtime: at.Runtime, Nodes: at.nodes, Engine: decider, Store: measurements, Log: log, Control: at.Control(), DryRun: o.dryRun,
		Schedules: at.namespace != "", CheckProxy: func() error { return runtime.CheckProxy("/") }, Repository: o.repository.at.Addr(), Links: links,
	}
	if o.record != "" {
		recorder, file, err := openTrace(o.record, decisions)
		if err != nil {
			return err
		}
		defer file.Close()
		options.Trace = recorder
	}
	manager, err := run.New(options)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	api := server.Options{Manager: manager, Repository: services, Version: cmdline.Version, Log: log, Stop: cancel}
	api.ReadOnly, api.EngineSocket, api.Cluster, api.StateDir = o.dryRun, absolute(o.docker), at.namespace, absolute(o.stateDir)
	switch {
	case at.namespace != "":
		api.EngineSocket = ""
	case o.dryRun:
		api.Address = o.repository.address
	default:
		api.Address = o.repository.start(ctx, o.docker, filepath.Join(o.stateDir, repositoryFolder), log)
	}
	listener, err := httpapi.Listen("weir-edge", socket, "")
	if err != nil {
		return err
	}
	defer listener.Close()
	handler := server.Handler(api)
	page, err := o.openPage(handler, at.agents.agentOf(manager.Snapshot), web.PagesBeside(socket), log)
	if err != nil {
		return err
	}
	defer page.Close()
	log.Info("weir-edge manages services", "engine", o.where(at), "kind", at.Kind(), "socket", socket, "dry_run", o.dryRun)
	return serve(ctx, cancel, httpapi.NewServer(handler, log), listener, manager)
}

// where returns the API server and namespace, or the engine's socket.
func (o *runOptions) where(at *site) string { return cmp.Or(at.namespace, o.docker) }

// absolute returns a path for those who work in another folder.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// leaseIdentity returns what tells this weir-edge from others of its namespace: its host, its state folder, and a random
// number kept there, as two hosts may have the same name. After a restart it is the same.
func leaseIdentity(folder string) (string, error) {
	path := filepath.Join(folder, numberFile)
	number, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(number) == 0 { // it is empty after a crash of the host
		number = fmt.Appendf(nil, "%016x", rand.Uint64())
		err = os.WriteFile(path, number, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("keep the number of this weir-edge: %w", err)
	}
	host, _ := os.Hostname() // of a pod its name; empty at worst
	return fmt.Sprintf("%s %s %s", host, absolute(folder), number), nil
}

// serve runs the API and the manager until ctx ends or one of them fails.
func serve(ctx context.Context, cancel func(), api *http.Server, listener net.Listener, manager *run.Manager) (err error) {
	served, managed := make(chan error, 1), make(chan error, 1)
	go func() { served <- api.Serve(listener) }()
	go func() { managed <- manager.Run(ctx) }()
	select {
	case err = <-managed:
	case err = <-served:
		cancel()
		err = errors.Join(err, <-managed)
	}
	end, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	if api.Shutdown(end) != nil {
		_ = api.Close() // readers of events
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// openPage serves the web page if a port is set. It returns an error if the port is taken.
func (o *runOptions) openPage(api http.Handler, agentOf func(string) web.Getter, pages web.Pages, log *slog.Logger) (*http.Server, error) {
	page := web.NewEdge(api, agentOf, pages, log)
	if o.dashboard == "" || o.dashboard == "none" {
		return page, nil
	}
	listener, err := web.Listen(o.dashboard)
	if err != nil {
		return nil, err
	}
	if listener, err = pages.Announce(web.KindEdge, listener); err != nil {
		log.Warn("other pages have no link to the dashboard", "reason", err)
	}
	log.Info("dashboard", "address", "http://"+listener.Addr().String())
	go func() { _ = page.Serve(listener) }() // until run closes it
	return page, nil
}

// engineError adds what to do if no container engine answers at socket.
func engineError(socket string, err error) error {
	switch {
	case !moby.IsErrConnectionFailed(err):
		return err
	case unix.Access(socket, unix.R_OK|unix.W_OK) == unix.EACCES:
		return fmt.Errorf("not allowed to use %s: run as root (sudo)", socket)
	}
	return fmt.Errorf("no Docker engine answers at %s: start it (systemctl start docker), or say where its socket is with --docker", socket)
}

// site is where services run.
type site struct {
	runtime.Runtime
	nodes  run.Nodes
	agents dialer
	// namespace is the API server and the namespace of Kubernetes; empty of an engine.
	namespace string
}

// openKubernetes returns Kubernetes; nil without a kubeconfig.
func (o *runOptions) openKubernetes() (*kubernetes.Runtime, error) {
	if o.kubernetes == "" {
		return nil, nil
	}
	return kubernetes.New(o.kubernetes)
}

// open returns Kubernetes if there is a kubeconfig, the swarm if the engine is a manager of one, else the engine, and the
// source of what nodes measure. With lookOnly it changes nothing in the swarm.
func (o *runOptions) open(ctx context.Context, lookOnly bool) (*site, error) {
	kube, err := o.openKubernetes()
	if err != nil {
		return nil, err
	}
	manages := false
	if kube == nil {
		if manages, err = swarm.IsManager(ctx, o.docker); err != nil {
			return nil, engineError(o.docker, err)
		}
	}
	if manages || kube != nil {
		at := &site{}
		if at.nodes, at.agents, err = o.agents.nodes(ctx); err != nil {
			return nil, err
		}
		if manages {
			at.Runtime, err = swarm.New(ctx, swarm.Options{Socket: o.docker, LookOnly: lookOnly})
		} else {
			at.Runtime, at.namespace = kube, kube.At()
		}
		return at, err
	}
	if o.agents.url != "" {
		return nil, cmdline.Usagef("--agents is for the nodes of a swarm or of Kubernetes, and the engine at %s does not manage one: run weir-edge on a manager, or leave it out to manage this host alone", o.docker)
	}
	rt, err := docker.New(docker.Options{Socket: o.docker, Dir: filepath.Join(o.stateDir, "proxies"), Network: o.network})
	if err != nil {
		return nil, err
	}
	agent := func(netip.Addr) (*client.Client, error) { return client.Unix(o.agent), nil }
	return &site{Runtime: rt, nodes: run.NewLocal(ctx, o.agent), agents: once(agent)}, nil
}
