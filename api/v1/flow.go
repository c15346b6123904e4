package v1

import "time"

// Flow is a live flow of a container of class auto, at one moment. Addresses and ports are
// those inside the container's network.
type Flow struct {
	// Container is the name of the flow's container, ID its ID.
	Container string `json:"container"`
	ID        string `json:"id"`
	// Protocol is tcp or udp.
	Protocol string `json:"protocol"`
	// Initiator is the side that sent the first packet, ADDRESS:PORT.
	Initiator string `json:"initiator"`
	Responder string `json:"responder"`
	// Application is the application type, e.g. VOIP; empty while unknown.
	Application string `json:"application"`
	// Class is ef, af or be; empty without a verdict, which is served as be.
	Class Class `json:"class"`
	// ByDSCP says that the class comes from the DSCP field of its last packet, not from the
	// verdict.
	ByDSCP bool `json:"by_dscp"`
	// Why says why the class is not that of the verdict: the flow sends as a transfer does, e.g.
	// "bulk: 18 kB in 12ms". Empty for other flows.
	Why string `json:"why"`
	// Stage is the classifier stage of the verdict: 1 after the first packet, 2 after the
	// first six packets with payload; 0 without a verdict.
	Stage int `json:"stage"`
	// Confidence is the confidence in the class, 0 to 1.
	Confidence float64 `json:"confidence"`
	// Sent counters are the initiator's, received ones the
	// responder's, headers included.
	SentBytes       uint64 `json:"sent_bytes"`
	SentPackets     uint32 `json:"sent_packets"`
	ReceivedBytes   uint64 `json:"received_bytes"`
	ReceivedPackets uint32 `json:"received_packets"`
	// DelayMS is the mean queueing delay of its packets at the uplink, in milliseconds,
	// sampled an eighth of the time; 0 while unmeasured, or if the kernel cannot measure
	// it.
	DelayMS    float64   `json:"delay_ms"`
	BeganAt    time.Time `json:"began_at"`
	LastSeenAt time.Time `json:"last_seen_at"`
}
