package controller

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Limits of the queue to one switch.
const (
	maxQueued      = 1 << 16  // messages, while the switch does not read
	maxBurst       = 1 << 18  // messages, while the switch reads
	maxQueuedBytes = 16 << 20 // bytes of packets and echoes within the queued messages
	// stuckAfter is the time without progress after which the switch counts as not reading.
	// One decision, such as the loss of a busy link, may queue more than maxQueued
	// messages.
	stuckAfter = time.Second
)

// outbox is the message queue of a switch together with its connection.
type outbox struct {
	net       net.Conn
	log       *slog.Logger
	overflows *atomic.Uint64
	xid       atomic.Uint32

	raw     syscall.RawConn       // raw access to net for non-blocking writes; nil for TLS
	now     outgoing              // used by writeNow only
	wrote   int                   // bytes of now already written
	attempt func(fd uintptr) bool // the write callback for raw

	mu          sync.Mutex
	ready       *sync.Cond
	queue       []openflow.Message
	writing     bool      // write or writeNow is running
	rest        []byte    // what writeNow could not write; goes out before the queue
	restPayload int       // payload bytes in rest
	bytes       int       // payload bytes queued or being written
	busy        time.Time // start of the current write; zero if idle
	done        error     // why the outbox closed; nil while open
}

// init prepares an outbox for a connection.
func (q *outbox) init(nc net.Conn, log *slog.Logger, overflows *atomic.Uint64) {
	q.net, q.log, q.overflows, q.ready = nc, log, overflows, sync.NewCond(&q.mu)
	if plain, ok := nc.(syscall.Conn); ok {
		if raw, err := plain.SyscallConn(); err == nil {
			q.raw, q.attempt = raw, q.tryWrite
		}
	}
}

// sendFirst writes a message directly, before the writer goroutine runs.
func (q *outbox) sendFirst(m openflow.Message) error {
	openflow.SetXID(m, q.xid.Add(1))
	b, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	_, err = q.net.Write(b)
	return err
}

// send queues a message and wakes the writer.
func (q *outbox) send(m openflow.Message) {
	if q.enqueue(m) {
		q.ready.Signal()
	}
}

// enqueue queues a message and reports whether the queue was empty, so that the writer
// needs a wake-up.
func (q *outbox) enqueue(m openflow.Message) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.done != nil {
		return false
	}
	if n := len(q.queue); n >= maxQueued && (n >= maxBurst || q.stuckLocked()) {
		q.overflows.Add(1)
		q.closeLocked(fmt.Errorf("it does not read: %d messages wait", n))
		return false
	}
	if q.bytes += payload(m); q.bytes > maxQueuedBytes {
		q.overflows.Add(1)
		q.closeLocked(fmt.Errorf("it does not read: more than %d bytes wait", maxQueuedBytes))
		return false
	}
	q.queue = append(q.queue, m)
	return len(q.queue) == 1
}

func (q *outbox) stuckLocked() bool { return !q.busy.IsZero() && time.Since(q.busy) > stuckAfter }

// payload returns the bytes of the packet or echo inside a message.
func payload(m openflow.Message) int {
	switch m := m.(type) {
	case *openflow.EchoReply:
		return len(m.Data)
	case *openflow.PacketOut:
		return len(m.Data)
	}
	return 0
}

// Limits of buffers that stay allocated after a burst.
const (
	writeBytes = 1 << 15 // bytes per write; one message may exceed it
	keepQueued = 1 << 12 // messages
)

// outgoing holds the messages that a writer took from the queue.
type outgoing struct {
	batch   []openflow.Message
	buffer  []byte // encoded
	payload int    // payload bytes in buffer
}

// takeLocked moves the queued messages to a writer. The caller holds q.mu.
func (q *outbox) takeLocked(o *outgoing) {
	q.writing, q.busy = true, time.Now()
	if cap(o.batch) > keepQueued {
		o.batch = nil
	}
	o.batch, q.queue = q.queue, o.batch[:0]
	o.buffer, q.rest = append(o.buffer[:0], q.rest...), q.rest[:0]
	o.payload, q.restPayload = q.restPayload, 0
}

// encode appends the wire format of a message to the buffer.
func (q *outbox) encode(o *outgoing, m openflow.Message) {
	switch m := m.(type) {
	case *openflow.EchoReply: // it has the request's
	case *openflow.MultipartRequest:
		if m.XID != core.WatchXID {
			m.XID = q.xid.Add(1)
		}
	default:
		openflow.SetXID(m, q.xid.Add(1))
	}
	o.payload += payload(m)
	if longer, err := openflow.Append(o.buffer, m); err == nil {
		o.buffer = longer
	} else {
		q.log.Error("message cannot be written", "type", m.MessageType(), "reason", err)
	}
	core.Written(m)
}

// write sends queued messages in batches until the connection closes.
func (q *outbox) write() {
	var o outgoing
	for {
		q.mu.Lock()
		for q.done == nil && (q.writing || len(q.queue) == 0 && len(q.rest) == 0) {
			q.ready.Wait()
		}
		if q.done != nil {
			q.mu.Unlock()
			return
		}
		q.takeLocked(&o)
		q.mu.Unlock()
		for i, m := range o.batch {
			q.encode(&o, m)
			if o.batch[i] = nil; len(o.buffer) >= writeBytes && !q.flush(&o) {
				return
			}
		}
		if !q.flush(&o) {
			return
		}
		q.mu.Lock()
		q.stopWritingLocked()
		q.mu.Unlock()
	}
}

// flush writes the buffer and reports whether the connection is still open.
func (q *outbox) flush(o *outgoing) bool {
	if _, err := q.net.Write(o.buffer); err != nil {
		q.close(err)
		return false
	}
	q.mu.Lock()
	q.bytes -= o.payload
	q.busy = time.Now()
	q.mu.Unlock()
	o.buffer, o.payload = o.buffer[:0], 0
	return true
}

func (q *outbox) stopWritingLocked() {
	if q.writing = false; len(q.queue) == 0 && len(q.rest) == 0 {
		q.busy = time.Time{}
	}
}

// writeNow writes queued messages without blocking. It runs in the reader's goroutine,
// which saves a goroutine switch per packet. Large bursts, and the rest of a partial write,
// are left to write.
func (q *outbox) writeNow() {
	q.mu.Lock()
	if q.raw == nil || q.writing || q.done != nil || len(q.rest) > 0 || len(q.queue) == 0 || len(q.queue) > maxBurstNow || q.bytes > maxBytesNow {
		q.mu.Unlock()
		q.ready.Signal()
		return
	}
	o := &q.now
	q.takeLocked(o)
	q.mu.Unlock()
	for i, m := range o.batch {
		q.encode(o, m)
		o.batch[i] = nil
	}
	q.wrote = 0
	_ = q.raw.Write(q.attempt) // write meets the same error and records it
	q.mu.Lock()
	if q.wrote == len(o.buffer) {
		q.bytes -= o.payload
	} else {
		q.rest, q.restPayload = append(q.rest, o.buffer[q.wrote:]...), o.payload
	}
	q.stopWritingLocked()
	more := len(q.queue)+len(q.rest) > 0
	q.mu.Unlock()
	if more {
		q.ready.Signal()
	}
}

// Limits of the messages that a reader goroutine writes itself.
const (
	maxBurstNow = 8 * maxBatch   // messages of one batch of events, with some reserve
	maxBytesNow = 2 * writeBytes // full frames for a whole batch; keeps buffers small
)

// tryWrite makes one attempt to write the buffer of writeNow.
func (q *outbox) tryWrite(fd uintptr) bool {
	if n, err := unix.Write(int(fd), q.now.buffer); err == nil {
		q.wrote = n
	}
	return true
}

func (q *outbox) close(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closeLocked(why)
}

func (q *outbox) closeLocked(why error) {
	if q.done == nil {
		q.done = why
		q.queue = nil
		q.ready.Broadcast()
		go q.net.Close() // Close in TLS sends an alert first, which blocks if the switch does not read
	}
}

// reason returns why the connection closed, or nil while it is open.
func (q *outbox) reason() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.done
}
