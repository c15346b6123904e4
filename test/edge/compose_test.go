//go:build docker

package edge

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

const (
	// homeFile is a home server as its owner would write it. The worker is healthy when it reaches all
	// others by their names, and what they were given is there.
	homeFile = `
name: home
x-common: &common
  restart: unless-stopped
  logging: {driver: json-file, options: {max-size: 1m}}
  stop_grace_period: 1s
services:
  web:
    <<: *common
    image: example.test/pages:1
    command: [weir-lab, traffic, pages, --work, 5ms, --workers, "64", --queue, "64"]
    environment: {GREETING: "hello ${WHO:-you}"}
    env_file: web.env
    volumes: ["./content:/content:ro"]
    configs: [app]
    depends_on: {db: {condition: service_healthy}, cache: {condition: service_started}}
    ports: [{target: 80, published: 8201, app_protocol: http}]
    labels: {weir.weight: "200"}
    x-weir-edge: {maxUsers: 50, minInstances: 2, responseTime: 2}
  db:
    <<: *common
    image: example.test/tools:1
    command: [sh, -c, "cat /run/secrets/password >/data/index.html; exec httpd -f -p 5432 -h /data"]
    volumes: ["data:/data"]
    secrets: [{source: password, mode: 0440}]
    healthcheck: {test: [CMD, wget, -q, -O, /dev/null, "http://localhost:5432/"], interval: 1s}
    deploy: {resources: {limits: {memory: 64M, cpus: "0.5"}}}
  worker:
    <<: *common
    image: example.test/tools:1
    command: [sleep, "2147483647"]
    user: "1000:1000"
    working_dir: /tmp
    environment: {GREETING: hello you}
    healthcheck:
      test: wget -q -O /dev/null http://web/ && wget -q -O - http://db:5432/ | grep -q sesame && nc -w 1 cache 6379 </dev/null && test "$$(id -u)" = 1000 && test "$$PWD" = /tmp && test "$$GREETING" = "hello you"
      interval: 1s
  cache:
    <<: *common
    image: example.test/tools:1
    entrypoint: [httpd, -f, -p, "6379", -h]
    command: [/cache]
    tmpfs: ["/cache:size=16m"]
    read_only: true
  proxy:
    <<: *common
    image: example.test/tools:1
    command: [haproxy, -f, /etc/haproxy.cfg]
    configs: [{source: proxy, target: /etc/haproxy.cfg}]
    depends_on: [web]
    ports: ["8202:80"]
volumes: {data: {}}
configs: {app: {file: ./app.conf}, proxy: {file: ./haproxy.cfg}}
secrets: {password: {file: ./password}}
`
	// homeProxy finds the instances of web by their name.
	homeProxy = `
resolvers engine
  nameserver dns 127.0.0.11:53
  hold valid 200ms
defaults
  mode http
  timeout connect 1s
  timeout client 10s
  timeout server 10s
  option redispatch 1
  retry-on conn-failure empty-response
frontend users
  bind :80
  default_backend web
backend web
  server-template web 4 web:80 check inter 1s init-addr libc,none resolvers engine
`
	toolsImage = "example.test/tools:1"
)

// importTools makes the image of what is not web.
func (s *site) importTools(t *testing.T) {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	must.Succeed(t, err)
	must.Succeed(t, s.engine.ImportBinary(t.Context(), toolsImage, map[string]string{"/bin/haproxy": program}))
}

// homeFolder writes the home server's files.
func homeFolder(t *testing.T, compose string) string {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "content"), 0o755))
	for name, text := range map[string]string{"compose.yaml": compose, "web.env": "TZ=UTC\n", "app.conf": "color: blue\n", "haproxy.cfg": homeProxy, "password": "open sesame\n"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return filepath.Join(dir, "compose.yaml")
}

var homeServices = map[string]int{"home-web": 2, "home-db": 1, "home-worker": 1, "home-cache": 1, "home-proxy": 1}

// awaitHome waits until all of the home server answers and nothing else is left, and returns its instances.
func (s *site) awaitHome(t *testing.T) (list []edge.Instance) {
	t.Helper()
	harness.Await(t, "all services of the file answer", time.Minute, func() error {
		list = s.ps(t)
		running := map[string]int{}
		for _, i := range list {
			if i.State != "running" {
				return errNot(s.must(t, "ps"))
			}
			running[i.Service]++
		}
		if !maps.Equal(running, homeServices) {
			return errNot(s.must(t, "ps"))
		}
		return nil
	})
	return list
}

// TestCompose: a Compose file of a home server is deployed as it stands.
func TestCompose(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.importTools(t)
	s.start(t)
	home := homeFolder(t, homeFile)
	began := time.Now()
	t.Logf("weir-edge deploy\n%s", s.must(t, "deploy", home))
	s.awaitHome(t)
	t.Logf("five services after %v\n%s", time.Since(began).Round(time.Millisecond), s.must(t, "ps"))
	must.Succeed(t, s.get(8201))
	harness.Await(t, "the proxy of the file answers", 10*time.Second, func() error { return s.get(8202) })
	if again := s.must(t, "deploy", home); strings.Count(again, "is there already") != len(homeServices) {
		t.Errorf("the same again: %s", again)
	}
	t.Run("what instances have", s.testComposeInstances)
	t.Run("nobody reads passwords", func(t *testing.T) { s.testComposeMasked(t) })
	t.Run("another version under users", func(t *testing.T) {
		s.testComposeUpdate(t, home, homeEdits, []string{"home-web", "home-proxy"}, func(port int) []profile.Crowd { return []profile.Crowd{s.crowd(port, 25)} })
	})
	for name := range homeServices {
		s.must(t, "rm", name)
	}
	harness.Await(t, "all have ended", 30*time.Second, func() error {
		if list := s.ps(t); len(list) > 0 {
			return errNot(fmt.Sprint(list))
		}
		return nil
	})
	left, err := s.engine.API().NetworkList(t.Context(), client.NetworkListOptions{Filters: make(client.Filters).Add("name", "home_")})
	must.Succeed(t, err)
	if len(left.Items) > 0 {
		t.Errorf("its network is left: %v", left.Items)
	}
	if _, err := s.engine.API().VolumeInspect(t.Context(), "home_data", client.VolumeInspectOptions{}); err != nil {
		t.Errorf("its data are gone: %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(s.dir, "*", "home-*")); len(files) > 0 {
		t.Errorf("files are left: %v", files)
	}
}

func (s *site) testComposeInstances(t *testing.T) {
	for _, i := range s.ps(t) {
		found, err := s.engine.API().ContainerInspect(t.Context(), i.ContainerID, client.ContainerInspectOptions{})
		must.Succeed(t, err)
		c := found.Container
		switch i.Service {
		case "home-web":
			if !strings.Contains(fmt.Sprint(c.Config.Env), "GREETING=hello you") || !strings.Contains(fmt.Sprint(c.Config.Env), "TZ=UTC") || c.Config.Labels["weir.weight"] != "200" {
				t.Errorf("web has %v and %v", c.Config.Env, c.Config.Labels)
			}
			if i.Reason == "" || !strings.Contains(i.Reason, "kept here by the path") {
				t.Errorf("web says %q", i.Reason)
			}
		case "home-db":
			if c.HostConfig.Memory != 64<<20 || c.HostConfig.NanoCPUs != 5e8 || !strings.Contains(i.Reason, "kept here by the volume home_data") {
				t.Errorf("db has %d bytes and %d, and says %q", c.HostConfig.Memory, c.HostConfig.NanoCPUs, i.Reason)
			}
		}
	}
	proxies, err := s.engine.API().ContainerInspect(t.Context(), "edgeproxy-home-worker", client.ContainerInspectOptions{})
	must.Succeed(t, err)
	if proxies.Container.State.Running {
		t.Error("a service without ports has a proxy")
	}
}

// homeEdits change web and proxy.
var homeEdits = []string{"hello ${WHO:-you}", "good day", "[haproxy, -f", "[haproxy, -db, -f"}

// testComposeUpdate deploys the edited file again under users of the ports of web and proxy, who miss no
// answer. Services that the edits do not change keep their instances.
func (s *site) testComposeUpdate(t *testing.T, home string, edits, changes []string, users func(port int) []profile.Crowd) {
	before := s.awaitHome(t)
	must.Succeed(t, os.WriteFile(home, []byte(strings.NewReplacer(edits...).Replace(homeFile)), 0o600))
	var leave []func()
	for _, crowd := range append(users(8201), users(8202)...) {
		leave = append(leave, s.strictCrowd(t, crowd))
	}
	began := time.Now()
	out := s.must(t, "deploy", "--wait", home)
	t.Logf("updated after %v\n%s%s", time.Since(began).Round(10*time.Millisecond), out, s.must(t, "ps"))
	for _, end := range leave {
		end()
	}
	after := s.awaitHome(t)
	for _, i := range after {
		changed := !slices.ContainsFunc(before, func(was edge.Instance) bool { return was.ContainerID == i.ContainerID })
		if changed != slices.Contains(changes, i.Service) {
			t.Errorf("another container runs %s: %t", i.Instance, changed)
		}
		if i.Service != "home-web" {
			continue
		}
		for _, engine := range append(s.engines, s.engine) {
			found, err := engine.API().ContainerInspect(t.Context(), i.ContainerID, client.ContainerInspectOptions{})
			if err == nil && !slices.Contains(found.Container.Config.Env, "GREETING=good day") {
				t.Errorf("%s has %v", i.Instance, found.Container.Config.Env)
			}
		}
	}
}

// testComposeMasked: values of environment variables, commands and secrets are not shown.
func (s *site) testComposeMasked(t *testing.T) {
	seen, err := s.client.Snapshot(t.Context())
	must.Succeed(t, err)
	for _, service := range seen.Services {
		if text := string(service.Specification); strings.Contains(text, "=hello") || strings.Contains(text, "httpd") || strings.Contains(text, "max-size\":\"1m") || strings.Contains(text, "open sesame") || strings.Contains(text, "content\":") {
			t.Errorf("%s shows %s", service.Name, text)
		}
	}
}

// TestComposeSwarm: the same file on a swarm.
func TestComposeSwarm(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c.importTools(t)
	must.Succeed(t, (&testbed.Cluster{Host: c.host, Nodes: c.nodes, Engines: c.engines}).Distribute(ctx, toolsImage))
	c.startManager(t)
	home := homeFolder(t, homeFile)
	began := time.Now()
	t.Logf("weir-edge deploy\n%s", c.must(t, "deploy", home))
	c.awaitHome(t)
	t.Logf("five services after %v\n%s", time.Since(began).Round(time.Millisecond), c.must(t, "ps"))
	hosts := map[string]string{}
	for _, i := range c.ps(t) {
		hosts[i.Service] = i.Node
		if kept := i.Service == "home-web" || i.Service == "home-db"; kept != strings.Contains(i.Reason, "kept here by") {
			t.Errorf("%s is on %s: %q", i.Instance, i.Node, i.Reason)
		}
	}
	for node := range c.nodes {
		harness.Await(t, fmt.Sprintf("users get an answer at node %d", node), 15*time.Second, func() error { return c.get(node, 8201) })
	}
	harness.Await(t, "the proxy of the file answers", 10*time.Second, func() error { return c.get(1, 8202) })
	t.Run("another version under users", func(t *testing.T) {
		nodes, err := c.client.Nodes(t.Context())
		must.Succeed(t, err)
		away := nodes[slices.IndexFunc(nodes, func(n edge.Node) bool { return n.Name != hosts["home-web"] })].Name
		changes := []string{"home-web", "home-proxy"}
		if hosts["home-worker"] != away { // it goes there, and reaches the others from another node
			changes = append(changes, "home-worker")
		}
		edits := append([]string{"  worker:\n", "  worker:\n    deploy: {placement: {constraints: [node.hostname==" + away + "]}}\n"}, homeEdits...)
		c.testComposeUpdate(t, home, edits, changes, func(port int) (crowds []profile.Crowd) {
			for node := range c.nodes {
				crowds = append(crowds, profile.Crowd{URL: c.url(node, port), Users: 13, Timeout: 5 * time.Second, Dial: c.dial})
			}
			return crowds
		})
		if !slices.ContainsFunc(c.ps(t), func(i edge.Instance) bool { return i.Service == "home-worker" && i.Node == away }) {
			t.Errorf("the worker is not on %s:\n%s", away, c.must(t, "ps"))
		}
	})
	t.Run("weir-edge's own configs and secrets", c.testOwnObjects)
	t.Run("a registry that wants a login", c.testLogin)
	for name := range homeServices {
		c.must(t, "rm", name)
	}
	harness.Await(t, "nothing of the swarm is left", 30*time.Second, func() error {
		networks, err := c.engine.API().NetworkList(t.Context(), client.NetworkListOptions{Filters: make(client.Filters).Add("name", "home_")})
		must.Succeed(t, err)
		secrets, err := c.engine.API().SecretList(t.Context(), client.SecretListOptions{Filters: make(client.Filters).Add("label", "weir-edge.project")})
		must.Succeed(t, err)
		if len(networks.Items)+len(secrets.Items)+len(c.ps(t)) > 0 {
			return errNot(fmt.Sprint(networks.Items, secrets.Items, c.ps(t)))
		}
		return nil
	})
}

// testLogin: a worker pulls an image with the login of weir-edge's host.
func (c *cluster) testLogin(t *testing.T) {
	nodes, err := c.client.Nodes(t.Context())
	must.Succeed(t, err)
	worker := nodes[slices.IndexFunc(nodes, func(n edge.Node) bool { return n.Address != c.nodes[0].Addr.String() })]
	images, err := repo.Open(t.TempDir())
	must.Succeed(t, err)
	saved, err := c.engine.API().ImageSave(t.Context(), []string{pagesImage})
	must.Succeed(t, err)
	defer saved.Close()
	archive, err := images.Receive(saved)
	must.Succeed(t, err)
	stored, err := images.Push(spec.Spec{Name: "locked", Image: pagesImage}, archive, func(string) bool { return false })
	must.Succeed(t, err)
	address := lockedRegistry(t, images, c.nodes[0].NetNSPath(), c.nodes[c.numberOf(t, worker.Name)].NetNSPath())
	login(t, c.dir, address)
	c.must(t, "deploy", homeFolder(t, fmt.Sprintf("name: locked\nservices:\n  a:\n    image: %s\n    deploy: {placement: {constraints: [node.hostname==%s]}}\n",
		repo.Reference(address, "locked", stored.Digest), worker.Name)))
	if i := c.awaitRunning(t, "locked-a", 1, 30*time.Second)[0]; i.Node != worker.Name {
		t.Errorf("it runs on %s, not on %s", i.Node, worker.Name)
	}
	c.must(t, "rm", "locked-a")
}

// testOwnObjects: no service reads weir-edge's keys, by which all proxies obey, or writes of others.
func (c *cluster) testOwnObjects(t *testing.T) {
	own := slices.DeleteFunc(c.configs(t), func(name string) bool { return !strings.HasPrefix(name, "edge") })
	secrets, err := c.engine.API().SecretList(t.Context(), client.SecretListOptions{})
	must.Succeed(t, err)
	if len(own) < 4 || len(secrets.Items) < 2 { // key, its part, ledger, a file; a part of the key, a file
		t.Fatalf("weir-edge has %v and %v", own, secrets.Items)
	}
	refused := func(kind, name string) {
		t.Helper()
		_, err := c.weirEdge("deploy", homeFolder(t, fmt.Sprintf(
			"name: thief\nservices: {a: {image: %s, %s: [k]}}\n%[2]s: {k: {external: true, name: %s}}\n", toolsImage, kind, name)))
		if err == nil || !strings.Contains(err.Error(), name+" is weir-edge's own") {
			t.Errorf("%s %s: %v", kind, name, err)
		}
	}
	for _, name := range own {
		refused("configs", name)
	}
	for _, secret := range secrets.Items {
		refused("secrets", secret.Spec.Name)
	}
	if list := c.ps(t); slices.ContainsFunc(list, func(i edge.Instance) bool { return i.Service == "thief-a" }) {
		t.Errorf("it runs: %+v", list)
	}
}
