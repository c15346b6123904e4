package traffic

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/weir-project/weir/test/must"
)

func newTestSink(t *testing.T) netip.AddrPort {
	t.Helper()
	port := must.FreePort(t)
	sink, err := NewSink(port, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := sink.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestSenderSendsFromStartToStop(t *testing.T) {
	target := newTestSink(t)
	for _, options := range []SenderOptions{
		{Target: target, Protocol: TCP, Connections: 3, RateBPS: 50e6},
		{Target: target, Protocol: UDP, RateBPS: 20e6},
		{Target: target, Protocol: UDP, RateBPS: 20e6, PayloadBytes: 1200, SegmentsPerSend: 4},
	} {
		t.Run(string(options.Protocol), func(t *testing.T) {
			sender, err := NewSender(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			startNS := MonotonicNS() + (50 * time.Millisecond).Nanoseconds()
			sender.Start(startNS)
			time.Sleep(20 * time.Millisecond)
			if sent := sender.SentBytes(); sent > 0 && MonotonicNS() < startNS {
				t.Errorf("sent %d bytes before the start", sent)
			}
			for deadline := time.Now().Add(30 * time.Second); sender.SentBytes() == 0 && time.Now().Before(deadline); {
				time.Sleep(5 * time.Millisecond)
			}
			sender.Stop()
			sent := sender.SentBytes()
			if sent == 0 || sender.Err() != nil {
				t.Errorf("sent %d bytes, error %v", sent, sender.Err())
			}
			sender.Stop()
			time.Sleep(20 * time.Millisecond)
			if after := sender.SentBytes(); after != sent {
				t.Errorf("sent %d bytes after Stop", after-sent)
			}
		})
	}
}

func TestPacedUDPKeepsItsRate(t *testing.T) {
	const wantBPS = 8e6
	// A busy machine takes CPU from the sender, which then sends less, and gets more
	// than one chance. It never sends more.
	for attempt := 1; ; attempt++ {
		rateBPS, stood := pacedUDP(t, wantBPS)
		if rateBPS > wantBPS*1.05 {
			t.Fatalf("sent %.1f Mbit/s, want %.1f", rateBPS/1e6, wantBPS/1e6)
		}
		if rateBPS > wantBPS*(0.9-stood) {
			return
		}
		if attempt == 5 {
			t.Fatalf("sent %.1f Mbit/s the last of %d times, want %.1f", rateBPS/1e6, attempt, wantBPS/1e6)
		}
	}
}

// pacedUDP sends for half a second at a rate and returns the one that came of it, and for what
// part of the time this machine let nothing of this process run.
func pacedUDP(t *testing.T, rateBPS uint64) (gotBPS, stood float64) {
	t.Helper()
	target := newTestSink(t)
	sender, err := NewSender(t.Context(), SenderOptions{Target: target, Protocol: UDP, RateBPS: rateBPS})
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	sender.Start(0)
	const step = 20 * time.Millisecond
	lost := time.Duration(0)
	for time.Since(started) < 500*time.Millisecond {
		before := time.Now()
		time.Sleep(step)
		if late := time.Since(before) - step; late > step {
			lost += late
		}
	}
	sender.Stop()
	wire := float64(sender.SentBytes()) / DefaultPayloadBytes * float64(WireBytesUDP(target.Addr(), DefaultPayloadBytes)) * 8
	took := time.Since(started)
	return wire / took.Seconds(), lost.Seconds() / took.Seconds()
}

func TestSenderThatNeverStartsLeavesNothing(t *testing.T) {
	target := newTestSink(t)
	before := openFiles(t)
	for _, protocol := range []Protocol{TCP, UDP} {
		sender, err := NewSender(t.Context(), SenderOptions{Target: target, Protocol: protocol})
		if err != nil {
			t.Fatal(err)
		}
		sender.Stop()
	}
	// The sink notices the end of the TCP connection in its own time.
	for deadline := time.Now().Add(30 * time.Second); openFiles(t) > before && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files open, %d before", after, before)
	}
}

func TestNewSenderFails(t *testing.T) {
	nobody := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), must.FreePort(t))
	for name, options := range map[string]SenderOptions{
		"nobody listens":   {Target: nobody, Protocol: TCP},
		"unknown protocol": {Target: nobody, Protocol: "sctp"},
	} {
		if sender, err := NewSender(t.Context(), options); err == nil {
			t.Errorf("%s: no error", name)
			sender.Stop()
		}
	}
}

func TestPing(t *testing.T) {
	port := must.FreePort(t)
	echo, err := NewEcho(port)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"127.0.0.1", "::1"} {
		pinger, err := NewPinger(PingOptions{
			Target: netip.AddrPortFrom(netip.MustParseAddr(address), port), Interval: 5 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		result, err := pinger.Run(ctx)
		if err != nil || result.Lost > 0 || len(result.RTTs) < 10 || len(result.RTTs) != result.Sent {
			t.Errorf("%s: %+v, %v", address, result, err)
		}
	}
	for range 2 {
		if err := echo.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPingCountsLosses(t *testing.T) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) // takes and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	var result PingResult
	for lasts := 350 * time.Millisecond; result.Lost == 0 && lasts < time.Minute; lasts *= 2 { // this machine may stand still
		pinger, err := NewPinger(PingOptions{
			Target: socket.LocalAddr().(*net.UDPAddr).AddrPort(), Interval: time.Millisecond, Timeout: 10 * time.Millisecond,
		})
		must.Succeed(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		result, err = pinger.Run(ctx)
		cancel()
		must.Succeed(t, err)
	}
	if result.Lost == 0 || result.Lost != result.Sent || len(result.RTTs) != 0 {
		t.Errorf("%+v, want all lost", result)
	}
	// One that is under way at the end is waited for, and counts.
	const timeout = 500 * time.Millisecond
	for lasts := 20 * time.Millisecond; lasts < timeout; lasts *= 2 {
		pinger, err := NewPinger(PingOptions{Target: socket.LocalAddr().(*net.UDPAddr).AddrPort(), Timeout: timeout})
		must.Succeed(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		result, err = pinger.Run(ctx)
		cancel()
		must.Succeed(t, err)
		if result.Sent > 0 {
			break
		}
	}
	if result.Sent != 1 || result.Lost != 1 {
		t.Errorf("%+v, want one lost", result)
	}
}
