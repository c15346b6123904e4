package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// Who has just begun to look does not know how long an instance has not answered.
func TestStateOf(t *testing.T) {
	const long = time.Hour
	silent := []observedProxy{{err: errors.New("timeout")}}
	says := func(up bool, check string) []observedProxy {
		return []observedProxy{{status: proxy.Status{Servers: []proxy.ServerStatus{{Name: proxy.InstanceName("s.1"), Up: up, Check: check}}}}}
	}
	for name, test := range map[string]struct {
		was     engine.InstanceState
		seenFor time.Duration // 0: never
		ranFor  time.Duration
		proxies []observedProxy
		want    engine.InstanceState
	}{
		"another weir-edge's, no proxy answers":     {"", 0, long, silent, engine.InstanceUnknown},
		"still none":                                {engine.InstanceUnknown, long, long, silent, engine.InstanceUnknown},
		"it ran, and its proxy falls silent":        {engine.InstanceRunning, long, long, silent, engine.InstanceUnknown},
		"another's, its proxy says no":              {"", 0, long, says(false, "refused"), engine.InstanceStarting},
		"its proxy has said no for long":            {engine.InstanceStarting, long, long, says(false, "refused"), engine.InstanceFailed},
		"the container is new, the promise old":     {engine.InstanceStarting, long, time.Second, says(false, "refused"), engine.InstanceStarting},
		"its proxy has not looked":                  {engine.InstanceStarting, long, long, []observedProxy{{}}, engine.InstanceUnknown},
		"it answers":                                {engine.InstanceUnknown, long, long, says(true, "passed"), engine.InstanceRunning},
		"it answers one of two proxies":             {engine.InstanceStarting, long, time.Second, append(says(true, "passed"), says(false, "refused")...), engine.InstanceStarting},
		"one of two for long":                       {engine.InstanceStarting, long, long, append(says(true, "passed"), says(false, "refused")...), engine.InstanceRunning},
		"it ran, and answers one of two":            {engine.InstanceRunning, long, time.Second, append(says(true, "passed"), says(false, "refused")...), engine.InstanceRunning},
		"it ran, and its proxy says no":             {engine.InstanceRunning, long, long, says(false, "refused"), engine.InstanceUnhealthy},
		"it ran, and its proxy was told anew of it": {engine.InstanceRunning, long, long, []observedProxy{{}}, engine.InstanceRunning},
	} {
		m := newLives()
		m.runs["s.1"] = &programRun{}
		if test.seenFor > 0 {
			m.since["s.1"] = stateSince{state: test.was, first: time.Now().Add(-test.seenFor)}
			m.runs["s.1"].began = time.Now().Add(-test.ranFor)
		}
		s := &observation{proxies: map[string][]observedProxy{"s": test.proxies}}
		c := runtime.Instance{ID: "s.1", Service: "s", Phase: runtime.Running}
		if got, _ := m.stateOf(s, c); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// TestWaiting: an instance that starts slowly says what it waits for.
func TestWaiting(t *testing.T) {
	address := netip.MustParseAddrPort("198.18.0.2:49153")
	refused := []observedProxy{{status: proxy.Status{Servers: []proxy.ServerStatus{{Name: proxy.InstanceName("s.1"), Address: address, Check: "Layer4 connection problem"}}}}}
	reached := map[uint16]netip.AddrPort{80: address}
	for name, test := range map[string]struct {
		c       runtime.Instance
		proxies []observedProxy
		want    string
	}{
		"its container":   {runtime.Instance{Phase: runtime.Starting, Reason: "its task is preparing: preparing"}, nil, "its task is preparing: preparing"},
		"an answer":       {runtime.Instance{Phase: runtime.Running, Addresses: reached}, refused, "it does not answer its proxy yet: Layer4 connection problem at 198.18.0.2:49153"},
		"a first look":    {runtime.Instance{Phase: runtime.Running, Addresses: reached}, []observedProxy{{}}, "no proxy has looked yet whether it answers"},
		"its address":     {runtime.Instance{Phase: runtime.Running}, []observedProxy{{}}, "it runs, and its engine does not say where it is reached"},
		"all its proxies": {runtime.Instance{Phase: runtime.Running, Addresses: reached}, []observedProxy{{err: errors.New("timeout")}}, "no proxy has looked yet whether it answers"},
	} {
		test.c.ID, test.c.Service = "s.1", "s"
		for waited, want := range map[time.Duration]string{slowly / 2: "", 2 * slowly: test.want} {
			m := newLives()
			m.since["s.1"] = stateSince{state: engine.InstanceStarting, first: time.Now().Add(-waited)}
			m.noteRun(test.c)
			state, reason := m.stateOf(&observation{proxies: map[string][]observedProxy{"s": test.proxies}}, test.c)
			if state != engine.InstanceStarting || reason != want {
				t.Errorf("%s, after %v: %s, %q, want %q", name, waited, state, reason, want)
			}
		}
	}
}

// TestRestarts: an instance that ends stays and starts again in its place; one that ends four times
// within a minute has failed. A restart does not count as a fault of what has answered, and clocks
// of nodes do not matter.
func TestRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, o := newLives(), &observation{at: time.Now(), specs: map[string]spec.Spec{"s": {Ports: []spec.Port{{Host: 80, Container: 80}}}}, promises: engine.Promises{"s-1": {Service: "s"}}}
		look := func(phase runtime.Phase, run string, up bool) (engine.InstanceState, string) {
			c := runtime.Instance{ID: "s-1", Service: "s", Phase: phase, Run: run, StartedAt: time.Now().Add(time.Hour)}
			if phase == runtime.Ended {
				c.Reason, c.Stays = "it ended with exit status 1", true
			}
			server := proxy.ServerStatus{Name: proxy.InstanceName("s-1"), Up: up, Check: "Layer4"}
			o.state.Instances, o.proxies = []runtime.Instance{c}, map[string][]observedProxy{"s": {{status: proxy.Status{Servers: []proxy.ServerStatus{server}}}}}
			i := l.instances(o)[0]
			time.Sleep(period)
			return i.State, i.Reason
		}
		expect := func(what string, phase runtime.Phase, run string, up bool, want engine.InstanceState, restarts bool) {
			t.Helper()
			state, reason := look(phase, run, up)
			if list := l.toRestart(o); state != want || (len(list) == 1) != restarts || state == engine.InstanceFailed && reason != "it ended with exit status 1, after 3 restarts within a minute" {
				t.Errorf("%s: %s (%s), to restart %v", what, state, reason, list)
			}
			l.noteRestart("s-1", nil)
		}
		for _, run := range []string{"1", "2", "3", "4"} {
			expect("it starts", runtime.Running, run, false, engine.InstanceStarting, false)
			expect("it answers", runtime.Running, run, true, engine.InstanceRunning, false)
			if run < "4" {
				expect("it ends", runtime.Ended, run, false, engine.InstanceStarting, true)
			}
		}
		expect("it ends again", runtime.Ended, "4", false, engine.InstanceFailed, false)
		time.Sleep(restartPeriod)
		expect("it ends later", runtime.Ended, "4", false, engine.InstanceStarting, true)
		for range mostRestarts {
			l.noteRestart("s-1", errors.New("no memory"))
		}
		expect("it cannot be restarted", runtime.Ended, "4", false, engine.InstanceFailed, false)
	})
}

// TestMissed: of an instance that answers it is said which proxies do not reach it.
func TestMissed(t *testing.T) {
	c := runtime.Instance{ID: "s.1", Service: "s", Phase: runtime.Running}
	at := func(node string, server proxy.ServerStatus) observedProxy {
		server.Name = proxy.InstanceName(c.ID)
		return observedProxy{Proxy: runtime.Proxy{Node: node}, status: proxy.Status{Servers: []proxy.ServerStatus{server}}}
	}
	up, down := proxy.ServerStatus{Up: true, Check: "Layer4 check passed"}, proxy.ServerStatus{Check: "Layer4 timeout"}
	leaving := proxy.ServerStatus{Check: "Layer4 timeout", Leaving: true}
	for want, others := range map[string][]observedProxy{
		"": {at("b", up), at("c", leaving), {Proxy: runtime.Proxy{Node: "d"}, err: errors.New("timeout")}},
		"the proxies on b, c do not reach it: Layer4 timeout": {at("b", down), at("c", down)},
	} {
		m := newLives()
		m.since[c.ID] = stateSince{state: engine.InstanceRunning, first: time.Now().Add(-time.Minute)}
		m.noteRun(c)
		state, reason := m.stateOf(&observation{proxies: map[string][]observedProxy{"s": append(others, at("a", up))}}, c)
		if state != engine.InstanceRunning || reason != want {
			t.Errorf("%s, %q, want %q", state, reason, want)
		}
	}
}

// A proxy that does not answer may have any number of users.
func TestDrainWithoutProxy(t *testing.T) {
	for err, want := range map[error]int{errors.New("timeout"): 0, nil: 1} {
		l := newLives()
		l.stopping["s.1"] = &stop{decision: engine.Decision{Service: "s", Instance: "s.1"}, at: time.Now().Add(-2 * period)}
		if list := l.drained(&observation{proxies: map[string][]observedProxy{"s": {{err: err}}}}); len(list) != want {
			t.Errorf("its proxy: %v: it ends: %v", err, list)
		}
	}
}

// A proxy that does not know yet that an instance goes may send it another user.
func TestDrainUnconfirmed(t *testing.T) {
	for leaving, want := range map[bool]int{false: 0, true: 1} {
		l := newLives()
		l.stopping["s.1"] = &stop{decision: engine.Decision{Service: "s", Instance: "s.1"}, at: time.Now().Add(-2 * period)}
		status := proxy.Status{Servers: []proxy.ServerStatus{{Name: proxy.InstanceName("s.1"), Up: true, Leaving: leaving}}}
		if list := l.drained(&observation{proxies: map[string][]observedProxy{"s": {{status: status}}}}); len(list) != want {
			t.Errorf("leaving %v: it ends: %v", leaving, list)
		}
	}
}

// A service that nothing can be done for is shown, with the reason.
func TestPending(t *testing.T) {
	o := &observation{proxies: map[string][]observedProxy{"sleeps": {{err: errors.New("refused")}, {}}, "wakes up": {{err: errors.New("refused")}}}}
	for _, name := range []string{"big", "starts", "runs", "sleeps", "wakes up"} {
		o.state.Services = append(o.state.Services, runtime.Service{Name: name})
	}
	there := []edge.Instance{{Service: "runs", Instance: "runs.1"}}
	keep := engine.Decision{Action: engine.Keep, Service: "big", Reason: "no node can have it", Facts: engine.Facts{Wanted: 1}}
	got := o.pending(there, []engine.Decision{
		keep, {Action: engine.Start, Service: "starts"}, {Action: engine.Keep, Service: "runs"},
		{Action: engine.Keep, Cause: engine.CauseNone, Service: "sleeps", Reason: "no users"}, {Action: engine.Keep, Cause: engine.CauseNone, Service: "wakes up", Reason: "no users"},
	})
	if len(got) != 3 || got[0].Service != "big" || got[0].State != "pending" || got[0].Reason != "0 of 1: no node can have it" {
		t.Errorf("got %+v", got)
	}
	if got[1].State != "asleep" || got[1].Reason != "no users" || got[2].State != "starting" || got[2].Reason != "no proxy of it answers yet" {
		t.Errorf("got %+v", got[1:])
	}
}

// TestGap: users miss a service that is updated from when its proxy sends them no more or, of one with ports of
// the host only, from when it has ended.
func TestGap(t *testing.T) {
	for served, want := range map[int]string{0: "for 1.0", 1: "for 9.0"} {
		l := newLives()
		o := &observation{at: time.Now(), specs: map[string]spec.Spec{"s": {Ports: make([]spec.Port, served)}}}
		l.drain(engine.Decision{Service: "s", Instance: "s-1", Cause: engine.CauseUpdate})
		l.stopping["s-1"].at = o.at.Add(-9 * time.Second)
		l.missingSince["s"] = o.at.Add(-9 * time.Second)
		if len(l.drained(o)) != 1 {
			t.Fatal("it does not end")
		}
		l.noteEnd("s-1", o.at.Add(-time.Second), nil)
		if said := l.endGap("s"); !strings.Contains(said, want) {
			t.Errorf("%d ports of the proxy: %q, want %q", served, said, want)
		}
		if said := l.endGap("s"); said != "" {
			t.Errorf("said again: %q", said)
		}
	}
}

// TestSyncProxy: a proxy that ends right after it was seen has a moment to be replaced; what
// one does not do is said at once.
func TestSyncProxy(t *testing.T) {
	ended := proxy.UnixControl(filepath.Join(t.TempDir(), "nobody"))
	mute := proxy.Control{Dial: func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		return here, there.Close()
	}}
	for says, control := range map[string]proxy.Control{"": ended, "reach the proxy: io": mute} {
		p := newProxies()
		step := proxyStep{service: "s", observedProxy: observedProxy{Proxy: runtime.Proxy{Node: "a", Control: control}}}
		step.tell(t.Context())
		now := time.Now()
		said := p.note(&step, now)
		if text := fmt.Sprint(said); (said == [3]error{}) != (says == "") || !strings.Contains(text, says) {
			t.Errorf("it is reported %s, want %q", text, says)
		}
		late := p.note(&step, now.Add(2*replaceTimeout))
		if says == "" && late[2] == nil {
			t.Error("it is not replaced, and that is not reported")
		}
	}
}

// TestProxyRestart: a proxy that its engine does not start again is started, from its last file.
func TestProxyRestart(t *testing.T) {
	var did []string
	step := proxyStep{file: "file", observedProxy: observedProxy{err: errors.New("it ended"), Proxy: runtime.Proxy{
		Save:    func(file string) error { did = append(did, file); return nil },
		Restart: func(context.Context) error { did = append(did, "start"); return errors.New("no memory") },
	}}}
	step.keep(t.Context())
	if fmt.Sprint(did) != "[file start]" || step.saveErr == nil {
		t.Errorf("%v, %v", did, step.saveErr)
	}
}

// TestRoundTimes: times that rounds go by have no monotonic reading, which a trace does not keep:
// what passes between them would not be the same when it is decided again.
func TestRoundTimes(t *testing.T) {
	m := newManager(t)
	at := time.Now()
	s := &observation{at: at, state: runtime.State{Instances: []runtime.Instance{{ID: "s-1", Service: "s", Node: "a"}}}}
	first := m.input(s)
	time.Sleep(time.Millisecond)
	second := m.input(s)
	for name, is := range map[string]time.Time{"At": second.At, "Since": second.Instances[0].Since} {
		if off := is.Sub(at.Round(0)); strings.Contains(is.String(), "m=") || off < -time.Minute || off > time.Minute {
			t.Errorf("%s is %v, at %v", name, is, at)
		}
	}
	if !second.At.After(first.At) || !second.Instances[0].Since.Equal(first.Instances[0].Since) {
		t.Errorf("%v, %v since %v, %v", first.At, second.At, first.Instances[0].Since, second.Instances[0].Since)
	}
}
