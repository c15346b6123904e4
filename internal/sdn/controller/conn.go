package controller

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// maxBadMessages is how many unreadable messages one connection may send before it is
// closed.
const maxBadMessages = 100

// started is the zero point of conn.heard. Its monotonic clock reading survives changes of
// the wall clock.
var started = time.Now()

// conn is the connection to one switch.
type conn struct {
	c      *Controller
	remote string
	dpid   topology.DPID
	heard  atomic.Int64 // nanoseconds since started, of the last message received
	bad    int
	limits limits
	spare  spare
	out    outbox
	gone   chan struct{}
}

// serve handles one connection from the handshake until it closes.
func (c *Controller) serve(ctx context.Context, nc net.Conn) {
	s := &conn{c: c, remote: nc.RemoteAddr().String(), limits: newLimits(&c.options.Core), gone: make(chan struct{})}
	if s.remote == "" || s.remote == "@" {
		s.remote = "the local socket"
	}
	s.out.init(nc, c.options.Log, &c.counters.overflows)
	stop := context.AfterFunc(ctx, func() { s.out.close(context.Cause(ctx)) })
	defer stop()
	defer s.out.close(errors.New("done"))

	_ = nc.SetDeadline(time.Now().Add(c.options.HandshakeTimeout))
	in := bufio.NewReaderSize(nc, 1<<16)
	r := openflow.NewReader(in)
	is, err := s.handshake(r)
	if err == nil {
		s.dpid = topology.DPID(is.Features.DatapathID)
		if !c.places.AdmitConn(nc, access.Caller{Name: s.dpid.String(), Role: access.Admin}) {
			err = fmt.Errorf("too many switches: at most %d, and one connection of each", c.options.MaxSwitches)
		}
	}
	if err == nil {
		_ = nc.SetDeadline(time.Time{})
		s.hear(time.Now())
		err = c.register(s, is)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.counters.refused.Add(1)
			c.options.Log.Warn("connection refused", "from", s.remote, "reason", err)
		}
		return
	}
	c.options.Log.Info("switch connected", "dpid", s.dpid, "from", s.remote, "ports", len(is.Ports))
	go s.out.write()
	s.watchIn(c.options.EchoInterval)
	err = s.read(r, in)
	s.out.close(err)
	c.unregister(s)
	if ctx.Err() == nil {
		c.options.Log.Warn("switch lost: its flows stay", "dpid", s.dpid, "reason", s.out.reason())
	}
}

// handshake negotiates OpenFlow 1.3 and reads what the switch says of itself (OpenFlow 1.3.5,
// section 6.3.1): features and ports, and where ports are to be trusted meters and tables, which a
// switch may not tell.
func (s *conn) handshake(r *openflow.Reader) (is core.Description, err error) {
	if err := s.out.sendFirst(openflow.NewHello()); err != nil {
		return is, err
	}
	m, err := s.next(r)
	if err != nil {
		return is, fmt.Errorf("wait for hello: %w", err)
	}
	hello, ok := m.(*openflow.Hello)
	if !ok {
		return is, fmt.Errorf("it begins with %v, not with hello", m.MessageType())
	}
	if !hello.Speaks(openflow.Version) {
		_ = s.out.sendFirst(&openflow.ErrorMessage{ErrorType: openflow.OFPET_HELLO_FAILED, Code: uint16(openflow.OFPHFC_INCOMPATIBLE), Data: []byte("only OpenFlow 1.3 is spoken here")})
		return is, errors.New("it does not speak OpenFlow 1.3 (ovs-vsctl set bridge NAME protocols=OpenFlow13)")
	}
	requests := []openflow.Message{&openflow.FeaturesRequest{}, &openflow.MultipartRequest{Body: &openflow.PortDescRequest{}}}
	mayRefuse := s.c.options.Core.Trust != nil
	if mayRefuse {
		requests = append(requests, &openflow.MultipartRequest{Body: &openflow.MeterFeaturesRequest{}},
			&openflow.MultipartRequest{Body: &openflow.TableFeaturesRequest{}}, &openflow.BarrierRequest{}) // the last is answered last
	}
	for _, request := range requests {
		if err := s.out.sendFirst(request); err != nil {
			return is, err
		}
	}
	for ports, last := false, !mayRefuse; is.Features == nil || !ports || !last; {
		m, err := s.next(r)
		if err != nil {
			return is, fmt.Errorf("wait for features and ports: %w", err)
		}
		switch m := m.(type) {
		case *openflow.FeaturesReply:
			if m.AuxiliaryID != 0 {
				return is, fmt.Errorf("auxiliary connection %d of switch %016x: none is needed", m.AuxiliaryID, m.DatapathID)
			}
			is.Features = m
		case *openflow.MultipartReply:
			if err := describe(&is, m.Body); err != nil {
				return is, err
			}
			_, list := m.Body.(*openflow.PortDescReply)
			ports = ports || list && m.Flags&openflow.OFPMPF_REPLY_MORE == 0
		case *openflow.EchoRequest:
			_ = s.out.sendFirst(&openflow.EchoReply{Header: m.Header, Data: m.Data})
		case *openflow.ErrorMessage:
			if !mayRefuse || is.Features == nil {
				return is, fmt.Errorf("it refuses to say what it is: %s", openflow.Format(m, false))
			}
		case *openflow.BarrierReply:
			last = true
		}
	}
	return is, nil
}

// describe adds one part of what a switch says of itself.
func describe(is *core.Description, body openflow.ReplyBody) error {
	switch list := body.(type) {
	case *openflow.PortDescReply:
		is.Ports = append(is.Ports, *list...)
	case *openflow.MeterFeatures:
		is.Meters = list
	case *openflow.TableFeaturesReply:
		if len(is.Tables) == 0 {
			is.Tables = *list
		}
	}
	if len(is.Ports) > core.MaxPorts {
		return fmt.Errorf("more than %d ports", core.MaxPorts)
	}
	return nil
}

// hear records the time of the last received message.
func (s *conn) hear(now time.Time) { s.heard.Store(int64(now.Sub(started))) }

func (s *conn) silentFor(now time.Time) time.Duration {
	return now.Sub(started) - time.Duration(s.heard.Load())
}

func (s *conn) watchIn(d time.Duration) {
	due := time.Now().Add(d)
	time.AfterFunc(d, func() { s.watch(due) })
}

// watch closes the connection to a switch that does not answer echo requests. Time in which
// the controller's host was suspended does not count.
func (s *conn) watch(due time.Time) {
	o := &s.c.options
	now := time.Now()
	if now.Sub(due) > o.EchoInterval {
		s.hear(now)
	}
	silent := s.silentFor(now)
	switch {
	case s.out.reason() != nil:
		return
	case silent > o.EchoTimeout:
		s.c.counters.timeouts.Add(1)
		s.out.close(fmt.Errorf("silent for %v", o.EchoTimeout))
		return
	case silent >= o.EchoInterval:
		s.out.send(&openflow.EchoRequest{})
	}
	s.watchIn(o.EchoInterval / 2)
}

// isAlive sends an echo request and reports whether any message arrives within wait.
func (s *conn) isAlive(wait time.Duration) bool {
	asked := time.Now()
	s.out.send(&openflow.EchoRequest{})
	for time.Since(asked) < wait && s.out.reason() == nil {
		if s.heard.Load() > int64(asked.Sub(started)) {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}
