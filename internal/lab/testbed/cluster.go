package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weir-project/weir/api/v1/client"
)

// Cluster is a number of nodes on one network, each with an engine of its own. Users are
// on the host that the network belongs to.
type Cluster struct {
	Host    *Host
	Nodes   []*NetContainer
	Engines []*Engine
	// Starts are how long each engine took until it answered.
	Starts []time.Duration

	swarm      bool
	engineArgs []string
}

// NewCluster makes a cluster. Its first engine is the manager of a swarm of all of them
// if swarm is set; engines get further arguments. Nothing is left behind when it fails.
func NewCluster(ctx context.Context, nodes int, swarm bool, engineArgs ...string) (*Cluster, error) {
	host, err := NewHost(ctx, HostOptions{})
	if err != nil {
		return nil, err
	}
	c := &Cluster{Host: host, swarm: swarm, engineArgs: engineArgs}
	for range nodes {
		if err := c.Add(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Add adds a node.
func (c *Cluster) Add(ctx context.Context) error {
	if err := c.addNode(ctx); err != nil {
		return err
	}
	if !c.swarm {
		return nil
	}
	last := len(c.Engines) - 1
	if last > 0 {
		return c.Engines[last].JoinSwarm(ctx, c.Engines[0], c.Nodes[last].Addr)
	}
	_, overlay := c.Host.EnginePools()
	return c.Engines[0].InitSwarm(ctx, c.Nodes[0].Addr, overlay)
}

func (c *Cluster) addNode(ctx context.Context) error {
	node, err := c.Host.AddContainerMode(ctx, fmt.Sprint("node", len(c.Nodes)), ModeBridge)
	if err != nil {
		return err
	}
	c.Nodes = append(c.Nodes, node)
	local, _ := c.Host.EnginePools()
	began := time.Now()
	engine, err := StartEngine(ctx, EngineOptions{
		NetNSPath: node.NetNSPath(), BridgeCIDR: c.Host.EngineBridgeCIDR().String(), AddressPool: local.String(),
		ExtraArgs: c.engineArgs,
	})
	if err != nil {
		return err
	}
	c.Engines, c.Starts = append(c.Engines, engine), append(c.Starts, time.Since(began))
	return nil
}

// Distribute gives all other engines an image of the first one, under the same ID. Those that
// have it are left alone.
func (c *Cluster) Distribute(ctx context.Context, image string) error {
	first, err := c.Engines[0].API().ImageInspect(ctx, image)
	if err != nil {
		return fmt.Errorf("inspect image %s: %w", image, err)
	}
	saved, err := c.Engines[0].API().ImageSave(ctx, []string{image})
	if err != nil {
		return fmt.Errorf("save image %s: %w", image, err)
	}
	defer saved.Close()
	archive, err := io.ReadAll(saved)
	if err != nil {
		return fmt.Errorf("save image %s: %w", image, err)
	}
	for _, engine := range c.Engines[1:] {
		if has, err := engine.API().ImageInspect(ctx, image); err == nil && has.ID == first.ID {
			continue
		}
		if err := engine.Load(ctx, bytes.NewReader(archive)); err != nil {
			return err
		}
	}
	return nil
}

// NodeAgentDir returns the folder of the agent of the node at an address, within a folder. {address}
// stands for any, as in weir-edge run --agents.
func NodeAgentDir(dir, address string) AgentDir {
	return AgentDir(filepath.Join(dir, "agent-"+address))
}

// StartAgent starts the agent of a node, with its files in NodeAgentDir and settings in its
// configuration, and waits until it answers.
func (c *Cluster) StartAgent(ctx context.Context, number int, program, dir string, settings map[string]any) (*Agent, error) {
	node := c.Nodes[number]
	files := NodeAgentDir(dir, node.Addr.String())
	if err := os.MkdirAll(string(files), 0o700); err != nil {
		return nil, fmt.Errorf("make the agent's folder: %w", err)
	}
	if err := files.WriteConfig(nil, settings); err != nil {
		return nil, err
	}
	agent, err := node.StartAgent(AgentOptions{Program: program, Dir: files, Uplink: node.Interface(), Docker: c.Engines[number].Socket()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	asked := client.Unix(files.Socket())
	defer asked.Close()
	err = agent.Await(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		_, err := asked.Status(ctx)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, agent.End(syscall.SIGTERM, 10*time.Second))
	}
	return agent, nil
}

// Close ends all engines and removes the network.
func (c *Cluster) Close() error {
	var errs []error
	for _, engine := range c.Engines {
		errs = append(errs, engine.Stop(context.Background()))
	}
	return errors.Join(append(errs, c.Host.Close())...)
}
