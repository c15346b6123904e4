package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// picassoServer is one of the paper's web servers, or what stands for it.
type picassoServer struct {
	name, standsFor string
	pageBytes       int
	command         []string
}

// image is the server's, which is made here.
func (s picassoServer) image() string { return "example.test/picasso-" + s.name + ":1" }

// The names of the servers.
const (
	serverNano    = "nano"
	serverBusybox = "busybox"
	serverNginx   = "nginx"
	serverHeavy   = "heavy"
)

const (
	smallPageBytes = 300
	heavyPageBytes = 750_000
)

// picassoServers are the paper's four.
func picassoServers() []picassoServer {
	pages := func(args ...string) []string { return append([]string{"/bin/weir", "traffic", "pages"}, args...) }
	return []picassoServer{
		{serverNano, "rpi-nano-httpd: a server of our own with one worker and room for eight more", smallPageBytes,
			pages("--workers", "1", "--work", "2ms", "--queue", "8", "--bytes", strconv.Itoa(smallPageBytes))},
		{serverBusybox, "rpi-busybox-httpd: the same program, Debian's", smallPageBytes,
			[]string{"/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/www"}},
		{serverNginx, "armhfbuild/nginx: the same program, Debian's", smallPageBytes,
			[]string{"/bin/nginx", "-c", "/etc/nginx.conf", "-e", "/dev/null"}},
		{serverHeavy, "rpi-tomcat: a server of our own with a page as large as that of tomcat, in one piece", heavyPageBytes,
			pages("--workers", "1000", "--work", "1ms", "--queue", "1000", "--bytes", strconv.Itoa(heavyPageBytes))},
	}
}

// picassoBed is the nodes and their users.
type picassoBed struct {
	options PicassoOptions
	found   *PicassoReport
	dir     string
	cluster *testbed.Cluster
	servers []picassoServer
	cpus    float64 // of a node
	// distributed is how many nodes have the images of the competition, nodeIDs what the
	// swarm calls nodes, as far as they were asked.
	distributed int
	nodeIDs     []string
}

func newPicassoBed(ctx context.Context, options PicassoOptions, found *PicassoReport) (b *picassoBed, err error) {
	b = &picassoBed{options: options, found: found, cpus: picassoNodesPart * float64(runtime.NumCPU()) / picassoNodes}
	if b.dir, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	fmt.Fprintf(options.Progress, "starting %d nodes\n", picassoNodes)
	if b.cluster, err = testbed.NewCluster(ctx, picassoNodes, true); err != nil {
		return b, err
	}
	for _, took := range b.cluster.Starts {
		found.EngineSeconds = append(found.EngineSeconds, took.Seconds())
	}
	if err := b.images(ctx); err != nil {
		return b, err
	}
	if err := b.capNodes(ctx); err != nil {
		return b, err
	}
	return b, nil
}

func (b *picassoBed) close() error {
	var err error
	if b.cluster != nil {
		err = b.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// capNodes makes nodes of the engines: with their part of the machine's processors, 1 GB
// and a link of 100 Mbit/s.
func (b *picassoBed) capNodes(ctx context.Context) error {
	if err := b.capCPUs(b.cpus); err != nil {
		return err
	}
	b.found.NodeCPUs = b.cpus
	for i := range b.cluster.Nodes {
		if err := b.limitNode(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// limitNode gives a node its link, in both directions.
func (b *picassoBed) limitNode(ctx context.Context, node int) error {
	if err := b.limitLink(ctx, node, picassoLinkBPS); err != nil {
		return err
	}
	// What users send is little; the limit is there all the same.
	out := b.cluster.Host.Command(ctx, "tc", append([]string{"qdisc", "replace", "dev", b.cluster.Nodes[node].HostInterface, "root"}, fullLink(picassoLinkBPS)...)...)
	if text, err := out.CombinedOutput(); err != nil {
		return fmt.Errorf("limit the link of node %d: %w: %s", node, err, text)
	}
	return nil
}

// grow makes it a bed of so many nodes. Those that come later are not capped.
func (b *picassoBed) grow(ctx context.Context, nodes int) error {
	for len(b.cluster.Nodes) < nodes {
		fmt.Fprintf(b.options.Progress, "starting node %d\n", len(b.cluster.Nodes)+1)
		if err := b.cluster.Add(ctx); err != nil {
			return err
		}
		if err := b.limitNode(ctx, len(b.cluster.Nodes)-1); err != nil {
			return err
		}
	}
	return nil
}

func (b *picassoBed) capCPUs(cpus float64) error {
	for _, engine := range b.cluster.Engines {
		if err := engine.Limit(cpus, picassoMemory); err != nil {
			return err
		}
	}
	return nil
}

// fullLink is a link with a queue of a thousand full packets, as interfaces have it by
// default.
func fullLink(rateBPS uint64) []string {
	return []string{"tbf", "rate", strconv.FormatUint(rateBPS, 10), "burst", "32kb", "limit", "1514000"}
}

// limitLink puts a FIFO at a node's uplink, or takes it away if the rate is 0.
func (b *picassoBed) limitLink(ctx context.Context, node int, rateBPS uint64) error {
	device := b.cluster.Nodes[node].Interface()
	args := []string{"qdisc", "del", "dev", device, "root"}
	if rateBPS > 0 {
		args = append([]string{"qdisc", "replace", "dev", device, "root"}, fullLink(rateBPS)...)
	}
	if text, err := b.cluster.Engines[node].Command("tc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("limit the link of node %d: %w: %s", node, err, text)
	}
	return nil
}

// images makes the servers' images and gives them to all nodes. A program that is not
// installed is named in the report.
func (b *picassoBed) images(ctx context.Context) error {
	files, err := b.siteFiles()
	if err != nil {
		return err
	}
	for _, server := range picassoServers() {
		contents := map[string]string{}
		switch server.name {
		case serverNano, serverHeavy:
			contents["/bin/weir"] = b.options.WeirBinary
		case serverBusybox:
			contents["/www/index.html"] = files["index.html"]
		case serverNginx:
			program := b.options.Nginx
			if program == "" {
				if program, err = exec.LookPath("nginx"); err != nil {
					b.found.Missing[serverNginx] = "nginx is not installed: apt-get install nginx-light, or --nginx PROGRAM"
					continue
				}
			}
			contents = map[string]string{
				"/bin/nginx": program, "/www/index.html": files["index.html"],
				"/etc/nginx.conf": files["nginx.conf"], "/etc/passwd": files["passwd"], "/etc/group": files["group"],
			}
		}
		if err := b.cluster.Engines[0].ImportService(ctx, server.image(), contents, server.command); err != nil {
			return err
		}
		if err := b.cluster.Distribute(ctx, server.image()); err != nil {
			return err
		}
		size, err := b.cluster.Engines[0].API().ImageInspect(ctx, server.image())
		if err != nil {
			return fmt.Errorf("inspect %s: %w", server.image(), err)
		}
		b.found.ImageBytes[server.name] = uint64(max(size.Size, 0))
		b.servers = append(b.servers, server)
	}
	return nil
}

// siteFiles writes what servers need.
func (b *picassoBed) siteFiles() (paths map[string]string, err error) {
	texts := map[string]string{
		"index.html": strings.Repeat(".", smallPageBytes),
		"nginx.conf": "daemon off;\nuser root root;\nworker_processes 4;\npid /tmp/pid;\nerror_log /dev/null;\n" +
			"events { worker_connections 4096; }\nhttp { access_log off; client_body_temp_path /tmp/a; proxy_temp_path /tmp/b;\n" +
			"fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;\n" +
			"server { listen 80 backlog=4096; root /www; } }\n",
		"passwd": "root:x:0:0::/:/bin/sh\n", "group": "root:x:0:\n",
	}
	paths = map[string]string{}
	for name, text := range texts {
		paths[name] = filepath.Join(b.dir, name)
		if err := os.WriteFile(paths[name], []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	return paths, nil
}

// firstPort is the first instance's on every node.
const firstPort = 8000

// start starts an instance and returns when it answers.
func (b *picassoBed) start(ctx context.Context, s picassoServer, node, number int) (took time.Duration, err error) {
	began := time.Now()
	port := firstPort + number
	name := fmt.Sprintf("%s-%d", s.name, number)
	_, err = b.cluster.Engines[node].Run(ctx, testbed.RunOptions{
		Name: name, Image: s.image(), Args: s.command, PublishTCP: map[uint16]uint16{uint16(port): 80},
	})
	if err != nil {
		return 0, err
	}
	one := profile.Crowd{URL: b.url(node, port), Users: 1, Requests: 1, Timeout: time.Second, Fresh: true, Dial: b.dial}
	for deadline := time.Now().Add(20 * time.Second); ; {
		answers := one.Run(ctx)
		if answers.Requests > answers.Failed {
			return time.Since(began), nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return 0, errors.Join(fmt.Errorf("%s on node %d does not answer: %w", name, node, answers.LastError), b.stop(s, node, number))
		}
	}
}

func (b *picassoBed) stop(s picassoServer, node, number int) error {
	return b.cluster.Engines[node].Remove(context.Background(), fmt.Sprintf("%s-%d", s.name, number))
}

// layout is instances on nodes: containers in all, divided among pis nodes.
type layout struct{ containers, pis int }

func (l layout) String() string { return fmt.Sprintf("%dCon-%dPi", l.containers, l.pis) }

// nodeOf is the node of an instance.
func (l layout) nodeOf(instance int) int { return instance % l.pis }

// measure runs a crowd against a layout.
func (b *picassoBed) measure(ctx context.Context, s picassoServer, l layout, users int) (c PicassoCrowd, err error) {
	c = PicassoCrowd{Server: s.name, Layout: l.String(), Users: users}
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
		c.P95MS = max(c.P95MS, milliseconds(a.P95))
	}
	if good := c.Requests - c.Failed; good > 0 {
		c.MeanMS = milliseconds(sum / time.Duration(good))
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
func (b *picassoBed) watchLoad(l layout) (end func() (mean, most float64)) {
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
		return mean(counts), slices.Max(counts)
	}
}

// used is what all containers of a layout's nodes have used.
func (b *picassoBed) used(l layout) (cpu time.Duration, memoryBytes uint64, err error) {
	for node := range l.pis {
		one, memory, err := b.cluster.Engines[node].Used()
		if err != nil {
			return 0, 0, err
		}
		cpu, memoryBytes = cpu+one, memoryBytes+memory
	}
	return cpu, memoryBytes, nil
}

// late says that there is no time for another case, and counts it.
func (b *picassoBed) late() bool {
	if !overdue(b.options.Until) {
		return false
	}
	b.found.LeftOut++
	return true
}

// success is figure 3: one instance, and crowds of several sizes.
func (b *picassoBed) success(ctx context.Context) error {
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

// paperCrowd is how many users figures 5 to 8 have.
const paperCrowd = 100

// picassoLayouts are those of figures 5 to 8.
func picassoLayouts() []layout { return []layout{{1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 4}} }

// replicas is figures 5 to 8. The paper left nano out.
func (b *picassoBed) replicas(ctx context.Context) error {
	for _, s := range b.servers {
		if s.name == serverNano {
			continue
		}
		for _, l := range picassoLayouts() {
			if b.late() {
				continue
			}
			c, err := b.measure(ctx, s, l, paperCrowd)
			if err != nil {
				return err
			}
			b.found.Crowds = append(b.found.Crowds, c)
		}
	}
	return nil
}

// cost is figure 9. Nodes are not capped: nothing else runs then.
func (b *picassoBed) cost(ctx context.Context) error {
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
