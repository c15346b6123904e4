// Package edge holds the wire types of weir-edge's API: what `weir-edge ps -o json`
// prints and what its socket speaks. It has no behaviour.
//
// Rates are bits per second, sizes are bytes, times carry their unit in the field's
// name. The field names are a contract: they are only ever added to.
package edge

import (
	"encoding/json"
	"time"
)

// Snapshot is all that weir-edge knows, of one moment.
type Snapshot struct {
	// At is when it looked; zero before it has.
	At      time.Time `json:"at,omitzero"`
	Version string    `json:"version"`
	// Engine is "docker" or "swarm".
	Engine string `json:"engine"`
	// DryRun: it decides, and changes nothing.
	DryRun bool `json:"dry_run"`
	// Repository is where nodes get images that were pushed; empty if nowhere.
	Repository string     `json:"repository,omitempty"`
	Services   []Service  `json:"services"`
	Instances  []Instance `json:"instances"`
	Nodes      []Node     `json:"nodes"`
	// Decisions are those of the last round, one or more for each service.
	Decisions []Decision `json:"decisions"`
}

// Instance is one copy of a service on a node.
type Instance struct {
	Service string `json:"service"`
	Node    string `json:"node"`
	// Instance is SERVICE-NUMBER.
	Instance string `json:"instance"`
	// State is "starting", "running", "unhealthy" (it runs and does not answer),
	// "unknown" (it runs, and its proxy does not say whether it answers), "stopping"
	// or "failed"; "pending" stands for a service that has no instance, for Reason, and
	// has neither Node nor Instance.
	State string `json:"state"`
	// Users are those that it serves now.
	Users int `json:"users"`
	// ResponseMS is how long users wait for an answer, at the proxy.
	ResponseMS float64 `json:"response_ms"`
	// Reason says why it is not running.
	Reason      string    `json:"reason,omitempty"`
	Image       string    `json:"image"`
	ContainerID string    `json:"container_id,omitempty"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	// MinBPS is what is promised to it at its node's uplink.
	MinBPS uint64 `json:"min_bps"`
}

// Node is a machine that runs services.
type Node struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	// State is "ready", "stale", "gone" or "draining".
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// AgeSeconds is how old what is measured is.
	AgeSeconds float64 `json:"age_seconds"`
	// Weir: a Weir agent shares out its uplink. Without one no minimum is promised
	// there.
	Weir            bool    `json:"weir"`
	CPUs            float64 `json:"cpus"`
	CPUUsedPercent  float64 `json:"cpu_used_percent"`
	Load1           float64 `json:"load_1"`
	MemoryBytes     uint64  `json:"memory_bytes"`
	MemoryUsedBytes uint64  `json:"memory_used_bytes"`
	DiskFreeBytes   uint64  `json:"disk_free_bytes"`
	UplinkBPS       uint64  `json:"uplink_bps"`
	UplinkSentBPS   uint64  `json:"uplink_sent_bps"`
	// PromisedBPS is what instances are promised, FreeBPS what further ones may be.
	PromisedBPS uint64 `json:"promised_bps"`
	FreeBPS     uint64 `json:"free_bps"`
	Instances   int    `json:"instances"`
}

// Service is a service and what its users see of it.
type Service struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	Ports []Port `json:"ports"`
	// Users are connected now, Waiting of them wait for an instance.
	Users     int `json:"users"`
	Waiting   int `json:"waiting"`
	Instances int `json:"instances"`
	// Running are the instances that answer.
	Running    int     `json:"running"`
	ResponseMS float64 `json:"response_ms"`
	// Requests and FailedRequests count since the service's proxies have started.
	Requests       uint64 `json:"requests"`
	FailedRequests uint64 `json:"failed_requests"`
	SentBytes      uint64 `json:"sent_bytes"`
	// Reason says what is wrong with it.
	Reason string `json:"reason,omitempty"`
	// Specification is what was deployed.
	Specification json.RawMessage `json:"specification"`
}

// Port is a port of a service: users come to Host, instances listen at Container.
type Port struct {
	Host      uint16 `json:"host"`
	Container uint16 `json:"container"`
}

// Deployed is the answer to a deployment.
type Deployed struct {
	Service string `json:"service"`
	// Changed is false if the service was there already, just so.
	Changed bool `json:"changed"`
	// Notes are what is odd about the specification.
	Notes []string `json:"notes,omitempty"`
}

// Explanation says why a service has the instances that it has.
type Explanation struct {
	Service   Service    `json:"service"`
	Instances []Instance `json:"instances"`
	// Now are the decisions of the last round, Earlier those that changed something,
	// the newest first.
	Now     []Decision `json:"now"`
	Earlier []Event    `json:"earlier"`
}

// Decision is what was decided about a service, what that went by, and what else
// could have been done.
type Decision struct {
	// Action is "start", "stop", "move" or "keep".
	Action   string `json:"action"`
	Service  string `json:"service"`
	Instance string `json:"instance,omitempty"`
	Node     string `json:"node,omitempty"`
	// Replaces and From are the instance that a move is away from, and its node.
	Replaces  string `json:"replaces,omitempty"`
	From      string `json:"from,omitempty"`
	MinBPS    uint64 `json:"min_bps,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Cause     string `json:"cause"`
	Reason    string `json:"reason"`
	// Inputs are what the decision went by, Alternatives what else could have been
	// done, best first, and Excluded the nodes that could not be chosen.
	Inputs       json.RawMessage `json:"inputs"`
	Alternatives json.RawMessage `json:"alternatives,omitempty"`
	Excluded     json.RawMessage `json:"excluded,omitempty"`
}

// EventKind says what an event is about.
type EventKind string

// The kinds of events.
const (
	EventDecision EventKind = "decision" // something is to change
	EventDeployed EventKind = "deployed"
	EventRemoved  EventKind = "removed"
	EventStarted  EventKind = "started" // an instance answers
	EventStopped  EventKind = "stopped" // an instance is gone
	EventFailed   EventKind = "failed"  // something did not work
	EventNode     EventKind = "node"    // a node came, or changed its state
	EventPulling  EventKind = "pulling" // an image is not there and is being got
	EventMissed   EventKind = "missed"  // events that are not kept any more
)

// Event is something that happened.
type Event struct {
	// Seq grows from one event to the next, also over restarts.
	Seq      uint64    `json:"seq"`
	At       time.Time `json:"at"`
	Kind     EventKind `json:"kind"`
	Service  string    `json:"service,omitempty"`
	Instance string    `json:"instance,omitempty"`
	Node     string    `json:"node,omitempty"`
	// Message says more, for people.
	Message  string    `json:"message"`
	Decision *Decision `json:"decision,omitempty"`
	// DryRun: it was decided and not done.
	DryRun bool `json:"dry_run,omitempty"`
	// TookSeconds is how long it took, from the decision to the first answer of what
	// was started.
	TookSeconds float64 `json:"took_seconds,omitempty"`
}

// Stored is a service in the repository: an image, and its specification beside it.
type Stored struct {
	Service string `json:"service"`
	// Digest is that of the image's manifest, by which nodes ask for it.
	Digest string `json:"digest"`
	// SizeBytes is what a node without the image gets: its layers are compressed.
	SizeBytes    uint64 `json:"size_bytes"`
	Architecture string `json:"architecture"`
	// Specification is what was pushed.
	Specification json.RawMessage `json:"specification"`
	// Reason is why it cannot be deployed; then there is nothing but its name.
	Reason string `json:"reason,omitempty"`
}
