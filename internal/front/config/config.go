// Package config reads the agent's configuration file, /etc/weir/weir.yaml.
//
// # Problem
//
// The file is written by hand and read by a daemon that starts at boot, when
// unwatched. A mistake must not pass: a misspelt key that is ignored is a
// guarantee that is not given.
//
// # Method
//
// The YAML is parsed to a tree, which is read key by key (reader.go). Every error
// has the file's name, the line and the place in the tree, also those that have
// nothing to do with YAML, such as a minimum above a maximum; and all errors are
// reported at once. Values are parsed by internal/share/policy, as labels are, so that
// both mean the same; but here a problem is an error.
//
// # Limits
//
// Anchors, aliases, merge keys, tags and several documents are refused.
// Whether an interface, a group, a cgroup or a socket exists is not looked at.
package config

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/share/policy"
)

// Defaults of keys that the file omits.
const (
	DefaultPath         = "/etc/weir/weir.yaml"
	DefaultSocket       = "/run/weir/weir.sock"
	DefaultStateDir     = "/run/weir"
	DefaultTokensPath   = "/etc/weir/tokens"
	DefaultDockerSocket = "/var/run/docker.sock"
	DefaultPodmanSocket = "/run/podman/podman.sock"

	// DefaultReserveBasisPoints is 5 %.
	DefaultReserveBasisPoints = 500
	// MaxReserveBasisPoints is 50 %.
	MaxReserveBasisPoints = 5000
)

// netNSDir is where network namespaces that are given by name are found (as `ip
// netns` names them).
const netNSDir = "/run/netns"

// Example is a commented file with every key.
//
//go:embed example.yaml
var Example string

// Config is the content of a file, with defaults for omitted keys.
type Config struct {
	// Uplinks are the interfaces to control, each once; empty if the file configures none.
	Uplinks []Uplink
	// IgnoreDefaultRoute accepts a default route that leads through no uplink.
	IgnoreDefaultRoute bool
	// Socket is where the agent's API listens.
	Socket string
	// SocketGroup is a group, by name or number, that may use the API besides root; empty
	// for none.
	SocketGroup string
	// SocketGroupReads restricts that group to reading.
	SocketGroupReads bool
	// Listen configures the API's TLS listener.
	Listen Listen
	// TokensPath is the file of tokens for requests over the network and for changes on the
	// dashboard.
	TokensPath string
	// Dashboard is the loopback address and port of the dashboard; empty disables it.
	Dashboard string
	// StateDir holds state that survives restarts of the agent.
	StateDir string
	// ReserveBasisPoints is the part of an uplink's rate that minimums cannot claim, in
	// hundredths of a percent.
	ReserveBasisPoints uint32
	// Host is the policy of the host class: all traffic of no known container.
	Host v1.Policy
	// HostIn is that of received traffic for the host.
	HostIn v1.Policy
	// Rules are the policies, defaults and limits for containers.
	Rules policy.Rules
	// Classifier configures the flow classifier.
	Classifier Classifier
	// Docker defaults to on, Podman to auto.
	Docker, Podman Engine
	// Containers are network namespaces or cgroups to control without an engine.
	Containers []Container
}

// Uplink is an interface to control.
type Uplink struct {
	// Interface is the interface's name; empty if given on the command line.
	Interface string
	// RateBPS is the rate to share, in bits per second; 0 if given on the command line.
	RateBPS uint64
	// Replace allows to replace a configured qdisc.
	Replace bool
	// IgnoreLinkSpeed allows a rate above the speed that the device reports.
	IgnoreLinkSpeed bool
	// Precision bounds how long a packet holds the uplink; empty means exact.
	Precision v1.Precision
	// In says whether what the interface receives is shared, and at which rate; 0 is 95 % of the
	// speed that the device reports.
	In        bool
	InRateBPS uint64
	// InForce redirects received packets past programs of others.
	InForce bool
	// Rates are those of devices by their names, of the file --rates-file, and go before RateBPS and InRateBPS.
	Rates map[string]Rates
}

// Rates are those of one device, in bits per second. RateBPS is 0 for none of its own, and In says whether InRateBPS is one:
// then 0 means 95 % of the speed that the device reports.
type Rates struct {
	RateBPS, InRateBPS uint64
	In                 bool
}

// Listen is a TLS listener. All files are in PEM.
type Listen struct {
	// Address is the address and port to listen on; empty disables the listener.
	Address string
	// CertificatePath and KeyPath are the agent's certificate and key.
	CertificatePath, KeyPath string
	// ClientCAPath is the file of authorities for client certificates; if empty, clients
	// need a token.
	ClientCAPath string
	// Admins are the common names of client certificates with the role admin.
	Admins []string
}

// Classifier configures the flow classifier and changes to it.
type Classifier struct {
	// Path is the classifier's file; empty for the built-in one.
	Path string
	// Levels are changed levels as TYPE=LEVEL (see apps.Levels.Override), sorted by type.
	Levels []string
	// MinConfidence is the smallest confidence of a verdict; nil for the classifier's own.
	MinConfidence *float64
}

// Toggle enables or disables an engine.
type Toggle string

// The values of a Toggle.
const (
	On   Toggle = "true"
	Off  Toggle = "false"
	Auto Toggle = "auto" // as soon as its socket exists
)

// Engine is a container engine to watch.
type Engine struct {
	Enabled Toggle
	Socket  string // path of its API socket
}

// Container is a network namespace, or a cgroup in the host's network, to control like a
// container. If both NetNSPath and CgroupPath are set, the cgroup holds the processes in
// the namespace.
type Container struct {
	Name string
	// NetNSPath is the absolute path that opens its network namespace.
	NetNSPath string
	// CgroupPath is the cgroup's directory in the cgroup v2 hierarchy, absolute or relative
	// to its mount point.
	CgroupPath string
	// Interface restricts control to one interface in the namespace; empty for all.
	Interface string
	// Labels are what the file has under labels, or under policy with
	// [policy.Prefix] before each name. [policy.Parse] has no problem with them.
	Labels map[string]string
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Socket:             DefaultSocket,
		StateDir:           DefaultStateDir,
		TokensPath:         DefaultTokensPath,
		ReserveBasisPoints: DefaultReserveBasisPoints,
		Host:               policy.Default(),
		HostIn:             policy.Default(),
		Docker:             Engine{Enabled: On, Socket: DefaultDockerSocket},
		Podman:             Engine{Enabled: Auto, Socket: DefaultPodmanSocket},
	}
}

// Load reads the file at path. The error for a missing file is fs.ErrNotExist.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse parses the contents of a file; name is used in errors only. On an error the Config
// is zero, and the error joins one *[Error] per mistake, in the order of the lines.
func Parse(name string, data []byte) (Config, error) {
	r := reader{file: name}
	c := Default()
	if root, ok := r.parse(data); ok {
		readRoot(&c, root)
	}
	if err := r.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func readRoot(c *Config, root value) {
	f := root.fields("uplinks", "uplink", "rate", "in_rate", "in_force", "precision", "replace", "ignore_link_speed", "ignore_default_route", "socket", "socket_group", "socket_group_role",
		"listen", "tokens", "dashboard", "state_dir", "reserve", "host", "defaults", "limits", "policies", "trust_image_labels",
		"classifier", "levels", "min_confidence",
		"docker", "podman", "containers")

	shorthand := slices.DeleteFunc([]value{f["uplink"], f["rate"], f["in_rate"], f["in_force"], f["precision"], f["replace"], f["ignore_link_speed"]}, func(v value) bool { return !v.given() })
	list := f["uplinks"]
	switch {
	case list.given() && len(shorthand) > 0:
		list.fail("cannot be combined with %s (line %d); put it into the list", shorthand[0].path, shorthand[0].line)
	case list.given():
		c.Uplinks = readUplinks(list)
	case len(shorthand) > 0:
		c.Uplinks = []Uplink{readUplink(f["uplink"], f)}
	}

	read(f["ignore_default_route"], &c.IgnoreDefaultRoute, parseBool)
	read(f["socket"], &c.Socket, parsePath)
	read(f["socket_group"], &c.SocketGroup, parseName)
	read(f["socket_group_role"], &c.SocketGroupReads, parseGroupRole)
	c.Listen = readListen(f["listen"])
	read(f["tokens"], &c.TokensPath, parsePath)
	read(f["dashboard"], &c.Dashboard, ParseDashboard)
	read(f["state_dir"], &c.StateDir, parsePath)
	read(f["reserve"], &c.ReserveBasisPoints, parsePercent)
	readPolicy(f["host"], policy.Prefix, &c.Host, &c.HostIn)
	c.Rules = readRules(f)
	c.Classifier = readClassifier(f)
	readEngine(f["docker"], &c.Docker)
	readEngine(f["podman"], &c.Podman)
	c.Containers = readContainers(f["containers"])
}

func readUplinks(list value) []Uplink {
	var uplinks []Uplink
	lines := map[string]int{}
	for _, item := range list.items() {
		f := item.fields("interface", "rate", "in_rate", "in_force", "precision", "replace", "ignore_link_speed")
		item.require(f, "interface")
		u := readUplink(f["interface"], f)
		f["interface"].unique(lines, u.Interface, "remove one of them")
		uplinks = append(uplinks, u)
	}
	return uplinks
}

func readUplink(name value, f map[string]value) Uplink {
	var u Uplink
	read(name, &u.Interface, parseInterface)
	read(f["rate"], &u.RateBPS, policy.ParseRate)
	read(f["in_rate"], &u, func(text string) (with Uplink, err error) {
		with = u
		with.InRateBPS, err = ParseInRate(text)
		with.In = true
		return with, err
	})
	read(f["in_force"], &u.InForce, parseBool)
	read(f["precision"], &u.Precision, policy.ParsePrecision)
	read(f["replace"], &u.Replace, parseBool)
	read(f["ignore_link_speed"], &u.IgnoreLinkSpeed, parseBool)
	return u
}

// ParseInRate parses the rate at which received packets are shared; 0 for "auto", which is 95 % of
// the speed that the device reports.
func ParseInRate(text string) (bps uint64, err error) {
	switch {
	case text == "auto":
		return 0, nil
	case strings.EqualFold(text, "none"):
		return 0, errors.New("leave it out if received traffic is not to be shared")
	}
	return policy.ParseRate(text)
}

func readListen(v value) Listen {
	var l Listen
	f := v.fields("address", "certificate", "key", "client_ca", "admins")
	if v.given() {
		v.require(f, "certificate", "key")
	}
	read(f["address"], &l.Address, ParseListen)
	read(f["certificate"], &l.CertificatePath, parsePath)
	read(f["key"], &l.KeyPath, parsePath)
	read(f["client_ca"], &l.ClientCAPath, parsePath)
	for _, item := range f["admins"].items() {
		var name string
		read(item, &name, parseName)
		l.Admins = append(l.Admins, name)
	}
	if f["admins"].given() && !f["client_ca"].given() {
		f["admins"].fail("needs client_ca, the authorities of their certificates")
	}
	return l
}

func readClassifier(f map[string]value) Classifier {
	var c Classifier
	read(f["classifier"], &c.Path, parsePath)
	levels := f["levels"].fields(apps.Types...)
	for _, name := range apps.Types {
		if levels[name].given() {
			var level apps.Level
			read(levels[name], &level, parseLevel)
			c.Levels = append(c.Levels, name+"="+level.String())
		}
	}
	readGiven(f["min_confidence"], &c.MinConfidence, parseConfidence)
	return c
}

func readEngine(v value, e *Engine) {
	if text, ok := scalar(v.node); ok && text == "none" { // as --docker none
		e.Enabled = Off
		return
	}
	f := v.fields("socket", "enabled")
	read(f["enabled"], &e.Enabled, parseToggle)
	read(f["socket"], &e.Socket, parsePath)
}

func readContainers(v value) []Container {
	var containers []Container
	names, cgroups := map[string]int{}, map[string]int{}
	for _, item := range v.items() {
		f := item.fields("name", "netns", "cgroup", "interface", "policy", "labels")
		var c Container
		item.require(f, "name")
		switch netns, cgroup, device := f["netns"], f["cgroup"], f["interface"]; {
		case f == nil || netns.given():
		case !cgroup.given():
			item.fail("netns or cgroup is missing")
		case device.given():
			device.fail("needs a netns; remove it, or name the network namespace that it is in")
		}
		read(f["name"], &c.Name, parseName)
		read(f["netns"], &c.NetNSPath, parseNetNS)
		read(f["cgroup"], &c.CgroupPath, parseCgroup)
		read(f["interface"], &c.Interface, parseInterface)
		f["name"].unique(names, c.Name, "give each container its own name")
		f["cgroup"].unique(cgroups, c.CgroupPath, "remove one of them")
		var ignored v1.Policy
		switch {
		case f["policy"].given() && f["labels"].given():
			f["labels"].fail("cannot be combined with %s (line %d); use one of them", f["policy"].path, f["policy"].line)
		case f["policy"].given():
			c.Labels = readPolicy(f["policy"], policy.Prefix, &ignored, &ignored)
		default:
			c.Labels = readPolicy(f["labels"], "", &ignored, &ignored)
		}
		containers = append(containers, c)
	}
	return containers
}

// readPolicy reads a map of policy values into p and returns them as labels: each
// key with prefix before it.
func readPolicy(v value, prefix string, p, in *v1.Policy) map[string]string {
	var known []string // with the whole label as the key, any key may be
	if prefix != "" {
		known = policy.Names()
	}
	fields := v.fields(known...)
	if len(fields) == 0 {
		return nil
	}
	labels := map[string]string{}
	for key, field := range fields {
		if text, ok := field.text(); ok {
			labels[prefix+key] = text
		}
	}
	parsed := policy.Resolve(policy.Inputs{Labels: labels})
	for _, problem := range parsed.Problems {
		fields[strings.TrimPrefix(problem.Name, prefix)].fail("%q: %s", problem.Value, problem.Message)
	}
	*p, *in = parsed.Policy, parsed.In
	return labels
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("write true or false")
}

func parseToggle(text string) (Toggle, error) {
	switch t := Toggle(strings.ToLower(text)); t {
	case On, Off, Auto:
		return t, nil
	}
	return "", errors.New("write true, false or auto")
}

func parseLevel(text string) (apps.Level, error) {
	level, err := apps.ParseLevel(text)
	if err != nil {
		return 0, errors.New("write EF, AF or BE")
	}
	return level, nil
}

func parseConfidence(text string) (float64, error) {
	c, err := strconv.ParseFloat(text, 64)
	if err != nil || !(c >= 0 && c <= 1) {
		return 0, errors.New("write a number from 0 to 1, for example 0.6")
	}
	return c, nil
}

func parsePath(text string) (string, error) {
	if !path.IsAbs(text) {
		return "", errors.New("is not an absolute path; write one that begins with /")
	}
	return path.Clean(text), nil
}

func parseGroupRole(text string) (reads bool, err error) {
	switch text {
	case "read":
		return true, nil
	case "admin":
		return false, nil
	}
	return false, errors.New("write read or admin")
}

// ParseListen parses the API's listen address, such as "192.0.2.1:7481"; "none" returns "".
func ParseListen(text string) (string, error) {
	if text == "none" {
		return "", nil
	}
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return "", errors.New("is not an address and a port; write for example 192.0.2.1:7481, 0.0.0.0:7481 for all addresses of this host, or none")
	}
	return address.String(), nil
}

// ParseDashboard parses the dashboard's address, such as "127.0.0.1:7480"; "none" returns
// "". Only loopback addresses are accepted, because the page needs no token for reading.
func ParseDashboard(text string) (string, error) { return parsePage(text, "7480") }

// ParseEdgeDashboard is ParseDashboard for weir-edge's page.
func ParseEdgeDashboard(text string) (string, error) { return parsePage(text, "7483") }

// parsePage parses the address of a page; usual is the port suggested in errors.
func parsePage(text, usual string) (string, error) {
	if text == "none" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("is not an address and a port; write for example 127.0.0.1:%s, or none", usual)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("has no port from 0 to 65535; write for example %s", net.JoinHostPort(host, usual))
	} else if port = strconv.FormatUint(number, 10); strings.EqualFold(host, "localhost") {
		return net.JoinHostPort("127.0.0.1", port), nil
	}
	address, err := netip.ParseAddr(host)
	if err != nil || !address.IsLoopback() || address.Zone() != "" {
		return "", fmt.Errorf("is not an address of this machine alone; write for example 127.0.0.1:%[1]s (from elsewhere: ssh -L %[1]s:127.0.0.1:%[1]s HOST)", usual)
	}
	return net.JoinHostPort(address.String(), port), nil
}

// parseNetNS parses the path of a network namespace, or a name in netNSDir.
func parseNetNS(text string) (string, error) {
	switch {
	case path.IsAbs(text):
		return path.Clean(text), nil
	case text == "" || text == "." || text == ".." || strings.Contains(text, "/"):
		return "", fmt.Errorf("write an absolute path, or a name in %s", netNSDir)
	}
	return path.Join(netNSDir, text), nil
}

// parseCgroup parses the directory of a cgroup, absolute or relative.
func parseCgroup(text string) (string, error) {
	clean := path.Clean(text)
	if text == "" || clean == "." || clean == "/" || clean == ".." || strings.HasPrefix(clean, "../") {
		return "", errors.New("write the path of a cgroup below the top of the hierarchy, for example system.slice/nginx.service")
	}
	return clean, nil
}

func parseName(text string) (string, error) {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "", errors.New("write a name without spaces")
	}
	return text, nil
}

// parseInterface accepts the interface names that Linux accepts (dev_valid_name in
// net/core/dev.c).
func parseInterface(text string) (string, error) {
	if text == "" || len(text) > 15 || text == "." || text == ".." ||
		strings.ContainsFunc(text, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || r == 0 }) {
		return "", errors.New("is not the name of an interface; write for example eth0 (1 to 15 characters, no spaces, slashes or colons)")
	}
	return text, nil
}

// parsePercent parses a percentage with up to two decimals into basis points.
func parsePercent(text string) (uint32, error) {
	err := fmt.Errorf("write a percentage from 0%% to %d%%, for example 5%%", MaxReserveBasisPoints/100)
	number, percent := strings.CutSuffix(text, "%")
	whole, fraction, point := strings.Cut(number, ".")
	if !percent || len(fraction) > 2 || point && fraction == "" {
		return 0, err
	}
	n, bad := strconv.ParseUint(whole+(fraction + "00")[:2], 10, 32)
	if bad != nil || whole == "" || n > MaxReserveBasisPoints {
		return 0, err
	}
	return uint32(n), nil
}
