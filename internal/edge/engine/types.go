package engine

import (
	"strconv"
	"time"

	"github.com/weir-project/weir/internal/edge/spec"
)

// Input is everything that a round of decisions depends on. Rounds with the same input return the
// same decisions, in any order of the lists.
type Input struct {
	// At is the time of the observation. The engine has no clock of its own.
	At time.Time `json:"at"`
	// Nodes are all known nodes, silent ones included.
	Nodes []Node `json:"nodes"`
	// Services are the deployed services.
	Services []Service `json:"services"`
	// Instances are those that run, start, stop or have a promise in the ledger.
	Instances []Instance `json:"instances"`
	// Demand is the users of each service by the node where they connect, as proxies report them.
	Demand []Demand `json:"demand"`
	// Uncounted: nothing counts users, so there are as many instances as specifications ask for.
	Uncounted bool `json:"uncounted,omitempty"`
	// Claims are what services are promised on nodes for their minimums; see [Divide].
	Claims []Claim `json:"claims,omitempty"`
	// LinkRooms are what the links between nodes and users can promise. The links of other nodes do not
	// count: no switch tells of them.
	LinkRooms []LinkRoom `json:"link_rooms,omitempty"`
	// Links are the measured round trips between nodes; others are assumed (constants.go).
	Links []Link `json:"links"`
	// Memory is [Result.Memory] of the previous round; zero for the first.
	Memory Memory `json:"memory"`
}

// NodeState says what the engine may do with a node.
type NodeState string

// The states of a node.
const (
	// NodeReady: it answers and takes instances.
	NodeReady NodeState = "ready"
	// NodeStale: it has been silent for a while. Its instances count, and none starts there.
	NodeStale NodeState = "stale"
	// NodeGone: it has been silent for so long that its instances count as lost.
	NodeGone NodeState = "gone"
	// NodeDraining: its operator drains it. Its instances move away.
	NodeDraining NodeState = "draining"
)

// Node is the capacity of a node and its present use.
type Node struct {
	// Name is unique; instances, demand and links refer to it.
	Name  string    `json:"name"`
	State NodeState `json:"state"`
	// Away: it is gone on purpose, or for so long that no partition of the network explains it.
	Away bool `json:"away,omitempty"`
	// Reason says why the node is not ready.
	Reason string `json:"reason,omitempty"`
	// Platform is the platform in the notation of images, "linux/arm64"; empty if unknown.
	Platform string `json:"platform,omitempty"`

	CPUs           float64 `json:"cpus"`
	CPUUsedPercent float64 `json:"cpu_used_percent"` // of all processors together
	Load1          float64 `json:"load_1"`

	MemoryBytes     uint64 `json:"memory_bytes"`
	MemoryUsedBytes uint64 `json:"memory_used_bytes"`
	DiskFreeBytes   uint64 `json:"disk_free_bytes"`

	// Weir: an agent controls the node's uplink. Without one no minimum can be promised there, and
	// the rates below are unknown.
	Weir bool `json:"weir"`
	// ReadOnly: weir-edge may only read from the agent, so no minimum can be promised there either.
	ReadOnly bool `json:"read_only,omitempty"`
	// UplinkBPS is the rate of the uplink, UplinkSentBPS the rate at which it sends now.
	UplinkBPS     uint64 `json:"uplink_bps"`
	UplinkSentBPS uint64 `json:"uplink_sent_bps"`
	// Out is the room for minimums of what the uplink sends, In that of what it receives: none where
	// that is not shared.
	Out Room `json:"out,omitzero"`
	In  Room `json:"in,omitzero"`

	// Availability is the fraction of the time that the node answers; see [EstimateAvailability].
	// 0 and 1: unknown.
	Availability float64 `json:"availability"`
	// PullBPS is the rate at which the node fetches images; 0: unknown.
	PullBPS uint64 `json:"pull_bps"`
	// Images are the services' images that the node has.
	Images []string `json:"images"`
}

// Room is the room for minimums of one direction of an uplink.
type Room struct {
	// BudgetBPS is the largest sum of minimums: the rate less the agent's reserve. OtherMinBPS is the
	// sum of the minimums in force that belong to no service.
	BudgetBPS   uint64 `json:"budget_bps"`
	OtherMinBPS uint64 `json:"other_min_bps"`
}

// Room returns the room for minimums of what the node receives, or sends.
func (n *Node) Room(in bool) Room {
	if in {
		return n.In
	}
	return n.Out
}

// promises reports whether minimums can be promised on the node.
func (n *Node) promises() bool { return n.Weir && !n.ReadOnly }

// Service is a deployed service: its specification, and measurements that replace its estimates.
type Service struct {
	Spec spec.Spec `json:"spec"`
	// MeasuredStartUpSeconds is the last time from start to first answer; 0: not measured.
	MeasuredStartUpSeconds float64 `json:"measured_start_up_seconds,omitempty"`
	// Bound is what a Compose file says of where and when instances start.
	Bound    Bound    `json:"bound,omitzero"`
	Versions Versions `json:"versions,omitzero"`
}

// Versions are digests of what instances are made of.
type Versions struct {
	// Wanted is that of instances that start. Before is the one before it, while it is not known whether
	// the wanted one answers; empty: there is none to go back to.
	Wanted string `json:"wanted,omitempty"`
	Before string `json:"before,omitempty"`
}

// Bound is where and when instances of a service may start.
type Bound struct {
	// Node is the only one that may have instances; empty: all may.
	Node string `json:"node,omitempty"`
	// Awaits is the service that has to answer before the first instance starts; empty for none.
	Awaits string `json:"awaits,omitempty"`
	// Managed: weir-edge did not make it, and only moves it (manage.go). Stays is why it does not; empty if it
	// may be.
	Managed bool   `json:"managed,omitempty"`
	Stays   string `json:"stays,omitempty"`
}

// InstanceState is the stage of an instance's life.
type InstanceState string

// The states of an instance.
const (
	// InstanceStarting: it has a promise or was started, and has not answered yet.
	InstanceStarting InstanceState = "starting"
	// InstanceRunning: it answers health checks.
	InstanceRunning InstanceState = "running"
	// InstanceUnhealthy: it runs and fails health checks.
	InstanceUnhealthy InstanceState = "unhealthy"
	// InstanceUnknown: it runs, and no proxy reports its health. It counts, and is not touched.
	InstanceUnknown InstanceState = "unknown"
	// InstanceStopping: it gets no new users and ends.
	InstanceStopping InstanceState = "stopping"
	// InstanceFailed: it did not start, or crashes repeatedly. Reason says why.
	InstanceFailed InstanceState = "failed"
)

// Instance is one copy of a service on a node.
type Instance struct {
	// ID is unique among all instances: SERVICE-NUMBER, see [InstanceID].
	ID      string        `json:"id"`
	Service string        `json:"service"`
	Node    string        `json:"node"`
	State   InstanceState `json:"state"`
	// Since is the time of the last change of State; of one that waits for a scheduler or its image, now.
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`

	// Users is the number of users it serves now, ResponseSeconds their response time at the proxy.
	Users           float64 `json:"users"`
	ResponseSeconds float64 `json:"response_seconds"`
	// CPUs is the number of processors it keeps busy; 0.5 is half of one.
	CPUs        float64 `json:"cpus"`
	MemoryBytes uint64  `json:"memory_bytes"`
	// SentBPS is the rate that it sends over its node's uplink, to proxies of other nodes.
	SentBPS uint64 `json:"sent_bps"`

	// Version is what it was made of; see [Versions].
	Version string `json:"version,omitempty"`
	// LimitBytes is its memory in the ledger, which may differ from the present specification; 0:
	// none.
	LimitBytes uint64 `json:"limit_bytes"`
	// Replaces is the instance that this one replaces; see [Move].
	Replaces string `json:"replaces,omitempty"`
	// MinRefused: the node's agent does not grant what the minimum takes there. Reason says why.
	MinRefused bool `json:"min_refused,omitempty"`
	// MinCut: the node's uplink has become too slow for what it had granted.
	MinCut bool `json:"min_cut,omitempty"`
}

// Demand is the load of one service at the proxy of one node.
type Demand struct {
	Service string `json:"service"`
	// Node is the node where they connect.
	Node  string  `json:"node"`
	Users float64 `json:"users"` // at once
	// ResponseSeconds is their mean response time, DeliverySeconds the part of it in which answers
	// waited for the way from the node to the users; 0: not measured.
	ResponseSeconds float64 `json:"response_seconds"`
	DeliverySeconds float64 `json:"delivery_seconds,omitempty"`
	// SentBPS is the rate that the service's proxy sends over the node's uplink, for instances of
	// any node; 0: nothing, or unknown.
	SentBPS uint64 `json:"sent_bps,omitempty"`
	// Asked: users have come since the last round, and may have left.
	Asked bool `json:"asked,omitempty"`
}

// LinkRoom is how much more the links between a node and its users can promise to a service.
type LinkRoom struct {
	Node    string `json:"node"`
	FreeBPS uint64 `json:"free_bps"`
}

// Link is a measured round trip between two nodes, the same in both directions.
type Link struct {
	From             string  `json:"from"`
	To               string  `json:"to"`
	RoundTripSeconds float64 `json:"round_trip_seconds"`
}

// Action is the kind of a decision.
type Action string

// The actions.
const (
	// Start: start Instance on Node.
	Start Action = "start"
	// Stop: stop Instance on Node.
	Stop Action = "stop"
	// Move: start Instance on Node to replace Replaces on From, which stays until the new one
	// answers; a later round then decides to Stop it. A Move is carried out as a Start.
	Move Action = "move"
	// Settle ends an update: all instances have the version of the service, and answer.
	Settle Action = "settle"
	// GoBack ends an update: Version, the one before, is the service's again.
	GoBack Action = "go-back"
	// Keep: change nothing. Reason says why, also if a needed change is impossible.
	Keep Action = "keep"
)

// Cause is the reason of a decision for programs; Reason is the text for people.
type Cause string

// The causes of decisions.
const (
	CauseUsers        Cause = "users"        // users against what there is room for
	CauseCapacity     Cause = "capacity"     // QoS.numUsers
	CauseResponse     Cause = "response"     // users wait too long
	CauseUplink       Cause = "uplink"       // users wait too long for the uplink of the node where they connect
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
	CauseUpdate       Cause = "update"       // the service was deployed again, with another specification
	CauseOrder        Cause = "order"        // another service, or an instance that ends, comes first
)

// changesInstances reports whether the decision starts or stops an instance.
func (d *Decision) changesInstances() bool { return d.Instance != "" }

// Minimum returns what a Start or Move makes the service's claims on the node at least.
func (d *Decision) Minimum() Rates { return Rates{d.MinBPS, d.InMinBPS} }

// Decision is an action for a service, with its reason.
type Decision struct {
	Action  Action `json:"action"`
	Service string `json:"service"`
	// Instance is the one to start or stop, on Node. Replaces and From are the
	// instance that a Move is away from. All are empty for other actions.
	Instance string `json:"instance,omitempty"`
	Node     string `json:"node,omitempty"`
	Replaces string `json:"replaces,omitempty"`
	From     string `json:"from,omitempty"`
	// Apart: the node must have no other instance of the service, also where a scheduler chooses another one.
	Apart bool `json:"apart,omitempty"`
	// Version is what a started instance is made of, and what a service goes back to.
	Version string `json:"version,omitempty"`

	// MinBPS is what a Start or Move makes the service's claim on the node at least, InMinBPS that of
	// what is received, LimitBytes what it promises the instance.
	MinBPS     uint64 `json:"min_bps,omitempty"`
	InMinBPS   uint64 `json:"in_min_bps,omitempty"`
	LimitBytes uint64 `json:"limit_bytes,omitempty"`

	Algorithm string `json:"algorithm,omitempty"`
	Cause     Cause  `json:"cause"`
	Reason    string `json:"reason"`
	// Facts are the measurements that the decision is based on.
	Facts Facts `json:"facts"`
	// Alternatives are the options, best first and at most [MaxAlternatives]. If something was
	// chosen it is the first.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Excluded counts the excluded nodes by reason.
	Excluded []Excluded `json:"excluded,omitempty"`
}

// Facts are the state of a service that a decision is based on.
type Facts struct {
	// Instances is the number of instances that count, Wanted the least number needed for users,
	// capacity and availability.
	Instances int `json:"instances"`
	Wanted    int `json:"wanted"`
	// Users is the present number of users, Capacity the number that instances can serve; 0:
	// unknown.
	Users    float64 `json:"users"`
	Capacity float64 `json:"capacity"`
	// ResponseSeconds is the response time, RequiredSeconds the largest allowed one; 0: not
	// measured, or not required.
	ResponseSeconds float64 `json:"response_seconds"`
	RequiredSeconds float64 `json:"required_seconds"`
	// DeliverySeconds is the part of ResponseSeconds that another instance does not shorten.
	DeliverySeconds float64 `json:"delivery_seconds,omitempty"`
	// CPUPercent is of the busiest instance, of what it may use; NodeCPUPercent of
	// the busiest node with an instance.
	CPUPercent     float64 `json:"cpu_percent"`
	NodeCPUPercent float64 `json:"node_cpu_percent"`
	// Availability is what the nodes of now give, 0 to 1, RequiredAvailability what
	// is asked for.
	Availability         float64 `json:"availability"`
	RequiredAvailability float64 `json:"required_availability"`
}

// Alternative is an option and its expected effect.
type Alternative struct {
	Action Action `json:"action"`
	Node   string `json:"node"`
	// Local: the node has an instance of the service already.
	Local bool `json:"local"`
	// TransferSeconds and StartUpSeconds add up to the time until the first answer.
	TransferSeconds float64 `json:"transfer_seconds"`
	StartUpSeconds  float64 `json:"start_up_seconds"`
	// ResponseSeconds is the expected response time, RoundTripSeconds the network's part of it.
	ResponseSeconds  float64 `json:"response_seconds"`
	RoundTripSeconds float64 `json:"round_trip_seconds"`
	// FreeBPS is the rate that the node can promise for the service's minimum, what it has promised
	// for it included. HeadroomBPS is the unused rate of its uplink.
	FreeBPS     uint64  `json:"free_bps"`
	HeadroomBPS uint64  `json:"headroom_bps"`
	CPUPercent  float64 `json:"cpu_percent"` // of the node
	// UplinkPercent of the node's uplink is what others send and the service's minimum
	// does not take from them; 0 where no agent says what the uplink has.
	UplinkPercent float64 `json:"uplink_percent"`
	// Exhausted names the node's exhausted resource; empty if there is none.
	Exhausted string `json:"exhausted,omitempty"`
	// Score orders alternatives, the highest is best. Refused says why the algorithm rejects it.
	Score   float64 `json:"score"`
	Refused string  `json:"refused,omitempty"`
}

// Excluded are nodes that were excluded for the same reason.
type Excluded struct {
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
	// Example is one of them.
	Example string `json:"example"`
}

// Result is the outcome of a round.
type Result struct {
	// Decisions are in order of execution, at least one for each service.
	Decisions []Decision `json:"decisions"`
	// Memory is the input of the next round.
	Memory Memory `json:"memory"`
}

// Memory is what the engine remembers from round to round, so that noise changes
// nothing. Losing it costs only time.
type Memory struct {
	Services map[string]ServiceMemory `json:"services,omitempty"`
	// Left is of nodes, when instances left them for an uplink that was too slow, and since when it is.
	Left map[string]Pace `json:"left,omitempty"`
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
	// Failures are nodes that instances failed on, all of Version: another one may be better.
	Failures map[string]Failure `json:"failures,omitempty"`
	Version  string             `json:"version,omitempty"`
	// Settle is since when all instances have the version of the service, and answer.
	Settle Pace `json:"settle,omitzero"`
}

// Means are the smoothed measurements of a service, as of At: its users, their response time and its
// part for delivery in seconds, and the use of the busiest instance and node.
type Means struct {
	Users          Mean `json:"users,omitempty"`
	Seconds        Mean `json:"seconds,omitempty"`
	Delivery       Mean `json:"delivery,omitempty"`
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
