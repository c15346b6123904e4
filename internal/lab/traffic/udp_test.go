package traffic

import (
	"math"
	"net/netip"
	"testing"
	"time"
)

func TestPacerKeepsTheRate(t *testing.T) {
	const secondNS = int64(1e9)
	for _, test := range []struct {
		name       string
		intervalNS float64
		stepNS     int64 // how late each look at the clock is
		want       int64
	}{
		{"one a millisecond", 1e6, 1000, 1000},
		{"uneven interval", 12_112.7, 50_000, 82557},
		{"faster than the tick", 1000, 30_000, 1_000_000},
		{"slower than the tick", 1e7, 1000, 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := pacer{intervalNS: test.intervalNS}
			var sent int64
			for now := int64(0); now < secondNS; {
				count, wake := p.due(now)
				sent += int64(count)
				now += test.stepNS
				if count == 0 {
					now = max(now, wake)
				}
			}
			if math.Abs(float64(sent-test.want)) > float64(test.want)/500+1 {
				t.Errorf("sent %d messages in a second, want %d", sent, test.want)
			}
		})
	}
}

func TestPacerDropsOldDebt(t *testing.T) {
	p := pacer{intervalNS: 1000}
	p.due(0)
	var sent int
	for {
		count, _ := p.due(1e9) // a second without the CPU: a million messages
		if count == 0 {
			break
		}
		sent += count
	}
	if sent > int(pacingDebt.Microseconds())+batchMessages {
		t.Errorf("sent %d messages at once after a stall, want at most %v of them", sent, pacingDebt)
	}
}

func TestPacerKnowsHowFarItIsBehind(t *testing.T) {
	p := pacer{intervalNS: 1000, startNS: 5000}
	p.due(7000) // three messages: at 5000, 6000 and 7000
	for _, test := range []struct{ nowNS, want int64 }{{7500, -500}, {8000, 0}, {9250, 1250}} {
		if got := p.behindNS(test.nowNS); got != test.want {
			t.Errorf("at %d behind by %d ns, want %d", test.nowNS, got, test.want)
		}
	}
}

func TestSenderKnowsWhenItWasBehind(t *testing.T) {
	const ms = int64(time.Millisecond)
	s := &Sender{}
	s.account.behind(100*ms, ms) // no more than a late timer
	s.account.behind(200*ms, 5*ms)
	// One stretch: what was due at 298 was already late at 300.
	s.account.behind(300*ms, 10*ms)
	s.account.behind(301*ms, 3*ms)
	for _, test := range []struct {
		fromMS, untilMS int64
		want            time.Duration
	}{
		{0, 150, 0},
		{0, 1000, 10 * time.Millisecond},
		{150, 250, 5 * time.Millisecond},
		{196, 197, 5 * time.Millisecond},
		{200, 290, 0},
		{250, 291, 10 * time.Millisecond},
		{300, 301, 10 * time.Millisecond},
		{301, 400, 0},
	} {
		if got := s.Behind(test.fromMS*ms, test.untilMS*ms); got != test.want {
			t.Errorf("from %d to %d ms behind by %v, want %v", test.fromMS, test.untilMS, got, test.want)
		}
	}
}

func TestSenderKnowsForHowLongItWasBehind(t *testing.T) {
	const ms = int64(time.Millisecond)
	s := &Sender{}
	s.account.behind(200*ms, 5*ms)
	s.account.behind(300*ms, 10*ms)
	s.account.behind(307*ms, 8*ms)
	for _, test := range []struct {
		fromMS, untilMS int64
		want            time.Duration
	}{
		{0, 1000, 17 * time.Millisecond}, // not the 5 ms
		{0, 200, 0},
		{295, 305, 10 * time.Millisecond},
	} {
		if got := s.BehindFor(5*time.Millisecond, test.fromMS*ms, test.untilMS*ms); got != test.want {
			t.Errorf("from %d to %d ms behind for %v, want %v", test.fromMS, test.untilMS, got, test.want)
		}
	}
}

func TestWireBytesUDP(t *testing.T) {
	for _, test := range []struct {
		target string
		want   int
	}{
		{"198.18.0.1", 1514},
		{"::ffff:198.18.0.1", 1514},
		{"fd00::1", 1534},
	} {
		if got := WireBytesUDP(netip.MustParseAddr(test.target), DefaultPayloadBytes); got != test.want {
			t.Errorf("WireBytesUDP(%s) = %d, want %d", test.target, got, test.want)
		}
	}
}
