// Package flow defines what Weir knows of a transport flow from its first
// packets: the columns of a table of flows, the same taken from packets, and
// the features made of them. There is one definition: tables are read, captures
// are cut into flows and live traffic is looked at with it.
//
// Limits: nothing of a flow's payload is looked at but its length, and no
// address.
package flow

import "math"

// Columns of a table of flows, by the place of their value in Flow.Values.
// Times are microseconds, lengths bytes of payload. 0 or -1 says that something
// is not there, as in the table's documentation; NaN that nobody knows.
const (
	Proto   = iota // 6 TCP, 17 UDP
	SrcPort        // of who began
	DstPort        // of who answers
	SYN            // 1: the first SYN was seen
	MSSClient
	WindowClient
	WScaleClient
	TTLClient
	SYNACK
	MSSServer
	WindowServer
	WScaleServer
	TTLServer
	HandshakeUS
	ClientLen1  // c2s_len1, c2s_t1_us, c2s_len2, ... c2s_t3_us
	ServerLen1  = ClientLen1 + 2*sidePackets
	SeqLen1     = ServerLen1 + 2*sidePackets // seq_len1, seq_iat1_us, ... seq_iat6_us
	PktsClient  = SeqLen1 + 2*seqPackets
	PktsServer  = PktsClient + 1
	BytesClient = PktsServer + 1
	BytesServer = BytesClient + 1
	NumColumns  = BytesServer + 1
)

// What of a flow's beginning is kept: packets with payload of each side, and of
// both in order.
const (
	sidePackets = 3
	seqPackets  = 6
)

// Protocols.
const (
	TCP = 6
	UDP = 17
)

// Flow is one transport flow.
type Flow struct {
	Values [NumColumns]float64
	// Origin, Group and Capture say where it was seen; flows of a group resemble
	// each other, so a group is never shared between training and test.
	Origin, Group, Capture string
	// Type is the label, an application type's name, or empty.
	Type string
	// Rank is the index within capture and class, from 1; 0 if not known.
	Rank int
	// Line is where it stands in its table, or 0.
	Line int
	// Tuple is how it is shown, if it comes from packets.
	Tuple string
}

// New is a flow of which nothing is known.
func New() *Flow {
	f := &Flow{}
	for i := range f.Values {
		f.Values[i] = math.NaN()
	}
	return f
}

// Bytes is the payload of both directions, or 0 if it is not known.
func (f *Flow) Bytes() float64 {
	if b := f.Values[BytesClient] + f.Values[BytesServer]; !math.IsNaN(b) {
		return b
	}
	return 0
}
