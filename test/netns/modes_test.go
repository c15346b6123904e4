//go:build netns

package netns

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
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
	// eagerness is how much more than its share each sender offers: enough to
	// fill its queue again after the machine let it wait.
	eagerness = 3
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
	must.Succeed(t, err)
	for _, run := range []struct {
		name      string
		tolerance float64
		duration  time.Duration // 3 s, where the clock is steady less for what is steady
		load      func(i int) harness.Load
	}{
		{"UDP", harness.SteadyTolerance, harness.Duration, func(i int) harness.Load {
			return harness.Load{Protocol: traffic.UDP, RateBPS: uint64(eagerness * float64(ideal[i])), V6: i%2 == 0}
		}},
		{"TCP", harness.ShareTolerance, 3 * time.Second, func(i int) harness.Load {
			return harness.Load{Protocol: traffic.TCP, Connections: 1 + 3*(i%2), V6: i%2 == 1}
		}},
	} {
		t.Run(run.name, func(t *testing.T) {
			for i, c := range containers {
				t.Cleanup(b.Send(c, run.load(i)).Stop)
			}
			time.Sleep(time.Second)
			b.CheckIdeal(run.tolerance, slowBPS, ideal, run.duration)
		})
	}
}

// TestModes: weights, a minimum and a maximum hold in every mode.
func TestModes(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

// TestOverlayBesideMacvlan: while the kernel watches where packets come from, an
// overlay's are those of its containers from the first on. Were they not, the
// flood of one would cost the other its address resolution, and a second.
func TestOverlayBesideMacvlan(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	_, containers := join(t, b, harness.AgentOptions{Rate: slowRate},
		member{testbed.ModeMacvlan, nil}, member{testbed.ModeOverlay, nil}, member{testbed.ModeOverlay, nil})
	flood, late := containers[1], containers[2]
	arrived := func(c *harness.Container) {
		t.Helper()
		b.Await("traffic of "+c.Name, 500*time.Millisecond, func() (bool, string) {
			return b.Snapshot().Slots[c.Slot].Bytes > 0, "nothing arrives"
		})
	}
	b.Send(flood, harness.Load{Protocol: traffic.UDP, RateBPS: 2 * slowBPS})
	arrived(flood)
	b.Send(late, harness.Load{Protocol: traffic.UDP, RateBPS: mbit, V6: true})
	arrived(late)
}

// TestNestedCgroup: processes of a container in the host's network that are in
// cgroups of their own below it count as the container, and what is in no
// container's cgroup as the host.
func TestNestedCgroup(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := b.AddMode("one", testbed.ModeHost, nil)
	two := b.AddMode("two", testbed.ModeHost, nil)
	b.StartAgent(harness.AgentOptions{Rate: slowRate})
	nested, err := b.Host.Nested(one.NetContainer, "nested")
	must.Succeed(t, err)
	const nestedSlot = 2
	eager := harness.Load{Protocol: traffic.UDP, RateBPS: 12 * mbit}
	b.Send(one, eager)
	b.Send(&harness.Container{NetContainer: nested, Slot: nestedSlot}, eager)
	b.Send(two, eager)
	b.SendFrom(b.Host.NetNSPath(), harness.HostSlot, eager)
	b.WarmUp()
	b.Check(harness.Duration, func(m harness.Measurement) error {
		if m.BPS[one.Slot] < mbit/5 || m.BPS[nestedSlot] < mbit/5 {
			return fmt.Errorf("the container sent %.2f Mbit/s itself and %.2f from the cgroup below: want some of both",
				m.BPS[one.Slot]/mbit, m.BPS[nestedSlot]/mbit)
		}
		m.Move(one.Slot, nestedSlot)
		m.Move(nestedSlot, harness.HostSlot)
		third := uint64(slowBPS / 3)
		return harness.CheckSharesWithin(harness.SteadyTolerance, slowBPS, m, []uint64{third, third, third})
	})
}

// TestTwoNetworks: a container in two networks of different modes is one
// container, with one share.
func TestTwoNetworks(t *testing.T) {
	t.Parallel()
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
			b.WarmUp()
			b.Check(harness.Duration, func(m harness.Measurement) error {
				if m.BPS[one.Slot] < mbit/5 || m.BPS[secondSlot] < mbit/5 {
					return fmt.Errorf("through the overlay %.1f Mbit/s, through the %s network %.1f: want some through both",
						m.BPS[one.Slot]/mbit, second, m.BPS[secondSlot]/mbit)
				}
				m.Move(one.Slot, secondSlot)
				return harness.CheckSharesWithin(harness.SteadyTolerance, slowBPS, m, []uint64{5 * mbit, 15 * mbit})
			})
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
			must.Succeed(t, err)
			before := agent.Container(containers[1].Name).SentBytes
			for _, target := range []netip.Addr{containers[0].Addr, containers[0].Addr6} {
				var sender *traffic.Sender
				err = containers[1].Enter(func() (err error) {
					sender, err = traffic.NewSender(t.Context(), traffic.SenderOptions{
						Target: netip.AddrPortFrom(target, port), Protocol: traffic.TCP,
					})
					return err
				})
				must.Succeed(t, err)
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
	t.Parallel()
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
	must.Succeed(t, err)
	b.WarmUp()
	b.Check(6*time.Second, func(m harness.Measurement) error {
		for i, c := range containers {
			t.Logf("priority %s, weight %s: %.3f Mbit/s, ideal %.3f", c.Labels["weir.priority"], c.Labels["weir.weight"], m.BPS[i]/mbit, float64(ideal[i])/mbit)
		}
		return harness.CheckShares(24*mbit, m, ideal)
	})
}

// TestLatency: a bound on delay is taken, in force and shown, and one that
// cannot be kept refused with the smallest that can.
func TestLatency(t *testing.T) {
	b := newBed(t)
	quick := b.Add("quick", labels("min", "20mbit", "latency", "5ms"))
	// Two packets of others take 0.5 ms on the link.
	b.Add("impossible", labels("min", "1mbit", "latency", "0.4ms"))
	flooding := b.Add("flooding", nil)
	agent := b.StartAgent(harness.AgentOptions{})
	if got := agent.Container("quick"); got.State != v1.StateOK || got.Policy.LatencyMS != 5 {
		t.Errorf("5 ms at 20 Mbit/s: %+v", got)
	}
	smallest := regexp.MustCompile(`50\d ?µs`)
	if got := agent.Container("impossible"); got.State != v1.StateRejected || !smallest.MatchString(got.Reason) {
		t.Errorf("0.4 ms at 1 Mbit/s is %s: %q, want the smallest value that is possible, some 0.5 ms", got.State, got.Reason)
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
	b.WarmUp()
	m := b.MeasureFor(2 * time.Second)
	got := agent.Container("quick")
	if flood := agent.Container("flooding"); flood.DelayP50MS < 1 {
		t.Errorf("a flood waits %.2f ms in its queue: want it to be seen", flood.DelayP50MS)
	}
	delays := fmt.Sprintf("within its minimum: median %.2f ms, 99th percentile %.2f ms, the bound is 5", got.DelayP50MS, got.DelayP99MS)
	t.Log(delays)
	switch {
	case got.DelayP50MS > got.DelayP99MS || got.DelayP50MS > 5:
		t.Error(delays)
	// What waits while a processor stands still waits for that.
	case got.DelayP99MS > 5 && m.Paused > m.Duration/200:
		harness.SkipBusy(t, fmt.Sprintf("a processor stood still for %v of %v, which explains this: %s", m.Paused, m.Duration, delays))
	case got.DelayP99MS > 5:
		t.Error(delays)
	}
}

// TestVethVanishesWhileAttaching: containers that lose their interface while
// the agent is about to assign it neither stop it nor leave anything.
func TestVethVanishesWhileAttaching(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	f := newFleet(t, b, 8)
	agent := b.StartAgent(harness.AgentOptions{Settings: f.config()})
	// With one that works: what is checked below needs something to compare.
	must.Succeed(t, f.start(0))
	f.await(agent, 1, noticed)
	programs, classes := len(bpfPrograms(t, b)), len(tcClasses(b))
	for turn := range 40 {
		number := 1 + turn%(f.size-1)
		must.Succeed(t, f.start(number))
		// From at once to when it is certainly assigned.
		time.Sleep(time.Duration(turn) * time.Millisecond / 2)
		b.Run("ip", "link", "del", fmt.Sprintf("vf%d", f.veths.Load()))
		if turn%2 == 0 {
			b.Run("ip", "-n", f.ns(number), "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
		}
		must.Succeed(t, f.stop(number))
	}
	f.await(agent, 1, 2*time.Second)
	b.Await("nothing left of those that came and went", 2*time.Second, func() (bool, string) {
		nowPrograms, nowClasses := len(bpfPrograms(t, b)), len(tcClasses(b))
		return nowPrograms == programs && nowClasses == classes,
			fmt.Sprintf("%d programs, were %d; %d classes, were %d", nowPrograms, programs, nowClasses, classes)
	})
	if got := agent.Status(); got.State != v1.StateOK {
		t.Errorf("the agent is %s: %s", got.State, got.Reason)
	}
}

// TestHiddenNamespaceGoes: the network of an overlay goes while containers are
// in it, and others are not disturbed.
func TestHiddenNamespaceGoes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	agent, containers := join(t, b, harness.AgentOptions{Rate: slowRate},
		member{testbed.ModeBridge, nil}, member{testbed.ModeOverlay, nil})
	b.Run("ip", "-n", filepath.Base(b.Host.OverlayNetNSPath()), "link", "del", containers[1].HostInterface)
	b.Run("ip", "netns", "del", filepath.Base(b.Host.OverlayNetNSPath()))
	agent.AwaitContainer(containers[1].Name, "without a network", checkInterval+noticed, func(c v1.Container) bool {
		return c.Mode == v1.ModeNone
	})
	b.Send(containers[0], harness.Load{Protocol: traffic.UDP, RateBPS: 30 * mbit})
	b.CheckShares(slowBPS, []harness.Claim{{DemandBPS: harness.Unlimited}})
	if got := agent.Container(containers[0].Name); !inForce(got) {
		t.Errorf("the other container: %+v", got)
	}
}

// TestInterfaceMoves: an interface that is moved to another container while it
// carries traffic counts as that container's from then on.
func TestInterfaceMoves(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := b.Add("one", labels("max", "2mbit"))
	two := b.Add("two", labels("max", "5mbit"))
	agent := b.StartAgent(harness.AgentOptions{Rate: slowRate})
	inside(b, two.NetNSPath(), "ip", "link", "del", two.Interface())
	agent.AwaitContainer("two", "without a network", noticed, func(c v1.Container) bool { return c.Mode == v1.ModeNone })
	inside(b, one.NetNSPath(), "ip", "link", "set", one.Interface(), "netns", netNSName(two))
	gateway := one.Addr.As4()
	gateway[2], gateway[3] = gateway[2]&^3, 1 // of the bridge's /22
	for _, args := range [][]string{
		{"link", "set", one.Interface(), "up"},
		{"addr", "add", one.Addr.String() + "/22", "dev", one.Interface()},
		{"route", "add", "default", "via", netip.AddrFrom4(gateway).String()},
	} {
		inside(b, two.NetNSPath(), append([]string{"ip"}, args...)...)
	}
	agent.AwaitContainer("one", "without a network", checkInterval+noticed, func(c v1.Container) bool { return c.Mode == v1.ModeNone })
	agent.AwaitContainer("two", "controlled", checkInterval+noticed, controlled)
	b.Send(two, harness.Load{Protocol: traffic.UDP, RateBPS: 10 * mbit})
	time.Sleep(500 * time.Millisecond)
	ideal := make([]uint64, two.Slot+1)
	ideal[two.Slot] = 5 * mbit // the maximum of who has the interface now
	b.CheckIdeal(harness.ShareTolerance, slowBPS, ideal, 2*time.Second)
}

// TestOtherLabelsAfterRestart: labels that changed in the config file while no
// agent ran are in force after the restart, in the same class.
func TestOtherLabelsAfterRestart(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := b.Add("one", labels("weight", "100", "max", "2mbit"))
	agent := b.StartAgent(harness.AgentOptions{Rate: slowRate})
	classes := tcClasses(b)
	agent.Stop()
	one.Labels = labels("weight", "300", "max", "5mbit")
	agent = b.StartAgent(harness.AgentOptions{Rate: slowRate})
	if got := agent.Container("one"); got.Policy != harness.Policy(v1.Policy{Weight: 300, MaxBPS: 5 * mbit}) || !inForce(got) {
		t.Errorf("got %+v", got)
	}
	if now := tcClasses(b); !slices.Equal(now, classes) {
		t.Errorf("classes were %v, are %v", classes, now)
	}
	b.Send(one, harness.Load{Protocol: traffic.UDP, RateBPS: 10 * mbit})
	b.CheckShares(slowBPS, []harness.Claim{{Labels: one.Labels, DemandBPS: harness.Unlimited}})
}

// TestCgroupComesAndGoes: a container in the host's network is there while its
// cgroup is, and what it sends before and after is the host's.
func TestCgroupComesAndGoes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := b.AddMode("one", testbed.ModeHost, labels("max", "2mbit"))
	must.Succeed(t, os.Remove(one.CgroupPath()))
	agent := b.StartAgent(harness.AgentOptions{Rate: slowRate})
	if got, there := agent.Containers()["one"]; there {
		t.Errorf("without its cgroup: %+v", got)
	}
	for range 2 {
		must.Succeed(t, os.Mkdir(one.CgroupPath(), 0o755))
		agent.AwaitContainer("one", "in force", 2*time.Second, func(c v1.Container) bool {
			return inForce(c) && c.Mode == v1.ModeHost
		})
		sender := b.Send(one, harness.Load{Protocol: traffic.UDP, RateBPS: 10 * mbit})
		time.Sleep(300 * time.Millisecond)
		b.CheckMaximum(one.Slot, 2*mbit, time.Second)
		sender.Stop()
		must.Succeed(t, os.Remove(one.CgroupPath()))
		agent.AwaitGone("one", 2*time.Second)
	}
}

// TestCgroupElsewhere: a cgroup whose processes have a network of their own is
// not a part of the host's network, and the agent says so while that is so.
func TestCgroupElsewhere(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := b.AddMode("one", testbed.ModeHost, labels("max", "2mbit"))
	two := b.Add("two", nil)
	agent := b.StartAgent(harness.AgentOptions{Rate: slowRate})
	agent.AwaitContainer("one", "in force", noticed, inForce)

	cgroup, err := os.Open(one.CgroupPath())
	must.Succeed(t, err)
	defer cgroup.Close()
	process := exec.Command("ip", "netns", "exec", netNSName(two), "cat") // ends with its input
	process.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	input, err := process.StdinPipe()
	must.Succeed(t, err)
	defer input.Close() // also when the test fails: its cgroup goes with the bed
	must.Succeed(t, process.Start())
	agent.AwaitContainer("one", "elsewhere", checkInterval+noticed, func(c v1.Container) bool {
		return c.State == v1.StateDegraded && strings.Contains(c.Reason, "another network namespace")
	})
	input.Close()
	if err := process.Wait(); err != nil {
		t.Error(err)
	}
	agent.AwaitContainer("one", "in force again", checkInterval+noticed, inForce)
}

// TestWithoutCgroups: where cgroups of version 2 are not mounted, containers in
// the host's network cannot be told from the host. The agent says so, and
// controls all others.
func TestWithoutCgroups(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	host := b.AddMode("host-mode", testbed.ModeHost, nil)
	b.Add("bridged", nil)
	mount := strings.TrimSuffix(host.CgroupPath(), "/"+filepath.Base(host.CgroupPath()))
	agent := b.StartAgent(harness.AgentOptions{Wrapper: []string{
		"unshare", "--mount", "sh", "-c", `umount -l "$0" && exec "$@"`, mount,
	}})
	if got := agent.Container("bridged"); !inForce(got) {
		t.Errorf("the container on the bridge: %+v", got)
	}
	if got := agent.Container("host-mode"); got.State == v1.StateOK {
		t.Errorf("a container that cannot be told from the host is said to be controlled: %+v", got)
	}
	if said := agent.Said(); !strings.Contains(said, "cgroup") {
		t.Errorf("the agent says nothing of cgroups:\n%s", said)
	}
}
