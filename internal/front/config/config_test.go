package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/test/must"
)

// edit returns the default configuration, changed.
func edit(change func(*config.Config)) config.Config {
	c := config.Default()
	change(&c)
	return c
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		want       config.Config
	}{
		{"nothing", "", config.Default()},
		{"comments only", "# nothing\n\n# here\n", config.Default()},
		{"an empty document", "---\n", config.Default()},
		{"null", "null\n", config.Default()},
		{"keys without values", "uplinks:\nhost:\ndocker:\ncontainers:\n", config.Default()},
		{
			"uplink", "uplink: eth0\nrate: 1.5gbit\nreplace: true\n",
			edit(func(c *config.Config) {
				c.Uplinks = []config.Uplink{{Interface: "eth0", RateBPS: 1_500_000_000, Replace: true}}
			}),
		},
		{
			"rate alone, the interface being on the command line", "rate: 100000000\n",
			edit(func(c *config.Config) { c.Uplinks = []config.Uplink{{RateBPS: 100_000_000}} }),
		},
		{
			"list of uplinks", "uplinks:\n- interface: wan0\n  rate: 30M\n",
			edit(func(c *config.Config) { c.Uplinks = []config.Uplink{{Interface: "wan0", RateBPS: 30_000_000}} }),
		},
		{
			"several uplinks", "uplinks:\n- interface: wan0\n  rate: 30M\n- interface: wan1\n- {interface: wan2, precision: low, replace: true, ignore_link_speed: true}\n",
			edit(func(c *config.Config) {
				c.Uplinks = []config.Uplink{{Interface: "wan0", RateBPS: 30_000_000}, {Interface: "wan1"}, {Interface: "wan2", Precision: v1.PrecisionLow, Replace: true, IgnoreLinkSpeed: true}}
			}),
		},
		{
			"paths and groups", "socket: /tmp//w.sock\nsocket_group: 998\nstate_dir: /srv/weir/\n",
			edit(func(c *config.Config) { c.Socket, c.SocketGroup, c.StateDir = "/tmp/w.sock", "998", "/srv/weir" }),
		},
		{
			"byte order mark and line ends of Windows", "\ufeffrate: 1M\r\nreserve: 7%\r\n",
			edit(func(c *config.Config) {
				c.Uplinks = []config.Uplink{{RateBPS: 1_000_000}}
				c.ReserveBasisPoints = 700
			}),
		},
		{"another default route", "ignore_default_route: true", edit(func(c *config.Config) { c.IgnoreDefaultRoute = true })},
		{"reserve", "reserve: 2.5%", edit(func(c *config.Config) { c.ReserveBasisPoints = 250 })},
		{"a dashboard", "dashboard: 127.0.0.1:7480", edit(func(c *config.Config) { c.Dashboard = "127.0.0.1:7480" })},
		{"a dashboard by name", "dashboard: localhost:080", edit(func(c *config.Config) { c.Dashboard = "127.0.0.1:80" })},
		{"a dashboard at IPv6", "dashboard: '[0::1]:7480'", edit(func(c *config.Config) { c.Dashboard = "[::1]:7480" })},
		{"no dashboard", "dashboard: none", config.Default()},
		{"no engine", "docker: none\npodman: none\n", edit(func(c *config.Config) { c.Docker.Enabled, c.Podman.Enabled = config.Off, config.Off })},
		{"a group that looks", "socket_group_role: read", edit(func(c *config.Config) { c.SocketGroupReads = true })},
		{"a group that changes", "socket_group_role: admin", config.Default()},
		{"tokens elsewhere", "tokens: /srv/tokens", edit(func(c *config.Config) { c.TokensPath = "/srv/tokens" })},
		{"a listener", "listen: {address: '[::0]:7481', certificate: /c, key: /k, client_ca: /ca, admins: [hub]}", edit(func(c *config.Config) {
			c.Listen = config.Listen{Address: "[::]:7481", CertificatePath: "/c", KeyPath: "/k", ClientCAPath: "/ca", Admins: []string{"hub"}}
		})},
		{"no reserve", "reserve: 0%", edit(func(c *config.Config) { c.ReserveBasisPoints = 0 })},
		{"largest reserve", "reserve: '50.00%'", edit(func(c *config.Config) { c.ReserveBasisPoints = 5000 })},
		{
			"host", "host: {weight: 50, min: 1mbit, latency: 20ms, class: EF, priority: 3, max: \"2mbit\"}",
			edit(func(c *config.Config) {
				c.Host = v1.Policy{Weight: 50, MinBPS: 1e6, MaxBPS: 2e6, LatencyMS: 20, Class: v1.ClassEF, Priority: 3,
					EFMax: v1.Part{Percent: 50}, AFMin: v1.Part{Percent: 30}}
				c.HostIn.Weight, c.HostIn.Class = 50, v1.ClassEF
			}),
		},
		{
			"a classifier with other levels", "classifier: /srv//tree.json\nlevels: {WEB: be, VOIP: AF}\nmin_confidence: 1\n",
			edit(func(c *config.Config) {
				c.Classifier = config.Classifier{Path: "/srv/tree.json", Levels: []string{"VOIP=AF", "WEB=BE"}, MinConfidence: new(1.0)}
			}),
		},
		{
			"engines", "docker: {enabled: False}\npodman:\n  enabled: AUTO\n  socket: /p.sock\n",
			edit(func(c *config.Config) {
				c.Docker.Enabled = config.Off
				c.Podman = config.Engine{Enabled: config.Auto, Socket: "/p.sock"}
			}),
		},
		{
			"containers",
			"containers:\n" +
				"- {name: a, netns: blue}\n" +
				"- {name: b, netns: /proc/7/../8/ns/net, interface: eth1, policy: {weight: 7, min: 1mbit}}\n" +
				"- {name: c, netns: green, labels: {weir.max: 20M, other: 1.50, kubernetes.io/egress-bandwidth: 5M}}\n" +
				"- {name: d, cgroup: system.slice//nginx.service/}\n" +
				"- {name: e, cgroup: /sys/fs/cgroup/a.slice, policy: {weight: 3}}\n" +
				"- {name: f, netns: red, cgroup: f.slice, interface: eth0}\n",
			edit(func(c *config.Config) {
				c.Containers = []config.Container{
					{Name: "a", NetNSPath: "/run/netns/blue"},
					{
						Name: "b", NetNSPath: "/proc/8/ns/net", Interface: "eth1",
						Labels: map[string]string{"weir.weight": "7", "weir.min": "1mbit"},
					},
					{
						Name: "c", NetNSPath: "/run/netns/green",
						Labels: map[string]string{"weir.max": "20M", "other": "1.50", "kubernetes.io/egress-bandwidth": "5M"},
					},
					{Name: "d", CgroupPath: "system.slice/nginx.service"},
					{Name: "e", CgroupPath: "/sys/fs/cgroup/a.slice", Labels: map[string]string{"weir.weight": "3"}},
					{Name: "f", NetNSPath: "/run/netns/red", CgroupPath: "f.slice", Interface: "eth0"},
				}
			}),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := config.Parse("weir.yaml", []byte(tc.file))
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("Parse = %+v, %v\nwant    %+v", got, err, tc.want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		want       []string // each line of the error, or its beginning
	}{
		{"no YAML", "a: [\n", []string{"weir.yaml:1: not valid YAML: "}},
		{"no YAML further down", "uplink: eth0\nhost:\n  min: 'x\n", []string{"weir.yaml:3: not valid YAML: "}},
		{"two documents", "uplink: eth0\n---\nrate: 1M\n", []string{"weir.yaml:3: more than one document; remove the line with ---"}},
		{"not a map", "- eth0\n", []string{"weir.yaml:1: is a list; write keys and values"}},
		{"not a map either", "eth0\n", []string{"weir.yaml:1: is a single value; write keys and values"}},
		{"alias", "host: &h {weight: 1}\nsocket: *h\n", []string{
			"weir.yaml:1: host: anchors, aliases, merge keys and tags are not supported; write keys and values",
			"weir.yaml:2: socket: anchors, aliases, merge keys and tags are not supported; write a single value",
		}},
		{"merge key", "host:\n  <<: {weight: 1}\n", []string{"weir.yaml:2: host: has a key that is not a plain name (merge keys are not supported)"}},
		{"tag", "socket: !!str /a\n", []string{"weir.yaml:1: socket: anchors, aliases,"}},
		{"unknown keys", "\nuplnk: eth0\nfoo: 1\nhost: {wieght: 3}\n", []string{
			"weir.yaml:2: uplnk: unknown key; did you mean uplink?",
			"weir.yaml:3: foo: unknown key; known here are uplinks, uplink, rate,",
			"weir.yaml:4: host.wieght: unknown key; did you mean weight?",
		}},
		{"duplicate key", "rate: 1M\n\nrate: 2M\n", []string{"weir.yaml:3: rate: is already given on line 1; remove one of them"}},
		{"empty value", "rate:\n", []string{"weir.yaml:1: rate: is empty; write a value or remove the key"}},
		{"bad rate", "uplink: eth0\nrate: 100MB\n", []string{
			`weir.yaml:2: rate: "100MB": has the unit "MB": bytes are not accepted; for 100 megabit write 100mbit`,
		}},
		{"bad interfaces", "uplinks:\n- interface: sixteen-letters.\n", []string{
			`weir.yaml:2: uplinks[0].interface: "sixteen-letters.": is not the name of an interface`,
		}},
		{"uplinks listed twice", "uplinks:\n- interface: a\n- interface: b\n- rate: 1M\n  interface: a\n- {}\n- {}\n", []string{
			`weir.yaml:5: uplinks[2].interface: "a" is already used on line 2; remove one of them`,
			"weir.yaml:6: uplinks[3]: interface is missing",
			"weir.yaml:7: uplinks[4]: interface is missing",
		}},
		{"interface missing", "uplinks:\n- rate: 1M\n", []string{"weir.yaml:2: uplinks[0]: interface is missing"}},
		{"docker is no map", "docker: /run/docker.sock\n", []string{"weir.yaml:1: docker: is a single value; write keys and values, such as {socket: VALUE}"}},
		{"uplink is no map", "uplinks:\n- eth0\n", []string{"weir.yaml:2: uplinks[0]: is a single value; write keys and values"}},
		{"uplinks is no list", "uplinks: eth0\n", []string{"weir.yaml:1: uplinks: is a single value; write a list, each item after a dash"}},
		{"both ways at once", "rate: 1M\nuplinks:\n- interface: eth0\n", []string{
			"weir.yaml:2: uplinks: cannot be combined with rate (line 1); put it into the list",
		}},
		{"bad booleans", "replace: yes\ndocker: {enabled: maybe}\n", []string{
			`weir.yaml:1: replace: "yes": write true or false`,
			`weir.yaml:2: docker.enabled: "maybe": write true, false or auto`,
		}},
		{"bad paths", "socket: weir.sock\nstate_dir: ''\npodman:\n  socket: unix:///p\n", []string{
			`weir.yaml:1: socket: "weir.sock": is not an absolute path; write one that begins with /`,
			`weir.yaml:2: state_dir: "": is not an absolute path`,
			`weir.yaml:4: podman.socket: "unix:///p": is not an absolute path`,
		}},
		{"a dashboard for others", "dashboard: 0.0.0.0:7480", []string{`weir.yaml:1: dashboard: "0.0.0.0:7480": is not an address of this machine alone; write for example 127.0.0.1:7480`}},
		{"a dashboard at a name", "dashboard: example.com:7480", []string{`weir.yaml:1: dashboard: "example.com:7480": is not an address of this machine alone`}},
		{"a dashboard everywhere", "dashboard: ':7480'", []string{`weir.yaml:1: dashboard: ":7480": is not an address of this machine alone`}},
		{"a dashboard without a port", "dashboard: 127.0.0.1", []string{`weir.yaml:1: dashboard: "127.0.0.1": is not an address and a port; write for example 127.0.0.1:7480, or none`}},
		{"a group of another role", "socket_group_role: root", []string{`weir.yaml:1: socket_group_role: "root": write read or admin`}},
		{"a listener without TLS", "listen: {address: 0.0.0.0:7481}", []string{"weir.yaml:1: listen: certificate is missing", "weir.yaml:1: listen: key is missing"}},
		{"a listener as a value", "listen: 0.0.0.0:7481", []string{"weir.yaml:1: listen: is a single value"}},
		{"a listener at a name", "listen: {address: example.com:7481, certificate: /c, key: /k}", []string{`weir.yaml:1: listen.address: "example.com:7481": is not an address and a port; write for example 192.0.2.1:7481`}},
		{"admins without certificates", "listen: {address: 0.0.0.0:7481, certificate: /c, key: /k, admins: [hub]}", []string{"weir.yaml:1: listen.admins: needs client_ca"}},
		{"a dashboard at no port", "dashboard: 127.0.0.1:http", []string{`weir.yaml:1: dashboard: "127.0.0.1:http": has no port from 0 to 65535; write for example 127.0.0.1:7480`}},
		{"a bad classifier", "classifier: tree.json\nlevels: {WEB: gold, VIOP: EF}\nmin_confidence: 60\n", []string{
			`weir.yaml:1: classifier: "tree.json": is not an absolute path`,
			`weir.yaml:2: levels.VIOP: unknown key; known here are VOIP, GAME, SERVICES`,
			`weir.yaml:2: levels.WEB: "gold": write EF, AF or BE`,
			`weir.yaml:3: min_confidence: "60": write a number from 0 to 1, for example 0.6`,
		}},
		{"no confidence", "min_confidence: nan\n", []string{`weir.yaml:1: min_confidence: "nan": write a number from 0 to 1`}},
		{"bad group", "socket_group: my group\n", []string{`weir.yaml:1: socket_group: "my group": write a name without spaces`}},
		{"bad host policy", "host:\n  weight: -1\n  min: 30M\n  max: 20M\n  latency: .inf\n", []string{
			`weir.yaml:2: host.weight: "-1": write a whole number from 0 to 10000`,
			`weir.yaml:3: host.min: "30M": the minimum 30mbit is above the maximum 20mbit; lower the minimum or raise the maximum`,
			`weir.yaml:5: host.latency: ".inf": is not a duration; write for example 20ms`,
		}},
		{"bad container policy, with its line", "uplink: eth0\ncontainers:\n- name: a\n  netns: a\n  policy:\n    weight: 1\n    min: 30mbps\n", []string{
			`weir.yaml:7: containers[0].policy.min: "30mbps": has the unit "mbps", which tc takes for bytes: bytes are not accepted; for 30 megabit write 30mbit`,
		}},
		{"bad labels", "containers:\n- name: a\n  netns: a\n  labels:\n    weir.latency: 5ms\n    weir.wieght: 5\n    x:\n", []string{
			`weir.yaml:5: containers[0].labels.weir.latency: "5ms": a latency bound needs a minimum rate; set one or remove the bound`,
			`weir.yaml:6: containers[0].labels.weir.wieght: "5": unknown name; did you mean weir.weight?`,
			`weir.yaml:7: containers[0].labels.x: is empty; write a value or remove the key`,
		}},
		{"a label that is no text", "containers:\n- name: a\n  netns: a\n  labels: {other: []}\n", []string{
			"weir.yaml:4: containers[0].labels.other: is a list; write a single value",
		}},
		{"policy and labels", "containers:\n- name: a\n  netns: a\n  policy: {weight: 1}\n  labels: {weir.weight: 1}\n", []string{
			"weir.yaml:5: containers[0].labels: cannot be combined with containers[0].policy (line 4); use one of them",
		}},
		{"empty items", "containers:\n  -\nuplinks:\n  -\n", []string{
			"weir.yaml:2: containers[0]: name is missing",
			"weir.yaml:2: containers[0]: netns or cgroup is missing",
			"weir.yaml:4: uplinks[0]: interface is missing",
		}},
		{"a list for a map, a map for a list", "host: []\nuplinks: {}\n", []string{
			"weir.yaml:1: host: is a list; write keys and values",
			"weir.yaml:2: uplinks: is a map; write a list, each item after a dash",
		}},
		{"incomplete containers", "containers:\n- netns: a\n- name: b\n- c\n", []string{
			"weir.yaml:2: containers[0]: name is missing",
			"weir.yaml:3: containers[1]: netns or cgroup is missing",
			"weir.yaml:4: containers[2]: is a single value; write keys and values",
		}},
		{"bad namespaces and names", "containers:\n- {name: a b, netns: netns/a}\n- {name: b, netns: ..}\n- {name: '', netns: c}\n- {name: c, netns: d, interface: 'a:1'}\n", []string{
			`weir.yaml:2: containers[0].name: "a b": write a name without spaces`,
			`weir.yaml:2: containers[0].netns: "netns/a": write an absolute path, or a name in /run/netns`,
			`weir.yaml:3: containers[1].netns: "..": write an absolute path`,
			`weir.yaml:4: containers[2].name: "": write a name without spaces`,
			`weir.yaml:5: containers[3].interface: "a:1": is not the name of an interface`,
		}},
		{"bad cgroups", "containers:\n- {name: a, cgroup: /}\n- {name: b, cgroup: a/../..}\n- {name: c, cgroup: ''}\n", []string{
			`weir.yaml:2: containers[0].cgroup: "/": write the path of a cgroup below the top of the hierarchy`,
			`weir.yaml:3: containers[1].cgroup: "a/../..": write the path of a cgroup`,
			`weir.yaml:4: containers[2].cgroup: "": write the path of a cgroup`,
		}},
		{"a cgroup and more", "containers:\n- {name: b, cgroup: c, interface: eth0}\n- {name: c, cgroup: c/}\n", []string{
			"weir.yaml:2: containers[0].interface: needs a netns; remove it, or name the network namespace that it is in",
			`weir.yaml:3: containers[1].cgroup: "c" is already used on line 2; remove one of them`,
		}},
		{"two of a name", "containers:\n- {name: a, netns: a}\n- {name: b, netns: b}\n- netns: c\n  name: a\n", []string{
			`weir.yaml:5: containers[2].name: "a" is already used on line 2; give each container its own name`,
		}},
		{"text in several lines", "rate: |\n  1M\n", []string{`weir.yaml:1: rate: "1M\n": contains white space`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := config.Parse("weir.yaml", []byte(tc.file))
			if err == nil || !reflect.DeepEqual(got, config.Config{}) {
				t.Fatalf("Parse = %+v, %v; want nothing and an error", got, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tc.want) {
				t.Fatalf("errors:\n%v\nwant:\n%s", err, strings.Join(tc.want, "\n"))
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, tc.want[i]) {
					t.Errorf("error %d: %s\nwant begins: %s", i, line, tc.want[i])
				}
			}
			if _, ok := errors.AsType[*config.Error](err); !ok {
				t.Errorf("error is %T", err)
			}
		})
	}
}

func TestReserve(t *testing.T) {
	for _, text := range []string{"5", "", "%", "50.01%", "51%", "-1%", "+1%", "5.%", ".5%", "5.001%", "1e1%", "five%", "5 %", "99999999999%"} {
		if _, err := config.Parse("weir.yaml", []byte("reserve: '"+text+"'")); err == nil ||
			!strings.Contains(err.Error(), "write a percentage from 0% to 50%, for example 5%") {
			t.Errorf("reserve %q: error %v", text, err)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if _, err := config.Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	must.Succeed(t, os.WriteFile(path, []byte("rate: 1M\nrat: 1\n"), 0o600))
	if _, err := config.Load(path); err == nil || err.Error() != path+":2: rat: unknown key; did you mean rate?" {
		t.Errorf("error %v", err)
	}
	must.Succeed(t, os.WriteFile(path, []byte("rate: 1M\n"), 0o600))
	if c, err := config.Load(path); err != nil || len(c.Uplinks) != 1 || c.Uplinks[0].RateBPS != 1_000_000 {
		t.Errorf("Load = %+v, %v", c, err)
	}
}

// TestExample: the example says what it shows, names every key, and states the
// defaults truly.
func TestExample(t *testing.T) {
	got, err := config.Parse("example.yaml", []byte(config.Example))
	must.Succeed(t, err)
	want := config.Default()
	want.Uplinks = []config.Uplink{{Interface: "eth0", RateBPS: 100_000_000, Precision: v1.PrecisionExact, In: true, InRateBPS: 95_000_000}}
	want.SocketGroup = "docker"
	want.Listen = config.Listen{
		Address: "192.0.2.1:7481", CertificatePath: "/etc/weir/tls/cert.pem", KeyPath: "/etc/weir/tls/key.pem",
		ClientCAPath: "/etc/weir/tls/clients.pem", Admins: []string{"hub.example.net"},
	}
	want.Dashboard = "127.0.0.1:7480"
	want.Host = v1.Policy{Weight: 100, MinBPS: 2e6, MaxBPS: 80e6, Priority: 10, LatencyMS: 20,
		EFMax: v1.Part{Percent: 50}, AFMin: v1.Part{Percent: 30}}
	want.Classifier = config.Classifier{Path: "/etc/weir/classifier.json", Levels: []string{"P2P=AF"}, MinConfidence: new(0.6)}
	want.Rules = policy.Rules{
		Defaults: policy.Values{Weight: new(uint32(100)), MaxBPS: new(uint64(50e6)), InMaxBPS: new(uint64(80e6))},
		Limits: []policy.Limit{{
			Selector: policy.Selector{Project: "ci-*"},
			Limits:   policy.Limits{Weight: new(uint32(50)), MinBPS: new(uint64(0)), MaxBPS: new(uint64(20e6)), Priority: new(uint32(0)), InMinBPS: new(uint64(0)), InMaxBPS: new(uint64(40e6))},
		}, {
			Selector: policy.Selector{Image: "registry.example.com/untrusted/*"},
			Limits:   policy.Limits{Weight: new(uint32(10))},
		}},
		Policies: []policy.Rule{
			{Selector: policy.Selector{Name: "camera-*"}, Values: policy.Values{MinBPS: new(uint64(10e6)), LatencyMS: new(20.0)}},
			{Selector: policy.Selector{Project: "shop", Service: "web"}, Values: policy.Values{
				Weight: new(uint32(300)), InWeight: new(uint32(200)), InMinBPS: new(uint64(5e6)), InPriority: new(uint32(10)), InLatencyMS: new(20.0),
			}},
			{Selector: policy.Selector{Name: "pbx"}, Values: policy.Values{
				Class: new(v1.ClassAuto), EFMax: &v1.Part{Percent: 50}, AFMin: &v1.Part{Percent: 30}, DSCP: new(v1.DSCPMark),
			}},
		},
	}
	want.Containers = []config.Container{
		{Name: "camera", NetNSPath: "/run/netns/camera", Interface: "eth0", Labels: map[string]string{"weir.min": "10mbit", "weir.latency": "20ms"}},
		{Name: "backup", NetNSPath: "/run/netns/backup", Labels: map[string]string{"weir.weight": "10", "weir.max": "20mbit"}},
		{Name: "nginx", CgroupPath: "system.slice/nginx.service", Labels: map[string]string{"weir.weight": "300"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("example = %+v\nwant      %+v", got, want)
	}

	// What is commented out must be right, too.
	_, list, found := strings.Cut(config.Example, "# uplinks:\n")
	if !found {
		t.Fatal("the example does not show uplinks")
	}
	list, _, _ = strings.Cut(list, "\n\n")
	list = strings.ReplaceAll("uplinks:\n"+list, "\n# ", "\n")
	if c, err := config.Parse("list", []byte(list)); err != nil || len(c.Uplinks) != 2 || !reflect.DeepEqual(c.Uplinks[0], got.Uplinks[0]) {
		t.Errorf("the list of uplinks in the example: %+v, %v", c.Uplinks, err)
	}

	// Every key that is known is shown. What is known, an unknown key tells.
	_, err = config.Parse("weir.yaml", []byte(
		"zzz: 0\nhost: {zzz: 0}\ndefaults: {zzz: 0}\nlimits:\n- {at_most: {zzz: 0}, zzz: 0}\nlevels: {zzz: 0}\npolicies:\n- {name: a, policy: {}, zzz: 0}\ndocker: {zzz: 0}\nlisten: {certificate: /c, key: /k, zzz: 0}\nuplinks:\n- {interface: a, zzz: 0}\ncontainers:\n- {name: a, netns: a, zzz: 0}\n"))
	for _, line := range strings.Split(err.Error(), "\n") {
		_, keys, ok := strings.Cut(line, "known here are ")
		if !ok {
			t.Fatalf("error %s", line)
		}
		for _, key := range strings.Split(keys, ", ") {
			if !strings.Contains(config.Example, key+":") {
				t.Errorf("the example does not show %s", key)
			}
		}
	}
}

// TestPolicyMeansLabels: a policy, here or there, means what the same labels mean.
func TestPolicyMeansLabels(t *testing.T) {
	values := rapid.SampledFrom([]string{"1", "0", "500", "10M", "20mbit", "30MB", "20ms", "ef", "auto", "x", "60%", "20%"})
	rapid.Check(t, func(t *rapid.T) {
		labels := map[string]string{}
		keys := strings.Builder{}
		for _, name := range policy.Names() {
			if rapid.Bool().Draw(t, name) {
				value := values.Draw(t, name)
				labels[policy.Prefix+name] = value
				keys.WriteString("\n    " + name + ": " + value)
			}
		}
		want, problems := policy.Parse(labels)
		host, hostErr := config.Parse("host", []byte("host:"+keys.String()))
		listed, err := config.Parse("container", []byte("containers:\n- name: a\n  netns: a\n  policy:"+keys.String()))
		if (err == nil) != (problems == nil) || (hostErr == nil) != (problems == nil) {
			t.Fatalf("labels: %v\nhost: %v\ncontainer: %v", problems, hostErr, err)
		}
		if problems != nil {
			return
		}
		if host.Host != want {
			t.Fatalf("host %+v; want %+v", host.Host, want)
		}
		if got, problems := policy.Parse(listed.Containers[0].Labels); got != want || problems != nil {
			t.Fatalf("container %+v, %v; want %+v", got, problems, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(config.Example))
	for _, seed := range []string{
		"", "a: [", "- x", "uplinks:\n- {interface: a}\n- b", "host: {<<: *x}", "? a\n: b", "rate: 1\nrate: 2",
		"containers:\n- {name: a, netns: b, labels: {weir.min: 1M}}", "--- \n...\n---\nx: 1", "host: !!map {}", "reserve: 5%",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("weir.yaml", data)
		if err != nil {
			at, ok := errors.AsType[*config.Error](err)
			if !ok || at.Line < 1 || at.Line > strings.Count(string(data), "\n")+strings.Count(string(data), "\r")+1 || at.Message == "" {
				t.Errorf("error %#v", err)
			}
			return
		}
		uplinks := map[string]bool{}
		for _, uplink := range c.Uplinks {
			if uplinks[uplink.Interface] || uplink.Interface == "" && len(c.Uplinks) > 1 {
				t.Errorf("uplinks %+v", c.Uplinks)
			}
			uplinks[uplink.Interface] = true
		}
		if c.ReserveBasisPoints > config.MaxReserveBasisPoints ||
			!filepath.IsAbs(c.Socket) || !filepath.IsAbs(c.StateDir) {
			t.Errorf("Parse = %+v", c)
		}
		names := map[string]bool{}
		for _, container := range c.Containers {
			if container.Name == "" || names[container.Name] ||
				(container.NetNSPath == "") == (container.CgroupPath == "") ||
				container.NetNSPath != "" && !filepath.IsAbs(container.NetNSPath) ||
				container.CgroupPath != "" && container.CgroupPath != filepath.Clean(container.CgroupPath) {
				t.Errorf("container %+v", container)
			}
			names[container.Name] = true
			if _, problems := policy.Parse(container.Labels); problems != nil {
				t.Errorf("labels %v: %v", container.Labels, problems)
			}
		}
	})
}
