//go:build docker

package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const testImage = "weir-testbed:latest"

// prefix marks the directories and namespaces of this run of the tests.
var prefix = fmt.Sprintf("wtb-%d-", os.Getpid())

func TestMain(m *testing.M) {
	before := engineTraces()
	code := m.Run()
	if left := newTraces(before, engineTraces()); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "tests left behind:\n%s\n", strings.Join(left, "\n"))
		code = 1
	}
	os.Exit(code)
}

// engineTraces are the traces that these tests and a careless engine leave on
// a machine.
func engineTraces() map[string]bool {
	traces := make(map[string]bool)
	for _, pattern := range []string{
		filepath.Join(os.TempDir(), prefix+"*"),
		"/run/netns/" + prefix + "*",
		"/etc/docker", "/run/docker", "/run/docker.pid", "/run/containerd", "/var/lib/docker", "/opt/containerd",
	} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			traces[path] = true
		}
	}
	return traces
}

func newTraces(before, after map[string]bool) []string {
	var left []string
	for trace := range after {
		if !before[trace] {
			left = append(left, trace)
		}
	}
	return left
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// testDir is a short directory; that of t.TempDir is too long for sockets.
func testDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Not RemoveAll: the engine must have removed all it made.
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// testNetNS makes a network namespace and returns its path.
func testNetNS(t *testing.T, name string) string {
	t.Helper()
	name = prefix + name
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	run(t, "ip", "-n", name, "link", "set", "lo", "up")
	return "/run/netns/" + name
}

func startTestEngine(t *testing.T, opts EngineOptions) *Engine {
	t.Helper()
	if opts.NetNSPath == "" {
		opts.NetNSPath = testNetNS(t, "engine")
	}
	opts.Dir = testDir(t)
	began := time.Now()
	e, err := StartEngine(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %v", time.Since(began))
	t.Cleanup(func() {
		began := time.Now()
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		t.Logf("stopped in %v", time.Since(began))
	})
	if err := e.ImportBinary(t.Context(), testImage, nil); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEngineRunsContainersBehindNAT(t *testing.T) {
	inside := testNetNS(t, "in")
	outside := testNetNS(t, "out")
	run(t, "ip", "-n", filepath.Base(inside), "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", filepath.Base(outside))
	for ns, addr := range map[string]string{inside: "198.18.250.1/30", outside: "198.18.250.2/30"} {
		run(t, "ip", "-n", filepath.Base(ns), "addr", "add", addr, "dev", "up0")
		run(t, "ip", "-n", filepath.Base(ns), "link", "set", "up0", "up")
	}
	e := startTestEngine(t, EngineOptions{NetNSPath: inside})
	subnet6 := netip.MustParsePrefix("fd00:198:18::/64")
	if _, err := e.CreateNetwork(t.Context(), NetworkOptions{
		Name: "dual", Subnet: netip.MustParsePrefix("198.19.7.0/24"), Subnet6: subnet6,
	}); err != nil {
		t.Fatal(err)
	}
	c, err := e.Run(t.Context(), RunOptions{
		Name: "one", Image: testImage, Labels: map[string]string{"weir.weight": "7"}, Capabilities: []string{"NET_ADMIN"},
	})
	if err != nil {
		t.Fatal(err)
	}
	// The neighbour has no route to the container: an answer proves NAT.
	if out, err := e.Exec(t.Context(), c.ID, "ping", "-c", "1", "-W", "2", "198.18.250.2"); err != nil {
		t.Fatal(err)
	} else if !strings.Contains(out, "1 packets received") {
		t.Fatalf("ping: %s", out)
	}
	if _, err := e.Exec(t.Context(), c.ID, "false"); err == nil {
		t.Error("Exec of false gave no error")
	}
	if err := e.Connect(t.Context(), "dual", "one"); err != nil {
		t.Fatal(err)
	}
	if c, err = e.Container(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if len(c.Addresses) != 2 || !subnet6.Contains(c.Addresses6["dual"]) {
		t.Errorf("container %+v: want addresses in bridge and dual, and IPv6 in dual", c)
	}
	if err := e.Disconnect(t.Context(), "dual", "one"); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if err := e.RemoveNetwork(t.Context(), "dual"); err != nil {
		t.Fatal(err)
	}
}

// TestEnginesOnOneLink: containers of two engines, on a host and at its
// neighbour, speak through the link in every mode that crosses it.
func TestEnginesOnOneLink(t *testing.T) {
	h, err := NewHost(t.Context(), HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	local, swarm := h.EnginePools()
	start := func(netns string) *Engine {
		return startTestEngine(t, EngineOptions{
			NetNSPath: netns, BridgeCIDR: h.EngineBridgeCIDR().String(), AddressPool: local.String(),
		})
	}
	manager, worker := start(h.NetNSPath()), start(h.PeerNetNSPath())
	if err := manager.InitSwarm(t.Context(), h.UplinkAddr(), swarm); err != nil {
		t.Fatal(err)
	}
	if err := worker.JoinSwarm(t.Context(), manager, h.PeerAddr); err != nil {
		t.Fatal(err)
	}
	for _, network := range []NetworkOptions{{Name: "over", Driver: "overlay", Attachable: true}, h.MacvlanNetwork("mac")} {
		if _, err := manager.CreateNetwork(t.Context(), network); err != nil {
			t.Fatal(err)
		}
	}
	far, err := worker.Run(t.Context(), RunOptions{Image: testImage, Network: "over"})
	if err != nil {
		t.Fatal(err)
	}
	if !swarm.Contains(far.Addresses["over"]) {
		t.Errorf("the overlay network has the address %v, which is not of %v", far.Addresses["over"], swarm)
	}
	for _, test := range []struct{ network, to, to6 string }{
		{"over", far.Addresses["over"].String(), ""},
		{"mac", h.PeerAddr.String(), h.PeerAddr6.String()},
		{"host", h.PeerAddr.String(), h.PeerAddr6.String()},
	} {
		near, err := manager.Run(t.Context(), RunOptions{Image: testImage, Network: test.network})
		if err != nil {
			t.Fatal(err)
		}
		before := linkPackets(t, h)
		for _, to := range []string{test.to, test.to6} {
			if to == "" {
				continue
			}
			if out, err := manager.Exec(t.Context(), near.ID, "ping", "-c", "3", "-i", "0.2", "-w", "10", to); err != nil {
				t.Errorf("%s: %v: %s", test.network, err, out)
			}
		}
		if packets := linkPackets(t, h) - before; packets < 3 {
			t.Errorf("%s: only %d packets crossed the link", test.network, packets)
		}
		if err := manager.Remove(t.Context(), near.ID); err != nil {
			t.Error(err)
		}
	}
}

// linkPackets is how many packets have arrived at the neighbour.
func linkPackets(t *testing.T, h *Host) int {
	t.Helper()
	out, err := h.PeerCommand(t.Context(), "cat", "/proc/net/dev").Output()
	_, counters, found := strings.Cut(string(out), h.PeerInterface+":")
	var bytes, packets int
	if _, scanErr := fmt.Sscan(counters, &bytes, &packets); err != nil || !found || scanErr != nil {
		t.Fatalf("read %q: %v, %v", out, err, scanErr)
	}
	return packets
}

func TestEngineRestartAndKill(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live restore %v", live), func(t *testing.T) {
			e := startTestEngine(t, EngineOptions{LiveRestore: live})
			for name, down := range map[string]func(context.Context) error{"restart": e.Shutdown, "kill": e.Kill} {
				before, err := e.Run(t.Context(), RunOptions{Name: name, Image: testImage})
				if err != nil {
					t.Fatal(err)
				}
				if err := down(t.Context()); err != nil {
					t.Fatal(err)
				}
				if pid := e.Pid(); pid != 0 {
					t.Errorf("%s: engine runs as %d", name, pid)
				}
				if err := e.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				after, err := e.Container(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if live && after.Pid != before.Pid || !live && after.Pid != 0 {
					t.Errorf("%s: process %d before, %d after", name, before.Pid, after.Pid)
				}
			}
		})
	}
}

// TestEngineContainerCPU: each container has its own processor time, and together they have the engine's.
func TestEngineContainerCPU(t *testing.T) {
	e := startTestEngine(t, EngineOptions{})
	ids := map[string]string{}
	for name, args := range map[string][]string{"idle": nil, "busy": {"/bin/sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 1000"}} {
		c, err := e.Run(t.Context(), RunOptions{Name: name, Image: testImage, Args: args})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = c.ID
	}
	time.Sleep(time.Second)
	idle, idleErr := e.ContainerCPU(ids["idle"])
	busy, busyErr := e.ContainerCPU(ids["busy"])
	all, _, err := e.Used()
	if err := errors.Join(idleErr, busyErr, err); err != nil {
		t.Fatal(err)
	}
	if busy < 2*idle || all < idle+busy || all > idle+busy+100*time.Millisecond {
		t.Errorf("the engine %v, its containers %v and %v", all, idle, busy)
	}
	if _, err := e.ContainerCPU("none"); err == nil {
		t.Error("a container that does not exist has used processor time")
	}
}

func TestEngineStopRemovesRunningContainers(t *testing.T) {
	e := startTestEngine(t, EngineOptions{LiveRestore: true})
	for i := range 3 {
		if _, err := e.Run(t.Context(), RunOptions{Name: fmt.Sprint("c", i), Image: testImage}); err != nil {
			t.Fatal(err)
		}
	}
	// The worst case: a crashed engine, running containers, an ended context.
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := e.Stop(ctx); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestEngineThatCannotStartLeavesNothing(t *testing.T) {
	opts := EngineOptions{
		NetNSPath: testNetNS(t, "bad"), Dir: testDir(t), ExtraArgs: []string{"--storage-driver=none-such"},
	}
	mustFail := func(ctx context.Context) error {
		t.Helper()
		e, err := StartEngine(ctx, opts)
		if err == nil {
			t.Fatalf("the engine started; stopped: %v", e.Stop(t.Context()))
		}
		if strings.Contains(err.Error(), "left behind") {
			t.Error(err)
		}
		return err
	}
	if err := mustFail(t.Context()); !strings.Contains(err.Error(), "none-such") {
		t.Errorf("the error does not say why: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	opts.ExtraArgs = nil
	_ = mustFail(ctx) // it takes longer than that
	opts.NetNSPath = "/run/netns/wtb-none-such"
	if err := mustFail(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an engine in a namespace that does not exist: %v", err)
	}
	opts.NetNSPath = ""
	if err := mustFail(t.Context()); !strings.Contains(err.Error(), "machine's own") {
		t.Errorf("an engine in the machine's own namespace: %v", err)
	}
}

// TestEngineEndsWithItsParent runs this test binary again as the parent and
// kills it.
func TestEngineEndsWithItsParent(t *testing.T) {
	const dirEnv, netnsEnv = "WEIR_TEST_PARENT_DIR", "WEIR_TEST_PARENT_NETNS"
	if dir := os.Getenv(dirEnv); dir != "" {
		e, err := StartEngine(t.Context(), EngineOptions{NetNSPath: os.Getenv(netnsEnv), Dir: dir})
		if err == nil {
			err = e.ImportBinary(t.Context(), testImage, nil)
		}
		var c *EngineContainer
		if err == nil {
			c, err = e.Run(t.Context(), RunOptions{Image: testImage})
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("engine %d container %d\n", e.Pid(), c.Pid)
		select {}
	}

	netns, dir := testNetNS(t, "orphan"), testDir(t)
	parent := exec.Command(os.Args[0], "-test.run=^TestEngineEndsWithItsParent$")
	parent.Env = append(os.Environ(), dirEnv+"="+dir, netnsEnv+"="+netns)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var engine, container int
	_, scanErr := fmt.Fscanf(out, "engine %d container %d\n", &engine, &container)
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if scanErr != nil {
		t.Fatal(scanErr)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		var left []string
		for _, pid := range []int{engine, container} {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				left = append(left, fmt.Sprint("process ", pid))
			}
		}
		entries, _ := filepath.Glob(filepath.Join(dir, "*"))
		if left = append(left, entries...); len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left 20 s after the parent was killed: %v", left)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
