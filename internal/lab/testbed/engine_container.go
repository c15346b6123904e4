package testbed

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// RunOptions describe a container. Only Image is required.
type RunOptions struct {
	Name   string
	Image  string
	Labels map[string]string
	// Network is the network's name, or "host", "none" or "container:NAME";
	// empty means the default bridge.
	Network string
	// IPv4 and IPv6 are the container's addresses on a network with a subnet
	// chosen by the user; the zero value leaves the choice to the engine.
	IPv4, IPv6 netip.Addr
	// Args is the command; empty means to do nothing until stopped.
	Args []string
	Env  []string
	// Capabilities are added to Docker's default ones, e.g. "NET_ADMIN".
	Capabilities []string
	Privileged   bool
	Sysctls      map[string]string
	// PublishTCP are ports of the host's at which the container's are published.
	PublishTCP map[uint16]uint16
	// Binds are "HOST:CONTAINER[:ro]".
	Binds []string
	// AutoRemove removes the container when it ends.
	AutoRemove bool
}

// EngineContainer is a running container.
type EngineContainer struct {
	ID   string
	Name string
	// Pid is the container's first process, as the host sees it.
	Pid int
	// Addresses are the IPv4 addresses, and Addresses6 the IPv6 ones, by the
	// network's name.
	Addresses, Addresses6 map[string]netip.Addr
}

// NetNSPath opens the container's network namespace.
func (c *EngineContainer) NetNSPath() string { return fmt.Sprintf("/proc/%d/ns/net", c.Pid) }

// Run creates and starts a container. It leaves none behind when it fails.
func (e *Engine) Run(ctx context.Context, opts RunOptions) (*EngineContainer, error) {
	args := opts.Args
	if len(args) == 0 {
		args = idle
	}
	stopNow := 0
	host := &container.HostConfig{
		NetworkMode: container.NetworkMode(opts.Network),
		CapAdd:      opts.Capabilities,
		Privileged:  opts.Privileged,
		Sysctls:     opts.Sysctls,
		Binds:       opts.Binds,
		AutoRemove:  opts.AutoRemove,
	}
	exposed, published := network.PortSet{}, network.PortMap{}
	for host, inside := range opts.PublishTCP {
		port, ok := network.PortFrom(inside, network.TCP)
		if !ok {
			return nil, fmt.Errorf("publish port %d of container %s: no such port", inside, opts.Name)
		}
		exposed[port] = struct{}{}
		published[port] = append(published[port], network.PortBinding{HostPort: strconv.Itoa(int(host))})
	}
	host.PortBindings = published
	var networking *network.NetworkingConfig
	if opts.IPv4.IsValid() || opts.IPv6.IsValid() {
		networking = &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
			opts.Network: {IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: opts.IPv4, IPv6Address: opts.IPv6}},
		}}
	}
	created, err := e.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: opts.Name,
		Config: &container.Config{
			Image:  opts.Image,
			Cmd:    args,
			Env:    opts.Env,
			Labels: opts.Labels,

			ExposedPorts: exposed,
			// Most test programs ignore SIGTERM as process 1.
			StopSignal:  "SIGKILL",
			StopTimeout: &stopNow,
		},
		HostConfig:       host,
		NetworkingConfig: networking,
	})
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", opts.Name, err)
	}
	if _, err := e.api.ContainerStart(ctx, created.ID, client.ContainerStartOptions{}); err != nil {
		// With AutoRemove it may be gone already; the start's error counts.
		_ = e.Remove(context.WithoutCancel(ctx), created.ID)
		return nil, fmt.Errorf("start container %s: %w", opts.Name, err)
	}
	return e.Container(ctx, created.ID)
}

// Container looks a container up by name or ID. Its Pid is 0 if it does not
// run.
func (e *Engine) Container(ctx context.Context, nameOrID string) (*EngineContainer, error) {
	found, err := e.api.ContainerInspect(ctx, nameOrID, client.ContainerInspectOptions{})
	if err != nil {
		return nil, fmt.Errorf("inspect container %s: %w", nameOrID, err)
	}
	info := found.Container
	c := &EngineContainer{
		ID:         info.ID,
		Name:       strings.TrimPrefix(info.Name, "/"),
		Addresses:  make(map[string]netip.Addr),
		Addresses6: make(map[string]netip.Addr),
	}
	if info.State != nil {
		c.Pid = info.State.Pid
	}
	if info.NetworkSettings != nil {
		for name, endpoint := range info.NetworkSettings.Networks {
			if endpoint.IPAddress.IsValid() {
				c.Addresses[name] = endpoint.IPAddress
			}
			if endpoint.GlobalIPv6Address.IsValid() {
				c.Addresses6[name] = endpoint.GlobalIPv6Address
			}
		}
	}
	return c, nil
}

// Remove ends a container and removes it.
func (e *Engine) Remove(ctx context.Context, nameOrID string) error {
	if _, err := e.api.ContainerRemove(ctx, nameOrID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
		return fmt.Errorf("remove container %s: %w", nameOrID, err)
	}
	return nil
}

// Exec runs a command in a container until it ends and returns its standard
// output. A command that does not end with 0 is an error that carries its
// standard error.
func (e *Engine) Exec(ctx context.Context, nameOrID string, args ...string) (string, error) {
	command := strings.Join(args, " ")
	created, err := e.api.ExecCreate(ctx, nameOrID, client.ExecCreateOptions{
		Cmd: args, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return "", fmt.Errorf("run %q in container %s: %w", command, nameOrID, err)
	}
	attached, err := e.api.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	if err != nil {
		return "", fmt.Errorf("run %q in container %s: %w", command, nameOrID, err)
	}
	defer attached.Close()
	// The connection has left the client's hands; only closing it ends a read.
	defer context.AfterFunc(ctx, attached.Close)()
	var stdout, stderr bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, &stderr, attached.Reader); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return stdout.String(), fmt.Errorf("run %q in container %s: %w", command, nameOrID, err)
	}
	status, err := e.api.ExecInspect(ctx, created.ID, client.ExecInspectOptions{})
	if err != nil {
		return stdout.String(), fmt.Errorf("run %q in container %s: %w", command, nameOrID, err)
	}
	if status.ExitCode != 0 {
		return stdout.String(), fmt.Errorf("run %q in container %s: exit status %d: %s",
			command, nameOrID, status.ExitCode, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}

// NetworkOptions describe a network. Only Name is required.
type NetworkOptions struct {
	Name string
	// Driver is "bridge" (the default), "macvlan", "ipvlan" or "overlay".
	Driver string
	// Subnet and Subnet6 are the IPv4 and IPv6 subnets. Without Subnet the
	// engine takes one from its pool; without Subnet6 there is no IPv6.
	Subnet, Subnet6 netip.Prefix
	// Range and Range6 are the parts of the subnets that containers get their
	// addresses from, and Gateway and Gateway6 the way out; the zero values
	// leave the choice to the engine.
	Range, Range6     netip.Prefix
	Gateway, Gateway6 netip.Addr
	// Options are the driver's, e.g. "parent" for macvlan.
	Options map[string]string
	// Internal networks have no way out.
	Internal bool
	// Attachable lets containers join a network of Swarm.
	Attachable bool
}

// CreateNetwork creates a network and returns its ID.
func (e *Engine) CreateNetwork(ctx context.Context, opts NetworkOptions) (string, error) {
	create := client.NetworkCreateOptions{
		Driver: opts.Driver, Options: opts.Options, Internal: opts.Internal, Attachable: opts.Attachable,
	}
	if create.Driver == "" {
		create.Driver = "bridge"
	}
	ipam := &network.IPAM{}
	if opts.Subnet.IsValid() {
		ipam.Config = append(ipam.Config, network.IPAMConfig{Subnet: opts.Subnet, IPRange: opts.Range, Gateway: opts.Gateway})
	}
	if opts.Subnet6.IsValid() {
		v6 := true
		create.EnableIPv6 = &v6
		ipam.Config = append(ipam.Config, network.IPAMConfig{Subnet: opts.Subnet6, IPRange: opts.Range6, Gateway: opts.Gateway6})
	}
	if len(ipam.Config) > 0 {
		create.IPAM = ipam
	}
	created, err := e.api.NetworkCreate(ctx, opts.Name, create)
	if err != nil {
		return "", fmt.Errorf("create network %s: %w", opts.Name, err)
	}
	return created.ID, nil
}

// RemoveNetwork removes a network that no container is attached to.
func (e *Engine) RemoveNetwork(ctx context.Context, nameOrID string) error {
	if _, err := e.api.NetworkRemove(ctx, nameOrID, client.NetworkRemoveOptions{}); err != nil {
		return fmt.Errorf("remove network %s: %w", nameOrID, err)
	}
	return nil
}

// Connect attaches a container to a further network.
func (e *Engine) Connect(ctx context.Context, network, container string) error {
	if _, err := e.api.NetworkConnect(ctx, network, client.NetworkConnectOptions{Container: container}); err != nil {
		return fmt.Errorf("connect container %s to network %s: %w", container, network, err)
	}
	return nil
}

// Disconnect detaches a container from a network.
func (e *Engine) Disconnect(ctx context.Context, network, container string) error {
	if _, err := e.api.NetworkDisconnect(ctx, network, client.NetworkDisconnectOptions{Container: container, Force: true}); err != nil {
		return fmt.Errorf("disconnect container %s from network %s: %w", container, network, err)
	}
	return nil
}
