//go:build docker

package edge

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	agentclient "github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

const (
	cameraPort, cameraMinBPS = 8084, 24e6
	cameraViewers            = 8
	// halfRate is too little for the camera's minimum: 19 Mbit/s of it may be promised.
	halfRate, halfBudgetBPS = "20mbit", 19e6
)

// viewers are users of the camera who follow it to the node where its minimum is in force, as a name
// server does that goes by weir-edge.
type viewers struct {
	c *cluster
	// pauses are those of the machine, which explain what viewers lack; nil if it has none.
	pauses *testbed.PauseWatch

	// frames are the camera's.
	frames *frames

	mu sync.Mutex
	// at is the node that they connect to; leave ends that.
	at    int
	leave func()
	// crowds are those that have come; their last requests take their time.
	crowds sync.WaitGroup
	seen   []viewed
}

// viewed is whether weir-edge said at a moment that the camera's minimum is in force where viewers are.
type viewed struct {
	at       time.Time
	ns       int64 // of CLOCK_MONOTONIC
	promised bool
}

const viewPeriod = 50 * time.Millisecond

// view lets viewers come, until end is called.
func (c *cluster) view(t *testing.T) (v *viewers, end func()) {
	v = &viewers{c: c, at: -1, frames: newFrames()}
	var err error
	v.pauses, err = testbed.StartPauseWatch(t.Context(), harness.Program(t), testbed.LeastPause)
	must.Succeed(t, err)
	t.Cleanup(func() { v.pauses.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	for _, node := range c.nodes {
		looking.Go(v.frames.watch(ctx, t, c.host.NetNSPath(), node.HostInterface, cameraPort))
	}
	looking.Go(func() {
		ticker := time.NewTicker(viewPeriod)
		defer ticker.Stop()
		for ctx.Err() == nil {
			s, err := c.client.Snapshot(ctx)
			if err == nil {
				v.follow(ctx, s)
			}
			v.mu.Lock()
			v.seen = append(v.seen, viewed{time.Now(), traffic.MonotonicNS(), err == nil && v.isPromised(s)})
			v.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return v, func() {
		cancel()
		looking.Wait()
		if v.leave != nil {
			v.leave()
		}
		v.crowds.Wait()
	}
}

// follow sends viewers to the node of the running camera.
func (v *viewers) follow(ctx context.Context, s edge.Snapshot) {
	for _, i := range s.Instances {
		if i.Service != "camera" || i.State != "running" {
			continue
		}
		if node := v.c.node(s, i.Node); node >= 0 && node != v.at {
			v.comeTo(ctx, node)
		}
		return
	}
}

func (v *viewers) comeTo(ctx context.Context, node int) {
	if v.leave != nil {
		v.leave()
	}
	ctx, cancel := context.WithCancel(ctx)
	v.mu.Lock()
	v.at = node
	v.mu.Unlock()
	v.leave = cancel
	crowd := profile.Crowd{URL: v.c.url(node, cameraPort), Users: cameraViewers, Timeout: 5 * time.Second, Dial: v.c.dial}
	v.crowds.Go(func() { crowd.Run(ctx) })
}

// isPromised reports whether weir-edge says that all of the camera's minimum is in force where viewers are.
func (v *viewers) isPromised(s edge.Snapshot) bool {
	for _, service := range s.Services {
		for _, claim := range service.Claims {
			if service.Name == "camera" && v.c.node(s, claim.Node) == v.at {
				return claim.Reason == "" && claim.InForceBPS >= cameraMinBPS && claim.Places[0].State == v1.PromiseInForce
			}
		}
	}
	return false
}

// node returns the number of the node of a name; -1 if there is none.
func (c *cluster) node(s edge.Snapshot, name string) int {
	for _, n := range s.Nodes {
		if n.Name == name {
			return slices.IndexFunc(c.nodes, func(o *testbed.NetContainer) bool { return o.Addr.String() == n.Address })
		}
	}
	return -1
}

// second is a window of one second.
type second struct {
	at     time.Time
	bps    float64
	always bool          // promised in all of it
	paused time.Duration // of all processors
}

// seconds returns the windows since a moment, one each step, of which all frames are counted.
func (v *viewers) seconds(since time.Time, step time.Duration) (list []second) {
	v.mu.Lock()
	defer v.mu.Unlock()
	end, next := 0, since
	for i, a := range v.seen {
		if a.at.Before(next) {
			continue
		}
		for end = max(end, i); end < len(v.seen) && v.seen[end].at.Sub(a.at) < time.Second; end++ {
		}
		if end == len(v.seen) || time.Since(v.seen[end].at) < 2*viewPeriod {
			break
		}
		next = a.at.Add(step)
		list = append(list, second{
			at: a.at, always: !slices.ContainsFunc(v.seen[i:end+1], func(x viewed) bool { return !x.promised }), bps: v.frames.bits(a.at),
			paused: v.pauses.Total(a.ns-viewPeriod.Nanoseconds(), v.seen[end].ns) * time.Duration(runtime.NumCPU()),
		})
	}
	return list
}

// keep returns after how long, counted from since, viewers had the minimum, but for a thirtieth, in each second of
// two; kept is false if that takes more than 20 s.
func (v *viewers) keep(since time.Time) (after time.Duration, kept bool) {
	for time.Since(since) < 20*time.Second {
		time.Sleep(100 * time.Millisecond)
		list := v.seconds(since, 0)
		i := len(list)
		for ; i > 0 && list[i-1].bps >= 0.97*cameraMinBPS; i-- {
			after = list[i-1].at.Sub(since)
		}
		if i < len(list) && list[len(list)-1].at.Sub(list[i].at) >= 2*time.Second {
			return after, true
		}
	}
	return time.Since(since), false
}

// mustKeep returns what keep does, and fails if viewers never had the minimum, unless processors stood still in each of the last ten
// seconds.
func (v *viewers) mustKeep(t *testing.T, since time.Time) (after time.Duration) {
	t.Helper()
	after, kept := v.keep(since)
	if kept {
		return after
	}
	last := v.seconds(time.Now().Add(-10*time.Second), time.Second)
	why := fmt.Sprintf("viewers did not have the minimum within %v: %+v", after.Round(time.Second), last)
	if len(last) > 0 && !slices.ContainsFunc(last, func(s second) bool { return s.paused == 0 }) {
		harness.SkipBusy(t, why)
	}
	t.Error(why)
	return after
}

func (c *cluster) setRate(t *testing.T, node int, rate string) {
	t.Helper()
	must.Succeed(t, c.agentDir(c.nodes[node].Addr.String()).WriteConfig(nil, map[string]any{"rate": rate}))
	_, err := c.agents[node].Reload(t.Context())
	must.Succeed(t, err)
}

// entitled are what a node's containers of a name's beginning are entitled to, together.
func (c *cluster) entitled(t *testing.T, node int, name string) (bps uint64) {
	t.Helper()
	list, err := c.agents[node].Containers(t.Context())
	must.Succeed(t, err)
	for i := range list {
		if strings.HasPrefix(list[i].Name, name) {
			bps += list[i].EntitledBPS
		}
	}
	return bps
}

// TestHalved: when the uplink of a service's node is halved, its agent cuts the minimum and leaves the
// reserve to others, weir-edge says that the promise is broken, and the minimum is in force at another
// node, to which users follow. Frames at the users' end measure for how long they had less. WEIR_HALVED=5
// halves five times, and judges for which part of the time users had the promised minimum: a measurement,
// which wants a quiet machine.
func TestHalved(t *testing.T) {
	c := newClusterOf(t, 2)
	c.agentArgs = []string{"--agents", "unix://" + testbed.NodeAgentDir(c.dir, "{address}").Socket()}
	for i, node := range c.nodes {
		agent, err := c.made.StartAgent(t.Context(), i, harness.Program(t), c.dir, map[string]any{"rate": nodeRate})
		must.Succeed(t, err)
		t.Cleanup(func() { must.Succeed(t, agent.End(syscall.SIGTERM, 20*time.Second)) })
		c.agents = append(c.agents, agentclient.Unix(c.agentDir(node.Addr.String()).Socket()))
		t.Cleanup(c.agents[i].Close)
	}
	c.startManager(t)
	document := specification("camera", heavyImage, cameraPort, 50, map[string]string{"weir.min": "24mbit"})
	document["limits"] = map[string]any{"instances": 1}
	must.Succeed(t, c.deploy(t, document))
	c.awaitRunning(t, "camera", 1, 30*time.Second)
	defer c.backups(t)()
	v, end := c.view(t)
	defer end()
	begun := time.Now()
	v.mustKeep(t, begun)
	times, short := 1, []time.Duration{}
	_, _ = fmt.Sscan(os.Getenv("WEIR_HALVED"), &times)
	for range times {
		home, at := c.home(t, "camera"), time.Now()
		c.setRate(t, home, halfRate)
		harness.Await(t, "the minimum is cut and the reserve is there", 10*time.Second, func() error {
			if camera, backup := c.entitled(t, home, "edgeproxy-camera"), c.entitled(t, home, "backup"); camera > halfBudgetBPS || backup < 5e5 {
				return errNot(fmt.Sprintf("%d for the camera, %d for the backup", camera, backup))
			}
			return nil
		})
		harness.Await(t, "the camera is elsewhere", time.Minute, func() error {
			for _, i := range c.ps(t) {
				if i.Service == "camera" && i.State == "running" && c.numberOf(t, i.Node) != home {
					return nil
				}
			}
			return errNot(c.must(t, "events"))
		})
		short = append(short, v.mustKeep(t, at))
		harness.Await(t, "the minimum is in force there", time.Minute, func() error {
			if has := c.guarantees(t, 1-home, "camera"); has < cameraMinBPS {
				return errNot(fmt.Sprintf("%d bit/s", has))
			}
			return nil
		})
		c.setRate(t, home, nodeRate)
		if times > 1 { // and weir-edge has forgotten that it was left: each time is the first
			c.manager.kill()
			c.startManager(t)
			time.Sleep(10 * time.Second)
		}
	}
	if events := c.must(t, "events"); !strings.Contains(events, "its uplink has become too slow") {
		t.Errorf("that the promise is broken is not said:\n%s", events)
	}
	slices.Sort(short)
	t.Logf("less for %v in the median, %v at most", short[len(short)/2], short[len(short)-1])
	if kept := v.kept(t, begun.Add(5*time.Second)); times >= 5 && kept < 0.99 {
		t.Errorf("viewers had 99 %% of the promised minimum for %.1f %% of the time", 100*kept)
	}
}

// kept returns for which part of the time viewers had 99 % of the minimum since a moment, in windows of a second
// that begin every [viewPeriod]: those in all of which weir-edge said that it is in force, and no processor stood
// still; 0 if these are fewer than begin in five seconds.
func (v *viewers) kept(t *testing.T, since time.Time) float64 {
	const leastSteady = float64(5 * time.Second / viewPeriod)
	t.Helper()
	type tally struct{ windows, kept float64 }
	var all, promised, steady tally
	bits := 0.0
	for _, s := range v.seconds(since, viewPeriod) {
		bits += s.bps
		of := []*tally{&all}
		if s.always {
			of = append(of, &promised)
		}
		if s.always && s.paused == 0 {
			of = append(of, &steady)
		}
		for _, one := range of {
			if one.windows++; s.bps >= 0.99*cameraMinBPS {
				one.kept++
			}
		}
		if s.always && s.bps < 0.99*cameraMinBPS {
			t.Logf("%v: %.2f Mbit/s in a promised second; processors stood still for %v", s.at.Sub(since).Round(10*time.Millisecond), s.bps/1e6, s.paused)
		}
	}
	share := func(t tally) string { return fmt.Sprintf("%.2f %% of %.0f", 100*t.kept/t.windows, t.windows) }
	t.Logf("99 %% of the minimum in %s windows; where it was promised in %s, and where no processor stood still in %s", share(all), share(promised), share(steady))
	if bits == 0 {
		t.Error("no frame was counted")
	}
	if steady.windows < leastSteady {
		return 0
	}
	return steady.kept / steady.windows
}
