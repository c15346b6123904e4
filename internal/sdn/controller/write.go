package controller

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/sdn/core"
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

// What is kept of buffers whatever a burst took: bytes that are written at once, to
// which one message may come, and room for messages.
const (
	writeBytes = 1 << 15
	keepQueued = 1 << 12
)

// outgoing is what a writer has taken from the queue.
type outgoing struct {
	batch   []openflow.Message
	buffer  []byte // what is to be written
	payload int    // of messages that are in there
}

// takeLocked begins to write what is queued; mu is held.
func (s *conn) takeLocked(o *outgoing) {
	s.writing, s.busy = true, time.Now()
	if cap(o.batch) > keepQueued {
		o.batch = nil
	}
	o.batch, s.queue = s.queue, o.batch[:0]
	o.buffer, s.rest = append(o.buffer[:0], s.rest...), s.rest[:0]
	o.payload, s.restPayload = s.restPayload, 0
}

// encode puts a message behind those that are to be written.
func (s *conn) encode(o *outgoing, m openflow.Message) {
	if _, isReply := m.(*openflow.EchoReply); !isReply {
		openflow.SetXID(m, s.xid.Add(1))
	}
	o.payload += payload(m)
	if longer, err := openflow.Append(o.buffer, m); err == nil {
		o.buffer = longer
	} else { // a message of our own is wrong
		s.c.options.Log.Error("message cannot be written", "type", m.MessageType(), "reason", err)
	}
	core.Written(m)
}

// write sends what is queued, many messages at once.
func (s *conn) write() {
	var o outgoing
	for {
		s.mu.Lock()
		for s.done == nil && (s.writing || len(s.queue) == 0 && len(s.rest) == 0) {
			s.ready.Wait()
		}
		if s.done != nil {
			s.mu.Unlock()
			return
		}
		s.takeLocked(&o)
		s.mu.Unlock()
		for i, m := range o.batch {
			s.encode(&o, m)
			if o.batch[i] = nil; len(o.buffer) >= writeBytes && !s.flush(&o) {
				return
			}
		}
		if !s.flush(&o) {
			return
		}
		s.mu.Lock()
		s.stopWritingLocked()
		s.mu.Unlock()
	}
}

// flush writes what is encoded, and tells whether the connection is still there.
func (s *conn) flush(o *outgoing) bool {
	if _, err := s.net.Write(o.buffer); err != nil {
		s.close(err)
		return false
	}
	s.mu.Lock()
	s.bytes -= o.payload
	s.busy = time.Now()
	s.mu.Unlock()
	o.buffer, o.payload = o.buffer[:0], 0
	return true
}

func (s *conn) stopWritingLocked() {
	if s.writing = false; len(s.queue) == 0 && len(s.rest) == 0 {
		s.busy = time.Time{}
	}
}

// allowNow has writeNow write, where the connection lets it.
func (s *conn) allowNow() {
	plain, ok := s.net.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := plain.SyscallConn(); err == nil {
		s.raw, s.attempt = raw, s.tryWrite
	}
}

// writeNow sends what is queued as far as that takes no waiting: for whoever reads what
// the switch sends, which saves a change of goroutines for each packet. What remains, or
// a burst, is for write.
func (s *conn) writeNow() {
	s.mu.Lock()
	if s.raw == nil || s.writing || s.done != nil || len(s.rest) > 0 || len(s.queue) == 0 || len(s.queue) > maxBurstNow || s.bytes > maxBytesNow {
		s.mu.Unlock()
		s.ready.Signal()
		return
	}
	o := &s.now
	s.takeLocked(o)
	s.mu.Unlock()
	for i, m := range o.batch {
		s.encode(o, m)
		o.batch[i] = nil
	}
	s.wrote = 0
	_ = s.raw.Write(s.attempt) // what fails does so again in write, which has the reason
	s.mu.Lock()
	if s.wrote == len(o.buffer) {
		s.bytes -= o.payload
	} else {
		s.rest, s.restPayload = append(s.rest, o.buffer[s.wrote:]...), o.payload
	}
	s.stopWritingLocked()
	more := len(s.queue)+len(s.rest) > 0
	s.mu.Unlock()
	if more {
		s.ready.Signal()
	}
}

// maxBurstNow bounds how many messages a reader writes itself: those of one batch of
// events, and some more. What packets they may carry, full frames for all of a batch, is what
// keeps its buffers small.
const (
	maxBurstNow = 8 * maxBatch
	maxBytesNow = 2 * writeBytes
)

// tryWrite writes what writeNow has, once.
func (s *conn) tryWrite(fd uintptr) bool {
	if n, err := unix.Write(int(fd), s.now.buffer); err == nil {
		s.wrote = n
	}
	return true
}
