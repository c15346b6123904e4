package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Echo sends every UDP datagram back, IPv4 and IPv6.
type Echo struct {
	fd      int
	stopped atomic.Bool
	wait    sync.WaitGroup
}

// NewEcho answers on a port in the calling thread's network namespace.
func NewEcho(port uint16) (*Echo, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open echo: %w", os.NewSyscallError("socket", err))
	}
	err = errors.Join(
		os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)),
		setTimeouts(fd, sendTimeout),
		os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)})))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open echo on port %d: %w", port, err)
	}
	e := &Echo{fd: fd}
	e.wait.Go(e.answer)
	return e, nil
}

func (e *Echo) answer() {
	UrgentThread(PingPriority)
	defer unix.Close(e.fd)
	buffer := make([]byte, 1<<16)
	for !e.stopped.Load() {
		n, from, err := unix.Recvfrom(e.fd, buffer, 0)
		if err != nil {
			continue // a timeout, or an ICMP error for an earlier answer
		}
		_ = unix.Sendto(e.fd, buffer[:n], 0, from)
	}
}

// Close stops answering. Closing twice is allowed.
func (e *Echo) Close() error {
	e.stopped.Store(true)
	e.wait.Wait()
	return nil
}

// PingTimeout is after how long an answer counts as lost unless PingOptions say otherwise.
const PingTimeout = time.Second

// PingOptions says how to measure round trips. Zero means the default.
type PingOptions struct {
	Target netip.AddrPort
	// PayloadBytes is the size of a datagram; 64 as in qCon, table 1.
	PayloadBytes int
	// Interval is the time from one datagram to the next, 10 ms.
	Interval time.Duration
	// Timeout is when an answer counts as lost, PingTimeout.
	Timeout time.Duration
}

// PingResult is what a Pinger saw.
type PingResult struct {
	Sent, Lost int
	RTTs       []time.Duration
}

// Pinger measures round trips to an Echo.
type Pinger struct {
	options PingOptions
	fd      int
}

// NewPinger makes the socket, in the calling thread's network namespace.
func NewPinger(options PingOptions) (*Pinger, error) {
	if options.PayloadBytes == 0 {
		options.PayloadBytes = 64
	}
	options.PayloadBytes = max(options.PayloadBytes, 8) // the sequence number
	if options.Interval == 0 {
		options.Interval = 10 * time.Millisecond
	}
	if options.Timeout == 0 {
		options.Timeout = PingTimeout
	}
	fd, err := connectUDP(options.Target)
	if err != nil {
		return nil, fmt.Errorf("ping %s: %w", options.Target, err)
	}
	return &Pinger{options: options, fd: fd}, nil
}

// Run pings until ctx ends, waits for the last answer or its timeout, and closes the socket; it can
// run once. The next datagram waits for the answer to the one before.
func (p *Pinger) Run(ctx context.Context) (PingResult, error) {
	type outcome struct {
		result PingResult
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		UrgentThread(PingPriority)
		defer unix.Close(p.fd)
		result, err := p.run(ctx)
		done <- outcome{result, err}
	}()
	o := <-done
	return o.result, o.err
}

func (p *Pinger) run(ctx context.Context) (PingResult, error) {
	var result PingResult
	request, answer := make([]byte, p.options.PayloadBytes), make([]byte, 1<<16)
	nextNS := MonotonicNS()
	for sequence := uint64(1); ctx.Err() == nil; sequence++ {
		sleepUntil(nextNS)
		binary.BigEndian.PutUint64(request, sequence)
		sentNS := MonotonicNS()
		nextNS = sentNS + p.options.Interval.Nanoseconds()
		if _, err := unix.Write(p.fd, request); err != nil && !temporary(err) {
			return result, fmt.Errorf("ping %s: %w", p.options.Target, err)
		}
		result.Sent++
		rtt, answered, err := p.await(sequence, sentNS, answer)
		switch {
		case err != nil:
			return result, fmt.Errorf("ping %s: %w", p.options.Target, err)
		case answered:
			result.RTTs = append(result.RTTs, rtt)
		default:
			result.Lost++
		}
	}
	return result, nil
}

func (p *Pinger) await(sequence uint64, sentNS int64, answer []byte) (rtt time.Duration, answered bool, err error) {
	for {
		n, err := unix.Read(p.fd, answer)
		rtt = time.Duration(MonotonicNS() - sentNS)
		if err == nil && n >= 8 && binary.BigEndian.Uint64(answer) == sequence {
			return rtt, true, nil
		}
		if err != nil && !temporary(err) {
			return 0, false, err
		}
		if rtt > p.options.Timeout {
			return 0, false, nil
		}
	}
}
