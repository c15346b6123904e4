package loop

import (
	"fmt"
	"testing"
	"time"
)

// What the agent's two steps cost with a thousand containers, without what the
// kernel does then.

// thousand is an agent with that many containers and the real scheduler.
func thousand(b *testing.B) (*bench, *fakeKernel) {
	b.Helper()
	bed := newBench(b, 1e9)
	tc := bed.scheduler.kernel
	for n := range 1000 {
		c := bed.start(fmt.Sprint(n))
		c.container.resolved.Policy.Weight = uint32(1 + n*7%100)
	}
	bed.reconcile()
	tc.ops = nil
	b.ReportAllocs()
	return bed, tc
}

// BenchmarkReconcile: a container comes and goes.
func BenchmarkReconcile(b *testing.B) {
	bed, tc := thousand(b)
	c := bed.start("one").container
	for n := 0; b.Loop(); n++ {
		if n%2 == 0 {
			bed.containers.free(c)
		} else {
			bed.containers.assign(c, 0)
		}
		bed.reconcile()
	}
	b.ReportMetric(float64(len(tc.ops))/float64(b.N), "changes/op")
}

// BenchmarkControl: one of the containers sends, a little more or less each
// time.
func BenchmarkControl(b *testing.B) {
	bed, tc := thousand(b)
	c := bed.controlled[0]
	now := time.Now()
	for n := 0; b.Loop(); n++ {
		bed.classifier.offered[c.container.Number] += uint64(100e3 * (1 + n/3%2))
		now = now.Add(adoptionInterval)
		bed.control(now)
	}
	b.ReportMetric(float64(len(tc.ops))/float64(b.N), "changes/op")
}

// BenchmarkPublishPods: of every ten containers nine share the network of the tenth.
func BenchmarkPublishPods(b *testing.B) {
	bed, _ := thousand(b)
	for i, c := range bed.containers.all() {
		c.NetNS.Inode = uint64(1 + i/10)
		if i%10 > 0 {
			bed.containers.free(c)
		}
	}
	for b.Loop() {
		bed.publish(epoch)
	}
}
