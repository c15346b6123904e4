package htb

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

func (s state) link() kernel.TBF {
	i := slices.IndexFunc(s.qdiscs, func(q kernel.Qdisc) bool { return q.Handle == linkHandle })
	return s.qdiscs[i].Options.(kernel.TBF)
}

// What a device hands over within its limit is not cut up, with the headers of
// all its frames, which the limit does not count.
func TestLimitedPacketsAreNotCut(t *testing.T) {
	for _, frame := range []struct {
		name                      string
		headerBytes, payloadBytes uint32
	}{
		{"TCP", 66, 1448},
		{"TCP over IPv6", 86, 1428},
		{"TCP in VXLAN", 116, 1398},
		{"TCP over IPv6 in VXLAN over IPv6", 156, 1358},
		{"small frames", 66, 536},
		{"small frames over IPv6 in VXLAN over IPv6", 156, 536},
	} {
		for rate := uint64(60e6); rate < 2e9; rate += 7e6 {
			limit := sched.LinkPacketBytes(rate, 0)
			frames := (limit - frame.headerBytes) / frame.payloadBytes
			counted := frames * (frame.headerBytes + frame.payloadBytes)
			link := desired(tree{rateBPS: rate}, leafBFIFO).link()
			if counted > link.MaxPacketBytes {
				t.Errorf("%s: at %d bit/s packets of %d frames count %d bytes and are cut above %d",
					frame.name, rate, frames, counted, link.MaxPacketBytes)
			}
		}
	}
}

// A frame of the link passes whatever is in its way, at any rate: the token bucket
// filter drops what it can neither cut up nor hold in its bucket.
func TestFramesFit(t *testing.T) {
	for _, mtuBytes := range []uint32{0, 576, 1500, 4000, 9000, 65_535} {
		for rate := uint64(1e6); rate <= 10e9; rate = rate*5/4 + 1 {
			tree := treeOf(rate, container(16, 1, rate/10, packets(1514)), container(17, 1000, rate/2, latency(time.Second)))
			tree.mtuBytes = mtuBytes
			frame := uint64(max(1514, mtuBytes+14))
			if direct := uint64(directBytes(tree.packetBytes())); direct < frame {
				t.Errorf("MTU %d at %d bit/s: packets of %d bytes pass direct, want %d", mtuBytes, rate, direct, frame)
			}
			for _, kind := range []leafKind{leafFqCodel, leafBFIFO} {
				s := desired(tree, kind)
				link := s.link()
				if link.MaxPacketBytes != 0 && uint64(link.MaxPacketBytes) < frame || link.Burst.Bytes(link.RateBytesPerSec) < frame {
					t.Errorf("MTU %d at %d bit/s: %s", mtuBytes, rate, link)
				}
				for _, c := range s.classes {
					o := c.Options.(kernel.HTBClass)
					if c.Handle.Major() != classMajor { // that takes no turns, and has no limit
						continue
					}
					if o.Burst != math.MaxUint32 && o.Burst.Bytes(o.RateBytesPerSec)+1 < frame ||
						c.Handle.Minor() < shareBit && uint64(o.QuantumBytes) < frame {
						t.Errorf("MTU %d at %d bit/s: %s", mtuBytes, rate, c)
					}
				}
				for _, q := range s.qdiscs[s.inner:] {
					switch o := q.Options.(type) {
					case kernel.BFIFO:
						if uint64(o.LimitBytes) < latencyQueueFrames*frame {
							t.Errorf("MTU %d at %d bit/s: %s", mtuBytes, rate, q)
						}
					case kernel.FqCodel:
						if uint64(o.QuantumBytes) != frame || uint64(o.MemoryLimitBytes) < memoryFactor*leastFrames*frame {
							t.Errorf("MTU %d at %d bit/s: %s", mtuBytes, rate, q)
						}
					}
				}
			}
		}
	}
}

// A silent container saves no more in its guarantee than in its share, which has to pay for that.
// One that sends saves as long as timers may be late, and one with a latency bound always does.
func TestSavings(t *testing.T) {
	for _, tc := range []struct {
		name string
		class
		milliseconds uint64
	}{
		{"silent", container(16, 100, 48e6, allocated(0)), 1},
		{"sends little", container(16, 100, 48e6, allocated(1e6)), 4},
		{"sends all it may", container(16, 100, 48e6, allocated(90e6)), 4},
		{"silent, with a latency bound", container(16, 100, 48e6, allocated(0), latency(time.Millisecond)), 4},
		{"silent, with traffic classes", container(16, 100, 48e6, allocated(0), withClasses), 1},
		{"sends, with traffic classes", container(16, 100, 48e6, allocated(1e6), withClasses), 4},
	} {
		tree := treeOf(100e6, tc.class)
		var leaf, share kernel.HTBClass
		for _, c := range desired(tree, leafFqCodel).classes {
			o := c.Options.(kernel.HTBClass)
			switch c.Handle {
			case leafClass(16), guaranteeClass(16):
				leaf = o
			case shareClass(16):
				share = o
			case trafficClass(16, sched.AF), trafficClass(16, sched.BE):
				saved, want := o.Burst.Bytes(o.RateBytesPerSec), o.RateBytesPerSec*tc.milliseconds/1000+uint64(tree.packetBytes())
				if max(saved, want)-min(saved, want) > 16 {
					t.Errorf("%s: %s saves %d bytes, want %d", tc.name, c.Handle, saved, want)
				}
			}
		}
		saved, want := leaf.Burst.Bytes(leaf.RateBytesPerSec), 6000*tc.milliseconds+uint64(tree.packetBytes())
		if max(saved, want)-min(saved, want) > 16 {
			t.Errorf("%s: saves %d bytes, want %d", tc.name, saved, want)
		}
		if ofShare := share.Burst.Bytes(share.RateBytesPerSec); tc.milliseconds == 1 && saved > ofShare+16 {
			t.Errorf("%s: saves %d bytes, its share %d", tc.name, saved, ofShare)
		}
	}
}

// What HTB lets through of a maximum in any 100 ms, but for the packet on credit, leaves half a
// percent for packets that are delayed on their way; and 99.5 % of a maximum are there.
func TestMaximumHasAMargin(t *testing.T) {
	for _, maxBPS := range []uint64{1e6, 10e6, 50e6, 99e6} {
		for _, c := range desired(treeOf(100e6, container(16, 100, maxBPS, ceiling(maxBPS))), leafFqCodel).classes {
			if c.Handle != leafClass(16) {
				continue
			}
			o, most := c.Options.(kernel.HTBClass), maxBPS/8/10
			if sent := o.CeilBytesPerSec/10 + o.CeilBurst.Bytes(o.CeilBytesPerSec); sent > most+most/190 || o.CeilBytesPerSec/10 < most-most/200 {
				t.Errorf("maximum %d: %s, in 100 ms %d bytes of %d", maxBPS, c, sent, most)
			}
		}
	}
}

// TestMinimumAtItsMaximum: the margin below a maximum leaves a minimum whole, and a minimum that is too large changes
// no maximum.
func TestMinimumAtItsMaximum(t *testing.T) {
	for _, tc := range []struct{ floorBPS, ceilBPS uint64 }{
		{0, 39.9e6}, {30e6, 39.9e6}, {39.95e6, 39.95e6}, {40e6, 40e6}, {50e6, 40e6},
	} {
		c := container(16, 100, max(8e6, min(tc.floorBPS, 40e6)), ceiling(40e6))
		c.FloorBPS = tc.floorBPS
		for _, class := range desired(treeOf(100e6, c), leafFqCodel).classes {
			if o := class.Options.(kernel.HTBClass); class.Handle == leafClass(16) && (o.CeilBytesPerSec != tc.ceilBPS/8 || o.RateBytesPerSec != c.GuaranteedBPS/8) {
				t.Errorf("minimum %d: %s, want a ceiling of %d bit/s", tc.floorBPS, class, tc.ceilBPS)
			}
		}
	}
}

// Another MTU changes the tree in place, also where another agent made it: the
// kernel does not tell what it takes for a packet that is too large.
func TestAnotherMTU(t *testing.T) {
	for _, rate := range []uint64{1e6, 40e6, 200e6} {
		small := treeOf(rate, container(16, 100, rate/2))
		jumbo := small
		jumbo.mtuBytes = 9000
		for name, step := range map[string][2]tree{"larger": {small, jumbo}, "smaller": {jumbo, small}} {
			remembered := changes(differences(step[1], step[0], leafFqCodel))
			observed := changes(desired(step[1], leafFqCodel), built(t, step[0], leafFqCodel).have())
			for _, ops := range [][]kernel.Op{remembered, observed} {
				changed := slices.ContainsFunc(ops, func(op kernel.Op) bool {
					return op.Qdisc != nil && op.Qdisc.Handle == linkHandle && op.Verb == kernel.Change
				})
				other := slices.ContainsFunc(ops, func(op kernel.Op) bool { return op.Verb != kernel.Change })
				if !changed || other {
					t.Errorf("a %s MTU at %d bit/s: planned\n%s", name, rate, lines(ops))
				}
			}
		}
	}
}
