package traffic

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestStreamSendsMessages: a stream sends what it counts, in messages of the size
// asked for, and says what its thread took.
func TestStreamSendsMessages(t *testing.T) {
	receiver, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	target := netip.MustParseAddrPort(receiver.LocalAddr().String())
	const messageBytes = 64
	const window, least = 100 * time.Millisecond, 90 * time.Millisecond
	var result StreamResult
	// A machine that stands still leaves less time, or none, to count in, and gets more than
	// one chance.
	for attempt := 1; attempt <= 20 && time.Duration(result.WindowNS) < least; attempt++ {
		stream, err := NewStream(StreamOptions{Target: target, Protocol: UDP, MessageBytes: messageBytes})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if result, err = stream.Run(t.Context(), MonotonicNS(), 20*time.Millisecond, window); err != nil {
			t.Fatal(err)
		}
	}
	buffer := make([]byte, 2000)
	n, err := receiver.Read(buffer)
	if err != nil || n != messageBytes {
		t.Errorf("received a datagram of %d bytes (%v), want %d", n, err, messageBytes)
	}
	if result.Messages == 0 || result.SentBytes != result.Messages*messageBytes {
		t.Errorf("%d bytes in %d messages", result.SentBytes, result.Messages)
	}
	if took := time.Duration(result.WindowNS); took < least {
		t.Errorf("counted for %v, want %v", took, window)
	}
	if busy := result.Use.User + result.Use.System; busy <= 0 || busy > time.Duration(result.WindowNS)+20*time.Millisecond {
		t.Errorf("%v of processor time in %v", busy, time.Duration(result.WindowNS))
	}
}

// TestStreamSaysWhichCountersAreMissing: a machine without performance counters
// gives a result without them, and the reason.
func TestStreamSaysWhichCountersAreMissing(t *testing.T) {
	// No machine has a counter of this kind.
	const noSuchKind = 0xffff
	if _, err := openThreadCounter(noSuchKind, 0); err == nil || !strings.Contains(err.Error(), "does not count") {
		t.Errorf("error %v, want that this machine does not count it", err)
	}
	counters := &threadCounters{migrations: -1, cycles: -1, instructions: -1}
	use, err := counters.read()
	if err != nil || use.Cycles != nil || use.Instructions != nil || use.Migrations != nil {
		t.Errorf("%+v, %v: want no counters and no error", use, err)
	}
	if _, err := json.Marshal(StreamResult{Use: use}); err != nil {
		t.Error(err)
	}
}

func TestStreamRefusesNonsense(t *testing.T) {
	target := netip.MustParseAddrPort("127.0.0.1:9")
	for _, options := range []StreamOptions{
		{Target: target, Protocol: UDP},
		{Target: target, Protocol: UDP, MessageBytes: maxMessageBytes + 1},
		{Target: target, Protocol: "sctp", MessageBytes: 64},
	} {
		if stream, err := NewStream(options); err == nil {
			stream.Close()
			t.Errorf("%+v: no error", options)
		}
	}
}

// TestStreamEndsWithItsContext also when the receiver takes nothing.
func TestStreamEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	stream, err := NewStream(StreamOptions{Target: netip.MustParseAddrPort(listener.Addr().String()), Protocol: TCP, MessageBytes: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := stream.Run(ctx, MonotonicNS(), 0, time.Minute); err == nil {
		t.Error("a stream that was cut off has a result")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it went on for %v", took)
	}
}
