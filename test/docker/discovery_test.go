//go:build docker

package docker

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/docker"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

const image = "weir-test:latest"

// made are the names of all that the tests made on the machine: of engines
// (which name their directories, cgroups and processes) and of namespaces.
var made struct {
	sync.Mutex
	names []string
}

func remember(name string) {
	made.Lock()
	defer made.Unlock()
	made.names = append(made.names, name)
}

func TestMain(m *testing.M) {
	code := m.Run()
	if left := leaks(made.names); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "the tests left behind:\n\t%s\n", strings.Join(left, "\n\t"))
		code = 1
	}
	os.Exit(code)
}

// leaks finds what is left of the names: directories, namespaces, cgroups,
// mounts and processes. Others may run engines at the same time, hence names.
func leaks(names []string) []string {
	var left []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		left = append(left, err.Error())
	}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		for _, pattern := range []string{
			filepath.Join(os.TempDir(), name), filepath.Join(os.TempDir(), "*", name),
			"/run/netns/" + name, "/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name,
		} {
			found, _ := filepath.Glob(pattern)
			left = append(left, found...)
		}
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, name) {
				left = append(left, "mount "+strings.TrimSpace(line))
			}
		}
		for _, path := range environs {
			// Unreadable is gone: processes end at any time.
			if env, err := os.ReadFile(path); err == nil && strings.Contains(string(env), name) {
				left = append(left, "process "+filepath.Base(filepath.Dir(path)))
			}
		}
	}
	return left
}

func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// newNetNS makes a network namespace and returns its name.
func newNetNS(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("wdt-%d-%d", os.Getpid(), time.Now().UnixNano()%1e9)
	remember(name)
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	run(t, "ip", "-n", name, "link", "set", "lo", "up")
	return name
}

// newEngine starts an engine in a namespace of its own, whose name it returns
// too, with an image.
func newEngine(t *testing.T, opts testbed.EngineOptions) (*testbed.Engine, string) {
	t.Helper()
	netns := newNetNS(t)
	opts.NetNSPath = "/run/netns/" + netns
	return startEngine(t, opts), netns
}

// startEngine starts an engine with an image until the test ends.
func startEngine(t *testing.T, opts testbed.EngineOptions) *testbed.Engine {
	t.Helper()
	engine, err := testbed.StartEngine(t.Context(), opts)
	must.Succeed(t, err)
	remember(filepath.Base(filepath.Dir(engine.Socket())))
	t.Cleanup(func() {
		if err := engine.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	must.Succeed(t, engine.ImportBinary(t.Context(), image, nil))
	return engine
}

// watcher collects a source's events and when they came.
type watcher struct {
	t      *testing.T
	events chan timedEvent
}

type timedEvent struct {
	discovery.Event
	at time.Time
}

// watch runs the source under test until the test ends.
func watch(t *testing.T, engine *testbed.Engine) *watcher {
	t.Helper()
	source := docker.New(docker.Options{Name: "docker", Socket: engine.Socket()})
	w := &watcher{t: t, events: make(chan timedEvent, 1000)}
	raw := make(chan discovery.Event)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- discovery.Run(ctx, []discovery.Source{source}, raw) }()
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for {
			select {
			case e := <-raw:
				w.events <- timedEvent{e, time.Now()}
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-stop
		if err := <-done; err != nil {
			t.Errorf("watch the engine: %v", err)
		}
	})
	return w
}

// next waits for an event that fits; others are skipped, but a disconnection
// that was not asked for is a failure.
func (w *watcher) next(what string, fits func(discovery.Event) bool) timedEvent {
	w.t.Helper()
	timeout := time.After(15 * time.Second)
	for {
		select {
		case e := <-w.events:
			if fits(e.Event) {
				return e
			}
			if e.Disconnected != nil {
				w.t.Fatalf("waiting for %s: disconnected: %v", what, e.Disconnected)
			}
		case <-timeout:
			w.t.Fatalf("no event: %s", what)
		}
	}
}

func (w *watcher) snapshot() *discovery.Snapshot {
	w.t.Helper()
	return w.next("a snapshot", func(e discovery.Event) bool { return e.Snapshot != nil }).Snapshot
}

// updated waits for a report on a container that runs.
func (w *watcher) updated(id string, fits func(*discovery.Container) bool) timedEvent {
	w.t.Helper()
	return w.next("an update of "+id, func(e discovery.Event) bool {
		return e.Updated != nil && e.Updated.ID == id && !e.Updated.StartedAt.IsZero() && (fits == nil || fits(e.Updated))
	})
}

// first waits for the first report on a container, which may be about to start.
func (w *watcher) first(id string) timedEvent {
	w.t.Helper()
	return w.next("a report on "+id, func(e discovery.Event) bool { return e.Updated != nil && e.Updated.ID == id })
}

func (w *watcher) removed(id string) timedEvent {
	w.t.Helper()
	return w.next("the end of "+id, func(e discovery.Event) bool { return e.RemovedID == id })
}

func (w *watcher) disconnected() {
	w.t.Helper()
	w.next("a disconnection", func(e discovery.Event) bool { return e.Disconnected != nil })
}

func (w *watcher) none(d time.Duration) {
	w.t.Helper()
	select {
	case e := <-w.events:
		w.t.Fatalf("unexpected event %+v", e.Event)
	case <-time.After(d):
	}
}

func mustRun(t *testing.T, engine *testbed.Engine, opts testbed.RunOptions) *testbed.EngineContainer {
	t.Helper()
	opts.Image = cmp.Or(opts.Image, image)
	c, err := engine.Run(t.Context(), opts)
	must.Succeed(t, err)
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	must.Succeed(t, err)
}

func names(s *discovery.Snapshot) string {
	var all []string
	for _, c := range s.Containers {
		all = append(all, c.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestDiscovery(t *testing.T) {
	engine, netns := newEngine(t, testbed.EngineOptions{})
	old := mustRun(t, engine, testbed.RunOptions{Name: "old", Labels: map[string]string{"weir.min": "3mbit", "other": "x"}})
	w := watch(t, engine)
	if first := w.snapshot(); names(first) != "old" || first.Containers[0].Labels["weir.min"] != "3mbit" {
		t.Fatalf("snapshot %+v", first)
	}

	t.Run("start and stop", func(t *testing.T) {
		began := time.Now()
		c := mustRun(t, engine, testbed.RunOptions{Name: "one", Labels: map[string]string{"weir.weight": "7"}})
		got := w.updated(c.ID, nil).Updated
		if got.Name != "one" || got.Runtime != "docker" || got.Labels["weir.weight"] != "7" ||
			got.NetNSPath != c.NetNSPath() ||
			got.HostNetwork || got.NoNetwork || got.SharesNetworkOf != "" || got.Interface != "" ||
			!hasProcess(got.CgroupPath, c.Pid) ||
			got.StartedAt.Before(began) || got.StartedAt.After(time.Now()) {
			t.Errorf("got %+v, started %+v", got, c)
		}
		_, err := engine.API().ContainerStop(t.Context(), "one", client.ContainerStopOptions{})
		check(t, err)
		w.removed(c.ID)
		_, err = engine.API().ContainerStart(t.Context(), "one", client.ContainerStartOptions{})
		check(t, err)
		again := w.updated(c.ID, nil).Updated
		if !again.StartedAt.After(got.StartedAt) {
			t.Errorf("started at %v, then at %v", got.StartedAt, again.StartedAt)
		}
		_, err = engine.API().ContainerRestart(t.Context(), "one", client.ContainerRestartOptions{})
		check(t, err)
		w.updated(c.ID, func(c *discovery.Container) bool { return c.StartedAt.After(again.StartedAt) })
		check(t, engine.Remove(t.Context(), "one"))
		w.removed(c.ID)
	})
	t.Run("rename", func(t *testing.T) {
		_, err := engine.API().ContainerRename(t.Context(), "old", client.ContainerRenameOptions{NewName: "new"})
		check(t, err)
		w.updated(old.ID, func(c *discovery.Container) bool { return c.Name == "new" })
	})
	t.Run("networks", func(t *testing.T) {
		run(t, "ip", "-n", netns, "link", "add", "parent0", "type", "veth", "peer", "name", "parent1")
		run(t, "ip", "-n", netns, "link", "set", "parent0", "up")
		_, err := engine.CreateNetwork(t.Context(), testbed.NetworkOptions{
			Name: "mac", Driver: "macvlan", Subnet: netip.MustParsePrefix("198.19.90.0/24"),
			Options: map[string]string{"parent": "parent0"},
		})
		check(t, err)
		_, err = engine.CreateNetwork(t.Context(), testbed.NetworkOptions{Name: "more"})
		check(t, err)
		for _, step := range []struct {
			do      func(ctx context.Context, network, container string) error
			network string
		}{
			{engine.Connect, "mac"}, {engine.Connect, "more"}, {engine.Disconnect, "bridge"},
			{engine.Disconnect, "mac"}, {engine.Disconnect, "more"}, {engine.Connect, "bridge"},
		} {
			check(t, step.do(t.Context(), step.network, old.ID))
			w.updated(old.ID, nil)
		}
		check(t, engine.RemoveNetwork(t.Context(), "mac"))
	})
	t.Run("host, none and container modes", func(t *testing.T) {
		host := mustRun(t, engine, testbed.RunOptions{Name: "host", Network: "host"})
		if got := w.updated(host.ID, nil).Updated; !got.HostNetwork || got.NoNetwork || !hasProcess(got.CgroupPath, host.Pid) {
			t.Errorf("host: %+v", got)
		}
		none := mustRun(t, engine, testbed.RunOptions{Name: "none", Network: "none"})
		if got := w.updated(none.ID, nil).Updated; got.HostNetwork || !got.NoNetwork {
			t.Errorf("none: %+v", got)
		}
		for _, peer := range []string{old.ID, "new", old.ID[:12]} {
			joined := mustRun(t, engine, testbed.RunOptions{Name: "joined", Network: "container:" + peer})
			got := w.updated(joined.ID, nil).Updated
			if got.SharesNetworkOf != old.ID || got.NoNetwork || got.HostNetwork {
				t.Errorf("container:%s: %+v", peer, got)
			}
			a, errA := os.Readlink(got.NetNSPath)
			b, errB := os.Readlink(old.NetNSPath())
			if a != b || errA != nil || errB != nil {
				t.Errorf("container:%s: namespace %s, %v; the other's is %s, %v", peer, a, errA, b, errB)
			}
			check(t, engine.Remove(t.Context(), "joined"))
			w.removed(joined.ID)
		}
		check(t, engine.Remove(t.Context(), "host"))
		w.removed(host.ID)
		check(t, engine.Remove(t.Context(), "none"))
		w.removed(none.ID)
	})
	t.Run("what changes nothing", func(t *testing.T) {
		_, err := engine.Exec(t.Context(), old.ID, "true")
		check(t, err)
		_, err = engine.API().ContainerPause(t.Context(), old.ID, client.ContainerPauseOptions{})
		check(t, err)
		w.none(100 * time.Millisecond)
		if paused := watch(t, engine).snapshot(); names(paused) != "new" {
			t.Errorf("while paused: %q", names(paused))
		}
		_, err = engine.API().ContainerUnpause(t.Context(), old.ID, client.ContainerUnpauseOptions{})
		check(t, err)
		w.none(100 * time.Millisecond)
	})
	t.Run("gone before it is seen", func(t *testing.T) {
		for range 5 {
			mustRunBriefly(t, engine)
		}
		// Each may have been seen or not, but none is left.
		running := make(map[string]bool)
		for quiet := false; !quiet; {
			select {
			case e := <-w.events:
				if e.Updated != nil {
					running[e.Updated.ID] = true
				}
				delete(running, e.RemovedID)
				if e.Disconnected != nil {
					t.Fatal(e.Disconnected)
				}
			case <-time.After(500 * time.Millisecond):
				quiet = true
			}
		}
		if len(running) > 0 {
			t.Errorf("reported as running: %v", running)
		}
	})
}

// hasProcess says whether a cgroup has one process, and which it is.
func hasProcess(cgroup string, pid int) bool {
	processes, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	return err == nil && strings.TrimSpace(string(processes)) == fmt.Sprint(pid)
}

// mustRunBriefly runs a container that ends at once.
func mustRunBriefly(t *testing.T, engine *testbed.Engine) {
	t.Helper()
	created, err := engine.API().ContainerCreate(t.Context(), client.ContainerCreateOptions{Image: image})
	check(t, err)
	_, err = engine.API().ContainerStart(t.Context(), created.ID, client.ContainerStartOptions{})
	check(t, err)
	check(t, engine.Remove(t.Context(), created.ID))
}

func TestDiscoveryOutlivesTheEngine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		live bool // containers live on
		down func(*testbed.Engine, context.Context) error
	}{
		{"restart", false, (*testbed.Engine).Shutdown},
		{"kill", false, (*testbed.Engine).Kill},
		{"restart with live restore", true, (*testbed.Engine).Shutdown},
		{"kill with live restore", true, (*testbed.Engine).Kill},
	}
	for _, live := range []bool{false, true} {
		engine, _ := newEngine(t, testbed.EngineOptions{LiveRestore: live})
		for _, test := range tests {
			if test.live != live {
				continue
			}
			t.Run(test.name, func(t *testing.T) {
				before := mustRun(t, engine, testbed.RunOptions{})
				w := watch(t, engine)
				w.snapshot()
				check(t, test.down(engine, t.Context()))
				w.disconnected()
				w.none(500 * time.Millisecond) // one disconnection, however many attempts
				check(t, engine.Restart(t.Context()))
				after := w.snapshot()
				want := 0
				if live {
					want = 1
				}
				if len(after.Containers) != want || live && after.Containers[0].ID != before.ID {
					t.Errorf("after the restart: %+v", after)
				}
				c := mustRun(t, engine, testbed.RunOptions{})
				w.updated(c.ID, nil)
				for _, id := range []string{before.ID, c.ID} {
					check(t, engine.Remove(t.Context(), id))
				}
			})
		}
	}
}

// TestDiscoveryIsFast measures how long before its start a container is
// reported for the first time, and how long after it with all there is to know.
func TestDiscoveryIsFast(t *testing.T) {
	engine, _ := newEngine(t, testbed.EngineOptions{})
	w := watch(t, engine)
	w.snapshot()
	const n = 20
	// Where this engine has its cgroups is learnt from the first.
	c := mustRun(t, engine, testbed.RunOptions{})
	w.updated(c.ID, nil)
	var firstReport, fromStart, fromStop []time.Duration
	for range n {
		c := mustRun(t, engine, testbed.RunOptions{Labels: map[string]string{"weir.weight": "7"}})
		first := w.first(c.ID)
		if got := first.Updated; got.NetNSPath != c.NetNSPath() || got.Name != c.Name || got.Labels["weir.weight"] != "7" ||
			!hasProcess(got.CgroupPath, c.Pid) {
			t.Errorf("the first report on %+v is %+v", c, got)
		}
		e := first
		if first.Updated.StartedAt.IsZero() {
			e = w.updated(c.ID, nil)
		}
		firstReport = append(firstReport, first.at.Sub(e.Updated.StartedAt))
		// The engine takes StartedAt when the process runs, then writes its
		// state to disk, and only then says so.
		fromStart = append(fromStart, e.at.Sub(e.Updated.StartedAt))
		stopping := time.Now()
		check(t, engine.Remove(t.Context(), c.ID))
		fromStop = append(fromStop, w.removed(c.ID).at.Sub(stopping))
	}
	for what, times := range map[string][]time.Duration{
		"start": fromStart, "start to the first": firstReport, "removal": fromStop,
	} {
		slices.Sort(times)
		t.Logf("from %s to event: median %v, longest %v", what, times[n/2], times[n-1])
	}
	if median := fromStart[n/2]; median > 50*time.Millisecond {
		t.Errorf("from start to event: median %v", median)
	}
	if median := firstReport[n/2]; median >= 0 {
		t.Errorf("the first report comes %v after the start (median), not before", median)
	}
}

// TestLeakCheckFindsLeaks proves that the check at the end can fail.
func TestLeakCheckFindsLeaks(t *testing.T) {
	dir, err := os.MkdirTemp("", "wdt-leak-")
	check(t, err)
	defer os.Remove(dir)
	sleep := exec.Command("sleep", "60")
	sleep.Env = []string{"WEIR_ENGINE=" + filepath.Base(dir)}
	check(t, sleep.Start())
	defer func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	}()
	if left := leaks([]string{filepath.Base(dir)}); len(left) != 2 {
		t.Errorf("found %v, want a directory and a process", left)
	}
}

func TestDiscoveryOfOverlay(t *testing.T) {
	t.Parallel()
	engine, netns := newEngine(t, testbed.EngineOptions{})
	run(t, "ip", "-n", netns, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	run(t, "ip", "-n", netns, "addr", "add", "198.18.250.1/30", "dev", "up0")
	run(t, "ip", "-n", netns, "link", "set", "up0", "up")
	run(t, "ip", "-n", netns, "link", "set", "up1", "up")
	check(t, engine.InitSwarm(t.Context(), netip.MustParseAddr("198.18.250.1"), netip.MustParsePrefix("198.19.64.0/18")))
	_, err := engine.CreateNetwork(t.Context(), testbed.NetworkOptions{Name: "over", Driver: "overlay", Attachable: true})
	check(t, err)
	w := watch(t, engine)
	w.snapshot()
	c := mustRun(t, engine, testbed.RunOptions{Name: "one", Network: "over"})
	if got := w.updated(c.ID, nil).Updated; got.NetNSPath != c.NetNSPath() || got.RoutingMesh {
		t.Errorf("got %+v", got)
	}
	check(t, engine.Remove(t.Context(), "one"))
	w.removed(c.ID)
}
