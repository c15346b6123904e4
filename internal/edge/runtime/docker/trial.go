package docker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/runtime"
)

// TrialOptions describe the container to measure.
type TrialOptions struct {
	Image string
	// MemoryBytes and CPUs are the instance's limits; 0: none.
	MemoryBytes uint64
	CPUs        float64
}

// The role of trial containers and the prefix of their names.
const (
	roleTrial   = "trial"
	trialPrefix = "edgeprofile-"
)

// Trial is a container under measurement. It has no service labels, so that no weir-edge takes it
// for an instance.
type Trial struct {
	r  *Runtime
	id string
	// Addr is the container's address.
	Addr netip.Addr
}

// Usage is a container's resource use from its cgroup.
type Usage struct {
	// CPUSeconds is processor time since it was started.
	CPUSeconds float64
	// MemoryBytes is the present memory without inactive file cache.
	MemoryBytes uint64
}

// Ports returns the TCP ports that an image exposes.
func (r *Runtime) Ports(ctx context.Context, image string) ([]uint16, error) {
	found, err := r.api.ImageInspect(ctx, image)
	if err != nil {
		return nil, r.unreachable(err)
	}
	var ports []uint16
	if found.Config == nil {
		return nil, nil
	}
	for exposed := range found.Config.ExposedPorts {
		number, protocol, _ := strings.Cut(exposed, "/")
		if n, err := strconv.ParseUint(number, 10, 16); err == nil && n > 0 && (protocol == "" || protocol == "tcp") {
			ports = append(ports, uint16(n))
		}
	}
	slices.Sort(ports)
	return ports, nil
}

// Try starts a trial container; Close removes it.
func (r *Runtime) Try(ctx context.Context, o TrialOptions) (*Trial, error) {
	// The engine completes a request after its client has left, so cancelling would leave the
	// container behind.
	created, err := r.api.ContainerCreate(context.WithoutCancel(ctx), client.ContainerCreateOptions{
		Name:   trialPrefix + strings.ToLower(rand.Text()[:8]),
		Config: &container.Config{Image: o.Image, Labels: map[string]string{runtime.LabelRole: roleTrial}},
		HostConfig: &container.HostConfig{
			NetworkMode: container.NetworkMode(r.opts.Network),
			Resources:   container.Resources{Memory: int64(o.MemoryBytes), NanoCPUs: int64(o.CPUs * 1e9)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("create a container of %s: %w", o.Image, err)
	}
	t := &Trial{r: r, id: created.ID}
	if _, err := r.api.ContainerStart(ctx, t.id, client.ContainerStartOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("start a container of %s: %w", o.Image, err), t.Close())
	}
	found, err := r.api.ContainerInspect(ctx, t.id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, errors.Join(r.unreachable(err), t.Close())
	}
	if settings := found.Container.NetworkSettings; settings != nil {
		for _, endpoint := range settings.Networks {
			t.Addr = endpoint.IPAddress
		}
	}
	if err := t.Ended(ctx); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if !t.Addr.IsValid() {
		return nil, errors.Join(fmt.Errorf("a container of %s has no address in the network %s: name a bridge network with --network", o.Image, r.opts.Network), t.Close())
	}
	return t, nil
}

// Ended returns why the container has ended; nil while it runs.
func (t *Trial) Ended(ctx context.Context) error {
	found, err := t.r.api.ContainerInspect(ctx, t.id, client.ContainerInspectOptions{})
	if err != nil {
		return t.r.unreachable(err)
	}
	if p, reason, _ := phase(found.Container.State); p == runtime.Ended {
		return fmt.Errorf("the container does not run: %s", reason)
	}
	return nil
}

// Usage returns the container's resource use.
func (t *Trial) Usage(ctx context.Context) (Usage, error) {
	result, err := t.r.api.ContainerStats(ctx, t.id, client.ContainerStatsOptions{})
	if err != nil {
		return Usage{}, t.r.unreachable(err)
	}
	defer result.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(result.Body).Decode(&s); err != nil {
		return Usage{}, fmt.Errorf("read what a container takes: %w", err)
	}
	memory := s.MemoryStats
	cached := memory.Stats["inactive_file"] // cgroup v2
	if v1, found := memory.Stats["total_inactive_file"]; found {
		cached = v1
	}
	return Usage{
		CPUSeconds:  float64(s.CPUStats.CPUUsage.TotalUsage) / float64(time.Second),
		MemoryBytes: memory.Usage - min(cached, memory.Usage),
	}, nil
}

// RemoveTrials removes containers left by a killed profile command and returns their names.
func RemoveTrials(ctx context.Context, socket string) (names []string, err error) {
	r, err := New(Options{Socket: socket})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	listed, err := r.own(ctx, runtime.LabelRole+"="+roleTrial)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, c := range listed {
		if err := r.remove(ctx, c.ID); err != nil {
			errs = append(errs, fmt.Errorf("remove the container %s: %w", c.ID[:12], err))
			continue
		}
		names = append(names, strings.TrimPrefix(c.Names[0], "/"))
	}
	return names, errors.Join(errs...)
}

// Close stops and removes the container, even if ctx of the measurement has ended.
func (t *Trial) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := t.r.remove(ctx, t.id); err != nil {
		return fmt.Errorf("remove the container %s: %w: remove it with docker rm -f", t.id[:12], err)
	}
	return nil
}
