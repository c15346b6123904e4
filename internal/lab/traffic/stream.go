package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// StreamOptions say what a Stream sends, as netperf's TCP_STREAM and UDP_STREAM
// do with -m MESSAGE: one thread, one socket, one send per message, each from the
// next buffer of a ring.
type StreamOptions struct {
	Target       netip.AddrPort
	Protocol     Protocol
	MessageBytes int
}

const (
	// streamRingBytes and streamRingMessages size the ring of buffers: netperf
	// rotates through 16 KB for TCP and 32 messages for UDP (section 4.1 of the
	// paper on network modes).
	streamRingBytes    = 16 << 10
	streamRingMessages = 32
	// maxMessageBytes is what a UDP datagram over IPv4 holds.
	maxMessageBytes = 65507
)

// StreamResult is what a stream did in its window.
type StreamResult struct {
	WindowNS  int64     `json:"window_ns"`
	SentBytes uint64    `json:"sent_bytes"` // payload given to the kernel
	Messages  uint64    `json:"messages"`
	Use       ThreadUse `json:"use"`
	// Missing says which counters there are none of, and why.
	Missing string `json:"missing,omitempty"`
}

// Stream is a socket that sends messages from one thread.
type Stream struct {
	options StreamOptions
	fd      int
}

// NewStream makes the socket, and the TCP connection, in the calling thread's
// network namespace.
func NewStream(options StreamOptions) (*Stream, error) {
	if options.MessageBytes < 1 || options.MessageBytes > maxMessageBytes {
		return nil, fmt.Errorf("send messages of %d bytes: choose 1 to %d", options.MessageBytes, maxMessageBytes)
	}
	s := &Stream{options: options, fd: -1}
	var err error
	switch options.Protocol {
	case UDP:
		s.fd, err = connectUDP(options.Target)
	case TCP:
		s.fd, err = connectTCP(options.Target)
	default:
		err = fmt.Errorf("unknown protocol %q: choose tcp or udp", options.Protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("stream to %s: %w", options.Target, err)
	}
	return s, nil
}

// connectTCP makes a blocking TCP connection whose calls return after sendTimeout
// at the latest.
func connectTCP(target netip.AddrPort) (int, error) {
	fd, err := connectSocket(target, unix.SOCK_STREAM, dialTimeout)
	if err != nil {
		return -1, err
	}
	// Close with a reset: what is still in the socket must not be sent.
	err = errors.Join(setTimeouts(fd, sendTimeout),
		os.NewSyscallError("setsockopt", unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})))
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Close frees the socket and drops what it holds.
func (s *Stream) Close() { _ = unix.Close(s.fd) }

// Phases of a stream.
const (
	streamWarmsUp int32 = iota
	streamCounts
	streamEnds
)

// Run sends from a time of CLOCK_MONOTONIC on and counts for duration, after
// warmup. Only what the sending thread itself takes is counted.
func (s *Stream) Run(ctx context.Context, startNS int64, warmup, duration time.Duration) (StreamResult, error) {
	var phase atomic.Int32
	begin := time.AfterFunc(time.Duration(startNS-MonotonicNS())+warmup, func() { phase.CompareAndSwap(streamWarmsUp, streamCounts) })
	end := time.AfterFunc(time.Duration(startNS-MonotonicNS())+warmup+duration, func() { phase.Store(streamEnds) })
	stop := context.AfterFunc(ctx, func() { phase.Store(streamEnds) })
	defer func() { begin.Stop(); end.Stop(); stop() }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sleepUntil(startNS)
	result, err := s.send(&phase)
	return result, errors.Join(err, ctx.Err())
}

// send sends until phase says that it ends.
func (s *Stream) send(phase *atomic.Int32) (result StreamResult, err error) {
	counters := openThreadCounters()
	defer counters.close()
	if counters.missing != nil {
		result.Missing = counters.missing.Error()
	}
	ring := newRing(s.options)
	var from ThreadUse
	var fromNS int64
	for {
		now := phase.Load()
		if now != streamWarmsUp && fromNS == 0 {
			if from, err = counters.read(); err != nil {
				return result, err
			}
			fromNS = MonotonicNS()
		}
		if now == streamEnds {
			break
		}
		n, err := unix.Write(s.fd, ring.next())
		if err != nil && !temporary(err) {
			return result, os.NewSyscallError("write", err)
		}
		if fromNS != 0 && n > 0 {
			result.SentBytes += uint64(n)
			result.Messages++
		}
	}
	until, err := counters.read()
	result.WindowNS, result.Use = MonotonicNS()-fromNS, until.Sub(from)
	return result, err
}

// ring hands out buffers in turn.
type ring struct {
	memory             []byte
	messageBytes, used int
}

func newRing(options StreamOptions) *ring {
	messages := streamRingMessages
	if options.Protocol == TCP {
		messages = streamRingBytes/options.MessageBytes + 1
	}
	return &ring{memory: make([]byte, messages*options.MessageBytes), messageBytes: options.MessageBytes}
}

func (r *ring) next() []byte {
	if r.used == len(r.memory) {
		r.used = 0
	}
	message := r.memory[r.used : r.used+r.messageBytes]
	r.used += r.messageBytes
	return message
}

// StreamReady is the line by which a process that streams says that it is
// connected and waits for the time to start.
const StreamReady = "ready\n"

// Urgently calls f in a thread that runs before everything else but what watches
// for pauses, for what must happen at its time on a machine that traffic keeps busy.
func Urgently(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		UrgentThread(PingPriority)
		f()
	}()
	<-done
}

// SleepUntil blocks the thread until a time of CLOCK_MONOTONIC.
func SleepUntil(atNS int64) { sleepUntil(atNS) }
