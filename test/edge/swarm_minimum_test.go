//go:build docker

package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// heavyImage serves pages of 200 kB as fast as the link takes them.
const heavyImage = "example.test/heavy:1"

// nodeRate is that of all nodes' uplinks: 38 Mbit/s of it may be promised.
const nodeRate, nodeBudgetBPS = "40mbit", 38e6

// agentDir is where the agent of the node at an address has its files.
func (c *cluster) agentDir(address string) testbed.AgentDir {
	return testbed.NodeAgentDir(c.dir, address)
}

// startAgents gives every node an agent.
func (c *cluster) startAgents(t *testing.T) {
	t.Helper()
	c.credentials = newCredentials(t, c.dir)
	c.agentArgs = c.credentials.byToken(c.credentials.admin)
	for i, node := range c.nodes {
		settings := c.credentials.settings(t, node)
		settings["rate"] = nodeRate
		agent, err := c.made.StartAgent(t.Context(), i, harness.Program(t), c.dir, settings)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := agent.End(syscall.SIGTERM, 20*time.Second); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("the agent of node %d said:\n%s", i, agent.LastWords())
			}
		})
		c.agents = append(c.agents, agentclient.Unix(c.agentDir(node.Addr.String()).Socket()))
		t.Cleanup(c.agents[i].Close)
	}
}

// testMinimums: what is promised is in force where users come to, beside a backup that
// fills every node's uplink, and goes elsewhere when its node refuses it.
func (c *cluster) testMinimums(t *testing.T) {
	defer c.backups(t)()
	guarded := specification("guarded", heavyImage, 8082, 50, map[string]string{"weir.min": "20mbit"})
	guarded["limits"] = map[string]any{"instances": 1} // also where users wait, as on a machine that is short of processors
	must.Succeed(t, c.deploy(t, guarded))
	c.awaitRunning(t, "guarded", 1, 30*time.Second)
	t.Run("where users come to", c.testWhereUsersCome)
	t.Run("refused by a node", c.testMinimumMoves)
	c.must(t, "rm", "guarded")
	t.Run("of two instances", c.testMinimumOfTwo)
}

// testMinimumOfTwo: two instances on two nodes have their service's minimum once, whether users
// are there or not.
func (c *cluster) testMinimumOfTwo(t *testing.T) {
	pair := specification("pair", heavyImage, 8083, 50, map[string]string{"weir.min": "20mbit"})
	pair["QoS"] = map[string]any{"responseTime": "20", "availability": "99.9"}
	if err := c.deploy(t, pair); err != nil {
		t.Fatal(err)
	}
	defer c.must(t, "rm", "pair")
	found := c.awaitRunning(t, "pair", 2, 30*time.Second)
	first, second := c.numberOf(t, found[0].Node), c.numberOf(t, found[1].Node)
	c.awaitGuarantees(t, "pair", map[int]uint64{first: 10e6, second: 10e6})
	leave := c.readers(t, first, 8083)
	defer leave()
	c.awaitGuarantees(t, "pair", map[int]uint64{first: 20e6})
	c.awaitMinimum(t, first, 20e6)
	harness.Await(t, "weir-edge knows what users wait for", 10*time.Second, func() error {
		explained := c.must(t, "explain", "pair")
		if !strings.Contains(explained, "of the mean for delivery") {
			return errNot(explained)
		}
		t.Logf("weir-edge explain\n%s", explained)
		return nil
	})
}

// backups fill all nodes' uplinks until what is returned is called.
func (c *cluster) backups(t *testing.T) (end func()) {
	t.Helper()
	const port = 9000
	ctx, cancel := context.WithCancel(t.Context())
	var crowds sync.WaitGroup
	for node, engine := range c.engines {
		_, err := engine.Run(t.Context(), testbed.RunOptions{
			Name: "backup", Image: heavyImage, PublishTCP: map[uint16]uint16{port: 80}, Labels: map[string]string{"weir.weight": "1000"},
			Args: []string{"/bin/weir-lab", "traffic", "pages", "--work", "0s", "--workers", "8", "--queue", "8", "--bytes", "50000000"},
		})
		if err != nil {
			t.Fatal(err)
		}
		crowds.Go(func() {
			profile.Crowd{URL: c.url(node, port), Users: 4, Timeout: time.Hour, Dial: c.dial}.Run(ctx)
		})
	}
	return func() {
		t.Helper()
		cancel()
		crowds.Wait()
		for _, engine := range c.engines {
			if err := engine.Remove(context.Background(), "backup"); err != nil {
				t.Error(err)
			}
		}
	}
}

// home is the node of a service's only instance.
func (c *cluster) home(t *testing.T, service string) int {
	t.Helper()
	for _, i := range c.ps(t) {
		if i.Service == service && i.State == "running" {
			return c.numberOf(t, i.Node)
		}
	}
	t.Fatalf("%s does not run:\n%s", service, c.must(t, "ps"))
	return 0
}

// numberOf is that of the node that weir-edge calls by a name.
func (c *cluster) numberOf(t *testing.T, name string) int {
	t.Helper()
	nodes, err := c.client.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Name == name {
			return slices.IndexFunc(c.nodes, func(o *testbed.NetContainer) bool { return o.Addr.String() == n.Address })
		}
	}
	t.Fatalf("there is no node %s", name)
	return 0
}

// guarantees are the minimums of containers of a service that a node's agent has admitted,
// together.
func (c *cluster) guarantees(t *testing.T, node int, service string) (bps uint64) {
	t.Helper()
	list, err := c.agents[node].Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		ours := slices.ContainsFunc(append(one.Groups, one.Name), func(name string) bool {
			return name == "edgeproxy-"+service || strings.HasPrefix(name, "edge-"+service+"-")
		})
		for _, share := range one.Shares {
			if ours {
				bps += share.AdmittedBPS
			}
		}
	}
	return bps
}

// awaitGuarantees waits until the nodes' agents have admitted that much for a service, and
// weir-edge promises just that.
func (c *cluster) awaitGuarantees(t *testing.T, service string, bps map[int]uint64) {
	t.Helper()
	harness.Await(t, fmt.Sprintf("agents guarantee %v bit/s", bps), time.Minute, func() error {
		nodes, err := c.client.Nodes(t.Context())
		if err != nil {
			return err
		}
		for node := range c.nodes {
			promised := uint64(0)
			for _, n := range nodes {
				if n.Address == c.nodes[node].Addr.String() {
					promised = n.PromisedBPS
				}
			}
			if has := c.guarantees(t, node, service); has != bps[node] || promised != has {
				return errNot(fmt.Sprintf("node %d with %d bit/s, of %d promised\n%s", node, has, promised, c.must(t, "events")))
			}
		}
		return nil
	})
}

// awaitMinimum waits until users of a node receive a minimum, and checks that they go on to.
func (c *cluster) awaitMinimum(t *testing.T, node int, minBPS float64) {
	t.Helper()
	checkReceived(t, fmt.Sprintf("users at node %d", node), &c.received[node], 0.97*minBPS, 1.1*minBPS)
}

// checkReceived waits until users receive between two rates over three seconds, in bits of frames at
// the uplink, and then judges the windows of that length that follow: in each they receive the least,
// and in two no more than the most: others that are held up leave them more in the rest.
func checkReceived(t *testing.T, users string, received *atomic.Uint64, leastBPS, mostBPS float64) {
	t.Helper()
	const window, windows, frameBytes, segmentBytes = 3 * time.Second, 4, 1448 + 66, 1448
	bounds := fmt.Sprintf("%s receive from %.2f to %.2f Mbit/s", users, leastBPS/1e6, mostBPS/1e6)
	inFrames := func(bps float64) float64 { return bps * frameBytes / segmentBytes }
	harness.Await(t, bounds, time.Minute, func() error {
		began, before := time.Now(), received.Load()
		time.Sleep(window)
		if bps := inFrames(float64(received.Load()-before) * 8 / time.Since(began).Seconds()); bps < leastBPS || bps > mostBPS {
			return errNot(fmt.Sprintf("%.2f Mbit/s", bps/1e6))
		}
		return nil
	})
	var rates []float64
	for range windows {
		var last float64
		harness.CheckReceived(t, received, window, func(m harness.Measurement) error {
			bps := inFrames(m.BPS[0])
			t.Logf("%s receive %.2f Mbit/s", users, bps/1e6)
			last = bps
			if bps < leastBPS*(1-m.Slack) {
				return fmt.Errorf("%s, and later it is %.2f Mbit/s; CPU: %s", bounds, bps/1e6, m.CPU)
			}
			return nil
		})
		rates = append(rates, last)
	}
	if slices.Sort(rates); rates[1] > mostBPS {
		t.Errorf("%s, and later more in all windows but one: %.0f bit/s", bounds, rates)
	}
}

// readers ask for heavy pages at a node until what is returned is called.
func (c *cluster) readers(t *testing.T, node, port int) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		profile.Crowd{URL: c.url(node, port), Users: 12, Timeout: time.Minute, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := c.dial(ctx, network, address)
			return &traffic.CountedConn{Conn: conn, Bytes: &c.received[node]}, err
		}}.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// testWhereUsersCome: users of a node without an instance have the minimum, which passes
// two uplinks, and nodes without users promise nothing; all that without weir-edge, too.
func (c *cluster) testWhereUsersCome(t *testing.T) {
	home := c.home(t, "guarded")
	other, third := (home+1)%3, (home+2)%3
	c.awaitGuarantees(t, "guarded", map[int]uint64{home: 20e6})
	leave := c.readers(t, other, 8082)
	c.awaitGuarantees(t, "guarded", map[int]uint64{home: 20e6, other: 21.25e6})
	c.awaitMinimum(t, other, 20e6)
	c.awaitSent(t, "guarded", other, home)
	t.Logf("the instance is on %d, users are at %d, nobody is at %d\n%s", home, other, third, c.must(t, "nodes"))
	leave()
	leave = c.readers(t, home, 8082)
	c.awaitGuarantees(t, "guarded", map[int]uint64{home: 20e6})
	c.awaitMinimum(t, home, 20e6)
	c.awaitSent(t, "guarded", home, -1)
	// Without weir-edge everything goes on, and minimums stay in force.
	c.manager.kill()
	c.awaitMinimum(t, home, 20e6)
	if has := c.guarantees(t, home, "guarded"); has != 20e6 {
		t.Errorf("without weir-edge the agent guarantees %d bit/s", has)
	}
	c.startManager(t)
	c.awaitGuarantees(t, "guarded", map[int]uint64{home: 20e6})
	leave()
}

// testRoomElsewhere: of a container of docker run whose minimum its node refuses weir explain and weir events
// name, on a worker, the node that has room, and what moves the container there, until weir-edge is gone.
func (c *cluster) testRoomElsewhere(t *testing.T) {
	const home = 1
	socket := c.agentDir(c.nodes[home].Addr.String()).Socket()
	run := func(name string) {
		_, err := c.engines[home].Run(t.Context(), testbed.RunOptions{Name: name, Image: heavyImage, Labels: map[string]string{"weir.min": "30mbit"}})
		must.Succeed(t, err)
	}
	remove := func(name string) { must.Succeed(t, c.engines[home].Remove(context.Background(), name)) }
	for _, name := range []string{"first", "second"} {
		run(name)
		defer remove(name)
	}
	says := func(args ...string) string {
		out, err := exec.Command(harness.Program(t), append(args, "--socket", socket)...).CombinedOutput()
		return strings.Join(strings.Fields(fmt.Sprintf("%v: %s", err, out)), " ")
	}
	const room, command = "has room for it, 38mbit: ", "--container-label weir.min=30mbit " + heavyImage + ", with"
	explained := func() string { return says("explain", "first") + says("explain", "second") }
	harness.Await(t, "room elsewhere", 30*time.Second, func() error {
		both := explained()
		if strings.Count(both, room) != 1 || strings.Count(both, command) != 1 {
			return errNot(both)
		}
		t.Log(both)
		return nil
	})
	// The event says what weir-edge knew when the minimum was refused.
	harness.Await(t, "room elsewhere, as an event", 30*time.Second, func() error {
		told := says("events")
		if strings.Contains(told, "room elsewhere second: node ") && strings.Contains(told, room) && strings.Contains(told, command) {
			t.Log(told)
			return nil
		}
		remove("second")
		run("second")
		return errNot(told)
	})
	c.manager.kill()
	gone := time.Now()
	harness.Await(t, "what weir-edge said goes with it", v1.RoomSilence+5*time.Second, func() error {
		if both := explained(); strings.Contains(both, room) || !strings.Contains(both, "refused") {
			return errNot(both)
		}
		return nil
	})
	t.Logf("the advice ended %v after weir-edge was killed", time.Since(gone).Round(100*time.Millisecond))
	c.startManager(t)
}

// testMinimumMoves: the node of the instance has promised the minimum, and another node's
// container has it meanwhile. The node's agent refuses it, weir-edge says so, and places
// the instance on a node that has room, where users get the minimum.
func (c *cluster) testMinimumMoves(t *testing.T) {
	home := c.home(t, "guarded")
	agent := c.agents[home]
	c.awaitGuarantees(t, "guarded", map[int]uint64{home: 20e6})
	_, err := c.engines[home].Run(t.Context(), testbed.RunOptions{Name: "greedy", Image: heavyImage, Labels: map[string]string{"weir.min": "30mbit"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.engines[home].Remove(context.Background(), "greedy"); err != nil {
			t.Error(err)
		}
	}()
	greedy := func() (state v1.State, bps uint64) {
		list, err := agent.Containers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			for _, share := range one.Shares {
				if one.Name == "greedy" {
					state, bps = one.State, bps+share.AdmittedBPS
				}
			}
		}
		return state, bps
	}
	harness.Await(t, "the agent refuses somebody else's minimum", 30*time.Second, func() error {
		if state, _ := greedy(); state != v1.StateRejected {
			return errNot(string(state))
		}
		return nil
	})
	// For a moment no instance has it, and the waiting one gets it then.
	none := "none"
	if _, err := agent.Set(t.Context(), "edgeproxy-guarded", v1.PolicyChange{Min: &none}); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "somebody else has it", 10*time.Second, func() error {
		if _, bps := greedy(); bps != 30e6 {
			return errNot(fmt.Sprint(bps))
		}
		return nil
	})
	took := time.Now()
	harness.Await(t, "the instance is elsewhere", time.Minute, func() error {
		for _, i := range c.ps(t) {
			if i.Service == "guarded" && (i.State != "running" || c.numberOf(t, i.Node) == home) {
				return errNot(c.must(t, "ps") + c.must(t, "events"))
			}
		}
		return nil
	})
	t.Logf("it answers elsewhere, and there no more, after %v", time.Since(took).Round(100*time.Millisecond))
	now := c.home(t, "guarded")
	defer c.readers(t, now, 8082)()
	c.awaitGuarantees(t, "guarded", map[int]uint64{now: 20e6})
	c.awaitMinimum(t, now, 20e6)
	for command, words := range map[string][]string{
		"events":          {"refuses the minimum 20mbit of guarded", "does not keep its part of the minimum 20mbit of guarded"},
		"explain guarded": {"refuses the minimum 20mbit of guarded", "does not keep its part of the minimum 20mbit of guarded"},
	} {
		out := c.must(t, strings.Fields(command)...)
		t.Logf("weir-edge %s\n%s", command, out)
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("%s: %q is not said", command, word)
			}
		}
	}
}

// testTwoAtOnce: two weir-edge never promise more than a node has, and all of it. A node
// has room for one minimum of 30 Mbit/s, and there are more services than nodes.
func (c *cluster) testTwoAtOnce(t *testing.T) {
	socket := filepath.Join(c.dir, "edge2.sock")
	second := c.launchManager(t, socket, filepath.Join(c.dir, "state2"), c.credentials.byToken(c.credentials.admin)...)
	defer second.kill()
	harness.Await(t, "the second answers", 20*time.Second, func() error {
		_, err := os.Stat(socket)
		return err
	})
	const services = 4
	failed := make(chan error, services)
	for i := range services {
		go func() {
			failed <- c.deploy(t, specification(fmt.Sprintf("two%d", i), pagesImage, 8110+i, 10, map[string]string{"weir.min": "30mbit"}))
		}()
	}
	var errs []error
	for range services {
		errs = append(errs, <-failed)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	promised := func() (nodes int) {
		sums, counted := map[string]uint64{}, map[[2]string]bool{}
		for _, i := range c.ps(t) {
			// Once for each service: an instance that ends and the one in its place have one proxy there.
			if at := [2]string{i.Node, i.Service}; !counted[at] {
				counted[at] = true
				sums[i.Node] += i.MinBPS
			}
		}
		for node, bps := range sums {
			if bps > nodeBudgetBPS {
				t.Fatalf("%s has promised %d bit/s:\n%s", node, bps, c.must(t, "ps"))
			}
			if bps == 30e6 {
				nodes++
			}
		}
		return nodes
	}
	harness.Await(t, "all nodes have promised what they can, and their agents guarantee it", time.Minute, func() error {
		nodes, running := promised(), 0
		for _, i := range c.ps(t) {
			if strings.HasPrefix(i.Service, "two") && i.State == "running" {
				running++
			}
		}
		if nodes < len(c.nodes) || running < len(c.nodes) {
			return errNot(c.must(t, "ps") + c.must(t, "events"))
		}
		for node := range c.nodes {
			has := uint64(0)
			for i := range services {
				has += c.guarantees(t, node, fmt.Sprintf("two%d", i))
			}
			if has != 30e6 {
				return errNot(fmt.Sprintf("node %d with %d bit/s\n%s", node, has, c.must(t, "events")))
			}
		}
		return nil
	})
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if promised() != len(c.nodes) {
			t.Fatalf("another is promised:\n%s", c.must(t, "ps"))
		}
	}
	t.Logf("weir-edge ps\n%s", c.must(t, "ps"))
	for i := range services {
		c.must(t, "rm", fmt.Sprintf("two%d", i))
	}
	harness.Await(t, "nothing is promised", 30*time.Second, func() error {
		if slices.ContainsFunc(c.ps(t), func(i edge.Instance) bool { return i.MinBPS > 0 }) {
			return errNot(c.must(t, "ps"))
		}
		return nil
	})
}
