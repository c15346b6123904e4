// Package v1 holds the wire types of Weir's API: what `weir ps -o json`
// prints and what the agent's socket speaks. It has no behaviour.
//
// Rates are bits per second, sizes are bytes, times carry their unit in the
// field's name. The field names are a contract: they are only ever added to.
package v1

import "time"

// Mode is the network mode of a container.
type Mode string

// The network modes.
const (
	ModeBridge  Mode = "bridge"
	ModeHost    Mode = "host"
	ModeMacvlan Mode = "macvlan"
	ModeIPvlan  Mode = "ipvlan"
	ModeOverlay Mode = "overlay"
	ModeNone    Mode = "none"
)

// State says whether a container's policy is in force.
type State string

// The states of a container.
const (
	// StateOK means that the policy is in force as written.
	StateOK State = "ok"
	// StateDegraded means that part of the policy is not in force; Reason says which part
	// and why.
	StateDegraded State = "degraded"
	// StateRejected means that a requested guarantee could not be admitted; the container
	// runs without it.
	StateRejected State = "rejected"
)

// Class is a traffic class (SDN-LLQ, section 3).
type Class string

// The traffic classes. The empty class means none was requested.
const (
	ClassNone Class = ""
	ClassEF   Class = "ef"
	ClassAF   Class = "af"
	ClassBE   Class = "be"
	ClassAuto Class = "auto"
)

// Policy is a container's policy. Zero means "none" for MinBPS, MaxBPS and LatencyMS.
type Policy struct {
	// Weight is the relative share when containers compete, 0 to 10000. With 0 a container
	// gets only MinBPS and what its Priority obtains of idle capacity.
	Weight uint32 `json:"weight"`
	// MinBPS is the guaranteed egress rate, in bits per second.
	MinBPS uint64 `json:"min_bps"`
	// MaxBPS is the ceiling, in bits per second; 0 means no ceiling.
	MaxBPS uint64 `json:"max_bps"`
	// Priority orders the offer of idle capacity, 0 to 1000, higher first.
	Priority uint32 `json:"priority"`
	// LatencyMS bounds the queueing delay of traffic within MinBPS, in
	// milliseconds.
	LatencyMS float64 `json:"latency_ms"`
	// Class is the container's traffic class.
	Class Class `json:"class"`
	// EFMax is the part of the share up to which EF is served first; the excess counts as
	// BE. AFMin is the part that AF gets before BE.
	EFMax Part `json:"ef_max"`
	AFMin Part `json:"af_min"`
	// DSCP says whether the DSCP field of its packets decides their class, is set to their
	// class, or both.
	DSCP DSCP `json:"dscp"`
}

// DSCP is how the differentiated services field (RFC 2474) relates to a container's traffic
// classes.
type DSCP string

// The uses of the field; the empty value means none.
const (
	DSCPNone DSCP = ""
	// DSCPTrust takes the class of a packet from the field as the container set it.
	DSCPTrust DSCP = "trust"
	// DSCPMark writes the class into the field for the next hop.
	DSCPMark DSCP = "mark"
	DSCPBoth DSCP = "both"
)

// Part is a part of a container's share: a rate in bits per second or, if that is 0, a
// percentage of the share from 0 to 100.
type Part struct {
	BPS     uint64  `json:"bps"`
	Percent float64 `json:"percent"`
}

// Layer is the origin of a policy value. If several layers set it, the last of this list
// wins.
type Layer string

// The layers.
const (
	LayerBuiltIn  Layer = "built-in" // no layer sets the value
	LayerDefaults Layer = "defaults" // defaults in the config file
	LayerLabels   Layer = "labels"   // labels of the container
	LayerLimits   Layer = "limits"   // a label, cut to a limit of the config file
	// LayerContainers is the container's own entry in the config file, in place of labels.
	LayerContainers Layer = "containers"
	LayerPolicies   Layer = "policies" // policies in the config file
	LayerHost       Layer = "host"     // the host policy in the config file
	LayerSet        Layer = "set"      // weir set
)

// PolicyFrom gives the layer of each value of a Policy.
type PolicyFrom struct {
	Weight   Layer `json:"weight"`
	Min      Layer `json:"min"`
	Max      Layer `json:"max"`
	Priority Layer `json:"priority"`
	Latency  Layer `json:"latency"`
	Class    Layer `json:"class"`
	EFMax    Layer `json:"ef_max"`
	AFMin    Layer `json:"af_min"`
	DSCP     Layer `json:"dscp"`
}

// Container is one row of `weir ps`: a container, or the host class for all traffic of no
// known container.
type Container struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Runtime string `json:"runtime"`
	// Groups are the names of its service and pod, by which users may refer to it, too.
	Groups []string `json:"groups,omitempty"`
	// Members are the names of the containers of a pod of Kubernetes, which is shown as one.
	Members []string `json:"members,omitempty"`
	// CountedWith is the ID of the container whose network it shares and with which it is
	// counted; absent if it is counted itself.
	CountedWith string `json:"counted_with,omitempty"`
	Mode        Mode   `json:"mode"`
	State       State  `json:"state"`
	// Reason explains a State other than ok; several reasons are joined by "; ".
	Reason string `json:"reason"`
	// StartedAt identifies a run of the container; absent if the source does not report it.
	StartedAt time.Time `json:"started_at,omitzero"`
	// Direction is what it sends.
	Direction
	// In is the same for what it receives; absent where no uplink shares that.
	In *Direction `json:"in,omitempty"`
}

// Received returns the container with what it receives in place of what it sends, and whether any
// uplink shares that.
func (c Container) Received() (Container, bool) {
	in := c.In
	c.Direction, c.In = Direction{}, nil
	if in != nil {
		c.Direction = *in
	}
	return c, in != nil
}

// Direction is what a container asks for and gets in one direction: of what it sends, or of what it
// receives.
type Direction struct {
	Policy Policy `json:"policy"`
	// PolicyFrom gives the layer of each value of Policy.
	PolicyFrom PolicyFrom `json:"policy_from"`
	// EntitledBPS is its entitlement: the rate it can always have.
	EntitledBPS uint64 `json:"entitled_bps"`
	// AllocatedBPS is the rate it can have now, given the demand of others.
	AllocatedBPS uint64 `json:"allocated_bps"`
	// RateBPS is its rate in the last second, in bits per second.
	RateBPS      uint64 `json:"rate_bps"`
	BacklogBytes uint64 `json:"backlog_bytes"`
	// SentBytes, SentPackets, DroppedPackets and MarkedPackets increase for as long as the
	// container runs (since StartedAt), also across restarts of the agent and a new set-up
	// of the uplink. Of what it receives, sent is what the uplink handed on to it.
	SentBytes      uint64 `json:"sent_bytes"`
	SentPackets    uint64 `json:"sent_packets"`
	DroppedPackets uint64 `json:"dropped_packets"`
	// MarkedPackets were marked by ECN (RFC 3168) instead of dropped; 0 if the queue does
	// not mark.
	MarkedPackets uint64 `json:"marked_packets"`
	// DelayP50MS and DelayP99MS are the median and 99th percentile of the queueing delay at
	// the uplink in the last seconds, in milliseconds. 0 without traffic, or if the kernel
	// cannot measure it.
	DelayP50MS float64 `json:"delay_p50_ms"`
	DelayP99MS float64 `json:"delay_p99_ms"`
	// MeasuredAt is when rate, backlog, counters and delays were read; with several shares,
	// the earliest of them. Before the first measurement it is the agent's start.
	MeasuredAt time.Time `json:"measured_at,omitzero"`
	// Classes are its traffic classes, if any, summed over all uplinks.
	Classes []ClassShare `json:"classes,omitempty"`
	// Shares are its shares of each uplink. The rates and counters above are their sums,
	// the delays their maximum.
	Shares []Share `json:"shares"`
}

// ShareAt returns the share of the uplink; nil without one.
func (d *Direction) ShareAt(uplink string) *Share {
	for i := range d.Shares {
		if d.Shares[i].Uplink == uplink {
			return &d.Shares[i]
		}
	}
	return nil
}

// Share is a container's part of one uplink.
type Share struct {
	Uplink string `json:"uplink"`
	// Controlled says that its traffic is classified at the uplink and has a class there.
	Controlled   bool   `json:"controlled"`
	EntitledBPS  uint64 `json:"entitled_bps"`
	AllocatedBPS uint64 `json:"allocated_bps"`
	// HeldBackBPS is held back of what it may receive, because its senders send more than its share and fill
	// the link before the uplink; AllocatedBPS is without it.
	HeldBackBPS uint64 `json:"held_back_bps"`
	// AdmittedBPS is the minimum in force, which is lower than the policy's if that was
	// refused. LatencyMS is the latency bound in force.
	AdmittedBPS uint64  `json:"admitted_bps"`
	LatencyMS   float64 `json:"latency_ms"`
	// WantsMore says that it has more to send than it gets; otherwise WantedBPS is its
	// demand, which it gets.
	WantsMore      bool      `json:"wants_more"`
	WantedBPS      uint64    `json:"wanted_bps"`
	RateBPS        uint64    `json:"rate_bps"`
	BacklogBytes   uint64    `json:"backlog_bytes"`
	SentBytes      uint64    `json:"sent_bytes"`
	SentPackets    uint64    `json:"sent_packets"`
	DroppedPackets uint64    `json:"dropped_packets"`
	MarkedPackets  uint64    `json:"marked_packets"`
	DelayP50MS     float64   `json:"delay_p50_ms"`
	DelayP99MS     float64   `json:"delay_p99_ms"`
	MeasuredAt     time.Time `json:"measured_at,omitzero"`
	// Classes are the container's traffic classes, if any.
	Classes []ClassShare `json:"classes,omitempty"`
}

// ClassShare is the part of a container's share for one traffic class.
type ClassShare struct {
	Class Class `json:"class"`
	// MaxBPS is the rate up to which EF is served first, MinBPS the rate AF gets before BE,
	// at the container's current allocation. 0 for other classes.
	MaxBPS       uint64 `json:"max_bps"`
	MinBPS       uint64 `json:"min_bps"`
	RateBPS      uint64 `json:"rate_bps"`
	BacklogBytes uint64 `json:"backlog_bytes"`
	// ExcessBPS is the EF traffic above MaxBPS in the last second, which was served and
	// counted as BE. ExcessBytes is its total, with the lifetime of SentBytes. Held says
	// that there was such excess within the last seconds.
	ExcessBPS   uint64 `json:"excess_bps"`
	ExcessBytes uint64 `json:"excess_bytes"`
	Held        bool   `json:"held"`
	// SentBytes, SentPackets, DroppedPackets and MarkedPackets increase while the agent
	// runs and the container has classes.
	SentBytes      uint64  `json:"sent_bytes"`
	SentPackets    uint64  `json:"sent_packets"`
	DroppedPackets uint64  `json:"dropped_packets"`
	MarkedPackets  uint64  `json:"marked_packets"`
	DelayP50MS     float64 `json:"delay_p50_ms"`
	DelayP99MS     float64 `json:"delay_p99_ms"`
}

// ContainerPolicy is a container's policy with its origin.
type ContainerPolicy struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Runtime    string     `json:"runtime"`
	Policy     Policy     `json:"policy"`
	PolicyFrom PolicyFrom `json:"policy_from"`
}

// PolicyChange is the body of a `weir set` request. A nil field stays unchanged. Values are
// spelled as in labels ("30mbit", "20ms").
type PolicyChange struct {
	Weight   *string `json:"weight,omitempty"`
	Min      *string `json:"min,omitempty"`
	Max      *string `json:"max,omitempty"`
	Priority *string `json:"priority,omitempty"`
	Latency  *string `json:"latency,omitempty"`
	Class    *string `json:"class,omitempty"`
	EFMax    *string `json:"ef_max,omitempty"`
	AFMin    *string `json:"af_min,omitempty"`
	DSCP     *string `json:"dscp,omitempty"`
	// The values for received traffic.
	InWeight   *string `json:"in_weight,omitempty"`
	InMin      *string `json:"in_min,omitempty"`
	InMax      *string `json:"in_max,omitempty"`
	InPriority *string `json:"in_priority,omitempty"`
	InLatency  *string `json:"in_latency,omitempty"`
}

// Status is the state of the agent and its uplinks. With several uplinks, Uplink, Scheduler
// and Reason are joined by ", " and "; ", rates are summed, and State is the worst.
type Status struct {
	Version string `json:"version"`
	Uplink  string `json:"uplink"`
	// RateBPS is the configured rate of the uplink, in bits per second.
	RateBPS uint64 `json:"rate_bps"`
	// ReserveBPS is the part of the rate that minimums cannot claim.
	ReserveBPS uint64 `json:"reserve_bps"`
	// SentBPS is the uplink's rate in the last second.
	SentBPS uint64 `json:"sent_bps"`
	// Scheduler is the name of the backend and the leaf queue, e.g. "htb+fq_codel".
	Scheduler string `json:"scheduler"`
	State     State  `json:"state"`
	Reason    string `json:"reason"`
	// AgeMS is the age of the state in milliseconds. A state older than ten seconds counts
	// as degraded.
	AgeMS float64 `json:"age_ms"`
	// Uplinks are the uplinks one by one.
	Uplinks []Uplink `json:"uplinks"`
	// Sources are the container engines and other sources of containers.
	Sources []Source `json:"sources"`
	// Turns are the intervals between turns of the control loop.
	Turns Turns `json:"turns"`
	// Classifier is the classifier for flows of containers of class auto.
	Classifier Classifier `json:"classifier"`
	// LastEvent is the number of the last event.
	LastEvent uint64 `json:"last_event"`
}

// Turns is a histogram of the intervals between turns of the control loop since the agent's
// start.
type Turns struct {
	Count      uint64  `json:"count"`
	SumSeconds float64 `json:"sum_seconds"`
	// Buckets are sorted by bound and cumulative, as in Prometheus.
	Buckets []TurnBucket `json:"buckets,omitempty"`
}

// TurnBucket is the number of intervals up to a bound.
type TurnBucket struct {
	UpToSeconds float64 `json:"up_to_seconds"`
	Count       uint64  `json:"count"`
}

// Classifier describes the flow classifier in use (`weir classify`).
type Classifier struct {
	// Source is the file it was read from, or "built-in".
	Source string `json:"source"`
	// SHA256 is the hash of that file, in hex.
	SHA256 string `json:"sha256,omitempty"`
	// Levels are the levels changed by the config file, as TYPE=LEVEL.
	Levels []string `json:"levels,omitempty"`
	// MinConfidence is the smallest confidence in a level, 0 to 1; flows below it are be.
	MinConfidence float64 `json:"min_confidence"`
	// Data describes the training data: Flows in Groups. Nodes is the number of tree nodes
	// in the kernel. They are set for a classifier in force or from a file.
	Data   string `json:"data,omitempty"`
	Flows  int    `json:"flows"`
	Groups int    `json:"groups"`
	Nodes  int    `json:"nodes"`
	// InForceSince is when it was loaded into the kernel; absent while no container needs
	// it.
	InForceSince time.Time `json:"in_force_since,omitzero"`
}

// Uplink is a device whose egress rate is shared; see Status.
type Uplink struct {
	Name       string `json:"name"`
	RateBPS    uint64 `json:"rate_bps"`
	ReserveBPS uint64 `json:"reserve_bps"`
	SentBPS    uint64 `json:"sent_bps"`
	Scheduler  string `json:"scheduler"`
	// MTUBytes is the device's MTU, without link headers.
	MTUBytes uint32 `json:"mtu_bytes"`
	// Precision bounds how long a packet may hold the uplink.
	Precision Precision `json:"precision"`
	// Present says that the device exists and is usable.
	Present bool `json:"present"`
	// HostCompetes says that the host class wants, or recently wanted, more than its
	// reserve and shares the uplink like a container, by its policy.
	HostCompetes bool   `json:"host_competes"`
	State        State  `json:"state"`
	Reason       string `json:"reason"`
	// In is what the uplink receives; absent if that is not shared.
	In *UplinkIn `json:"in,omitempty"`
}

// Precision is how exactly an uplink is shared, against the processor time that takes.
type Precision string

// The precisions, the most exact and dearest first.
const (
	PrecisionExact    Precision = "exact"
	PrecisionBalanced Precision = "balanced"
	PrecisionLow      Precision = "low"
)

// UplinkIn is what an uplink receives, as shared among containers.
type UplinkIn struct {
	// Device is the IFB that shares it.
	Device      string `json:"device"`
	RateBPS     uint64 `json:"rate_bps"`
	ReserveBPS  uint64 `json:"reserve_bps"`
	ReceivedBPS uint64 `json:"received_bps"`
	Scheduler   string `json:"scheduler"`
	// HostCompetes is as for what is sent.
	HostCompetes bool   `json:"host_competes"`
	State        State  `json:"state"`
	Reason       string `json:"reason"`
}

// Source is a source of containers, such as a container engine.
type Source struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
	// Reason says why a source is not connected.
	Reason string `json:"reason"`
}

// Snapshot is the agent's whole state at one moment.
type Snapshot struct {
	Status     Status      `json:"status"`
	Containers []Container `json:"containers"`
}

// Reloaded is the answer to a request to read the configuration file again.
type Reloaded struct {
	// Changes says in words what changed.
	Changes []string `json:"changes"`
}

// EventKind is the kind of an event.
type EventKind string

// The kinds of events. New ones may be added.
const (
	// EventAgentStarted: the agent started; event numbers continue from there.
	EventAgentStarted EventKind = "agent_started"
	// EventStarted and EventStopped: a container started or stopped.
	EventStarted EventKind = "started"
	EventStopped EventKind = "stopped"
	// EventPolicyChanged: a container's policy changed; Policy is the new one.
	EventPolicyChanged EventKind = "policy_changed"
	// EventRefused: a guarantee was refused, at a container's start or in answer to a
	// request.
	EventRefused EventKind = "refused"
	// EventRoomElsewhere follows it where weir-edge runs: Message says which other node has room for the
	// minimum, and what moves the container there, or that none has.
	EventRoomElsewhere EventKind = "room_elsewhere"
	// EventDegraded and EventRepaired: part of a policy, or an uplink, stopped or resumed
	// being in force.
	EventDegraded EventKind = "degraded"
	EventRepaired EventKind = "repaired"
	// EventEFHeld and EventEFReleased: a container's EF traffic rose above its maximum, so
	// that some flows are served as BE, or fell below it again.
	EventEFHeld     EventKind = "ef_held"
	EventEFReleased EventKind = "ef_released"
	// EventUplinkLost and EventUplinkBack: an uplink's device disappeared or returned.
	EventUplinkLost EventKind = "uplink_lost"
	EventUplinkBack EventKind = "uplink_back"
	// EventUplinkMoved: the default route leads through another device, which is the uplink by now.
	EventUplinkMoved EventKind = "uplink_moved"
	// EventSourceLost and EventSourceConnected: the connection to a container engine was
	// lost or made.
	EventSourceLost      EventKind = "source_lost"
	EventSourceConnected EventKind = "source_connected"
	// EventReloaded: the configuration file was read again; Message says what changed.
	// EventReloadRefused: it was not applied; Message says why.
	EventReloaded      EventKind = "reloaded"
	EventReloadRefused EventKind = "reload_refused"
	// EventMissed: the reader was too slow; Missed events were dropped.
	EventMissed EventKind = "missed"
)

// Event is a change that the agent made or noticed.
type Event struct {
	// Seq increases with every event, also across restarts of the agent. For EventMissed it
	// is the number of the last dropped event.
	Seq  uint64    `json:"seq"`
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// Container is the name of the container concerned, if any; ID and Runtime identify it.
	Container string `json:"container,omitempty"`
	ID        string `json:"id,omitempty"`
	Runtime   string `json:"runtime,omitempty"`
	// Uplink is the device concerned, if any.
	Uplink string `json:"uplink,omitempty"`
	// Policy is the policy of a container that started or whose policy changed.
	Policy *Policy `json:"policy,omitempty"`
	// In is the same for what it receives, where that is shared.
	In *Policy `json:"in,omitempty"`
	// Message describes the event for people.
	Message string `json:"message,omitempty"`
	// Missed is the number of events dropped for this reader.
	Missed uint64 `json:"missed,omitempty"`
}

// Access is the caller of a request.
type Access struct {
	Name string `json:"name"`
	// Role is "read", "admin" (may also change policies) or "root" (may also take Weir down).
	Role string `json:"role"`
}

// Error is the body of every response that is not a success: problem details
// (RFC 9457). Message and Detail are the same.
type Error struct {
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Message string `json:"error"`
}
