package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// batchMessages is how many messages one system call takes at most.
	batchMessages = 64
	// pacingTick is how often a paced sender wakes up when its datagrams
	// are closer together than that.
	pacingTick = time.Millisecond
	// pacingDebt is how far a paced sender that got no CPU catches up.
	pacingDebt = 10 * time.Millisecond
	// sendTimeout bounds a send that is blocked on the socket's buffer.
	sendTimeout = 100 * time.Millisecond

	ethernetHeaderBytes = 14
	ipv4HeaderBytes     = 20
	ipv6HeaderBytes     = 40
	udpHeaderBytes      = 8
)

type udpStream struct {
	fd       int
	messages []unix.Mmsghdr
	// payload and vector are what all messages point to.
	payload []byte
	vector  unix.Iovec
	// intervalNS is the time between two messages; 0 means no pacing.
	intervalNS float64
}

// WireBytesUDP is the size on the wire (L2 without FCS) of a datagram.
func WireBytesUDP(target netip.Addr, payloadBytes int) int {
	if target.Unmap().Is4() {
		return ethernetHeaderBytes + ipv4HeaderBytes + udpHeaderBytes + payloadBytes
	}
	return ethernetHeaderBytes + ipv6HeaderBytes + udpHeaderBytes + payloadBytes
}

func dialUDP(options SenderOptions) (*udpStream, error) {
	fd, err := connectUDP(options.Target)
	if err != nil {
		return nil, err
	}
	return newUDPStream(fd, options)
}

// newUDPStream sends by a connected socket, which it closes if that cannot be.
func newUDPStream(fd int, options SenderOptions) (*udpStream, error) {
	u := &udpStream{fd: fd, payload: make([]byte, options.PayloadBytes*options.SegmentsPerSend)}
	if options.SegmentsPerSend > 1 {
		if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, options.PayloadBytes); err != nil {
			u.release()
			return nil, fmt.Errorf("set UDP_SEGMENT: %w", err)
		}
	}
	if options.SocketPriority > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(options.SocketPriority)); err != nil {
			u.release()
			return nil, fmt.Errorf("set SO_PRIORITY: %w", err)
		}
	}
	if options.RateBPS > 0 {
		wireBits := 8 * WireBytesUDP(options.Target.Addr(), options.PayloadBytes) * options.SegmentsPerSend
		u.intervalNS = float64(wireBits) * 1e9 / float64(options.RateBPS)
	}
	return u, nil
}

// connectUDP makes a blocking UDP socket whose calls return after sendTimeout
// at the latest.
func connectUDP(target netip.AddrPort) (int, error) {
	return connectSocket(target, unix.SOCK_DGRAM, sendTimeout)
}

// bindUDP makes such a socket with an address of its own and a port that is free.
func bindUDP(address netip.Addr) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = errors.Join(setTimeouts(fd, dialTimeout), os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet4{Addr: address.As4()})))
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// portOf is the port that an IPv4 socket is bound to.
func portOf(fd int) (uint16, error) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return uint16(name.(*unix.SockaddrInet4).Port), nil
}

// connectSocket connects a blocking socket of a type, whose calls return after timeout at the
// latest. Linux bounds connect by the send timeout too (socket(7)).
func connectSocket(target netip.AddrPort, kind int, timeout time.Duration) (int, error) {
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(target.Port()), Addr: target.Addr().As16()})
	if target.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(target.Port()), Addr: target.Addr().As4()}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := errors.Join(setTimeouts(fd, timeout), os.NewSyscallError("connect", unix.Connect(fd, address))); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (u *udpStream) send(stopped *atomic.Bool, account *account) error {
	// The thread is this sender's own: a blocked or sleeping system call
	// should not cost the scheduler of the runtime a hand-over each time.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u.vector.Base = &u.payload[0]
	u.vector.SetLen(len(u.payload))
	u.messages = make([]unix.Mmsghdr, batchMessages)
	for i := range u.messages {
		u.messages[i].Hdr.Iov = &u.vector
		u.messages[i].Hdr.SetIovlen(1)
	}

	pace := pacer{intervalNS: u.intervalNS, startNS: MonotonicNS()}
	for !stopped.Load() {
		count := batchMessages
		if u.intervalNS > 0 {
			var wakeNS int64
			now := MonotonicNS()
			account.behind(now, pace.behindNS(now))
			if count, wakeNS = pace.due(now); count == 0 {
				sleepUntil(wakeNS)
				continue
			}
		}
		n, err := sendMessages(u.fd, u.messages[:count])
		account.sentBytes.Add(uint64(n) * uint64(len(u.payload)))
		if err != nil && !temporary(err) {
			return os.NewSyscallError("sendmmsg", err)
		}
	}
	return nil
}

// interrupt has nothing to do: no call of send's blocks beyond sendTimeout.
func (u *udpStream) interrupt() {}

func (u *udpStream) release() { _ = unix.Close(u.fd) }

// sendMessages is sendmmsg(2), which golang.org/x/sys/unix does not wrap.
func sendMessages(fd int, messages []unix.Mmsghdr) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&messages[0])), uintptr(len(messages)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// temporary says that a datagram was lost, as datagrams may be: no room, or
// an ICMP error for an earlier one.
func temporary(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) ||
		errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ECONNREFUSED) ||
		errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}

// pacer says when messages are due.
type pacer struct {
	intervalNS float64
	startNS    int64
	sent       int64 // messages since startNS
}

// behindNS is for how long the next message has been due; below zero when it is
// not yet.
func (p *pacer) behindNS(nowNS int64) int64 {
	return nowNS - p.startNS - int64(float64(p.sent)*p.intervalNS)
}

// due returns how many messages to send now, and when to look again if none.
func (p *pacer) due(nowNS int64) (count int, wakeNS int64) {
	elapsed := float64(nowNS - p.startNS)
	due := int64(elapsed/p.intervalNS) + 1 - p.sent
	if due <= 0 {
		next := p.startNS + int64(float64(p.sent)*p.intervalNS)
		return 0, max(next, nowNS+min(int64(p.intervalNS), pacingTick.Nanoseconds()))
	}
	if behind := float64(due) * p.intervalNS; behind > float64(pacingDebt.Nanoseconds()) && due > batchMessages {
		due = batchMessages
		p.startNS, p.sent = nowNS, 0
	}
	due = min(due, batchMessages)
	p.sent += due
	return int(due), 0
}
