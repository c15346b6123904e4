package v1

import (
	"net/netip"
	"time"
)

// SDN is the state of the OpenFlow controller of `weir sdn run`.
type SDN struct {
	At       time.Time    `json:"at"`
	Switches []SDNSwitch  `json:"switches"`
	Links    []SDNLink    `json:"links"`
	Classes  []SDNClass   `json:"classes"`
	Counters []SDNCounter `json:"counters"`
	// MissingPorts are the trusted ports (--trust) that no known switch has.
	MissingPorts []string `json:"missing_ports,omitempty"`
}

// SDNSwitch is one switch.
type SDNSwitch struct {
	DPID      string `json:"dpid"` // 16 hexadecimal digits
	Connected bool   `json:"connected"`
	// Role is the role that the switch grants this controller: equal (the only controller),
	// master, or slave (another controller is master).
	Role string `json:"role"`
	// Since is the time of the connection, or of its loss.
	Since time.Time `json:"since"`
	// TableFull says that its flow table recently refused an entry.
	TableFull bool `json:"table_full"`
	Flows     int  `json:"flows"` // flows that enter at this switch
	// State is ok, lost (no connection), standby (another controller is master), table full,
	// or degraded: of some ports the queues, or the trust in their marks, are not in force.
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Ports  []SDNPort `json:"ports"`
}

// SDNPort is one port of a switch.
type SDNPort struct {
	Number uint32   `json:"number"`
	Name   string   `json:"name"`
	Up     bool     `json:"up"`
	Hosts  []string `json:"hosts,omitempty"` // MAC addresses
	// PeerDPID and PeerPort identify the other end of a link between switches.
	PeerDPID string `json:"peer_dpid,omitempty"`
	PeerPort uint32 `json:"peer_port,omitempty"`
	// RateBPS is the rate shared by the port's queues; 0 if this controller configures
	// none.
	RateBPS uint64 `json:"rate_bps"`
	// SentBPS and ReceivedBPS are means between the last two statistics; counters are the
	// switch's own.
	SentBPS        uint64     `json:"sent_bps"`
	ReceivedBPS    uint64     `json:"received_bps"`
	SentBytes      uint64     `json:"sent_bytes"`
	ReceivedBytes  uint64     `json:"received_bytes"`
	DroppedPackets uint64     `json:"dropped_packets"`
	Queues         []SDNQueue `json:"queues,omitempty"`
	// State of the queues: ok; refused or waiting (none configured, see Reason); degraded
	// (the datapath ignores them); unknown (database lost); blocked (the port is disabled
	// to break a loop); empty if there are none to be (a patch port, or without --ovsdb).
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Trust is absent if the port is not to be trusted.
	Trust *SDNTrust `json:"trust,omitempty"`
}

// SDNTrust is how packets are treated that come in at a port whose marks (DSCP) are to be trusted.
type SDNTrust struct {
	// Refused says why flows of the port are classified as those of others; empty if packets are
	// queued by their marks.
	Refused string `json:"refused,omitempty"`
	// EFBoundBPS is how much EF may come in; more is dropped, and counted by the switch.
	EFBoundBPS       uint64 `json:"ef_bound_bps,omitempty"`
	EFDroppedPackets uint64 `json:"ef_dropped_packets"`
	EFDroppedBytes   uint64 `json:"ef_dropped_bytes"`
}

// SDNQueue is one queue of a port. Its counters are the switch's own.
type SDNQueue struct {
	ID    uint32 `json:"id"`
	Class string `json:"class"` // ef, af or be
	// Applications have this queue to themselves, apart from their class.
	Applications   []string `json:"applications,omitempty"`
	MinBPS         uint64   `json:"min_bps,omitempty"`
	MaxBPS         uint64   `json:"max_bps,omitempty"`
	RateBPS        uint64   `json:"rate_bps"` // sent, between the last two statistics
	SentBytes      uint64   `json:"sent_bytes"`
	SentPackets    uint64   `json:"sent_packets"`
	DroppedPackets uint64   `json:"dropped_packets"`
}

// SDNLink is a link between two switches.
type SDNLink struct {
	ADPID string `json:"a_dpid"`
	APort uint32 `json:"a_port"`
	BDPID string `json:"b_dpid"`
	BPort uint32 `json:"b_port"`
}

// SDNClass is the traffic of all flows of a class since the controller's start.
type SDNClass struct {
	Class       string `json:"class"`
	Flows       uint64 `json:"flows"`
	SentPackets uint64 `json:"sent_packets"`
	SentBytes   uint64 `json:"sent_bytes"`
}

// SDNCounter is a counter since the controller's start.
type SDNCounter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// SDNFlow is one direction of a flow.
type SDNFlow struct {
	ID   uint64 `json:"id"`
	Flow string `json:"flow"` // protocol and both ends
	// Application is the application type, "-" if none or unknown.
	Application string  `json:"application"`
	Class       string  `json:"class"` // ef, af or be
	Confidence  float64 `json:"confidence"`
	// SecondLook says that the class was corrected by the flow's statistics.
	SecondLook  bool      `json:"second_look"`
	Path        []SDNHop  `json:"path"`
	Began       time.Time `json:"began"`
	RateBPS     uint64    `json:"rate_bps"`
	SentPackets uint64    `json:"sent_packets"`
	SentBytes   uint64    `json:"sent_bytes"`
}

// SDNHop is the passage of a flow through one switch.
type SDNHop struct {
	DPID string `json:"dpid"`
	In   uint32 `json:"in"`
	Out  uint32 `json:"out"`
}

// SDNLinks is what links have, carry and have promised, and all promises: GET /v1/links.
type SDNLinks struct {
	At time.Time `json:"at"`
	// Standby says that another controller is the master of the switches, or is to become it: that one
	// has the links and keeps the promises.
	Standby  bool               `json:"standby,omitempty"`
	Links    []SDNLinkDirection `json:"links"`
	Promises []SDNPromise       `json:"promises"`
}

// SDNLinkDirection is a port that sends to another switch or to hosts. A cable between switches
// has one in each direction.
type SDNLinkDirection struct {
	DPID string `json:"dpid"`
	Port uint32 `json:"port"`
	Name string `json:"name"`
	// PeerDPID and PeerPort are the other end; without them the port leads to Hosts.
	PeerDPID string   `json:"peer_dpid,omitempty"`
	PeerPort uint32   `json:"peer_port,omitempty"`
	Hosts    []string `json:"hosts,omitempty"` // MAC addresses
	// RateBPS is what the queues of the port share; 0 if it has none.
	RateBPS uint64 `json:"rate_bps"`
	// SentBPS is the mean between the last two statistics.
	SentBPS     uint64 `json:"sent_bps"`
	PromisedBPS uint64 `json:"promised_bps"`
	// FreeMinBPS is the largest minimum that is admitted here.
	FreeMinBPS uint64 `json:"free_min_bps"`
	// State is ok; refused (Reason says why no minimum can be promised here); degraded (its switch
	// ignores queues); or down.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// SDNPath is the path from one host to another, the widest of the shortest ones.
// GET /v1/paths?to=ADDRESS&from=ADDRESS&from=... returns one for each of up to SDNMaxPaths hosts.
type SDNPath struct {
	From netip.Addr `json:"from"`
	Hops []SDNHop   `json:"hops,omitempty"`
	// FreeMinBPS is the largest minimum that is admitted on every link of the path.
	FreeMinBPS uint64 `json:"free_min_bps"`
	// State is ok; none (no path leads there now); or refused (Reason says why nothing can be
	// promised between these hosts).
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// SDNMaxPaths is the largest number of paths in an answer.
const SDNMaxPaths = 32

// States of a path.
const (
	PathOK      = "ok"
	PathNone    = "none"
	PathRefused = "refused"
)

// SDNPromiseRequest asks for a minimum on every link between a node and another host, for the
// traffic of one port of the node. POST /v1/promises reserves it: unless PUT /v1/promises/{id}
// confirms it within ten seconds, it ends. A PUT of a promise that the controller does not know
// (it was started anew) makes it. DELETE /v1/promises/{id} ends it.
type SDNPromiseRequest struct {
	// ID is chosen by the ledger, up to 200 bytes.
	ID string `json:"id"`
	// Service is for people.
	Service string `json:"service"`
	// Node is the address of the node, Protocol (tcp or udp) and Port are where its proxy listens.
	Node     netip.Addr `json:"node"`
	Protocol string     `json:"protocol"`
	Port     uint16     `json:"port"`
	// Peer is the address of another node, or of the router that users are behind.
	Peer netip.Addr `json:"peer"`
	// MinBPS is the minimum from Node to Peer, BackBPS from Peer to Node. One of them may be 0.
	MinBPS  uint64 `json:"min_bps"`
	BackBPS uint64 `json:"back_bps"`
}

// SDNPromise is a promised minimum.
type SDNPromise struct {
	SDNPromiseRequest
	// State is in force; reserved (the same until Expires, unless it is confirmed); waiting (admitted,
	// but a queue is not made yet, or its switch ignores queues); or broken (nothing is promised until a
	// path has room). Reason says where and why.
	State   string     `json:"state"`
	Reason  string     `json:"reason,omitempty"`
	Since   time.Time  `json:"since"`
	Expires *time.Time `json:"expires,omitempty"`
	// Path is the way from Node to Peer, Back that from Peer to Node.
	Path []SDNHop `json:"path,omitempty"`
	Back []SDNHop `json:"back,omitempty"`
}

// States of a promise.
const (
	PromiseReserved = "reserved"
	PromiseWaiting  = "waiting"
	PromiseInForce  = "in force"
	PromiseBroken   = "broken"
)
