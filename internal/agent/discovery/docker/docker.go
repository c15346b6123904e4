// Package docker discovers containers of a Docker engine, or of Podman, whose socket speaks the
// same protocol.
//
// An event of the engine says that something happened to a container. It may be late, repeated, or
// about a container that is gone, so an event only marks a container as changed, and a later
// inspection decides what to report. Starts and ends are handled at once; a burst of other changes
// is handled together. An end is reported without an inspection, because Docker answers one only
// after it has removed the container's network, some 100 ms later. A start may be reported before
// it happens, so that a container's first packets are controlled (prestart.go).
//
// The event stream is opened first; then the running containers are listed and inspected.
// Containers that change in between, and those without an answer, are marked and inspected
// afterwards. When the stream or a list fails all of this starts again; an inspection that fails is
// repeated, because it concerns one container only.
//
// Limits: the engine must run on this machine, in the agent's process ID namespace or one below.
package docker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/cgroup"
)

const (
	// inspectors is the number of concurrent inspections.
	inspectors = 8
	// debounce is how long changes of a container, except its start and its end, are collected.
	debounce = 20 * time.Millisecond
	// Back-off between attempts to reach the engine, doubled each time.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
	// Back-off between attempts to inspect a container for which the engine gives a bad answer or
	// none, doubled each time.
	minRetry = 100 * time.Millisecond
	maxRetry = 30 * time.Second
	// snapshotTimeout is how long the inspections for a snapshot may take together: a container
	// whose inspection hangs must not keep the others uncontrolled.
	snapshotTimeout = 10 * time.Second
	// maxImages bounds the cache of image labels.
	maxImages = 256
	// maxSocketPath is the longest path of a unix socket (unix(7)).
	maxSocketPath = 107
)

// Options select the engine to watch.
type Options struct {
	// Name is the source's name and its containers' Runtime: "docker" or
	// "podman".
	Name string
	// Socket is the path of the engine's socket; "" means the default path of the engine in Name.
	Socket string
	// Logger gets slow, odd or failed answers of the engine. Nil means no log.
	Logger *slog.Logger
}

// Source watches one engine. It implements discovery.Source.
type Source struct {
	name   string
	socket string
	log    *slog.Logger
	// procDir is /proc, snapshotTimeout and debounce the constants, except in tests.
	procDir                   string
	snapshotTimeout, debounce time.Duration
}

// New returns a source. Only Run connects to the engine.
func New(opts Options) *Source {
	if opts.Name == "" {
		opts.Name = "docker"
	}
	if opts.Socket == "" {
		opts.Socket = "/var/run/docker.sock"
		if opts.Name == "podman" {
			opts.Socket = "/run/podman/podman.sock"
		}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{
		name:            opts.Name,
		socket:          opts.Socket,
		log:             opts.Logger.With("source", opts.Name),
		procDir:         "/proc",
		snapshotTimeout: snapshotTimeout,
		debounce:        debounce,
	}
}

// Name is the source's name.
func (s *Source) Name() string { return s.name }

// Run implements discovery.Source. It returns an error only for an impossible socket path.
func (s *Source) Run(ctx context.Context, events chan<- discovery.Event) error {
	if len(s.socket) > maxSocketPath {
		return fmt.Errorf("the path of the engine's socket %s is longer than %d bytes", s.socket, maxSocketPath)
	}
	down := false
	backoff := minBackoff
	for {
		err := s.watch(ctx, events, func() { down, backoff = false, minBackoff })
		if ctx.Err() != nil {
			return nil
		}
		s.log.Debug("not connected", "socket", s.socket, "error", err, "retry_in", backoff)
		if !down {
			down = true
			if !discovery.Send(ctx, s, events, discovery.Event{Disconnected: fmt.Errorf("connect to %s at %s: %w", s.name, s.socket, err)}) {
				return nil
			}
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return nil
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// watch serves one connection to the engine until it is lost, and returns the reason. It calls
// connected once the snapshot is sent.
func (s *Source) watch(ctx context.Context, events chan<- discovery.Event, connected func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	transport := newTransport(s.socket)
	defer transport.CloseIdleConnections()
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)

	api, err := connect(ctx, transport)
	if err != nil {
		return err
	}
	// The mount table of a host with many containers is long: read it once.
	cgroups, err := cgroup.FindMount(s.procDir)
	if err != nil {
		s.log.Warn("containers on the host's network cannot be told apart", "error", err)
	}
	w := &watch{
		source:         s,
		api:            api,
		cgroups:        cgroups,
		cgroupPatterns: defaultCgroupPatterns(cgroups.Point),
		events:         events,
		background:     &background,
		slots:          make(chan struct{}, inspectors),
		pending:        make(map[string]*change),
		known:          make(map[string]*discovery.Container),
		networks:       make(map[string]networkInfo),
		images:         make(map[string]map[string]string),
	}
	stream, err := api.events(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	background.Go(func() {
		cancel(readMessages(stream, func(m message) error { return w.handle(ctx, m) }))
	})

	if err := w.snapshot(ctx); err != nil {
		// If the stream broke as well, its error is the better explanation.
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	connected()
	w.begin(ctx)
	<-ctx.Done()
	return context.Cause(ctx)
}
