package htb

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// cubicFlows are flows of CUBIC to one container: their windows in segments grow by about half a segment each round
// trip (RFC 9438, section 4.3, as at these rates), fall to 0.7 at a loss, and never below two segments; a flow that loses
// all of them waits.
type cubicFlows struct {
	random    *rand.Rand
	roundTrip time.Duration
	windows   []float64
	waits     []int // steps until a timeout
}

func newCubicFlows(seed uint64, flows int, roundTrip time.Duration) *cubicFlows {
	c := &cubicFlows{random: rand.New(rand.NewPCG(seed, 0)), roundTrip: roundTrip, windows: make([]float64, flows), waits: make([]int, flows)}
	for i := range c.windows {
		c.windows[i] = 10
	}
	return c
}

// next returns what the flows send in a tenth of a second if a part of the last was lost.
func (c *cubicFlows) next(lost float64) (bps float64) {
	const segmentBits, least = 1514 * 8, 2
	roundTrips := (100 * time.Millisecond).Seconds() / c.roundTrip.Seconds()
	for i, w := range c.windows {
		if c.waits[i] > 0 {
			c.waits[i]--
			continue
		}
		sent := w * roundTrips
		switch hit := 1 - math.Pow(1-lost, sent); {
		case lost > 0 && w <= least && c.random.Float64() < math.Pow(lost, least):
			c.waits[i] = 1 + c.random.IntN(4) // a timeout of 200 ms and more
		case c.random.Float64() < hit:
			w = max(w*0.7, least)
		default:
			w += roundTrips / 2
		}
		c.windows[i] = w
		bps += w * segmentBits / c.roundTrip.Seconds()
	}
	return bps
}

// TestManyFlowsOnSmallLimits: flows of CUBIC that send more than their container may have, as none goes below two segments
// each round trip, are limited for seconds a minute only. As many that have room to slow down are limited for as long as
// another container lacks a part of its share.
func TestManyFlowsOnSmallLimits(t *testing.T) {
	const seeds, steps, flows = 5, 600, 64
	for allocatedBPS, slowsDown := range map[uint64]bool{5e6: false, 10e6: false, 20e6: false, 60e6: true} {
		held, exempt := 0, 0
		for seed := range uint64(seeds) {
			senders := newCubicFlows(seed, flows, 20*time.Millisecond)
			one := &download{member: of(allocatedBPS, 0), unresponsiveBPS: 1e6}
			ds := newDownloads(105e6, one, &download{member: of(80e6-allocatedBPS, 0), overdrive: 0.1, gotBPS: 80e6}, lacking())
			for range steps {
				one.unresponsiveBPS = senders.next(max(1-one.gotBPS/one.unresponsiveBPS, 0))
				ds.step()
				if one.member.holdback.part > 0.01 {
					held++
				}
				if ds.now.Before(one.member.holdback.exemptUntil) {
					exempt++
				}
			}
		}
		ofTime := func(count int) float64 { return float64(count) / (seeds * steps) }
		if held := ofTime(held); held == 0 || !slowsDown && held > 0.3 || slowsDown && held < 0.4 {
			t.Errorf("%d Mbit/s: held for %.2f of a minute", allocatedBPS/1e6, held)
		}
		if exempt := ofTime(exempt); slowsDown && exempt > 0 || !slowsDown && exempt < 0.4 {
			t.Errorf("%d Mbit/s: exempt for %.2f of a minute", allocatedBPS/1e6, exempt)
		}
	}
}
