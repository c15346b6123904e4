package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Timed datagrams carry when they were sent, so that a receiver on the same machine
// knows how long they were on the way. Both ends read CLOCK_REALTIME, the sender
// right before its system call and the kernel when the datagram arrives
// (SO_TIMESTAMPNS): how late the receiving program runs does not matter. The clock is
// not set while anything is measured; it may be slewed, by 0.05 % at most.

const (
	// TimedHeaderBytes is what a timed datagram holds at least: its time and number.
	TimedHeaderBytes = 16
	// timedBufferBytes is the socket buffer of both ends: seconds of 100 Mbit/s, so
	// that a receiver that does not run loses nothing, and a sender is not held back
	// by what waits in a queue where packets still count as its socket's, as they do
	// up to the receiver unless they are routed.
	timedBufferBytes = 64 << 20
)

// StampTimed writes the header of a timed datagram.
func StampTimed(payload []byte, sentNS int64, sequence uint64) {
	binary.BigEndian.PutUint64(payload, uint64(sentNS))
	binary.BigEndian.PutUint64(payload[8:], sequence)
}

// RealtimeNS is the time of CLOCK_REALTIME.
func RealtimeNS() int64 {
	var now unix.Timespec
	// It cannot fail: the clock exists and the pointer is valid.
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &now)
	return now.Nano()
}

// Arrival is a timed datagram that arrived.
type Arrival struct {
	SentNS, ArrivedNS int64 // of CLOCK_REALTIME
	Sequence          uint64
	Bytes             int // of payload
}

// Delay is how long it was on the way.
func (a Arrival) Delay() time.Duration { return time.Duration(a.ArrivedNS - a.SentNS) }

// Receiver takes timed datagrams on some ports, IPv4 and IPv6.
type Receiver struct {
	fds     []int
	stopped atomic.Bool
	wait    sync.WaitGroup

	mu       sync.Mutex
	arrivals [][]Arrival // by port
	// overruns are the datagrams that found a socket's buffer full since it was opened, by port; taken are
	// those that Take has returned.
	overruns, taken []uint32
}

// NewReceiver opens ports in the calling thread's network namespace. It needs
// CAP_NET_ADMIN for its buffers.
func NewReceiver(ports ...uint16) (*Receiver, error) {
	r := &Receiver{arrivals: make([][]Arrival, len(ports)), overruns: make([]uint32, len(ports)), taken: make([]uint32, len(ports))}
	for _, port := range ports {
		fd, err := timedSocket(port)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("receive on port %d: %w", port, err), r.Close())
		}
		r.fds = append(r.fds, fd)
	}
	for i, fd := range r.fds {
		r.wait.Go(func() { r.receive(i, fd) })
	}
	return r, nil
}

// timedSocket is a socket that takes datagrams with the time of their arrival and the
// number of those that were dropped before.
func timedSocket(port uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	set := func(level, option, value int) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, option, value))
	}
	err = errors.Join(
		set(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0),
		set(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, timedBufferBytes),
		set(unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		set(unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1),
		setTimeouts(fd, sendTimeout),
		os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)})))
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (r *Receiver) receive(port, fd int) {
	buffer, control := make([]byte, 1<<16), make([]byte, 256)
	for !r.stopped.Load() {
		n, controlBytes, _, _, err := unix.Recvmsg(fd, buffer, control, 0)
		if err != nil || n < TimedHeaderBytes {
			continue // a timeout, or not one of ours
		}
		arrivedNS, overruns := parseStamp(control[:controlBytes])
		if arrivedNS == 0 {
			continue
		}
		one := Arrival{
			SentNS: int64(binary.BigEndian.Uint64(buffer)), ArrivedNS: arrivedNS, Sequence: binary.BigEndian.Uint64(buffer[8:]), Bytes: n,
		}
		r.mu.Lock()
		r.arrivals[port] = append(r.arrivals[port], one)
		r.overruns[port] = max(r.overruns[port], overruns)
		r.mu.Unlock()
	}
}

// parseStamp reads when a datagram arrived, and how many the socket dropped so far.
func parseStamp(control []byte) (arrivedNS int64, overruns uint32) {
	for len(control) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return arrivedNS, overruns
		}
		control = rest
		if header.Level != unix.SOL_SOCKET {
			continue
		}
		switch {
		case header.Type == unix.SCM_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
			stamp := *(*unix.Timespec)(unsafe.Pointer(&data[0]))
			arrivedNS = stamp.Nano()
		case header.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			overruns = binary.NativeEndian.Uint32(data)
		}
	}
	return arrivedNS, overruns
}

// Take returns what arrived on each port since the last time, and how many datagrams
// the sockets dropped themselves, which makes the rest useless. A drop is noticed with
// the next datagram that arrives on its port.
func (r *Receiver) Take() (arrivals [][]Arrival, overruns uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	arrivals = r.arrivals
	r.arrivals = make([][]Arrival, len(arrivals))
	for port, all := range r.overruns {
		overruns += all - r.taken[port]
	}
	copy(r.taken, r.overruns)
	return arrivals, overruns
}

// Close stops receiving. Closing twice is allowed.
func (r *Receiver) Close() error {
	if r.stopped.Swap(true) {
		return nil
	}
	r.wait.Wait()
	for _, fd := range r.fds {
		_ = unix.Close(fd)
	}
	return nil
}

// TimedOptions say what a Timed sender sends.
type TimedOptions struct {
	// Targets are the flows, sent in turn: one datagram of each, and again.
	Targets []netip.AddrPort
	// PayloadBytes is the size of a datagram; IntervalNS the time between two.
	PayloadBytes int
	IntervalNS   float64
}

// Timed sends timed datagrams of several flows in turn, at one pace.
type Timed struct {
	options TimedOptions
	fds     []int
	stopped atomic.Bool
	wait    sync.WaitGroup
	sent    []atomic.Uint64
	failure error // read after wait
}

// NewTimed makes the sockets in the calling thread's network namespace. It needs
// CAP_NET_ADMIN for their buffers.
func NewTimed(options TimedOptions) (*Timed, error) {
	if options.PayloadBytes < TimedHeaderBytes || options.IntervalNS <= 0 {
		return nil, fmt.Errorf("send %d bytes every %.0f ns: at least %d bytes, and a positive time", options.PayloadBytes, options.IntervalNS, TimedHeaderBytes)
	}
	t := &Timed{options: options, sent: make([]atomic.Uint64, len(options.Targets))}
	for _, target := range options.Targets {
		fd, err := connectUDP(target)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("send to %s: %w", target, err), t.Stop())
		}
		t.fds = append(t.fds, fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, timedBufferBytes); err != nil {
			return nil, errors.Join(fmt.Errorf("send to %s: %w", target, os.NewSyscallError("setsockopt", err)), t.Stop())
		}
	}
	return t, nil
}

// Start begins to send at a time of CLOCK_MONOTONIC. It does not wait.
func (t *Timed) Start(atNS int64) {
	t.wait.Go(func() {
		UrgentThread(PingPriority)
		sleepUntil(atNS)
		t.failure = t.send(atNS)
	})
}

func (t *Timed) send(startNS int64) error {
	payload := make([]byte, t.options.PayloadBytes)
	for sequence := uint64(0); !t.stopped.Load(); sequence++ {
		due := startNS + int64(float64(sequence)*t.options.IntervalNS)
		now := MonotonicNS()
		if now < due {
			sleepUntil(due)
		} else if late := now - due; late > timedDebt.Nanoseconds() {
			startNS += late // what the machine did not let it send is not made up for
		}
		flow := int(sequence % uint64(len(t.fds)))
		StampTimed(payload, RealtimeNS(), t.sent[flow].Load())
		if _, err := unix.Write(t.fds[flow], payload); err != nil && !temporary(err) {
			return os.NewSyscallError("write", err)
		}
		t.sent[flow].Add(1)
	}
	return nil
}

// timedDebt is how far a sender that did not run catches up. Less than a full burst,
// which would be a load of its own.
const timedDebt = time.Millisecond

// Sent is how many datagrams of each flow were given to the kernel.
func (t *Timed) Sent() []uint64 {
	counts := make([]uint64, len(t.sent))
	for i := range t.sent {
		counts[i] = t.sent[i].Load()
	}
	return counts
}

// Stop ends the traffic and says why it ended before, if it did. It may be called twice.
func (t *Timed) Stop() error {
	if !t.stopped.Swap(true) {
		t.wait.Wait()
		for _, fd := range t.fds {
			_ = unix.Close(fd)
		}
	}
	return t.failure
}
