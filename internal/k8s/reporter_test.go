package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// fakeAgent keeps what it is told of pods while it runs.
type fakeAgent struct {
	socket string
	server *http.Server  // nil while it does not run
	served chan struct{} // closed when it has ended

	mu    sync.Mutex
	pods  map[string]v1.Pod
	state v1.PodState // of its answers
	mute  bool        // it reads, and does not answer
	admit bool        // of the last change
}

func (a *fakeAgent) start(t fataler) {
	listener, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	a.pods = map[string]v1.Pod{}
	a.server, a.served = &http.Server{Handler: a}, make(chan struct{})
	go func(s *http.Server, served chan struct{}) {
		_ = s.Serve(listener)
		close(served)
	}(a.server, a.served)
}

// serveAgent returns an agent that runs until the test ends and answers with state.
func serveAgent(t *testing.T, state v1.PodState) *fakeAgent {
	a := &fakeAgent{socket: filepath.Join(t.TempDir(), "weir.sock"), state: state}
	a.start(t)
	t.Cleanup(a.stop)
	return a
}

// fataler is a test of either package.
type fataler interface{ Fatal(args ...any) }

func (a *fakeAgent) stop() {
	if a.server != nil {
		a.server.Close()
		<-a.served
		a.server = nil
	}
}

func (a *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex()
	decoder, encoder := json.NewDecoder(r.Body), json.NewEncoder(w)
	for {
		var change v1.PodsChange
		if decoder.Decode(&change) != nil {
			return
		}
		a.mu.Lock()
		switch {
		case change.Started != nil:
			a.pods[change.Started.ID] = *change.Started
		case change.Stopped != "":
			delete(a.pods, change.Stopped)
		default:
			clear(a.pods)
			for _, p := range change.All {
				a.pods[p.ID] = p
			}
		}
		a.admit = change.Admit
		state, mute := a.state, a.mute
		a.mu.Unlock()
		if !change.Admit && state.MinimumInForce != nil {
			state.MinimumInForce = new(false) // for hard admission it counts only if it would outlast a crash
		}
		if !mute {
			_ = encoder.Encode(state)
			_ = control.Flush()
		}
	}
}

func (a *fakeAgent) knows(want book) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.EqualFunc(a.pods, want, func(had v1.Pod, is pod) bool { return reflect.DeepEqual(had, is.Pod) })
}

// wasAdmit reports whether the last change is for hard admission.
func (a *fakeAgent) wasAdmit() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.admit
}

func (a *fakeAgent) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// startReporter runs a reporter to an agent until the returned function is called.
func startReporter(socket string, timeout time.Duration) (*reporter, func()) {
	r := newReporter(client.Unix(socket), v1.RuntimeKubernetes, slog.New(slog.DiscardHandler))
	r.retry, r.timeout = time.Millisecond, timeout
	r.runs = func(uint32) bool { return true }
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { r.run(ctx) })
	return r, func() { cancel(); done.Wait() }
}

func must(t fataler, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func awaitTrue(t fataler, what string, is func() bool) {
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
	}
}

// TestReporterWorlds: whatever happens to agent and runtime, an agent that runs knows what runs, and
// the agent gets no pods before the runtime has listed them.
func TestReporterWorlds(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		agent := &fakeAgent{socket: filepath.Join(dir, "weir.sock")}
		r, end := startReporter(agent.socket, answerTimeout)
		defer agent.stop()
		defer end()
		p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler), folder: dir}
		want, noted, seen, synchronized := book{}, claims.Annotations{}, noteFiles{}, false
		must(t, noted.Save(claims.AnnotationsFile(dir)))
		ids := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		containers := rapid.SampledFrom([]string{"app", "log"})
		ctx := context.Background()
		t.Repeat(map[string]func(*rapid.T){
			"synchronize": func(t *rapid.T) {
				var sandboxes []*api.PodSandbox
				for _, id := range slices.Compact(slices.Sorted(slices.Values(rapid.SliceOfN(ids, 0, 4).Draw(t, "ids")))) {
					sandboxes = append(sandboxes, sandbox(id))
				}
				want.replace(sandboxes, nil, notes{annotations: noted})
				synchronized = true
				if _, err := p.Synchronize(ctx, sandboxes, nil); err != nil {
					t.Fatal(err)
				}
			},
			"start": func(t *rapid.T) {
				s := sandbox(ids.Draw(t, "id"))
				want.start(s, notes{annotations: noted})
				if err := p.RunPodSandbox(ctx, s); err != nil {
					t.Fatal(err)
				}
			},
			"annotation changes": func(t *rapid.T) {
				noted[ids.Draw(t, "id")] = map[string]string{"weir.weight": fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "weight"))}
				must(t, noted.Save(claims.AnnotationsFile(dir)))
				want.apply(notes{annotations: noted})
				p.lookAtNotes(ctx, &seen)
			},
			"container": func(t *rapid.T) {
				c := &api.Container{PodSandboxId: ids.Draw(t, "id"), Name: containers.Draw(t, "name")}
				want.addContainer(c)
				if err := p.PostCreateContainer(ctx, nil, c); err != nil {
					t.Fatal(err)
				}
			},
			"stop": func(t *rapid.T) {
				s := sandbox(ids.Draw(t, "id"))
				want.stop(s.GetId())
				if err := p.RemovePodSandbox(ctx, s); err != nil {
					t.Fatal(err)
				}
			},
			"agent starts": func(t *rapid.T) {
				if agent.server == nil {
					agent.start(t)
				}
			},
			"agent dies": func(*rapid.T) { agent.stop() },
			"": func(t *rapid.T) {
				switch {
				case agent.server == nil:
				case !synchronized:
					if !agent.knows(book{}) {
						t.Fatal("told of pods before the runtime said which run")
					}
				default:
					awaitTrue(t, "the agent knows what runs", func() bool { return agent.knows(want) })
				}
			},
		})
	})
}

// TestHardAdmission: a pod whose minimum is not in force does not start and is not known to the agent.
func TestHardAdmission(t *testing.T) {
	agent := &fakeAgent{socket: filepath.Join(t.TempDir(), "weir.sock"), state: v1.PodState{State: v1.StateRejected, Reason: "only 5mbit is left", MinimumInForce: new(false)}}
	r, end := startReporter(agent.socket, 20*time.Second)
	defer end()
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler), hardAdmission: true}
	_, _ = p.Synchronize(t.Context(), nil, nil)
	if err := p.RunPodSandbox(t.Context(), sandbox("a")); err == nil || !strings.Contains(err.Error(), "no weir agent") {
		t.Errorf("without an agent: %v", err)
	}
	agent.start(t)
	defer agent.stop()
	err := p.RunPodSandbox(t.Context(), sandbox("a"))
	if want := "weir: pod shop/web-a is not admitted: only 5mbit is left"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if !agent.knows(book{}) {
		t.Error("the agent knows a pod that was refused")
	}
	for _, c := range []struct {
		state v1.PodState
		want  string // what the error says; "" if the pod starts
	}{
		{v1.PodState{State: v1.StateDegraded, Reason: "eth0 is away", MinimumInForce: new(false)}, "eth0 is away"},
		{v1.PodState{State: v1.StateOK, MinimumInForce: new(false)}, "its minimum is not in force"},
		{v1.PodState{State: v1.StateDegraded, Reason: "a wrong weight", MinimumInForce: new(true)}, ""},
		{v1.PodState{State: v1.StateRejected, Reason: "latency 1ms cannot be guaranteed", MinimumInForce: new(true)}, ""},
		{v1.PodState{State: v1.StateOK}, "the agent is older than weir-k8s"},
	} {
		agent.set(func() { agent.state = c.state })
		if err := p.RunPodSandbox(t.Context(), sandbox("b")); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.state, err, c.want)
		}
	}
	ended := sandbox("c")
	ended.Pid = 0
	if err := p.RunPodSandbox(t.Context(), ended); err != nil {
		t.Errorf("a pod without a process: %v", err)
	}
	agent.set(func() {
		agent.state = v1.PodState{State: v1.StateRejected, Reason: "only 5mbit is left", MinimumInForce: new(false)}
	})
	if err := p.RunPodSandbox(t.Context(), dropped(t, "d")); err == nil || !strings.Contains(err.Error(), "shop/web-d is not admitted") {
		t.Errorf("a pod of CRI-O without a process: %v", err)
	}
}

// dropped returns a sandbox for which CRI-O starts no process.
func dropped(t *testing.T, id string) *api.PodSandbox {
	s := sandbox(id)
	path := filepath.Join(t.TempDir(), id)
	must(t, os.WriteFile(path, nil, 0o600))
	s.Pid, s.Linux.Namespaces = 0, append(s.Linux.Namespaces, &api.LinuxNamespace{Type: "uts", Path: path})
	return s
}

// TestEndUntold: a pod whose end NRI does not tell is gone when its sandbox is, also when that ends at once or has no process;
// one that is not seen stays.
func TestEndUntold(t *testing.T) {
	agent := serveAgent(t, v1.PodState{})
	r := newReporter(client.Unix(agent.socket), v1.RuntimeKubernetes, slog.New(slog.DiscardHandler))
	r.retry = 300 * time.Millisecond // it ends before the first look of its own
	var ended atomic.Bool
	r.runs = func(pid uint32) bool { return pid == 0 || pid != 8 && !ended.Load() } // as kill(2) says of 0, the test's own group
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { r.run(ctx) })
	defer func() { cancel(); done.Wait() }()
	elsewhere := sandbox("elsewhere")
	elsewhere.Pid = 8
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler)}
	pinned := dropped(t, "pinned")
	_, _ = p.Synchronize(t.Context(), []*api.PodSandbox{sandbox("a"), pinned, elsewhere}, nil)
	ended.Store(true)
	if !agent.knows(book{"a": r.bookOf(t, "a"), "pinned": r.bookOf(t, "pinned"), "elsewhere": r.bookOf(t, "elsewhere")}) {
		t.Error("the agent does not know all three")
	}
	must(t, os.Remove(pinnedNS(pinned)))
	awaitTrue(t, "both are gone", func() bool { return agent.knows(book{"elsewhere": r.bookOf(t, "elsewhere")}) })
}

// TestAdmit: only a pod's start with hard admission asks the agent to save its minimum first, which takes long.
func TestAdmit(t *testing.T) {
	agent := serveAgent(t, v1.PodState{State: v1.StateOK, MinimumInForce: new(true)})
	r, end := startReporter(agent.socket, 20*time.Second)
	defer end()
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler)}
	_, _ = p.Synchronize(t.Context(), nil, nil)
	for _, hard := range []bool{true, false} {
		p.hardAdmission = hard
		id := fmt.Sprint(hard)
		must(t, p.RunPodSandbox(t.Context(), sandbox(id)))
		if got := agent.wasAdmit(); got != hard {
			t.Errorf("hard admission %t: the start of a pod has Admit %t", hard, got)
		}
		must(t, p.PostCreateContainer(t.Context(), nil, &api.Container{PodSandboxId: id, Name: "app"}))
		if agent.wasAdmit() {
			t.Errorf("hard admission %t: a container that is made has Admit", hard)
		}
	}
}

// TestHardAdmissionInTime: a pod that NRI did not wait for, and lets go on, waits with its first container.
func TestHardAdmissionInTime(t *testing.T) {
	agent := serveAgent(t, v1.PodState{State: v1.StateOK, MinimumInForce: new(true)})
	r, end := startReporter(agent.socket, 500*time.Millisecond)
	defer end()
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler), hardAdmission: true}
	_, _ = p.Synchronize(t.Context(), nil, nil)
	agent.set(func() { agent.mute = true })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.RunPodSandbox(ctx, sandbox("a")); err == nil {
		t.Error("the pod is admitted without an answer of the agent")
	}
	agent.set(func() { agent.mute, agent.state.MinimumInForce = false, new(false) })
	_, _ = p.Synchronize(t.Context(), []*api.PodSandbox{sandbox("a")}, nil)
	if _, _, err := p.CreateContainer(t.Context(), sandbox("a"), &api.Container{PodSandboxId: "a", Name: "app"}); err == nil {
		t.Error("its first container starts, and its minimum is not in force")
	}
}

// TestHardAdmissionOfContainers: the first container of a pod that started while weir-k8s was not there waits for
// the pod's minimum. A pod whose containers ran already goes on.
func TestHardAdmissionOfContainers(t *testing.T) {
	agent := serveAgent(t, v1.PodState{State: v1.StateRejected, Reason: "only 5mbit is left", MinimumInForce: new(false)})
	r, end := startReporter(agent.socket, 20*time.Second)
	defer end()
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler), hardAdmission: true, folder: t.TempDir()}
	must(t, os.WriteFile(claims.LedgerFile(p.folder), []byte("{"), 0o600))
	_, _ = p.Synchronize(t.Context(), []*api.PodSandbox{sandbox("new"), sandbox("old")}, []*api.Container{{PodSandboxId: "old", Name: "app"}})
	create := func(id string) error {
		_, _, err := p.CreateContainer(t.Context(), sandbox(id), &api.Container{PodSandboxId: id, Name: "app"})
		return err
	}
	agent.set(func() { agent.state.MinimumInForce = new(true) })
	if err := create("new"); err == nil || !strings.Contains(err.Error(), "shop/web-new is not admitted: read the claims") {
		t.Errorf("with a broken ledger: %v", err)
	}
	if err := create("old"); err != nil {
		t.Errorf("a pod that ran, with a broken ledger: %v", err)
	}
	claimed := claims.Ledger{"c": {UID: "c", Pod: claims.Pod{UID: "new"}, Shares: []claims.Share{{Device: "eth0", Rates: claims.Rates{EgressBPS: 3e6}}}}}
	must(t, claimed.Save(claims.LedgerFile(p.folder)))
	if err := create("new"); err != nil || r.bookOf(t, "new").Labels["weir.min"] != "3mbit" {
		t.Errorf("with a ledger that can be read again it has %v, %v", r.bookOf(t, "new").Labels, err)
	}
	agent.set(func() { agent.state.MinimumInForce = new(false) })
	want := "weir: pod shop/web-new is not admitted: only 5mbit is left"
	if err := create("new"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := create("old"); err != nil {
		t.Errorf("a pod that ran: %v", err)
	}
	if err := create("unknown"); err != nil {
		t.Errorf("a pod that is not known: %v", err)
	}
	p.hardAdmission = false
	if err := create("new"); err != nil {
		t.Errorf("without hard admission: %v", err)
	}
	p.hardAdmission = true
	agent.set(func() { agent.state.MinimumInForce = new(true) })
	if err := create("new"); err != nil {
		t.Errorf("when it fits: %v", err)
	}
	must(t, p.PostCreateContainer(t.Context(), nil, &api.Container{PodSandboxId: "new", Name: "app"}))
	agent.set(func() { agent.state.MinimumInForce = new(false) })
	if err := create("new"); err != nil {
		t.Errorf("its second container: %v", err)
	}
}

// TestClaims: a pod has the minimums of its claims when it starts, in place of its annotation's, and so it
// has after a restart. A ledger that cannot be read stops no pod.
func TestClaims(t *testing.T) {
	agent := serveAgent(t, v1.PodState{})
	r, end := startReporter(agent.socket, 20*time.Second)
	defer end()
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler), folder: t.TempDir()}
	ledger := claims.Ledger{"c": {UID: "c", Pod: claims.Pod{UID: "uid"}, Shares: []claims.Share{{Device: "eth0", Rates: claims.Rates{EgressBPS: 3e6, IngressBPS: 2e6}}}}}
	if err := ledger.Save(claims.LedgerFile(p.folder)); err != nil {
		t.Fatal(err)
	}
	claimed := func() *api.PodSandbox { s := sandbox("a"); s.Uid = "uid"; return s }
	bare := sandbox("b")
	bare.Uid, bare.Annotations = "uid", nil
	want := map[string]string{"weir.min": "3mbit", "weir.in.min": "2mbit"}
	_, _ = p.Synchronize(t.Context(), []*api.PodSandbox{claimed(), bare}, nil)
	if got := r.bookOf(t, "b").Labels; !reflect.DeepEqual(got, want) {
		t.Errorf("without annotations: %v", got)
	}
	want["kubernetes.io/egress-bandwidth"] = "30M"
	if got := r.bookOf(t, "a").Labels; !reflect.DeepEqual(got, want) {
		t.Errorf("of pods that run: %v", got)
	}
	if err := p.RunPodSandbox(t.Context(), claimed()); err != nil || !reflect.DeepEqual(r.bookOf(t, "a").Labels, want) {
		t.Errorf("of a pod that starts: %v, %v", r.bookOf(t, "a").Labels, err)
	}
	// The claim of another pod is of what it sends alone: its annotation does not add to that.
	ledger["e"] = claims.Claim{UID: "e", Pod: claims.Pod{UID: "sends"}, Shares: []claims.Share{{Device: "eth0", Rates: claims.Rates{EgressBPS: 3e6}}}}
	if err := ledger.Save(claims.LedgerFile(p.folder)); err != nil {
		t.Fatal(err)
	}
	sends := sandbox("e")
	sends.Uid, sends.Annotations = "sends", map[string]string{"weir.dev/in.min": "9mbit"}
	if err := p.RunPodSandbox(t.Context(), sends); err != nil || !reflect.DeepEqual(r.bookOf(t, "e").Labels, map[string]string{"weir.min": "3mbit"}) {
		t.Errorf("of a claim in one direction: %v, %v", r.bookOf(t, "e").Labels, err)
	}
	if err := p.RunPodSandbox(t.Context(), sandbox("c")); err != nil || r.bookOf(t, "c").Labels["weir.min"] != "20mbit" {
		t.Errorf("of another pod: %v, %v", r.bookOf(t, "c").Labels, err)
	}
	if err := os.WriteFile(claims.LedgerFile(p.folder), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.RunPodSandbox(t.Context(), sandbox("d")); err != nil || !agent.knows(book{"a": r.bookOf(t, "a"), "b": r.bookOf(t, "b"), "c": r.bookOf(t, "c"), "e": r.bookOf(t, "e"), "d": r.bookOf(t, "d")}) {
		t.Errorf("with a broken ledger: %v", err)
	}
	p.hardAdmission = true
	if err := p.RunPodSandbox(t.Context(), sandbox("f")); err == nil || !strings.Contains(err.Error(), "shop/web-f is not admitted: read the claims") {
		t.Errorf("with a broken ledger and hard admission: %v", err)
	}
}

// TestSlowAgent: an agent that does not answer holds pods up for a bounded time, and hears of them
// when it is back.
func TestSlowAgent(t *testing.T) {
	agent := serveAgent(t, v1.PodState{})
	r, end := startReporter(agent.socket, 100*time.Millisecond)
	defer end()
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler)}
	_, _ = p.Synchronize(t.Context(), nil, nil)
	agent.set(func() { agent.mute = true })
	began := time.Now()
	if err := p.RunPodSandbox(t.Context(), sandbox("a")); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 100*time.Millisecond || took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	agent.set(func() { agent.mute = false })
	awaitTrue(t, "the agent knows what runs", func() bool { return agent.knows(book{"a": r.bookOf(t, "a")}) })
}

// bookOf returns what the reporter knows of a pod.
func (r *reporter) bookOf(t *testing.T, id string) (is pod) {
	_, _ = r.update(t.Context(), func(b book) (v1.PodsChange, bool) {
		is = b[id]
		return v1.PodsChange{}, false
	})
	return is
}

// TestNoRuntime: what to do is said if nothing listens at NRI's socket, and weir-k8s goes on trying.
func TestNoRuntime(t *testing.T) {
	var said strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), 3*runtimeInterval)
	defer cancel()
	p := &plugin{log: slog.New(slog.NewTextHandler(&said, nil))}
	p.run(ctx, filepath.Join(t.TempDir(), "nri.sock"))
	if !strings.Contains(said.String(), "not connected to NRI") || !strings.Contains(said.String(), "disable = false") || strings.Count(said.String(), "trying again") != 1 {
		t.Errorf("said %s", said.String())
	}
}

// TestForgetRuntime: weir-k8s is not connected to the agent until the runtime has listed its pods again.
func TestForgetRuntime(t *testing.T) {
	agent := serveAgent(t, v1.PodState{})
	r, end := startReporter(agent.socket, time.Millisecond)
	defer end()
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler)}
	_, _ = p.Synchronize(t.Context(), []*api.PodSandbox{sandbox("a")}, nil)
	connected := func() (is bool) {
		_, _ = r.update(t.Context(), func(book) (v1.PodsChange, bool) { is = r.pods != nil; return v1.PodsChange{}, false })
		return is
	}
	awaitTrue(t, "connected", connected)
	r.forgetRuntime(t.Context())
	time.Sleep(20 * time.Millisecond) // some attempts to connect
	if connected() {
		t.Error("connected without a runtime")
	}
	_, _ = p.Synchronize(t.Context(), nil, nil)
	awaitTrue(t, "connected again, without the pod", func() bool { return connected() && agent.knows(book{}) })
}

// TestRepeats: an agent that has lost a pod, or would take silence for an end, hears of all again.
func TestRepeats(t *testing.T) {
	agent := serveAgent(t, v1.PodState{})
	r, end := startReporter(agent.socket, 20*time.Second)
	defer end()
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler)}
	_, _ = p.Synchronize(t.Context(), []*api.PodSandbox{sandbox("a")}, nil)
	awaitTrue(t, "the agent knows it", func() bool { return agent.knows(book{"a": r.bookOf(t, "a")}) })
	_, _ = r.update(t.Context(), func(book) (v1.PodsChange, bool) { r.repeat = time.Millisecond; return v1.PodsChange{}, false })
	for range 2 {
		agent.set(func() { agent.pods = map[string]v1.Pod{} })
		awaitTrue(t, "the agent knows it again", func() bool { return agent.knows(book{"a": r.bookOf(t, "a")}) })
	}
}
