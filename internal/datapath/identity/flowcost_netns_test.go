//go:build netns

package identity_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/datapath/flows"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// BenchmarkFlows tells what it costs a packet to be classified: of a known flow, and
// the first of one. BPF_PROG_TEST_RUN repeats
// one packet without a system call for each, and it changes nothing of it; for first
// packets a closing flow is begun again each time by a SYN. Reported beside are what
// the machine takes for an empty program, for one with a look-up in a hash map of
// the same key, and for that of a container without a table.
//
// The programs take turns, in runs shorter than a time slice, and of each the fastest
// run counts: what else the machine does then changes little.
//
//	go test -tags netns -run - -bench Flows -benchtime 1x ./internal/datapath/identity
func BenchmarkFlows(b *testing.B) {
	f, err := identity.OpenFlows()
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	model, err := apps.Shipped()
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
	voice := four
	voice.proto, voice.responder = flow.UDP, netip.MustParseAddrPort("198.18.0.2:5060")
	closing := four.frame(true, true, 0)
	closing[14+20+13] |= 1 // SYN and FIN: each begins the flow anew
	empty, lookup := floors(b)
	cases := []struct {
		name    string
		program *ebpf.Program
		packet  []byte
	}{
		{"empty", empty, four.frame(true, false, 1000)},
		{"hash", lookup, four.frame(true, false, 1000)},
		{"none", without, four.frame(true, false, 1000)},
		{"known-IPv4", tap, four.frame(true, false, 1000)},
		{"known-IPv6", tap, six.frame(true, false, 1000)},
		{"known-EF", tap, voice.frame(true, false, 172)},
		{"answer-IPv4", back, four.frame(false, false, 1000)},
		{"first-IPv4", tap, closing},
	}
	const rounds, repeat = 400, 1000
	best := make([]time.Duration, len(cases))
	for b.Loop() {
		for range rounds {
			for i, c := range cases {
				if c.name != "first-IPv4" { // whose flow it has closed
					if _, err := c.program.Run(&ebpf.RunOptions{Data: c.packet, Repeat: 10}); err != nil {
						b.Fatal(err)
					}
				}
				start := time.Now()
				if _, err := c.program.Run(&ebpf.RunOptions{Data: c.packet, Repeat: repeat}); err != nil {
					b.Fatal(err)
				}
				if took := time.Since(start); best[i] == 0 || took < best[i] {
					best[i] = took
				}
			}
		}
	}
	for i, c := range cases {
		b.ReportMetric(float64(best[i].Nanoseconds())/repeat, c.name+"-ns/packet")
	}
	b.ReportMetric(0, "ns/op")
}

// floors are a program that does nothing, and one that looks a key of the size of a
// flow's up in a hash map, and finds it.
func floors(b *testing.B) (empty, lookup *ebpf.Program) {
	b.Helper()
	const keyBytes = 40
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: keyBytes, ValueSize: 64, MaxEntries: 1 << 16})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	if err := m.Put(make([]byte, keyBytes), make([]byte, 64)); err != nil {
		b.Fatal(err)
	}
	end := asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}
	look := asm.Instructions{asm.Mov.Imm(asm.R3, 0)}
	for word := int16(-keyBytes); word < 0; word += 8 {
		look = append(look, asm.StoreMem(asm.RFP, word, asm.R3, asm.DWord))
	}
	look = append(look, asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -keyBytes), asm.FnMapLookupElem.Call())
	programs := make([]*ebpf.Program, 2)
	for i, code := range []asm.Instructions{end, append(look, end...)} {
		if programs[i], err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: code, License: "GPL"}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { programs[i].Close() })
	}
	return programs[0], programs[1]
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
