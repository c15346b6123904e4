// Package swarm runs services on the nodes of a Docker Swarm. Membership, certificates,
// desired state and restarts are Swarm's own.
//
// A service is a Swarm service in mode global: its proxies, one on every node, in the
// host's network. It carries the specification as a label. An instance is a Swarm
// service of one replica, bound to its node by a placement constraint, whose port is
// published on the host by a number that Swarm chooses. The ledger and the key by
// which proxies are commanded are Swarm configs, which only managers can read; proxies have a
// key of their own, as a secret.
//
// Images are named by digest or, where they never were in their registry, by ID, so that no
// node asks a registry for what it has. Such an image has to be loaded on every node. That of
// proxies is named by its tag (package proxy).
//
// What users get is sent by the proxies, and what users of other nodes get by instances
// as well. All have the service's labels but those of its minimum and its bound on delay,
// which are in force where users come to: nodes' agents are told.
//
// Limits: the engine that is asked is a manager. Neither VIPs nor the routing mesh are
// used, which need IPVS.
package swarm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// heartbeat is the interval of the nodes' heartbeats; a node without about three of them is down.
const heartbeat = time.Second

// Options say which manager.
type Options struct {
	// Socket is its engine's.
	Socket string
	// LookOnly: make no changes to the swarm, such as creating the ledger.
	LookOnly bool
}

// Runtime is a swarm. It implements runtime.Runtime.
type Runtime struct {
	opts Options
	api  *client.Client
	key  key
	// here is the ID of the node whose engine is asked.
	here string

	mu       sync.Mutex
	controls map[netip.AddrPort]proxy.Control
}

// New returns a client of a manager and shortens the swarm's heartbeat, so that dead nodes are
// noticed soon.
func New(ctx context.Context, opts Options) (*Runtime, error) {
	api, err := runtime.NewClient(opts.Socket)
	if err != nil {
		return nil, err
	}
	r := &Runtime{opts: opts, api: api, controls: map[netip.AddrPort]proxy.Control{}}
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, api.Close())
	}
	return r, nil
}

// IsManager reports whether the engine at a socket manages a swarm.
func IsManager(ctx context.Context, socket string) (bool, error) {
	api, err := runtime.NewClient(socket)
	if err != nil {
		return false, err
	}
	defer api.Close()
	info, err := api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return false, fmt.Errorf("ask the Docker engine at %s: %w", socket, err)
	}
	return info.Info.Swarm.ControlAvailable, nil
}

func (r *Runtime) prepare(ctx context.Context) error {
	info, err := r.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return r.unreachable(err)
	}
	r.here = info.Info.Swarm.NodeID
	if r.opts.LookOnly {
		r.key, err = r.oldestKey(ctx)
		return err
	}
	found, err := r.api.SwarmInspect(ctx, client.SwarmInspectOptions{})
	if err != nil {
		return fmt.Errorf("ask the swarm's manager at %s: %w", r.opts.Socket, err)
	}
	if r.key, err = r.findKey(ctx); err != nil {
		return err
	}
	spec, before := found.Swarm.Spec, ""
	if spec.Dispatcher.HeartbeatPeriod > heartbeat {
		before = spec.Dispatcher.HeartbeatPeriod.String()
	}
	if err := r.findLedger(ctx, before); err != nil || before == "" {
		return err
	}
	spec.Dispatcher.HeartbeatPeriod = heartbeat
	if _, err := r.api.SwarmUpdate(ctx, client.SwarmUpdateOptions{Version: found.Swarm.Version, Spec: spec}); err != nil {
		return fmt.Errorf("set the swarm's heartbeat: %w", err)
	}
	return nil
}

// Kind implements runtime.Runtime.
func (r *Runtime) Kind() string { return "swarm" }

// Close implements runtime.Runtime.
func (r *Runtime) Close() error { return r.api.Close() }

// Nodes implements runtime.Runtime.
func (r *Runtime) Nodes(ctx context.Context) ([]runtime.Node, error) {
	found, err := r.api.NodeList(ctx, client.NodeListOptions{})
	if err != nil {
		return nil, r.unreachable(err)
	}
	nodes := nodesOf(found.Items)
	for i := range nodes {
		nodes[i].Here = nodes[i].ID == r.here
	}
	return nodes, nil
}

// nodesOf converts the swarm's nodes and sorts them by name. A node without an address is not ready.
func nodesOf(items []swarm.Node) []runtime.Node {
	names := nodeNames(items)
	var nodes []runtime.Node
	for _, n := range items {
		node := runtime.Node{
			ID: n.ID, Name: names[n.ID], Ready: n.Status.State == swarm.NodeStateReady,
			Draining: n.Spec.Availability != swarm.NodeAvailabilityActive,
			CPUs:     int(n.Description.Resources.NanoCPUs / 1e9), MemoryBytes: uint64(max(n.Description.Resources.MemoryBytes, 0)),
			Architecture: runtime.Architecture(n.Description.Platform.Architecture),
		}
		node.Address = nodeAddress(n, len(items) == 1)
		switch {
		case !node.Ready:
			node.Reason = strings.TrimSpace(fmt.Sprintf("the swarm says that it is %s: %s", n.Status.State, n.Status.Message))
		case !node.Address.IsValid():
			node.Ready, node.Reason = false, fmt.Sprintf("the swarm has no address for it that other nodes could reach (%q): let it leave, and join again with --advertise-addr", n.Status.Addr)
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b runtime.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// nodeAddress returns the address at which other nodes reach a node; invalid if there is none. A
// leader that joined without an address of its own has 0.0.0.0 or a loopback address in its status
// (https://github.com/moby/moby/issues/35437), where HAProxy would connect to itself; the managers
// know its address. The only node of a swarm may be on a loopback address.
func nodeAddress(n swarm.Node, alone bool) netip.Addr {
	said, _ := netip.ParseAddr(n.Status.Addr)
	var managed netip.AddrPort
	if n.ManagerStatus != nil {
		managed, _ = netip.ParseAddrPort(n.ManagerStatus.Addr)
	}
	for _, address := range []netip.Addr{said, managed.Addr()} {
		if address = address.Unmap(); address.IsValid() && !address.IsUnspecified() && (alone || !address.IsLoopback()) {
			return address
		}
	}
	return netip.Addr{}
}

// nodeNames returns the nodes' host names, with the beginning of the ID appended to duplicates.
func nodeNames(nodes []swarm.Node) map[string]string {
	count := map[string]int{}
	for _, n := range nodes {
		count[n.Description.Hostname]++
	}
	names := map[string]string{}
	for _, n := range nodes {
		names[n.ID] = n.Description.Hostname
		if count[n.Description.Hostname] > 1 {
			names[n.ID] += "-" + n.ID[:min(len(n.ID), 6)]
		}
	}
	return names
}

func (r *Runtime) unreachable(err error) error {
	return fmt.Errorf("ask the swarm's manager at %s: %w", r.opts.Socket, err)
}

// services returns the swarm's services with a label, or all for none.
func (r *Runtime) services(ctx context.Context, label ...string) ([]swarm.Service, error) {
	found, err := r.api.ServiceList(ctx, client.ServiceListOptions{Filters: make(client.Filters).Add("label", label...)})
	if err != nil {
		return nil, r.unreachable(err)
	}
	return found.Items, nil
}

// Look implements runtime.Runtime.
func (r *Runtime) Look(ctx context.Context) (runtime.State, error) {
	services, err := r.services(ctx)
	if err != nil {
		return runtime.State{}, err
	}
	nodes, err := r.Nodes(ctx)
	if err != nil {
		return runtime.State{}, err
	}
	tasks, err := r.api.TaskList(ctx, client.TaskListOptions{})
	if err != nil {
		return runtime.State{}, r.unreachable(err)
	}
	byService := map[string][]swarm.Task{}
	for _, t := range tasks.Items {
		byService[t.ServiceID] = append(byService[t.ServiceID], t)
	}
	var state runtime.State
	for _, s := range services {
		switch _, own := s.Spec.Labels[runtime.LabelService]; {
		case isManaged(&s):
			state.Managed = append(state.Managed, managed(r.api, s, byService[s.ID], nodes))
		case own && s.Spec.Labels[runtime.LabelRole] == runtime.RoleProxy:
			state.Services = append(state.Services, service(s.Spec.Labels))
		case own && s.Spec.Labels[runtime.LabelRole] == runtime.RoleInstance:
			state.Instances = append(state.Instances, instance(s, byService[s.ID], nodes))
		}
	}
	slices.SortFunc(state.Services, func(a, b runtime.Service) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(state.Instances, func(a, b runtime.Instance) int { return strings.Compare(a.ID, b.ID) })
	return state, nil
}

// service returns the service of proxies with these labels.
func service(labels map[string]string) runtime.Service {
	s := runtime.Service{Name: labels[runtime.LabelService], Document: labels[runtime.LabelDocument], Pinned: labels[runtime.LabelPinned]}
	_ = json.Unmarshal([]byte(labels[runtime.LabelUpdate]), &s.Update) // there is none before the first
	return s
}

// instance converts a Swarm service and its tasks, past ones included, to an instance.
func instance(s swarm.Service, tasks []swarm.Task, nodes []runtime.Node) runtime.Instance {
	i := runtime.Instance{
		ID: s.Spec.Labels[runtime.LabelInstance], Service: s.Spec.Labels[runtime.LabelService],
		Image: s.Spec.Labels[runtime.LabelImage], Made: s.Spec.Labels[runtime.LabelMade], Phase: runtime.Starting, Addresses: map[uint16]netip.AddrPort{},
	}
	node := nodeOf(nodes, s.Spec.Labels[runtime.LabelNode])
	i.Node = node.Name
	slices.SortFunc(tasks, func(a, b swarm.Task) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if len(tasks) > 0 {
		newest := tasks[0]
		i.Run, i.StartedAt = newest.ID, newest.Status.Timestamp
		if newest.Status.ContainerStatus != nil {
			i.ContainerID = newest.Status.ContainerStatus.ContainerID
		}
		if newest.Status.State == swarm.TaskStateRunning {
			i.Phase = runtime.Running
			i.Addresses = addresses(node.Address, newest.Status.PortStatus.Ports)
		} else {
			i.Reason = fmt.Sprintf("its task is %s: %s", newest.Status.State, cmp.Or(newest.Status.Err, newest.Status.Message))
			if ended := slices.IndexFunc(tasks[:min(len(tasks), 2)], hasEnded); ended >= 0 { // it, or the one before
				i.Phase, i.Reason = runtime.Ended, cmp.Or(tasks[ended].Status.Err, "it ended")
			}
		}
	}
	return i
}

// nodeOf returns the node with an ID. One that has left has its ID as its name.
func nodeOf(nodes []runtime.Node, id string) runtime.Node {
	if i := slices.IndexFunc(nodes, func(n runtime.Node) bool { return n.ID == id }); i >= 0 {
		return nodes[i]
	}
	return runtime.Node{Name: id}
}

// hasEnded reports whether the program of a task has ended by itself, or could not be started.
func hasEnded(t swarm.Task) bool {
	return slices.Contains([]swarm.TaskState{swarm.TaskStateFailed, swarm.TaskStateRejected, swarm.TaskStateComplete}, t.Status.State)
}

// addresses are where a node's published ports are reached; none without an address. Engines before Docker 27 choose
// the ports of IPv4 and of IPv6 one by one, from two counters that part as soon as a port
// is in use in one of the two only; a task tells both, IPv4's first, and does not say which
// is which.
func addresses(node netip.Addr, ports []swarm.PortConfig) map[uint16]netip.AddrPort {
	at := map[uint16]netip.AddrPort{}
	if !node.IsValid() {
		return at
	}
	for _, p := range ports {
		if _, told := at[uint16(p.TargetPort)]; !told || node.Is6() {
			at[uint16(p.TargetPort)] = netip.AddrPortFrom(node, uint16(p.PublishedPort))
		}
	}
	return at
}

const labelPort = "weir-edge.control-port"

// resolve returns the pinned name of an image, which causes no fetch of a present one, and its
// architecture. One with a digest may exist for further architectures that the manager does not
// know, so its architecture is empty.
func (r *Runtime) resolve(ctx context.Context, image string) (name, architecture string, err error) {
	if strings.Contains(image, "@") {
		return image, "", nil
	}
	found, err := r.api.ImageInspect(ctx, image)
	if err != nil {
		return "", "", err
	}
	if name = runtime.Pin(image, found); name != found.ID {
		return name, "", nil
	}
	return name, found.Architecture, nil
}

// Fetch implements runtime.Runtime: it gets the image to the manager, which so knows its
// digest. Nodes get it when an instance starts there.
func (r *Runtime) Fetch(ctx context.Context, _, image string) (runtime.Image, error) {
	found, fetched, err := runtime.FetchImage(ctx, r.api, image, r.unreachable)
	if err != nil {
		return runtime.Image{}, err
	}
	nodes, err := r.Nodes(ctx)
	if err != nil {
		return runtime.Image{}, err
	}
	if strings.Contains(image, "@") {
		fetched.Pinned = image
	}
	if runtime.Pin(image, found) == found.ID {
		if fetched.Note, err = checkArchitecture(image, found.Architecture, nodes); err != nil {
			return runtime.Image{}, err
		}
	}
	return fetched, nil
}

// checkArchitecture returns an error if no node can run an image, and a note if the nodes that can
// are of another architecture. Unknown architectures are accepted.
func checkArchitecture(image, architecture string, nodes []runtime.Node) (note string, err error) {
	var others []string
	for _, n := range nodes {
		can, why := runtime.CanRun(image, architecture, n.Name, n.Architecture)
		switch {
		case can && why == "":
			return "", nil
		case can:
			note = why
		}
		if !slices.Contains(others, n.Architecture) {
			others = append(others, n.Architecture)
		}
	}
	if len(others) == 0 || note != "" {
		return note, nil
	}
	return "", fmt.Errorf("run %s: %w: it is for %s and nodes are %s: build or push the image for one of them",
		image, runtime.ErrArchitecture, architecture, strings.Join(others, ", "))
}

// Start implements runtime.Runtime.
func (r *Runtime) Start(ctx context.Context, s runtime.Service, instance, node string) error {
	nodes, err := r.Nodes(ctx)
	if err != nil {
		return err
	}
	n := slices.IndexFunc(nodes, func(n runtime.Node) bool { return n.Name == node })
	if n < 0 {
		return fmt.Errorf("start instance %s: there is no node %s any more", instance, node)
	}
	image, architecture, err := r.resolve(ctx, s.ImageToRun())
	if err == nil {
		_, err = checkArchitecture(s.Image, architecture, nodes[n:n+1])
	}
	if err != nil {
		return fmt.Errorf("start instance %s: %w", instance, err)
	}
	spec, err := r.plan(ctx, &s, instance, image, nodes[n].ID)
	if err != nil {
		return fmt.Errorf("start instance %s: %w", instance, err)
	}
	login, err := runtime.RegistryAuth(ctx, s.Image)
	if err != nil {
		return fmt.Errorf("start instance %s: %w", instance, err)
	}
	_, err = r.api.ServiceCreate(ctx, client.ServiceCreateOptions{Spec: spec, EncodedRegistryAuth: login})
	if cerrdefs.IsConflict(err) || cerrdefs.IsAlreadyExists(err) {
		return fmt.Errorf("instance %s %w", instance, runtime.ErrExists)
	} else if err != nil {
		return fmt.Errorf("start instance %s: %w", instance, err)
	}
	return nil
}

// Restart implements runtime.Runtime: a swarm restarts all that ends.
func (r *Runtime) Restart(context.Context, string) error { return nil }

// Stop implements runtime.Runtime.
func (r *Runtime) Stop(ctx context.Context, instance string) error {
	_, err := r.api.ServiceRemove(ctx, proxy.InstanceName(instance), client.ServiceRemoveOptions{})
	if err != nil && !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("stop instance %s: %w", instance, err)
	}
	return nil
}

// Remove implements runtime.Runtime. A swarm gives all tasks time to end.
func (r *Runtime) Remove(ctx context.Context, service string, _ bool) error {
	services, err := r.services(ctx, runtime.LabelService)
	if err != nil {
		return err
	}
	services = slices.DeleteFunc(services, func(s swarm.Service) bool { return s.Spec.Labels[runtime.LabelService] != service })
	if len(services) == 0 {
		return fmt.Errorf("service %s %w", service, runtime.ErrUnknown)
	}
	slices.SortFunc(services, func(a, b swarm.Service) int {
		return strings.Compare(a.Spec.Labels[runtime.LabelRole], b.Spec.Labels[runtime.LabelRole]) // instances first
	})
	var errs []error
	for _, s := range services {
		if _, err := r.api.ServiceRemove(ctx, s.ID, client.ServiceRemoveOptions{}); err != nil && !cerrdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove %s: %w", service, err))
		}
	}
	errs = append(errs, r.removeFiles(ctx, service), r.removeObjects(ctx, service))
	if project := projectOf(services); project != "" {
		errs = append(errs, r.removeProject(ctx, project))
	}
	return errors.Join(errs...)
}

// Changes implements runtime.Runtime: nothing tells of tasks of other nodes, so rounds
// are all there is.
func (r *Runtime) Changes(context.Context) <-chan struct{} { return nil }

// proxyMounts are the host's programs, read only.
func proxyMounts() []mount.Mount {
	return []mount.Mount{
		{Type: mount.TypeBind, Source: "/usr", Target: "/usr", ReadOnly: true},
		{Type: mount.TypeTmpfs, Target: "/run"},
	}
}

func portText(port uint16) string { return strconv.Itoa(int(port)) }
