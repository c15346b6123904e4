package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ocispec "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/weir-project/weir/internal/share/policy"
)

// Containerd is a private containerd, as a node of Kubernetes has it: with the CRI, NRI, and a
// network of CNI's bridge plugin. Its keeper is that of a private engine.
type Containerd struct {
	keeper *Engine
	opts   ContainerdOptions
	daemon *Process
}

// ContainerdOptions describe a private containerd.
type ContainerdOptions struct {
	// NetNSPath is the network namespace of the node.
	NetNSPath string
	// Programs is the folder of containerd, its shim and the CNI plugins (tools/kubernetes).
	Programs string
	// Subnet is that of the pods.
	Subnet string
	// WithoutNRI disables NRI.
	WithoutNRI bool
	// RequiredPlugin is the NRI plugin without which NRI's default validator lets no container start.
	RequiredPlugin string
}

// PodImage is the image of pods, and of what keeps their namespaces: busybox. ServerImage accepts connections at
// ServerPort, and lets each wait for an hour, longer than tests take; its label asks for the minimum ImageMin.
const (
	PodImage    = "localhost/weir/pod:1"
	ServerImage = "localhost/weir/server:1"
	ServerPort  = 8000
	ImageMin    = "9mbit"
)

// containerdConfig has the directory, the programs' folder, the image, whether NRI is disabled, and the required plugin.
const containerdConfig = `version = 3
root = '%[1]s/data/root'
state = '/run/weir-containerd'
[grpc]
  address = '%[1]s/containerd.sock'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'native'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '%[3]s'
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'
      runtime_path = '%[2]s/containerd-shim-runc-v2'
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['%[2]s']
    conf_dir = '%[1]s/cni'
[plugins.'io.containerd.nri.v1.nri']
  disable = %[4]t
  plugin_path = '%[1]s/none'
  plugin_config_path = '%[1]s/none'
  [plugins.'io.containerd.nri.v1.nri'.default_validator]
    enable = %[6]t
    required_plugins = ['%[5]s']
    tolerate_missing_plugins_annotation = 'tolerate-missing-plugins.noderesource.dev'
`

const (
	cniNetwork = `"cniVersion": "1.0.0", "name": "pods"`
	cniBridge  = `"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/weir-cni", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}`
	cniConfig = `{` + cniNetwork + `, "plugins": [{` + cniBridge + `}]}`
)

// StartContainerd starts a private containerd with the images of pods, and returns when it answers.
func StartContainerd(ctx context.Context, opts ContainerdOptions) (*Containerd, error) {
	e := &Engine{opts: EngineOptions{NetNSPath: opts.NetNSPath}}
	c := &Containerd{keeper: e, opts: opts}
	err := c.start(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Containerd) start(ctx context.Context) (err error) {
	e := c.keeper
	if e.netns, err = os.Open(c.opts.NetNSPath); err != nil {
		return fmt.Errorf("open the node's network namespace: %w", err)
	}
	if isMachines(e.netns) {
		return errors.New("a private containerd would change the machine's own network: give it a network namespace")
	}
	if e.dir, err = makeDir(""); err != nil {
		return err
	}
	e.name = filepath.Base(e.dir)
	if err := e.startKeeper(ctx); err != nil {
		return err
	}
	if err := errors.Join(
		os.Mkdir(filepath.Join(e.dir, "cni"), 0o755),
		os.WriteFile(filepath.Join(e.dir, "cni", "10-pods.conflist"), fmt.Appendf(nil, cniConfig, c.opts.Subnet), 0o600),
		writeImages(c.Images()),
	); err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	return c.Import("k8s.io", c.Images())
}

// Images is the archive of the images of pods.
func (c *Containerd) Images() string { return filepath.Join(c.keeper.dir, "pod.tar") }

// Import gives a namespace of containerd, k8s.io for pods, the images of an archive.
func (c *Containerd) Import(namespace, archive string) error {
	_, err := c.Ctr(namespace, "images", "import", "--snapshotter", "native", archive)
	return err
}

// Ctr runs ctr in a namespace of containerd and returns what it prints.
func (c *Containerd) Ctr(namespace string, args ...string) (string, error) {
	args = append([]string{"ctr", "--address", c.Socket(), "--namespace", namespace}, args...)
	out, err := c.keeper.inNamespaces(true, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// RunContainer runs a container of an image without pods, with the further options of ctr, connects it to the network of
// pods unless it has the host's or another's, and returns the path of its network namespace.
func (c *Containerd) RunContainer(namespace, image, id string, options ...string) (netns string, err error) {
	file := filepath.Join(c.keeper.dir, "pid")
	args := append([]string{"run", "--detach", "--null-io", "--snapshotter", "native", "--cgroup", c.CgroupParent() + "/" + id, "--pid-file", file,
		"--runtime", filepath.Join(c.opts.Programs, "containerd-shim-runc-v2")}, options...)
	if _, err := c.Ctr(namespace, append(args, image, id)...); err != nil {
		return "", err
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the process of container %s: %w", id, err)
	}
	netns = fmt.Sprintf("/proc/%s/ns/net", pid)
	if slices.Contains(options, "--net-host") || slices.Contains(options, "--with-ns") {
		return netns, nil
	}
	return netns, c.Connect(id, netns)
}

// Connect connects a network namespace to the network of pods, as ctr and nerdctl do by CNI.
func (c *Containerd) Connect(id, netns string) error {
	cmd := c.keeper.inNamespaces(true, filepath.Join(c.opts.Programs, "bridge"))
	cmd.Env = append(cmd.Env, "CNI_COMMAND=ADD", "CNI_CONTAINERID="+id, "CNI_NETNS="+netns, "CNI_IFNAME=eth0", "CNI_PATH="+c.opts.Programs)
	cmd.Stdin = strings.NewReader(fmt.Sprintf("{"+cniNetwork+", "+cniBridge+"}", c.opts.Subnet))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("connect container %s: %w: %s", id, err, out)
	}
	return nil
}

// SetNRI enables or disables NRI from its next start on.
func (c *Containerd) SetNRI(on bool) { c.opts.WithoutNRI = !on }

// Start starts it again after Kill.
func (c *Containerd) Start(ctx context.Context) error {
	e := c.keeper
	config := fmt.Sprintf(containerdConfig, e.dir, c.opts.Programs, PodImage, c.opts.WithoutNRI, c.opts.RequiredPlugin, c.opts.RequiredPlugin != "")
	if err := os.WriteFile(filepath.Join(e.dir, "config.toml"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	cmd := e.inNamespaces(true, filepath.Join(c.opts.Programs, "containerd"), "--config", filepath.Join(e.dir, "config.toml"), "--log-level", "warn")
	cmd.Env = daemonEnv("WEIR_ENGINE=" + e.name)
	var err error
	if c.daemon, err = StartProcess("containerd", cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return c.daemon.Await(ctx, 20*time.Millisecond, func(ctx context.Context) error {
		out, err := e.inNamespaces(true, "ctr", "--address", c.Socket(), "--connect-timeout", "1s", "version").CombinedOutput()
		if err != nil {
			return fmt.Errorf("containerd does not answer: %w: %s", err, out)
		}
		return nil
	})
}

// Kill ends it as a crash would; pods run on.
func (c *Containerd) Kill() error { return c.daemon.End(syscall.SIGKILL, stopTimeout) }

// Stop ends it and its pods, and removes all that it was.
func (c *Containerd) Stop(ctx context.Context) error {
	if c.daemon != nil {
		_ = c.daemon.End(syscall.SIGTERM, stopTimeout) // the keeper ends what is left
	}
	return c.keeper.Stop(ctx)
}

// Said returns its log.
func (c *Containerd) Said() string { return c.daemon.Said() }

// Socket is the path of its socket, which is the CRI's too.
func (c *Containerd) Socket() string { return filepath.Join(c.keeper.dir, "containerd.sock") }

// CgroupParent is the cgroup that those of all pods have to be below.
func (c *Containerd) CgroupParent() string { return "/" + c.keeper.name }

// Root is a path to the root directory as the node sees it.
func (c *Containerd) Root() string { return c.keeper.Root() }

// Enter is a command that runs another one where the files of the node are.
func (c *Containerd) Enter() []string {
	return []string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", c.keeper.keeper.Process.Pid), "--"}
}

// images are the commands of images.
var images = map[string][]string{
	PodImage: idle, ServerImage: {"/bin/busybox", "nc", "-ll", "-p", fmt.Sprint(ServerPort), "-e", "/bin/busybox", "sleep", "3600"},
}

// writeImages writes all images as an archive.
func writeImages(path string) error {
	layerPath := path + ".layer"
	layerFile, err := os.Create(layerPath)
	if err != nil {
		return err
	}
	defer os.Remove(layerPath)
	if err := errors.Join(writeRootFS(layerFile, nil), layerFile.Close()); err != nil {
		return fmt.Errorf("write the image of pods: %w", err)
	}
	layer, err := tarball.LayerFromFile(layerPath)
	if err != nil {
		return fmt.Errorf("write the image of pods: %w", err)
	}
	tagged := map[name.Tag]ocispec.Image{}
	for called, command := range images {
		image, err := mutate.AppendLayers(empty.Image, layer)
		if err == nil {
			var config *ocispec.ConfigFile
			if config, err = image.ConfigFile(); err == nil {
				config.OS, config.Architecture, config.Config = runtime.GOOS, runtime.GOARCH, ocispec.Config{Cmd: command, Env: []string{"PATH=/bin"}, Labels: map[string]string{}}
				if called == ServerImage {
					config.Config.Labels[policy.LabelMin] = ImageMin
				}
				image, err = mutate.ConfigFile(image, config)
			}
		}
		if err != nil {
			return fmt.Errorf("write the image of pods: %w", err)
		}
		tag, err := name.NewTag(called)
		if err != nil {
			return err
		}
		tagged[tag] = image
	}
	return tarball.MultiWriteToFile(path, tagged)
}
