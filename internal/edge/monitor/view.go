package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/access"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/policy"
)

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
	Name  string
	State State
	// Reason says why it is not ready, or why it did not answer the last question.
	Reason string
	// Problems are what it says that cannot be, and what is odd about it.
	Problems []string
	// AgeSeconds is how old all of the following is; absent if it never answered.
	AgeSeconds *float64
	// Access is who asks, for the node's agent, and what they may do; without a role if the
	// agent is too old to say.
	Access v1.Access
	// RoundTripSeconds is the shortest of the last questions.
	RoundTripSeconds float64
	// Node is the paper's monitoring object, and the same in numbers.
	Node *v1.Node
	// Uplink is where services are served; nil without one.
	Uplink *Uplink
	// Containers are what the node's agent controls, but for the host itself.
	Containers []Container
}

// Uplink is what a node's uplink has to give.
type Uplink struct {
	Name    string
	RateBPS uint64
	SentBPS uint64
	// BudgetBPS is what minimums may claim together, AdmittedBPS what they do.
	BudgetBPS   uint64
	AdmittedBPS uint64
}

// Container is a container of a node.
type Container struct {
	ID   string
	Name string
	// Groups are the service and the pod that it is of.
	Groups []string
	// CPUs are the processors that it keeps busy; nil if that is not known.
	CPUs        *float64
	MemoryBytes *uint64
	// SentBPS is what it sends at the node's uplink.
	SentBPS uint64
	// MinBPS is the minimum that it asks for, AdmittedBPS what is in force at the
	// node's uplink.
	MinBPS      uint64
	AdmittedBPS uint64
	State       v1.State
	Reason      string
}

// Is says whether a container has a name in its engine, or is a task of the Swarm service
// that has it, whose label the agent tells as a group.
func (c *Container) Is(name string) bool {
	return strings.TrimPrefix(c.Name, "/") == name || slices.Contains(c.Groups, name)
}

// LooksOnly says whether the node's agent lets who asks change no policy.
func (n *Node) LooksOnly() bool { return n.Access.Role == access.Read.String() }

// Nodes are all nodes by name, as they are known now: the "json object with monitored data
// that includes information of all edge nodes" (PiCasso, section III.B).
func (m *Monitor) Nodes() []Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	nodes := []Node{}
	for _, r := range m.sorted() {
		nodes = append(nodes, r.view(now, m.options))
	}
	return nodes
}

func (r *reading) view(now time.Time, o Options) Node {
	n := Node{Name: r.Name, Problems: slices.Clone(r.problems)}
	n.State, n.Reason = r.state(now, o)
	if offset := max(r.offset, -r.offset); offset > oddOffset {
		n.Problems = append(n.Problems, fmt.Sprintf("its clock is %.0f s off: set it by NTP", r.offset))
	}
	if r.answered.IsZero() {
		return n
	}
	age := max(now.Sub(r.answered).Seconds(), 0)
	n.AgeSeconds = &age
	if len(r.trips) > 0 {
		n.RoundTripSeconds = slices.Min(r.trips)
	}
	node := r.node
	n.Node, n.Access = &node, r.access
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

// share is what a container has and sends at an uplink.
func share(c *v1.Container, u *Uplink) v1.Share {
	for _, s := range c.Shares {
		if s.Uplink == u.Name {
			return s
		}
	}
	return v1.Share{}
}

// admitted is the minimum of a container that is in force at an uplink.
func admitted(c *v1.Container, u *Uplink) uint64 {
	return min(share(c, u).AdmittedBPS, policy.MaxRateBPS)
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
			ID: seen.ID, Name: seen.Name, Groups: seen.Groups, MinBPS: seen.Policy.MinBPS, State: seen.State, Reason: seen.Reason,
		}
		if u != nil {
			c.AdmittedBPS, c.SentBPS = admitted(seen, u), share(seen, u).RateBPS
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

// Engine is the node as the engine has it, with all minimums that are in force there as those
// of others.
func (n *Node) Engine() engine.Node {
	e := engine.Node{Name: n.Name, Reason: n.Reason, State: engine.NodeReady}
	switch n.State {
	case StateGone:
		e.State = engine.NodeGone
	case StateStale, StateUnknown:
		e.State = engine.NodeStale
	case StateReady:
		e.Weir, e.Reason = n.Uplink != nil, ""
	case StateNoWeir: // it runs, and nobody measures it
		e.Reason = ""
	}
	if n.Node != nil && n.State != StateNoWeir {
		m := &n.Node.Measured
		e.CPUs, e.CPUUsedPercent, e.Load1 = float64(m.CPUs), m.CPUUsedPercent, m.Load1
		e.MemoryBytes, e.MemoryUsedBytes, e.DiskFreeBytes = m.MemoryBytes, m.MemoryUsedBytes, m.DiskFreeBytes
	}
	if u := n.Uplink; u != nil {
		e.UplinkBPS, e.UplinkSentBPS, e.BudgetBPS = u.RateBPS, u.SentBPS, u.BudgetBPS
		e.OtherMinBPS = u.AdmittedBPS
	}
	return e
}
