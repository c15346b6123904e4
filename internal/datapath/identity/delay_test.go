package identity

import (
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// bucketOf is bucket_of of bpf/delay.bpf.c by its definition.
func bucketOf(delay time.Duration) int {
	for bucket := range delayBuckets {
		if low, high := delayBounds(bucket); delay >= low && delay < high {
			return bucket
		}
	}
	return delayBuckets - 1
}

// What this package takes for granted of the compiled program.
func TestDelayObjects(t *testing.T) {
	spec, err := loadDelay()
	if err != nil {
		t.Fatal(err)
	}
	m := spec.Maps[delayMapDelays]
	if m == nil || m.Type != ebpf.Hash || m.Flags != unix.BPF_F_NO_PREALLOC || int(m.ValueSize) != delaysBytes || m.MaxEntries != uint32(uplinkWeirTagWEIR_TAG_MASK)+1 {
		t.Errorf("delays: %v", m)
	}
	if p := spec.Programs[delayProgWeirTransmit]; p == nil || p.Type != ebpf.Tracing || p.AttachTo != "net_dev_start_xmit" {
		t.Errorf("program: %v", p)
	}
}

// Buckets follow each other without gaps, none is wider than a quarter of its
// delays, but for the resolution, and they reach as far as is said.
func TestDelayBounds(t *testing.T) {
	var last time.Duration
	for bucket := range delayBuckets {
		low, high := delayBounds(bucket)
		if low != last || high <= low {
			t.Errorf("bucket %d: from %v to %v, the one before ends at %v", bucket, low, high, last)
		}
		if width := high - low; width > 1024 && float64(width) > float64(low)/4 {
			t.Errorf("bucket %d: from %v to %v is too wide", bucket, low, high)
		}
		last = high
	}
	if last < 17*time.Second || last > 18*time.Second {
		t.Errorf("the last bucket ends at %v", last)
	}
}

func TestQuantile(t *testing.T) {
	var empty Histogram
	if got := empty.Quantile(0.5); got != 0 {
		t.Errorf("median of nothing: %v", got)
	}
	// 1 ms to 100 ms, evenly.
	var h Histogram
	for ms := 1; ms <= 100; ms++ {
		h.packets[bucketOf(time.Duration(ms)*time.Millisecond)] += 10
	}
	for _, q := range []float64{0.01, 0.1, 0.5, 0.9, 0.99, 1} {
		want := q * 100 * float64(time.Millisecond)
		if got := float64(h.Quantile(q)); math.Abs(got-want) > want/4 {
			t.Errorf("quantile %v: %v, want %v", q, time.Duration(got), time.Duration(want))
		}
	}
	earlier := h
	h.packets[bucketOf(3*time.Second)] += 5
	h.Sub(&earlier)
	if got := h.Packets(); got != 5 {
		t.Errorf("%d packets since the earlier reading, want 5", got)
	}
	for _, q := range []float64{-1, 0, 0.5, 1, 2} {
		if got := h.Quantile(q); got < 2250*time.Millisecond || got > 3750*time.Millisecond {
			t.Errorf("quantile %v: %v, want 3s", q, got)
		}
	}
	// A counter that went over its end between two readings.
	earlier.packets[7], h = math.MaxUint32-1, Histogram{}
	h.packets[7] = 3
	h.Sub(&Histogram{packets: [delayBuckets]uint32{7: math.MaxUint32 - 1}})
	if got := h.Packets(); got != 5 {
		t.Errorf("%d packets across the counter's end, want 5", got)
	}
}
