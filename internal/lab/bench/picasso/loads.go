package picasso

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/bench/measure"
)

// loads runs all loads against the service, which is at a port of some nodes.
func (b *bed) loads(ctx context.Context, turn competitionTurn, placedBy string, port int, nodes []int) error {
	names, onBusy := make([]string, len(nodes)), 0
	for i, node := range nodes {
		names[i] = nodeName(node)
		if turn.roles[node] != idle {
			onBusy++
		}
	}
	fmt.Fprintf(b.options.Progress, "competition, %s, order %d, %s: on %s, %d of them busy\n", turn, turn.order, placedBy, strings.Join(names, ", "), onBusy)
	loads := userLoads()
	b.closedLoop(ctx, loads[0], port, nodes, warmUp, make([]wireMeter, len(nodes)))
	for _, load := range loads {
		during, minimums := b.options.Duration, !turn.differ() && load.name == crowded
		if minimums {
			during = max(during, minimumsDuring)
		}
		c, frameBPS, err := b.run(ctx, load, port, nodes, during)
		if err != nil {
			return err
		}
		if placedBy == placedByWeir && minimums {
			b.found.Minimum = &MinimumKept{PromisedBPS: b.shopMinBPS(), GotBPS: frameBPS}
		}
		c.PlacedBy, c.Scenario, c.Differ, c.Order, c.Nodes, c.OnBusy = placedBy, turn.String(), turn.differ(), turn.order, names, onBusy
		b.found.Competition = append(b.found.Competition, c)
	}
	return nil
}

func nodeName(node int) string { return fmt.Sprint("node", node) }

// run runs one load. It returns what users got, and the rate of frames that all received together.
func (b *bed) run(ctx context.Context, load userLoad, port int, nodes []int, during time.Duration) (c Competitor, frameBPS float64, err error) {
	c.Load, c.Closed = load.name, load.closed()
	meters := make([]wireMeter, len(nodes))
	var answers []profile.Answers
	over := make(chan struct{})
	go func() {
		defer close(over)
		if load.closed() {
			answers = b.closedLoop(ctx, load, port, nodes, during, meters)
		} else {
			answers = b.openLoop(ctx, load, port, nodes, during, meters)
		}
	}()
	defer func() { <-over }()
	time.Sleep(lead)
	// All are there from here on, and until the last request begins.
	began, before := time.Now(), make([]received, len(nodes))
	for i := range nodes {
		before[i] = meters[i].read()
	}
	sentBefore, err := b.sentBytes(ctx)
	if err != nil {
		return c, 0, err
	}
	time.Sleep(during - 2*lead)
	for i := range nodes {
		after, seconds := meters[i].read(), time.Since(began).Seconds()
		c.PayloadBPS += float64(after.payloadBytes-before[i].payloadBytes) * 8 / seconds
		frameBPS += float64(after.frameBytes-before[i].frameBytes) * 8 / seconds
	}
	sentAfter, err := b.sentBytes(ctx)
	if err != nil {
		return c, 0, err
	}
	c.UplinkBPS = float64(sentAfter-sentBefore) * 8 / time.Since(began).Seconds()
	<-over
	c.answered(answers)
	return c, frameBPS, ctx.Err()
}

// answered takes over what the users of all instances got.
func (c *Competitor) answered(answers []profile.Answers) {
	sum, users := time.Duration(0), 0.0
	for _, a := range answers {
		c.Requests += a.Requests
		c.Failed += a.Failed
		c.P95MS = max(c.P95MS, measure.Milliseconds(a.P95))
		c.RequestsPerS += float64(a.Requests-a.Failed) / a.Took.Seconds()
		waited := a.Mean*time.Duration(a.Requests-a.Failed) + patience*time.Duration(a.Failed)
		sum += waited
		users += measure.Milliseconds(waited) / float64(max(1, a.Requests))
	}
	c.UserMeanMS = users / float64(len(answers))
	c.MeanMS = measure.Milliseconds(sum) / float64(max(1, c.Requests))
}

// closedLoop lets users ask again and again.
func (b *bed) closedLoop(ctx context.Context, load userLoad, port int, nodes []int, during time.Duration, meters []wireMeter) []profile.Answers {
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
func (b *bed) openLoop(ctx context.Context, load userLoad, port int, nodes []int, during time.Duration, meters []wireMeter) []profile.Answers {
	answers := make([]profile.Answers, len(nodes))
	var arrivals sync.WaitGroup
	for i, node := range nodes {
		times := arrivalTimes(load.arrivalsPerSecond(b.shopMinBPS()/float64(len(nodes))), during, uint64(i))
		arrivals.Go(func() { answers[i] = arrive(ctx, b.metered(node, port, 1, &meters[i]), times) })
	}
	arrivals.Wait()
	return answers
}

// sentBytes returns the bytes that all nodes have sent to their users' host.
func (b *bed) sentBytes(ctx context.Context) (sum uint64, err error) {
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
