//go:build docker

package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestSwarmLeaderGoes: of three managers the leader is cut off the network. weir-edge is at another
// one: users of the other nodes get their page, and once a leader is elected services start again.
func TestSwarmLeaderGoes(t *testing.T) {
	c := newCluster(t)
	leader := c.engine
	for _, engine := range c.engines[1:] {
		info, err := engine.API().Info(t.Context(), client.InfoOptions{})
		must.Succeed(t, err)
		node, err := leader.API().NodeInspect(t.Context(), info.Info.Swarm.NodeID, client.NodeInspectOptions{})
		must.Succeed(t, err)
		spec := node.Node.Spec
		spec.Role = swarm.NodeRoleManager
		_, err = leader.API().NodeUpdate(t.Context(), node.Node.ID, client.NodeUpdateOptions{Version: node.Node.Version, Spec: spec})
		must.Succeed(t, err)
	}
	c.engine = c.engines[1]
	harness.Await(t, "there are three managers", 30*time.Second, func() error {
		reachable, _, err := c.managers(t)
		if err == nil && reachable != 3 {
			err = fmt.Errorf("%d are reachable", reachable)
		}
		return err
	})
	c.startManager(t)
	document := specification("shop", pagesImage, 8080, 10, nil)
	document["QoS"] = map[string]any{"responseTime": 2, "numUsers": 30, "availability": 99.9}
	must.Succeed(t, c.deploy(t, document))
	c.awaitRunning(t, "shop", 3, 30*time.Second)
	answers := func(port int, nodes ...int) func() error {
		return func() error {
			for _, node := range nodes {
				if err := c.get(node, port); err != nil {
					return err
				}
			}
			return nil
		}
	}
	harness.Await(t, "users get an answer at each node", 15*time.Second, answers(8080, 0, 1, 2))

	link := func(state string) {
		t.Helper()
		out, err := c.host.Command(t.Context(), "ip", "link", "set", c.nodes[0].HostInterface, state).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	link("down")
	leave := c.crowdAt(1, 8080, 2)
	took := harness.Await(t, "another manager leads", time.Minute, func() error {
		_, leads, err := c.managers(t)
		if err == nil && (leads == "" || leads == c.nodes[0].Addr.String()) {
			err = fmt.Errorf("%q leads", leads)
		}
		return err
	})
	t.Logf("another manager leads %v after the cut", took.Round(100*time.Millisecond))
	must.Succeed(t, c.deploy(t, specification("news", pagesImage, 8081, 10, nil)))
	took = harness.Await(t, "a new service answers", 30*time.Second, answers(8081, 1, 2))
	t.Logf("a new service answers %v later", took.Round(100*time.Millisecond))
	got := leave()
	t.Logf("users meanwhile: %+v\nps\n%s\nnodes\n%s", got, c.must(t, "ps"), c.must(t, "nodes"))
	if got.Requests == 0 || got.Failed > got.Requests/20 {
		t.Errorf("%d of %d requests failed: %v", got.Failed, got.Requests, got.LastError)
	}

	link("up")
	harness.Await(t, "the node is back", time.Minute, func() error {
		nodes, err := c.client.Nodes(t.Context())
		for _, n := range nodes {
			if n.State != "ready" {
				return errNot(n.Reason)
			}
		}
		return err
	})
	harness.Await(t, "users get an answer at each node again", 30*time.Second, answers(8080, 0, 1, 2))
}

// managers returns how many managers are reachable, and the address of the one that leads.
func (c *cluster) managers(t *testing.T) (reachable int, leads string, err error) {
	list, err := c.engine.API().NodeList(t.Context(), client.NodeListOptions{})
	if err != nil {
		return 0, "", err
	}
	for _, n := range list.Items {
		if n.ManagerStatus == nil {
			continue
		}
		if n.ManagerStatus.Reachability == swarm.ReachabilityReachable {
			reachable++
		}
		if n.ManagerStatus.Leader {
			leads = n.Status.Addr
		}
	}
	return reachable, leads, nil
}
