// Package controller keeps the connections to OpenFlow switches: it accepts
// them, agrees on version 1.3, watches that they answer, and carries messages
// between them and package core, which decides.
//
// Each connection has a goroutine that reads, one that writes and a queue
// between, so that a slow switch delays no other; one whose queue is full is
// given up. Decisions are made one at a time under one lock; reading, the
// classifier and writing are outside of it.
package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Options configure a controller.
type Options struct {
	Core       core.Config
	Classifier *core.Classifier
	// HandshakeTimeout is the longest time from the accepted connection to the end of the
	// handshake.
	HandshakeTimeout time.Duration
	// EchoInterval is the silence after which a switch gets an echo request, EchoTimeout
	// the silence after which its connection is closed.
	EchoInterval, EchoTimeout time.Duration
	// MaxSwitches limits the switches that are connected at once.
	MaxSwitches int
	// PromisesChanged, unless nil, is told when queues of promises have to be made or taken away. It
	// must not wait.
	PromisesChanged func()
	Log             *slog.Logger
}

// Defaults of Options.
const (
	DefaultHandshakeTimeout = 5 * time.Second
	DefaultEchoInterval     = 5 * time.Second
	DefaultEchoTimeout      = 15 * time.Second
	DefaultMaxSwitches      = 2048
)

// maxHandshakes limits the connections before the end of their handshake. With one too many,
// the oldest from where most of them are is closed, so that no other host keeps switches out.
const maxHandshakes = 256

// Controller is one OpenFlow controller.
type Controller struct {
	options Options

	mu    sync.Mutex // guards core, conns and the order of their messages
	core  *core.Core
	conns map[topology.DPID]*conn
	wake  []*conn // connections for which the current decision queued messages

	state answer[v1.SDN]
	flows answer[[]v1.SDNFlow]
	links answer[v1.SDNLinks]
	// promised is how often promises have changed.
	promised atomic.Uint64

	places   *access.Places
	counters counters
}

// counters count events of connections and messages since the start.
type counters struct {
	accepted, refused, duplicates, timeouts, badMessages, limited, overflows atomic.Uint64
}

// New returns a controller; Run serves its listeners.
func New(o Options) *Controller {
	places := access.NewPlaces(access.Budget{Strangers: maxHandshakes, Roles: map[access.Role]int{access.Admin: o.MaxSwitches}, Caller: 2}) // a switch that connects again is there twice
	return &Controller{options: o, core: core.New(o.Core), conns: map[topology.DPID]*conn{}, places: places}
}

// Listen opens a listener at tcp:HOST:PORT, tls:HOST:PORT or unix:PATH. A tls address needs
// the configuration secure.
func Listen(address string, secure *tls.Config) (net.Listener, error) {
	if err := CheckListen(address, secure != nil); err != nil {
		return nil, fmt.Errorf("listen on %w", err)
	}
	kind, rest, _ := strings.Cut(address, ":")
	if kind == "unix" {
		if err := httpapi.Free(rest); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		l, err := net.Listen("unix", rest)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		return l, nil
	}
	l, err := net.Listen("tcp", rest)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: %w: stop the program that listens there (ss -ltnp names it), or give another address", address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if kind == "tls" {
		return tls.NewListener(l, secure), nil
	}
	return l, nil
}

// CheckListen returns an error if the address is invalid, or is a tls address while secure
// is false (no certificates).
func CheckListen(address string, secure bool) error {
	kind, rest, _ := strings.Cut(address, ":")
	_, port, err := net.SplitHostPort(rest)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case kind == "unix" && rest != "", kind == "tcp" && err == nil, kind == "tls" && err == nil && secure:
		return nil
	case kind == "tls" && err == nil:
		return fmt.Errorf("%s: TLS needs a certificate, its key and the switches' CA", address)
	}
	return fmt.Errorf("%q: want tcp:ADDR:PORT, tls:ADDR:PORT or unix:PATH, such as tcp:127.0.0.1:6653", address)
}

// Run serves switches until ctx ends, then closes the listeners. Flow entries stay on the
// switches.
func (c *Controller) Run(ctx context.Context, listeners ...net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		wg.Go(func() {
			if err := c.accept(ctx, &wg, l); err != nil {
				failed <- err
			}
		})
	}
	stop := context.AfterFunc(ctx, func() {
		for _, l := range listeners {
			l.Close()
		}
	})
	defer stop()
	var err error
	interval := max(c.options.Core.LLDPInterval/core.LLDPParts, 10*time.Millisecond)
	ticker, part := time.NewTicker(interval), time.NewTimer(interval)
	defer ticker.Stop()
	defer part.Stop()
	parts := core.Parts{Core: c.core}
	for running := true; running; {
		more := false
		select {
		case now := <-ticker.C:
			c.decide(func() []core.Command {
				defer c.tellPromises()
				commands := c.core.Tick(now)
				more = parts.HasMore()
				return commands
			})
		case now := <-part.C:
			c.decide(func() []core.Command {
				commands := parts.SendNext(now)
				more = parts.HasMore()
				return commands
			})
		case err = <-failed:
			running = false
		case <-ctx.Done():
			running = false
		}
		if more {
			part.Reset(interval / (2 * core.WatchParts))
		}
	}
	cancel()
	wg.Wait()
	return err
}

func (c *Controller) accept(ctx context.Context, wg *sync.WaitGroup, l net.Listener) error {
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			var temporary net.Error
			if errors.As(err, &temporary) && temporary.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
				continue
			}
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) { // out of file descriptors: wait until connections close
				time.Sleep(100 * time.Millisecond)
				continue
			}
			return fmt.Errorf("accept connections of switches: %w", err)
		}
		c.counters.accepted.Add(1)
		c.places.Add(nc, access.Network(nc.RemoteAddr().String()))
		wg.Go(func() {
			defer c.places.Remove(nc)
			c.serve(ctx, nc)
		})
	}
}

// decide passes an event to the core under the lock and queues the resulting commands in
// order.
func (c *Controller) decide(event func() []core.Command) {
	c.mu.Lock()
	defer c.decided()
	c.deliver(event())
}

// decided ends a decision: it wakes the writers, so each switch gets all its messages at
// once.
func (c *Controller) decided() { c.decidedBy(nil) }

// decidedBy is decided for a decision whose reader goroutine also writes to its own switch.
func (c *Controller) decidedBy(reader *conn) {
	for i, conn := range c.wake {
		if conn != reader {
			conn.out.ready.Signal()
		}
		c.wake[i] = nil
	}
	c.wake = c.wake[:0]
	c.mu.Unlock()
}

// decideEvents passes a batch of events of one switch to the core and writes the messages
// for that switch itself.
func (c *Controller) decideEvents(now time.Time, s *conn, batch []event) {
	defer s.out.writeNow()
	c.mu.Lock()
	defer c.decidedBy(s)
	d := s.dpid
	for i := range batch {
		if e := &batch[i]; e.removed != nil {
			c.deliver(c.core.FlowRemoved(now, d, &e.removed.FlowRemoved))
		} else {
			c.deliver(c.core.PacketIn(now, d, e.packetIn, &e.frame, e.verdict))
		}
	}
}

// deliver queues commands for their switches. The caller holds c.mu.
func (c *Controller) deliver(commands []core.Command) {
	for _, command := range commands {
		if conn := c.conns[command.Switch]; conn != nil && conn.out.enqueue(command.Message) {
			c.wake = append(c.wake, conn)
		}
	}
}

// register binds a connection to its datapath identifier. If two switches use the same
// identifier, the first one stays while it answers; the second gets an error.
func (c *Controller) register(s *conn, is core.Description) error {
	for {
		c.mu.Lock()
		old := c.conns[s.dpid]
		if old == nil {
			break
		}
		c.mu.Unlock()
		if old.isAlive(min(c.options.EchoTimeout, 2*time.Second)) {
			c.counters.duplicates.Add(1)
			return fmt.Errorf("datapath identifier %v is that of the switch at %s already: give each switch its own (ovs-vsctl set bridge NAME other-config:datapath-id=...)", s.dpid, old.remote)
		}
		old.out.close(errors.New("it has connected again"))
		<-old.gone
	}
	defer c.decided()
	c.conns[s.dpid] = s
	c.deliver(c.core.Connected(time.Now(), is))
	for name, t := range c.core.Trusted(s.dpid) {
		if t.Refused != "" {
			c.options.Log.Warn("port not trusted", "dpid", s.dpid, "port", name, "reason", t.Refused)
		} else {
			c.options.Log.Info("port trusted: packets are queued by DSCP", "dpid", s.dpid, "port", name, "ef_bound_bps", t.EFBoundBPS)
		}
	}
	return nil
}

func (c *Controller) unregister(s *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[s.dpid] == s {
		delete(c.conns, s.dpid)
		c.core.Disconnected(time.Now(), s.dpid)
	}
	close(s.gone)
}

// takeRole passes a role reply to the core and logs a change between master and standby.
func (c *Controller) takeRole(now time.Time, d topology.DPID, m *openflow.RoleReply) {
	c.mu.Lock()
	defer c.decided()
	before := c.core.Leading()
	c.deliver(c.core.RoleReply(now, d, m))
	switch after := c.core.Leading(); {
	case after && !before:
		c.options.Log.Info("master: no other controller renews the lease", "generation", m.GenerationID)
	case before && !after:
		c.options.Log.Warn("standby: another controller has taken over", "dpid", d, "generation", m.GenerationID)
	}
}

// Snapshot returns a copy of the core's state, with the flows if withFlows is set.
func (c *Controller) Snapshot(withFlows bool) core.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Snapshot(withFlows)
}

// Controls reports whether a switch is connected and accepts changes from this controller.
func (c *Controller) Controls(d topology.DPID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns[d] != nil && c.core.Controls(d)
}
