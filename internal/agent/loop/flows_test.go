package loop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/datapath/flows"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// fakeFlows is a kernel that keeps flows, as far as it is let.
type fakeFlows struct {
	tables   map[uint16]int
	closed   []uint16
	attached []uint16
	// flows are how many each number has, and told how often somebody asked.
	flows  map[uint16]int
	told   int
	during func() // happens while they are told
	// What it does not do.
	classifier, attach error
	table              map[uint16]error
	trust              error
	// cgroups are those of which what they are sent was asked for.
	cgroups []string
	// trusted are those whose DSCP field decides.
	trusted map[uint16]bool
}

func (f *fakeFlows) SetTrustDSCP(number uint16, trust bool) error {
	if f.trusted == nil {
		f.trusted = map[uint16]bool{}
	}
	f.trusted[number] = trust
	return f.trust
}

func (f *fakeFlows) SetClassifier(identity.FlowClassifier) error { return f.classifier }
func (f *fakeFlows) TableFlows(number uint16) (int, error)       { return f.tables[number], nil }
func (f *fakeFlows) Close() error                                { return nil }
func (f *fakeFlows) Each(number uint16, fn func(identity.Flow) bool) error {
	if f.told++; f.during != nil {
		f.during()
	}
	for range f.flows[number] {
		fn(identity.Flow{})
	}
	return nil
}
func (f *fakeFlows) AttachFlows(_ identity.Tap, number uint16) error {
	f.attached = append(f.attached, number)
	return f.attach
}

func (f *fakeFlows) AttachCgroup(path string, number uint16) error {
	f.cgroups = append(f.cgroups, fmt.Sprint(number, " ", path))
	return f.attach
}

func (f *fakeFlows) OpenTable(number uint16, flows int) error {
	if err := f.table[number]; err != nil {
		return err
	}
	f.tables[number] = flows
	return nil
}

func (f *fakeFlows) CloseTable(number uint16) error {
	delete(f.tables, number)
	f.closed = append(f.closed, number)
	return nil
}

// useFlows has the agent keep flows in a kernel, and forget what it knew of one.
func (b *bench) useFlows() *fakeFlows {
	f := &fakeFlows{tables: map[uint16]int{}, table: map[uint16]error{}}
	b.Agent.attach.Flows = flows.New(f, 0)
	return f
}

// startAuto starts a container whose class is auto, behind a device.
func (b *bench) startAuto(name string) *share {
	c := b.start(name, "class=auto")
	c.container.Devices = []attach.Device{{Attachment: identity.Attachment{Interface: "eth0", Mode: v1.ModeBridge}}}
	return c
}

// Flows are looked for at devices that the state file knows, whatever their names are now.
func TestFlowsAreAtKnownDevices(t *testing.T) {
	const loopback = 1
	saved := []*state.Uplink{{Name: "br0"}, {Name: "gone", Ifindex: 1 << 30}, {Name: "renamed", Ifindex: loopback}}
	if got, err := indexesOf([]UplinkConfig{{Name: "nowhere"}}, saved); err != nil || !slices.Equal(got, []int{loopback}) {
		t.Errorf("indexes %v, %v", got, err)
	}
}

// A container whose class is auto is not ok while its flows are not told apart, and
// says why; it is again when they are. Others do not suffer.
func TestFlowsNotInForce(t *testing.T) {
	noMemory := errors.New("no memory")
	for _, test := range []struct {
		name      string
		fail      func(f *fakeFlows, number uint16)
		reason    string
		othersToo bool
	}{
		{"no table", func(f *fakeFlows, number uint16) { f.table[number] = noMemory }, "its flows are not classified: no memory", false},
		{"no classifier", func(f *fakeFlows, _ uint16) { f.classifier = noMemory }, "its flows are not classified: no memory", true},
		{"no tap", func(f *fakeFlows, _ uint16) { f.attach = noMemory }, "its flows through eth0 are not classified: no memory", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, 100e6)
			kernel := b.useFlows()
			other, plain, c := b.startAuto("other"), b.start("plain"), b.startAuto("c")
			test.fail(kernel, c.container.Number)
			check := func(when string, s *share, want v1.State, reason string) {
				t.Helper()
				if state, got := s.container.state(); state != want || !strings.Contains(got, reason) {
					t.Errorf("%s: %s is %s: %s; want %s: %s", when, s.container.Seen.Name, state, got, want, reason)
				}
			}
			for _, when := range []string{"first", "again", "later"} {
				b.reconcile()
				check(when, c, v1.StateDegraded, test.reason)
				check(when, plain, v1.StateOK, "")
				if !test.othersToo {
					check(when, other, v1.StateOK, "")
				}
				if when == "again" {
					b.control(epoch)
					b.control(epoch.Add(time.Minute))
				}
			}
			kernel.table, kernel.classifier, kernel.attach = nil, nil, nil
			kernel.attached = nil
			b.reconcile()
			b.control(epoch.Add(2 * time.Minute))
			check("mended", c, v1.StateOK, "")
			if !slices.Contains(kernel.attached, c.container.Number) {
				t.Error("its tap does not look at flows")
			}
		})
	}
}

// What a host-mode container is sent is looked at, at its cgroup, for as long as its
// flows are, and of no other; where it cannot be, that is said until it can.
func TestAnswers(t *testing.T) {
	b := newBench(t, 100e6)
	kernel := b.useFlows()
	b.startAuto("bridged")
	seen := discovery.Container{ID: "1", Name: "c", Runtime: "docker", HostNetwork: true, CgroupPath: "/sys/fs/cgroup/none", StartedAt: epoch,
		Labels: map[string]string{"weir.class": "auto"}}
	b.containers.learn(discovery.Event{Source: "docker", Updated: &seen})
	kernel.attach = errors.New("no memory")
	b.reconcile()
	c := b.containers.byKey[key{"docker", "1"}]
	if state, reason := c.state(); state != v1.StateDegraded || !strings.Contains(reason, "packets that it receives are not counted for its flows: no memory") {
		t.Errorf("%s: %s", state, reason)
	}
	kernel.attach, kernel.cgroups = nil, nil
	for range 2 {
		b.reconcile()
	}
	if state, reason := c.state(); state != v1.StateOK {
		t.Errorf("when it can be: %s: %s", state, reason)
	}
	want := []string{fmt.Sprint(c.Number, " /sys/fs/cgroup/none")}
	if !slices.Equal(kernel.cgroups, want) {
		t.Errorf("asked for %v, want %v", kernel.cgroups, want)
	}
	for _, class := range []string{"ef", "auto"} {
		must.Succeed(t, b.set(c, v1.PolicyChange{Class: &class}))
		b.reconcile()
	}
	if !slices.Equal(kernel.cgroups, append(want, want...)) {
		t.Errorf("after it had another class for a while: asked for %v", kernel.cgroups)
	}
}

// The DSCP field is trusted, and marked, of those who ask for it, and as long as they do;
// where it cannot be, that is said.
func TestDSCP(t *testing.T) {
	b := newBench(t, 100e6)
	kernel := b.useFlows()
	c, plain := b.start("c", "class=auto", "dscp=both"), b.start("plain", "class=ef")
	check := func(when string, trusts, marks bool) {
		t.Helper()
		b.reconcile()
		if kernel.trusted[c.container.Number] != trusts || b.classifier.marked[c.container.Number] != marks || b.classifier.marked[plain.container.Number] {
			t.Errorf("%s: trusted %v, marked %v", when, kernel.trusted, b.classifier.marked)
		}
	}
	check("both", true, true)
	for _, step := range []struct {
		use           string
		trusts, marks bool
	}{{"trust", true, false}, {"mark", false, true}, {"none", false, false}} {
		must.Succeed(t, b.set(c.container, v1.PolicyChange{DSCP: &step.use}))
		check(step.use, step.trusts, step.marks)
	}
	use := "both"
	must.Succeed(t, b.set(c.container, v1.PolicyChange{DSCP: &use}))
	kernel.trust = errors.New("no map")
	b.reconcile()
	if state, reason := c.container.state(); state != v1.StateDegraded || !strings.Contains(reason, "its DSCP field is not in force: no map") {
		t.Errorf("%s: %s", state, reason)
	}
	kernel.trust, b.classifier.err = nil, errors.New("no program")
	use = "trust"
	must.Succeed(t, b.set(c.container, v1.PolicyChange{DSCP: &use}))
	b.reconcile()
	if state, reason := c.container.state(); state != v1.StateDegraded || !strings.Contains(reason, "no program") {
		t.Errorf("%s: %s", state, reason)
	}
}

// A reload puts another classifier in place; one that the kernel has no memory for, or a
// reload that is refused for anything else, leaves the one before.
func TestReloadOfTheClassifier(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	kernel := b.useFlows()
	other, err := flows.Load("", []string{"P2P=AF"}, nil)
	must.Succeed(t, err)
	b.startAuto("c")
	b.reconcile()
	next := Settings{Uplinks: []UplinkConfig{{Name: "up0", RateBPS: 100e6}}, Host: v1.Policy{Weight: 100}, Classifier: other}
	b.Agent.config.Reload = func() (Settings, error) { return next, nil }
	inForce := func() []string { return b.Agent.status().Classifier.Levels }
	kernel.classifier = errors.New("no memory")
	if err := reload(ctx, b); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no memory") || inForce() != nil {
		t.Errorf("no memory: %v, in force %v", err, inForce())
	}
	kernel.classifier = nil
	next.Uplinks = []UplinkConfig{{Name: "up0", RateBPS: 100e6}, {Name: "up0", RateBPS: 1}}
	if err := reload(ctx, b); !errors.Is(err, ErrRefused) || inForce() != nil {
		t.Errorf("wrong uplinks: %v, in force %v", err, inForce())
	}
	next.Uplinks = next.Uplinks[:1]
	if err := reload(ctx, b); err != nil || !slices.Equal(inForce(), []string{"P2P=AF"}) {
		t.Errorf("%v, in force %v", err, inForce())
	}
}

// A container without a network has no flows, and says so rather than ok.
func TestFlowsOfNoNetwork(t *testing.T) {
	b := newBench(t, 100e6)
	b.useFlows()
	c := &container{Container: attach.Container{Seen: discovery.Container{
		ID: "1", Name: "c", Runtime: "docker", NoNetwork: true, Labels: map[string]string{"weir.class": "auto"},
	}}}
	b.containers.addShares(c)
	b.containers.resolve(c)
	b.containers.inspect(c)
	if state, reason := c.state(); state != v1.StateDegraded || reason != "weir.class is not in force: it has no network" {
		t.Errorf("it is %s: %s", state, reason)
	}
	delete(c.Seen.Labels, "weir.class")
	b.containers.resolve(c)
	if state, reason := c.state(); state != v1.StateOK {
		t.Errorf("without a class it is %s: %s", state, reason)
	}
}

// Who gets a number that another had begins without the other's flows and class.
func TestNumberOfAnother(t *testing.T) {
	b := newBench(t, 100e6)
	kernel := b.useFlows()
	first := b.startAuto("first")
	b.reconcile()
	number := first.container.Number
	if kernel.tables[number] == 0 || b.classifier.classes[number] != identity.ClassAuto {
		t.Fatalf("tables %v, classes %v", kernel.tables, b.classifier.classes)
	}
	b.containers.release(first.container)
	if got := b.classifier.classes[number]; kernel.tables[number] != 0 || got != sched.Unclassified {
		t.Errorf("after its holder is gone the number has %d flows and class %d", kernel.tables[number], got)
	}
	// The same one comes back with another number, and has its class there.
	if !b.containers.assign(first.container, number+7) {
		t.Fatal("the number is taken")
	}
	b.reconcile()
	if got := b.classifier.classes[number+7]; got != identity.ClassAuto || kernel.tables[number+7] == 0 {
		t.Errorf("with another number its class is %d, of %d flows", got, kernel.tables[number+7])
	}
}

// What an earlier agent left of a number's last holder is not the next one's; what it
// left of a container that still has the number is.
func TestNumberOfAnEarlierAgent(t *testing.T) {
	b := newBench(t, 100e6)
	kernel := b.useFlows()
	next := b.containers.next
	kernel.tables[next], kernel.tables[next+1] = 4096, 8192
	b.classifier.classes[next] = identity.ClassAuto
	for i, preferred := range []uint16{0, next + 1} {
		c := b.container("c", i)
		b.containers.number(c, preferred)
	}
	b.reconcile()
	if kernel.tables[next] == 4096 || kernel.tables[next+1] != 8192 || !slices.Equal(kernel.closed, []uint16{next}) {
		t.Errorf("tables %v, closed %v", kernel.tables, kernel.closed)
	}
	if got := b.classifier.forgotten; !slices.Equal(got, []uint16{next}) {
		t.Errorf("classes of %v were forgotten", got)
	}
}

// container is one whose class is auto and that has no number yet.
func (b *bench) container(name string, i int) *container {
	c := &container{Container: attach.Container{Seen: discovery.Container{
		ID: strings.Repeat(string(rune('a'+i)), 12), Name: name, Runtime: "docker",
		Labels: map[string]string{"weir.class": "auto"}, StartedAt: epoch,
	}, Mode: v1.ModeBridge}}
	b.containers.addShares(c)
	b.containers.resolve(c)
	b.containers.byKey[c.key()] = c
	return c
}

// Many who look at flows cost no more than one, for a moment; and what is kept of them is
// bounded, and not kept for longer.
func TestFlowsAreShared(t *testing.T) {
	reads := 0
	read := func(n int) func(time.Time) ([]v1.Flow, error) {
		return func(time.Time) ([]v1.Flow, error) { reads++; return make([]v1.Flow, n), nil }
	}
	var lately flowsLately
	for _, step := range []struct {
		key   flowKey
		at    time.Duration
		reads int
	}{
		{flowKey{5, 10}, 0, 1}, {flowKey{5, 10}, flowsAge, 1}, {flowKey{6, 10}, flowsAge, 2}, {flowKey{5, 11}, flowsAge, 3},
		{flowKey{5, 10}, flowsAge + 1, 4}, {flowKey{5, 10}, flowsAge + 2, 4},
		{flowKey{5, 10}, 0, 5}, // the clock was set back
	} {
		if live, err := lately.get(step.key, epoch.Add(step.at), read(3)); err != nil || len(live) != 3 || reads != step.reads {
			t.Errorf("%+v: %d flows, read %d times, %v", step, len(live), reads, err)
		}
	}
	for i := range 10 {
		_, _ = lately.get(flowKey{7, i}, epoch, read(mostFlows/4))
	}
	if held := lately.held; held > mostFlows {
		t.Errorf("%d flows are kept", held)
	}
	lately.drop()
	if lately.by != nil || lately.held != 0 {
		t.Errorf("later %d flows are kept", lately.held)
	}
	failed := errors.New("no memory")
	for range 2 {
		if _, err := lately.get(flowKey{8, 1}, epoch, func(time.Time) ([]v1.Flow, error) { return nil, failed }); !errors.Is(err, failed) {
			t.Errorf("a failure is not told: %v", err)
		}
	}
}

// Flows are those of the container that has the number when they are read.
func TestFlowsOfAnother(t *testing.T) {
	b := newBench(t, 100e6)
	kernel := b.useFlows()
	first := b.startAuto("first")
	kernel.flows = map[uint16]int{first.container.Number: 1}
	b.reconcile()
	b.publish(epoch)
	if flows, err := b.Flows(t.Context(), "first", 0); err != nil || len(flows) != 1 {
		t.Errorf("%+v, %v", flows, err)
	}
	b.flowsLately.drop()
	kernel.during = func() { b.board.Publish(&stats.Snapshot{}) } // it is gone
	if flows, err := b.Flows(t.Context(), "first", 0); err != nil || len(flows) != 0 || kernel.told != 2 {
		t.Errorf("whose number is another's by now has %+v, %v, read %d times", flows, err, kernel.told)
	}
}
