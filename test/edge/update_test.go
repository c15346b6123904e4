//go:build docker

package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/runtime/docker"
	"github.com/weir-project/weir/internal/edge/runtime/swarm"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// Versions of a service: pages of different sizes, one that does not answer, and one that ends at once.
const (
	firstImage, secondImage = "example.test/versions:1", "example.test/versions:2"
	silentImage             = "example.test/silent:1"
	brokenImage             = "example.test/broken:1"
	firstBytes, secondBytes = 2000, 3000
)

// importVersions makes images of all versions. Their pages take long enough for users who ask without a pause to
// leave the processors to others.
func (s *site) importVersions(t *testing.T) {
	t.Helper()
	for image, bytes := range map[string]int{firstImage: firstBytes, secondImage: secondBytes} {
		s.importPages(t, image, "--work", "40ms", "--workers", "64", "--queue", "64", "--bytes", fmt.Sprint(bytes))
	}
	must.Succeed(t, s.engine.ImportBinary(t.Context(), silentImage, nil))
}

// version is a service of two instances, of one of the images.
func version(image string) map[string]any {
	s := specification("shop", image, 8080, 40, nil)
	s["QoS"] = map[string]any{"responseTime": "2", "numUsers": 80}
	return s
}

// deployAndWait deploys a service and returns how that ended, and how long it took.
func (s *site) deployAndWait(t *testing.T, document map[string]any) (string, time.Duration, error) {
	t.Helper()
	began := time.Now()
	out, err := s.weirEdge("deploy", "--wait", file(t, marshal(t, document)))
	return out, time.Since(began).Round(10 * time.Millisecond), err
}

// TestUpdate: a service that is deployed again changes under its users, who miss no answer; one that
// does not answer goes back by itself.
func TestUpdate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.importVersions(t)
	s.start(t)
	out, took, err := s.deployAndWait(t, version(firstImage))
	must.Succeed(t, err)
	if !strings.Contains(out, "shop answers") {
		t.Errorf("it says %q", out)
	}
	t.Logf("it answers after %v", took)
	s.awaitRunning(t, "shop", 2, 10*time.Second)
	leave := s.strictCrowd(t, s.crowd(8080, 50))
	out, took, err = s.deployAndWait(t, version(secondImage))
	must.Succeed(t, err)
	t.Logf("updated after %v: %s\n%s", took, out, s.must(t, "ps"))
	s.mustServe(t, secondImage, secondBytes)
	_, took, err = s.deployAndWait(t, version(silentImage))
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "goes back to the one before") || !strings.Contains(err.Error(), "has not answered for") {
		t.Errorf("a version that does not answer: %v", err)
	}
	t.Logf("gone back after %v: %v", took, err)
	harness.Await(t, "the version before is alone again", 20*time.Second, func() error {
		for _, i := range s.ps(t) {
			if i.Image != secondImage || i.State != "running" {
				return errNot(s.must(t, "ps"))
			}
		}
		return nil
	})
	s.mustServe(t, secondImage, secondBytes)
	leave()
	if events := s.must(t, "events"); !strings.Contains(events, "goes back to the one before: shop-") {
		t.Errorf("nothing says that it went back:\n%s", events)
	}
	if out, _, err := s.deployAndWait(t, version(secondImage)); err != nil || !strings.Contains(out, "is there already") {
		t.Errorf("the same again: %s, %v", out, err)
	}
	s.mustLose(t, s.runtime(t), version(firstImage))
	t.Run("two at once", s.testTwoUpdates)
}

// runtime is what another weir-edge on this engine, with files of its own, changes services with.
func (s *site) runtime(t *testing.T) runtime.Runtime {
	t.Helper()
	rt, err := docker.New(docker.Options{Socket: s.engine.Socket(), Dir: t.TempDir()})
	must.Succeed(t, err)
	t.Cleanup(func() { rt.Close() })
	return rt
}

// mustLose has another weir-edge look at the shop before it is updated and write after that: it loses.
func (s *site) mustLose(t *testing.T, other runtime.Runtime, next map[string]any) {
	t.Helper()
	shop := func() runtime.Service {
		state, err := other.Look(t.Context())
		must.Succeed(t, err)
		i := slices.IndexFunc(state.Services, func(s runtime.Service) bool { return s.Name == "shop" })
		if i < 0 {
			t.Fatalf("the other weir-edge does not see the shop: %+v", state.Services)
		}
		return state.Services[i]
	}
	was := shop()
	_, _, err := s.deployAndWait(t, next)
	must.Succeed(t, err)
	is := shop()
	if err := other.Update(t.Context(), was, was); !errors.Is(err, runtime.ErrChanged) {
		t.Errorf("an update of the version before: %v", err)
	}
	if now := shop(); !now.Is(&is) || is.Is(&was) {
		t.Errorf("it is %+v, and was %+v", now, is)
	}
}

// testTwoUpdates: of two weir-edge that deploy different versions at the same time each succeeds or says
// that the other was faster, and all instances are of one version in the end.
func (s *site) testTwoUpdates(t *testing.T) {
	socket := filepath.Join(s.Dir, "edge2.sock")
	second := s.launch(t, "--socket", socket, "--state-dir", filepath.Join(s.Dir, "edge2"))
	defer second.kill()
	harness.Await(t, "the second answers", 20*time.Second, func() error {
		_, err := server.NewClient(socket).Nodes(t.Context())
		return err
	})
	lost := 0
	for range 3 {
		results := make(chan error, 2)
		for image, to := range map[string]string{firstImage: s.socket(), secondImage: socket} {
			document := file(t, marshal(t, version(image)))
			go func() {
				out, err := exec.Command(os.Getenv(programVariable), "deploy", "--socket", to, document).CombinedOutput()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				results <- err
			}()
		}
		for range 2 {
			if err := <-results; err != nil && strings.Contains(err.Error(), "was changed by another weir-edge meanwhile") {
				lost++
			} else if err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d of 6 deployments said that the other was faster", lost)
	steady := time.Time{}
	harness.Await(t, "one version for three seconds", time.Minute, func() error {
		list, images := s.ps(t), map[string]bool{}
		for _, i := range list {
			images[i.Image+i.State] = true
		}
		switch {
		case len(list) != 2 || len(images) != 1 || list[0].State != "running":
			steady = time.Time{}
		case steady.IsZero():
			steady = time.Now()
		}
		if steady.IsZero() || time.Since(steady) < 3*time.Second {
			return errNot(s.must(t, "ps"))
		}
		return nil
	})
}

// mustServe checks that all instances are of an image, and users get its pages.
func (s *site) mustServe(t *testing.T, image string, bytes int64) {
	t.Helper()
	for _, i := range s.ps(t) {
		if i.Image != image {
			t.Errorf("%s runs %s", i.Instance, i.Image)
		}
	}
	user := http.Client{Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := user.Get(s.url(8080))
	must.Succeed(t, err)
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); n != bytes || err != nil {
		t.Errorf("a page has %d bytes, not %d: %v", n, bytes, err)
	}
}

// strictCrowd lets users come, each of whose requests is a connection of its own: nothing is asked
// twice. The function that it returns ends that, and fails if one request had no answer.
func (s *site) strictCrowd(t *testing.T, crowd profile.Crowd) (leave func()) {
	crowd.Fresh = true
	crowd.Timeout *= harness.Patience // a machine that stands still loses no answer
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan profile.Answers, 1)
	go func() { answers <- crowd.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		got := <-answers
		t.Logf("%d users: %d requests, %d without an answer; on average %v, 95 %% within %v", crowd.Users, got.Requests, got.Failed, got.Mean, got.P95)
		if got.Requests == 0 || got.Failed > 0 {
			t.Errorf("%d of %d requests failed: %v", got.Failed, got.Requests, got.LastError)
		}
	}
}

// volumeFile is a service with a volume of this node.
const volumeFile = `
name: home
services:
  db:
    image: example.test/silent:1
    command: [sh, -c, "mkdir -p /data && %s"]
    volumes: ["data:/data"]
    ports: ["8203:5432"]
volumes: {data: {}}
`

// TestUpdateVolume: a service with a local volume ends its old instance first, and deploy announces the
// gap.
func TestUpdateVolume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	must.Succeed(t, s.engine.ImportBinary(t.Context(), silentImage, nil))
	s.start(t)
	path := filepath.Join(t.TempDir(), "compose.yaml")
	deploy := func(command string) (string, error) {
		must.Succeed(t, os.WriteFile(path, fmt.Appendf(nil, volumeFile, command), 0o600))
		return s.weirEdge("deploy", "--wait", path)
	}
	_, err := deploy("exec httpd -f -p 5432 -h /data")
	must.Succeed(t, err)
	_, err = deploy("date >/data/now && exec httpd -f -p 5432 -h /data")
	must.Succeed(t, err)
	said := s.must(t, "events")
	for _, want := range []string{"it ends before the new one starts, and users wait for that long", "; users were without it for "} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing says %q:\n%s", want, said)
		}
	}
	_, err = deploy("exec sleep 3600")
	if err == nil || !strings.Contains(err.Error(), "goes back to the one before") {
		t.Errorf("a version that does not answer: %v", err)
	}
	list := s.awaitRunning(t, "home-db", 1, 30*time.Second)
	if explained := s.must(t, "explain", "home-db"); !strings.Contains(list[0].Reason, "kept here by the volume home_data") || !strings.Contains(explained, "kept here by the volume home_data") {
		t.Errorf("ps says %q, explain\n%s", list[0].Reason, explained)
	}
	t.Logf("weir-edge events\n%s", s.must(t, "events"))
}

// portFile is a service with a port of this node, past the proxy.
const portFile = `
name: home
services:
  dns:
    image: example.test/silent:1
    command: [sh, -c, "echo %s >/index.html && exec httpd -f -p 5432 -h /"]
    ports: [{target: 5432, published: 8205, mode: host}]
    stop_grace_period: 8s
`

// TestUpdatePort: a service with a port of the host ends its old instance before the new one starts, and
// weir-edge says for how long a user missed it: not while the old one takes its time to end.
func TestUpdatePort(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	must.Succeed(t, s.engine.ImportBinary(t.Context(), silentImage, nil))
	s.start(t)
	path := filepath.Join(t.TempDir(), "compose.yaml")
	deploy := func(page string) {
		must.Succeed(t, os.WriteFile(path, fmt.Appendf(nil, portFile, page), 0o600))
		s.must(t, "deploy", "--wait", path)
	}
	user := http.Client{Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true}, Timeout: time.Second}
	page := func() string {
		response, err := user.Get(s.url(8205))
		if err != nil {
			return ""
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return strings.TrimSpace(string(text))
	}
	await := func(want string, last *time.Time) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			switch page() {
			case want:
				return
			case "first":
				*last = time.Now()
			}
		}
		t.Errorf("no user gets the page %q:\n%s", want, s.must(t, "events"))
	}
	deploy("first")
	last := time.Now()
	await("first", &last)
	done := make(chan struct{})
	var gap time.Duration
	go func() {
		defer close(done)
		await("second", &last)
		gap = time.Since(last)
	}()
	deploy("second")
	<-done
	said := s.must(t, "events")
	for _, want := range []string{"the port 8205/tcp of the host is for one instance at a time: it ends before the new one starts, and users wait for that long", "; users were without it for "} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing says %q", want)
		}
	}
	var seconds float64
	_, after, _ := strings.Cut(said, "; users were without it for ")
	_, err := fmt.Sscanf(after, "%f s", &seconds)
	if t.Logf("a user missed it for %v, and %v s are said", gap.Round(time.Millisecond), seconds); err != nil || seconds > gap.Seconds()+6 {
		t.Errorf("that is not so: %v\n%s", err, said)
	}
}

// TestUpdateSwarm: the same on a swarm, for users of both nodes, beside a service that sleeps until its first
// user comes.
func TestUpdateSwarm(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c.importVersions(t)
	c.importPages(t, brokenImage, "--no-such-option")
	for _, image := range []string{firstImage, secondImage, brokenImage} {
		must.Succeed(t, (&testbed.Cluster{Host: c.host, Nodes: c.nodes, Engines: c.engines}).Distribute(ctx, image))
	}
	c.startManager(t)
	woken := c.wake(t)
	_, took, err := c.deployAndWait(t, version(firstImage))
	must.Succeed(t, err)
	t.Logf("it answers after %v", took)
	c.awaitRunning(t, "shop", 2, 10*time.Second)
	var leave []func()
	for node := range c.nodes {
		harness.Await(t, fmt.Sprintf("users get an answer at node %d", node), 15*time.Second, func() error { return c.get(node, 8080) })
		leave = append(leave, c.strictCrowd(t, profile.Crowd{URL: c.url(node, 8080), Users: 25, Timeout: 5 * time.Second, Dial: c.dial}))
	}
	_, took, err = c.deployAndWait(t, version(secondImage))
	must.Succeed(t, err)
	t.Logf("updated after %v\n%s", took, c.must(t, "ps"))
	_, took, err = c.deployAndWait(t, version(brokenImage))
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "goes back to the one before") {
		t.Errorf("a version that ends at once: %v", err)
	}
	t.Logf("gone back after %v: %v", took, err)
	harness.Await(t, "the version before is alone again", 30*time.Second, func() error {
		for _, i := range c.ps(t) {
			if i.Service == "shop" && (i.Image != secondImage || i.State != "running") {
				return errNot(c.must(t, "ps"))
			}
		}
		return nil
	})
	for _, end := range leave {
		end()
	}
	other, err := swarm.New(ctx, swarm.Options{Socket: c.engine.Socket()})
	must.Succeed(t, err)
	defer other.Close()
	c.mustLose(t, other, version(firstImage))
	c.awaitAsleep(t, 90*time.Second-time.Since(woken))
	t.Logf("it sleeps again %v after its user", time.Since(woken).Round(time.Second))
}

// wake deploys a service that sleeps and lets its first user come, to a node that its instance may not be on.
// It returns when.
func (c *cluster) wake(t *testing.T) time.Time {
	t.Helper()
	path := filepath.Join(t.TempDir(), "compose.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(sleepyFile), 0o600))
	if out := c.must(t, "deploy", "--wait", path); !strings.Contains(out, "home-web starts when a user comes") {
		t.Errorf("it says %q", out)
	}
	c.awaitAsleep(t, 5*time.Second)
	user := http.Client{Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true}, Timeout: 30 * time.Second}
	var began time.Time
	harness.Await(t, "a user is answered", 45*time.Second, func() error {
		began = time.Now()
		response, err := user.Get(c.url(1, 8204))
		if errors.Is(err, syscall.ECONNREFUSED) { // its proxy starts
			return err
		}
		must.Succeed(t, err)
		defer response.Body.Close()
		if n, err := io.Copy(io.Discard, response.Body); response.StatusCode != http.StatusOK || n != firstBytes || err != nil {
			t.Errorf("the first user gets %s, %d bytes: %v", response.Status, n, err)
		}
		return nil
	})
	t.Logf("the first user is answered after %v\n%s", time.Since(began).Round(time.Millisecond), c.must(t, "ps"))
	return time.Now()
}
