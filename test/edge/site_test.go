//go:build docker

package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// programVariable names weir-edge; `make test` sets it.
const programVariable = "WEIR_EDGE_BIN"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	remove, err := harness.Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	if os.Getenv(programVariable) == "" {
		dir, err := testbed.MakeTempDir()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "weir-edge")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "github.com/weir-project/weir/cmd/weir-edge")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build weir-edge: %v\n%s", err, out)
			return 1
		}
		os.Setenv(programVariable, path)
	}
	return m.Run()
}

// pagesImage serves pages: four workers that take 20 ms each, and room for eight more.
const pagesImage = "example.test/pages:1"

// site is a host with an engine, an agent and a weir-edge, and users next door.
type site struct {
	*harness.Bed
	// engine is the manager's, one of engines.
	engine  *testbed.Engine
	engines []*testbed.Engine
	agent   *harness.Agent
	client  *server.Client
	dir     string
	// small is a folder on a file system of 512 kB.
	small string
	// t is the test that the site lasts for.
	t *testing.T

	manager *manager
}

// manager is one run of weir-edge.
type manager struct {
	cmd *exec.Cmd
	log *logBuffer
	end chan struct{}
	// trace is where it writes down what it decides by; empty: nowhere.
	trace string
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Bed: harness.NewBed(t, testbed.HostOptions{}), t: t}
	// Before the engine, which has a mount namespace of its own and must see it.
	s.small = filepath.Join(s.Dir, "small")
	if err := os.Mkdir(s.small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(testbed.MountName(), s.small, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(s.small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	local, _ := s.Host.EnginePools()
	engine, err := testbed.StartEngine(t.Context(), testbed.EngineOptions{
		NetNSPath: s.Host.NetNSPath(), BridgeCIDR: s.Host.EngineBridgeCIDR().String(), AddressPool: local.String(),
		ExtraArgs: []string{"--max-download-attempts=3"}, // a registry that is gone is given up sooner
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.engine = engine
	s.importPages(t, pagesImage, "--work", "20ms", "--workers", "4", "--queue", "8", "--bytes", "2000")
	s.dir = filepath.Join(s.Dir, "edge")
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.client = server.NewClient(s.socket())
	return s
}

func (s *site) socket() string { return filepath.Join(s.dir, "edge.sock") }

func (s *site) importPages(t *testing.T, image string, args ...string) {
	t.Helper()
	command := append([]string{"/bin/weir-lab", "traffic", "pages"}, args...)
	if err := s.engine.ImportService(t.Context(), image, map[string]string{"/bin/weir-lab": harness.LabProgram(t)}, command); err != nil {
		t.Fatal(err)
	}
}

// start starts weir-edge and waits until it answers.
func (s *site) start(t *testing.T, args ...string) *manager {
	t.Helper()
	m := s.launch(t, append([]string{"--socket", s.socket(), "--state-dir", s.dir}, args...)...)
	s.manager = m
	harness.Await(t, "weir-edge answers", time.Minute, func() error {
		nodes, err := s.client.Nodes(t.Context())
		if err == nil && len(nodes) == 0 {
			err = fmt.Errorf("it knows no node yet")
		}
		return err
	})
	return m
}

func (s *site) launch(t *testing.T, args ...string) *manager {
	t.Helper()
	all := append([]string{"run", "--docker", s.engine.Socket(), "--agent", s.Files.Socket()}, args...)
	return s.begin(t, &manager{cmd: s.Host.Command(context.Background(), os.Getenv(programVariable), all...)}, s.engine)
}

// begin starts a weir-edge for as long as the site lasts. After a failure it and the containers of
// engines say what they said.
func (s *site) begin(t *testing.T, m *manager, engines ...*testbed.Engine) *manager {
	t.Helper()
	m.log, m.end = &logBuffer{}, make(chan struct{})
	m.cmd.Stderr = m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = m.cmd.Wait()
		close(m.end)
	}()
	s.t.Cleanup(func() {
		m.kill()
		if s.t.Failed() && m == s.manager {
			s.t.Logf("weir-edge said:\n%s", m.log)
			for _, engine := range engines {
				logProxies(s.t, engine)
			}
		}
	})
	return m
}

// logProxies is what containers of weir-edge said.
func logProxies(t *testing.T, engine *testbed.Engine) {
	listed, err := engine.API().ContainerList(context.Background(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Log(err)
		return
	}
	for _, c := range listed.Items {
		var out bytes.Buffer
		if logs, err := engine.API().ContainerLogs(context.Background(), c.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"}); err == nil {
			_, _ = stdcopy.StdCopy(&out, &out, logs)
			logs.Close()
		}
		t.Logf("%s (%s) said:\n%s", c.Names, c.Status, out.String())
	}
}

func (m *manager) kill() {
	_ = m.cmd.Process.Kill() // fails if it has ended
	<-m.end
}

// weirEdge runs a command as a user would, who gives up after two minutes.
func (s *site) weirEdge(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv(programVariable), append(args, "--socket", s.socket())...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("weir-edge %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

func (s *site) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.weirEdge(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// deploy deploys what differs from the usual specification.
func (s *site) deploy(t *testing.T, document map[string]any) error {
	t.Helper()
	_, err := s.weirEdge("deploy", file(t, marshal(t, document)))
	return err
}

func marshal(t *testing.T, document map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func file(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "specification.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func specification(name, image string, port int, maxUsers int, labels map[string]string) map[string]any {
	return map[string]any{
		"par":    map[string]any{"serviceName": name, "imageName": image, "maxUsers": maxUsers},
		"QoS":    map[string]any{"responseTime": "2"},
		"ports":  []any{map[string]any{"host": port, "container": 80}},
		"labels": labels,
	}
}

// ps returns what weir-edge ps shows, without the time that a program takes to start.
func (s *site) ps(t *testing.T) []edge.Instance {
	t.Helper()
	list, err := s.client.Instances(t.Context())
	must.Succeed(t, err)
	return list
}

// awaitRunning waits until so many instances of a service answer, and no others are
// there.
func (s *site) awaitRunning(t *testing.T, service string, count int, patience time.Duration) []edge.Instance {
	t.Helper()
	var found []edge.Instance
	answered := false
	defer func() {
		if !answered {
			s.logSilent(t, found)
		}
	}()
	harness.Await(t, fmt.Sprintf("%d instances of %s answer", count, service), patience, func() error {
		found = nil
		for _, i := range s.ps(t) {
			if i.Service == service {
				found = append(found, i)
			}
		}
		for _, i := range found {
			if i.State != "running" {
				return fmt.Errorf("there are %+v", found)
			}
		}
		if len(found) != count {
			return fmt.Errorf("there are %+v", found)
		}
		return nil
	})
	answered = true
	return found
}

// logSilent says what may be wrong with instances that do not answer: what their engine and
// their node's agent say of them.
func (s *site) logSilent(t *testing.T, instances []edge.Instance) {
	for _, i := range instances {
		if i.State == "running" {
			continue
		}
		for _, engine := range s.engines {
			inspected, err := engine.API().ContainerInspect(context.Background(), i.ContainerID, client.ContainerInspectOptions{})
			if err != nil {
				continue // it is another engine's
			}
			c := inspected.Container
			t.Logf("%s: %+v, ports %+v", i.Instance, c.State, c.NetworkSettings.Ports)
			ports, _ := engine.Command("sh", "-c", "ss -tlnp; iptables -t nat -S | grep DNAT; ip -br addr").CombinedOutput()
			t.Logf("its node has:\n%s", ports)
		}
	}
}

// url is a service's address for users.
func (s *site) url(port int) string {
	return fmt.Sprintf("http://%s/", net.JoinHostPort(s.Host.UplinkAddr().String(), fmt.Sprint(port)))
}

// dial connects from the neighbour.
func (s *site) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialFrom(ctx, s.Host.PeerNetNSPath(), 5*time.Second, network, address)
}

// dialFrom connects from a network namespace.
func dialFrom(ctx context.Context, netns string, timeout time.Duration, network, address string) (conn net.Conn, err error) {
	inErr := testbed.InNetNS(netns, func() error {
		// Not by DialContext's goroutines, which would be in another namespace: an
		// address and a port need no resolver, and the socket is made right here.
		conn, err = (&net.Dialer{Timeout: timeout, FallbackDelay: -1}).DialContext(ctx, network, address)
		return nil
	})
	if inErr != nil {
		return nil, inErr
	}
	return conn, err
}

func (s *site) crowd(port, users int) profile.Crowd {
	return profile.Crowd{URL: s.url(port), Users: users, Timeout: 5 * time.Second, Dial: s.dial}
}

// get asks once, as a user does.
func (s *site) get(port int) error { return get(s.url(port), s.dial) }

func get(url string, dial func(ctx context.Context, network, address string) (net.Conn, error)) error {
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	return nil
}
