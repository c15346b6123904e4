package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/front/config"
)

// TestEdgeExample: the example says what it shows, and names every key.
func TestEdgeExample(t *testing.T) {
	got, err := config.ParseEdge("edge.yaml", []byte(config.EdgeExample))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Edge{
		Docker: "/var/run/docker.sock", Network: "bridge", Agent: "/run/weir/weir.sock", StateDir: "/var/lib/weir/edge", Dashboard: "127.0.0.1:7483",
		Agents: config.EdgeDaemon{
			URL: "https://{address}:7481", CAPath: "/etc/weir/tls/ca.pem", CertificatePath: "/etc/weir/tls/edge.pem", KeyPath: "/etc/weir/tls/edge-key.pem", TokenPath: "/etc/weir/edge.token",
		},
		SDN: config.EdgeSDN{Users: "192.0.2.254", EdgeDaemon: config.EdgeDaemon{
			URL: "https://192.0.2.9:7485,https://192.0.2.10:7485", CAPath: "/etc/weir/tls/ca.pem", CertificatePath: "/etc/weir/tls/edge.pem", KeyPath: "/etc/weir/tls/edge-key.pem", TokenPath: "/etc/weir/edge.token",
		}},
		Repository: config.EdgeRepository{
			Address: "192.0.2.1:7482", CertificatePath: "/etc/weir/tls/repository.pem", KeyPath: "/etc/weir/tls/repository-key.pem", Labels: map[string]string{"weir.weight": "10"},
		},
		Rules: map[string]string{"near": "option.transfer_seconds < 10.0 && option.cpu_percent < 50.0"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("example = %+v\nwant      %+v", got, want)
	}
	// What is known, an unknown key tells.
	_, err = config.ParseEdge("edge.yaml", []byte("zzz: 0\nagents: {url: 'unix://{address}', zzz: 0}\nrepository: {address: '192.0.2.1:1', zzz: 0}\n"))
	if err == nil {
		t.Fatal("unknown keys are taken")
	}
	for line := range strings.Lines(err.Error()) {
		_, keys, found := strings.Cut(strings.TrimSpace(line), "known here are ")
		if !found {
			t.Fatalf("error %s", line)
		}
		for _, key := range strings.Split(keys, ", ") {
			if !strings.Contains(config.EdgeExample, key+":") {
				t.Errorf("the example does not show %s", key)
			}
		}
	}
	for _, of := range []string{"/etc/weir/kubeconfig", config.PodKubeconfig} {
		if e, err := config.ParseEdge("edge.yaml", []byte("kubernetes: "+of)); err != nil || e.Kubernetes != of {
			t.Errorf("kubernetes: %s: %+v, %v", of, e, err)
		}
	}
	if none, err := config.ParseEdge("edge.yaml", nil); err != nil || !reflect.DeepEqual(none, config.Edge{}) {
		t.Errorf("of nothing: %+v, %v", none, err)
	}
}

func TestEdgeIsRefused(t *testing.T) {
	for file, says := range map[string]string{
		"kubernetes: edge.conf":                         "is not an absolute path",
		"dcoker: /d":                                    "edge.yaml:1: dcoker: unknown key; did you mean docker?",
		"docker: d":                                     `docker: "d": is not an absolute path`,
		"dashboard: 0.0.0.0:80":                         "is not an address of this machine alone; write for example 127.0.0.1:7483 (from elsewhere: ssh -L 7483:127.0.0.1:7483 HOST)",
		"agents: {ca: /c}":                              "agents: url is missing",
		"agents: {url: 'https://h:7481'}":               "has no {address}",
		"agents: {url: 'http://{address}:7481'}":        "is neither https:// nor unix://",
		"sdn: {url: 'https://h:7485'}":                  "sdn: users is missing",
		"sdn: {url: 'unix:///s,//h', users: 192.0.2.1}": "is neither https://HOST:PORT nor unix:///PATH",
		"sdn: {url: 'unix:///s', users: gateway}":       "is not the address of the router or host",
		"repository: {key: /k}":                         "repository: address is missing",
		"repository: {address: here}":                   `repository.address: "here": is not an address and a port`,
		"repository:\n  address: 192.0.2.1:1\n  labels: {weir.max: 10MB}": `edge.yaml:3: repository.labels.weir.max: "10MB": `,
		"rules: {local: 'true'}": "rules.local: is not a name that a rule can have",
		"rules: {near: [a]}":     "rules.near: is a list",
	} {
		if _, err := config.ParseEdge("edge.yaml", []byte(file)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q is not in: %v", file, says, err)
		}
	}
}
