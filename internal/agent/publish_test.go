package agent

import (
	"fmt"
	"testing"
	"time"
)

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
