//go:build netns

package identity

import (
	"net/netip"
	"os"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/must"
)

// TestWakeups: the first packet after ArmWakeup wakes the agent, once, at an uplink and at the IFB for what it
// receives. Control traffic does not.
func TestWakeups(t *testing.T) {
	b := newBed(t)
	b.openFlows(callsFirst())
	one := b.bridgeContainer("one")
	b.assign(one, v1.ModeBridge, NumberFirst)
	in, _ := b.openIncoming()
	if size := b.origins.wakeups.MaxEntries(); size != uint32(os.Getpagesize()) {
		t.Errorf("the ring of wake-ups takes %d bytes, thrice", size)
	}
	woken, err := b.origins.Wakeups()
	must.Succeed(t, err)
	target := netip.AddrPortFrom(b.host.PeerAddr, callPort)
	b.echo(target, payloadBytes)
	b.ask(one, target, 1) // addresses are known from here on

	wakes := func(within time.Duration) bool {
		select {
		case err := <-woken:
			must.Succeed(t, err)
			return true
		case <-time.After(within):
			return false
		}
	}
	wakes(200 * time.Millisecond)
	for _, at := range []struct {
		name   string
		uplink *Uplink
	}{{"the uplink", b.uplink}, {"what it receives", in.Uplink}} {
		must.Succeed(t, at.uplink.ArmWakeup())
		if first, err := at.uplink.WokenAt(); err != nil || !first.IsZero() {
			t.Errorf("%s: before any packet %s, %v", at.name, first, err)
		}
		b.sendARP(b.hostNS(), b.host.UplinkName, 3)
		if wakes(100 * time.Millisecond) {
			t.Errorf("%s: control traffic wakes the agent", at.name)
		}
		before := time.Now()
		b.ask(one, target, 3)
		if !wakes(time.Second) || wakes(100*time.Millisecond) {
			t.Errorf("%s: three packets do not wake the agent once", at.name)
		}
		first, err := at.uplink.WokenAt()
		if err != nil || first.Before(before) || first.After(before.Add(50*time.Millisecond)) {
			t.Errorf("%s: the first packet came after %s, %v", at.name, first.Sub(before), err)
		}
	}
	first, err := b.uplink.globals.values.Info()
	must.Succeed(t, err)
	if own, err := b.uplink.globals.wake.Info(); err != nil || own.Name == first.Name {
		t.Errorf("writing other variables writes the wake-up again, in map %s: %v", first.Name, err)
	}
	must.Succeed(t, b.uplink.ArmWakeup())
	must.Succeed(t, in.ArmWakeup())
	b.ask(one, target, 1)
	for _, u := range []*Uplink{b.uplink, in.Uplink} {
		if first, err := u.WokenAt(); err != nil || first.IsZero() {
			t.Errorf("armed at both, one has noted no packet: %v", err)
		}
	}
}
