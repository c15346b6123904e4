// Package edge holds the wire types of weir-edge's API: what `weir-edge ps -o json`
// prints and what its socket speaks. It has no behaviour.
//
// Rates are bits per second, sizes are bytes, times carry their unit in the field's
// name. The field names are a contract: they are only ever added to.
package edge

import (
	"encoding/json"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// Snapshot is the whole state of weir-edge at one moment.
type Snapshot struct {
	// At is the time of the last round; zero before the first.
	At      time.Time `json:"at,omitzero"`
	Version string    `json:"version"`
	// Engine is "docker", "swarm" or "kubernetes".
	Engine string `json:"engine"`
	// EngineSocket is the path of the engine's socket, empty of Kubernetes; StateDir that of weir-edge's folder.
	// Both are absolute.
	EngineSocket string `json:"engine_socket"`
	// Cluster is the URL of Kubernetes' API server and, after a space, the namespace; empty of engines.
	Cluster  string `json:"cluster,omitempty"`
	StateDir string `json:"state_dir"`
	// DryRun says that weir-edge decides but changes nothing.
	DryRun bool `json:"dry_run"`
	// Repository is the address from which nodes pull pushed images; empty if there is
	// none.
	Repository string     `json:"repository,omitempty"`
	Services   []Service  `json:"services"`
	Instances  []Instance `json:"instances"`
	Nodes      []Node     `json:"nodes"`
	// Decisions are the decisions of the last round, one or more per service.
	Decisions []Decision `json:"decisions"`
}

// Instance is one copy of a service on a node.
type Instance struct {
	Service string `json:"service"`
	Node    string `json:"node"`
	// Instance is the instance's name, SERVICE-NUMBER, or SERVICE.1 of a Swarm service that is only moved.
	Instance string `json:"instance"`
	// State is "starting", "running", "unhealthy" (it runs but does not respond), "unknown"
	// (it runs, but its proxy does not report its health), "stopping" or "failed".
	// "pending" stands for a service without instances, for the given Reason, "asleep" for one that
	// has none until a user comes, "starting" until a proxy of it lets one wait; they have neither Node
	// nor Instance.
	State string `json:"state"`
	// Users are the users it serves now. Waiting are those of the service who wait for an instance at
	// the node's proxy; if the service has several instances, each is counted at one of them.
	Users   int `json:"users"`
	Waiting int `json:"waiting,omitempty"`
	// ResponseMS is how long its users wait on average, in milliseconds, until ResponseEnd.
	ResponseMS  float64     `json:"response_ms"`
	ResponseEnd ResponseEnd `json:"response_end,omitempty"`
	// Reason says why the instance is not running.
	Reason string `json:"reason,omitempty"`
	// Version is what the instance is made of, as a digest; see [Update].
	Version     string    `json:"version,omitempty"`
	Image       string    `json:"image"`
	ContainerID string    `json:"container_id,omitempty"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	// MinBPS is the instance's part of the service's minimum, ServiceMinBPS: what of it the users
	// of this instance get. The parts of all instances add up to the minimum; while an instance
	// starts, a part is kept for it beside that.
	MinBPS        uint64 `json:"min_bps"`
	ServiceMinBPS uint64 `json:"service_min_bps,omitempty"`
	// InMinBPS and ServiceInMinBPS are the same of what users send (the label weir.in.min).
	InMinBPS        uint64 `json:"in_min_bps,omitempty"`
	ServiceInMinBPS uint64 `json:"service_in_min_bps,omitempty"`
}

// ResponseEnd says until when a response time is measured, from the user's request on.
type ResponseEnd string

// The ends.
const (
	// ResponseDelivered: until the user has the last byte.
	ResponseDelivered ResponseEnd = "delivered"
	// ResponseFirstByte: until the proxy has the instance's first byte. The node where users connect has
	// no agent.
	ResponseFirstByte ResponseEnd = "first byte"
	// ResponseConnected: until the instance has accepted the connection. The service speaks TCP.
	ResponseConnected ResponseEnd = "connected"
)

// Node is a machine that runs services.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	// State is "ready", "stale", "gone" or "draining".
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// AgeSeconds is the age of the measurements.
	AgeSeconds float64 `json:"age_seconds"`
	// Weir says that a Weir agent controls the node's uplink. Without one no minimum can be
	// promised there.
	Weir            bool    `json:"weir"`
	CPUs            float64 `json:"cpus"`
	CPUUsedPercent  float64 `json:"cpu_used_percent"`
	Load1           float64 `json:"load_1"`
	MemoryBytes     uint64  `json:"memory_bytes"`
	MemoryUsedBytes uint64  `json:"memory_used_bytes"`
	DiskFreeBytes   uint64  `json:"disk_free_bytes"`
	UplinkBPS       uint64  `json:"uplink_bps"`
	UplinkSentBPS   uint64  `json:"uplink_sent_bps"`
	// PromisedBPS is what the minimums of services take on the node ([Claim]), FreeBPS what can
	// still be promised there.
	PromisedBPS uint64 `json:"promised_bps"`
	FreeBPS     uint64 `json:"free_bps"`
	// InPromisedBPS and InFreeBPS are the same of what the node receives; 0 where its agent does not
	// share that.
	InPromisedBPS uint64 `json:"in_promised_bps,omitempty"`
	InFreeBPS     uint64 `json:"in_free_bps,omitempty"`
	Instances     int    `json:"instances"`
}

// Monitored is what the agents of all nodes said last, in the paper's words: PiCasso's "json object with
// monitored data that includes information of all edge nodes" (section III.B.2).
type Monitored struct {
	// Nodes are sorted by name. Those whose agents have never answered are not there.
	Nodes []v1.Node `json:"nodes"`
}

// Service is a service with the state that its users see.
type Service struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	Ports []Port `json:"ports"`
	// Users are the requests in progress (in mode tcp and on Kubernetes connections); Waiting of them wait for an instance.
	Users     int `json:"users"`
	Waiting   int `json:"waiting"`
	Instances int `json:"instances"`
	// Running is the number of instances that respond.
	Running int `json:"running"`
	// ResponseMS is how long users wait on average at the node where they wait longest, in
	// milliseconds, until ResponseEnd. 95 % of them wait no longer than ResponseP95MS. In DeliveryMS
	// of the mean answers waited for the way to users. The last two are 0 if they are not measured.
	ResponseMS    float64     `json:"response_ms"`
	ResponseP95MS float64     `json:"response_p95_ms"`
	DeliveryMS    float64     `json:"delivery_ms"`
	ResponseEnd   ResponseEnd `json:"response_end,omitempty"`
	// Requests and FailedRequests are counted since the start of the service's proxies.
	Requests       uint64 `json:"requests"`
	FailedRequests uint64 `json:"failed_requests"`
	SentBytes      uint64 `json:"sent_bytes"`
	// MinBPS is the minimum that all users of the service get together (the label weir.min), InMinBPS
	// the one that they may send (weir.in.min), Claims what those take on each node.
	MinBPS   uint64  `json:"min_bps,omitempty"`
	InMinBPS uint64  `json:"in_min_bps,omitempty"`
	Claims   []Claim `json:"claims,omitempty"`
	// Reason says what is wrong with the service.
	Reason string `json:"reason,omitempty"`
	Update Update `json:"update,omitzero"`
	// Specification is the deployed specification.
	Specification json.RawMessage `json:"specification"`
}

// Update is the version of a service, and how its last update went.
type Update struct {
	// Version is what instances should be made of: a digest of the specification and the image.
	Version string `json:"version"`
	// InProgress: instances are being replaced, or have not answered for long enough yet.
	InProgress bool `json:"in_progress,omitempty"`
	// Left is a version that did not answer, for Reason, so the service went back from it.
	Left   string `json:"left,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Claim is what a service's minimum takes of one direction of a node, in bits per second.
type Claim struct {
	Node string `json:"node"`
	// In: of what the node receives for weir.in.min; who sends is who receives below.
	In bool `json:"in,omitempty"`
	// UsersBPS is the part of users who connect to this node. Over all nodes that is the minimum.
	// RelayedBPS of it instances of other nodes send to the proxy of this node.
	UsersBPS   uint64 `json:"users_bps"`
	RelayedBPS uint64 `json:"relayed_bps,omitempty"`
	// AckBPS is what the proxy sends to those instances: acknowledgements and requests.
	AckBPS uint64 `json:"ack_bps,omitempty"`
	// SentBPS is what instances of this node send to proxies of other nodes.
	SentBPS uint64 `json:"sent_bps,omitempty"`
	// ForwardedBPS is what the proxy sends to instances of other nodes for weir.in.min.
	ForwardedBPS uint64 `json:"forwarded_bps,omitempty"`
	// StartingBPS is kept for instances that start here, beyond the rest.
	StartingBPS uint64 `json:"starting_bps,omitempty"`
	// PromisedBPS is what the node has promised of the sum of users, acknowledgements, sent, forwarded and
	// starting; InForceBPS is what of that its agent keeps, 0 if it does not answer.
	PromisedBPS uint64 `json:"promised_bps"`
	InForceBPS  uint64 `json:"in_force_bps"`
	// Reason says why less than that is promised, or what is in force is not known.
	Reason string `json:"reason,omitempty"`
	// Places are where it holds: the node's uplink, and each link on the way to users.
	Places []Place `json:"places,omitempty"`
}

// Place is where a claim holds.
type Place struct {
	// Where is "uplink", "uplink in", or names a link.
	Where       string `json:"where"`
	PromisedBPS uint64 `json:"promised_bps"`
	// State is one of those below, or of a promise of v1: in force, reserved, waiting or broken.
	State string `json:"state"`
	// Since is when weir-edge saw this state first.
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// The states of a place.
const (
	// PlaceShort: there is no room to promise it.
	PlaceShort = "short"
	// PlaceUplinksOnly: switches cannot keep it, so it is promised on uplinks only.
	PlaceUplinksOnly = "uplinks only"
	// PlaceUnknown: what keeps it does not answer.
	PlaceUnknown = "unknown"
)

// Port is a port of a service: users connect to Host, instances listen on Container.
type Port struct {
	Host      uint16 `json:"host"`
	Container uint16 `json:"container"`
}

// Deployed is the response to a deployment.
type Deployed struct {
	Service string `json:"service"`
	// Changed is false if the same service was already deployed.
	Changed bool `json:"changed"`
	// Version is what instances will be made of; see [Update].
	Version string `json:"version,omitempty"`
	// Notes are warnings about the specification.
	Notes []string `json:"notes,omitempty"`
}

// Explanation says why a service has its instances.
type Explanation struct {
	Service   Service    `json:"service"`
	Instances []Instance `json:"instances"`
	// Now are the decisions of the last round, Earlier the previous decisions that changed
	// something, newest first.
	Now     []Decision `json:"now"`
	Earlier []Event    `json:"earlier"`
}

// Decision is a decision about a service, with its inputs and alternatives.
type Decision struct {
	// Action is "start", "stop", "move" or "keep"; "settle" and "go-back" end an update.
	Action   string `json:"action"`
	Service  string `json:"service"`
	Instance string `json:"instance,omitempty"`
	Node     string `json:"node,omitempty"`
	// Replaces is the instance that a move replaces, From its node.
	Replaces  string `json:"replaces,omitempty"`
	From      string `json:"from,omitempty"`
	MinBPS    uint64 `json:"min_bps,omitempty"`
	InMinBPS  uint64 `json:"in_min_bps,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Cause     string `json:"cause"`
	Reason    string `json:"reason"`
	// Inputs are the measurements used, Alternatives the other options, best first, and
	// Excluded the nodes that could not be chosen.
	Inputs       json.RawMessage `json:"inputs"`
	Alternatives json.RawMessage `json:"alternatives,omitempty"`
	Excluded     json.RawMessage `json:"excluded,omitempty"`
}

// EventKind is the subject of an event.
type EventKind string

// The kinds of events.
const (
	EventDecision EventKind = "decision" // a change was decided
	EventDeployed EventKind = "deployed"
	EventRemoved  EventKind = "removed"
	EventStarted  EventKind = "started" // an instance responds
	EventStopped  EventKind = "stopped" // an instance was removed
	EventFailed   EventKind = "failed"  // an action failed
	EventNode     EventKind = "node"    // a node joined or changed its state
	EventPulling  EventKind = "pulling" // a missing image is being pulled
	EventMissed   EventKind = "missed"  // events were dropped before the reader got them
)

// Event is a change that weir-edge decided, made or noticed.
type Event struct {
	// Seq increases with every event, also across restarts.
	Seq      uint64    `json:"seq"`
	At       time.Time `json:"at"`
	Kind     EventKind `json:"kind"`
	Service  string    `json:"service,omitempty"`
	Instance string    `json:"instance,omitempty"`
	Node     string    `json:"node,omitempty"`
	// Message describes the event for people.
	Message  string    `json:"message"`
	Decision *Decision `json:"decision,omitempty"`
	// DryRun says that the decision was not carried out.
	DryRun bool `json:"dry_run,omitempty"`
	// TookSeconds is the time from the decision to the first response of the started
	// instance.
	TookSeconds float64 `json:"took_seconds,omitempty"`
}

// Stored is a pushed service in the repository: an image with its specification.
type Stored struct {
	Service string `json:"service"`
	// Digest is the digest of the image's manifest.
	Digest string `json:"digest"`
	// SizeBytes is the compressed size of the layers, which a node without the image
	// downloads.
	SizeBytes    uint64 `json:"size_bytes"`
	Architecture string `json:"architecture"`
	// Specification is the pushed specification.
	Specification json.RawMessage `json:"specification"`
	// Reason says why the service cannot be deployed; then only its name is set.
	Reason string `json:"reason,omitempty"`
}
