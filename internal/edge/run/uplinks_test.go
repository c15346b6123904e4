package run

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// sending is shop, of whose users half come to b: the proxies send 30 and 10 Mbit/s, the
// instance 10 to b's, and others 20 at a and 50 at c, where another instance is.
func sending() *observation {
	s := shop(15, 5)
	s.at = time.Unix(1e9, 0)
	s.services = []runtime.Service{{Name: "shop", Ports: []runtime.Port{{Host: 80, Container: 80}}}}
	s.nodes = append(s.nodes, Measured{Node: runtime.Node{Name: "c"}, Reported: monitor.Node{
		State: monitor.StateReady, Containers: []monitor.Container{{ID: "j", Name: "edge-shop-2"}},
	}})
	for i, sentBPS := range []uint64{60e6, 10e6, 50e6} {
		n := &s.nodes[i]
		n.Node.Ready = true
		n.Reported.Engine = engine.Node{State: engine.NodeReady, Weir: true, UplinkBPS: 100e6, UplinkSentBPS: sentBPS, Out: engine.Room{BudgetBPS: 95e6}}
		n.Reported.RoundTripSeconds = 0.001
		for k := range n.Reported.Containers {
			c := &n.Reported.Containers[k]
			c.SentBPS = map[string]uint64{"pa": 30e6, "pb": 10e6, "i": 10e6, "fa": 20e6}[c.ID]
		}
	}
	s.state.Instances = []runtime.Instance{
		{ID: "shop-1", ContainerID: "i", Service: "shop", Node: "a", Phase: runtime.Running},
		{ID: "shop-2", ContainerID: "j", Service: "shop", Node: "c", Phase: runtime.Running},
	}
	return s
}

// TestWhatProxiesSend: the engine is told what a service's proxies send, by node, beside what
// instances do.
func TestWhatProxiesSend(t *testing.T) {
	m, s := newManager(t), sending()
	in := m.input(s)
	want := map[string]uint64{"a": 30e6, "b": 10e6}
	for _, d := range in.Demand {
		if d.SentBPS != want[d.Node] {
			t.Errorf("the proxy on %s sends %d bit/s, want %d", d.Node, d.SentBPS, want[d.Node])
		}
		delete(want, d.Node)
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}
	for _, i := range in.Instances {
		if want := map[string]uint64{"shop-1": 10e6}[i.ID]; i.SentBPS != want {
			t.Errorf("%s sends %d bit/s, want %d", i.ID, i.SentBPS, want)
		}
	}
}

// TestMinimumRefused: a minimum that an agent rejects, or at an uplink that is not shared, is refused to the
// instance; one that its uplink has become too slow for is cut.
func TestMinimumRefused(t *testing.T) {
	m := newManager(t)
	for name, change := range map[string]func(*monitor.Container){
		"kept":     func(*monitor.Container) {},
		"rejected": func(c *monitor.Container) { c.State = v1.StateRejected },
		"unshared": func(c *monitor.Container) { c.CutBPS = 1e6 },
		"cut":      func(c *monitor.Container) { c.AdmittedBPS, c.CutBPS = 5e6, 1e6 },
		// The same of what is received.
		"in unshared": func(c *monitor.Container) { c.In.CutBPS = 1e6 },
		"in cut":      func(c *monitor.Container) { c.In.AdmittedBPS, c.In.CutBPS = 5e6, 1e6 },
	} {
		s := sending()
		for k := range s.nodes[0].Reported.Containers {
			if c := &s.nodes[0].Reported.Containers[k]; c.ID == "i" {
				c.Reason = "why"
				change(c)
			}
		}
		for _, i := range m.input(s).Instances {
			refused, cut := i.ID == "shop-1" && (name == "rejected" || strings.HasSuffix(name, "unshared")), i.ID == "shop-1" && strings.HasSuffix(name, "cut")
			if i.MinRefused != refused || i.MinCut != cut || refused && i.Reason != "why" {
				t.Errorf("%s: %+v", name, i)
			}
		}
	}
}

// TestInRateLost: the minimum of what users send is refused to an instance whose node does not share what it
// receives any more, and not to one of a node whose agent does not answer, or of a service without one.
func TestInRateLost(t *testing.T) {
	m := newManager(t)
	for name, test := range map[string]struct {
		label   string
		change  func(*monitor.Node)
		refused bool
	}{
		"lost":         {"weir.in.min", func(*monitor.Node) {}, true},
		"there":        {"weir.in.min", func(n *monitor.Node) { n.Engine.In.BudgetBPS = 40e6 }, false},
		"not wanted":   {"weir.min", func(*monitor.Node) {}, false},
		"silent":       {"weir.in.min", func(n *monitor.Node) { n.State = monitor.StateStale }, false},
		"not shared":   {"weir.in.min", func(n *monitor.Node) { n.Engine.Out.BudgetBPS = 0 }, false},
		"without Weir": {"weir.in.min", func(n *monitor.Node) { n.State = monitor.StateNoWeir }, false},
	} {
		s := sending()
		s.specs["shop"] = spec.Spec{Name: "shop", Labels: map[string]string{test.label: "8mbit"}}
		test.change(&s.nodes[0].Reported)
		if i := m.input(s).Instances[0]; i.ID != "shop-1" || i.MinRefused != test.refused || test.refused && i.Reason != onlySent {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// TestFreeUplinks: what instances could send to other nodes is what others and the users of
// their own node leave.
func TestFreeUplinks(t *testing.T) {
	m, s := newManager(t), sending()
	s.input = m.input(s)
	for node, want := range map[string]float64{"a": 50e6, "c": 50e6} {
		if got := s.freeUplinks()[entry{"shop", node}]; got != want {
			t.Errorf("at %s %v bit/s are free, want %v", node, got, want)
		}
	}
	// A minimum is there whatever others send.
	s.nodes[2].Reported.Engine.UplinkSentBPS = 100e6
	s.promises["shop@c"] = engine.Promise{Service: "shop", Node: "c", MinBPS: 20e6, Claim: true}
	s.input = m.input(s)
	if got := s.freeUplinks()[entry{"shop", "c"}]; got != 20e6 {
		t.Errorf("of a full uplink with a minimum %v bit/s are free, want 20e6", got)
	}
	// Nobody knows what there is without an agent.
	s.nodes[2].Reported.Engine = engine.Node{State: engine.NodeReady}
	s.input = m.input(s)
	if got, known := s.freeUplinks()[entry{"shop", "c"}]; known {
		t.Errorf("without an agent %v bit/s are free", got)
	}
}

// TestFreeSmoothed: a second of others' is nothing, and a minute all.
func TestFreeSmoothed(t *testing.T) {
	var f freeUplinks
	at := entry{"shop", "a"}
	now := time.Unix(1e9, 0)
	take := func(bps float64, after time.Duration) float64 {
		now = now.Add(after)
		f.smooth(map[entry]float64{at: bps}, now)
		return f.bps[at]
	}
	if got := take(90e6, 0); got != 90e6 {
		t.Errorf("the first is %v", got)
	}
	if got := take(10e6, time.Second/2); got < 80e6 || got > 84e6 {
		t.Errorf("after half a second it is %v", got)
	}
	if got := take(10e6, time.Minute); math.Abs(got-10e6) > 1e4 {
		t.Errorf("after a minute it is %v", got)
	}
	if one, half := f.perInstance("shop", "a", 1), f.perInstance("shop", "a", 2); one/2 != half {
		t.Errorf("one could send %d, one of two %d", one, half)
	}
	if f.smooth(nil, now); f.perInstance("shop", "a", 1) != 0 {
		t.Error("what is not there is remembered")
	}
}

// TestWeightsByUplink: users who come to b, where no instance is, go to a and c by what is
// free there; that changes with what others send, and not from round to round.
func TestWeightsByUplink(t *testing.T) {
	m := newManager(t)
	weights := func(s *observation) (list []int) {
		s.input = m.input(s)
		m.proxies.free.smooth(s.freeUplinks(), s.at)
		for _, c := range m.proxies.ports(s, s.services[0], s.proxies["shop"][1], func(string) bool { return false })[0].Servers {
			list = append(list, c.Weight)
		}
		return list
	}
	// told has b's proxy as it was told.
	told := func(s *observation, list []int) {
		p := &s.proxies["shop"][1]
		p.status.Servers = nil
		for i, w := range list {
			p.status.Servers = append(p.status.Servers, proxyStatus(s.state.Instances[i].ID, w))
		}
	}
	s := sending()
	addresses(s)
	told(s, []int{0, 0})
	first := weights(s)
	if len(first) != 2 || first[0] != 256 || first[1] != 256 {
		t.Fatalf("as much is free at both, and the weights are %v", first)
	}
	told(s, first)
	s.at, s.nodes[2].Reported.Engine.UplinkSentBPS = s.at.Add(time.Second/2), 90e6
	if again := weights(s); again[1] != 256 {
		t.Errorf("half a second of others' makes the weights %v", again)
	}
	s.at = s.at.Add(time.Minute)
	if later := weights(s); later[0] != 256 || later[1] < 110 || later[1] > 118 { // sqrt(10/50)
		t.Errorf("with a fifth free at c the weights are %v", later)
	}
}

func proxyStatus(instance string, weight int) proxy.ServerStatus {
	return proxy.ServerStatus{Name: proxy.InstanceName(instance), Weight: weight, Up: true, Check: "passed"}
}

// addresses are where instances answer.
func addresses(s *observation) {
	for i := range s.state.Instances {
		s.state.Instances[i].Addresses = map[uint16]netip.AddrPort{80: netip.MustParseAddrPort("198.18.0.9:80")}
	}
}
