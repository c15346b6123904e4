package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/share/policy"
)

// converter makes specifications of the services of a project.
type converter struct {
	w       *keyWalk
	project *types.Project
	swarm   bool
	notes   []string
	errs    []error
	// names are the names of services here by those in weir-edge.
	names map[string]string
}

// fail refuses what is at a path of the file.
func (c *converter) fail(at []string, format string, args ...any) {
	if len(c.errs) < maxComposeProblems {
		c.errs = append(c.errs, fmt.Errorf("%s: %s "+format, append([]any{c.w.at(at...), shown(at)}, args...)...))
	}
}

func (c *converter) note(at []string, says string) {
	c.notes = append(c.notes, fmt.Sprintf("%s: %s %s", c.w.at(at...), shown(at), says))
}

// services returns the services, those that others need first.
func (c *converter) services() ([]composeService, error) {
	c.names = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.project.Services)) {
		ours := c.weirName(name)
		if other := c.names[ours]; other != "" {
			c.fail([]string{"services", name}, "and %s are both %s in weir-edge: give one another name", other, ours)
		}
		c.names[ours] = name
	}
	order, err := c.order()
	if err != nil {
		return nil, err
	}
	var list []composeService
	for _, name := range order {
		s := c.project.Services[name]
		before := len(c.errs)
		parts := c.specification(&s)
		if len(c.errs) > before {
			continue // one mistake says more than what follows from it
		}
		document, err := c.document(&s, parts)
		if err != nil {
			c.errs = append(c.errs, err)
			continue
		}
		list = append(list, composeService{c.weirName(name), c.w.at("services", name), document})
	}
	if len(order) == 0 {
		c.errs = append(c.errs, fmt.Errorf("%s: there is no service to deploy: those with profiles are when COMPOSE_PROFILES has one of them", c.w.at("services")))
	}
	return list, errors.Join(c.errs...)
}

// weirName returns the name of a service in weir-edge, which has services of all projects.
func (c *converter) weirName(service string) string {
	return c.project.Name + "-" + strings.ReplaceAll(service, ".", "-")
}

// order returns the names of services, those that others need first.
func (c *converter) order() (order []string, err error) {
	const doing, done = 1, 2
	state := map[string]int{}
	var visit func(name string) error
	visit = func(name string) error {
		switch state[name] {
		case done:
			return nil
		case doing:
			return fmt.Errorf("%s: services.%s.depends_on leads back to itself", c.w.at("services", name, "depends_on"), name)
		}
		state[name] = doing
		for _, other := range slices.Sorted(maps.Keys(c.project.Services[name].DependsOn)) {
			if _, there := c.project.Services[other]; there {
				if err := visit(other); err != nil {
					return err
				}
			}
		}
		state[name] = done
		order = append(order, name)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.project.Services)) {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// specification returns a specification as it is written: in the paper's notation, and the container.
func (c *converter) specification(s *types.ServiceConfig) map[string]any {
	at := []string{"services", s.Name}
	if s.Image == "" {
		if s.Build != nil {
			c.fail(append(at, "build"), "needs image: beside it: weir-edge builds none; docker compose build and docker push, or weir-edge push, bring one to the nodes")
		} else {
			c.fail(at, "has no image")
		}
	}
	container := &spec.Container{Project: c.project.Name, Name: s.Name}
	par := map[string]any{"serviceName": c.weirName(s.Name), "imageName": s.Image}
	parts := map[string]any{"par": par, "container": container}
	if s.HealthCheck != nil && s.HealthCheck.StartPeriod != nil && *s.HealthCheck.StartPeriod > 0 {
		par["startUpTime"] = time.Duration(*s.HealthCheck.StartPeriod).Seconds()
	}
	c.process(s, &container.Process)
	c.security(s, container)
	c.mounts(s, container)
	c.files(s, container)
	c.networks(s, container)
	c.health(s, container)
	ports, mode := c.ports(s, container)
	labels := c.labels(s, mode)
	if len(ports) > 0 {
		parts["ports"] = ports
	} else if labels[policy.LabelMin] != "" {
		c.fail(append(at, "labels"), "weir.min is what users get through the service's ports, and it has none")
	} else if labels[policy.LabelInMin] != "" {
		c.fail(append(at, "labels"), "weir.in.min is what users may send through the service's ports, and it has none")
	}
	if len(labels) > 0 {
		parts["labels"] = labels
	}
	c.deploy(s, container, parts)
	c.extension(s, container, parts, par)
	for _, other := range slices.Sorted(maps.Keys(s.DependsOn)) {
		d := s.DependsOn[other]
		if d.Condition == types.ServiceConditionCompletedSuccessfully {
			c.fail(append(at, "depends_on", other), "is to have ended, and weir-edge runs services that stay: run it by hand, or from the entrypoint")
		}
		if _, there := c.project.Services[other]; there {
			container.Needs = append(container.Needs, c.weirName(other))
		}
	}
	switch restart, _, _ := strings.Cut(s.Restart, ":"); restart {
	case "no":
		c.fail(append(at, "restart"), "is no: weir-edge runs services that stay; remove it, or run the service by hand")
	case types.RestartPolicyOnFailure:
		c.note(append(at, "restart"), "has no effect: what ends is started again")
	}
	return parts
}

func (c *converter) process(s *types.ServiceConfig, p *spec.Process) {
	p.Entrypoint, p.Command, p.WorkingDir, p.User, p.Groups = s.Entrypoint, s.Command, s.WorkingDir, s.User, s.GroupAdd
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		if value := s.Environment[name]; value != nil {
			p.Environment = append(p.Environment, name+"="+*value)
		}
	}
	p.Hostname, p.Init, p.TTY, p.Stdin, p.StopSignal = s.Hostname, s.Init, s.Tty, s.StdinOpen, s.StopSignal
	p.StopSeconds = 10 // Compose's
	if s.StopGracePeriod != nil {
		p.StopSeconds = time.Duration(*s.StopGracePeriod).Seconds()
	}
}

func (c *converter) security(s *types.ServiceConfig, to *spec.Container) {
	to.Security = spec.Security{
		Privileged: s.Privileged, ReadOnly: s.ReadOnly, CapAdd: s.CapAdd, CapDrop: s.CapDrop, Options: s.SecurityOpt,
		Sysctls: spec.Options(s.Sysctls), PID: s.Pid, IPC: s.Ipc,
	}
	for key, value := range map[string]string{"pid": s.Pid, "ipc": s.Ipc} {
		if strings.Contains(value, ":") {
			c.fail([]string{"services", s.Name, key}, "%q is that of another container: write host, or remove it", value)
		}
	}
	for _, d := range s.Devices {
		to.Devices = append(to.Devices, strings.TrimSuffix(d.Source+":"+d.Target+":"+d.Permissions, ":"))
	}
	if s.Logging != nil {
		to.LogDriver, to.LogOpts = s.Logging.Driver, spec.Options(s.Logging.Options)
	}
	r := &to.Resources
	r.SharedBytes, r.ReservedBytes, r.SwapLimitBytes = int64(s.ShmSize), int64(s.MemReservation), int64(s.MemSwapLimit)
	r.CPUSet, r.CPUShares, r.OOMScore, r.PIDs = s.CPUSet, s.CPUShares, int(s.OomScoreAdj), s.PidsLimit
	for _, name := range slices.Sorted(maps.Keys(s.Ulimits)) {
		u := s.Ulimits[name]
		r.Ulimits = append(r.Ulimits, spec.Ulimit{Name: name, Soft: int64(cmp.Or(u.Soft, u.Single)), Hard: int64(cmp.Or(u.Hard, u.Single))})
	}
}

func (c *converter) mounts(s *types.ServiceConfig, to *spec.Container) {
	for i := range s.Volumes {
		v := &s.Volumes[i]
		at := []string{"services", s.Name, "volumes", strconv.Itoa(i)}
		m := spec.Mount{Type: v.Type, Source: v.Source, Target: path.Clean(v.Target), ReadOnly: v.ReadOnly}
		switch v.Type {
		case types.VolumeTypeVolume:
			if v.Source != "" {
				known := c.project.Volumes[v.Source]
				m.Source, m.External, m.Driver, m.Options = known.Name, bool(known.External), known.Driver, spec.Options(known.DriverOpts)
			}
			if v.Volume != nil {
				m.NoCopy, m.Subpath = v.Volume.NoCopy, v.Volume.Subpath
			}
		case types.VolumeTypeBind:
			if v.Bind != nil {
				m.Propagation, m.MustExist = v.Bind.Propagation, !bool(v.Bind.CreateHostPath)
			}
		case types.VolumeTypeTmpfs:
			m.Source = ""
			if v.Tmpfs != nil {
				m.SizeBytes, m.Mode = int64(v.Tmpfs.Size), v.Tmpfs.Mode
			}
		default:
			c.fail(at, "is of the type %s; write bind, volume or tmpfs", v.Type)
		}
		to.Mounts = append(to.Mounts, m)
	}
	for _, text := range s.Tmpfs {
		target, options, _ := strings.Cut(text, ":")
		m := spec.Mount{Type: types.VolumeTypeTmpfs, Target: path.Clean(target)}
		for option := range strings.SplitSeq(options, ",") {
			name, value, _ := strings.Cut(option, "=")
			switch name {
			case "":
			case "size":
				var size types.UnitBytes
				if size.DecodeMapstructure(value) != nil {
					c.fail([]string{"services", s.Name, "tmpfs"}, "%q: the size is no amount of memory", text)
				}
				m.SizeBytes = int64(size)
			case "mode":
				mode, err := strconv.ParseUint(value, 8, 12)
				if err != nil {
					c.fail([]string{"services", s.Name, "tmpfs"}, "%q: the mode is no octal number", text)
				}
				m.Mode = uint32(mode)
			default:
				c.fail([]string{"services", s.Name, "tmpfs"}, "%q: the option %s is not possible: write size or mode", text, name)
			}
		}
		to.Mounts = append(to.Mounts, m)
	}
	slices.SortStableFunc(to.Mounts, func(a, b spec.Mount) int { return strings.Compare(a.Target, b.Target) })
}

// files adds configs and secrets.
func (c *converter) files(s *types.ServiceConfig, to *spec.Container) {
	for _, r := range s.Configs {
		known := c.project.Configs[r.Source]
		c.file(s, to, "configs", types.FileReferenceConfig(r), types.FileObjectConfig(known), "/"+r.Source)
	}
	for _, r := range s.Secrets {
		known := c.project.Secrets[r.Source]
		target := "/run/secrets/" + cmp.Or(r.Target, r.Source)
		if path.IsAbs(r.Target) {
			target = r.Target
		}
		r.Target = ""
		c.file(s, to, "secrets", types.FileReferenceConfig(r), types.FileObjectConfig(known), target)
	}
}

func (c *converter) file(s *types.ServiceConfig, to *spec.Container, kind string, r types.FileReferenceConfig, known types.FileObjectConfig, target string) {
	f := spec.File{Target: path.Clean(cmp.Or(r.Target, target)), UID: r.UID, GID: r.GID, Mode: 0o444, Secret: kind == "secrets"}
	if r.Mode != nil {
		f.Mode = uint32(*r.Mode)
	}
	at := []string{kind, r.Source}
	switch {
	case bool(known.External) && !c.swarm:
		c.fail(append(at, "external"), "is of a swarm, and this engine is in none: write file: or environment: in its place")
		return
	case bool(known.External):
		f.External = known.Name
		to.Files = append(to.Files, f)
		return
	case known.Environment != "":
		value, set := c.project.Environment[known.Environment]
		if !set {
			c.fail(append(at, "environment"), "%s is not set", known.Environment)
			return
		}
		f.Content = []byte(value)
	case known.File != "":
		content, err := readBounded(known.File)
		if err != nil {
			c.fail(append(at, "file"), "%w", err)
			return
		}
		f.Content = content
	default:
		f.Content = []byte(known.Content)
	}
	if len(f.Content) > maxFileBytes {
		c.fail(at, "has more than %d bytes, the most that a swarm keeps: mount it as a volume", maxFileBytes)
	}
	f.Digest = spec.Digest(f.Content)
	to.Files = append(to.Files, f)
}

// maxFileBytes is the most that a secret of a swarm may have.
const maxFileBytes = 500_000

func (c *converter) networks(s *types.ServiceConfig, to *spec.Container) {
	n := &to.Network
	at := []string{"services", s.Name}
	for _, name := range slices.Sorted(maps.Keys(s.ExtraHosts)) {
		for _, address := range s.ExtraHosts[name] {
			n.Hosts = append(n.Hosts, name+":"+address)
		}
	}
	n.DNS, n.DNSSearch, n.DNSOptions = s.DNS, s.DNSSearch, s.DNSOpts
	switch s.NetworkMode {
	case "":
	case "host", "none":
		if n.Mode = s.NetworkMode; n.Mode == "none" && c.swarm {
			c.fail(append(at, "network_mode"), "none is not possible on a swarm")
		}
		return
	default:
		c.fail(append(at, "network_mode"), "%q is not possible: write host or none, or networks", s.NetworkMode)
		return
	}
	for _, name := range s.NetworksByPriority() {
		known := c.project.Networks[name]
		switch here := []string{"networks", name}; {
		case known.Name == "host" && len(s.Networks) > 1:
			c.fail(here, "is the host's, beside which a service has no other one: remove the others from services.%s.networks", s.Name)
			return
		case known.Name == "host":
			n.Mode = known.Name
			return
		case spec.IsEngineNetwork(known.Name):
			c.fail(here, "%s is the engine's own: write another one", known.Name)
			return
		}
		a := spec.Attached{
			Name: known.Name, External: bool(known.External), Internal: known.Internal, Options: spec.Options(known.DriverOpts),
			IPv6: known.EnableIPv6 != nil && *known.EnableIPv6,
		}
		if !slices.Contains([]string{"", "default", "bridge", "overlay"}, known.Driver) {
			c.fail([]string{"networks", name, "driver"}, "%s is not possible: make it yourself, and write external: true", known.Driver)
		}
		for _, pool := range known.Ipam.Config {
			if pool.Subnet != "" {
				a.Subnets = append(a.Subnets, pool.Subnet)
			}
		}
		there := s.Networks[name]
		if there.ServiceNameAliasEnabled() {
			a.Aliases = append(a.Aliases, s.Name)
		}
		if s.ContainerName != "" {
			a.Aliases = append(a.Aliases, s.ContainerName)
		}
		if there != nil {
			a.Aliases = append(a.Aliases, there.Aliases...)
		}
		slices.Sort(a.Aliases)
		a.Aliases = slices.Compact(a.Aliases)
		n.Attached = append(n.Attached, a)
	}
}

func (c *converter) health(s *types.ServiceConfig, to *spec.Container) {
	h := s.HealthCheck
	if h == nil {
		return
	}
	if h.Disable {
		to.Health = &spec.Health{Test: []string{"NONE"}}
		return
	}
	seconds := func(d *types.Duration) float64 {
		if d == nil {
			return 0
		}
		return time.Duration(*d).Seconds()
	}
	to.Health = &spec.Health{
		Test: h.Test, IntervalSeconds: seconds(h.Interval), TimeoutSeconds: seconds(h.Timeout), StartSeconds: seconds(h.StartPeriod),
		StartIntervalSeconds: seconds(h.StartInterval),
	}
	if h.Retries != nil {
		to.Health.Retries = int(*h.Retries)
	}
}

// ports returns the ports that the proxy serves, and its mode. Others are the instance's own: those of
// other protocols, of one address of the host, and in mode host.
func (c *converter) ports(s *types.ServiceConfig, to *spec.Container) (served []spec.Port, mode string) {
	mode = "http"
	for i := range s.Ports {
		p := &s.Ports[i]
		at := []string{"services", s.Name, "ports", strconv.Itoa(i)}
		published, err := strconv.ParseUint(p.Published, 10, 16)
		switch {
		case to.Network.Mode != "":
			c.fail(at, "is not possible with network_mode %s: remove it", to.Network.Mode)
			continue
		case p.Published == "":
			c.fail(at, "has no port of the host: write HOST:%d", p.Target)
			continue
		case err != nil || published == 0 || p.Target == 0 || p.Target > 65535:
			c.fail(at, "%q is no port of the host: write one number from 1 to 65535", p.Published)
			continue
		}
		everywhere := p.HostIP == "" || p.HostIP == "0.0.0.0" || p.HostIP == "::"
		if p.Protocol == "tcp" && p.Mode != "host" && everywhere {
			served = append(served, spec.Port{Host: uint16(published), Container: uint16(p.Target)})
			if !strings.HasPrefix(p.AppProtocol, "http") {
				mode = "tcp"
			}
			continue
		}
		if !everywhere && c.swarm {
			c.fail(at, "is at the address %s, and a swarm has ports at all addresses only: write %s:%d", p.HostIP, p.Published, p.Target)
			continue
		}
		own := spec.HostPort{Address: p.HostIP, Host: uint16(published), Container: uint16(p.Target), Protocol: p.Protocol}
		to.Network.Ports = append(to.Network.Ports, own)
	}
	return served, mode
}

func (c *converter) labels(s *types.ServiceConfig, mode string) map[string]string {
	labels := map[string]string{}
	if s.Deploy != nil {
		maps.Copy(labels, s.Deploy.Labels)
	}
	maps.Copy(labels, s.Labels)
	if labels[spec.LabelMode] == "" && len(s.Ports) > 0 {
		labels[spec.LabelMode] = mode
	}
	return labels
}

// deploy adds limits, the number of instances, and the node.
func (c *converter) deploy(s *types.ServiceConfig, to *spec.Container, parts map[string]any) {
	at := []string{"services", s.Name, "deploy"}
	memory, cpus := uint64(s.MemLimit), float64(s.CPUS)
	to.Instances = max(s.GetScale(), 1)
	if s.GetScale() == 0 {
		c.fail(append(at, "replicas"), "is 0: remove the service, or give it a profile")
	}
	if d := s.Deploy; d != nil {
		if d.Mode != "" && d.Mode != "replicated" {
			c.fail(append(at, "mode"), "%s is not possible: write x-weir-edge.availability, which spreads instances over nodes", d.Mode)
		}
		if limits := d.Resources.Limits; limits != nil {
			memory, cpus = cmp.Or(uint64(limits.MemoryBytes), memory), cmp.Or(float64(limits.NanoCPUs), cpus)
			to.Resources.PIDs = cmp.Or(limits.Pids, to.Resources.PIDs)
		}
		for i, text := range d.Placement.Constraints {
			c.constraint(append(at, "placement", "constraints", strconv.Itoa(i)), text, to)
		}
	}
	limits := map[string]any{}
	if memory > 0 {
		limits["memory"] = memory
	}
	if cpus > 0 {
		limits["cpus"] = cpus
	}
	if len(limits) > 0 {
		parts["limits"] = limits
	}
}

// constraint takes the constraints that name a node.
func (c *converter) constraint(at []string, text string, to *spec.Container) {
	name, value, equal := strings.Cut(text, "==")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !equal || value == "" || name != "node.hostname" && name != "node.id" || to.Node != "" && to.Node != value {
		c.fail(at, "%q is not possible: write node.hostname==NODE, or a rule in x-weir-edge.algorithm", text)
		return
	}
	to.Node = value
}

// extension reads x-weir-edge: what the paper's notation says of users.
func (c *converter) extension(s *types.ServiceConfig, to *spec.Container, parts, par map[string]any) {
	value, there := s.Extensions["x-weir-edge"]
	if !there {
		return
	}
	at := []string{"services", s.Name, "x-weir-edge"}
	keys, ok := value.(map[string]any)
	if !ok {
		c.fail(at, "is no mapping; write for example {maxUsers: 50}")
		return
	}
	qos := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		here := append(slices.Clip(at), key)
		switch key {
		case "maxUsers":
			par[key] = keys[key]
		case "responseTime", "availability", "numUsers":
			qos[key] = keys[key]
		case "algorithm":
			parts[key] = keys[key]
		case "minInstances":
			n, err := strconv.Atoi(fmt.Sprint(keys[key]))
			if err != nil || n < 0 || n > spec.MaxInstances {
				c.fail(here, "%v is no number of instances; write from 0 to %d", keys[key], spec.MaxInstances)
				continue
			}
			to.Sleeps = n == 0
			to.Instances = max(to.Instances, n)
		default:
			c.fail(here, "is unknown; known are maxUsers, responseTime, availability, numUsers, algorithm, minInstances")
		}
	}
	if len(qos) > 0 {
		parts["QoS"] = qos
	}
}
