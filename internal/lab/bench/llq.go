package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/report"
)

// SuiteLLQ repeats the experiment of SDN-LLQ (section V): a container sends voice, video
// and generic data, frames of 1000 bytes in turn, at 5 Mbit/s in all and more, over a
// link of 100 Mbit/s and beyond what that carries. Each peer says which frames go first.
const SuiteLLQ = "llq"

// LLQOptions say what is measured.
type LLQOptions struct {
	// TotalsBPS are the rates at which the three flows send together, on the wire.
	TotalsBPS []uint64
	Peers     []string
	// Duration is counted in every run, after Warmup.
	Duration, Warmup time.Duration
	Repeat           int
	// Until is when the last run may start; zero is never.
	Until                        time.Time
	WeirBinary, Version, Command string
	Progress                     io.Writer
}

// llqFlow is one of the three flows.
type llqFlow struct {
	name, class string
	// port is where it goes: one that this kind of application is known by.
	port uint16
}

// llqFlows are the flows in the order of the classes.
var llqFlows = []llqFlow{
	{"voice", "EF", 5004},   // RTP
	{"video", "AF", 554},    // RTSP
	{"generic", "BE", 5001}, // iperf
}

const (
	llqLinkBPS    = 100e6
	llqFrameBytes = 1000 // of Ethernet, without FCS
	// maxLLQBPS is what one thread sends in frames of that size.
	maxLLQBPS = 300e6
	// minLLQDuration has ten steps of a plot over time.
	minLLQDuration = 200 * time.Millisecond
	// llqDrain is longer than the longest queue: 1000 frames at the least rate of BE.
	llqDrain = time.Second
)

// LLQPeers are the peers of the suite, in the order of reports.
func LLQPeers() []string { return []string{PeerFIFO, PeerHTB, PeerWeir} }

// LLQTotals are the rates that are measured unless asked otherwise.
func LLQTotals() []uint64 {
	return []uint64{5e6, 20e6, 40e6, llqQuietBPS, 80e6, 90e6, 100e6, llqCongestedBPS, 120e6, 150e6}
}

// The rates that figures 8 to 13 are judged at: enough room for all, and a little more
// than the link carries, as it would be a matter of chance with exactly as much.
const (
	llqQuietBPS     = 60e6
	llqCongestedBPS = 105e6
)

// Check says what is wrong with options before anything is started.
func (o LLQOptions) Check() error {
	for _, name := range o.Peers {
		if !slices.Contains(LLQPeers(), name) {
			return fmt.Errorf("unknown peer %q: choose from %s", name, strings.Join(LLQPeers(), ", "))
		}
	}
	for _, total := range o.TotalsBPS {
		if total < 1e6 || total > maxLLQBPS {
			return fmt.Errorf("%d bit/s in all: choose 1 to %d Mbit/s", total, int(maxLLQBPS/1e6))
		}
	}
	switch {
	case len(o.Peers) == 0 || len(o.TotalsBPS) == 0:
		return errors.New("nothing to measure: there must be a peer and a rate at least")
	case o.Repeat < 1 || o.Duration < minLLQDuration || o.Warmup < 0:
		return fmt.Errorf("rounds must be positive, the duration %v or longer, the warm-up not negative", minLLQDuration)
	}
	return nil
}

// llqRun is what was seen in one run.
type llqRun struct {
	fromNS, untilNS int64 // CLOCK_REALTIME
	// arrivals are frames that were sent in that time, whenever they arrived;
	// arrived is how many came in that time, whenever they were sent.
	arrivals [][]traffic.Arrival
	arrived  []int
	sent     []uint64
	pause    time.Duration
}

func (r llqRun) seconds() float64 { return time.Duration(r.untilNS - r.fromNS).Seconds() }

// llqKey is a rate with a peer.
type llqKey struct {
	totalBPS uint64
	peer     string
}

// llqRunner runs the suite on a bed.
type llqRunner struct {
	options               LLQOptions
	bed                   *bed
	containers            []placed
	receiver              *traffic.Receiver
	pauses                *testbed.PauseWatch
	observed              map[llqKey][]llqRun
	failures              map[string]string // by peer and rate
	skipped               map[string]string // by peer
	repeatedRuns, leftOut int
}

// RunLLQ runs the suite. A peer that cannot order flows here is left out and named.
func RunLLQ(ctx context.Context, options LLQOptions) (found LLQReport, err error) {
	if err := options.Check(); err != nil {
		return found, err
	}
	started := time.Now()
	b, err := newBed(ctx, Options{}, 1)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	r := &llqRunner{options: options, bed: b, observed: map[llqKey][]llqRun{}, failures: map[string]string{}, skipped: map[string]string{}}
	if r.containers, _, err = b.place(ctx, llqCase()); err != nil {
		return found, err
	}
	unknown, err := r.rounds(ctx, b.host.PeerNetNSPath(), r.runPeer)
	if err != nil {
		return found, err
	}
	found = r.report(SuiteLLQ, llqNote, started, environment(ctx, b, options.Version))
	found.PausesUnknown = unknown
	found.complete()
	found.TookSeconds = time.Since(started).Seconds()
	return found, nil
}

// rounds receives all flows in a network namespace and runs every peer in every round.
// pausesUnknown is whether a machine that stood still meanwhile could have been missed.
func (r *llqRunner) rounds(ctx context.Context, receiver string, run func(ctx context.Context, peer string, round int) error) (pausesUnknown bool, err error) {
	var ports []uint16
	for _, flow := range llqFlows {
		ports = append(ports, flow.port)
	}
	err = testbed.InNetNS(receiver, func() (err error) {
		r.receiver, err = traffic.NewReceiver(ports...)
		return err
	})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.receiver.Close()) }()
	if r.pauses, err = testbed.StartPauseWatch(ctx, r.options.WeirBinary, testbed.LeastPause); err != nil {
		return false, err
	}
	defer func() { pausesUnknown = !r.pauses.Close() }()
	for round := range r.options.Repeat {
		for _, name := range r.options.Peers {
			if err := run(ctx, name, round); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// report is what was observed, not judged yet.
func (r *llqRunner) report(suite, note string, started time.Time, where report.Environment) LLQReport {
	options := r.options
	found := LLQReport{
		Report: report.Report{
			Format: report.Format, Title: "weir bench " + suite, Note: joined(note, leftOut(r.leftOut)),
			Provenance: report.Provenance{
				Command: options.Command, StartedAt: started, Repeat: options.Repeat, Environment: where, RepeatedRuns: r.repeatedRuns,
			},
		},
		Suite: suite, DurationS: options.Duration.Seconds(), WarmupS: options.Warmup.Seconds(), Failures: r.failures, Skipped: r.skipped,
		path: llqPath,
	}
	for _, total := range options.TotalsBPS {
		for _, name := range options.Peers {
			runs := r.observed[llqKey{total, name}]
			if len(runs) == 0 {
				continue
			}
			found.Runs += len(runs)
			for _, run := range runs {
				if run.pause > 0 {
					found.PausedRuns++
				}
			}
			found.Results = append(found.Results, newLLQResult(name, total, runs))
		}
	}
	return found
}

// runPeer puts a peer in force and sends at all rates.
func (r *llqRunner) runPeer(ctx context.Context, name string, round int) (err error) {
	if r.skipped[name] != "" {
		return nil
	}
	if overdue(r.options.Until) {
		r.leftOut += len(r.options.TotalsBPS)
		return nil
	}
	p, err := newLLQPeer(name, r.options)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, p.remove(ctx, r.bed, r.containers))
	}()
	err = p.apply(ctx, r.bed, llqCase(), r.containers)
	if err == nil {
		err = ordersFlows(ctx, p)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.skipped[name] = err.Error()
		fmt.Fprintf(r.options.Progress, "%s is left out: %v\n", name, err)
		return nil
	}
	for _, total := range r.options.TotalsBPS {
		if overdue(r.options.Until) {
			r.leftOut++
			continue
		}
		fmt.Fprintf(r.options.Progress, "round %d of %d, %s, %g Mbit/s\n", round+1, r.options.Repeat, name, float64(total)/1e6)
		if err := r.runTotal(ctx, name, total); err != nil {
			return err
		}
	}
	return nil
}

// runTotal runs one rate once, and again while the machine stood still.
func (r *llqRunner) runTotal(ctx context.Context, name string, total uint64) error {
	var best *llqRun
	for attempt := range maxAttempts {
		seen, err := r.observe(ctx, total)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.failures[fmt.Sprintf("%s, %g Mbit/s", name, float64(total)/1e6)] = err.Error()
			fmt.Fprintf(r.options.Progress, "  failed: %v\n", err)
			return nil
		}
		if attempt > 0 {
			r.repeatedRuns++
		}
		if best == nil || seen.pause < best.pause {
			best = &seen
		}
		if best.pause == 0 {
			break
		}
	}
	key := llqKey{total, name}
	r.observed[key] = append(r.observed[key], *best)
	return nil
}

// observe sends at one rate.
func (r *llqRunner) observe(ctx context.Context, total uint64) (seen llqRun, err error) {
	one := r.containers[0]
	options := traffic.TimedOptions{
		PayloadBytes: llqFrameBytes - udpHeaderBytes, IntervalNS: llqFrameBytes * 8 * 1e9 / float64(total),
	}
	for _, flow := range llqFlows {
		options.Targets = append(options.Targets, netip.AddrPortFrom(one.PeerAddress, flow.port))
	}
	var sender *traffic.Timed
	err = one.enter(func() (err error) {
		sender, err = traffic.NewTimed(options)
		return err
	})
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, sender.Stop()) }()
	r.receiver.Take() // what came late of the run before
	startNS := traffic.MonotonicNS() + startDelay.Nanoseconds()
	sender.Start(startNS)
	fromNS := startNS + max(r.options.Warmup, fillTime(total)).Nanoseconds()
	if err := waitUntil(ctx, fromNS); err != nil {
		return seen, err
	}
	before := sender.Sent()
	seen.fromNS = traffic.RealtimeNS()
	if err := waitUntil(ctx, fromNS+r.options.Duration.Nanoseconds()); err != nil {
		return seen, err
	}
	for flow, count := range sender.Sent() {
		seen.sent = append(seen.sent, count-before[flow])
	}
	seen.untilNS = traffic.RealtimeNS()
	seen.pause = r.pauses.Longest(startNS, traffic.MonotonicNS())
	if err := sender.Stop(); err != nil {
		return seen, fmt.Errorf("send: %w", err)
	}
	return seen, r.collect(ctx, &seen, total)
}

// fillTime is what a queue of 1000 full frames, as the FIFO's, takes to fill up: until
// then its delay only shows for how long there has been congestion.
func fillTime(total uint64) time.Duration {
	if total <= llqLinkBPS {
		return 0
	}
	const queueBits, longest = fifoPackets * frameBytes * 8, 3 * time.Second
	return min(time.Duration(1.2*queueBits/float64(total-llqLinkBPS)*float64(time.Second)), longest)
}

// collect waits for what is queued and takes what was sent in the time that counts.
func (r *llqRunner) collect(ctx context.Context, seen *llqRun, total uint64) error {
	drain := llqDrain
	if total < llqLinkBPS*9/10 {
		drain = startDelay
	}
	if err := waitUntil(ctx, traffic.MonotonicNS()+drain.Nanoseconds()); err != nil {
		return err
	}
	all, overruns := r.receiver.Take()
	if overruns > 0 {
		return fmt.Errorf("the receiver lost %d frames: it did not run", overruns)
	}
	for _, arrivals := range all {
		count := 0
		for _, one := range arrivals {
			if one.ArrivedNS >= seen.fromNS && one.ArrivedNS < seen.untilNS {
				count++
			}
		}
		seen.arrived = append(seen.arrived, count)
		seen.arrivals = append(seen.arrivals, slices.DeleteFunc(arrivals, func(one traffic.Arrival) bool {
			return one.SentNS < seen.fromNS || one.SentNS >= seen.untilNS
		}))
	}
	return nil
}
