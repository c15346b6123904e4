package netmodes

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// runner runs cases of the suite on a bed.
type runner struct {
	*bench.Recorder[Case, observation]
	options                   Options
	bed                       *bench.Bed
	unavailable, uncontrolled map[string]string
}

// observation is what was seen in one run.
type observation struct {
	Window  time.Duration
	Arrived meter.Counter // of all containers
	CPU     traffic.CPUTimes
	Softirq time.Duration
	// Use is that of all sending threads, for a second.
	Use perSecond
	// Missing says which performance counters there are not, and why.
	Missing string
	bench.Disturbance
}

// perSecond is what threads took, for each second; nil is not counted.
type perSecond struct {
	CPU, Switches, Faults            float64
	Migrations, Cycles, Instructions *float64
}

// runSetting sets a link, containers and, where it takes part, the agent up and
// runs the cases that have these in common.
func (r *runner) runSetting(ctx context.Context, cases []Case) error {
	first := cases[0]
	if r.unavailable[first.Mode] != "" || first.Agent && r.uncontrolled[first.Mode] != "" {
		return nil
	}
	if err := r.Clear(); err != nil {
		return r.FailSetting(ctx, err, cases...)
	}
	containers, err := r.place(ctx, first)
	if err != nil {
		return r.leaveOut(ctx, err, cases)
	}
	link := bench.Case{LinkBPS: first.LinkBPS, Mode: first.testbedMode()}
	name, controlled := bench.PeerNone, containers
	if first.Agent {
		name = bench.PeerWeir
		if first.Mode == Native {
			controlled = nil // the agent has no container to control
		}
	}
	shaper, err := bench.NewPeer(ctx, name, bench.Options{RunOptions: r.options.RunOptions})
	if err != nil {
		return r.FailSetting(ctx, err, cases...)
	}
	defer func() {
		_ = r.Clear(func() error { // its error is the next setting's
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			return shaper.Remove(ctx, r.bed, controlled)
		})
	}()
	if err := shaper.Apply(ctx, r.bed, link, controlled); err != nil {
		if ctx.Err() != nil || !first.Agent || r.controlled(first.Mode) {
			return r.FailSetting(ctx, err, cases...)
		}
		r.uncontrolled[first.Mode] = err.Error()
		fmt.Fprintf(r.options.Progress, "  left out: %v\n", err)
		return nil
	}
	for _, c := range cases {
		err := r.Run(ctx, c, c.settingName()+", "+c.what(), r.options.Warmup+r.options.Duration, func() (observation, error) {
			return r.observeInTime(ctx, c, containers)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// leaveOut leaves out a mode for which the kernel has no driver. Any other error is one of the runs of cases, and not of the mode.
func (r *runner) leaveOut(ctx context.Context, err error, cases []Case) error {
	if !errors.Is(err, testbed.ErrNoIPvlan) {
		return r.FailSetting(ctx, err, cases...)
	}
	r.unavailable[cases[0].Mode] = err.Error()
	fmt.Fprintf(r.options.Progress, "  left out: %v\n", err)
	return nil
}

// controlled reports whether a mode was measured with the agent before, also by an interrupted process: then a failure is one of a
// run, and not of the mode.
func (r *runner) controlled(mode string) bool {
	return slices.ContainsFunc(r.options.cases(), func(c Case) bool { return c.Mode == mode && c.Agent && r.HasObserved(c) })
}

// place makes the containers of a setting, or stands native processes in.
func (r *runner) place(ctx context.Context, c Case) ([]bench.Placed, error) {
	host := r.bed.Host
	if c.Mode == Native {
		native := bench.Placed{Mode: testbed.ModeHost, NetNSPath: host.NetNSPath(), PeerAddress: host.PeerAddr, MTUBytes: bench.EthernetMTUBytes}
		containers := make([]bench.Placed, c.Containers)
		for i := range containers {
			containers[i] = native
		}
		return containers, nil
	}
	asked := bench.Case{Mode: c.testbedMode()}
	for i := range c.Containers {
		asked.Containers = append(asked.Containers, bench.Container{Name: fmt.Sprintf("C%d", i+1), Policy: bench.Policy{Weight: 1}})
	}
	containers, _, err := r.bed.Place(ctx, asked)
	return containers, err
}

// observeInTime runs a case once, and again if its counters were read too late to say
// anything.
func (r *runner) observeInTime(ctx context.Context, c Case, containers []bench.Placed) (observation, error) {
	for attempt := 1; ; attempt++ {
		seen, err := r.observe(ctx, c, containers)
		if !errors.Is(err, errLateReading) || attempt == measure.MaxAttempts {
			return seen, err
		}
		r.Repeated++
	}
}

// streamProcess is a sender in a process of its own.
type streamProcess struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
	stderr bytes.Buffer
}

// containerNamespaces are what a container has to itself beside its network.
const containerNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// startStream starts the sender of container i and waits until it is connected.
func (r *runner) startStream(ctx context.Context, c Case, one bench.Placed, i int) (*streamProcess, error) {
	target := netip.AddrPortFrom(one.PeerAddress, bench.BasePort+uint16(i))
	s := &streamProcess{cmd: exec.CommandContext(ctx, "nsenter", "--net="+one.NetNSPath, "--", testbed.LabProgram(r.options.WeirBinary), "traffic", "stream",
		"--to", target.String(), "--protocol", string(c.Protocol), "--bytes", strconv.Itoa(c.MessageBytes),
		"--warmup", r.options.Warmup.String(), "--duration", r.options.Duration.String())}
	s.cmd.Stderr = &s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.Mode != Native {
		s.cmd.SysProcAttr.Cloneflags = containerNamespaces
	}
	if one.CgroupPath != "" {
		dir, err := os.Open(one.CgroupPath)
		if err != nil {
			return nil, fmt.Errorf("open the container's cgroup: %w", err)
		}
		defer dir.Close()
		s.cmd.SysProcAttr.UseCgroupFD, s.cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	var err error
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.output = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a sender: %w", err)
	}
	if line, err := s.output.ReadString('\n'); err != nil || line != traffic.StreamReady {
		_ = s.cmd.Process.Kill()
		return nil, fmt.Errorf("start a sender: it said %q: %w", line, s.end())
	}
	return s, nil
}

// end waits for a sender's end and adds what it complained about.
func (s *streamProcess) end() error {
	_ = s.input.Close()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(s.stderr.String()))
	}
	return nil
}

// observe runs a case once.
func (r *runner) observe(ctx context.Context, c Case, containers []bench.Placed) (seen observation, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+r.options.Warmup+r.options.Duration)
	var senders []*streamProcess
	defer func() {
		cancel()
		for _, one := range senders {
			_ = one.end() // killed by us: the error is what made us
		}
	}()
	count, err := r.bed.NewMeter(len(containers), 0, 0)
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, testbed.InNetNS(r.bed.Host.PeerNetNSPath(), count.Close)) }()
	for i, one := range containers {
		sender, err := r.startStream(ctx, c, one, i)
		if err != nil {
			return seen, err
		}
		senders = append(senders, sender)
	}
	startNS := traffic.MonotonicNS() + bench.StartDelay.Nanoseconds()
	for _, one := range senders {
		if _, err := fmt.Fprintln(one.input, startNS); err != nil {
			return seen, fmt.Errorf("start a sender: %w", err)
		}
	}
	if err := r.watch(ctx, startNS, count, &seen); err != nil {
		return seen, err
	}
	for _, one := range senders {
		var result traffic.StreamResult
		if err := json.NewDecoder(one.output).Decode(&result); err != nil {
			return seen, fmt.Errorf("read a sender's result: %w", err)
		}
		seen.Missing = cmp.Or(seen.Missing, result.Missing)
		seen.Use.add(result)
	}
	for _, one := range senders {
		err = errors.Join(err, one.end())
	}
	senders = nil
	return seen, errors.Join(err, drain(ctx, count))
}

// errLateReading is a run whose counters were not read when they should have been.
var errLateReading = errors.New("the machine was too busy to read the counters in time")

// watch counts what arrives, and what the machine does, in the window.
func (r *runner) watch(ctx context.Context, startNS int64, count *meter.Meter, seen *observation) error {
	fromNS := startNS + r.options.Warmup.Nanoseconds()
	untilNS := fromNS + r.options.Duration.Nanoseconds()
	from, err := readCountersAt(ctx, count, fromNS)
	if err != nil {
		return err
	}
	until, err := readCountersAt(ctx, count, untilNS)
	if err != nil {
		return err
	}
	seen.Window = time.Duration(until.MonotonicNS - from.MonotonicNS)
	if late := max(from.MonotonicNS-fromNS, until.MonotonicNS-untilNS); late > r.options.Duration.Nanoseconds()/10 {
		return fmt.Errorf("%w: %v late", errLateReading, time.Duration(late).Round(time.Millisecond))
	}
	seen.CPU, seen.Softirq = until.cpu.Sub(from.cpu), until.softirq-from.softirq
	for i := range until.Slots {
		seen.Arrived.Bytes += until.Slots[i].Bytes - from.Slots[i].Bytes
		seen.Arrived.Packets += until.Slots[i].Packets - from.Slots[i].Packets
	}
	seen.Pause = r.Longest(from.MonotonicNS, until.MonotonicNS)
	return nil
}

// readCountersAt waits for a time of CLOCK_MONOTONIC and reads, before any other
// thread that is due then.
func readCountersAt(ctx context.Context, count *meter.Meter, atNS int64) (reading counters, err error) {
	const ahead = 20 * time.Millisecond
	if err := bench.WaitUntil(ctx, atNS-ahead.Nanoseconds()); err != nil {
		return reading, err
	}
	traffic.Urgently(func() {
		traffic.SleepUntil(atNS)
		reading, err = readCounters(count)
	})
	return reading, err
}

// drain waits until nothing arrives any more: what a flood left in the link's
// queue would be counted for the next run.
func drain(ctx context.Context, count *meter.Meter) error {
	const quiet, patience = 30 * time.Millisecond, 5 * time.Second
	var last uint64
	for deadline := traffic.MonotonicNS() + patience.Nanoseconds(); traffic.MonotonicNS() < deadline; {
		seen, err := count.Snapshot()
		if err != nil {
			return err
		}
		sum := uint64(0)
		for _, slot := range seen.Slots {
			sum += slot.Packets
		}
		if sum == last {
			return nil
		}
		last = sum
		if err := bench.WaitUntil(ctx, traffic.MonotonicNS()+quiet.Nanoseconds()); err != nil {
			return err
		}
	}
	return fmt.Errorf("the link is still sending %v after the senders ended", patience)
}

// counters is the state of the counters at one time.
type counters struct {
	meter.Snapshot
	cpu     traffic.CPUTimes
	softirq time.Duration
}

func readCounters(count *meter.Meter) (r counters, err error) {
	if r.cpu, err = traffic.ReadCPUTimes(); err != nil {
		return r, err
	}
	text, err := os.ReadFile("/proc/stat")
	if err == nil {
		r.softirq, err = parseSoftirq(string(text))
	}
	if err != nil {
		return r, fmt.Errorf("read softirq time: %w", err)
	}
	r.Snapshot, err = count.Snapshot()
	return r, err
}

// parseSoftirq reads the time that all processors spent in softirqs, the seventh
// number of the first line of /proc/stat, in ticks of 10 ms (proc(5)).
func parseSoftirq(stat string) (time.Duration, error) {
	const tick, field = 10 * time.Millisecond, 7
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) <= field || fields[0] != "cpu" {
		return 0, fmt.Errorf("unexpected line %q", line)
	}
	ticks, err := strconv.ParseInt(fields[field], 10, 64)
	return time.Duration(ticks) * tick, err
}

// add adds what a sender took.
func (p *perSecond) add(result traffic.StreamResult) {
	seconds := time.Duration(max(result.WindowNS, 1)).Seconds()
	use := result.Use
	p.CPU += (use.User + use.System).Seconds() / seconds
	p.Switches += float64(use.Switches) / seconds
	p.Faults += float64(use.Faults) / seconds
	addCount(&p.Migrations, use.Migrations, seconds)
	addCount(&p.Cycles, use.Cycles, seconds)
	addCount(&p.Instructions, use.Instructions, seconds)
}

// addCount adds a counter that may not be there.
func addCount(to **float64, value *uint64, seconds float64) {
	if value == nil {
		return
	}
	if *to == nil {
		*to = new(float64)
	}
	**to += float64(*value) / seconds
}
