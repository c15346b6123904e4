//go:build netns

package identity_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/datapath/flows"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/lab/train"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// The programs are run on packets that are made here (BPF_PROG_TEST_RUN), without any
// device. What they say is compared with the definition in Go, which reads the same
// packets from a capture.

const number = identity.NumberFirst + 5

// kernelFlows are the kernel's flows of one container, and its programs.
type kernelFlows struct {
	t *testing.T
	*identity.Flows
	tap, back *ebpf.Program
}

func openKernelFlows(t *testing.T, size int) *kernelFlows {
	t.Helper()
	f, err := identity.OpenFlows()
	must.Succeed(t, err)
	k := &kernelFlows{t: t, Flows: f}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	must.Succeed(t, f.OpenTable(number, size))
	if k.tap, k.back, err = f.LoadFlowPrograms(number); err != nil {
		var verifier *ebpf.VerifierError
		if errors.As(err, &verifier) {
			t.Fatalf("%+v", verifier)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { k.tap.Close(); k.back.Close() })
	return k
}

// shipped puts the classifier that Weir comes with in place, and returns it.
func (k *kernelFlows) shipped() *apps.Compact {
	k.t.Helper()
	model, err := apps.Shipped()
	must.Succeed(k.t, err)
	compact, err := model.Compact()
	must.Succeed(k.t, err)
	k.set(compact)
	return compact
}

func (k *kernelFlows) set(c *apps.Compact) {
	k.t.Helper()
	classifier, err := flows.FromCompact(c)
	must.Succeed(k.t, err)
	must.Succeed(k.t, k.SetClassifier(classifier))
}

// context is struct __sk_buff as far as tests use it; priority comes back in it.
type context struct {
	Len, PktType, Mark, QueueMapping, Protocol, VlanPresent, VlanTci, VlanProto, Priority uint32
	_                                                                                     [160]byte
}

// class runs a program on a packet and returns the class that it gives it.
func (k *kernelFlows) class(program *ebpf.Program, packet []byte) sched.TrafficClass {
	k.t.Helper()
	var out context
	verdict, err := program.Run(&ebpf.RunOptions{Data: packet, Context: context{}, ContextOut: &out})
	if err != nil {
		k.t.Fatalf("run on %x: %v", packet, err)
	}
	if verdict != ^uint32(0) { // TC_ACT_UNSPEC: others decide
		k.t.Fatalf("verdict %d for %x", verdict, packet)
	}
	class, ours := identity.ClassInPriority(out.Priority, number)
	if program == k.tap && !ours {
		k.t.Fatalf("priority %#x of %x is no tag of %d", out.Priority, packet, number)
	}
	return class
}

// all are the flows in the table, by tuple.
func (k *kernelFlows) all() map[string]identity.Flow {
	k.t.Helper()
	out := map[string]identity.Flow{}
	err := k.Each(number, func(f identity.Flow) bool {
		out[tuple(f.Proto, f.Initiator, f.Responder)] = f
		return true
	})
	must.Succeed(k.t, err)
	return out
}

// tuple is as package flow writes it.
func tuple(proto uint8, a, b netip.AddrPort) string {
	write := func(e netip.AddrPort) string {
		if e.Addr().Is4() {
			return e.String()
		}
		var groups []string
		for i := 0; i < 16; i += 2 {
			b := e.Addr().As16()
			groups = append(groups, fmt.Sprintf("%x", binary.BigEndian.Uint16(b[i:])))
		}
		return fmt.Sprintf("[%s]:%d", strings.Join(groups, ":"), e.Port())
	}
	return fmt.Sprintf("%s %s > %s", map[uint8]string{6: "tcp", 17: "udp"}[proto], write(a), write(b))
}

// capture reads Ethernet frames as a capture.
func capture(frames ...[]byte) []*flow.Flow {
	pcap := []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0}
	for i, frame := range frames {
		for _, v := range []uint32{1000, uint32(i), uint32(len(frame)), uint32(len(frame))} {
			pcap = binary.LittleEndian.AppendUint32(pcap, v)
		}
		pcap = append(pcap, frame...)
	}
	out, err := train.ReadCapture(bytes.NewReader(pcap))
	if err != nil {
		panic(err)
	}
	return out
}

// verdict is what the definition in Go says of a flow.
func verdict(c *apps.Compact, stage int, f *flow.Flow) apps.Verdict {
	features := map[uint8]uint32{}
	for _, feature := range flow.Features(apps.Types) {
		features[feature.Code] = feature.Word(feature.Of(f, flow.KnownPorts(apps.Types)))
	}
	return c.Verdict(stage, func(code uint8) uint32 { return features[code] })
}

func classOf(v apps.Verdict) sched.TrafficClass {
	return map[apps.Level]sched.TrafficClass{apps.EF: sched.EF, apps.AF: sched.AF, apps.BE: sched.BE}[v.Level]
}

// The kernel gives the verdict of the definition in Go: for first packets of all
// kinds, whole and damaged.
func TestFirstPackets(t *testing.T) {
	k := openKernelFlows(t, 1<<17)
	for name, c := range map[string]*apps.Compact{"shipped": k.shipped(), "random": randomTree(rand.New(rand.NewPCG(7, 7)))} {
		t.Run(name, func(t *testing.T) {
			k.set(c)
			must.Succeed(t, k.OpenTable(number, 1<<17))
			before, err := k.Counts(number)
			must.Succeed(t, err)
			r := rand.New(rand.NewPCG(1, 2))
			classes := map[sched.TrafficClass]int{}
			want := map[string]apps.Verdict{}
			for i := range 20000 {
				packet := randomPacket(r)
				if i%3 == 0 {
					packet = damage(r, packet)
				}
				expected := sched.Unclassified
				if found := capture(packet); len(found) == 1 {
					v := verdict(c, 0, found[0])
					expected = classOf(v)
					want[found[0].Tuple] = v
				}
				got := k.class(k.tap, packet)
				if got != expected {
					t.Fatalf("packet %d, %x: class %d, want %d", i, packet, got, expected)
				}
				classes[got]++
			}
			if len(classes) < 3 {
				t.Errorf("too few classes came up to say anything: %v", classes)
			}
			t.Logf("classes: %v", classes)
			// With secret keys nobody knows whose buckets come together. That nine flows meet in
			// one of eight places happens to some in one run of fifty, and the kernel counts it.
			after, err := k.Counts(number)
			must.Succeed(t, err)
			evicted := int(after.Evicted - before.Evicted)
			if evicted > len(want)/1000 {
				t.Errorf("%d of %d flows have lost their places in a table for eight times as many", evicted, len(want))
			}
			all := k.all()
			for tuple, v := range want {
				got, ok := all[tuple]
				if !ok && evicted > 0 {
					evicted--
					continue
				}
				if !ok || int(got.Type) != v.Type || got.Class != classOf(v) || abs(got.LevelConfidence-v.LevelConfidence) > 1e-4 {
					t.Errorf("%s is %+v, want %+v", tuple, got, v)
				}
			}
			for tuple := range all {
				if _, ok := want[tuple]; !ok {
					t.Errorf("%s is no flow of these packets", tuple)
				}
			}
		})
	}
}

func abs(v float64) float64 { return max(v, -v) }

// The second stage says what the definition in Go says of the same packets, in either
// direction, and does so after six of them.
func TestSecondStage(t *testing.T) {
	k := openKernelFlows(t, 8)
	c := k.shipped()
	r := rand.New(rand.NewPCG(3, 4))
	changed := 0
	for range 3000 {
		m := plainFlow(r)
		var frames [][]byte
		payloads := 0
		for i := 0; payloads < 6; i++ {
			out, size := i == 0 || r.IntN(2) == 0, r.IntN(1400)
			if i > 0 && size > 0 || m.proto == flow.UDP && size > 0 {
				payloads++
			}
			if i == 0 && m.proto == flow.TCP {
				size = 0
			}
			frame := m.frame(out, i == 0, size)
			frames = append(frames, frame)
			program := k.tap
			if !out {
				program = k.back
			}
			k.class(program, frame)
			if payloads == 5 {
				if f := k.one(m); f.Stage != 1 {
					t.Fatalf("stage %d after 5 packets with payload", f.Stage)
				}
			}
		}
		found := capture(frames...)
		if len(found) != 1 {
			t.Fatalf("%d flows in Go", len(found))
		}
		want := verdict(c, 1, found[0])
		got := k.one(m)
		if got.Stage != 2 || int(got.Type) != want.Type || got.Class != classOf(want) {
			t.Fatalf("%s: %+v, want %+v", found[0].Tuple, got, want)
		}
		if classOf(verdict(c, 0, found[0])) != got.Class {
			changed++
		}
		if class := k.class(k.tap, m.frame(true, false, 100)); class != got.Class {
			t.Fatalf("the next packet is of class %d, want %d", class, got.Class)
		}
		if sum := got.Packets[0] + got.Packets[1]; int(sum) != len(frames) {
			t.Fatalf("%d packets counted, want %d", sum, len(frames))
		}
	}
	if changed == 0 {
		t.Error("the second stage never changed its mind")
	}
	t.Logf("%d of 3000 verdicts changed", changed)
}

// one is the flow of a model.
func (k *kernelFlows) one(m model) identity.Flow {
	k.t.Helper()
	var out identity.Flow
	err := k.Each(number, func(f identity.Flow) bool {
		if f.Initiator == m.initiator && f.Responder == m.responder {
			out = f
			return false
		}
		return true
	})
	must.Succeed(k.t, err)
	return out
}

// fragmenters make a fragment of a packet with an ID, from an offset on, with so many bytes of
// payload, and more to come or not.
var fragmenters = map[string]func(m model, id uint32, offset, size int, more bool) []byte{"IPv4": fragment4, "IPv6": fragment6}

// Fragments after the first have the class of the first; those of others have none.
func TestFragments(t *testing.T) {
	k := openKernelFlows(t, 1024)
	k.shipped()
	for name, make := range fragmenters {
		t.Run(name, func(t *testing.T) {
			m := model{
				proto:     flow.UDP,
				initiator: netip.MustParseAddrPort("198.18.0.9:40000"), responder: netip.MustParseAddrPort("198.18.9.1:5060"),
			}
			if name == "IPv6" {
				m.initiator, m.responder = netip.MustParseAddrPort("[fd00::9]:40000"), netip.MustParseAddrPort("[fd00::1]:5060")
			}
			if got := k.class(k.tap, make(m, 77, 1200, 64, true)); got != sched.Unclassified {
				t.Errorf("a later fragment that comes first is of class %d", got)
			}
			if got := k.class(k.tap, make(m, 77, 0, 64, true)); got != sched.EF {
				t.Errorf("a call's first fragment is of class %d", got)
			}
			if got := k.class(k.tap, make(m, 77, 1200, 64, false)); got != sched.EF {
				t.Errorf("its later fragment is of class %d", got)
			}
			if got := k.class(k.tap, make(m, 78, 1200, 64, false)); got != sched.Unclassified {
				t.Errorf("a later fragment of another packet is of class %d", got)
			}
		})
	}
	if all := k.all(); len(all) != 2 {
		t.Errorf("flows %v: want one for each family", all)
	}
}

// A classifier is replaced as a whole, flows keep their verdicts, and one that is
// corrupt, too deep, or asks for what there is not never gets there.
func TestReplaceClassifier(t *testing.T) {
	k := openKernelFlows(t, 1024)
	m := model{
		proto:     flow.UDP,
		initiator: netip.MustParseAddrPort("198.18.0.9:40000"), responder: netip.MustParseAddrPort("198.18.9.1:5060"),
	}
	if got := k.class(k.tap, m.frame(true, true, 100)); got != sched.Unclassified {
		t.Errorf("class %d without a classifier", got)
	}
	constant := func(level uint8) *apps.Compact {
		return &apps.Compact{Nodes: []apps.CompactNode{{Feature: apps.LeafFeature, Level: level, LevelConfidence: 1000}}, Roots: [2][]uint16{{0}, {0}}}
	}
	k.set(constant(2))
	m.initiator = netip.AddrPortFrom(m.initiator.Addr(), 40001)
	if got := k.class(k.tap, m.frame(true, true, 100)); got != sched.BE {
		t.Errorf("class %d, want BE", got)
	}
	k.set(constant(0))
	if got := k.class(k.tap, m.frame(true, true, 100)); got != sched.BE {
		t.Errorf("class %d of a known flow, want BE as before", got)
	}
	m.initiator = netip.AddrPortFrom(m.initiator.Addr(), 40002)
	if got := k.class(k.tap, m.frame(true, true, 100)); got != sched.EF {
		t.Errorf("class %d of a new flow, want EF", got)
	}
	loop := constant(0)
	loop.Nodes = append([]apps.CompactNode{{Feature: 2}}, loop.Nodes...)
	gap := constant(0)
	gap.Nodes = []apps.CompactNode{{Feature: 41, Left: 1, Right: 1}, gap.Nodes[0]}
	gap.Roots = [2][]uint16{{1}, {0}}
	for what, c := range map[string]*apps.Compact{"corrupt": loop, "not measured": gap} {
		if _, err := flows.FromCompact(c); err == nil {
			t.Errorf("a tree that is %s is taken", what)
		}
	}
	if err := k.SetClassifier(identity.FlowClassifier{Nodes: make([]identity.FlowNode, identity.FlowNodes+1)}); err == nil {
		t.Error("a tree with too many nodes is taken")
	}
}

// A table forgets who was silent for longest, and one container's flood does not touch
// another's flows.
func TestFloodOfFlows(t *testing.T) {
	k := openKernelFlows(t, 1024)
	k.shipped()
	const other = number + 1
	must.Succeed(t, k.OpenTable(other, 1024))
	tap, back, err := k.LoadFlowPrograms(other)
	must.Succeed(t, err)
	defer tap.Close()
	defer back.Close()
	r := rand.New(rand.NewPCG(5, 6))
	var kept []model
	for range 100 {
		m := plainFlow(r)
		kept = append(kept, m)
		if _, err := tap.Run(&ebpf.RunOptions{Data: m.frame(true, true, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20000 { // SYNs of one container
		m := plainFlow(r)
		m.proto = flow.TCP
		k.class(k.tap, m.frame(true, true, 0))
	}
	counts, err := k.Counts(number)
	if err != nil || counts.Created < 19900 || counts.Evicted < counts.Created-1024 || counts.Evicted == counts.Created {
		t.Errorf("counts %+v, %v", counts, err)
	}
	if all := k.all(); len(all) < 900 || len(all) > 1024 {
		t.Errorf("%d flows in a table of 1024", len(all))
	}
	found := 0
	err = k.Each(other, func(f identity.Flow) bool {
		found++
		return true
	})
	if err != nil || found != len(kept) {
		t.Errorf("%d of the other container's %d flows are left, %v", found, len(kept), err)
	}
}

// What others send begins flows as far as there is room, and never takes that of the
// container's own; the flow of one whom the container answers is its own.
func TestFloodFromOutside(t *testing.T) {
	k := openKernelFlows(t, 1024)
	k.shipped()
	r := rand.New(rand.NewPCG(10, 11))
	begin := func() model {
		m := plainFlow(r)
		m.proto, m.tags = flow.UDP, 0
		return m
	}
	var own []model
	for range 100 {
		m := begin()
		own = append(own, m)
		k.class(k.tap, m.frame(true, true, 100))
	}
	for range 100 { // others begin, the container answers
		m := begin()
		own = append(own, m)
		k.class(k.back, m.frame(true, true, 100))
		k.class(k.tap, m.frame(false, false, 100))
	}
	for range 20000 {
		k.class(k.back, begin().frame(true, true, 100))
	}
	all := k.all()
	for i, m := range own {
		f, ok := all[tuple(uint8(m.proto), m.initiator, m.responder)]
		if !ok {
			t.Errorf("flow %d of the container's is gone", i)
		} else if f.Stage != 1 || f.Packets[0] != 1 || i >= 100 && f.Packets[1] != 1 {
			t.Errorf("flow %d of the container's is %+v", i, f)
		}
	}
	// A container that begins flows gets the places of those that others began.
	for range 700 {
		m := begin()
		own = append(own, m)
		k.class(k.tap, m.frame(true, true, 100))
	}
	for range 20000 {
		k.class(k.back, begin().frame(true, true, 100))
	}
	all = k.all()
	found := 0
	for _, m := range own {
		if _, ok := all[tuple(uint8(m.proto), m.initiator, m.responder)]; ok {
			found++
		}
	}
	// The others met buckets that were full of the container's own.
	if found < len(own)*8/10 {
		t.Errorf("%d of the container's %d flows are left", found, len(own))
	}
	if counts, err := k.Counts(number); err != nil || counts.Refused == 0 || counts.Lost > 0 {
		t.Errorf("counts %+v, %v", counts, err)
	}
}

// The DSCP of a container that is trusted says the class, where it says one, of whole
// packets, fragments and others than TCP and UDP; of all others it is not looked at.
func TestTrustDSCP(t *testing.T) {
	k := openKernelFlows(t, 1024)
	const be = 2
	k.set(&apps.Compact{Nodes: []apps.CompactNode{{Feature: apps.LeafFeature, Level: be, LevelConfidence: 1000}}, Roots: [2][]uint16{{0}, {0}}})
	want := map[int]sched.TrafficClass{}
	for class, codes := range map[sched.TrafficClass][]int{
		sched.EF: {46, 44, 40, 48, 56},
		sched.AF: {10, 12, 14, 18, 20, 22, 26, 28, 30, 34, 36, 38, 16, 24, 32},
		sched.BE: {8, 1},
	} {
		for _, code := range codes {
			want[code] = class
		}
	}
	four, six := model4(), model4()
	four.proto, six.proto = flow.UDP, flow.UDP
	six.initiator, six.responder = netip.MustParseAddrPort("[fd00::1]:40000"), netip.MustParseAddrPort("[fd00::2]:443")
	icmp := four
	icmp.proto = 1
	packets := map[string]func() []byte{
		"IPv4":          func() []byte { return four.frame(true, true, 100) },
		"IPv6":          func() []byte { return six.frame(true, true, 100) },
		"IPv4 fragment": func() []byte { return fragment4(four, 5, 1200, 64, true) },
		"IPv6 fragment": func() []byte { return fragment6(six, 5, 1200, 64, true) },
		"no flow":       func() []byte { return icmp.frame(true, true, 100) },
	}
	mark := func(packet []byte, dscp int) []byte {
		if packet[14]>>4 == 4 {
			packet[15] = byte(dscp<<2) | 3
		} else {
			packet[14], packet[15] = 0x60|byte(dscp>>2), byte(dscp<<6)|0x30
		}
		return packet
	}
	for _, trust := range []bool{false, true, false} {
		must.Succeed(t, k.SetTrustDSCP(number, trust))
		for name, packet := range packets {
			verdict := sched.Unclassified // nothing to tell it by
			if name == "IPv4" || name == "IPv6" {
				verdict = sched.BE
			}
			for dscp := range 64 {
				expected := want[dscp]
				if !trust || expected == sched.Unclassified {
					expected = verdict
				}
				if got := k.class(k.tap, mark(packet(), dscp)); got != expected {
					t.Errorf("%s, trusted %v: DSCP %d is of class %d, want %d", name, trust, dscp, got, expected)
				}
			}
		}
		k.class(k.tap, mark(four.frame(true, true, 100), 46))
		asked := sched.Unclassified
		if trust {
			asked = sched.EF
		}
		if f := k.one(four); f.DSCPClass != asked || f.Class != sched.BE {
			t.Errorf("trusted %v: the flow is %+v", trust, f)
		}
	}
	must.Succeed(t, k.CloseTable(number))
	must.Succeed(t, k.SetTrustDSCP(number, true))
	if size, err := k.TableFlows(number); err != nil || size != 0 {
		t.Errorf("a table of %d flows that nobody opened, %v", size, err)
	}
	must.Succeed(t, k.OpenTable(number, 1024))
	if got := k.class(k.tap, mark(four.frame(true, true, 100), 46)); got != sched.EF {
		t.Errorf("class %d: what was set before the table was opened is lost", got)
	}
}

// What nobody would send changes nothing: the program ends, and gives a class or none.
func TestHostilePackets(t *testing.T) {
	k := openKernelFlows(t, 1<<12)
	c := k.shipped()
	r := rand.New(rand.NewPCG(8, 9))
	for name, packet := range hostile() {
		want := sched.Unclassified
		if found := capture(packet); len(found) == 1 {
			want = classOf(verdict(c, 0, found[0]))
		}
		if got := k.class(k.tap, packet); got != want {
			t.Errorf("%s: class %d, want %d", name, got, want)
		}
		for range 300 {
			k.class(k.tap, damage(r, packet))
		}
	}
	for range 20000 {
		packet := make([]byte, 15+r.IntN(200))
		for i := range packet {
			packet[i] = byte(r.Uint32())
		}
		copy(packet[12:], [][]byte{{8, 0}, {0x86, 0xdd}, {0x81, 0}, {0x88, 0x64}}[r.IntN(4)])
		k.class(k.tap, runnable(packet))
	}
}
