//go:build netns

package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// callsFirst is a classifier that knows calls: what goes to port 5060 is EF, all else BE.
func callsFirst() FlowClassifier {
	const dstPort, bulk, voip, be, ef = 2, 8, 0, 2, 0
	return FlowClassifier{
		Nodes: []FlowNode{
			{Place: dstPort, Threshold: 5059, Left: 2, Right: 1},
			{Place: dstPort, Threshold: 5060, Left: 3, Right: 2},
			{Place: FlowLeaf, Type: bulk, Level: be, TypeConfidence: 0xffff, LevelConfidence: 0xffff},
			{Place: FlowLeaf, Type: voip, Level: ef, TypeConfidence: 0xffff, LevelConfidence: 0xffff},
		},
		Roots: [2][]uint16{{0}, {0}},
		Ports: make([]uint8, FlowPorts),
	}
}

// openFlows opens flows that last as long as the test, with a classifier, for the bed's uplink.
func (b *bed) openFlows(classifier FlowClassifier) *Flows {
	b.t.Helper()
	flows, err := OpenFlows()
	must.Succeed(b.t, err)
	b.t.Cleanup(func() { flows.Close() })
	must.Succeed(b.t, flows.SetClassifier(classifier))
	b.origins.ShareFlows(flows)
	b.open()
	return flows
}

// classify makes number's flows known by class, at a tap if there is one.
func (b *bed) classify(flows *Flows, number uint16, tap Tap) {
	b.t.Helper()
	must.Succeed(b.t, flows.OpenTable(number, 1024))
	must.Succeed(b.t, b.uplink.SetTrafficClass(number, ClassAuto))
	if tap.Ifindex == 0 {
		return
	}
	b.inHost(func() error {
		if err := flows.AttachFlows(tap, number); err != nil {
			return err
		}
		got, err := TapNumber(tap)
		if err == nil && got != number {
			return fmt.Errorf("the tap says it is assigned to %d, not %d", got, number)
		}
		return err
	})
}

// expectClass asserts that the packets that do sends are of a class at the uplink.
func (b *bed) expectClass(what string, number uint16, want sched.TrafficClass, do func()) {
	b.t.Helper()
	read := func() ClassOffered {
		offered, err := b.uplink.ClassOffered(number)
		must.Succeed(b.t, err)
		return offered
	}
	before := read()
	do()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		now := read()
		if now.Packets[want]-before.Packets[want] < packets && time.Now().Before(deadline) {
			continue
		}
		for class := range now.Packets {
			got := now.Packets[class] - before.Packets[class]
			if sched.TrafficClass(class) == want && got != packets || sched.TrafficClass(class) != want && got != 0 {
				b.t.Errorf("%s: %d packets of class %d, want %d of %d", what, got, class, packets, want)
			}
		}
		return
	}
}

// Whatever way a container's packets take to the uplink, there they are of the class
// that their flow had where the container sent it.
func TestFlowClassesInEveryMode(t *testing.T) {
	b := newBed(t)
	flows := b.openFlows(callsFirst())
	host4 := b.host.PeerAddr.Prev()
	far4, far6 := netip.MustParseAddr("198.18.0.200"), netip.MustParseAddr("fd00:77::c8")
	hidden := b.overlay("hid", 77, host4, b.host.PeerAddr)
	for i, mode := range []struct {
		mode    v1.Mode
		make    func() string
		targets [2]netip.Addr
	}{
		{v1.ModeBridge, func() string { return b.bridgeContainer("one") }, [2]netip.Addr{b.host.PeerAddr, b.host.PeerAddr6}},
		{v1.ModeMacvlan, func() string { return b.macvlanContainer("mv", 101) }, [2]netip.Addr{b.host.PeerAddr, b.host.PeerAddr6}},
		{v1.ModeOverlay, func() string { return b.overlayContainer(hidden, "ov", far4, far6) }, [2]netip.Addr{far4, far6}},
		{v1.ModeHost, b.hostNS, [2]netip.Addr{b.host.PeerAddr, b.host.PeerAddr6}},
	} {
		t.Run(string(mode.mode), func(t *testing.T) {
			b.t = t
			ns, number := mode.make(), NumberFirst+uint16(i)
			send := func(target netip.AddrPort) func() { return func() { b.sendIn(ns, target, 0) } }
			var tap Tap
			if mode.mode == v1.ModeHost {
				cgroup := b.cgroup("one")
				must.Succeed(t, b.uplink.AssignCgroup(cgroup, number))
				send = func(target netip.AddrPort) func() {
					return func() { b.sendFromCgroup("send", ns, cgroup, target) }
				}
			} else {
				tap = b.assign(ns, mode.mode, number)
			}
			if mode.mode == v1.ModeBridge {
				b.meet(ns)
			}
			b.classify(flows, number, tap)
			for _, target := range mode.targets {
				b.expectClass(fmt.Sprint("call to ", target), number, sched.EF, send(netip.AddrPortFrom(target, 5060)))
				b.expectClass(fmt.Sprint("else to ", target), number, sched.BE, send(netip.AddrPortFrom(target, 9)))
			}
			b.expectFlows(flows, number, mode.targets)
			if tap.Ifindex == 0 {
				return
			}
			// Without classes the tap is as before, and does not look at flows.
			must.Succeed(t, b.uplink.SetTrafficClass(number, sched.Unclassified))
			b.assign(ns, mode.mode, number)
			b.inHost(func() error {
				program, err := tap.back().Find(flowProgWeirBack)
				if err == nil && program != nil {
					err = errors.New("the program of the other direction is still there")
				}
				return err
			})
		})
	}
}

// expectFlows asserts that the flows of a number are those that were sent, as the
// container sees them.
func (b *bed) expectFlows(flows *Flows, number uint16, targets [2]netip.Addr) {
	b.t.Helper()
	want := map[netip.AddrPort]bool{}
	for _, target := range targets {
		want[netip.AddrPortFrom(target, 5060)], want[netip.AddrPortFrom(target, 9)] = true, true
	}
	err := flows.Each(number, func(f Flow) bool {
		if !want[f.Responder] {
			return true // multicast listeners and the like
		}
		if f.Packets[0] != packets || f.Bytes[0] < uint64(packets*payloadTo(f.Responder)) || f.Proto != 17 || f.Stage != 2 || f.Idle > time.Minute {
			b.t.Errorf("flow %+v", f)
		}
		delete(want, f.Responder)
		return true
	})
	if err != nil || len(want) > 0 {
		b.t.Errorf("no flows to %v, %v", want, err)
	}
}

// Another agent goes on with the flows of the one before.
func TestFlowsOutliveTheAgent(t *testing.T) {
	b := newBed(t)
	first, err := OpenFlows()
	must.Succeed(t, err)
	must.Succeed(t, first.SetClassifier(callsFirst()))
	b.origins.ShareFlows(first)
	b.open()
	ns := b.bridgeContainer("one")
	tap := b.assign(ns, v1.ModeBridge, NumberFirst)
	b.meet(ns)
	b.classify(first, NumberFirst, tap)
	must.Succeed(t, first.Close())
	target := netip.AddrPortFrom(b.host.PeerAddr, 5060)
	b.expectClass("without an agent", NumberFirst, sched.EF, func() { b.sendIn(ns, target, 0) })
	var second *Flows
	b.inHost(func() (err error) {
		second, err = OpenFlows(b.ifindex)
		return err
	})
	defer second.Close()
	if !second.HasClassifier() {
		t.Error("the next agent finds no classifier")
	}
	if size, err := second.TableFlows(NumberFirst); err != nil || size != 1024 {
		t.Errorf("the next agent finds a table of %d flows, %v", size, err)
	}
	found := 0
	if err := second.Each(NumberFirst, func(f Flow) bool { found++; return f.Class != sched.EF }); err != nil || found == 0 {
		t.Errorf("the next agent finds %d flows, %v", found, err)
	}
	must.Succeed(t, second.CloseTable(NumberFirst))
	if size, err := second.TableFlows(NumberFirst); err != nil || size != 0 {
		t.Errorf("a table of %d flows after it was closed, %v", size, err)
	}
}
