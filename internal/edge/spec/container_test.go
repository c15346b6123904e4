package spec

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

func home() Spec {
	return Spec{Name: "home-db", Image: "db", Algorithm: AlgorithmHybrid, Labels: map[string]string{}, Container: &Container{
		Project: "home", Name: "db",
		Process: Process{Environment: []string{"USER=me", "PASSWORD=sesame"}, Command: []string{"a", "b"}},
		Mounts:  []Mount{{Type: "volume", Source: "home_data", Target: "/data"}},
		Files:   []File{{Target: "/run/secrets/a", Mode: 0o444, Secret: true, Digest: Digest([]byte("x")), Content: []byte("x")}, {Target: "/b", External: "b"}, {Target: "/empty", Digest: Digest(nil)}},
	}}
}

// TestContainer: a container is read as it was written, and its contents go another way.
func TestContainer(t *testing.T) {
	s := home()
	text, err := s.MarshalJSON()
	must.Succeed(t, err)
	again, err := Parse(text)
	must.Succeed(t, err)
	if !reflect.DeepEqual(again, s) {
		t.Errorf("got %+v, want %+v", again.Container, s.Container)
	}
	files, err := again.TakeFiles()
	must.Succeed(t, err)
	if len(files) != 2 || string(files[Digest([]byte("x"))]) != "x" || again.Container.Files[0].Content != nil || s.Container.Files[0].Content == nil {
		t.Errorf("got %v, and %+v is left", files, again.Container.Files)
	}
	if more, err := again.TakeFiles(); err != nil || len(more) != 1 { // the empty one
		t.Errorf("again: %v, %v", more, err)
	}
	s.Container.Files[0].Content = []byte("y")
	if _, err := s.TakeFiles(); err == nil {
		t.Error("a content with another digest was taken")
	}
}

// TestMasked: of the texts of a container these are shown, and of masked options the names. A masked
// specification can be read, and its service is kept where it is.
func TestMasked(t *testing.T) {
	var c Container
	fill(reflect.ValueOf(&c).Elem(), "")
	c.Process.Environment = []string{"PASSWORD=sesame"}
	text, err := Spec{Container: &c, Labels: map[string]string{"auth.users": "sesame", "weir.max": "5mbit"}}.Masked().MarshalJSON()
	must.Succeed(t, err)
	shown := regexp.MustCompile(`"sesame of ([^"]*)"`).FindAllStringSubmatch(string(text), -1)
	var got []string
	for _, match := range shown {
		got = append(got, match[1])
	}
	if want := []string{
		"Project", "Name", "Process.WorkingDir", "Process.User", "Process.Groups", "Process.Hostname", "Process.StopSignal",
		"Security.CapAdd", "Security.CapDrop", "Security.Options", "Security.Sysctls", "Security.PID", "Security.IPC",
		"Network.Mode", "Network.Attached.Name", "Network.Attached.Aliases", "Network.Attached.Subnets", "Network.Ports.Address", "Network.Ports.Protocol",
		"Network.Hosts", "Network.DNS", "Network.DNSSearch", "Network.DNSOptions",
		"Mounts.Type", "Mounts.Source", "Mounts.Target", "Mounts.Driver", "Mounts.Subpath", "Mounts.Propagation",
		"Files.Target", "Files.UID", "Files.GID", "Files.External", "Devices", "Resources.CPUSet", "Resources.Ulimits.Name", "LogDriver", "Needs", "Node",
	}; !slices.Equal(got, want) {
		t.Errorf("shown are %q", got)
	}
	if n := strings.Count(string(text), "sesame"); n != len(got) {
		t.Errorf("%d times: %s", n, text)
	}
	for _, part := range []string{`"PASSWORD=***"`, `"option":"***"`, `"weir.max":"5mbit"`, `"auth.users":"***"`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
	s := home()
	s.Container.Mounts[0].Options = Options{"type": "cifs", "o": "password=sesame"}
	text, err = s.Masked().MarshalJSON()
	must.Succeed(t, err)
	again, err := Parse(text)
	must.Succeed(t, err)
	if again.Keeper() != s.Keeper() || again.IsExclusive() != s.IsExclusive() || strings.Contains(string(text), "sesame") {
		t.Errorf("%q, not %q: %s", again.Keeper(), s.Keeper(), text)
	}
}

// fill fills a value: texts with "sesame of " and the path of their field, lists and maps with one.
func fill(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("sesame of " + path)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), path)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("option"), reflect.ValueOf("sesame of "+path))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."))
		}
	}
}

func TestContainerRefused(t *testing.T) {
	for text, says := range map[string]string{
		`{"nothing": 1}`:    "unknown field",
		`3`:                 "container",
		`{"instances": -1}`: "container.instances",
		`{"network": {"mode": "container:edgeproxy-shop"}}`:               "container.network.mode",
		`{"network": {"attached": [{"name": "a"}, {"name": "host"}]}}`:    "container.network.attached[1]: is host",
		`{"network": {"attached": [{"name": "docker_gwbridge"}]}}`:        "container.network.attached[0]",
		`{"mounts": [{"type": "x"}]}`:                                     "container.mounts[0]",
		`{"files": [{"target": "/a", "mode": 1}]}`:                        "container.files[0]",
		`{"files": [{"target": "/a", "mode": 1, "digest": "../../etc"}]}`: "container.files[0]",
	} {
		_, err := Parse([]byte(`{"par": {"serviceName": "a", "imageName": "b"}, "container": ` + text + `}`))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestKeeper: what is on one node only keeps its service there, and what writes there is alone.
func TestKeeper(t *testing.T) {
	for _, c := range []struct {
		what   string
		c      Container
		keeper string
		alone  bool
	}{
		{"nothing", Container{}, "", false},
		{"a local volume", Container{Mounts: []Mount{{Type: "volume", Source: "v"}}}, "the volume v", true},
		{"a local volume to read", Container{Mounts: []Mount{{Type: "volume", Source: "v", ReadOnly: true}}}, "the volume v", false},
		{"a volume of each instance", Container{Mounts: []Mount{{Type: "volume"}}}, "", false},
		{"a volume of a server", Container{Mounts: []Mount{{Type: "volume", Source: "v", Driver: "local", Options: Options{"type": "nfs4"}}}}, "", true},
		{"one that is for several", Container{Instances: 2, Mounts: []Mount{{Type: "volume", Source: "v", Driver: "rexray"}}}, "", false},
		{"a path", Container{Mounts: []Mount{{Type: "bind", Source: "/srv"}}}, "the path /srv", true},
		{"a path to read", Container{Mounts: []Mount{{Type: "bind", Source: "/srv", ReadOnly: true}}}, "the path /srv", false},
		{"a socket", Container{Mounts: []Mount{{Type: "bind", Source: "/run/docker.sock"}}}, "the path /run/docker.sock", false},
		{"a port", Container{Network: Network{Ports: []HostPort{{Host: 53, Protocol: "udp"}}}}, "the port 53/udp of the host", true},
		{"the host's network", Container{Network: Network{Mode: "host"}}, "the network of the host", true},
	} {
		s := Spec{Container: &c.c}
		if s.Keeper() != c.keeper || s.IsExclusive() != c.alone || s.IsExclusive() && s.MostInstances() != 1 {
			t.Errorf("%s: %q, %v", c.what, s.Keeper(), s.IsExclusive())
		}
	}
}

// TestFingerprint: instances start anew for what they have, and for nothing else.
func TestFingerprint(t *testing.T) {
	s := home()
	before := s.Fingerprint("sha256:1")
	same := home()
	same.MaxUsers, same.Container.Needs, same.Container.Instances = 5, []string{"x"}, 3
	same.Labels["weir.min"] = "5mbit"
	if same.Fingerprint("sha256:1") != before {
		t.Error("what users need starts instances anew")
	}
	other := home()
	other.Container.Process.Environment[0] = "USER=you"
	if other.Fingerprint("sha256:1") == before || s.Fingerprint("sha256:2") == before {
		t.Error("another environment, or another image, starts none anew")
	}
}

// TestCanSleep: a service sleeps only if nothing but users at its proxy needs it.
func TestCanSleep(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Spec)
		want   bool
	}{
		"it may":           {func(*Spec) {}, true},
		"nothing says so":  {func(s *Spec) { s.Container = &Container{} }, false},
		"no Compose file":  {func(s *Spec) { s.Container = nil }, false},
		"two replicas":     {func(s *Spec) { s.Container.Instances = 2 }, false},
		"no port":          {func(s *Spec) { s.Ports = nil }, false},
		"room for users":   {func(s *Spec) { s.NumUsers = 1 }, false},
		"availability":     {func(s *Spec) { s.AvailabilityPercent = 99 }, false},
		"a minimum":        {func(s *Spec) { s.Labels = map[string]string{"weir.min": "1mbit"} }, false},
		"another priority": {func(s *Spec) { s.Labels = map[string]string{"weir.priority": "1"} }, true},
	} {
		s := Spec{Container: &Container{Sleeps: true}, Ports: []Port{{Host: 80, Container: 80}}}
		tc.change(&s)
		if got := s.CanSleep(); got != tc.want || (s.LeastInstances() == 0) != tc.want {
			t.Errorf("%s: %v, at least %d", name, got, s.LeastInstances())
		}
	}
}
