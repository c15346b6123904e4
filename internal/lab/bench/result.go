package bench

import (
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

// Report is everything a suite found: what `weir bench -o json` prints. Field
// names are only ever added to. Rates are bits per second on the wire (L2
// frames without FCS); errors and uses are fractions.
type Report struct {
	report.Report
	Suite     string       `json:"suite"`
	DurationS float64      `json:"duration_s"` // counted per run
	WarmupS   float64      `json:"warmup_s"`   // before it
	Results   []CaseResult `json:"results"`
	// Skipped are peers that could not take part, and why.
	Skipped map[string]string `json:"skipped,omitempty"`
}

// complete adds what follows from the results: verdicts, claims, tables, plots.
func (r *Report) complete() {
	r.Verdicts = verdicts(r.Results)
	r.Claims = judgeClaims(r.Suite, r.Results)
	for _, gap := range r.failureGaps() {
		r.AddGap(gap)
	}
	r.Tables = r.tables()
	r.Plots = r.plots()
	r.Quantities = r.quantities()
}

// CaseResult is what one peer made of one case.
type CaseResult struct {
	Group   string `json:"group"`
	Case    string `json:"case"`
	Mode    string `json:"mode"` // how the containers are attached
	Peer    string `json:"peer"`
	LinkBPS uint64 `json:"link_bps"` // 0: not limited
	Runs    int    `json:"runs"`
	// Failure is why runs are missing.
	Failure string `json:"failure,omitempty"`

	// CPUBusy is the fraction of all CPUs that was busy, with the traffic or
	// with anything else. A machine without idle time cannot keep rates.
	CPUBusy measure.Spread `json:"cpu_busy"`
	// CPUStolen is the fraction that a hypervisor took while there was something
	// to do. What a link could have sent meanwhile is lost beyond the bursts of
	// its queueing discipline.
	CPUStolen measure.Spread `json:"cpu_stolen"`
	// LongestPauseMS is the longest time for which a processor stood still in a
	// run that counts, if that was long enough to spoil it.
	LongestPauseMS float64 `json:"longest_pause_ms,omitempty"`

	// Shares has one entry per container that sends, in a trace one per phase
	// of it; empty where the case is not about shares.
	Shares []Share `json:"shares,omitempty"`
	// LinkUse is what was sent, of what the ideal allocation sends.
	LinkUse *measure.Spread `json:"link_use,omitempty"`

	Overshoot *Overshoot `json:"overshoot,omitempty"`
	// Incoming is there for what containers receive.
	Incoming  *Incoming  `json:"incoming,omitempty"`
	Reactions []Reaction `json:"reactions,omitempty"`
	Cost      *Cost      `json:"cost,omitempty"`
	Latency   *Latency   `json:"latency,omitempty"`
	Overhead  *Overhead  `json:"overhead,omitempty"`
	Agent     *AgentUse  `json:"agent,omitempty"`
	// Ratios are those of the peer to others.
	Ratios []Ratio `json:"ratios,omitempty"`
	// Series are the rates over time of the last run, for cases with a script.
	Series *RateSeries `json:"series,omitempty"`
}

// Share is what a container got.
type Share struct {
	Phase     string         `json:"phase,omitempty"`
	Container string         `json:"container"`
	Weight    uint32         `json:"weight"`
	MinBPS    uint64         `json:"min_bps"`
	MaxBPS    uint64         `json:"max_bps"`
	Priority  uint32         `json:"priority,omitempty"`
	PaperBPS  *float64       `json:"paper_bps"` // null where the paper gives no number
	IdealBPS  uint64         `json:"ideal_bps"`
	Measured  measure.Spread `json:"measured_bps"`
	Error     float64        `json:"error"` // of the median, against the ideal
	// OneFrame is what a single frame is of what the ideal sends in the time
	// counted, OnePacket what the largest packet is that the peer schedules as
	// a whole: a smaller error cannot be told from none.
	OneFrame  float64 `json:"one_frame"`
	OnePacket float64 `json:"one_packet"`
}

// Overshoot is by how much a ceiling was exceeded in the worst window.
type Overshoot struct {
	WindowMS float64        `json:"window_ms"`
	CapBPS   uint64         `json:"cap_bps"`
	Fraction measure.Spread `json:"fraction"`
	// OneFrame is what a single frame is of the window: a smaller overshoot
	// cannot be told from none.
	OneFrame float64 `json:"one_frame"`
}

// Incoming is what containers received in the worst of the seconds counted, of each run.
type Incoming struct {
	// Protocol is the last container's.
	Protocol string `json:"protocol"`
	// FirstSecondOver is by how much a maximum was exceeded over the first second; null without one.
	FirstSecondOver *measure.Spread `json:"first_second_over"`
	// MinimumKept is the least part of a minimum; null without one.
	MinimumKept *measure.Spread `json:"minimum_kept"`
	// ArrivesLeast and ArrivesMost are what the bottleneck before the uplink sent, of the rate at which
	// what comes in is shared; null without a bottleneck.
	ArrivesLeast *measure.Spread `json:"arrives_least"`
	ArrivesMost  *measure.Spread `json:"arrives_most"`
}

// Reaction is how a change was answered.
type Reaction struct {
	AtMS   float64 `json:"at_ms"`
	Change string  `json:"change"`
	// Changes are how many of the kind were made in all runs, the first at AtMS.
	Changes int `json:"changes"`
	// SettledRuns is after how many of them every container came to be within 5 %
	// of its new ideal, over 50 ms, and stayed there for 100 ms more, before
	// the next change.
	SettledRuns int `json:"settled_runs"`
	// SettleMS is the time that took.
	SettleMS measure.Spread `json:"settle_ms"`
	// Held is the fraction of 50 ms windows within 5 %, of those that begin
	// 50 ms after the change or later.
	Held measure.Spread `json:"held"`
}

// Cost is what the traffic took of the CPU.
type Cost struct {
	// CPUUse is the fraction of all CPUs that was busy, less the baseline.
	CPUUse measure.Spread `json:"cpu_use"`
	// Baseline is the fraction that was busy before the run, without the peer and its
	// traffic, in the quietest of at most five seconds. Where it is not nearly 0, something
	// else was at work and CPUUse means little.
	Baseline measure.Spread `json:"baseline"`
	// CPUSecondsPerGbit is the same time per gigabit that arrived.
	CPUSecondsPerGbit measure.Spread `json:"cpu_seconds_per_gbit"`
	PacketsPerSecond  measure.Spread `json:"packets_per_second"`
	RateBPS           measure.Spread `json:"rate_bps"`
	// PacketsOfBaseline is PacketsPerSecond as a ratio to the case that this
	// one is compared with.
	PacketsOfBaseline *float64 `json:"packets_of_baseline,omitempty"`
}

// Latency is the round trip of 64-byte UDP datagrams, in milliseconds; a lost answer counts as
// traffic.PingTimeout.
type Latency struct {
	PaperMS *float64       `json:"paper_ms"` // null where the paper gives no number
	MeanMS  measure.Spread `json:"mean_ms"`
	P50MS   measure.Spread `json:"p50_ms"`
	P99MS   measure.Spread `json:"p99_ms"`
	P999MS  measure.Spread `json:"p999_ms"`
	Sent    int            `json:"sent"`
	Lost    int            `json:"lost"`
	// OwnTraffic: the container has other traffic beside.
	OwnTraffic bool `json:"own_traffic,omitempty"`
	// BaselineP99MS is the 99th percentile in the case that this one is
	// compared with, 0 if that lost answers; LimitMS is Weir's target for this one.
	BaselineP99MS  *float64 `json:"baseline_p99_ms,omitempty"`
	BaselineP999MS *float64 `json:"baseline_p999_ms,omitempty"`
	LimitMS        *float64 `json:"limit_ms,omitempty"`
}

// Overhead is what a peer takes away from what there is with none.
type Overhead struct {
	// Of says of what: "bandwidth" or "round trip".
	Of string `json:"of"`
	// Senders is the number of containers that compete.
	Senders int `json:"senders"`
	// Paper is the paper's number, null where it gives none.
	Paper *float64 `json:"paper"`
	// Fraction is the bandwidth that is lost or the mean round trip that is
	// added, of that with none.
	Fraction float64 `json:"fraction"`
	// AddedMS is the mean round trip that is added.
	AddedMS *float64 `json:"added_ms,omitempty"`
}

// AgentUse is what the agent itself takes.
type AgentUse struct {
	Containers int `json:"containers"`
	Senders    int `json:"senders"` // of them
	// CPUOfCore is the time its threads ran, as a fraction of one core.
	CPUOfCore measure.Spread `json:"cpu_of_core"`
	// ResidentBytes is what its processes have resident at the end of the run, AnonymousBytes the part
	// that is of no file; BPFBytes is what the kernel keeps for its BPF maps and programs, and
	// MemoryBytes all of it.
	ResidentBytes  measure.Spread `json:"resident_bytes"`
	AnonymousBytes measure.Spread `json:"anonymous_bytes"`
	BPFBytes       measure.Spread `json:"bpf_bytes"`
	MemoryBytes    measure.Spread `json:"memory_bytes"`
	// StartMS is the time from its start until every container was in place.
	StartMS measure.Spread `json:"start_ms"`
	// TurnP99MS is the 99th percentile of the times from one turn of its control loop to
	// the next, while Pages of its dashboard are open.
	TurnP99MS measure.Spread `json:"turn_p99_ms"`
	Pages     int            `json:"pages,omitempty"`
	Dashboard bool           `json:"dashboard,omitempty"` // it is there, open or not
	// ScrapeMS is how long a scrape took, the median of a run, ScrapeIntervalS how often
	// there was one, and ScrapeCPU what that took of a core.
	ScrapeMS        *measure.Spread `json:"scrape_ms,omitempty"`
	ScrapeIntervalS float64         `json:"scrape_interval_s,omitempty"`
	ScrapeCPU       *float64        `json:"scrape_cpu,omitempty"`
}

// RateSeries are rates over time, in equal steps.
type RateSeries struct {
	StepMS     float64     `json:"step_ms"`
	Containers []string    `json:"containers"`
	RateBPS    [][]float64 `json:"rate_bps"` // by container, then step
	// Ideal is the ideal allocation over time, a step for each change of it.
	Ideal []IdealStep `json:"ideal"`
}

// IdealStep is the ideal allocation from a time on.
type IdealStep struct {
	AtMS    float64  `json:"at_ms"`
	RateBPS []uint64 `json:"rate_bps"` // by container
}
