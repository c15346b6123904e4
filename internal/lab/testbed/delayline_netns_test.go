//go:build netns

package testbed_test

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// TestDelayLine: every round trip over the line takes its time and hardly more, and nothing is lost.
func TestDelayLine(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("no delay line can be made here: %v", err)
	}
	h, err := testbed.NewHost(t.Context(), testbed.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	line, err := h.AddDelayLine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for range 2 {
			if err := line.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	const roundTrip = 30 * time.Millisecond
	line.SetRoundTrip(roundTrip)
	var echo *traffic.Echo
	var pinger *traffic.Pinger
	err = testbed.InNetNS(line.NetNSPath, func() (err error) {
		echo, err = traffic.NewEcho(5200)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	err = testbed.InNetNS(h.NetNSPath(), func() (err error) {
		pinger, err = traffic.NewPinger(traffic.PingOptions{Target: netip.AddrPortFrom(line.Addr, 5200), PayloadBytes: 1400})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	result, err := pinger.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.RTTs) < 10 || result.Lost > 0 {
		t.Fatalf("%d sent, %d answered, %d lost", result.Sent, len(result.RTTs), result.Lost)
	}
	slices.Sort(result.RTTs)
	least, half := result.RTTs[0], result.RTTs[len(result.RTTs)/2]
	t.Logf("round trips of %v, half of them up to %v", least, half)
	if least < roundTrip || half > 2*roundTrip {
		t.Errorf("round trips of %v, half of them up to %v; the line's is %v", least, half, roundTrip)
	}
}
