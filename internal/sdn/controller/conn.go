package controller

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Bounds on what one switch can make a controller keep.
const (
	maxQueued      = 1 << 16
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

	mu    sync.Mutex
	ready *sync.Cond
	queue []openflow.Message
	bytes int   // of what is queued or being written
	done  error // why it is closed
	gone  chan struct{}
}

// serve is the life of one connection.
func (c *Controller) serve(ctx context.Context, nc net.Conn) {
	s := &conn{c: c, net: nc, remote: nc.RemoteAddr().String(), gone: make(chan struct{})}
	if s.remote == "" || s.remote == "@" {
		s.remote = "the local socket"
	}
	s.ready = sync.NewCond(&s.mu)
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

// next is the next message that can be read.
func (s *conn) next(r *openflow.Reader) (openflow.Message, error) {
	for {
		b, err := r.Next()
		if err != nil {
			return nil, err
		}
		m, err := openflow.ParseShared(bytes.Clone(b)) // the reader's bytes are overwritten
		if err == nil {
			return m, nil
		}
		if b[0] != openflow.Version {
			return nil, err
		}
		s.c.counters.badMessages.Add(1)
		if s.bad++; s.bad > maxBadMessages {
			return nil, fmt.Errorf("more than %d messages cannot be read, the last: %w", maxBadMessages, err)
		}
		s.c.options.Log.Debug("message passed over", "from", s.remote, "reason", err)
	}
}

// maxBatch bounds how many packets and ends of flows of one switch are decided on
// while the others wait: a fraction of a millisecond.
const maxBatch = 32

// event is what switches tell of again and again: a packet-in that has been read
// and classified, or the end of a flow.
type event struct {
	packetIn *openflow.PacketIn
	frame    core.Frame
	verdict  core.Verdict
	removed  *openflow.FlowRemoved
}

// read takes what a switch sends. Events that have arrived together are decided on
// together: a lock for each would be handed from switch to switch, with a change
// of goroutines every time.
func (s *conn) read(r *openflow.Reader, in *bufio.Reader) error {
	var batch []event
	for {
		m, err := s.next(r)
		if errors.Is(err, io.EOF) {
			err = errors.New("it closed the connection")
		}
		now := time.Now()
		isEvent := false
		if err == nil {
			s.hear(now)
			switch m := m.(type) {
			case *openflow.PacketIn:
				batch, isEvent = s.classify(now, batch, m), true
			case *openflow.FlowRemoved:
				batch, isEvent = append(batch, event{removed: m}), true
			}
		}
		if isEvent && len(batch) < maxBatch && wholeMessageWaits(in) {
			continue
		}
		if len(batch) > 0 {
			s.c.decideEvents(now, s.dpid, batch)
			clear(batch)
			batch = batch[:0]
		}
		if err != nil {
			return err
		}
		if !isEvent {
			s.take(now, m)
		}
	}
}

// wholeMessageWaits tells whether the next message can be read without waiting.
func wholeMessageWaits(in *bufio.Reader) bool {
	if in.Buffered() < openflow.HeaderLen {
		return false
	}
	header, err := in.Peek(openflow.HeaderLen)
	return err == nil && in.Buffered() >= int(binary.BigEndian.Uint16(header[2:]))
}

// classify adds a packet-in to those to decide on, unless there are too many.
func (s *conn) classify(now time.Time, batch []event, m *openflow.PacketIn) []event {
	if !s.allowed(now, m) {
		s.c.counters.limited.Add(1)
		return batch
	}
	frame, ok := core.ReadFrame(m.Data)
	if !ok {
		s.c.counters.badMessages.Add(1)
		return batch
	}
	return append(batch, event{packetIn: m, frame: frame, verdict: s.c.options.Classifier.First(&frame)})
}

// take is what a message leads to that is no event.
func (s *conn) take(now time.Time, m openflow.Message) {
	c, d := s.c, s.dpid
	switch m := m.(type) {
	case *openflow.EchoRequest:
		s.send(&openflow.EchoReply{Header: m.Header, Data: m.Data})
	case *openflow.PortStatus:
		c.decide(func() []core.Command { return c.core.PortStatus(now, d, m) })
	case *openflow.MultipartReply:
		s.takeStats(now, m)
	case *openflow.RoleReply:
		c.takeRole(now, d, m)
	case *openflow.ErrorMessage:
		s.takeError(now, m)
	}
}

func (s *conn) takeStats(now time.Time, m *openflow.MultipartReply) {
	c, d := s.c, s.dpid
	switch list := m.Body.(type) {
	case *openflow.FlowStatsReply:
		last := m.Flags&openflow.OFPMPF_REPLY_MORE == 0
		c.decide(func() []core.Command { return c.core.FlowStats(now, d, *list, last) })
	case *openflow.QueueStatsReply:
		c.decide(func() []core.Command { c.core.QueueStats(now, d, *list); return nil })
	case *openflow.PortStatsReply:
		c.decide(func() []core.Command { c.core.PortStats(now, d, *list); return nil })
	}
}

func (s *conn) takeError(now time.Time, m *openflow.ErrorMessage) {
	s.c.options.Log.Debug("switch refuses", "dpid", s.dpid, "error", string(openflow.Format(m, false)))
	s.c.decide(func() []core.Command { return s.c.core.Error(now, s.dpid, m) })
}

// send queues a message.
func (s *conn) send(m openflow.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil {
		return
	}
	if len(s.queue) >= maxQueued {
		s.c.counters.overflows.Add(1)
		s.closeLocked(fmt.Errorf("it does not read: %d messages wait", maxQueued))
		return
	}
	if s.bytes += payload(m); s.bytes > maxQueuedBytes {
		s.c.counters.overflows.Add(1)
		s.closeLocked(fmt.Errorf("it does not read: more than %d bytes wait", maxQueuedBytes))
		return
	}
	s.queue = append(s.queue, m)
	s.ready.Signal()
}

// payload is the bytes of others that a message carries.
func payload(m openflow.Message) int {
	switch m := m.(type) {
	case *openflow.EchoReply:
		return len(m.Data)
	case *openflow.PacketOut:
		return len(m.Data)
	}
	return 0
}

// written notes that messages wait no more.
func (s *conn) written(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= bytes
}

// write sends what is queued, as many messages at once as there are.
func (s *conn) write() {
	var buffer []byte
	var batch []openflow.Message
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && s.done == nil {
			s.ready.Wait()
		}
		if s.done != nil {
			s.mu.Unlock()
			return
		}
		batch, s.queue = s.queue, batch[:0]
		s.mu.Unlock()
		buffer = buffer[:0]
		carried := 0
		for i, m := range batch {
			if reply, isReply := m.(*openflow.EchoReply); !isReply || reply.XID == 0 {
				openflow.SetXID(m, s.xid.Add(1))
			}
			carried += payload(m)
			longer, err := openflow.Append(buffer, m)
			if err != nil { // a message of our own is wrong
				s.c.options.Log.Error("message cannot be written", "type", m.MessageType(), "reason", err)
				continue
			}
			buffer = longer
			batch[i] = nil
		}
		if _, err := s.net.Write(buffer); err != nil {
			s.close(err)
			return
		}
		s.written(carried)
	}
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
		s.net.Close()
		s.queue = nil
		s.ready.Broadcast()
	}
}

func (s *conn) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}
