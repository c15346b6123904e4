package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"
	"github.com/prometheus/procfs"

	"github.com/weir-project/weir/internal/edge/profile"
	edgeruntime "github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/policy"
)

// Who places and protects the service.
const (
	placedBySwarm = "Swarm, spread"
	placedByWeir  = "Weir"
)

// The competition: on every node a backup fills the uplink with picassoBulkFlows
// connections, and picassoShopUsers users ask for pages of each.
const (
	picassoBulkFlows = 8
	picassoShopUsers = 10
	picassoShopBytes = 20_000
	// picassoShopPart is which part of the uplink the service's minimum is.
	picassoShopPart = 0.4
	shopPort        = 8080
	bulkPort        = 9000
	picassoWarmUp   = 3 * time.Second
	// picassoLead is what is not counted of a run, at its begin and at its end.
	picassoLead = 300 * time.Millisecond
)

// PicassoCompetitor is what the service's users got.
type PicassoCompetitor struct {
	PlacedBy     string  `json:"placed_by"`
	MeanMS       float64 `json:"mean_ms"`
	P95MS        float64 `json:"p95_ms"`
	RequestsPerS float64 `json:"requests_per_s"`
	// PayloadBPS is what users received.
	PayloadBPS float64 `json:"payload_bps"`
	// UplinkBPS is what all nodes sent together, with the backups.
	UplinkBPS float64 `json:"uplink_bps"`
	Requests  int     `json:"requests"`
	Failed    int     `json:"failed"`
}

// PicassoMinimumKept is what users of one node got of what the service is promised there.
type PicassoMinimumKept struct {
	Node string `json:"node"`
	// PromisedBPS and GotBPS count frames at the uplink; GotBPS is what users got, with
	// the headers of its packets.
	PromisedBPS float64 `json:"promised_bps"`
	GotBPS      float64 `json:"got_bps"`
}

// competition measures the service with Swarm's placement and a queue as interfaces have
// it, and then with Weir's on the same nodes.
func (b *picassoBed) competition(ctx context.Context) (err error) {
	// Uplinks are what is short here.
	if err := b.capCPUs(0); err != nil {
		return err
	}
	b.found.CompetitionLinkBPS = b.options.CompetitionLinkBPS
	for node := range b.cluster.Nodes {
		if err := b.limitLink(ctx, node, b.options.CompetitionLinkBPS); err != nil {
			return err
		}
	}
	shop := picassoServer{name: "shop", command: []string{
		"/bin/weir", "traffic", "pages", "--workers", "64", "--work", "1ms", "--queue", "400", "--bytes", strconv.Itoa(picassoShopBytes),
	}}
	bulk := picassoServer{name: "backup", command: []string{
		"/bin/weir", "traffic", "pages", "--workers", "64", "--work", "0s", "--queue", "64", "--bytes", "50000000",
	}}
	for _, s := range []picassoServer{shop, bulk} {
		if err := b.cluster.Engines[0].ImportService(ctx, s.image(), map[string]string{"/bin/weir": b.options.WeirBinary}, s.command); err != nil {
			return err
		}
		if err := b.cluster.Distribute(ctx, s.image()); err != nil {
			return err
		}
	}
	leave, err := b.backups(ctx, bulk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	if err := b.bySwarm(ctx, shop); err != nil {
		return err
	}
	return b.byWeir(ctx, shop)
}

// backups begin on all nodes, and end when what is returned is called.
func (b *picassoBed) backups(ctx context.Context, bulk picassoServer) (leave func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var crowds sync.WaitGroup
	leave = func() error {
		cancel()
		crowds.Wait()
		var errs []error
		for node := range b.cluster.Nodes {
			errs = append(errs, b.cluster.Engines[node].Remove(context.WithoutCancel(ctx), bulk.name))
		}
		return errors.Join(errs...)
	}
	for node := range b.cluster.Nodes {
		_, err := b.cluster.Engines[node].Run(ctx, testbed.RunOptions{
			Name: bulk.name, Image: bulk.image(), Args: bulk.command, PublishTCP: map[uint16]uint16{bulkPort: 80},
			// Nobody reads it but Weir: without a minimum the service would have a tenth.
			Labels: map[string]string{"weir.weight": "1000"},
		})
		if err != nil {
			return nil, errors.Join(err, leave())
		}
		crowds.Go(func() {
			profile.Crowd{URL: b.url(node, bulkPort), Users: picassoBulkFlows, Timeout: time.Hour, Dial: b.dial}.Run(ctx)
		})
	}
	return leave, nil
}

// shopSeen is what users of all nodes got.
func (b *picassoBed) shopSeen(ctx context.Context, placedBy string) error {
	fmt.Fprintf(b.options.Progress, "competition, %s\n", placedBy)
	nodes := len(b.cluster.Nodes)
	answers, received := make([]profile.Answers, nodes), make([]atomic.Uint64, nodes)
	run := func(duration time.Duration) *sync.WaitGroup {
		var crowds sync.WaitGroup
		for node := range nodes {
			crowd := b.crowd(node, shopPort, picassoShopUsers)
			crowd.Fresh, crowd.For = false, duration
			crowd.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				return b.dialCounting(ctx, network, address, &received[node])
			}
			crowds.Go(func() { answers[node] = crowd.Run(ctx) })
		}
		return &crowds
	}
	run(picassoWarmUp).Wait()
	crowds := run(b.options.Duration)
	time.Sleep(picassoLead)
	// All are there from here on, and until the last request begins.
	began, before := time.Now(), make([]uint64, nodes)
	for node := range nodes {
		before[node] = received[node].Load()
	}
	sentBefore, err := b.sentBytes(ctx)
	if err != nil {
		return err
	}
	time.Sleep(b.options.Duration - 2*picassoLead)
	c := PicassoCompetitor{PlacedBy: placedBy}
	for node := range nodes {
		bps := float64(received[node].Load()-before[node]) * 8 / time.Since(began).Seconds()
		c.PayloadBPS += bps
		if placedBy == placedByWeir {
			b.found.Minimums = append(b.found.Minimums, PicassoMinimumKept{
				Node: fmt.Sprint("node", node), PromisedBPS: b.shopMinBPS(), GotBPS: framesBPS(bps),
			})
		}
	}
	sentAfter, err := b.sentBytes(ctx)
	if err != nil {
		return err
	}
	c.UplinkBPS = float64(sentAfter-sentBefore) * 8 / time.Since(began).Seconds()
	crowds.Wait()
	sum := time.Duration(0)
	for _, a := range answers {
		good := a.Requests - a.Failed
		c.Requests += a.Requests
		c.Failed += a.Failed
		c.RequestsPerS += float64(good) / a.Took.Seconds()
		c.P95MS = max(c.P95MS, milliseconds(a.P95))
		sum += a.Mean * time.Duration(good)
	}
	if c.Requests == c.Failed {
		return fmt.Errorf("%s: none of %d requests was answered", placedBy, c.Requests)
	}
	c.MeanMS = milliseconds(sum / time.Duration(c.Requests-c.Failed))
	b.found.Competition = append(b.found.Competition, c)
	return ctx.Err()
}

// shopMinBPS is what the service is promised on every node, in whole Mbit/s.
func (b *picassoBed) shopMinBPS() float64 {
	return float64(max(1, uint64(picassoShopPart*float64(b.options.CompetitionLinkBPS)/1e6))) * 1e6
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

// framesBPS is what a rate of received bytes takes of a link, with the headers of full
// packets.
func framesBPS(receivedBPS float64) float64 {
	const segmentBytes = 1448
	return receivedBPS * (segmentBytes + tcpHeaderBytes) / segmentBytes
}

// bySwarm lets Swarm place one replica for each node, by its own strategy.
func (b *picassoBed) bySwarm(ctx context.Context, shop picassoServer) (err error) {
	api := b.cluster.Engines[0].API()
	image, err := api.ImageInspect(ctx, shop.image())
	if err != nil {
		return fmt.Errorf("inspect %s: %w", shop.image(), err)
	}
	replicas := uint64(len(b.cluster.Nodes))
	created, err := api.ServiceCreate(ctx, client.ServiceCreateOptions{Spec: swarm.ServiceSpec{
		Annotations:  swarm.Annotations{Name: shop.name},
		Mode:         swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &replicas}},
		TaskTemplate: swarm.TaskSpec{ContainerSpec: &swarm.ContainerSpec{Image: image.ID}},
		EndpointSpec: &swarm.EndpointSpec{Mode: swarm.ResolutionModeDNSRR, Ports: []swarm.PortConfig{
			{Protocol: network.TCP, TargetPort: 80, PublishedPort: shopPort, PublishMode: swarm.PortConfigPublishModeHost},
		}},
	}})
	if err != nil {
		return fmt.Errorf("create the Swarm service: %w", err)
	}
	defer func() {
		_, removeErr := api.ServiceRemove(context.WithoutCancel(ctx), created.ID, client.ServiceRemoveOptions{})
		err = errors.Join(err, removeErr)
	}()
	if err := b.awaitShop(ctx); err != nil {
		return err
	}
	return b.shopSeen(ctx, placedBySwarm)
}

// awaitShop waits until users get an answer at every node.
func (b *picassoBed) awaitShop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for node := range b.cluster.Nodes {
		for {
			one := b.crowd(node, shopPort, 1)
			one.Requests = 1
			answers := one.Run(ctx)
			if answers.Requests > answers.Failed {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("the service does not answer at node %d within a minute: %w", node, answers.LastError)
			}
		}
	}
	return nil
}

// byWeir starts an agent on each node and weir-edge on the manager, and lets it place the
// same service.
func (b *picassoBed) byWeir(ctx context.Context, shop picassoServer) (err error) {
	archive, _, err := edgeruntime.ProxyImageArchive()
	if err != nil {
		return err
	}
	for node, engine := range b.cluster.Engines {
		if err := engine.Load(ctx, bytes.NewReader(archive)); err != nil {
			return err
		}
		if err := b.limitLink(ctx, node, 0); err != nil {
			return err
		}
		end, err := b.startAgent(ctx, node)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	pid, end, err := b.startEdge(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := b.deployShop(ctx, shop); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.removeShop(shop)) }()
	if err := b.awaitShop(ctx); err != nil {
		return err
	}
	if err := b.shopSeen(ctx, placedByWeir); err != nil {
		return err
	}
	b.found.EdgeResidentBytes, err = residentBytes(pid)
	return err
}

// residentBytes is the memory that a process has now.
func residentBytes(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("look at weir-edge: %w", err)
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, fmt.Errorf("look at weir-edge: %w", err)
	}
	return uint64(stat.ResidentMemory()), nil
}

// agentDir is where a node's agent has its files.
func (b *picassoBed) agentDir(address string) testbed.AgentDir {
	return testbed.AgentDir(filepath.Join(b.dir, "agent-"+address))
}

func (b *picassoBed) startAgent(ctx context.Context, number int) (end func() error, err error) {
	node := b.cluster.Nodes[number]
	dir := b.agentDir(node.Addr.String())
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return nil, fmt.Errorf("make the agent's folder: %w", err)
	}
	if err := dir.WriteConfig(nil, nil); err != nil {
		return nil, err
	}
	agent, err := node.StartAgent(testbed.AgentOptions{
		Program: b.options.WeirBinary, Dir: dir, Uplink: node.Interface(), Rate: policy.FormatRate(b.options.CompetitionLinkBPS),
		Docker: b.cluster.Engines[number].Socket(),
	})
	if err != nil {
		return nil, err
	}
	end = func() error { return agent.End(syscall.SIGTERM, 10*time.Second) }
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = agent.Await(ctx, 50*time.Millisecond, func(context.Context) error {
		_, err := os.Stat(dir.Socket())
		return err
	})
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

func (b *picassoBed) edgeSocket() string { return filepath.Join(b.dir, "edge.sock") }

func (b *picassoBed) startEdge(ctx context.Context) (pid int, end func() error, err error) {
	engine := b.cluster.Engines[0]
	cmd := engine.Command(b.options.EdgeBinary, "run", "--docker", engine.Socket(), "--socket", b.edgeSocket(),
		"--state-dir", filepath.Join(b.dir, "edge"), "--agents", "unix://"+b.agentDir("{address}").Socket())
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, nil, fmt.Errorf("start weir-edge: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	end = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
		select {
		case <-ended:
		case <-time.After(15 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		return nil
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		select {
		case <-ended:
			return 0, nil, fmt.Errorf("weir-edge ended: %s", strings.TrimSpace(said.String()))
		case <-ctx.Done():
			return 0, nil, errors.Join(ctx.Err(), end())
		case <-time.After(100 * time.Millisecond):
		}
		if n, err := b.readyNodes(); err == nil && n == len(b.cluster.Nodes) {
			return cmd.Process.Pid, end, nil
		} else if time.Now().After(deadline) {
			return 0, nil, errors.Join(fmt.Errorf("weir-edge knows %d nodes with an agent, of %d: %w", n, len(b.cluster.Nodes), err), end())
		}
	}
}

// readyNodes is how many nodes weir-edge knows that have an agent.
func (b *picassoBed) readyNodes() (count int, err error) {
	out, err := b.edge("nodes", "-o", "json")
	if err != nil {
		return 0, err
	}
	var nodes []struct {
		State string `json:"state"`
		Weir  bool   `json:"weir"`
	}
	if err := json.Unmarshal(out, &nodes); err != nil {
		return 0, fmt.Errorf("read the nodes: %w", err)
	}
	for _, n := range nodes {
		if n.State == "ready" && n.Weir {
			count++
		}
	}
	return count, nil
}

// edge runs a command of weir-edge.
func (b *picassoBed) edge(args ...string) ([]byte, error) {
	cmd := exec.Command(b.options.EdgeBinary, append(args, "--socket", b.edgeSocket())...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("weir-edge %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out, nil
}

// deployShop wants the service on all nodes, with a minimum.
func (b *picassoBed) deployShop(ctx context.Context, shop picassoServer) error {
	document := map[string]any{
		"par": map[string]any{"serviceName": shop.name, "imageName": shop.image(), "maxUsers": 2 * picassoShopUsers},
		// Four nodes of 99 %.
		"QoS":    map[string]any{"responseTime": 5, "availability": 99.99999},
		"ports":  []any{map[string]any{"host": shopPort, "container": 80}},
		"labels": map[string]string{"weir.min": strconv.Itoa(int(b.shopMinBPS()/1e6)) + "mbit"},
	}
	text, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("write the specification: %w", err)
	}
	path := filepath.Join(b.dir, "shop.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write the specification: %w", err)
	}
	if _, err := b.edge("deploy", path); err != nil {
		return err
	}
	var last []byte
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		running := 0
		var instances []struct {
			State string `json:"state"`
		}
		if last, err = b.edge("ps", "-o", "json"); err != nil {
			return err
		}
		if err := json.Unmarshal(last, &instances); err != nil {
			return fmt.Errorf("read the instances: %w", err)
		}
		for _, i := range instances {
			if i.State == "running" {
				running++
			}
		}
		if running == len(b.cluster.Nodes) {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			why, _ := b.edge("explain", shop.name)
			return errors.Join(fmt.Errorf("weir-edge runs %d instances, of %d: %s", running, len(b.cluster.Nodes), why), b.removeShop(shop))
		}
	}
}

func (b *picassoBed) removeShop(shop picassoServer) error {
	_, err := b.edge("rm", shop.name)
	return err
}

// FindEdge looks for weir-edge beside a program, and where programs are.
func FindEdge(beside string) (string, error) {
	path := filepath.Join(filepath.Dir(beside), "weir-edge")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	path, err := exec.LookPath("weir-edge")
	if err != nil {
		return "", errors.New("weir-edge is neither beside weir nor in PATH: say where it is with --weir-edge, or leave out the part competition")
	}
	return path, nil
}
