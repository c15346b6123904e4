package loop

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// What is read again is in force at once, for those that run, and what was set
// before stays; a mistake changes nothing.
// A minimum of the host's that is raised takes nothing from what containers were promised;
// it has it when there is room.
func TestReloadOfTheHostsMinimum(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	c := b.start("c", "min=80mbit")
	next := Settings{Uplinks: []UplinkConfig{{Name: "up0", RateBPS: 100e6}}, ReserveBasisPoints: 500, Host: v1.Policy{Weight: 100, MinBPS: 30e6}, IgnoreDefaultRoute: true}
	b.Agent.config.Reload = func() (Settings, error) { return next, nil }
	must.Succeed(t, reload(ctx, b))
	if state, reason := c.container.state(); state != v1.StateOK || c.class.GuaranteedBPS < 80e6 {
		t.Errorf("c is %s, %q; guaranteed %d", state, reason, c.class.GuaranteedBPS)
	}
	if state, reason := b.containers.host.state(); state != v1.StateRejected || !strings.Contains(reason, "at most 15mbit") {
		t.Errorf("the host is %s, %q", state, reason)
	}
	b.stop(c)
	if state, reason := b.containers.host.state(); state != v1.StateOK || b.host.admittedBPS != 30e6 {
		t.Errorf("with room for it the host is %s, %q", state, reason)
	}
}

// reload reads the configuration again.
func reload(ctx context.Context, b *bench) error {
	_, err := b.Agent.Reload(ctx)
	return err
}

// What a reload changed, or why it was refused, is answered, and an event.
func TestReloadSaysWhatChanged(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	next := Settings{Uplinks: []UplinkConfig{{Name: "up0", RateBPS: 50e6}}, ReserveBasisPoints: 500, Host: policy.Default(), IgnoreDefaultRoute: true}
	var wrong error
	b.Agent.config.Reload = func() (Settings, error) { return next, wrong }
	_ = reload(ctx, b)
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "reloaded changed: nothing"},
		{func() { next.Uplinks[0].Precision = v1.PrecisionExact }, "reloaded changed: nothing"},
		{func() { next.Uplinks[0].RateBPS = 40e6 }, "reloaded changed: up0: rate 40mbit instead of 50mbit"},
		{func() {
			next.Host.Weight, next.ReserveBasisPoints, next.Rules.TrustImageLabels = 7, 1000, true
		}, "reloaded changed: defaults, limits or policies of containers; the policy of the host; up0: reserve, precision, replace, in_force or ignore_link_speed"},
		{func() { next.IgnoreDefaultRoute = false }, "reloaded changed: ignore_default_route"},
		{func() { wrong = errors.New("weir.yaml:3: rate: wrong") }, "reload_refused weir.yaml:3: rate: wrong"},
	} {
		step.change()
		done, err := b.Agent.Reload(ctx)
		last := b.events.Newest(1, func(v1.Event) bool { return true })[0]
		if said := string(last.Kind) + " " + last.Message; said != step.want || (err == nil) != (len(done.Changes) > 0) {
			t.Errorf("said %q, answered %v, %v, want %q", said, done, err, step.want)
		}
	}
}

func TestReload(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	c := b.start("c", "weight=200", "min=10mbit")
	if err := reload(ctx, b); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no config file") {
		t.Errorf("without a file: %v", err)
	}
	next := Settings{
		Uplinks: []UplinkConfig{{Name: "up0", RateBPS: 50e6}}, ReserveBasisPoints: 1000, Host: v1.Policy{Weight: 50},
		Rules: policy.Rules{Policies: []policy.Rule{{Selector: policy.Selector{Name: "c"}, Values: policy.Values{MaxBPS: new(uint64(20e6))}}}},
	}
	var wrong error
	b.Agent.config.Reload = func() (Settings, error) { return next, wrong }
	if _, err := b.Agent.Set(ctx, "c", v1.PolicyChange{Weight: ptr("700")}); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if c.container.policy() != (v1.Policy{Weight: 700, MinBPS: 10e6, MaxBPS: 20e6, EFMax: policy.Default().EFMax, AFMin: policy.Default().AFMin}) || b.link.device.RateBPS() != 50e6 ||
			b.link.reserveBasisPoints != 1000 || b.host.container.policy().Weight != 50 || c.class.EntitledBPS != 20e6 {
			t.Errorf("%s: %+v of %d, reserve %d, host %+v, entitled to %d", when, c.container.policy(), b.link.device.RateBPS(), b.link.reserveBasisPoints, b.host.container.policy(), c.class.EntitledBPS)
		}
	}
	must.Succeed(t, reload(ctx, b))
	check("read again")
	saved, err := state.Open(b.dir)
	if err != nil || len(saved.Containers) != 1 || *saved.Containers[0].Set.Weight != 700 {
		t.Errorf("saved %+v, %v", saved, err)
	}

	next.Rules, next.Host.Weight, wrong = policy.Rules{}, 7, errors.New("weir.yaml:3: rate: wrong")
	if err := reload(ctx, b); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "weir.yaml:3") {
		t.Errorf("a wrong file: %v", err)
	}
	check("a wrong file")
	wrong = nil
	next.Uplinks = []UplinkConfig{{Name: "up0", RateBPS: 40e6}}
	b.machine.speedBPS = 10e6
	if err := reload(ctx, b); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "above the speed") {
		t.Errorf("a device that is slower: %v", err)
	}
	check("a device that is slower")
	b.machine.speedErr = errors.New("no answer")
	if err := reload(ctx, b); !errors.Is(err, ErrRefused) {
		t.Errorf("a device that cannot be asked: %v", err)
	}
	check("a device that cannot be asked")

	// What is not about the uplink is taken, however slow that has become.
	b.machine.speedErr = nil
	next.Uplinks[0].RateBPS = 50e6
	if err := reload(ctx, b); err != nil || b.host.container.policy().Weight != 7 {
		t.Errorf("another policy while the device is slower: %v, host %+v", err, b.host.container.policy())
	}
}

// machines are several devices, each of which does what it is asked to.
type machines map[int]*fakeMachine

// with adds a device, without anything on it.
func (m machines) with(index int, name string) *fakeMachine {
	m[index] = &fakeMachine{
		index: index, name: name, scheduler: newScheduler(),
		classifier: &fakeClassifier{cgroups: map[uint16]string{}, classes: map[uint16]sched.TrafficClass{}},
	}
	return m[index]
}

func (m machines) LinkByName(name string) (kernel.Link, error) {
	if name == "alias" { // another name of a device, as a bridge's is for its port
		name = "up0"
	}
	for _, device := range m {
		if device.name == name {
			return device.LinkByName(name)
		}
	}
	return kernel.Link{}, kernel.ErrNoLink
}

func (m machines) at(index int) *fakeMachine {
	if device := m[index]; device != nil {
		return device
	}
	return &fakeMachine{gone: true}
}

func (m machines) LinkByIndex(i int) (kernel.Link, error) { return m.at(i).LinkByName(m.at(i).name) }
func (m machines) Links() ([]kernel.Link, error)          { return nil, nil }

func (m machines) DefaultLink() (kernel.Link, error) {
	for i, device := range m {
		if device.isDefault {
			return m.LinkByIndex(i)
		}
	}
	return kernel.Link{}, kernel.ErrNoLink
}

func (m machines) SpeedBPS(name string) (uint64, error) {
	link, err := m.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return m[link.Index].SpeedBPS(name)
}

func (m machines) SetGSOMaxBytes(i int, bytes uint32) error { return m.at(i).SetGSOMaxBytes(i, bytes) }
func (m machines) Qdiscs(i int) ([]kernel.Qdisc, error)     { return m.at(i).Qdiscs(i) }
func (m machines) Save(i int) ([]kernel.SavedObject, error) { return m.at(i).Save(i) }
func (m machines) Restore(i int, objects []kernel.SavedObject) error {
	return m.at(i).Restore(i, objects)
}
func (m machines) DeleteRoot(i int) error            { return m.at(i).DeleteRoot(i) }
func (m machines) Scheduler(i int) uplink.Scheduler  { return m.at(i).Scheduler(i) }
func (m machines) Classified(i int) (bool, error)    { return m.at(i).Classified(i) }
func (m machines) HasClassifier(i int) (bool, error) { return m.Classified(i) }
func (m machines) Declassify(i int) error            { return m.at(i).Declassify(i) }
func (machines) Obstacle(int) (string, error)        { return "", nil }
func (machines) Discard(string) error                { return nil }
func (machines) Close() error                        { return nil }

func (m machines) Incoming(from func() (string, int)) uplink.Machine {
	return &incomingMachines{machines: m, from: from}
}

func (m machines) OpenClassifier(i int, majors sched.Majors) (identity.Classifier, uplink.Delays, error) {
	return m.at(i).OpenClassifier(i, majors)
}

// incomingMachines are the devices as the machine of an IFB, which makes and deletes that.
type incomingMachines struct {
	machines
	from func() (name string, ifindex int)
	// redirects is the index of the device that redirects to the IFB; 0 for none.
	redirects int
}

func (m *incomingMachines) LinkByName(name string) (kernel.Link, error) {
	if _, from := m.from(); from == 0 {
		return kernel.Link{}, cmp.Or(m.Discard(name), kernel.ErrNoLink)
	}
	if _, err := m.machines.LinkByName(name); err != nil {
		m.with(100+len(m.machines), name).kind = kernel.KindIFB
	}
	return m.ready(m.machines.LinkByName(name))
}

func (m *incomingMachines) LinkByIndex(i int) (kernel.Link, error) {
	if _, from := m.from(); from == 0 {
		return kernel.Link{}, kernel.ErrNoLink
	}
	return m.ready(m.machines.LinkByIndex(i))
}

func (m *incomingMachines) ready(link kernel.Link, err error) (kernel.Link, error) {
	_, link.UplinkIndex = m.from()
	return link, err
}

func (m *incomingMachines) SpeedBPS(string) (uint64, error) {
	name, _ := m.from()
	return m.machines.SpeedBPS(name)
}

func (m *incomingMachines) Classified(i int) (bool, error) {
	_, from := m.from()
	attached, err := m.machines.Classified(i)
	return attached && m.redirects == from, err
}

func (m *incomingMachines) OpenClassifier(i int, majors sched.Majors) (identity.Classifier, uplink.Delays, error) {
	_, m.redirects = m.from()
	return m.machines.OpenClassifier(i, majors)
}

func (m *incomingMachines) Discard(name string) error {
	maps.DeleteFunc(m.machines, func(_ int, d *fakeMachine) bool { return d.name == name && d.kind == kernel.KindIFB })
	return nil
}

// TestFollow: the device of the default route is shared out within a second, and an event says so.
func TestFollow(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	host := machines{}
	b.uplinks.machine = host
	host.with(3, "up0")
	first, second := host.with(7, "up1"), host.with(8, "up2")
	first.isDefault = true
	b.Agent.config.Reload = func() (Settings, error) {
		return Settings{Host: policy.Default(), Uplinks: []UplinkConfig{{Name: uplink.Auto, RateBPS: 100e6}}}, nil
	}
	must.Succeed(t, reload(ctx, b))
	follow := func(now time.Time, want string) {
		t.Helper()
		b.control(now)
		if list := b.uplinks.list; len(list) != 1 || list[0].device.Name() != want || !list[0].installed() {
			t.Errorf("shared out at %v: %+v", now, list)
		}
	}
	follow(epoch, "up1")
	first.isDefault = false
	follow(epoch.Add(2*followInterval), "up1")
	second.isDefault = true
	follow(epoch.Add(5*followInterval/2), "up1")
	follow(epoch.Add(3*followInterval), "up2")
	if first.scheduler.inKernel || first.classifier.attached {
		t.Error("up1 is not given back")
	}
	moved := b.events.Newest(9, func(e v1.Event) bool { return e.Kind == v1.EventUplinkMoved })
	if len(moved) != 1 || moved[0].Uplink != "up2" || !strings.Contains(moved[0].Message, "leads through up2 now, which is shared out at 100mbit in place of up1") {
		t.Errorf("events: %+v", moved)
	}
	// What is shared out already stays in force when only its name in the file changes.
	for _, name := range []string{"up2", uplink.Auto} {
		b.Agent.config.Reload = func() (Settings, error) {
			return Settings{Host: policy.Default(), Uplinks: []UplinkConfig{{Name: name, RateBPS: 100e6}}}, nil
		}
		made := b.uplinks.list[0]
		must.Succeed(t, reload(ctx, b))
		if b.uplinks.list[0] != made || made.device.Config().Name != name {
			t.Errorf("as %s: %+v", name, b.uplinks.list[0].device.Config())
		}
	}
}

// TestFollowIncoming: received traffic goes on at the next device of the default route, which is no fault of the
// redirect; a redirect that another program removes is one.
func TestFollowIncoming(t *testing.T) {
	b := newBench(t, 100e6)
	host := machines{}
	first, second := host.with(7, "up1"), host.with(8, "up2")
	first.isDefault = true
	b.uplinks.machine, b.uplinks.list, b.containers.host.shares = host, nil, nil
	must.Succeed(t, b.uplinks.open([]UplinkConfig{{Name: uplink.Auto, RateBPS: 1e8, In: uplink.InConfig{Shared: true, RateBPS: 5e7}}}, 500))
	b.containers.addShares(b.containers.host)
	must.Succeed(t, b.install())
	repaired := func() []v1.Event {
		return b.events.Newest(9, func(e v1.Event) bool { return e.Kind == v1.EventRepaired })
	}
	first.isDefault, second.isDefault = false, true
	b.control(epoch)
	in := b.uplinks.list[0].in
	if working, err := in.device.Classified(); b.uplinks.list[0].device.Name() != "up2" || !in.installed() || !working || err != nil {
		t.Errorf("redirected: %v, %v, of %+v", working, err, b.uplinks.list[0].device)
	}
	if events := repaired(); len(events) > 0 {
		t.Errorf("a move is a fault: %+v", events)
	}
	host[in.device.Ifindex()].classifier.attached = false
	b.check()
	if events := repaired(); len(events) != 1 || !strings.Contains(events[0].Message, "the redirect of received packets to in-auto was gone") {
		t.Errorf("events of a redirect that was removed: %+v", events)
	}
}

// TestHoldDown: a route that goes to and fro is followed less and less often, at once where the device is gone, and as
// at first after a minute without a move.
func TestHoldDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 100e6)
		host := machines{}
		list := []*fakeMachine{host.with(7, "up1"), host.with(8, "up2")}
		b.uplinks.machine, b.uplinks.list, b.containers.host.shares = host, nil, nil
		route := func(to int) { list[to].isDefault, list[1-to].isDefault = true, false }
		route(0)
		must.Succeed(t, b.uplinks.open([]UplinkConfig{{Name: uplink.Auto, RateBPS: 1e8}}, 500))
		b.containers.addShares(b.containers.host)
		must.Succeed(t, b.install())
		at := func() int { return b.uplinks.list[0].device.Ifindex() - 7 }
		// moves returns the number of moves while the route changes each second.
		moves := func(during time.Duration) (n int) {
			for i := range int(during / time.Second) {
				time.Sleep(time.Second)
				route(i % 2)
				before := at()
				b.control(time.Now())
				b.check()
				n += before ^ at()
			}
			return n
		}
		if n := moves(2 * time.Minute); n < 5 || n > 7 {
			t.Errorf("%d moves in two minutes", n)
		}
		if n := moves(10 * time.Minute); n < 5 || n > 10 {
			t.Errorf("%d moves in ten minutes", n)
		}
		left := at()
		list[left].gone = true
		route(1 - left)
		if b.check(); at() == left {
			t.Error("still at a device that is gone")
		}
		list[left].gone = false

		time.Sleep(2*maxHoldDown + time.Second)
		for i, after := range []time.Duration{0, time.Second, 2 * time.Second} {
			before := at()
			route(1 - before)
			for looks := time.Duration(0); looks < after; looks += time.Second {
				if b.control(time.Now()); at() != before {
					t.Errorf("move %d after %v", i, looks)
				}
				time.Sleep(time.Second)
			}
			if b.control(time.Now()); at() == before {
				t.Errorf("no move %d after %v", i, after)
			}
		}
	})
}

// TestStartAtDevice: an agent starts at a default route whose device cannot be shared out, and follows it from
// there; a named uplink ends it.
func TestStartAtDevice(t *testing.T) {
	for name, tc := range map[string]struct {
		config UplinkConfig
		alter  func(*fakeMachine)
		fatal  bool
	}{
		"no speed": {UplinkConfig{}, func(*fakeMachine) {}, false},
		"another program's queueing": {UplinkConfig{RateBPS: 1e8}, func(m *fakeMachine) {
			m.foreign = &kernel.Qdisc{Handle: 0x8001 << 16, Parent: kernel.HandleRoot, Options: kernel.Unknown{Name: "pfifo"}}
		}, false},
		"too slow":            {UplinkConfig{RateBPS: 1e8}, func(m *fakeMachine) { m.speedBPS = 1e7 }, false},
		"the kernel refuses":  {UplinkConfig{RateBPS: 1e8}, func(m *fakeMachine) { m.scheduler.err = errors.New("no memory") }, true},
		"it cannot be looked": {UplinkConfig{RateBPS: 1e8}, func(m *fakeMachine) { m.speedErr = errors.New("no memory") }, true},
	} {
		for _, uplinkName := range []string{uplink.Auto, "up1"} {
			b := newBench(t, 100e6)
			host := machines{}
			first, second := host.with(7, "up1"), host.with(8, "up2")
			first.isDefault, second.speedBPS = true, 1e9
			tc.alter(first)
			b.uplinks.machine, b.uplinks.list = host, nil
			tc.config.Name = uplinkName
			err := b.uplinks.open([]UplinkConfig{tc.config}, 500)
			if b.containers.host.shares = nil; err == nil {
				b.containers.addShares(b.containers.host)
				err = b.install()
			}
			if (err != nil) != (tc.fatal || uplinkName != uplink.Auto) {
				t.Errorf("%s at %s: %v", name, uplinkName, err)
			}
			if err != nil {
				continue
			}
			first.isDefault, second.isDefault = false, true
			b.control(epoch)
			if u := b.uplinks.list[0]; u.device.Name() != "up2" || !u.installed() || u.device.Problem() != nil {
				t.Errorf("%s: shared out after the move: %s, %v", name, u.device.Name(), u.device.Problem())
			}
		}
	}
}

// TestStartWithoutRoute: what an earlier agent left stays in force.
func TestStartWithoutRoute(t *testing.T) {
	b := newBench(t, 100e6)
	host := machines{}
	left := host.with(7, "up1")
	left.scheduler.inKernel, left.classifier.attached = true, true
	b.store.Uplinks = []*state.Uplink{{Name: "up1", Ifindex: 7, GSOMaxBytes: 65536}}
	b.uplinks.machine, b.uplinks.list, b.containers.host.shares = host, nil, nil
	must.Succeed(t, b.uplinks.open([]UplinkConfig{{Name: uplink.Auto, RateBPS: 1e8}}, 500))
	b.containers.addShares(b.containers.host)
	must.Succeed(t, b.install())
	if u := b.uplinks.list[0]; u.device.Name() != "up1" || !u.installed() || !left.scheduler.inKernel || !left.classifier.attached {
		t.Errorf("shared out: %s, left: %+v", u.device.Name(), left)
	}
}

// Uplinks are added and removed while the agent runs. The others do not notice, and
// what is refused leaves those that there were.
func TestReloadUplinks(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	host := machines{}
	b.uplinks.machine = host
	second := host.with(7, "up1")
	third := host.with(8, "up2")
	same := host.with(3, "up0")
	c, other := b.start("c", "min=10mbit"), b.start("other")
	for _, s := range []*share{c, other} {
		s.container.Mode, s.container.Seen.CgroupPath = v1.ModeHost, "/nowhere"
	}
	b.reconcile()
	next := Settings{Host: policy.Default(), ReserveBasisPoints: 500}
	b.Agent.config.Reload = func() (Settings, error) { return next, nil }
	named := func(names ...string) {
		next.Uplinks = nil
		for _, name := range names {
			next.Uplinks = append(next.Uplinks, UplinkConfig{Name: name, RateBPS: 100e6})
		}
	}
	expect := func(when string, names ...string) {
		t.Helper()
		var have []string
		for i, u := range b.uplinks.list {
			have = append(have, u.device.Name())
			if u.index != i || !u.installed() || len(u.participants) != 3 || u.host.uplink != u || c.container.shares[i].uplink != u || u.share(other.container.Number).container != other.container {
				t.Errorf("%s: uplink %d: %+v", when, i, u)
			}
		}
		if !slices.Equal(have, names) || len(c.container.shares) != len(names) || len(b.containers.host.shares) != len(names) {
			t.Errorf("%s: shared out are %v with %d shares of a container", when, have, len(c.container.shares))
		}
		var remembered []string
		for _, saved := range b.store.Uplinks {
			remembered = append(remembered, saved.Name)
		}
		if slices.Sort(remembered); !slices.Equal(remembered, slices.Sorted(slices.Values(names))) {
			t.Errorf("%s: remembered are %v", when, remembered)
		}
	}
	refused := func(when, reason string) {
		t.Helper()
		if err := reload(ctx, b); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", when, err)
		}
	}
	b.store.Uplink("up0", 3)
	changes := len(b.scheduler.kernel.ops)

	named("up0", "up9")
	refused("no such device", `no network device "up9"`)
	expect("no such device", "up0")
	named("up1", "up9")
	refused("one that is there and one that is not", `no network device "up9"`)
	expect("one that is there and one that is not", "up0")
	if second.scheduler.inKernel || second.classifier.attached {
		t.Error("what was put on up1 before up9 was refused is still there")
	}
	second.foreign = &kernel.Qdisc{Handle: 0x8001 << 16, Parent: kernel.HandleRoot, Options: kernel.Unknown{Name: "pfifo"}}
	named("up0", "up1")
	refused("somebody else's queueing", "carries a pfifo qdisc")
	if expect("somebody else's queueing", "up0"); second.foreign == nil || second.scheduler.inKernel {
		t.Error("somebody else's queueing was put aside")
	}
	second.foreign = nil
	second.scheduler.err = errors.New("no memory")
	refused("a scheduler that cannot be made", "no memory")
	if expect("a scheduler that cannot be made", "up0"); second.scheduler.inKernel || second.classifier.attached {
		t.Error("half a scheduler is left")
	}
	second.scheduler.err = nil
	named("up0", "alias")
	refused("the same device twice", "shared out already")
	if expect("the same device twice", "up0"); same.scheduler.forgot > 0 {
		t.Error("something was taken off the device")
	}
	named()
	refused("none", "names no uplink")
	expect("none", "up0")

	named("up2", "up0", "up1")
	must.Succeed(t, reload(ctx, b))
	expect("two more", "up0", "up2", "up1")
	if got := second.classifier.cgroups[c.container.Number]; got != "/nowhere" || c.container.shares[2].admittedBPS != 10e6 {
		t.Errorf("the container's cgroup is %q at the new uplink, its minimum %d", got, c.container.shares[2].admittedBPS)
	}
	b.control(epoch)

	// One that cannot be given back: none is.
	third.gsoErr = errors.New("device is busy")
	named("up0")
	refused("one that is busy", "give up2 back: device is busy")
	if expect("one that is busy", "up0", "up2", "up1"); !third.scheduler.inKernel || !second.scheduler.inKernel {
		t.Error("an uplink is without a scheduler")
	}
	third.gsoErr = nil
	c.container.shares[2].totals.SentBytes = 1e6
	must.Succeed(t, reload(ctx, b))
	if expect("one", "up0"); third.scheduler.inKernel || third.classifier.attached || second.scheduler.inKernel || second.classifier.attached {
		t.Error("uplinks that are not named any more were not given back")
	}
	if now := len(b.scheduler.kernel.ops); now != changes {
		t.Errorf("the uplink that stayed was changed %d times", now-changes)
	}

	// All others: there is never none.
	named("up1")
	must.Succeed(t, reload(ctx, b))
	if expect("another one", "up1"); b.scheduler.inKernel {
		t.Error("up0 was not given back")
	}
	b.control(epoch.Add(time.Second))
	view := c.container.view(b.containers.owners())
	if len(view.Shares) != 1 || view.Shares[0].Uplink != "up1" || view.SentBytes < 1e6 {
		t.Errorf("the container has %+v", view.Shares)
	}
}

// TestReloadStartsIncoming: received traffic that a reload begins to share has the rate and the force of the new file,
// not those of the file before; what is refused leaves no IFB.
func TestReloadStartsIncoming(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	host := machines{}
	b.uplinks.machine = host
	host.with(3, "up0")
	host.with(7, "wwan0").isDefault = true // reports no speed
	next := UplinkConfig{Name: uplink.Auto, Rates: map[string]uplink.Rates{"wwan0": {RateBPS: 20e6}}}
	b.Agent.config.Reload = func() (Settings, error) {
		return Settings{Host: policy.Default(), Uplinks: []UplinkConfig{next}}, nil
	}
	must.Succeed(t, reload(ctx, b))
	next.In.Shared = true
	if err := reload(ctx, b); !errors.Is(err, ErrRefused) || len(b.uplinks.list) != 1 || len(host) != 2 {
		t.Errorf("without a rate: %v, uplinks %v, devices %v", err, b.uplinks.list, host)
	}
	next.In.Force, next.Rates = true, map[string]uplink.Rates{"wwan0": {RateBPS: 20e6, InRateBPS: 40e6, In: true}}
	must.Succeed(t, reload(ctx, b))
	in := b.uplinks.list[0].in
	if in == nil || !in.installed() || in.device.RateBPS() != 40e6 || !in.device.Config().In.Force {
		t.Errorf("received traffic: %+v", in)
	}
}

// The uplinks of the file are found by the names they were configured with, and by
// those that they have now, in whatever order the file has them.
func TestCompareUplinks(t *testing.T) {
	a := &Agent{uplinks: &uplinks{}}
	for _, name := range []string{"a", "wan0"} {
		a.uplinks.list = append(a.uplinks.list, newLink(uplink.New(UplinkConfig{Name: name}, &fakeMachine{}, nil), 0))
	}
	a.uplinks.list[1].device.Configure(UplinkConfig{Name: "b"})
	list := []UplinkConfig{{Name: "b", RateBPS: 2}, {Name: "c", RateBPS: 1}}
	change, err := a.uplinks.compare(list)
	if err != nil || len(change.kept) != 1 || !reflect.DeepEqual(change.kept[a.uplinks.list[1]], list[0]) || !reflect.DeepEqual(change.added, list[1:]) || !slices.Equal(change.removed, a.uplinks.list[:1]) {
		t.Errorf("%+v, %v", change, err)
	}
	list = []UplinkConfig{{Name: "wan0"}, {Name: "a"}}
	if change, err = a.uplinks.compare(list); err != nil || len(change.kept) != 2 || !reflect.DeepEqual(change.kept[a.uplinks.list[1]], list[0]) {
		t.Errorf("by its name now: %+v, %v", change, err)
	}
	if _, err = a.uplinks.compare([]UplinkConfig{{Name: "wan0"}, {Name: "b"}}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("by both names: %v", err)
	}
}

// TestCompareIncoming: received traffic starts to be shared, stays, and ends with its uplink or alone.
func TestCompareIncoming(t *testing.T) {
	shared := func(name string) UplinkConfig {
		return UplinkConfig{Name: name, In: uplink.InConfig{Shared: true, RateBPS: 1e6}}
	}
	us := &uplinks{machine: &fakeMachine{}}
	for _, name := range []string{"a", "b", "c"} {
		us.list = append(us.list, newLink(uplink.New(UplinkConfig{Name: name}, us.machine, nil), 0))
	}
	a, b, c := us.list[0], us.list[1], us.list[2]
	inB, inC := us.incoming(b, shared("b")), us.incoming(c, shared("c"))
	us.list = append(us.list, inB, inC)
	for _, tc := range []struct {
		name             string
		list             []UplinkConfig
		removed, startIn []*link
	}{
		{"as before", []UplinkConfig{{Name: "a"}, shared("b"), shared("c")}, nil, nil},
		{"one more", []UplinkConfig{shared("a"), shared("b"), shared("c")}, nil, []*link{a}},
		{"one less", []UplinkConfig{{Name: "a"}, {Name: "b"}, shared("c")}, []*link{inB}, nil},
		{"with its uplink", []UplinkConfig{{Name: "a"}, shared("b")}, []*link{inC, c}, nil},
	} {
		change, err := us.compare(tc.list)
		if err != nil || !slices.Equal(change.removed, tc.removed) || !slices.Equal(change.startIn, tc.startIn) {
			t.Errorf("%s: removed %v, start %v, %v", tc.name, change.removed, change.startIn, err)
		}
	}
}
