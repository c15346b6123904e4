package stats

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

func TestHistory(t *testing.T) {
	began := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	web := v1.Container{ID: "1", Name: "web", Runtime: "docker", StartedAt: began, Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0", DroppedPackets: 1000, MarkedPackets: 50}, {Uplink: "wwan0"}}}}
	h := new(History)
	if got := h.Of(&web); len(got.Shares) != 2 || len(got.Shares[0].Samples) != 0 {
		t.Errorf("before anything is recorded: %+v", got)
	}
	const seconds = 2*historySamples + 17
	for i := range uint64(seconds) {
		s := &web.Shares[0]
		s.RateBPS, s.EntitledBPS, s.AllocatedBPS, s.BacklogBytes = 95_123_456_000+i*1000, 20e6, 30e6, 1234+i
		s.WantsMore, s.WantedBPS, s.DelayP50MS, s.DelayP99MS = i%2 == 0, 5e6*(i%2), 0.124, 12.4
		s.DroppedPackets += i
		s.MarkedPackets += 2 * i
		h.Record(began.Add(time.Duration(i)*time.Second), &Snapshot{Snapshot: v1.Snapshot{Containers: []v1.Container{web}}})
	}
	got := h.Of(&web)
	samples := got.Shares[0].Samples
	if got.Name != "web" || got.Shares[1].Uplink != "wwan0" || len(samples) != historySamples {
		t.Fatalf("%s, %d samples", got.Name, len(samples))
	}
	for j, sample := range samples {
		i := uint64(seconds - historySamples + j)
		want := v1.HistorySample{
			At: began.Add(time.Duration(i) * time.Second), EntitledBPS: 20e6, AllocatedBPS: 30e6, RateBPS: sample.RateBPS, BacklogBytes: 1234 + i,
			WantsMore: i%2 == 0, WantedBPS: 5e6 * (i % 2), DelayP50MS: 0.124, DelayP99MS: 12.4, DroppedPackets: i, MarkedPackets: 2 * i,
		}
		if sample != want {
			t.Fatalf("sample %d: %+v, want %+v", j, sample, want)
		}
		if exact := 95_123_456_000 + i*1000; max(sample.RateBPS, exact)-min(sample.RateBPS, exact) > 10_000 {
			t.Errorf("sample %d: %d, want %d but for seven digits", j, sample.RateBPS, exact)
		}
	}

	// Another run of it is another container; who is gone is forgotten.
	again := web
	again.StartedAt = began.Add(time.Hour)
	if got := h.Of(&again); len(got.Shares[0].Samples) != 0 {
		t.Errorf("started again: %d samples", len(got.Shares[0].Samples))
	}
	h.Record(began.Add(time.Hour), &Snapshot{Snapshot: v1.Snapshot{Containers: []v1.Container{again}}})
	if got := h.Of(&web); len(got.Shares[0].Samples) != 0 || len(h.rings) != 2 {
		t.Errorf("gone: %d samples, %d rings", len(got.Shares[0].Samples), len(h.rings))
	}
	// Counters and clocks that go back do no harm.
	again.Shares = []v1.Share{{Uplink: "eth0"}}
	h.Record(began, &Snapshot{Snapshot: v1.Snapshot{Containers: []v1.Container{again}}})
	if got := h.Of(&again).Shares[0].Samples; len(got) != 2 || got[1].DroppedPackets != 0 || got[1].MarkedPackets != 0 {
		t.Errorf("counters that went back: %+v", got)
	}
}

// However many containers there are, and however long they run, it takes 9 MB.
func TestHistoryIsBounded(t *testing.T) {
	var s Snapshot
	for i := range 2 * historyShares {
		s.Containers = append(s.Containers, v1.Container{ID: fmt.Sprint(i), Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0"}}}})
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	h := new(History)
	for i := range 2 * historySamples {
		h.Record(time.Unix(int64(i), 0), &s)
	}
	if used := heap() - before; used > 9<<20 {
		t.Errorf("it takes %d bytes", used)
	}
	if first, last := h.Of(&s.Containers[0]), h.Of(&s.Containers[2*historyShares-1]); len(first.Shares[0].Samples) != historySamples || len(last.Shares[0].Samples) != 0 {
		t.Errorf("%d and %d samples", len(first.Shares[0].Samples), len(last.Shares[0].Samples))
	}
}

// BenchmarkRecord is what a sample of everybody costs.
func BenchmarkRecord(b *testing.B) {
	var s Snapshot
	for i := range 1000 {
		s.Containers = append(s.Containers, v1.Container{ID: fmt.Sprint(i), Runtime: "docker", Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0"}}}})
	}
	h := new(History)
	for b.Loop() {
		h.Record(time.Unix(1, 0), &s)
	}
	b.ReportAllocs()
}
