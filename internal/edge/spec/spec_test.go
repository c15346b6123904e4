package spec_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/spec"
)

// paper is S1_spec of PiCasso, section III.B, in JSON.
const paper = `{"par": {"serviceName": "S1", "imageName": "armhfbuild/nginx", "imageSize": "368", "maxUsers": "50", "startUpTime": "5"},
 "QoS": {"responseTime": "5", "availability": "99.99", "numUsers": "100"}}`

func TestParse(t *testing.T) {
	s1 := spec.Spec{
		Name: "S1", Image: "armhfbuild/nginx", ImageBytes: 368e6, MaxUsers: 50, StartUpSeconds: 5,
		ResponseSeconds: 5, AvailabilityPercent: 99.99, NumUsers: 100,
		Labels: map[string]string{}, Algorithm: "hybrid",
	}
	for _, tc := range []struct {
		name, text string
		want       spec.Spec
	}{
		{"the paper's", paper, s1},
		{"with numbers", `{"par": {"serviceName": "S1", "imageName": "armhfbuild/nginx", "imageSize": 368, "maxUsers": 50, "startUpTime": 5},
			"QoS": {"responseTime": 5.0, "availability": 99.99, "numUsers": 1e2}}`, s1},
		{
			"all keys", `{"par": {"serviceName": "web", "imageName": "nano", "imageSize": "0.088"}, "QoS": {"replicationTime": 30},
			"ports": [{"host": "80", "container": 8083}, {"host": 443, "container": 8083}],
			"labels": {"weir.min": "5mbit", "weir.priority": 7, "other": "x"}, "limits": {"memory": "64m", "cpus": "0.5", "instances": 4},
			"algorithm": "local"}`,
			spec.Spec{
				Name: "web", Image: "nano", ImageBytes: 88000, ReplicationSeconds: 30,
				Ports:  []spec.Port{{Host: 80, Container: 8083}, {Host: 443, Container: 8083}},
				Labels: map[string]string{"weir.min": "5mbit", "weir.priority": "7", "other": "x"},
				Limits: spec.Limits{MemoryBytes: 64 << 20, CPUs: 0.5, Instances: 4}, Algorithm: "local",
			},
		},
		{
			"the paper's descriptor", `{"imageName": "hyprriot/rpi-busybox-httpd:latest", "port_host": "80", "port_container": "8083"}`,
			spec.Spec{
				Name: "rpi-busybox-httpd", Image: "hyprriot/rpi-busybox-httpd:latest", Ports: []spec.Port{{Host: 80, Container: 8083}},
				Labels: map[string]string{}, Algorithm: "hybrid",
			},
		},
		{
			"a rule", `{"par": {"serviceName": "r", "imageName": "r"}, "rule": "true", "QoS": null}`,
			spec.Spec{Name: "r", Image: "r", Labels: map[string]string{}, Algorithm: "rule", Rule: "true"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := spec.Parse([]byte(tc.text))
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Fatalf("%+v, %v; want %+v", got, err, tc.want)
			}
			data, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			var again spec.Spec
			if err := json.Unmarshal(data, &again); err != nil || !reflect.DeepEqual(again, tc.want) {
				t.Errorf("written and read again: %s: %+v, %v", data, again, err)
			}
		})
	}
}

// TestErrors: each names the key and says what to write.
func TestErrors(t *testing.T) {
	par := func(rest string) string {
		return `{"par": {"serviceName": "s", "imageName": "i"` + rest + `}}`
	}
	with := func(rest string) string { return `{"par": {"serviceName": "s", "imageName": "i"}, ` + rest + `}` }
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", ``, `line 1, column 1: it ends too early`},
		{"half", `{"par": {`, `it ends too early`},
		{"as Python writes it", "{\n 'par': {}}", `line 2, column 2: names and texts are in double quotes`},
		{"two", paper + paper, `something follows the specification`},
		{"twice", `{"par": {"serviceName": "s", "serviceName": "t"}}`, `par.serviceName: is given twice`},
		{"a list", `[]`, `is a list; write an object with the keys par and QoS`},
		{"deep", strings.Repeat("[", 100), `nested too deeply`},
		{"long", `"` + strings.Repeat("x", 1<<20) + `"`, `at most 1048576 bytes`},
		{"empty", `{}`, `par: is missing; write at least par.serviceName and par.imageName`},
		{"par is a text", `{"par": "s"}`, `par: is a text; write an object with the keys serviceName,`},
		{"no names", `{"par": {}}`, "par.serviceName: is missing; write the name of the service\npar.imageName: is missing"},
		{"unknown key", par(`, "maxuser": 5`), `par.maxuser: unknown key; did you mean maxUsers?`},
		{"unknown key that paints", par(`, "\u001b[31m": 5`), `par."\x1b[31m": unknown key; known are`},
		{"unknown key of QoS", with(`"QoS": {"foo": 1}`), `QoS.foo: unknown key; known are responseTime, availability, numUsers, replicationTime`},
		{"unknown key of all", with(`"qos": {}`), `qos: unknown key; did you mean QoS?`},
		{"name", `{"par": {"serviceName": "a b", "imageName": "i"}}`, `par.serviceName: "a b" is no name; write`},
		{"name is a number", `{"par": {"serviceName": 5, "imageName": "i"}}`, `par.serviceName: is a number; write a text`},
		{"image", `{"par": {"serviceName": "s", "imageName": "Up Per"}}`, `par.imageName: "Up Per" is no name of an image`},
		{"size with unit", par(`, "imageSize": "88kB"`), `par.imageSize: "88kB" has a unit; it is in megabytes, write 0.088`},
		{"size with odd unit", par(`, "imageSize": "88 furlongs"`), `par.imageSize: "88 furlongs" has the unit furlongs; write a number of megabytes from`},
		{"users", par(`, "maxUsers": 2.5`), `par.maxUsers: "2.5" is not whole; write a whole number from 1`},
		{"no users", par(`, "maxUsers": 0`), `par.maxUsers: "0" is out of range`},
		{"users as truth", par(`, "maxUsers": true`), `par.maxUsers: is true or false; write a whole number`},
		{"negative", par(`, "startUpTime": -1`), `par.startUpTime: "-1" is out of range`},
		{"negative text", par(`, "startUpTime": "-1"`), `par.startUpTime: "-1" is no number`},
		{"not a number", par(`, "startUpTime": "NaN"`), `par.startUpTime: "NaN" is no number`},
		{"huge", par(`, "startUpTime": 1e999`), `par.startUpTime: "1e999" is out of range`},
		{"milliseconds", with(`"QoS": {"responseTime": "500ms"}`), `QoS.responseTime: "500ms" has a unit; it is in seconds, write 0.5`},
		{"always", with(`"QoS": {"availability": 100}`), `QoS.availability: "100" is out of range: no number of replicas is there all the time; write`},
		{"part of one", with(`"QoS": {"availability": "0.999"}`), `QoS.availability: "0.999" is out of range: it is in percent, not a part of one`},
		{"percent", with(`"QoS": {"availability": "99.9%"}`), `write 99.9`},
		{"too many users", `{"par": {"serviceName": "s", "imageName": "i", "maxUsers": 1}, "QoS": {"numUsers": 5000}}`, `QoS.numUsers: 5000 users need 5000 instances of par.maxUsers 1, and a service has at most 1000`},
		{"too few instances", `{"par": {"serviceName": "s", "imageName": "i", "maxUsers": 50}, "QoS": {"numUsers": 101}, "limits": {"instances": 2}}`, `QoS.numUsers: 101 users need 3 instances of par.maxUsers 50, and limits.instances allows 2`},
		{"no time to start", `{"par": {"serviceName": "s", "imageName": "i", "startUpTime": 5}, "QoS": {"replicationTime": 5}}`, `QoS.replicationTime: 5 s are over before an instance has started`},
		{"YAML", "apiVersion: v1\npar:\n", `it is not JSON: write {"par": {...}`},
		{"ports", with(`"ports": {"host": 80}`), `ports: is an object; write a list`},
		{"port", with(`"ports": [80]`), `ports[0]: is a number; write an object with the keys host, container`},
		{"half a port", with(`"ports": [{"host": 80}]`), `ports[0]: needs both host and container`},
		{"port 0", with(`"ports": [{"host": 80, "container": 65536}]`), `ports[0].container: "65536" is out of range`},
		{"port twice", with(`"ports": [{"host": 80, "container": 1}, {"host": 80, "container": 2}]`), `ports[1].host: 80 is given twice`},
		{"labels", with(`"labels": []`), `labels: is a list; write an object`},
		{"label", with(`"labels": {"weir.min": "5MB"}`), `labels.weir.min: "5MB": has the unit "MB": bytes are not accepted`},
		{"label of weir-edge's", with(`"labels": {"weir-edge.helth": "/x"}`), `labels."weir-edge.helth": unknown label; did you mean weir-edge.health?`},
		{"label that weir-edge writes", with(`"labels": {"weir-edge.role": "ledger"}`), `labels."weir-edge.role": unknown label; `},
		{"label of a list", with(`"labels": {"a": []}`), `labels.a: is a list; write a text`},
		{"memory", with(`"limits": {"memory": 64}`), `limits.memory: "64" is out of range: write from 6m, the least that Docker takes, to 1048576g; without a unit it is bytes, did you mean 64m?`},
		{"memory unit", with(`"limits": {"memory": "64x"}`), `limits.memory: "64x" has an unknown unit`},
		{"memory in words", with(`"limits": {"memory": "lots"}`), `limits.memory: "lots" is no amount of memory`},
		{"processors", with(`"limits": {"cpus": 0}`), `limits.cpus: "0" is out of range`},
		{"algorithm", with(`"algorithm": "Best One"`), `algorithm: "Best One" is no algorithm; write local, remote, hybrid`},
		{"no rule", with(`"algorithm": "rule"`), `rule: is missing`},
		{"idle rule", with(`"algorithm": "local", "rule": "true"`), `rule: is not used by the algorithm local`},
		{"long rule", with(`"rule": "` + strings.Repeat("x", 5000) + `"`), `rule: has 5000 bytes; write at most 4096`},
		{"descriptor", `{"imageName": "x", "port_host": 80}`, `port_host: and port_container belong together`},
		{"descriptor with more", `{"imageName": "x", "port_host": 80, "port_container": 80, "port": 5}`, `port: unknown key`},
		{"descriptor without image", `{"port_host": 80, "port_container": 80}`, `imageName: is missing`},
		{"descriptor without name", `{"imageName": "a_-__b/..", "port_host": 80, "port_container": 80}`, `imageName: "a_-__b/.." is no name`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := spec.Parse([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestSpec(t *testing.T) {
	s, err := spec.Parse([]byte(paper))
	if err != nil {
		t.Fatal(err)
	}
	for users, want := range map[float64]int{0: 1, 50: 1, 50.5: 2, 100: 2, 101: 3} {
		if got := s.InstancesFor(users); got != want {
			t.Errorf("%v users: %d instances, want %d", users, got, want)
		}
	}
	for want, s := range map[int]spec.Spec{
		16: {}, 4: {Limits: spec.Limits{Instances: 4}}, 100: {MaxUsers: 2, NumUsers: 100},
	} {
		if got := s.MostInstances(); got != want {
			t.Errorf("%+v may have %d instances, want %d", s, got, want)
		}
	}
	if (&spec.Spec{}).InstancesFor(1e9) != 1 {
		t.Error("an instance of which nothing is known has no room")
	}
	if s.WaitSeconds() != 5 || (&spec.Spec{ResponseSeconds: 5, ReplicationSeconds: 9}).WaitSeconds() != 9 {
		t.Error("what the service can wait is the response time, or what replicationTime says")
	}
	s.Labels = map[string]string{"weir.min": "5mbit", "weir.in.min": "2mbit", "weir.priority": "3"}
	if s.MinBPS() != 5e6 || s.InMinBPS() != 2e6 || s.Priority() != 3 {
		t.Errorf("minimums %d and %d, priority %d", s.MinBPS(), s.InMinBPS(), s.Priority())
	}
}

// FuzzParse: whatever is there, what is read can be written and is read again as
// the same, and keeps to its limits.
func FuzzParse(f *testing.F) {
	f.Add([]byte(paper))
	f.Add([]byte(`{"imageName": "a/b:c", "port_host": "80", "port_container": 8083}`))
	f.Add([]byte(`{"par": {"serviceName": "s", "imageName": "i"}, "ports": [{"host": 1, "container": 2}], "labels": {"weir.min": "1M"}, "limits": {"memory": "64m", "cpus": 1}, "rule": "x"}`))
	f.Add([]byte(`{"par": [null, {"a": 1e400}], "QoS": {"availability": "1"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := spec.Parse(data)
		if err != nil {
			return
		}
		if s.Name == "" || s.Image == "" || s.Algorithm == "" || s.AvailabilityPercent >= 100 || s.ResponseSeconds < 0 || s.MaxUsers < 0 {
			t.Errorf("accepted: %+v", s)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := spec.Parse(text)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%s is read again as %+v (%v), was %+v", text, again, err, s)
		}
	})
}
