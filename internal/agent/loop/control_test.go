package loop

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

// admitted is the minimum in force and, after a slash, "refused" or nothing.
func admitted(containers ...*share) string {
	var words []string
	for _, c := range containers {
		word := fmt.Sprintf("%s %s", c.container.Seen.Name, policy.FormatRateShort(c.admittedBPS))
		if c.refused != nil {
			word += " refused"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// Minimums on 100 Mbit/s with a reserve of 5 %.
func TestAdmit(t *testing.T) {
	expect := func(t *testing.T, want string, containers ...*share) {
		t.Helper()
		if got := admitted(containers...); got != want {
			t.Errorf("admitted: %s; want %s", got, want)
		}
	}
	t.Run("in the order of start", func(t *testing.T) {
		b := newBench(t, 100e6)
		a, c, d := b.start("a", "min=60mbit"), b.start("c", "min=40mbit"), b.start("d", "min=35mbit")
		expect(t, "a 60mbit, c 0bit refused, d 35mbit", a, c, d)
		var refusal *alloc.FloorError
		if !errors.As(c.refused, &refusal) || refusal.FreeBPS != 35e6 {
			t.Errorf("refusal %v", c.refused)
		}
	})
	t.Run("at once, in the order of start", func(t *testing.T) {
		b := newBench(t, 100e6)
		c, a := b.start("c"), b.start("a")
		b.label(c, "min=60mbit")
		b.label(a, "min=60mbit")
		b.plan()
		expect(t, "c 60mbit, a 0bit refused", c, a)
	})
	t.Run("who was refused gets what somebody leaves", func(t *testing.T) {
		b := newBench(t, 100e6)
		a, c, d := b.start("a", "min=60mbit"), b.start("c", "min=40mbit"), b.start("d", "min=50mbit")
		expect(t, "a 60mbit, c 0bit refused, d 0bit refused", a, c, d)
		b.stop(a)
		expect(t, "c 40mbit, d 50mbit", c, d)
	})
	t.Run("who is not controlled has none", func(t *testing.T) {
		b := newBench(t, 100e6)
		a, c := b.start("a", "min=60mbit"), b.start("c", "min=60mbit")
		b.containers.free(a.container)
		b.plan()
		expect(t, "a 0bit, c 60mbit", a, c)
		if a.refused != nil {
			t.Errorf("refused for %v", a.refused)
		}
	})
	t.Run("the host's own comes first", func(t *testing.T) {
		b := newBench(t, 100e6)
		b.host.container.resolved.Policy.MinBPS = 20e6
		a, c := b.start("a", "min=80mbit"), b.start("c", "min=75mbit")
		expect(t, "a 0bit refused, c 75mbit, host 20mbit", a, c, b.host)
	})
	t.Run("the host's own does not fit", func(t *testing.T) {
		b := newBench(t, 100e6)
		b.host.container.resolved.Policy.MinBPS = 200e6
		a := b.start("a", "min=80mbit")
		expect(t, "a 80mbit, host 0bit refused", a, b.host)
		if state, _ := b.host.container.state(); state != v1.StateRejected {
			t.Errorf("the host is %s", state)
		}
	})
}

// What the scheduler refused once is forgotten when it takes the next tree.
func TestApplyMends(t *testing.T) {
	b := newBench(t, 100e6)
	b.start("a")
	b.scheduler.err = unix.EPERM
	b.Agent.reconcile()
	if b.link.device.Problem() == nil {
		t.Fatal("nothing was refused")
	}
	b.scheduler.err = nil
	b.Agent.reconcile()
	if b.link.device.Problem() != nil {
		t.Errorf("still %v", b.link.device.Problem())
	}
}

func TestLearn(t *testing.T) {
	b := newBench(t, 100e6)
	seen := func(id, name string, labels map[string]string) discovery.Container {
		return discovery.Container{ID: id, Name: name, Runtime: "docker", Labels: labels, NoNetwork: true, StartedAt: epoch}
	}
	names := func() string {
		var list []string
		for _, c := range b.containers.all() {
			list = append(list, c.Seen.Name)
		}
		return strings.Join(list, " ")
	}
	b.containers.learn(discovery.Event{Source: "docker", Snapshot: &discovery.Snapshot{Containers: []discovery.Container{seen("1", "a", nil), seen("2", "c", nil)}}})
	if names() != "a c" || !b.containers.sources["docker"].Connected {
		t.Errorf("after the snapshot: %s, %+v", names(), b.containers.sources["docker"])
	}
	started := seen("3", "d", map[string]string{"weir.weight": "200", "weir.max": "fast", "com.example": "x"})
	b.containers.learn(discovery.Event{Source: "docker", Updated: &started})
	d := b.containers.byKey[key{"docker", "3"}]
	if names() != "a c d" || d.policy().Weight != 200 || len(d.resolved.Problems) != 1 || len(d.Seen.Labels) != 2 || len(started.Labels) != 3 {
		t.Errorf("after a start: %s, %+v", names(), d)
	}
	// The same again is the same container, with what was set.
	d.set.Weight = new(uint32(7))
	b.containers.learn(discovery.Event{Source: "docker", Updated: &started})
	if b.containers.byKey[key{"docker", "3"}] != d || d.policy().Weight != 7 {
		t.Error("an update lost what was set")
	}
	// Another run is not.
	again := started
	again.StartedAt = epoch.Add(time.Hour)
	b.containers.learn(discovery.Event{Source: "docker", Updated: &again})
	if d = b.containers.byKey[key{"docker", "3"}]; d.policy().Weight != 200 {
		t.Error("what was set outlived the container")
	}
	b.containers.learn(discovery.Event{Source: "docker", Disconnected: errors.New("no answer")})
	if s := b.containers.sources["docker"]; names() != "a c d" || s.Connected || s.Reason != "no answer" {
		t.Errorf("after losing the source: %s, %+v", names(), s)
	}
	b.containers.learn(discovery.Event{Source: "docker", RemovedID: "1"})
	b.containers.learn(discovery.Event{Source: "docker", RemovedID: "nobody"})
	if names() != "c d" {
		t.Errorf("after a stop: %s", names())
	}
	// Of another source, the same ID is another container, and a snapshot
	// speaks for its own source only.
	other := discovery.Container{ID: "2", Name: "p", Runtime: "podman", NoNetwork: true}
	b.containers.learn(discovery.Event{Source: "podman", Snapshot: &discovery.Snapshot{Containers: []discovery.Container{other}}})
	if names() != "p c d" {
		t.Errorf("after another source's snapshot: %s", names())
	}
	// One about which the engine gives no answer runs on as it is.
	b.containers.learn(discovery.Event{Source: "docker", Snapshot: &discovery.Snapshot{Uninspected: []string{"3", "4"}}})
	if names() != "p d" || b.containers.byKey[key{"docker", "3"}] != d {
		t.Errorf("after a snapshot without an answer about d: %s", names())
	}
	b.containers.learn(discovery.Event{Source: "docker", Snapshot: &discovery.Snapshot{}})
	if names() != "p" {
		t.Errorf("after an empty snapshot: %s", names())
	}
}

// Containers that cannot be told apart run without a class, and say why.
func TestInspectWithoutDevices(t *testing.T) {
	b := newBench(t, 100e6)
	for _, tc := range []struct {
		container discovery.Container
		mode      v1.Mode
		state     v1.State
		reason    string
	}{
		{discovery.Container{HostNetwork: true}, v1.ModeHost, v1.StateDegraded, "host class"},
		{discovery.Container{NoNetwork: true}, v1.ModeNone, v1.StateOK, "no network: nothing to limit"},
		{discovery.Container{NetNSPath: "/proc/self/ns/net"}, v1.ModeHost, v1.StateDegraded, "host class"},
		{discovery.Container{NetNSPath: "/nowhere/ns/net"}, v1.ModeNone, v1.StateDegraded, "cannot be inspected"},
	} {
		tc.container.ID, tc.container.Runtime = "1", "docker"
		c := &container{Container: attach.Container{Seen: tc.container}, resolved: policy.Resolution{Policy: policy.Default()}}
		if !b.containers.assign(c, 0) {
			t.Fatal("no number")
		}
		b.containers.inspect(c)
		state, reason := c.state()
		if c.Mode != tc.mode || state != tc.state || !strings.Contains(reason, tc.reason) {
			t.Errorf("%+v: %s, %s, %q", tc.container, c.Mode, state, reason)
		}
		if c.Number != 0 || len(b.containers.byNumber) > 0 {
			t.Errorf("%+v keeps number %d", tc.container, c.Number)
		}
	}
}

// What went direct was sent as well.
func TestSentBytes(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	b.reconcile()
	for i := range uint64(3) {
		b.classifier.offered[a.container.Number] = 1000 + 3000*i
		b.classifier.directBytes[a.container.Number] = 1000 * i
		b.scheduler.kernel.count(a.container.Number, kernel.ClassStats{SentBytes: 1000 + 2000*i})
		if _, err := b.link.control(epoch.Add(time.Duration(i) * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.view(); got.SentBytes != 7000 || got.RateBPS != 8*3000 {
		t.Errorf("%d bytes sent at %d bit/s, want 7000 at 24000", got.SentBytes, got.RateBPS)
	}
}

// What the kernel refuses while the loop runs is shown at once, and no longer than it
// does.
func TestRefusedWhileSending(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	w := newWire(b)
	w.run(time.Second)
	b.scheduler.kernel.err = unix.EPERM
	w.greedy[a] = true
	w.run(statsInterval + repairInterval)
	if state, reason := a.container.state(); state != v1.StateDegraded || !strings.Contains(reason, "operation not permitted") {
		t.Errorf("refused: %s, %q", state, reason)
	}
	b.scheduler.kernel.err = nil
	w.run(2*minRepairPause + repairInterval) // the first repair did not help
	if state, reason := a.container.state(); state != v1.StateOK {
		t.Errorf("taken again: %s, %q", state, reason)
	}
}

// Who wakes up is noticed with the look that sees it, not with the next count: delays
// are measured from then on.
func TestWakesUp(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	w := newWire(b)
	w.run(time.Second + statsInterval/2)
	b.classifier.offered[a.container.Number]++
	counted := b.link.lastStats
	b.control(w.now)
	if !a.active || b.link.lastStats != counted {
		t.Errorf("active: %t, counted at %s", a.active, b.link.lastStats)
	}
}

// TestRestsAtOneUplink: an uplink at which nothing is sent does not hold up the turns at another, and is woken
// beside it.
func TestRestsAtOneUplink(t *testing.T) {
	b := newBench(t, 100e6)
	a := b.start("a")
	other := &fakeMachine{index: 4, name: "up1", scheduler: newScheduler(), classifier: &fakeClassifier{cgroups: map[uint16]string{}, classes: map[uint16]sched.TrafficClass{}}}
	silent := newLink(uplink.New(uplink.Config{Name: "up1", RateBPS: 100e6}, other, b.store), 0)
	silent.index = len(b.uplinks.list)
	b.uplinks.list = append(b.uplinks.list, silent)
	silent.host = b.containers.host.addShare(silent)
	there := a.container.addShare(silent)
	b.advance(silent)
	w := newWire(b)
	w.greedy[a] = true
	w.run(4 * time.Second)
	if !other.classifier.armed || b.classifier.armed {
		t.Fatalf("armed: %t at the silent uplink, %t at the other", other.classifier.armed, b.classifier.armed)
	}
	if got := b.control(w.now); got >= repairInterval {
		t.Errorf("one of two uplinks rests, and the next turn is in %s", got)
	}
	number := a.container.Number
	other.classifier.offered[number] += 1500
	other.classifier.armed, other.classifier.wokenAt = false, w.now
	w.run(repairInterval)
	if !there.active || !there.class.ActiveSince.Equal(other.classifier.wokenAt) {
		t.Errorf("active at the uplink that rested: %t, since %s, want %s", there.active, there.class.ActiveSince, other.classifier.wokenAt)
	}
	w.greedy[a] = false
	w.run(5 * time.Second)
	if got := b.control(w.now); got != restInterval || !other.classifier.armed || !b.classifier.armed {
		t.Errorf("both uplinks rest, armed %t and %t, and the next turn is in %s", b.classifier.armed, other.classifier.armed, got)
	}
}

// TestRedirectGone: a redirect of received packets that another program removed is put back within a
// second, and an event says so.
func TestRedirectGone(t *testing.T) {
	b := newBench(t, 100e6)
	b.link.of = newLink(b.link.device, 0)
	b.reconcile()
	b.classifier.attached = false
	for now := epoch; now.Before(epoch.Add(time.Second)); now = now.Add(restInterval) {
		b.control(now)
	}
	got := b.events.Newest(1, func(e v1.Event) bool { return e.Kind == v1.EventRepaired })
	if !b.classifier.attached || len(got) != 1 || got[0].Uplink != "up0" || !strings.Contains(got[0].Message, "redirect of received packets") {
		t.Errorf("attached %t, events %+v", b.classifier.attached, got)
	}
}
