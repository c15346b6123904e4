package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/share/policy"
)

// socketName is HAProxy's, in its folder.
const socketName = "haproxy.sock"

// folder returns the folder of a service's proxy on this host.
func (r *Runtime) folder(service string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if folder, known := r.folders[service]; known {
		return folder
	}
	return filepath.Join(r.opts.Dir, service)
}

// learnFolders finds the proxies' folders from their mounts.
func (r *Runtime) learnFolders(listed []container.Summary) {
	folders := map[string]string{}
	for _, c := range listed {
		service := c.Labels[runtime.LabelService]
		for _, m := range c.Mounts {
			if c.Labels[runtime.LabelRole] == runtime.RoleProxy && m.Destination == proxy.Folder && filepath.Base(m.Source) == service {
				folders[service] = m.Source
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(r.folders, folders)
}

// Deploy implements runtime.Runtime. A proxy that has a minimum runs from when that is
// promised to an instance (Start): the agent admits what it sees running.
func (r *Runtime) Deploy(ctx context.Context, s runtime.Service) error {
	if err := runtime.LoadProxyImage(ctx, r.api); err != nil {
		return err
	}
	node, err := r.node(ctx)
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(r.folder(s.Name))
	if err != nil {
		return fmt.Errorf("find the folder of the proxy of %s: %w", s.Name, err)
	}
	labels := proxyLabels(&s)
	labels[runtime.LabelDocument], labels[runtime.LabelPinned] = s.Document, s.Pinned
	patience := 30 // seconds: longer than its users are let stay
	created, err := r.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: proxy.ContainerName(s.Name),
		Config: &container.Config{
			Image: proxy.Image, Labels: labels, StopSignal: "SIGUSR1", StopTimeout: &patience,
			Cmd: proxy.Command(proxy.Folder + "/" + proxy.File),
		},
		HostConfig: &container.HostConfig{
			NetworkMode:    "host",
			UsernsMode:     runtime.HostUsers,
			Binds:          []string{"/usr:/usr:ro", folder + ":" + proxy.Folder},
			RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyUnlessStopped},
			CapDrop:        []string{"ALL"},
			CapAdd:         []string{"NET_BIND_SERVICE"},
			SecurityOpt:    runtime.HostSecurity,
			ReadonlyRootfs: true,
		},
	})
	if cerrdefs.IsConflict(err) {
		own, listErr := r.own(ctx, runtime.LabelService+"="+s.Name)
		if listErr == nil && !slices.ContainsFunc(own, func(c container.Summary) bool { return c.Labels[runtime.LabelRole] == runtime.RoleProxy }) {
			return fmt.Errorf("deploy %s: a container %s is there that weir-edge has not made: rename or remove it", s.Name, proxy.ContainerName(s.Name))
		}
		return fmt.Errorf("service %s %w", s.Name, runtime.ErrExists)
	} else if err != nil {
		return fmt.Errorf("create the proxy of %s: %w", s.Name, err)
	}
	// The name is ours: so is the folder.
	r.mu.Lock()
	r.folders[s.Name] = folder
	r.mu.Unlock()
	err = portsFree(s.Ports)
	if err == nil {
		err = r.save(s.Name, s.Proxy.File())
	}
	if err == nil {
		err = r.prepare(ctx, &s)
	}
	if err == nil && !s.Lost {
		err = r.saveDocument(node.ID, s)
	}
	if err == nil && r.isStartedAtOnce(ctx, s) {
		_, err = r.api.ContainerStart(ctx, created.ID, client.ContainerStartOptions{})
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("start the proxy of %s: %w", s.Name, err)
	if s.Lost { // its files are for the next attempt
		return errors.Join(err, r.remove(context.WithoutCancel(ctx), created.ID))
	}
	return errors.Join(err, removeDocument(r.documentPath(s.Name), s.Name), r.remove(context.WithoutCancel(ctx), created.ID), r.removeFiles(s.Name))
}

// labelConfig is the digest of the configuration that a proxy was made with, its instances apart.
const labelConfig = "weir-edge.configuration"

// proxyLabels returns the labels of a service's proxy that only another proxy changes.
func proxyLabels(s *runtime.Service) map[string]string {
	labels := maps.Clone(s.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[runtime.LabelService], labels[runtime.LabelRole] = s.Name, runtime.RoleProxy
	labels[labelConfig] = spec.Digest([]byte(s.Proxy.File()))
	if s.Container != nil {
		labels[runtime.LabelProject] = s.Container.Project
	}
	return labels
}

// Update implements runtime.Runtime.
func (r *Runtime) Update(ctx context.Context, was, s runtime.Service) error {
	node, err := r.node(ctx)
	if err != nil {
		return err
	}
	find := func() (found container.Summary, err error) {
		own, err := r.own(ctx, runtime.LabelService+"="+s.Name)
		if err != nil {
			return found, err
		}
		r.learnFolders(own)
		at := slices.IndexFunc(own, func(c container.Summary) bool { return c.Labels[runtime.LabelRole] == runtime.RoleProxy })
		if at < 0 {
			return found, fmt.Errorf("service %s %w", s.Name, runtime.ErrUnknown)
		}
		return own[at], nil
	}
	if _, err = find(); err != nil { // its proxy tells the folder
		return err
	}
	path := r.documentPath(s.Name)
	unlock, err := lockFolder(ctx, filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("update %s: %w", s.Name, err)
	}
	defer unlock()
	there, err := find() // now that no other weir-edge changes it
	if err != nil {
		return err
	}
	if now := serviceOf(there.Labels, path, node.ID); !now.Is(&was) {
		return fmt.Errorf("service %s %w", s.Name, runtime.ErrChanged)
	}
	err = r.prepare(ctx, &s)
	if err == nil {
		err = r.saveDocument(node.ID, s)
	}
	if err != nil {
		return fmt.Errorf("update %s: %w", s.Name, err)
	}
	if hasProxy(there.Labels, &s) {
		return nil
	}
	// From here on it is a service whose proxy is lost.
	_, err = r.api.ContainerStop(ctx, there.ID, client.ContainerStopOptions{})
	if err == nil || cerrdefs.IsNotFound(err) {
		err = r.remove(ctx, there.ID)
	}
	if err != nil {
		return fmt.Errorf("update %s: %w", s.Name, err)
	}
	s.Lost = true
	return r.Deploy(ctx, s)
}

// hasProxy reports whether a proxy with these labels is that of a service; those of its image are there
// as well.
func hasProxy(labels map[string]string, s *runtime.Service) bool {
	wanted := proxyLabels(s)
	for name, value := range wanted {
		if labels[name] != value {
			return false
		}
	}
	for name := range labels {
		if _, still := wanted[name]; !still && strings.HasPrefix(name, policy.Prefix) {
			return false // such as a minimum that it has no more
		}
	}
	return true
}

// isStartedAtOnce reports whether a service's proxy runs without waiting for its minimum: it has
// none, or has instances, which have been promised it. Without ports it never runs.
func (r *Runtime) isStartedAtOnce(ctx context.Context, s runtime.Service) bool {
	if len(s.Ports) == 0 {
		return false
	}
	_, out := s.Labels[policy.LabelMin]
	if _, in := s.Labels[policy.LabelInMin]; !out && !in {
		return true
	}
	own, err := r.own(ctx, runtime.LabelService+"="+s.Name)
	return err == nil && slices.ContainsFunc(own, func(c container.Summary) bool { return c.Labels[runtime.LabelRole] == runtime.RoleInstance })
}

// portsFree returns an error if another program uses a port of this host. Otherwise the proxy would
// fail to start, with the reason only in its log.
func portsFree(ports []runtime.Port) error {
	for _, p := range ports {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", p.Host)) // as HAProxy does
		if errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("port %d is another program's on this host: end that one (ss -ltnp shows it), or choose another port", p.Host)
		} else if err == nil {
			listener.Close()
		}
	}
	return nil
}

// save writes the proxy's configuration file atomically.
func (r *Runtime) save(service, file string) error {
	folder := r.folder(service)
	if err := replace(folder, proxy.File, []byte(file), nil); err != nil {
		return fmt.Errorf("keep the configuration of the proxy of %s: %w", service, err)
	}
	return nil
}

func (r *Runtime) removeFiles(service string) error {
	folder, files := r.folder(service), r.filesFolder(service)
	r.mu.Lock()
	delete(r.folders, service)
	r.mu.Unlock()
	err := errors.Join(os.RemoveAll(files), os.RemoveAll(folder))
	for range 5 { // another weir-edge may be writing there, which has not seen yet that the service is gone
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		err = os.RemoveAll(folder)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the files of the proxy of %s: %w", service, err)
	}
	return nil
}

// Control is HAProxy's option for the socket that Proxies speak to.
func (r *Runtime) Control() string {
	return proxy.Folder + "/" + socketName + " mode 600 level admin"
}

// Proxies implements runtime.Runtime: none before it is started for the first time.
func (r *Runtime) Proxies(ctx context.Context, service string) ([]runtime.Proxy, error) {
	node, err := r.node(ctx)
	if err != nil {
		return nil, err
	}
	found, err := r.api.ContainerInspect(ctx, proxy.ContainerName(service), client.ContainerInspectOptions{})
	if cerrdefs.IsNotFound(err) {
		return nil, nil // removed meanwhile
	} else if err != nil {
		return nil, r.unreachable(err)
	}
	state := found.Container.State
	if state != nil && state.Status == container.StateCreated {
		return nil, nil
	}
	p := runtime.Proxy{
		Node:    node.Name,
		Control: r.control(service, found.Container.RestartCount > 0),
		Save:    func(file string) error { return r.save(service, file) },
	}
	if state != nil && state.Status == container.StateExited { // by docker kill, or docker stop
		p.Restart = func(ctx context.Context) error {
			_, err := r.api.ContainerStart(ctx, found.Container.ID, client.ContainerStartOptions{})
			if err != nil && !cerrdefs.IsNotFound(err) {
				return fmt.Errorf("start the proxy of %s again: %w", service, err)
			}
			return nil
		}
	}
	return []runtime.Proxy{p}, nil
}

// control returns the control of a service's proxy. If a restarted proxy cannot be reached, the
// error contains its last output.
func (r *Runtime) control(service string, restarted bool) proxy.Control {
	control := proxy.UnixControl(filepath.Join(r.folder(service), socketName))
	if !restarted {
		return control
	}
	return proxy.Control{Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := control.Dial(ctx)
		if err == nil {
			return conn, nil
		}
		if said, why := runtime.LastWords(ctx, r.api, proxy.ContainerName(service)); why == nil && said != "" {
			err = fmt.Errorf("it ended and said %q", said)
		}
		return nil, err
	}}
}
