//go:build docker

package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"

	"github.com/moby/moby/client"

	v1 "github.com/weir-project/weir/api/v1"
	agentclient "github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// cluster is a swarm of three engines on one network, with users on it.
type cluster struct {
	site
	made  *testbed.Cluster
	host  *testbed.Host
	nodes []*testbed.NetContainer
	// agents are those of the nodes; none if they have none. weir-edge asks them with
	// credentials, as agentArgs tell it.
	agents      []*agentclient.Client
	credentials *credentials
	agentArgs   []string
	// received is what readers of nodes have received, in bytes.
	received [3]atomic.Uint64
}

func newCluster(t *testing.T) *cluster { return newClusterOf(t, 3) }

func newClusterOf(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{}
	c.t = t
	dir, err := testbed.MakeTempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.dir = dir
	c.client = server.NewClient(c.socket())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	made, err := testbed.NewCluster(ctx, nodes, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	c.made, c.host, c.nodes, c.engines, c.engine = made, made.Host, made.Nodes, made.Engines, made.Engines[0]
	c.images(ctx, t, made)
	return c
}

// images gives all nodes the same images, under the same IDs.
func (c *cluster) images(ctx context.Context, t *testing.T, made *testbed.Cluster) {
	t.Helper()
	c.importPages(t, pagesImage, "--work", "20ms", "--workers", "4", "--queue", "8", "--bytes", "2000")
	c.importPages(t, heavyImage, "--work", "0s", "--workers", "64", "--queue", "64", "--bytes", "200000")
	for _, image := range []string{pagesImage, heavyImage} {
		if err := made.Distribute(ctx, image); err != nil {
			t.Fatal(err)
		}
	}
	archive, _, err := proxy.Archive()
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range c.engines {
		if err := engine.Load(ctx, bytes.NewReader(archive)); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) startManager(t *testing.T) {
	t.Helper()
	c.manager = c.launchManager(t, c.socket(), filepath.Join(c.dir, "state"), c.agentArgs...)
	harness.Await(t, "weir-edge knows all nodes", 20*time.Second, func() error {
		nodes, err := c.client.Nodes(t.Context())
		if err == nil && (len(nodes) != len(c.nodes) || slices.ContainsFunc(nodes, func(n edge.Node) bool { return n.Weir != (len(c.agents) > 0) })) {
			err = fmt.Errorf("it knows %+v", nodes)
		}
		return err
	})
}

func (c *cluster) launchManager(t *testing.T, socket, dir string, more ...string) *manager {
	t.Helper()
	m := &manager{trace: fmt.Sprintf("%s-%d.jsonl", dir, time.Now().UnixNano())}
	args := append([]string{"run", "--docker", c.engine.Socket(), "--socket", socket, "--state-dir", dir, "--record", m.trace}, more...)
	m.cmd = c.engine.Command(os.Getenv(programVariable), args...)
	m.cmd.Env = append(m.cmd.Environ(), "DOCKER_CONFIG="+c.dir)
	return c.begin(t, m, c.engines...)
}

// dial connects from the host that the nodes' network is on.
func (c *cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialFrom(ctx, c.host.NetNSPath(), 2*time.Second, network, address)
}

func (c *cluster) url(node, port int) string {
	return fmt.Sprintf("http://%s/", net.JoinHostPort(c.nodes[node].Addr.String(), fmt.Sprint(port)))
}

func (c *cluster) get(node, port int) error { return get(c.url(node, port), c.dial) }

// takePort takes the first of the ports that engines choose from, at IPv4 addresses only, as
// any connection of a node does. From then on Docker before 27 publishes a port at two
// numbers, one for each family. Docker 20.10 chooses from 49153 on, others from where the
// kernel does.
func (c *cluster) takePort(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\t")
	for _, node := range c.nodes {
		err := testbed.InNetNS(node.NetNSPath(), func() error {
			for _, port := range []string{first, "49153"} {
				taken, err := net.Listen("tcp4", ":"+port)
				if err == nil {
					t.Cleanup(func() { taken.Close() })
				} else if !errors.Is(err, syscall.EADDRINUSE) { // then it is taken
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// newNodes is a swarm whose nodes all have agents, which weir-edge asks over TLS.
func newNodes(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.takePort(t)
	c.startAgents(t)
	c.startManager(t)
	return c
}

// runShop deploys the service that users of all nodes have.
func (c *cluster) runShop(t *testing.T) {
	t.Helper()
	must.Succeed(t, c.deploy(t, specification("shop", pagesImage, 8080, 10, nil)))
	began := time.Now()
	c.awaitRunning(t, "shop", 1, 30*time.Second)
	t.Logf("answers %v after the deployment", time.Since(began).Round(10*time.Millisecond))
	for node := range c.nodes {
		harness.Await(t, fmt.Sprintf("users get an answer at node %d", node), 15*time.Second, func() error { return c.get(node, 8080) })
	}
}

// TestSwarm: a crowd comes and replicas start; what ends answers again soon; a node dies, and its service
// answers elsewhere. It is timed, so no other test runs beside it.
func TestSwarm(t *testing.T) {
	c := newNodes(t)
	c.runShop(t)
	t.Run("all nodes in one object", c.testMonitored)
	t.Run("a crowd comes", c.testCrowd)
	t.Run("nobody commands proxies who has no key", func(t *testing.T) { c.obeysOnlyKey(t, "shop") })
	t.Run("killed and started", c.testKilled)
	t.Run("ended and restarted", c.testEnds)
	t.Run("a node dies", c.testNodeDies)
	c.stoppedOnce(t)
	c.must(t, "rm", "shop")
	harness.Await(t, "nothing is left", 30*time.Second, func() error {
		left, err := c.engine.API().ServiceList(t.Context(), client.ServiceListOptions{})
		if err != nil || len(left.Items) == 0 {
			return err
		}
		return errNot(fmt.Sprint(len(left.Items), " Swarm services"))
	})
}

// TestSwarmMinimums: minimums are kept where users come to, and two weir-edge promise them together. What users
// receive is measured on three uplinks, so no other test runs beside it.
func TestSwarmMinimums(t *testing.T) {
	c := newNodes(t)
	t.Run("minimums", c.testMinimums)
	t.Run("two at once", c.testTwoAtOnce)
	c.stoppedOnce(t)
}

// TestSwarmAgents: whom agents let promise, and what weir-edge does and says of containers and services that are
// not its own.
func TestSwarmAgents(t *testing.T) {
	t.Parallel()
	c := newNodes(t)
	c.runShop(t)
	t.Run("access to agents", c.testAccess)
	t.Run("room elsewhere", c.testRoomElsewhere)
	t.Run("managed services", c.testManaged)
	c.stoppedOnce(t)
}

// testMonitored: weir-edge nodes -o picasso has what each node's agent says, and its proxy and instances among
// the containers.
func (c *cluster) testMonitored(t *testing.T) {
	harness.Await(t, "all nodes in one object", 20*time.Second, func() error {
		var all edge.Monitored
		must.Succeed(t, json.Unmarshal([]byte(c.must(t, "nodes", "-o", "picasso")), &all))
		for i, agent := range c.agents {
			own, err := agent.Node(t.Context())
			must.Succeed(t, err)
			at := slices.IndexFunc(all.Nodes, func(n v1.Node) bool { return n.PiIP == c.nodes[i].Addr.String() })
			if at < 0 || len(all.Nodes) != len(c.agents) {
				return errNot(fmt.Sprintf("node %d in %+v", i, all.Nodes))
			}
			said := all.Nodes[at]
			if said.PiID == "" || said.PiID != own.PiID || said.HardResources != own.HardResources || said.SoftResources != own.SoftResources {
				t.Fatalf("%+v, and its agent says %+v", said, own)
			}
			names := func(n v1.Node) (list []string) {
				for _, one := range n.Containers {
					list = append(list, one.Name+" "+one.ID+" "+one.Image)
				}
				return list
			}
			is, want := names(said), names(own)
			if !slices.Equal(is, want) || !slices.ContainsFunc(is, func(one string) bool { return strings.HasPrefix(one, "/edgeproxy-shop") }) {
				return errNot(fmt.Sprintf("%q, and its agent has %q", is, want))
			}
			for _, one := range said.Containers {
				if one.MemUsage == "" || one.CPUUsage == "" {
					return errNot(fmt.Sprintf("%+v", one))
				}
			}
		}
		return nil
	})
}

func (c *cluster) testCrowd(t *testing.T) {
	leave := c.crowdAt(1, 8080, 18)
	began := time.Now()
	harness.Await(t, "another instance answers", 30*time.Second, func() error {
		running := 0
		for _, i := range c.ps(t) {
			if i.State == "running" {
				running++
			}
		}
		if running < 2 {
			return errNot(c.must(t, "ps"))
		}
		return nil
	})
	t.Logf("another instance answers after %v", time.Since(began).Round(10*time.Millisecond))
	time.Sleep(2 * time.Second)
	t.Logf("weir-edge ps\n%s\nexplain\n%s\nnodes\n%s", c.must(t, "ps"), c.must(t, "explain", "shop"), c.must(t, "nodes"))
	got := leave()
	t.Logf("the crowd: %+v, %.2f %% good", got, got.SuccessPercent())
	if got.Requests == 0 || got.Failed > got.Requests/100 {
		t.Errorf("%d of %d requests failed: %v", got.Failed, got.Requests, got.LastError)
	}
}

func (c *cluster) testKilled(t *testing.T) {
	before := len(c.ps(t))
	c.manager.kill()
	if err := c.get(2, 8080); err != nil {
		t.Errorf("without weir-edge: %v", err)
	}
	c.startManager(t)
	c.awaitRunning(t, "shop", before, 20*time.Second)
}

// testEnds: an instance that ends answers again soon, to users at each node.
func (c *cluster) testEnds(t *testing.T) {
	if err := c.deploy(t, specification("ends", pagesImage, 8083, 10, nil)); err != nil {
		t.Fatal(err)
	}
	defer c.must(t, "rm", "ends")
	c.restarts(t, 3*time.Second, func() (err error) {
		for node := range c.nodes {
			err = errors.Join(err, c.get(node, 8083))
		}
		return err
	})
}

// testNodeDies cuts a worker with an instance off the network, as a power cut would.
// There must always be three instances, on two nodes at least; so others start, and in
// the meantime users of the other nodes get answers from the rest.
func (c *cluster) testNodeDies(t *testing.T) {
	document := specification("solid", pagesImage, 8081, 10, nil)
	document["QoS"] = map[string]any{"responseTime": 2, "numUsers": 30, "availability": 99.9}
	if err := c.deploy(t, document); err != nil {
		t.Fatal(err)
	}
	instances := c.awaitRunning(t, "solid", 3, 30*time.Second)
	nodes, err := c.client.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	victim, dead := -1, ""
	for i := 1; i < len(c.nodes); i++ {
		for _, n := range nodes {
			if n.Address == c.nodes[i].Addr.String() && slices.ContainsFunc(instances, func(x edge.Instance) bool { return x.Node == n.Name }) {
				victim, dead = i, n.Name
			}
		}
	}
	if victim < 0 {
		t.Fatalf("no instance is on a worker: %+v", instances)
	}
	alive := 3 - victim
	cut := c.host.Command(t.Context(), "ip", "link", "set", c.nodes[victim].HostInterface, "down")
	if out, err := cut.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	leave := c.crowdAt(alive, 8081, 4)
	// 8 s is the aim, on a machine with nothing else to do.
	took := harness.Await(t, "three instances answer elsewhere", 16*time.Second, func() error {
		running := 0
		for _, i := range c.ps(t) {
			if i.Service == "solid" && i.Node != dead && i.State == "running" {
				running++
			}
		}
		if running < 3 {
			return errNot(c.must(t, "ps"))
		}
		return nil
	})
	got := leave()
	t.Logf("three answer elsewhere %v after the cut; meanwhile %+v\nps\n%s\nnodes\n%s\nevents\n%s", took.Round(100*time.Millisecond), got, c.must(t, "ps"), c.must(t, "nodes"), c.must(t, "events"))
	if got.Requests == 0 || got.Failed > got.Requests/20 {
		t.Errorf("%d of %d requests failed: %v", got.Failed, got.Requests, got.LastError)
	}
	back := c.host.Command(t.Context(), "ip", "link", "set", c.nodes[victim].HostInterface, "up")
	if out, err := back.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	harness.Await(t, "the node is back", 30*time.Second, func() error {
		nodes, err := c.client.Nodes(t.Context())
		for _, n := range nodes {
			if n.State != "ready" {
				return errNot(n.Reason)
			}
		}
		return err
	})
	c.must(t, "rm", "solid")
	harness.Await(t, "what was replaced has ended", 30*time.Second, func() error {
		if slices.ContainsFunc(c.ps(t), func(i edge.Instance) bool { return i.State != "running" || i.Service != "shop" }) {
			return errNot(c.must(t, "ps"))
		}
		return nil
	})
}

// stoppedOnce: that an instance has ended is said once for each of its lives.
func (c *cluster) stoppedOnce(t *testing.T) {
	t.Helper()
	ended := map[string]bool{}
	err := c.client.Events(t.Context(), false, func(e edge.Event) error {
		switch {
		case e.Kind == edge.EventStopped && ended[e.Instance]:
			t.Errorf("%s has ended twice\n%s", e.Instance, c.must(t, "events"))
		case e.Kind == edge.EventStopped:
			ended[e.Instance] = true
		case e.Kind == edge.EventDecision && e.Decision != nil && e.Decision.Action != string(engine.Stop):
			ended[e.Instance] = false
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// crowdAt lets users come to a node until what is returned is called.
func (c *cluster) crowdAt(node, port, users int) (leave func() profile.Answers) {
	ctx, cancel := context.WithCancel(context.Background())
	answers := make(chan profile.Answers, 1)
	go func() {
		answers <- profile.Crowd{URL: c.url(node, port), Users: users, Timeout: 5 * time.Second, Dial: c.dial}.Run(ctx)
	}()
	return func() profile.Answers {
		cancel()
		return <-answers
	}
}
