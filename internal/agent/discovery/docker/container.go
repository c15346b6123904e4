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

	"github.com/weir-project/weir/internal/discovery"
)

// errGone means that a container does not run (any more).
var errGone = errors.New("the container does not run")

// describe inspects a container and returns what others need to know of it,
// or errGone.
func (w *watch) describe(ctx context.Context, id string) (*discovery.Container, error) {
	info, err := w.api.inspect(ctx, id)
	if isNotFound(err) {
		return nil, errGone
	} else if err != nil {
		return nil, err
	}
	// A container that waits to be restarted is "running" with process 0.
	if !info.State.Running || info.State.Pid <= 0 {
		return nil, errGone
	}
	cgroups, err := ownCgroups(w.source.procDir, info.ID, info.State.Pid)
	if err != nil {
		return nil, err
	}
	c, err := w.complete(ctx, info, cgroups)
	if err == nil {
		c.WithoutNetAdmin = withoutNetAdmin(w.source.procDir, info.State.Pid)
	}
	return c, err
}

// withoutNetAdmin says whether neither a process nor what it starts can have
// CAP_NET_ADMIN, by its bounding set (capabilities(7)).
func withoutNetAdmin(procDir string, pid int) bool {
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
	return err == nil && bounding&(1<<unix.CAP_NET_ADMIN) == 0
}

// complete makes of an inspection what others need to know. cgroups is the text
// of /proc/PID/cgroup.
func (w *watch) complete(ctx context.Context, info *inspection, cgroups string) (_ *discovery.Container, err error) {
	c := convert(info)
	c.Runtime = w.source.name
	c.CgroupPath = w.cgroups.OfContainer(cgroups, info.ID)
	w.mu.Lock()
	w.cgroupPatterns.learn(c.CgroupPath, c.ID)
	w.mu.Unlock()
	if peer := c.SharesNetworkOf; peer != "" && !isID(peer) {
		// Written by name at its creation, and stored so.
		if joined, err := w.api.inspect(ctx, peer); err == nil {
			c.SharesNetworkOf = joined.ID
		} else if !isNotFound(err) {
			return nil, err
		}
	}
	if err := w.tellImage(ctx, info.Image, c); err != nil {
		return nil, err
	}
	if c.NetworkDrivers, err = w.drivers(ctx, info); err != nil {
		return nil, err
	}
	return c, nil
}

// convert fills in all that the inspection alone tells.
func convert(info *inspection) *discovery.Container {
	c := &discovery.Container{
		ID:        info.ID,
		Name:      strings.TrimPrefix(info.Name, "/"),
		Labels:    info.Config.Labels,
		Image:     info.Config.Image,
		NetNSPath: fmt.Sprintf("/proc/%d/ns/net", info.State.Pid),
	}
	c.Ports = portsOf(info)
	c.Pod = podOf(c.Name, info)
	// An engine that does not say when leaves the zero time.
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

// labelPodName is what Kubernetes puts on the containers of a pod.
const labelPodName = "io.kubernetes.pod.name"

// infraName is how Podman names the container that holds the network of a pod,
// whose host name is the pod's name.
var infraName = regexp.MustCompile(`^[0-9a-f]{12}-infra$`)

// podOf is the name of a container's pod, empty if it is of none, or of one of
// Podman's and not the one that holds its network.
func podOf(name string, info *inspection) string {
	if infraName.MatchString(name) {
		return info.Config.Hostname
	}
	return info.Config.Labels[labelPodName]
}

// portsOf lists the published ports of a container, in the order of their numbers.
// One that is published at several addresses is listed once.
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

// tellImage adds which of a container's labels are its image's: an inspection has
// them all in one.
func (w *watch) tellImage(ctx context.Context, id string, c *discovery.Container) (err error) {
	if len(c.Labels) == 0 {
		return nil
	}
	c.ImageLabels, c.ImageUnknown, err = w.imageLabels(ctx, id)
	return err
}

// imageLabels are the labels of an image, or why they are not known: what the engine
// has no good answer for, which is asked again with the next inspection.
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
	if labels, err = w.api.imageLabels(ctx, id); isAnswer(err) {
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

// drivers are the drivers of the container's networks, in the order of the
// networks' names.
func (w *watch) drivers(ctx context.Context, info *inspection) ([]string, error) {
	networks := info.NetworkSettings.Networks
	if len(networks) == 0 {
		return nil, nil
	}
	names := make([]string, 0, len(networks))
	for name := range networks {
		names = append(names, name)
	}
	slices.Sort(names)
	drivers := make([]string, 0, len(names))
	for _, name := range names {
		id := networks[name].NetworkID
		if id == "" {
			id = name // Podman before 4 does not tell
		}
		driver, err := w.driver(ctx, id)
		if err != nil {
			return nil, err
		}
		if driver != "" {
			drivers = append(drivers, driver)
		}
	}
	return drivers, nil
}

// driver is a network's driver, or empty if there is no such network. A
// network's driver never changes and its ID is never used again.
func (w *watch) driver(ctx context.Context, id string) (string, error) {
	w.mu.Lock()
	driver, ok := w.networkDrivers[id]
	w.mu.Unlock()
	if ok {
		return driver, nil
	}
	info, err := w.api.network(ctx, id)
	if isNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	w.mu.Lock()
	w.networkDrivers[id] = info.Driver
	w.mu.Unlock()
	return info.Driver, nil
}

// ownCgroups returns the text of /proc/PID/cgroup, or errGone if the process
// is not the container's: the container has ended since it was inspected, and
// another process may have its number.
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

// cgroupsAllow says whether a process with these cgroups, the text of
// /proc/PID/cgroup, may belong to a container. Engines name the cgroup after
// the container, unless configured otherwise; so a name that is another
// container's means no, and no container's name means maybe.
func cgroupsAllow(cgroups, id string) bool {
	if strings.Contains(cgroups, id) {
		return true
	}
	others := strings.FieldsFunc(cgroups, func(r rune) bool { return !isHex(r) })
	return !slices.ContainsFunc(others, isID)
}

// isID says whether a text is a container's full ID.
func isID(text string) bool {
	const idLength = 64
	return len(text) == idLength && strings.IndexFunc(text, func(r rune) bool { return !isHex(r) }) < 0
}

func isHex(r rune) bool { return '0' <= r && r <= '9' || 'a' <= r && r <= 'f' }
