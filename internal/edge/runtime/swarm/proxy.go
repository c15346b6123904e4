package swarm

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

const (
	// controlSocket is HAProxy's, in its container.
	controlSocket = "/run/haproxy.sock"
	// keyFile is the certificate and the key of proxies, clientsFile weir-edge's certificate.
	keyFile, clientsFile = proxy.Folder + "/control.pem", proxy.Folder + "/clients.pem"
	// The ports at which proxies are commanded are from this range.
	firstControlPort, controlPorts = 7490, 500
)

// Control is HAProxy's option for its socket.
func (r *Runtime) Control() string { return controlSocket + " mode 600 level admin" }

// Deploy implements runtime.Runtime.
func (r *Runtime) Deploy(ctx context.Context, s runtime.Service) error {
	services, err := r.services(ctx, runtime.LabelService)
	if err != nil {
		return err
	}
	port, err := freePort(s.Name, services)
	if err != nil {
		return err
	}
	made, err := r.planProxies(ctx, &s, port)
	if err != nil {
		return err
	}
	_, err = r.api.ServiceCreate(ctx, client.ServiceCreateOptions{Spec: made})
	switch {
	case err == nil:
		return nil
	case cerrdefs.IsConflict(err), cerrdefs.IsAlreadyExists(err):
		err = fmt.Errorf("service %s %w", s.Name, runtime.ErrExists)
	default:
		err = fmt.Errorf("start the proxies of %s: %w", s.Name, err)
	}
	return errors.Join(err, r.removeFiles(ctx, s.Name))
}

// Update implements runtime.Runtime. Labels of a Swarm service that are not its containers' change
// without starting anything anew.
func (r *Runtime) Update(ctx context.Context, was, s runtime.Service) error {
	found, err := r.api.ServiceInspect(ctx, proxy.ContainerName(s.Name), client.ServiceInspectOptions{})
	if cerrdefs.IsNotFound(err) {
		return fmt.Errorf("service %s %w", s.Name, runtime.ErrUnknown)
	} else if err != nil {
		return r.unreachable(err)
	}
	there := found.Service.Spec
	if now := service(there.Labels); !now.Is(&was) {
		return fmt.Errorf("service %s %w", s.Name, runtime.ErrChanged)
	}
	port, err := strconv.ParseUint(there.Labels[labelPort], 10, 16)
	if err != nil {
		return fmt.Errorf("find the proxies of %s: its label %s is %q", s.Name, labelPort, there.Labels[labelPort])
	}
	made, err := r.planProxies(ctx, &s, uint16(port))
	if err != nil {
		return err
	}
	if (there.Mode.Global == nil) != (made.Mode.Global == nil) { // a mode never changes
		if _, err = r.api.ServiceRemove(ctx, found.Service.ID, client.ServiceRemoveOptions{}); err == nil || cerrdefs.IsNotFound(err) {
			_, err = r.api.ServiceCreate(ctx, client.ServiceCreateOptions{Spec: made})
		}
	} else {
		if hasProxies(&there, &made) {
			made.TaskTemplate = there.TaskTemplate
		}
		_, err = r.api.ServiceUpdate(ctx, found.Service.ID, client.ServiceUpdateOptions{Version: found.Service.Version, Spec: made})
		if isOutOfSequence(err) {
			err = runtime.ErrChanged
		}
	}
	if err != nil {
		return fmt.Errorf("update %s: %w", s.Name, err)
	}
	return r.removeFiles(ctx, s.Name)
}

// isOutOfSequence reports whether an update was of a version that is not the newest any more: the manager
// says so as an unknown error. A newer version proves nothing, as Swarm makes some itself (UpdateStatus).
func isOutOfSequence(err error) bool {
	return err != nil && strings.Contains(err.Error(), "update out of sequence")
}

// hasProxies reports whether the proxies that are there have the configuration and the labels of those
// wanted.
func hasProxies(there, wanted *swarm.ServiceSpec) bool {
	a, b := there.TaskTemplate.ContainerSpec, wanted.TaskTemplate.ContainerSpec
	return a != nil && maps.Equal(a.Labels, b.Labels) && len(a.Configs) > 0 && a.Configs[0].ConfigID == b.Configs[0].ConfigID
}

// planProxies makes what a service needs, and returns the Swarm service of its proxies, which are
// commanded at port.
func (r *Runtime) planProxies(ctx context.Context, s *runtime.Service, port uint16) (made swarm.ServiceSpec, err error) {
	if err := checkPorts(*s); err != nil {
		return made, err
	}
	if err := r.prepareContainer(ctx, s); err != nil {
		return made, fmt.Errorf("deploy %s: %w", s.Name, err)
	}
	if _, err := r.api.ImageInspect(ctx, proxy.Image); cerrdefs.IsNotFound(err) {
		return made, fmt.Errorf("start the proxies of %s: the image %s is not there: on every node run weir-edge proxy-image | docker load", s.Name, proxy.Image)
	} else if err != nil {
		return made, r.unreachable(err)
	}
	update, err := json.Marshal(s.Update)
	if err != nil {
		return made, fmt.Errorf("write the update of %s: %w", s.Name, err)
	}
	config := s.Proxy
	config.Remote = &proxy.Remote{Port: port, Socket: controlSocket, Certificate: keyFile, Clients: clientsFile}
	// It contains no servers; proxies get them at run time.
	text := []byte(config.File())
	file, err := r.makeConfig(ctx, hashed(filePrefix, text), text, map[string]string{runtime.LabelRole: roleFile, runtime.LabelService: s.Name})
	if err != nil {
		return made, err
	}
	patience := 30 * time.Second // longer than its users are let stay
	labels := runtime.LabelsWithoutMinimum(s.Labels)
	labels[runtime.LabelService], labels[runtime.LabelRole] = s.Name, runtime.RoleProxy
	labels[labelPort] = portText(port)
	containerLabels := maps.Clone(labels)
	labels[runtime.LabelDocument], labels[runtime.LabelPinned], labels[runtime.LabelUpdate] = s.Document, s.Pinned, string(update)
	if s.Container != nil {
		labels[runtime.LabelProject] = s.Container.Project
	}
	mode := swarm.ServiceMode{Global: &swarm.GlobalService{}}
	if none := uint64(0); len(s.Ports) == 0 { // it has labels only
		mode = swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &none}}
	}
	return swarm.ServiceSpec{
		Annotations: swarm.Annotations{Name: proxy.ContainerName(s.Name), Labels: labels},
		Mode:        mode,
		TaskTemplate: swarm.TaskSpec{
			ContainerSpec: &swarm.ContainerSpec{
				Image: proxy.Image, Labels: containerLabels, StopSignal: "SIGUSR1", StopGracePeriod: &patience, ReadOnly: true, Mounts: proxyMounts(),
				Command: proxy.Command(proxy.Folder + "/" + proxy.File),
				// With SELinux it may read no file of the host, such as HAProxy, unless that is disabled.
				Privileges:     &swarm.Privileges{SELinuxContext: &swarm.SELinuxContext{Disable: true}},
				CapabilityDrop: []string{"ALL"}, CapabilityAdd: []string{"CAP_NET_BIND_SERVICE"},
				Configs: []*swarm.ConfigReference{
					reference(file.ID, file.Spec.Name, proxy.Folder+"/"+proxy.File),
					reference(r.key.clientsID, clientsName(r.key.name), clientsFile),
				},
				Secrets: []*swarm.SecretReference{{
					SecretID: r.key.secretID, SecretName: r.key.name,
					File: &swarm.SecretReferenceFileTarget{Name: keyFile, UID: "0", GID: "0", Mode: 0o400},
				}},
			},
			Networks: []swarm.NetworkAttachmentConfig{{Target: "host"}},
		},
	}, nil
}

func reference(id, name, path string) *swarm.ConfigReference {
	return &swarm.ConfigReference{ConfigID: id, ConfigName: name, File: &swarm.ConfigReferenceFileTarget{Name: path, UID: "0", GID: "0", Mode: 0o400}}
}

// checkPorts returns an error if a user port lies in the range of command ports.
func checkPorts(s runtime.Service) error {
	for _, p := range s.Ports {
		if p.Host >= firstControlPort && p.Host < firstControlPort+controlPorts {
			return fmt.Errorf("deploy %s: at the ports from %d to %d weir-edge commands the proxies of a swarm, %d is one of them: choose another", s.Name, firstControlPort, firstControlPort+controlPorts-1, p.Host)
		}
	}
	return nil
}

// freePort returns a command port that no other service uses. The search starts at a port derived
// from the name, because proxies of a removed service may still listen.
func freePort(service string, services []swarm.Service) (uint16, error) {
	taken := map[string]bool{}
	for _, s := range services {
		taken[s.Spec.Labels[labelPort]] = true
	}
	begin := fnv.New32a()
	_, _ = begin.Write([]byte(service)) // never fails
	for i := range uint32(controlPorts) {
		port := firstControlPort + uint16((begin.Sum32()%controlPorts+i)%controlPorts)
		if !taken[portText(port)] {
			return port, nil
		}
	}
	return 0, fmt.Errorf("%d services are there, and no more can be commanded", controlPorts)
}

// Proxies implements runtime.Runtime: those of nodes that are there.
func (r *Runtime) Proxies(ctx context.Context, service string) ([]runtime.Proxy, error) {
	found, err := r.api.ServiceInspect(ctx, proxy.ContainerName(service), client.ServiceInspectOptions{})
	if err != nil {
		return nil, r.unreachable(err)
	}
	if found.Service.Spec.Mode.Global == nil {
		return nil, nil // it has no ports
	}
	port, err := strconv.ParseUint(found.Service.Spec.Labels[labelPort], 10, 16)
	if err != nil {
		return nil, fmt.Errorf("find the proxies of %s: its label %s is %q", service, labelPort, found.Service.Spec.Labels[labelPort])
	}
	nodes, err := r.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var proxies []runtime.Proxy
	for _, n := range nodes {
		if n.Ready && n.Address.IsValid() {
			proxies = append(proxies, runtime.Proxy{Node: n.Name, Control: r.control(netip.AddrPortFrom(n.Address, uint16(port)))})
		}
	}
	return proxies, nil
}

// control returns the control of the proxy at an address, with its existing connection.
func (r *Runtime) control(address netip.AddrPort) proxy.Control {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, known := r.controls[address]
	if !known {
		dialer := tls.Dialer{Config: r.key.config}
		c = proxy.Control{Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "tcp", address.String())
			if other := (*tls.CertificateVerificationError)(nil); errors.As(err, &other) {
				err = fmt.Errorf("it has another key than weir-edge: remove its service (weir-edge rm) and deploy it again: %w", err)
			}
			return conn, err
		}}.Lasting()
		r.controls[address] = c // as many as nodes have had proxies
	}
	return c
}
