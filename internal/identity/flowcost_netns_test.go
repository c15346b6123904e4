//go:build netns

package identity_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/appid/flow"
	"github.com/weir-project/weir/internal/flows"
	"github.com/weir-project/weir/internal/identity"
)

// BenchmarkFlows tells what it costs a packet to be classified: of a known flow, and the
// first of one. BPF_PROG_TEST_RUN repeats one packet without a system call for each, and
// it changes nothing of it; for first packets a closing flow is begun again each time
// by a SYN. The empty run (the program of a container without a table) is
// subtracted from neither, and reported.
//
//	go test -tags netns -run - -bench Flows ./internal/identity
func BenchmarkFlows(b *testing.B) {
	f, err := identity.OpenFlows()
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	model, err := appid.Shipped()
	if err != nil {
		b.Fatal(err)
	}
	classifier, err := flows.Classifier(model)
	if err != nil {
		b.Fatal(err)
	}
	if err := f.SetClassifier(classifier); err != nil {
		b.Fatal(err)
	}
	if err := f.OpenTable(number, 1<<16); err != nil {
		b.Fatal(err)
	}
	tap, back, err := f.LoadFlowPrograms(number)
	if err != nil {
		b.Fatal(err)
	}
	defer back.Close()
	defer tap.Close()
	without, backWithout, err := f.LoadFlowPrograms(number + 1)
	if err != nil {
		b.Fatal(err)
	}
	defer backWithout.Close()
	defer without.Close()
	four := model4()
	six := four
	six.initiator, six.responder = netip.MustParseAddrPort("[fd00::1]:40000"), netip.MustParseAddrPort("[fd00::2]:443")
	closing := four.frame(true, true, 0)
	closing[14+20+13] |= 1 // SYN and FIN: each begins the flow anew
	for _, bench := range []struct {
		name    string
		program *ebpf.Program
		packet  []byte
	}{
		{"none", without, four.frame(true, false, 1000)},
		{"known-IPv4", tap, four.frame(true, false, 1000)},
		{"known-IPv6", tap, six.frame(true, false, 1000)},
		{"first-IPv4", tap, closing},
	} {
		b.Run(bench.name, func(b *testing.B) {
			if _, err := bench.program.Run(&ebpf.RunOptions{Data: bench.packet, Repeat: 10}); err != nil {
				b.Fatal(err)
			}
			const repeat = 100000
			for b.Loop() {
				if _, err := bench.program.Run(&ebpf.RunOptions{Data: bench.packet, Repeat: repeat}); err != nil {
					b.Fatal(err)
				}
			}
			ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / repeat
			b.ReportMetric(ns, "ns/packet")
			b.ReportMetric(1e3/ns, "Mpackets/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// model4 is a web client's flow.
func model4() model {
	return model{
		proto: flow.TCP, ttl: 64, options: []byte{2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7},
		initiator: netip.MustParseAddrPort("198.18.0.1:40000"), responder: netip.MustParseAddrPort("198.18.0.2:443"),
	}
}

// TestManyFlows fills a table for a million flows: what has come lately is there.
func TestManyFlows(t *testing.T) {
	const size = 1 << 20
	k := openKernelFlows(t, size)
	k.shipped()
	r := rand.New(rand.NewPCG(12, 13))
	m := model4()
	frame := m.frame(true, true, 0)
	var last []byte
	for range size + size/4 {
		last = append(last[:0], frame...)
		for i := range 8 {
			last[26+i] = byte(r.Uint32())
		}
		if _, err := k.tap.Run(&ebpf.RunOptions{Data: last}); err != nil {
			t.Fatal(err)
		}
	}
	counts, err := k.Counts(number)
	if err != nil || counts.Created < size || counts.Lost > 0 || counts.Created-counts.Evicted < size*8/10 || counts.Evicted == 0 {
		t.Errorf("counts %+v, %v", counts, err)
	}
	oldest, n := identity.Flow{}, 0
	if err := k.Each(number, func(f identity.Flow) bool {
		n++
		if f.Idle > oldest.Idle {
			oldest = f
		}
		return true
	}); err != nil || n != int(counts.Created-counts.Evicted) {
		t.Errorf("%d flows read of %d, %v", n, counts.Created-counts.Evicted, err)
	}
	t.Logf("%d of %d flows are there (%+v)", n, size+size/4, counts)
}
