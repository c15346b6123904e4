package sdn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// processors says where the load runs, and where a controller.
type processors struct {
	load       int    // -1: they share all
	controller string // a list for taskset
	taskset    string
}

func sharing() processors { return processors{load: -1} }

// setApart gives the load the first processor and controllers the others, if there is more than one.
func setApart() (processors, error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return sharing(), fmt.Errorf("list the processors: %w", err)
	}
	var numbers []string
	apart := sharing()
	for cpu := range 8 * int(unsafe.Sizeof(all)) {
		switch {
		case !all.IsSet(cpu):
		case apart.load < 0:
			apart.load = cpu
		default:
			numbers = append(numbers, strconv.Itoa(cpu))
		}
	}
	if len(numbers) == 0 {
		return sharing(), nil
	}
	apart.controller = strings.Join(numbers, ",")
	var err error
	if apart.taskset, err = exec.LookPath("taskset"); err != nil {
		return sharing(), fmt.Errorf("pin the controller: %w", err)
	}
	return apart, nil
}

// playedSwitches are switches with two ports each, with a host at both. One thread plays all
// of them, so that the controller has the other processors. A paced run sends packet-ins when
// they are due, answered or not, and delays count from then to the kernel's time stamp of
// the answer: a slow controller gets no less load, and a late reader is not its delay.
type playedSwitches struct {
	switches  []*loadSwitch
	processor int // of its own, or -1
	epoll     int
	events    []unix.EpollEvent
	ready     []*loadSwitch
	buffer    []byte // what is read
	control   []byte // and when it came
	lateNS    []int64
}

// loadResult is the result of a load run.
type loadResult struct {
	answers, flowMods int
	took              time.Duration
	// delays are the times from a packet-in's due time to its answer, late the times by which
	// packet-ins were sent after they were due.
	delays, late []int64
}

// quantileMS is a quantile of times in nanoseconds, which it sorts.
func quantileMS(timesNS []int64, q float64) float64 {
	if len(timesNS) == 0 {
		return 0
	}
	slices.Sort(timesNS)
	return float64(timesNS[min(int(q*float64(len(timesNS))), len(timesNS)-1)]) / 1e6
}

// nowNS is the time of the clock that the kernel's time stamps have.
func nowNS() int64 { return time.Now().UnixNano() }

// connect connects switches until there are n.
func (l *playedSwitches) connect(address string, n int) (err error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if l.switches == nil {
		if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			return fmt.Errorf("make an epoll: %w", err)
		}
		l.switches, l.events = make([]*loadSwitch, 0, n), make([]unix.EpollEvent, n)
		l.buffer, l.control = make([]byte, 1<<16), make([]byte, unix.CmsgSpace(timestampBytes))
	}
	for len(l.switches) < n {
		s := &loadSwitch{dpid: uint64(len(l.switches) + 1), keeps: 2 * memoryFlows / n}
		for i := range 2 {
			s.ports = append(s.ports, openflow.PortDesc{PortNo: openflow.Port(i + 1), Name: fmt.Sprintf("p%d", i+1), HWAddr: s.mac(i + 3)})
		}
		if s.fd, err = dial(to); err != nil {
			return err
		}
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(len(l.switches))}
		l.switches = append(l.switches, s)
		if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, s.fd, &event); err != nil {
			return fmt.Errorf("wait for the controller: %w", err)
		}
		if err := errors.Join(s.say(openflow.NewHello()), s.flush()); err != nil {
			return err
		}
	}
	return nil
}

// dial makes a connection that notes when something came.
func dial(to netip.AddrPort) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fd, fmt.Errorf("make a socket: %w", err)
	}
	if err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err == nil {
		err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS_NEW, 1), unix.SetNonblock(fd, true))
	}
	if err != nil {
		unix.Close(fd)
		return fd, fmt.Errorf("connect to %v: %w", to, err)
	}
	return fd, nil
}

func (l *playedSwitches) close() {
	for _, s := range l.switches {
		unix.Close(s.fd)
	}
	if l.switches != nil {
		unix.Close(l.epoll)
	}
}

// flush sends queued bytes; the rest is sent after the controller has sent more.
func (s *loadSwitch) flush() error {
	for len(s.out) > 0 {
		n, err := rawCall(unix.SYS_WRITE, uintptr(s.fd), uintptr(unsafe.Pointer(&s.out[0])), uintptr(len(s.out)), 0)
		switch err {
		case 0:
			s.out = append(s.out[:0], s.out[n:]...)
		case unix.EINTR:
		case unix.EAGAIN:
			return nil
		default:
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// receive reads what arrives within wait and returns the switches concerned.
func (l *playedSwitches) receive(wait time.Duration) ([]*loadSwitch, error) {
	n, err := rawCall(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll), uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), uintptr(wait/time.Millisecond))
	if err != 0 && err != unix.EINTR {
		return nil, fmt.Errorf("wait for the controller: %w", err)
	}
	l.ready = l.ready[:0]
	for _, event := range l.events[:max(n, 0)] {
		s := l.switches[event.Fd]
		l.ready = append(l.ready, s)
		if err := l.read(s); err != nil {
			return nil, err
		}
	}
	return l.ready, nil
}

func (l *playedSwitches) read(s *loadSwitch) error {
	into := unix.Iovec{Base: &l.buffer[0]}
	into.SetLen(len(l.buffer))
	message := unix.Msghdr{Iov: &into, Iovlen: 1, Control: &l.control[0]}
	message.SetControllen(len(l.control))
	n, err := rawCall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&message)), 0, 0)
	switch {
	case err == unix.EAGAIN, err == unix.EINTR:
		return nil
	case err != 0:
		return fmt.Errorf("receive: %w", err)
	case n == 0:
		return errors.New("it closed a connection")
	}
	if err := s.takeAll(l.buffer[:n], cameNS(l.control[:message.Controllen])); err != nil {
		return err
	}
	return s.flush()
}

// timestampBytes is the length of __kernel_timespec.
const timestampBytes = 16

// cameNS is when the last of the bytes came that were read with a control message; now,
// where the kernel has noted nothing.
func cameNS(control []byte) int64 {
	for len(control) >= unix.CmsgLen(timestampBytes) {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if header.Level == unix.SOL_SOCKET && header.Type == unix.SO_TIMESTAMPNS_NEW && len(data) >= timestampBytes {
			return int64(binary.NativeEndian.Uint64(data))*1e9 + int64(binary.NativeEndian.Uint64(data[8:]))
		}
		control = rest
	}
	return nowNS()
}

// play answers the controller's mandatory requests for a duration.
func (l *playedSwitches) play(d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := l.receive(10 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// introduce makes every host send once.
func (l *playedSwitches) introduce() error {
	for _, s := range l.switches {
		if err := errors.Join(s.introduce(), s.flush()); err != nil {
			return err
		}
	}
	return l.play(500 * time.Millisecond)
}

// run sends load for a duration: with a window of unanswered packet-ins per switch, or at a total
// rate per second.
func (l *playedSwitches) run(ctx context.Context, duration time.Duration, perSecond float64) (*loadResult, error) {
	defer measure.AlwaysScheduled()()
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	for _, s := range l.switches {
		s.reset()
	}
	l.lateNS = nil
	failed := make(chan error)
	begin, took := time.Now(), duration
	go func() { // on a thread that ends with the goroutine
		err := l.takeProcessor()
		if err == nil && perSecond > 0 {
			err = l.sendPaced(ctx, float64(time.Second)/perSecond)
		} else if err == nil {
			err = l.closedLoop(ctx)
		}
		took = time.Since(begin)
		failed <- err
	}()
	err := <-failed
	r := l.collect(took)
	if err := errors.Join(err, l.drain()); err != nil {
		return nil, err
	}
	if r.answers == 0 {
		return nil, errors.New("no packet-in was answered")
	}
	r.late = l.lateNS
	for _, s := range l.switches { // also of those that took longest
		r.delays = append(r.delays, s.delaysNS...)
	}
	return r, nil
}

func (l *playedSwitches) closedLoop(ctx context.Context) error {
	answered := map[*loadSwitch]int{}
	for _, s := range l.switches {
		s.open(window, nowNS())
		if err := s.flush(); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		ready, err := l.receive(10 * time.Millisecond)
		if err != nil {
			return err
		}
		for _, s := range ready {
			if n := s.answers - answered[s]; n > 0 {
				answered[s] = s.answers
				s.open(n, nowNS())
				if err := s.flush(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pace is how often a paced run sends what is due.
const pace = 100 * time.Microsecond

// takeProcessor ties the goroutine to a thread that runs before all others, where that may be, and
// to the processor of the load.
func (l *playedSwitches) takeProcessor() error {
	traffic.UrgentThread(traffic.PingPriority)
	if l.processor < 0 {
		return nil
	}
	var one unix.CPUSet
	one.Set(l.processor)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("run on processor %d: %w", l.processor, err)
	}
	return nil
}

// rawCall makes a system call that Go's scheduler does not see. A thread that it sees may have to
// wait for one without priority, which the processor does not get to meanwhile: up to 0.95 s.
//
//go:uintptrescapes
func rawCall(call, a, b, c, d uintptr) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(call, a, b, c, d, 0, 0)
	return int(n), errno
}

// sendPaced sends packet-ins of all switches, each of a random one, at random times (a Poisson
// process): as switches do that know nothing of one another. It waits for no answer.
func (l *playedSwitches) sendPaced(ctx context.Context, meanNS float64) error {
	random := rand.New(rand.NewPCG(1, 2))
	var opened []*loadSwitch
	begin := nowNS()
	next := random.ExpFloat64() * meanNS
	for due := begin; ctx.Err() == nil; due += int64(pace) {
		for wait := due - nowNS(); wait > 0; wait = due - nowNS() {
			sleep := unix.NsecToTimespec(wait)
			_, _ = rawCall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&sleep)), 0, 0, 0) // a signal may end it
		}
		opened = opened[:0]
		for ; next <= float64(due-begin); next += random.ExpFloat64() * meanNS {
			s := l.switches[random.IntN(len(l.switches))]
			s.open(1, begin+int64(next))
			opened = append(opened, s)
		}
		for _, s := range opened {
			if err := s.flush(); err != nil {
				return err
			}
			l.lateNS = append(l.lateNS, nowNS()-due)
		}
		if _, err := l.receive(0); err != nil {
			return err
		}
	}
	return nil
}

// exactly sends n new flows from each switch and waits for the answers.
func (l *playedSwitches) exactly(n int) error {
	for _, s := range l.switches {
		s.reset()
		s.open(n, nowNS())
		if err := s.flush(); err != nil {
			return err
		}
	}
	return l.drain()
}

// drain waits until no packet-in is unanswered.
func (l *playedSwitches) drain() error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if !slices.ContainsFunc(l.switches, func(s *loadSwitch) bool { return s.waiting() > 0 }) {
			return nil
		}
		if _, err := l.receive(10 * time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("packet-ins are still unanswered after 20 s")
}

func (l *playedSwitches) collect(took time.Duration) *loadResult {
	r := &loadResult{took: took}
	for _, s := range l.switches {
		r.answers += s.answers
		r.flowMods += s.flowMods
	}
	return r
}
