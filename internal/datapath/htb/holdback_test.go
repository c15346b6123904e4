package htb

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/plan"
	"github.com/weir-project/weir/internal/share/sched"
)

// download is a container's senders elsewhere: they send what got through of the last seconds, and
// overdrive more; or always as much (unresponsive).
type download struct {
	member          *member
	overdrive       float64
	unresponsiveBPS float64
	sendsBPS        float64
	gotBPS          float64
	total           float64
}

// downloads is a bottleneck before a link of 100 Mbit/s. What it lets through is in proportion to what
// is sent; each container gets its cap, or its share, of that.
type downloads struct {
	division
	now           time.Time
	bottleneckBPS float64
	leaf          leafKind
	list          []*download
}

func newDownloads(bottleneckBPS float64, list ...*download) *downloads {
	ds := &downloads{now: time.Unix(1000, 0), bottleneckBPS: bottleneckBPS, leaf: leafBFIFO, list: list}
	ds.holdbacks.incoming, ds.link = true, plan.Link{RateBPS: 100e6}
	for i, d := range list {
		d.member.want.Number, d.member.want.CeilingBPS = uint16(i), alloc.Unlimited
		ds.competitors = append(ds.competitors, d.member)
	}
	return ds
}

// step is a tenth of a second.
func (ds *downloads) step() {
	sum := 0.0
	for _, d := range ds.list {
		d.sendsBPS += (d.gotBPS*(1+d.overdrive) - d.sendsBPS) / 5
		if d.unresponsiveBPS > 0 {
			d.sendsBPS = d.unresponsiveBPS
		}
		sum += d.sendsBPS
	}
	offered := make([]uint64, len(ds.list))
	for i, d := range ds.list {
		arrives := d.sendsBPS * min(1, ds.bottleneckBPS/sum)
		d.gotBPS = min(arrives, float64(min(d.member.mayHaveBPS(), ds.limitBPS(d.member))))
		d.total += arrives / 8 / 10
		offered[i] = uint64(d.total)
	}
	ds.now = ds.now.Add(100 * time.Millisecond)
	ds.holdBack(ds.now, offered, ds.leaf)
}

func (ds *downloads) run(duration time.Duration) (arrivesBPS float64) {
	for range duration / (100 * time.Millisecond) {
		ds.step()
	}
	for _, d := range ds.list {
		arrivesBPS += d.member.holdback.arrivingBPS
	}
	return arrivesBPS
}

func of(allocatedBPS, floorBPS uint64) *member {
	return &member{want: sched.Competitor{FloorBPS: floorBPS}, allocatedBPS: allocatedBPS, entitledBPS: allocatedBPS}
}

// lacking is a container that receives less than it is entitled to.
func lacking() *download { return &download{member: of(20e6, 0), unresponsiveBPS: 5e6} }

// TestHoldback: containers whose senders send more than gets through are limited until one that lacks a part of
// its minimum has it, and none below its minimum; when the senders slow down, nothing is held back.
func TestHoldback(t *testing.T) {
	a := &download{member: of(30e6, 30e6), overdrive: 0.1, sendsBPS: 1e6, gotBPS: 30e6}
	b := &download{member: of(70e6, 0), overdrive: 0.2, sendsBPS: 1e6, gotBPS: 70e6}
	ds := newDownloads(105e6, a, b)
	most := 0.0
	ds.run(20 * time.Second)
	for range 100 {
		ds.step()
		if a.gotBPS < 0.95*30e6 {
			t.Errorf("of a minimum of 30 Mbit/s %.0f is received", a.gotBPS)
		}
		most = max(most, b.member.holdback.part)
	}
	if got := ds.limitBPS(a.member); got < 30e6 {
		t.Errorf("a minimum of 30 Mbit/s is limited to %d", got)
	}
	if most == 0 || most > 0.25 {
		t.Errorf("of the other up to %.3f is held back", most)
	}
	a.overdrive, b.overdrive = -0.05, -0.05
	ds.run(30 * time.Second)
	if held := b.member.holdback.part; held > 0 {
		t.Errorf("%.3f is held back still", held)
	}
}

// TestUnresponsiveSendersAreExempt: a container whose senders do not follow is limited for seconds a
// minute only, and not at all where the bottleneck is elsewhere.
func TestUnresponsiveSendersAreExempt(t *testing.T) {
	for _, sendsBPS := range []float64{102e6, 104e6, 115e6, 300e6} {
		one := &download{member: of(100e6, 0), unresponsiveBPS: sendsBPS}
		ds := newDownloads(math.Inf(1), one, lacking())
		ds.run(time.Second)
		held := 0
		for range 600 {
			ds.step()
			if one.member.holdback.part > 0 {
				held++
			}
		}
		if held > 150 || sendsBPS > 120e6 && held > 0 || sendsBPS < 120e6 && held == 0 {
			t.Errorf("%.0f Mbit/s: held for %d of 600 tenths of a second", sendsBPS/1e6, held)
		}
	}
}

// TestBurstHidesNothing: a container whose senders do not follow is exempt after seconds, also if they sent more at
// first, and another one slowly gains.
func TestBurstHidesNothing(t *testing.T) {
	one, gaining := &download{member: of(90e6, 0), unresponsiveBPS: 108e6}, &download{member: of(10e6, 0), unresponsiveBPS: 5.5e6}
	ds := newDownloads(math.Inf(1), one, gaining)
	held := 0
	for tenth := range 600 {
		if tenth == 30 {
			one.unresponsiveBPS = 98e6
		}
		gaining.unresponsiveBPS *= 1.001
		if ds.step(); one.member.holdback.part > 0 {
			held++
		}
	}
	if held == 0 || held > 180 {
		t.Errorf("held for %d of 600 tenths of a second", held)
	}
}

// TestEarlierBurstHidesNothing: how much a container's senders exceeded its share by before a time without a limit does
// not count.
func TestEarlierBurstHidesNothing(t *testing.T) {
	one := &download{member: of(100e6, 0), unresponsiveBPS: 112e6}
	ds := newDownloads(math.Inf(1), one, lacking())
	ds.run(2500 * time.Millisecond)
	if part := one.member.holdback.part; part < significantPart {
		t.Errorf("%.3f is held back in the burst", part)
	}
	one.unresponsiveBPS = 80e6
	ds.run(7500 * time.Millisecond)
	if part := one.member.holdback.part; part > 0 {
		t.Errorf("%.3f is held back after the burst", part)
	}
	one.unresponsiveBPS = 102e6
	held := 0
	for range 600 {
		if ds.step(); one.member.holdback.part > 0 {
			held++
		}
	}
	if held == 0 || held > 150 {
		t.Errorf("held for %d of 600 tenths of a second", held)
	}
}

// TestFollowersAreNotExempt: senders that follow a limit are limited for as long as another container needs that,
// although what they send stays above their share, less than at first.
func TestFollowersAreNotExempt(t *testing.T) {
	one := &download{member: of(70e6, 0), overdrive: 0.3, sendsBPS: 1e6, gotBPS: 70e6}
	ds := newDownloads(105e6, &download{member: of(30e6, 30e6), overdrive: 0.1, sendsBPS: 1e6, gotBPS: 30e6}, one)
	ds.run(10 * time.Second)
	for range 3000 {
		ds.step()
		if h := one.member.holdback; h.part < significantPart || h.arrivingBPS < 70e6 {
			t.Fatalf("after %v: %.3f is held back and %.1f Mbit/s arrive, exempt until %v", ds.now.Sub(time.Unix(1000, 0)), h.part, h.arrivingBPS/1e6, h.exemptUntil)
		}
	}
}

// TestJudgedByWhatIsKnown: seconds without a look, or in which a container might have nothing, do not count as
// seconds in which its senders ignored a limit.
func TestJudgedByWhatIsKnown(t *testing.T) {
	t.Run("a time without a look", func(t *testing.T) {
		one := &download{member: of(80e6, 0), unresponsiveBPS: 100e6}
		ds := newDownloads(math.Inf(1), one, lacking())
		ds.run(5 * time.Second)
		ds.now = ds.now.Add(2 * unresponsiveAfter)
		ds.run(200 * time.Millisecond)
		if h := one.member.holdback; h.part < significantPart || !h.exemptUntil.IsZero() {
			t.Errorf("%.3f is held back, exempt until %v", h.part, h.exemptUntil)
		}
	})
	t.Run("no share", func(t *testing.T) {
		one := &download{member: of(0, 0), unresponsiveBPS: 40e6}
		ds := newDownloads(math.Inf(1), one, &download{member: of(60e6, 0), unresponsiveBPS: 60e6}, lacking())
		ds.run(2 * unresponsiveAfter)
		one.member.allocatedBPS = 10e6
		ds.step()
		if h := one.member.holdback; h.part < significantPart || !h.exemptUntil.IsZero() {
			t.Errorf("%.3f is held back, exempt until %v", h.part, h.exemptUntil)
		}
	})
}

// TestHoldbackInRandomWorlds: no container is limited below its minimum or by more than a third, none for
// what goes out, and of one that receives no more than its allocation no more is held back than before.
func TestHoldbackInRandomWorlds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []*download
		for range rapid.IntRange(1, 6).Draw(t, "containers") {
			allocatedBPS := rapid.Uint64Range(0, 100e6).Draw(t, "allocation")
			d := &download{
				member:    of(allocatedBPS, rapid.Uint64Range(0, allocatedBPS).Draw(t, "minimum")),
				overdrive: rapid.Float64Range(-0.3, 0.5).Draw(t, "overdrive"), gotBPS: float64(allocatedBPS),
			}
			if rapid.Bool().Draw(t, "unresponsive") {
				d.unresponsiveBPS = rapid.Float64Range(0, 200e6).Draw(t, "sends")
			}
			list = append(list, d)
		}
		ds := newDownloads(rapid.Float64Range(50e6, 300e6).Draw(t, "bottleneck"), list...)
		ds.holdbacks.incoming = rapid.Bool().Draw(t, "incoming")
		for range 300 {
			before := make([]float64, len(list))
			for i, d := range list {
				before[i] = d.member.holdback.part
			}
			ds.step()
			for i, d := range list {
				m := d.member
				if part := m.holdback.part; !(part >= 0 && part <= mostHeld) {
					t.Fatalf("part %v", part)
				}
				mayHaveBPS := float64(m.mayHaveBPS())
				if got := float64(ds.limitBPS(m)); got < min(float64(max(m.want.FloorBPS, 1e6)), mayHaveBPS) || got < mayHaveBPS*(1-mostHeld)-1 {
					t.Fatalf("%d of %.0f, minimum %d: held at %.0f", i, mayHaveBPS, m.want.FloorBPS, got)
				}
				if !ds.holdbacks.incoming && m.holdback.part > 0 {
					t.Fatal("held for what goes out")
				}
				if m.holdback.part > before[i] && m.holdback.arrivingBPS <= mayHaveBPS {
					t.Fatalf("%d gets %.0f of %.0f and is held", i, m.holdback.arrivingBPS, mayHaveBPS)
				}
			}
		}
	})
}

// TestNothingIsHeldBackAtFirst: no limit follows from a start, a moment, a time without a look, or traffic of
// the number's earlier holder.
func TestNothingIsHeldBackAtFirst(t *testing.T) {
	one := &download{member: of(100e6, 0), unresponsiveBPS: 105e6}
	ds := newDownloads(math.Inf(1), one, lacking())
	free := func(what string, members ...*download) {
		t.Helper()
		for _, d := range members {
			if h := d.member.holdback; h.part != 0 || !h.exemptUntil.IsZero() {
				t.Errorf("%s: %.3f is held back, exempt until %v", what, h.part, h.exemptUntil)
			}
		}
	}
	average := func(bps float64) { // as if it had arrived for long
		one.member.holdback.arrivingBPS, one.unresponsiveBPS = bps, bps
	}
	ds.step()
	average(105e6)
	for range int(holdbackDelay/holdbackInterval) - 1 {
		ds.step()
		free("a start", one)
	}
	average(50e6)
	ds.run(time.Second)
	free("a moment", one)
	average(105e6)
	ds.step()
	for _, d := range ds.list {
		d.total += 10 * d.sendsBPS / 8
	}
	ds.now = ds.now.Add(10 * time.Second)
	ds.step()
	free("a time without a look", one)

	average(50e6)
	ds.run(time.Second)
	another := &download{member: of(10e6, 0), unresponsiveBPS: 5e6, total: 1e12}
	another.member.want.Number, another.member.want.CeilingBPS = uint16(len(ds.list)), alloc.Unlimited
	ds.list, ds.competitors = append(ds.list, another), append(ds.competitors, another.member)
	ds.step()
	if got := another.member.holdback.arrivingBPS; got > 5e6 {
		t.Errorf("of an earlier holder's traffic %.0f count", got)
	}
}

// TestIdleMemberOfWeight0: one that may have nothing has no limit, and disturbs none of the others'.
func TestIdleMemberOfWeight0(t *testing.T) {
	idle, one := &download{member: of(0, 0)}, &download{member: of(80e6, 0), unresponsiveBPS: 100e6}
	ds := newDownloads(math.Inf(1), idle, one, lacking())
	ds.run(2 * time.Second)
	if part := one.member.holdback.part; part == 0 {
		t.Error("one that receives too much is not limited")
	}
	if got := ds.limitBPS(idle.member); got != alloc.Unlimited {
		t.Errorf("an idle one is limited to %d (%v)", got, idle.member.holdback.part)
	}
}

// TestNothingIsHeldBackWithoutLack: losses of TCP alone limit no container.
func TestNothingIsHeldBackWithoutLack(t *testing.T) {
	one := &download{member: of(100e6, 0), unresponsiveBPS: 105e6}
	ds := newDownloads(math.Inf(1), one)
	for range 100 {
		if ds.step(); one.member.holdback.part > 0 {
			t.Fatalf("%.3f is held back", one.member.holdback.part)
		}
	}
}

// TestLimitsThatDoNotHelpEnd: a container that wants no more than it receives costs others a part of their
// share for seconds a minute only.
func TestLimitsThatDoNotHelpEnd(t *testing.T) {
	one := &download{member: of(70e6, 0), overdrive: 0.1, gotBPS: 70e6}
	ds := newDownloads(105e6, one, &download{member: of(30e6, 0), unresponsiveBPS: 28e6})
	held := 0
	for range 1200 {
		if ds.step(); one.member.holdback.part > 0.01 {
			held++
		}
	}
	if held == 0 || held > 450 {
		t.Errorf("held for %d of 1200 tenths of a second", held)
	}
}
