//go:build docker

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestAgentInEveryMode: containers of real engines in every network mode at
// once, on one uplink.
func TestAgentInEveryMode(t *testing.T) {
	t.Parallel()
	s, far := newSwarm(t)
	s.network(t, testbed.NetworkOptions{Name: "over", Driver: "overlay", Attachable: true})
	s.network(t, s.Host.MacvlanNetwork("mac"))
	s.overlayPeer = runSink(t, far, "over")

	s.startSlow()
	t.Run("shares", s.testSharesInEveryMode)
	t.Run("networks of another mode come and go", s.testOtherMode)
	t.Run("the agent restarts", s.testRestartInEveryMode)
	t.Run("origins", s.testOriginsWatched)
	t.Run("received in an overlay network", s.testReceivedInOverlay)
	t.Run("routing mesh", s.testRoutingMesh)
}

// newSwarm makes a site whose neighbour has an engine too, the other node of a
// swarm, so that what an overlay's containers send leaves through the uplink.
// Its containers have weir at /bin/weir.
func newSwarm(t *testing.T) (s *site, far *testbed.Engine) {
	t.Helper()
	s = newSite(t, testbed.EngineOptions{})
	local, swarm := s.Host.EnginePools()
	far = startEngine(t, testbed.EngineOptions{
		NetNSPath: s.Host.PeerNetNSPath(), BridgeCIDR: s.Host.EngineBridgeCIDR().String(), AddressPool: local.String(),
	})
	check(t, s.engine.InitSwarm(t.Context(), s.Host.UplinkAddr(), swarm))
	check(t, far.JoinSwarm(t.Context(), s.engine, s.Host.PeerAddr))
	check(t, s.engine.ImportBinary(t.Context(), image, map[string]string{"/bin/weir-lab": harness.LabProgram(t)}))
	return s, far
}

// runSink runs a container on the far engine that takes what is sent to it, and
// returns its address.
func runSink(t *testing.T, far *testbed.Engine, network string) netip.Addr {
	t.Helper()
	receiver := mustRun(t, far, testbed.RunOptions{Network: network})
	t.Cleanup(func() { check(t, far.Remove(context.Background(), receiver.ID)) })
	check(t, testbed.InNetNS(receiver.NetNSPath(), func() error {
		sink, err := traffic.NewSink(harness.BasePort, harness.Slots)
		if err == nil {
			t.Cleanup(func() { check(t, sink.Close()) })
		}
		return err
	}))
	return receiver.Addresses[network]
}

// The link is slow, so that a busy machine, too, can offer more than it carries
// from all containers at once.
const (
	slowLink    = "20mbit"
	slowLinkBPS = 20e6
	offered     = "20mbit" // by each sender
)

// startSlow starts an agent that shares out a slow link.
func (s *site) startSlow() {
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket(), Rate: slowLink})
}

// modeContainer is a container and the ways in which it sends.
type modeContainer struct {
	name, network string
	// second is a network it is connected to after its start.
	second string
	mode   v1.Mode
	weight uint64
	to     []netip.Addr
}

func (s *site) modeContainers() []modeContainer {
	peer, peer6, over := s.Host.PeerAddr, s.Host.PeerAddr6, s.overlayPeer
	return []modeContainer{
		{"bridge", "", "", v1.ModeBridge, 200, []netip.Addr{peer}},
		{"on-host", "host", "", v1.ModeHost, 300, []netip.Addr{peer, peer6}},
		{"macvlan", "mac", "", v1.ModeMacvlan, 150, []netip.Addr{peer, peer6}},
		{"overlay", "over", "", v1.ModeOverlay, 250, []netip.Addr{over}},
		// The neighbour's own address is beyond the default route, which is
		// the bridge's.
		{"both", "", "over", v1.ModeBridge, 100, []netip.Addr{peer, over}},
	}
}

func (s *site) runInMode(t *testing.T, m modeContainer) *testbed.EngineContainer {
	t.Helper()
	c := s.run(t, testbed.RunOptions{
		Name: m.name, Network: m.network, Labels: map[string]string{"weir.weight": fmt.Sprint(m.weight)},
	})
	if m.second != "" {
		check(t, s.engine.Connect(t.Context(), m.second, m.name))
	}
	s.await(t, m.name, "controlled", m.controlled)
	return c
}

func (m modeContainer) controlled(c v1.Container) bool {
	return c.State == v1.StateOK && c.Reason == "" && c.Mode == m.mode && c.EntitledBPS > 0
}

// modeTolerance is for a busy machine; a quiet one is exact to two thousandths.
// A container that is taken for another, or the host, is off by tens of percent.
const modeTolerance = 0.015

// testSharesInEveryMode: weights hold between containers of all modes, however
// many ways each of them sends.
func (s *site) testSharesInEveryMode(t *testing.T) {
	const (
		settling  = time.Second // as WarmUp does
		measuring = 2 * time.Second
		// The engine takes a while to start so many processes.
		starting = 6 * time.Second
		sending  = starting + settling + (harness.Patience+1)*measuring
	)
	containers := s.modeContainers()
	var claims []harness.Claim
	slots := make([][]int, len(containers)) // of each container
	slot := 0
	var running []*testbed.EngineContainer
	for _, m := range containers {
		running = append(running, s.runInMode(t, m))
		claims = append(claims, harness.Claim{
			Labels: map[string]string{"weir.weight": fmt.Sprint(m.weight)}, DemandBPS: harness.Unlimited,
		})
	}
	for i, m := range containers {
		c := running[i]
		for _, to := range m.to {
			s.sendInside(t, c, netip.AddrPortFrom(to, uint16(harness.BasePort+slot)), sending)
			slots[i] = append(slots[i], slot)
			slot++
		}
		if m.mode == v1.ModeHost {
			s.sendNested(t, c, netip.AddrPortFrom(m.to[0], uint16(harness.BasePort+slot)), sending)
			slots[i] = append(slots[i], slot)
			slot++
		}
	}
	claims = append(claims, harness.Claim{DemandBPS: 0}) // the host is silent
	ideal, err := harness.Ideal(slowLinkBPS, claims)
	check(t, err)

	for i := range slot {
		s.AwaitTraffic(i, starting)
	}
	s.WarmUp()
	s.Check(measuring, func(m harness.Measurement) error {
		bySlot := m.BPS
		clear(m.BPS[:])
		for i, container := range containers {
			for _, slot := range slots[i] {
				m.BPS[i] += bySlot[slot]
			}
			t.Logf("%s: %.3f Mbit/s, ideal %.3f: %+.2f %%", container.name, m.BPS[i]/1e6, float64(ideal[i])/1e6, 100*(m.BPS[i]/float64(ideal[i])-1))
		}
		return harness.CheckSharesWithin(modeTolerance, slowLinkBPS, m, ideal)
	})
	for _, container := range containers {
		if got := s.agent.Container(container.name); !container.controlled(got) || got.SentBytes == 0 {
			t.Errorf("got %+v", got)
		}
	}
}

// payloadBytes fits a frame of every network and leaves room for VXLAN and ESP.
const payloadBytes = 1300

// sendInside lets a process of a container's send more than its share. wait
// waits for its end.
func (s *site) sendInside(t *testing.T, c *testbed.EngineContainer, to netip.AddrPort, duration time.Duration) (wait func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := s.engine.Exec(context.WithoutCancel(t.Context()), c.ID, append([]string{"/bin/weir-lab"}, sendArgs(to, duration)...)...)
		done <- err
	}()
	wait = sync.OnceFunc(func() { check(t, <-done) })
	t.Cleanup(wait)
	return wait
}

func sendArgs(to netip.AddrPort, duration time.Duration) []string {
	return []string{
		"traffic", "send", "--to", to.String(), "--protocol", "udp", "--rate", offered,
		"--payload", fmt.Sprint(payloadBytes), "--duration", duration.String(),
	}
}

// sendNested is sendInside for a process in a cgroup below the container's, as
// an init system in the container would make it.
func (s *site) sendNested(t *testing.T, c *testbed.EngineContainer, to netip.AddrPort, duration time.Duration) {
	t.Helper()
	found, err := filepath.Glob("/sys/fs/cgroup/*/*/" + c.ID + "/cgroup.threads")
	if err != nil || len(found) != 1 {
		t.Fatalf("the cgroup of %s: %v, %v", c.Name, found, err)
	}
	nested := filepath.Join(filepath.Dir(found[0]), "nested")
	check(t, os.Mkdir(nested, 0o755))
	args := append([]string{"-c", `echo 0 >"$0"/cgroup.procs && exec "$@"`, nested, harness.LabProgram(t)}, sendArgs(to, duration)...)
	sender := s.Host.Command(context.WithoutCancel(t.Context()), "sh", args...)
	var stderr strings.Builder
	sender.Stderr = &stderr
	check(t, sender.Start())
	t.Cleanup(func() {
		if err := sender.Wait(); err != nil {
			t.Errorf("send from a nested cgroup: %v: %s", err, stderr.String())
		}
		check(t, os.Remove(nested))
	})
}

// TestEncryptedOverlay: IPsec wraps the outer packets of an overlay network
// that Docker encrypts, and they still count for their container.
func TestEncryptedOverlay(t *testing.T) {
	t.Parallel()
	harness.NeedESP(t)
	s, far := newSwarm(t)
	s.network(t, testbed.NetworkOptions{
		Name: "secret", Driver: "overlay", Attachable: true, Options: map[string]string{"encrypted": ""},
	})
	to := runSink(t, far, "secret")
	s.startSlow()
	for slot, weight := range []uint64{100, 300} {
		m := modeContainer{
			name: fmt.Sprint("weight", weight), network: "secret", mode: v1.ModeOverlay, weight: weight,
		}
		c := s.runInMode(t, m)
		s.sendInside(t, c, netip.AddrPortFrom(to, uint16(harness.BasePort+slot)), 10*time.Second)
	}
	s.CheckEncrypted(s.agent, map[string]float64{"weight100": slowLinkBPS / 4, "weight300": slowLinkBPS / 4 * 3})
}

// testOtherMode: a container that gets networks of other modes while it runs
// stays under control, and its maximum holds through each of them.
func (s *site) testOtherMode(t *testing.T) {
	c := s.run(t, testbed.RunOptions{Name: "mobile", Labels: map[string]string{"weir.max": "5mbit"}})
	s.await(t, "mobile", "controlled", controlled)
	for slot, step := range []struct {
		leave, join string
		mode        v1.Mode
		to          netip.Addr
	}{
		{"bridge", "mac", v1.ModeMacvlan, s.Host.PeerAddr},
		{"mac", "over", v1.ModeOverlay, s.overlayPeer},
		{"over", "bridge", v1.ModeBridge, s.Host.PeerAddr},
	} {
		check(t, s.engine.Disconnect(t.Context(), step.leave, "mobile"))
		check(t, s.engine.Connect(t.Context(), step.join, "mobile"))
		s.await(t, "mobile", "in the other network", func(c v1.Container) bool {
			return c.State == v1.StateOK && c.Mode == step.mode && c.Policy.MaxBPS == 5e6
		})
		s.CheckMeasured(time.Second, func(duration time.Duration) harness.Measurement {
			wait := s.sendInside(t, c, netip.AddrPortFrom(step.to, uint16(harness.BasePort+slot)), duration+1500*time.Millisecond)
			defer wait()
			s.AwaitTraffic(slot, noticed)
			time.Sleep(300 * time.Millisecond)
			return s.MeasureFor(duration)
		}, func(m harness.Measurement) error {
			if err := harness.CheckMaximum(m, slot, 5e6); err != nil {
				return fmt.Errorf("through %s: %w", step.join, err)
			}
			return nil
		})
	}
}

// testOriginsWatched: the kernel watches where packets come from only while a
// container of the macvlan network may have CAP_NET_ADMIN there.
func (s *site) testOriginsWatched(t *testing.T) {
	watched := func(want bool) {
		t.Helper()
		s.Await("tracepoints", 10*time.Second, func() (bool, string) {
			return s.agent.Tracing() == want, fmt.Sprintf("held: %t", !want)
		})
	}
	inMacvlan := modeContainer{mode: v1.ModeMacvlan}.controlled
	watched(false)
	s.run(t, testbed.RunOptions{Name: "plain", Network: "mac"})
	s.await(t, "plain", "controlled", inMacvlan)
	watched(false)
	admin := s.run(t, testbed.RunOptions{Name: "admin", Network: "mac", Capabilities: []string{"NET_ADMIN"}})
	s.await(t, "admin", "controlled", inMacvlan)
	watched(true)
	check(t, s.engine.Remove(t.Context(), admin.ID))
	watched(false)
	joined := s.run(t, testbed.RunOptions{Name: "joined", Network: "container:plain", Capabilities: []string{"NET_ADMIN"}})
	watched(true)
	check(t, s.engine.Remove(t.Context(), joined.ID))
	watched(false)
}

// testRestartInEveryMode: a new agent takes over all of them.
func (s *site) testRestartInEveryMode(t *testing.T) {
	containers := s.modeContainers()
	for _, m := range containers {
		s.runInMode(t, m)
	}
	s.agent.Kill()
	s.startSlow()
	for _, m := range containers {
		s.await(t, m.name, "controlled by the new agent", m.controlled)
	}
}

// testReceivedInOverlay: what a container receives by an overlay network is counted as its own; of one
// that Docker encrypts weir ps says that it is not.
func (s *site) testReceivedInOverlay(t *testing.T) {
	s.agent.Kill()
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket(), Rate: slowLink, Args: []string{"--in-rate", slowLink}})
	t.Cleanup(func() {
		s.agent.Kill()
		s.startSlow()
	})
	s.network(t, testbed.NetworkOptions{
		Name: "hidden", Driver: "overlay", Attachable: true, Options: map[string]string{"encrypted": ""},
	})
	s.run(t, testbed.RunOptions{Name: "encrypted", Network: "hidden"})
	s.await(t, "encrypted", "degraded", func(c v1.Container) bool {
		return c.State == v1.StateDegraded && strings.Contains(c.Reason, "encryption hides")
	})
	c := s.run(t, testbed.RunOptions{Name: "open", Network: "over"})
	s.await(t, "open", "controlled", modeContainer{mode: v1.ModeOverlay}.controlled)
	if out, err := s.engine.Exec(t.Context(), c.ID, "/bin/busybox", "ping", "-c", "3", "-s", "1000", s.overlayPeer.String()); err != nil {
		t.Fatalf("ping: %v: %s", err, out)
	}
	s.await(t, "open", "given its answers", func(c v1.Container) bool { return c.In != nil && c.In.SentBytes >= 3*1000 })
	s.testReceivedByService(t)
}

// testReceivedByService: what users send to the port that a task publishes at its node is counted as the task's.
func (s *site) testReceivedByService(t *testing.T) {
	const port = 8091
	remove := s.runService(t, "taker", swarm.PortConfigPublishModeHost, port, countsInput...)
	defer remove()
	s.Await("taker controlled", engineTimeout, func() (bool, string) {
		c := s.taskOf(t, "taker")
		return c != nil && c.State == v1.StateOK, fmt.Sprintf("%+v", s.list(t))
	})
	s.upload(t, netip.AddrPortFrom(s.Host.UplinkAddr(), port))
	s.Await("taker given what was sent to it", noticed, func() (bool, string) {
		c := s.taskOf(t, "taker")
		return c != nil && c.In.SentBytes >= uploadBytes, fmt.Sprintf("%+v", s.list(t))
	})
}

// countsInput is a service at port 80 that answers with the number of bytes it got.
var countsInput = []string{"/bin/busybox", "nc", "-ll", "-p", "80", "-e", "/bin/busybox", "wc"}

// taskOf returns the task of a service, nil while none receives.
func (s *site) taskOf(t *testing.T, service string) *v1.Container {
	t.Helper()
	for _, c := range s.list(t) {
		if strings.HasPrefix(c.Name, service+".") && c.In != nil {
			return &c
		}
	}
	return nil
}

const uploadBytes = 300_000

// upload sends uploadBytes from the neighbour to a service of countsInput, and returns when that has all. A task runs
// before its program listens.
func (s *site) upload(t *testing.T, to netip.AddrPort) {
	t.Helper()
	harness.Await(t, "an upload", engineTimeout, func() error {
		return testbed.InNetNS(s.Host.PeerNetNSPath(), func() error {
			conn, err := net.DialTimeout("tcp", to.String(), engineTimeout)
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write(make([]byte, uploadBytes))
			if err := errors.Join(err, conn.(*net.TCPConn).CloseWrite(), conn.SetReadDeadline(time.Now().Add(engineTimeout))); err != nil {
				return err
			}
			answer, err := io.ReadAll(conn) // wc answers when it has all
			if err == nil && !strings.Contains(string(answer), strconv.Itoa(uploadBytes)) {
				err = fmt.Errorf("it counts %q", answer)
			}
			return err
		})
	})
}

// TestRoutingMesh: what users send to a port of Swarm's routing mesh is the host's at the node that they address, also if
// that runs the task. What another node passes on to the task's is the task's there.
func TestRoutingMesh(t *testing.T) {
	t.Parallel()
	_ = exec.CommandContext(t.Context(), "modprobe", "ip_vs").Run() // as the engine does
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		t.Skip("this kernel has no IPVS, which Swarm's routing mesh needs")
	}
	s, far := newSwarm(t)
	forwardInMesh(t, s.engine)
	forwardInMesh(t, far)
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket(), Rate: slowLink, Args: []string{"--in-rate", slowLink}})
	const port = 8092
	s.runService(t, "meshed", swarm.PortConfigPublishModeIngress, port, countsInput...)
	s.Await("meshed controlled", engineTimeout, func() (bool, string) {
		return s.taskOf(t, "meshed") != nil, fmt.Sprintf("%+v", s.list(t))
	})
	received := func() (task, host uint64, known bool) {
		c := s.taskOf(t, "meshed")
		if c == nil {
			return 0, 0, false
		}
		return c.In.SentBytes, s.agent.Container("host").In.SentBytes, true
	}
	for node, of := range map[string]struct {
		addr   netip.Addr
		byTask bool
	}{
		"the task's": {s.Host.UplinkAddr(), false},
		"another":    {s.Host.PeerAddr, true},
	} {
		t.Run(node, func(t *testing.T) {
			taskBefore, hostBefore, known := received()
			if !known {
				t.Fatalf("the task is not controlled any more: %+v", s.list(t))
			}
			s.upload(t, netip.AddrPortFrom(of.addr, port))
			s.Await("counted", noticed, func() (bool, string) {
				task, host, known := received()
				if !known {
					return false, fmt.Sprintf("the task is not controlled: %+v", s.list(t))
				}
				task, host = task-taskBefore, host-hostBefore
				most, least := max(task, host), min(task, host)
				return (task > host) == of.byTask && most >= uploadBytes && least < uploadBytes/2, fmt.Sprintf("the task has %d, the host %d", task, host)
			})
		})
	}
}

// forwardInMesh lets a node's sandbox of the routing mesh forward answers. New namespaces forward if the machine's
// own does, where dockerd usually runs and switches it on; an engine of a test switches it on in a namespace of its own.
func forwardInMesh(t *testing.T, node *testbed.Engine) {
	t.Helper()
	harness.Await(t, "the routing mesh's sandbox", engineTimeout, func() error {
		return testbed.InNetNS(filepath.Join(node.Root(), "run/docker/netns/ingress_sbox"), func() error {
			return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
		})
	})
}

// runService runs a service with one task, on the agent's node, whose port 80 is published.
func (s *site) runService(t *testing.T, name string, mode swarm.PortConfigPublishMode, port uint32, command ...string) (remove func()) {
	t.Helper()
	found, err := s.engine.API().ImageInspect(t.Context(), image)
	must.Succeed(t, err)
	created, err := s.engine.API().ServiceCreate(t.Context(), client.ServiceCreateOptions{Spec: swarm.ServiceSpec{
		Annotations: swarm.Annotations{Name: name},
		TaskTemplate: swarm.TaskSpec{
			ContainerSpec: &swarm.ContainerSpec{Image: found.ID, Command: command},
			Placement:     &swarm.Placement{Constraints: []string{"node.role==manager"}},
		},
		EndpointSpec: &swarm.EndpointSpec{Ports: []swarm.PortConfig{
			{Protocol: network.TCP, TargetPort: 80, PublishedPort: port, PublishMode: mode},
		}},
	}})
	must.Succeed(t, err)
	remove = sync.OnceFunc(func() {
		_, err := s.engine.API().ServiceRemove(context.Background(), created.ID, client.ServiceRemoveOptions{})
		check(t, err)
	})
	t.Cleanup(remove)
	return remove
}

// testRoutingMesh: a container behind Swarm's routing mesh is degraded; one with a port published at its
// node is ok.
func (s *site) testRoutingMesh(t *testing.T) {
	for mode, want := range map[swarm.PortConfigPublishMode]v1.State{
		swarm.PortConfigPublishModeIngress: v1.StateDegraded, swarm.PortConfigPublishModeHost: v1.StateOK,
	} {
		name := "by-" + string(mode)
		remove := s.runService(t, name, mode, 8090, "/bin/busybox", "sleep", "600")
		s.Await(name+" "+string(want), engineTimeout, func() (bool, string) {
			for _, c := range s.list(t) {
				if strings.HasPrefix(c.Name, name+".") {
					return c.State == want && strings.Contains(c.Reason, "publish them with mode=host") == (want != v1.StateOK), fmt.Sprintf("%+v", c)
				}
			}
			tasks, err := s.engine.API().TaskList(t.Context(), client.TaskListOptions{})
			return false, fmt.Sprintf("no container; tasks %+v, %v", tasks.Items, err)
		})
		remove()
	}
}
