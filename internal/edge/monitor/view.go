package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/share/policy"
)

// State is the state of a node.
type State string

// The states of a node.
const (
	StateReady State = "ready"
	// StateNoWeir: it has no Weir agent, so what it has is unknown, and no minimum can be
	// promised there.
	StateNoWeir State = "no-weir"
	// StateStale: it has not answered for a while; its last answer is shown.
	StateStale State = "stale"
	// StateGone: it has not answered for so long that it counts as off.
	StateGone State = "gone"
	// StateUnknown: no poll has been answered or has failed yet.
	StateUnknown State = "unknown"
)

// Node is what is known of one node.
type Node struct {
	Name  string
	State State
	// Reason is why it is not ready, or why it did not answer the last question.
	Reason string
	// Problems are implausible or odd values that it reports.
	Problems []string
	// AgeSeconds is the age of all of the following; nil if it never answered.
	AgeSeconds *float64
	// Said is what the node's agent said last, in the paper's words (PiCasso, section III.B); nil if it
	// never answered.
	Said *v1.Node
	// Access is the role of weir-edge at the node's agent; empty if the agent is too old to say.
	Access v1.Access
	// RoundTripSeconds is the shortest of the last questions.
	RoundTripSeconds float64
	// Engine is the node in the engine's format. All minimums in force count as those of other
	// programs.
	Engine engine.Node
	// Responses are how long users who connect to the node wait.
	Responses []v1.ServiceResponse
	// Containers are what the node's agent controls, except the host itself.
	Containers []Container
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
	// Connections are those that others have opened to it and use; nil if they are not counted.
	Connections *int
	// SentBPS is what it sends at the node's uplink.
	SentBPS uint64
	// MinBPS is the minimum that it asks for, AdmittedBPS what the node's uplink has admitted of it, cut
	// or not; 0 while the uplink is not shared.
	MinBPS      uint64
	AdmittedBPS uint64
	// CutBPS is what of an admitted minimum is not given: the uplink has become too slow or, if AdmittedBPS
	// is 0, is not shared.
	CutBPS uint64
	// In are the same of what it receives; 0 where that is not shared.
	In     Minimum
	State  v1.State
	Reason string
}

// Minimum is a container's minimum at the node's uplink, as of what is sent.
type Minimum struct{ MinBPS, AdmittedBPS, CutBPS uint64 }

// Is reports whether a container has a name in its engine, or is a task of the Swarm service of
// that name, which its agent reports as a group.
func (c *Container) Is(name string) bool {
	return strings.TrimPrefix(c.Name, "/") == name || slices.Contains(c.Groups, name)
}

// LooksOnly reports whether weir-edge has read-only access to the node's agent.
func (n *Node) LooksOnly() bool { return n.Access.Role == access.Read.String() }

// Nodes returns all nodes by name, as they are known now.
func (m *Monitor) Nodes() []Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	nodes := []Node{}
	for _, r := range m.sorted() {
		nodes = append(nodes, r.view(now))
	}
	return nodes
}

func (r *reading) view(now time.Time) Node {
	n := Node{Name: r.Name, Problems: slices.Clone(r.problems)}
	n.State, n.Reason = r.state(now)
	n.Engine = engineNode(&n)
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
	said := r.node
	n.Access, n.Said = r.access, &said
	e, m := &n.Engine, &r.node.Measured
	if n.State != StateNoWeir {
		n.Responses = r.node.Measured.Responses
		e.CPUs, e.CPUUsedPercent, e.Load1 = float64(m.CPUs), m.CPUUsedPercent, m.Load1
		e.MemoryBytes, e.MemoryUsedBytes, e.DiskFreeBytes = m.MemoryBytes, m.MemoryUsedBytes, m.DiskFreeBytes
	}
	name := ""
	if u := uplink(&r.snapshot); u != nil {
		name = u.Name
		e.Weir = n.State == StateReady
		e.UplinkBPS, e.UplinkSentBPS = u.RateBPS, u.SentBPS
		for i := range r.snapshot.Containers {
			if c := &r.snapshot.Containers[i]; share(c.Shares, name).Controlled { // the host always is, while the uplink is shared
				e.Out.BudgetBPS = u.RateBPS - u.ReserveBPS
				e.Out.OtherMinBPS += admitted(c.Shares, name)
			}
			if c := r.snapshot.Containers[i].In; c != nil && u.In != nil && share(c.Shares, name).Controlled {
				e.In.BudgetBPS = u.In.RateBPS - u.In.ReserveBPS
				e.In.OtherMinBPS += admitted(c.Shares, name)
			}
		}
	}
	n.Containers = r.containers(name)
	return n
}

// engineNode returns the name, the state and the reason of a node as the engine takes them.
func engineNode(n *Node) engine.Node {
	switch e := (engine.Node{Name: n.Name, Reason: n.Reason}); n.State {
	case StateGone:
		e.State = engine.NodeGone
		return e
	case StateStale, StateUnknown:
		e.State = engine.NodeStale
		return e
	default: // a node without an agent runs, and is not measured
		return Unmeasured(n.Name)
	}
}

// Unmeasured returns a ready node of which only the name is known.
func Unmeasured(name string) engine.Node { return engine.Node{Name: name, State: engine.NodeReady} }

// oddOffset is the clock offset in seconds from which a node is reported.
const oddOffset = 5

// state returns the state of a node and its reason.
func (r *reading) state(now time.Time) (State, string) {
	if r.Agent == nil {
		return StateNoWeir, "it has no Weir agent"
	}
	if r.asked == 0 {
		return StateUnknown, "it was not asked yet"
	}
	// A node that returns invalid answers is alive but gets no instances.
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
	case r.lacksAgent() && (r.answered.IsZero() || age > staleSeconds):
		return StateNoWeir, r.why()
	case silent > goneSeconds && r.missed >= 2:
		return StateGone, r.why()
	case r.answered.IsZero(), age > staleSeconds:
		return StateStale, r.why()
	}
	return StateReady, r.why()
}

// uplink returns the uplink that services are served at: of those that are present, the one with
// the highest rate; nil if there is none.
func uplink(s *v1.Snapshot) (best *v1.Uplink) {
	for i := range s.Status.Uplinks {
		if u := &s.Status.Uplinks[i]; u.Present && (best == nil || u.RateBPS > best.RateBPS) {
			best = u
		}
	}
	return best
}

// share returns what a container has and sends, or receives, at an uplink.
func share(shares []v1.Share, uplink string) v1.Share {
	for _, s := range shares {
		if s.Uplink == uplink {
			return s
		}
	}
	return v1.Share{}
}

// admitted returns the minimum of a container that an uplink has admitted, cut or not: none while another
// program keeps the agent from sharing it.
func admitted(shares []v1.Share, uplink string) uint64 {
	s := share(shares, uplink)
	if !s.Controlled {
		return 0
	}
	return min(s.AdmittedBPS, policy.MaxRateBPS)
}

// kept returns what an uplink gives of a minimum that was admitted there: less if it has become too
// slow, and nothing if it is not shared.
func kept(s v1.Share) uint64 {
	if !s.Controlled {
		return 0
	}
	return min(s.AdmittedBPS, s.EntitledBPS)
}

// isLower reports whether an agent keeps less of a container's minimum than before and than it has been
// told, or has begun to refuse it.
func isLower(before, now *v1.Snapshot) bool {
	type minimum struct {
		keptBPS, toldBPS uint64
		refused          bool
	}
	minimums := func(s *v1.Snapshot) map[string]minimum {
		list := map[string]minimum{}
		if u := uplink(s); u != nil {
			for i := range s.Containers {
				c := &s.Containers[i]
				list[c.ID] = minimum{kept(share(c.Shares, u.Name)), c.Policy.MinBPS, c.State == v1.StateRejected}
				if c.In != nil {
					list[c.ID+"/in"] = minimum{kept(share(c.In.Shares, u.Name)), c.In.Policy.MinBPS, false}
				}
			}
		}
		return list
	}
	was := minimums(before)
	for id, is := range minimums(now) {
		if is.keptBPS < min(was[id].keptBPS, is.toldBPS) || is.refused && !was[id].refused {
			return true
		}
	}
	return len(was) > 0 && uplink(now) == nil
}

func (r *reading) containers(uplink string) []Container {
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
		if uplink != "" {
			s := share(seen.Shares, uplink)
			c.AdmittedBPS, c.CutBPS, c.SentBPS = admitted(seen.Shares, uplink), s.AdmittedBPS-kept(s), s.RateBPS
			if seen.In != nil {
				s = share(seen.In.Shares, uplink)
				c.In = Minimum{seen.In.Policy.MinBPS, admitted(seen.In.Shares, uplink), s.AdmittedBPS - kept(s)}
			}
		}
		if used := measured[seen.ID]; used != nil {
			c.MemoryBytes, c.Connections = used.MemoryBytes, used.Connections
		}
		if cpus, known := r.used.cpus[seen.ID]; known {
			c.CPUs = &cpus
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Container) int { return strings.Compare(a.ID, b.ID) })
	return list
}
