// Package docker runs services on one plain Docker engine.
//
// A service is its proxy's container, whose name only one can have; it carries the
// specification as a label. An instance is a container on a bridge network, and its
// proxy reaches it there, so that no port of the host is used but the service's own.
//
// What users get is sent by the proxy, in the host's network and in a cgroup of its
// own. So it is the proxy that has the service's minimum and bound on delay, and the
// Weir agent counts at the uplink what it sends. Instances have all other labels.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// Options select the engine and the folder of the proxies' files.
type Options struct {
	// Socket is the path of the engine's socket.
	Socket string
	// Dir is the folder for new proxies' configurations and sockets. Existing proxies keep their
	// own folder, so Dir may differ from it.
	Dir string
	// Network is the instances' network; empty means the engine's default bridge.
	Network string
}

// Runtime is one engine. It implements runtime.Runtime.
type Runtime struct {
	opts Options
	api  *client.Client

	mu sync.Mutex
	// imageLabels are the labels of images by ID; images never change.
	imageLabels map[string]map[string]string
	// folders are the proxies' folders, by service.
	folders map[string]string
}

// New returns a client of an engine; it makes no request.
func New(opts Options) (*Runtime, error) {
	if opts.Network == "" {
		opts.Network = "bridge"
	}
	api, err := runtime.NewClient(opts.Socket)
	if err != nil {
		return nil, err
	}
	return &Runtime{opts: opts, api: api, imageLabels: map[string]map[string]string{}, folders: map[string]string{}}, nil
}

// Kind implements runtime.Runtime.
func (r *Runtime) Kind() string { return "docker" }

// Close implements runtime.Runtime.
func (r *Runtime) Close() error { return r.api.Close() }

// Nodes implements runtime.Runtime: the one that the engine is on.
func (r *Runtime) Nodes(ctx context.Context) ([]runtime.Node, error) {
	info, err := r.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, r.unreachable(err)
	}
	return []runtime.Node{{
		ID: info.Info.ID, Name: info.Info.Name, Ready: true, Here: true,
		CPUs: info.Info.NCPU, MemoryBytes: uint64(max(info.Info.MemTotal, 0)),
		Architecture: runtime.Architecture(info.Info.Architecture),
	}}, nil
}

func (r *Runtime) unreachable(err error) error {
	return fmt.Errorf("ask the Docker engine at %s: %w", r.opts.Socket, err)
}

// Look implements runtime.Runtime.
func (r *Runtime) Look(ctx context.Context) (runtime.State, error) {
	node, err := r.node(ctx)
	if err != nil {
		return runtime.State{}, err
	}
	listed, err := r.own(ctx, runtime.LabelRole)
	if err != nil {
		return runtime.State{}, err
	}
	r.learnFolders(listed)
	state := runtime.State{Odd: unreadable(listed)}
	for _, c := range listed {
		switch c.Labels[runtime.LabelRole] {
		case runtime.RoleProxy:
			state.Services = append(state.Services, serviceOf(c.Labels, r.documentPath(c.Labels[runtime.LabelService]), node.ID))
		case runtime.RoleInstance:
			instance, err := r.instance(ctx, c.ID, node.Name)
			if cerrdefs.IsNotFound(err) {
				continue // between the two questions
			} else if err != nil {
				return runtime.State{}, err
			}
			state.Instances = append(state.Instances, instance)
		}
	}
	state.Services = append(state.Services, r.lost(node.ID, state.Services)...)
	slices.SortFunc(state.Services, func(a, b runtime.Service) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(state.Instances, func(a, b runtime.Instance) int { return strings.Compare(a.ID, b.ID) })
	return state, nil
}

// serviceOf returns the service of a proxy with these labels, of which the file at path may say more.
func serviceOf(labels map[string]string, path, engine string) runtime.Service {
	s := runtime.Service{Name: labels[runtime.LabelService], Document: labels[runtime.LabelDocument], Pinned: labels[runtime.LabelPinned]}
	if kept, found := readDocument(path, engine); found {
		s.Document, s.Pinned, s.Update = kept.Specification, kept.Pinned, kept.Update
	}
	return s
}

func (r *Runtime) node(ctx context.Context) (runtime.Node, error) {
	nodes, err := r.Nodes(ctx)
	if err != nil {
		return runtime.Node{}, err
	}
	return nodes[0], nil
}

// list returns the containers with a label ("name" or "name=value"), in any state.
func (r *Runtime) list(ctx context.Context, labels ...string) ([]container.Summary, error) {
	found, err := r.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labels...)})
	if err != nil {
		return nil, r.unreachable(err)
	}
	return found.Items, nil
}

func (r *Runtime) instance(ctx context.Context, id, node string) (runtime.Instance, error) {
	found, err := r.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return runtime.Instance{}, err
	}
	c := found.Container
	i := runtime.Instance{
		ContainerID: c.ID, Node: node, Addresses: map[uint16]netip.AddrPort{},
	}
	if c.Config != nil {
		i.Image = cmp.Or(c.Config.Labels[runtime.LabelImage], c.Config.Image)
		i.Service, i.ID, i.Made = c.Config.Labels[runtime.LabelService], c.Config.Labels[runtime.LabelInstance], c.Config.Labels[runtime.LabelMade]
	}
	i.Phase, i.Reason, i.StartedAt = phase(c.State)
	if !i.StartedAt.IsZero() {
		i.Run = c.State.StartedAt
	}
	i.Stays = i.Phase == runtime.Ended && !c.State.Restarting
	if c.State != nil && c.State.Health != nil && c.State.Health.Status != container.NoHealthcheck {
		i.Health = runtime.Health(c.State.Health.Status)
		if checks := c.State.Health.Log; i.Reason == "" && len(checks) > 0 {
			i.Reason = firstLine(checks[len(checks)-1].Output)
		}
	}
	if c.NetworkSettings == nil || c.Config == nil {
		return i, nil
	}
	if address := addressIn(c.NetworkSettings.Networks); address.IsValid() {
		for port := range strings.FieldsSeq(c.Config.Labels[labelPorts]) {
			if n, err := strconv.ParseUint(port, 10, 16); err == nil {
				i.Addresses[uint16(n)] = netip.AddrPortFrom(address, uint16(n))
			}
		}
	}
	return i, nil
}

// addressIn returns the address of a container in the first of its networks where it has one, IPv4
// before IPv6; invalid if there is none.
func addressIn(networks map[string]*network.EndpointSettings) netip.Addr {
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		for _, address := range []netip.Addr{networks[name].IPAddress, networks[name].GlobalIPv6Address} {
			if address.IsValid() {
				return address
			}
		}
	}
	return netip.Addr{}
}

// firstLine returns the first line of what a program said, as far as it fits into a message.
func firstLine(text string) string {
	const most = 200
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// labelPorts are the container's ports, with spaces between them.
const labelPorts = "weir-edge.ports"

func phase(s *container.State) (p runtime.Phase, reason string, startedAt time.Time) {
	if s == nil {
		return runtime.Starting, "", time.Time{}
	}
	startedAt, _ = time.Parse(time.RFC3339Nano, s.StartedAt)
	ended := fmt.Sprintf("it ended with exit status %d", s.ExitCode)
	switch {
	case s.OOMKilled:
		ended = "it ran out of its memory"
	case s.Error != "":
		ended = s.Error
	}
	switch {
	case s.Status == container.StateCreated && s.Error == "":
		return runtime.Starting, "", startedAt
	case s.Running && !s.Restarting:
		return runtime.Running, "", startedAt
	default:
		return runtime.Ended, ended, startedAt
	}
}

// Fetch implements runtime.Runtime.
func (r *Runtime) Fetch(ctx context.Context, _, image string) (runtime.Image, error) {
	found, fetched, err := runtime.FetchImage(ctx, r.api, image, r.unreachable)
	if err != nil {
		return runtime.Image{}, err
	}
	if found.Config != nil {
		if err := checkImageLabels(image, found.Config.Labels); err != nil {
			return runtime.Image{}, err
		}
	}
	nodes, err := r.Nodes(ctx)
	if err != nil {
		return runtime.Image{}, err
	}
	can, note := runtime.CanRun(image, found.Architecture, nodes[0].Name, nodes[0].Architecture)
	if ours := nodes[0].Architecture; !can {
		return runtime.Image{}, fmt.Errorf("run %s: %w: it is for %s and the node %s is %s: build or push the image for %s",
			image, runtime.ErrArchitecture, found.Architecture, nodes[0].Name, ours, ours)
	}
	fetched.Note = note
	return fetched, nil
}

// Start implements runtime.Runtime.
func (r *Runtime) Start(ctx context.Context, s runtime.Service, instance, _ string) error {
	if len(s.Ports) > 0 {
		if _, err := r.api.ContainerStart(ctx, proxy.ContainerName(s.Name), client.ContainerStartOptions{}); err != nil {
			return fmt.Errorf("start the proxy of %s: %w", s.Name, err)
		}
	}
	if err := r.makeNetworks(ctx, &s); err != nil {
		return fmt.Errorf("start instance %s: %w", instance, err)
	}
	made, err := r.plan(&s)
	if err != nil {
		return fmt.Errorf("start instance %s: %w", instance, err)
	}
	made.Name, made.Config.Labels = proxy.InstanceName(instance), instanceLabels(&s, instance)
	created, err := r.api.ContainerCreate(ctx, made)
	if cerrdefs.IsConflict(err) {
		return fmt.Errorf("instance %s %w", instance, runtime.ErrExists)
	} else if err != nil {
		return fmt.Errorf("create instance %s: %w", instance, err)
	}
	err = connect(ctx, r.api, &s, created.ID)
	if err == nil {
		_, err = r.api.ContainerStart(ctx, created.ID, client.ContainerStartOptions{})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start instance %s: %w", instance, err), r.remove(context.WithoutCancel(ctx), created.ID))
	}
	return nil
}

// Restart implements runtime.Runtime: an engine restarts what exits, but not what docker kill or
// docker stop has ended.
func (r *Runtime) Restart(ctx context.Context, instance string) error {
	if _, err := r.api.ContainerStart(ctx, proxy.InstanceName(instance), client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("start instance %s again: %w", instance, err)
	}
	return nil
}

// Stop implements runtime.Runtime.
func (r *Runtime) Stop(ctx context.Context, instance string) error {
	name := proxy.InstanceName(instance)
	project := ""
	found, err := r.api.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if err == nil && found.Container.Config != nil {
		project = found.Container.Config.Labels[runtime.LabelProject]
	}
	_, err = r.api.ContainerStop(ctx, name, client.ContainerStopOptions{}) // waits as long as its container says
	if err == nil || cerrdefs.IsNotFound(err) {
		err = r.remove(ctx, name)
	}
	if err == nil && project != "" {
		err = r.removeProject(ctx, project)
	}
	if err != nil {
		return fmt.Errorf("stop instance %s: %w", instance, err)
	}
	return nil
}

func (r *Runtime) remove(ctx context.Context, id string) error {
	_, err := r.api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) { // gone, or going
		return nil
	}
	return err
}

// Remove implements runtime.Runtime. The service stays listed until its last instance is gone, so
// that an interrupted removal can be repeated.
func (r *Runtime) Remove(ctx context.Context, service string, leave bool) error {
	listed, err := r.own(ctx, runtime.LabelService+"="+service)
	if err != nil {
		return err
	}
	r.learnFolders(listed)
	if _, err := os.Stat(r.documentPath(service)); err != nil && len(listed) == 0 {
		return fmt.Errorf("service %s %w", service, runtime.ErrUnknown)
	}
	if err := removeDocument(r.documentPath(service), service); err != nil {
		return err
	}
	slices.SortFunc(listed, func(a, b container.Summary) int {
		return strings.Compare(a.Labels[runtime.LabelRole], b.Labels[runtime.LabelRole]) // instances first
	})
	var errs []error
	project := ""
	for _, c := range listed {
		project = cmp.Or(project, c.Labels[runtime.LabelProject])
		if project != "" && c.Labels[runtime.LabelRole] == runtime.RoleInstance {
			if leave {
				continue
			}
			_, _ = r.api.ContainerStop(ctx, c.ID, client.ContainerStopOptions{}) // remove kills it
		}
		if err := r.remove(ctx, c.ID); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", service, err))
		}
	}
	errs = append(errs, r.removeFiles(service))
	if project != "" {
		errs = append(errs, r.removeProject(ctx, project))
	}
	return errors.Join(errs...)
}

// Changes implements runtime.Runtime.
func (r *Runtime) Changes(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			r.follow(ctx, changes)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return changes
}

// follow reads the engine's events until the stream ends.
func (r *Runtime) follow(ctx context.Context, changes chan<- struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filters := make(client.Filters).Add("type", "container").Add("label", runtime.LabelService).Add("event", "start", "die", "destroy")
	events := r.api.Events(ctx, client.EventsListOptions{Filters: filters})
	for {
		select {
		case <-events.Messages:
			notify(changes)
		case err := <-events.Err:
			if err != nil && ctx.Err() == nil {
				notify(changes) // something may have been missed
			}
			return
		}
	}
}

// notify sends without blocking; an unread notice stands for this one too.
func notify(changes chan<- struct{}) {
	select {
	case changes <- struct{}{}:
	default:
	}
}
