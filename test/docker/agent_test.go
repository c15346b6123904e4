//go:build docker

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// These tests run the weir program next to a real engine and look at what
// users see of it: `weir ps`, and what their containers get through.

// TestAgentWithDocker is everything that one engine and one agent can show one
// after the other; starting them is what takes long.
func TestAgentWithDocker(t *testing.T) {
	b := newSite(t, testbed.EngineOptions{})
	twin := b.Add("twin", nil) // in the agent's config file
	b.start(t)

	t.Run("labels are honoured on the wire", b.testShares)
	t.Run("start and stop show", b.testStartAndStop)
	t.Run("control from the first packet on", b.testFirstPackets)
	t.Run("networks come and go", b.testNetworks)
	t.Run("labels that cannot be honoured", b.testBadLabels)
	t.Run("labels of an image", b.testImageLabels)
	t.Run("minimums that do not fit", b.testAdmission)
	t.Run("a published port", b.testPublished)
	t.Run("two containers of one name", func(t *testing.T) { b.testAmbiguous(t, twin) })
	t.Run("network modes", b.testModes)
	t.Run("what was set ends with the container", b.testSetEnds)
	t.Run("output for programs", b.testJSON)
	t.Run("the agent restarts", b.testAgentRestart)
	t.Run("the engine restarts", b.testEngineRestart)
	t.Run("the engine is not there at first", b.testNoEngineAtFirst)
}

// testShares: weight, minimum and maximum, on the default bridge and on one of
// the user's, over IPv4 and IPv6, while all send all they can.
func (s *site) testShares(t *testing.T) {
	s.network(t, testbed.NetworkOptions{Name: "mine", Subnet6: s.subnet6()})
	labels := []map[string]string{
		{"weir.weight": "300"},
		{"weir.min": "40mbit", "weir.weight": "50"},
		{"weir.max": "5mbit", "weir.weight": "1000"},
		nil,
	}
	var claims []harness.Claim
	for slot, labels := range labels {
		opts := testbed.RunOptions{Name: fmt.Sprint("share", slot), Labels: labels}
		load := harness.TCP
		if slot%2 == 1 {
			opts.Network = "mine"
			load.V6 = slot == 3
		}
		if slot == 0 {
			load.Connections = 8
		}
		c := s.run(t, opts)
		s.await(t, c.Name, "controlled", controlled)
		s.send(t, c, slot, load)
		claims = append(claims, harness.Claim{Labels: labels, DemandBPS: harness.Unlimited})
	}
	// The static container and the host are silent.
	claims = append(claims, harness.Claim{DemandBPS: 0})
	s.CheckSharesFor(100e6, claims, 3*time.Second)
	for name, c := range s.agent.Containers() {
		if strings.HasPrefix(name, "share") && (c.Runtime != "docker" || c.RateBPS == 0 || c.SentBytes == 0 || len(c.ID) != 64) {
			t.Errorf("got %+v", c)
		}
	}
}

func (s *site) testStartAndStop(t *testing.T) {
	for range 3 {
		c := s.run(t, testbed.RunOptions{Name: "short", Labels: map[string]string{"weir.weight": "42"}})
		got, took := s.agent.AwaitContainer("short", "controlled", noticed, controlled)
		t.Logf("under control %v after it ran", took.Round(time.Millisecond))
		if got.ID != c.ID || got.Policy.Weight != 42 || got.Mode != v1.ModeBridge || got.Runtime != "docker" {
			t.Errorf("got %+v", got)
		}
		if out := s.MustWeir("ps"); !strings.Contains(out, "short") {
			t.Errorf("weir ps prints\n%s", out)
		}
		check(t, s.engine.Remove(t.Context(), "short"))
		s.agent.AwaitGone("short", noticed)
	}
}

func (s *site) testNetworks(t *testing.T) {
	s.network(t, testbed.NetworkOptions{Name: "second"})
	c := s.run(t, testbed.RunOptions{Name: "mobile", Labels: map[string]string{"weir.max": "10mbit"}})
	s.await(t, "mobile", "controlled", controlled)
	for _, step := range []struct {
		what, network string
		do            func(*testbed.Engine, *testing.T, string)
		veths         int
	}{
		{"connect", "second", connect, 2},
		{"disconnect", "bridge", disconnect, 1},
		{"disconnect", "second", disconnect, 0},
		{"connect", "second", connect, 1},
	} {
		step.do(s.engine, t, step.network)
		s.Await(fmt.Sprintf("%d veths assigned after %s %s", step.veths, step.what, step.network), noticed, func() (bool, string) {
			programs := s.Programs("weir_tap")
			return len(programs) == step.veths+1, fmt.Sprint(programs) // and that of the static container
		})
		got := s.await(t, "mobile", "as its networks are", func(c v1.Container) bool {
			return (c.Mode == v1.ModeBridge) == (step.veths > 0)
		})
		if got.State != v1.StateOK || got.Policy.MaxBPS != 10e6 {
			t.Errorf("after %s %s: %+v", step.what, step.network, got)
		}
	}
	s.send(t, c, 0, harness.Flood)
	time.Sleep(300 * time.Millisecond)
	s.CheckMaximum(0, 10e6, time.Second)
}

func connect(engine *testbed.Engine, t *testing.T, network string) {
	check(t, engine.Connect(t.Context(), network, "mobile"))
}

func disconnect(engine *testbed.Engine, t *testing.T, network string) {
	check(t, engine.Disconnect(t.Context(), network, "mobile"))
}

// testBadLabels: a label never stops a container. It runs with the default of
// what is wrong and with all that is right, and the reason is shown.
func (s *site) testBadLabels(t *testing.T) {
	for i, test := range []struct {
		labels  map[string]string
		policy  v1.Policy
		reasons []string
	}{
		{map[string]string{"weir.weight": "heavy", "weir.max": "20mbit"}, harness.Policy(v1.Policy{Weight: 100, MaxBPS: 20e6}), []string{"weir.weight", "heavy"}},
		{map[string]string{"weir.min": "10MB/s", "weir.weight": "7"}, harness.Policy(v1.Policy{Weight: 7}), []string{"weir.min", "bytes"}},
		{map[string]string{"weir.min": "30mbit", "weir.max": "20mbit"}, harness.Policy(v1.Policy{Weight: 100, MaxBPS: 20e6}), []string{"weir.min", "above the maximum"}},
		{map[string]string{"weir.wieght": "7"}, harness.Policy(v1.Policy{Weight: 100}), []string{"weir.wieght", "weir.weight?"}},
		{map[string]string{"weir.latency": "20ms"}, harness.Policy(v1.Policy{Weight: 100}), []string{"weir.latency", "minimum"}},
		{map[string]string{"weir.priority": "-1", "weir.class": "gold"}, harness.Policy(v1.Policy{Weight: 100}), []string{"weir.priority", "weir.class"}},
		{map[string]string{"kubernetes.io/egress-bandwidth": "8M"}, harness.Policy(v1.Policy{Weight: 100, MaxBPS: 8e6}), nil},
	} {
		name := fmt.Sprint("bad", i)
		c := s.run(t, testbed.RunOptions{Name: name, Labels: test.labels})
		got := s.await(t, name, "seen", func(c v1.Container) bool { return c.EntitledBPS > 0 })
		want := v1.StateOK
		if test.reasons != nil {
			want = v1.StateDegraded
		}
		if got.State != want || got.Policy != test.policy || (got.Reason == "") != (test.reasons == nil) {
			t.Errorf("labels %v: got %+v", test.labels, got)
		}
		for _, reason := range test.reasons {
			if !strings.Contains(got.Reason, reason) {
				t.Errorf("labels %v: the reason is %q, want %q in it", test.labels, got.Reason, reason)
			}
		}
		if running, err := s.engine.Container(t.Context(), c.ID); err != nil || running.Pid == 0 {
			t.Errorf("the container does not run: %+v, %v", running, err)
		}
	}
}

// testImageLabels: what an image asks for is told apart from what the container's
// owner does, and may not be a guarantee.
func (s *site) testImageLabels(t *testing.T) {
	plain := s.run(t, testbed.RunOptions{Name: "plain"})
	greedy, err := s.engine.API().ContainerCommit(t.Context(), plain.ID, client.ContainerCommitOptions{
		Reference: "example.test/greedy:1", Changes: []string{"LABEL weir.min=20mbit weir.priority=9 weir.weight=30"},
	})
	must.Succeed(t, err)
	t.Cleanup(func() {
		_, err := s.engine.API().ImageRemove(context.Background(), greedy.ID, client.ImageRemoveOptions{Force: true})
		check(t, err)
	})
	seen := func(c v1.Container) bool { return c.EntitledBPS > 0 }
	s.run(t, testbed.RunOptions{Name: "greedy", Image: "example.test/greedy:1", Labels: map[string]string{"weir.max": "50mbit"}})
	got := s.await(t, "greedy", "seen", seen)
	want := harness.Policy(v1.Policy{Weight: 30, MaxBPS: 50e6})
	if got.Policy != want || got.State != v1.StateDegraded || !strings.Contains(got.Reason, "weir.min") || !strings.Contains(got.Reason, "weir.priority") || !strings.Contains(got.Reason, "trust_image_labels") {
		t.Errorf("labels of the image: %+v", got)
	}
	s.run(t, testbed.RunOptions{Name: "owned", Image: "example.test/greedy:1", Labels: map[string]string{"weir.min": "5mbit", "weir.priority": "1"}})
	got = s.await(t, "owned", "seen", seen)
	want = harness.Policy(v1.Policy{Weight: 30, MinBPS: 5e6, Priority: 1})
	if got.Policy != want || got.State != v1.StateOK || got.PolicyFrom.Min != v1.LayerLabels {
		t.Errorf("labels that differ from the image's: %+v", got)
	}

	// To an agent that never saw its image, whose labels may select a policy, a container has the maximum of that policy only.
	_, err = s.engine.API().ContainerCommit(t.Context(), plain.ID, client.ContainerCommitOptions{Reference: "example.test/gone:1", Changes: []string{"LABEL maker=me"}})
	must.Succeed(t, err)
	backup := s.run(t, testbed.RunOptions{Name: "backup", Image: "example.test/gone:1", Labels: map[string]string{policy.LabelComposeService: "backup"}})
	got = s.await(t, "backup", "seen", seen)
	if got.Policy != harness.Policy(v1.Policy{Weight: 300, MaxBPS: 10e6}) || got.State != v1.StateOK {
		t.Errorf("selected by its service: %+v", got)
	}
	_, err = s.engine.API().ContainerStop(t.Context(), backup.ID, client.ContainerStopOptions{})
	must.Succeed(t, err)
	s.agent.AwaitGone("backup", noticed)
	s.agent.Kill()
	_, err = s.engine.API().ImageRemove(t.Context(), "example.test/gone:1", client.ImageRemoveOptions{Force: true})
	must.Succeed(t, err)
	_, err = s.engine.API().ContainerStart(t.Context(), backup.ID, client.ContainerStartOptions{})
	must.Succeed(t, err)
	s.start(t)
	got = s.await(t, "backup", "seen", seen)
	if got.Policy != harness.Policy(v1.Policy{Weight: 100, MaxBPS: 10e6}) || got.State != v1.StateDegraded || !strings.Contains(got.Reason, "select by image") {
		t.Errorf("selected by its service, without its image: %+v", got)
	}
}

// testAdmission: minimums of 95 Mbit/s fit; who comes too late is told, runs
// without, and is admitted when there is room.
func (s *site) testAdmission(t *testing.T) {
	minimum := func(rate string) map[string]string { return map[string]string{"weir.min": rate} }
	s.run(t, testbed.RunOptions{Name: "early", Labels: minimum("60mbit")})
	s.await(t, "early", "controlled", controlled)
	s.run(t, testbed.RunOptions{Name: "late", Labels: minimum("50mbit")})
	got := s.await(t, "late", "refused", func(c v1.Container) bool { return c.State == v1.StateRejected })
	if !strings.Contains(got.Reason, "50mbit") || !strings.Contains(got.Reason, "35mbit is free") || got.EntitledBPS == 0 {
		t.Errorf("got %+v", got)
	}
	if got := s.agent.Container("early"); got.State != v1.StateOK || got.EntitledBPS < 60e6 {
		t.Errorf("what was admitted before: %+v", got)
	}
	if result := s.Weir("set", "late", "--min", "36mbit"); result.Code != 1 || !strings.Contains(result.Stderr, "35mbit") {
		t.Errorf("weir set of what does not fit either: %+v", result)
	}
	check(t, s.engine.Remove(t.Context(), "early"))
	got = s.await(t, "late", "admitted", controlled)
	if got.EntitledBPS < 50e6 || got.Reason != "" {
		t.Errorf("after the other's end: %+v", got)
	}
}

// testPublished: what a container answers at a published port is its own, also over
// IPv6, where a process of the host's passes it on, and after a restart of the agent
// while the engine gives no answer.
func (s *site) testPublished(t *testing.T) {
	s.publish(t, "")
	s.checkPublished(t, "at first")
	check(t, syscall.Kill(s.engine.Pid(), syscall.SIGSTOP))
	resume := func() { check(t, syscall.Kill(s.engine.Pid(), syscall.SIGCONT)) }
	t.Cleanup(resume) // also when the test breaks off
	s.agent.Kill()
	s.agent = s.LaunchAgent(harness.AgentOptions{Docker: s.engine.Socket()})
	s.Await("an agent", engineTimeout, func() (bool, string) {
		result := s.Weir("ps")
		return result.Code == 0, result.Stderr + s.agent.Said()
	})
	s.checkPublished(t, "beside a silent engine")
	resume()
	s.source(t, true)
}

// testPublishedWithoutProxy: the kernel alone leads users to a published port, also over IPv6.
func (s *site) testPublishedWithoutProxy(t *testing.T) {
	s.network(t, testbed.NetworkOptions{Name: "six", Subnet6: s.subnet6()})
	s.publish(t, "six")
	s.checkPublished(t, "without docker-proxy")
}

const (
	publishedPort   = 8080
	publishedMaxBPS = 5e6
)

// publish runs a container that answers at publishedPort as fast as it can.
func (s *site) publish(t *testing.T, network string) {
	t.Helper()
	s.run(t, testbed.RunOptions{
		Name: "published", Network: network, PublishTCP: map[uint16]uint16{publishedPort: 80}, Labels: map[string]string{"weir.max": "5mbit"},
		Args: []string{"/bin/busybox", "nc", "-ll", "-p", "80", "-e", "/bin/busybox", "yes"},
	})
	s.await(t, "published", "controlled", controlled)
}

func (s *site) checkPublished(t *testing.T, when string) {
	t.Helper()
	for _, host := range []netip.Addr{s.Host.PeerAddr.Prev(), s.Host.PeerAddr6.Prev()} {
		before := s.agent.Container("published").SentBytes
		received, took := s.download(t, netip.AddrPortFrom(host, publishedPort), 3*time.Second)
		// Payload is less than frames; a bucket's burst comes on top.
		if bps := float64(received) * 8 / took.Seconds(); bps > 1.02*publishedMaxBPS || bps < 0.85*publishedMaxBPS {
			t.Errorf("%s, at %s: %.2f Mbit/s, with a maximum of 5", when, host, bps/1e6)
		}
		s.await(t, "published", "counted", func(c v1.Container) bool { return c.SentBytes >= before+uint64(received) })
	}
}

// download reads what a server sends to the neighbour for a time.
func (s *site) download(t *testing.T, server netip.AddrPort, duration time.Duration) (bytes int64, took time.Duration) {
	t.Helper()
	err := testbed.InNetNS(s.Host.PeerNetNSPath(), func() error {
		dialer := net.Dialer{Timeout: 2 * time.Second}
		conn, err := dialer.DialContext(t.Context(), "tcp", server.String())
		for end := time.Now().Add(10 * time.Second); errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(end); { // its container runs, and it does not listen yet
			time.Sleep(20 * time.Millisecond)
			conn, err = dialer.DialContext(t.Context(), "tcp", server.String())
		}
		if err != nil {
			return err
		}
		defer conn.Close()
		began := time.Now()
		if err := conn.SetReadDeadline(began.Add(duration)); err != nil {
			return err
		}
		bytes, err = io.Copy(io.Discard, conn)
		took = time.Since(began)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return fmt.Errorf("%s ended after %d bytes: %w", server, bytes, err)
	})
	must.Succeed(t, err)
	return bytes, took
}

func (s *site) testAmbiguous(t *testing.T, static *harness.Container) {
	c := s.run(t, testbed.RunOptions{Name: "twin"})
	s.Await("both seen", noticed, func() (bool, string) {
		out := s.MustWeir("ps")
		return strings.Count(out, "twin") == 2, out
	})
	result := s.Weir("set", "twin", "--weight", "7")
	if result.Code != 1 || !strings.Contains(result.Stderr, c.ID[:12]) || !strings.Contains(result.Stderr, "static") {
		t.Errorf("weir set of a name that two have: %+v", result)
	}
	s.MustWeir("set", c.ID[:12], "--weight", "8")
	s.MustWeir("set", "static:twin", "--weight", "9")
	for _, row := range s.list(t) {
		want := map[string]uint32{c.ID: 8, "static:" + static.Name: 9, "host": 100}[row.ID]
		if row.Policy.Weight != want {
			t.Errorf("%s has weight %d, want %d", row.ID, row.Policy.Weight, want)
		}
	}
	s.MustWeir("reset", "static:twin")
}

func (s *site) testModes(t *testing.T) {
	s.run(t, testbed.RunOptions{Name: "plain", Labels: map[string]string{"weir.max": "5mbit"}})
	s.await(t, "plain", "controlled", controlled)
	s.run(t, testbed.RunOptions{Name: "on-host", Network: "host"})
	s.run(t, testbed.RunOptions{Name: "nowhere", Network: "none"})
	s.run(t, testbed.RunOptions{Name: "guest", Network: "container:plain"})
	s.run(t, testbed.RunOptions{Name: "demanding", Network: "container:plain", Labels: map[string]string{"weir.max": "9mbit", "weir.min": "1mbit"}})
	for _, want := range []struct {
		name   string
		mode   v1.Mode
		state  v1.State
		reason string
	}{
		{"on-host", v1.ModeHost, v1.StateOK, ""},
		{"nowhere", v1.ModeNone, v1.StateOK, "no network: nothing to limit"},
		{"guest", v1.ModeBridge, v1.StateOK, "it shares the network of plain and is counted there"},
		{"demanding", v1.ModeBridge, v1.StateDegraded, "its own labels have no effect (weir.max, weir.min): give them to plain"},
		{"plain", v1.ModeBridge, v1.StateOK, ""},
	} {
		got := s.await(t, want.name, "seen", func(c v1.Container) bool { return c.Mode == want.mode && c.State == want.state })
		if !strings.Contains(got.Reason, want.reason) || (want.reason == "") != (got.Reason == "") {
			t.Errorf("got %+v", got)
		}
	}
	// What a guest sends counts for the host of its network.
	guest, err := s.engine.Container(t.Context(), "guest")
	check(t, err)
	s.send(t, guest, 0, harness.Load{Protocol: traffic.UDP, RateBPS: 20e6})
	s.WarmUp()
	s.CheckMaximum(0, 5e6, time.Second)
	if c := s.agent.Container("plain"); c.RateBPS < 4.9e6 || c.RateBPS > 5.1e6 {
		t.Errorf("got %+v", c)
	}
	// When that one ends, the engine takes the network's devices away, and the
	// guest stays behind in a network without any.
	check(t, s.engine.Remove(t.Context(), "plain"))
	s.agent.AwaitGone("plain", noticed)
	s.await(t, "guest", "without a network", func(c v1.Container) bool {
		return c.Mode == v1.ModeNone && !strings.Contains(c.Reason, "plain")
	})
}

func (s *site) testSetEnds(t *testing.T) {
	s.run(t, testbed.RunOptions{Name: "again", Labels: map[string]string{"weir.weight": "50"}})
	s.await(t, "again", "controlled", controlled)
	s.MustWeir("set", "again", "--weight", "500")
	_, err := s.engine.API().ContainerRestart(t.Context(), "again", client.ContainerRestartOptions{})
	check(t, err)
	s.await(t, "again", "with its labels after docker restart", func(c v1.Container) bool {
		return controlled(c) && c.Policy.Weight == 50
	})
	s.MustWeir("set", "again", "--weight", "500")
	check(t, s.engine.Remove(t.Context(), "again"))
	again := s.run(t, testbed.RunOptions{Name: "again", Labels: map[string]string{"weir.max": "7mbit"}})
	s.await(t, "again", "a new container with labels of its own", func(c v1.Container) bool {
		return controlled(c) && c.ID == again.ID && c.Policy == harness.Policy(v1.Policy{Weight: 100, MaxBPS: 7e6})
	})
	// What does not end the container does not end what was set.
	s.MustWeir("set", "again", "--weight", "500")
	_, err = s.engine.API().ContainerPause(t.Context(), "again", client.ContainerPauseOptions{})
	check(t, err)
	_, err = s.engine.API().ContainerUnpause(t.Context(), "again", client.ContainerUnpauseOptions{})
	check(t, err)
	_, err = s.engine.API().ContainerRename(t.Context(), "again", client.ContainerRenameOptions{NewName: "renamed"})
	check(t, err)
	s.await(t, "renamed", "with what was set", func(c v1.Container) bool { return controlled(c) && c.Policy.Weight == 500 })
}

// testJSON holds what `-o json` prints against what is promised of it.
func (s *site) testJSON(t *testing.T) {
	s.run(t, testbed.RunOptions{Name: "shown", Labels: map[string]string{"weir.min": "1mbit"}})
	s.await(t, "shown", "controlled", controlled)
	row := []string{"id", "name", "runtime", "mode", "policy", "entitled_bps", "rate_bps", "backlog_bytes",
		"sent_bytes", "dropped_packets", "state", "reason", "policy_from"}
	policy := []string{"weight", "min_bps", "max_bps", "priority", "latency_ms", "class"}
	checkRows := func(what string, rows []map[string]any) {
		var names []string
		for _, r := range rows {
			checkKeys(t, what, r, row)
			checkKeys(t, what+" policy", r["policy"], policy)
			names = append(names, fmt.Sprint(r["name"]))
		}
		if want := []string{"twin", "shown", "host"}; !slices.Equal(names, want) {
			t.Errorf("%s lists %v, want %v", what, names, want)
		}
	}
	var ps []map[string]any
	decode(t, s.MustWeir("ps", "-o", "json"), &ps)
	checkRows("weir ps", ps)

	var top struct {
		Status     map[string]any   `json:"status"`
		Containers []map[string]any `json:"containers"`
	}
	decode(t, s.MustWeir("top", "-o", "json"), &top)
	checkRows("weir top", top.Containers)
	checkKeys(t, "weir top status", top.Status,
		[]string{"version", "uplink", "rate_bps", "reserve_bps", "sent_bps", "scheduler", "state", "reason", "sources"})
	if out := s.MustWeir("top", "--once"); !strings.Contains(out, "shown") || !strings.Contains(out, "uplink") {
		t.Errorf("weir top --once prints\n%s", out)
	}

	var findings []map[string]any
	decode(t, s.MustWeir("doctor", "-o", "json"), &findings)
	seen := map[string]string{}
	for _, f := range findings {
		checkKeys(t, "weir doctor", f, []string{"check", "result", "detail"})
		seen[fmt.Sprint(f["check"])] = fmt.Sprint(f["result"])
	}
	for _, name := range []string{"kernel", "privileges", "bpf", "tcx", "htb", "tbf", "fq_codel",
		"bridge", "host", "macvlan", "ipvlan", "overlay", "incoming", "origin", "delay", "flows", "programs", "guards", "docker", "agent"} {
		if result := seen[name]; result != "ok" && result != "limited" {
			t.Errorf("weir doctor says %q of %s", result, name)
		}
	}
	if result := s.Weir("ps", "-o", "yaml"); result.Code != 2 || !strings.Contains(result.Stderr, "yaml") {
		t.Errorf("weir ps -o yaml: %+v", result)
	}
}

func (s *site) testAgentRestart(t *testing.T) {
	s.run(t, testbed.RunOptions{Name: "steady", Labels: map[string]string{"weir.min": "10mbit"}})
	s.run(t, testbed.RunOptions{Name: "stopped", Labels: map[string]string{"weir.min": "80mbit"}})
	s.await(t, "steady", "controlled", controlled)
	s.await(t, "stopped", "controlled", controlled)
	s.MustWeir("set", "steady", "--weight", "900")
	s.agent.Kill()
	check(t, s.engine.Remove(t.Context(), "stopped"))
	s.run(t, testbed.RunOptions{Name: "new", Labels: map[string]string{"weir.min": "80mbit"}})
	s.start(t)
	for name, weight := range map[string]uint32{"steady": 900, "new": 100} {
		if got := s.await(t, name, "controlled", controlled); got.Policy.Weight != weight {
			t.Errorf("after the restart: %+v", got)
		}
	}
	s.agent.AwaitGone("stopped", noticed)
}

// source waits until the agent says that the engine is connected, or not.
func (s *site) source(t *testing.T, connected bool) {
	t.Helper()
	s.Await(fmt.Sprintf("engine connected: %v", connected), engineTimeout, func() (bool, string) {
		for _, source := range s.agent.Status().Sources {
			if source.Name == "docker" {
				return source.Connected == connected && (source.Reason == "") == connected, fmt.Sprintf("%+v", source)
			}
		}
		return false, "no such source"
	})
}

// testEngineRestart: without live restore the engine takes its containers with
// it; those that are known stay until it has said who runs.
func (s *site) testEngineRestart(t *testing.T) {
	c := s.run(t, testbed.RunOptions{Name: "before"})
	s.await(t, "before", "controlled", controlled)
	s.MustWeir("set", "before", "--weight", "333")
	check(t, s.engine.Shutdown(t.Context()))
	s.source(t, false)
	if out := s.MustWeir("top", "--once"); !strings.Contains(out, "docker") {
		t.Errorf("weir top does not tell of the engine:\n%s", out)
	}
	check(t, s.engine.Restart(t.Context()))
	s.source(t, true)
	s.agent.AwaitGone("before", noticed)
	_, err := s.engine.API().ContainerStart(t.Context(), c.ID, client.ContainerStartOptions{})
	check(t, err)
	s.await(t, "before", "with its labels", func(c v1.Container) bool { return controlled(c) && c.Policy.Weight == 100 })
}

func (s *site) testNoEngineAtFirst(t *testing.T) {
	s.agent.Stop()
	check(t, s.engine.Shutdown(t.Context()))
	s.agent = s.LaunchAgent(harness.AgentOptions{Docker: s.engine.Socket()})
	s.Await("an agent", engineTimeout, func() (bool, string) {
		result := s.Weir("ps")
		return result.Code == 0 && strings.Contains(result.Stdout, "twin"), result.Stderr + s.agent.Said()
	})
	s.source(t, false)
	if got := s.agent.Container("twin"); !controlled(got) {
		t.Errorf("a container that no engine knows: %+v", got)
	}
	check(t, s.engine.Restart(t.Context()))
	s.run(t, testbed.RunOptions{Name: "after"})
	s.source(t, true)
	s.await(t, "after", "controlled", controlled)
}

// TestAgentWithLiveRestore: containers that outlive their engine stay as they
// are, on the wire and in `weir ps`, with what was set, through its crash and
// its return. The engine has no docker-proxy.
func TestAgentWithLiveRestore(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.EngineOptions{LiveRestore: true, ExtraArgs: []string{
		"--userland-proxy=false", "--experimental", "--ip6tables", // Docker 27 and later need only the first
	}})
	s.start(t)
	t.Run("a published port", s.testPublishedWithoutProxy)
	c := s.run(t, testbed.RunOptions{Name: "survivor", Labels: map[string]string{"weir.max": "50mbit"}})
	s.await(t, "survivor", "controlled", controlled)
	s.MustWeir("set", "survivor", "--max", "10mbit")
	s.send(t, c, 0, harness.Flood)
	limited := func(when string) {
		t.Helper()
		s.CheckMaximum(0, 10e6, 500*time.Millisecond)
		if got := s.agent.Container("survivor"); !controlled(got) || got.Policy.MaxBPS != 10e6 {
			t.Errorf("%s: %+v", when, got)
		}
	}
	time.Sleep(300 * time.Millisecond)
	limited("with its engine")
	check(t, s.engine.Kill(t.Context()))
	s.source(t, false)
	limited("without its engine")
	check(t, s.engine.Restart(t.Context()))
	s.source(t, true)
	limited("with its engine back")
}

// checkKeys fails when value is no object with these keys.
func checkKeys(t *testing.T, what string, value any, keys []string) {
	t.Helper()
	object, ok := value.(map[string]any)
	if !ok {
		t.Errorf("%s: %v is no object", what, value)
	}
	for _, key := range keys {
		if _, there := object[key]; !there {
			t.Errorf("%s: there is no %q in %v", what, key, object)
		}
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// subnet6 is an IPv6 subnet beside those of the host.
func (s *site) subnet6() netip.Prefix {
	raw := s.Host.PeerAddr6.As16()
	raw[7] = 2
	return netip.PrefixFrom(netip.AddrFrom16(raw), 64).Masked()
}
