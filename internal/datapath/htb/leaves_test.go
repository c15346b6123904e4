package htb

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// A queue holds so many packets of the size that its container is limited to, and
// no packet is larger than the link's.
func TestQueueOfSlowContainer(t *testing.T) {
	for _, test := range []struct {
		name               string
		linkBPS            uint64
		c                  class
		fifoBytes          uint64
		targetMicroseconds uint32
	}{
		{"limited to a frame", 100e6, container(16, 100, 2e6, packets(1514)), 20 * 1514, 256_000},
		{"not limited", 100e6, container(16, 100, 2e6), 20 * 3125, 512_000},
		{"limited to more than the link", 100e6, container(16, 100, 2e6, packets(65536)), 20 * 3125, 512_000},
		{"fast", 1e9, container(16, 100, 800e6, packets(12112)), 700_000, 20_000},
	} {
		queue := func(kind leafKind) kernel.Options {
			qdiscs := desired(treeOf(test.linkBPS, test.c), kind).qdiscs
			return qdiscs[len(qdiscs)-1].Options
		}
		if got, want := queue(leafBFIFO).(kernel.BFIFO).LimitBytes, quantize(test.fifoBytes); got != want {
			t.Errorf("%s: %d bytes, want %d", test.name, got, want)
		}
		if got := queue(leafFqCodel).(kernel.FqCodel).TargetMicroseconds; got != test.targetMicroseconds {
			t.Errorf("%s: a target of %d us, want %d", test.name, got, test.targetMicroseconds)
		}
	}
}

func TestQuantize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Uint64Range(0, 1<<30).Draw(t, "v")
		got := uint64(quantize(v))
		if got < v || got > v+v/4+1 {
			t.Fatalf("quantize(%d) = %d", v, got)
		}
		if again := quantize(got); uint64(again) != got {
			t.Fatalf("quantize(%d) = %d", got, again)
		}
		if w := rapid.Uint64Range(v, 1<<30).Draw(t, "w"); uint64(quantize(w)) < got {
			t.Fatalf("quantize(%d) = %d and quantize(%d) = %d", v, got, w, quantize(w))
		}
	})
	if got := quantize(math.MaxUint64); got != 1<<30 {
		t.Errorf("quantize of the largest is %d", got)
	}
}

// The target is the time of forty packets, and the interval twice that.
func TestFqCodel(t *testing.T) {
	for _, tc := range []struct {
		rateBPS          uint64
		packetBytes      uint32
		target, interval uint32
	}{
		{1e9, 31_250, 20_000, 100_000},
		{100e6, 3125, 20_000, 100_000},
		{10e6, 1514, 51_200, 102_400},
		{1e6, 1514, 512_000, 1_024_000},
		{1, 1514, 16_384_000, 32_768_000}, // bounded
		{0, 1514, 16_384_000, 32_768_000},
	} {
		got := terms{frameBytes: 1514}.fqCodel(tc.rateBPS, tc.packetBytes)
		if got.TargetMicroseconds != tc.target || got.IntervalMicroseconds != tc.interval || got.QuantumBytes != 1514 {
			t.Errorf("at %d bit/s: %s", tc.rateBPS, got)
		}
		if kept(got) != kernel.Options(got) {
			t.Errorf("at %d bit/s the kernel tells %s after %s", tc.rateBPS, kept(got), got)
		}
	}
}

// Whoever floods, and however many do, the queues hold no more than the budget and
// a little for each.
func TestQueuesAreBoundedTogether(t *testing.T) {
	for _, link := range []struct {
		name          string
		rateBPS       uint64
		mtuBytes      uint32
		budgetBytes   uint64
		perClassBytes uint64
	}{
		{"10 Mbit/s", 10e6, 1500, 16 << 20, 24_224},
		{"100 Mbit/s", 100e6, 1500, 16 << 20, 24_224},
		{"100 Mbit/s of jumbo frames", 100e6, 9000, 16 << 20, 144_224},
		{"1 Gbit/s", 1e9, 1500, 16 << 20, 125_000},
		{"10 Gbit/s", 10e9, 1500, 40e6, 262_144},
	} {
		for _, containers := range []int{1, 100, 1000} {
			// The host's network, where packets are as large as the link takes them, and
			// bounds on delay that ask for more than there is.
			for _, options := range [][]func(*class){nil, {latency(10 * time.Second)}} {
				tree := treeOf(link.rateBPS)
				tree.mtuBytes = link.mtuBytes
				each := link.rateBPS * 98 / 100 / uint64(containers)
				for i := range containers {
					c := container(uint16(16+i), 100, each, options...)
					if i == 0 {
						c.AllocatedBPS = link.rateBPS // before the others woke up
					}
					tree.classes = append(tree.classes, c)
				}
				for _, kind := range []leafKind{leafFqCodel, leafBFIFO} {
					sum := uint64(0)
					for _, q := range desired(tree, kind).qdiscs {
						switch o := q.Options.(type) {
						case kernel.FqCodel:
							sum += uint64(o.MemoryLimitBytes)
							// Some kernels hold on to the number of packets only.
							frames := uint64(o.LimitPackets) * memoryFactor * uint64(tree.frameBytes())
							if frames > uint64(o.MemoryLimitBytes) || o.LimitPackets < leastFrames {
								t.Errorf("%d containers at %s: %s", containers, link.name, o)
							}
						case kernel.BFIFO:
							sum += memoryFactor * uint64(o.LimitBytes)
						}
					}
					// quantize may add a quarter to what each has for itself. The one that is
					// not a container is the host, and control traffic has a queue, too.
					limit := link.budgetBytes + uint64(containers+2)*link.perClassBytes*5/4
					if sum > limit {
						t.Errorf("%d containers at %s, %s, latency %t: queues hold %d bytes, want at most %d",
							containers, link.name, kind, options != nil, sum, limit)
					}
				}
			}
		}
	}
}

// A container that comes or goes changes the queues of others seldom.
func TestPlaces(t *testing.T) {
	for classes, want := range map[int]uint32{0: 8, 1: 8, 8: 8, 9: 16, 100: 128, 128: 128, 1001: 1024} {
		if got := places(classes); got != want {
			t.Errorf("%d classes: %d, want %d", classes, got, want)
		}
	}
}
