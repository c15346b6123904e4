package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/share/policy"
)

// Container is what instances have beside the paper's notation: the part of a Compose file that is
// of one container. Where the specification has none, instances run the image as it is.
type Container struct {
	// Project and Name are the Compose file's: the service's name there is that in Networks, too.
	Project string `json:"project"`
	Name    string `json:"name"`

	Process  Process  `json:"process,omitzero"`
	Security Security `json:"security,omitzero"`
	Network  Network  `json:"network,omitzero"`
	Mounts   []Mount  `json:"mounts,omitempty"`
	Files    []File   `json:"files,omitempty"`
	Devices  []string `json:"devices,omitempty"` // "/dev/host:/dev/container:rwm"
	Health   *Health  `json:"health,omitempty"`
	// Resources beside [Limits].
	Resources Resources `json:"resources,omitzero"`
	LogDriver string    `json:"logDriver,omitempty"`
	LogOpts   Options   `json:"logOptions,omitempty"`

	// Needs are the services of this project that have to answer before the first instance starts.
	Needs []string `json:"needs,omitempty"`
	// Node is the only node that may have instances, by name or ID; empty: all may. That of a service
	// that is kept on its node ([Spec.Keeper]) is the ID of the node that it was deployed at.
	Node string `json:"node,omitempty"`
	// Instances is how many there are at least, 0 for one.
	Instances int `json:"instances,omitempty"`
	// Sleeps: there may be none while it has no users; see [Spec.CanSleep].
	Sleeps bool `json:"sleeps,omitempty"`
}

// Options are names with their values.
type Options map[string]string

// Process is what runs. Zero values are the image's.
type Process struct {
	Entrypoint  []string `json:"entrypoint,omitempty"`
	Command     []string `json:"command,omitempty"`
	Environment []string `json:"environment,omitempty"` // "NAME=value"
	WorkingDir  string   `json:"workingDir,omitempty"`
	User        string   `json:"user,omitempty"`
	Groups      []string `json:"groups,omitempty"`
	Hostname    string   `json:"hostname,omitempty"`
	Init        *bool    `json:"init,omitempty"`
	TTY         bool     `json:"tty,omitempty"`
	Stdin       bool     `json:"stdin,omitempty"`
	StopSignal  string   `json:"stopSignal,omitempty"`
	StopSeconds float64  `json:"stopSeconds,omitempty"`
}

// Security is what the process may do.
type Security struct {
	Privileged bool     `json:"privileged,omitempty"`
	ReadOnly   bool     `json:"readOnly,omitempty"`
	CapAdd     []string `json:"capAdd,omitempty"`
	CapDrop    []string `json:"capDrop,omitempty"`
	Options    []string `json:"options,omitempty"`
	Sysctls    Options  `json:"sysctls,omitempty"`
	PID        string   `json:"pid,omitempty"`
	IPC        string   `json:"ipc,omitempty"`
}

// Resources are limits of an instance; 0 for none.
type Resources struct {
	PIDs           int64    `json:"pids,omitempty"`
	SharedBytes    int64    `json:"sharedBytes,omitempty"` // of /dev/shm
	ReservedBytes  int64    `json:"reservedBytes,omitempty"`
	SwapLimitBytes int64    `json:"swapLimitBytes,omitempty"`
	CPUSet         string   `json:"cpuSet,omitempty"`
	CPUShares      int64    `json:"cpuShares,omitempty"`
	OOMScore       int      `json:"oomScore,omitempty"`
	Ulimits        []Ulimit `json:"ulimits,omitempty"`
}

// Ulimit is a limit of the process.
type Ulimit struct {
	Name string `json:"name"`
	Soft int64  `json:"soft"`
	Hard int64  `json:"hard"`
}

// Network is where instances are reached.
type Network struct {
	// Mode is empty for Attached, or host or none.
	Mode     string     `json:"mode,omitempty"`
	Attached []Attached `json:"attached,omitempty"`
	// Ports are the instance's own ports of the host, which no proxy serves.
	Ports      []HostPort `json:"ports,omitempty"`
	Hosts      []string   `json:"hosts,omitempty"` // "name:address"
	DNS        []string   `json:"dns,omitempty"`
	DNSSearch  []string   `json:"dnsSearch,omitempty"`
	DNSOptions []string   `json:"dnsOptions,omitempty"`
}

// Attached is a network with the instance's names there. One that is not External is made.
type Attached struct {
	Name     string   `json:"name"`
	Aliases  []string `json:"aliases,omitempty"`
	External bool     `json:"external,omitempty"`
	Internal bool     `json:"internal,omitempty"`
	IPv6     bool     `json:"ipv6,omitempty"`
	Subnets  []string `json:"subnets,omitempty"`
	Options  Options  `json:"options,omitempty"`
}

// HostPort is a port of the host that leads to the instance itself.
type HostPort struct {
	Address   string `json:"address,omitempty"` // of the host; empty: all
	Host      uint16 `json:"host"`
	Container uint16 `json:"container"`
	Protocol  string `json:"protocol"` // tcp, udp or sctp
}

// Mount is a volume, a path of the host ("bind"), or a "tmpfs".
type Mount struct {
	Type   string `json:"type"`
	Source string `json:"source,omitempty"` // empty: a volume of this instance only
	Target string `json:"target"`
	// ReadOnly: instances do not write there.
	ReadOnly bool `json:"readOnly,omitempty"`
	// External: the volume is there already.
	External    bool    `json:"external,omitempty"`
	Driver      string  `json:"driver,omitempty"`
	Options     Options `json:"options,omitempty"` // of the driver
	NoCopy      bool    `json:"noCopy,omitempty"`
	Subpath     string  `json:"subpath,omitempty"`
	Propagation string  `json:"propagation,omitempty"`
	// MustExist: a path of the host that is not made.
	MustExist bool   `json:"mustExist,omitempty"`
	SizeBytes int64  `json:"sizeBytes,omitempty"` // of a tmpfs
	Mode      uint32 `json:"mode,omitempty"`      // of a tmpfs
}

// File is a config or a secret.
type File struct {
	Target string `json:"target"`
	UID    string `json:"uid,omitempty"`
	GID    string `json:"gid,omitempty"`
	Mode   uint32 `json:"mode"`
	Secret bool   `json:"secret,omitempty"`
	// External is the name of a config or secret of the swarm; the others have a Digest.
	External string `json:"external,omitempty"`
	// Digest is the SHA-256 of the content, in hexadecimal.
	Digest string `json:"digest,omitempty"`
	// Content is there on the way to weir-edge only ([Spec.TakeFiles]).
	Content []byte `json:"content,omitempty"`
}

// Health is how the engine checks an instance.
type Health struct {
	Test                 []string `json:"test"`
	IntervalSeconds      float64  `json:"intervalSeconds,omitempty"`
	TimeoutSeconds       float64  `json:"timeoutSeconds,omitempty"`
	StartSeconds         float64  `json:"startSeconds,omitempty"`
	StartIntervalSeconds float64  `json:"startIntervalSeconds,omitempty"`
	Retries              int      `json:"retries,omitempty"`
}

// Digest returns the digest of a file's content.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// TakeFiles removes the contents of files from the specification and returns them by digest. Error: a
// content is not that of its digest.
func (s *Spec) TakeFiles() (map[string][]byte, error) {
	if s.Container == nil {
		return nil, nil
	}
	taken := map[string][]byte{}
	c := *s.Container
	c.Files = slices.Clone(c.Files)
	for i := range c.Files {
		f := &c.Files[i]
		if f.External != "" {
			continue
		}
		if f.Content == nil && f.Digest != Digest(nil) {
			continue // it was taken before
		}
		if Digest(f.Content) != f.Digest {
			return nil, fmt.Errorf("read the specification: container.files[%d]: the content is not that of the digest", i)
		}
		taken[f.Digest], f.Content = f.Content, nil
	}
	s.Container = &c
	return taken, nil
}

// masked is in place of what may be a password.
const masked = "***"

// Masked returns the specification without what may be a password: for readers, and records. These are
// values of environment variables, labels of other programs, and options of volumes, networks and logs;
// commands; and digests of files, from which a short content can be guessed. What is decided by stays.
func (s Spec) Masked() Spec {
	if s.Container == nil {
		return s
	}
	s.Labels = maskedValues(s.Labels, func(name string) bool { return strings.HasPrefix(name, "weir") })
	c := *s.Container
	c.Process.Entrypoint, c.Process.Command = maskedTexts(c.Process.Entrypoint), maskedTexts(c.Process.Command)
	c.Process.Environment = slices.Clone(c.Process.Environment)
	for i, text := range c.Process.Environment {
		name, _, _ := strings.Cut(text, "=")
		c.Process.Environment[i] = name + "=" + masked
	}
	if c.Health != nil {
		h := *c.Health
		h.Test = maskedTexts(h.Test)
		c.Health = &h
	}
	c.Mounts, c.Network.Attached, c.Files = slices.Clone(c.Mounts), slices.Clone(c.Network.Attached), slices.Clone(c.Files)
	for i := range c.Mounts { // the option "type" says where a volume is
		c.Mounts[i].Options = maskedValues(c.Mounts[i].Options, func(name string) bool { return name == "type" })
	}
	for i := range c.Network.Attached {
		c.Network.Attached[i].Options = maskedValues(c.Network.Attached[i].Options, nil)
	}
	for i := range c.Files {
		if f := &c.Files[i]; f.Digest != "" {
			f.Digest, f.Content = masked, nil
		}
	}
	c.LogOpts = maskedValues(c.LogOpts, nil)
	s.Container = &c
	return s
}

func maskedTexts(list []string) []string {
	if len(list) == 0 {
		return list
	}
	return []string{masked}
}

// maskedValues masks all values but those of names to keep; nil: of none.
func maskedValues[M ~map[string]string](values M, keep func(name string) bool) M {
	values = maps.Clone(values)
	for name := range values {
		if keep == nil || !keep(name) {
			values[name] = masked
		}
	}
	return values
}

// Keeper returns what keeps instances on one node: "the volume data", "the path /srv"; empty if they
// may be anywhere.
func (s *Spec) Keeper() string {
	if s.Container == nil {
		return ""
	}
	for _, m := range s.Container.Mounts {
		switch {
		case m.Type == "bind":
			return "the path " + m.Source
		case m.Type == "volume" && m.isLocal():
			return "the volume " + m.Source
		}
	}
	return s.Container.Network.keeper()
}

func (n *Network) keeper() string {
	switch {
	case n.Mode == "host":
		return "the network of the host"
	case len(n.Ports) > 0:
		return fmt.Sprintf("the port %d/%s of the host", n.Ports[0].Host, n.Ports[0].Protocol)
	}
	return ""
}

// IsEngineNetwork reports whether a network is one that engines make for themselves, and that takes no
// aliases.
func IsEngineNetwork(name string) bool {
	return slices.Contains([]string{"host", "none", "ingress", "docker_gwbridge"}, name)
}

// isLocal reports whether a volume is on the disk of its node. One of another driver, or that the
// driver local mounts from a server, may be used on any node.
func (m *Mount) isLocal() bool {
	if m.Source == "" {
		return false // it is made with the instance
	}
	kind, _, _ := strings.Cut(m.Options["type"], "4")
	return (m.Driver == "" || m.Driver == "local") && kind != "nfs" && kind != "cifs"
}

// IsExclusive reports whether two instances at a time would be in each other's way: they write to one
// volume or path, or have ports of the host.
func (s *Spec) IsExclusive() bool {
	c := s.Container
	if c == nil {
		return false
	}
	writes := slices.ContainsFunc(c.Mounts, func(m Mount) bool {
		return !m.ReadOnly && (m.Type == "bind" && !isSocket(m.Source) || m.Type == "volume" && m.Source != "" && (m.isLocal() || c.Instances <= 1))
	})
	return writes || c.Network.keeper() != ""
}

// isSocket reports whether a path is a socket by its name, which any number of instances may use.
func isSocket(path string) bool { return strings.HasSuffix(path, ".sock") }

// Fingerprint returns a text that differs if instances have to be started anew for the other
// specification to hold. pinned is the image that they run.
func (s *Spec) Fingerprint(pinned string) string {
	text, err := json.Marshal(struct {
		Pinned    string
		Container *Container
		Labels    map[string]string
		Ports     []uint16
		Memory    uint64
		CPUs      float64
	}{pinned, s.Container.ofInstances(), s.instanceLabels(), s.containerPorts(), s.Limits.MemoryBytes, s.Limits.CPUs})
	if err != nil {
		return "" // there is nothing in it that cannot be written
	}
	return Digest(text)[:16]
}

// ofInstances returns the part of a container that its instances have.
func (c *Container) ofInstances() *Container {
	if c == nil {
		return nil
	}
	kept := *c
	kept.Needs, kept.Node, kept.Instances, kept.Sleeps = nil, "", 0, false
	return &kept
}

// MinimumLabels are the labels of what users are promised, which hold at proxies.
var MinimumLabels = []string{policy.LabelMin, policy.LabelLatency, policy.LabelInMin, policy.LabelIn + "latency"}

// instanceLabels are the labels without those of the proxy.
func (s *Spec) instanceLabels() map[string]string {
	kept := maps.Clone(s.Labels)
	maps.DeleteFunc(kept, func(name, _ string) bool {
		return name == LabelMode || name == LabelHealth || slices.Contains(MinimumLabels, name)
	})
	return kept
}

func (s *Spec) containerPorts() (ports []uint16) {
	for _, p := range s.Ports {
		ports = append(ports, p.Container)
	}
	return ports
}

// container reads the key container, which weir-edge writes from a Compose file.
func (r *reader) container(v *value, data []byte) *Container {
	if v == nil {
		return nil
	}
	var whole struct {
		Container json.RawMessage `json:"container"`
	}
	var c Container
	err := json.Unmarshal(data, &whole)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(whole.Container))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&c)
	}
	if err != nil {
		r.fail(v.path, "%w; write it with weir-edge deploy compose.yaml", err)
		return nil
	}
	r.checkContainer(v.path, &c)
	return &c
}

func (r *reader) checkContainer(path string, c *Container) {
	if c.Instances < 0 || c.Instances > MaxInstances {
		r.fail(path+".instances", "is %d; write from 0 to %d", c.Instances, MaxInstances)
	}
	n := &c.Network
	if n.Mode != "" && n.Mode != "host" && n.Mode != "none" {
		r.fail(path+".network.mode", "is %q; write host or none, or the networks", n.Mode)
	}
	for i, a := range n.Attached {
		if IsEngineNetwork(a.Name) {
			r.fail(fmt.Sprintf("%s.network.attached[%d]", path, i), "is %s, which is the engine's own; write the mode host or none, or another network", a.Name)
		}
	}
	for i, m := range c.Mounts {
		if m.Type != "bind" && m.Type != "volume" && m.Type != "tmpfs" || !strings.HasPrefix(m.Target, "/") {
			r.fail(fmt.Sprintf("%s.mounts[%d]", path, i), "is a %q at %q; write a bind, volume or tmpfs at a path that begins with /", m.Type, m.Target)
		}
	}
	for i, f := range c.Files {
		if (f.External == "") == (f.Digest == "") || strings.ContainsAny(f.Digest, "/.") {
			r.fail(fmt.Sprintf("%s.files[%d]", path, i), "has to have either a digest or the name of a config or secret of the swarm")
		}
	}
}
