//go:build docker

package edge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestRepository: services are pushed, listed, deployed from the repository by an engine
// that does not have them, and taken away; also when the registry is cut off.
func TestRepository(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket()})
	s.start(t, "--repository", localRepository, "--dashboard", localPage)
	t.Run("pushed and deployed", s.testPush)
	t.Run("page and metrics", s.testPage)
	t.Run("a repository that cannot be", s.testBadRepository)
	t.Run("cut off, and resumed", s.testCutOff)
	t.Run("cut off for good", s.testCutOffForGood)
	t.Run("what it sends has a policy", s.testRepositoryPolicy)
	t.Run("down", s.testDown)
}

// localRepository is where the engine gets images; engines take loopback addresses
// without TLS.
const localRepository = "127.0.0.1:7482"

// pushed is a service whose image has that many bytes that cannot be compressed.
func (s *site) pushed(t *testing.T, name string, port, bytes int) edge.Stored {
	t.Helper()
	noise := make([]byte, bytes)
	_, _ = rand.Read(noise)
	path := filepath.Join(s.Dir, "noise")
	if err := os.WriteFile(path, noise, 0o600); err != nil {
		t.Fatal(err)
	}
	image := "example.test/" + name + ":1"
	err := s.engine.ImportService(t.Context(), image, map[string]string{"/bin/weir-lab": harness.LabProgram(t), "/noise": path},
		[]string{"/bin/weir-lab", "traffic", "pages"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(specification(name, image, port, 10, nil))
	if err != nil {
		t.Fatal(err)
	}
	s.must(t, "push", image, "--docker", s.engine.Socket(), "--spec", file(t, text))
	// The engine has it no more.
	if _, err := s.engine.API().ImageRemove(t.Context(), image, client.ImageRemoveOptions{PruneChildren: true}); err != nil {
		t.Fatal(err)
	}
	var list []edge.Stored
	if err := json.Unmarshal([]byte(s.must(t, "services", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	for _, stored := range list {
		if stored.Service == name {
			return stored
		}
	}
	t.Fatalf("it is not in the repository: %+v", list)
	return edge.Stored{}
}

func (s *site) testPush(t *testing.T) {
	s.checkHostAccess(t, repo.ContainerName)
	stored := s.pushed(t, "stored", 8101, 100_000)
	if stored.SizeBytes < 100_000 {
		t.Errorf("got %+v", stored)
	}
	t.Logf("weir-edge services\n%s", s.must(t, "services"))
	began := time.Now()
	s.must(t, "deploy", "stored")
	harness.Await(t, "the service answers", 20*time.Second, func() error { return s.get(8101) })
	t.Logf("answered %v after the deployment, the image fetched", time.Since(began).Round(time.Millisecond))
	found := s.awaitRunning(t, "stored", 1, 10*time.Second)
	if !strings.HasSuffix(found[0].Image, "@"+stored.Digest) {
		t.Errorf("it runs %s", found[0].Image)
	}
	if _, err := s.weirEdge("rm", "--repository", "stored"); err == nil || !strings.Contains(err.Error(), "weir-edge rm stored") {
		t.Errorf("taken away while it is deployed: %v", err)
	}
	s.must(t, "rm", "stored")
	s.must(t, "rm", "--repository", "stored")
	if out := s.must(t, "services"); strings.Contains(out, "stored") {
		t.Errorf("it is still there:\n%s", out)
	}
	// The registry outlives weir-edge, and the next one finds it.
	before := s.repositoryID(t)
	s.manager.kill()
	if got := s.measured(t, found[0].Image); got.TransferSeconds <= 0 || got.Seconds <= 0 || got.ImageBytes < 100_000 || got.ImageBytes > stored.SizeBytes {
		t.Errorf("of the transfer and the start of %s is kept %+v", found[0].Image, got)
	}
	s.start(t, "--repository", localRepository, "--dashboard", localPage)
	if after := s.repositoryID(t); after != before {
		t.Errorf("another weir-edge started it again: %s, %s", before, after)
	}
}

func (s *site) repositoryID(t *testing.T) string {
	t.Helper()
	found, err := s.engine.API().ContainerInspect(t.Context(), repo.ContainerName, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Container.ID
}

// checkHostAccess: a container in the host's network runs where engines map users and have SELinux,
// and nothing is made in the place of a program that is gone.
func (s *site) checkHostAccess(t *testing.T, name string) {
	t.Helper()
	found, err := s.engine.API().ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
	must.Succeed(t, err)
	host := found.Container.HostConfig
	if host.UsernsMode != "host" || !slices.Contains(host.SecurityOpt, "label=disable") {
		t.Errorf("%s: users are mapped %q, security %v", name, host.UsernsMode, host.SecurityOpt)
	}
	if name == repo.ContainerName && len(host.Binds) > 0 {
		t.Errorf("%s: Docker makes what is missing of %v", name, host.Binds)
	}
}

// localPage is where weir-edge shows its page.
const localPage = "127.0.0.1:7483"

// testPage: the page is there for this host, only looks, and /metrics is on the socket.
func (s *site) testPage(t *testing.T) {
	get := func(method, host, path string) (int, string) {
		t.Helper()
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
			inErr := testbed.InNetNS(s.Host.NetNSPath(), func() error {
				conn, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, localPage)
				return nil
			})
			return conn, errors.Join(err, inErr)
		}}
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	if status, body := get("GET", localPage, "/"); status != http.StatusOK || !strings.Contains(body, "edge.js") {
		t.Errorf("the page: %d, %s", status, body)
	}
	if status, body := get("GET", localPage, "/v1/snapshot"); status != http.StatusOK || !strings.Contains(body, `"engine":"docker"`) || !strings.Contains(body, localRepository) {
		t.Errorf("what it asks for: %d, %s", status, body)
	}
	for _, request := range []string{"DELETE /v1/services/stored", "POST /v1/stop", "GET /v1/repository"} {
		method, path, _ := strings.Cut(request, " ")
		if status, body := get(method, localPage, path); status < 400 {
			t.Errorf("%s: %d, %s", request, status, body)
		}
	}
	if status, _ := get("GET", "edge.example", "/"); status != http.StatusMisdirectedRequest {
		t.Errorf("by another name: %d", status)
	}
	if status, body := get("GET", localPage, "/metrics"); status != http.StatusOK || !strings.Contains(body, "weir_edge_node_ready{") {
		t.Errorf("metrics: %d, %s", status, body)
	}
	picture := s.must(t, "top", "--once")
	if !strings.Contains(picture, "1 of 1 nodes are ready") {
		t.Errorf("top shows\n%s", picture)
	}
	t.Logf("weir-edge top --once\n%s", picture)
}

// testBadRepository: an address that is taken, and a repository that another one serves.
func (s *site) testBadRepository(t *testing.T) {
	refused := func(says string, args ...string) {
		t.Helper()
		m := s.launch(t, append([]string{"--socket", filepath.Join(s.Dir, "other.sock")}, args...)...)
		defer m.kill()
		harness.Await(t, says, 40*time.Second, func() error {
			if !strings.Contains(m.log.String(), says) {
				return errNot(m.log.String())
			}
			return nil
		})
	}
	other := filepath.Join(s.Dir, "other")
	refused("the same --state-dir", "--state-dir", other, "--repository", "127.0.0.1:7484")
	refused("the one at which nodes reach this host", "--state-dir", other, "--repository", "0.0.0.0:7484")
	refused("belong together", "--state-dir", other, "--repository", "127.0.0.1:7484", "--repository-key", "x")
	before := s.repositoryID(t)
	s.manager.kill()
	s.start(t)
	if _, err := s.engine.API().ContainerInspect(t.Context(), repo.ContainerName, client.ContainerInspectOptions{}); !cerrdefs.IsNotFound(err) {
		t.Errorf("it runs without an address: %v", err)
	}
	s.manager.kill()
	// Services do not wait for it, and it comes when it can.
	taken, free := takenAddress(t, s)
	s.start(t, "--repository", taken, "--dashboard", localPage)
	if said := s.manager.log.String(); !strings.Contains(said, "address already in use") {
		t.Errorf("it is taken, and weir-edge says %s", said)
	}
	free()
	harness.Await(t, "the repository starts later", 20*time.Second, func() error {
		_, err := s.engine.API().ContainerInspect(t.Context(), repo.ContainerName, client.ContainerInspectOptions{})
		return err
	})
	s.manager.kill()
	s.start(t, "--repository", localRepository, "--dashboard", localPage)
	if s.repositoryID(t) == before {
		t.Error("it runs with the options of before")
	}
}

// takenAddress is an address at which something listens already.
func takenAddress(t *testing.T, s *site) (address string, free func()) {
	t.Helper()
	err := testbed.InNetNS(s.Host.NetNSPath(), func() error {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			address = listener.Addr().String()
			free = func() { listener.Close() }
			t.Cleanup(free)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return address, free
}

// unreliable passes connections on to the repository, and breaks off each that has got
// more than so many bytes, for a number of times, or damages the next byte of each.
type unreliable struct {
	net.Listener
	s     *site
	after int64
	// damages: it goes on, with that byte turned round.
	damages bool
	left    atomic.Int64 // how often it still breaks off
	bytes   atomic.Int64 // passed on to the engine
}

func (s *site) newUnreliable(t *testing.T, after int64, times int64) *unreliable {
	t.Helper()
	return s.startUnreliable(t, &unreliable{s: s, after: after}, times)
}

func (s *site) startUnreliable(t *testing.T, u *unreliable, times int64) *unreliable {
	t.Helper()
	u.left.Store(times)
	err := testbed.InNetNS(s.Host.NetNSPath(), func() (err error) {
		u.Listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		for {
			conn, err := u.Accept()
			if err != nil {
				return
			}
			go u.pass(conn)
		}
	}()
	return u
}

func (u *unreliable) pass(conn net.Conn) {
	defer conn.Close()
	var to net.Conn
	err := testbed.InNetNS(u.s.Host.NetNSPath(), func() (err error) {
		to, err = net.Dial("tcp", localRepository)
		return err
	})
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, conn)
		to.Close()
	}()
	copied, err := io.CopyN(conn, to, u.after)
	u.bytes.Add(copied)
	if err != nil { // all was passed on
		return
	}
	if u.damages {
		one := make([]byte, 1)
		if _, err := io.ReadFull(to, one); err != nil {
			return
		}
		one[0] ^= 0xff
		if _, err := conn.Write(one); err != nil {
			return
		}
	} else if u.left.Add(-1) >= 0 {
		return
	}
	rest, _ := io.Copy(conn, to)
	u.bytes.Add(rest)
}

const largeBytes = 24 << 20

// through deploys a service whose image comes through u.
func (s *site) through(t *testing.T, u *unreliable, stored edge.Stored, port int) error {
	t.Helper()
	return s.deploy(t, specification(stored.Service, repo.Reference(u.Addr().String(), stored.Service, stored.Digest), port, 10, nil))
}

// testCutOff: a transfer that breaks off goes on where it did.
func (s *site) testCutOff(t *testing.T) {
	stored := s.pushed(t, "large", 8102, largeBytes)
	u := s.newUnreliable(t, largeBytes/2, 1)
	if err := s.through(t, u, stored, 8102); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the service answers", 30*time.Second, func() error { return s.get(8102) })
	if u.left.Load() > 0 {
		t.Errorf("nothing was cut off: %d bytes passed", u.bytes.Load())
	}
	if passed := uint64(max(u.bytes.Load(), 0)); passed > stored.SizeBytes+stored.SizeBytes/10 {
		t.Errorf("%d bytes were transferred of an image of %d: it began anew", passed, stored.SizeBytes)
	}
	t.Logf("%d bytes were transferred of an image of %d that was cut off in the middle", u.bytes.Load(), stored.SizeBytes)
	s.must(t, "rm", "large")
}

// testCutOffForGood: who deploys is told, and nothing is half there; nor where bytes are
// others than were pushed.
func (s *site) testCutOffForGood(t *testing.T) {
	stored := s.pushed(t, "lost", 8103, largeBytes)
	s.failsThrough(t, s.newUnreliable(t, 1<<20, 1<<40), stored, "push the image")
	s.failsThrough(t, s.startUnreliable(t, &unreliable{s: s, after: 1 << 20, damages: true}, 0), stored, "verification failed")
	// And when the registry answers again, it works.
	s.must(t, "deploy", "lost")
	harness.Await(t, "the service answers", 30*time.Second, func() error { return s.get(8103) })
	s.must(t, "rm", "lost")
}

// failsThrough deploys a service whose image does not come through u as it was pushed.
func (s *site) failsThrough(t *testing.T, u *unreliable, stored edge.Stored, word string) {
	t.Helper()
	err := s.through(t, u, stored, 8103)
	if err == nil || !strings.Contains(err.Error(), "fetching it failed") || !strings.Contains(err.Error(), word) {
		t.Errorf("it says: %v", err)
	}
	t.Logf("it says: %v", err)
	if events := s.must(t, "events"); !regexp.MustCompile(`failed +` + stored.Service + ` .*fetching it failed`).MatchString(events) {
		t.Errorf("of the image that was pulled events say\n%s", events)
	}
	if list := s.ps(t); len(list) > 0 {
		t.Errorf("there is %+v", list)
	}
	listed, listErr := s.engine.API().ContainerList(t.Context(), client.ContainerListOptions{All: true})
	if listErr != nil {
		t.Fatal(listErr)
	}
	for _, c := range listed.Items {
		if strings.Contains(fmt.Sprint(c.Names), stored.Service) {
			t.Errorf("there is %v", c.Names)
		}
	}
	if _, err := s.engine.API().ImageInspect(t.Context(), repo.Reference(u.Addr().String(), stored.Service, stored.Digest)); err == nil {
		t.Error("half an image is there")
	}
}

// testRepositoryPolicy: what the repository sends is held to its labels.
func (s *site) testRepositoryPolicy(t *testing.T) {
	stored := s.pushed(t, "heavy", 8104, 3_000_000)
	s.manager.kill()
	address := net.JoinHostPort(s.Host.UplinkAddr().String(), "7482")
	s.start(t, "--repository", address, "--repository-label", "weir.max=40mbit,weir.weight=20")
	harness.Await(t, "the agent knows its policy", 10*time.Second, func() error {
		var list []v1.Container
		if err := json.Unmarshal([]byte(s.MustWeir("ps", "-o", "json")), &list); err != nil {
			return err
		}
		for _, c := range list {
			if c.Name == repo.ContainerName && c.Policy.MaxBPS == 40e6 && c.Policy.Weight == 20 && c.State == v1.StateOK {
				return nil
			}
		}
		return errNot(s.MustWeir("ps"))
	})
	asker := &http.Client{Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true}, Timeout: time.Minute}
	get := func(path string, body func(io.Reader) error) {
		t.Helper()
		response, err := asker.Get("http://" + address + "/v2/services/heavy" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if err := body(response.Body); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, response.Status, err)
		}
	}
	var manifest struct {
		Layers []struct {
			Digest string
			Size   int64
		}
	}
	get("/manifests/"+stored.Digest, func(body io.Reader) error { return json.NewDecoder(body).Decode(&manifest) })
	layer := manifest.Layers[0]
	began := time.Now()
	get("/blobs/"+layer.Digest, func(body io.Reader) error {
		n, err := io.Copy(io.Discard, body)
		if err == nil && n != layer.Size {
			err = errors.New("it is shorter")
		}
		return err
	})
	mbit := float64(layer.Size) * 8 / 1e6 / time.Since(began).Seconds()
	t.Logf("a neighbour got %d bytes at %.2f Mbit/s of 40", layer.Size, mbit)
	if mbit > 40.4 || mbit < 5 {
		t.Errorf("%.2f Mbit/s", mbit)
	}
}

// testDown: nothing goes while services are deployed; then everything does.
func (s *site) testDown(t *testing.T) {
	if err := s.deploy(t, specification("last", pagesImage, 8105, 10, nil)); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(t, "last", 1, 15*time.Second)
	s.checkHostAccess(t, "edgeproxy-last")
	down := func(args ...string) error {
		_, err := s.weirEdge(append([]string{"down"}, args...)...)
		return err
	}
	if err := down("--all", "--docker", "/nonexistent/docker.sock"); err == nil || !strings.Contains(err.Error(), s.engine.Socket()) {
		t.Errorf("with another engine: %v", err)
	}
	// It is that of the weir-edge which runs.
	if err := down(); err == nil || !strings.Contains(err.Error(), "last") || !strings.Contains(err.Error(), "--all") {
		t.Errorf("with a service: %v", err)
	}
	if err := s.get(8105); err != nil {
		t.Errorf("a refusal ended the service: %v", err)
	}
	s.ps(t)                          // it still runs
	s.endProfile(t, syscall.SIGKILL) // which leaves its container
	if err := down("--all"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.manager.end:
	case <-time.After(10 * time.Second):
		t.Error("weir-edge still runs")
	}
	listed, err := s.engine.API().ContainerList(context.Background(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range listed.Items {
		t.Errorf("%v is left", c.Names)
	}
	for _, name := range []string{"edge.db", "proxies", "repository"} {
		if _, err := os.Stat(filepath.Join(s.dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	if err := down("--all", "--docker", s.engine.Socket(), "--state-dir", s.dir); err != nil {
		t.Errorf("once more: %v", err)
	}
}
