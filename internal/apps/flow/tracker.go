package flow

import (
	"fmt"
	"math"
	"time"
)

// Tracker groups packets into flows.
type Tracker struct {
	open map[key]*tracked
	all  []*Flow
}

type key struct {
	a, b  Endpoint // the initiator's endpoint first
	proto int
}

// tracked is a flow that may get more packets.
type tracked struct {
	flow                 *Flow
	began, synAt, lastAt time.Duration
	lastPayload          time.Duration
	client, server, both int // payload packets counted so far
	closing              bool
}

// idle is the silence after which a packet starts a new flow.
const idle = 5 * time.Minute

// NewTracker returns an empty tracker.
func NewTracker() *Tracker { return &Tracker{open: map[key]*tracked{}} }

// Flows returns the flows of all packets so far.
func (t *Tracker) Flows() []*Flow { return t.all }

// Add processes the next packet. The sender of a flow's first packet is the initiator,
// unless that packet is a SYN-ACK.
func (t *Tracker) Add(h Headers, at time.Duration) {
	forward := key{h.Src, h.Dst, h.Proto}
	backward := key{h.Dst, h.Src, h.Proto}
	f, fromClient := t.open[forward], true
	if f == nil {
		if f = t.open[backward]; f != nil {
			fromClient = false
		}
	}
	// After a connection's end or a long silence, the same endpoints form a new flow.
	if f != nil && ((f.closing && h.SYN && !h.ACK) || at-f.lastAt > idle) {
		delete(t.open, forward)
		delete(t.open, backward)
		f = nil
	}
	if f == nil {
		k := forward
		fromClient = true
		if h.SYN && h.ACK {
			k, fromClient = backward, false
		}
		begun := (&Flow{}).begin(k, at)
		f = &begun
		f.flow.Tuple = k.String()
		t.open[k] = f
		t.all = append(t.all, f.flow)
	}
	f.add(h, at, fromClient)
}

func (k key) String() string {
	return fmt.Sprintf("%s %s > %s", map[int]string{TCP: "tcp", UDP: "udp"}[k.proto], k.a, k.b)
}

// FirstPacket sets f to the flow that one packet starts, as a Tracker would, without Tuple.
func (f *Flow) FirstPacket(h Headers) {
	k, fromClient := key{h.Src, h.Dst, h.Proto}, true
	if h.SYN && h.ACK {
		k, fromClient = key{h.Dst, h.Src, h.Proto}, false
	}
	*f = Flow{}
	t := f.begin(k, 0)
	t.add(h, 0, fromClient)
}

// begin initializes the empty flow f without packets.
func (f *Flow) begin(k key, at time.Duration) tracked {
	v := &f.Values
	v[Proto], v[SrcPort], v[DstPort] = float64(k.proto), float64(k.a.Port), float64(k.b.Port)
	for _, absent := range []int{WScaleClient, TTLClient, WScaleServer, TTLServer, HandshakeUS} {
		v[absent] = -1
	}
	for i := range 2 * SidePackets {
		v[ClientLen1+i], v[ServerLen1+i] = -1, -1
	}
	for i := range SeqPackets {
		v[SeqLen1+2*i+1] = -1
	}
	return tracked{flow: f, began: at}
}

func micros(d time.Duration) float64 { return math.Round(float64(d) / float64(time.Microsecond)) }

func (f *tracked) add(h Headers, at time.Duration, fromClient bool) {
	v := &f.flow.Values
	f.lastAt = at
	f.handshake(h, at, fromClient)
	f.closing = f.closing || h.FIN || h.RST
	packets, bytes, ttl := PktsServer, BytesServer, TTLServer
	if fromClient {
		packets, bytes, ttl = PktsClient, BytesClient, TTLClient
	}
	if v[packets] == 0 {
		v[ttl] = float64(h.TTL)
	}
	v[packets]++
	v[bytes] += float64(h.Payload)
	if h.Payload == 0 {
		return
	}
	side, first, sign := &f.server, ServerLen1, -1.0
	if fromClient {
		side, first, sign = &f.client, ClientLen1, 1
	}
	if *side < SidePackets {
		v[first+2**side], v[first+2**side+1] = float64(h.Payload), micros(at-f.began)
	}
	*side++
	if f.both < SeqPackets {
		since := f.began
		if f.both > 0 {
			since = f.lastPayload
		}
		v[SeqLen1+2*f.both], v[SeqLen1+2*f.both+1] = sign*float64(h.Payload), micros(at-since)
	}
	f.both++
	f.lastPayload = at
}

// handshake records the options of a SYN of either side.
func (f *tracked) handshake(h Headers, at time.Duration, fromClient bool) {
	v := &f.flow.Values
	switch {
	case h.Proto != TCP || !h.SYN:
	case fromClient && !h.ACK && v[SYN] == 0:
		v[SYN], v[MSSClient], v[WindowClient], v[WScaleClient] = 1, float64(h.MSS), float64(h.Window), float64(h.WScale)
		f.synAt = at
	case !fromClient && h.ACK && v[SYNACK] == 0:
		v[SYNACK], v[MSSServer], v[WindowServer], v[WScaleServer] = 1, float64(h.MSS), float64(h.Window), float64(h.WScale)
		if v[SYN] == 1 {
			v[HandshakeUS] = micros(at - f.synAt)
		}
	}
}
