// Package flow defines a transport flow by its first packets: the columns of a table of
// flows, the same values taken from packets, and the features computed from them. Tables,
// captures and live traffic all use this definition.
//
// Limits: of the payload only the length is used, and addresses are not used at all.
package flow

import "math"

// Column indexes of Flow.Values. Times are in microseconds, lengths in bytes of payload. 0
// or -1 stands for a missing value, as in the table's documentation; NaN for an unknown
// one.
const (
	Proto   = iota // 6 TCP, 17 UDP
	SrcPort        // of the initiator
	DstPort        // of the responder
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
	ServerLen1  = ClientLen1 + 2*SidePackets
	SeqLen1     = ServerLen1 + 2*SidePackets // seq_len1, seq_iat1_us, ... seq_iat6_us
	PktsClient  = SeqLen1 + 2*SeqPackets
	PktsServer  = PktsClient + 1
	BytesClient = PktsServer + 1
	BytesServer = BytesClient + 1
	NumColumns  = BytesServer + 1
)

// How many payload packets are kept: per side, and of both sides in order.
const (
	SidePackets = 3
	SeqPackets  = 6
)

// Protocols.
const (
	TCP = 6
	UDP = 17
)

// Flow is one transport flow.
type Flow struct {
	Values [NumColumns]float64
	// Origin, Group and Capture say where the flow was recorded. Flows of a group are
	// similar, so a group is never divided between training and test.
	Origin, Group, Capture string
	// Type is the label, an application type's name, or empty.
	Type string
	// Rank is the index within capture and class, from 1; 0 if not known.
	Rank int
	// Line is the line of the flow in its table, or 0.
	Line int
	// Tuple is the printed 5-tuple of a flow read from packets.
	Tuple string
}

// New returns a flow with all values unknown.
func New() *Flow {
	f := &Flow{}
	for i := range f.Values {
		f.Values[i] = math.NaN()
	}
	return f
}

// Bytes returns the payload bytes of both directions, or 0 if unknown.
func (f *Flow) Bytes() float64 {
	if b := f.Values[BytesClient] + f.Values[BytesServer]; !math.IsNaN(b) {
		return b
	}
	return 0
}
