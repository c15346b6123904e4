//go:build netns

package netns

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/testbed"
	"github.com/weir-project/weir/internal/traffic"
	"github.com/weir-project/weir/test/harness"
)

// modeOf is what `weir ps` calls a mode of the test bed.
var modeOf = map[testbed.Mode]v1.Mode{
	testbed.ModeBridge: v1.ModeBridge, testbed.ModeHost: v1.ModeHost,
	testbed.ModeMacvlan: v1.ModeMacvlan, testbed.ModeMacvlanPrivate: v1.ModeMacvlan,
	testbed.ModeIPvlanL2: v1.ModeIPvlan, testbed.ModeIPvlanL3: v1.ModeIPvlan,
	testbed.ModeOverlay: v1.ModeOverlay,
}

// member is a container of a test in any mode.
type member struct {
	mode   testbed.Mode
	labels map[string]string
}

// join adds members and starts an agent, and checks that it knows their modes.
func join(t *testing.T, b *harness.Bed, options harness.AgentOptions, members ...member) (*harness.Agent, []*harness.Container) {
	t.Helper()
	var containers []*harness.Container
	for i, m := range members {
		containers = append(containers, b.AddMode(fmt.Sprintf("%s-%d", m.mode, i), m.mode, m.labels))
	}
	agent := b.StartAgent(options)
	ps := b.MustWeir("ps")
	for i, c := range containers {
		want := modeOf[members[i].mode]
		got := agent.Container(c.Name)
		if got.State != v1.StateOK || got.Mode != want || got.EntitledBPS == 0 {
			t.Errorf("%s: got %+v", c.Name, got)
		}
		row := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(c.Name) + `\s.*\b` + string(want) + `\b`)
		if !row.MatchString(ps) {
			t.Errorf("weir ps does not show that %s is %s:\n%s", c.Name, want, ps)
		}
	}
	return agent, containers
}

const (
	// slowBPS and slowRate are a link that a busy machine too can offer more
	// to than it carries: what is tested here depends on no rate.
	slowBPS  = 20 * mbit
	slowRate = "20mbit"
	kbit     = mbit / 1000
	// steadyTolerance is for senders that never pause.
	steadyTolerance = 0.01
	// eagerness is how much more than its share each sender offers.
	eagerness = 1.5
)

// checkMembers lets all members send more than their shares, over IPv4 and IPv6
// by turns, and compares what arrives with the ideal.
func checkMembers(t *testing.T, b *harness.Bed, containers []*harness.Container) {
	t.Helper()
	var list []harness.Claim
	for _, c := range containers {
		list = append(list, harness.Claim{Labels: c.Labels, DemandBPS: harness.Unlimited})
	}
	ideal, err := harness.Ideal(slowBPS, list)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []struct {
		name      string
		tolerance float64
		load      func(i int) harness.Load
	}{
		{"UDP", steadyTolerance, func(i int) harness.Load {
			return harness.Load{Protocol: traffic.UDP, RateBPS: uint64(eagerness * float64(ideal[i])), V6: i%2 == 0}
		}},
		{"TCP", harness.ShareTolerance, func(i int) harness.Load {
			return harness.Load{Protocol: traffic.TCP, Connections: 1 + 3*(i%2), V6: i%2 == 1}
		}},
	} {
		t.Run(run.name, func(t *testing.T) {
			for i, c := range containers {
				t.Cleanup(b.Send(c, run.load(i)).Stop)
			}
			time.Sleep(time.Second)
			m := b.MeasureFor(3 * time.Second)
			t.Logf("%.2f Mbit/s of all; CPU: %s", m.SumBPS()/mbit, m.CPU)
			if err := harness.CheckSharesWithin(run.tolerance, slowBPS, m, ideal); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestModes: weights, a minimum and a maximum hold in every mode.
func TestModes(t *testing.T) {
	for _, mode := range testbed.Modes {
		t.Run(string(mode), func(t *testing.T) {
			b := newBed(t)
			_, containers := join(t, b, harness.AgentOptions{Rate: slowRate},
				member{mode, labels("weight", "100")},
				member{mode, labels("weight", "300")},
				member{mode, labels("weight", "50", "min", "8mbit")},
				member{mode, labels("weight", "500", "max", "1mbit")})
			checkMembers(t, b, containers)
		})
	}
}

// TestMixedModes: containers of all modes share one uplink as if they were of
// one mode.
func TestMixedModes(t *testing.T) {
	for _, direct := range [][]testbed.Mode{
		{testbed.ModeMacvlan, testbed.ModeMacvlanPrivate},
		{testbed.ModeIPvlanL2}, // an uplink has macvlan or ipvlan devices, not both
		{testbed.ModeIPvlanL3},
	} {
		t.Run(string(direct[0]), func(t *testing.T) {
			b := newBed(t)
			members := []member{
				{testbed.ModeBridge, labels("weight", "100")},
				{testbed.ModeHost, labels("weight", "200")},
				{testbed.ModeOverlay, labels("weight", "300", "max", "3mbit")},
			}
			for _, mode := range direct {
				members = append(members, member{mode, labels("weight", "150")})
			}
			members = append(members, member{testbed.ModeOverlay, labels("min", "6mbit", "weight", "10")})
			_, containers := join(t, b, harness.AgentOptions{Rate: slowRate}, members...)
			checkMembers(t, b, containers)
		})
	}
}

// TestNestedCgroup: processes of a container in the host's network that are in
// cgroups of their own below it count as the container, and what is in no
// container's cgroup as the host.
func TestNestedCgroup(t *testing.T) {
	b := newBed(t)
	one := b.AddMode("one", testbed.ModeHost, nil)
	two := b.AddMode("two", testbed.ModeHost, nil)
	b.StartAgent(harness.AgentOptions{Rate: slowRate})
	nested, err := b.Host.Nested(one.NetContainer, "nested")
	if err != nil {
		t.Fatal(err)
	}
	const nestedSlot = 2
	eager := harness.Load{Protocol: traffic.UDP, RateBPS: 12 * mbit}
	b.Send(one, eager)
	b.Send(&harness.Container{NetContainer: nested, Slot: nestedSlot}, eager)
	b.Send(two, eager)
	b.SendFrom(b.Host.NetNSPath(), harness.HostSlot, eager)
	time.Sleep(time.Second)
	m := b.MeasureFor(3 * time.Second)
	if m.BPS[one.Slot] < mbit/5 || m.BPS[nestedSlot] < mbit/5 {
		t.Errorf("the container sent %.2f Mbit/s itself and %.2f from the cgroup below: want some of both",
			m.BPS[one.Slot]/mbit, m.BPS[nestedSlot]/mbit)
	}
	m.BPS[one.Slot] += m.BPS[nestedSlot]
	m.BPS[nestedSlot] = m.BPS[harness.HostSlot]
	m.BPS[harness.HostSlot] = 0
	third := uint64(slowBPS / 3)
	if err := harness.CheckSharesWithin(steadyTolerance, slowBPS, m, []uint64{third, third, third}); err != nil {
		t.Error(err)
	}
}

// TestTwoNetworks: a container in two networks of different modes is one
// container, with one share.
func TestTwoNetworks(t *testing.T) {
	for _, second := range []testbed.Mode{testbed.ModeBridge, testbed.ModeMacvlan} {
		t.Run("overlay and "+string(second), func(t *testing.T) {
			b := newBed(t)
			one := b.AddMode("one", testbed.ModeOverlay, labels("weight", "100"))
			two := b.AddMode("two", second, labels("weight", "300"))
			const secondSlot = 2
			through := b.Through(one, second, secondSlot)
			agent := b.StartAgent(harness.AgentOptions{Rate: slowRate})
			all := agent.Containers()
			if len(all) != 3 || !inForce(all["one"]) || !inForce(all["two"]) {
				t.Errorf("got %+v", all)
			}
			eager := harness.Load{Protocol: traffic.UDP, RateBPS: 12 * mbit}
			b.Send(one, eager)
			b.Send(through, eager)
			b.Send(two, harness.Load{Protocol: traffic.UDP, RateBPS: 40 * mbit})
			time.Sleep(time.Second)
			m := b.MeasureFor(3 * time.Second)
			if m.BPS[one.Slot] < mbit/5 || m.BPS[secondSlot] < mbit/5 {
				t.Errorf("through the overlay %.1f Mbit/s, through the %s network %.1f: want some through both",
					m.BPS[one.Slot]/mbit, second, m.BPS[secondSlot]/mbit)
			}
			m.BPS[one.Slot] += m.BPS[secondSlot]
			m.BPS[secondSlot] = 0
			if err := harness.CheckSharesWithin(steadyTolerance, slowBPS, m, []uint64{5 * mbit, 15 * mbit}); err != nil {
				t.Error(err)
			}
		})
	}
}

// inForce says that a container of any mode has its share.
func inForce(c v1.Container) bool { return c.State == v1.StateOK && c.EntitledBPS > 0 }

// TestSameHost: traffic between containers of one host does not pass the
// uplink, so it is neither limited nor counted.
func TestSameHost(t *testing.T) {
	for _, mode := range []testbed.Mode{testbed.ModeBridge, testbed.ModeMacvlan, testbed.ModeIPvlanL2, testbed.ModeOverlay} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBed(t)
			agent, containers := join(t, b, harness.AgentOptions{Rate: "10mbit"},
				member{mode, nil}, member{mode, labels("max", "1mbit")})
			const port = 5300 // not the meter's
			err := containers[0].Enter(func() error {
				sink, err := traffic.NewSink(port, 1)
				if err == nil {
					t.Cleanup(func() { _ = sink.Close() })
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			before := agent.Container(containers[1].Name).SentBytes
			for _, target := range []netip.Addr{containers[0].Addr, containers[0].Addr6} {
				var sender *traffic.Sender
				err = containers[1].Enter(func() (err error) {
					sender, err = traffic.NewSender(t.Context(), traffic.SenderOptions{
						Target: netip.AddrPortFrom(target, port), Protocol: traffic.TCP,
					})
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				sender.Start(0)
				began := time.Now()
				time.Sleep(500 * time.Millisecond)
				rateBPS := float64(sender.SentBytes()) * 8 / time.Since(began).Seconds()
				sender.Stop()
				t.Logf("%.0f Mbit/s to %s", rateBPS/mbit, target)
				if rateBPS < 50*mbit {
					t.Errorf("%.1f Mbit/s from container to container on a host with an uplink of 10", rateBPS/mbit)
				}
			}
			time.Sleep(1100 * time.Millisecond) // counters are read once a second
			got := agent.Container(containers[1].Name)
			if counted := got.SentBytes - before; counted > 20_000 { // neighbour discovery
				t.Errorf("%d bytes of traffic within the host were counted", counted)
			}
		})
	}
}

// TestPriorities: what containers leave idle goes to the highest priority
// first, by weight within one, with more priorities in use than HTB has.
func TestPriorities(t *testing.T) {
	b := newBed(t)
	type one struct {
		priority, weight string
		offerBPS         uint64
	}
	var list []harness.Claim
	var containers []*harness.Container
	var offers []uint64
	for i, c := range []one{
		// Four leave 1.2 Mbit/s each.
		{"0", "100", 800 * kbit}, {"30", "100", 800 * kbit}, {"1000", "100", 800 * kbit}, {"500", "100", 800 * kbit},
		// Nothing is left for the lowest.
		{"40", "100", 6000 * kbit}, {"50", "100", 6000 * kbit},
		// The two in the middle share by weight what the highest leave.
		{"200", "50", 8000 * kbit}, {"200", "150", 8000 * kbit},
		// The highest take what they want.
		{"700", "100", 2800 * kbit}, {"900", "100", 3600 * kbit},
		{"60", "100", 6000 * kbit}, {"70", "100", 6000 * kbit},
	} {
		l := labels("priority", c.priority, "weight", c.weight)
		containers = append(containers, b.Add(fmt.Sprintf("c%d", i), l))
		offers = append(offers, c.offerBPS)
		list = append(list, harness.Claim{Labels: l, DemandBPS: c.offerBPS})
	}
	b.StartAgent(harness.AgentOptions{Rate: "24mbit"})
	for i, c := range containers {
		b.Send(c, harness.Load{Protocol: traffic.UDP, RateBPS: offers[i]})
	}
	ideal, err := harness.Ideal(24*mbit, list)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	m := b.MeasureFor(3 * time.Second)
	for i, c := range containers {
		t.Logf("priority %s, weight %s: %.3f Mbit/s, ideal %.3f", c.Labels["weir.priority"], c.Labels["weir.weight"], m.BPS[i]/mbit, float64(ideal[i])/mbit)
	}
	if err := harness.CheckShares(24*mbit, m, ideal); err != nil {
		t.Error(err)
	}
}

// TestLatency: a bound on delay is taken, in force and shown, and one that
// cannot be kept refused with the smallest that can.
func TestLatency(t *testing.T) {
	b := newBed(t)
	quick := b.Add("quick", labels("min", "20mbit", "latency", "5ms"))
	// A frame of 1514 bytes takes 12.1 ms at 1 Mbit/s.
	b.Add("impossible", labels("min", "1mbit", "latency", "2ms"))
	flooding := b.Add("flooding", nil)
	agent := b.StartAgent(harness.AgentOptions{})
	if got := agent.Container("quick"); got.State != v1.StateOK || got.Policy.LatencyMS != 5 {
		t.Errorf("5 ms at 20 Mbit/s: %+v", got)
	}
	smallest := regexp.MustCompile(`12(\.\d+)? ?ms|13 ?ms`)
	if got := agent.Container("impossible"); got.State != v1.StateRejected || !smallest.MatchString(got.Reason) {
		t.Errorf("2 ms at 1 Mbit/s is %s: %q, want the smallest value that is possible, some 12 ms", got.State, got.Reason)
	}
	if refused := b.Weir("set", "quick", "--latency", "0.1ms"); refused.Code != 1 || refused.Stdout != "" {
		t.Errorf("weir set --latency 0.1ms: %+v", refused)
	}
	if got := agent.Container("quick"); got.Policy.LatencyMS != 5 {
		t.Errorf("after a change that was refused: %+v", got)
	}
	b.Send(flooding, harness.Flood)
	b.Send(quick, harness.Load{Protocol: traffic.UDP, RateBPS: 10 * mbit})
	agent.AwaitContainer("quick", "with a delay", 5*time.Second, func(c v1.Container) bool { return c.DelayP99MS > 0 })
	time.Sleep(2 * time.Second)
	got := agent.Container("quick")
	t.Logf("delay of what is within its minimum: median %.2f ms, 99th percentile %.2f ms", got.DelayP50MS, got.DelayP99MS)
	if got.DelayP50MS > got.DelayP99MS || got.DelayP99MS > 5 {
		t.Errorf("median %.2f ms, 99th percentile %.2f ms, the bound is 5", got.DelayP50MS, got.DelayP99MS)
	}
	if flood := agent.Container("flooding"); flood.DelayP50MS < 1 {
		t.Errorf("a flood waits %.2f ms in its queue: want it to be seen", flood.DelayP50MS)
	}
}
