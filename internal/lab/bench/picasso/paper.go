package picasso

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// firstPort is the first instance's on every node.
const firstPort = 8000

// instance is a started container of a node, and how long it took until it answered.
type instance struct {
	node int
	id   string
	took time.Duration
}

// start starts an instance and returns when it answers.
func (b *bed) start(ctx context.Context, s webServer, node, number int) (started instance, err error) {
	began := time.Now()
	port := firstPort + number
	name := fmt.Sprintf("%s-%d", s.name, number)
	container, err := b.cluster.Engines[node].Run(ctx, testbed.RunOptions{
		Name: name, Image: s.image(), Args: s.command, PublishTCP: map[uint16]uint16{uint16(port): 80},
	})
	if err != nil {
		return started, err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := answers(ctx, profile.Crowd{URL: b.url(node, port), Timeout: time.Second, Fresh: true, Dial: b.dial}); err != nil {
		return started, errors.Join(fmt.Errorf("%s on node %d does not answer: %w", name, node, err), b.stop(s, node, number))
	}
	return instance{node, container.ID, time.Since(began)}, nil
}

func (b *bed) stop(s webServer, node, number int) error {
	return b.cluster.Engines[node].Remove(context.Background(), fmt.Sprintf("%s-%d", s.name, number))
}

// layout is instances on nodes: containers in all, divided among pis nodes.
type layout struct{ containers, pis int }

func (l layout) String() string { return fmt.Sprintf("%dCon-%dPi", l.containers, l.pis) }

// nodeOf returns the node of an instance.
func (l layout) nodeOf(instance int) int { return instance % l.pis }

// measure runs a crowd against a layout.
func (b *bed) measure(ctx context.Context, s webServer, l layout, users int) (Crowd, error) {
	fmt.Fprintf(b.options.Progress, "%s, %s, %d users\n", s.name, l, users)
	return b.measureLoad(ctx, Crowd{Users: users}, s, l, b.options.For, func(i int) profile.Answers {
		crowd := b.crowd(l.nodeOf(i), firstPort+i, max(1, users/l.containers))
		crowd.Requests, crowd.For = max(1, b.options.Requests/l.containers), b.options.For
		return crowd.Run(ctx)
	})
}

// measureLoad runs a load against each instance of a layout, and adds to c what came of it. What nodes use is counted while
// requests begin, for during at most: afterwards the last users wait, for as long as they do, and nodes idle.
func (b *bed) measureLoad(ctx context.Context, c Crowd, s webServer, l layout, during time.Duration, load func(instance int) profile.Answers) (_ Crowd, err error) {
	c.Server, c.Layout = s.name, l.String()
	instances := make([]instance, l.containers)
	if err := b.capCPUs(0); err != nil { // a start is no part of the load
		return c, err
	}
	for i := range l.containers {
		if instances[i], err = b.start(ctx, s, l.nodeOf(i), i); err != nil {
			return c, err
		}
		defer func() { err = errors.Join(err, b.stop(s, l.nodeOf(i), i)) }()
	}
	b.warm(ctx, s, l)
	if err := b.capCPUs(b.cpus); err != nil {
		return c, err
	}
	before, _, err := b.used(l)
	if err != nil {
		return c, err
	}
	eachBefore, err := b.usedByEach(instances)
	if err != nil {
		return c, err
	}
	began := time.Now()
	end := b.watch(l, instances[0])
	answers := make([]profile.Answers, l.containers)
	var crowds sync.WaitGroup
	for i := range l.containers {
		crowds.Go(func() { answers[i] = load(i) })
	}
	over := make(chan struct{})
	go func() {
		crowds.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(during):
	}
	counted := time.Since(began)
	after, memory, err := b.used(l)
	eachAfter, eachErr := b.usedByEach(instances)
	seen := end()
	<-over
	took := time.Since(began)
	if c.Moments = seen.moments; len(seen.counts) > 0 {
		c.NodeLoad, c.NodeLoadMost = measure.Mean(seen.counts), slices.Max(seen.counts)
	}
	if err := errors.Join(err, eachErr); err != nil {
		return c, err
	}
	sum := time.Duration(0)
	for _, a := range answers {
		c.Requests += a.Requests
		c.Failed += a.Failed
		sum += a.Mean * time.Duration(a.Requests-a.Failed)
		c.P95MS = max(c.P95MS, measure.Milliseconds(a.P95))
	}
	if good := c.Requests - c.Failed; good > 0 {
		c.MeanMS = measure.Milliseconds(sum / time.Duration(good))
		c.RequestsPerS = float64(good) / took.Seconds()
	}
	c.NodeCPUPercent = b.nodePercent(l, after-before, counted)
	for i := range instances {
		c.ContainerCPUPercents = append(c.ContainerCPUPercents, b.percent(eachAfter[i]-eachBefore[i], counted))
	}
	c.ContainerCPUPercent = measure.Mean(c.ContainerCPUPercents)
	c.MemoryBytes = memory
	return c, ctx.Err()
}

// loadPeriod is the time between two looks at what runs on nodes.
const loadPeriod = 250 * time.Millisecond

// watched is what was seen of a layout's nodes during a run.
type watched struct {
	counts  []float64 // threads that run or wait, of each node each time
	moments []Moment
}

// watch samples a layout's nodes and first instance until end is called.
func (b *bed) watch(l layout, first instance) (end func() watched) {
	over, result := make(chan struct{}), make(chan watched)
	go func() {
		var seen watched
		before, _, _ := b.used(l)
		firstBefore, _ := b.usedByEach([]instance{first})
		began := time.Now()
		at := began
		ticker := time.NewTicker(loadPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				result <- seen
				return
			case <-ticker.C:
			}
			var counts []float64
			for node := range l.pis {
				if count, err := b.cluster.Engines[node].Runnable(); err == nil {
					counts = append(counts, float64(count))
				}
			}
			cpu, memory, err := b.used(l)
			firstCPU, firstErr := b.usedByEach([]instance{first})
			if seen.counts = append(seen.counts, counts...); len(counts) == 0 || len(firstBefore) == 0 || errors.Join(err, firstErr) != nil {
				continue
			}
			now := time.Now()
			seen.moments = append(seen.moments, Moment{
				Seconds:        now.Sub(began).Seconds(),
				NodeCPUPercent: b.nodePercent(l, cpu-before, now.Sub(at)), NodeLoad: measure.Mean(counts), MemoryBytes: memory / uint64(l.pis),
				ContainerCPUPercent: b.percent(firstCPU[0]-firstBefore[0], now.Sub(at)),
			})
			before, firstBefore, at = cpu, firstCPU, now
		}
	}()
	return func() watched {
		close(over)
		return <-result
	}
}

// nodePercent returns the processor time of a layout's nodes, of what they have.
func (b *bed) nodePercent(l layout, used, took time.Duration) float64 {
	return b.percent(used, took) / float64(l.pis)
}

// percent returns processor time in percent of what one node has.
func (b *bed) percent(used, took time.Duration) float64 {
	return 100 * used.Seconds() / took.Seconds() / b.cpus
}

// usedByEach returns the processor time of each instance.
func (b *bed) usedByEach(instances []instance) (list []time.Duration, err error) {
	for _, one := range instances {
		cpu, err := b.cluster.Engines[one.node].ContainerCPU(one.id)
		if err != nil {
			return nil, err
		}
		list = append(list, cpu)
	}
	return list, nil
}

// used returns the processor time and memory of all containers of a layout's nodes.
func (b *bed) used(l layout) (cpu time.Duration, memoryBytes uint64, err error) {
	for node := range l.pis {
		one, memory, err := b.cluster.Engines[node].Used()
		if err != nil {
			return 0, 0, err
		}
		cpu, memoryBytes = cpu+one, memoryBytes+memory
	}
	return cpu, memoryBytes, nil
}

// success measures figure 3: one instance, and crowds of several sizes.
func (b *bed) success(ctx context.Context) error {
	return b.rounds(func() error {
		for _, s := range b.servers {
			for _, users := range b.options.Users {
				if b.late() {
					continue
				}
				c, err := b.measure(ctx, s, layout{1, 1}, users)
				if err != nil {
					return err
				}
				c.Figure3 = true
				b.found.Crowds = append(b.found.Crowds, c)
			}
		}
		return nil
	})
}

// rounds runs what is measured in rounds, until it fails.
func (b *bed) rounds(run func() error) error {
	for range b.options.Repeat {
		if err := run(); err != nil {
			return err
		}
	}
	return nil
}

// PaperCrowd is how many users figures 5 to 8 have.
const PaperCrowd = 100

// paperLayouts returns the layouts of figures 5 to 8.
func paperLayouts() []layout { return []layout{{1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 4}} }

// replicas measures figures 5 to 8. The paper left nano out.
func (b *bed) replicas(ctx context.Context) error {
	return b.rounds(func() error {
		for _, s := range b.servers {
			if !slices.Contains(b.found.replicated(), s.name) {
				continue
			}
			for _, l := range paperLayouts() {
				if b.late() {
					continue
				}
				c, err := b.measure(ctx, s, l, PaperCrowd)
				if err != nil {
					return err
				}
				b.found.Crowds = append(b.found.Crowds, c)
			}
		}
		return nil
	})
}

const (
	// capacityParts is into how many parts what one replica answers is divided: each of up to capacityMost replicas is
	// asked for one, so that the largest number is more than the node stands.
	capacityParts, capacityMost = 8, 16
	// capacityTime is how long users come: a node answers some tens of requests a second.
	capacityTime = 5 * time.Second
)

// capacityServers returns the servers that answer all of few users.
func capacityServers() []string { return []string{serverBusybox, serverNginx} }

// capacity measures section IV.C: how many replicas a node stands, each with users of its own who arrive. The paper finds
// out with users who ask again and again, who exhaust a node of any number of replicas.
func (b *bed) capacity(ctx context.Context) error {
	return b.rounds(func() error {
		for _, s := range b.servers {
			if !slices.Contains(capacityServers(), s.name) {
				continue
			}
			alone, err := b.measure(ctx, s, layout{1, 1}, SmallestCrowd)
			if err != nil {
				return err
			}
			perSecond := alone.RequestsPerS / capacityParts
			for replicas := 1; replicas <= capacityMost; replicas *= 2 {
				if b.late() {
					continue
				}
				l := layout{replicas, 1}
				fmt.Fprintf(b.options.Progress, "%s, %s, %.3g requests a second to each\n", s.name, l, perSecond)
				c, err := b.measureLoad(ctx, Crowd{ArrivalsPerS: perSecond}, s, l, capacityTime, func(i int) profile.Answers {
					return arrive(ctx, b.crowd(0, firstPort+i, 1), arrivalTimes(perSecond, capacityTime, uint64(i)))
				})
				if err != nil {
					return err
				}
				b.found.Capacity = append(b.found.Capacity, c)
			}
		}
		return nil
	})
}

// cost measures figure 9. Nodes are not capped, because nothing else runs then.
func (b *bed) cost(ctx context.Context) error {
	if err := b.capCPUs(0); err != nil {
		return err
	}
	for _, s := range b.servers {
		for range b.options.Starts {
			if b.late() {
				continue
			}
			fmt.Fprintf(b.options.Progress, "%s starts\n", s.name)
			started, err := b.start(ctx, s, 0, 0)
			if err != nil {
				return err
			}
			b.found.Starts[s.name] = append(b.found.Starts[s.name], started.took.Seconds())
			if err := b.stop(s, 0, 0); err != nil {
				return err
			}
		}
	}
	return nil
}
