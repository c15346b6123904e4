package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/policy"
)

// View is all that is known of all nodes: the "json object with monitored data that
// includes information of all edge nodes" (PiCasso, section III.B).
type View struct {
	At    time.Time `json:"at"`
	Nodes []Node    `json:"nodes"` // by name
}

// State says how a node is.
type State string

// The states of a node.
const (
	StateReady State = "ready"
	// StateNoWeir: it has no Weir agent, so nobody can say what it has, or promise a
	// minimum there.
	StateNoWeir State = "no-weir"
	// StateStale: it has not answered for a while; what it said last is shown.
	StateStale State = "stale"
	// StateGone: it has not answered for so long that it counts as off.
	StateGone State = "gone"
	// StateUnknown: nobody has answered or failed to yet.
	StateUnknown State = "unknown"
)

// Node is what is known of one node.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	State   State  `json:"state"`
	// Reason says why it is not ready, or why it did not answer the last question.
	Reason string `json:"reason,omitempty"`
	// Problems are what it says that cannot be, and what is odd about it.
	Problems []string `json:"problems,omitempty"`
	// AgeSeconds is how old all of the following is; absent if it never answered.
	AgeSeconds *float64 `json:"age_seconds,omitempty"`
	// Version is that of its agent.
	Version string `json:"version,omitempty"`
	// RoundTripSeconds is the shortest of the last questions.
	RoundTripSeconds float64 `json:"round_trip_seconds"`
	// ClockOffsetSeconds is by how much the node's clock is ahead of this machine's.
	ClockOffsetSeconds float64 `json:"clock_offset_seconds"`
	Watched
	// Node is the paper's monitoring object, and the same in numbers.
	Node *v1.Node `json:"node,omitempty"`
	// Uplink is where services are served; nil without one.
	Uplink *Uplink `json:"uplink,omitempty"`
	// Containers are what the node's agent controls, but for the host itself.
	Containers []Container `json:"containers,omitempty"`
}

// Uplink is what a node's uplink has to give.
type Uplink struct {
	Name    string `json:"name"`
	RateBPS uint64 `json:"rate_bps"`
	SentBPS uint64 `json:"sent_bps"`
	// BudgetBPS is what minimums may claim together, AdmittedBPS what they do.
	BudgetBPS   uint64 `json:"budget_bps"`
	AdmittedBPS uint64 `json:"admitted_bps"`
}

// Container is a container of a node.
type Container struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// CPUs are the processors that it keeps busy; nil if that is not known.
	CPUs        *float64 `json:"cpus,omitempty"`
	MemoryBytes *uint64  `json:"memory_bytes,omitempty"`
	SentBPS     uint64   `json:"sent_bps"`
	// MinBPS is the minimum that it asks for, AdmittedBPS what is in force at the
	// node's uplink.
	MinBPS      uint64   `json:"min_bps"`
	AdmittedBPS uint64   `json:"admitted_bps"`
	State       v1.State `json:"state"`
	Reason      string   `json:"reason,omitempty"`
}

// View is what is known now.
func (m *Monitor) View() View {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	view := View{At: now, Nodes: []Node{}}
	hosts := map[string]string{}
	for _, r := range m.sorted() {
		n := r.view(now, m.options)
		if n.Node != nil && n.Node.Measured.Hostname != "" {
			host := n.Node.Measured.Hostname
			if other, twice := hosts[host]; twice {
				n.Problems = append(n.Problems, fmt.Sprintf("%s has the same host name, %q: is it the same machine?", other, host))
			}
			hosts[host] = n.Name
		}
		view.Nodes = append(view.Nodes, n)
	}
	return view
}

func (r *reading) view(now time.Time, o Options) Node {
	n := Node{
		Name: r.Name, Address: r.Address, Problems: slices.Clone(r.problems),
		ClockOffsetSeconds: r.offset, Watched: Watched{WatchedSeconds: r.watched, ThereSeconds: r.there},
	}
	n.State, n.Reason = r.state(now, o)
	if offset := max(r.offset, -r.offset); offset > oddOffset {
		n.Problems = append(n.Problems, fmt.Sprintf("its clock is %.0f s off: set it by NTP", r.offset))
	}
	if r.answered.IsZero() {
		return n
	}
	age := max(now.Sub(r.answered).Seconds(), 0)
	n.AgeSeconds, n.Version = &age, r.snapshot.Status.Version
	if len(r.trips) > 0 {
		n.RoundTripSeconds = slices.Min(r.trips)
	}
	node := r.node
	n.Node = &node
	n.Uplink = uplink(&r.snapshot)
	n.Containers = r.containers(n.Uplink)
	return n
}

// oddOffset is from when on a clock is worth a word, in seconds.
const oddOffset = 5

// state says how a node is, and why.
func (r *reading) state(now time.Time, o Options) (State, string) {
	if r.Agent == nil {
		return StateNoWeir, "it has no Weir agent"
	}
	if r.asked == 0 {
		return StateUnknown, "it was not asked yet"
	}
	// Who says nothing of use is there, and is not to be given anything.
	answered, spoke := r.answered, r.spoke
	if answered.IsZero() {
		answered = r.since
	}
	if spoke.IsZero() {
		spoke = r.since
	}
	silent := now.Sub(spoke).Seconds()
	age := now.Sub(answered).Seconds()
	switch {
	case r.noAgent && (r.answered.IsZero() || age > o.StaleSeconds):
		return StateNoWeir, r.why()
	case silent > o.GoneSeconds && r.missed >= 2:
		return StateGone, r.why()
	case r.answered.IsZero(), age > o.StaleSeconds:
		return StateStale, r.why()
	}
	return StateReady, r.why()
}

// uplink is the one that services are served at: of those that are there, the one with
// the highest rate.
func uplink(s *v1.Snapshot) *Uplink {
	var best *v1.Uplink
	for i := range s.Status.Uplinks {
		if u := &s.Status.Uplinks[i]; u.Present && (best == nil || u.RateBPS > best.RateBPS) {
			best = u
		}
	}
	if best == nil {
		return nil
	}
	u := &Uplink{Name: best.Name, RateBPS: best.RateBPS, SentBPS: best.SentBPS, BudgetBPS: best.RateBPS - best.ReserveBPS}
	for i := range s.Containers {
		u.AdmittedBPS += admitted(&s.Containers[i], u)
	}
	return u
}

// admitted is the minimum of a container that is in force at an uplink.
func admitted(c *v1.Container, u *Uplink) uint64 {
	for _, s := range c.Shares {
		if s.Uplink == u.Name {
			return min(s.AdmittedBPS, policy.MaxRateBPS)
		}
	}
	return 0
}

func (r *reading) containers(u *Uplink) []Container {
	measured := map[string]*v1.MeasuredContainer{}
	for i := range r.node.Measured.Containers {
		c := &r.node.Measured.Containers[i]
		measured[c.ID] = c
	}
	var list []Container
	for i := range r.snapshot.Containers {
		seen := &r.snapshot.Containers[i]
		if seen.Runtime == "host" {
			continue
		}
		c := Container{
			ID: seen.ID, Name: seen.Name, SentBPS: seen.RateBPS, MinBPS: seen.Policy.MinBPS, State: seen.State, Reason: seen.Reason,
		}
		if u != nil {
			c.AdmittedBPS = admitted(seen, u)
		}
		if used := measured[seen.ID]; used != nil {
			c.MemoryBytes = used.MemoryBytes
		}
		if cpus, known := r.cpus[seen.ID]; known {
			c.CPUs = &cpus
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Container) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// Engine is the node as the engine has it. ours says which containers' minimums the
// ledger holds (nil: none); those of all others are promised by somebody else. prior is the part of
// the time that a node is expected to be there of which nothing is known.
func (n *Node) Engine(ours func(*Container) bool, prior float64) engine.Node {
	e := engine.Node{Name: n.Name, Reason: n.Reason, State: engine.NodeReady}
	switch n.State {
	case StateGone:
		e.State = engine.NodeGone
	case StateStale, StateUnknown:
		e.State = engine.NodeStale
	case StateReady:
		e.Weir, e.Reason = n.Uplink != nil, ""
	}
	e.Availability = engine.EstimateAvailability(n.ThereSeconds, n.WatchedSeconds, prior)
	if n.Node != nil && n.State != StateNoWeir {
		m := &n.Node.Measured
		e.CPUs, e.CPUUsedPercent, e.Load1 = float64(m.CPUs), m.CPUUsedPercent, m.Load1
		e.MemoryBytes, e.MemoryUsedBytes, e.DiskFreeBytes = m.MemoryBytes, m.MemoryUsedBytes, m.DiskFreeBytes
	}
	if u := n.Uplink; u != nil {
		e.UplinkBPS, e.UplinkSentBPS, e.BudgetBPS = u.RateBPS, u.SentBPS, u.BudgetBPS
		e.OtherMinBPS = u.AdmittedBPS
		for i := range n.Containers {
			if c := &n.Containers[i]; ours != nil && ours(c) {
				e.OtherMinBPS -= min(c.AdmittedBPS, e.OtherMinBPS)
			}
		}
	}
	return e
}
