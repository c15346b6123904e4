//go:build netns

package identity_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// coarsestTick is the longest step of the kernel's coarse clock (CONFIG_HZ=100).
const coarsestTick = 10 * time.Millisecond

// A flow of EF that sends as a transfer does is BE as soon as the definition in Go says so, and
// until it has been quiet for seconds.
func TestBulkIsNotEF(t *testing.T) {
	k := openKernelFlows(t, 1024)
	k.set(&apps.Compact{Nodes: []apps.CompactNode{{Feature: apps.LeafFeature, LevelConfidence: 1000}}, Roots: [2][]uint16{{0}, {0}}})
	for port, size := range map[uint16]int{5001: 172, 5002: 300, 5003: 600, 5004: 1200, 5005: 1460} {
		for _, proto := range []int{flow.TCP, flow.UDP} {
			m := model{proto: proto, initiator: netip.AddrPortFrom(netip.MustParseAddr("198.18.0.9"), uint16(40000+proto)), responder: netip.AddrPortFrom(netip.MustParseAddr("198.18.9.1"), port)}
			frame := m.frame(true, false, size)
			var policer apps.EFPolicer
			want, got := 6, 1
			for ; !policer.Sent(0, 1, uint64(len(frame))); want++ {
			}
			begin := time.Now()
			for ; k.class(k.tap, frame) == sched.EF && got < 1000; got++ {
			}
			// Meanwhile the buckets drain, and that of all bytes fastest, by a clock of whole ticks.
			drained := int((time.Since(begin) + coarsestTick).Seconds() * 260_000)
			if most := want + 3 + drained/len(frame); got < want-2 || got > most {
				t.Errorf("frames of %d bytes: number %d is BE, want %d to %d", len(frame), got, want, most)
			}
			f := k.one(m)
			// A run begins anew when the buckets are empty, as after a tick among the first frames.
			if sent := (got - 5) * len(frame); f.Class != sched.BE || !f.Bulk || int(f.RunBytes) < sent-len(frame)-drained || int(f.RunBytes) > sent || f.Run > time.Since(begin)+20*time.Millisecond {
				t.Errorf("shown as %+v, after %d frames of %d", f, got, len(frame))
			}
			small := m.frame(true, false, 20)
			for _, step := range []struct {
				quietMS uint32
				frame   []byte
				want    sched.TrafficClass
			}{{7000, small, sched.BE}, {3000, frame, sched.EF}} {
				must.Succeed(t, k.Quiet(number, step.quietMS))
				if class := k.class(k.tap, step.frame); class != step.want {
					t.Errorf("frames of %d bytes: class %v after another %d ms of quiet, want %v", len(frame), class, step.quietMS, step.want)
				}
			}
			if f := k.one(m); f.Bulk || f.Class != sched.EF {
				t.Errorf("after quiet: %+v", f)
			}
		}
	}
}

// Each fragment of a flow's packets counts to the flow, and is policed as a packet of its size.
func TestFragmentsArePoliced(t *testing.T) {
	k := openKernelFlows(t, 1024)
	k.set(&apps.Compact{Nodes: []apps.CompactNode{{Feature: apps.LeafFeature, LevelConfidence: 1000}}, Roots: [2][]uint16{{0}, {0}}})
	for name, fragment := range fragmenters {
		m := model{proto: flow.UDP, initiator: netip.MustParseAddrPort("198.18.0.9:40000"), responder: netip.MustParseAddrPort("198.18.9.1:5060")}
		if name == "IPv6" {
			m.initiator, m.responder = netip.MustParseAddrPort("[fd00::9]:40000"), netip.MustParseAddrPort("[fd00::1]:5060")
		}
		sentBytes, sentPackets := uint64(0), uint32(0)
		send := func(frame []byte) sched.TrafficClass {
			sentBytes, sentPackets = sentBytes+uint64(len(frame)), sentPackets+1
			return k.class(k.tap, frame)
		}
		for range 6 { // not policed: the second stage looks at them
			send(m.frame(true, false, 20))
		}
		// A datagram of 64 KB: its first fragments are EF, the rest is bulk.
		const size = 1400
		var policer apps.EFPolicer
		want := 0
		for !policer.Sent(0, 1, uint64(len(fragment(m, 9, size, size, true)))) {
			want++
		}
		urgent := 0
		for i := range 44 {
			if send(fragment(m, 9, i*size, size, true)) == sched.EF {
				urgent++
			}
		}
		if urgent != want {
			t.Errorf("%s: %d fragments of a datagram are EF, want %d", name, urgent, want)
		}
		if f := k.one(m); f.Bytes[0] != sentBytes || f.Packets[0] != sentPackets || !f.Bulk {
			t.Errorf("%s: sent %d bytes in %d packets, counted %+v", name, sentBytes, sentPackets, f)
		}
	}
}
