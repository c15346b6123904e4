package config

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/share/policy"
)

// EdgePath is where weir-edge looks for its configuration.
const EdgePath = "/etc/weir/edge.yaml"

// EdgeExample is a commented file with every key.
//
//go:embed edge.yaml
var EdgeExample string

// Edge is the content of weir-edge's file; omitted keys are empty.
type Edge struct {
	// Docker is the engine's socket, Network the network of instances, Agent the socket of
	// this host's Weir agent.
	Docker, Network, Agent string
	// Kubernetes is the kubeconfig of a cluster to manage in place of Docker, or [PodKubeconfig].
	Kubernetes string
	StateDir   string
	Dashboard  string
	Agents     EdgeDaemon // of a swarm's nodes
	SDN        EdgeSDN
	Repository EdgeRepository
	// Rules are the operator's placement algorithms by name, as CEL expressions.
	Rules map[string]string
}

// EdgeDaemon says how to reach daemons on other hosts. All files are PEM files,
// except the token's.
type EdgeDaemon struct{ URL, CAPath, CertificatePath, KeyPath, TokenPath string }

// EdgeSDN says how to reach the controllers of the switches between nodes and users, whose URLs have commas
// between them. Users is the address of the router or host that users are behind.
type EdgeSDN struct {
	EdgeDaemon
	Users string
}

// EdgeRepository says how nodes get pushed images.
type EdgeRepository struct {
	Address, CertificatePath, KeyPath string
	// Labels are the policy of the repository's traffic; nil for the default.
	Labels map[string]string
}

// LoadEdge reads weir-edge's file at path.
func LoadEdge(path string) (Edge, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Edge{}, fmt.Errorf("read configuration: %w", err)
	}
	return ParseEdge(path, data)
}

// ParseEdge parses the contents of weir-edge's file as [Parse] does.
func ParseEdge(name string, data []byte) (Edge, error) {
	r := reader{file: name}
	var e Edge
	if root, ok := r.parse(data); ok {
		readEdge(&e, root)
	}
	if err := r.err(); err != nil {
		return Edge{}, err
	}
	return e, nil
}

// PodKubeconfig in place of the path of a kubeconfig stands for the cluster and the namespace that weir-edge is a pod of.
const PodKubeconfig = "pod"

func parseKubeconfig(text string) (string, error) {
	if text == PodKubeconfig {
		return text, nil
	}
	return parsePath(text)
}

func readEdge(e *Edge, root value) {
	f := root.fields("docker", "kubernetes", "network", "agent", "state_dir", "dashboard", "agents", "sdn", "repository", "rules")
	read(f["docker"], &e.Docker, parsePath)
	read(f["kubernetes"], &e.Kubernetes, parseKubeconfig)
	read(f["network"], &e.Network, parseName)
	read(f["agent"], &e.Agent, parsePath)
	read(f["state_dir"], &e.StateDir, parsePath)
	read(f["dashboard"], &e.Dashboard, ParseEdgeDashboard)

	readDaemon(&e.Agents, f["agents"], ParseAgentsURL)
	sdn := readDaemon(&e.SDN.EdgeDaemon, f["sdn"], ParseSDNURL, "users")
	read(sdn["users"], &e.SDN.Users, ParseUsers)

	repository := f["repository"].fields("address", "certificate", "key", "labels")
	read(repository["address"], &e.Repository.Address, ParseListen)
	read(repository["certificate"], &e.Repository.CertificatePath, parsePath)
	read(repository["key"], &e.Repository.KeyPath, parsePath)
	if f["repository"].given() {
		f["repository"].require(repository, "address")
	}
	readPolicyLabels(repository["labels"], &e.Repository.Labels)
	readEdgeRules(f["rules"], &e.Rules)
}

// readDaemon reads how to reach other daemons, with further keys that must be there.
func readDaemon(to *EdgeDaemon, v value, parseURL func(string) (string, error), more ...string) map[string]value {
	f := v.fields(append([]string{"url", "ca", "certificate", "key", "token_file"}, more...)...)
	read(f["url"], &to.URL, parseURL)
	read(f["ca"], &to.CAPath, parsePath)
	read(f["certificate"], &to.CertificatePath, parsePath)
	read(f["key"], &to.KeyPath, parsePath)
	read(f["token_file"], &to.TokenPath, parsePath)
	if v.given() {
		v.require(f, append([]string{"url"}, more...)...)
	}
	return f
}

// readPolicyLabels reads a policy into container labels.
func readPolicyLabels(v value, labels *map[string]string) {
	if !v.given() {
		return
	}
	*labels = map[string]string{}
	fields := v.fields()
	for name, at := range fields {
		if text, ok := at.text(); ok {
			(*labels)[name] = text
		}
	}
	_, problems := policy.Parse(*labels)
	for _, p := range problems {
		fields[p.Name].fail("%q: %s", p.Value, p.Message)
	}
}

// ruleName matches valid names of rules.
var ruleName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func readEdgeRules(v value, rules *map[string]string) {
	for name, at := range v.fields() {
		text, ok := at.text()
		switch {
		case !ok:
		case !ruleName.MatchString(name), slices.Contains([]string{"local", "remote", "hybrid", "rule"}, name):
			at.fail("is not a name that a rule can have; write small letters, digits, - and _, and not local, remote, hybrid or rule")
		default:
			if *rules == nil {
				*rules = map[string]string{}
			}
			(*rules)[name] = text
		}
	}
}

// ParseAgentsURL parses the URL template of the nodes' agents, which contains {address}.
func ParseAgentsURL(text string) (string, error) {
	const example = "https://{address}:7481"
	switch {
	case !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "unix://"):
		return "", errors.New("is neither https:// nor unix://: agents are asked by other hosts over TLS only; write for example " + example)
	case !strings.Contains(text, "{address}"):
		return "", errors.New("has no {address} where a node's address belongs; write for example " + example)
	}
	return text, nil
}

// ParseSDNURL parses the URLs of controllers of switches, with commas between them.
func ParseSDNURL(text string) (string, error) {
	for url := range strings.SplitSeq(text, ",") {
		if path, local := strings.CutPrefix(url, "unix://"); !strings.HasPrefix(url, "https://") && !(local && strings.HasPrefix(path, "/")) {
			return "", errors.New("is neither https://HOST:PORT nor unix:///PATH of a socket")
		}
	}
	return text, nil
}

// ParseUsers parses the address that users are behind.
func ParseUsers(text string) (string, error) {
	if address, err := netip.ParseAddr(text); err != nil || address.IsUnspecified() || address.Zone() != "" {
		return "", errors.New("is not the address of the router or host that users are behind, such as 198.18.0.1")
	}
	return text, nil
}
