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

// start starts an instance and returns when it answers.
func (b *bed) start(ctx context.Context, s webServer, node, number int) (took time.Duration, err error) {
	began := time.Now()
	port := firstPort + number
	name := fmt.Sprintf("%s-%d", s.name, number)
	_, err = b.cluster.Engines[node].Run(ctx, testbed.RunOptions{
		Name: name, Image: s.image(), Args: s.command, PublishTCP: map[uint16]uint16{uint16(port): 80},
	})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := answers(ctx, profile.Crowd{URL: b.url(node, port), Timeout: time.Second, Fresh: true, Dial: b.dial}); err != nil {
		return 0, errors.Join(fmt.Errorf("%s on node %d does not answer: %w", name, node, err), b.stop(s, node, number))
	}
	return time.Since(began), nil
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
func (b *bed) measure(ctx context.Context, s webServer, l layout, users int) (c Crowd, err error) {
	c = Crowd{Server: s.name, Layout: l.String(), Users: users}
	fmt.Fprintf(b.options.Progress, "%s, %s, %d users\n", s.name, l, users)
	for i := range l.containers {
		if _, err := b.start(ctx, s, l.nodeOf(i), i); err != nil {
			return c, err
		}
		defer func() { err = errors.Join(err, b.stop(s, l.nodeOf(i), i)) }()
	}
	before, _, err := b.used(l)
	if err != nil {
		return c, err
	}
	began := time.Now()
	load := b.watchLoad(l)
	answers := make([]profile.Answers, l.containers)
	var crowds sync.WaitGroup
	for i := range l.containers {
		crowd := b.crowd(l.nodeOf(i), firstPort+i, max(1, users/l.containers))
		crowd.Requests, crowd.For = max(1, b.options.Requests/l.containers), b.options.For
		crowds.Go(func() { answers[i] = crowd.Run(ctx) })
	}
	crowds.Wait()
	took := time.Since(began)
	after, memory, err := b.used(l)
	c.NodeLoad, c.NodeLoadMost = load()
	if err != nil {
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
	c.NodeCPUPercent = 100 * (after - before).Seconds() / took.Seconds() / b.cpus / float64(l.pis)
	c.ContainerCPUPercent = c.NodeCPUPercent * float64(l.pis) / float64(l.containers)
	c.MemoryBytes = memory
	return c, ctx.Err()
}

// loadPeriod is the time between two looks at what runs on nodes.
const loadPeriod = 250 * time.Millisecond

// watchLoad looks at what runs on a layout's nodes, and what is returned ends that: with the
// mean of all nodes, and the most that one had.
func (b *bed) watchLoad(l layout) (end func() (mean, most float64)) {
	over, counted := make(chan struct{}), make(chan []float64)
	go func() {
		var counts []float64
		ticker := time.NewTicker(loadPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				counted <- counts
				return
			case <-ticker.C:
			}
			for node := range l.pis {
				if count, err := b.cluster.Engines[node].Runnable(); err == nil {
					counts = append(counts, float64(count))
				}
			}
		}
	}()
	return func() (float64, float64) {
		close(over)
		counts := <-counted
		if len(counts) == 0 {
			return 0, 0
		}
		return measure.Mean(counts), slices.Max(counts)
	}
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
}

// PaperCrowd is how many users figures 5 to 8 have.
const PaperCrowd = 100

// paperLayouts returns the layouts of figures 5 to 8.
func paperLayouts() []layout { return []layout{{1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 4}} }

// replicas measures figures 5 to 8. The paper left nano out.
func (b *bed) replicas(ctx context.Context) error {
	for _, s := range b.servers {
		if s.name == serverNano {
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
			took, err := b.start(ctx, s, 0, 0)
			if err != nil {
				return err
			}
			b.found.Starts[s.name] = append(b.found.Starts[s.name], took.Seconds())
			if err := b.stop(s, 0, 0); err != nil {
				return err
			}
		}
	}
	return nil
}
