//go:build netns

package netns

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// application is what one program in a container sends.
type application struct {
	port         uint16
	class        v1.Class
	payloadBytes int
	bps          float64
	timed        *traffic.Timed
}

// timedApplications lets a container send to ports of the neighbour.
func timedApplications(t *testing.T, b *harness.Bed, c *harness.Container, apps []*application) *traffic.Receiver {
	t.Helper()
	var ports []uint16
	for _, app := range apps {
		ports = append(ports, app.port)
	}
	var receiver *traffic.Receiver
	err := testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		receiver, err = traffic.NewReceiver(ports...)
		return err
	})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = receiver.Close() })
	for _, app := range apps {
		target := netip.AddrPortFrom(c.PeerAddr, app.port)
		wireBits := 8 * float64(traffic.WireBytesUDP(target.Addr(), app.payloadBytes))
		err := c.Enter(func() (err error) {
			app.timed, err = traffic.NewTimed(traffic.TimedOptions{
				Targets: []netip.AddrPort{target}, PayloadBytes: app.payloadBytes, IntervalNS: 1e9 * wireBits / app.bps,
			})
			return err
		})
		must.Succeed(t, err)
		t.Cleanup(func() { _ = app.timed.Stop() })
		app.timed.Start(traffic.MonotonicNS())
	}
	return receiver
}

// medianDelay is that of what arrived.
func medianDelay(arrivals []traffic.Arrival) time.Duration {
	var delays []time.Duration
	for _, a := range arrivals {
		delays = append(delays, a.Delay())
	}
	slices.Sort(delays)
	return delays[len(delays)/2]
}

// TestApplicationsInOrder: one container whose class is auto sends name queries, web
// traffic and file transfers, more than its share, beside a plain one that floods.
// The queries do not wait behind the rest and none is lost, web traffic has its
// minimum, the other container its share; and what is shown of classes and of flows
// is what was sent.
func TestApplicationsInOrder(t *testing.T) {
	b := newBed(t)
	mixed := b.Add("mixed", labels("class", "auto"))
	plain := b.Add("plain", nil)
	agent := b.StartAgent(harness.AgentOptions{Rate: "20mbit"})
	flood := harness.Load{Protocol: traffic.UDP, RateBPS: 30 * mbit}
	b.Send(plain, flood)
	ef := &application{port: 53, class: v1.ClassEF, payloadBytes: 160, bps: mbit}
	af := &application{port: 443, class: v1.ClassAF, payloadBytes: 1200, bps: 8 * mbit}
	be := &application{port: 69, class: v1.ClassBE, payloadBytes: 1200, bps: 20 * mbit}
	apps := []*application{ef, af, be}
	receiver := timedApplications(t, b, mixed, apps)
	ideal, err := harness.Ideal(20*mbit, claims(20*mbit, competitor{labels("class", "auto"), flood}, competitor{nil, flood}))
	must.Succeed(t, err)
	b.WarmUp()
	early, overruns := receiver.Take()
	arrived := [3]int{len(early[0]), len(early[1]), len(early[2])}
	b.Check(4*time.Second, func(m harness.Measurement) error {
		want := float64(ideal[1])
		if got, most := m.BPS[plain.Slot], harness.SteadyTolerance+m.Slack; got < want*(1-most) || got > want*(1+most) {
			return fmt.Errorf("the other container has %.3f Mbit/s, want %.3f; CPU: %s", got/mbit, want/mbit, m.CPU)
		}
		return nil
	})
	during := agent.Container("mixed")
	received, lost := receiver.Take()
	overruns += lost
	for _, app := range apps {
		if err := app.timed.Stop(); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(1500 * time.Millisecond) // until the queues are empty, and counted
	for i, list := range received {
		arrived[i] += len(list)
	}
	// The kernel may leave the last to a thread that waits for a processor.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		late, lost := receiver.Take()
		overruns += lost
		for i, list := range late {
			arrived[i] += len(list)
		}
		if arrived[0] >= int(ef.timed.Sent()[0]) || time.Now().After(deadline) {
			break
		}
	}
	if overruns > 0 {
		harness.SkipBusy(t, fmt.Sprintf("the receiver lost %d datagrams itself", overruns))
	}

	efDelay, beDelay := medianDelay(received[0]), medianDelay(received[2])
	afSeen := class(t, during, v1.ClassAF)
	t.Logf("median delays: EF %v, AF %v, BE %v; AF has %.2f Mbit/s of at least %.2f; EF: %d of %d arrived",
		efDelay, medianDelay(received[1]), beDelay, float64(afSeen.RateBPS)/mbit, float64(afSeen.MinBPS)/mbit, arrived[0], ef.timed.Sent()[0])
	if efDelay > beDelay/4 {
		t.Errorf("EF waits %v, BE %v", efDelay, beDelay)
	}
	if sent := int(ef.timed.Sent()[0]); arrived[0] != sent {
		t.Errorf("%d of %d datagrams of EF were lost", sent-arrived[0], sent)
	}
	if sent := int(be.timed.Sent()[0]); arrived[2] >= sent {
		t.Errorf("nothing of BE was lost: %d of %d arrived: it was no overload", arrived[2], sent)
	}
	if during.State != v1.StateOK || afSeen.MinBPS == 0 || float64(afSeen.RateBPS) < 0.99*float64(afSeen.MinBPS) {
		t.Errorf("AF has %d bit/s of at least %d; %s: %s", afSeen.RateBPS, afSeen.MinBPS, during.State, during.Reason)
	}
	checkSeen(t, b, apps, arrived)
}

// checkSeen compares what `weir flows` and `weir ps` say with what was sent, and with
// each other.
func checkSeen(t *testing.T, b *harness.Bed, apps []*application, arrived [3]int) {
	t.Helper()
	var containers []v1.Container
	var flows []v1.Flow
	for command, into := range map[string]any{"ps": &containers, "flows": &flows} {
		must.Succeed(t, json.Unmarshal([]byte(b.MustWeir(command, "-o", "json")), into))
	}
	at := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == "mixed" })
	for i, app := range apps {
		of := slices.IndexFunc(flows, func(f v1.Flow) bool {
			responder, err := netip.ParseAddrPort(f.Responder)
			return err == nil && responder.Port() == app.port && f.Protocol == "udp"
		})
		if of < 0 {
			t.Errorf("no flow to port %d: %+v", app.port, flows)
			continue
		}
		flow, seen := flows[of], class(t, containers[at], app.class)
		if flow.Class != app.class || flow.Container != "mixed" || flow.SentPackets != uint32(app.timed.Sent()[0]) {
			t.Errorf("of port %d, %d datagrams: flow %+v, want class %s", app.port, app.timed.Sent()[0], flow, app.class)
		}
		// A flow's first packets may be of another class, until its second verdict.
		const first = 16
		if off := int(seen.SentPackets) - arrived[i]; off < -first || off > first {
			t.Errorf("class %s sent %d packets, %d arrived at port %d", app.class, seen.SentPackets, arrived[i], app.port)
		}
	}
}
