package controller

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// cabled plays a switch whose port 3 leads to that of another.
type cabled struct {
	conn net.Conn
	dpid uint64
	out  chan openflow.Message
	peer *cabled
}

func (s *cabled) packetIn(port uint32, data []byte, reason openflow.PacketInReason) {
	s.out <- &openflow.PacketIn{
		BufferID: openflow.OFP_NO_BUFFER, TotalLen: uint16(len(data)), Data: data, Reason: reason,
		Match: openflow.Match{Fields: []openflow.OXM{openflow.NewOXMNumber(openflow.OFPXMT_OFB_IN_PORT, uint64(port))}},
	}
}

func (s *cabled) write() {
	for m := range s.out {
		b, err := m.MarshalBinary()
		if err != nil {
			panic(err)
		}
		_, _ = s.conn.Write(b)
	}
}

func (s *cabled) read() {
	r := openflow.NewReader(s.conn)
	for {
		b, err := r.Next()
		if err != nil {
			return
		}
		m, err := openflow.Parse(b)
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *openflow.FeaturesRequest:
			s.out <- &openflow.FeaturesReply{Header: m.Header, DatapathID: s.dpid, NTables: 1}
		case *openflow.EchoRequest:
			s.out <- &openflow.EchoReply{Header: m.Header, Data: m.Data}
		case *openflow.MultipartRequest:
			switch m.Body.(type) {
			case *openflow.PortDescRequest:
				s.out <- &openflow.MultipartReply{Header: m.Header, Body: &openflow.PortDescReply{{PortNo: 1, Name: "p1"}, {PortNo: 3, Name: "p3"}}}
			case *openflow.FlowStatsRequest:
				s.out <- &openflow.MultipartReply{Header: m.Header, Body: &openflow.FlowStatsReply{}}
			}
		case *openflow.PacketOut:
			if o, ok := m.Actions[0].(*openflow.ActionOutput); ok && o.Port == 3 {
				s.peer.packetIn(3, m.Data, openflow.OFPR_ACTION)
			}
		}
	}
}

// newCabled connects two switches that are cabled to one another.
func newCabled(t *testing.T, address string) (s [2]*cabled) {
	for i := range s {
		s[i] = &cabled{conn: dial(t, address), dpid: uint64(i + 1), out: make(chan openflow.Message, 1000)}
		// Before either is at work, which then sends to the other: a connection
		// that begins with anything else is refused.
		s[i].out <- openflow.NewHello()
		t.Cleanup(func() { s[i].conn.Close() })
	}
	s[0].peer, s[1].peer = s[1], s[0]
	for _, one := range s {
		go one.write()
		go one.read()
	}
	return s
}

// TestFloodLeavesLinks: what a host floods a switch with costs no link, be it
// broadcasts or LLDP of its own.
func TestFloodLeavesLinks(t *testing.T) {
	for name, etherType := range map[string]uint16{"broadcasts": 0x0806, "LLDP": 0x88cc} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// LLDP that comes in two rounds late counts no more: rounds are as long
			// as in earnest, which a slow machine keeps up with.
			const round = time.Second
			c, address := start(t, func(o *Options) {
				o.Core.PacketInsPerSecond, o.Core.FailSafe, o.EchoTimeout = 500, true, time.Minute
				o.Core.LLDPInterval, o.HandshakeTimeout = round, time.Minute
			}, nil)
			s := newCabled(t, address)
			linked := func() bool { return len(c.Snapshot(false).Links) == 1 }
			eventually(t, "a link", linked)
			frame := make([]byte, 60)
			copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1})
			binary.BigEndian.PutUint16(frame[12:], etherType)
			missing, limited := 0, func() bool { return c.counters.limited.Load() > 0 }
			begin := time.Now() // a link without LLDP ends after four rounds
			for ; time.Since(begin) < 6*round || !limited() && time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
				for range 20 {
					s[0].packetIn(1, frame, openflow.OFPR_ACTION)
				}
				if !linked() {
					missing++
				}
			}
			if missing > 0 {
				t.Errorf("link missing %d times", missing)
			}
			if !limited() {
				t.Error("nothing was limited")
			}
		})
	}
}

// TestFirstWordIsHello: what begins with anything else is refused.
func TestFirstWordIsHello(t *testing.T) {
	c, address := start(t, nil, nil)
	s := &cabled{conn: dial(t, address), out: make(chan openflow.Message, 10)}
	defer s.conn.Close()
	s.packetIn(1, make([]byte, 60), openflow.OFPR_ACTION)
	s.out <- openflow.NewHello()
	go s.write()
	eventually(t, "refused", func() bool { return c.counters.refused.Load() == 1 })
}
