package flows

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// memory is a kernel that remembers what it was told.
type memory struct {
	tables      map[uint16]int
	flows       []identity.Flow
	classifiers []identity.FlowClassifier
	trusted     []bool
	refuse      error
}

func (m *memory) SetClassifier(c identity.FlowClassifier) error {
	m.classifiers = append(m.classifiers, c)
	return m.refuse
}
func (m *memory) OpenTable(number uint16, flows int) error { m.tables[number] = flows; return m.refuse }
func (m *memory) TableFlows(number uint16) (int, error)    { return m.tables[number], nil }
func (m *memory) CloseTable(number uint16) error           { delete(m.tables, number); return nil }
func (*memory) AttachFlows(identity.Tap, uint16) error     { return nil }
func (*memory) AttachCgroup(string, uint16) error          { return nil }
func (m *memory) Close() error                             { return nil }
func (m *memory) SetTrustDSCP(number uint16, trust bool) error {
	m.trusted = append(m.trusted, trust)
	return m.refuse
}
func (m *memory) Each(_ uint16, fn func(identity.Flow) bool) error {
	for _, f := range m.flows {
		if !fn(f) {
			break
		}
	}
	return nil
}

func TestTables(t *testing.T) {
	// An earlier agent left tables of one that still runs and of one that does not.
	kernel := &memory{tables: map[uint16]int{20: 4096, 21: 4096}}
	m := New(kernel, 0)
	for _, step := range []struct {
		numbers []uint16
		want    map[uint16]int
	}{
		{[]uint16{20, 30}, map[uint16]int{20: 4096, 30: 32768}},
		{[]uint16{30}, map[uint16]int{30: 32768}},
		{[]uint16{30, 31}, map[uint16]int{30: 32768, 31: 32768}},
		{nil, map[uint16]int{}},
		{[]uint16{50}, map[uint16]int{50: mostFlows}},
		{nil, map[uint16]int{}},
	} {
		must.Succeed(t, m.Keep(step.numbers))
		if !maps.Equal(kernel.tables, step.want) {
			t.Errorf("tables for %v: %v, want %v", step.numbers, kernel.tables, step.want)
		}
	}
	if len(kernel.classifiers) != 1 {
		t.Errorf("the classifier was loaded %d times", len(kernel.classifiers))
	}
	kernel.refuse = errors.New("no memory")
	if err := m.Keep([]uint16{40}); err == nil {
		t.Error("that there was no memory is not told")
	}
}

// A thousand containers have room for what they are promised.
func TestTablesOfMany(t *testing.T) {
	kernel := &memory{tables: map[uint16]int{}}
	m := New(kernel, 0)
	var numbers []uint16
	for n := range uint16(1000) {
		numbers = append(numbers, identity.NumberFirst+n)
	}
	must.Succeed(t, m.Keep(numbers))
	sum := 0
	for number, size := range kernel.tables {
		if size < leastFlows || size > mostFlows {
			t.Errorf("number %d has %d flows", number, size)
		}
		sum += size
	}
	if sum < allFlows*9/10 || sum > 2*allFlows {
		t.Errorf("%d flows in all", sum)
	}
}

// On a small machine all tables take a small part of its memory.
func TestTablesOnSmallMachine(t *testing.T) {
	kernel := &memory{tables: map[uint16]int{}}
	m := New(kernel, 512<<20)
	var numbers []uint16
	for n := range uint16(50) {
		numbers = append(numbers, identity.NumberFirst+n)
	}
	must.Succeed(t, m.Keep(numbers))
	sum := 0
	for _, size := range kernel.tables {
		sum += size * flowBytes
	}
	if first := kernel.tables[identity.NumberFirst]; sum > 512<<20/40 || first < 4*leastFlows {
		t.Errorf("%d MiB in all, the first has %d flows", sum>>20, first)
	}
}

// The kernel has a place for what the shipped classifier asks; what it has none for is
// refused, and named.
func TestClassifier(t *testing.T) {
	model, err := apps.Shipped()
	must.Succeed(t, err)
	c, err := Classifier(model)
	must.Succeed(t, err)
	if len(c.Ports) != identity.FlowPorts || len(c.Nodes) == 0 || apps.MaxNodes != identity.FlowNodes || apps.MaxTrees != identity.FlowTrees {
		t.Errorf("%d nodes, %d ports", len(c.Nodes), len(c.Ports))
	}
	places := map[uint8]string{}
	for _, f := range flow.Features(apps.Types) {
		tree := &apps.Compact{
			Nodes: []apps.CompactNode{
				{Feature: apps.LeafFeature},
				{Feature: f.Code, Left: 2, Right: 3}, {Feature: apps.LeafFeature}, {Feature: apps.LeafFeature, Level: 2},
			},
			Roots: [2][]uint16{{0}, {1}},
		}
		c, err := FromCompact(tree)
		measured := !strings.Contains(f.Name, "_us") && !strings.HasPrefix(f.Name, "seq_iat") &&
			!slices.Contains([]string{"mss_s2c", "win_s2c", "wscale_s2c", "ttl_s2c"}, f.Name)
		if !measured {
			if err == nil || !strings.Contains(err.Error(), f.Name) {
				t.Errorf("%s: error %v", f.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		at := c.Nodes[1].Place
		if other, taken := places[at]; taken || int(at) >= identity.FlowWords {
			t.Errorf("%s has place %d, as %q", f.Name, at, other)
		}
		places[at] = f.Name
	}
	if _, err := FromCompact(&apps.Compact{}); err == nil {
		t.Error("a classifier of nothing is taken")
	}
	kernel := &memory{tables: map[uint16]int{}}
	model.MinConfidence = 2
	model.Stages[0].Trees = nil
	if _, err := choose(model); err == nil || len(kernel.classifiers) > 0 {
		t.Errorf("a broken classifier is taken, %v", err)
	}
}

func TestLive(t *testing.T) {
	now := time.Now()
	old := identity.Flow{Idle: 6 * time.Minute}
	call := identity.Flow{
		Initiator: netip.MustParseAddrPort("198.18.0.1:4000"), Responder: netip.MustParseAddrPort("[fd00::1]:5060"), Proto: 17,
		Bytes: [2]uint64{10, 20}, Packets: [2]uint32{1, 2}, Idle: time.Second, Age: time.Minute,
		Class: sched.EF, Type: 0, Stage: 2, LevelConfidence: 0.75, DelayNs: 250_000, DelayPackets: 4,
	}
	asked := identity.Flow{Initiator: call.Initiator, Responder: call.Initiator, Proto: 6, Class: sched.BE, Stage: 1, DSCPClass: sched.AF}
	unknown := identity.Flow{Initiator: call.Initiator, Responder: call.Initiator, Proto: 6, Idle: time.Minute}
	kernel := &memory{flows: []identity.Flow{unknown, old, call}}
	got, err := New(kernel, 0).Live(16, 0, now)
	must.Succeed(t, err)
	want := []v1.Flow{
		{
			Protocol: "udp", Initiator: "198.18.0.1:4000", Responder: "[fd00::1]:5060", Application: "VOIP", Class: v1.ClassEF, Stage: 2,
			Confidence: 0.75, DelayMS: 0.25, SentBytes: 10, SentPackets: 1, ReceivedBytes: 20, ReceivedPackets: 2,
			BeganAt: now.Add(-time.Minute), LastSeenAt: now.Add(-time.Second),
		},
		{Protocol: "tcp", Initiator: "198.18.0.1:4000", Responder: "198.18.0.1:4000", BeganAt: now, LastSeenAt: now.Add(-time.Minute)},
	}
	if !slices.Equal(got, want) {
		t.Errorf("live flows %+v, want %+v", got, want)
	}
	if got := view(asked, now); got.Class != v1.ClassAF || !got.ByDSCP || got.Stage != 1 {
		t.Errorf("of a class that its DSCP asked for: %+v", got)
	}
	if got := view(identity.Flow{Class: sched.BE, Doubtful: true}, now); got.Why != "uncertain" {
		t.Errorf("why is %q of a verdict that is too uncertain", got.Why)
	}
	for _, test := range []struct {
		bytes uint32
		run   time.Duration
		want  string
	}{{18_123, 12_345_678, "bulk: 18 kB in 12ms"}, {1_200_000, 0, "bulk: 1200 kB at once"}} {
		if got := view(identity.Flow{Class: sched.BE, Bulk: true, RunBytes: test.bytes, Run: test.run}, now); got.Why != test.want {
			t.Errorf("why is %q, want %q", got.Why, test.want)
		}
	}
	for range 100 {
		kernel.flows = append(kernel.flows, unknown)
	}
	if got, err := New(kernel, 0).Live(16, 3, now); err != nil || len(got) != 3 || got[0] != want[0] {
		t.Errorf("the last three: %+v, %v", got, err)
	}
}
