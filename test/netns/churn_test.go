//go:build netns

package netns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// Many containers that come and go. `WEIR_CHURN=long` is for the numbers that
// the project promises, a thousand containers and a minute; without it, it is
// the same with fewer, so that every run of the suite has it.

const churnVariable = "WEIR_CHURN"

// churnSize is how much a churn test does.
type churnSize struct {
	steady   int           // containers that run all the time
	churning int           // containers that come and go, half of them running
	duration time.Duration // of the coming and going
	// perSecond is how many start, and how many stop.
	perSecond int
}

func churnSizeNow() churnSize {
	if os.Getenv(churnVariable) == "long" {
		return churnSize{steady: 950, churning: 100, duration: time.Minute, perSecond: 50}
	}
	return churnSize{steady: 160, churning: 40, duration: 10 * time.Second, perSecond: 50}
}

// fleet is containers that are namespaces with a veth to a bridge of the host
// and nothing else: none of them sends.
type fleet struct {
	bed    *harness.Bed
	prefix string
	size   int
	veths  atomic.Int64 // made so far
	veth   sync.Map     // by number: the name of the one that a container has now
}

func newFleet(t *testing.T, b *harness.Bed, size int) *fleet {
	t.Helper()
	f := &fleet{bed: b, prefix: strings.TrimSuffix(filepath.Base(b.Host.NetNSPath()), "-host") + "-f", size: size}
	for i := range fleetBridges {
		b.Run("ip", "link", "add", fleetBridge(i), "up", "type", "bridge")
	}
	t.Cleanup(func() {
		var there []int
		for i := range size {
			if _, err := os.Stat(f.path(i)); err == nil {
				there = append(there, i)
			}
		}
		if err := f.stop(there...); err != nil {
			t.Error(err)
		}
	})
	return f
}

// fleetBridges is how many bridges a fleet is spread over: one has room for
// 1023 interfaces, those included of containers that the kernel is still
// taking down.
const fleetBridges = 4

func fleetBridge(i int) string { return fmt.Sprintf("fleet%d", i%fleetBridges) }

func (f *fleet) name(i int) string { return fmt.Sprintf("fleet%d", i) }
func (f *fleet) ns(i int) string   { return fmt.Sprintf("%s%d", f.prefix, i) }
func (f *fleet) path(i int) string { return testbed.NetNSDir + "/" + f.ns(i) }

// config is the fleet's part of the config file.
func (f *fleet) config(more ...*harness.Container) map[string]any {
	var entries []any
	for i := range f.size {
		entries = append(entries, map[string]any{"name": f.name(i), "netns": f.path(i)})
	}
	for _, c := range more {
		entries = append(entries, map[string]any{"name": c.Name, "netns": c.NetNSPath(), "labels": c.Labels})
	}
	return map[string]any{"containers": entries}
}

// start starts containers; all at once is much faster than one by one.
func (f *fleet) start(numbers ...int) error { return f.change(nil, numbers) }

// stop ends containers.
func (f *fleet) stop(numbers ...int) error { return f.change(numbers, nil) }

func (f *fleet) change(stop, start []int) error {
	var commands []string
	for _, i := range stop {
		commands = append(commands, "netns del "+f.ns(i))
	}
	for _, i := range start {
		// The kernel takes its time with a namespace that is deleted, and so
		// with the name of its veth.
		veth := fmt.Sprintf("vf%d", f.veths.Add(1))
		f.veth.Store(i, veth)
		commands = append(commands,
			"netns add "+f.ns(i),
			fmt.Sprintf("link add %s type veth peer name eth0 netns %s", veth, f.ns(i)),
			fmt.Sprintf("link set %s master %s up", veth, fleetBridge(i)))
	}
	if len(commands) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := f.bed.Host.Command(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -batch: %w: %s", err, out)
	}
	return nil
}

// upTo are the numbers from first up to, not including, end.
func upTo(first, end int) []int {
	var numbers []int
	for i := first; i < end; i++ {
		numbers = append(numbers, i)
	}
	return numbers
}

// running counts the containers of the fleet that are under control.
func (f *fleet) running(agent *harness.Agent) int {
	count := 0
	for name, c := range agent.Containers() {
		if strings.HasPrefix(name, "fleet") && controlled(c) {
			count++
		}
	}
	return count
}

func (f *fleet) await(agent *harness.Agent, count int, timeout time.Duration) time.Duration {
	return f.bed.Await(fmt.Sprintf("%d containers under control", count), timeout, func() (bool, string) {
		time.Sleep(20 * time.Millisecond) // a list of a thousand keeps the agent busy
		now := f.running(agent)
		return now == count, fmt.Sprintf("%d are", now)
	})
}

// TestChurn: containers start and stop, fifty a second each, and policies
// change, while a container that has nothing to do with it sends and receives within its
// guarantees beside one that floods. It loses no packet, and in the end nothing
// is left of what came and went.
func TestChurn(t *testing.T) {
	size := churnSizeNow()
	b := newBed(t)
	careful, flooding := b.Add("careful", labels("min", "20mbit", "in.min", "20mbit")), b.Add("flooding", nil)
	f := newFleet(t, b, size.steady+size.churning)
	began := time.Now()
	steady := size.steady + size.churning/2
	must.Succeed(t, f.start(append(upTo(0, size.steady), firstHalves(size)...)...))
	t.Logf("%d namespaces made in %v", steady, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	agent := b.StartAgent(harness.AgentOptions{Args: []string{"--in-rate", "50mbit"}, Settings: f.config(careful, flooding)})
	f.await(agent, steady, 10*time.Second)
	t.Logf("%d containers under control %v after the agent's start", steady, time.Since(began).Round(time.Millisecond))
	b.Send(flooding, harness.Flood)
	(&harness.Downloads{Bed: b}).Start(flooding, 60*mbit)
	time.Sleep(time.Second)

	c := &churn{fleet: f, agent: agent, size: size}
	// Until everything has been used once.
	began = time.Now()
	for i := range size.steady {
		c.changePolicy(t, i)
	}
	t.Logf("%v for a change of policy", (time.Since(began) / time.Duration(size.steady)).Round(10*time.Microsecond))
	c.run(t, size.duration/5)
	f.await(agent, steady, settled)
	before := c.settledFootprint(t)
	sent, received := startSequence(t, b, careful), startReceived(t, b, careful)
	c.run(t, size.duration)
	f.await(agent, steady, settled)
	sent.stopInAnyOrder(t)
	received.stopInAnyOrder(t)
	c.report(t)

	var after footprint
	b.Await("as small as before", 5*time.Second, func() (bool, string) {
		after = c.footprint(t)
		return after.open <= before.open && after.bpfObjects <= before.bpfObjects &&
			after.classes == before.classes && after.programs == before.programs &&
			after.stateBytes < before.stateBytes+before.stateBytes/4, fmt.Sprintf("before %+v, after %+v", before, after)
	})
	t.Logf("before %+v, after %+v", before, after)
	// What a garbage collector leaves varies; a leak of one container's worth
	// in each start would be many times this.
	const noiseBytes = 16 << 20
	if after.residentBytes > before.residentBytes+noiseBytes {
		t.Errorf("the agent had %d MB of memory, now it has %d", before.residentBytes>>20, after.residentBytes>>20)
	}
	if got := agent.Status(); got.State != v1.StateOK {
		t.Errorf("the agent is %s: %s", got.State, got.Reason)
	}
	for name, got := range agent.Containers() {
		if got.State != v1.StateOK {
			t.Errorf("%s is %s: %s", name, got.State, got.Reason)
		}
	}
}

// firstHalves are the churning containers that run in the beginning.
func firstHalves(size churnSize) []int {
	var numbers []int
	each := size.churning / churners
	for i := range churners {
		first := size.steady + i*each
		numbers = append(numbers, upTo(first, first+each/2)...)
	}
	return numbers
}

// churn is containers coming and going.
type churn struct {
	fleet *fleet
	agent *harness.Agent
	size  churnSize

	mu      sync.Mutex
	starts  int
	changes int
	elapsed time.Duration
	took    []time.Duration // from the start of a container to control over it
}

// settled is how long the agent may be behind when all is over.
const settled = 10 * time.Second

// churners work at the same time: one cannot start containers fast enough.
const churners = 5

// run lets them come and go, with policies changing meanwhile.
func (c *churn) run(t *testing.T, duration time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), duration)
	defer cancel()
	began := time.Now()
	var wait sync.WaitGroup
	first, each := c.size.steady, c.size.churning/churners
	for i := range churners {
		wait.Go(func() { c.comeAndGo(ctx, t, upTo(first+i*each, first+(i+1)*each)) })
	}
	wait.Go(func() { c.changePolicies(ctx, t) })
	wait.Wait()
	c.elapsed += time.Since(began)
}

// comeAndGo lets one of some containers end, and another one start, again and
// again. Half of them run, the same in the end as in the beginning.
func (c *churn) comeAndGo(ctx context.Context, t *testing.T, numbers []int) {
	ticker := time.NewTicker(churners * time.Second / time.Duration(c.size.perSecond))
	defer ticker.Stop()
	half := len(numbers) / 2
	for turn := 0; ctx.Err() == nil || turn%len(numbers) != 0; turn++ {
		<-ticker.C
		stop, start := numbers[turn%len(numbers)], numbers[(turn+half)%len(numbers)]
		if err := c.fleet.change([]int{stop}, []int{start}); err != nil {
			t.Error(err)
			return
		}
		c.mu.Lock()
		c.starts++
		c.mu.Unlock()
		if turn%10 == 0 {
			c.measure(t, start)
		}
	}
}

// measure waits until the agent has assigned a container's packets to it. It does
// not ask the agent, which would be kept busy by listing a thousand containers.
func (c *churn) measure(t *testing.T, number int) {
	veth, _ := c.fleet.veth.Load(number)
	began := time.Now()
	for assigned := false; !assigned; {
		err := testbed.InNetNS(c.fleet.bed.Host.NetNSPath(), func() error {
			device, err := kernel.LinkByName(veth.(string))
			if err != nil {
				return err
			}
			program, err := kernel.Hook{Ifindex: device.Index}.Find("weir_tap")
			if assigned = program != nil; assigned {
				err = program.Close()
			}
			return err
		})
		if err != nil || time.Since(began) > settled {
			t.Errorf("container %d is not under control %v after its start: %v", number, time.Since(began), err)
			return
		}
		time.Sleep(time.Millisecond)
	}
	c.mu.Lock()
	c.took = append(c.took, time.Since(began))
	c.mu.Unlock()
}

// changePolicies changes those of containers that stay: others may be gone.
func (c *churn) changePolicies(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		c.changePolicy(t, rand.IntN(c.size.steady))
		c.changes++
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *churn) changePolicy(t *testing.T, number int) {
	weight := fmt.Sprint(1 + rand.IntN(10000))
	_, err := c.agent.Client.Set(context.Background(), c.fleet.name(number), v1.PolicyChange{Weight: &weight})
	if err != nil {
		t.Errorf("change the policy of container %d: %v", number, err)
	}
}

func (c *churn) report(t *testing.T) {
	t.Helper()
	perSecond := float64(c.starts) / c.elapsed.Seconds()
	slices.Sort(c.took)
	median, worst := c.took[len(c.took)/2], c.took[len(c.took)-1]
	t.Logf("%d starts and as many stops, %.0f a second; %d changes of policy; under control after %v, at worst %v",
		c.starts, perSecond, c.changes, median.Round(time.Millisecond), worst.Round(time.Millisecond))
	// It is 50 ms where the machine has nothing else to do; here it makes and
	// removes namespaces all the time.
	if median > noticed {
		t.Errorf("it takes the agent %v to control a new container", median)
	}
	if perSecond < float64(c.size.perSecond)/5 {
		t.Errorf("only %.0f starts a second: this proves nothing", perSecond)
	}
}

// footprint is what the agent takes up.
type footprint struct {
	open                          int // files and sockets but for the API's connections
	bpfObjects, classes, programs int
	stateBytes                    int
	residentBytes                 uint64
}

func (c *churn) footprint(t *testing.T) footprint {
	t.Helper()
	b := c.fleet.bed
	f := footprint{
		bpfObjects: len(c.agent.BPFObjects()),
		classes:    len(tcClasses(b)),
		programs:   len(bpfPrograms(t, b)),
		stateBytes: len(b.Run("cat", b.Files.StatePath())),
	}
	// How many connections there are is up to the test and its HTTP client; they
	// are listed where the client is.
	connections, err := os.ReadFile("/proc/self/net/unix")
	must.Succeed(t, err)
	for _, open := range descriptors(t, c.agent.Pid()) {
		inode := strings.TrimSuffix(strings.TrimPrefix(open, "socket:["), "]")
		if inode == open || !strings.Contains(string(connections), " "+inode) {
			f.open++
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.agent.Pid()))
	must.Succeed(t, err)
	_, resident, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscanf(resident, "%d kB", &f.residentBytes); err != nil {
		t.Fatalf("read the agent's memory: %v", err)
	}
	f.residentBytes <<= 10
	return f
}

// settledFootprint waits until nothing more is removed of containers that have ended.
func (c *churn) settledFootprint(t *testing.T) footprint {
	t.Helper()
	last := c.footprint(t)
	c.fleet.bed.Await("a footprint that stays", settled, func() (bool, string) {
		time.Sleep(500 * time.Millisecond)
		before := last
		last = c.footprint(t)
		return last.bpfObjects == before.bpfObjects && last.classes == before.classes && last.programs == before.programs,
			fmt.Sprintf("%+v, then %+v", before, last)
	})
	return last
}

// TestStartWithManyContainers: containers that ran before the agent are under
// control soon after its start, also those that started while it was away.
func TestStartWithManyContainers(t *testing.T) {
	size := churnSizeNow()
	b := newBed(t)
	f := newFleet(t, b, size.steady+size.churning)
	must.Succeed(t, f.start(upTo(0, size.steady)...))
	const soon = 3 * time.Second
	for _, test := range []struct {
		name    string
		prepare func() error
		running int
	}{
		{"all new", func() error { return nil }, size.steady},
		{"all known", func() error { return nil }, size.steady},
		{"some came while it was away", func() error { return f.start(upTo(size.steady, f.size)...) }, f.size},
		{"some went while it was away", func() error { return f.stop(upTo(size.steady, f.size)...) }, size.steady},
	} {
		must.Succeed(t, test.prepare())
		began := time.Now()
		agent := b.StartAgent(harness.AgentOptions{Settings: f.config()})
		f.await(agent, test.running, 10*soon)
		took := time.Since(began)
		waited := waitedForProcessor(t, agent.Pid())
		t.Logf("%s: %d containers under control after %v, with %v of processor time, %v without a processor",
			test.name, test.running, took.Round(time.Millisecond), processorTime(t, agent.Pid()), waited.Round(time.Millisecond))
		if took-waited > soon {
			t.Errorf("%s: it took the agent %v to control %d containers, want %v", test.name, took, test.running, soon)
		}
		agent.Kill()
	}
}

// waitedForProcessor is for how long the thread of a process that waited most for a processor did so.
func waitedForProcessor(t *testing.T, pid int) time.Duration {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	must.Succeed(t, err)
	most := time.Duration(0)
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		must.Succeed(t, err)
		most = max(most, time.Duration(number(t, strings.Fields(string(text))[1])))
	}
	return most
}

// processorTime is what a process has used so far.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must.Succeed(t, err)
	// proc(5): utime and stime, the 12th and 13th field after the name.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const userHZ = 100
	return time.Duration(number(t, fields[11])+number(t, fields[12])) * time.Second / userHZ
}
