//go:build netns

package netns

import (
	"testing"
	"time"

	"github.com/weir-project/weir/internal/traffic"
	"github.com/weir-project/weir/test/harness"
)

// wakeUp is from when on a container that starts to send must have its
// guarantee: time for the first packets to pass, for what the link's bucket
// holds, and for the sender to get a processor.
const wakeUp = 50 * time.Millisecond

// TestIdleShareIsLentAndReturned: a container may use what another leaves
// idle, and loses it at once when that one sends again, with the agent alive
// and with no agent at all. What the two send together never exceeds the link.
func TestIdleShareIsLentAndReturned(t *testing.T) {
	for _, test := range []struct {
		name string
		dead bool
	}{{"agent alive", false}, {"agent killed", true}} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			owner := b.Add("owner", labels("weight", "300"))
			other := b.Add("other", labels("weight", "100"))
			agent := b.StartAgent(harness.AgentOptions{})
			b.Send(other, harness.Flood)
			alone := b.Measure()
			if got := alone.BPS[other.Slot]; got < harness.LinkUse*100*mbit {
				t.Errorf("alone, a container sends %.2f Mbit/s of 100; CPU: %s", got/mbit, alone.CPU)
			}
			if test.dead {
				agent.Kill()
			}

			origin, err := b.Meter.StartSeries()
			if err != nil {
				t.Fatal(err)
			}
			sender := b.Send(owner, harness.Flood)
			for sender.SentBytes() == 0 {
				time.Sleep(time.Millisecond)
			}
			woke := time.Duration(traffic.MonotonicNS() - origin)
			m := b.MeasureFor(3 * time.Second)
			if m.SumBPS() > 100*mbit*(1+harness.Overshoot) {
				t.Errorf("sent %.2f Mbit/s through a link of 100; CPU: %s", m.SumBPS()/mbit, m.CPU)
			}
			// The kernel's guarantees leave room for the host's 1 %.
			const guarantee = 0.75 * 0.99
			if got := m.BPS[owner.Slot]; got < guarantee*100*mbit*(1-harness.ShareTolerance) {
				t.Errorf("the owner sent %.2f Mbit/s, its guarantee is %.2f; CPU: %s", got/mbit, guarantee*100, m.CPU)
			}
			// Every 100 ms by itself: the owner has its guarantee, or its part
			// of what was sent where the machine stood still for some of it.
			series, err := b.Meter.Series()
			if err != nil {
				t.Fatal(err)
			}
			const window = int(100 * time.Millisecond / harness.BinWidth)
			for at := int((woke + wakeUp) / harness.BinWidth); at+window <= len(series.Bytes[0]); at += window {
				mine, all := 0.0, 0.0
				for bin := at; bin < at+window; bin++ {
					mine += float64(series.Bytes[owner.Slot][bin])
					all += float64(series.Bytes[owner.Slot][bin] + series.Bytes[other.Slot][bin])
				}
				const linkBytes = 100 * mbit / 8 / 10 // in 100 ms
				if mine < guarantee*min(all, linkBytes)*(1-harness.ShareTolerance) {
					t.Errorf("%v after it woke up the owner had %.1f %% of what was sent in 100 ms, its guarantee is %.1f; CPU: %s",
						(time.Duration(at)*harness.BinWidth - woke).Round(time.Millisecond), 100*mine/all, 100*guarantee, m.CPU)
				}
			}
			if !test.dead {
				if err := harness.CheckShares(100*mbit, b.Measure(), []uint64{75 * mbit, 25 * mbit}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
