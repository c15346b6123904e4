package engine_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// crowd is a service with instances on nodes, and users that come to the first one.
func crowd(s engine.Service, nodes []engine.Node, users, seconds float64, instances ...engine.Instance) engine.Input {
	return engine.Input{
		At: start, Nodes: nodes, Services: []engine.Service{s}, Instances: instances,
		Demand: []engine.Demand{{Service: s.Spec.Name, Node: nodes[0].Name, Users: users, ResponseSeconds: seconds}},
	}
}

// later is the input of another round.
func later(in engine.Input, r engine.Result, d time.Duration) engine.Input {
	in.Memory, in.At = r.Memory, in.At.Add(d)
	return in
}

// TestReplication: the paper's rules on where another instance goes (section V).
func TestReplication(t *testing.T) {
	for _, algorithm := range []string{"local", "remote", "hybrid"} {
		choose := func(s *spec.Spec) { s.Algorithm = algorithm }
		for _, tc := range []struct {
			name   string
			change func(*engine.Input)
			users  float64
			// Where the second instance goes by each algorithm, and why nowhere.
			local, remote, hybrid string
		}{
			{"the container's users are its limit", func(*engine.Input) {}, 45, "a", "b", "b"},
			{"its node is exhausted", func(in *engine.Input) {
				in.Nodes[0].CPUUsedPercent, in.Instances[0].CPUs = 100, 3.8
			}, 45, "would share", "b", "b"},
			{"the container is exhausted", func(in *engine.Input) {
				in.Services[0].Spec.Limits.CPUs, in.Instances[0].CPUs = 0.5, 0.5
			}, 45, "another one would share the node", "b", "b"},
			{"the other node is exhausted", func(in *engine.Input) { in.Nodes[1].CPUUsedPercent, in.Instances[0].CPUs = 99, 1 }, 45, "a", "its processors are exhausted", "a"},
			{"the image takes longer than the service can wait", func(in *engine.Input) {
				in.Nodes[1].PullBPS = 20e6
			}, 45, "a", "transfer (4 s) and start-up (1.5 s) are not below the 5 s", "a"},
			{"the image is there", func(in *engine.Input) {
				in.Nodes[1].PullBPS, in.Nodes[1].Images = 20e6, []string{"busybox"}
			}, 45, "a", "b", "b"},
			{"there is room", func(*engine.Input) {}, 40, "", "", ""},
		} {
			t.Run(algorithm+"/"+tc.name, func(t *testing.T) {
				in := crowd(web(choose), []engine.Node{board("a"), board("b")}, tc.users, 0.4, running("web", "a", 1, tc.users, 0.5))
				tc.change(&in)
				e := newEngine(t)
				first := only(t, e.Round(in))
				d := only(t, e.Round(later(in, e.Round(in), 2*time.Second)))
				want := map[string]string{"local": tc.local, "remote": tc.remote, "hybrid": tc.hybrid}[algorithm]
				switch {
				case want == "" && (d.Action != engine.Keep || d.Cause != engine.CauseNone):
					t.Errorf("%s %s", d.Action, d.Reason)
				case want == "" || len(want) == 1 && d.Action == engine.Start && d.Node == want && d.Cause == engine.CauseUsers:
				case len(want) > 1 && d.Action == engine.Keep && (strings.Contains(d.Reason, want) || refused(d, want)):
				default:
					t.Errorf("%s on %q: %s; want %s; %+v", d.Action, d.Node, d.Reason, want, d.Alternatives)
				}
				if want != "" && (first.Action != engine.Keep || !strings.Contains(first.Reason, "it has to last for 1 s")) {
					t.Errorf("at once: %s %s", first.Action, first.Reason)
				}
			})
		}
	}
}

func refused(d engine.Decision, why string) bool {
	for _, a := range d.Alternatives {
		if strings.Contains(a.Refused, why) {
			return true
		}
	}
	return false
}

// TestPaperFigures: what the model expects of other instances, against what PiCasso
// measured of busybox under 100 users who exhaust the node (figure 7).
func TestPaperFigures(t *testing.T) {
	nodes := []engine.Node{board("a"), board("b"), board("c"), board("d")}
	nodes[0].CPUUsedPercent = 100
	s := web(func(s *spec.Spec) { s.MaxUsers, s.ResponseSeconds = 1000, 0.1 })
	in := crowd(s, nodes, 100, 0.4, running("web", "a", 1, 100, 3.95))
	for _, n := range nodes[1:] {
		in.Links = append(in.Links, engine.Link{From: "a", To: n.Name})
	}
	e := newEngine(t)
	d := only(t, e.Round(later(in, e.Round(in), 2*time.Second)))
	if d.Action != engine.Start || d.Node == "a" || d.Cause != engine.CauseResponse {
		t.Fatalf("%+v", d)
	}
	// Two containers on two nodes: -55.01 %.
	if fall := 100 * (1 - d.Alternatives[0].ResponseSeconds/0.4); math.Abs(fall-55.01) > 6 {
		t.Errorf("another node is expected to shorten the response time by %.2f %%, and did by 55.01 %%", fall)
	}
	// Two on one node: no gain. It is the worst of four alternatives.
	local := d.Alternatives[3]
	if !local.Local || local.Refused != "users would not wait less" || math.Abs(local.ResponseSeconds-0.4) > 0.02 {
		t.Errorf("the same node: %+v", local)
	}
	// Four on four: -77.25 %. Where users are too many for one, three are added at once.
	in.Services[0].Spec.MaxUsers = 32
	r := e.Round(in)
	if len(r.Decisions) != 3 {
		t.Fatalf("%d decisions", len(r.Decisions))
	}
	fourth := r.Decisions[2].Alternatives[0]
	if fall := 100 * (1 - fourth.ResponseSeconds/0.4); math.Abs(fall-77.25) > 6 {
		t.Errorf("three more nodes are expected to shorten the response time by %.2f %%, and did by 77.25 %%", fall)
	}
}

// TestHowMany: as many as users need at once, at most what is allowed, and nothing is
// started twice.
func TestHowMany(t *testing.T) {
	e := newEngine(t)
	nodes := []engine.Node{board("a"), board("b"), board("c"), board("d"), board("e")}
	in := crowd(web(), nodes, 170, 0.4, running("web", "a", 1, 50, 0.5))
	r := e.Round(in) // more users than room: at once
	if len(r.Decisions) != 4 {
		t.Fatalf("%d decisions, want 4 for 170 users, 50 each and to 80 %%", len(r.Decisions))
	}
	on := map[string]bool{"a": true}
	for i, d := range r.Decisions {
		if d.Action != engine.Start || on[d.Node] {
			t.Errorf("%d: %s on %s: %s", i, d.Action, d.Node, d.Reason)
		}
		on[d.Node] = true
		in.Instances = append(in.Instances, engine.Instance{ID: d.Instance, Service: "web", Node: d.Node, State: engine.InstanceStarting, Since: start})
	}
	if d := only(t, e.Round(later(in, r, time.Second))); d.Action != engine.Keep {
		t.Errorf("the same again: %+v", d)
	}
	in = crowd(web(func(s *spec.Spec) { s.Limits.Instances = 2 }), nodes, 170, 0.4, running("web", "a", 1, 50, 0.5))
	r = e.Round(in)
	if len(r.Decisions) != 2 || r.Decisions[0].Action != engine.Start || !strings.Contains(r.Decisions[1].Reason, "limits.instances allows no more than 2") {
		t.Errorf("%+v", r.Decisions)
	}
	var most []engine.Instance
	for i := range 16 {
		most = append(most, running("web", nodes[i%len(nodes)].Name, i+1, 60, 0.5))
	}
	for key, container := range map[string]*spec.Container{"limits.instances": nil, "x-weir-edge.minInstances": {}} {
		in = crowd(web(func(s *spec.Spec) { s.Container = container }), nodes, 960, 0.4, most...)
		if d := only(t, newEngine(t).Round(in)); d.Action != engine.Keep || !strings.Contains(d.Reason, "but 16 instances are the most by default: raise "+key) {
			t.Errorf("%+v", d)
		}
	}
}

// TestShrink: fewer instances when users are few for long enough, one at a time, and
// never fewer than must be.
func TestShrink(t *testing.T) {
	e := newEngine(t)
	in := crowd(web(), []engine.Node{board("a"), board("b"), board("c")}, 20, 0.1,
		running("web", "a", 1, 20, 0.1), running("web", "b", 2, 0, 0), running("web", "c", 3, 0, 0))
	var r engine.Result
	stopped := []string{}
	for second := 0; second < 400; second++ {
		r = e.Round(in)
		for _, d := range r.Decisions {
			if d.Action == engine.Stop {
				stopped = append(stopped, d.Instance)
				at := 0
				for in.Instances[at].ID != d.Instance {
					at++
				}
				in.Instances = append(in.Instances[:at:at], in.Instances[at+1:]...)
				if d.Cause != engine.CauseIdle || second < 60*len(stopped) {
					t.Errorf("after %d s: %+v", second, d)
				}
			}
		}
		in = later(in, r, time.Second)
	}
	if strings.Join(stopped, " ") != "web-3 web-2" {
		t.Errorf("stopped: %v", stopped)
	}
	if d := only(t, r); d.Reason != "20 users, and 1 instance has room for 50" {
		t.Error(d.Reason)
	}
}

// TestShrinkUncounted: where nothing counts users there are as many instances as numUsers and availability take.
func TestShrinkUncounted(t *testing.T) {
	for _, tc := range []struct {
		uncounted bool
		percent   float64
		want      string
	}{{true, 0, "web-3 web-2"}, {true, 99.9, "web-3"}, {false, 0, ""}} {
		s := web(func(s *spec.Spec) { s.NumUsers, s.AvailabilityPercent = 10, tc.percent })
		e := newEngine(t)
		in := engine.Input{At: start, Nodes: boards("abc"), Services: []engine.Service{s}, Uncounted: tc.uncounted}
		in.Instances = []engine.Instance{running("web", "a", 1, 0, 0), running("web", "b", 2, 0, 0), running("web", "c", 3, 0, 0)}
		var stopped []string
		for second := range 200 {
			r := e.Round(in)
			for _, d := range r.Decisions {
				if d.Action == engine.Keep {
					continue
				}
				stopped = append(stopped, d.Instance)
				in.Instances = slices.DeleteFunc(in.Instances, func(i engine.Instance) bool { return i.ID == d.Instance })
				if d.Action != engine.Stop || second < 60*len(stopped) || !strings.Contains(d.Reason, "would be enough for numUsers and availability") {
					t.Errorf("after %d s: %+v", second, d)
				}
			}
			in = later(in, r, time.Second)
		}
		if got := strings.Join(stopped, " "); got != tc.want {
			t.Errorf("%+v: stopped %q", tc, got)
		}
	}
}

// TestShrinkOnOneUplink: what two instances share is no more than one has, but for
// processors of which one may use less.
func TestShrinkOnOneUplink(t *testing.T) {
	for used, want := range map[float64]engine.Action{10: engine.Stop, 90: engine.Keep} {
		e := newEngine(t)
		in := crowd(web(), boards("ab"), 20, 0.1, running("web", "a", 1, 10, used/200*4), running("web", "a", 2, 10, used/200*4))
		in.Demand[0].SentBPS, in.Nodes[0].UplinkSentBPS, in.Nodes[0].CPUUsedPercent = 90e6, 90e6, used
		var d engine.Decision
		for range 100 {
			r := e.Round(in)
			if d = r.Decisions[0]; d.Action == engine.Stop {
				break
			}
			in = later(in, r, time.Second)
		}
		if d.Action != want {
			t.Errorf("processors used to %v %%: %s %s", used, d.Action, d.Reason)
		}
	}
}

// TestShrinkNot: what is not known, must be, or was needed lately stays.
func TestShrinkNot(t *testing.T) {
	for name, change := range map[string]func(*engine.Input){
		"nobody counts users": func(in *engine.Input) { in.Demand = nil },
		"room for users that have to have it": func(in *engine.Input) {
			in.Services[0].Spec.NumUsers = 51
		},
		"availability":        func(in *engine.Input) { in.Services[0].Spec.AvailabilityPercent = 99.5 },
		"a node is stale":     func(in *engine.Input) { in.Nodes[2].State = engine.NodeStale; in.Instances[1].Node = "c" },
		"one is starting":     func(in *engine.Input) { in.Instances[1].State = engine.InstanceStarting; in.Instances[1].Since = start },
		"users need two":      func(in *engine.Input) { in.Demand[0].Users = 31 },
		"processors need two": func(in *engine.Input) { in.Instances[0].CPUs, in.Nodes[0].CPUUsedPercent = 3, 80 },
		"the uplink needs two": func(in *engine.Input) {
			in.Instances[0].SentBPS, in.Nodes[0].UplinkSentBPS = 90e6, 95e6
		},
		"the uplink that a proxy uses needs two": func(in *engine.Input) {
			in.Demand[0].SentBPS, in.Nodes[0].UplinkSentBPS = 90e6, 95e6
		},
		"it was added for as many users": func(in *engine.Input) {
			in.Memory.Services = map[string]engine.ServiceMemory{"web": {GrownUsers: 22, Grow: engine.Pace{Last: start.Add(-time.Hour)}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			in := crowd(web(), []engine.Node{board("a"), board("b"), board("c")}, 20, 0.1, running("web", "a", 1, 20, 0.1), running("web", "b", 2, 0, 0))
			change(&in)
			for second := 0; second < 100; second++ {
				r := e.Round(in)
				for _, d := range r.Decisions {
					if d.Action == engine.Stop {
						t.Fatalf("after %d s: %s", second, d.Reason)
					}
				}
				in = later(in, r, time.Second)
				if in.Instances[1].State == engine.InstanceStarting {
					in.Instances[1].Since = in.At
				}
			}
		})
	}
}

// TestInVain: what does not help is not done again and again.
func TestInVain(t *testing.T) {
	e := newEngine(t)
	nodes := []engine.Node{}
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		nodes = append(nodes, board(name))
	}
	// A database behind the service is slow: every instance spins, and users wait.
	in := crowd(web(func(s *spec.Spec) { s.ResponseSeconds = 0.5 }), nodes, 10, 2, running("web", "a", 1, 10, 4))
	in.Nodes[0].CPUUsedPercent = 100
	starts := 0
	for second := 0; second < 1200; second++ {
		r := e.Round(in)
		for _, d := range r.Decisions {
			if d.Action != engine.Start {
				continue
			}
			starts++
			in.Instances = append(in.Instances, running("web", d.Node, len(in.Instances)+1, 10, 4))
			for i := range in.Nodes {
				if in.Nodes[i].Name == d.Node {
					in.Nodes[i].CPUUsedPercent = 100
				}
			}
		}
		in = later(in, r, time.Second)
	}
	if starts < 2 || starts > 4 {
		t.Errorf("%d instances were added in 20 minutes; want one, and tries after 5 and 10 minutes", starts)
	}
}

// TestInVainInBursts: users wait too long again and again, for a while, whatever is added. The
// time between is no success; if it lasts, it is.
func TestInVainInBursts(t *testing.T) {
	for _, tc := range []struct{ period, bad, most int }{{4, 2, 4}, {5, 2, 4}, {40, 10, 4}, {200, 60, 4}, {2400, 60, 2}} {
		e := newEngine(t)
		s := web(func(s *spec.Spec) { s.ResponseSeconds, s.MaxUsers, s.Algorithm = 0.5, 0, "local" })
		in := crowd(s, boards("ab"), 10, 0.1, running("web", "a", 1, 10, 0.1))
		starts := 0
		for second := range 2400 {
			in.Demand[0].ResponseSeconds = 0.1
			if second%tc.period < tc.bad {
				in.Demand[0].ResponseSeconds = 2
			}
			r := e.Round(in)
			for _, d := range r.Decisions {
				if d.Action == engine.Start {
					starts++
					in.Instances = append(in.Instances, running("web", "a", len(in.Instances)+1, 0, 0))
				}
			}
			in = later(in, r, time.Second)
		}
		if starts < 1 || starts > tc.most {
			t.Errorf("%d of %d s: %d starts in 40 minutes; want one, and tries after 5, 10 and 20", tc.bad, tc.period, starts)
		}
	}
}

// TestInVainToAndFro: the node that an instance goes to is exhausted as soon as it is there, and
// the worse of two. That it comes back is no success that makes up for having gone.
func TestInVainToAndFro(t *testing.T) {
	e := newEngine(t)
	s := web(func(s *spec.Spec) { s.ResponseSeconds, s.MaxUsers = 0.5, 0 })
	in := crowd(s, boards("ab"), 10, 2, running("web", "a", 1, 10, 0.2))
	moves := 0
	for range 3600 {
		here := 0
		if in.Instances[0].Node == "b" {
			here = 1
		}
		in.Nodes[here].CPUUsedPercent, in.Nodes[1-here].CPUUsedPercent = 100, 50
		in.Demand[0].ResponseSeconds = 2 + 2*float64(here)
		r := e.Round(in)
		for _, d := range r.Decisions {
			if d.Action == engine.Move {
				moves++
				in.Instances[0] = running("web", d.Node, moves+1, 10, 0.2)
			}
		}
		in = later(in, r, time.Second)
	}
	if moves < 2 || moves > 12 {
		t.Errorf("%d moves in an hour; want two, and as many after 5, 10 and 20 minutes", moves)
	}
}

// TestSeveralAtOnce: who waits four times as long as he may gets as many instances at once as
// there are; no more where these are expected to be enough, or the last one to be of little use.
func TestSeveralAtOnce(t *testing.T) {
	remote := func(s *spec.Spec) { s.Algorithm, s.ReplicationSeconds = "remote", 60 }
	for name, tc := range map[string]struct {
		seconds float64
		change  func(*spec.Spec)
		others  float64 // of other nodes' processors, in percent
		want    int
	}{
		"as many as there are": {2, nil, 0, 2},
		"one is enough":        {0.66, nil, 0, 1},
		"two are enough":       {0.8, nil, 0, 2},
		"as many as may be":    {2, func(s *spec.Spec) { s.Limits.Instances = 3 }, 0, 1},
		"nowhere":              {2, func(s *spec.Spec) { s.Algorithm = "local" }, 0, 0},
		"elsewhere":            {2, remote, 0, 2},
		"little use":           {2, remote, 84, 1},
	} {
		s := web(func(s *spec.Spec) {
			s.ResponseSeconds, s.MaxUsers = 0.5, 0
			if tc.change != nil {
				tc.change(s)
			}
		})
		in := crowd(s, boards("abcdef"), 80, tc.seconds, running("web", "a", 1, 40, 4), running("web", "b", 2, 40, 4))
		for i := range in.Nodes {
			in.Nodes[i].CPUUsedPercent = tc.others
		}
		in.Nodes[0].CPUUsedPercent, in.Nodes[1].CPUUsedPercent = 100, 100
		e := newEngine(t)
		starts := 0
		for _, d := range e.Round(later(in, e.Round(in), 2*time.Second)).Decisions {
			if d.Action == engine.Start {
				starts++
			}
		}
		if starts != tc.want {
			t.Errorf("%s: %d are started, want %d", name, starts, tc.want)
		}
	}
}

// TestCrowdGrows: users wait as long as before, but are many more: the last instance has
// helped, and the next one does not wait for five minutes. If as many wait as long, or they do
// not wait for each other, it has not.
func TestCrowdGrows(t *testing.T) {
	for name, tc := range map[string]struct {
		users, cpus float64
		helped      bool
	}{
		"twice as many":        {80, 4, true},
		"hardly more":          {44, 4, false},
		"not for each other":   {80, 0.1, false},
		"as many":              {40, 4, false},
		"fewer wait no better": {30, 4, false},
	} {
		e := newEngine(t)
		s := web(func(s *spec.Spec) {
			s.ResponseSeconds, s.MaxUsers, s.Algorithm, s.ReplicationSeconds = 0.5, 0, "remote", 60
		})
		in := crowd(s, boards("abcdef"), 40, 2, running("web", "a", 1, 40, tc.cpus))
		in.Nodes[0].CPUUsedPercent = 25 * tc.cpus
		in = later(in, e.Round(in), 2*time.Second)
		r := e.Round(in)
		if d := only(t, r); d.Action != engine.Start || d.Node != "b" {
			t.Fatalf("%s: %+v", name, d)
		}
		in = crowd(s, boards("abcdef"), tc.users, 2, running("web", "a", 1, tc.users/2, tc.cpus), running("web", "b", 2, tc.users/2, tc.cpus))
		in.Nodes[0].CPUUsedPercent, in.Nodes[1].CPUUsedPercent = 25*tc.cpus, 25*tc.cpus
		in.At = r.Memory.Services["web"].Grow.Last
		seconds := 0
		for ; seconds < 60; seconds++ {
			in = later(in, r, time.Second)
			r = e.Round(in)
			if d := r.Decisions[0]; d.Action == engine.Start {
				break
			}
		}
		if m := r.Memory.Services["web"]; (seconds < 30) != tc.helped || (m.Grow.Level == 0) != tc.helped {
			t.Errorf("%s: the next one is started after %d s, %d in vain", name, seconds, m.Grow.Level)
		}
	}
}

// TestMoveFromBusy: a service that is a small part of what exhausts its node moves.
func TestMoveFromBusy(t *testing.T) {
	e := newEngine(t)
	in := crowd(web(func(s *spec.Spec) { s.ResponseSeconds = 0.5 }), []engine.Node{board("a"), board("b")}, 10, 2, running("web", "a", 1, 10, 0.2))
	in.Nodes[0].CPUUsedPercent = 100
	d := only(t, e.Round(later(in, e.Round(in), 2*time.Second)))
	if d.Action != engine.Move || d.Node != "b" || d.Replaces != "web-1" || d.From != "a" {
		t.Fatalf("%+v", d)
	}
	// Until the new one answers the old one stays; then it is stopped.
	in.Instances = append(in.Instances, engine.Instance{ID: d.Instance, Service: "web", Node: "b", State: engine.InstanceStarting, Since: start, Replaces: "web-1"})
	if d := only(t, e.Round(in)); d.Action != engine.Keep {
		t.Fatalf("%+v", d)
	}
	in.Instances[1].State = engine.InstanceRunning
	if d := e.Round(in).Decisions[0]; d.Action != engine.Stop || d.Instance != "web-1" || d.Cause != engine.CauseReplaced {
		t.Fatalf("%+v", d)
	}
}

// TestCloser: users who come to another node and wait for the network get an instance
// there, after a while.
func TestCloser(t *testing.T) {
	e := newEngine(t)
	in := crowd(web(), []engine.Node{board("b"), board("a")}, 10, 0.2, running("web", "a", 1, 10, 0.1))
	in.Links = []engine.Link{{From: "a", To: "b", RoundTripSeconds: 0.15}}
	for second := 0; ; second++ {
		r := e.Round(in)
		if d := only(t, r); d.Action == engine.Move {
			if d.Node != "b" || d.Cause != engine.CauseCloser || second < 30 || !strings.Contains(d.Reason, "150 ms for the network alone") {
				t.Errorf("after %d s: %+v", second, d)
			}
			return
		}
		if second > 60 {
			t.Fatalf("%+v", r.Decisions)
		}
		in = later(in, r, time.Second)
	}
}

// TestNextToNothing: a response time that is hardly more than none makes no score that is no
// number, which no trace can hold.
func TestNextToNothing(t *testing.T) {
	s := web(func(s *spec.Spec) { s.ResponseSeconds, s.MaxUsers = 1e-308, 1 })
	in := crowd(s, boards("ab"), 1, 0, running("web", "a", 1, 1, 0))
	e := newEngine(t)
	d := only(t, e.Round(later(in, e.Round(in), 2*time.Second)))
	if len(d.Alternatives) == 0 {
		t.Fatalf("nothing is looked at: %+v", d)
	}
	for _, a := range d.Alternatives {
		if math.IsNaN(a.Score) || math.IsInf(a.Score, 0) {
			t.Errorf("%+v", a)
		}
	}
}

// TestCloserRegretted: only who goes back to the node that was left lately was moved too early;
// who has not for long is patient no more.
func TestCloserRegretted(t *testing.T) {
	e := newEngine(t)
	for _, tc := range []struct {
		from          string
		ago           time.Duration
		regrets, want int
	}{
		{"b", 200 * time.Second, 0, 1},
		{"c", 200 * time.Second, 0, 0},
		{"c", 200 * time.Second, 1, 1},
		{"b", 2 * time.Hour, 0, 0},
		{"b", 2 * time.Hour, 2, 1},
	} {
		in := crowd(web(), boards("bac"), 10, 0.2, running("web", "a", 1, 10, 0.1))
		in.Links = []engine.Link{{From: "a", To: "b", RoundTripSeconds: 0.15}}
		in.Memory.Services = map[string]engine.ServiceMemory{"web": {
			MovedFrom: tc.from, Move: engine.Pace{Last: start.Add(-tc.ago), Level: tc.regrets, Since: start.Add(-time.Hour)},
		}}
		r := e.Round(in)
		if d := only(t, r); d.Action != engine.Move || d.Node != "b" {
			t.Errorf("%+v: %+v", tc, d)
		}
		if n := r.Memory.Services["web"].Move.Level; n != tc.want {
			t.Errorf("%+v: %d regrets", tc, n)
		}
	}
}

// TestExhausted: a container or its node that has nothing left is a reason, before users
// notice too much; if they notice nothing it is none.
func TestExhausted(t *testing.T) {
	for _, tc := range []struct {
		name           string
		cpus, used     float64
		limit, seconds float64
		required       float64
		action         engine.Action
		reason         string
	}{
		{"a container", 0.46, 20, 0.5, 3, 5, engine.Start, "a container uses 92 % of the processors that it may"},
		{"a node", 2.5, 90, 0, 3, 5, engine.Start, "a node's processors are used to 90 %"},
		{"nobody notices", 0.5, 90, 0.5, 1, 5, engine.Keep, "has room for 50"},
		{"nobody says what may be", 0.5, 50, 0.5, 3, 0, engine.Start, "100 % of the processors"},
		{"all is well", 0.1, 50, 0.5, 3, 5, engine.Keep, "has room for 50"},
	} {
		s := web(func(s *spec.Spec) { s.ResponseSeconds, s.Limits.CPUs = tc.required, tc.limit })
		in := crowd(s, boards("ab"), 10, tc.seconds, running("web", "a", 1, 10, tc.cpus))
		in.Nodes[0].CPUUsedPercent = tc.used
		e := newEngine(t)
		d := only(t, e.Round(later(in, e.Round(in), 2*time.Second)))
		if d.Action != tc.action || !strings.Contains(d.Reason, tc.reason) {
			t.Errorf("%s: %s %s", tc.name, d.Action, d.Reason)
		}
		if d.Action != engine.Start {
			continue
		}
		// What starts is waited for.
		r := e.Round(later(in, e.Round(in), 2*time.Second))
		in.Instances = append(in.Instances, engine.Instance{ID: "web-2", Service: "web", Node: "b", State: engine.InstanceStarting, Since: in.At})
		in = later(in, r, 3*time.Second)
		if d := only(t, e.Round(later(in, e.Round(in), 2*time.Second))); !strings.Contains(d.Reason, "another instance is starting") {
			t.Errorf("%s: %s %s", tc.name, d.Action, d.Reason)
		}
	}
}

// TestCrowdElsewhere: who waits too long now is helped where he is now, however long others
// were elsewhere.
func TestCrowdElsewhere(t *testing.T) {
	for _, algorithm := range []string{"remote", "hybrid"} {
		for _, regrets := range []int{0, 6} {
			e := newEngine(t)
			s := web(func(s *spec.Spec) {
				s.MaxUsers, s.ResponseSeconds, s.Algorithm, s.ReplicationSeconds = 0, 0.1, algorithm, 60
			})
			in := crowd(s, boards("abc"), 40, 0.07, running("web", "a", 1, 40, 0.1))
			in.Links = []engine.Link{{From: "a", To: "b", RoundTripSeconds: 0.2}, {From: "a", To: "c", RoundTripSeconds: 0.06}, {From: "b", To: "c", RoundTripSeconds: 0.2}}
			in.Memory.Services = map[string]engine.ServiceMemory{"web": {Move: engine.Pace{Level: regrets}}}
			in.Demand[0].Node = "c"
			for range 20 {
				in = later(in, e.Round(in), time.Second/2)
			}
			in.Demand[0].Node, in.Demand[0].ResponseSeconds = "b", 0.21
			in = later(in, e.Round(in), 2*time.Second)
			if d := only(t, e.Round(in)); d.Action != engine.Start || d.Node != "b" || d.Cause != engine.CauseResponse {
				t.Errorf("%s, %d regrets: %+v", algorithm, regrets, d)
			}
		}
	}
}
