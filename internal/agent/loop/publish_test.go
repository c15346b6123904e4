package loop

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
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

func TestIsEdgeProxy(t *testing.T) {
	role := map[string]string{v1.LabelEdgeRole: v1.EdgeProxy}
	for what, c := range map[string]struct {
		seen discovery.Container
		want bool
	}{
		"a proxy":               {discovery.Container{Labels: role}, true},
		"an instance":           {discovery.Container{Labels: map[string]string{v1.LabelEdgeRole: "instance"}}, false},
		"its image says so":     {discovery.Container{Labels: role, ImageLabels: role}, false},
		"its image is not seen": {discovery.Container{Labels: role, ImageUnknown: "timeout"}, false},
	} {
		bench := newBench(t, 1e9)
		c.seen.Runtime, c.seen.ID, c.seen.Name = "docker", "1", "one"
		bench.containers.learn(discovery.Event{Source: "docker", Updated: &c.seen})
		if got := isEdgeProxy(bench.containers.byKey[key{"docker", "1"}]); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
