package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/test/must"
)

// start runs a controller on a loopback port.
func start(t testing.TB, change func(*Options), secure *tls.Config) (*Controller, string) {
	t.Helper()
	model, err := apps.Shipped()
	must.Succeed(t, err)
	classifier, err := core.NewClassifier(model)
	must.Succeed(t, err)
	o := Options{
		Core: core.Config{
			Queues: core.DefaultQueues(), IdleTimeoutSeconds: 30, MaxFlows: 100000, LLDPInterval: 50 * time.Millisecond,
			StatsInterval: time.Second, SecondLook: true,
		},
		// What a controller slept through by an EchoInterval is no silence of a switch's, so on
		// a busy machine a shorter one would have it give up nobody.
		Classifier: classifier, HandshakeTimeout: time.Minute, EchoInterval: time.Second,
		EchoTimeout: time.Minute, MaxSwitches: DefaultMaxSwitches, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if change != nil {
		change(&o)
	}
	kind := "tcp:"
	if secure != nil {
		kind = "tls:"
	}
	l, err := Listen(kind+"127.0.0.1:0", secure)
	must.Succeed(t, err)
	c := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the controller does not stop")
		}
	})
	return c, l.Addr().String()
}

// player plays a switch.
type player struct {
	t    testing.TB
	conn net.Conn
	dpid uint64

	mu       sync.Mutex
	flowMods int
	outs     int
	last     *openflow.FlowMod
	mute     bool // answers nothing any more
	meters   bool // it has some
	watched  int  // requests for the counters of one flow
	busy     bool // it answers no others for counters of flows
	closed   chan struct{}
}

func (p *player) write(m openflow.Message) {
	b, err := m.MarshalBinary()
	if err != nil {
		p.t.Error(err)
	}
	_, _ = p.conn.Write(b) // the controller may have closed
}

// connect plays a switch with two ports.
func connect(t testing.TB, conn net.Conn, dpid uint64) *player {
	p := &player{t: t, conn: conn, dpid: dpid, closed: make(chan struct{})}
	t.Cleanup(func() { conn.Close() })
	p.write(openflow.NewHello())
	go p.read()
	return p
}

func (p *player) read() {
	defer close(p.closed)
	r := openflow.NewReader(p.conn)
	for {
		b, err := r.Next()
		if err != nil {
			return
		}
		m, err := openflow.Parse(b)
		if err != nil {
			p.t.Errorf("the controller sent %x: %v", b, err)
			return
		}
		p.mu.Lock()
		mute := p.mute
		p.mu.Unlock()
		if !mute {
			p.answer(m)
		}
	}
}

func (p *player) answer(m openflow.Message) {
	switch m := m.(type) {
	case *openflow.FeaturesRequest:
		p.write(&openflow.FeaturesReply{Header: m.Header, DatapathID: p.dpid, NTables: 8})
	case *openflow.EchoRequest:
		p.write(&openflow.EchoReply{Header: m.Header, Data: m.Data})
	case *openflow.BarrierRequest:
		p.write(&openflow.BarrierReply{Header: m.Header})
	case *openflow.MultipartRequest:
		switch m.Body.(type) {
		case *openflow.MeterFeaturesRequest:
			if p.meters {
				p.write(&openflow.MultipartReply{Header: m.Header, Body: &openflow.MeterFeatures{MaxMeter: 9, BandTypes: 1 << openflow.OFPMBT_DROP, Capabilities: uint32(openflow.OFPMF_KBPS)}})
				return
			}
			p.write(&openflow.ErrorMessage{Header: m.Header, ErrorType: openflow.OFPET_BAD_REQUEST, Code: uint16(openflow.OFPBRC_BAD_MULTIPART)})
		case *openflow.TableFeaturesRequest:
			p.write(&openflow.ErrorMessage{Header: m.Header, ErrorType: openflow.OFPET_BAD_REQUEST, Code: uint16(openflow.OFPBRC_BAD_MULTIPART)})
		case *openflow.MeterStatsRequest:
			p.write(&openflow.MultipartReply{Header: m.Header, Body: &openflow.MeterStatsReply{{MeterID: 8, BandStats: []openflow.MeterBandStats{{PacketBandCount: 7, ByteBandCount: 700}}}}})
		case *openflow.PortDescRequest:
			p.write(&openflow.MultipartReply{Header: m.Header, Body: &openflow.PortDescReply{{PortNo: 1, Name: "p1"}, {PortNo: 2, Name: "p2"}}})
		case *openflow.FlowStatsRequest:
			p.mu.Lock()
			busy := p.busy && m.XID != core.WatchXID
			if m.XID == core.WatchXID {
				p.watched++
			}
			p.mu.Unlock()
			if busy {
				return
			}
			p.write(&openflow.MultipartReply{Header: m.Header, Body: &openflow.FlowStatsReply{}})
		}
	case *openflow.FlowMod:
		p.mu.Lock()
		p.flowMods++
		p.last = m
		p.mu.Unlock()
	case *openflow.PacketOut:
		if len(m.Actions) > 1 { // no LLDP
			p.mu.Lock()
			p.outs++
			p.mu.Unlock()
		}
	}
}

func (p *player) counts() (flowMods, outs int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flowMods, p.outs
}

// packetIn sends a UDP packet between the hosts of the two ports.
func (p *player) packetIn(in uint32, src, dst uint16) {
	frame := make([]byte, 14+20+8+20)
	frame[5], frame[11] = byte(3-in), byte(in)
	frame[0], frame[6] = 2, 2
	copy(frame[1:], []byte{byte(p.dpid), byte(p.dpid >> 8)})
	copy(frame[7:], []byte{byte(p.dpid), byte(p.dpid >> 8)})
	frame[12] = 8
	ip := frame[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{198, 18, 0, byte(in), 198, 18, 0, byte(3 - in)})
	binary.BigEndian.PutUint16(ip[20:], src)
	binary.BigEndian.PutUint16(ip[22:], dst)
	binary.BigEndian.PutUint16(ip[24:], 28)
	p.write(&openflow.PacketIn{
		BufferID: openflow.OFP_NO_BUFFER, TotalLen: uint16(len(frame)), Data: frame,
		Match: openflow.Match{Fields: []openflow.OXM{openflow.NewOXMNumber(openflow.OFPXMT_OFB_IN_PORT, uint64(in))}},
	})
}

// learned has the host of port 2 send until it is known, which it is when the port has passed
// its probation.
func (p *player) learned(c *Controller) {
	p.t.Helper()
	eventually(p.t, "its host is known", func() bool {
		p.packetIn(2, 9, 9)
		for _, one := range c.Snapshot(false).Switches {
			if one.DPID == topology.DPID(p.dpid) {
				return slices.ContainsFunc(one.Ports, func(port core.PortState) bool { return port.Number == 2 && len(port.Stations) > 0 })
			}
		}
		return false
	})
}

func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	return conn
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// TestWatchedFlows: what a switch replies about one flow of EF is not the end of its statistics, after
// which flows that it did not name would be gone.
func TestWatchedFlows(t *testing.T) {
	c, address := start(t, func(o *Options) { o.Core.StatsInterval = 100 * time.Millisecond }, nil)
	p := connect(t, dial(t, address), 1)
	p.learned(c)
	p.mu.Lock()
	p.busy = true
	before := p.watched
	p.mu.Unlock()
	p.packetIn(1, 20000, 53)
	eventually(t, "replies about flows of EF", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.watched > before+10
	})
	if n := len(c.Snapshot(true).Flows); n != 2 {
		t.Errorf("%d flows, want one there and one back", n)
	}
}

// TestWatchedFlowsOfManySwitches: every switch has its turn in a tick. Of 32 switches a tick alone
// requests the counters of one, the parts between ticks those of the others.
func TestWatchedFlowsOfManySwitches(t *testing.T) {
	const switches, tick = core.WatchParts, 50 * time.Millisecond
	const flows = 2 // of a switch: there and back
	c, address := start(t, func(o *Options) { o.Core.LLDPInterval, o.Core.StatsInterval = core.LLDPParts*tick, time.Hour }, nil)
	var players []*player
	for i := range switches {
		players = append(players, connect(t, dial(t, address), uint64(i+1)))
	}
	for _, p := range players {
		p.learned(c)
	}
	begin := time.Now()
	for _, p := range players {
		p.packetIn(1, 20000, 53)
	}
	eventually(t, "requests to every switch, four times those that ticks alone send", func() bool {
		sum, least := 0, 1<<30
		for _, p := range players {
			p.mu.Lock()
			sum, least = sum+p.watched, min(least, p.watched)
			p.mu.Unlock()
		}
		ticks := int(time.Since(begin)/tick) + 2
		return least > 0 && sum > 4*ticks*flows
	})
}

func gone(p *player) func() bool {
	return func() bool {
		select {
		case <-p.closed:
			return true
		default:
			return false
		}
	}
}

// TestTrustOfSwitches: a switch says in the handshake what it can do for trusted ports, and one that
// refuses to is connected all the same and says what it lacks.
func TestTrustOfSwitches(t *testing.T) {
	c, address := start(t, func(o *Options) {
		o.Core.StatsInterval = 50 * time.Millisecond
		o.Core.Trust = &core.Trust{Ports: []core.TrustedPort{{Port: "p1"}, {Switch: 3, Port: "p2"}}, EFBoundBPS: func(topology.Port, string) (uint64, error) { return 1e6, nil }}
	}, nil)
	for dpid, meters := range []bool{true, false} {
		p := &player{t: t, conn: dial(t, address), dpid: uint64(dpid + 1), closed: make(chan struct{}), meters: meters}
		t.Cleanup(func() { p.conn.Close() })
		p.write(openflow.NewHello())
		go p.read()
	}
	eventually(t, "both are connected, and what is dropped is counted", func() bool {
		s := c.View(nil)
		return len(s.Switches) == 2 && s.Switches[0].Ports[0].Trust.EFDroppedPackets == 7
	})
	s := c.View(nil)
	if one := s.Switches[0]; one.State != "ok" || *one.Ports[0].Trust != (v1.SDNTrust{EFBoundBPS: 1e6, EFDroppedPackets: 7, EFDroppedBytes: 700}) || one.Ports[1].Trust != nil {
		t.Errorf("with meters: %+v", one)
	}
	if one := s.Switches[1]; one.State != "degraded" || !strings.Contains(one.Ports[0].Trust.Refused, "has no meters") {
		t.Errorf("without meters: %+v", one)
	}
	if want := "0000000000000003:p2"; len(s.MissingPorts) != 1 || s.MissingPorts[0] != want {
		t.Errorf("missing are %q, want %s", s.MissingPorts, want)
	}
}

// TestManySwitches: a hundred switches send ten thousand flows; each gets entries
// both ways and its packet back, in a bounded amount of memory.
func TestManySwitches(t *testing.T) {
	const switches, flows = 100, 100
	c, address := start(t, nil, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var players []*player
	for i := range switches {
		players = append(players, connect(t, dial(t, address), uint64(i+1)))
	}
	eventually(t, "all connected", func() bool { return len(c.Snapshot(false).Switches) == switches })
	for _, p := range players {
		p.learned(c)
	}
	for i := range flows {
		for _, p := range players {
			p.packetIn(1, uint16(20000+i), 53)
		}
	}
	eventually(t, "all packets back", func() bool {
		for _, p := range players {
			if mods, outs := p.counts(); mods < 2*flows || outs < flows {
				return false
			}
		}
		return true
	})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > 100<<20 {
		t.Errorf("%d switches and %d flows take %d bytes", switches, switches*flows, used)
	}
	s := c.Snapshot(false)
	if s.Totals[apps.EF].Flows < switches*flows {
		t.Errorf("%+v", s.Totals)
	}
}

// TestSilentSwitch: one that never answers is given up, before and after it has
// become a switch, and nobody else waits for it.
func TestSilentSwitch(t *testing.T) {
	c, address := start(t, func(o *Options) { o.HandshakeTimeout, o.EchoTimeout = 5*time.Second, 5*time.Second }, nil)
	never := dial(t, address)
	defer never.Close()
	p := connect(t, dial(t, address), 7)
	eventually(t, "connected", func() bool { return c.connected(7) })
	p.mu.Lock()
	p.mute = true
	p.mu.Unlock()
	eventually(t, "given up", gone(p))
	eventually(t, "the one that never answers refused", func() bool { return c.counters.refused.Load() > 0 })
	if c.counters.timeouts.Load() != 1 || c.counters.refused.Load() != 1 {
		t.Errorf("%d timed out, %d refused", c.counters.timeouts.Load(), c.counters.refused.Load())
	}
	eventually(t, "unregistered", func() bool { return !c.connected(7) })
	if s := c.Snapshot(false); len(s.Switches) != 1 || s.Switches[0].Connected {
		t.Errorf("%+v", s.Switches)
	}
	// It comes back.
	connect(t, dial(t, address), 7)
	eventually(t, "connected again", func() bool { return c.connected(7) })
}

// TestDuplicateDPID: of two switches with one identifier the first stays; one that
// has lost its connection comes back at once.
func TestDuplicateDPID(t *testing.T) {
	c, address := start(t, nil, nil)
	first := connect(t, dial(t, address), 7)
	eventually(t, "connected", func() bool { return c.connected(7) })
	second := connect(t, dial(t, address), 7)
	eventually(t, "the second is refused", gone(second))
	if gone(first)() || c.counters.duplicates.Load() != 1 {
		t.Errorf("first gone %v, duplicates %d", gone(first)(), c.counters.duplicates.Load())
	}
	first.mu.Lock()
	first.mute = true // as a connection whose other end is gone
	first.mu.Unlock()
	third := connect(t, dial(t, address), 7)
	eventually(t, "the first is given up", func() bool {
		if gone(third)() { // refused, as what the first had sent before came in just then
			third = connect(t, dial(t, address), 7)
		}
		return gone(first)()
	})
	eventually(t, "the third stays", func() bool { return c.connected(7) })
	if gone(third)() {
		t.Error("the third was refused")
	}
}

// TestSlowSwitch: one that does not read costs nobody else anything, and in the
// end its connection.
func TestSlowSwitch(t *testing.T) {
	c, address := start(t, func(o *Options) { o.EchoTimeout = time.Minute }, nil)
	slow := dial(t, address)
	defer slow.Close()
	p := &player{t: t, conn: slow, dpid: 9}
	p.write(openflow.NewHello())
	p.write(&openflow.FeaturesReply{DatapathID: 9})
	p.write(&openflow.MultipartReply{Body: &openflow.PortDescReply{{PortNo: 1, Name: "p1"}, {PortNo: 2, Name: "p2"}}})
	eventually(t, "connected", func() bool { return c.connected(9) })
	p.learned(c)
	quick := connect(t, dial(t, address), 10)
	eventually(t, "the other connected", func() bool { return c.connected(10) })
	quick.learned(c)
	for i := range 60000 {
		p.packetIn(1, uint16(i), uint16(i%60000))
		if i%6000 == 0 {
			quick.packetIn(1, uint16(i), 53)
		}
	}
	eventually(t, "the other is served", func() bool { _, outs := quick.counts(); return outs >= 10 })
	eventually(t, "the slow one is given up", func() bool { return !c.connected(9) })
	if c.counters.overflows.Load() != 1 {
		t.Errorf("%d overflows", c.counters.overflows.Load())
	}
}

// TestLyingSwitch: what is not OpenFlow 1.3 is refused, what cannot be read is
// passed over, and nothing of it reaches the others.
func TestLyingSwitch(t *testing.T) {
	c, address := start(t, func(o *Options) { o.HandshakeTimeout = 3 * time.Second }, nil)
	hello, _ := openflow.NewHello().MarshalBinary()
	old, _ := (&openflow.Hello{Header: openflow.Header{Version: 1}}).MarshalBinary()
	auxiliary, _ := (&openflow.FeaturesReply{DatapathID: 3, AuxiliaryID: 1}).MarshalBinary()
	noPorts, _ := (&openflow.MultipartReply{Body: &openflow.PortDescReply{}}).MarshalBinary()
	for name, b := range map[string][]byte{
		"HTTP":           []byte("GET / HTTP/1.1\r\nHost: weir\r\n\r\n"),
		"OpenFlow 1.0":   old,
		"no hello":       noPorts,
		"short length":   {4, 0, 0, 4, 0, 0, 0, 1},
		"cut off":        {4, 0, 0xff, 0xff, 0, 0, 0, 1, 0},
		"auxiliary":      append(append([]byte{}, hello...), auxiliary...),
		"version in mid": append(append([]byte{}, hello...), 1, 2, 0, 8, 0, 0, 0, 1),
	} {
		conn := dial(t, address)
		_, _ = conn.Write(b)
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: still connected", name)
		}
		conn.Close()
	}
	p := connect(t, dial(t, address), 3)
	eventually(t, "connected", func() bool { return c.connected(3) })
	for range 10 {
		_, _ = p.conn.Write([]byte{4, 10, 0, 12, 0, 0, 0, 1, 1, 2, 3, 4}) // a packet-in of 12 bytes
		_, _ = p.conn.Write([]byte{4, 99, 0, 8, 0, 0, 0, 1})              // a type that is not there
		p.write(&openflow.PacketIn{Data: []byte{1, 2, 3}})                // no frame, no port
		p.write(&openflow.PortStatus{Reason: openflow.OFPPR_DELETE, Desc: openflow.PortDesc{PortNo: 77}})
		p.write(&openflow.FlowRemoved{Cookie: 0x5765_03_00_0000_0001})
		p.write(&openflow.ErrorMessage{ErrorType: openflow.OFPET_FLOW_MOD_FAILED, Code: uint16(openflow.OFPFMFC_TABLE_FULL)})
	}
	p.learned(c)
	p.packetIn(1, 40000, 53)
	eventually(t, "it is served", func() bool { _, outs := p.counts(); return outs >= 1 })
	for range 2 * maxBadMessages {
		_, _ = p.conn.Write([]byte{4, 99, 0, 8, 0, 0, 0, 1})
	}
	eventually(t, "given up", gone(p))
}

// TestFlood: more packet-ins than allowed are dropped, whatever the switch's own
// meter does.
func TestFlood(t *testing.T) {
	c, address := start(t, func(o *Options) { o.Core.PacketInsPerSecond = 100 }, nil)
	p := connect(t, dial(t, address), 3)
	eventually(t, "connected", func() bool { return c.connected(3) })
	for i := range 5000 {
		p.packetIn(1, uint16(i), 53)
	}
	eventually(t, "all read", func() bool {
		return c.counters.limited.Load()+c.Snapshot(false).Counters.PacketIns >= 5000
	})
	if n := c.Snapshot(false).Counters.PacketIns; n > 2000 {
		t.Errorf("%d packet-ins came through", n)
	}
}

// TestTLS: only switches with a certificate of the authority get in.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	certificate, _ := x509.ParseCertificate(der)
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	c, address := start(t, nil, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12})
	good, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})
	must.Succeed(t, err)
	connect(t, good, 5)
	eventually(t, "connected", func() bool { return c.connected(5) })
	bad, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool})
	if err == nil {
		defer bad.Close()
		_ = bad.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err = bad.Read(make([]byte, 1)); err == nil {
			t.Error("a switch without a certificate was greeted")
		}
	}
	if _, err := Listen("tls:127.0.0.1:0", nil); err == nil {
		t.Error("TLS without a certificate")
	}
	for _, address := range []string{"", "tcp", "tcp:", "udp:127.0.0.1:1", "unix:/proc/self/status"} {
		if l, err := Listen(address, nil); err == nil {
			l.Close()
			t.Errorf("listens on %q", address)
		}
	}
}

// TestAPI: what ps, flows and Prometheus read.
func TestAPI(t *testing.T) {
	c, address := start(t, nil, nil)
	p := connect(t, dial(t, address), 3)
	eventually(t, "connected", func() bool { return c.connected(3) })
	p.learned(c)
	p.packetIn(1, 40000, 53)
	eventually(t, "a flow", func() bool { return len(c.Flows()) > 0 })
	queues := map[topology.Port]qos.PortState{{Switch: 3, Number: 1}: {RateBPS: 1e8, State: "ok", Queues: map[openflow.Queue]qos.Rates{2: {MinBPS: 5e7, MaxBPS: 1e8}}}}
	s := httptest.NewServer(c.Handler(func() map[topology.Port]qos.PortState { return queues }))
	defer s.Close()
	for path, want := range map[string][]string{
		"/v1/sdn":              {`"dpid":"0000000000000003"`, `"hosts":["02:03:00:00:00:01"]`, `"class":"ef","min_bps":50000000`},
		"/v1/sdn/flows":        {`"application":"SERVICES","class":"ef"`, `"path":[{"dpid":"0000000000000003","in":1,"out":2}]`},
		"/v1/sdn/topology.svg": {"<svg", `<circle class="host"`},
		"/metrics":             {`weir_sdn_switch_connected{switch="0000000000000003"} 1`, `weir_sdn_queue_minimum_bytes_per_second{switch="0000000000000003",port="p1",number="1",queue="2",class="ef"} 6.25e+06`},
	} {
		response, err := s.Client().Get(s.URL + path)
		must.Succeed(t, err)
		b, _ := io.ReadAll(response.Body)
		response.Body.Close()
		for _, w := range want {
			if !strings.Contains(string(b), w) {
				t.Errorf("%s: no %s in %s", path, w, b)
			}
		}
	}
	public := httptest.NewServer(c.Metrics(nil))
	defer public.Close()
	for path, want := range map[string]int{"/metrics": 200, "/v1/sdn": 404, "/v1/sdn/flows": 404, "/v1/sdn/topology.svg": 404, "/": 404} {
		response, err := public.Client().Get(public.URL + path)
		must.Succeed(t, err)
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("the listener for metrics answers %s with %d, want %d", path, response.StatusCode, want)
		}
	}
}

// connected tells whether a switch is connected.
func (c *Controller) connected(d topology.DPID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns[d] != nil
}
