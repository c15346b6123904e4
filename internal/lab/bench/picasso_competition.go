package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

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
	// picassoWarmUp is before the first load, picassoLead what is not counted of each, at
	// its begin and, in a closed loop, at its end.
	picassoWarmUp = 2 * time.Second
	picassoLead   = 500 * time.Millisecond
)

// shopServer is the service's, and otherServer what makes nodes busy.
func shopServer() picassoServer {
	return picassoServer{name: shopName, command: []string{
		"/bin/weir", "traffic", "pages", "--workers", "64", "--work", "1ms", "--queue", "400", "--bytes", strconv.Itoa(picassoPageBytes),
	}}
}

func otherServer() picassoServer {
	return picassoServer{name: otherName, command: []string{
		"/bin/weir", "traffic", "pages", "--workers", "64", "--work", "0s", "--queue", "64", "--bytes", "50000000",
	}}
}

// scenarios are nodes that do not differ, for the minimums, and those that do, the fewest
// first: nodes can only be added.
func (o PicassoOptions) scenarios() (list []picassoScenario) {
	list = append(list, all(picassoNodes))
	for _, nodes := range o.Nodes {
		list = append(list, half(nodes))
	}
	return list
}

// competition measures the service as Swarm places it, with queues as interfaces have them,
// and as Weir does on the same nodes beside the same traffic.
func (b *picassoBed) competition(ctx context.Context) error {
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
func (b *picassoBed) distribute(ctx context.Context) error {
	if b.distributed == len(b.cluster.Nodes) {
		return nil
	}
	for _, s := range []picassoServer{shopServer(), otherServer()} {
		if b.distributed == 0 {
			if err := b.cluster.Engines[0].ImportService(ctx, s.image(), map[string]string{"/bin/weir": b.options.WeirBinary}, s.command); err != nil {
				return err
			}
		}
		if err := b.cluster.Distribute(ctx, s.image()); err != nil {
			return err
		}
	}
	b.distributed = len(b.cluster.Nodes)
	return b.loadProxyImage(ctx)
}

// compete measures both sides in one order.
func (b *picassoBed) compete(ctx context.Context, s picassoScenario, order int) (err error) {
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
	picassoScenario
	order int
	roles []role
}

// others are what runs on nodes beside the service. They begin, and end when what is returned
// is called.
func (b *picassoBed) others(ctx context.Context, roles []role) (leave func() error, err error) {
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
		labels := map[string]string{} // nobody reads them but Weir
		switch role {
		case backup:
			labels["weir.weight"] = "1000"
		case camera:
			labels["weir.min"] = megabits(picassoCameraPart * float64(b.options.CompetitionLinkBPS))
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
				profile.Crowd{URL: b.url(node, otherPort), Users: picassoOtherFlows, Timeout: time.Hour, Dial: b.dial}.Run(ctx)
			})
		}
	}
	return leave, nil
}

// megabits is a rate as labels have it, in whole Mbit/s.
func megabits(bps float64) string { return strconv.Itoa(max(1, int(bps/1e6))) + "mbit" }

// shopMinBPS is what an instance is promised.
func (b *picassoBed) shopMinBPS() float64 {
	return float64(max(1, int(picassoMinPart*float64(b.options.CompetitionLinkBPS)/1e6))) * 1e6
}

// loads runs all loads against the service, which is at a port of some nodes.
func (b *picassoBed) loads(ctx context.Context, turn competitionTurn, placedBy string, port int, nodes []int) error {
	names, onBusy := make([]string, len(nodes)), 0
	for i, node := range nodes {
		names[i] = nodeName(node)
		if turn.roles[node] != idle {
			onBusy++
		}
	}
	fmt.Fprintf(b.options.Progress, "competition, %s, order %d, %s: on %s, %d of them busy\n", turn, turn.order, placedBy, strings.Join(names, ", "), onBusy)
	loads := picassoLoads()
	b.closedLoop(ctx, loads[0], port, nodes, picassoWarmUp, make([]wireMeter, len(nodes)))
	for _, load := range loads {
		c, err := b.run(ctx, load, port, nodes, func(node int, frameBPS float64) {
			if placedBy == placedByWeir && !turn.differ() && load.name == crowded {
				b.found.Minimums = append(b.found.Minimums, PicassoMinimumKept{Node: nodeName(node), PromisedBPS: b.shopMinBPS(), GotBPS: frameBPS})
			}
		})
		if err != nil {
			return err
		}
		c.PlacedBy, c.Scenario, c.Differ, c.Order, c.Nodes, c.OnBusy = placedBy, turn.String(), turn.differ(), turn.order, names, onBusy
		b.found.Competition = append(b.found.Competition, c)
	}
	return nil
}

func nodeName(node int) string { return fmt.Sprint("node", node) }

// run runs one load. kept gets the rate of frames that each node's users received.
func (b *picassoBed) run(ctx context.Context, load picassoLoad, port int, nodes []int, kept func(node int, frameBPS float64)) (c PicassoCompetitor, err error) {
	c.Load, c.Closed = load.name, load.closed()
	meters := make([]wireMeter, len(nodes))
	var answers []profile.Answers
	over := make(chan struct{})
	go func() {
		defer close(over)
		if load.closed() {
			answers = b.closedLoop(ctx, load, port, nodes, b.options.Duration, meters)
		} else {
			answers = b.openLoop(ctx, load, port, nodes, meters)
		}
	}()
	defer func() { <-over }()
	time.Sleep(picassoLead)
	// All are there from here on, and until the last request begins.
	began, before := time.Now(), make([]received, len(nodes))
	for i := range nodes {
		before[i] = meters[i].read()
	}
	sentBefore, err := b.sentBytes(ctx)
	if err != nil {
		return c, err
	}
	time.Sleep(b.options.Duration - 2*picassoLead)
	for i, node := range nodes {
		after, seconds := meters[i].read(), time.Since(began).Seconds()
		c.PayloadBPS += float64(after.payloadBytes-before[i].payloadBytes) * 8 / seconds
		kept(node, float64(after.frameBytes-before[i].frameBytes)*8/seconds)
	}
	sentAfter, err := b.sentBytes(ctx)
	if err != nil {
		return c, err
	}
	c.UplinkBPS = float64(sentAfter-sentBefore) * 8 / time.Since(began).Seconds()
	<-over
	c.answered(answers)
	return c, ctx.Err()
}

// answered takes over what the users of all instances got.
func (c *PicassoCompetitor) answered(answers []profile.Answers) {
	sum, users := time.Duration(0), 0.0
	for _, a := range answers {
		good := a.Requests - a.Failed
		c.Requests += a.Requests
		c.Failed += a.Failed
		c.P95MS = max(c.P95MS, milliseconds(a.P95))
		sum += a.Mean * time.Duration(good)
		if good == 0 {
			users += milliseconds(picassoPatience)
			continue
		}
		c.RequestsPerS += float64(good) / a.Took.Seconds()
		users += milliseconds(a.Mean)
	}
	c.UserMeanMS = users / float64(len(answers))
	if good := c.Requests - c.Failed; good > 0 {
		c.MeanMS = milliseconds(sum / time.Duration(good))
	}
}

// closedLoop lets users ask again and again.
func (b *picassoBed) closedLoop(ctx context.Context, load picassoLoad, port int, nodes []int, during time.Duration, meters []wireMeter) []profile.Answers {
	answers := make([]profile.Answers, len(nodes))
	var crowds sync.WaitGroup
	for i, node := range nodes {
		crowd := b.metered(node, port, load.usersOf(len(nodes)), &meters[i])
		crowd.For = during
		crowds.Go(func() { answers[i] = crowd.Run(ctx) })
	}
	crowds.Wait()
	return answers
}

// openLoop lets users arrive.
func (b *picassoBed) openLoop(ctx context.Context, load picassoLoad, port int, nodes []int, meters []wireMeter) []profile.Answers {
	answers := make([]profile.Answers, len(nodes))
	var arrivals sync.WaitGroup
	for i, node := range nodes {
		times := arrivalTimes(load.arrivalsPerSecond(b.shopMinBPS()), b.options.Duration, uint64(i))
		arrivals.Go(func() { answers[i] = arrive(ctx, b.metered(node, port, 1, &meters[i]), times) })
	}
	arrivals.Wait()
	return answers
}

// sentBytes is what all nodes have sent to their users' host.
func (b *picassoBed) sentBytes(ctx context.Context) (sum uint64, err error) {
	for _, node := range b.cluster.Nodes {
		out, err := b.cluster.Host.Command(ctx, "ip", "-s", "-j", "link", "show", "dev", node.HostInterface).Output()
		if err != nil {
			return 0, fmt.Errorf("count what %s sends: %w", node.Name, err)
		}
		var links []struct {
			Stats struct {
				RX struct {
					Bytes uint64 `json:"bytes"`
				} `json:"rx"`
			} `json:"stats64"`
		}
		if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
			return 0, fmt.Errorf("count what %s sends: %w: %s", node.Name, err, out)
		}
		sum += links[0].Stats.RX.Bytes
	}
	return sum, nil
}

// awaitShop waits until the service runs as often as it should and users get an answer from
// each instance, and says on which nodes.
func (b *picassoBed) awaitShop(ctx context.Context, port, instances int, ours func(service string) bool) (nodes []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if nodes, err = b.placed(ctx, ours); err == nil && len(nodes) == instances {
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the service has %d instances after a minute, of %d: %w", len(nodes), instances, errors.Join(err, ctx.Err()))
		case <-time.After(200 * time.Millisecond):
		}
	}
	for _, node := range nodes {
		for {
			one := b.crowd(node, port, 1)
			one.Requests = 1
			answers := one.Run(ctx)
			if answers.Requests > answers.Failed {
				break
			}
			if ctx.Err() != nil {
				return nil, fmt.Errorf("the service does not answer at node %d within a minute: %w", node, answers.LastError)
			}
		}
	}
	return nodes, nil
}

// placed are the nodes that run tasks of services of the swarm.
func (b *picassoBed) placed(ctx context.Context, ours func(service string) bool) (nodes []int, err error) {
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

// nodeOf is the number of a node of the swarm.
func (b *picassoBed) nodeOf(ctx context.Context, id string) (int, error) {
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
