package loop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

const first, last = identity.NumberFirst, identity.NumberLast

func TestAssign(t *testing.T) {
	assign := func(t *testing.T, r *registry, preferred uint16) *container {
		t.Helper()
		c := &container{}
		if !r.assign(c, preferred) {
			t.Fatalf("no number for one who prefers %d", preferred)
		}
		if r.byNumber[c.Number] != c {
			t.Fatalf("number %d is somebody else's", c.Number)
		}
		return c
	}
	for _, tc := range []struct {
		name            string
		taken           []uint16
		next, preferred uint16
		want            uint16
	}{
		{"the first", nil, first, 0, first},
		{"the next", []uint16{first}, first + 1, 0, first + 1},
		{"over those that are taken", []uint16{first + 1, first + 2}, first + 1, 0, first + 3},
		{"around the end", []uint16{last}, last, 0, first},
		{"around the end and over those that are taken", []uint16{last, first}, last, 0, first + 1},
		{"the preferred one", []uint16{first}, first + 1, first + 7, first + 7},
		{"the first, preferred", nil, first + 3, first, first},
		{"the last, preferred", nil, first, last, last},
		{"another, where the preferred one is taken", []uint16{first + 7}, first, first + 7, first},
		{"another, where the host's is preferred", nil, first, identity.NumberHost, first},
		{"another, where the control class's is preferred", nil, first, identity.NumberControl, first},
		{"another, where one beyond all is preferred", nil, first, last + 1, first},
		{"another, where a share's is preferred", nil, first, 0xffff, first},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRegistry()
			r.next = tc.next
			for _, n := range tc.taken {
				r.byNumber[n] = &container{Container: attach.Container{Number: n}}
			}
			if c := assign(t, r, tc.preferred); c.Number != tc.want {
				t.Errorf("number %d, want %d", c.Number, tc.want)
			}
		})
	}

	t.Run("not again at once", func(t *testing.T) {
		r := newRegistry()
		c := assign(t, r, 0)
		r.free(c)
		if c.Number != 0 || len(r.byNumber) > 0 {
			t.Errorf("released, but number %d, %v", c.Number, r.byNumber)
		}
		r.free(c) // has none: nothing happens
		if next := assign(t, r, 0); next.Number != first+1 {
			t.Errorf("number %d right after its last holder", next.Number)
		}
	})
	t.Run("all in use", func(t *testing.T) {
		r := newRegistry()
		for range int(last) - int(first) + 1 {
			assign(t, r, 0)
		}
		for _, preferred := range []uint16{0, first, last} {
			if c := (&container{}); r.assign(c, preferred) || c.Number != 0 {
				t.Fatalf("number %d was given twice", c.Number)
			}
		}
		free := r.byNumber[first+99]
		r.free(free)
		if c := assign(t, r, 0); c.Number != first+99 {
			t.Errorf("number %d, while only %d is free", c.Number, first+99)
		}
	})
	t.Run("any order of coming and going", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			r := newRegistry()
			var running []*container
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				if len(running) > 0 && rapid.Bool().Draw(t, "stop") {
					i := rapid.IntRange(0, len(running)-1).Draw(t, "who")
					r.free(running[i])
					running = append(running[:i], running[i+1:]...)
					continue
				}
				c := &container{}
				if !r.assign(c, rapid.SampledFrom([]uint16{0, 0, first, first + 1, first + 5, last, 3, 0xffff}).Draw(t, "preferred")) {
					t.Fatal("no number")
				}
				running = append(running, c)
			}
			seen := map[uint16]bool{}
			for _, c := range running {
				if c.Number < first || c.Number > last || seen[c.Number] || r.byNumber[c.Number] != c {
					t.Fatalf("number %d", c.Number)
				}
				seen[c.Number] = true
			}
			if len(r.byNumber) != len(running) || len(r.controlled()) != len(running) {
				t.Fatalf("%d numbers for %d containers", len(r.byNumber), len(running))
			}
			for i, c := range r.controlled() {
				if i > 0 && c.Number <= r.controlled()[i-1].Number {
					t.Fatal("not in the order of numbers")
				}
			}
		})
	})
}

func TestState(t *testing.T) {
	const obstacle = "its network cannot be inspected: gone"
	problem := []policy.Problem{{Name: "weir.min", Value: "fast", Message: "is not a rate", Effect: "no minimum applies"}}
	const said = `weir.min="fast": is not a rate (no minimum applies)`
	lte := linkNamed("wwan0")
	fine := &share{container: &container{}, uplink: linkNamed("eth0")}
	refused := &share{container: &container{}, uplink: lte, refused: errors.New("minimum 9mbit cannot be guaranteed")}
	late := &share{container: &container{}, uplink: lte, refusedLatency: errors.New("latency 1ms cannot be guaranteed")}
	cut := &share{container: &container{Container: attach.Container{Number: first}}, uplink: lte, admittedBPS: 9e6, class: sched.State{GuaranteedBPS: 8e6}}
	for _, tc := range []struct {
		name   string
		c      container
		state  v1.State
		reason string
	}{
		{"nothing wrong", container{}, v1.StateOK, ""},
		{"not controlled", container{Container: attach.Container{Obstacle: obstacle}}, v1.StateDegraded, obstacle},
		{"a wrong label", container{resolved: policy.Resolution{Problems: problem}}, v1.StateDegraded, said},
		{"a class", *ofClass(first, v1.ClassEF), v1.StateOK, ""},
		{"the host's class", *ofClass(identity.NumberHost, v1.ClassEF), v1.StateDegraded, "the host's class is not in force: only the traffic of containers is divided into classes"},
		{
			"a minimum of AF above the share", *ofClass(first, v1.ClassAuto, v1.Part{BPS: 6e6}), v1.StateDegraded,
			"the minimum of AF 6mbit is cut to 4mbit: it is entitled to 8mbit, of which EF may have 4mbit",
		},
		{"a minimum of AF where all is AF", *ofClass(first, v1.ClassAF, v1.Part{BPS: 6e6}), v1.StateOK, ""},
		{
			"also limited by CNI", container{Container: attach.Container{Seen: discovery.Container{Pod: discovery.Pod{LimitedBy: "/etc/cni/net.d/10-a.conflist"}}}}, v1.StateDegraded,
			"CNI's bandwidth plugin limits it as well: take the plugin out of /etc/cni/net.d/10-a.conflist and start the pod again",
		},
		{"refused", container{shares: []*share{refused}}, v1.StateRejected, "minimum 9mbit cannot be guaranteed"},
		{"a latency refused", container{shares: []*share{late}}, v1.StateRejected, "latency 1ms cannot be guaranteed"},
		{"cut", container{Container: attach.Container{Number: first}, shares: []*share{cut}}, v1.StateDegraded, "minimum 9mbit is cut to 8mbit: all minimums together exceed the uplink's rate less the reserve, since one of these was changed"},
		{"refused at one of two uplinks", container{shares: []*share{fine, refused}}, v1.StateRejected, "wwan0: minimum 9mbit cannot be guaranteed"},
		{
			"everything", container{Container: attach.Container{Obstacle: obstacle}, resolved: policy.Resolution{Problems: problem}, shares: []*share{refused}},
			v1.StateRejected, obstacle + "; " + said + "; minimum 9mbit cannot be guaranteed",
		},
	} {
		state, reason := tc.c.state()
		if state != tc.state || reason != tc.reason {
			t.Errorf("%s: %s, %q; want %s, %q", tc.name, state, reason, tc.state, tc.reason)
		}
	}
}

// ofClass is a container that is entitled to 8 Mbit/s.
func ofClass(number uint16, class v1.Class, afMin ...v1.Part) *container {
	p := policy.Default()
	p.Class = class
	for _, part := range afMin {
		p.AFMin = part
	}
	c := &container{Container: attach.Container{Number: number}, resolved: policy.Resolution{Policy: p}}
	c.shares = []*share{{container: c, uplink: linkNamed("eth0"), class: sched.State{EntitledBPS: 8e6}}}
	return c
}

// linkNamed is an uplink that is not there.
func linkNamed(name string) *link {
	return newLink(uplink.New(uplink.Config{Name: name, RateBPS: 100e6}, nil, nil), 0)
}

// What a container's policy becomes on its way to the scheduler.
func TestWanted(t *testing.T) {
	c := &share{
		container:   &container{Container: attach.Container{Number: 17}, resolved: policy.Resolution{Policy: v1.Policy{Weight: 300, MinBPS: 4, MaxBPS: 80, Priority: 7}}},
		uplink:      linkNamed("eth0"),
		admittedBPS: 3, latency: time.Millisecond,
	}
	if got := c.competitor(); got != (alloc.Container{Weight: 300, FloorBPS: 3, CeilingBPS: 80, Priority: 7, DemandBPS: alloc.Unlimited}) {
		t.Errorf("competitor %+v", got)
	}
	want := sched.Competitor{Number: 17, FloorBPS: 3, CeilingBPS: 80, Weight: 300, Priority: 7, Latency: time.Millisecond, OwnDevices: true}
	if got := c.wanted(); got != want {
		t.Errorf("class %+v", got)
	}
	c.container.resolved.Policy, c.container.Mode = v1.Policy{Weight: 1}, v1.ModeHost
	if got := c.wanted(); got.CeilingBPS != alloc.Unlimited || got.Weight != 1 || got.Priority != 0 || got.OwnDevices {
		t.Errorf("class of what was set %+v", got)
	}
}

func TestContainersInOrderOfStart(t *testing.T) {
	r := newRegistry()
	for _, c := range []discovery.Container{
		{Name: "b", ID: "2", StartedAt: epoch.Add(1)},
		{Name: "b", ID: "1", StartedAt: epoch.Add(1)},
		{Name: "z", ID: "9", StartedAt: epoch},
		{Name: "a", ID: "3", StartedAt: epoch.Add(1)},
		{Name: "static", ID: "4"}, // no time: was always there
	} {
		r.byKey[key{"docker", c.ID}] = &container{Container: attach.Container{Seen: c}}
	}
	got := ""
	for _, c := range r.all() {
		got += c.Seen.ID
	}
	if got != "49312" {
		t.Errorf("order %s", got)
	}
}

// A container that publishes very many ports does not take the room of others, and is not
// ok; nor is one whose ports the classifier does not take, until it does.
func TestManyPublished(t *testing.T) {
	b := newBench(t, 100e6)
	publish := func(name string, first, count uint16) *share {
		c := b.start(name)
		c.container.Devices = []attach.Device{{Attachment: identity.Attachment{Interface: "eth0", Mode: v1.ModeBridge}}}
		for i := range count {
			c.container.Seen.Ports = append(c.container.Seen.Ports, discovery.Port{Host: first + i, Protocol: "tcp", AnyIPv4: true, AnyIPv6: true})
		}
		c.container.Learn(c.container.Container.Seen)
		return c
	}
	many, few, none := publish("many", 10_000, 5000), publish("few", 80, 2), publish("none", 0, 0)
	check := func(when string, s *share, want v1.State, reason string) {
		t.Helper()
		if state, got := s.container.state(); state != want || !strings.Contains(got, reason) {
			t.Errorf("%s: %s is %s: %s; want %s: %s", when, s.container.Seen.Name, state, got, want, reason)
		}
	}
	const tooMany = "it publishes 5000 ports, of which the first 256 are known to be its own"
	b.reconcile()
	check("at first", many, v1.StateDegraded, tooMany)
	check("at first", few, v1.StateOK, "")
	if got := len(b.classifier.published); got != 2*256+4 {
		t.Errorf("the classifier is told of %d ports", got)
	}
	b.classifier.publishedRefused = map[uint16]error{few.container.Number: identity.ErrTooManyPublished}
	b.reconcile()
	check("no room", few, v1.StateDegraded, "not all of its 2 published ports are known to be its own")
	b.classifier.publishedRefused, b.classifier.err = nil, errors.New("no memory")
	b.reconcile()
	check("no memory", few, v1.StateDegraded, "no memory")
	check("no memory", none, v1.StateOK, "")
	b.classifier.err = nil
	b.reconcile()
	check("mended", few, v1.StateOK, "")
	check("mended", many, v1.StateDegraded, tooMany)
}

// Of those that joined a network whose container has gone, the one that started first has
// the policy that counts there, whatever the order in which they are kept.
func TestInNetNS(t *testing.T) {
	b := newBench(t, 100e6)
	netns := kernel.NetNSID{Inode: 7}
	for i := range 20 {
		c := b.start(fmt.Sprintf("c%02d", 19-i))
		c.container.Seen.StartedAt = epoch.Add(-time.Duration(i) * time.Second)
		if i%2 == 0 {
			c.container.NetNS = netns
		}
	}
	list := b.containers.inNetNS(netns)
	if len(list) != 10 || list[0].Seen.Name != "c01" || !slices.IsSortedFunc(list, startOrder) {
		t.Errorf("%d are there, the first of them %s", len(list), list[0].Seen.Name)
	}
}

// TestIncomingWithoutRate: values for received traffic have no effect where that is not shared, which is
// said once, with what to do.
func TestIncomingWithoutRate(t *testing.T) {
	b := newBench(t, 100e6)
	c := b.start("c", "in.max=10mbit", "in.weight=300")
	const says = "its values for received traffic have no effect at up0: give --in-rate, or in_rate in the config file"
	if state, reason := c.container.state(); state != v1.StateDegraded || strings.Count(reason, says) != 1 {
		t.Errorf("%s: %s", state, reason)
	}
	b.link.in = newLink(b.link.device, 0)
	if _, reason := c.container.state(); strings.Contains(reason, says) {
		t.Errorf("shared: %s", reason)
	}
}
