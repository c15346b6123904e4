package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"
)

// bySwarm lets Swarm place the service, by its own strategy.
func (b *picassoBed) bySwarm(ctx context.Context, turn competitionTurn) (err error) {
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
