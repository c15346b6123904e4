//go:build netns

package netns

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

const mbit = 1_000_000

// sharing is a link and who competes for it.
type sharing struct {
	name        string
	rate        string // 100mbit
	rateBPS     uint64
	window      time.Duration // 3 s
	competitors []competitor
}

var tcp16 = harness.Load{Protocol: traffic.TCP, Connections: 16}

// TestShares compares what containers send with the ideal allocation.
func TestShares(t *testing.T) {
	t.Parallel()
	tcp, flood := harness.TCP, harness.Flood
	checkSharings(t, []sharing{
		{name: "weights", competitors: []competitor{
			{labels("weight", "100"), tcp}, {labels("weight", "200"), tcp}, {labels("weight", "300"), tcp},
		}},
		{name: "connections do not count", competitors: []competitor{{nil, tcp}, {nil, tcp16}}},
		{name: "minimum", competitors: []competitor{
			{labels("min", "60mbit"), tcp}, {nil, flood}, {nil, tcp16},
		}},
		{name: "maximum", competitors: []competitor{
			{labels("max", "15mbit", "weight", "1000"), tcp}, {nil, tcp},
		}},
		{name: "maximum of one alone", competitors: []competitor{{labels("max", "25mbit"), tcp}}},
		{name: "weight, minimum and maximum", competitors: []competitor{
			{labels("min", "50mbit", "weight", "50"), tcp},
			{labels("weight", "300"), tcp16},
			{labels("weight", "100"), flood},
			{labels("max", "5mbit", "weight", "500"), tcp},
		}},
		{name: "who wants less leaves it to the others", competitors: []competitor{
			{labels("weight", "300"), harness.Load{Protocol: traffic.UDP, RateBPS: 10 * mbit}},
			{labels("weight", "100"), tcp}, {labels("weight", "200"), tcp},
		}},
		{name: "priority", competitors: []competitor{
			{labels("weight", "300"), harness.Load{Protocol: traffic.UDP, RateBPS: 10 * mbit}},
			{labels("priority", "10"), tcp}, {nil, tcp},
		}},
		{name: "10 Mbit/s", rate: "10mbit", rateBPS: 10 * mbit, competitors: []competitor{
			{labels("weight", "100"), tcp}, {labels("weight", "200"), tcp}, {labels("weight", "300"), tcp},
		}},
	})
}

// TestBusyProcessorShares is TestShares where one container sends all that a processor can,
// or a millisecond without one shows.
func TestBusyProcessorShares(t *testing.T) {
	tcp := harness.TCP
	checkSharings(t, []sharing{
		{name: "TCP against unlimited UDP", competitors: []competitor{{nil, tcp}, {nil, harness.Load{Protocol: traffic.UDP}}}},
		{name: "1 Gbit/s", rate: "1gbit", rateBPS: 1000 * mbit, competitors: []competitor{
			{labels("weight", "100"), tcp16}, {labels("weight", "200"), tcp}, {labels("weight", "300"), tcp},
		}},
		// 100 kbit/s are eight frames a second: it takes longer to tell. Both
		// always have something to send: what one TCP connection leaves idle
		// while it recovers from a loss is more than the small one's share, and
		// so is a millisecond in which the large one's sender has no CPU. So
		// both send little more than they can get.
		{name: "weights 1 to 1000", window: 6 * time.Second, competitors: []competitor{
			{labels("weight", "10"), harness.Load{Protocol: traffic.UDP, RateBPS: mbit}},
			{labels("weight", "10000"), harness.Load{Protocol: traffic.UDP, RateBPS: 120 * mbit}},
		}},
	})
}

func checkSharings(t *testing.T, tests []sharing) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.rateBPS == 0 {
				test.rate, test.rateBPS = "100mbit", 100*mbit
			}
			if test.window == 0 {
				test.window = 3 * time.Second
			}
			b := newBed(t)
			compete(t, b, harness.AgentOptions{Rate: test.rate}, test.competitors...)
			b.CheckSharesFor(test.rateBPS, claims(test.rateBPS, test.competitors...), test.window)
		})
	}
}

// TestWrongSharesAreFound plants a failure: the check that all tests above
// rely on has to complain about a real measurement when something else was
// expected.
func TestWrongSharesAreFound(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	real := []competitor{{labels("weight", "100"), harness.TCP}, {labels("weight", "200"), harness.TCP}}
	compete(t, b, harness.AgentOptions{}, real...)
	ideal, err := harness.Ideal(100*mbit, claims(100*mbit, real...))
	must.Succeed(t, err)
	b.WarmUp()
	var m harness.Measurement
	b.Check(harness.Duration, func(now harness.Measurement) error {
		m = now
		return harness.CheckShares(100*mbit, now, ideal)
	})
	if m.Slack > 0 {
		harness.SkipBusy(t, "this machine stood still again and again: what was measured is not what the scheduler does")
	}
	for _, test := range []struct {
		name    string
		rateBPS uint64
		weights [2]string
		want    string
	}{
		{"other weights", 100 * mbit, [2]string{"200", "100"}, "container 0 is off"},
		{"slightly other weights", 100 * mbit, [2]string{"110", "200"}, "container 0 is off"},
		{"slower link", 95 * mbit, [2]string{"100", "200"}, "above the link"},
		{"faster link", 105 * mbit, [2]string{"100", "200"}, "of what the link could carry"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ideal, err := harness.Ideal(test.rateBPS, []harness.Claim{
				{Labels: labels("weight", test.weights[0]), DemandBPS: harness.Unlimited},
				{Labels: labels("weight", test.weights[1]), DemandBPS: harness.Unlimited},
			})
			must.Succeed(t, err)
			err = harness.CheckShares(test.rateBPS, m, ideal)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a complaint that has %q", err, test.want)
			}
		})
	}
}

// TestQueueThatRunsDry plants a pause of a sender, as TCP makes on a busy machine: shares are judged
// without the time in which a container that wants all it can get had nothing queued.
func TestQueueThatRunsDry(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one, two := b.Add("one", labels("min", "60mbit")), b.Add("two", nil)
	b.StartAgent(harness.AgentOptions{})
	var senders [2]*traffic.Sender
	for i := range senders {
		must.Succeed(t, one.Enter(func() (err error) {
			senders[i], err = traffic.NewSender(t.Context(), traffic.SenderOptions{Protocol: traffic.TCP, Target: b.Target(one.Slot, false)})
			return err
		}))
		t.Cleanup(senders[i].Stop)
	}
	const stops, pause = 2 * time.Second, 400 * time.Millisecond // a second after measuring begins
	begin := traffic.MonotonicNS()
	senders[0].Start(begin)
	time.AfterFunc(stops, senders[0].Stop)
	senders[1].Start(begin + (stops + pause).Nanoseconds())
	b.Send(two, harness.Flood)
	b.CheckShares(100*mbit, []harness.Claim{
		{Labels: one.Labels, DemandBPS: harness.Unlimited}, {Labels: two.Labels, DemandBPS: harness.Unlimited, Steady: true},
	})
}

// TestSeveralInterfaces: a container has one share, through however many
// interfaces it sends.
func TestSeveralInterfaces(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one, two := b.Add("one", nil), b.Add("two", nil)
	// A second interface, on the same bridge, that leads to the neighbour over
	// IPv6 only.
	second := attachVeth(t, b, one.NetNSPath(), "second")
	inside := []string{"nsenter", "--net=" + one.NetNSPath(), "--"}
	b.Run(append(inside, "ip", "-6", "addr", "add", one.Addr6.String()+"/64", "dev", second, "nodad")...)
	b.Run(append(inside, "ip", "-6", "addr", "del", one.Addr6.String()+"/64", "dev", "eth0")...)
	gateway := one.Addr6.As16()
	gateway[15] = 1
	b.Run(append(inside, "ip", "-6", "route", "replace", "default", "via", address(gateway), "dev", second)...)
	b.StartAgent(harness.AgentOptions{})
	b.Send(one, harness.TCP)
	through := harness.Load{Protocol: traffic.TCP, Connections: 1, V6: true}
	const otherSlot = 3
	b.SendFrom(one.NetNSPath(), otherSlot, through)
	b.Send(two, harness.TCP)
	b.WarmUp()
	b.Check(harness.Duration, func(m harness.Measurement) error {
		if m.BPS[one.Slot] < mbit || m.BPS[otherSlot] < mbit {
			return fmt.Errorf("through the first interface %.1f Mbit/s, through the second %.1f: want some through both",
				m.BPS[one.Slot]/mbit, m.BPS[otherSlot]/mbit)
		}
		m.Move(one.Slot, otherSlot)
		return harness.CheckShares(100*mbit, m, []uint64{50 * mbit, 50 * mbit})
	})
}

// TestDropsAreShown: what was dropped from a container's queue, at its entrance
// or out of its middle, is shown.
func TestDropsAreShown(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.Add("loud", labels("max", "10mbit"))
	quiet := b.Add("quiet", nil)
	agent := b.StartAgent(harness.AgentOptions{})
	flood, ping := b.Send(c, harness.Flood), b.Send(quiet, harness.Load{Protocol: traffic.UDP, RateBPS: 1 * mbit})
	time.Sleep(time.Second)
	flood.Stop()
	ping.Stop()
	agent.AwaitContainer("loud", "with drops", 5*time.Second, func(c v1.Container) bool { return c.DroppedPackets > 0 })
	leaf := fmt.Sprintf("%x:", identity.NumberFirst)
	counted := regexp.MustCompile(`qdisc \w+ ` + leaf + ` parent [^(]*\(dropped (\d+),`).FindStringSubmatch(
		strings.ReplaceAll(b.Run("tc", "-s", "qdisc", "show", "dev", b.Host.UplinkName), "\n", " "))
	if counted == nil {
		t.Fatalf("tc shows no queue %s", leaf)
	}
	agent.AwaitContainer("loud", "the drops that tc tells of", 2*time.Second, func(c v1.Container) bool {
		return fmt.Sprint(c.DroppedPackets) == counted[1]
	})
	if got := agent.Container("quiet").DroppedPackets; got != 0 {
		t.Errorf("%d packets were dropped of a container within its share", got)
	}
}

// TestMarksAreShown: packets of a TCP that can ECN are marked in its queue rather than
// dropped, and that is shown, also by an agent that came later.
func TestMarksAreShown(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.Add("loud", labels("max", "10mbit"))
	plain := b.Add("plain", labels("max", "10mbit"))
	for _, path := range []string{c.NetNSPath(), b.Host.PeerNetNSPath()} {
		inside(b, path, "sysctl", "-q", "-w", "net.ipv4.tcp_ecn=1")
	}
	inside(b, plain.NetNSPath(), "sysctl", "-q", "-w", "net.ipv4.tcp_ecn=0")
	agent := b.StartAgent(harness.AgentOptions{})
	if scheduler := agent.Status().Scheduler; scheduler != "htb+fq_codel" {
		t.Skipf("this kernel has no fq_codel, the queue that marks: the scheduler is %s", scheduler)
	}
	b.Send(c, harness.TCP)
	b.Send(plain, harness.TCP)
	// The first marks may come with drops, of a slow start that filled the queue.
	first, _ := agent.AwaitContainer("loud", "with marks", 20*time.Second, func(c v1.Container) bool { return c.MarkedPackets > 0 })
	later, _ := agent.AwaitContainer("loud", "with more marks", 20*time.Second, func(c v1.Container) bool { return c.MarkedPackets >= first.MarkedPackets+5 })
	t.Logf("%d marked, %d dropped; then %d marked, %d dropped", first.MarkedPackets, first.DroppedPackets, later.MarkedPackets, later.DroppedPackets)
	if later.DroppedPackets != first.DroppedPackets {
		t.Errorf("%d packets were dropped while %d were marked", later.DroppedPackets-first.DroppedPackets, later.MarkedPackets-first.MarkedPackets)
	}
	if got := later.Shares[0].MarkedPackets; got != later.MarkedPackets {
		t.Errorf("its share has %d marked packets, it has %d", got, later.MarkedPackets)
	}
	agent.AwaitContainer("plain", "with drops", 20*time.Second, func(c v1.Container) bool { return c.DroppedPackets > 0 })
	if got := agent.Container("plain").MarkedPackets; got != 0 {
		t.Errorf("%d packets of a TCP without ECN were marked", got)
	}
	agent.Stop()
	if got := b.StartAgent(harness.AgentOptions{}).Container("loud"); got.MarkedPackets < later.MarkedPackets {
		t.Errorf("after a restart of the agent it has %d marked packets, before %d", got.MarkedPackets, later.MarkedPackets)
	}
}
