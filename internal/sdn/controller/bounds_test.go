package controller

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/test/must"
)

// TestTooManySwitches: a switch beyond the limit is refused, and one that leaves makes room.
func TestTooManySwitches(t *testing.T) {
	c, address := start(t, func(o *Options) { o.MaxSwitches = 2 }, nil)
	first := connect(t, dial(t, address), 1)
	connect(t, dial(t, address), 2)
	eventually(t, "both connected", func() bool { return c.connected(1) && c.connected(2) })
	eventually(t, "a third is refused", gone(connect(t, dial(t, address), 3)))
	first.conn.Close()
	eventually(t, "room again", func() bool { return !c.connected(1) })
	connect(t, dial(t, address), 3)
	eventually(t, "connected", func() bool { return c.connected(3) })
}

// TestSilentConnections: a host that opens more connections than may wait, and says nothing,
// keeps no switch of another host out, not even a slow one that came first.
func TestSilentConnections(t *testing.T) {
	c, address := start(t, nil, nil)
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	slow, err := from.Dial("tcp", address)
	must.Succeed(t, err)
	for range 2 * maxHandshakes {
		silent := dial(t, address)
		defer silent.Close()
	}
	eventually(t, "all accepted", func() bool { return c.counters.accepted.Load() == 1+2*maxHandshakes })
	connect(t, slow, 7)
	eventually(t, "connected", func() bool { return c.connected(7) })
}

// sizes are the lengths of the writes to a connection.
type sizes struct {
	net.Conn
	mu    sync.Mutex
	most  int
	bytes int
}

func (s *sizes) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most, s.bytes = max(s.most, len(b)), s.bytes+len(b)
	return len(b), nil
}

func (s *sizes) Close() error { return nil }

func newOutbox(nc net.Conn) *outbox {
	q := &outbox{}
	q.init(nc, slog.Default(), &atomic.Uint64{})
	return q
}

// TestWritesInPieces: however much is queued, no more than a piece of it is encoded at
// a time, in order.
func TestWritesInPieces(t *testing.T) {
	const messages, each = 5000, 1400
	to := &sizes{}
	s := newOutbox(to)
	for range messages {
		s.send(&openflow.PacketOut{Data: make([]byte, each)})
	}
	go s.write()
	defer s.close(io.EOF)
	eventually(t, "nothing waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.bytes == 0
	})
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.bytes <= messages*each || to.most > writeBytes+2*each {
		t.Errorf("%d bytes in all, %d at once", to.bytes, to.most)
	}
}

// TestLargeDecision: a switch that reads is not given up for what one decision says,
// one that does not is.
func TestLargeDecision(t *testing.T) {
	s := newOutbox(&sizes{})
	for range 2 * maxQueued {
		s.enqueue(&openflow.FlowMod{})
	}
	if err := s.reason(); err != nil {
		t.Fatalf("given up: %v", err)
	}
	s.busy = time.Now().Add(-2 * time.Second)
	s.enqueue(&openflow.FlowMod{})
	if s.reason() == nil {
		t.Error("one that does not read is kept")
	}
}

// TestPortNames: whatever switches call their ports, metrics can be read, and no
// series is there twice.
func TestPortNames(t *testing.T) {
	c := New(Options{})
	one := v1.SDNSwitch{DPID: "0000000000000001"}
	for number := range uint32(2) {
		one.Ports = append(one.Ports, c.port(core.PortState{Number: number + 1, Name: "patch\xff"}, qos.PortState{State: "ok", Queues: map[openflow.Queue]qos.Rates{0: {MinBPS: 8}}}))
	}
	var b bytes.Buffer
	must.Succeed(t, writeMetrics(&b, v1.SDN{Switches: []v1.SDNSwitch{one}}))
	if !utf8.Valid(b.Bytes()) {
		t.Errorf("no text: %q", b.String())
	}
	seen := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		if seen[line] {
			t.Errorf("twice: %s", line)
		}
		seen[line] = true
	}
}
