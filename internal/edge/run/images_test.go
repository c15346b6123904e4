package run

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// TestPulls: nodes get images at what the uplink of the repository's node has free.
func TestPulls(t *testing.T) {
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, last}) }
	measured := []Measured{{Node: runtime.Node{Name: "a", Address: at(1)}}, {Node: runtime.Node{Name: "b", Address: at(2)}}}
	now := time.Now()
	for name, test := range map[string]struct {
		repository      netip.Addr
		rateBPS, before uint64 // of a's uplink, and what it sends
		sentBPS         uint64 // much later
		wantA, wantB    uint64
	}{
		"idle":               {at(1), 40e6, 0, 0, 0, 40e6},
		"busy":               {at(1), 40e6, 30e6, 30e6, 0, 10e6},
		"others have gone":   {at(1), 40e6, 40e6, 20e6, 0, 20e6},
		"full":               {at(1), 40e6, 40e6, 41e6, 0, 400e3},
		"no agent there":     {at(1), 0, 0, 0, 0, 0},
		"no repository":      {netip.Addr{}, 40e6, 0, 0, 0, 0},
		"it is on no node":   {at(9), 40e6, 0, 0, 0, 0},
		"it is on the other": {at(2), 40e6, 0, 0, 100e6, 0},
	} {
		p := images{repository: test.repository}
		var nodes []engine.Node
		for i, sent := range []uint64{test.before, test.sentBPS} {
			nodes = []engine.Node{{Name: "a", UplinkBPS: test.rateBPS, UplinkSentBPS: sent}, {Name: "b", UplinkBPS: 100e6}}
			p.measurePulls(nodes, measured, now.Add(time.Duration(i)*time.Minute))
		}
		if a, b := nodes[0].PullBPS, nodes[1].PullBPS; a != test.wantA || b+1000 < test.wantB || b > test.wantB+1000 {
			t.Errorf("%s: a gets images at %d bit/s, b at %d, want %d and %d", name, a, b, test.wantA, test.wantB)
		}
	}
	// What others send for a moment changes little.
	p := images{repository: at(1)}
	for i, sent := range []uint64{0, 40e6} {
		nodes := []engine.Node{{UplinkBPS: 40e6, UplinkSentBPS: sent}, {}}
		p.measurePulls(nodes, measured, now.Add(time.Duration(i)*500*time.Millisecond))
		if b := nodes[1].PullBPS; b < 35e6 {
			t.Errorf("after %d: b gets images at %d bit/s", i, b)
		}
	}
}

// TestTransferIsMeasured: the engine goes by the size that an image was measured to have, where
// its specification says none, and by the rate at which nodes get it.
func TestTransferIsMeasured(t *testing.T) {
	m, s := newManager(t), sending()
	m.images.repository = netip.AddrFrom4([4]byte{198, 18, 0, 1})
	s.nodes[0].Node.Address = m.images.repository // sends 60 of 100 Mbit/s
	s.services[0].Image = "example.test/shop:1"
	m.images.learn("a", "example.test/shop:1", runtime.Image{SizeBytes: 7e6, Took: time.Second}, m.journal.noteKept)
	in := m.input(s)
	if size := in.Services[0].Spec.ImageBytes; size != 7e6 {
		t.Errorf("the image has %d bytes, want what it was measured to have", size)
	}
	for i, want := range []uint64{0, 40e6, 40e6} {
		if rate := in.Nodes[i].PullBPS; rate != want {
			t.Errorf("%s gets images at %d bit/s, want %d", in.Nodes[i].Name, rate, want)
		}
	}
	shop := s.specs["shop"]
	shop.ImageBytes = 3e6
	s.specs["shop"] = shop
	if size := m.input(s).Services[0].Spec.ImageBytes; size != 3e6 {
		t.Errorf("the image has %d bytes, want what its specification says", size)
	}
}
