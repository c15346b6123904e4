package uplink

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/test/must"
)

// TestIncomingName: names fit a device, are readable, and differ where those of uplinks do.
func TestIncomingName(t *testing.T) {
	seen := map[string]string{}
	for _, uplink := range []string{"eth0", "enp0s31f6.10", "enp0s31f6.100", "enp0s31f6.1000", "enp0s31f6.1001"} {
		name := IncomingName(uplink)
		if len(name) > 15 || name[:6] != ("in-" + uplink)[:6] || seen[name] != "" {
			t.Errorf("%s: %s, as %s", uplink, name, seen[name])
		}
		seen[name] = uplink
	}
	if got := IncomingName("eth0"); got != "in-eth0" {
		t.Errorf("eth0: %s", got)
	}
}

// newIncoming returns the device of what wwan0, which reports no speed and has the returned index, receives.
func newIncoming(t *testing.T, in InConfig) (b *bench, wwan0 *int) {
	t.Helper()
	in.Shared = true
	b = newBench(t, Config{Name: "wwan0", In: in}.Incoming("wwan0"))
	wwan0 = new(3)
	b.machine.add(3, "wwan0", 0)
	b.Device.machine = b.machine.Incoming(func() (string, int) { return "wwan0", *wwan0 })
	return b, wwan0
}

// TestIncomingComesAndGoes: the IFB is there while its uplink is, and no longer than Weir.
func TestIncomingComesAndGoes(t *testing.T) {
	b, wwan0 := newIncoming(t, InConfig{RateBPS: 4e7})
	b.advance()
	b.expect("at first", Installed, 0)
	ifb := b.Ifindex()
	delete(b.machine.devices, ifb)
	b.advance()
	if b.expect("deleted by another program", Installed, 0); b.Ifindex() == ifb {
		t.Error("it is the deleted one")
	}
	*wwan0 = 0
	b.advance()
	if b.expect("without its uplink", Absent, Missing); len(b.machine.devices) != 1 {
		t.Errorf("devices: %v", b.machine.devices)
	}
	*wwan0 = 3
	b.advance()
	b.expect("with its uplink", Installed, 0)
	b.machine.fail["Discard"] = errors.New("no memory")
	if err := b.GiveBack(); !errors.Is(err, b.machine.fail["Discard"]) || b.store.IndexOf("in-wwan0") == 0 {
		t.Errorf("given back: %v, saved %+v", err, b.store.Uplinks)
	}
	clear(b.machine.fail)
	b.advance()
	b.expect("given back in vain", Installed, 0)
	must.Succeed(t, b.GiveBack())
	if len(b.machine.devices) != 1 || len(b.store.Uplinks) != 0 {
		t.Errorf("left: %v, saved %+v", b.machine.devices, b.store.Uplinks)
	}
}

// TestIncomingWithoutRateRemembered: the IFB is remembered, to be removed without an agent, also while nothing is shared there.
func TestIncomingWithoutRateRemembered(t *testing.T) {
	b, _ := newIncoming(t, InConfig{})
	for range 2 {
		b.advance()
		b.expect("without a rate", Absent, NoRate)
		ifb, err := b.Device.machine.LinkByName("in-wwan0")
		if must.Succeed(t, err); b.store.IndexOf("in-wwan0") != ifb.Index {
			t.Errorf("saved %+v, the IFB is %+v", b.store.Uplinks, ifb)
		}
		b.machine.devices[3].speedBPS = 1e8
		b.advance()
		b.expect("with a speed", Installed, 0)
		b.machine.devices[3].speedBPS = 0
		b.Configure(Config{Name: "wwan0", In: InConfig{Shared: true, RateBPS: 4e7}}.Incoming("wwan0"))
		b.advance()
		b.Configure(Config{Name: "wwan0", In: InConfig{Shared: true}}.Incoming("wwan0"))
	}
	must.Succeed(t, b.GiveBack())
	if len(b.store.Uplinks) > 0 || len(b.machine.devices) != 1 {
		t.Errorf("left: %v, saved %+v", b.machine.devices, b.store.Uplinks)
	}
}

// TestIncomingReasons: problems of received traffic name the uplink that users configured, not the IFB that Weir made.
func TestIncomingReasons(t *testing.T) {
	for want, of := range map[string]struct {
		rateBPS, speedBPS uint64
		absent            bool
	}{
		"wwan0 does not report its speed: say how fast it is, e.g. --in-rate 100mbit":              {0, 0, false},
		"the rate 40mbit is above 97 % of the speed of wwan0, which is 9.7mbit: give that or less": {4e7, 1e7, false},
		"it is shared out once wwan0 is": {4e7, 0, true},
	} {
		b, wwan0 := newIncoming(t, InConfig{RateBPS: of.rateBPS})
		b.machine.devices[3].speedBPS = of.speedBPS
		if of.absent {
			*wwan0 = 0
		}
		b.advance()
		if text := problems(b.Device).Error(); !strings.HasPrefix(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// TestIncomingObstructed: nothing is redirected past programs of others unless that is forced, and packets that do not
// get to the redirect are a problem.
func TestIncomingObstructed(t *testing.T) {
	b, _ := newIncoming(t, InConfig{RateBPS: 4e7})
	ifb := b.machine.add(9, "in-wwan0", 0)
	ifb.obstacle = "a firewall at ingress of wwan0"
	b.advance()
	if b.expect("with a firewall", Claimed, Obstructed); ifb.root != 0 || ifb.classifier != nil {
		t.Errorf("with a firewall: %+v", ifb)
	}
	ifb.obstacle = ""
	b.advance()
	b.expect("without one", Installed, 0)
	ifb.obstacle = "a firewall at ingress of wwan0"
	b.advance()
	if b.expect("with another one", Claimed, Obstructed); ifb.classifier != nil {
		t.Error("still redirected")
	}
	config := b.Config()
	config.In.Force = true
	b.Configure(config)
	b.advance()
	b.expect("forced", Installed, 0)
	ifb.missed = &Problem{Kind: Obstructed, Text: "a filter comes before Weir"}
	b.advance()
	b.expect("behind a filter", Installed, Obstructed)
	ifb.missed = nil
	b.advance()
	b.expect("before all filters", Installed, 0)
}

// TestNextObstructed: an obstacle keeps and takes the classifier off a device, packets that miss it do not.
func TestNextObstructed(t *testing.T) {
	missed := &Problem{Kind: Obstructed}
	for _, tc := range []struct {
		name    string
		state   State
		bps     uint64 // that the device reports
		saw     situation
		want    action
		problem Kind
	}{
		{"obstacle", Claimed, 0, situation{obstacle: "x"}, stay, Obstructed},
		{"obstacle, the tree of an earlier agent", Claimed, 0, situation{obstacle: "x", root: ownerWeir}, stay, Obstructed},
		{"obstacle, the classifier of an earlier agent", Claimed, 0, situation{obstacle: "x", root: ownerWeir, classified: true}, yield, 0},
		{"obstacle, installed", Installed, 0, situation{obstacle: "x", root: ownerWeir, classified: true}, yield, 0},
		{"obstacle, the classifier gone", Installed, 0, situation{obstacle: "x", root: ownerWeir}, yield, 0},
		{"missed, nothing there", Claimed, 0, situation{missed: missed}, install, 0},
		{"missed, the tree of an earlier agent", Claimed, 0, situation{missed: missed, root: ownerWeir, classified: true}, adopt, 0},
		{"missed, the classifier gone", Installed, 0, situation{missed: missed, root: ownerWeir}, classify, 0},
		{"missed", Installed, 0, situation{missed: missed, root: ownerWeir, classified: true}, stay, Obstructed},
		{"missed, and too slow", Installed, 3e7, situation{missed: missed, root: ownerWeir, classified: true}, stay, AboveSpeed},
	} {
		config, held := Config{RateBPS: 4e7}, holding{name: "in-wwan0", ifindex: 9}
		tc.saw.link, tc.saw.speedBPS = &kernel.Link{Index: 9, Name: "in-wwan0", Up: true}, tc.bps
		held.capacity, _ = config.capacity(held, tc.saw)
		got, problem := next(config, tc.state, held, tc.saw)
		if got != tc.want || (problem == nil) != (tc.problem == 0) || problem != nil && problem.Kind != tc.problem {
			t.Errorf("%s: action %d, problem %v; want %d, %d", tc.name, got, problem, tc.want, tc.problem)
		}
	}
}
