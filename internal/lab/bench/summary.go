package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

const (
	// reactionWindow, reactionTolerance and reactionStay say when containers
	// count as being at their new rates; reactionTarget is when they should.
	reactionWindow    = 50 * time.Millisecond
	reactionTolerance = 0.05
	reactionTarget    = 50 * time.Millisecond
	reactionStay      = 100 * time.Millisecond
	// seriesStep and traceStep are the resolutions of rates over time in
	// reports: where the first milliseconds count, and where seconds do.
	seriesStep = 20 * time.Millisecond
	traceStep  = 100 * time.Millisecond
	// traceSettling is left out at the beginning of each phase of a trace, but
	// no more than half of it: what TCP and the scheduler take to settle is the
	// matter of reactions.
	traceSettling = 250 * time.Millisecond
)

// summarise turns the runs of a case with one peer into its result.
func summarise(c Case, peer string, seen []observation) CaseResult {
	result := CaseResult{Group: c.Group, Case: c.Name, Mode: string(c.mode()), Peer: peer, LinkBPS: c.LinkBPS, Runs: len(seen)}
	if len(seen) == 0 {
		return result
	}
	result.CPUBusy = each(seen, func(o observation) float64 { return o.CPU.BusyFraction() })
	result.CPUStolen = each(seen, func(o observation) float64 { return o.CPU.StolenFraction() })
	result.LongestPauseMS = each(seen, func(o observation) float64 { return o.Pause.Seconds() * 1000 }).Max
	if !c.Measures.has(MeasureReaction | MeasureCost | MeasureAgent) {
		result.Shares, result.LinkUse = shares(c, peer, seen)
	}
	if c.Incoming {
		result.Incoming = incomingOf(c, seen)
	}
	if c.Measures.has(MeasureOvershoot) {
		result.Overshoot = overshootOf(c, seen)
	}
	if c.Measures.has(MeasureReaction) {
		result.Reactions = reactions(c, seen)
		result.Series = rateSeries(c, seen[len(seen)-1], seriesStep)
	}
	if c.Measures.has(MeasureTrace) {
		result.Series = rateSeries(c, seen[len(seen)-1], traceStep)
	}
	if c.Measures.has(MeasureCost) {
		result.Cost = cost(seen)
	}
	if c.Measures.has(MeasureLatency) {
		result.Latency = latency(c, peer, seen)
	}
	if c.Measures.has(MeasureAgent) {
		result.Agent = agentUse(c, seen)
	}
	return result
}

// each computes one value per run.
func each(seen []observation, value func(observation) float64) measure.Spread {
	values := make([]float64, 0, len(seen))
	for _, one := range seen {
		values = append(values, value(one))
	}
	return measure.SpreadOf(values)
}

// rate is what container i sent in the window, in bits per second.
func (o observation) rate(i int) float64 {
	return float64(o.Arrived[i].Bytes) * 8 / o.Window.Seconds()
}

// phase is a time during which the ideal allocation stays the same.
type phase struct {
	name string
	at   time.Duration // when it begins
	// from and until are the part that is counted; both 0 stand for the
	// run's window.
	from, until time.Duration
}

// phases are those of a trace from change to change, otherwise one.
func (c Case) phases() []phase {
	if !c.Measures.has(MeasureTrace) {
		return []phase{{}}
	}
	var phases []phase
	times := append(c.changeTimes(), c.Length)
	for i, at := range times[:len(times)-1] {
		phases = append(phases, phase{
			name: fmt.Sprintf("from %.1f s (%s)", at.Seconds(), c.describeChange(at)),
			at:   at, from: at + min(traceSettling, (times[i+1]-at)/2), until: times[i+1],
		})
	}
	return phases
}

// length is how long a phase was counted.
func (o observation) length(p phase) time.Duration {
	if p.until == 0 {
		return o.Window
	}
	return p.until - p.from
}

// rateIn is what container i sent in a phase, in bits per second.
func (o observation) rateIn(p phase, i int) float64 {
	if p.until == 0 {
		return o.rate(i)
	}
	var sum uint64
	for _, bytes := range o.Series[i][p.from/o.BinWidth : p.until/o.BinWidth] {
		sum += bytes
	}
	return float64(sum) * 8 / o.length(p).Seconds()
}

// shares has one share per phase and container that sends in it, and what was
// sent of what the ideal allocation sends, over all phases.
func shares(c Case, peer string, seen []observation) (list []Share, use *measure.Spread) {
	if c.LinkBPS == 0 {
		return nil, nil
	}
	var allowedBits float64
	sentBits := make([]float64, len(seen))
	for number, p := range c.phases() {
		ideal, entitled := c.ideal(p.at), c.entitled(p.at)
		for i, one := range c.policiesAt(p.at) {
			if !one.Load.activeAt(p.at) || ideal[i] == 0 {
				continue
			}
			for run, o := range seen {
				sentBits[run] += o.rateIn(p, i) * o.length(p).Seconds()
			}
			idealBits := float64(ideal[i]) * seen[0].length(p).Seconds()
			allowedBits += idealBits
			share := Share{
				Phase: p.name, Container: one.Name,
				Weight: one.Weight, MinBPS: one.MinBPS, MaxBPS: one.MaxBPS, Priority: one.Priority,
				PaperBPS:  one.Paper.bps(peer, number),
				IdealBPS:  ideal[i],
				Measured:  each(seen, func(o observation) float64 { return o.rateIn(p, i) }),
				OneFrame:  measure.FrameBytes * 8 / idealBits,
				OnePacket: packetBytes(peer, c.LinkBPS, entitled[i]) * 8 / idealBits,
			}
			share.Error = share.Measured.Median/float64(ideal[i]) - 1
			list = append(list, share)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	for run := range sentBits {
		sentBits[run] /= allowedBits
	}
	linkUse := measure.SpreadOf(sentBits)
	return list, &linkUse
}

// maxGSOBytes is what the kernel hands to a qdisc at once where it is not limited
// (GSO_LEGACY_MAX_SIZE in include/linux/netdevice.h).
const maxGSOBytes = 65536

// packetBytes is the largest packet a peer schedules as a whole of a container
// that is entitled to a rate.
func packetBytes(peer string, linkBPS, entitledBPS uint64) float64 {
	if precision, cut := precisionOf(peer); cut {
		return float64(sched.MaxPacketBytes(linkBPS, entitledBPS, policy.PacketTime(precision)))
	}
	return maxGSOBytes
}

// overshootOf is that of the container that exceeds its ceiling most.
func overshootOf(c Case, seen []observation) *Overshoot {
	var worst *Overshoot
	for i, one := range c.Containers {
		if one.MaxBPS == 0 {
			continue
		}
		found := &Overshoot{
			WindowMS: measure.Milliseconds(overshootWindow),
			CapBPS:   one.MaxBPS,
			OneFrame: measure.FrameBytes * 8 / (float64(one.MaxBPS) * overshootWindow.Seconds()),
			Fraction: each(seen, func(o observation) float64 {
				return overshoot(c.withoutFirstSecond(o.Series[i], o.BinWidth), o.BinWidth, overshootWindow, one.MaxBPS)
			}),
		}
		if worst == nil || found.Fraction.Max > worst.Fraction.Max {
			worst = found
		}
	}
	return worst
}

// reactions has one for each kind of change, over all such changes of all runs.
func reactions(c Case, seen []observation) []Reaction {
	type kind struct {
		Reaction
		settleMS, held []float64
	}
	var kinds []*kind
	times := c.changeTimes()
	for i, at := range times {
		next := c.Length
		if i+1 < len(times) {
			next = times[i+1]
		}
		for _, one := range c.Containers { // the end of the last sender is no change, but rates end with it
			for _, interval := range one.Load.Active {
				if interval.Until > at {
					next = min(next, interval.Until)
				}
			}
		}
		change := c.describeChange(at)
		of := slices.IndexFunc(kinds, func(k *kind) bool { return k.Change == change })
		if of < 0 {
			of = len(kinds)
			kinds = append(kinds, &kind{Reaction: Reaction{AtMS: measure.Milliseconds(at), Change: change}})
		}
		k := kinds[of]
		for _, o := range seen {
			s := settling{
				series: o.Series, binWidth: o.BinWidth,
				window: reactionWindow, tolerance: reactionTolerance, stay: reactionStay,
			}
			result := s.after(int(at/o.BinWidth), int(next/o.BinWidth), c.ideal(at), reactionTarget)
			k.Changes++
			k.held = append(k.held, result.held)
			if result.settled {
				k.SettledRuns++
				k.settleMS = append(k.settleMS, measure.Milliseconds(result.after))
			}
		}
	}
	var list []Reaction
	for _, k := range kinds {
		k.SettleMS, k.Held = measure.SpreadOf(k.settleMS), measure.SpreadOf(k.held)
		list = append(list, k.Reaction)
	}
	return list
}

// describeChange says what happens at a time of a case.
func (c Case) describeChange(at time.Duration) string {
	var parts []string
	for _, one := range c.Containers {
		if one.Load.Active == nil && one.Load.Protocol != "" && at == 0 {
			parts = append(parts, one.Name+" starts")
		}
		for _, interval := range one.Load.Active {
			switch at {
			case interval.From:
				parts = append(parts, one.Name+" starts")
			case interval.Until:
				parts = append(parts, one.Name+" stops")
			}
		}
	}
	for _, change := range c.Changes {
		if change.At != at {
			continue
		}
		text := fmt.Sprintf("%s: weight %d", c.Containers[change.Container].Name, change.Weight)
		if change.MinBPS > 0 {
			text += ", min " + policy.FormatRateShort(change.MinBPS)
		}
		if change.MaxBPS > 0 {
			text += ", max " + policy.FormatRateShort(change.MaxBPS)
		}
		if change.Priority > 0 {
			text += fmt.Sprintf(", priority %d", change.Priority)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func rateSeries(c Case, o observation, step time.Duration) *RateSeries {
	perStep := int(step / o.BinWidth)
	series := &RateSeries{StepMS: measure.Milliseconds(step)}
	for _, at := range c.changeTimes() {
		series.Ideal = append(series.Ideal, IdealStep{AtMS: measure.Milliseconds(at), RateBPS: c.ideal(at)})
	}
	for i, one := range c.Containers {
		var rates []float64
		for chunk := range slices.Chunk(o.Series[i], perStep) {
			var sum uint64
			for _, bytes := range chunk {
				sum += bytes
			}
			if len(chunk) == perStep {
				rates = append(rates, float64(sum)*8/step.Seconds())
			}
		}
		series.Containers = append(series.Containers, one.Name)
		series.RateBPS = append(series.RateBPS, rates)
	}
	return series
}

func cost(seen []observation) *Cost {
	carried := slices.DeleteFunc(slices.Clone(seen), func(o observation) bool { return o.bitsPerSecond() == 0 })
	return &Cost{
		CPUUse:            each(seen, observation.cpuUsed),
		Baseline:          each(seen, func(o observation) float64 { return o.IdleCPU }),
		CPUSecondsPerGbit: each(carried, observation.secondsPerGbit),
		PacketsPerSecond:  each(seen, observation.packetsPerSecond),
		RateBPS:           each(seen, observation.bitsPerSecond),
	}
}

// cpuUsed is the fraction of all CPUs that the traffic and the peer kept busy.
func (o observation) cpuUsed() float64 { return o.CPU.BusyFraction() - o.IdleCPU }

// secondsPerGbit is the same in seconds of a CPU for each gigabit that arrived.
func (o observation) secondsPerGbit() float64 {
	gigabits := o.bitsPerSecond() * o.Window.Seconds() / 1e9
	return o.cpuUsed() * o.CPU.Total().Seconds() / gigabits
}

// packetsPerSecond is what arrived of all containers.
func (o observation) packetsPerSecond() float64 {
	var packets float64
	for _, counter := range o.Arrived {
		packets += float64(counter.Packets)
	}
	return packets / o.Window.Seconds()
}

// bitsPerSecond is what arrived of all containers.
func (o observation) bitsPerSecond() float64 {
	var sum float64
	for i := range o.Arrived {
		sum += o.rate(i)
	}
	return sum
}

func latency(c Case, peer string, seen []observation) *Latency {
	result := &Latency{OwnTraffic: len(c.Containers) > 0 && c.Containers[0].Load.Protocol != ""}
	if ms, ok := c.PaperLatencyMS[peer]; ok {
		result.PaperMS = &ms
	}
	// A lost answer took the timeout at least.
	rtts := func(o observation) []float64 {
		values := slices.Repeat([]float64{measure.Milliseconds(traffic.PingTimeout)}, o.Ping.Lost)
		for _, rtt := range o.Ping.RTTs {
			values = append(values, measure.Milliseconds(rtt))
		}
		return values
	}
	result.MeanMS = each(seen, func(o observation) float64 { return measure.Mean(rtts(o)) })
	result.P50MS = each(seen, func(o observation) float64 { return measure.Quantile(rtts(o), 0.5) })
	result.P99MS = each(seen, func(o observation) float64 { return measure.Quantile(rtts(o), 0.99) })
	result.P999MS = each(seen, func(o observation) float64 { return measure.Quantile(rtts(o), 0.999) })
	for _, o := range seen {
		result.Sent += o.Ping.Sent
		result.Lost += o.Ping.Lost
	}
	return result
}

// agentUse is what the agent took for itself.
func agentUse(c Case, seen []observation) *AgentUse {
	use := &AgentUse{
		Pages: c.Pages, Dashboard: c.Dashboard, TurnP99MS: each(seen, func(o observation) float64 { return o.TurnP99MS }),
		Containers:     len(c.Containers),
		Senders:        c.senders(),
		CPUOfCore:      each(seen, func(o observation) float64 { return o.Agent.CPU.Seconds() / o.Window.Seconds() }),
		ResidentBytes:  each(seen, func(o observation) float64 { return float64(o.Agent.Memory.Anonymous + o.Agent.Memory.File) }),
		AnonymousBytes: each(seen, func(o observation) float64 { return float64(o.Agent.Memory.Anonymous) }),
		BPFBytes:       each(seen, func(o observation) float64 { return float64(o.Agent.Memory.BPF) }),
		MemoryBytes:    each(seen, func(o observation) float64 { return float64(o.Agent.Memory.Sum()) }),
		StartMS:        each(seen, func(o observation) float64 { return measure.Milliseconds(o.Agent.Start) }),
	}
	if c.ScrapeInterval > 0 {
		took := each(seen, func(o observation) float64 { return middle(o.Scrapes) })
		use.ScrapeMS, use.ScrapeIntervalS = &took, c.ScrapeInterval.Seconds()
	}
	return use
}
