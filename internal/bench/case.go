package bench

import (
	"time"

	"github.com/weir-project/weir/internal/traffic"
)

// Case is one situation that all peers are put in: a link, containers with
// policies, and what they send. It is data; suites are tables of it.
type Case struct {
	// Group gathers cases in reports, e.g. "figure 7".
	Group string
	// Name tells a case from the others of its group.
	Name string
	// LinkBPS is the link's rate in bits per second on the wire (L2 frames
	// without FCS, what tc counts); 0 is a link that only the CPU limits.
	LinkBPS    uint64
	Containers []Container
	// Changes are made to policies while the case runs.
	Changes []Change
	// Length overrides the run's duration for cases with a script; such a
	// case has no warm-up.
	Length time.Duration
	// Measures says what the case is about.
	Measures Measures
	// Peers are the peers that take part; nil means the usual ones.
	Peers []string
	// PaperLatencyMS is the paper's latency by peer, in milliseconds.
	PaperLatencyMS map[string]float64
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
)

func (m Measures) has(other Measures) bool { return m&other != 0 }

// Container is a container of a case.
type Container struct {
	Name string
	// Weight is the relative share; MinBPS and MaxBPS are the floor and the
	// ceiling in bits per second, 0 for none.
	Weight         uint32
	MinBPS, MaxBPS uint64
	Load           Load
	// PaperMbps is what the paper's text says the container got, in Mbit/s;
	// 0 where it gives no number.
	PaperMbps float64
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
	At             time.Duration
	Container      int // index in Case.Containers
	Weight         uint32
	MinBPS, MaxBPS uint64
}

// ID names a case within a suite.
func (c Case) ID() string { return c.Group + ": " + c.Name }

// activeAt says whether the container sends at a time.
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
			one := &containers[change.Container]
			one.Weight, one.MinBPS, one.MaxBPS = change.Weight, change.MinBPS, change.MaxBPS
		}
	}
	return containers
}
