package controller

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Bounds on what one switch can make a controller keep.
const (
	maxQueued      = 1 << 16  // messages to one that does not read
	maxBurst       = 1 << 18  // to one that does
	maxQueuedBytes = 16 << 20 // of what messages carry
	maxBadMessages = 100
)

// started has a monotonic reading, which all times of connections count from: the
// wall clock may be set meanwhile.
var started = time.Now()

// conn is a connection to one switch.
type conn struct {
	c      *Controller
	net    net.Conn
	remote string
	dpid   topology.DPID
	heard  atomic.Int64 // when, in nanoseconds since the package's start
	xid    atomic.Uint32
	bad    int
	bucket bucket
	lldp   map[uint32]*bucket // by port
	spare  spare

	raw     syscall.RawConn       // of net, if that can be written to without waiting: not TLS
	now     outgoing              // of writeNow
	wrote   int                   // bytes of it
	attempt func(fd uintptr) bool // to write it

	mu          sync.Mutex
	ready       *sync.Cond
	queue       []openflow.Message
	writing     bool      // somebody is, write or writeNow
	rest        []byte    // what writeNow has left to write, before the queue
	restPayload int       // of messages that are in there
	bytes       int       // of what is queued or being written
	busy        time.Time // since when the last bytes are being written; zero: none are
	done        error     // why it is closed
	gone        chan struct{}
}

// serve is the life of one connection.
func (c *Controller) serve(ctx context.Context, nc net.Conn) {
	s := &conn{c: c, net: nc, remote: nc.RemoteAddr().String(), gone: make(chan struct{})}
	if s.remote == "" || s.remote == "@" {
		s.remote = "the local socket"
	}
	s.ready = sync.NewCond(&s.mu)
	s.allowNow()
	s.lldp = map[uint32]*bucket{}
	s.bucket = bucket{perSecond: 2 * float64(c.options.Core.PacketInsPerSecond)}
	stop := context.AfterFunc(ctx, func() { s.close(context.Cause(ctx)) })
	defer stop()
	defer s.close(errors.New("done"))

	_ = nc.SetDeadline(time.Now().Add(c.options.HandshakeTimeout))
	in := bufio.NewReaderSize(nc, 1<<16)
	r := openflow.NewReader(in)
	features, ports, err := s.handshake(r)
	if err == nil {
		_ = nc.SetDeadline(time.Time{})
		s.dpid = topology.DPID(features.DatapathID)
		s.hear(time.Now())
		err = c.register(s, features, ports)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.counters.refused.Add(1)
			c.options.Log.Warn("connection refused", "from", s.remote, "reason", err)
		}
		return
	}
	c.options.Log.Info("switch connected", "dpid", s.dpid, "from", s.remote, "ports", len(ports))
	go s.write()
	s.watchIn(c.options.EchoInterval)
	err = s.read(r, in)
	s.close(err)
	c.unregister(s)
	if ctx.Err() == nil {
		c.options.Log.Warn("switch lost: its flows stay", "dpid", s.dpid, "reason", s.reason())
	}
}

// sendNow sends a message before the writer has begun.
func (s *conn) sendNow(m openflow.Message) error {
	openflow.SetXID(m, s.xid.Add(1))
	b, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	_, err = s.net.Write(b)
	return err
}

// handshake agrees on a version and learns which switch this is. Section 6.3.1.
func (s *conn) handshake(r *openflow.Reader) (*openflow.FeaturesReply, []openflow.PortDesc, error) {
	if err := s.sendNow(openflow.NewHello()); err != nil {
		return nil, nil, err
	}
	m, err := s.next(r)
	if err != nil {
		return nil, nil, fmt.Errorf("wait for hello: %w", err)
	}
	hello, ok := m.(*openflow.Hello)
	if !ok {
		return nil, nil, fmt.Errorf("it begins with %v, not with hello", m.MessageType())
	}
	if !hello.Speaks(openflow.Version) {
		_ = s.sendNow(&openflow.ErrorMessage{ErrorType: openflow.OFPET_HELLO_FAILED, Code: uint16(openflow.OFPHFC_INCOMPATIBLE), Data: []byte("only OpenFlow 1.3 is spoken here")})
		return nil, nil, errors.New("it does not speak OpenFlow 1.3 (ovs-vsctl set bridge NAME protocols=OpenFlow13)")
	}
	for _, request := range []openflow.Message{&openflow.FeaturesRequest{}, &openflow.MultipartRequest{Body: &openflow.PortDescRequest{}}} {
		if err := s.sendNow(request); err != nil {
			return nil, nil, err
		}
	}
	var features *openflow.FeaturesReply
	var ports []openflow.PortDesc
	for whole := false; features == nil || !whole; {
		m, err := s.next(r)
		if err != nil {
			return nil, nil, fmt.Errorf("wait for features and ports: %w", err)
		}
		switch m := m.(type) {
		case *openflow.FeaturesReply:
			if m.AuxiliaryID != 0 {
				return nil, nil, fmt.Errorf("auxiliary connection %d of switch %016x: none is needed", m.AuxiliaryID, m.DatapathID)
			}
			features = m
		case *openflow.MultipartReply:
			if list, ok := m.Body.(*openflow.PortDescReply); ok {
				ports = append(ports, *list...)
				whole = m.Flags&openflow.OFPMPF_REPLY_MORE == 0
			}
			if len(ports) > core.MaxPorts {
				return nil, nil, fmt.Errorf("more than %d ports", core.MaxPorts)
			}
		case *openflow.EchoRequest:
			_ = s.sendNow(&openflow.EchoReply{Header: m.Header, Data: m.Data})
		case *openflow.ErrorMessage:
			return nil, nil, fmt.Errorf("it refuses to say what it is: %s", openflow.Format(m, false))
		}
	}
	return features, ports, nil
}

// hear notes when the switch said something.
func (s *conn) hear(now time.Time) { s.heard.Store(int64(now.Sub(started))) }

func (s *conn) silentFor(now time.Time) time.Duration {
	return now.Sub(started) - time.Duration(s.heard.Load())
}

func (s *conn) watchIn(d time.Duration) {
	due := time.Now().Add(d)
	time.AfterFunc(d, func() { s.watch(due) })
}

// watch gives up a switch that does not answer. What this controller slept through
// is no silence of the switch's.
func (s *conn) watch(due time.Time) {
	o := &s.c.options
	now := time.Now()
	if now.Sub(due) > o.EchoInterval {
		s.hear(now)
	}
	silent := s.silentFor(now)
	switch {
	case s.reason() != nil:
		return
	case silent > o.EchoTimeout:
		s.c.counters.timeouts.Add(1)
		s.close(fmt.Errorf("silent for %v", o.EchoTimeout))
		return
	case silent >= o.EchoInterval:
		s.send(&openflow.EchoRequest{})
	}
	s.watchIn(o.EchoInterval / 2)
}

// alive asks a switch whether it is there and waits for an answer.
func (s *conn) alive(wait time.Duration) bool {
	asked := time.Now()
	s.send(&openflow.EchoRequest{})
	for time.Since(asked) < wait && s.reason() == nil {
		if s.heard.Load() > int64(asked.Sub(started)) {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

func (s *conn) close(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(why)
}

func (s *conn) closeLocked(why error) {
	if s.done == nil {
		s.done = why
		s.queue = nil
		s.ready.Broadcast()
		go s.net.Close() // TLS says goodbye first, for which one that does not read has it wait
	}
}

func (s *conn) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}
