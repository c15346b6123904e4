package spec

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/weir-project/weir/internal/share/policy"
)

// The most that a specification may ask for.
const (
	MaxInstances    = 1000
	maxUsers        = 10_000_000
	maxImageMB      = 1_000_000
	maxSeconds      = 3600
	maxCPUs         = 1024
	maxMemoryBytes  = 1 << 50
	minMemoryBytes  = 6 << 20 // Docker's
	maxRuleLength   = 4096
	maxErrors       = 20
	bytesPerMB      = 1e6
	maxAvailability = 99.99999
)

// The labels that are weir-edge's own: what the service's proxy is told. All others of
// that prefix it writes itself.
const (
	ownPrefix   = "weir-edge."
	LabelMode   = ownPrefix + "mode"
	LabelHealth = ownPrefix + "health"
)

var ownLabels = []string{LabelMode, LabelHealth}

var (
	// serviceName is what Swarm takes for the name of a service, and Docker as the
	// beginning of that of a container.
	serviceName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9_-]{0,48}[a-zA-Z0-9])?$`)
	// yamlBegins matches what begins as YAML does and JSON does not.
	yamlBegins    = regexp.MustCompile(`^\s*[A-Za-z#-]`)
	algorithmName = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,62})$`)
)

// Parse reads a specification, or the paper's deployment descriptor. The error
// names every key that is wrong and says what to write.
func Parse(data []byte) (Spec, error) {
	root, err := parseTree(data)
	if err != nil && yamlBegins.Match(data) {
		return Spec{}, errors.New("read the specification: it is not JSON: write {\"par\": {...}, \"QoS\": {...}}, and call a Compose file .yaml")
	} else if err != nil {
		return Spec{}, fmt.Errorf("read the specification: %w", err)
	}
	r := &reader{}
	s := Spec{Algorithm: AlgorithmHybrid, Labels: map[string]string{}}
	switch {
	case root.kind != kindObject:
		r.fail("the specification", "is %s; write an object with the keys par and QoS", root.kind)
	case root.member("par") == nil && (root.member("imageName") != nil || root.member("port_host") != nil):
		r.descriptor(root, &s)
	default:
		r.specification(root, &s)
		s.Container = r.container(root.member("container"), data)
	}
	if len(r.problems) == 0 {
		r.check(&s)
	}
	if err := r.err(); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// descriptor reads PiCasso's deploy_descriptor (section III.A).
func (r *reader) descriptor(root *value, s *Spec) {
	known := r.object(root, "imageName", "port_host", "port_container")
	s.Image = r.image(known["imageName"], "imageName")
	host, container := known["port_host"], known["port_container"]
	if host == nil || container == nil {
		r.fail("port_host", "and port_container belong together; write both: port_host is the node's, port_container the one that the image listens at")
	} else {
		s.Ports = []Port{{Host: r.port(host), Container: r.port(container)}}
	}
	s.Name = nameOf(s.Image)
	if s.Image != "" && !serviceName.MatchString(s.Name) {
		r.fail("imageName", "gives no name for the service; write a specification with par.serviceName")
	}
}

// nameOf returns the name of a service that is made from its image.
func nameOf(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(path.Base(reference.Path(named)), ".", "-")
}

func (r *reader) specification(root *value, s *Spec) {
	known := r.object(root, "par", "QoS", "ports", "labels", "limits", "algorithm", "rule", "container")
	if known["par"] == nil {
		r.fail("par", "is missing; write at least par.serviceName and par.imageName")
	} else {
		par := r.object(known["par"], "serviceName", "imageName", "imageSize", "maxUsers", "startUpTime")
		s.Name = r.serviceName(par["serviceName"])
		s.Image = r.image(par["imageName"], "par.imageName")
		s.ImageBytes = uint64(math.Round(r.number(par["imageSize"], megabytes) * bytesPerMB))
		s.MaxUsers = int(r.number(par["maxUsers"], users))
		s.StartUpSeconds = r.number(par["startUpTime"], seconds)
	}
	if known["QoS"] != nil {
		qos := r.object(known["QoS"], "responseTime", "availability", "numUsers", "replicationTime")
		s.ResponseSeconds = r.number(qos["responseTime"], seconds)
		s.AvailabilityPercent = r.number(qos["availability"], percent)
		s.NumUsers = int(r.number(qos["numUsers"], users))
		s.ReplicationSeconds = r.number(qos["replicationTime"], seconds)
	}
	s.Ports = r.ports(known["ports"])
	s.Labels = r.labels(known["labels"])
	s.Limits = r.limits(known["limits"])
	if known["algorithm"] != nil {
		s.Algorithm = r.text(known["algorithm"])
		if !algorithmName.MatchString(s.Algorithm) {
			r.fail("algorithm", "%q is no algorithm; write local, remote, hybrid, rule, or the name of a rule of the configuration", s.Algorithm)
		}
	} else if known["rule"] != nil {
		s.Algorithm = AlgorithmRule
	}
	if known["rule"] != nil {
		s.Rule = r.text(known["rule"])
	}
}

// check refuses values that contradict each other.
func (r *reader) check(s *Spec) {
	need := s.InstancesFor(float64(s.NumUsers))
	switch {
	case need > MaxInstances:
		r.fail("QoS.numUsers", "%d users need %d instances of par.maxUsers %d, and a service has at most %d; lower QoS.numUsers, or measure maxUsers with weir-edge profile", s.NumUsers, need, s.MaxUsers, MaxInstances)
	case s.Limits.Instances > 0 && need > s.Limits.Instances:
		r.fail("QoS.numUsers", "%d users need %d instances of par.maxUsers %d, and limits.instances allows %d; raise it, or lower QoS.numUsers", s.NumUsers, need, s.MaxUsers, s.Limits.Instances)
	}
	if s.ReplicationSeconds > 0 && s.StartUpSeconds >= s.ReplicationSeconds {
		r.fail("QoS.replicationTime", "%v s are over before an instance has started, which takes %v s (par.startUpTime); write more", s.ReplicationSeconds, s.StartUpSeconds)
	}
	switch {
	case s.Algorithm == AlgorithmRule && s.Rule == "":
		r.fail("rule", "is missing; write the rule that the algorithm is to be")
	case s.Algorithm != AlgorithmRule && s.Rule != "":
		r.fail("rule", "is not used by the algorithm %s; write \"algorithm\": \"rule\", or remove one of them", s.Algorithm)
	case len(s.Rule) > maxRuleLength:
		r.fail("rule", "has %d bytes; write at most %d", len(s.Rule), maxRuleLength)
	}
}

func (r *reader) serviceName(v *value) string {
	if v == nil {
		r.fail("par.serviceName", "is missing; write the name of the service")
		return ""
	}
	name := r.text(v)
	if !serviceName.MatchString(name) {
		r.fail(v.path, "%q is no name; write up to 50 letters, digits, - and _, with a letter or digit at both ends", name)
	}
	return name
}

func (r *reader) image(v *value, at string) string {
	if v == nil {
		r.fail(at, "is missing; write the name of the image, for example nginx:1.27")
		return ""
	}
	name := r.text(v)
	if _, err := reference.ParseNormalizedNamed(name); err != nil {
		r.fail(v.path, "%q is no name of an image (%v); write for example nginx:1.27", name, err)
	}
	return name
}

func (r *reader) ports(v *value) []Port {
	if v == nil {
		return nil
	}
	if v.kind != kindList {
		r.fail(v.path, `is %s; write a list: [{"host": 80, "container": 8083}]`, v.kind)
		return nil
	}
	var list []Port
	for _, item := range v.items {
		known := r.object(item, "host", "container")
		if item.kind != kindObject {
			continue
		}
		if known["host"] == nil || known["container"] == nil {
			r.fail(item.path, "needs both host and container")
			continue
		}
		port := Port{Host: r.port(known["host"]), Container: r.port(known["container"])}
		if slices.ContainsFunc(list, func(p Port) bool { return p.Host == port.Host }) {
			r.fail(item.path+".host", "%d is given twice; a port of the node leads to one port of the service", port.Host)
		}
		list = append(list, port)
	}
	return list
}

func (r *reader) port(v *value) uint16 { return uint16(r.number(v, port)) }

func (r *reader) labels(v *value) map[string]string {
	labels := map[string]string{}
	if v == nil {
		return labels
	}
	if v.kind != kindObject {
		r.fail(v.path, `is %s; write an object: {"weir.min": "5mbit"}`, v.kind)
		return labels
	}
	for _, m := range v.members {
		if m.kind != kindText && m.kind != kindNumber {
			r.fail(m.path, "is %s; write a text", m.kind)
			continue
		}
		if strings.HasPrefix(m.name, ownPrefix) && !slices.Contains(ownLabels, m.name) {
			r.fail(m.path, "unknown label; %s", suggest(m.name, ownLabels))
		}
		labels[m.name] = m.text
	}
	_, problems := policy.Parse(labels)
	for _, p := range problems {
		r.fail(v.path+"."+printable(p.Name), "%q: %s", p.Value, p.Message)
	}
	return labels
}

func (r *reader) limits(v *value) Limits {
	var l Limits
	if v == nil {
		return l
	}
	known := r.object(v, "memory", "cpus", "instances")
	l.MemoryBytes = r.memory(known["memory"])
	l.CPUs = r.number(known["cpus"], processors)
	l.Instances = int(r.number(known["instances"], instances))
	return l
}

// reader collects all problems of a specification.
type reader struct{ problems []error }

func (r *reader) fail(path, format string, args ...any) {
	if len(r.problems) < maxErrors {
		r.problems = append(r.problems, fmt.Errorf("%s: "+format, append([]any{path}, args...)...))
	}
}

func (r *reader) err() error { return errors.Join(r.problems...) }

// object returns the members of an object, and notes those that are not known.
func (r *reader) object(v *value, known ...string) map[string]*value {
	found := map[string]*value{}
	if v.kind != kindObject {
		r.fail(v.path, "is %s; write an object with the keys %s", v.kind, strings.Join(known, ", "))
		return found
	}
	for _, m := range v.members {
		if slices.Contains(known, m.name) {
			found[m.name] = m.value
			continue
		}
		r.fail(m.path, "unknown key; %s", suggest(m.name, known))
	}
	maps.DeleteFunc(found, func(_ string, v *value) bool { return v.kind == kindNull })
	return found
}

func suggest(name string, known []string) string {
	lower := make([]string, len(known))
	for i, k := range known {
		lower[i] = strings.ToLower(k)
	}
	if near, ok := policy.Nearest(name, lower); ok {
		return fmt.Sprintf("did you mean %s?", known[slices.Index(lower, near)])
	}
	return "known are " + strings.Join(known, ", ")
}

func (r *reader) text(v *value) string {
	if v.kind != kindText {
		r.fail(v.path, "is %s; write a text in double quotes", v.kind)
	}
	return v.text
}
