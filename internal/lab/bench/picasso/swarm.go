package picasso

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// bySwarm lets Swarm place the service, by its own strategy.
func (b *bed) bySwarm(ctx context.Context, turn competitionTurn) (err error) {
	shop := shopServer()
	api := b.cluster.Engines[0].API()
	image, err := api.ImageInspect(ctx, shop.image())
	if err != nil {
		return fmt.Errorf("inspect %s: %w", shop.image(), err)
	}
	replicas := uint64(turn.instances)
	created, err := api.ServiceCreate(ctx, client.ServiceCreateOptions{Spec: swarm.ServiceSpec{
		Annotations:  swarm.Annotations{Name: shop.name},
		Mode:         swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &replicas}},
		TaskTemplate: swarm.TaskSpec{ContainerSpec: &swarm.ContainerSpec{Image: image.ID}},
		EndpointSpec: &swarm.EndpointSpec{Mode: swarm.ResolutionModeDNSRR, Ports: []swarm.PortConfig{
			{Protocol: network.TCP, TargetPort: 80, PublishedPort: swarmShopPort, PublishMode: swarm.PortConfigPublishModeHost},
		}},
	}})
	if err != nil {
		return fmt.Errorf("create the Swarm service: %w", err)
	}
	defer func() {
		_, removeErr := api.ServiceRemove(context.WithoutCancel(ctx), created.ID, client.ServiceRemoveOptions{})
		err = errors.Join(err, removeErr)
	}()
	nodes, err := b.awaitShop(ctx, swarmShopPort, turn.instances, func(service string) bool { return service == shop.name })
	if err != nil {
		return err
	}
	return b.loads(ctx, turn, placedBySwarm, swarmShopPort, nodes)
}

// awaitShop waits until the service runs as often as it should and users get an answer from
// each instance, and says on which nodes.
func (b *bed) awaitShop(ctx context.Context, port, instances int, ours func(service string) bool) (nodes []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = testbed.Await(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		if nodes, err = b.placed(ctx, ours); err == nil && len(nodes) != instances {
			err = fmt.Errorf("it has %d instances, of %d", len(nodes), instances)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wait a minute for the service: %w", err)
	}
	for _, node := range nodes {
		if err := answers(ctx, b.crowd(node, port, 1)); err != nil {
			return nil, fmt.Errorf("the service does not answer at node %d within a minute: %w", node, err)
		}
	}
	return nodes, nil
}

// answers waits until a user gets an answer; the error is the last one of the user's.
func answers(ctx context.Context, one profile.Crowd) error {
	one.Users, one.Requests = 1, 1
	return testbed.Await(ctx, 0, func(ctx context.Context) error {
		if got := one.Run(ctx); got.Requests == got.Failed {
			return cmp.Or(got.LastError, errors.New("it made no request"))
		}
		return nil
	})
}

// placed returns the nodes that run tasks of some services of the swarm.
func (b *bed) placed(ctx context.Context, ours func(service string) bool) (nodes []int, err error) {
	api := b.cluster.Engines[0].API()
	services, err := api.ServiceList(ctx, client.ServiceListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the swarm's services: %w", err)
	}
	tasks, err := api.TaskList(ctx, client.TaskListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the swarm's tasks: %w", err)
	}
	wanted := map[string]bool{}
	for _, s := range services.Items {
		wanted[s.ID] = ours(s.Spec.Name)
	}
	for _, task := range tasks.Items {
		if !wanted[task.ServiceID] || task.Status.State != "running" || task.DesiredState != "running" {
			continue
		}
		node, err := b.nodeOf(ctx, task.NodeID)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	return nodes, nil
}

// nodeOf returns the number of a node of the swarm.
func (b *bed) nodeOf(ctx context.Context, id string) (int, error) {
	for node, engine := range b.cluster.Engines {
		if node == len(b.nodeIDs) {
			info, err := engine.API().Info(ctx, client.InfoOptions{})
			if err != nil {
				return 0, fmt.Errorf("ask node %d who it is: %w", node, err)
			}
			b.nodeIDs = append(b.nodeIDs, info.Info.Swarm.NodeID)
		}
		if b.nodeIDs[node] == id {
			return node, nil
		}
	}
	return 0, fmt.Errorf("the swarm has a node %s, which is none of ours", id)
}
