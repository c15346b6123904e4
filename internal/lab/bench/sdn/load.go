package sdn

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// loadSwitch is one of playedSwitches. Its packet-ins are made once and
// changed in place, and so are the ends of its flows: the load takes little of the
// processors that the controller needs.
type loadSwitch struct {
	fd      int
	dpid    uint64
	in      []byte // a packet-in
	frameAt int
	next    uint32 // number of the next flow
	ports   []openflow.PortDesc

	had      []byte   // the beginning of a message whose rest has not come
	out      []byte   // has to be sent
	entries  [][]byte // of flows, each as the FlowRemoved that it ends with
	keeps    int      // so many of them; then the oldest ends for each that is new
	oldest   int
	ended    []byte  // FlowRemoved messages to send with the next packet-ins
	due      []int64 // when packet-ins had to be sent, in nanoseconds
	answered int     // of those

	answers, flowMods int
	delaysNS          []int64
}

func (s *loadSwitch) mac(n int) openflow.MAC {
	return openflow.MAC{2, byte(s.dpid >> 8), byte(s.dpid), 0, 0, byte(n)}
}

// say queues a message to the controller.
func (s *loadSwitch) say(m openflow.Message) (err error) {
	b, err := openflow.Append(s.out, m)
	if err != nil {
		return fmt.Errorf("play a switch: %w", err)
	}
	s.out = b
	return nil
}

// packet is a packet-in with a TCP SYN from the host of one port to that of the
// other.
func (s *loadSwitch) packet(port int) ([]byte, int, error) {
	frame := make([]byte, 14+20+20)
	from, to := s.mac(port), s.mac(3-port)
	copy(frame, to[:])
	copy(frame[6:], from[:])
	frame[12] = 8
	ip := frame[14:]
	ip[0], ip[3], ip[8], ip[9] = 0x45, 40, 64, 6
	copy(ip[12:], []byte{198, 18, byte(s.dpid), byte(port), 198, 18, byte(s.dpid), byte(3 - port)})
	ip[32], ip[33], ip[34] = 5<<4, 2, 0xfa
	m := &openflow.PacketIn{
		BufferID: openflow.OFP_NO_BUFFER, TotalLen: uint16(len(frame)), Data: frame,
		Match: openflow.Match{Fields: []openflow.OXM{openflow.NewOXMNumber(openflow.OFPXMT_OFB_IN_PORT, uint64(port))}},
	}
	b, err := m.MarshalBinary()
	return b, len(b) - len(frame), err
}

// introduce makes both hosts send once and prepares the packet-in template.
func (s *loadSwitch) introduce() error {
	for _, port := range []int{2, 1} {
		b, at, err := s.packet(port)
		if err != nil {
			return fmt.Errorf("introduce hosts: %w", err)
		}
		s.in, s.frameAt = b, at
		if port == 2 {
			s.out = append(s.out, b...)
		}
	}
	return nil
}

// services are the ports that flows go to.
var services = [...]uint16{443, 53, 25, 22, 5060, 80, 6881, 5222}

// open queues packet-ins for n new flows that were due at dueNS, after pending FlowRemoved
// messages.
func (s *loadSwitch) open(n int, dueNS int64) {
	s.out, s.ended = append(s.out, s.ended...), s.ended[:0]
	for range n {
		s.next++
		ports := s.in[s.frameAt+34:]
		binary.BigEndian.PutUint16(ports, uint16(1024+s.next%60000))
		binary.BigEndian.PutUint16(ports[2:], services[s.next%uint32(len(services))])
		s.in[s.frameAt+14+14] = byte(s.next / 60000) // another address when the ports are used up
		s.out = append(s.out, s.in...)
		s.due = append(s.due, dueNS)
	}
}

// waiting returns the number of unanswered packet-ins.
func (s *loadSwitch) waiting() int { return len(s.due) - s.answered }

// takeAll processes bytes received from the controller at cameNS.
func (s *loadSwitch) takeAll(b []byte, cameNS int64) error {
	if len(s.had) > 0 {
		s.had = append(s.had, b...)
		b = s.had
	}
	for len(b) >= openflow.HeaderLen {
		length := int(binary.BigEndian.Uint16(b[2:]))
		if length < openflow.HeaderLen {
			return fmt.Errorf("it sent a message of length %d", length)
		}
		if length > len(b) {
			break
		}
		if err := s.take(b[:length], cameNS); err != nil {
			return err
		}
		b = b[length:]
	}
	s.had = append(s.had[:0], b...)
	return nil
}

// take answers one message as a switch must, and counts it.
func (s *loadSwitch) take(b []byte, cameNS int64) error {
	switch openflow.Type(b[1]) {
	case openflow.OFPT_FLOW_MOD:
		s.takeFlowMod(b)
		return nil
	case openflow.OFPT_PACKET_OUT:
		// An answer has the packet's port; LLDP comes from the controller's.
		if binary.BigEndian.Uint32(b[12:]) == 1 && s.waiting() > 0 {
			s.delaysNS = append(s.delaysNS, cameNS-s.due[s.answered])
			s.answers++
			if s.answered++; s.waiting() == 0 || s.answered >= window*window {
				s.due, s.answered = append(s.due[:0], s.due[s.answered:]...), 0
			}
		}
		return nil
	case openflow.OFPT_FEATURES_REQUEST, openflow.OFPT_ECHO_REQUEST, openflow.OFPT_MULTIPART_REQUEST:
	default:
		return nil
	}
	m, err := openflow.Parse(b)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *openflow.FeaturesRequest:
		return s.say(&openflow.FeaturesReply{Header: m.Header, DatapathID: s.dpid, NTables: 1})
	case *openflow.EchoRequest:
		return s.say(&openflow.EchoReply{Header: m.Header, Data: m.Data})
	case *openflow.MultipartRequest:
		if _, ok := m.Body.(*openflow.PortDescRequest); ok {
			list := openflow.PortDescReply(s.ports)
			return s.say(&openflow.MultipartReply{Header: m.Header, Body: &list})
		}
	}
	return nil // statistics are not answered: there is nothing to tell
}

// Where a flow_mod (section 7.3.4.1) and a flow_removed (section 7.4.2) have what
// the latter repeats: cookie and priority, and the match behind both.
const (
	cookieAt, commandAt, priorityAt, flagsAt, matchAt = 8, 25, 30, 44, 48
	removedPriorityAt, removedReasonAt                = 16, 18
)

// takeFlowMod stores a flow entry and removes the oldest above the limit, as idle timeouts do on a
// real switch.
func (s *loadSwitch) takeFlowMod(b []byte) {
	s.flowMods++
	if b[commandAt] != byte(openflow.OFPFC_ADD) || binary.BigEndian.Uint16(b[flagsAt:])&uint16(openflow.OFPFF_SEND_FLOW_REM) == 0 {
		return
	}
	if len(s.entries) < s.keeps {
		s.entries = append(s.entries, removedOf(nil, b))
		return
	}
	oldest := s.entries[s.oldest]
	s.ended = append(s.ended, oldest...)
	s.entries[s.oldest] = removedOf(oldest, b)
	s.oldest = (s.oldest + 1) % s.keeps
}

// removedOf is the flow_removed, in the memory of another, of the entry that a flow_mod
// makes.
func removedOf(again, b []byte) []byte {
	matchBytes := int(binary.BigEndian.Uint16(b[matchAt+2:])+7) / 8 * 8
	size := matchAt + matchBytes
	removed := slices.Grow(again[:0], size)[:size]
	clear(removed)
	removed[0], removed[1] = openflow.Version, byte(openflow.OFPT_FLOW_REMOVED)
	binary.BigEndian.PutUint16(removed[2:], uint16(len(removed)))
	copy(removed[cookieAt:cookieAt+8], b[cookieAt:])
	copy(removed[removedPriorityAt:removedPriorityAt+2], b[priorityAt:])
	removed[removedReasonAt] = byte(openflow.OFPRR_IDLE_TIMEOUT)
	copy(removed[matchAt:], b[matchAt:matchAt+matchBytes])
	return removed
}

// reset clears the counters for a new run.
func (s *loadSwitch) reset() { s.answers, s.flowMods, s.delaysNS = 0, 0, s.delaysNS[:0] }
