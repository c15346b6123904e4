package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	stream, err := NewStream(StreamOptions{Target: target, Protocol: UDP, MessageBytes: messageBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	result, err := stream.Run(t.Context(), MonotonicNS(), 20*time.Millisecond, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 2000)
	n, err := receiver.Read(buffer)
	if err != nil || n != messageBytes {
		t.Errorf("received a datagram of %d bytes (%v), want %d", n, err, messageBytes)
	}
	if result.Messages == 0 || result.SentBytes != result.Messages*messageBytes {
		t.Errorf("%d bytes in %d messages", result.SentBytes, result.Messages)
	}
	if took := time.Duration(result.WindowNS); took < 90*time.Millisecond {
		t.Errorf("counted for %v, want 100 ms", took)
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

// TestStreamAgainstIPerf holds the stream to what iperf3 does with messages of the
// same size, where iperf3 is installed: both are bound by a system call per
// message, so neither should be twice as fast.
func TestStreamAgainstIPerf(t *testing.T) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("iperf3 is not installed")
	}
	const messageBytes, seconds = 1024, 2
	ours := loopbackStream(t, messageBytes, seconds*time.Second)
	theirs := loopbackIPerf(t, messageBytes, seconds)
	t.Logf("stream %.0f Mbit/s, iperf3 %.0f Mbit/s", ours/1e6, theirs/1e6)
	if ratio := ours / theirs; ratio < 0.5 || ratio > 2 {
		t.Errorf("stream sends %.2f times what iperf3 does", ratio)
	}
}

// loopbackStream is the rate of a stream over loopback, in bits per second.
func loopbackStream(t *testing.T, messageBytes int, duration time.Duration) float64 {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.AcceptTCP(); err == nil {
			drain(conn)
			conn.Close()
		}
	}()
	stream, err := NewStream(StreamOptions{
		Target: netip.MustParseAddrPort(listener.Addr().String()), Protocol: TCP, MessageBytes: messageBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	result, err := stream.Run(t.Context(), MonotonicNS(), 0, duration)
	if err != nil {
		t.Fatal(err)
	}
	return float64(result.SentBytes) * 8e9 / float64(result.WindowNS)
}

// loopbackIPerf is the same of iperf3.
func loopbackIPerf(t *testing.T, messageBytes, seconds int) float64 {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
	listener.Close()
	server := exec.CommandContext(t.Context(), "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Signal(unix.SIGTERM); _ = server.Wait() }()
	var out []byte
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		out, err = exec.CommandContext(t.Context(), "iperf3", "-c", "127.0.0.1", "-p", port, "-J",
			"-l", fmt.Sprint(messageBytes), "-t", fmt.Sprint(seconds)).Output()
		if err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("run iperf3: %v: %s", err, out)
	}
	var report struct {
		End struct {
			Sent struct {
				BPS float64 `json:"bits_per_second"`
			} `json:"sum_sent"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	return report.End.Sent.BPS
}
