package htb

import (
	"math"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// TestStretch: the queue of a container whose senders fill the bottleneck is doubled until they do so no more, that
// of others is not, and minutes later it is as short as before.
func TestStretch(t *testing.T) {
	driving := &download{member: of(60e6, 0), unresponsiveBPS: 64e6}
	other := &download{member: of(40e6, 0), unresponsiveBPS: 40.4e6}
	ds := newDownloads(105e6, driving, other)
	queue := &driving.member.holdback.queue
	for range 20 * 10 {
		if ds.step(); queue.doublings == 2 {
			driving.unresponsiveBPS = 60e6
		}
	}
	if queue.doublings != 2 || ds.class(driving.member).QueueDoublings != 2 {
		t.Errorf("the queue is doubled %d times, want 2", queue.doublings)
	}
	if other := other.member.holdback.queue.doublings; other > 0 {
		t.Errorf("that of a container whose senders follow is doubled %d times", other)
	}
	if ds.run(3 * time.Minute); queue.doublings != 0 {
		t.Errorf("three minutes later it is doubled %d times", queue.doublings)
	}
}

// TestStretchInVain: the queue of senders that follow nothing is long for seconds a minute, also beside a container
// that lacks something, and never where the bottleneck is elsewhere, for what goes out, or with fq_codel.
func TestStretchInVain(t *testing.T) {
	for _, test := range []struct {
		allocatedBPS  uint64
		sendsBPS      float64
		bottleneckBPS float64
		others        []*download
		outgoing      bool
		leaf          leafKind
		atMost        int // of 6000 tenths of a second
	}{
		{100e6, 106e6, math.Inf(1), nil, false, leafBFIFO, 1500},
		{80e6, 102e6, 105e6, []*download{lacking()}, false, leafBFIFO, 1500},
		{100e6, 300e6, math.Inf(1), nil, false, leafBFIFO, 0},
		{100e6, 103.8e6, math.Inf(1), nil, false, leafBFIFO, 0},
		{100e6, 106e6, math.Inf(1), nil, true, leafBFIFO, 0},
		{100e6, 106e6, math.Inf(1), nil, false, leafFqCodel, 0},
	} {
		one := &download{member: of(test.allocatedBPS, 0), unresponsiveBPS: test.sendsBPS}
		ds := newDownloads(test.bottleneckBPS, append(test.others, one)...)
		ds.holdbacks.incoming, ds.leaf = !test.outgoing, test.leaf
		ds.run(time.Second)
		long := 0
		for range 6000 {
			if ds.step(); one.member.holdback.queue.doublings > 0 {
				long++
			}
		}
		if long > test.atMost || test.atMost > 0 && long == 0 {
			t.Errorf("%+v: long for %d of 6000 tenths of a second", test, long)
		}
	}
}

// TestStretchAfterBlip: a queue whose senders have followed for long stays long when they exceed their share for
// seconds, and is halved step by step when they do so for longer, or when their container may have nothing.
func TestStretchAfterBlip(t *testing.T) {
	one := &download{member: of(100e6, 0), unresponsiveBPS: 106e6}
	ds := newDownloads(math.Inf(1), one)
	queue := &one.member.holdback.queue
	sendFor := func(bps float64, duration time.Duration, want uint8) {
		t.Helper()
		one.unresponsiveBPS = bps
		if ds.run(duration); queue.doublings != want {
			t.Errorf("%.0f Mbit/s for %v: doubled %d times, want %d", bps/1e6, duration, queue.doublings, want)
		}
	}
	sendFor(106e6, 5*time.Second, mostDoublings)
	sendFor(100e6, 30*time.Second, mostDoublings)
	sendFor(106e6, unresponsiveAfter-2*time.Second, mostDoublings)
	sendFor(100e6, time.Second, mostDoublings)
	sendFor(106e6, unresponsiveAfter-2*time.Second, mostDoublings)
	before := queue.doublings
	for range 60 {
		if ds.step(); before-queue.doublings > 1 {
			t.Errorf("from %d to %d doublings at once", before, queue.doublings)
		}
		before = queue.doublings
	}
	sendFor(106e6, time.Second, 0)
	sendFor(106e6, exemptFor, mostDoublings)
	one.member.allocatedBPS, one.member.entitledBPS = 0, 0
	sendFor(0, 4*time.Minute, 0)
}

// TestStretchedFIFO: doublings end at the bound in time, and never make a queue shorter.
func TestStretchedFIFO(t *testing.T) {
	for _, test := range []struct {
		allocatedBPS uint64
		doublings    uint8
		bytes        uint64
	}{{80e6, 0, 70_000}, {80e6, 1, 140_000}, {80e6, 3, 500_000}, {2e6, 3, 20 * 1514}} {
		c := container(16, 100, test.allocatedBPS, packets(1514))
		c.QueueDoublings = test.doublings
		for _, kind := range []leafKind{leafBFIFO, leafFqCodel} {
			qdiscs := desired(treeOf(100e6, c), kind).qdiscs
			fifo, isFIFO := qdiscs[len(qdiscs)-1].Options.(kernel.BFIFO)
			if isFIFO != (kind == leafBFIFO) || isFIFO && fifo.LimitBytes != quantize(test.bytes) {
				t.Errorf("%+v: %+v, want %d", test, qdiscs[len(qdiscs)-1], quantize(test.bytes))
			}
		}
	}
}
