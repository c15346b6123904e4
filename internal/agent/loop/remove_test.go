package loop

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// A `weir down` that fails leaves everything in force, and one that does not
// nothing.
func TestDownThatFails(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c", "max=10mbit")
	c.container.Seen.HostNetwork, c.container.Seen.CgroupPath = true, "/nowhere"
	b.reconcile()
	ctx := b.serve()
	b.machine.gsoErr = errors.New("device is busy")
	err := b.Down(ctx)
	if err == nil || !strings.Contains(err.Error(), "give up0 back: device is busy") || b.removed {
		t.Errorf("error %v, removed %t", err, b.removed)
	}
	if state, reason := c.container.state(); c.container.Number == 0 || state != v1.StateOK {
		t.Errorf("the container has number %d and is %s (%s)", c.container.Number, state, reason)
	}
	last := b.scheduler.applied[len(b.scheduler.applied)-1]
	if !b.installed() || !b.scheduler.inKernel || !b.classifier.attached || len(last.Competitors) != 2 {
		t.Errorf("installed %t; the kernel has the scheduler: %t, the classifier: %t, classes %v",
			b.installed(), b.scheduler.inKernel, b.classifier.attached, last.Competitors)
	}

	b.machine.gsoErr = nil
	if err := b.Down(ctx); err != nil || !b.removed || b.scheduler.inKernel || b.classifier.attached || c.container.Number != 0 {
		t.Errorf("error %v, removed %t, %+v", err, b.removed, c)
	}
}

// While an uplink is not shared out nothing of a policy is in force there, and
// everybody who looks is told, and what was measured before is not shown.
func TestUplinkIsNotSharedOut(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c", "max=10mbit")
	c.container.Seen.HostNetwork, c.container.Seen.CgroupPath = true, "/nowhere"
	l := newWire(b)
	l.greedy[c] = true
	l.run(1e9)
	if got := c.view(); got.RateBPS == 0 {
		t.Fatalf("nothing is measured: %+v", got)
	}
	b.machine.foreign = &kernel.Qdisc{Handle: 0x8001 << 16, Parent: kernel.HandleRoot, Options: kernel.Unknown{Name: "pfifo"}}
	b.check()
	says := func(what string, state v1.State, reason string) {
		t.Helper()
		if state != v1.StateDegraded || !strings.Contains(reason, "replaced by another program (pfifo qdisc (8001:))") {
			t.Errorf("%s: %s, %q", what, state, reason)
		}
	}
	state, reason := c.container.state()
	says("the container", state, reason)
	state, reason = b.host.container.state()
	says("the host", state, reason)
	says("the uplink", b.link.view().State, b.link.view().Reason)
	if share := c.view(); share.Controlled || share.EntitledBPS+share.AllocatedBPS != 0 {
		t.Errorf("it is shown as entitled to what nothing gives it: %+v", share)
	}
	view, err := b.Set(b.serve(), "c", v1.PolicyChange{Weight: new(string)})
	if err == nil {
		t.Error("an empty weight was set")
	}
	weight := "200"
	if view, err = b.Set(b.serve(), "c", v1.PolicyChange{Weight: &weight}); err != nil {
		t.Error(err)
	}
	says("weir set", view.State, view.Reason)
	if view.RateBPS != 0 {
		t.Errorf("it sends %d bit/s as somebody says", view.RateBPS)
	}
	b.machine.foreign = nil
	b.check()
	if state, reason := c.container.state(); state != v1.StateOK {
		t.Errorf("put back: %s, %q", state, reason)
	}
}

// A link that got slower is shared out at the speed that it has.
func TestSlowerLink(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c", "min=60mbit")
	c.container.Seen.HostNetwork, c.container.Seen.CgroupPath = true, "/nowhere"
	b.machine.speedBPS = 50e6
	b.check()
	if state, reason := c.container.state(); state != v1.StateDegraded || !strings.Contains(reason, "above the speed of up0") || !strings.Contains(reason, "minimum 60mbit is cut to") {
		t.Errorf("%s: %s", state, reason)
	}
	if got := b.scheduler.applied[len(b.scheduler.applied)-1].RateBPS; got != 50e6 || b.link.view().RateBPS != 50e6 {
		t.Errorf("shared out at %d, shown as %d", got, b.link.view().RateBPS)
	}
	b.machine.speedBPS = 1e9
	b.check()
	if state, reason := c.container.state(); state != v1.StateOK || c.class.EntitledBPS != 100e6 {
		t.Errorf("%s: %s, entitled to %d", state, reason, c.class.EntitledBPS)
	}
}

// An uplink that goes on refusing is tried again less and less often.
func TestRepairGivesWay(t *testing.T) {
	b := newBench(t, 100e6)
	b.start("c")
	b.reconcile()
	b.scheduler.err = errors.New("no memory")
	b.reconcile()
	repairs := 0
	for now := epoch; now.Before(epoch.Add(time.Minute)); now = now.Add(restInterval) {
		before := b.scheduler.forgot
		b.control(now)
		if b.scheduler.forgot > before {
			repairs++
		}
	}
	if least, most := int(time.Minute/checkInterval), int(time.Minute/checkInterval)+6; repairs < least || repairs > most {
		t.Errorf("repaired %d times in a minute, want %d to %d", repairs, least, most)
	}
	b.scheduler.err = nil
	b.control(epoch.Add(2 * time.Minute))
	if b.link.device.Problem() != nil || b.link.suspect {
		t.Errorf("still %v", b.link.device.Problem())
	}
}
