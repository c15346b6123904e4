//go:build netns

package netns

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

const (
	// wakeUp is from when on a container that starts to send must have its
	// guarantee: time for the first packets to pass, for what the link's bucket
	// holds, and for the sender to get a processor.
	wakeUp = 50 * time.Millisecond
	// wakeUps is how often a container starts to send at most until it was not
	// held up while it did.
	wakeUps = 5
	// ownerGuarantee is the kernel's, a part of the link: it leaves room for the
	// host's 1 %.
	ownerGuarantee = 0.75 * 0.99
)

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
			b.WarmUp()
			b.CheckIdeal(harness.ShareTolerance, 100*mbit, []uint64{0, 100 * mbit}, harness.Duration)
			if test.dead {
				agent.Kill()
			}
			for attempt := 1; !ownerWakesUp(t, b, owner, other); attempt++ {
				if attempt == wakeUps {
					harness.SkipBusy(t, "senders were held up most of the time, as this machine stands still again and again")
				}
				time.Sleep(time.Second)
			}
			if !test.dead {
				b.Send(owner, harness.Flood)
				b.CheckShares(100*mbit, []harness.Claim{
					{Labels: owner.Labels, DemandBPS: harness.Unlimited}, {Labels: other.Labels, DemandBPS: harness.Unlimited},
				})
			}
		})
	}
}

// ownerWakesUp lets the owner send for some time, beside the other, and checks
// every 100 ms of it by itself. It reports false when senders were held up so
// often that this proves little.
func ownerWakesUp(t *testing.T, b *harness.Bed, owner, other *harness.Container) bool {
	t.Helper()
	originNS, err := b.Meter.StartSeries()
	must.Succeed(t, err)
	sender := b.Send(owner, harness.Flood)
	defer sender.Stop()
	for sender.SentBytes() == 0 {
		time.Sleep(time.Millisecond)
	}
	woke := time.Duration(traffic.MonotonicNS() - originNS)
	m := b.MeasureFor(harness.Duration)
	if m.SumBPS() > 100*mbit*(1+harness.Overshoot) {
		t.Errorf("sent %.2f Mbit/s through a link of 100; CPU: %s", m.SumBPS()/mbit, m.CPU)
	}
	if got := m.BPS[owner.Slot]; !m.Disturbed && got < ownerGuarantee*100*mbit*(1-harness.ShareTolerance) {
		t.Errorf("the owner sent %.2f Mbit/s from its start on, its guarantee is %.2f; CPU: %s", got/mbit, ownerGuarantee*100, m.CPU)
	}
	series, err := b.Meter.Series()
	must.Succeed(t, err)
	const (
		window      = 100 * time.Millisecond
		windowBins  = int(window / harness.BinWidth)
		windowBytes = 100 * mbit / 8 / 10 // what the link carries in it
	)
	clean, cleanAtFirst, ownerBytes := 0, false, 0.0
	for bin := int((woke + wakeUp) / harness.BinWidth); bin+windowBins <= len(series.Bytes[0]); bin += windowBins {
		at := time.Duration(bin) * harness.BinWidth
		if fromNS := originNS + at.Nanoseconds(); b.HeldUp(fromNS, fromNS+window.Nanoseconds()) {
			continue
		}
		clean++
		cleanAtFirst = cleanAtFirst || at < woke+wakeUp+window
		mine, all := 0.0, 0.0
		for i := bin; i < bin+windowBins; i++ {
			mine += float64(series.Bytes[owner.Slot][i])
			all += float64(series.Bytes[owner.Slot][i] + series.Bytes[other.Slot][i])
		}
		ownerBytes += mine
		// Its part of what was sent, where the machine stood still for a moment.
		if mine < ownerGuarantee*min(all, windowBytes)*(1-harness.ShareTolerance) {
			t.Errorf("%v after it woke up the owner had %.1f %% of what was sent in 100 ms, its guarantee is %.1f; CPU: %s",
				(at - woke).Round(time.Millisecond), 100*mine/all, 100*ownerGuarantee, m.CPU)
		}
	}
	if got := ownerBytes / (float64(clean) * windowBytes); got < ownerGuarantee*(1-harness.ShareTolerance) {
		t.Errorf("while nobody was held up the owner sent %.1f %% of what the link carries, its guarantee is %.1f", 100*got, 100*ownerGuarantee)
	}
	return cleanAtFirst && clean*2*int(window) >= int(harness.Duration)
}

// TestWakesFromSilence: while all containers are silent the agent makes few turns, and the first packet of one
// causes the next turn, at whatever time it comes. Each attempt lies between two of the agent's full comparisons
// with the kernel, which cut a rest short, too.
func TestWakesFromSilence(t *testing.T) {
	const (
		attempts, needed = 4, 3
		checkInterval    = 5 * time.Second // of internal/agent/loop
		// attemptTime is the time of an attempt until its turns are read, margin that after a comparison.
		attemptTime, margin = 3 * time.Second, 200 * time.Millisecond
		// restTurns is more than the turns of a second of silence, and far less than otherwise.
		restTurns = 8
		// A turn that ends a rest begun longer than busy and less than rest ago was caused by a packet, which is sent
		// after pause, and no later than latest.
		busy, pause, latest, rest = 60 * time.Millisecond, 90 * time.Millisecond, 170 * time.Millisecond, 200 * time.Millisecond
	)
	b := newBed(t)
	first := b.Add("first", labels("weight", "300"))
	launched := time.Now()
	agent := b.StartAgent(harness.AgentOptions{})
	ready := time.Now()
	if took := ready.Sub(launched); took > checkInterval-attemptTime-2*margin {
		harness.SkipBusy(t, fmt.Sprintf("the agent took %v to start: its comparisons with the kernel come at an unknown time", took))
	}
	turns := func() (all, early uint64) {
		view := agent.Status().Turns
		for i := range view.Buckets {
			switch view.Buckets[i].UpToSeconds {
			case busy.Seconds():
				early -= view.Buckets[i].Count
			case rest.Seconds():
				early += view.Buckets[i].Count
			}
		}
		return view.Count, early
	}
	valid, woken := 0, 0
	for attempt := 1; valid < attempts; attempt++ {
		if attempt > 2*attempts {
			harness.SkipBusy(t, fmt.Sprintf("senders started late %d times out of %d", attempt-1-valid, attempt-1))
		}
		time.Sleep(time.Until(ready.Add(time.Duration(attempt)*checkInterval + margin)))
		before, _ := turns()
		time.Sleep(time.Second)
		last, early := turns()
		if got := last - before; got == 0 || got > restTurns {
			t.Errorf("%d turns in a second of silence", got)
		}
		for now := last; now == last; now, early = turns() {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		time.Sleep(pause)
		sender := b.Send(first, harness.Flood)
		for sender.SentBytes() == 0 && time.Since(began) < rest {
			time.Sleep(time.Millisecond)
		}
		started := time.Since(began)
		time.Sleep(100 * time.Millisecond)
		sender.Stop()
		time.Sleep(time.Second)
		if started > latest {
			continue
		}
		valid++
		if _, now := turns(); now > early {
			woken++
		}
	}
	if woken < needed {
		t.Errorf("%d of %d first packets caused a turn, want %d", woken, valid, needed)
	}
}
