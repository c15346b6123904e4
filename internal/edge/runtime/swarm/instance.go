package swarm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// An instance of a Compose file is what the file says, as far as swarms have it. Its networks are
// attachable overlays whose names are resolved to all instances (DNSRR). Configs and secrets are the
// swarm's, with a digest in their names, because their data never change.

// plan returns the Swarm service of an instance.
func (r *Runtime) plan(ctx context.Context, s *runtime.Service, instance, image, node string) (swarm.ServiceSpec, error) {
	labels := runtime.LabelsWithoutMinimum(s.Labels)
	labels[runtime.LabelService], labels[runtime.LabelRole], labels[runtime.LabelInstance] = s.Name, runtime.RoleInstance, instance
	labels[runtime.LabelNode], labels[runtime.LabelImage], labels[runtime.LabelMade] = node, s.Image, s.Made
	one, soon := uint64(1), time.Second
	made := swarm.ServiceSpec{
		Annotations: swarm.Annotations{Name: proxy.InstanceName(instance), Labels: labels},
		Mode:        swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &one}},
		TaskTemplate: swarm.TaskSpec{
			ContainerSpec: &swarm.ContainerSpec{Image: image, Labels: labels},
			Placement:     &swarm.Placement{Constraints: []string{toNode + node}},
			RestartPolicy: &swarm.RestartPolicy{Condition: swarm.RestartPolicyConditionAny, Delay: &soon},
			Resources:     &swarm.ResourceRequirements{Limits: &swarm.Limit{MemoryBytes: int64(s.MemoryBytes), NanoCPUs: int64(s.CPUs * 1e9)}},
		},
		EndpointSpec: &swarm.EndpointSpec{Mode: swarm.ResolutionModeDNSRR},
	}
	publish := func(protocol string, target, published uint16) {
		made.EndpointSpec.Ports = append(made.EndpointSpec.Ports, swarm.PortConfig{
			Protocol: network.IPProtocol(protocol), TargetPort: uint32(target), PublishedPort: uint32(published), PublishMode: swarm.PortConfigPublishModeHost,
		})
	}
	for _, p := range s.Ports {
		publish("tcp", p.Container, 0) // at a port that the swarm chooses
	}
	if s.Container == nil {
		return made, nil
	}
	labels[runtime.LabelProject] = s.Container.Project
	for _, p := range s.Container.Network.Ports {
		publish(p.Protocol, p.Container, p.Host)
	}
	return made, r.planContainer(ctx, s, &made.TaskTemplate)
}

func (r *Runtime) planContainer(ctx context.Context, s *runtime.Service, task *swarm.TaskSpec) (err error) {
	c, to := s.Container, task.ContainerSpec
	p := &c.Process
	to.Command, to.Args, to.Env, to.Dir, to.User, to.Groups = p.Entrypoint, p.Command, p.Environment, p.WorkingDir, p.User, p.Groups
	to.Hostname, to.Init, to.TTY, to.OpenStdin, to.StopSignal = p.Hostname, p.Init, p.TTY, p.Stdin, p.StopSignal
	if p.StopSeconds > 0 {
		patience := runtime.Seconds(p.StopSeconds)
		to.StopGracePeriod = &patience
	}
	to.ReadOnly, to.CapabilityAdd, to.CapabilityDrop, to.Sysctls = c.Security.ReadOnly, c.Security.CapAdd, c.Security.CapDrop, c.Security.Sysctls
	to.Mounts, to.Healthcheck = runtime.Mounts(c.Mounts), runtime.HealthCheck(c.Health)
	to.Ulimits, to.OomScoreAdj = runtime.Ulimits(c.Resources.Ulimits), int64(c.Resources.OOMScore)
	task.Resources.Limits.Pids = c.Resources.PIDs
	if c.LogDriver != "" || len(c.LogOpts) > 0 {
		task.LogDriver = &swarm.Driver{Name: cmp.Or(c.LogDriver, "json-file"), Options: c.LogOpts}
	}
	for _, text := range c.Network.Hosts {
		name, address, _ := strings.Cut(text, ":")
		to.Hosts = append(to.Hosts, address+" "+name)
	}
	to.DNSConfig = &swarm.DNSConfig{Search: c.Network.DNSSearch, Options: c.Network.DNSOptions}
	if to.DNSConfig.Nameservers, err = runtime.Addresses(c.Network.DNS); err != nil {
		return err
	}
	if c.Network.Mode != "" {
		task.Networks = []swarm.NetworkAttachmentConfig{{Target: c.Network.Mode}}
	} else {
		if err := r.makeNetworks(ctx, s); err != nil {
			return err
		}
		for _, n := range c.Network.Attached {
			task.Networks = append(task.Networks, swarm.NetworkAttachmentConfig{Target: n.Name, Aliases: n.Aliases})
		}
	}
	return r.planFiles(ctx, s, to)
}

func (r *Runtime) planFiles(ctx context.Context, s *runtime.Service, to *swarm.ContainerSpec) error {
	for i := range s.Container.Files {
		f := &s.Container.Files[i]
		name, id, err := r.findObject(ctx, s, f)
		if err != nil {
			return err
		}
		if f.Secret {
			to.Secrets = append(to.Secrets, &swarm.SecretReference{SecretID: id, SecretName: name, File: &swarm.SecretReferenceFileTarget{
				Name: f.Target, UID: cmp.Or(f.UID, "0"), GID: cmp.Or(f.GID, "0"), Mode: os.FileMode(f.Mode),
			}})
			continue
		}
		to.Configs = append(to.Configs, &swarm.ConfigReference{ConfigID: id, ConfigName: name, File: &swarm.ConfigReferenceFileTarget{
			Name: f.Target, UID: cmp.Or(f.UID, "0"), GID: cmp.Or(f.GID, "0"), Mode: os.FileMode(f.Mode),
		}})
	}
	return nil
}

// findObject returns the name and ID of the config or secret that a file is. Errors: ErrMissing; or it
// is one that no instance may read.
func (r *Runtime) findObject(ctx context.Context, s *runtime.Service, f *spec.File) (name, id string, err error) {
	name = cmp.Or(f.External, composePrefix+runtime.FileName(s.Name, f))
	kind, labels := kindConfig, map[string]string(nil)
	if f.Secret {
		var found client.SecretInspectResult
		found, err = r.api.SecretInspect(ctx, name, client.SecretInspectOptions{})
		kind, id, labels = kindSecret, found.Secret.ID, found.Secret.Spec.Labels
	} else {
		var found client.ConfigInspectResult
		found, err = r.api.ConfigInspect(ctx, name, client.ConfigInspectOptions{})
		id, labels = found.Config.ID, found.Config.Spec.Labels
	}
	switch {
	case cerrdefs.IsNotFound(err) && f.External != "":
		return name, "", fmt.Errorf("the external %s %s %w: docker %[1]s create %[2]s FILE", kind, name, runtime.ErrMissing)
	case cerrdefs.IsNotFound(err):
		return name, "", fmt.Errorf("the file for %s %w: deploy the service again", f.Target, runtime.ErrMissing)
	case err != nil:
		return name, "", r.unreachable(err)
	}
	return name, id, checkOwner(kind, name, f.External != "", labels)
}

// checkOwner refuses a config or secret with these labels that is weir-edge's own, such as its key, or,
// as an external one, of another service: a service may not have what commands all of them.
func checkOwner(kind, name string, external bool, labels map[string]string) error {
	_, own := labels[runtime.LabelRole]
	_, other := labels[runtime.LabelService]
	if own || external && other {
		return fmt.Errorf("the %s %s is weir-edge's own, and no service may read it: choose another", kind, name)
	}
	return nil
}

// composePrefix begins the names of configs and secrets that have files of Compose files.
const composePrefix = "edgefile-"

// makeNetworks makes the networks of a container that are missing. Errors: ErrMissing, of one that
// others make.
func (r *Runtime) makeNetworks(ctx context.Context, s *runtime.Service) error {
	c := s.Container
	for i := range c.Network.Attached {
		n := &c.Network.Attached[i]
		found, err := r.api.NetworkInspect(ctx, n.Name, client.NetworkInspectOptions{})
		switch {
		case err == nil && found.Network.Scope != "swarm":
			return fmt.Errorf("the network %s is on one node only: remove it, or give this one another name", n.Name)
		case err == nil:
			continue
		case !cerrdefs.IsNotFound(err):
			return r.unreachable(err)
		case n.External:
			return fmt.Errorf("the external network %s %w: docker network create --driver overlay --attachable %[1]s", n.Name, runtime.ErrMissing)
		}
		options, err := runtime.NetworkOptions(c.Project, "overlay", n)
		if err != nil {
			return err
		}
		options.Scope, options.Attachable = "swarm", true
		if _, err := r.api.NetworkCreate(ctx, n.Name, options); err != nil && !cerrdefs.IsConflict(err) && !cerrdefs.IsAlreadyExists(err) {
			return fmt.Errorf("make the network %s: %w", n.Name, err)
		}
	}
	return nil
}

// prepareContainer makes what instances of a service need, and looks for what others make. Errors:
// ErrMissing.
func (r *Runtime) prepareContainer(ctx context.Context, s *runtime.Service) error {
	c := s.Container
	if c == nil {
		return nil
	}
	labels := map[string]string{runtime.LabelService: s.Name, runtime.LabelProject: c.Project}
	for i := range c.Files {
		f := &c.Files[i]
		name, _, err := r.findObject(ctx, s, f)
		content, given := s.Files[f.Digest]
		if err == nil {
			continue
		} else if !errors.Is(err, runtime.ErrMissing) || f.External != "" || !given {
			return err
		}
		if f.Secret {
			_, err = r.api.SecretCreate(ctx, client.SecretCreateOptions{Spec: swarm.SecretSpec{Annotations: swarm.Annotations{Name: name, Labels: labels}, Data: content}})
		} else {
			_, err = r.api.ConfigCreate(ctx, client.ConfigCreateOptions{Spec: swarm.ConfigSpec{Annotations: swarm.Annotations{Name: name, Labels: labels}, Data: content}})
		}
		if err != nil && !cerrdefs.IsConflict(err) && !cerrdefs.IsAlreadyExists(err) {
			return fmt.Errorf("keep the file for %s: %w", f.Target, err)
		}
	}
	return r.makeNetworks(ctx, s)
}

// removeObjects removes the configs and secrets of a service.
func (r *Runtime) removeObjects(ctx context.Context, service string) error {
	filters := make(client.Filters).Add("label", runtime.LabelService+"="+service)
	configs, err := r.api.ConfigList(ctx, client.ConfigListOptions{Filters: filters})
	if err != nil {
		return r.unreachable(err)
	}
	secrets, err := r.api.SecretList(ctx, client.SecretListOptions{Filters: filters})
	if err != nil {
		return r.unreachable(err)
	}
	var errs []error
	for _, c := range configs.Items {
		errs = append(errs, r.removeObject(ctx, kindConfig, c.ID))
	}
	for _, s := range secrets.Items {
		errs = append(errs, r.removeObject(ctx, kindSecret, s.ID))
	}
	return errors.Join(errs...)
}

// projectOf returns the project of Swarm services; empty if they have none.
func projectOf(services []swarm.Service) string {
	i := slices.IndexFunc(services, func(s swarm.Service) bool { return s.Spec.Labels[runtime.LabelProject] != "" })
	if i < 0 {
		return ""
	}
	return services[i].Spec.Labels[runtime.LabelProject]
}

// removeProject removes the networks of a project that has no service any more. Tasks leave them
// after their services are gone, so it tries for a while.
func (r *Runtime) removeProject(ctx context.Context, project string) error {
	services, err := r.services(ctx, runtime.LabelService)
	if err != nil || slices.ContainsFunc(services, func(s swarm.Service) bool { return s.Spec.Labels[runtime.LabelProject] == project }) {
		return err
	}
	found, err := r.api.NetworkList(ctx, client.NetworkListOptions{Filters: make(client.Filters).Add("label", runtime.LabelProject+"="+project)})
	if err != nil {
		return r.unreachable(err)
	}
	for _, n := range found.Items {
		for range networkTries {
			if _, err = r.api.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{}); err == nil || cerrdefs.IsNotFound(err) {
				err = nil
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(networkPause):
			}
		}
		if err != nil {
			return fmt.Errorf("remove the network %s: %w: docker network rm %[1]s when its last container has ended", n.Name, err)
		}
	}
	return nil
}

// How often, and with which pauses, a network is removed whose tasks are ending.
const (
	networkTries = 10
	networkPause = 300 * time.Millisecond
)
