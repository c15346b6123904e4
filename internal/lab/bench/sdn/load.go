package sdn

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// sdnLoad plays switches with two ports each, with a station at both.
type sdnLoad struct{ switches []*loadSwitch }

// loadSwitch is one switch. Its packet-ins are made once and changed in place, so
// that the load takes little of the processors that the controller needs.
type loadSwitch struct {
	conn    net.Conn
	dpid    uint64
	keeps   int    // entries of flows; the oldest ends when there are more
	in      []byte // a packet-in
	frameAt int
	next    uint32 // number of the next flow
	ports   []openflow.PortDesc

	mu       sync.Mutex
	sent     []time.Time // of packet-ins that wait
	entries  [][]byte    // of flows, the oldest first, each as the FlowRemoved that it ends with
	ended    []byte      // FlowRemoved messages to send with the next packet-ins
	answers  int
	flowMods int
	delays   []time.Duration
	failed   error
	room     chan struct{} // one for each packet-in that may be sent
}

// loadResult is what came back.
type loadResult struct {
	answers, flowMods int
	took              time.Duration
	delays            []time.Duration
}

func (r *loadResult) quantileMS(q float64) float64 {
	if len(r.delays) == 0 {
		return 0
	}
	slices.Sort(r.delays)
	return float64(r.delays[min(int(q*float64(len(r.delays))), len(r.delays)-1)]) / float64(time.Millisecond)
}

func (l *sdnLoad) connect(ctx context.Context, address string, n int) error {
	for len(l.switches) < n {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		s := &loadSwitch{conn: conn, dpid: uint64(len(l.switches) + 1), keeps: 2 * memoryFlows / n, room: make(chan struct{}, 1<<16)}
		for i := range 2 {
			s.ports = append(s.ports, openflow.PortDesc{PortNo: openflow.Port(i + 1), Name: fmt.Sprintf("p%d", i+1), HWAddr: s.mac(i + 3)})
		}
		if err := s.write(openflow.NewHello()); err != nil {
			return err
		}
		l.switches = append(l.switches, s)
		go s.read()
	}
	return nil
}

func (l *sdnLoad) close() {
	for _, s := range l.switches {
		s.conn.Close()
	}
}

func (s *loadSwitch) mac(n int) openflow.MAC {
	return openflow.MAC{2, byte(s.dpid >> 8), byte(s.dpid), 0, 0, byte(n)}
}

func (s *loadSwitch) write(m openflow.Message) error {
	b, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	_, err = s.conn.Write(b)
	return err
}

// packet is a packet-in with a TCP SYN from the station of one port to that of the
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

// introduce has every station speak once.
func (l *sdnLoad) introduce() error {
	for _, s := range l.switches {
		b, _, err := s.packet(2)
		if err == nil {
			_, err = s.conn.Write(b)
		}
		if err == nil {
			s.in, s.frameAt, err = s.packet(1)
		}
		if err != nil {
			return fmt.Errorf("introduce stations: %w", err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	return nil
}

// services are the ports that flows go to.
var services = [...]uint16{443, 53, 25, 22, 5060, 80, 6881, 5222}

// send sends n packet-ins of new flows at once.
func (s *loadSwitch) send(n int) error {
	s.mu.Lock()
	b := append(make([]byte, 0, n*len(s.in)+len(s.ended)), s.ended...)
	s.ended = s.ended[:0]
	s.mu.Unlock()
	now := time.Now()
	for range n {
		s.next++
		ports := s.in[s.frameAt+34:]
		binary.BigEndian.PutUint16(ports, uint16(1024+s.next%60000))
		binary.BigEndian.PutUint16(ports[2:], services[s.next%uint32(len(services))])
		s.in[s.frameAt+14+14] = byte(s.next / 60000) // another address when the ports are used up
		b = append(b, s.in...)
	}
	s.mu.Lock()
	for range n {
		s.sent = append(s.sent, now)
	}
	s.mu.Unlock()
	_, err := s.conn.Write(b)
	return err
}

// read answers what a switch must answer, and counts.
func (s *loadSwitch) read() {
	r := openflow.NewReader(bufio.NewReaderSize(s.conn, 1<<16))
	for {
		b, err := r.Next()
		if err == nil {
			err = s.take(b)
		}
		if err != nil {
			s.mu.Lock()
			s.failed = err
			s.mu.Unlock()
			close(s.room)
			return
		}
	}
}

func (s *loadSwitch) take(b []byte) error {
	switch openflow.Type(b[1]) {
	case openflow.OFPT_FLOW_MOD:
		s.takeFlowMod(b)
		return nil
	case openflow.OFPT_PACKET_OUT:
		// An answer has the packet's port; LLDP comes from the controller's.
		if binary.BigEndian.Uint32(b[12:]) != 1 {
			return nil
		}
		s.mu.Lock()
		if len(s.sent) > 0 {
			s.delays = append(s.delays, time.Since(s.sent[0]))
			s.sent = s.sent[1:]
			s.answers++
		}
		s.mu.Unlock()
		select {
		case s.room <- struct{}{}:
		default:
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
		return s.write(&openflow.FeaturesReply{Header: m.Header, DatapathID: s.dpid, NTables: 1})
	case *openflow.EchoRequest:
		return s.write(&openflow.EchoReply{Header: m.Header, Data: m.Data})
	case *openflow.MultipartRequest:
		if _, ok := m.Body.(*openflow.PortDescRequest); ok {
			list := openflow.PortDescReply(s.ports)
			return s.write(&openflow.MultipartReply{Header: m.Header, Body: &list})
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

// takeFlowMod keeps an entry and ends the oldest when there are too many, as idle
// time-outs do on a switch whose flows come and go.
func (s *loadSwitch) takeFlowMod(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flowMods++
	if b[commandAt] != byte(openflow.OFPFC_ADD) || binary.BigEndian.Uint16(b[flagsAt:])&uint16(openflow.OFPFF_SEND_FLOW_REM) == 0 {
		return
	}
	matchBytes := int(binary.BigEndian.Uint16(b[matchAt+2:])+7) / 8 * 8
	removed := make([]byte, matchAt+matchBytes)
	removed[0], removed[1] = openflow.Version, byte(openflow.OFPT_FLOW_REMOVED)
	binary.BigEndian.PutUint16(removed[2:], uint16(len(removed)))
	copy(removed[cookieAt:cookieAt+8], b[cookieAt:])
	copy(removed[removedPriorityAt:removedPriorityAt+2], b[priorityAt:])
	removed[removedReasonAt] = byte(openflow.OFPRR_IDLE_TIMEOUT)
	copy(removed[matchAt:], b[matchAt:matchAt+matchBytes])
	if s.entries = append(s.entries, removed); len(s.entries) > s.keeps {
		s.ended = append(s.ended, s.entries[0]...)
		s.entries = s.entries[1:]
	}
}

// reset begins a run.
func (s *loadSwitch) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers, s.flowMods, s.delays = 0, 0, nil
	for {
		select {
		case <-s.room:
			continue
		default:
			return
		}
	}
}

// run sends for some time: with as many packet-ins waiting as window allows, or so
// many a second of all switches together.
func (l *sdnLoad) run(ctx context.Context, duration time.Duration, perSecond float64) (*loadResult, error) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var wg sync.WaitGroup
	begin := time.Now()
	for i, s := range l.switches {
		s.reset()
		wg.Go(func() {
			if perSecond > 0 {
				time.Sleep(pace * time.Duration(i) / time.Duration(len(l.switches))) // not all at once
				s.paced(ctx, perSecond/float64(len(l.switches)))
			} else {
				s.closedLoop(ctx)
			}
		})
	}
	wg.Wait()
	r := l.collect(time.Since(begin))
	if err := l.drain(); err != nil {
		return nil, err
	}
	if r.answers == 0 {
		return nil, errors.New("no packet-in was answered")
	}
	return r, nil
}

func (s *loadSwitch) closedLoop(ctx context.Context) {
	if s.send(window) != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-s.room:
			if !ok || s.send(1+s.more()) != nil {
				return
			}
		}
	}
}

// more takes what else may be sent.
func (s *loadSwitch) more() int {
	for n := 0; ; n++ {
		select {
		case _, ok := <-s.room:
			if ok {
				continue
			}
		default:
		}
		return n
	}
}

// pace is how often a paced switch sends.
const pace = 5 * time.Millisecond

func (s *loadSwitch) paced(ctx context.Context, perSecond float64) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	begin, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			n := int(perSecond*time.Since(begin).Seconds()) - sent
			if n > 0 && s.send(n) != nil {
				return
			}
			sent += max(n, 0)
		}
	}
}

// exactly sends n new flows of each switch and waits for the answers.
func (l *sdnLoad) exactly(n int) (*loadResult, error) {
	begin := time.Now()
	for _, s := range l.switches {
		s.reset()
		if err := s.send(n); err != nil {
			return nil, err
		}
	}
	if err := l.drain(); err != nil {
		return nil, err
	}
	return l.collect(time.Since(begin)), nil
}

// drain waits until nothing waits for an answer.
func (l *sdnLoad) drain() error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		waiting := 0
		for _, s := range l.switches {
			s.mu.Lock()
			waiting += len(s.sent)
			err := s.failed
			s.mu.Unlock()
			if err != nil && !errors.Is(err, net.ErrClosed) {
				if errors.Is(err, io.EOF) {
					err = errors.New("it closed a connection")
				}
				return err
			}
		}
		if waiting == 0 {
			return nil
		}
	}
	return errors.New("packet-ins are still unanswered after 20 s")
}

func (l *sdnLoad) collect(took time.Duration) *loadResult {
	r := &loadResult{took: took}
	for _, s := range l.switches {
		s.mu.Lock()
		r.answers += s.answers
		r.flowMods += s.flowMods
		r.delays = append(r.delays, s.delays...)
		s.mu.Unlock()
	}
	return r
}
