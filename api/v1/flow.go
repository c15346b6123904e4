package v1

import "time"

// Flow is a live flow of a container whose class is auto, as it was at one moment.
// Addresses and ports are those that the container has.
type Flow struct {
	// Container is the name of whose it is, ID its ID.
	Container string `json:"container"`
	ID        string `json:"id"`
	// Protocol is tcp or udp.
	Protocol string `json:"protocol"`
	// Initiator is the side that sent the first packet, ADDRESS:PORT.
	Initiator string `json:"initiator"`
	Responder string `json:"responder"`
	// Application is the type of application, e.g. VOIP; empty while it is not known.
	Application string `json:"application"`
	// Class is ef, af or be; empty where there was no verdict, which is served as be.
	Class Class `json:"class"`
	// ByDSCP: the DSCP field of its last packet says so, not the verdict.
	ByDSCP bool `json:"by_dscp"`
	// Stage gave the verdict: 1 by the first packet, 2 by the first six with payload;
	// 0 for no verdict.
	Stage int `json:"stage"`
	// Confidence is that in the class, 0 to 1.
	Confidence float64 `json:"confidence"`
	// Sent is what the initiator sent, received what the responder did, headers
	// included.
	SentBytes       uint64 `json:"sent_bytes"`
	SentPackets     uint32 `json:"sent_packets"`
	ReceivedBytes   uint64 `json:"received_bytes"`
	ReceivedPackets uint32 `json:"received_packets"`
	// DelayMS is how long its packets waited at the uplink, in milliseconds, on average
	// over those since it began that were measured, an eighth of the time; 0 while none
	// was, or where the kernel cannot measure it.
	DelayMS    float64   `json:"delay_ms"`
	BeganAt    time.Time `json:"began_at"`
	LastSeenAt time.Time `json:"last_seen_at"`
}
