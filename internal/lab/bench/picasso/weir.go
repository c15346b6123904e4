package picasso

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/policy"
)

// byWeir starts an agent on each node and weir-edge on the manager, and lets it place the
// service.
func (b *bed) byWeir(ctx context.Context, turn competitionTurn) (err error) {
	_, end, err := b.startWeir(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := b.deploy(shopName, weirShopPort, turn.instances, b.shopMinBPS()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.remove(shopName)) }()
	nodes, err := b.awaitShop(ctx, weirShopPort, turn.instances, isInstanceOf(shopName))
	if err != nil {
		why, _ := b.edge("explain", shopName)
		return fmt.Errorf("%w: %s", err, why)
	}
	return b.loads(ctx, turn, placedByWeir, weirShopPort, nodes)
}

// isInstanceOf says which of the swarm's services are instances of one of weir-edge's.
func isInstanceOf(name string) func(service string) bool {
	return func(service string) bool { return strings.HasPrefix(service, proxy.InstanceName(name)+"-") }
}

// loadProxyImage gives all nodes the image of proxies.
func (b *bed) loadProxyImage(ctx context.Context) error {
	archive, _, err := proxy.Archive()
	if err != nil {
		return err
	}
	for _, engine := range b.cluster.Engines {
		if err := engine.Load(ctx, bytes.NewReader(archive)); err != nil {
			return err
		}
	}
	return nil
}

// startWeir starts agents on all nodes, in place of the queues of uplinks, and weir-edge. pid
// is the latter's.
func (b *bed) startWeir(ctx context.Context) (pid int, end func() error, err error) {
	var ends []func() error
	endAll := func() error {
		var errs []error
		for i := len(ends) - 1; i >= 0; i-- {
			errs = append(errs, ends[i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, endAll())
		}
	}()
	for node := range b.cluster.Engines {
		if err := b.limitLink(ctx, node, 0); err != nil {
			return 0, nil, err
		}
		endAgent, err := b.startAgent(ctx, node)
		if err != nil {
			return 0, nil, err
		}
		ends = append(ends, endAgent)
	}
	pid, endEdge, err := b.startEdge(ctx)
	if err != nil {
		return 0, nil, err
	}
	ends = append(ends, endEdge)
	return pid, endAll, nil
}

// agentDir is where a node's agent has its files.
func (b *bed) agentDir(address string) testbed.AgentDir {
	return testbed.AgentDir(filepath.Join(b.dir, "agent-"+address))
}

func (b *bed) startAgent(ctx context.Context, number int) (end func() error, err error) {
	node := b.cluster.Nodes[number]
	dir := b.agentDir(node.Addr.String())
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return nil, fmt.Errorf("make the agent's folder: %w", err)
	}
	if err := dir.WriteConfig(nil, nil); err != nil {
		return nil, err
	}
	agent, err := node.StartAgent(testbed.AgentOptions{
		Program: b.options.WeirBinary, Dir: dir, Uplink: node.Interface(), Rate: policy.FormatRate(b.options.CompetitionLinkBPS),
		Docker: b.cluster.Engines[number].Socket(),
	})
	if err != nil {
		return nil, err
	}
	end = func() error { return agent.End(syscall.SIGTERM, 10*time.Second) }
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = agent.Await(ctx, 50*time.Millisecond, func(context.Context) error {
		_, err := os.Stat(dir.Socket())
		return err
	})
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

func (b *bed) edgeSocket() string { return filepath.Join(b.dir, "edge.sock") }

func (b *bed) startEdge(ctx context.Context) (pid int, end func() error, err error) {
	engine := b.cluster.Engines[0]
	cmd := engine.Command(b.options.EdgeBinary, "run", "--docker", engine.Socket(), "--socket", b.edgeSocket(),
		"--state-dir", filepath.Join(b.dir, "edge"), "--agents", "unix://"+b.agentDir("{address}").Socket())
	process, err := testbed.StartProcess("weir-edge", cmd)
	if err != nil {
		return 0, nil, err
	}
	end = func() error {
		_ = process.End(syscall.SIGTERM, 15*time.Second) // one that had to be killed has measured all the same
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = process.Await(ctx, 100*time.Millisecond, func(context.Context) error {
		n, err := b.readyNodes()
		if err == nil && n != len(b.cluster.Nodes) {
			err = fmt.Errorf("weir-edge knows %d nodes with an agent, of %d", n, len(b.cluster.Nodes))
		}
		return err
	})
	if err != nil {
		return 0, nil, errors.Join(err, end())
	}
	return process.Pid(), end, nil
}

// readyNodes is how many nodes weir-edge knows that have an agent.
func (b *bed) readyNodes() (count int, err error) {
	out, err := b.edge("nodes", "-o", "json")
	if err != nil {
		return 0, err
	}
	var nodes []struct {
		State string `json:"state"`
		Weir  bool   `json:"weir"`
	}
	if err := json.Unmarshal(out, &nodes); err != nil {
		return 0, fmt.Errorf("read the nodes: %w", err)
	}
	for _, n := range nodes {
		if n.State == "ready" && n.Weir {
			count++
		}
	}
	return count, nil
}

// edge runs a command of weir-edge.
func (b *bed) edge(args ...string) ([]byte, error) {
	cmd := exec.Command(b.options.EdgeBinary, append(args, "--socket", b.edgeSocket())...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("weir-edge %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out, nil
}

// deploy wants a service on so many nodes, no more instances, and a minimum for it if that is
// not 0.
func (b *bed) deploy(name string, port, instances int, minBPS float64) error {
	labels := map[string]string{}
	if minBPS > 0 {
		labels["weir.min"] = megabits(minBPS)
	}
	document := map[string]any{
		"par":    map[string]any{"serviceName": name, "imageName": shopServer().image(), "maxUsers": 2 * PaperCrowd},
		"QoS":    map[string]any{"responseTime": patience.Seconds(), "availability": availabilityOn(instances)},
		"ports":  []any{map[string]any{"host": port, "container": 80}},
		"limits": map[string]any{"instances": instances}, "labels": labels,
	}
	text, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("write the specification: %w", err)
	}
	path := filepath.Join(b.dir, name+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write the specification: %w", err)
	}
	_, err = b.edge("deploy", path)
	return err
}

// availabilityOn is what takes so many nodes of 99 %, two or more, in percent: 99.9, 99.999
// and so on.
func availabilityOn(nodes int) string { return "99." + strings.Repeat("9", 2*nodes-3) }

// remove ends a service, and waits until nothing is left of it on any node: what is would be
// promised its minimum by the next agent.
func (b *bed) remove(name string) error {
	if _, err := b.edge("rm", name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, engine := range b.cluster.Engines {
		for {
			listed, err := engine.API().ContainerList(ctx, client.ContainerListOptions{})
			if err != nil {
				return fmt.Errorf("look for what is left of %s: %w", name, err)
			}
			left := false
			for _, c := range listed.Items {
				left = left || c.Labels[proxy.LabelService] == name
			}
			if !left {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("containers of %s are there a minute after it was removed", name)
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return nil
}

// FindEdge looks for weir-edge beside a program, and where programs are.
func FindEdge(beside string) (string, error) {
	path := filepath.Join(filepath.Dir(beside), "weir-edge")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	path, err := exec.LookPath("weir-edge")
	if err != nil {
		return "", errors.New("weir-edge is neither beside weir nor in PATH: say where it is with --weir-edge, or leave out the parts competition and memory")
	}
	return path, nil
}
