//go:build docker

package edge

import (
	"context"
	"fmt"
	"io"

	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// frontConfig balances requests over what Swarm's name server says, as its manual has it for services
// with the endpoint mode dnsrr.
const frontConfig = `defaults
  mode http
  timeout connect 2s
  timeout client 10s
  timeout server 10s
resolvers swarm
  nameserver dns 127.0.0.11:53
  hold valid 1s
frontend users
  bind :80
  default_backend plain
backend plain
  balance roundrobin
  server-template plain 3 tasks.plain:80 resolvers swarm init-addr none check inter 200ms
`

// TestServedLocally: with an instance on each of three nodes, weir-edge's proxies serve users on the node
// they came to, and less than half of the bytes pass between nodes that do with Swarm's dnsrr and the same
// HAProxy, in the same run.
func TestServedLocally(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.countBetween(t)
	bySwarm := c.servedBySwarm(t)
	c.startManager(t)
	document := specification("near", pagesImage, 8080, 10, nil)
	document["QoS"] = map[string]any{"responseTime": "2", "availability": "99.999"}
	must.Succeed(t, c.deploy(t, document))
	c.awaitRunning(t, "near", len(c.nodes), time.Minute)
	byWeir := c.serve(t, 8080)
	t.Logf("Swarm, dnsrr: %v; weir-edge: %v", bySwarm, byWeir)
	if byWeir.local < byWeir.requests*95/100 || byWeir.failed > 0 {
		t.Errorf("weir-edge serves %v", byWeir)
	}
	if byWeir.perRequest() > bySwarm.perRequest()/2 {
		t.Errorf("%.0f bytes a request pass between nodes, beside %.0f of Swarm", byWeir.perRequest(), bySwarm.perRequest())
	}
	c.must(t, "rm", "near")
}

// served is what users of all nodes got.
type served struct {
	requests, local, failed int
	// between is how many bytes passed between nodes meanwhile.
	between uint64
}

func (s served) perRequest() float64 { return float64(s.between) / float64(max(1, s.requests)) }

func (s served) String() string {
	return fmt.Sprintf("%d requests, %d failed, %.1f %% served on the node they came to, %.0f bytes a request between nodes",
		s.requests, s.failed, 100*float64(s.local)/float64(max(1, s.requests)), s.perRequest())
}

// countBetween has each node count what it sends to the others.
func (c *cluster) countBetween(t *testing.T) {
	t.Helper()
	for i, engine := range c.engines {
		for j, other := range c.nodes {
			if i != j {
				out, err := engine.Command("iptables", "-w", "-t", "mangle", "-A", "POSTROUTING", "-d", other.Addr.String()).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		}
	}
}

// betweenBytes is what nodes have sent to others.
func (c *cluster) betweenBytes(t *testing.T) (sum uint64) {
	t.Helper()
	for _, engine := range c.engines {
		out, err := engine.Command("iptables", "-w", "-t", "mangle", "-L", "POSTROUTING", "-nvx").Output()
		must.Succeed(t, err)
		for line := range strings.Lines(string(out)) {
			var packets, bytes uint64
			if _, err := fmt.Sscan(line, &packets, &bytes); err == nil {
				sum += bytes
			}
		}
	}
	return sum
}

// serve lets four users ask at each node for some seconds.
func (c *cluster) serve(t *testing.T, port int) (all served) {
	t.Helper()
	homes := map[string]int{} // by what instances call themselves
	for node, engine := range c.engines {
		listed, err := engine.API().ContainerList(t.Context(), client.ContainerListOptions{})
		must.Succeed(t, err)
		for _, one := range listed.Items {
			homes[one.ID[:12]] = node
		}
		harness.Await(t, fmt.Sprintf("node %d answers", node), 30*time.Second, func() error { return c.get(node, port) })
	}
	time.Sleep(2 * time.Second) // the last instance is known everywhere
	// Not a deadline: a connection made under one may fail before the context says that it has ended.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer time.AfterFunc(8*time.Second, cancel).Stop()
	var users sync.WaitGroup
	var mu sync.Mutex
	before := c.betweenBytes(t)
	for node := range c.nodes {
		for range 4 {
			users.Go(func() {
				transport := &http.Transport{DialContext: c.dial}
				defer transport.CloseIdleConnections()
				for ctx.Err() == nil {
					by, err := askWho(ctx, transport, c.url(node, port))
					mu.Lock()
					home, known := homes[by]
					switch {
					case ctx.Err() != nil:
					case err != nil || !known:
						all.failed++
						t.Logf("%v: %q", err, by)
					case home == node:
						all.local++
						fallthrough
					default:
						all.requests++
					}
					mu.Unlock()
				}
			})
		}
	}
	users.Wait()
	all.between = c.betweenBytes(t) - before
	return all
}

// askWho asks once and returns which instance answered.
func askWho(ctx context.Context, transport http.RoundTripper, url string) (by string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the answer is %s", response.Status)
	}
	return response.Header.Get(traffic.ServedBy), nil
}

// servedBySwarm runs the service as Swarm does, with an HAProxy on each node in front.
func (c *cluster) servedBySwarm(t *testing.T) served {
	t.Helper()
	ctx := t.Context()
	api := c.engine.API()
	id, err := c.engine.CreateNetwork(ctx, testbed.NetworkOptions{Name: "lan", Driver: "overlay", Attachable: true})
	must.Succeed(t, err)
	image, err := api.ImageInspect(ctx, pagesImage)
	must.Succeed(t, err)
	replicas := uint64(len(c.nodes))
	created, err := api.ServiceCreate(ctx, client.ServiceCreateOptions{Spec: swarm.ServiceSpec{
		Annotations: swarm.Annotations{Name: "plain"},
		Mode:        swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &replicas}},
		TaskTemplate: swarm.TaskSpec{
			ContainerSpec: &swarm.ContainerSpec{Image: image.ID}, Networks: []swarm.NetworkAttachmentConfig{{Target: id}},
			Placement: &swarm.Placement{MaxReplicas: 1},
		},
		EndpointSpec: &swarm.EndpointSpec{Mode: swarm.ResolutionModeDNSRR},
	}})
	must.Succeed(t, err)
	config := filepath.Join(c.dir, "front.cfg")
	must.Succeed(t, os.WriteFile(config, []byte(frontConfig), 0o600))
	var fronts []*testbed.Process
	for _, engine := range c.engines {
		front, err := engine.Run(ctx, testbed.RunOptions{Name: "front", Image: pagesImage, Network: "lan", Args: []string{"/bin/busybox", "sleep", "3600"}, PublishTCP: map[uint16]uint16{8090: 80}})
		must.Succeed(t, err)
		p, err := testbed.StartProcess("haproxy", engine.Command("nsenter", "--net="+front.NetNSPath(), "haproxy", "-db", "-f", config))
		must.Succeed(t, err)
		t.Cleanup(func() { _ = p.End(syscall.SIGKILL, 10*time.Second) })
		fronts = append(fronts, p)
	}
	harness.Await(t, "all tasks run", time.Minute, func() error {
		tasks, err := api.TaskList(ctx, client.TaskListOptions{})
		running := slices.DeleteFunc(tasks.Items, func(one swarm.Task) bool { return one.Status.State != swarm.TaskStateRunning })
		if err == nil && len(running) < len(c.nodes) {
			err = errNot(fmt.Sprint(len(running)))
		}
		return err
	})
	got := c.serve(t, 8090)
	for i, engine := range c.engines {
		_ = fronts[i].End(syscall.SIGTERM, 10*time.Second)
		must.Succeed(t, engine.Remove(context.Background(), "front"))
	}
	_, err = api.ServiceRemove(ctx, created.ID, client.ServiceRemoveOptions{})
	must.Succeed(t, err)
	harness.Await(t, "the network is removed", 30*time.Second, func() error { return c.engine.RemoveNetwork(context.Background(), id) })
	return got
}
