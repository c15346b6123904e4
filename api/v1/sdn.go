package v1

import "time"

// SDN is what the OpenFlow controller of `weir sdn run` knows.
type SDN struct {
	At       time.Time    `json:"at"`
	Switches []SDNSwitch  `json:"switches"`
	Links    []SDNLink    `json:"links"`
	Classes  []SDNClass   `json:"classes"`
	Counters []SDNCounter `json:"counters"`
}

// SDNSwitch is one switch.
type SDNSwitch struct {
	DPID      string `json:"dpid"` // 16 hexadecimal digits
	Connected bool   `json:"connected"`
	// Role is what the switch says that this controller is: equal (there are no
	// others), master or slave (it obeys another).
	Role string `json:"role"`
	// Since is when it connected, or was lost.
	Since time.Time `json:"since"`
	// TableFull: it refused a flow lately.
	TableFull bool      `json:"table_full"`
	Flows     int       `json:"flows"` // that begin at this switch
	Ports     []SDNPort `json:"ports"`
}

// SDNPort is one port of a switch.
type SDNPort struct {
	Number uint32   `json:"number"`
	Name   string   `json:"name"`
	Up     bool     `json:"up"`
	Hosts  []string `json:"hosts,omitempty"` // MAC addresses
	// PeerDPID and PeerPort are the other end of a link between switches.
	PeerDPID string `json:"peer_dpid,omitempty"`
	PeerPort uint32 `json:"peer_port,omitempty"`
	// RateBPS is what the port's queues share; 0 if this controller makes none.
	RateBPS uint64 `json:"rate_bps"`
	// SentBPS and ReceivedBPS are those between the last two statistics; counters are
	// the switch's own.
	SentBPS        uint64     `json:"sent_bps"`
	ReceivedBPS    uint64     `json:"received_bps"`
	SentBytes      uint64     `json:"sent_bytes"`
	ReceivedBytes  uint64     `json:"received_bytes"`
	DroppedPackets uint64     `json:"dropped_packets"`
	Queues         []SDNQueue `json:"queues,omitempty"`
	// State is ok; or with Reason: refused or waiting, the port has no queues;
	// degraded, its datapath ignores them; unknown, the database is lost;
	// blocked, it stays out because it would close a loop.
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// SDNQueue is one queue of a port. Counters are the switch's own.
type SDNQueue struct {
	ID    uint32 `json:"id"`
	Class string `json:"class"` // ef, af or be
	// Applications go here although others of their class need not.
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

// SDNClass is what all flows of a class have carried since the controller
// started.
type SDNClass struct {
	Class       string `json:"class"`
	Flows       uint64 `json:"flows"`
	SentPackets uint64 `json:"sent_packets"`
	SentBytes   uint64 `json:"sent_bytes"`
}

// SDNCounter counts since the controller started.
type SDNCounter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// SDNFlow is one direction of a flow.
type SDNFlow struct {
	ID   uint64 `json:"id"`
	Flow string `json:"flow"` // protocol and both ends
	// Application is its type, "-" if it has none or is not known.
	Application string  `json:"application"`
	Class       string  `json:"class"` // ef, af or be
	Confidence  float64 `json:"confidence"`
	// SecondLook: the class comes from the flow's statistics.
	SecondLook  bool      `json:"second_look"`
	Path        []SDNHop  `json:"path"`
	Began       time.Time `json:"began"`
	RateBPS     uint64    `json:"rate_bps"`
	SentPackets uint64    `json:"sent_packets"`
	SentBytes   uint64    `json:"sent_bytes"`
}

// SDNHop is how a flow crosses a switch.
type SDNHop struct {
	DPID string `json:"dpid"`
	In   uint32 `json:"in"`
	Out  uint32 `json:"out"`
}
