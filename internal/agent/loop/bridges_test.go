package loop

import (
	"errors"
	"maps"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// fakeBridges remembers at which bridges forged tags are cleared.
type fakeBridges struct {
	attached map[int]bool
	err      error
	// looked is how often it was asked to look at a bridge.
	looked int
}

func (*fakeBridges) Entrances(bridges map[int]bool) (map[int][]kernel.Link, error) {
	found := map[int][]kernel.Link{}
	for bridge := range bridges {
		found[bridge] = []kernel.Link{{Index: bridge}}
	}
	return found, nil
}

func (*fakeBridges) Followers(int) (others kernel.Others, err error) { return others, nil }

func (b *fakeBridges) Attach(ifindex int) error {
	b.looked++
	if b.err == nil {
		b.attached[ifindex] = true
	}
	return b.err
}

func (b *fakeBridges) Detach(kept map[int]bool) error {
	maps.DeleteFunc(b.attached, func(ifindex int, _ bool) bool { return !kept[ifindex] })
	return nil
}

func (*fakeBridges) Close() error { return nil }

// A veth may become a port of a bridge, or of another one, when its container is known.
func TestMovedVeth(t *testing.T) {
	b := newBench(t, 100e6)
	s := b.start("c")
	s.container.Devices = []attach.Device{{Attachment: identity.Attachment{Mode: v1.ModeBridge, Tap: identity.Tap{Ifindex: 10}}}}
	told := func(bridge int) bool {
		s.container.Unattached = false
		b.linkChanged(kernel.LinkEvent{Link: kernel.Link{Index: 10, Kind: "veth", MasterIndex: bridge}})
		return s.container.Unattached
	}
	if told(0) || !told(7) {
		t.Error("it is not looked at again when it has a bridge, or before")
	}
	s.container.Devices[0].BridgeIndex = 7
	if told(0) || told(7) || !told(8) {
		t.Error("it is not looked at again when it has another bridge, or is without that")
	}
}

// Fragments are believed from taps, and from those bridges where a forged tag is
// cleared, while a container is a port of it.
func TestIndexDevices(t *testing.T) {
	b := newBench(t, 100e6)
	bridged := func(name string, tap, bridge int) *share {
		s := b.start(name)
		s.container.Devices = []attach.Device{{Attachment: identity.Attachment{
			Mode: v1.ModeBridge, BridgeIndex: bridge, Tap: identity.Tap{Ifindex: tap}}}}
		return s
	}
	says := func(when string, want ...int) {
		t.Helper()
		wanted := map[int]bool{}
		for _, ifindex := range want {
			wanted[ifindex] = true
		}
		if !maps.Equal(b.classifier.indexDevices, wanted) {
			t.Errorf("%s: fragments are believed from %v, want %v", when, b.classifier.indexDevices, want)
		}
	}
	b.bridges.attached[99] = true // an earlier agent's
	one, two := bridged("one", 10, 7), bridged("two", 11, 8)
	bridged("routed", 12, 0)
	direct := b.start("direct")
	direct.container.Devices = []attach.Device{{Attachment: identity.Attachment{
		Mode: v1.ModeMacvlan, Tap: identity.Tap{NetNSPath: "/n", Ifindex: 2, Egress: true, Priority: true}}}}
	b.reconcile()
	says("at first", 7, 8, 10, 11, 12)
	if !maps.Equal(b.bridges.attached, map[int]bool{7: true, 8: true}) {
		t.Errorf("forged tags are cleared at %v", b.bridges.attached)
	}
	looked := b.bridges.looked
	if b.reconcile(); b.bridges.looked != looked {
		t.Error("it looked again though nothing had changed")
	}

	check := func() {
		b.Agent.attach.Check(b.uplinks.attachments(), epoch)
		b.reconcile()
	}
	delete(b.bridges.attached, 7) // somebody
	check()
	if !b.bridges.attached[7] {
		t.Error("it was not put back")
	}

	b.bridges.err = errors.New("another program comes first there")
	check()
	says("refused", 10, 11, 12)
	if state, reason := one.container.state(); state != v1.StateDegraded || !strings.Contains(reason, "count as the host's: another program comes first there") {
		t.Errorf("refused: %s, %q", state, reason)
	}
	b.bridges.err = nil
	b.reconcile()
	says("again", 7, 8, 10, 11, 12)
	if state, reason := one.container.state(); state != v1.StateOK {
		t.Errorf("again: %s, %q", state, reason)
	}

	b.containers.forget(two.container)
	b.reconcile()
	says("without one of them", 7, 10, 12)
	if b.bridges.attached[8] {
		t.Error("left at a bridge that no container is a port of")
	}
	if err := b.Down(b.serve()); err != nil || len(b.bridges.attached) > 0 {
		t.Errorf("down: %v, left at %v", err, b.bridges.attached)
	}
}
