package picasso

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/api/v1/edge"
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
		why, _ := b.edge.Run("explain", shopName)
		return fmt.Errorf("%w: %s", err, why)
	}
	return b.loads(ctx, turn, placedByWeir, weirShopPort, nodes)
}

// isInstanceOf returns a test for the swarm's services that are instances of a service of weir-
// edge.
func isInstanceOf(name string) func(service string) bool {
	return func(service string) bool { return strings.HasPrefix(service, proxy.InstanceName(name)+"-") }
}

// startWeir starts agents on all nodes, in place of the queues of uplinks, and weir-edge. It returns
// the process of weir-edge.
func (b *bed) startWeir(ctx context.Context) (manager *testbed.Process, end func() error, err error) {
	var ends []func() error
	end = func() error {
		var errs []error
		for _, one := range slices.Backward(ends) {
			errs = append(errs, one())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	for node := range b.cluster.Engines {
		if err := b.limitLink(ctx, node, 0); err != nil {
			return nil, nil, err
		}
		endAgent, err := b.startAgent(ctx, node)
		if err != nil {
			return nil, nil, err
		}
		ends = append(ends, endAgent)
	}
	if err := b.edge.Start("--agents", "unix://"+testbed.NodeAgentDir(b.dir, "{address}").Socket()); err != nil {
		return nil, nil, err
	}
	manager = b.edge.Process()
	ends = append(ends, func() error {
		_ = manager.End(syscall.SIGTERM, 15*time.Second) // one that had to be killed has measured all the same
		return nil
	})
	err = b.edge.Await(ctx, 30*time.Second, func(s edge.Snapshot) error {
		ready := 0
		for _, n := range s.Nodes {
			if n.State == "ready" && n.Weir {
				ready++
			}
		}
		if ready != len(b.cluster.Nodes) {
			return fmt.Errorf("weir-edge knows %d nodes with an agent, of %d", ready, len(b.cluster.Nodes))
		}
		return nil
	})
	return manager, end, err
}

func (b *bed) startAgent(ctx context.Context, number int) (end func() error, err error) {
	settings := map[string]any{"rate": policy.FormatRate(b.options.CompetitionLinkBPS)}
	agent, err := b.cluster.StartAgent(ctx, number, b.options.WeirBinary, b.dir, settings)
	if err != nil {
		return nil, err
	}
	return func() error { return agent.End(syscall.SIGTERM, 10*time.Second) }, nil
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
	path, err := b.edge.WriteSpecification(name, document)
	if err != nil {
		return err
	}
	_, err = b.edge.Run("deploy", path)
	return err
}

// availabilityOn returns the availability that takes this many nodes of 99 %, two or more, in
// percent: 99.9, 99.999 and so on.
func availabilityOn(nodes int) string { return "99." + strings.Repeat("9", 2*nodes-3) }

// remove ends a service, and waits until nothing is left of it on any node: what is would be
// promised its minimum by the next agent.
func (b *bed) remove(name string) error {
	if _, err := b.edge.Run("rm", name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, engine := range b.cluster.Engines {
		err := testbed.Await(ctx, 200*time.Millisecond, func(ctx context.Context) error {
			listed, err := engine.API().ContainerList(ctx, client.ContainerListOptions{})
			if err != nil {
				return err
			}
			if slices.ContainsFunc(listed.Items, func(c container.Summary) bool { return c.Labels[proxy.LabelService] == name }) {
				return errors.New("containers are left")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("wait a minute until nothing is left of %s: %w", name, err)
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
