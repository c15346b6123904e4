package loop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// The counters that are shown are those of the moment that is shown with them,
// which is a period ago at most, whatever else is published in between.
func TestMeasuredAt(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	b.control(epoch)
	const turn = 10 * time.Millisecond
	for elapsed := turn; elapsed < 16*time.Second; elapsed += turn {
		now := epoch.Add(elapsed)
		if elapsed < 2*time.Second { // then it is silent
			b.classifier.offered[a.container.Number] += 1000
			b.scheduler.kernel.count(a.container.Number, kernel.ClassStats{SentBytes: uint64(elapsed)})
		}
		b.control(now)
		if elapsed%(19*turn) == 0 { // a decision, as a reconciliation makes it
			b.publish(now)
		}
		seen, err := b.board.Latest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		c := seen.Containers[0]
		if age := now.Sub(c.MeasuredAt); age < 0 || age > statsInterval+turn {
			t.Fatalf("after %s: measured %s ago", elapsed, age)
		}
		if at := c.MeasuredAt.Sub(epoch); elapsed < 2*time.Second && c.SentBytes != uint64(at) {
			t.Fatalf("after %s: the counters are of %s, and said to be of %s", elapsed, time.Duration(c.SentBytes), at)
		}
	}
}

// BenchmarkPublish is what it costs to show everybody what is known.
func BenchmarkPublish(b *testing.B) {
	for _, containers := range []int{50, 1000} {
		b.Run(fmt.Sprint(containers, " containers"), func(b *testing.B) {
			bench := newBench(b, 1e9)
			for i := range containers {
				bench.start(fmt.Sprint("c", i))
			}
			bench.plan()
			b.ReportAllocs()
			for b.Loop() {
				bench.publish(time.Now())
			}
		})
	}
}
