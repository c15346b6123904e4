package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Port is three queues in front of a link, served by a program as package model says
// a port is, with real packets that arrive at random and leave over a real link.
//
// Packets arrive over the loopback interface, from a thread of their own, as a Poisson
// process; their sizes are exponential. The kernel stamps their arrival. The server
// works in time that these stamps and the ends of service make: if it is late, what
// it decides is what it would have decided in time, and only the packet leaves late.
// How late is part of the result.
//
// Both threads run before everything else (SCHED_FIFO), and the server spins for the
// last moment before a packet's end, as timers are later than that.

// PortOptions say what arrives at a port and how it is served.
type PortOptions struct {
	// Target is the receiver of EF; AF and BE go to the next ports.
	Target netip.AddrPort
	// ArrivalPPS are packets a second, MeanBytes their mean size on the wire.
	ArrivalPPS [PortQueues]float64
	MeanBytes  float64
	// FixedSize gives all packets that size.
	FixedSize bool
	// ServiceBPS, Places (the one in service included) and PollPerSecond are the
	// server's.
	ServiceBPS    [PortQueues]float64
	Places        [PortQueues]int
	PollPerSecond float64
	// Direct sends without the server, with these SO_PRIORITYs: for a queueing
	// discipline that does its work.
	Direct []int
	Seed   uint64
	// Duration is counted after Warmup.
	Warmup, Duration time.Duration
}

// PortResult is what a port did in the time that is counted.
type PortResult struct {
	// FromNS and UntilNS are that time, of CLOCK_REALTIME.
	FromNS  int64 `json:"from_ns"`
	UntilNS int64 `json:"until_ns"`
	// Arrived are packets that came to each queue, Lost those that found it full,
	// and Sent those that left.
	Arrived [PortQueues]uint64 `json:"arrived"`
	Lost    [PortQueues]uint64 `json:"lost"`
	Sent    [PortQueues]uint64 `json:"sent"`
	// ArrivedBytes are on the wire. GapVariation is the standard deviation of the
	// times between arrivals over their mean: 1 for a Poisson process.
	ArrivedBytes uint64  `json:"arrived_bytes"`
	GapVariation float64 `json:"gap_variation"`
	// WaitNS is the mean time from arrival to the end of service by the server's
	// clock; LateNS the mean by which packets left later than that, MaxLateNS the
	// most.
	WaitNS    [PortQueues]float64 `json:"wait_ns"`
	LateNS    [PortQueues]float64 `json:"late_ns"`
	MaxLateNS int64               `json:"max_late_ns"`
}

const (
	// portHeaderBytes is what a packet of a port carries: a timed datagram's header
	// and its queue.
	portHeaderBytes = TimedHeaderBytes + 1
	// portWireBytes are the headers on the wire (Ethernet, IPv4, UDP).
	portWireBytes = ethernetHeaderBytes + ipv4HeaderBytes + udpHeaderBytes
	// portMaxBytes is the largest packet, less than an IPv4 packet may have.
	portMaxBytes = 60000
	// portSpin is how long before a packet's end the server no longer sleeps.
	portSpin = 120 * time.Microsecond
)

func (o PortOptions) check() error {
	if !o.Target.Addr().Is4() {
		return fmt.Errorf("the port's receiver %s has no IPv4 address", o.Target)
	}
	if o.MeanBytes < 4*(portWireBytes+portHeaderBytes) || o.MeanBytes > portMaxBytes/7 {
		return fmt.Errorf("packets of %g bytes: choose %d to %d", o.MeanBytes, 4*(portWireBytes+portHeaderBytes), portMaxBytes/7)
	}
	if len(o.Direct) > 0 && len(o.Direct) != PortQueues {
		return fmt.Errorf("%d priorities for %d queues", len(o.Direct), PortQueues)
	}
	for q := range PortQueues {
		if !(o.ArrivalPPS[q] >= 0) || !(o.ServiceBPS[q] > 0) || o.Places[q] < 1 {
			return fmt.Errorf("queue %d has %g packets a second, %g bit/s and %d places", q, o.ArrivalPPS[q], o.ServiceBPS[q], o.Places[q])
		}
	}
	if !(o.PollPerSecond > 0) || o.Duration <= 0 || o.Warmup < 0 {
		return errors.New("polling and duration must be positive, the warm-up not negative")
	}
	if sum := o.ArrivalPPS[portEF] + o.ArrivalPPS[portAF] + o.ArrivalPPS[portBE]; !(sum > 0) {
		return errors.New("nothing arrives at any queue")
	}
	return nil
}

// RunPort runs a port in the calling process's network namespace until its time is
// over or ctx ends.
func RunPort(ctx context.Context, o PortOptions) (PortResult, error) {
	if err := o.check(); err != nil {
		return PortResult{}, err
	}
	fromNS := RealtimeNS() + o.Warmup.Nanoseconds()
	r := &portRun{options: o, result: PortResult{FromNS: fromNS, UntilNS: fromNS + o.Duration.Nanoseconds()}}
	if err := r.open(); err != nil {
		return PortResult{}, errors.Join(err, r.close())
	}
	var wait sync.WaitGroup
	var failures [2]error
	wait.Go(func() { failures[0] = r.arrivals(ctx) })
	if len(o.Direct) == 0 {
		wait.Go(func() { failures[1] = r.serve() })
	}
	wait.Wait()
	if err := errors.Join(failures[0], failures[1], ctx.Err(), r.close()); err != nil {
		return PortResult{}, err
	}
	for q, sent := range r.result.Sent {
		r.result.WaitNS[q] /= max(1, float64(sent))
		r.result.LateNS[q] /= max(1, float64(sent))
	}
	return r.result, nil
}

// portRun is a port at work.
type portRun struct {
	options PortOptions
	result  PortResult
	// out are the sockets towards the receiver, one for each queue. in takes
	// arrivals, which loop sends.
	out      [PortQueues]int
	in, loop int
	over     atomic.Bool // no more arrivals
	sequence [PortQueues]uint64
}

func (r *portRun) open() (err error) {
	r.in, r.loop = -1, -1
	for q := range r.out {
		r.out[q] = -1
	}
	for q := range r.out {
		to := netip.AddrPortFrom(r.options.Target.Addr(), r.options.Target.Port()+uint16(q))
		if r.out[q], err = connectUDP(to); err != nil {
			return fmt.Errorf("send to %s: %w", to, err)
		}
		if len(r.options.Direct) > 0 {
			if err := unix.SetsockoptInt(r.out[q], unix.SOL_SOCKET, unix.SO_PRIORITY, r.options.Direct[q]); err != nil {
				return os.NewSyscallError("setsockopt", err)
			}
		}
	}
	if len(r.options.Direct) > 0 {
		return nil
	}
	if r.in, err = timedSocket(0); err != nil {
		return fmt.Errorf("open the port: %w", err)
	}
	name, err := unix.Getsockname(r.in)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	inet, ok := name.(*unix.SockaddrInet6)
	if !ok {
		return errors.New("the port's socket has no IPv6 address")
	}
	r.loop, err = connectUDP(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(inet.Port)))
	return err
}

func (r *portRun) close() error {
	for _, fd := range append(r.out[:], r.in, r.loop) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// arrivals sends packets at random: the three Poisson processes together are one, each
// of whose packets belongs to a queue by chance.
func (r *portRun) arrivals(ctx context.Context) error {
	UrgentThread(PingPriority)
	defer r.over.Store(true)
	o := r.options
	random := rand.New(rand.NewPCG(o.Seed, 1))
	sum := o.ArrivalPPS[portEF] + o.ArrivalPPS[portAF] + o.ArrivalPPS[portBE]
	payload := make([]byte, portMaxBytes)
	var gaps gapStatistics
	offsetNS := RealtimeNS() - MonotonicNS()
	dueNS := MonotonicNS()
	for ctx.Err() == nil {
		dueNS += int64(random.ExpFloat64() * 1e9 / sum)
		now := MonotonicNS()
		if now < dueNS {
			sleepUntil(dueNS)
		} else if now-dueNS > timedDebt.Nanoseconds() {
			dueNS = now // what the machine did not let arrive is not made up for
		}
		now = MonotonicNS() + offsetNS
		if now >= r.result.UntilNS {
			break
		}
		queue, size := o.pick(random, sum)
		payload[TimedHeaderBytes] = byte(queue)
		StampTimed(payload, RealtimeNS(), r.sequence[queue])
		r.sequence[queue]++
		fd := r.loop
		if len(o.Direct) > 0 {
			fd = r.out[queue]
			if now >= r.result.FromNS {
				r.result.Arrived[queue]++
				r.result.ArrivedBytes += uint64(size)
			}
		}
		if now >= r.result.FromNS {
			gaps.add(now)
		}
		if _, err := unix.Write(fd, payload[:size-portWireBytes]); err != nil && !temporary(err) {
			return os.NewSyscallError("write", err)
		}
	}
	r.result.GapVariation = gaps.variation()
	return nil
}

// pick is the next packet's queue and its size on the wire.
func (o PortOptions) pick(random *rand.Rand, sum float64) (queue, bytes int) {
	for at := random.Float64() * sum; queue < portBE && at >= o.ArrivalPPS[queue]; queue++ {
		at -= o.ArrivalPPS[queue]
	}
	if o.FixedSize {
		return queue, int(o.MeanBytes)
	}
	bytes = int(math.Round(random.ExpFloat64() * o.MeanBytes))
	return queue, min(max(bytes, portWireBytes+portHeaderBytes), portMaxBytes)
}

// gapStatistics are those of times between arrivals.
type gapStatistics struct {
	lastNS             int64
	count, sum, square float64
}

func (g *gapStatistics) add(nowNS int64) {
	if g.lastNS > 0 {
		gap := float64(nowNS - g.lastNS)
		g.count++
		g.sum += gap
		g.square += gap * gap
	}
	g.lastNS = nowNS
}

// variation is the standard deviation over the mean; 0 of no gaps.
func (g *gapStatistics) variation() float64 {
	if g.sum == 0 {
		return 0
	}
	mean := g.sum / g.count
	return math.Sqrt(max(0, g.square/g.count-mean*mean)) / mean
}

// serve is the server: it takes packets in, keeps the queues and sends on time.
func (r *portRun) serve() error {
	UrgentThread(PingPriority)
	queues := newPortQueues(r.options, RealtimeNS())
	buffer, control, payload := make([]byte, 1<<16), make([]byte, 256), make([]byte, portMaxBytes)
	var failure error
	lastNS := int64(0)
	send := func(d departure) {
		StampTimed(payload, d.arrivedNS, d.sequence)
		if _, err := unix.Write(r.out[d.queue], payload[:d.bytes-portWireBytes]); err != nil && !temporary(err) {
			failure = os.NewSyscallError("write", err)
		}
		r.count(d, RealtimeNS())
	}
	for failure == nil {
		nowNS := RealtimeNS()
		for {
			n, controlBytes, _, _, err := unix.Recvmsg(r.in, buffer, control, unix.MSG_DONTWAIT)
			if err != nil || n < portHeaderBytes || buffer[TimedHeaderBytes] >= PortQueues {
				break
			}
			stamp, overruns := parseStamp(control[:controlBytes])
			if overruns > 0 {
				return fmt.Errorf("the port's socket lost %d packets: the server did not run", overruns)
			}
			// A stamp is taken before the packet is in the socket, so one may be
			// older than what was done already.
			stamp = max(stamp, lastNS)
			lastNS = stamp
			queues.advance(stamp, send)
			r.takeIn(queues, int(buffer[TimedHeaderBytes]), portPacket{stamp, binary.BigEndian.Uint64(buffer[8:]), n + portWireBytes})
		}
		queues.advance(nowNS, send)
		lastNS = max(lastNS, nowNS)
		if queues.serves == portIdle {
			if r.over.Load() {
				return failure
			}
			r.await()
			continue
		}
		r.sleep(queues.endsNS)
	}
	return failure
}

// takeIn counts an arrival and hands it to the queues.
func (r *portRun) takeIn(queues *portQueues, queue int, one portPacket) {
	lost := queues.lost[queue]
	queues.arrive(queue, one)
	if one.arrivedNS < r.result.FromNS || one.arrivedNS >= r.result.UntilNS {
		return
	}
	r.result.Arrived[queue]++
	r.result.ArrivedBytes += uint64(one.bytes)
	r.result.Lost[queue] += queues.lost[queue] - lost
}

// count counts a packet that left at a time.
func (r *portRun) count(d departure, leftNS int64) {
	if d.arrivedNS < r.result.FromNS || d.arrivedNS >= r.result.UntilNS {
		return
	}
	r.result.Sent[d.queue]++
	r.result.WaitNS[d.queue] += float64(d.atNS - d.arrivedNS)
	r.result.LateNS[d.queue] += float64(leftNS - d.atNS)
	r.result.MaxLateNS = max(r.result.MaxLateNS, leftNS-d.atNS)
}

// await waits for an arrival, for a tenth of a second at most.
func (r *portRun) await() {
	poll := []unix.PollFd{{Fd: int32(r.in), Events: unix.POLLIN}}
	_, _ = unix.Poll(poll, int(sendTimeout.Milliseconds())) // however it ends
}

// sleep waits until shortly before a time of CLOCK_REALTIME, and then by spinning.
func (r *portRun) sleep(untilNS int64) {
	if ahead := untilNS - RealtimeNS() - portSpin.Nanoseconds(); ahead > 0 {
		sleepUntil(MonotonicNS() + ahead)
	}
	for RealtimeNS() < untilNS {
	}
}
