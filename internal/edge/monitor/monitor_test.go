package monitor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/engine"
)

var start = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// agent answers what a test says.
type agent struct {
	mu       sync.Mutex
	node     v1.Node
	snapshot v1.Snapshot
	access   v1.Access
	noAccess error // an agent that does not say who asks
	err      error
	asked    int
	counted  []string
	hang     bool
	slow     bool // with counting
}

func (a *agent) Node(ctx context.Context, counted ...string) (v1.Node, error) {
	if a.slow && len(counted) > 0 {
		<-ctx.Done()
		return v1.Node{}, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted = counted
	return a.node, a.err
}

func (a *agent) Access(context.Context) (v1.Access, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.noAccess != nil {
		return v1.Access{}, a.noAccess
	}
	return a.access, a.err
}

func (a *agent) Snapshot(ctx context.Context) (v1.Snapshot, error) {
	a.mu.Lock()
	hang := a.hang
	a.asked++
	a.mu.Unlock()
	if hang {
		<-ctx.Done()
		return v1.Snapshot{}, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.snapshot, a.err
}

// board is an agent of a small node with a container "c1" that has a minimum of 5 Mbit/s.
func board(name string) *agent {
	cpu, bytes := 10.0, uint64(2e6)
	return &agent{
		node: v1.Node{
			PiID: name,
			Measured: v1.Measured{
				At: start, Hostname: name, CPUs: 4, CPUUsedPercent: 25, Load1: 0.5, MemoryBytes: 1e9, MemoryUsedBytes: 2e8, DiskBytes: 16e9, DiskFreeBytes: 9e9,
				Containers: []v1.MeasuredContainer{{ID: "c1", CPUSeconds: &cpu, MemoryBytes: &bytes}},
			},
		},
		snapshot: v1.Snapshot{
			Status: v1.Status{Version: "v1", Uplinks: []v1.Uplink{
				{Name: "wwan0", RateBPS: 10e6, Present: true},
				{Name: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, SentBPS: 40e6, Present: true},
				{Name: "eth1", RateBPS: 1e9},
			}},
			Containers: []v1.Container{
				{ID: "c1", Name: "web-1", Direction: v1.Direction{RateBPS: 4e6, Policy: v1.Policy{MinBPS: 5e6}, Shares: []v1.Share{{Uplink: "wwan0", AdmittedBPS: 1, RateBPS: 1e6}, {Uplink: "eth0", Controlled: true, AdmittedBPS: 5e6, EntitledBPS: 5e6, RateBPS: 3e6}}}, State: v1.StateOK},
				{ID: "c2", Name: "other", Direction: v1.Direction{Policy: v1.Policy{MinBPS: 20e6}, Shares: []v1.Share{{Uplink: "eth0", Controlled: true, AdmittedBPS: 20e6, EntitledBPS: 19e6}}}, State: v1.StateOK},
				{ID: "host", Name: "host", Runtime: "host", Direction: v1.Direction{Shares: []v1.Share{{Uplink: "wwan0", Controlled: true}, {Uplink: "eth0", Controlled: true, AdmittedBPS: 1e6}}}},
			},
		},
	}
}

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(seconds float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Duration(seconds * float64(time.Second)))
}

func newMonitor(t *testing.T, targets ...Target) (*Monitor, *clock) {
	t.Helper()
	c := &clock{at: start}
	m := New(c.now)
	m.timeout = 30 * time.Second // however slow this machine is
	m.SetTargets(targets)
	return m, c
}

func TestNodes(t *testing.T) {
	a := board("a")
	m, clock := newMonitor(t, Target{Name: "a", Agent: a, Counted: []string{"shop/web", "x"}}, Target{Name: "b"})
	if n := m.Nodes(); n[0].State != StateUnknown || n[1].State != StateNoWeir || n[0].AgeSeconds != nil {
		t.Errorf("before anybody was asked: %+v", n)
	}
	m.Pull(t.Context())
	clock.pass(2)
	used, connections := 12.0, 7 // seconds, in two
	a.node.Measured.Containers[0].Connections = &connections
	a.node.Measured.At, a.node.Measured.Containers[0].CPUSeconds = start.Add(2*time.Second), &used
	m.Pull(t.Context())
	clock.pass(1)
	n := m.Nodes()[0]
	if n.State != StateReady || n.Reason != "" || len(n.Problems) != 0 || *n.AgeSeconds != 1 {
		t.Errorf("%+v", n)
	}
	if n.Containers[0].CutBPS != 0 || n.Containers[1].CutBPS != 1e6 {
		t.Errorf("the uplink has become too slow for a minimum: %+v", n.Containers)
	}
	if fmt.Sprint(a.counted) != "[shop/web x]" || *n.Containers[0].Connections != 7 || n.Containers[1].Connections != nil {
		t.Errorf("asked for %v: %+v", a.counted, n.Containers)
	}
	if c := n.Containers[0]; len(n.Containers) != 2 || *c.CPUs != 1 || *c.MemoryBytes != 2e6 || c.SentBPS != 3e6 || c.MinBPS != 5e6 || c.AdmittedBPS != 5e6 {
		t.Errorf("%+v", n.Containers)
	}
	got := n.Engine
	want := engine.Node{
		Name: "a", State: engine.NodeReady, CPUs: 4, CPUUsedPercent: 25, Load1: 0.5, MemoryBytes: 1e9, MemoryUsedBytes: 2e8, DiskFreeBytes: 9e9,
		Weir: true, UplinkBPS: 100e6, UplinkSentBPS: 40e6, Out: engine.Room{BudgetBPS: 95e6, OtherMinBPS: 26e6},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v\n%+v", got, want)
	}
	if b := m.Nodes()[1]; b.Engine.Weir || b.Engine.State != engine.NodeReady {
		t.Errorf("a node without an agent: %+v", b.Engine)
	}
}

// TestReceived: what an uplink receives has its room, minimums and cuts apart, where it is shared and can be.
func TestReceived(t *testing.T) {
	received := func(a *agent) {
		a.snapshot.Status.Uplinks[1].In = &v1.UplinkIn{RateBPS: 50e6, ReserveBPS: 2e6}
		for i, bps := range []uint64{8e6, 3e6, 0} {
			a.snapshot.Containers[i].In = &v1.Direction{Policy: v1.Policy{MinBPS: bps}, Shares: []v1.Share{{Uplink: "eth0", Controlled: true, AdmittedBPS: bps, EntitledBPS: 7e6}}}
		}
	}
	for name, test := range map[string]struct {
		change   func(*agent)
		room     engine.Room
		in       Minimum
		problems string
	}{
		"shared":           {func(*agent) {}, engine.Room{BudgetBPS: 48e6, OtherMinBPS: 11e6}, Minimum{8e6, 8e6, 1e6}, ""},
		"a reserve of all": {func(a *agent) { a.snapshot.Status.Uplinks[1].In.ReserveBPS = 51e6 }, engine.Room{}, Minimum{8e6, 8e6, 1e6}, "reserve"},
		"a rate of 0":      {func(a *agent) { a.snapshot.Status.Uplinks[1].In.RateBPS = 0 }, engine.Room{}, Minimum{8e6, 8e6, 1e6}, "has a rate"},
		"not shared": {func(a *agent) {
			for i := range a.snapshot.Containers {
				a.snapshot.Containers[i].In.Shares[0].Controlled = false
			}
		}, engine.Room{}, Minimum{8e6, 0, 8e6}, ""},
		"no in-rate": {func(a *agent) {
			a.snapshot.Status.Uplinks[1].In = nil
			for i := range a.snapshot.Containers {
				a.snapshot.Containers[i].In = nil
			}
		}, engine.Room{}, Minimum{}, ""},
	} {
		a := board("a")
		received(a)
		test.change(a)
		m, _ := newMonitor(t, Target{Name: "a", Agent: a})
		m.Pull(t.Context())
		n := m.Nodes()[0]
		if n.Engine.In != test.room || n.Engine.Out.BudgetBPS != 95e6 || n.Containers[0].In != test.in || !strings.Contains(strings.Join(n.Problems, " "), test.problems) {
			t.Errorf("%s: %+v, %+v, %q", name, n.Engine, n.Containers[0].In, n.Problems)
		}
	}
	// Less of it than before is a reason to look at once.
	a := board("a")
	received(a)
	before := a.snapshot
	before.Containers = slices.Clone(before.Containers)
	less := *before.Containers[0].In
	less.Shares = []v1.Share{{Uplink: "eth0", Controlled: true, AdmittedBPS: 8e6, EntitledBPS: 6e6}}
	if a.snapshot.Containers[0].In = &less; !isLower(&before, &a.snapshot) || isLower(&before, &before) {
		t.Error("what is kept of what is received is lower")
	}
}

// TestUplinkNotShared: while an uplink is not shared no minimum is in force there or can be promised, and
// only those that were admitted are cut.
func TestUplinkNotShared(t *testing.T) {
	a := board("a")
	for i := range a.snapshot.Containers {
		for j := range a.snapshot.Containers[i].Shares {
			s := &a.snapshot.Containers[i].Shares[j]
			s.Controlled, s.EntitledBPS = false, 0
		}
	}
	a.snapshot.Containers[1].Shares[0].AdmittedBPS = 0
	m, _ := newMonitor(t, Target{Name: "a", Agent: a})
	m.Pull(t.Context())
	n := m.Nodes()[0]
	if cut, none := n.Containers[0], n.Containers[1]; cut.CutBPS == 0 || none.CutBPS != 0 || cut.AdmittedBPS != 0 || n.Engine.Out.OtherMinBPS != 0 || n.Engine.Out.BudgetBPS != 0 {
		t.Errorf("%+v, others' minimums %d of %d", n.Containers, n.Engine.Out.OtherMinBPS, n.Engine.Out.BudgetBPS)
	}
}

// TestAges: a node that does not answer is stale, then gone, and comes back.
func TestAges(t *testing.T) {
	a, b := board("a"), board("b")
	m, clock := newMonitor(t, Target{Name: "a", Agent: a}, Target{Name: "b", Agent: b})
	m.Pull(t.Context())
	a.err = errors.New("no route to host")
	states := ""
	for range 6 {
		clock.pass(1)
		m.Pull(t.Context())
		n := m.Nodes()
		if n[1].State != StateReady {
			t.Errorf("the other node is %s", n[1].State)
		}
		states += " " + string(n[0].State)
	}
	if states != " ready ready stale stale gone gone" {
		t.Error(states)
	}
	n := m.Nodes()[0]
	if n.Reason != "no route to host" || n.Engine.State != engine.NodeGone || *n.AgeSeconds != 6 {
		t.Errorf("%+v", n)
	}
	a.err = nil
	m.Pull(t.Context())
	if n := m.Nodes()[0]; n.State != StateReady {
		t.Errorf("back: %+v", n)
	}
	// If it is we who did not ask for an hour, nobody is gone.
	clock.pass(3600)
	a.err = errors.New("timeout")
	m.Pull(t.Context())
	if n := m.Nodes()[0]; n.State != StateStale {
		t.Errorf("after an hour in which nobody asked: %+v", n)
	}
	// Forgotten, and new.
	m.SetTargets([]Target{{Name: "b", Agent: b}, {Name: "c", Agent: board("c")}})
	if n := m.Nodes(); len(n) != 2 || n[0].State == StateUnknown || n[1].State != StateUnknown {
		t.Errorf("%+v", n)
	}
}

// TestHang: one that does not answer holds up nobody, and is not asked again meanwhile.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := board("a"), board("b")
		a.hang = true
		m, _ := newMonitor(t, Target{Name: "a", Agent: a}, Target{Name: "b", Agent: b})
		m.timeout = 10 * period
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.Run(ctx)
		synctest.Wait()
		if n := m.Nodes(); n[0].State != StateUnknown || n[1].State != StateReady {
			t.Errorf("while one does not answer: %+v", n)
		}
		time.Sleep(m.timeout - period/2)
		synctest.Wait()
		a.mu.Lock()
		b.mu.Lock()
		if a.asked != 1 || b.asked != 10 {
			t.Errorf("it was asked %d times, the other one %d times", a.asked, b.asked)
		}
		a.mu.Unlock()
		b.mu.Unlock()
		time.Sleep(period / 2)
		synctest.Wait()
		if n := m.Nodes()[0]; n.State != StateStale || n.Reason != "no answer in time" {
			t.Errorf("%+v", n)
		}
	})
}

// TestSlowCount: an agent that takes too long to count connections is there, without them.
func TestSlowCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := board("a")
		a.slow = true
		m, clock := newMonitor(t, Target{Name: "a", Agent: a, Counted: []string{"shop/web"}})
		for range 20 {
			clock.pass(1)
			began := time.Now()
			m.Pull(t.Context())
			if took := time.Since(began); took >= m.timeout {
				t.Errorf("it takes %v", took)
			}
		}
		if n := m.Nodes()[0]; n.State != StateReady || n.Containers[0].Connections != nil {
			t.Errorf("%+v", n)
		}
	})
}

// TestNoAgent: a node whose agent is gone is there, but nothing is promised on it.
func TestNoAgent(t *testing.T) {
	a := board("a")
	a.node.Measured.Responses = []v1.ServiceResponse{{Service: "shop", MeanSeconds: 1, P95Seconds: 1}}
	m, clock := newMonitor(t, Target{Name: "a", Agent: a})
	m.Pull(t.Context())
	if n := m.Nodes()[0]; len(n.Responses) != 1 {
		t.Errorf("%+v", n)
	}
	a.err = fmt.Errorf("%w at a", client.ErrNoAgent)
	for range 20 {
		clock.pass(1)
		m.Pull(t.Context())
	}
	n := m.Nodes()[0]
	if e := n.Engine; n.State != StateNoWeir || e.State != engine.NodeReady || e.Weir || e.CPUs != 0 || len(n.Responses) > 0 {
		t.Errorf("%+v", n)
	}
	// One that answers and makes no sense is not gone, and gets nothing.
	a.err = &client.Error{Status: 404, Message: "no such page"}
	for range 20 {
		clock.pass(1)
		m.Pull(t.Context())
	}
	if n := m.Nodes()[0]; n.State != StateStale || !strings.Contains(n.Reason, "too old") {
		t.Errorf("%+v", n)
	}
}

// TestFlood: an agent that says very much fills nothing, and is promised nothing.
func TestFlood(t *testing.T) {
	long := strings.Repeat("long ", 1<<20)
	a := board("a")
	a.node.PiID, a.node.Measured.Hostname = long+"1", long+"2"
	a.snapshot.Containers[0].Reason, a.snapshot.Containers[0].Name = long, long
	a.snapshot.Containers[0].Groups = slices.Repeat([]string{long}, 1000)
	m, _ := newMonitor(t, Target{Name: "a", Agent: a})
	m.Pull(t.Context())
	n := m.Nodes()[0]
	said := len(strings.Join(n.Problems, "")) + len(n.Reason)
	for _, c := range n.Containers {
		said += len(c.Name) + len(c.Reason) + len(strings.Join(c.Groups, ""))
	}
	if said > 100_000 {
		t.Errorf("%d bytes of what it says are kept", said)
	}
	if n.Engine.Out.BudgetBPS == 0 {
		t.Error("long words alone are no reason to promise nothing")
	}
	a.snapshot.Containers = slices.Repeat(a.snapshot.Containers[:1], maxContainers+1)
	m.Pull(t.Context())
	n = m.Nodes()[0]
	if e := n.Engine; len(n.Containers) > maxContainers || e.Weir || e.Out.BudgetBPS != 0 || !strings.Contains(strings.Join(n.Problems, " "), "containers and") {
		t.Errorf("%d containers, %+v, %q", len(n.Containers), e, n.Problems)
	}
	a.err = &client.Error{Status: 500, Message: long}
	m.Pull(t.Context())
	if n := m.Nodes()[0]; len(n.Reason) > 2*maxText {
		t.Errorf("an error of %d bytes is kept", len(n.Reason))
	}
}

// TestLies: what cannot be is left out and said, and never makes a node look better.
func TestLies(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*agent)
		says   string
		holds  func(engine.Node) bool
	}{
		"processors":      {func(a *agent) { a.node.Measured.CPUs = -4 }, "cpus is -4", func(n engine.Node) bool { return n.CPUs == 0 }},
		"many processors": {func(a *agent) { a.node.Measured.CPUs = 1e6 }, "cpus is 1e+06", func(n engine.Node) bool { return n.CPUs == 0 }},
		"idle":            {func(a *agent) { a.node.Measured.CPUUsedPercent = -50 }, "cpu_used_percent is -50", func(n engine.Node) bool { return n.CPUUsedPercent == 100 }},
		"busy":            {func(a *agent) { a.node.Measured.CPUUsedPercent = 900 }, "cpu_used_percent is 900", func(n engine.Node) bool { return n.CPUUsedPercent == 100 }},
		"load":            {func(a *agent) { a.node.Measured.Load1 = -1 }, "load_1 is -1", func(n engine.Node) bool { return n.Load1 == 0 }},
		"memory":          {func(a *agent) { a.node.Measured.MemoryUsedBytes = 2e9 }, "memory_used_bytes is 2000000000 of 1000000000", func(n engine.Node) bool { return n.MemoryUsedBytes == 1e9 }},
		"disk":            {func(a *agent) { a.node.Measured.DiskFreeBytes = 1e12 }, "disk_free_bytes", func(n engine.Node) bool { return n.DiskFreeBytes == 16e9 }},
		"processor time":  {func(a *agent) { x := -1.0; a.node.Measured.Containers[0].CPUSeconds = &x }, "a container has used -1 s", func(engine.Node) bool { return true }},
		"rate":            {func(a *agent) { a.snapshot.Status.Uplinks[1].RateBPS = 1 << 63 }, "has a rate of", func(n engine.Node) bool { return n.UplinkBPS == 10e6 }},
		"no rate": {func(a *agent) {
			a.snapshot.Status.Uplinks = a.snapshot.Status.Uplinks[1:2]
			a.snapshot.Status.Uplinks[0].RateBPS = 0
		}, "has a rate of 0", func(n engine.Node) bool { return !n.Weir && n.Out.BudgetBPS == 0 }},
		"reserve":      {func(a *agent) { a.snapshot.Status.Uplinks[1].ReserveBPS = 1e12 }, "has a reserve of", func(n engine.Node) bool { return n.Out.BudgetBPS == 10e6 }},
		"another name": {func(a *agent) { a.node.PiID = "x\x1b[2J" }, `it calls itself "x\x1b[2J"`, func(engine.Node) bool { return true }},
		"its clock":    {func(a *agent) { a.node.Measured.At = start.Add(-time.Hour) }, "its clock is -3600 s off", func(n engine.Node) bool { return n.State == engine.NodeReady }},
		"waits": {func(a *agent) {
			a.node.Measured.Responses = []v1.ServiceResponse{{Service: "shop", MeanSeconds: 1, P95Seconds: 1, DeliverySeconds: 2}}
		}, "users of shop wait 1 s, 2 s of it for delivery", func(engine.Node) bool { return true }},
		"containers": {func(a *agent) { a.node.Measured.Containers = make([]v1.MeasuredContainer, 20_000) }, "it has 20000 containers", func(engine.Node) bool { return true }},
		"old, with words": {func(a *agent) {
			a.node = v1.Node{
				HardResources: v1.HardResources{Mem: "1 GB", Disk: "16 GB", CPU: "A 1.2GHz quad-core ARMv8 CPU"},
				ResourceUsage: v1.ResourceUsage{CPULoad: "0.04", MemUsage: "14", CPUUsage: "24.31"}, PiID: "SEG_1",
			}
		}, "only words", func(n engine.Node) bool {
			return n.Load1 == 0.04 && n.CPUUsedPercent == 24.31 && n.MemoryBytes == 1e9 && n.MemoryUsedBytes == 14e7
		}},
		"old, with odd words": {func(a *agent) {
			a.node = v1.Node{HardResources: v1.HardResources{Mem: "much", Disk: "-1 GB"}, ResourceUsage: v1.ResourceUsage{CPULoad: "NaN", MemUsage: "1e9", CPUUsage: "-1"}}
		}, "only words", func(n engine.Node) bool {
			return n.Load1 == 0 && n.CPUUsedPercent == 100 && n.MemoryBytes == 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := board("a")
			tc.change(a)
			m, _ := newMonitor(t, Target{Name: "a", Agent: a})
			m.Pull(t.Context())
			n := m.Nodes()[0]
			if !strings.Contains(strings.Join(n.Problems, "; "), tc.says) {
				t.Errorf("%q, want %q", n.Problems, tc.says)
			}
			if e := n.Engine; !tc.holds(e) {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestRealClient: over a socket, with answers that are none.
func TestRealClient(t *testing.T) {
	for name, tc := range map[string]struct {
		body   string
		status int
		state  State
		reason string
	}{
		"nonsense":         {"<html>", 200, StateStale, "read the agent's answer"},
		"negative":         {`{"status": {"rate_bps": -5}}`, 200, StateStale, "cannot unmarshal"},
		"not a number":     {`{"status": {"rate_bps": NaN}}`, 200, StateStale, "read the agent's answer"},
		"an older version": {"404 page not found", 404, StateStale, "too old"},
		"nothing":          {`{}`, 200, StateReady, ""},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			})}
			go server.Serve(listener) //nolint:errcheck // ends with the test
			t.Cleanup(func() { server.Close() })
			m, clock := newMonitor(t, Target{Name: "a", Agent: client.Unix(socket)})
			for range 10 {
				m.Pull(t.Context())
				clock.pass(1)
			}
			if tc.state == StateReady {
				m.Pull(t.Context())
			}
			if n := m.Nodes()[0]; n.State != tc.state || !strings.Contains(n.Reason, tc.reason) {
				t.Errorf("%+v", n)
			}
		})
	}
	m, clock := newMonitor(t, Target{Name: "a", Agent: client.Unix(filepath.Join(t.TempDir(), "nobody"))})
	m.Pull(t.Context())
	clock.pass(10)
	m.Pull(t.Context())
	if n := m.Nodes()[0]; n.State != StateNoWeir || !strings.Contains(n.Reason, "no weir agent is running") {
		t.Errorf("%+v", n)
	}
}

// TestAccess: a node is ready when it is known what its agent lets who asks do, or that it
// is too old to say.
func TestAccess(t *testing.T) {
	for name, tc := range map[string]struct {
		access    v1.Access
		err       error
		state     State
		looksOnly bool
	}{
		"may look":            {v1.Access{Name: "token hub", Role: "read"}, nil, StateReady, true},
		"may change policies": {v1.Access{Name: "token hub", Role: "admin"}, nil, StateReady, false},
		"on the socket":       {v1.Access{Name: "root", Role: "root"}, nil, StateReady, false},
		"too old to say":      {v1.Access{}, &client.Error{Status: 404, Message: "there is no such path"}, StateReady, false},
		"nobody knows":        {v1.Access{}, &client.Error{Status: 500, Message: "no"}, StateStale, false},
		"of many words":       {v1.Access{Name: strings.Repeat("x", 1<<20), Role: "read"}, nil, StateReady, true},
	} {
		a := board("a")
		a.access, a.noAccess = tc.access, tc.err
		m, _ := newMonitor(t, Target{Name: "a", Agent: a})
		m.Pull(t.Context())
		if n := m.Nodes()[0]; n.State != tc.state || n.LooksOnly() != tc.looksOnly || len(n.Access.Name) > 2*maxText {
			t.Errorf("%s: %s, looks only: %t, %.100s", name, n.State, n.LooksOnly(), n.Access.Name)
		}
	}
}

// TestDistrusted: who is not trusted, or does not trust us, is there all the same.
func TestDistrusted(t *testing.T) {
	a := board("a")
	m, clock := newMonitor(t, Target{Name: "a", Agent: a})
	m.Pull(t.Context())
	a.err = fmt.Errorf("agent at a %w: its certificate is not valid now", client.ErrTrust)
	for range 20 {
		clock.pass(1)
		m.Pull(t.Context())
	}
	if n := m.Nodes()[0]; n.State != StateStale || !strings.Contains(n.Reason, "its certificate is not valid now") {
		t.Errorf("%s: %s", n.State, n.Reason)
	}
}

// meeting is an agent two of whose answers wait for each other.
type meeting struct {
	*agent
	asked chan struct{}
}

func (m meeting) Node(ctx context.Context, _ ...string) (v1.Node, error) {
	select {
	case <-m.asked:
		return m.agent.Node(ctx)
	case <-ctx.Done():
		return v1.Node{}, ctx.Err()
	}
}

func (m meeting) Access(ctx context.Context) (v1.Access, error) {
	select {
	case m.asked <- struct{}{}:
		return m.agent.Access(ctx)
	case <-ctx.Done():
		return v1.Access{}, ctx.Err()
	}
}

// TestAsksAtOnce: a far node is asked for no more round trips than there must be.
func TestAsksAtOnce(t *testing.T) {
	m, _ := newMonitor(t, Target{Name: "a", Agent: meeting{board("a"), make(chan struct{})}})
	m.Pull(t.Context())
	if n := m.Nodes()[0]; n.State != StateReady {
		t.Errorf("%s: %s", n.State, n.Reason)
	}
}

// follower is an agent that sends its events.
type follower struct {
	*agent
	events chan v1.EventKind
}

func (f *follower) Follow(ctx context.Context, _ uint64, to client.Follower) error {
	for {
		select {
		case kind := <-f.events:
			if err := to.Event(v1.Event{Kind: kind}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestFollow: an agent that says that it keeps less is asked at once, and that is passed on; other events
// and nodes that have left are not.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := &follower{board("a"), make(chan v1.EventKind)}, &follower{board("b"), make(chan v1.EventKind)}
		m := New(time.Now)
		m.SetTargets([]Target{{Name: "a", Agent: a}, {Name: "b", Agent: other}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { m.Run(ctx); close(ended) }()
		asked := func() (counts [2]int) {
			synctest.Wait()
			for i, one := range []*agent{a.agent, other.agent} {
				one.mu.Lock()
				counts[i] = one.asked
				one.mu.Unlock()
			}
			return counts
		}
		lower := func() bool {
			select {
			case <-m.Lower():
				return true
			default:
				return false
			}
		}
		time.Sleep(period / 2)
		if got := asked(); got != [2]int{1, 1} || lower() {
			t.Fatalf("at first: asked %v", got)
		}
		// keep has a's container keep less, of a minimum that is as low as that if told.
		keep := func(bps uint64, told bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.snapshot.Containers = slices.Clone(a.snapshot.Containers)
			c := &a.snapshot.Containers[0]
			c.Shares = slices.Clone(c.Shares)
			if c.Shares[1].EntitledBPS = bps; told {
				c.Policy.MinBPS, c.Shares[1].AdmittedBPS = bps, bps
			}
		}
		keep(4e6, false)
		a.events <- v1.EventPolicyChanged
		if got := asked(); got != [2]int{1, 1} || lower() {
			t.Errorf("an event that says nothing of minimums: asked %v", got)
		}
		a.events <- v1.EventDegraded
		if got := asked(); got != [2]int{2, 1} || !lower() {
			t.Errorf("its uplink is too slow: asked %v", got)
		}
		for range 5 {
			a.events <- v1.EventDegraded
			time.Sleep(pause / 10)
		}
		other.events <- v1.EventDegraded
		if got := asked(); got != [2]int{2, 2} {
			t.Errorf("it was asked just now, and the other one was not: asked %v", got)
		}
		time.Sleep(pause)
		if got := asked(); got != [2]int{3, 2} || lower() {
			t.Errorf("nothing has changed: asked %v", got)
		}
		keep(3e6, true)
		a.events <- v1.EventReloaded
		time.Sleep(pause)
		if got := asked(); got != [2]int{4, 2} || lower() {
			t.Errorf("it has been told to keep less: asked %v", got)
		}
		time.Sleep(period)
		if got := asked(); got != [2]int{5, 3} {
			t.Errorf("in the next period: asked %v", got)
		}
		m.SetTargets([]Target{{Name: "b", Agent: other}})
		time.Sleep(period)
		synctest.Wait()
		select {
		case a.events <- v1.EventDegraded:
			t.Error("the events of a node that has left are read")
		default:
		}
		cancel()
		<-ended
	})
}
