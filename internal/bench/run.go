package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/meter"
	"github.com/weir-project/weir/internal/traffic"
)

const (
	// startDelay is the time between the last preparation and the start.
	startDelay = 50 * time.Millisecond
	// seriesSlack is added to a series, for what is under way at the end.
	seriesSlack = 200 * time.Millisecond

	reactionBin  = time.Millisecond
	overshootBin = 100 * time.Microsecond
)

// observation is what was seen in one run of a case with one peer.
type observation struct {
	window time.Duration
	// arrived has one counter per container, of the window.
	arrived []meter.Counter
	cpuBusy time.Duration // of all CPUs, in the window
	ping    traffic.PingResult
	// series starts with the run; empty for cases that need none.
	series   [][]uint64
	binWidth time.Duration
}

// timing is the plan of a run, from its start.
type timing struct {
	windowFrom, windowUntil time.Duration
	binWidth                time.Duration
	bins                    int
}

func (c Case) timing(options Options) timing {
	t := timing{windowFrom: options.Warmup, windowUntil: options.Warmup + options.Duration}
	if c.Length > 0 {
		t.windowFrom, t.windowUntil = 0, c.Length
	}
	switch {
	case c.Measures.has(MeasureOvershoot):
		t.binWidth = overshootBin
	case c.Measures.has(MeasureReaction):
		t.binWidth = reactionBin
	default:
		return t
	}
	t.bins = int((startDelay + t.windowUntil + seriesSlack) / t.binWidth)
	return t
}

// action is something to do at a time of a run.
type action struct {
	at time.Duration
	do func() error
}

// observe runs a case once, with its containers placed and a peer's policies
// in force.
func observe(ctx context.Context, b *bed, c Case, p peer, containers []placed, options Options) (seen observation, err error) {
	plan := c.timing(options)
	count, err := b.newMeter(len(containers), plan.bins, plan.binWidth)
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, count.Close()) }()

	senders, actions, err := b.prepareSenders(ctx, c, containers, options.Overload)
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

	var from, until meter.Snapshot
	var busyFrom, busyUntil time.Duration
	snapshot := func(s *meter.Snapshot, busy *time.Duration) func() error {
		return func() (err error) {
			if *busy, err = cpuBusy(); err != nil {
				return err
			}
			*s, err = count.Snapshot()
			return err
		}
	}
	actions = append(actions,
		action{plan.windowFrom, snapshot(&from, &busyFrom)},
		action{plan.windowUntil, snapshot(&until, &busyUntil)})

	var pings sync.WaitGroup
	var pingErr error
	if c.Measures.has(MeasureLatency) {
		pinger, err := b.newPinger(containers[0])
		if err != nil {
			return seen, err
		}
		defer pings.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		actions = append(actions,
			action{plan.windowFrom, func() error {
				pings.Go(func() { seen.ping, pingErr = pinger.Run(ctx) })
				return nil
			}},
			action{plan.windowUntil, func() error {
				cancel()
				pings.Wait()
				return pingErr
			}})
	}

	var originNS int64
	if plan.bins > 0 {
		if originNS, err = count.StartSeries(); err != nil {
			return seen, err
		}
	}
	startNS := meter.MonotonicNS() + startDelay.Nanoseconds()
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

	seen.window = time.Duration(until.MonotonicNS - from.MonotonicNS)
	seen.cpuBusy = busyUntil - busyFrom
	for i := range containers {
		seen.arrived = append(seen.arrived, meter.Counter{
			Bytes:   until.Slots[i].Bytes - from.Slots[i].Bytes,
			Packets: until.Slots[i].Packets - from.Slots[i].Packets,
		})
	}
	if plan.bins == 0 {
		return seen, nil
	}
	series, err := count.Series()
	if err != nil {
		return seen, err
	}
	skip := int((startNS - originNS) / plan.binWidth.Nanoseconds())
	seen.binWidth = plan.binWidth
	for _, row := range series.Bytes {
		seen.series = append(seen.series, row[min(skip, len(row)):])
	}
	return seen, nil
}

// plannedSender is a sender for one interval of a container's activity.
type plannedSender struct {
	sender    *traffic.Sender
	container string
	from      time.Duration
}

// prepareSenders makes the senders of all containers and the actions that
// stop those that end before the run does.
func (b *bed) prepareSenders(ctx context.Context, c Case, containers []placed, overload float64) ([]plannedSender, []action, error) {
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
			sender, err := b.newSender(ctx, c, containers, i, overload)
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
		if err := waitUntil(ctx, startNS+one.at.Nanoseconds()); err != nil {
			return err
		}
		if err := one.do(); err != nil {
			return err
		}
	}
	return nil
}

// waitUntil waits for a time of CLOCK_MONOTONIC.
func waitUntil(ctx context.Context, atNS int64) error {
	timer := time.NewTimer(time.Duration(atNS - meter.MonotonicNS()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
