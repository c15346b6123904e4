package htb

import (
	"testing"
	"time"

	"github.com/weir-project/weir/internal/share/sched"
)

// What a turn of the loop costs with a thousand classes, without what the kernel
// does then.

// thousand is a scheduler with that many classes of containers.
func thousand(t testing.TB) *bed {
	t.Helper()
	b := newBed(t, 1e9)
	b.traffic.offered = make([]uint64, 2000)
	b.traffic.directBytes = make([]uint64, 2000)
	for n := range uint16(1000) {
		class := b.tree.Competitors[0]
		class.Number, class.Weight = 16+n, 1+uint32(n)*7%100
		b.tree.Competitors = append(b.tree.Competitors, class)
		b.kernel.stats[class.Number] = stats{}
	}
	b.reconcile()
	return b
}

// send lets one class send, a little more or less each time, and the loop look.
func (b *bed) send(turn int) {
	b.traffic.offered[16] += uint64(100e3 * (1 + turn/3%2))
	b.control(epoch.Add(time.Duration(turn) * changingInterval))
	b.kernel.ops = b.kernel.ops[:0]
}

func BenchmarkTurn(b *testing.B) {
	bed := thousand(b)
	b.ReportAllocs()
	turn := 0
	for b.Loop() {
		bed.send(turn)
		turn++
	}
}

// BenchmarkSnapshot is what it costs to be shown what a thousand classes have.
func BenchmarkSnapshot(b *testing.B) {
	bed := thousand(b)
	var seen sched.Snapshot
	b.ReportAllocs()
	for b.Loop() {
		bed.Snapshot(&seen)
	}
}

// The loop allocates nothing while it changes nothing.
func TestTurnAllocatesNothing(t *testing.T) {
	b := thousand(t)
	turn := 0
	for range 300 {
		b.traffic.offered[16] += 100e3
		b.control(epoch.Add(time.Duration(turn) * changingInterval))
		turn++
	}
	b.counted = epoch.AddDate(1, 0, 0) // nobody looks
	if n := testing.AllocsPerRun(500, func() {
		b.traffic.offered[16] += 100e3
		b.control(epoch.Add(time.Duration(turn) * changingInterval))
		turn++
	}); n > 0 {
		t.Errorf("%.1f allocations in a turn", n)
	}
}
