package uplink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// bench is one device of a fake machine.
type bench struct {
	*Device
	t       *testing.T
	machine *fakeMachine
}

// problems are what is wrong with a device.
func problems(d *Device) (list Problems) {
	errors.As(d.Problem(), &list)
	return list
}

func newBench(t *testing.T, config Config) *bench {
	t.Helper()
	store, err := state.Open(t.TempDir())
	must.Succeed(t, err)
	m := newMachine()
	return &bench{Device: New(config, m, store), t: t, machine: m}
}

// tree is a plan for whatever the rate is.
func (b *bench) tree() sched.Tree {
	return sched.Tree{RateBPS: b.RateBPS(), OverheadBytes: b.OverheadBytes()}
}

func (b *bench) advance() Change { return b.Advance(b.tree) }

func has(problems Problems, kind Kind) bool {
	return slices.ContainsFunc(problems, func(p *Problem) bool { return p.Kind == kind })
}

// expect checks the state, and that a device which is installed really is.
func (b *bench) expect(when string, want State, problem Kind) {
	b.t.Helper()
	problems := problems(b.Device)
	if b.State() != want || len(problems) > 0 && problem == 0 || problem != 0 && !has(problems, problem) {
		b.t.Fatalf("%s: %s, %v; want %s, problem %d", when, b.State(), problems, want, problem)
	}
	if (b.Classifier() != nil) != (want == Installed) || (b.Scheduler() != nil) != (want == Installed) || (b.Ifindex() != 0) != (want != Absent) {
		b.t.Fatalf("%s: classifier %v, scheduler %v, index %d", when, b.Classifier(), b.Scheduler(), b.Ifindex())
	}
	if want != Installed {
		return
	}
	d := b.machine.devices[b.Ifindex()]
	if d == nil || d.root != ourRoot || d.classifier != b.Classifier() || d.applied != b.held.capacity || d.classifier.bounds != (sched.Bounds{RateBPS: b.RateBPS(), OverheadBytes: b.OverheadBytes()}) {
		b.t.Fatalf("%s: the kernel has %+v, at a rate of %d", when, d, b.RateBPS())
	}
}

func TestComesAndGoes(t *testing.T) {
	b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
	if p := b.Claim(); p == nil || p.Kind != Missing || !strings.Contains(p.Text, `no network device "up0"`) {
		t.Errorf("claimed: %v", p)
	}
	b.expect("not there", Absent, Missing)

	b.machine.add(3, "up0", 0)
	if p := b.Claim(); p != nil || b.machine.devices[3].root != 0 {
		t.Errorf("claimed: %v, %+v", p, b.machine.devices[3])
	}
	b.expect("there", Claimed, 0)
	if change := b.advance(); change != (Change{From: Claimed, To: Installed, Any: true, Classified: true, Made: true}) {
		t.Errorf("changed %+v", change)
	}
	b.expect("at first", Installed, 0)
	if b.machine.devices[3].GSOMaxBytes == 65536 || b.Delays() == nil {
		t.Errorf("the device is %+v, delays %v", b.machine.devices[3], b.Delays())
	}
	if change := b.advance(); change != (Change{From: Installed, To: Installed}) {
		t.Errorf("changed again: %+v", change)
	}
	b.machine.devices[3].Up = false
	if change := b.advance(); change != (Change{From: Installed, To: Installed, Off: true}) {
		t.Errorf("switched off: %+v", change)
	}

	delete(b.machine.devices, 3)
	b.advance()
	b.expect("gone", Absent, Missing)
	if text := problems(b.Device).Error(); !strings.Contains(text, "up0 is gone") {
		t.Errorf("gone: %s", text)
	}
	b.machine.add(4, "up0", 0)
	b.advance()
	b.expect("back", Installed, 0)

	// Between two looks: with another index, and with the same.
	for _, ifindex := range []int{5, 5} {
		clear(b.machine.devices)
		b.machine.add(ifindex, "up0", 0)
		if change := b.advance(); !change.Classified {
			t.Errorf("made again: %+v", change)
		}
		b.expect("made again before anybody looked", Installed, 0)
	}

	b.machine.devices[5].Name = "wan0"
	b.advance()
	b.expect("renamed", Installed, 0)
	clear(b.machine.devices)
	b.machine.add(6, "wan0", 0)
	b.advance()
	b.expect("made again under its new name", Installed, 0)
	if b.Name() != "wan0" {
		t.Errorf("it is called %s", b.Name())
	}

	// Under the name that was configured, unless another uplink has that now.
	clear(b.machine.devices)
	b.machine.add(7, "up0", 0)
	b.store.Uplink("up0", 7)
	b.advance()
	b.expect("another uplink has its first name", Absent, Missing)
	b.store.Forget("up0")
	b.advance()
	b.expect("back under its first name", Installed, 0)
	// It was elsewhere, and has its index again.
	b.machine.devices[7].Name = "wan0"
	b.advance()
	lent := b.machine.devices[7]
	clear(b.machine.devices)
	b.advance()
	lent.Name = "up0"
	b.machine.devices[7] = lent
	b.advance()
	b.expect("back with its index", Installed, 0)
	if b.record().GSOMaxBytes != 65536 {
		t.Errorf("what it was is forgotten: %+v", b.record())
	}
	if b.Name() != "up0" || len(b.store.Uplinks) != 1 {
		t.Errorf("it is called %s, and remembered are %+v", b.Name(), b.store.Uplinks)
	}
}

// Of a bridge the port that leads out is shared out, if there is just one.
func TestBridge(t *testing.T) {
	port := func(m *fakeMachine, ifindex int, name, kind string) {
		m.add(ifindex, name, 0).Link.MasterIndex = 3
		m.devices[ifindex].Kind = kind
	}
	b := newBench(t, Config{Name: "br0", RateBPS: 1e8})
	b.machine.add(3, "br0", 0).Kind = "bridge"
	b.machine.add(9, "eth9", 0).Kind = "device" // no port of it
	port(b.machine, 4, "veth4", "veth")
	port(b.machine, 5, "eth0", "device")
	b.advance()
	b.expect("with one port that leads out", Installed, 0)
	if b.Name() != "eth0" || b.Ifindex() != 5 || b.held.isBridge || b.machine.devices[3].root != 0 {
		t.Errorf("shared out: %s, index %d", b.Name(), b.Ifindex())
	}
	// A second one takes traffic past the first: the bridge itself is shared out until it goes.
	eth0, bridge := b.machine.devices[5], b.machine.devices[3]
	port(b.machine, 6, "eth1", "device")
	b.advance()
	b.expect("with a second one", Installed, 0)
	if b.Name() != "br0" || eth0.root != 0 || eth0.classifier != nil || eth0.GSOMaxBytes != 65536 || bridge.root == 0 {
		t.Errorf("shared out: %s, %+v, %+v", b.Name(), eth0, bridge)
	}
	delete(b.machine.devices, 6)
	b.advance()
	b.expect("with one again", Installed, 0)
	if b.Name() != "eth0" || bridge.root != 0 || eth0.root == 0 || len(b.store.Uplinks) != 1 {
		t.Errorf("shared out: %s, %+v, %+v, saved %+v", b.Name(), eth0, bridge, b.store.Uplinks)
	}
	delete(b.machine.devices, 5)
	b.advance()
	b.expect("without one", Installed, 0)
	if b.Name() != "br0" || !b.held.isBridge {
		t.Errorf("shared out: %s", b.Name())
	}

	b = newBench(t, Config{Name: "br0", RateBPS: 1e8})
	b.machine.add(3, "br0", 0).Kind = "bridge"
	port(b.machine, 4, "eth0", "device")
	port(b.machine, 5, "eth1", "device")
	b.advance()
	b.expect("with two", Installed, 0)
	if b.Name() != "br0" || !b.held.isBridge {
		t.Errorf("shared out: %s", b.Name())
	}
	b.machine.fail["Links"] = errors.New("no memory")
	b.machine.devices[3].Index = 30 // made again
	b.machine.devices[30] = b.machine.devices[3]
	delete(b.machine.devices, 3)
	b.advance()
	b.expect("ports cannot be listed", Absent, Refused)
}

// Auto is the device of the default route, with nothing of the one before.
func TestAuto(t *testing.T) {
	b := newBench(t, Config{Name: Auto})
	b.advance()
	b.expect("without a route", Absent, Missing)
	eth0 := b.machine.add(3, "eth0", 1e9)
	wlan0 := b.machine.add(5, "wlan0", 0)
	b.machine.defaultIndex = 3
	b.advance()
	b.expect("with a route", Installed, 0)
	if b.Name() != "eth0" || b.RateBPS() != 98e7 {
		t.Errorf("shared out: %s at %d bit/s", b.Name(), b.RateBPS())
	}
	b.machine.defaultIndex = 0
	if change := b.advance(); change.Any {
		t.Errorf("without a route again: %+v", change)
	}
	// A rate of the other device would be a void limit.
	b.machine.defaultIndex = 5
	b.advance()
	b.expect("at a device without a rate", Absent, NoRate)
	if text := b.Problem().Error(); !strings.HasPrefix(text, "wlan0 does not report its speed") {
		t.Error(text)
	}
	if eth0.root != 0 || eth0.classifier != nil || eth0.GSOMaxBytes != 65536 || len(b.store.Uplinks) != 0 {
		t.Errorf("the device before: %+v, saved %+v", eth0, b.store.Uplinks)
	}
	b.Configure(Config{Name: Auto, RateBPS: 1e8})
	b.advance()
	b.expect("with a rate", Installed, 0)
	// The rate is the link's, so the tunnel's headers count; the speed that it reports is none.
	b.machine.add(7, "tun0", 1e7).Kind = "tuntap"
	b.machine.defaultIndex = 7
	b.advance()
	b.expect("in a tunnel", Installed, 0)
	if b.Name() != "tun0" || b.RateBPS() != 1e8 || b.OverheadBytes() != kernel.TunnelOverheadBytes || wlan0.root != 0 {
		t.Errorf("shared out: %s at %d bit/s, with %d bytes more", b.Name(), b.RateBPS(), b.OverheadBytes())
	}
	delete(b.machine.devices, 7)
	b.machine.defaultIndex = 3
	b.advance()
	b.expect("after the tunnel", Installed, 0)
	if b.Name() != "eth0" || b.OverheadBytes() != 0 {
		t.Errorf("shared out: %s with %d bytes more", b.Name(), b.OverheadBytes())
	}
	// One that is gone and comes back with its index is followed again.
	lent := b.machine.devices[3]
	delete(b.machine.devices, 3)
	b.machine.defaultIndex = 5
	b.advance()
	b.expect("gone", Installed, 0)
	b.machine.devices[3], b.machine.defaultIndex = lent, 3
	lent.root, lent.classifier = 0, nil
	b.advance()
	if b.expect("back", Installed, 0); b.Name() != "eth0" || wlan0.root != 0 {
		t.Errorf("shared out: %s", b.Name())
	}
	// A device that the configuration names stays.
	b.Configure(Config{Name: "eth0", RateBPS: 1e8})
	b.machine.defaultIndex = 5
	b.advance()
	if b.expect("named", Installed, 0); b.Name() != "eth0" {
		t.Errorf("shared out: %s", b.Name())
	}
	b.Configure(Config{Name: Auto, RateBPS: 1e8})
	b.advance()
	if b.expect("named no more", Installed, 0); b.Name() != "wlan0" {
		t.Errorf("shared out: %s", b.Name())
	}
	// Traffic received through a tunnel is counted likewise: its IFB takes after it.
	in := newBench(t, Config{Name: Auto, In: InConfig{Shared: true, RateBPS: 1e8}}.Incoming("eth0"))
	in.machine.add(9, IncomingName(Auto), 1e7).Kind = "tuntap"
	in.advance()
	in.expect("received traffic", Installed, 0)
	if in.RateBPS() != 1e8 || in.OverheadBytes() != kernel.TunnelOverheadBytes {
		t.Errorf("received traffic: %d bit/s, with %d bytes more", in.RateBPS(), in.OverheadBytes())
	}
}

// Without a default route Auto takes over what an earlier agent left, and follows a later route.
// TestRatesOfDevices: a rate of one device is not that of another one that Auto stands for later.
func TestRatesOfDevices(t *testing.T) {
	config := Config{Name: Auto, RateBPS: 2e7, In: InConfig{Shared: true, RateBPS: 3e7}, Rates: map[string]Rates{"eth0": {9e8, 8e8, true}, "usb0": {In: true}}}
	b := newBench(t, config)
	b.machine.add(3, "eth0", 0)
	b.machine.add(5, "wwan0", 0)
	b.machine.add(7, "usb0", 0) // whose rate of received traffic is auto
	for _, at := range []struct {
		index      int
		name       string
		bps, inBPS uint64
	}{{3, "eth0", 9e8, 8e8}, {5, "wwan0", 2e7, 3e7}, {7, "usb0", 2e7, 0}, {3, "eth0", 9e8, 8e8}} {
		b.machine.defaultIndex = at.index
		b.advance()
		b.expect("at "+at.name, Installed, 0)
		if in := config.Incoming(b.Name()).RateBPS; b.Name() != at.name || b.RateBPS() != at.bps || in != at.inBPS {
			t.Errorf("%s at %d and %d bit/s, want %+v", b.Name(), b.RateBPS(), in, at)
		}
	}
	config.Rates = map[string]Rates{"eth0": {RateBPS: 7e8}}
	if err := b.Check(config); err != nil {
		t.Error(err)
	}
	b.Configure(config)
	if b.advance(); b.RateBPS() != 7e8 {
		t.Errorf("another rate of the device: %d", b.RateBPS())
	}
}

// TestAutoIncomingRate: the IFB of Auto has the rate of its present uplink, and queues nothing without one, also if the
// agent was away while the uplink changed.
func TestAutoIncomingRate(t *testing.T) {
	const byDefault = 1e9 / 100 * incomingPercent / 100 * largeFramesPercent
	for name, of := range map[string]struct {
		config Config
		// bps are the rates of received traffic at each of both devices; 0 for none.
		bps [2]uint64
	}{
		"its speed":          {Config{In: InConfig{Shared: true}}, [2]uint64{byDefault, 0}},
		"of one device":      {Config{Rates: map[string]Rates{"eth0": {InRateBPS: 8e8, In: true}}}, [2]uint64{8e8, 0}},
		"of the other":       {Config{Rates: map[string]Rates{"wlan0": {InRateBPS: 4e7, In: true}}}, [2]uint64{byDefault, 4e7}},
		"of both, the same":  {Config{In: InConfig{Shared: true, RateBPS: 4e7}}, [2]uint64{4e7, 4e7}},
		"the speed of one":   {Config{In: InConfig{Shared: true, RateBPS: 4e7}, Rates: map[string]Rates{"eth0": {In: true}}}, [2]uint64{byDefault, 4e7}},
		"of both, different": {Config{In: InConfig{Shared: true, RateBPS: 4e7}, Rates: map[string]Rates{"eth0": {InRateBPS: 8e8, In: true}}}, [2]uint64{8e8, 4e7}},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %v", name, restarted), func(t *testing.T) {
				of.config.Name, of.config.RateBPS = Auto, 2e7
				b := newBench(t, of.config)
				b.machine.add(3, "eth0", 1e9)
				b.machine.add(5, "wlan0", 0)
				ifb := b.machine.add(9, IncomingName(Auto), 0)
				machine := b.machine.Incoming(func() (string, int) { return b.Name(), b.Ifindex() })
				in := &bench{Device: New(of.config.Incoming(Auto), machine, b.store), t: t, machine: b.machine}
				for _, at := range []int{0, 1, 0, 0, 1} {
					b.machine.defaultIndex = []int{3, 5}[at]
					b.advance()
					b.expect("sent traffic", Installed, 0)
					if restarted { // while the route moved
						in.Close()
						in.Device = New(of.config.Incoming(b.Name()), machine, b.store)
					}
					in.Configure(of.config.Incoming(b.Name()))
					in.advance()
					must.Succeed(t, in.Apply(in.tree()))
					if in.RateBPS() != of.bps[at] {
						t.Errorf("at %s: %d bit/s, want %d", b.Name(), in.RateBPS(), of.bps[at])
					}
					if of.bps[at] != 0 {
						in.expect("at "+b.Name(), Installed, 0)
						continue
					}
					in.expect("at "+b.Name(), Absent, NoRate)
					if ifb.root != 0 || ifb.classifier != nil {
						t.Errorf("at %s the IFB still has %+v", b.Name(), ifb)
					}
				}
			})
		}
	}
}

// TestIncomingRateBecomesAuto: a configured rate of received traffic does not outlive a change to auto while the agent runs.
func TestIncomingRateBecomesAuto(t *testing.T) {
	config := Config{Name: "wwan0", RateBPS: 2e7, In: InConfig{Shared: true, RateBPS: 4e7}}
	b := newBench(t, config)
	wwan0 := b.machine.add(3, "wwan0", 0)
	ifb := b.machine.add(9, IncomingName("wwan0"), 0)
	machine := b.machine.Incoming(func() (string, int) { return "wwan0", 3 })
	in := &bench{Device: New(config.Incoming("wwan0"), machine, b.store), t: t, machine: b.machine}
	in.advance()
	in.expect("with a rate", Installed, 0)
	config.Rates = map[string]Rates{"wwan0": {In: true}}
	in.Configure(config.Incoming("wwan0"))
	in.advance()
	if in.expect("with auto", Absent, NoRate); ifb.root != 0 || ifb.classifier != nil {
		t.Errorf("the IFB still has %+v", ifb)
	}
	wwan0.speedBPS = 1e9
	in.advance()
	if in.expect("with a speed", Installed, 0); in.RateBPS() == 4e7 {
		t.Errorf("%d bit/s", in.RateBPS())
	}
}

func TestAutoAdoptsWithoutRoute(t *testing.T) {
	b := newBench(t, Config{Name: Auto, RateBPS: 1e8})
	b.machine.add(2, "in-auto", 0).Kind = kernel.KindIFB
	eth0 := b.machine.add(3, "eth0", 0)
	eth0.root, eth0.kind, eth0.applied, eth0.classifier = ourRoot, "htb", capacity{rateBPS: 1e8}, &fakeClassifier{}
	for i, name := range []string{"in-auto", "gone0", "eth0"} {
		b.store.Uplink(name, []int{2, 9, 3}[i]).GSOMaxBytes = 65536
	}
	if p := b.Claim(); p != nil {
		t.Error(p)
	}
	if change := b.advance(); !change.Adopted || b.Name() != "eth0" {
		t.Errorf("%s: %+v", b.Name(), change)
	}
	b.expect("adopted", Installed, 0)
	b.machine.add(5, "wlan0", 0)
	b.machine.defaultIndex = 5
	b.advance()
	if b.expect("with a route", Installed, 0); b.Name() != "wlan0" || eth0.root != 0 || b.store.NameOf(3) != "" {
		t.Errorf("shared out: %s, before: %+v", b.Name(), eth0)
	}
	b = newBench(t, Config{Name: Auto})
	b.machine.fail["LinkByIndex"] = errors.New("no memory")
	b.machine.add(3, "eth0", 0)
	b.store.Uplink("eth0", 3)
	if p := b.Claim(); p == nil || p.Kind != Refused {
		t.Errorf("a device that cannot be asked: %v", p)
	}
}

// The speed that a tunnel reports bounds no new rate.
func TestCheckTunnel(t *testing.T) {
	b := newBench(t, Config{Name: Auto, RateBPS: 1e8})
	b.machine.add(7, "tun0", 1e7).Kind = "tuntap"
	b.machine.defaultIndex = 7
	b.advance()
	if err := b.Check(Config{Name: Auto, RateBPS: 2e8}); err != nil {
		t.Error(err)
	}
	if err := b.Check(Config{Name: "tun0", RateBPS: 2e8}); err == nil {
		t.Error("named, its speed counts")
	}
}

// What an earlier agent left is taken over.
func TestAdopts(t *testing.T) {
	b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
	d := b.machine.add(3, "up0", 0)
	d.root, d.kind, d.applied, d.classifier = ourRoot, "htb", capacity{rateBPS: 1e8}, &fakeClassifier{}
	if change := b.advance(); !change.Adopted || !change.Classified {
		t.Errorf("changed %+v", change)
	}
	b.expect("adopted", Installed, 0)
}

const foreignRoot = kernel.Handle(0x8001 << 16)

func TestReplacedBySomebody(t *testing.T) {
	replaced := func(b *bench) {
		d := b.machine.devices[3]
		d.root, d.kind = foreignRoot, "pfifo"
		b.advance()
	}
	t.Run("without --replace", func(t *testing.T) {
		b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
		b.machine.add(3, "up0", 0)
		b.advance()
		replaced(b)
		b.expect("replaced", Claimed, ForeignQdisc)
		for _, want := range []string{"the root qdisc of up0 was replaced by another program (pfifo qdisc (8001:))", "tc qdisc del dev up0 root", "--replace"} {
			if text := problems(b.Device).Error(); !strings.Contains(text, want) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
		if d := b.machine.devices[3]; d.root != foreignRoot || d.classifier != nil {
			t.Errorf("theirs was touched, or ours is in its way: %+v", d)
		}
		b.advance()
		b.expect("still", Claimed, ForeignQdisc)
		// They take it away.
		b.machine.devices[3].root = 0
		b.advance()
		b.expect("put back", Installed, 0)
	})
	t.Run("with --replace", func(t *testing.T) {
		b := newBench(t, Config{Name: "up0", RateBPS: 1e8, Replace: true})
		b.machine.add(3, "up0", 0)
		b.advance()
		d := b.machine.devices[3]
		d.root, d.kind = foreignRoot, "pfifo"
		if change := b.advance(); change.Displaced != "pfifo qdisc (8001:)" {
			t.Errorf("changed %+v", change)
		}
		b.expect("put back", Installed, 0)
		if err := b.GiveBack(); err != nil || d.root != foreignRoot || d.kind != "pfifo" || d.GSOMaxBytes != 65536 || len(b.store.Uplinks) > 0 {
			t.Errorf("given back: %v, %+v, %v", err, d, b.store.Uplinks)
		}
		// What cannot be put back is not taken away.
		b.advance()
		d.root = foreignRoot
		b.machine.fail["Save"] = kernel.ErrFilters
		b.advance()
		if !errors.Is(problems(b.Device)[0], kernel.ErrFilters) || d.root != foreignRoot {
			t.Errorf("%v, %+v", problems(b.Device), d)
		}
	})
	t.Run("by the kernel's default", func(t *testing.T) {
		b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
		b.machine.add(3, "up0", 0)
		b.advance()
		before := b.Classifier()
		b.machine.devices[3].root = 0
		if change := b.advance(); !change.Any || change.Classified || b.Classifier() != before {
			t.Errorf("changed %+v: the classifier was not in need", change)
		}
		b.expect("put back", Installed, 0)
		b.machine.devices[3].classifier = nil
		b.advance()
		b.expect("and the classifier", Installed, 0)
	})
	t.Run("at the start", func(t *testing.T) {
		b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
		d := b.machine.add(3, "up0", 0)
		d.root, d.kind = foreignRoot, "tbf"
		if p := b.Claim(); p == nil || p.Kind != ForeignQdisc || !strings.Contains(p.Text, "up0 carries a tbf qdisc (8001:) that another program configured") {
			t.Errorf("claimed: %v", p)
		}
	})
	t.Run("and down", func(t *testing.T) {
		b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
		d := b.machine.add(3, "up0", 0)
		b.advance()
		b.store.Uplink("up0", 3).Replaced = []state.Queueing{{Handle: 1 << 16, Kind: "tbf"}}
		replaced(b)
		if err := b.GiveBack(); err != nil || d.root != foreignRoot {
			t.Errorf("theirs does not stay: %v, %+v", err, d)
		}
	})
}

// A device is as fast as it says.
func TestSpeed(t *testing.T) {
	for _, tc := range []struct {
		name     string
		config   Config
		speeds   []uint64 // one after the other; the first at the start
		want     []capacity
		problems []Kind
	}{
		{"its own", Config{}, []uint64{1e9, 1e8, 0, 1e9}, []capacity{{9.8e8, 24, ""}, {9.8e7, 24, ""}, {9.8e7, 24, ""}, {9.8e8, 24, ""}}, []Kind{0, 0, 0, 0}},
		{"less was configured", Config{RateBPS: 1e7}, []uint64{1e9, 1e8, 0}, []capacity{{1e7, 0, ""}, {1e7, 0, ""}, {1e7, 0, ""}}, []Kind{0, 0, 0}},
		{"room for frames of any size", Config{RateBPS: 7e8}, []uint64{1e9, 9e8, 0, 1e9}, []capacity{{7e8, 0, ""}, {7e8, 24, ""}, {7e8, 24, ""}, {7e8, 0, ""}}, []Kind{0, 0, 0, 0}},
		{"renegotiated below what was configured, and back", Config{RateBPS: 9e8}, []uint64{1e9, 1e8, 1e9}, []capacity{{9e8, 24, ""}, {1e8, 24, ""}, {9e8, 24, ""}}, []Kind{0, AboveSpeed, 0}},
		{"the device is wrong about itself", Config{RateBPS: 9e8, IgnoreLinkSpeed: true}, []uint64{1e9, 1e8}, []capacity{{9e8, 0, ""}, {9e8, 0, ""}}, []Kind{0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.config.Name = "up0"
			b := newBench(t, tc.config)
			d := b.machine.add(3, "up0", 0)
			for i, speed := range tc.speeds {
				d.speedBPS = speed
				b.advance()
				when := fmt.Sprintf("at %d bit/s", speed)
				b.expect(when, Installed, tc.problems[i])
				if b.held.capacity != tc.want[i] {
					t.Errorf("%s: shared is %+v, want %+v", when, b.held.capacity, tc.want[i])
				}
				if want := min(sched.LinkPacketBytes(b.RateBPS(), 0), 65536); d.GSOMaxBytes != want {
					t.Errorf("%s: packets of %d bytes, want %d", when, d.GSOMaxBytes, want)
				}
			}
		})
	}
	b := newBench(t, Config{Name: "up0"})
	b.machine.add(3, "up0", 0)
	if p := b.Claim(); p == nil || p.Kind != NoRate || !strings.Contains(p.Text, "up0 does not report its speed") {
		t.Errorf("claimed: %v", p)
	}
	b.machine.devices[3].speedBPS = 1e8
	b.advance()
	b.expect("when it says so", Installed, 0)

	b = newBench(t, Config{Name: "up0", RateBPS: 1e9})
	b.machine.add(3, "up0", 1e8)
	if p := b.Claim(); p == nil || p.Kind != AboveSpeed || !strings.Contains(p.Text, "1gbit is above the speed of up0, which is 100mbit") {
		t.Errorf("claimed: %v", p)
	}
}

// TestRateOfVLAN: a VLAN keeps its last known rate while it reports none, also if the device below is another one.
func TestRateOfVLAN(t *testing.T) {
	b := newBench(t, Config{Name: "usb0.7"})
	b.machine.add(3, "usb0.7", 1e9).PeerIndex = 2
	b.advance()
	b.expect("at first", Installed, 0)
	delete(b.machine.devices, 3)
	b.advance()
	b.expect("unplugged", Absent, Missing)
	b.machine.add(6, "usb0.7", 0).PeerIndex = 5 // has no carrier yet
	b.advance()
	if b.expect("plugged in again", Installed, 0); b.RateBPS() != 98e7 {
		t.Errorf("shared at %d bit/s", b.RateBPS())
	}
}

// TestCapacityFitsTheWire: packets at a device's own rate, as HTB counts them, do not fill it: one
// frame of any size, and packets of up to 64 KB of large frames with VLAN tags. Small frames with
// tags leave room for minimums, of which admission takes 95 %.
func TestCapacityFitsTheWire(t *testing.T) {
	const speedBPS, onWireBytes, tagBytes = 1e9, 24, 4
	shared, _ := Config{}.capacity(holding{}, situation{speedBPS: speedBPS})
	load := func(frames, frameBytes, tagBytes int) float64 {
		counted := max(frames*frameBytes+int(shared.overheadBytes), 84)
		sent := frames * (max(frameBytes, 60) + tagBytes + onWireBytes)
		return float64(shared.rateBPS) / speedBPS * float64(sent) / float64(counted)
	}
	for bytes := 42; bytes <= 9014; bytes++ {
		if plain, tagged := load(1, bytes, 0), load(1, bytes, tagBytes); plain > 1 || 0.95*tagged > 1 {
			t.Errorf("frames of %d bytes fill %.4f of the wire, tagged %.4f", bytes, plain, tagged)
		}
	}
	for frames := 1; frames <= 65536/1514; frames++ {
		if got := load(frames, 1514, tagBytes); got > 1 {
			t.Errorf("packets of %d frames fill %.4f of the wire", frames, got)
		}
	}
}

// A device that is switched off is said, and all stays in force there.
func TestDown(t *testing.T) {
	b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
	d := b.machine.add(3, "up0", 0)
	for down, problem := range map[bool]Kind{false: 0, true: Down} {
		d.Down = down
		b.advance()
		b.expect(fmt.Sprint("down: ", down), Installed, problem)
	}
}

// Another rate is checked before it is taken.
func TestConfigure(t *testing.T) {
	b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
	if err := b.Check(Config{Name: "up0", RateBPS: 1e9}); err != nil {
		t.Errorf("not there: %v", err)
	}
	b.Configure(Config{Name: "up0", RateBPS: 2e8})
	if b.RateBPS() != 2e8 || b.Config().RateBPS != 2e8 {
		t.Errorf("not there: a rate of %d", b.RateBPS())
	}
	b.machine.add(3, "up0", 5e8)
	b.advance()
	b.expect("there", Installed, 0)
	var problem *Problem
	if err := b.Check(Config{Name: "up0", RateBPS: 1e9}); !errors.As(err, &problem) || problem.Kind != AboveSpeed {
		t.Errorf("more than it can: %v", err)
	}
	config := Config{Name: "up0"}
	if err := b.Check(config); err != nil {
		t.Error(err)
	}
	b.Configure(config)
	b.advance()
	b.expect("its own", Installed, 0)
	// Its carrier is down. What is not changed is no reason to refuse the rest.
	b.machine.devices[3].speedBPS = 0
	for _, same := range []Config{config, {Name: "up0", Replace: true}} {
		if err := b.Check(same); err != nil {
			t.Errorf("%+v, as it runs: %v", same, err)
		}
	}
	config = Config{Name: "up0", RateBPS: 2e8}
	b.Configure(config)
	b.advance()
	if err := b.Check(Config{Name: "up0"}); !errors.As(err, &problem) || problem.Kind != NoRate {
		t.Errorf("no rate at all: %v", err)
	}
	b.machine.devices[3].speedBPS = 1e8
	b.advance()
	b.expect("negotiated below the rate", Installed, AboveSpeed)
	if err := b.Check(config); err != nil {
		t.Errorf("negotiated below the rate, as it runs: %v", err)
	}
	b.machine.fail["SpeedBPS"] = errors.New("no answer")
	if err := b.Check(Config{Name: "up0", RateBPS: 3e8}); err == nil {
		t.Error("no error")
	}
}

// Whatever the kernel refuses is said, leaves no half of ours, and is tried again.
func TestRefusals(t *testing.T) {
	for _, what := range []string{"LinkByIndex", "SpeedBPS", "Qdiscs", "Classified", "Apply", "OpenClassifier"} {
		b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
		d := b.machine.add(3, "up0", 0)
		_ = b.Claim() // what is wrong is seen below
		b.machine.fail[what] = errors.New("no " + what)
		b.advance()
		if text := problems(b.Device).Error(); !strings.Contains(text, "no "+what) || !has(problems(b.Device), Refused) {
			t.Errorf("%s: %s", what, text)
		}
		b.expect(what, Claimed, Refused)
		if d.root != 0 || d.classifier != nil {
			t.Errorf("%s: left %+v", what, d)
		}
		clear(b.machine.fail)
		b.advance()
		b.expect("after "+what, Installed, 0)
	}
	b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
	b.machine.add(3, "up0", 0)
	b.machine.fail["SetGSOMaxBytes"] = errors.New("not supported")
	if change := b.advance(); change.Unlimited == nil {
		t.Errorf("changed %+v", change)
	}
	b.expect("packets of any size", Installed, 0)
	clear(b.machine.fail)

	b.machine.fail["Apply"] = errors.New("no memory")
	if err := b.Apply(b.tree()); err == nil {
		t.Error("no error")
	}
	b.expect("a change is refused", Installed, Refused)
	clear(b.machine.fail)
	if err := b.Apply(b.tree()); err != nil {
		t.Error(err)
	}
	b.expect("and taken", Installed, 0)
}

// After a giving back that failed, all is in force again.
func TestGiveBackFails(t *testing.T) {
	for _, what := range []string{"Declassify", "Remove", "Restore", "SetGSOMaxBytes"} {
		b := newBench(t, Config{Name: "up0", RateBPS: 1e8, Replace: true})
		d := b.machine.add(3, "up0", 0)
		d.root, d.kind = foreignRoot, "tbf"
		b.advance()
		b.machine.fail[what] = errors.New("no " + what)
		if err := b.GiveBack(); err == nil || !strings.Contains(err.Error(), "give up0 back: no "+what) {
			t.Errorf("%s: %v", what, err)
		}
		b.expect(what, Claimed, 0)
		b.advance()
		b.expect("after "+what, Installed, 0)
		clear(b.machine.fail)
		if err := b.GiveBack(); err != nil || d.root != foreignRoot || d.GSOMaxBytes != 65536 {
			t.Errorf("after %s: %v, %+v", what, err, d)
		}
	}
}

// An agent that is killed at once has left behind what the device was.
func TestKilledInTheFirstStart(t *testing.T) {
	dir := t.TempDir()
	open := func() *state.Store {
		t.Helper()
		store, err := state.Open(dir)
		must.Succeed(t, err)
		return store
	}
	m := newMachine()
	d := m.add(3, "up0", 0)
	b := &bench{Device: New(Config{Name: "up0", RateBPS: 1e8}, m, open()), t: t, machine: m}
	b.advance()
	if d.GSOMaxBytes == 65536 {
		t.Fatal("packets are not limited")
	}
	if there, err := GiveBack("up0", m, open()); err != nil || !there || d.GSOMaxBytes != 65536 {
		t.Errorf("given back: %v, %v, %+v", there, err, d)
	}

	// What cannot be kept is not changed.
	dir = t.TempDir()
	b.Device = New(Config{Name: "up0", RateBPS: 1e8}, m, open())
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "state.json.new"), 0o700))
	if change := b.advance(); change.Unlimited == nil || d.GSOMaxBytes != 65536 {
		t.Errorf("changed %+v, %+v", change, d)
	}
}

// What was on a device goes with it: another one in its place was something else. An
// agent that starts again finds its own.
func TestRecordsBelongToADevice(t *testing.T) {
	dir := t.TempDir()
	m := newMachine()
	start := func() *bench {
		t.Helper()
		store, err := state.Open(dir)
		must.Succeed(t, err)
		b := &bench{Device: New(Config{Name: "up0", RateBPS: 1e8, Replace: true}, m, store), t: t, machine: m}
		b.advance()
		b.expect("started", Installed, 0)
		must.Succeed(t, store.Save())
		return b
	}
	first := m.add(3, "up0", 0)
	first.root, first.kind = foreignRoot, "tbf"
	start()
	b := start()
	if saved := b.record(); len(saved.Replaced) != 1 || saved.GSOMaxBytes != 65536 {
		t.Errorf("after a restart: %+v", saved)
	}
	replace := func(ifindex int) *fakeDevice {
		clear(m.devices)
		d := m.add(ifindex, "up0", 0)
		d.GSOMaxBytes = 30000
		return d
	}
	second := replace(4)
	b.advance()
	b.expect("replaced while the agent runs", Installed, 0)
	if err := b.GiveBack(); err != nil || second.root != 0 || second.GSOMaxBytes != 30000 {
		t.Errorf("the second is given back: %v, %+v", err, second)
	}
	second.root, second.kind = foreignRoot, "tbf"
	start()
	third := replace(5)
	if err := start().GiveBack(); err != nil || third.root != 0 || third.GSOMaxBytes != 30000 {
		t.Errorf("the third, which came while no agent ran, is given back: %v, %+v", err, third)
	}
}

// Two devices that swap their names keep what is remembered of each, and an agent
// that is killed between the two leaves a file that the next can read.
func TestSwappedNames(t *testing.T) {
	dir := t.TempDir()
	store, err := state.Open(dir)
	must.Succeed(t, err)
	m := newMachine()
	var devices []*bench
	for i, name := range []string{"eth0", "eth1"} {
		m.add(3+i, name, 0).GSOMaxBytes = uint32(40000 + i)
		b := &bench{Device: New(Config{Name: name, RateBPS: 1e8}, m, store), t: t, machine: m}
		b.advance()
		b.expect(name, Installed, 0)
		devices = append(devices, b)
	}
	m.devices[3].Name, m.devices[4].Name = "eth1", "eth0"
	for i, b := range devices {
		b.advance()
		b.expect(fmt.Sprintf("after rename %d", i+1), Installed, 0)
		if _, err := state.Open(dir); err != nil {
			t.Fatalf("killed after rename %d: %v", i+1, err)
		}
	}
	for i, b := range devices {
		if err := b.GiveBack(); err != nil || m.devices[3+i].GSOMaxBytes != uint32(40000+i) {
			t.Errorf("given back: %v, %+v", err, m.devices[3+i])
		}
	}
	if len(store.Uplinks) > 0 {
		t.Errorf("left %+v", store.Uplinks)
	}
}

// Without an agent.
func TestGiveBackWithoutAnAgent(t *testing.T) {
	b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
	d := b.machine.add(3, "up0", 0)
	b.advance()
	b.Close()
	for _, want := range []bool{true, false} {
		if there, err := GiveBack("up0", b.machine, b.store); err != nil || there != want || d.root != 0 || d.classifier != nil {
			t.Errorf("given back: %v, %v, %+v", there, err, d)
		}
	}
	// Another device may have the name now.
	b.advance()
	b.Close()
	d.Name = "lan0"
	other := b.machine.add(4, "up0", 0)
	other.root, other.kind = foreignRoot, "tbf"
	if there, err := GiveBack("up0", b.machine, b.store); err != nil || !there || d.root != 0 || d.classifier != nil || d.GSOMaxBytes != 65536 || other.root == 0 || len(b.store.Uplinks) > 0 {
		t.Errorf("renamed, and given back: %v, %v, %+v, %+v", there, err, d, other)
	}
	b.store.Uplink("up0", 3)
	if there, err := GiveBack("nowhere", b.machine, b.store); err != nil || there {
		t.Errorf("a device that is not there: %v, %v", there, err)
	}
}

// A look that cannot put what it found into force is a problem until one can.
func TestTurn(t *testing.T) {
	b := newBench(t, Config{Name: "up0", RateBPS: 1e8})
	b.machine.add(3, "up0", 0)
	b.advance()
	b.expect("at first", Installed, 0)
	s := b.scheduler.(*fakeScheduler)
	if s.connected != sched.Traffic(b.Classifier()) {
		t.Errorf("the scheduler has the classifier %v", s.connected)
	}
	for _, step := range []struct {
		name    string
		applied bool
		err     error
		want    Kind // 0: no problem
	}{
		{"nothing to change", false, nil, 0},
		{"no counters", false, errors.New("no such class"), 0},
		{"refused", true, errors.New("no memory"), Refused},
		{"nothing to change after that", false, nil, Refused},
		{"taken", true, nil, 0},
	} {
		s.turn, s.turnErr = sched.Turn{Applied: step.applied, Next: 7}, step.err
		turn, err := b.Turn(time.Time{}, true)
		if turn != s.turn || !errors.Is(err, step.err) {
			t.Errorf("%s: %+v, %v", step.name, turn, err)
		}
		b.expect(step.name, Installed, step.want)
	}
	// A classifier that is closed is not used any more.
	b.machine.devices[3].root, b.machine.devices[3].kind = foreignRoot, "pfifo"
	b.advance()
	if b.State() != Claimed || s.connected != nil {
		t.Errorf("%s, connected to %v", b.State(), s.connected)
	}
}
