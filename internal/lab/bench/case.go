package bench

import (
	"cmp"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// Case is one situation that all peers are put in: a link, containers with
// policies, and what they send. It is data; suites are tables of it.
type Case struct {
	// Group gathers cases in reports, e.g. "figure 7".
	Group string
	// Name tells a case from the others of its group.
	Name string
	// Mode is how the containers are attached; empty means bridge.
	Mode testbed.Mode
	// Incoming: containers receive what their loads say, and policies are for that. LinkBPS is then
	// the rate at which what comes in is shared (--in-rate); the link itself only the CPU limits, but
	// for Path.
	Incoming bool
	// Path is the way from where containers download; nil for the neighbour itself.
	Path *Path
	// LinkBPS is the link's rate in bits per second on the wire (L2 frames
	// without FCS, what tc counts); 0 is a link that only the CPU limits.
	LinkBPS    uint64
	Containers []Container
	// Changes are made to policies while the case runs.
	Changes []Change
	// Length overrides the run's duration for cases with a script; such a
	// case has no warm-up.
	Length time.Duration
	// MinDuration is the shortest measuring time that gives a meaningful result; it overrides a
	// shorter option.
	MinDuration time.Duration
	// MinWarmup is the shortest warm-up before counting.
	MinWarmup time.Duration
	// Measures says what the case is about.
	Measures Measures
	// Peers are the peers that take part; nil means the usual ones.
	Peers []string
	// Baseline names the case of the same group that this one is compared
	// with, peer by peer.
	Baseline string
	// Ratios are what peers' costs are held to.
	Ratios []*ratioAim
	// Pages are how many pages of the dashboard are open; each follows snapshots,
	// and asks for new events. Dashboard has the agent open it also for none.
	Pages     int
	Dashboard bool
	// ScrapeInterval is how often Prometheus asks for metrics; 0 for never.
	ScrapeInterval time.Duration
	// Rigid keeps containers of the peer tc to the rates set by hand: nothing
	// is borrowed.
	Rigid bool
	// MaxLatencyMS is the target for Weir's 99th percentile of round trips,
	// above the baseline's where there is one; 0 for none.
	MaxLatencyMS float64
	// PaperLatencyMS is the paper's latency by peer, in milliseconds.
	PaperLatencyMS map[string]float64
	// PaperOverhead is what the paper found a peer to lose against none, as a
	// fraction.
	PaperOverhead map[string]float64
}

// Path is a bottleneck before the uplink, as a provider's is, and a way with a delay before that.
type Path struct {
	// RateBPS is the bottleneck's; its queue is a FIFO that holds QueueTime of it.
	RateBPS   uint64
	QueueTime time.Duration
	RoundTrip time.Duration
	// CongestionControl is the server's, by the kernel's name; the kernel must have it.
	CongestionControl string
}

// Measures selects what is computed from a run of a case.
type Measures uint

// What can be measured. Shares of the link always are, except where the case
// is about reaction or cost.
const (
	MeasureOvershoot Measures = 1 << iota // of ceilings, in windows from the first packet on
	MeasureReaction                       // time to the new allocation after each change
	MeasureCost                           // CPU time and packets per second
	MeasureLatency                        // round trips of the first container
	MeasureTrace                          // shares from change to change, and rates over time
	MeasureOverhead                       // what is lost against none: round trips, or else bandwidth
	MeasureAgent                          // what the agent takes for itself
)

func (m Measures) has(other Measures) bool { return m&other != 0 }

// Container is a container of a case.
type Container struct {
	Name string
	Policy
	// Labels are further ones.
	Labels map[string]string
	Load   Load
	Paper  Paper
}

// Policy is what is asked for a container.
type Policy struct {
	// Weight is the relative share; MinBPS and MaxBPS are the floor and the
	// ceiling in bits per second, 0 for none.
	Weight         uint32
	MinBPS, MaxBPS uint64
	// Priority says who is first with what others leave idle, higher first.
	Priority uint32
	// LatencyMS bounds the queueing delay, in milliseconds; 0 for no bound.
	LatencyMS float64
}

// Paper is what a paper says a container got, in bits per second: by peer, or
// for every peer under anyPeer, and then by phase of the case (one, unless it
// is a trace). 0 and what is missing mean that it gives no number.
type Paper map[string][]float64

// anyPeer stands for all peers: the number of the paper's own system, where
// that is none of them.
const anyPeer = ""

// bps returns the paper's number in bits per second; nil if there is none.
func (p Paper) bps(peer string, phase int) *float64 {
	numbers, ok := p[peer]
	if !ok {
		numbers = p[anyPeer]
	}
	if phase >= len(numbers) || numbers[phase] == 0 {
		return nil
	}
	return &numbers[phase]
}

// Load is what a container sends.
type Load struct {
	// Protocol is empty for a container that sends nothing.
	Protocol traffic.Protocol
	// Connections is the number of TCP connections, 1 by default.
	Connections int
	// PayloadBytes is the size of UDP datagrams; 0 fills the frame.
	PayloadBytes int
	// SegmentsPerSend above 1 sends UDP in GSO packets of that many datagrams.
	SegmentsPerSend int
	// RateBPS limits what the container wants to send, on the wire; 0 means
	// more than the link carries.
	RateBPS uint64
	// Flood sends UDP as fast as the CPU can, which is the point when CPU
	// cost is measured and a nuisance otherwise.
	Flood bool
	// Active are the times during which the container sends, from the start
	// of the run; nil means always.
	Active []Interval
}

// Interval is a time from From up to Until, counted from the start of a run.
type Interval struct{ From, Until time.Duration }

// Change is a new policy for a container, at a time from the start of a run.
type Change struct {
	At        time.Duration
	Container int // index in Case.Containers
	Policy
}

// mode returns the network mode of the case's containers.
func (c Case) mode() testbed.Mode { return cmp.Or(c.Mode, testbed.ModeBridge) }

// ID names a case within a suite.
func (c Case) ID() string { return c.Group + ": " + c.Name }

// ports returns the number of the neighbour's ports that the case needs.
func (c Case) ports() int {
	count := 1
	for i, one := range c.Containers {
		if one.Load.Protocol != "" {
			count = i + 1
		}
	}
	return count
}

// senders are how many containers send.
func (c Case) senders() int {
	count := 0
	for _, one := range c.Containers {
		if one.Load.Protocol != "" {
			count++
		}
	}
	return count
}

// activeAt reports whether the container sends at a time.
func (l Load) activeAt(at time.Duration) bool {
	if l.Protocol == "" {
		return false
	}
	if l.Active == nil {
		return true
	}
	for _, interval := range l.Active {
		if interval.From <= at && at < interval.Until {
			return true
		}
	}
	return false
}

// policiesAt returns the containers with the policies in force at a time.
func (c Case) policiesAt(at time.Duration) []Container {
	containers := append([]Container(nil), c.Containers...)
	for _, change := range c.Changes {
		if change.At <= at {
			containers[change.Container].Policy = change.Policy
		}
	}
	return containers
}
