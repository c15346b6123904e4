package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// An instance of a Compose file is what the file says: its networks are made with it, and its configs
// and secrets are files beside the folder of the proxy, where only root and their instances reach
// them.

// usualPatience is for how many seconds an instance may take to end after its signal.
const usualPatience = 5

// plan returns what instances of a service are created from. Their labels and name are not in it.
func (r *Runtime) plan(s *runtime.Service) (client.ContainerCreateOptions, error) {
	patience := usualPatience
	made := client.ContainerCreateOptions{
		Config: &container.Config{Image: s.ImageToRun(), StopTimeout: &patience},
		HostConfig: &container.HostConfig{
			NetworkMode:   container.NetworkMode(r.opts.Network),
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyUnlessStopped},
			Resources:     container.Resources{Memory: int64(s.MemoryBytes), NanoCPUs: int64(s.CPUs * 1e9)},
		},
	}
	c := s.Container
	if c == nil {
		return made, nil
	}
	config, host := made.Config, made.HostConfig
	p := &c.Process
	config.Entrypoint, config.Cmd, config.Env, config.WorkingDir = p.Entrypoint, p.Command, p.Environment, p.WorkingDir
	config.User, config.Hostname, config.Tty, config.OpenStdin, config.StopSignal = p.User, p.Hostname, p.TTY, p.Stdin, p.StopSignal
	config.Healthcheck = runtime.HealthCheck(c.Health)
	if p.StopSeconds > 0 {
		patience = int(p.StopSeconds + 0.5)
	}
	host.Init, host.GroupAdd = p.Init, p.Groups
	host.Privileged, host.ReadonlyRootfs, host.CapAdd, host.CapDrop = c.Security.Privileged, c.Security.ReadOnly, c.Security.CapAdd, c.Security.CapDrop
	host.SecurityOpt, host.Sysctls = c.Security.Options, c.Security.Sysctls
	host.PidMode, host.IpcMode = container.PidMode(c.Security.PID), container.IpcMode(c.Security.IPC)
	limit := &c.Resources
	host.ShmSize, host.MemoryReservation, host.MemorySwap = limit.SharedBytes, limit.ReservedBytes, limit.SwapLimitBytes
	host.CpusetCpus, host.Resources.CPUShares, host.OomScoreAdj = limit.CPUSet, limit.CPUShares, limit.OOMScore
	host.Ulimits = runtime.Ulimits(limit.Ulimits)
	if limit.PIDs > 0 {
		host.PidsLimit = &limit.PIDs
	}
	for _, device := range c.Devices {
		host.Devices = append(host.Devices, runtime.Device(device))
	}
	host.LogConfig = container.LogConfig{Type: c.LogDriver, Config: c.LogOpts}
	host.Mounts = runtime.Mounts(c.Mounts)
	folder, err := filepath.Abs(r.filesFolder(s.Name))
	if err != nil {
		return made, fmt.Errorf("find the files of %s: %w", s.Name, err)
	}
	for i := range c.Files {
		path := filepath.Join(folder, runtime.FileName(s.Name, &c.Files[i]))
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: path, Target: c.Files[i].Target, ReadOnly: true})
	}
	return made, planNetwork(s, &made)
}

func planNetwork(s *runtime.Service, made *client.ContainerCreateOptions) (err error) {
	config, host, n := made.Config, made.HostConfig, &s.Container.Network
	host.ExtraHosts, host.DNSSearch, host.DNSOptions = n.Hosts, n.DNSSearch, n.DNSOptions
	if host.DNS, err = runtime.Addresses(n.DNS); err != nil {
		return err
	}
	for _, p := range n.Ports {
		port, ok := network.PortFrom(p.Container, network.IPProtocol(p.Protocol))
		if !ok {
			return fmt.Errorf("port %d: %q is no protocol", p.Host, p.Protocol)
		}
		binding := network.PortBinding{HostPort: strconv.Itoa(int(p.Host))}
		if p.Address != "" {
			if binding.HostIP, err = netip.ParseAddr(p.Address); err != nil {
				return fmt.Errorf("port %d: %w", p.Host, err)
			}
		}
		if host.PortBindings == nil {
			host.PortBindings, config.ExposedPorts = network.PortMap{}, network.PortSet{}
		}
		host.PortBindings[port] = append(host.PortBindings[port], binding)
		config.ExposedPorts[port] = struct{}{}
	}
	switch {
	case n.Mode != "":
		host.NetworkMode = container.NetworkMode(n.Mode)
	case len(n.Attached) > 0: // Start connects the others
		host.NetworkMode = container.NetworkMode(n.Attached[0].Name)
		made.NetworkingConfig = &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
			n.Attached[0].Name: {Aliases: n.Attached[0].Aliases},
		}}
	}
	return nil
}

// connect connects a created instance to its other networks.
func connect(ctx context.Context, api *client.Client, s *runtime.Service, id string) error {
	c := s.Container
	if c == nil || c.Network.Mode != "" {
		return nil
	}
	for _, n := range c.Network.Attached[min(1, len(c.Network.Attached)):] {
		_, err := api.NetworkConnect(ctx, n.Name, client.NetworkConnectOptions{Container: id, EndpointConfig: &network.EndpointSettings{Aliases: n.Aliases}})
		if err != nil {
			return fmt.Errorf("connect it to the network %s: %w", n.Name, err)
		}
	}
	return nil
}

// makeNetworks makes the networks of a container that are missing. Errors: ErrMissing, of one that
// others make.
func (r *Runtime) makeNetworks(ctx context.Context, s *runtime.Service) error {
	c := s.Container
	if c == nil {
		return nil
	}
	for i := range c.Network.Attached {
		n := &c.Network.Attached[i]
		_, err := r.api.NetworkInspect(ctx, n.Name, client.NetworkInspectOptions{})
		if err == nil {
			continue
		} else if !cerrdefs.IsNotFound(err) {
			return r.unreachable(err)
		}
		if n.External {
			return fmt.Errorf("the external network %s %w: docker network create %[1]s", n.Name, runtime.ErrMissing)
		}
		options, err := runtime.NetworkOptions(c.Project, "bridge", n)
		if err != nil {
			return err
		}
		if _, err := r.api.NetworkCreate(ctx, n.Name, options); err != nil && !cerrdefs.IsConflict(err) {
			return fmt.Errorf("make the network %s: %w", n.Name, err)
		}
	}
	return nil
}

// prepare makes what instances of a service need, and looks for what others make. Errors: ErrMissing.
func (r *Runtime) prepare(ctx context.Context, s *runtime.Service) error {
	if s.Container == nil {
		return nil
	}
	for _, m := range s.Container.Mounts {
		if !m.External {
			continue
		}
		if _, err := r.api.VolumeInspect(ctx, m.Source, client.VolumeInspectOptions{}); cerrdefs.IsNotFound(err) {
			return fmt.Errorf("the external volume %s %w: docker volume create %[1]s", m.Source, runtime.ErrMissing)
		} else if err != nil {
			return r.unreachable(err)
		}
	}
	for _, f := range s.Container.Files {
		if f.External != "" {
			return fmt.Errorf("%s is a secret or config of a swarm, and this engine is in none: give it a file or a variable in place of external", f.External)
		}
	}
	if err := saveFiles(r.filesFolder(s.Name), s); err != nil {
		return err
	}
	return r.makeNetworks(ctx, s)
}

// filesFolder is where a service's configs and secrets are.
func (r *Runtime) filesFolder(service string) string { return r.folder(service) + ".files" }

// saveFiles writes the files of a service into a folder that are not there as they should be.
func saveFiles(folder string, s *runtime.Service) error {
	for i := range s.Container.Files {
		f := &s.Container.Files[i]
		name := runtime.FileName(s.Name, f)
		content, given := s.Files[f.Digest]
		if !given {
			there, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil || spec.Digest(there) != f.Digest {
				return fmt.Errorf("the file for %s of %s is lost: deploy the service again", f.Target, s.Name)
			}
			continue
		}
		err := replace(folder, name, content, func(file *os.File) error { return giveAway(file, f) })
		if err != nil {
			return fmt.Errorf("keep the file for %s of %s: %w", f.Target, s.Name, err)
		}
	}
	return nil
}

// giveAway gives a file the owner and mode that an instance sees. Others do not reach its folder.
func giveAway(file *os.File, f *spec.File) error {
	uid, err := strconv.Atoi(cmp.Or(f.UID, "0"))
	if err != nil {
		return fmt.Errorf("uid %q is no number", f.UID)
	}
	gid, err := strconv.Atoi(cmp.Or(f.GID, "0"))
	if err != nil {
		return fmt.Errorf("gid %q is no number", f.GID)
	}
	return cmp.Or(file.Chown(uid, gid), file.Chmod(os.FileMode(f.Mode)&os.ModePerm))
}

// removeProject removes the networks of a project that has no service any more.
func (r *Runtime) removeProject(ctx context.Context, project string) error {
	left, err := r.own(ctx, runtime.LabelProject+"="+project)
	if err != nil || len(left) > 0 {
		return err
	}
	found, err := r.api.NetworkList(ctx, client.NetworkListOptions{Filters: make(client.Filters).Add("label", runtime.LabelProject+"="+project)})
	if err != nil {
		return r.unreachable(err)
	}
	var errs []error
	for _, n := range found.Items {
		// Containers of others may be there.
		if _, err := r.api.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{}); err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) && !cerrdefs.IsPermissionDenied(err) {
			errs = append(errs, fmt.Errorf("remove the network %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// instanceLabels returns the labels of an instance.
func instanceLabels(s *runtime.Service, instance string) map[string]string {
	labels := maps.Clone(runtime.LabelsWithoutMinimum(s.Labels))
	labels[runtime.LabelService], labels[runtime.LabelRole], labels[runtime.LabelInstance] = s.Name, runtime.RoleInstance, instance
	labels[runtime.LabelImage], labels[runtime.LabelMade] = s.Image, s.Made
	for _, port := range s.Ports {
		labels[labelPorts] = strings.TrimSpace(labels[labelPorts] + " " + strconv.Itoa(int(port.Container)))
	}
	if s.Container != nil {
		labels[runtime.LabelProject] = s.Container.Project
	}
	return labels
}
