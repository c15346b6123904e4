// Package llq repeats the experiment of SDN-LLQ (section V): a container sends voice, video
// and generic data, frames of 1000 bytes in turn, at 5 Mbit/s in all and more, over a
// link of 100 Mbit/s and beyond what that carries. Each peer says which frames go first.
//
// Figures makes the same experiment as the paper did: a switch has the queues, and its
// controller names the flows.
package llq

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// Suite is its name.
const Suite = "llq"

// Options say what is measured.
type Options struct {
	// TotalsBPS are the rates at which the three flows send together, on the wire.
	TotalsBPS []uint64
	Peers     []string
	measure.RunOptions
}

// sentFlow is one of the three flows.
type sentFlow struct {
	name, class string
	// port is where it goes: one that this kind of application is known by.
	port uint16
}

// sentFlows are the three flows in the order of the classes.
var sentFlows = []sentFlow{
	{"voice", "EF", 5004},   // RTP
	{"video", "AF", 554},    // RTSP
	{"generic", "BE", 5001}, // iperf
}

const (
	linkBPS        = 100e6
	sentFrameBytes = 1000 // of Ethernet, without FCS
	// maxTotalBPS is what one thread sends in frames of that size.
	maxTotalBPS = 300e6
	// MinDuration has ten steps of a plot over time.
	MinDuration = 200 * time.Millisecond
	// drainTime is longer than the longest queue: 1000 frames at the least rate of BE.
	drainTime = time.Second
)

// Peers are the peers of the suite, in the order of reports.
func Peers() []string { return []string{bench.PeerFIFO, bench.PeerHTB, bench.PeerWeir} }

// Totals are the rates that are measured unless asked otherwise.
func Totals() []uint64 {
	return []uint64{5e6, 20e6, 40e6, quietBPS, 80e6, 90e6, 100e6, congestedBPS, 120e6, 150e6}
}

// The rates that figures 8 to 13 are judged at: enough room for all, and a little more
// than the link carries, as it would be a matter of chance with exactly as much.
const (
	quietBPS     = 60e6
	congestedBPS = 105e6
)

// Check says what is wrong with options before anything is started.
func (o Options) Check() error {
	for _, name := range o.Peers {
		if !slices.Contains(Peers(), name) {
			return fmt.Errorf("unknown peer %q: choose from %s", name, strings.Join(Peers(), ", "))
		}
	}
	for _, total := range o.TotalsBPS {
		if total < 1e6 || total > maxTotalBPS {
			return fmt.Errorf("%d bit/s in all: choose 1 to %d Mbit/s", total, int(maxTotalBPS/1e6))
		}
	}
	if len(o.Peers) == 0 || len(o.TotalsBPS) == 0 {
		return errors.New("nothing to measure: there must be a peer and a rate at least")
	}
	return o.CheckRuns(MinDuration)
}

// observation is what was seen in one run.
type observation struct {
	fromNS, untilNS int64 // CLOCK_REALTIME
	// arrivals are frames that were sent in that time, whenever they arrived;
	// arrived is how many came in that time, whenever they were sent.
	arrivals [][]traffic.Arrival
	arrived  []int
	sent     []uint64
	pause    time.Duration
}

// longestPause is the longest for which a processor stood still.
func (r observation) longestPause() time.Duration { return r.pause }

func (r observation) seconds() float64 { return time.Duration(r.untilNS - r.fromNS).Seconds() }

// resultKey is a rate with a peer.
type resultKey struct {
	totalBPS uint64
	peer     string
}

// runner runs the suite on a bed.
type runner struct {
	options               Options
	bed                   *bench.Bed
	containers            []bench.Placed
	receiver              *traffic.Receiver
	pauses                *testbed.PauseWatch
	observed              map[resultKey][]observation
	failures              map[string]string // by peer and rate
	skipped               map[string]string // by peer
	repeatedRuns, leftOut int
}

// Run runs the suite. A peer that cannot order flows here is left out and named.
func Run(ctx context.Context, options Options) (found Report, err error) {
	if err := options.Check(); err != nil {
		return found, err
	}
	started := time.Now()
	b, err := bench.NewBed(ctx, bench.Options{}, 1)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	r := &runner{options: options, bed: b, observed: map[resultKey][]observation{}, failures: map[string]string{}, skipped: map[string]string{}}
	if r.containers, _, err = b.Place(ctx, threeFlows()); err != nil {
		return found, err
	}
	unknown, err := r.rounds(ctx, b.Host.PeerNetNSPath(), r.runPeer)
	if err != nil {
		return found, err
	}
	found = r.report(Suite, note, started, b.Environment(ctx, options.Version))
	found.PausesUnknown = unknown
	found.complete()
	found.TookSeconds = time.Since(started).Seconds()
	return found, nil
}

// rounds receives all flows in a network namespace and runs every peer in every round.
// pausesUnknown is whether a machine that stood still meanwhile could have been missed.
func (r *runner) rounds(ctx context.Context, receiver string, run func(ctx context.Context, peer string, round int) error) (pausesUnknown bool, err error) {
	var ports []uint16
	for _, flow := range sentFlows {
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
func (r *runner) report(suite, note string, started time.Time, where report.Environment) Report {
	options := r.options
	found := Report{
		Report: options.NewReport(suite, note, started, where),
		Suite:  suite, DurationS: options.Duration.Seconds(), WarmupS: options.Warmup.Seconds(), Failures: r.failures, Skipped: r.skipped,
		path: hostPath,
	}
	found.RepeatedRuns = r.repeatedRuns
	found.AddLeftOut(r.leftOut)
	for _, total := range options.TotalsBPS {
		for _, name := range options.Peers {
			runs := r.observed[resultKey{total, name}]
			if len(runs) == 0 {
				continue
			}
			found.Runs += len(runs)
			for _, run := range runs {
				if run.pause > 0 {
					found.PausedRuns++
				}
			}
			found.Results = append(found.Results, newResult(name, total, runs))
		}
	}
	return found
}

// runPeer puts a peer in force and sends at all rates.
func (r *runner) runPeer(ctx context.Context, name string, round int) (err error) {
	if r.skipped[name] != "" {
		return nil
	}
	if measure.Overdue(r.options.Until) {
		r.leftOut += len(r.options.TotalsBPS)
		return nil
	}
	p, err := newPeer(ctx, name, r.options)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, p.Remove(ctx, r.bed, r.containers))
	}()
	err = p.Apply(ctx, r.bed, threeFlows(), r.containers)
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
		if measure.Overdue(r.options.Until) {
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

// runTotal runs one rate, and repeats it if a CPU was paused.
func (r *runner) runTotal(ctx context.Context, name string, total uint64) error {
	best, err := measure.LeastDisturbed(r.options.Until, func() (observation, error) { return r.observe(ctx, total) },
		observation.longestPause, func(time.Duration) { r.repeatedRuns++ })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.failures[fmt.Sprintf("%s, %g Mbit/s", name, float64(total)/1e6)] = err.Error()
		fmt.Fprintf(r.options.Progress, "  failed: %v\n", err)
		return nil
	}
	key := resultKey{total, name}
	r.observed[key] = append(r.observed[key], best)
	return nil
}

// observe sends at one rate.
func (r *runner) observe(ctx context.Context, total uint64) (seen observation, err error) {
	one := r.containers[0]
	options := traffic.TimedOptions{
		PayloadBytes: sentFrameBytes - measure.UDPHeaderBytes, IntervalNS: sentFrameBytes * 8 * 1e9 / float64(total),
	}
	for _, flow := range sentFlows {
		options.Targets = append(options.Targets, netip.AddrPortFrom(one.PeerAddress, flow.port))
	}
	var sender *traffic.Timed
	err = one.Enter(func() (err error) {
		sender, err = traffic.NewTimed(options)
		return err
	})
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, sender.Stop()) }()
	r.receiver.Take() // what came late of the run before
	startNS := traffic.MonotonicNS() + bench.StartDelay.Nanoseconds()
	sender.Start(startNS)
	fromNS := startNS + max(r.options.Warmup, fillTime(total)).Nanoseconds()
	if err := bench.WaitUntil(ctx, fromNS); err != nil {
		return seen, err
	}
	before := sender.Sent()
	seen.fromNS = traffic.RealtimeNS()
	if err := bench.WaitUntil(ctx, fromNS+r.options.Duration.Nanoseconds()); err != nil {
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
	if total <= linkBPS {
		return 0
	}
	const queueBits, longest = measure.FIFOPackets * measure.FrameBytes * 8, 3 * time.Second
	return min(time.Duration(1.2*queueBits/float64(total-linkBPS)*float64(time.Second)), longest)
}

// collect waits for queued frames and takes those sent in the measured time.
func (r *runner) collect(ctx context.Context, seen *observation, total uint64) error {
	drain := drainTime
	if total < linkBPS*9/10 {
		drain = bench.StartDelay
	}
	if err := bench.WaitUntil(ctx, traffic.MonotonicNS()+drain.Nanoseconds()); err != nil {
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
