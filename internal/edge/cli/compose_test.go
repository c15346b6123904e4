package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/schema"

	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/test/must"
)

// TestComposeKeys: no key of the specification is without an entry.
func TestComposeKeys(t *testing.T) {
	tree := newKeyTree()
	for _, path := range schema.AttributePaths() {
		at := tree
		for _, name := range path.Parts() {
			if at = at.find(name); at == nil {
				break
			}
		}
		if at == nil || at.composeKey == nil {
			t.Errorf("nothing is said of %s", path)
		}
	}
}

// project writes files and returns the path of the Compose file.
func project(t *testing.T, compose string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	must.Succeed(t, os.Mkdir(dir, 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "compose.yaml"), []byte(compose), 0o600))
	for name, text := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return filepath.Join(dir, "compose.yaml")
}

// TestComposeRefused: what cannot be done is refused with its line.
func TestComposeRefused(t *testing.T) {
	const begin = "services:\n  web:\n    image: nginx\n"
	for _, c := range []struct {
		what, compose string
		says          []string
	}{
		{"an unknown key", begin + "    imagee: x\n", []string{"compose.yaml:4: services.web.imagee: unknown key; did you mean image?"}},
		{"an unknown key at the top", begin + "service: {}\n", []string{"compose.yaml:4: service: unknown key; did you mean services?"}},
		{"an unknown key below one", begin + "    healthcheck:\n      tests: x\n", []string{"compose.yaml:4:", "healthcheck", "tests"}},
		{"keys that are not possible", begin + "    gpus: all\n    pre_stop: []\n", []string{"compose.yaml:4: services.web.gpus is not possible", "compose.yaml:5: services.web.pre_stop"}},
		{"build without an image", "services:\n  web:\n    build: .\n", []string{"compose.yaml:3: services.web.build needs image:"}},
		{"no image", "services:\n  web:\n    command: x\n", []string{"compose.yaml:2:", "web", "image"}},
		{"a name twice", begin + "  web:\n    image: caddy\n", []string{"compose.yaml:4: services.web is there already, in line 2"}},
		{"a key twice", begin + "    image: caddy\n", []string{"compose.yaml:4: services.web.image is there already, in line 3"}},
		{"names that are one here", begin + "  a.b: {image: a}\n  a-b: {image: a}\n", []string{"compose.yaml:4: services.a.b and a-b are both home-a-b"}},
		{"a long name", begin + "  a" + strings.Repeat("b", 60) + ": {image: a}\n", []string{"compose.yaml:4:", "up to 50 letters"}},
		{"a variable that is not set", begin + "    hostname: ${NAME}-1\n", []string{"compose.yaml:4: services.web.hostname: the variable NAME is not set", "${NAME:-}"}},
		{"a variable with a message", begin + "    hostname: ${NAME:?say who}\n", []string{"say who"}},
		{"a secret that is not there", begin + "    secrets: [password]\n", []string{"compose.yaml:2:", "undefined secret password"}},
		{"a secret without its file", begin + "    secrets: [password]\nsecrets:\n  password:\n    file: ./nothing\n", []string{"compose.yaml:7: secrets.password.file", "nothing"}},
		{"a secret of nobody's environment", begin + "    secrets: [password]\nsecrets: {password: {environment: NOTHING}}\n", []string{"compose.yaml:5:", "NOTHING"}},
		{"an external secret on one engine", begin + "    secrets: [password]\nsecrets: {password: {external: true}}\n", []string{"compose.yaml:5: secrets.password.external is of a swarm"}},
		{"a network that is not there", begin + "    networks: [back]\n", []string{"compose.yaml:2:", "undefined network back"}},
		{"a driver", begin + "networks:\n  default:\n    driver: macvlan\n", []string{"compose.yaml:6: networks.default.driver macvlan is not possible"}},
		{"the host's network, beside another one", begin + "    networks: [default, out]\nnetworks:\n  out: {external: true, name: host}\n", []string{"compose.yaml:6: networks.out is the host's", "services.web.networks"}},
		{"ports of the host's network, by its name", begin + "    networks: [out]\n    ports: [\"80:80\"]\nnetworks: {out: {external: true, name: host}}\n", []string{"compose.yaml:5:", "network_mode host"}},
		{"a network of the engine", begin + "    networks: [out]\nnetworks:\n  out: {external: true, name: docker_gwbridge}\n", []string{"compose.yaml:6: networks.out docker_gwbridge is the engine's own"}},
		{"no network, by its name", begin + "    networks: [out]\nnetworks: {out: {external: true, name: none}}\n", []string{"networks.out none is the engine's own"}},
		{"a port without one of the host", begin + "    ports: [\"80\"]\n", []string{"compose.yaml:4: services.web.ports.0 has no port of the host: write HOST:80"}},
		{"a port from a range", begin + "    ports: [\"8000-8010:80\"]\n", []string{"compose.yaml:4: services.web.ports.0 \"8000-8010\" is no port of the host"}},
		{"ports of the host's network", begin + "    network_mode: host\n    ports: [\"80:80\"]\n", []string{"compose.yaml:5:", "network_mode host"}},
		{"another container's network", begin + "    network_mode: service:vpn\n  vpn: {image: a}\n", []string{"compose.yaml:4: services.web.network_mode \"service:vpn\" is not possible"}},
		{"a job", begin + "    restart: \"no\"\n", []string{"compose.yaml:4: services.web.restart is no"}},
		{"after a job", begin + "    depends_on: {job: {condition: service_completed_successfully}}\n  job: {image: a}\n", []string{"compose.yaml:4: services.web.depends_on.job is to have ended"}},
		{"a circle", begin + "    depends_on: [db]\n  db: {image: a, depends_on: [web]}\n", []string{"compose.yaml:", "cycle"}},
		{"one instance a node", begin + "    deploy: {mode: global}\n", []string{"compose.yaml:4: services.web.deploy.mode global is not possible"}},
		{"a constraint", begin + "    deploy: {placement: {constraints: [node.role==worker]}}\n", []string{"compose.yaml:4:", "node.hostname==NODE"}},
		{"a unit", begin + "    x-weir-edge:\n      responseTime: 500ms\n", []string{"compose.yaml:5: services.web.x-weir-edge.responseTime", "write 0.5"}},
		{"an unknown need", begin + "    x-weir-edge: {maxuser: 5}\n", []string{"compose.yaml:4: services.web.x-weir-edge.maxuser is unknown"}},
		{"needs elsewhere", begin + "x-weir-edge: {maxUsers: 5}\n", []string{"compose.yaml:4: x-weir-edge: unknown key"}},
		{"a label", begin + "    ports: [\"80:80\"]\n    labels: {weir.min: 10MB/s}\n", []string{"compose.yaml:5: services.web.labels", "weir.min", "bytes"}},
		{"a minimum for nobody", begin + "    labels: {weir.min: 1mbit}\n", []string{"compose.yaml:4: services.web.labels weir.min is what users get"}},
		{"a minimum from nobody", begin + "    labels: {weir.in.min: 1mbit}\n", []string{"compose.yaml:4: services.web.labels weir.in.min is what users may send"}},
		{"a small limit", begin + "    mem_limit: 1m\n", []string{"services.web.deploy.resources.limits.memory", "from 6m"}},
		{"a file outside", begin + "include: [../other.yaml]\n", []string{"compose.yaml:4:", "outside the folder"}},
		{"a file outside, by a link", begin + "include: [link.yaml]\n", []string{"compose.yaml:4:", "outside the folder"}},
		{"a base outside", begin + "    extends: {file: ../other.yaml, service: base}\n", []string{"compose.yaml:4:", "outside the folder"}},
		{"a mistake in a file that is included", begin + "include: [bad.yaml]\n", []string{"bad.yaml:2: services.x.nothing: unknown key"}},
		{"a file that includes itself", begin + "include: [compose.yaml]\n", []string{"include cycle"}},
		{"an include that is not there", begin + "include: [nothing.yaml]\n", []string{"compose.yaml:4:", "nothing.yaml"}},
		{"a large environment file", begin + "    env_file: large\n", []string{"services.web.env_file", "more than 1048576 bytes"}},
		{"a device for an environment", begin + "    env_file: /dev/zero\n", []string{"services.web.env_file", "it is no file"}},
		{"a large config", begin + "    configs: [c]\nconfigs: {c: {file: ./config}}\n", []string{"compose.yaml:5: configs.c has more than 500000 bytes"}},
		{"nothing", "", []string{"it is empty"}},
		{"no services", "name: home\n", []string{"compose.yaml"}},
		{"only profiles", "services: {web: {image: nginx, profiles: [later]}}\n", []string{"COMPOSE_PROFILES"}},
		{"no mapping", "- a\n", []string{"compose.yaml"}},
		{"no YAML", "services: [\n", []string{"compose.yaml", "line"}},
		{"aliases", bomb(), []string{"compose.yaml"}},
		{"aliases in an extension", strings.Replace(bomb(), "nginx, command: *a9", "nginx", 1), []string{"compose.yaml"}},
		{"aliases of themselves", "services: &a\n  web: *a\n", []string{"compose.yaml"}},
		{"a large file", begin + "#" + strings.Repeat("x", spec.MaxBytes), []string{"more than 1048576 bytes"}},
		{"a deep file", "services: {web: {image: a, labels: " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}}", []string{"compose.yaml"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := project(t, c.compose, map[string]string{
				"large": "A=" + strings.Repeat("x", spec.MaxBytes), "config": strings.Repeat("x", 600_000),
				"bad.yaml": "services:\n  x: {image: a, nothing: b}\n",
			})
			must.Succeed(t, os.WriteFile(filepath.Join(filepath.Dir(path), "../other.yaml"), []byte("services: {base: {image: a}}\n"), 0o600))
			must.Succeed(t, os.Symlink("../other.yaml", filepath.Join(filepath.Dir(path), "link.yaml")))
			began := time.Now()
			_, err := readCompose(t.Context(), path, "docker", nil)
			if err == nil {
				t.Fatal("it was taken")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			for _, words := range c.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q is not in: %.2000s", words, err)
				}
			}
		})
	}
}

// TestComposeHostNetwork: a service in the network of the host, as Compose files for swarms name it, is
// kept on its node and alone there.
func TestComposeHostNetwork(t *testing.T) {
	path := project(t, "services:\n  web: {image: nginx, networks: [out]}\nnetworks: {out: {external: true, name: host}}\n", nil)
	for _, engine := range []string{"docker", "swarm"} {
		file, err := readCompose(t.Context(), path, engine, nil)
		must.Succeed(t, err)
		s, err := spec.Parse(file.Services[0].Document)
		must.Succeed(t, err)
		if n := s.Container.Network; n.Mode != "host" || len(n.Attached) > 0 || s.Keeper() != "the network of the host" || !s.IsExclusive() {
			t.Errorf("%s: %+v, kept by %q", engine, n, s.Keeper())
		}
	}
}

// bomb is a file whose aliases stand for a billion texts.
func bomb() string {
	text := "x-a0: &a0 [lol]\n"
	for i := range 9 {
		text += fmt.Sprintf("x-a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	return text + "services: {web: {image: nginx, command: *a9}}\n"
}

// TestComposeSwarmRefused: what one engine can and a swarm cannot.
func TestComposeSwarmRefused(t *testing.T) {
	path := project(t, "services:\n  web:\n    image: nginx\n    privileged: true\n    devices: [/dev/null]\n", nil)
	if _, err := readCompose(t.Context(), path, "docker", nil); err != nil {
		t.Error(err)
	}
	_, err := readCompose(t.Context(), path, "swarm", nil)
	if err == nil || !strings.Contains(err.Error(), "compose.yaml:4: services.web.privileged is not possible on a swarm") || !strings.Contains(err.Error(), ":5:") {
		t.Error(err)
	}
	path = project(t, "services:\n  web:\n    image: nginx\n    ports: [\"127.0.0.1:80:80\"]\n", nil)
	if _, err := readCompose(t.Context(), path, "swarm", nil); err == nil || !strings.Contains(err.Error(), "compose.yaml:4:") {
		t.Error(err)
	}
}

// TestCompose: a specification is what the file says.
func TestCompose(t *testing.T) {
	path := project(t, `
services:
  web:
    extends: {file: base.yaml, service: base}
    image: nginx:${TAG:-1}
    environment: {A: "$$x", B: "${OTHER}", C: }
    env_file: [{path: web.env}, {path: nothing.env, required: false}]
    ports: ["8080:80", "53:53/udp", "127.0.0.1:9000:9000"]
    depends_on: {db: {condition: service_healthy}}
    volumes: ["./content:/content:ro", "shared:/shared"]
    container_name: www
    expose: [80]
    x-weir-edge: {maxUsers: 50, responseTime: 2, availability: 99.9, numUsers: 40, algorithm: local, minInstances: 2}
  db:
    image: postgres
    scale: 1
    volumes: [data:/data]
    secrets: [{source: key, target: k, mode: 0440, uid: "5"}]
    healthcheck: {test: "true", interval: 3s, start_period: 20s}
    tmpfs: /run:size=64m
include: [more.yaml]
volumes: {data: {}, shared: {driver_opts: {type: nfs4, o: "addr=198.18.0.1"}}}
secrets: {key: {environment: OTHER}}
`, map[string]string{
		".env": "OTHER=from file\n", "web.env": "C=env\nD=env\n", "base.yaml": "services: {base: {image: x, user: '7', cap_drop: [ALL]}}\n",
		"more.yaml": "services: {cache: {image: redis, platform: linux/arm64}}\n",
	})
	file, err := readCompose(t.Context(), path, "docker", []string{"C=shell"})
	must.Succeed(t, err)
	if notes := strings.Join(file.Notes, "\n"); len(file.Notes) != 2 || !strings.Contains(notes, "compose.yaml:12: services.web.expose has no effect") || !strings.Contains(notes, "more.yaml:1: services.cache.platform has no effect") {
		t.Errorf("notes: %q", file.Notes)
	}
	got := map[string]spec.Spec{}
	var order []string
	for _, s := range file.Services {
		parsed, err := spec.Parse(s.Document)
		must.Succeed(t, err)
		got[s.Name], order = parsed, append(order, s.Name)
	}
	if !slices.Equal(order, []string{"home-cache", "home-db", "home-web"}) {
		t.Errorf("order: %q", order)
	}
	web := got["home-web"]
	c := web.Container
	if web.Image != "nginx:1" || web.MaxUsers != 50 || web.ResponseSeconds != 2 || web.AvailabilityPercent != 99.9 || web.NumUsers != 40 || web.Algorithm != "local" || c.Instances != 2 {
		t.Errorf("web: %+v", web)
	}
	if !slices.Equal(c.Process.Environment, []string{"A=$x", "B=from file", "C=shell", "D=env"}) || c.Process.User != "7" || !slices.Equal(c.Security.CapDrop, []string{"ALL"}) || !slices.Equal(c.Needs, []string{"home-db"}) {
		t.Errorf("web: %+v", c)
	}
	if len(web.Ports) != 1 || web.Ports[0] != (spec.Port{Host: 8080, Container: 80}) || web.Labels[spec.LabelMode] != "tcp" || len(c.Network.Ports) != 2 {
		t.Errorf("web: %+v, %+v, %v", web.Ports, c.Network.Ports, web.Labels)
	}
	if n := c.Network.Attached; len(n) != 1 || n[0].Name != "home_default" || !slices.Equal(n[0].Aliases, []string{"web", "www"}) {
		t.Errorf("web: %+v", n)
	}
	if keeper := web.Keeper(); keeper != "the path "+filepath.Join(filepath.Dir(path), "content") || !web.IsExclusive() {
		t.Errorf("web: %q", keeper)
	}
	db := got["home-db"]
	if db.Keeper() != "the volume home_data" || !db.IsExclusive() || db.StartUpSeconds != 20 || len(db.Container.Mounts) != 2 || db.Container.Mounts[1].SizeBytes != 64<<20 {
		t.Errorf("db: %+v", db)
	}
	if f := db.Container.Files; len(f) != 1 || f[0].Target != "/run/secrets/k" || f[0].Mode != 0o440 || f[0].UID != "5" || string(f[0].Content) != "from file" {
		t.Errorf("db: %+v", f)
	}
	if h := db.Container.Health; h == nil || !slices.Equal(h.Test, []string{"CMD-SHELL", "true"}) || h.IntervalSeconds != 3 {
		t.Errorf("db: %+v", h)
	}
	if cache := got["home-cache"]; cache.Keeper() != "" || cache.IsExclusive() || len(cache.Ports) != 0 {
		t.Errorf("cache: %+v", cache)
	}
}
