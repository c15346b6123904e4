// Package docker learns of containers from a Docker engine, or from Podman's
// socket that speaks the same language.
//
// The engine's events say that something happened to a container, but not
// what is true now, and come late, twice, or for a container that is gone. So
// an event only marks a container as changed, and what is reported is what an
// inspection after that finds; a start and an end are looked at at once, a
// burst of other changes once. An end is believed without an inspection,
// because Docker answers one only after it has taken the container's network
// down, which takes some 100 ms. A start may be reported before it happens, so
// that a container's first packets are under control (prestart.go).
//
// The stream of events is opened first, then the running containers are
// listed and inspected: what changes in between is marked meanwhile and looked
// at afterwards. When anything breaks, all of this starts over.
//
// Limits: the engine must run on this machine, in a process ID namespace that
// is ours or below.
package docker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/discovery/cgroup"
)

const (
	// inspectors is how many containers are inspected at the same time.
	inspectors = 8
	// debounce is how long changes of a container other than its start and its
	// end are collected.
	debounce = 20 * time.Millisecond
	// Between attempts to reach the engine, doubled each time.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
	// Between attempts to inspect a container that the engine has and gives a
	// wrong answer for, doubled each time.
	minRetry = 100 * time.Millisecond
	maxRetry = 30 * time.Second
	// maxImages bounds the images whose labels are kept.
	maxImages = 256
	// maxSocketPath is the longest path of a unix socket (unix(7)).
	maxSocketPath = 107
)

// Options say which engine to watch.
type Options struct {
	// Name is the source's name and its containers' Runtime: "docker" or
	// "podman".
	Name string
	// Socket is the path of the engine's socket; empty means the one where
	// Docker or Podman, as Name says, has it by default.
	Socket string
	// Logger is for what is no event: slow, odd or failed answers. Nil means
	// no log.
	Logger *slog.Logger
}

// Source watches one engine. It implements discovery.Source.
type Source struct {
	name   string
	socket string
	log    *slog.Logger
	// procDir is /proc, except in tests.
	procDir string
}

// New makes a source. It does not touch the engine; Run does.
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
		name:    opts.Name,
		socket:  opts.Socket,
		log:     opts.Logger.With("source", opts.Name),
		procDir: "/proc",
	}
}

// Name is the source's name.
func (s *Source) Name() string { return s.name }

// Run implements discovery.Source. It returns an error only for a socket that
// cannot exist.
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
			if !s.send(ctx, events, discovery.Event{Disconnected: fmt.Errorf("connect to %s at %s: %w", s.name, s.socket, err)}) {
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

// send reports false when ctx ended first.
func (s *Source) send(ctx context.Context, events chan<- discovery.Event, e discovery.Event) bool {
	e.Source = s.name
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch is one connection to the engine: it returns when that is lost, and
// why. It calls connected once the snapshot is sent.
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
	// The mount table of a host with many containers is long: it is read once.
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
		fail:           cancel,
		background:     &background,
		slots:          make(chan struct{}, inspectors),
		pending:        make(map[string]*change),
		known:          make(map[string]*discovery.Container),
		networkDrivers: make(map[string]string),
		images:         make(map[string]map[string]string),
	}
	stream, err := api.events(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	background.Go(func() {
		cancel(readMessages(stream, func(m message) { w.handle(ctx, m) }))
	})

	if err := w.snapshot(ctx); err != nil {
		// If the stream broke as well, its reason comes first.
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
