// Package picasso repeats PiCasso's evaluation (section IV) on nodes that are Docker engines
// in network namespaces, and holds Weir's placement against Swarm's own where uplinks are
// short.
package picasso

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/report/machine"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// Suite is its name.
const Suite = "picasso"

// Parts of the suite.
const (
	PartSuccess     = "success"     // figure 3, and table I
	PartReplicas    = "replicas"    // figures 5 to 8
	PartCapacity    = "capacity"    // section IV.C: how many replicas a node stands
	PartCost        = "cost"        // figure 9
	PartCompetition = "competition" // Weir's placement and Swarm's own
	PartMemory      = "memory"      // of weir-edge, with ten nodes
)

// Parts returns all parts of the suite.
func Parts() []string {
	return []string{PartSuccess, PartReplicas, PartCapacity, PartCost, PartCompetition, PartMemory}
}

const (
	// PaperNodes is how many nodes the paper has.
	PaperNodes = 4
	// UplinkBPS is the rate of uplinks in the competition, unless said otherwise.
	UplinkBPS       = 20_000_000
	linkBPS         = 100e6
	roundTrip       = 5 * time.Millisecond
	nodeMemoryBytes = 1 << 30
	// mostCompetitionNodes have as many instances as a specification can ask nodes for.
	mostCompetitionNodes = 8
	// nodesPart is which part of the machine's processors the nodes have together.
	// Users and the kernel's forwarding have the rest, so that it is nodes that are
	// exhausted.
	nodesPart = 0.1
	// patience is after how long a user gives up on an answer.
	patience = 5 * time.Second
)

// Options say what is measured.
type Options struct {
	Parts []string
	// Requests are those of one run, For how long at most users begin new ones.
	Requests int
	For      time.Duration
	// Users are the crowds of figure 3.
	Users []int
	// Starts is how often each server is started for figure 9.
	Starts int
	// RunOptions.Duration is that of each load of the competition, whose uplinks have
	// CompetitionLinkBPS. Nodes are how many there are, Orders how often it is drawn which
	// of them are busy.
	measure.RunOptions
	CompetitionLinkBPS uint64
	Nodes              []int
	Orders             int
	// Nginx is that program; empty: as the PATH finds it.
	Nginx string
	// EdgeBinary is the weir-edge that is measured.
	EdgeBinary string
}

const (
	// crowdRest is about how long a crowd takes from its last request to the last answer, at most patience.
	crowdRest = 2 * time.Second
	// containerTime is about how long it takes to start a container and to remove it.
	containerTime = 700 * time.Millisecond
	// tomcatTime is about how much longer that of tomcat takes until it can be measured.
	tomcatTime = 2 * time.Second
)

// RoundTime returns about how long a round of crowds takes: of figures 3 and 5 to 8, and of the replicas of a node.
func (o Options) RoundTime() time.Duration {
	success, capacity := len(webServers())*len(o.Users), len(capacityServers())
	crowds, containers, arrivals, tomcats := success+capacity, success+capacity, 0, len(o.Users)
	servers := len(Report{}.replicated())
	for _, l := range paperLayouts() {
		crowds += servers
		containers += servers * l.containers
		tomcats += l.containers
	}
	if _, err := findTomcat(); err != nil {
		tomcats = 0
	}
	for replicas := 1; replicas <= capacityMost; replicas *= 2 {
		arrivals += capacity
		containers += capacity * replicas
	}
	return time.Duration(crowds)*(o.For+crowdRest) + time.Duration(arrivals)*capacityTime + time.Duration(containers)*containerTime + time.Duration(tomcats)*tomcatTime
}

// NeedsEdge reports whether parts measure weir-edge.
func NeedsEdge(parts []string) bool {
	return slices.Contains(parts, PartCompetition) || slices.Contains(parts, PartMemory)
}

// Check returns an error for invalid options, before anything is started.
func (o Options) Check() error {
	for _, part := range o.Parts {
		if !slices.Contains(Parts(), part) {
			return fmt.Errorf("unknown part %q: choose from %s", part, strings.Join(Parts(), ", "))
		}
	}
	switch {
	case len(o.Parts) == 0:
		return errors.New("nothing to measure: choose a part")
	case o.Requests < 100 || o.Starts < 1 || o.Repeat < 1:
		return errors.New("a run has 100 requests or more, and each server is started, and each crowd comes, once or more")
	case o.For < time.Second:
		return errors.New("a run takes a second or more")
	case o.Duration < 2*time.Second:
		return errors.New("a load of the competition takes 2s or more")
	case o.Orders < 1 || o.Orders > 100:
		return errors.New("it is drawn 1 to 100 times which nodes are busy")
	case slices.ContainsFunc(o.Nodes, func(nodes int) bool { return nodes < PaperNodes || nodes > mostCompetitionNodes || nodes%2 != 0 }):
		return fmt.Errorf("the competition has %d to %d nodes, an even number", PaperNodes, mostCompetitionNodes)
	case !slices.IsSorted(o.Nodes):
		return errors.New("the competition begins with the fewest nodes: nodes can only be added")
	case o.CompetitionLinkBPS < 1e6 || o.CompetitionLinkBPS > 1e9:
		return errors.New("the uplinks of the competition have 1mbit to 1gbit")
	case slices.ContainsFunc(o.Users, func(users int) bool { return users < 1 || users > 5000 }):
		return errors.New("crowds are of 1 to 5000 users")
	}
	return nil
}

// Report is what `weir bench picasso -o json` prints. Field names are only ever
// added to.
type Report struct {
	report.Report
	Suite string `json:"suite"`
	// NodeCPUs is how many processors a node has, 0: not capped.
	NodeCPUs float64 `json:"node_cpus"`
	// CrowdRequests is the largest number of requests of a crowd; after CrowdSeconds a crowd begins no new ones.
	CrowdRequests int     `json:"crowd_requests,omitempty"`
	CrowdSeconds  float64 `json:"crowd_seconds,omitempty"`
	// Crowds are figures 3 and 5 to 8.
	Crowds []Crowd `json:"crowds,omitempty"`
	// Capacity is section IV.C: one to capacityMost replicas on a node, each asked for the same.
	Capacity []Crowd `json:"capacity,omitempty"`
	// EngineSeconds are how long engines took to start, Starts instances.
	EngineSeconds []float64            `json:"engine_seconds,omitempty"`
	Starts        map[string][]float64 `json:"start_seconds,omitempty"`
	// Tomcat is the version of the tomcat that was measured; empty: a server of our own stood for it.
	Tomcat string `json:"tomcat,omitempty"`
	// ImageBytes are sizes of images.
	ImageBytes         map[string]uint64 `json:"image_bytes,omitempty"`
	CompetitionLinkBPS uint64            `json:"competition_link_bps,omitempty"`
	Competition        []Competitor      `json:"competition,omitempty"`
	Minimum            *MinimumKept      `json:"minimum,omitempty"`
	// EdgeResidentBytes is the memory of weir-edge with EdgeNodes nodes, EdgePeakBytes the
	// most that it had.
	EdgeNodes         int    `json:"edge_nodes,omitempty"`
	EdgeResidentBytes uint64 `json:"edge_resident_bytes,omitempty"`
	EdgePeakBytes     uint64 `json:"edge_peak_bytes,omitempty"`
	// LeftOut are cases that there was no time for.
	LeftOut int `json:"left_out,omitempty"`
	// Missing are servers that could not be measured, and why.
	Missing map[string]string `json:"missing,omitempty"`
	// Failures are parts that ended early, and why.
	Failures map[string]string `json:"failures,omitempty"`
}

// Failed returns the number of parts that ended early.
func (r Report) Failed() int { return len(r.Failures) }

// Crowd is what a crowd got of a server in one arrangement.
type Crowd struct {
	Server string `json:"server"`
	// Layout is as the paper names it, such as 2Con-1Pi; figure 3 has 1Con-1Pi with
	// crowds of several sizes.
	Layout  string `json:"layout"`
	Figure3 bool   `json:"figure3"`
	Users   int    `json:"users"`
	// ArrivalsPerS are requests a second to each replica from users who do not wait for each other, in place of Users.
	ArrivalsPerS float64 `json:"arrivals_per_s,omitempty"`
	Requests     int     `json:"requests"`
	Failed       int     `json:"failed"`
	// Times are of good answers.
	MeanMS       float64 `json:"mean_ms"`
	P95MS        float64 `json:"p95_ms"`
	RequestsPerS float64 `json:"requests_per_s"`
	// NodeCPUPercent is the processor time of a node in percent of the node's processors, the mean of the nodes
	// with an instance. ContainerCPUPercents are the same for each container, by the container's counter;
	// ContainerCPUPercent is the mean of these.
	NodeCPUPercent       float64   `json:"node_cpu_percent"`
	ContainerCPUPercent  float64   `json:"container_cpu_percent"`
	ContainerCPUPercents []float64 `json:"container_cpu_percents,omitempty"`
	MemoryBytes          uint64    `json:"memory_bytes"`
	// NodeLoad is how many threads of a node's containers run or wait for a processor or a
	// disk, the mean over time and over nodes with an instance: what a load average comes
	// to that has the time for it. NodeLoadMost is the most that was seen.
	NodeLoad     float64 `json:"node_load"`
	NodeLoadMost float64 `json:"node_load_most"`
	// Moments are what the nodes did over time, about each loadPeriod.
	Moments []Moment `json:"moments,omitempty"`
}

// Moment is what nodes with an instance do at a time: means of the nodes.
type Moment struct {
	// Seconds are since the crowd came.
	Seconds float64 `json:"seconds"`
	// NodeCPUPercent is since the moment before; ContainerCPUPercent is the same of the first
	// container, of what a node has.
	NodeCPUPercent      float64 `json:"node_cpu_percent"`
	ContainerCPUPercent float64 `json:"container_cpu_percent"`
	NodeLoad            float64 `json:"node_load"`
	MemoryBytes         uint64  `json:"memory_bytes"`
}

// SuccessPercent returns the percentage of requests with a good answer.
func (c Crowd) SuccessPercent() float64 {
	if c.Requests == 0 {
		return 0
	}
	return 100 * float64(c.Requests-c.Failed) / float64(c.Requests)
}

// waitedMS returns the mean response time, in which a user who gives up counts with the time until then. Without these users
// the slowest server would look fast.
func (c Crowd) waitedMS() float64 {
	return (c.MeanMS*float64(c.Requests-c.Failed) + measure.Milliseconds(patience)*float64(c.Failed)) / float64(max(1, c.Requests))
}

// mostContainerCPU returns the processor time of the container that uses most, as ContainerCPUPercents.
func (c Crowd) mostContainerCPU() float64 {
	if len(c.ContainerCPUPercents) == 0 {
		return 0
	}
	return slices.Max(c.ContainerCPUPercents)
}

// Competitor is what the service's users got of one load, in one order.
type Competitor struct {
	PlacedBy string `json:"placed_by"`
	// Scenario describes the nodes. Differ is true if only some are busy; Order numbers the random
	// draw of the busy ones.
	Scenario string `json:"scenario"`
	Differ   bool   `json:"differ"`
	Order    int    `json:"order"`
	// Load is what users do: ask one after the other (Closed), or arrive.
	Load   string `json:"load"`
	Closed bool   `json:"closed"`
	// Nodes are those with an instance, OnBusy how many of them are busy.
	Nodes  []string `json:"nodes"`
	OnBusy int      `json:"on_busy"`
	// UserMeanMS is the mean over users, MeanMS over requests. P95MS is that of the node
	// where it is longest.
	UserMeanMS   float64 `json:"user_mean_ms"`
	MeanMS       float64 `json:"mean_ms"`
	P95MS        float64 `json:"p95_ms"`
	RequestsPerS float64 `json:"requests_per_s"`
	// PayloadBPS is what users received.
	PayloadBPS float64 `json:"payload_bps"`
	// UplinkBPS is what all nodes sent together, with what else they have.
	UplinkBPS float64 `json:"uplink_bps"`
	Requests  int     `json:"requests"`
	Failed    int     `json:"failed"`
}

// MinimumKept is what all users of the service got together of its minimum.
type MinimumKept struct {
	// PromisedBPS and GotBPS are of frames at the uplink; GotBPS is counted where users
	// are.
	PromisedBPS float64 `json:"promised_bps"`
	GotBPS      float64 `json:"got_bps"`
}

// Run measures the chosen parts. A part that fails is named in the report; the
// error is about what made going on impossible.
func Run(ctx context.Context, options Options) (found Report, err error) {
	if err := options.Check(); err != nil {
		return found, err
	}
	started := time.Now()
	found = Report{
		Report: options.NewReport(Suite, "", started, machine.Read(options.Version)),
		Suite:  Suite, Missing: map[string]string{}, Failures: map[string]string{},
		Starts: map[string][]float64{}, ImageBytes: map[string]uint64{}, CrowdRequests: options.Requests, CrowdSeconds: options.For.Seconds(),
	}
	found.PausesUnknown = true
	found.Environment.Containers = testbed.SaysOr(ctx, "docker "+report.Unknown, "dockerd", "--version")
	b, err := newBed(ctx, options, &found)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	parts := map[string]func(context.Context) error{
		PartSuccess: b.success, PartReplicas: b.replicas, PartCapacity: b.capacity, PartCost: b.cost, PartCompetition: b.competition,
		PartMemory: b.memory,
	}
	for _, name := range Parts() {
		if !slices.Contains(options.Parts, name) {
			continue
		}
		if err := parts[name](ctx); ctx.Err() != nil {
			return found, ctx.Err()
		} else if err != nil {
			found.Failures[name] = err.Error()
			fmt.Fprintf(options.Progress, "  failed: %v\n", err)
		}
	}
	found.Runs = len(found.Crowds) + len(found.Capacity) + len(found.Competition)
	found.complete()
	found.TookSeconds = time.Since(started).Seconds()
	return found, nil
}
