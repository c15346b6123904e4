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
// overdrive more; or always as much (deaf).
type download struct {
	member    *member
	overdrive float64
	deafBPS   float64
	sendsBPS  float64
	gotBPS    float64
	total     float64
}

// downloads is a bottleneck before a link of 100 Mbit/s. What it lets through is in proportion to what
// is sent; each container gets its cap, or its share, of that.
type downloads struct {
	division
	now           time.Time
	bottleneckBPS float64
	list          []*download
}

func newDownloads(bottleneckBPS float64, list ...*download) *downloads {
	ds := &downloads{now: time.Unix(1000, 0), bottleneckBPS: bottleneckBPS, list: list}
	ds.arrivals.incoming, ds.link = true, plan.Link{RateBPS: 100e6}
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
		if d.deafBPS > 0 {
			d.sendsBPS = d.deafBPS
		}
		sum += d.sendsBPS
	}
	offered := make([]uint64, len(ds.list))
	for i, d := range ds.list {
		arrives := d.sendsBPS * min(1, ds.bottleneckBPS/sum)
		d.gotBPS = min(arrives, float64(min(d.member.mayBPS(), d.member.capBPS())))
		d.total += arrives / 8 / 10
		offered[i] = uint64(d.total)
	}
	ds.now = ds.now.Add(100 * time.Millisecond)
	ds.charge(ds.now, offered)
}

func (ds *downloads) run(duration time.Duration) (arrivesBPS float64) {
	for range duration / (100 * time.Millisecond) {
		ds.step()
	}
	for _, d := range ds.list {
		arrivesBPS += d.member.arrived.bps
	}
	return arrivesBPS
}

func of(allocatedBPS, floorBPS uint64) *member {
	return &member{want: sched.Competitor{FloorBPS: floorBPS}, allocatedBPS: allocatedBPS, entitledBPS: allocatedBPS}
}

// TestCharge: containers whose senders overdrive are held until what arrives fits, and not below their
// minimums; then they are let go.
func TestCharge(t *testing.T) {
	a := &download{member: of(30e6, 30e6), overdrive: 0.1, sendsBPS: 1e6, gotBPS: 30e6}
	b := &download{member: of(70e6, 0), overdrive: 0.2, sendsBPS: 1e6, gotBPS: 70e6}
	ds := newDownloads(105e6, a, b)
	if got := ds.run(20 * time.Second); got > 102e6 || got < 95e6 {
		t.Errorf("%.0f arrives", got)
	}
	if got := a.member.capBPS(); got < 30e6 {
		t.Errorf("a minimum of 30 Mbit/s is held at %d", got)
	}
	if held := b.member.arrived.charged; held < 0.05 || held > 0.25 {
		t.Errorf("the other is held by %.3f of its share", held)
	}
	a.overdrive, b.overdrive = -0.05, -0.05
	ds.run(30 * time.Second)
	if held := b.member.arrived.charged; held > 0 {
		t.Errorf("still held by %.3f", held)
	}
}

// TestChargeOfTheDeaf: a container whose senders do not follow is let go, also where the bottleneck is
// elsewhere.
func TestChargeOfTheDeaf(t *testing.T) {
	for _, sendsBPS := range []float64{104e6, 300e6} {
		one := &download{member: of(100e6, 0), deafBPS: sendsBPS}
		ds := newDownloads(math.Inf(1), one)
		ds.run(time.Second)
		held := 0
		for range 600 {
			ds.step()
			if one.member.arrived.charged > 0 {
				held++
			}
		}
		if limit := 150; held > limit || sendsBPS > 120e6 && held > 0 {
			t.Errorf("%.0f Mbit/s: held for %d of 600 tenths of a second", sendsBPS/1e6, held)
		}
	}
}

// TestChargeInRandomWorlds: no container is held below its minimum or by more than a third, nobody for
// what goes out, and one that gets no more than it may is never held more than before.
func TestChargeInRandomWorlds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []*download
		for range rapid.IntRange(1, 6).Draw(t, "containers") {
			allocatedBPS := rapid.Uint64Range(0, 100e6).Draw(t, "allocation")
			d := &download{
				member:    of(allocatedBPS, rapid.Uint64Range(0, allocatedBPS).Draw(t, "minimum")),
				overdrive: rapid.Float64Range(-0.3, 0.5).Draw(t, "overdrive"), gotBPS: float64(allocatedBPS),
			}
			if rapid.Bool().Draw(t, "deaf") {
				d.deafBPS = rapid.Float64Range(0, 200e6).Draw(t, "sends")
			}
			list = append(list, d)
		}
		ds := newDownloads(rapid.Float64Range(50e6, 300e6).Draw(t, "bottleneck"), list...)
		ds.arrivals.incoming = rapid.Bool().Draw(t, "incoming")
		for range 300 {
			before := make([]float64, len(list))
			for i, d := range list {
				before[i] = d.member.arrived.charged
			}
			ds.step()
			for i, d := range list {
				m := d.member
				mayBPS := float64(m.mayBPS())
				if got := float64(m.capBPS()); got < min(float64(m.want.FloorBPS), mayBPS) || got < mayBPS*(1-mostCharged)-1 {
					t.Fatalf("%d of %.0f, minimum %d: held at %.0f", i, mayBPS, m.want.FloorBPS, got)
				}
				if !ds.arrivals.incoming && m.arrived.charged > 0 {
					t.Fatal("held for what goes out")
				}
				if m.arrived.charged > before[i] && m.arrived.bps <= mayBPS {
					t.Fatalf("%d gets %.0f of %.0f and is held", i, m.arrived.bps, mayBPS)
				}
			}
		}
	})
}
