// Package v1 holds the wire types of Weir's API: what `weir ps -o json`
// prints and what the agent's socket speaks. It has no behaviour.
//
// Rates are bits per second, sizes are bytes, times carry their unit in the
// field's name. The field names are a contract: they are only ever added to.
package v1

import "time"

// Mode is how a container is attached to the network.
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

// State says whether a container gets what its policy asks for.
type State string

// The states of a container.
const (
	// StateOK: the policy is in force as written.
	StateOK State = "ok"
	// StateDegraded: part of the policy is not in force; Reason says which
	// part and why. The rest is.
	StateDegraded State = "degraded"
	// StateRejected: the policy asked for a guarantee that cannot be
	// admitted; the container runs without it.
	StateRejected State = "rejected"
)

// Class is a traffic class (SDN-LLQ, section 3).
type Class string

// The traffic classes. The empty class means none was asked for.
const (
	ClassNone Class = ""
	ClassEF   Class = "ef"
	ClassAF   Class = "af"
	ClassBE   Class = "be"
	ClassAuto Class = "auto"
)

// Policy is what a container asks for. Zero means "none" for MinBPS, MaxBPS
// and LatencyMS.
type Policy struct {
	// Weight is the relative share when containers compete, 0 to 10000;
	// 0 is no share by weight, only MinBPS and what Priority gives.
	Weight uint32 `json:"weight"`
	// MinBPS is the guaranteed egress rate, in bits per second.
	MinBPS uint64 `json:"min_bps"`
	// MaxBPS is the ceiling, in bits per second; 0 means no ceiling.
	MaxBPS uint64 `json:"max_bps"`
	// Priority says who is served first with what others leave idle,
	// 0 to 1000, higher first.
	Priority uint32 `json:"priority"`
	// LatencyMS bounds the queueing delay of traffic within MinBPS, in
	// milliseconds.
	LatencyMS float64 `json:"latency_ms"`
	// Class is the container's traffic class.
	Class Class `json:"class"`
	// EFMax is how much of the container's share EF traffic may have before the
	// rest of it counts as BE; AFMin is what AF traffic has before BE gets any.
	EFMax Part `json:"ef_max"`
	AFMin Part `json:"af_min"`
	// DSCP says what the differentiated services field of its packets has to do with
	// their class.
	DSCP DSCP `json:"dscp"`
}

// DSCP is what a container's traffic classes and the differentiated services field
// (RFC 2474) have to do with each other.
type DSCP string

// The uses of the field. The empty one is none.
const (
	DSCPNone DSCP = ""
	// DSCPTrust: what the container writes there decides the class of its packets.
	DSCPTrust DSCP = "trust"
	// DSCPMark: the class is written there, for the next hop.
	DSCPMark DSCP = "mark"
	DSCPBoth DSCP = "both"
)

// Part is a part of a container's share: a rate in bits per second, or, where that
// is 0, a percentage of the share, 0 to 100.
type Part struct {
	BPS     uint64  `json:"bps"`
	Percent float64 `json:"percent"`
}

// Layer is where a value of a policy comes from. Of those that give it, the one
// that is listed last here wins.
type Layer string

// The layers.
const (
	LayerBuiltIn  Layer = "built-in" // nobody says otherwise
	LayerDefaults Layer = "defaults" // of the config file
	LayerLabels   Layer = "labels"   // of the container
	LayerLimits   Layer = "limits"   // a label, cut to the config file's limits
	LayerPolicies Layer = "policies" // of the config file
	LayerHost     Layer = "host"     // the config file's policy of the host
	LayerSet      Layer = "set"      // weir set
)

// PolicyFrom says where each value of a Policy comes from.
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

// Container is one row of `weir ps`: a container, or the host class that
// holds everything that belongs to no known container.
type Container struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Runtime string `json:"runtime"`
	// Groups are the service and the pod that it is of; users may call it so, too.
	Groups []string `json:"groups,omitempty"`
	// CountedWith is the ID of the container in whose network it is, and with which
	// it is counted; absent for one that is counted itself.
	CountedWith string `json:"counted_with,omitempty"`
	Mode        Mode   `json:"mode"`
	Policy      Policy `json:"policy"`
	// PolicyFrom says which layer each value of Policy comes from.
	PolicyFrom PolicyFrom `json:"policy_from"`
	// EntitledBPS is the share the container can always have (entitlement).
	EntitledBPS uint64 `json:"entitled_bps"`
	// AllocatedBPS is what it can have now, given who else is sending.
	AllocatedBPS uint64 `json:"allocated_bps"`
	// RateBPS is what it sent in the last second, in bits per second.
	RateBPS      uint64 `json:"rate_bps"`
	BacklogBytes uint64 `json:"backlog_bytes"`
	// SentBytes, SentPackets, DroppedPackets and MarkedPackets only grow while the
	// container runs (since StartedAt), also when the uplink is set up again or the
	// agent restarts.
	SentBytes      uint64 `json:"sent_bytes"`
	SentPackets    uint64 `json:"sent_packets"`
	DroppedPackets uint64 `json:"dropped_packets"`
	// MarkedPackets were told to be too many, by ECN (RFC 3168), and not dropped;
	// 0 where the queue does not mark.
	MarkedPackets uint64 `json:"marked_packets"`
	// DelayP50MS and DelayP99MS are how long its packets waited at the uplink
	// in the last seconds, in milliseconds: median and 99th percentile. Zero
	// while nothing is sent, or where the kernel cannot measure it.
	DelayP50MS float64 `json:"delay_p50_ms"`
	DelayP99MS float64 `json:"delay_p99_ms"`
	State      State   `json:"state"`
	// Reason explains a State other than ok; several reasons are joined
	// with "; ".
	Reason string `json:"reason"`
	// StartedAt tells one run of a container from the next; absent where the
	// source does not know it.
	StartedAt time.Time `json:"started_at,omitzero"`
	// MeasuredAt is when the rate, the backlog, the counters and the delays were
	// read, all of them; that of the share that was measured first, if there are
	// several. Before the first time it is when the agent began.
	MeasuredAt time.Time `json:"measured_at,omitzero"`
	// Classes are its traffic classes, if it has any, over all uplinks.
	Classes []ClassShare `json:"classes,omitempty"`
	// Shares are what the container gets at each uplink. The rates and
	// counters above are their sums, the delays their largest.
	Shares []Share `json:"shares"`
}

// Share is what a container gets at one uplink.
type Share struct {
	Uplink string `json:"uplink"`
	// Controlled: its traffic is told apart at the uplink, and has a class there.
	Controlled   bool   `json:"controlled"`
	EntitledBPS  uint64 `json:"entitled_bps"`
	AllocatedBPS uint64 `json:"allocated_bps"`
	// AdmittedBPS is the minimum in force, which is less than the policy's where
	// that was refused; LatencyMS is the bound on delay in force.
	AdmittedBPS uint64  `json:"admitted_bps"`
	LatencyMS   float64 `json:"latency_ms"`
	// WantsMore: it has more to send than it gets; otherwise WantedBPS is what it
	// wants, and gets.
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
	// Classes are the traffic classes of a container that has any.
	Classes []ClassShare `json:"classes,omitempty"`
}

// ClassShare is what one traffic class of a container gets of its share.
type ClassShare struct {
	Class Class `json:"class"`
	// MaxBPS is up to which rate EF goes first, MinBPS what AF has before BE gets
	// any: of what the container can have now. 0 for others.
	MaxBPS       uint64 `json:"max_bps"`
	MinBPS       uint64 `json:"min_bps"`
	RateBPS      uint64 `json:"rate_bps"`
	BacklogBytes uint64 `json:"backlog_bytes"`
	// ExcessBPS is what of EF was above MaxBPS in the last second, and went as BE, in
	// which it is counted; ExcessBytes only grows as SentBytes does. Held: that was so
	// within the last seconds.
	ExcessBPS   uint64 `json:"excess_bps"`
	ExcessBytes uint64 `json:"excess_bytes"`
	Held        bool   `json:"held"`
	// SentBytes, SentPackets, DroppedPackets and MarkedPackets only grow while the
	// agent runs and the container has classes.
	SentBytes      uint64  `json:"sent_bytes"`
	SentPackets    uint64  `json:"sent_packets"`
	DroppedPackets uint64  `json:"dropped_packets"`
	MarkedPackets  uint64  `json:"marked_packets"`
	DelayP50MS     float64 `json:"delay_p50_ms"`
	DelayP99MS     float64 `json:"delay_p99_ms"`
}

// ContainerPolicy is what a container asks for.
type ContainerPolicy struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Runtime    string     `json:"runtime"`
	Policy     Policy     `json:"policy"`
	PolicyFrom PolicyFrom `json:"policy_from"`
}

// PolicyChange is the body of a `weir set` request. A field that is nil is
// left as it is. The values are spelled as in labels ("30mbit", "20ms").
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
}

// Status describes the agent and its uplinks. Where there are several,
// Uplink, Scheduler and Reason join theirs with ", " and "; ", the rates are
// sums, and State is the worst.
type Status struct {
	Version string `json:"version"`
	Uplink  string `json:"uplink"`
	// RateBPS is the configured rate of the uplink, in bits per second.
	RateBPS uint64 `json:"rate_bps"`
	// ReserveBPS is the part of the rate that minimums may not claim.
	ReserveBPS uint64 `json:"reserve_bps"`
	// SentBPS is what the uplink sent in the last second.
	SentBPS uint64 `json:"sent_bps"`
	// Scheduler names the backend and the leaf queue, e.g. "htb+fq_codel".
	Scheduler string `json:"scheduler"`
	State     State  `json:"state"`
	Reason    string `json:"reason"`
	// AgeMS is how long ago the agent looked, in milliseconds. What is older
	// than ten seconds is degraded.
	AgeMS float64 `json:"age_ms"`
	// Uplinks are the uplinks one by one.
	Uplinks []Uplink `json:"uplinks"`
	// Sources are the container engines and other sources of containers.
	Sources []Source `json:"sources"`
	// Turns say how long after one another the control loop looked.
	Turns Turns `json:"turns"`
	// Classifier is what judges the flows of containers whose class is auto.
	Classifier Classifier `json:"classifier"`
}

// Turns are the times from one turn of the control loop to the next, since the agent
// started.
type Turns struct {
	Count      uint64  `json:"count"`
	SumSeconds float64 `json:"sum_seconds"`
	// Buckets are in the order of their bounds; each counts those before it, too.
	Buckets []TurnBucket `json:"buckets,omitempty"`
}

// TurnBucket is how many turns came at most so long after the one before.
type TurnBucket struct {
	UpToSeconds float64 `json:"up_to_seconds"`
	Count       uint64  `json:"count"`
}

// Classifier is what judges flows (`weir classify`).
type Classifier struct {
	// Source is the file that it is from, or "built-in".
	Source string `json:"source"`
	// SHA256 is that file's, in hexadecimal digits.
	SHA256 string `json:"sha256,omitempty"`
	// Levels are those that the config file has otherwise, as TYPE=LEVEL.
	Levels []string `json:"levels,omitempty"`
	// MinConfidence is what the confidence of a level must be, 0 to 1; less is be.
	MinConfidence float64 `json:"min_confidence"`
	// Data says what it was trained from: so many Flows of so many Groups. Nodes is
	// how many the kernel walks. They are known of one that is in force or from a file.
	Data   string `json:"data,omitempty"`
	Flows  int    `json:"flows"`
	Groups int    `json:"groups"`
	Nodes  int    `json:"nodes"`
	// InForceSince is when the kernel got it; absent while no container needs it.
	InForceSince time.Time `json:"in_force_since,omitzero"`
}

// Uplink is a device whose egress is shared out; see Status.
type Uplink struct {
	Name       string `json:"name"`
	RateBPS    uint64 `json:"rate_bps"`
	ReserveBPS uint64 `json:"reserve_bps"`
	SentBPS    uint64 `json:"sent_bps"`
	Scheduler  string `json:"scheduler"`
	// MTUBytes is the device's largest packet, without what the link adds.
	MTUBytes uint32 `json:"mtu_bytes"`
	// Present: the device is there, and can be used.
	Present bool `json:"present"`
	// HostCompetes: the host class wants more than its reserve, or lately did, and shares the
	// uplink like a container, by its policy.
	HostCompetes bool   `json:"host_competes"`
	State        State  `json:"state"`
	Reason       string `json:"reason"`
}

// Source is where the agent learns of containers.
type Source struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
	// Reason says why a source is not connected.
	Reason string `json:"reason"`
}

// Snapshot is all that the agent knows, of one moment.
type Snapshot struct {
	Status     Status      `json:"status"`
	Containers []Container `json:"containers"`
}

// EventKind says what happened.
type EventKind string

// The kinds of events. More may come.
const (
	// EventAgentStarted: an agent began; numbers of events go on from there.
	EventAgentStarted EventKind = "agent_started"
	// EventStarted and EventStopped: a container did.
	EventStarted EventKind = "started"
	EventStopped EventKind = "stopped"
	// EventPolicyChanged: Policy is what is asked for now.
	EventPolicyChanged EventKind = "policy_changed"
	// EventRefused: a guarantee cannot be given, at the start of a container or
	// to a request.
	EventRefused EventKind = "refused"
	// EventDegraded and EventRepaired: part of a policy, or an uplink, is not in
	// force, and is again.
	EventDegraded EventKind = "degraded"
	EventRepaired EventKind = "repaired"
	// EventEFHeld and EventEFReleased: a container sends more EF than its maximum of
	// EF, so that some of its flows are served as BE, and does no longer.
	EventEFHeld     EventKind = "ef_held"
	EventEFReleased EventKind = "ef_released"
	// EventUplinkLost and EventUplinkBack: the device went away and came back.
	EventUplinkLost EventKind = "uplink_lost"
	EventUplinkBack EventKind = "uplink_back"
	// EventSourceLost and EventSourceConnected: a container engine cannot be
	// reached, and can be.
	EventSourceLost      EventKind = "source_lost"
	EventSourceConnected EventKind = "source_connected"
	// EventMissed: the reader was too slow; Missed events are not kept any more.
	EventMissed EventKind = "missed"
)

// Event is something that happened at the agent.
type Event struct {
	// Seq grows from one event to the next, also over restarts of the agent. It
	// is that of the last missed one for EventMissed.
	Seq  uint64    `json:"seq"`
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// Container is the name of the container that it is about, if it is about
	// one; ID and Runtime tell it from others.
	Container string `json:"container,omitempty"`
	ID        string `json:"id,omitempty"`
	Runtime   string `json:"runtime,omitempty"`
	// Uplink is the device that it is about, if it is about one.
	Uplink string `json:"uplink,omitempty"`
	// Policy is what a container asks for that started or changed.
	Policy *Policy `json:"policy,omitempty"`
	// Message says more, for people.
	Message string `json:"message,omitempty"`
	// Missed is how many events were lost to this reader.
	Missed uint64 `json:"missed,omitempty"`
}

// Access is who asks.
type Access struct {
	Name string `json:"name"`
	// Role is what they may do: "read" to look, "admin" also to change policies, "root"
	// also to take Weir down.
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
