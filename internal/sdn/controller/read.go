package controller

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// next reads messages until one can be decoded, and returns it.
func (s *conn) next(r *openflow.Reader) (openflow.Message, error) {
	for {
		b, err := r.Next()
		if err != nil {
			return nil, err
		}
		m, b := s.spare.prepare(b) // the reader overwrites its buffer
		if m != nil {
			err = openflow.ReadShared(m, b)
		} else {
			m, err = openflow.ParseShared(b)
		}
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

// maxBatch limits how many events of one switch are decided under one lock. A batch takes a
// fraction of a millisecond.
const maxBatch = 32

// event is a frequent message: a classified packet-in, or the removal of a flow entry.
type event struct {
	packetIn *openflow.PacketIn
	frame    core.Frame
	verdict  core.Verdict
	removed  *removed
}

// removed is a flow-removed message with the buffer it was decoded from.
type removed struct {
	openflow.FlowRemoved
	raw []byte
}

// spare holds message structs for reuse, because a switch may send many thousands of events
// a second. The core keeps only a packet's bytes.
type spare struct {
	packetIns []*openflow.PacketIn
	removed   []*removed
}

// prepare copies the bytes of a message. For a packet-in or flow-removed message it also
// returns a reused struct to decode into, otherwise nil.
func (s *spare) prepare(b []byte) (openflow.Message, []byte) {
	switch openflow.Type(b[1]) {
	case openflow.OFPT_PACKET_IN:
		return last(&s.packetIns), bytes.Clone(b)
	case openflow.OFPT_FLOW_REMOVED:
		m := last(&s.removed)
		m.raw = append(m.raw[:0], b...)
		return m, m.raw
	}
	return nil, bytes.Clone(b)
}

// last removes and returns the last element of a list, or allocates a new one.
func last[T any](list *[]*T) *T {
	n := len(*list)
	if n == 0 {
		return new(T)
	}
	one := (*list)[n-1]
	*list = (*list)[:n-1]
	return one
}

func (s *spare) keep(batch []event) {
	for i := range batch {
		if e := &batch[i]; e.removed != nil {
			s.removed = append(s.removed, e.removed)
		} else {
			e.packetIn.Data = nil
			s.packetIns = append(s.packetIns, e.packetIn)
		}
	}
}

// read handles the messages of a switch. Events that arrive together are decided in one
// batch, because a lock per event would cost a goroutine switch each.
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
			case *removed:
				batch, isEvent = append(batch, event{removed: m}), true
			}
		}
		if isEvent && len(batch) < maxBatch && wholeMessageWaits(in) {
			continue
		}
		if len(batch) > 0 {
			s.c.decideEvents(now, s, batch)
			s.spare.keep(batch)
			clear(batch)
			batch = batch[:0]
		}
		if err != nil {
			return err
		}
		if !isEvent {
			s.handle(now, m)
		}
	}
}

// wholeMessageWaits reports whether the next message is buffered completely.
func wholeMessageWaits(in *bufio.Reader) bool {
	if in.Buffered() < openflow.HeaderLen {
		return false
	}
	header, err := in.Peek(openflow.HeaderLen)
	return err == nil && in.Buffered() >= int(binary.BigEndian.Uint16(header[2:]))
}

// classify classifies a packet-in and appends it to a batch, unless it exceeds the limits.
func (s *conn) classify(now time.Time, batch []event, m *openflow.PacketIn) []event {
	if !s.limits.allow(now, m) {
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

// handle handles a message other than a packet-in or flow-removed.
func (s *conn) handle(now time.Time, m openflow.Message) {
	c, d := s.c, s.dpid
	switch m := m.(type) {
	case *openflow.EchoRequest:
		s.out.send(&openflow.EchoReply{Header: m.Header, Data: m.Data})
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
		last := m.Flags&openflow.OFPMPF_REPLY_MORE == 0 && m.XID != core.WatchXID
		c.decide(func() []core.Command { return c.core.FlowStats(now, d, *list, last) })
	case *openflow.AggregateStats:
		c.decide(func() []core.Command {
			commands, lost := c.core.SetupStats(now, d, list.FlowCount)
			if lost {
				c.options.Log.Warn("switch lost its entries: sending them again", "dpid", d)
			}
			return commands
		})
	case *openflow.QueueStatsReply:
		c.decide(func() []core.Command { c.core.QueueStats(now, d, *list); return nil })
	case *openflow.MeterStatsReply:
		c.decide(func() []core.Command { c.core.MeterStats(now, d, *list); return nil })
	case *openflow.PortStatsReply:
		c.decide(func() []core.Command { c.core.PortStats(now, d, *list); return nil })
	}
}

func (s *conn) takeError(now time.Time, m *openflow.ErrorMessage) {
	s.c.options.Log.Debug("switch refuses", "dpid", s.dpid, "error", string(openflow.Format(m, false)))
	s.c.decide(func() []core.Command { return s.c.core.Error(now, s.dpid, m) })
}
