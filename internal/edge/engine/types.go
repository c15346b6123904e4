package engine

import (
	"strconv"
	"time"

	"github.com/weir-project/weir/internal/edge/spec"
)

// Input is everything that a round of decisions depends on. Two rounds with the
// same input decide the same, in any order of the lists.
type Input struct {
	// At is when the input was true. The engine has no clock of its own.
	At time.Time `json:"at"`
	// Nodes are all nodes that are known, also those that do not answer.
	Nodes []Node `json:"nodes"`
	// Services are those that should run.
	Services []Service `json:"services"`
	// Instances are those that run, start or end, or are promised in the ledger.
	Instances []Instance `json:"instances"`
	// Demand is where users come to, as the proxies see it.
	Demand []Demand `json:"demand"`
	// Claims are what services are promised on nodes for their minimums; see [Divide].
	Claims []Claim `json:"claims,omitempty"`
	// Links are the measured round trips between nodes; those that are not
	// measured have an assumed one (constants.go).
	Links []Link `json:"links"`
	// Memory is [Result.Memory] of the round before; the zero value for the first.
	Memory Memory `json:"memory"`
}

// NodeState is what the engine may do with a node.
type NodeState string

// The states of a node.
const (
	// NodeReady: it answers, and takes instances.
	NodeReady NodeState = "ready"
	// NodeStale: it has not answered for a while. Its instances count, and none is
	// started there.
	NodeStale NodeState = "stale"
	// NodeGone: it has not answered for so long that its instances count as lost.
	NodeGone NodeState = "gone"
	// NodeDraining: its operator wants it empty. Its instances move away.
	NodeDraining NodeState = "draining"
)

// Node is what a node has and what is left of it.
type Node struct {
	// Name is what instances, demand and links call it. It is unique.
	Name  string    `json:"name"`
	State NodeState `json:"state"`
	// Reason is why the node is in another state than ready.
	Reason string `json:"reason,omitempty"`
	// Platform is "linux/arm64", as images have it; empty where it is not known.
	Platform string `json:"platform,omitempty"`

	CPUs           float64 `json:"cpus"`
	CPUUsedPercent float64 `json:"cpu_used_percent"` // of all processors together
	Load1          float64 `json:"load_1"`

	MemoryBytes     uint64 `json:"memory_bytes"`
	MemoryUsedBytes uint64 `json:"memory_used_bytes"`
	DiskFreeBytes   uint64 `json:"disk_free_bytes"`

	// Weir: an agent shares out the node's uplink. Without one nothing can be
	// promised there, and the rates below are unknown.
	Weir bool `json:"weir"`
	// ReadOnly: weir-edge may read from the agent and change nothing, so that nothing can be
	// promised there either.
	ReadOnly bool `json:"read_only,omitempty"`
	// UplinkBPS is the rate of the uplink, UplinkSentBPS what it sends now.
	UplinkBPS     uint64 `json:"uplink_bps"`
	UplinkSentBPS uint64 `json:"uplink_sent_bps"`
	// BudgetBPS is what minimums may claim together: the uplink's rate less the
	// agent's reserve. OtherMinBPS are the minimums in force that are not those of
	// services.
	BudgetBPS   uint64 `json:"budget_bps"`
	OtherMinBPS uint64 `json:"other_min_bps"`

	// Availability is the part of the time that the node is there, 0 to 1; see
	// [EstimateAvailability]. 0 and 1: nothing is known.
	Availability float64 `json:"availability"`
	// PullBPS is the rate at which the node gets images. 0: not known.
	PullBPS uint64 `json:"pull_bps"`
	// Images are those of services that the node has already.
	Images []string `json:"images"`
}

// promises returns true if a minimum can be promised on the node at all.
func (n *Node) promises() bool { return n.Weir && !n.ReadOnly }

// Service is a service that should run: its specification, and what is measured of
// it in place of estimates there.
type Service struct {
	Spec spec.Spec `json:"spec"`
	// MeasuredStartUpSeconds is from start to first answer, as last measured; 0: not yet.
	MeasuredStartUpSeconds float64 `json:"measured_start_up_seconds,omitempty"`
}

// InstanceState is the stage of an instance's life.
type InstanceState string

// The states of an instance.
const (
	// InstanceStarting: it is promised or started, and has not answered yet.
	InstanceStarting InstanceState = "starting"
	// InstanceRunning: it answers health checks.
	InstanceRunning InstanceState = "running"
	// InstanceUnhealthy: it runs and does not answer.
	InstanceUnhealthy InstanceState = "unhealthy"
	// InstanceUnknown: it runs, and no proxy says whether it answers. It counts, and
	// is left alone.
	InstanceUnknown InstanceState = "unknown"
	// InstanceStopping: it gets no more users and ends.
	InstanceStopping InstanceState = "stopping"
	// InstanceFailed: it did not start, or crashes again and again. Reason says why.
	InstanceFailed InstanceState = "failed"
)

// Instance is one copy of a service on a node.
type Instance struct {
	// ID is unique among all instances: SERVICE-NUMBER, see [InstanceID].
	ID      string        `json:"id"`
	Service string        `json:"service"`
	Node    string        `json:"node"`
	State   InstanceState `json:"state"`
	// Since is when it came into this state.
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`

	// Users are those it serves now, ResponseSeconds how long they wait for an
	// answer, at the proxy.
	Users           float64 `json:"users"`
	ResponseSeconds float64 `json:"response_seconds"`
	// CPUs are the processors that it keeps busy; 0.5 is half of one.
	CPUs        float64 `json:"cpus"`
	MemoryBytes uint64  `json:"memory_bytes"`
	// SentBPS is what it sends over its node's uplink itself: to proxies of other nodes.
	SentBPS uint64 `json:"sent_bps"`

	// LimitBytes is the memory that the ledger promised it, which may differ from its service's
	// specification of today: 0 for none.
	LimitBytes uint64 `json:"limit_bytes"`
	// Replaces is the instance that this one was started in place of; see [Move].
	Replaces string `json:"replaces,omitempty"`
	// MinRefused: the node's agent does not grant what the minimum takes there. Reason says why.
	MinRefused bool `json:"min_refused,omitempty"`
}

// Demand is what users of one service ask for at the proxy of one node.
type Demand struct {
	Service string `json:"service"`
	// Node is the one whose proxy they connect to.
	Node  string  `json:"node"`
	Users float64 `json:"users"` // at once
	// ResponseSeconds is their mean wait.
	ResponseSeconds float64 `json:"response_seconds"`
	// SentBPS is what the service's proxy there sends over the node's uplink: all that users
	// of that node get, from instances of any node. 0: nothing, or unknown.
	SentBPS uint64 `json:"sent_bps,omitempty"`
}

// Link is what is measured between two nodes. It counts in both directions.
type Link struct {
	From             string  `json:"from"`
	To               string  `json:"to"`
	RoundTripSeconds float64 `json:"round_trip_seconds"`
}

// Action is what to do.
type Action string

// The actions.
const (
	// Start: start Instance on Node.
	Start Action = "start"
	// Stop: stop Instance on Node.
	Stop Action = "stop"
	// Move: start Instance on Node, in place of Replaces on From. That goes on until
	// the new one answers; a later round then decides to Stop the old one.
	// To carry it out, a Move is a Start.
	Move Action = "move"
	// Keep: change nothing. Reason is why, also if a change would be needed that
	// is not possible.
	Keep Action = "keep"
)

// Cause is what a decision is about, for programs. Reason is the same for people.
type Cause string

// The causes of decisions.
const (
	CauseUsers        Cause = "users"        // users against what there is room for
	CauseCapacity     Cause = "capacity"     // QoS.numUsers
	CauseResponse     Cause = "response"     // users wait too long
	CauseExhausted    Cause = "exhausted"    // a container or its node has nothing left
	CauseAvailability Cause = "availability" // QoS.availability
	CauseNodeGone     Cause = "node-gone"    // a node does not answer any more
	CauseDraining     Cause = "draining"     // an operator wants a node empty
	CauseRefused      Cause = "min-refused"  // a node does not grant the minimum
	CauseFailed       Cause = "failed"       // an instance does not start, or crashes
	CauseIdle         Cause = "idle"         // fewer users than there is room for
	CauseReplaced     Cause = "replaced"     // the one in its place answers
	CauseRemoved      Cause = "removed"      // the service should not run any more
	CauseCloser       Cause = "closer"       // users would wait less elsewhere
	CauseNone         Cause = "none"         // all is well
	CauseCutOff       Cause = "cut-off"      // too few nodes answer to act on that
)

// Decision is what to do about a service, and why.
type Decision struct {
	Action  Action `json:"action"`
	Service string `json:"service"`
	// Instance is the one to start or stop, on Node. Replaces and From are the
	// instance that a Move is away from. All are empty for Keep.
	Instance string `json:"instance,omitempty"`
	Node     string `json:"node,omitempty"`
	Replaces string `json:"replaces,omitempty"`
	From     string `json:"from,omitempty"`

	// MinBPS is what a Start or Move makes the service's claim on the node at least, LimitBytes
	// what it promises the instance.
	MinBPS     uint64 `json:"min_bps,omitempty"`
	LimitBytes uint64 `json:"limit_bytes,omitempty"`

	Algorithm string `json:"algorithm,omitempty"`
	Cause     Cause  `json:"cause"`
	Reason    string `json:"reason"`
	// Facts are what the decision went by.
	Facts Facts `json:"facts"`
	// Alternatives are what else could have been done, best first and at most
	// [MaxAlternatives]; the first is what was chosen, if anything was.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Excluded counts the nodes that could not be chosen, by reason.
	Excluded []Excluded `json:"excluded,omitempty"`
}

// Facts are the state of a service that a decision went by.
type Facts struct {
	// Instances are those that count, Wanted how many there should be at least, for
	// users, capacity and availability.
	Instances int `json:"instances"`
	Wanted    int `json:"wanted"`
	// Users are there now; Capacity is how many there is room for, 0 if unknown.
	Users    float64 `json:"users"`
	Capacity float64 `json:"capacity"`
	// ResponseSeconds is what users wait, of RequiredSeconds that they may have to;
	// 0: not measured, or not required.
	ResponseSeconds float64 `json:"response_seconds"`
	RequiredSeconds float64 `json:"required_seconds"`
	// CPUPercent is of the busiest instance, of what it may use; NodeCPUPercent of
	// the busiest node with an instance.
	CPUPercent     float64 `json:"cpu_percent"`
	NodeCPUPercent float64 `json:"node_cpu_percent"`
	// Availability is what the nodes of now give, 0 to 1, RequiredAvailability what
	// is asked for.
	Availability         float64 `json:"availability"`
	RequiredAvailability float64 `json:"required_availability"`
}

// Alternative is something that could be done, and what is expected of it.
type Alternative struct {
	Action Action `json:"action"`
	Node   string `json:"node"`
	// Local: the node has an instance of the service already.
	Local bool `json:"local"`
	// TransferSeconds and StartUpSeconds are what it costs until there is an answer.
	TransferSeconds float64 `json:"transfer_seconds"`
	StartUpSeconds  float64 `json:"start_up_seconds"`
	// ResponseSeconds is what users would wait then, RoundTripSeconds of it for the
	// network.
	ResponseSeconds  float64 `json:"response_seconds"`
	RoundTripSeconds float64 `json:"round_trip_seconds"`
	// FreeBPS is what the node's uplink could still promise, HeadroomBPS what it
	// does not send at the moment.
	FreeBPS     uint64  `json:"free_bps"`
	HeadroomBPS uint64  `json:"headroom_bps"`
	CPUPercent  float64 `json:"cpu_percent"` // of the node
	// UplinkPercent of the node's uplink is what others send and the service's minimum
	// does not take from them; 0 where no agent says what the uplink has.
	UplinkPercent float64 `json:"uplink_percent"`
	// Exhausted says what the node has nothing left of; empty if it is well.
	Exhausted string `json:"exhausted,omitempty"`
	// Score orders alternatives, higher is better; Refused says why the algorithm
	// does not take it at all.
	Score   float64 `json:"score"`
	Refused string  `json:"refused,omitempty"`
}

// Excluded are nodes that could not be chosen for the same reason.
type Excluded struct {
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
	// Example is one of them.
	Example string `json:"example"`
}

// Result is what a round decided.
type Result struct {
	// Decisions are in the order in which they should be done; there is at least
	// one for each service.
	Decisions []Decision `json:"decisions"`
	// Memory goes into the next round.
	Memory Memory `json:"memory"`
}

// Memory is what the engine remembers from round to round, so that noise changes
// nothing. Losing it costs only time.
type Memory struct {
	Services map[string]ServiceMemory `json:"services,omitempty"`
}

// ServiceMemory is what is remembered of one service.
type ServiceMemory struct {
	// Grow, Shrink and Move are when instances may be added, stopped, and moved closer to users.
	Grow   Pace `json:"grow,omitzero"`
	Shrink Pace `json:"shrink,omitzero"`
	Move   Pace `json:"move,omitzero"`
	// MovedFrom is the node that the last instance left that was moved closer.
	MovedFrom string `json:"moved_from,omitempty"`
	// Entries are the users who come to each node, as means over as long a time as they have
	// to be elsewhere until an instance is moved.
	Entries map[string]Mean `json:"entries,omitempty"`
	Means   Means           `json:"means,omitzero"`
	// GrownUsers are the users of when an instance was last added for them, for their response
	// time, or for an exhausted processor; UsedSeconds is for how long it has had users since.
	GrownUsers  float64 `json:"grown_users,omitempty"`
	UsedSeconds float64 `json:"used_seconds,omitempty"`
	// Trial is of the last instance that was added for a response time or an exhausted processor,
	// until it is known whether that helped.
	Trial *Trial `json:"trial,omitempty"`
	// Failures are nodes that instances failed on.
	Failures map[string]Failure `json:"failures,omitempty"`
}

// Means are the smoothed measurements of a service, as of At: its users, their response time, and the
// use of the busiest instance and node.
type Means struct {
	Users          Mean `json:"users,omitempty"`
	Seconds        Mean `json:"seconds,omitempty"`
	CPUPercent     Mean `json:"cpu_percent,omitempty"`
	NodeCPUPercent Mean `json:"node_cpu_percent,omitempty"`
	// UsedAt is when the service had users last.
	At     time.Time `json:"at,omitzero"`
	UsedAt time.Time `json:"used_at,omitzero"`
}

// Trial is how many users and instances there were, how long users waited, and how busy the
// busiest instance or node was, all but instances smoothed, before another one was added.
type Trial struct {
	Users           float64 `json:"users"`
	Instances       int     `json:"instances"`
	ResponseSeconds float64 `json:"response_seconds"`
	CPUPercent      float64 `json:"cpu_percent"`
	// Relieved is set once there was a time without a reason for more.
	Relieved bool `json:"relieved,omitempty"`
}

// Failure is how often instances of a service failed on a node (Level), since when the last one has
// (Last), and until when none is started there.
type Failure struct {
	Pace
	Reason string `json:"reason"`
}

// InstanceID is the name of an instance, which is fit for a container or a Swarm
// service. Numbers begin with 1, and the lowest that is free is taken: two engines
// that want the same at once want it by the same name.
func InstanceID(service string, number int) string {
	return service + "-" + strconv.Itoa(number)
}
