//go:build netns

package netns

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/test/harness"
)

// TestBurstsStayWithinTheLink: packets that find the link idle go past all that
// limits it, and between two bursts it is idle. In no window, of any length, more does
// not go out than the link's rate and what its token bucket holds.
func TestBurstsStayWithinTheLink(t *testing.T) {
	b := newBed(t)
	steady, one, two := b.Add("steady", nil), b.Add("one", nil), b.Add("two", nil)
	b.StartAgent(harness.AgentOptions{})
	b.Send(steady, harness.Load{Protocol: harness.Flood.Protocol, RateBPS: 40 * mbit})
	b.WarmUp()
	if _, err := b.Meter.StartSeries(); err != nil {
		t.Fatal(err)
	}
	// Longer and shorter than the queue, alone and both.
	for begin := time.Now(); time.Since(begin) < harness.Duration; {
		for _, burst := range []time.Duration{2, 5, 12, 30} {
			for _, senders := range [][]*harness.Container{{one}, {two}, {one, two}} {
				stop := make([]func(), 0, len(senders))
				for _, c := range senders {
					stop = append(stop, b.Send(c, harness.Flood).Stop)
				}
				time.Sleep(burst * time.Millisecond)
				for _, s := range stop {
					s()
				}
				time.Sleep(burst * time.Millisecond)
			}
		}
	}
	series, err := b.Meter.Series()
	if err != nil {
		t.Fatal(err)
	}
	sent := series.Sum(steady.Slot, one.Slot, two.Slot)
	const (
		bytesPerMS = 100 * mbit / 8 / 1000
		burstMS    = 15 // the bucket's
	)
	for _, window := range []time.Duration{100 * time.Millisecond, time.Second} {
		most := meter.MostIn(sent, int(window/harness.BinWidth))
		t.Logf("at most %d bytes in %v", most, window)
		if limit := uint64(bytesPerMS * (float64(window.Milliseconds())*(1+harness.Overshoot) + burstMS)); most > limit {
			t.Errorf("%d bytes went out in %v, want at most %d", most, window, limit)
		}
	}
	if direct := sentDirect(t, b); direct == 0 && !errors.Is(identity.ProbeDirect(), ebpf.ErrNotSupported) {
		t.Error("no packet went past the classes: this test proves nothing")
	} else {
		t.Logf("%d packets went past the classes", direct)
	}
}

// sentDirect is how many packets went past the classes.
func sentDirect(t *testing.T, b *harness.Bed) (packets uint64) {
	t.Helper()
	for _, m := range directPackets.FindAllStringSubmatch(b.Run("tc", "-d", "qdisc", "show", "dev", b.Host.UplinkName), -1) {
		packets += number(t, m[1])
	}
	return packets
}
