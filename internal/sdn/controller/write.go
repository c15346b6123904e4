package controller

import (
	"fmt"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// send queues a message and has it written.
func (s *conn) send(m openflow.Message) {
	if s.enqueue(m) {
		s.ready.Signal()
	}
}

// enqueue queues a message, and tells whether the writer may wait for it.
func (s *conn) enqueue(m openflow.Message) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil {
		return false
	}
	if n := len(s.queue); n >= maxQueued && (n >= maxBurst || s.stuckLocked()) {
		s.c.counters.overflows.Add(1)
		s.closeLocked(fmt.Errorf("it does not read: %d messages wait", n))
		return false
	}
	if s.bytes += payload(m); s.bytes > maxQueuedBytes {
		s.c.counters.overflows.Add(1)
		s.closeLocked(fmt.Errorf("it does not read: more than %d bytes wait", maxQueuedBytes))
		return false
	}
	s.queue = append(s.queue, m)
	return len(s.queue) == 1
}

// stuckLocked tells whether nothing has been written for a while. One decision, about
// a link that many flows went over, may be more messages than a switch that does not
// read is allowed.
func (s *conn) stuckLocked() bool { return !s.busy.IsZero() && time.Since(s.busy) > time.Second }

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
	s.busy = time.Now()
}

// What is kept of buffers whatever a burst took: bytes that are written at once, to
// which one message may come, and room for messages.
const (
	writeBytes = 1 << 15
	keepQueued = 1 << 12
)

// write sends what is queued, many messages at once.
func (s *conn) write() {
	var buffer []byte
	var batch []openflow.Message
	for {
		if cap(batch) > keepQueued {
			batch = nil
		}
		s.mu.Lock()
		for len(s.queue) == 0 && s.done == nil {
			s.busy = time.Time{}
			s.ready.Wait()
		}
		s.busy = time.Now()
		if s.done != nil {
			s.mu.Unlock()
			return
		}
		batch, s.queue = s.queue, batch[:0]
		s.mu.Unlock()
		carried := 0
		for i, m := range batch {
			if _, isReply := m.(*openflow.EchoReply); !isReply {
				openflow.SetXID(m, s.xid.Add(1))
			}
			carried += payload(m)
			if longer, err := openflow.Append(buffer, m); err == nil {
				buffer = longer
			} else { // a message of our own is wrong
				s.c.options.Log.Error("message cannot be written", "type", m.MessageType(), "reason", err)
			}
			batch[i] = nil
			if len(buffer) < writeBytes && i < len(batch)-1 {
				continue
			}
			if _, err := s.net.Write(buffer); err != nil {
				s.close(err)
				return
			}
			s.written(carried)
			buffer, carried = buffer[:0], 0
		}
	}
}
