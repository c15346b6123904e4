// Package traffic generates and swallows network traffic for measurements.
//
// Sockets are made in the network namespace of the calling thread and stay in
// it (testbed.InNetNS): a benchmark makes them in its containers' namespaces
// and then starts and stops all of them from one process, to the microsecond,
// without a control channel.
package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Protocol is a transport protocol.
type Protocol string

// The protocols a Sender speaks.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// Defaults of SenderOptions.
const (
	// DefaultWriteBytes is what netperf writes at once in qCon, section 4.
	DefaultWriteBytes = 16 << 10
	// DefaultPayloadBytes fills an Ethernet frame with IPv4 and UDP.
	DefaultPayloadBytes = 1472
)

// SenderOptions says what to send. Zero means the default.
type SenderOptions struct {
	Target   netip.AddrPort
	Protocol Protocol
	// Connections is the number of TCP connections, 1 by default. UDP has
	// one socket.
	Connections int
	// WriteBytes is the size of a write to a TCP connection.
	WriteBytes int
	// PayloadBytes is the size of a UDP datagram without headers.
	PayloadBytes int
	// SegmentsPerSend above 1 gives that many datagrams to the kernel as one
	// GSO packet (UDP_SEGMENT), as QUIC senders do.
	SegmentsPerSend int
	// RateBPS paces the sender, in bits per second on the wire (L2 frames
	// without FCS) for UDP and of payload for TCP; 0 sends all it can.
	RateBPS uint64
	// CongestionControl is TCP's, by the kernel's name; empty for the default.
	CongestionControl string
	// SocketPriority is SO_PRIORITY of a UDP sender's socket: to a scheduler on its
	// own device, the class that its packets go to.
	SocketPriority uint32
}

func (o SenderOptions) withDefaults() SenderOptions {
	o.Connections = max(o.Connections, 1)
	if o.WriteBytes == 0 {
		o.WriteBytes = DefaultWriteBytes
	}
	if o.PayloadBytes == 0 {
		o.PayloadBytes = DefaultPayloadBytes
	}
	o.SegmentsPerSend = max(o.SegmentsPerSend, 1)
	return o
}

// Sender sends from Start to Stop, once.
type Sender struct {
	streams []stream
	account account
	stopped atomic.Bool
	wait    sync.WaitGroup

	mu      sync.Mutex
	failure error
}

// account is what a sender's streams have done together.
type account struct {
	sentBytes atomic.Uint64 // payload given to the kernel

	mu   sync.Mutex
	late []Lateness
}

// leastLateness is the shortest time behind its pace that a sender notes: more
// than a timer is late.
const leastLateness = 2 * time.Millisecond

// behind notes how far a stream is behind its pace at nowNS.
func (a *account) behind(nowNS, byNS int64) {
	if byNS < leastLateness.Nanoseconds() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	one := Lateness{FromNS: nowNS - byNS, UntilNS: nowNS, ByNS: byNS}
	if last := len(a.late) - 1; last >= 0 && a.late[last].UntilNS >= one.FromNS {
		one.FromNS = min(one.FromNS, a.late[last].FromNS)
		one.ByNS = max(one.ByNS, a.late[last].ByNS)
		a.late[last] = one
		return
	}
	a.late = append(a.late, one)
}

// stream is one socket of a sender.
type stream interface {
	// send sends until stopped and keeps the account.
	send(stopped *atomic.Bool, account *account) error
	// interrupt makes send return soon and drops what the socket holds.
	interrupt()
	// release frees the socket after send has returned, or if it never ran.
	release()
}

// NewSender makes the sockets, and the TCP connections, in the calling
// thread's network namespace. Nothing is sent before Start.
func NewSender(ctx context.Context, options SenderOptions) (*Sender, error) {
	options = options.withDefaults()
	s := &Sender{}
	count := 1
	if options.Protocol == TCP {
		count = options.Connections
	}
	for range count {
		var one stream
		var err error
		switch options.Protocol {
		case TCP:
			one, err = dialTCP(ctx, options)
		case UDP:
			one, err = dialUDP(options)
		default:
			err = fmt.Errorf("unknown protocol %q", options.Protocol)
		}
		if err != nil {
			s.Stop()
			return nil, fmt.Errorf("send to %s: %w", options.Target, err)
		}
		s.streams = append(s.streams, one)
	}
	return s, nil
}

// Start begins to send at a time of CLOCK_MONOTONIC, or at once when that has
// passed. It does not wait.
func (s *Sender) Start(atNS int64) {
	for _, one := range s.streams {
		s.wait.Go(func() {
			sleepUntil(atNS)
			if err := one.send(&s.stopped, &s.account); err != nil && !s.stopped.Load() {
				s.mu.Lock()
				s.failure = err
				s.mu.Unlock()
			}
		})
	}
}

// Stop ends the traffic: what the sockets still hold is dropped, so that the
// container is silent but for what is queued below. It waits for the sender's
// goroutines and may be called twice.
func (s *Sender) Stop() {
	if s.stopped.Swap(true) {
		return
	}
	for _, one := range s.streams {
		one.interrupt()
	}
	s.wait.Wait()
	for _, one := range s.streams {
		one.release()
	}
}

// SentBytes is the payload given to the kernel so far.
func (s *Sender) SentBytes() uint64 { return s.account.sentBytes.Load() }

// Behind is how far a paced UDP sender was behind its pace at most between two
// times of CLOCK_MONOTONIC, or in a stretch of lateness that touches them: it had
// no CPU, or its socket no room. What is below 2 ms counts as nothing. Always zero
// for other senders.
func (s *Sender) Behind(fromNS, untilNS int64) time.Duration {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return MostLate(s.account.late, fromNS, untilNS)
}

// BehindFor is for how long, in all, it was behind by more than least; else it is as Behind.
func (s *Sender) BehindFor(least time.Duration, fromNS, untilNS int64) time.Duration {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return TotalLate(s.account.late, least, fromNS, untilNS)
}

// Err is why the sender stopped by itself, or nil.
func (s *Sender) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Lateness is a time, by CLOCK_MONOTONIC, in which a sender or receiver was late, and by how
// much at most.
type Lateness struct {
	FromNS, UntilNS int64
	ByNS            int64
}

// MostLate is by how much a sender or receiver was late at most in what touches the time
// between two of CLOCK_MONOTONIC; 0 if nothing does.
func MostLate(late []Lateness, fromNS, untilNS int64) time.Duration {
	most := int64(0)
	for _, one := range late {
		if one.UntilNS > fromNS && one.FromNS < untilNS {
			most = max(most, one.ByNS)
		}
	}
	return time.Duration(most)
}

// TotalLate is for how long between two times of CLOCK_MONOTONIC a sender or receiver was late by
// more than least.
func TotalLate(late []Lateness, least time.Duration, fromNS, untilNS int64) time.Duration {
	sum := int64(0)
	for _, one := range late {
		if one.ByNS > least.Nanoseconds() {
			sum += max(min(one.UntilNS, untilNS)-max(one.FromNS, fromNS), 0)
		}
	}
	return time.Duration(sum)
}

// MonotonicNS is the time of CLOCK_MONOTONIC.
func MonotonicNS() int64 {
	var now unix.Timespec
	// It cannot fail: the clock exists and the pointer is valid.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}

// sleepUntil blocks the thread until a time of CLOCK_MONOTONIC. Go's own
// timers wake up to a millisecond late.
func sleepUntil(atNS int64) {
	deadline := unix.NsecToTimespec(atNS)
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &deadline, nil) == unix.EINTR {
	}
}

// Priorities of urgent threads: what watches goes before what is watched.
const (
	// PingPriority is for what sends when it is time.
	PingPriority  = 1
	pausePriority = 2
)

// UrgentThread ties the goroutine to a thread that runs before everything else
// but urgent threads of a higher priority. Where the kernel does not let it, what
// is measured is still right, only noisier. The thread ends with the goroutine.
func UrgentThread(priority uint32) {
	runtime.LockOSThread()
	attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}
	_ = unix.SchedSetAttr(0, &attributes, 0)
}

// setTimeouts bounds how long a blocking socket call can outlive a stop.
func setTimeouts(fd int, timeout time.Duration) error {
	value := unix.NsecToTimeval(timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &value); err != nil {
		return fmt.Errorf("set the send timeout: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &value); err != nil {
		return fmt.Errorf("set the receive timeout: %w", err)
	}
	return nil
}
