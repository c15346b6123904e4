// Package llq repeats the experiment of SDN-LLQ (section V): a container sends voice, video
// and generic data, frames of 1000 bytes in turn, at 5 Mbit/s in all and more, over a
// link of 100 Mbit/s and beyond what that carries. Each peer says which frames go first; Weir
// reads it from their DSCP, as flows that send that much are no voice to its EF policer.
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
	// dscp is that of its class.
	dscp uint8
}

// sentFlows are the three flows in the order of the classes.
var sentFlows = []sentFlow{
	{"voice", "EF", 5004, 46},  // RTP; EF
	{"video", "AF", 554, 26},   // RTSP; AF31
	{"generic", "BE", 5001, 8}, // iperf; CS1
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

// Peers returns the peers of the suite, in the order of reports.
func Peers() []string { return []string{bench.PeerFIFO, bench.PeerHTB, bench.PeerWeir} }

// Totals returns the rates that are measured by default.
func Totals() []uint64 {
	return []uint64{5e6, 20e6, 40e6, quietBPS, 80e6, 90e6, 100e6, congestedBPS, 120e6, 150e6}
}

// The rates that figures 8 to 13 are judged at: enough room for all, and a little more
// than the link carries, as it would be a matter of chance with exactly as much.
const (
	quietBPS     = 60e6
	congestedBPS = 105e6
)

// Check returns an error for invalid options, before anything is started.
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
	FromNS, UntilNS int64 // CLOCK_REALTIME
	// Arrivals are frames that were sent in that time, whenever they arrived;
	// Arrived is how many came in that time, whenever they were sent.
	Arrivals [][]traffic.Arrival
	Arrived  []int
	Sent     []uint64
	bench.Disturbance
}

func (r observation) seconds() float64 { return time.Duration(r.UntilNS - r.FromNS).Seconds() }

// resultKey is a rate with a peer.
type resultKey struct {
	totalBPS uint64
	peer     string
}

// String names a rate with a peer, as reports do.
func (k resultKey) String() string {
	return fmt.Sprintf("%s, %g Mbit/s", k.peer, float64(k.totalBPS)/1e6)
}

// runner runs the suite on a bed.
type runner struct {
	*bench.Recorder[resultKey, observation]
	options    Options
	bed        *bench.Bed
	containers []bench.Placed
	receiver   *traffic.Receiver
}

// Run runs the suite. A peer that cannot order flows here has failed, and is named.
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
	r := &runner{options: options, bed: b}
	if r.containers, _, err = b.Place(ctx, threeFlows()); err != nil {
		return found, err
	}
	found = newReport(options, Suite, note, hostPath, started, b.Environment(ctx, options.Version))
	if err := checkSwitchBed(); err != nil {
		found.noSwitch = err.Error()
	}
	err = r.rounds(ctx, b.Host.PeerNetNSPath(), r.runPeer, &found)
	return found, err
}

// rounds receives all flows in a network namespace, runs every peer in every round, and completes
// the report.
func (r *runner) rounds(ctx context.Context, receiver string, run func(ctx context.Context, peer string, keys []resultKey, round int) error, found *Report) (err error) {
	var ports []uint16
	for _, flow := range sentFlows {
		ports = append(ports, flow.port)
	}
	err = testbed.InNetNS(receiver, func() (err error) {
		r.receiver, err = traffic.NewReceiver(ports...)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.receiver.Close()) }()
	if r.Recorder, err = bench.NewRecorder[resultKey, observation](ctx, r.options.RunOptions); err != nil {
		return err
	}
	defer func() { r.Close(&found.Report) }()
	r.options.Journal.Expect(r.options.Repeat * len(r.options.Peers) * len(r.options.TotalsBPS))
	for round := range r.options.Repeat {
		untaken, err := r.takeRound()
		if err != nil {
			return err
		}
		for _, name := range r.options.Peers {
			keys := untaken[name]
			if len(keys) == 0 || r.LeaveOut(len(keys)) {
				continue
			}
			if err := run(ctx, name, keys, round); err != nil {
				return err
			}
		}
	}
	r.fill(found)
	return nil
}

// takeRound takes the next round from the journal, and returns the keys that are to be measured, by peer. Claims compare the peers of
// a round at the same rate.
func (r *runner) takeRound() (untaken map[string][]resultKey, err error) {
	untaken = map[string][]resultKey{}
	for _, total := range r.options.TotalsBPS {
		var keys []resultKey
		for _, name := range r.options.Peers {
			keys = append(keys, resultKey{total, name})
		}
		if keys, err = r.TakeTogether(keys...); err != nil {
			return nil, err
		}
		for _, key := range keys {
			untaken[key.peer] = append(untaken[key.peer], key)
		}
	}
	return untaken, nil
}

// newReport returns a report without results.
func newReport(o Options, suite, note, path string, started time.Time, where report.Environment) Report {
	return Report{
		Report: o.NewReport(suite, note, started, where),
		Suite:  suite, DurationS: o.Duration.Seconds(), WarmupS: o.Warmup.Seconds(),
		Failures: map[string]string{}, path: path, runFlags: fmt.Sprintf("--duration %v --warmup %v --repeat %d", o.Duration, o.Warmup, o.Repeat),
	}
}

// fill adds what was observed to a report, and what follows from it.
func (r *runner) fill(found *Report) {
	r.Complete(&found.Report)
	found.Skipped = r.skipped()
	for _, total := range r.options.TotalsBPS {
		for _, name := range r.options.Peers {
			key := resultKey{total, name}
			of := r.Of(key)
			if of.Failure != nil && found.Skipped[name] == "" {
				found.Failures[key.String()] = of.Failure.Error()
			}
			if len(of.Seen) > 0 {
				found.Results = append(found.Results, newResult(name, total, of.Seen))
			}
		}
	}
	found.complete()
	found.TookSeconds = time.Since(found.StartedAt).Seconds()
}

// skipped returns the peers of which all runs failed, and why.
func (r *runner) skipped() map[string]string {
	skipped := map[string]string{}
	for _, name := range r.options.Peers {
		for _, total := range r.options.TotalsBPS {
			of := r.Of(resultKey{total, name})
			if len(of.Seen) > 0 {
				delete(skipped, name)
				break
			}
			if of.Failure != nil {
				skipped[name] = of.Failure.Error()
			}
		}
	}
	return skipped
}

// runPeer puts a peer in force and sends at the rates of its keys.
func (r *runner) runPeer(ctx context.Context, name string, keys []resultKey, round int) error {
	if err := r.Clear(); err != nil {
		return r.FailSetting(ctx, err, keys...)
	}
	p, err := newPeer(ctx, name, r.options)
	if err != nil {
		return r.FailSetting(ctx, err, keys...)
	}
	defer func() {
		_ = r.Clear(func() error { // its error is the next peer's
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			return p.Remove(ctx, r.bed, r.containers)
		})
	}()
	err = p.Apply(ctx, r.bed, threeFlows(), r.containers)
	if err == nil {
		err = ordersFlows(ctx, p)
	}
	if err != nil {
		return r.FailSetting(ctx, err, keys...)
	}
	return r.runKeys(ctx, keys, round, r.runTotal)
}

// runKeys runs the keys for which there is time.
func (r *runner) runKeys(ctx context.Context, keys []resultKey, round int, run func(context.Context, resultKey) error) error {
	for _, key := range keys {
		if r.LeaveOut(1) {
			continue
		}
		fmt.Fprintf(r.options.Progress, "round %d of %d, %s\n", round+1, r.options.Repeat, key)
		if err := run(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// runTotal runs one rate.
func (r *runner) runTotal(ctx context.Context, key resultKey) error {
	name := fmt.Sprintf("%s, %.4g Mbit/s", key.peer, float64(key.totalBPS)/1e6)
	return r.Run(ctx, key, name, r.warmup(key.totalBPS)+r.options.Duration+drainTimeOf(key.totalBPS), func() (observation, error) {
		return r.observe(ctx, key.totalBPS)
	})
}

// newSender returns a sender of the three flows in a container, which are marked, at a rate in bits per second on the wire.
func newSender(from bench.Placed, totalBPS uint64) (sender *traffic.Timed, err error) {
	options := traffic.TimedOptions{
		PayloadBytes: sentFrameBytes - measure.UDPHeaderBytes, IntervalNS: sentFrameBytes * 8 * 1e9 / float64(totalBPS),
	}
	for _, flow := range sentFlows {
		options.Targets = append(options.Targets, netip.AddrPortFrom(from.PeerAddress, flow.port))
	}
	err = from.Enter(func() (err error) {
		sender, err = traffic.NewTimed(options)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, flow := range sentFlows {
		if err := sender.SetDSCP(i, flow.dscp); err != nil {
			return nil, errors.Join(err, sender.Stop())
		}
	}
	return sender, nil
}

// observe sends at one rate.
func (r *runner) observe(ctx context.Context, total uint64) (seen observation, err error) {
	sender, err := newSender(r.containers[0], total)
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, sender.Stop()) }()
	r.receiver.Take() // what came late of the run before
	begunNS := traffic.RealtimeNS()
	startNS := traffic.MonotonicNS() + bench.StartDelay.Nanoseconds()
	sender.Start(startNS)
	fromNS := startNS + r.warmup(total).Nanoseconds()
	if err := bench.WaitUntil(ctx, fromNS); err != nil {
		return seen, err
	}
	before := sender.Sent()
	seen.FromNS = traffic.RealtimeNS()
	if err := bench.WaitUntil(ctx, fromNS+r.options.Duration.Nanoseconds()); err != nil {
		return seen, err
	}
	for flow, count := range sender.Sent() {
		seen.Sent = append(seen.Sent, count-before[flow])
	}
	seen.UntilNS = traffic.RealtimeNS()
	seen.Pause = r.Longest(startNS, traffic.MonotonicNS())
	if err := sender.Stop(); err != nil {
		return seen, fmt.Errorf("send: %w", err)
	}
	return seen, r.collect(ctx, &seen, begunNS, before, total)
}

// warmup returns how long a rate is sent before it is measured.
func (r *runner) warmup(total uint64) time.Duration { return max(r.options.Warmup, fillTime(total)) }

// fillTime returns the time in which a queue of 1000 full frames, such as the FIFO's, fills up.
// Until then its delay only shows the length of the congestion.
func fillTime(total uint64) time.Duration {
	if total <= linkBPS {
		return 0
	}
	const queueBits, longest = measure.FIFOPackets * measure.FrameBytes * 8, 3 * time.Second
	return min(time.Duration(1.2*queueBits/float64(total-linkBPS)*float64(time.Second)), longest)
}

// drainTimeOf returns how long frames of a rate may stay in queues after the last was sent.
func drainTimeOf(total uint64) time.Duration {
	if total < linkBPS*9/10 {
		return bench.StartDelay
	}
	return drainTime
}

// collect waits for queued frames and takes those counted as sent, by their numbers, of which before are those of the first. What
// was sent before begunNS (CLOCK_REALTIME) is of an earlier run.
func (r *runner) collect(ctx context.Context, seen *observation, begunNS int64, before []uint64, total uint64) error {
	if err := bench.WaitUntil(ctx, traffic.MonotonicNS()+drainTimeOf(total).Nanoseconds()); err != nil {
		return err
	}
	all, overruns := r.receiver.Take()
	if overruns > 0 {
		return fmt.Errorf("the receiver lost %d frames: it did not run", overruns)
	}
	for flow, arrivals := range all {
		count := 0
		for _, one := range arrivals {
			if one.ArrivedNS >= seen.FromNS && one.ArrivedNS < seen.UntilNS {
				count++
			}
		}
		seen.Arrived = append(seen.Arrived, count)
		seen.Arrivals = append(seen.Arrivals, slices.DeleteFunc(arrivals, func(one traffic.Arrival) bool {
			return one.SentNS < begunNS || one.Sequence < before[flow] || one.Sequence >= before[flow]+seen.Sent[flow]
		}))
	}
	return nil
}
