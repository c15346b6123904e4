//go:build netns

package identity_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// Who sends SYNs to a container pushes out none of its flows, whether something listens
// there (SYN-ACK) or not (RST). What the container answers itself is its own.
func TestFloodOfSYNs(t *testing.T) {
	const syn, synAck, rst = 0x02, 0x12, 0x14
	flagged := func(m model, out bool, flags byte) []byte {
		packet := m.frame(out, false, 0)
		packet[14+20+13] = flags
		return packet
	}
	for name, answer := range map[string]byte{"an open port": synAck, "a closed port": rst} {
		k := openKernelFlows(t, 1024)
		k.shipped()
		r := rand.New(rand.NewPCG(30, 31))
		begin := func() model {
			m := model4()
			m.initiator = netip.AddrPortFrom(randomAddress(r, false), uint16(r.Uint32()))
			return m
		}
		var own []model
		for range 100 {
			m := begin()
			m.initiator, m.responder = m.responder, m.initiator
			own = append(own, m)
			k.class(k.tap, m.frame(true, true, 0))
		}
		for range 100 {
			m := begin()
			own = append(own, m)
			k.class(k.back, flagged(m, true, syn))
			k.class(k.tap, flagged(m, false, synAck))
			k.class(k.tap, m.frame(false, false, 100))
		}
		for range 20000 {
			m := begin()
			k.class(k.back, flagged(m, true, syn))
			k.class(k.tap, flagged(m, false, answer))
		}
		all := k.all()
		left := 0
		for _, m := range own {
			if _, ok := all[tuple(uint8(m.proto), m.initiator, m.responder)]; ok {
				left++
			}
		}
		// Where a bucket was full of the container's own an answer takes one place.
		if left < len(own)*95/100 {
			t.Errorf("after SYNs to %s %d of %d flows are left", name, left, len(own))
		}
	}
}

// What others write into the DSCP field of what they send to a container says nothing of
// the class of its flow.
func TestDSCPOfOthers(t *testing.T) {
	k := openKernelFlows(t, 1024)
	const be = 2
	k.set(&apps.Compact{Nodes: []apps.CompactNode{{Feature: apps.LeafFeature, Level: be, LevelConfidence: 1000}}, Roots: [2][]uint16{{0}, {0}}})
	must.Succeed(t, k.SetTrustDSCP(number, true))
	m := model4()
	m.proto = flow.UDP
	for i := range 10 { // the first few go another way
		packet := m.frame(true, true, 100)
		packet[15] = 46 << 2
		if class := k.class(k.tap, packet); class != sched.EF {
			t.Errorf("packet %d is of class %d", i, class)
		}
		k.class(k.back, m.frame(false, false, 100))
		if f := k.one(m); f.DSCPClass != sched.EF || f.Packets != [2]uint32{uint32(i + 1), uint32(i + 1)} {
			t.Errorf("after the answer to packet %d the flow is %+v", i, f)
		}
	}
}

// A flow that another processor has seen at a later time than this one was told of goes
// on, and is not the first to go.
func TestSeenLater(t *testing.T) {
	k := openKernelFlows(t, 8) // one bucket
	k.shipped()
	later := func() {
		must.Succeed(t, k.SeenLater(number, 20000))
	}
	m := model4()
	m.proto = flow.UDP
	for i := range 10 { // the first few go another way
		k.class(k.tap, m.frame(true, true, 100))
		if f := k.one(m); f.Packets[0] != uint32(i+1) {
			t.Fatalf("packet %d began the flow again: %+v", i, f)
		}
		later()
	}
	for i := range 8 {
		if i == 7 {
			time.Sleep(50 * time.Millisecond) // the clock of places goes on
		}
		other := m
		other.initiator = netip.AddrPortFrom(m.initiator.Addr(), uint16(1000+i))
		k.class(k.tap, other.frame(true, true, 100))
	}
	if f := k.one(m); f == (identity.Flow{}) {
		t.Error("the flow that was seen last is gone")
	}
}
