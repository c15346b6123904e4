package picasso

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// Who places and protects the service.
const (
	placedBySwarm = "Swarm, spread"
	placedByWeir  = "Weir"
)

const (
	shopName  = "shop"
	otherName = "other"
	otherPort = 9000
	// Each side has a port of its own: the other's may still be closing.
	swarmShopPort = 8080
	weirShopPort  = 8081
	// warmUp is before the first load, lead what is not counted of each, at
	// its begin and, in a closed loop, at its end.
	warmUp = 2 * time.Second
	lead   = 500 * time.Millisecond
	// minimumsDuring is how long minimums are looked at, at least: what a queue of 50 ms holds
	// at the begin and not at the end is 2.5 % of 2 s.
	minimumsDuring = 10 * time.Second
)

// shopServer returns the service's server.
func shopServer() webServer {
	return webServer{name: shopName, command: []string{
		"/bin/weir-lab", "traffic", "pages", "--workers", "64", "--work", "1ms", "--queue", "400", "--bytes", strconv.Itoa(shopPageBytes),
	}}
}

func otherServer() webServer {
	return webServer{name: otherName, command: []string{
		"/bin/weir-lab", "traffic", "pages", "--workers", "64", "--work", "0s", "--queue", "64", "--bytes", "50000000",
	}}
}

// scenarios returns equal nodes, for the minimums, and unequal ones, the fewest first, because
// nodes can only be added.
func (o Options) scenarios() (list []scenario) {
	list = append(list, allBusy(PaperNodes))
	for _, nodes := range o.Nodes {
		list = append(list, halfBusy(nodes))
	}
	return list
}

// competition measures the service as Swarm places it, with queues as interfaces have them,
// and as Weir does on the same nodes beside the same traffic.
func (b *bed) competition(ctx context.Context) error {
	if err := b.capCPUs(0); err != nil { // uplinks are what is short here
		return err
	}
	b.found.CompetitionLinkBPS = b.options.CompetitionLinkBPS
	for _, s := range b.options.scenarios() {
		orders := b.options.Orders
		if !s.differ() {
			orders = 1
		}
		for order := range orders {
			if b.late() {
				continue
			}
			if err := b.compete(ctx, s, order); err != nil {
				return err
			}
		}
	}
	return nil
}

// distribute gives all nodes the images that they need for a competition.
func (b *bed) distribute(ctx context.Context) error {
	if b.distributed == len(b.cluster.Nodes) {
		return nil
	}
	for _, s := range []webServer{shopServer(), otherServer()} {
		if b.distributed == 0 {
			if err := b.cluster.Engines[0].ImportService(ctx, s.image(), map[string]string{"/bin/weir-lab": testbed.LabProgram(b.options.WeirBinary)}, s.command); err != nil {
				return err
			}
		}
		if err := b.cluster.Distribute(ctx, s.image()); err != nil {
			return err
		}
	}
	b.distributed = len(b.cluster.Nodes)
	proxy, err := b.edge.Run("proxy-image")
	if err != nil {
		return err
	}
	for _, engine := range b.cluster.Engines { // also of nodes that were added, which b.edge does not know
		if err := engine.Load(ctx, bytes.NewReader(proxy)); err != nil {
			return err
		}
	}
	return nil
}

// compete measures both sides in one order.
func (b *bed) compete(ctx context.Context, s scenario, order int) (err error) {
	if err := b.grow(ctx, s.nodes); err != nil {
		return err
	}
	if err := b.distribute(ctx); err != nil {
		return err
	}
	for node := range s.nodes {
		if err := b.limitLink(ctx, node, b.options.CompetitionLinkBPS); err != nil {
			return err
		}
	}
	leave, err := b.others(ctx, s.roles(order))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	turn := competitionTurn{s, order, s.roles(order)}
	if err := b.bySwarm(ctx, turn); err != nil {
		return err
	}
	return b.byWeir(ctx, turn)
}

// competitionTurn is a scenario in one order.
type competitionTurn struct {
	scenario
	order int
	roles []role
}

// others starts the containers that run on nodes beside the service; leave ends them.
func (b *bed) others(ctx context.Context, roles []role) (leave func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var crowds sync.WaitGroup
	started := 0
	leave = func() error {
		cancel()
		crowds.Wait()
		var errs []error
		for node := range started {
			errs = append(errs, b.cluster.Engines[node].Remove(context.WithoutCancel(ctx), otherName))
		}
		return errors.Join(errs...)
	}
	other := otherServer()
	for node, role := range roles {
		labels := map[string]string{} // only Weir reads them
		switch role {
		case backup:
			labels["weir.weight"] = "1000"
		case camera:
			labels["weir.min"] = megabits(cameraPart * float64(b.options.CompetitionLinkBPS))
		}
		_, err := b.cluster.Engines[node].Run(ctx, testbed.RunOptions{
			Name: otherName, Image: other.image(), Args: other.command, PublishTCP: map[uint16]uint16{otherPort: 80}, Labels: labels,
		})
		if err != nil {
			return nil, errors.Join(err, leave())
		}
		started++
		if role != idle {
			crowds.Go(func() {
				profile.Crowd{URL: b.url(node, otherPort), Users: otherFlows, Timeout: time.Hour, Dial: b.dial}.Run(ctx)
			})
		}
	}
	return leave, nil
}

// megabits formats a rate for labels, in whole Mbit/s.
func megabits(bps float64) string { return strconv.Itoa(max(1, int(bps/1e6))) + "mbit" }

// shopMinBPS returns the minimum of the service, of all instances together.
func (b *bed) shopMinBPS() float64 {
	return float64(max(1, int(minPart*float64(b.options.CompetitionLinkBPS)/1e6))) * 1e6
}
