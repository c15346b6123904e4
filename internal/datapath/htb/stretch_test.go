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

// TestStretchInVain: the queue of senders that follow nothing is long for seconds a minute, and never where the
// bottleneck is elsewhere, or for what goes out.
func TestStretchInVain(t *testing.T) {
	for _, test := range []struct {
		sendsBPS float64
		outgoing bool
		atMost   int // of 600 tenths of a second
	}{{106e6, false, 150}, {300e6, false, 0}, {103.8e6, false, 0}, {106e6, true, 0}} {
		one := &download{member: of(100e6, 0), unresponsiveBPS: test.sendsBPS}
		ds := newDownloads(math.Inf(1), one)
		ds.holdbacks.incoming = !test.outgoing
		ds.run(time.Second)
		long := 0
		for range 600 {
			if ds.step(); one.member.holdback.queue.doublings > 0 {
				long++
			}
		}
		if long > test.atMost || test.atMost > 0 && long == 0 {
			t.Errorf("%+v: long for %d of 600 tenths of a second", test, long)
		}
	}
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
