package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/agent/discovery"
)

// errGone: the container is not running (any more).
var errGone = errors.New("the container does not run")

// describe inspects a container and returns it for the agent, or errGone.
func (w *watch) describe(ctx context.Context, id string) (*discovery.Container, error) {
	info, err := w.api.inspect(ctx, id)
	if isNotFound(err) {
		return nil, errGone
	} else if err != nil {
		return nil, err
	}
	// A container that waits for a restart has status "running" and process 0.
	if !info.State.Running || info.State.Pid <= 0 {
		return nil, errGone
	}
	cgroups, err := ownCgroups(w.source.procDir, info.ID, info.State.Pid)
	if err != nil {
		return nil, err
	}
	c, err := w.complete(ctx, info, cgroups)
	if err == nil {
		c.Lacks.NetAdmin = lacksCapability(w.source.procDir, info.State.Pid, unix.CAP_NET_ADMIN)
		c.Lacks.NetRaw = lacksCapability(w.source.procDir, info.State.Pid, unix.CAP_NET_RAW)
	}
	return c, err
}

// lacksCapability reports whether the bounding set of a process (capabilities(7)) excludes a
// capability, for the process and all its children.
func lacksCapability(procDir string, pid, capability int) bool {
	status, err := os.ReadFile(filepath.Join(procDir, strconv.Itoa(pid), "status"))
	if err != nil {
		return false
	}
	_, rest, found := strings.Cut(string(status), "\nCapBnd:")
	if !found {
		return false
	}
	line, _, _ := strings.Cut(rest, "\n")
	bounding, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && bounding&(1<<capability) == 0
}

// complete converts an inspection and adds what other requests tell. cgroups is the text of
// /proc/PID/cgroup.
func (w *watch) complete(ctx context.Context, info *inspection, cgroups string) (_ *discovery.Container, err error) {
	c := convert(info)
	c.Runtime = w.source.name
	c.CgroupPath = w.cgroups.OfContainer(cgroups, info.ID)
	w.mu.Lock()
	w.cgroupPatterns.learn(c.CgroupPath, c.ID)
	w.mu.Unlock()
	if peer := c.SharesNetworkOf; peer != "" && !isID(peer) {
		// The container was created with a peer's name, and the engine stores that name.
		if joined, err := w.api.inspect(ctx, peer); err == nil {
			c.SharesNetworkOf = joined.ID
		} else if !isNotFound(err) {
			return nil, err
		}
	}
	if err := w.tellImage(ctx, info.Image, c); err != nil {
		return nil, err
	}
	if err := w.tellNetworks(ctx, info, c); err != nil {
		return nil, err
	}
	return c, nil
}

// convert fills in everything that the inspection alone contains.
func convert(info *inspection) *discovery.Container {
	c := &discovery.Container{
		ID:        info.ID,
		Name:      strings.TrimPrefix(info.Name, "/"),
		Labels:    info.Config.Labels,
		Image:     info.Config.Image,
		NetNSPath: fmt.Sprintf("/proc/%d/ns/net", info.State.Pid),
	}
	c.Ports = portsOf(info)
	c.Pod.Name = podOf(c.Name, info)
	// A missing start time leaves the zero time.
	c.StartedAt, _ = time.Parse(time.RFC3339Nano, info.State.StartedAt)
	switch mode, peer, _ := strings.Cut(info.HostConfig.NetworkMode, ":"); mode {
	case "host":
		c.HostNetwork = true
	case "container":
		c.SharesNetworkOf = peer
	case "none":
		// A container created without a network can be connected to one.
		c.NoNetwork = true
		for name := range info.NetworkSettings.Networks {
			if name != "none" {
				c.NoNetwork = false
			}
		}
	}
	return c
}

// labelPodName is the label in which Kubernetes stores the pod's name.
const labelPodName = "io.kubernetes.pod.name"

// infraName matches the name of the container that holds the network of a Podman pod. The host name
// of that container is the pod's name.
var infraName = regexp.MustCompile(`^[0-9a-f]{12}-infra$`)

// podOf returns the name of a container's pod; "" if it is in no pod, or in a Podman pod whose
// network another container holds.
func podOf(name string, info *inspection) string {
	if infraName.MatchString(name) {
		return info.Config.Hostname
	}
	return info.Config.Labels[labelPodName]
}

// portsOf returns the published ports of a container, sorted by number. A port that is published at
// several addresses is listed once.
func portsOf(info *inspection) (ports []discovery.Port) {
	for inside, published := range info.NetworkSettings.Ports {
		number, protocol, _ := strings.Cut(inside, "/")
		container, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			continue
		}
		for _, at := range published {
			host, err := strconv.ParseUint(at.HostPort, 10, 16)
			if err != nil {
				continue
			}
			i := slices.IndexFunc(ports, func(p discovery.Port) bool {
				return p.Container == uint16(container) && p.Host == uint16(host) && p.Protocol == protocol
			})
			if i < 0 {
				i = len(ports)
				ports = append(ports, discovery.Port{Container: uint16(container), Host: uint16(host), Protocol: protocol})
			}
			ports[i].AnyIPv4 = ports[i].AnyIPv4 || at.HostIP == "" || at.HostIP == "0.0.0.0"
			ports[i].AnyIPv6 = ports[i].AnyIPv6 || at.HostIP == "" || at.HostIP == "::"
		}
	}
	slices.SortFunc(ports, func(a, b discovery.Port) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Host, b.Host))
	})
	return ports
}

// tellImage records which of a container's labels come from its image. An inspection does not
// distinguish them.
func (w *watch) tellImage(ctx context.Context, id string, c *discovery.Container) (err error) {
	if len(c.Labels) == 0 {
		return nil
	}
	c.ImageLabels, c.ImageUnknown, err = w.imageLabels(ctx, id)
	return err
}

// imageLabels returns the labels of an image, or the reason why they are unknown: a bad answer of
// the engine, or none in time. The next inspection asks again.
func (w *watch) imageLabels(ctx context.Context, id string) (labels map[string]string, unknown string, err error) {
	if id == "" {
		return nil, "the engine does not say which image it was made from", nil
	}
	w.mu.Lock()
	labels, known := w.images[id]
	w.mu.Unlock()
	if known {
		return labels, "", nil
	}
	if labels, err = w.api.imageLabels(ctx, id); isAnswer(err) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, err.Error(), nil
	} else if err != nil {
		return nil, "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.images) >= maxImages {
		clear(w.images)
	}
	w.images[id] = labels
	return labels, "", nil
}

// tellNetworks records whether one of the container's networks carries Swarm's routing mesh, or
// encrypts.
func (w *watch) tellNetworks(ctx context.Context, info *inspection, c *discovery.Container) error {
	for name, at := range info.NetworkSettings.Networks {
		n, err := w.network(ctx, cmp.Or(at.NetworkID, name)) // Podman before 4 does not report the ID
		if err != nil {
			return err
		}
		c.RoutingMesh = c.RoutingMesh || n.Ingress
		c.Encrypted = c.Encrypted || n.Options.Encrypted != nil
	}
	return nil
}

// network returns a network, or an empty one if it does not exist. Results are cached: the fields
// never change, and an ID is never reused.
func (w *watch) network(ctx context.Context, id string) (networkInfo, error) {
	w.mu.Lock()
	known, ok := w.networks[id]
	w.mu.Unlock()
	if ok {
		return known, nil
	}
	info, err := w.api.network(ctx, id)
	if isNotFound(err) {
		return networkInfo{}, nil
	} else if err != nil {
		return networkInfo{}, err
	}
	w.mu.Lock()
	if len(w.networks) >= maxNetworks {
		clear(w.networks)
	}
	w.networks[id] = *info
	w.mu.Unlock()
	return *info, nil
}

// ownCgroups returns the text of /proc/PID/cgroup, or errGone if the process is not the
// container's: the container may have ended since its inspection, and another process may have its
// PID.
func ownCgroups(procDir, id string, pid int) (string, error) {
	process := filepath.Join(procDir, strconv.Itoa(pid))
	cgroups, err := os.ReadFile(filepath.Join(process, "cgroup"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return "", errGone
	} else if err != nil {
		return "", fmt.Errorf("find the cgroup of process %d: %w", pid, err)
	}
	if !cgroupsAllow(string(cgroups), id) {
		return "", errGone
	}
	// A zombie has a cgroup but no namespaces.
	if _, err := os.Stat(filepath.Join(process, "ns", "net")); errors.Is(err, fs.ErrNotExist) {
		return "", errGone
	}
	return string(cgroups), nil
}

// cgroupsAllow reports whether a process with these cgroups (the text of /proc/PID/cgroup) may
// belong to a container. Engines name cgroups after containers, unless configured otherwise. So
// another container's ID in the path means no, and no ID at all means maybe.
func cgroupsAllow(cgroups, id string) bool {
	if strings.Contains(cgroups, id) {
		return true
	}
	others := strings.FieldsFunc(cgroups, func(r rune) bool { return !isHex(r) })
	return !slices.ContainsFunc(others, isID)
}

// isID reports whether a text is a full container ID.
func isID(text string) bool {
	const idLength = 64
	return len(text) == idLength && strings.IndexFunc(text, func(r rune) bool { return !isHex(r) }) < 0
}

func isHex(r rune) bool { return '0' <= r && r <= '9' || 'a' <= r && r <= 'f' }
