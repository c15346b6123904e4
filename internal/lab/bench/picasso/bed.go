package picasso

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// webServer is one of the paper's web servers, or what stands for it.
type webServer struct {
	name, standsFor string
	pageBytes       int
	command         []string
}

// image returns the name of the server's image, which is made here.
func (s webServer) image() string { return "example.test/picasso-" + s.name + ":1" }

// The names of the servers.
const (
	serverNano    = "nano"
	serverBusybox = "busybox"
	serverNginx   = "nginx"
	serverTomcat  = "tomcat"
	serverHeavy   = "heavy" // where tomcat is not installed
)

const (
	smallPageBytes = 300
	heavyPageBytes = 750_000
)

// webServers returns the paper's four servers.
func webServers() []webServer {
	pages := func(args ...string) []string { return append([]string{"/bin/weir-lab", "traffic", "pages"}, args...) }
	return []webServer{
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

// bed is the nodes and their users.
type bed struct {
	options Options
	found   *Report
	dir     string
	cluster *testbed.Cluster
	edge    *testbed.Edge
	servers []webServer
	cpus    float64 // of a node
	// distributed is how many nodes have the images of the competition, nodeIDs what the
	// swarm calls nodes, as far as they were asked.
	distributed int
	nodeIDs     []string
}

func newBed(ctx context.Context, options Options, found *Report) (b *bed, err error) {
	b = &bed{options: options, found: found, cpus: nodesPart * float64(runtime.NumCPU()) / PaperNodes}
	if b.dir, err = testbed.MakeTempDir(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	fmt.Fprintf(options.Progress, "starting %d nodes\n", PaperNodes)
	if b.cluster, err = testbed.NewCluster(ctx, PaperNodes, true); err != nil {
		return b, err
	}
	b.edge = testbed.NewEdge(b.cluster.Engines, options.EdgeBinary, b.dir)
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

func (b *bed) close() error {
	var err error
	if b.cluster != nil {
		err = b.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// capNodes makes nodes of the engines: with their part of the machine's processors, 1 GB
// and a link of 100 Mbit/s.
func (b *bed) capNodes(ctx context.Context) error {
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
func (b *bed) limitNode(ctx context.Context, node int) error {
	if err := b.limitLink(ctx, node, linkBPS); err != nil {
		return err
	}
	// What users send is little; the limit is there all the same.
	out := b.cluster.Host.Command(ctx, "tc", append([]string{"qdisc", "replace", "dev", b.cluster.Nodes[node].HostInterface, "root"}, fullLink(linkBPS)...)...)
	if text, err := out.CombinedOutput(); err != nil {
		return fmt.Errorf("limit the link of node %d: %w: %s", node, err, text)
	}
	return nil
}

// grow makes it a bed of so many nodes. Those that come later are not capped.
func (b *bed) grow(ctx context.Context, nodes int) error {
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

func (b *bed) capCPUs(cpus float64) error {
	for _, engine := range b.cluster.Engines {
		if err := engine.Limit(cpus, nodeMemoryBytes); err != nil {
			return err
		}
	}
	return nil
}

// fullLink returns a link with a queue of a thousand full packets, the default of interfaces.
func fullLink(rateBPS uint64) []string {
	return []string{"tbf", "rate", strconv.FormatUint(rateBPS, 10), "burst", "32kb", "limit", "1514000"}
}

// limitLink puts a FIFO at a node's uplink, or takes it away if the rate is 0.
func (b *bed) limitLink(ctx context.Context, node int, rateBPS uint64) error {
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
func (b *bed) images(ctx context.Context) error {
	files, err := b.siteFiles()
	if err != nil {
		return err
	}
	for _, server := range webServers() {
		if server.name == serverHeavy {
			err := b.importTomcat(ctx)
			if err == nil {
				continue
			} else if ctx.Err() != nil {
				return ctx.Err()
			}
			b.found.Missing[serverTomcat] = fmt.Sprintf("%v; %s stands for it", err, serverHeavy)
		}
		contents := map[string]string{}
		switch server.name {
		case serverNano, serverHeavy:
			contents["/bin/weir-lab"] = testbed.LabProgram(b.options.WeirBinary)
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
		if err := b.addServer(ctx, server, contents); err != nil {
			return err
		}
	}
	return nil
}

// addServer makes a server's image and gives it to all nodes.
func (b *bed) addServer(ctx context.Context, server webServer, contents map[string]string) error {
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
	return nil
}

// siteFiles writes what servers need.
func (b *bed) siteFiles() (paths map[string]string, err error) {
	return b.writeFiles(map[string]string{
		"index.html": strings.Repeat(".", smallPageBytes),
		"nginx.conf": "daemon off;\nuser root root;\nworker_processes 4;\npid /tmp/pid;\nerror_log /dev/null;\n" +
			"events { worker_connections 4096; }\nhttp { access_log off; client_body_temp_path /tmp/a; proxy_temp_path /tmp/b;\n" +
			"fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;\n" +
			"server { listen 80 backlog=4096; root /www; } }\n",
		"passwd": "root:x:0:0::/:/bin/sh\n", "group": "root:x:0:\n",
	})
}

// writeFiles writes texts to files, and returns their paths by their names.
func (b *bed) writeFiles(texts map[string]string) (paths map[string]string, err error) {
	paths = map[string]string{}
	for name, text := range texts {
		paths[name] = filepath.Join(b.dir, name)
		if err := os.MkdirAll(filepath.Dir(paths[name]), 0o755); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.WriteFile(paths[name], []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	return paths, nil
}

// late reports whether the time for another case is over, and then counts it as left out.
func (b *bed) late() bool {
	if !measure.Overdue(b.options.Until) {
		return false
	}
	b.found.LeftOut++
	return true
}
