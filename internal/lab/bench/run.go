package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/traffic"
)

const (
	// StartDelay is the time between the last preparation and the start.
	StartDelay = 50 * time.Millisecond
	// seriesSlack is added to a series, for what is under way at the end.
	seriesSlack = 200 * time.Millisecond

	reactionBin  = time.Millisecond
	overshootBin = 100 * time.Microsecond
)

// observation is what was seen in one run of a case with one peer.
type observation struct {
	Disturbance // in the window
	Round       int
	Window      time.Duration
	// FromNS is when the window began, by CLOCK_MONOTONIC.
	FromNS int64
	// Arrived has one counter per container, of the window.
	Arrived []meter.Counter
	CPU     traffic.CPUTimes // in the window
	// IdleCPU is the fraction of all CPUs that was busy before the run,
	// without the peer; 0 for cases that are not about cost.
	IdleCPU float64
	Ping    traffic.PingResult
	// Seconds are the counters at the begin of the window and after each second of it, of what containers
	// receive.
	Seconds []reading
	// Agent is what the agent took in the window, and its memory at the end;
	// zero for cases that are not about it.
	Agent agentReading
	// TurnP99MS is the 99th percentile of the times between two turns of its control
	// loop in the window, and Scrapes are how long each took.
	TurnP99MS float64
	Scrapes   []time.Duration
	// Series starts with the run; empty for cases that need none.
	Series   [][]uint64
	BinWidth time.Duration
}

// timing is the plan of a run, from its start.
type timing struct {
	windowFrom, windowUntil time.Duration
	binWidth                time.Duration
	bins                    int
}

func (c Case) timing(options Options) timing {
	warmup := max(options.Warmup, c.MinWarmup)
	t := timing{windowFrom: warmup, windowUntil: warmup + max(options.Duration, c.MinDuration)}
	if c.Length > 0 {
		t.windowFrom, t.windowUntil = 0, c.Length
	}
	switch {
	case c.Measures.has(MeasureOvershoot):
		t.binWidth = overshootBin
	case c.Measures.has(MeasureReaction | MeasureTrace):
		t.binWidth = reactionBin
	default:
		return t
	}
	t.bins = int((StartDelay + t.windowUntil + seriesSlack) / t.binWidth)
	return t
}

// action is something to do at a time of a run.
type action struct {
	at time.Duration
	do func() error
}

// observe runs a case once, with its containers placed and a peer's policies
// in force.
func observe(ctx context.Context, b *Bed, c Case, p Peer, containers []Placed, options Options) (seen observation, err error) {
	plan := c.timing(options)
	count, newSender, err := b.newArrivals(c, containers, plan, options.Overload)
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, count.close()) }()

	senders, actions, err := prepareSenders(ctx, c, newSender)
	defer func() {
		for _, one := range senders {
			one.sender.Stop()
		}
	}()
	if err != nil {
		return seen, err
	}
	for _, change := range c.Changes {
		actions = append(actions, action{change.At, func() error { return p.change(ctx, containers, change) }})
	}
	counters := counters{arrivals: count}
	if c.Measures.has(MeasureAgent) {
		counters.agent, _ = p.(process)
	}
	if agent, ok := p.(*weir); ok {
		looking := b.watch(ctx, c, agent)
		defer func() {
			err = errors.Join(err, looking.end())
			seen.Scrapes = looking.scrapes
		}()
	}
	var from, until reading
	actions = append(actions,
		action{plan.windowFrom, func() (err error) { from, err = counters.read(); return err }},
		action{plan.windowUntil, func() (err error) { until, err = counters.read(); return err }})
	if received, ok := count.(*downloads); ok {
		actions = append(actions, received.everySecond(counters, &seen.Seconds)...)
	}
	if c.Measures.has(MeasureLatency) {
		ctx, cancel := context.WithCancel(ctx)
		pings := pings{bed: b, from: containers[0], ctx: ctx, cancel: cancel, result: &seen.Ping}
		defer func() { _ = pings.end() }() // its error is the action's
		actions = append(actions, action{plan.windowFrom, pings.begin}, action{plan.windowUntil, pings.end})
	}

	var originNS int64
	if plan.bins > 0 {
		if originNS, err = count.StartSeries(); err != nil {
			return seen, err
		}
	}
	startNS := traffic.MonotonicNS() + StartDelay.Nanoseconds()
	for _, one := range senders {
		one.sender.Start(startNS + one.from.Nanoseconds())
	}
	if err := perform(ctx, startNS, actions); err != nil {
		return seen, err
	}
	for _, one := range senders {
		if err := one.sender.Err(); err != nil {
			return seen, fmt.Errorf("send from container %s: %w", one.container, err)
		}
	}
	seen.between(from, until)
	if c.Incoming {
		seen.Seconds = slices.Insert(seen.Seconds, 0, from)
	}
	if plan.bins > 0 {
		err = seen.readSeries(count, int((startNS-originNS)/plan.binWidth.Nanoseconds()))
	}
	return seen, err
}

// counters are what is read at both ends of the window.
type counters struct {
	arrivals arrivals
	agent    process // nil where it does not matter
}

// reading is the state of the counters at one time.
type reading struct {
	meter.Snapshot
	CPU   traffic.CPUTimes
	Agent agentReading
}

func (c counters) read() (r reading, err error) {
	if r.CPU, err = traffic.ReadCPUTimes(); err != nil {
		return r, err
	}
	if c.agent != nil {
		if r.Agent, err = readAgent(c.agent); err != nil {
			return r, err
		}
	}
	r.Snapshot, err = c.arrivals.Snapshot()
	return r, err
}

func (o *observation) between(from, until reading) {
	o.FromNS = from.MonotonicNS
	o.Window = time.Duration(until.MonotonicNS - from.MonotonicNS)
	o.CPU = until.CPU.Sub(from.CPU)
	o.Agent = until.Agent
	o.Agent.CPU -= from.Agent.CPU
	o.TurnP99MS = turnP99MS(from.Agent.Turns, until.Agent.Turns)
	for i := range until.Slots {
		o.Arrived = append(o.Arrived, meter.Counter{
			Bytes:   until.Slots[i].Bytes - from.Slots[i].Bytes,
			Packets: until.Slots[i].Packets - from.Slots[i].Packets,
		})
	}
}

// readSeries takes the series without the bins before the run.
func (o *observation) readSeries(count arrivals, before int) error {
	series, err := count.Series()
	if err != nil {
		return err
	}
	o.BinWidth = series.BinWidth
	for _, row := range series.Bytes {
		o.Series = append(o.Series, row[min(before, len(row)):])
	}
	return nil
}

// checkPings returns an error for pings that tell nothing. With other peers, traffic may take all answers.
func (c Case) checkPings(peer string, seen traffic.PingResult) error {
	mayLose := seen.Lost > 0 && c.senders() > 0 && !strings.HasPrefix(peer, PeerWeir)
	if !c.Measures.has(MeasureLatency) || len(seen.RTTs) > 0 || mayLose {
		return nil
	}
	return fmt.Errorf("ping from container %s: none of %d had an answer", c.Containers[0].Name, seen.Sent)
}

// pings are round trips measured in the background.
type pings struct {
	bed    *Bed
	from   Placed
	ctx    context.Context // ends when the pings should
	cancel context.CancelFunc
	wait   sync.WaitGroup
	result *traffic.PingResult
	err    error
}

func (p *pings) begin() error {
	pinger, err := p.bed.newPinger(p.from)
	if err != nil {
		return err
	}
	p.wait.Go(func() { *p.result, p.err = pinger.Run(p.ctx) })
	return nil
}

// end waits for the pings and says what went wrong. It may be called twice.
func (p *pings) end() error {
	p.cancel()
	p.wait.Wait()
	return p.err
}

// plannedSender is a sender for one interval of a container's activity.
type plannedSender struct {
	sender    *traffic.Sender
	container string
	from      time.Duration
}

// newArrivals starts to count for a case, and returns how to make the sender of container i.
func (b *Bed) newArrivals(c Case, containers []Placed, plan timing, overload float64) (arrivals, senderMaker, error) {
	if c.Incoming {
		d, err := b.newDownloads(c, containers, plan)
		return d, func(ctx context.Context, i int) (*traffic.Sender, error) { return d.newSender(ctx, i, overload) }, err
	}
	count, err := b.NewMeter(len(containers), plan.bins, plan.binWidth)
	return sent{count, b.Host.PeerNetNSPath()}, func(ctx context.Context, i int) (*traffic.Sender, error) {
		return b.newSender(ctx, c, containers, i, overload)
	}, err
}

// senderMaker makes the sender of the container with an index.
type senderMaker func(ctx context.Context, i int) (*traffic.Sender, error)

// prepareSenders makes the senders of all containers and the actions that
// stop those that end before the run does.
func prepareSenders(ctx context.Context, c Case, newSender senderMaker) ([]plannedSender, []action, error) {
	var senders []plannedSender
	var actions []action
	for i, one := range c.Containers {
		if one.Load.Protocol == "" {
			continue
		}
		intervals := one.Load.Active
		if intervals == nil {
			intervals = []Interval{{From: 0}}
		}
		for _, interval := range intervals {
			sender, err := newSender(ctx, i)
			if err != nil {
				return senders, nil, err
			}
			senders = append(senders, plannedSender{sender, one.Name, interval.From})
			if interval.Until > 0 {
				actions = append(actions, action{interval.Until, func() error {
					sender.Stop()
					return nil
				}})
			}
		}
	}
	return senders, actions, nil
}

// perform does actions in the order of their times, of equal ones in the
// order given.
func perform(ctx context.Context, startNS int64, actions []action) error {
	slices.SortStableFunc(actions, func(x, y action) int { return cmp.Compare(x.at, y.at) })
	for _, one := range actions {
		if err := WaitUntil(ctx, startNS+one.at.Nanoseconds()); err != nil {
			return err
		}
		if err := one.do(); err != nil {
			return err
		}
	}
	return nil
}

// WaitUntil waits for a time of CLOCK_MONOTONIC.
func WaitUntil(ctx context.Context, atNS int64) error {
	timer := time.NewTimer(time.Duration(atNS - traffic.MonotonicNS()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// process is a peer that is a running program.
type process interface {
	// pid is its process.
	pid() int
	// startTime is how long it took until everything was in place.
	startTime() time.Duration
	// turns are how long after one another its control loop looked.
	turns() (v1.Turns, error)
}

// agentReading is what the agent took: up to now, or during a window.
type agentReading struct {
	CPU    time.Duration // run time of all its threads
	Memory measure.Memory
	Start  time.Duration
	Turns  v1.Turns
}

func readAgent(p process) (r agentReading, err error) {
	r.Start = p.startTime()
	if r.Turns, err = p.turns(); err != nil {
		return r, fmt.Errorf("read the turns of the agent's control loop: %w", err)
	}
	processes, err := measure.Family(p.pid())
	if err != nil {
		return r, err
	}
	for _, pid := range processes {
		ran, _, err := measure.ThreadTimes(pid)
		if err != nil {
			return r, err
		}
		r.CPU += ran
	}
	r.Memory, err = measure.MemoryOf(processes)
	return r, err
}
