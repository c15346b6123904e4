// Package testbed builds what Weir is tried on: private container engines,
// network namespaces and links that share nothing with the machine's own.
//
// A private engine (this file) is a dockerd with a containerd of its own. The
// problem is not to start it but to leave nothing behind in any case:
// dockerd's containers are not its children, its paths in /run and /etc are
// compiled in, and the program that started it may be killed. So every engine has a
// keeper, a small shell script (engine.sh) that holds the engine's mount
// namespace and one end of a pipe. All that the engine writes is inside that
// mount namespace; its processes carry a mark in their environment and its
// containers are in one cgroup, so they are found without guessing. When the
// pipe closes, because Stop closed it or because the process that started the
// engine died, the keeper ends what is left and removes it.
//
// Limits: Linux, root, cgroupfs as the cgroup driver; the engine's data are in
// memory.
package testbed

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/client"
)

//go:embed engine.sh
var keeperScript string

// The addresses an engine uses unless told otherwise, from the range that
// RFC 2544 sets aside for benchmarks. Engines in unconnected network
// namespaces may use the same.
const (
	DefaultBridgeCIDR  = "198.19.0.1/24"
	DefaultAddressPool = "198.19.128.0/17"
)

// How long the parts of an engine's life may take before they are errors. A
// small machine under load starts dockerd in some ten seconds.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 20 * time.Second
	keepTimeout  = 30 * time.Second
)

// EngineOptions describe a private engine. The zero value is one in the
// current network namespace.
type EngineOptions struct {
	// NetNSPath is the network namespace the engine lives in, e.g.
	// /run/netns/NAME; empty means that of the calling thread. What the engine
	// leaves there (bridge, iptables chains, ip_forward) ends with the
	// namespace, so the machine's own is refused.
	NetNSPath string
	// Dir is where the engine's own directory (socket, log) is created; empty
	// means the system's directory for temporary files. It must not be below
	// /run, /etc, /opt or /var/lib, and short: a socket's path has at most 107 bytes.
	Dir string
	// BridgeCIDR is the address of the default bridge and its subnet.
	BridgeCIDR string
	// AddressPool is where networks created without a subnet get theirs, in
	// pieces of 256 addresses.
	AddressPool string
	// MTU of the default bridge's containers; 0 means dockerd's default.
	MTU int
	// LiveRestore lets containers live on while the engine is down (Restart,
	// Kill). Without it the engine ends them when it stops, or when it comes
	// back after a crash. It excludes Swarm.
	LiveRestore bool
	// WithoutNAT runs the engine without iptables.
	WithoutNAT bool
	// ExtraArgs are further arguments of dockerd.
	ExtraArgs []string
}

// Engine is a running private engine. Its methods may be called concurrently,
// except Restart, Kill and Stop with each other.
type Engine struct {
	opts    EngineOptions
	dockerd string
	name    string // of the cgroup, and the mark in the environment
	dir     string
	netns   *os.File

	keeper    *exec.Cmd
	keeperIn  io.Closer
	keeperErr bytes.Buffer
	keeperEnd chan struct{} // closed when the keeper has ended

	mu      sync.Mutex
	daemon  *daemon // nil while the engine is down
	api     *client.Client
	stopped bool
}

// StartEngine starts a private engine and returns when it answers and, unless
// told otherwise, has set up NAT. ctx bounds the start only; end the engine
// with Stop. Nothing is left behind when it fails.
func StartEngine(ctx context.Context, opts EngineOptions) (*Engine, error) {
	if opts.BridgeCIDR == "" {
		opts.BridgeCIDR = DefaultBridgeCIDR
	}
	if opts.AddressPool == "" {
		opts.AddressPool = DefaultAddressPool
	}
	dockerd, err := checkHost(opts)
	if err != nil {
		return nil, err
	}
	e := &Engine{opts: opts, dockerd: dockerd}
	if err := e.start(ctx); err != nil {
		return nil, errors.Join(err, e.Stop(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// checkHost says what is missing before anything is started.
func checkHost(opts EngineOptions) (dockerd string, err error) {
	if os.Geteuid() != 0 {
		return "", errors.New("start a private engine: must be root")
	}
	if dockerd, err = lookPath("dockerd"); err != nil {
		return "", errors.New("dockerd is not installed: apt-get install docker.io")
	}
	programs := map[string]string{
		"containerd": "containerd", "runc": "runc", "unshare": "util-linux", "nsenter": "util-linux",
	}
	if !opts.WithoutNAT {
		programs["iptables"] = "iptables"
	}
	for program, pkg := range programs {
		if _, err := lookPath(program); err != nil {
			return "", fmt.Errorf("%s is not installed: apt-get install %s", program, pkg)
		}
	}
	if _, err := netip.ParsePrefix(opts.BridgeCIDR); err != nil {
		return "", fmt.Errorf("read the bridge's address %q: %w", opts.BridgeCIDR, err)
	}
	if _, err := netip.ParsePrefix(opts.AddressPool); err != nil {
		return "", fmt.Errorf("read the address pool %q: %w", opts.AddressPool, err)
	}
	return dockerd, nil
}

// lookPath finds a program that may be in a directory for administrators,
// which a user's PATH often lacks.
func lookPath(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

func (e *Engine) start(ctx context.Context) error {
	netns := e.opts.NetNSPath
	if netns == "" {
		// Restart may run on another thread, in another namespace.
		netns = "/proc/thread-self/ns/net"
	}
	var err error
	if e.netns, err = os.Open(netns); err != nil {
		return fmt.Errorf("open the engine's network namespace: %w", err)
	}
	if isMachines(e.netns) {
		return errors.New("a private engine would change the machine's own network: give it a network namespace")
	}
	if e.dir, err = makeDir(e.opts.Dir); err != nil {
		return err
	}
	e.name = filepath.Base(e.dir)
	if err := e.startKeeper(ctx); err != nil {
		return err
	}
	e.api, err = client.New(client.WithHost("unix://" + e.Socket()))
	if err != nil {
		return fmt.Errorf("make a client for %s: %w", e.Socket(), err)
	}
	return e.startDaemon(ctx)
}

// isMachines says whether a network namespace is the machine's own: that of
// the first process or, where that may not be looked at, of the kernel's
// threads.
func isMachines(netns *os.File) bool {
	ours, err := netns.Stat()
	if err != nil {
		return false
	}
	for _, path := range []string{"/proc/1/ns/net", "/proc/2/ns/net"} {
		if machines, err := os.Stat(path); err == nil && os.SameFile(ours, machines) {
			return true
		}
	}
	return false
}

// makeDir creates an engine's directory. Its base name is unique on the
// machine while it exists.
func makeDir(parent string) (string, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", fmt.Errorf("find the engine's directory: %w", err)
	}
	if parent, err = filepath.EvalSymlinks(parent); err != nil {
		return "", fmt.Errorf("find the engine's directory: %w", err)
	}
	for _, covered := range []string{"/run", "/etc", "/opt", "/var/lib"} {
		if parent == covered || strings.HasPrefix(parent, covered+"/") {
			return "", fmt.Errorf("the engine's directory %s is below %s, which the engine has for itself: choose another", parent, covered)
		}
	}
	dir, err := os.MkdirTemp(parent, "weir-engine-")
	if err != nil {
		return "", fmt.Errorf("create the engine's directory: %w", err)
	}
	const maxSocketPath = 107
	if socket := filepath.Join(dir, "docker.sock"); len(socket) > maxSocketPath {
		os.Remove(dir)
		return "", fmt.Errorf("the engine's socket %s has a path longer than %d bytes: choose a shorter directory", socket, maxSocketPath)
	}
	for path, content := range map[string]string{"daemon.json": "{}\n", "dockerd.log": ""} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600)
		}
	}
	for _, sub := range []string{"data", "covers"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, sub), 0o711)
		}
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("fill the engine's directory: %w", err)
	}
	return dir, nil
}

// startKeeper makes the engine's mount namespace (see engine.sh).
func (e *Engine) startKeeper(ctx context.Context) error {
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave",
		"sh", "-c", keeperScript, "weir-engine-keeper", e.dir, e.name)
	// A Ctrl-C at the terminal must reach the program, not its engine: the
	// program then stops the engine in its own time.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = daemonEnv()
	cmd.Stderr = &e.keeperErr
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the engine's keeper: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the engine's keeper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the engine's keeper: %w", err)
	}
	e.keeper, e.keeperIn, e.keeperEnd = cmd, in, make(chan struct{})
	ready := make(chan bool, 1)
	go func() {
		buf := make([]byte, len("ready\n"))
		_, err := io.ReadFull(out, buf)
		ready <- err == nil
		// How the keeper ended shows in what it left.
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		close(e.keeperEnd)
	}()
	select {
	case ok := <-ready:
		if ok {
			return nil
		}
		<-e.keeperEnd
		return fmt.Errorf("make the engine's mount namespace: %s", strings.TrimSpace(e.keeperErr.String()))
	case <-ctx.Done():
		return fmt.Errorf("make the engine's mount namespace: %w", ctx.Err())
	}
}

// inNamespaces is a command in the engine's network namespace and, if asked
// for, in its mount namespace.
func (e *Engine) inNamespaces(mount bool, args ...string) *exec.Cmd {
	// By way of our own descriptor, so that the path may have been deleted;
	// not inherited, so that the engine's processes do not hold it.
	enter := []string{fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), e.netns.Fd())}
	if mount {
		enter = append(enter, fmt.Sprintf("--mount=/proc/%d/ns/mnt", e.keeper.Process.Pid))
	}
	cmd := tool(context.Background(), "nsenter", append(append(enter, "--"), args...)...)
	cmd.Env = daemonEnv()
	return cmd
}

// checkNAT makes a missing NAT an error at the start instead of containers
// that reach nothing: dockerd itself goes on without it on some kernels.
func (e *Engine) checkNAT() error {
	bridge := netip.MustParsePrefix(e.opts.BridgeCIDR).Masked()
	out, err := e.inNamespaces(true, "iptables", "-w", "-t", "nat", "-S", "POSTROUTING").CombinedOutput()
	if err != nil {
		return fmt.Errorf("read the engine's NAT rules: %w: %s", err, bytes.TrimSpace(out))
	}
	for rule := range strings.Lines(string(out)) {
		if strings.Contains(rule, "-s "+bridge.String()) && strings.Contains(rule, "-j MASQUERADE") {
			return nil
		}
	}
	return fmt.Errorf("dockerd made no NAT rule for %v: does the kernel have iptables NAT? the end of its log:\n%s", bridge, e.logTail())
}

// Socket is the path of the engine's API socket. It stays the same when the
// engine is restarted.
func (e *Engine) Socket() string { return filepath.Join(e.dir, "docker.sock") }

// LogPath is the path of dockerd's log.
func (e *Engine) LogPath() string { return filepath.Join(e.dir, "dockerd.log") }

// API is a client of the engine, for what this package has no method for.
func (e *Engine) API() *client.Client { return e.api }

// Root is a path to the root directory as the engine sees it: namespaces of
// sandboxes and overlay networks are in Root()/run/docker/netns.
func (e *Engine) Root() string { return fmt.Sprintf("/proc/%d/root", e.keeper.Process.Pid) }

// Command is a command in the engine's network namespace.
func (e *Engine) Command(program string, args ...string) *exec.Cmd {
	return e.inNamespaces(false, append([]string{program}, args...)...)
}

// ShareMounts has what the engine mounts below a path seen in containers that ask for it,
// as on a host that systemd has started. It is a mount in the engine's own namespace.
func (e *Engine) ShareMounts(path string) error {
	if out, err := e.inNamespaces(true, "mount", "--make-rshared", path).CombinedOutput(); err != nil {
		return fmt.Errorf("share the mounts of %s: %w: %s", path, err, out)
	}
	return nil
}

// Stop ends the engine and removes all that it was: containers, shims,
// mounts, cgroups, directory. ctx bounds only how long the engine may take to
// end gracefully; a context that has ended is no hindrance. It returns an
// error if anything was left behind. Calling it again does nothing.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	stopped := e.stopped
	e.stopped = true
	e.mu.Unlock()
	if stopped {
		return nil
	}
	err := e.endDaemon(ctx, syscall.SIGTERM)
	if e.api != nil {
		e.api.Close()
	}
	if e.keeper != nil {
		e.keeperIn.Close()
		select {
		case <-e.keeperEnd:
		case <-time.After(keepTimeout):
			_ = e.keeper.Process.Kill() // fails if it has ended
			<-e.keeperEnd
			err = errors.Join(err, fmt.Errorf("the engine's keeper did not end within %v: %s", keepTimeout, strings.TrimSpace(e.keeperErr.String())))
		}
		err = errors.Join(err, e.leftovers())
	}
	if e.netns != nil {
		e.netns.Close()
	}
	return err
}

// leftovers is an error that names what should be gone.
func (e *Engine) leftovers() error {
	var left []string
	if _, err := os.Lstat(e.dir); err == nil {
		left = append(left, e.dir)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		groups, _ := filepath.Glob(pattern + e.name)
		left = append(left, groups...)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range processes {
		if pid, err := strconv.Atoi(filepath.Base(path)); err == nil && e.owns(pid) {
			left = append(left, fmt.Sprint("process ", pid))
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("the engine left behind: %s", strings.Join(left, ", "))
	}
	return nil
}
