package controller

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// connected are the two ends of a connection that holds few bytes.
func connected(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "switch.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	return near, far
}

// TestWriteNow: what the reader writes itself, what the connection had no room for and
// what the writer writes come whole and in order, to a switch that begins to read late.
func TestWriteNow(t *testing.T) {
	const messages, each = 6000, 1000 // more than the connection holds
	near, far := connected(t)
	s := newOutbox(near)
	if s.raw == nil {
		t.Fatal("a plain connection is not written to at once")
	}
	put := func(n int) {
		data := make([]byte, each)
		binary.BigEndian.PutUint32(data, uint32(n))
		s.enqueue(&openflow.PacketOut{BufferID: openflow.OFP_NO_BUFFER, Data: data})
	}
	put(0)
	s.writeNow()
	s.mu.Lock()
	if len(s.queue) != 0 || s.writing || s.bytes != 0 || !s.busy.IsZero() {
		t.Errorf("after a message that there was room for %d wait with %d bytes", len(s.queue), s.bytes)
	}
	s.mu.Unlock()
	go s.write()
	defer s.close(io.EOF)
	for n := 1; n < messages; n++ {
		if put(n); n%3 == 0 {
			s.writeNow()
		}
	}
	s.writeNow() // to the end
	_ = far.SetReadDeadline(time.Now().Add(time.Minute))
	r := openflow.NewReader(bufio.NewReader(far))
	for n := range messages {
		b, err := r.Next()
		if err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
		m, err := openflow.Parse(b)
		if err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
		if out, ok := m.(*openflow.PacketOut); !ok || binary.BigEndian.Uint32(out.Data) != uint32(n) {
			t.Fatalf("message %d is %v", n, m.MessageType())
		}
	}
	eventually(t, "nothing waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.bytes == 0 && len(s.rest) == 0 && s.busy.IsZero()
	})
}

// TestWriteNowIsShort: what carries much is left to the writer, which writes in pieces:
// buffers stay as long as the connection.
func TestWriteNowIsShort(t *testing.T) {
	near, _ := connected(t)
	s := newOutbox(near)
	for range maxBurstNow {
		s.enqueue(&openflow.PacketOut{BufferID: openflow.OFP_NO_BUFFER, Data: make([]byte, 1500)})
	}
	s.writeNow()
	if len(s.queue) != maxBurstNow || s.writing || cap(s.now.buffer)+cap(s.rest) > 0 {
		t.Errorf("%d messages wait, %d and %d bytes are kept", len(s.queue), cap(s.now.buffer), cap(s.rest))
	}
}
