// Package testbed builds what Weir is tried on: private container engines,
// network namespaces and links that share nothing with the machine's own.
//
// A private engine (this file) is a dockerd with a containerd of its own. The
// problem is not to start it but to leave nothing behind, whatever happens:
// dockerd's containers are not its children, its paths in /run and /etc are
// compiled in, and whoever started it may be killed. So every engine has a
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
	"net"
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

// daemon is one run of dockerd.
type daemon struct {
	cmd *exec.Cmd
	end chan struct{} // closed when dockerd has ended
	err error         // why, once end is closed
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

// daemonEnv is a small environment: proxies and DOCKER_* settings of the
// caller are not meant for a private engine.
func daemonEnv(extra ...string) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C",
	}
	// scripts/leakcheck.sh knows by the first what a test run started; the
	// second tells dockerd that it is on an initial RAM disk.
	for _, name := range []string{"WEIR_TEST_RUN", "DOCKER_RAMDISK"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, extra...)
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
	cmd := exec.Command("nsenter", append(append(enter, "--"), args...)...)
	cmd.Env = daemonEnv()
	return cmd
}

func (e *Engine) startDaemon(ctx context.Context) error {
	args := []string{
		e.dockerd,
		"--config-file=" + filepath.Join(e.dir, "daemon.json"),
		"--host=unix://" + e.Socket(),
		"--data-root=" + filepath.Join(e.dir, "data"),
		"--exec-root=/run/docker",
		"--pidfile=/run/docker.pid",
		"--bip=" + e.opts.BridgeCIDR,
		"--default-address-pool=base=" + e.opts.AddressPool + ",size=24",
		"--iptables=" + strconv.FormatBool(!e.opts.WithoutNAT),
		"--cgroup-parent=/" + e.name,
		"--exec-opt=native.cgroupdriver=cgroupfs",
		"--shutdown-timeout=5",
		"--log-level=warn",
	}
	if e.opts.MTU > 0 {
		args = append(args, "--mtu="+strconv.Itoa(e.opts.MTU))
	}
	if e.opts.LiveRestore {
		args = append(args, "--live-restore")
	}
	cmd := e.inNamespaces(true, append(args, e.opts.ExtraArgs...)...)
	cmd.Env = daemonEnv("WEIR_ENGINE=" + e.name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.OpenFile(e.LogPath(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of dockerd: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start dockerd: %w", err)
	}
	d := &daemon{cmd: cmd, end: make(chan struct{})}
	go func() {
		d.err = cmd.Wait()
		close(d.end)
	}()
	e.mu.Lock()
	e.daemon = d
	e.mu.Unlock()

	if err := e.waitReady(ctx, d); err != nil {
		return fmt.Errorf("start dockerd: %w; the end of its log:\n%s", err, e.logTail())
	}
	if e.opts.WithoutNAT {
		return nil
	}
	return e.checkNAT()
}

func (e *Engine) waitReady(ctx context.Context, d *daemon) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("it does not answer within %v", startTimeout))
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-d.end:
			return fmt.Errorf("it ended: %w", d.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll.C:
		}
		// The socket is there before anything answers.
		if conn, err := net.Dial("unix", e.Socket()); err == nil {
			conn.Close()
			if _, err := e.api.Ping(ctx, client.PingOptions{}); err == nil {
				return nil
			}
		}
	}
}

// checkNAT makes a missing NAT an error at the start instead of containers
// that reach nothing: dockerd itself goes on without it on some kernels.
func (e *Engine) checkNAT() error {
	bridge := netip.MustParsePrefix(e.opts.BridgeCIDR).Masked()
	cmd := e.inNamespaces(true, "iptables", "-w", "-t", "nat", "-S", "POSTROUTING")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as those of tool
	out, err := cmd.CombinedOutput()
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

// Pid is dockerd's process ID, or 0 while the engine is down.
func (e *Engine) Pid() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.daemon == nil {
		return 0
	}
	return e.daemon.cmd.Process.Pid
}

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

// Restart stops the engine if it runs, and starts it again with its images,
// networks and containers. Containers live on only with LiveRestore.
func (e *Engine) Restart(ctx context.Context) error {
	if err := e.endDaemon(ctx, syscall.SIGTERM); err != nil {
		return err
	}
	return e.startDaemon(ctx)
}

// Kill ends the engine as a crash would, without a word to its containers,
// which run on until the next Restart. It returns when the engine is dead.
func (e *Engine) Kill(ctx context.Context) error {
	return e.endDaemon(ctx, syscall.SIGKILL)
}

// Shutdown ends the engine gracefully, to be started again with Restart.
func (e *Engine) Shutdown(ctx context.Context) error {
	return e.endDaemon(ctx, syscall.SIGTERM)
}

// endDaemon sends a signal and waits for dockerd's end, by force after a time.
func (e *Engine) endDaemon(ctx context.Context, signal syscall.Signal) error {
	e.mu.Lock()
	d := e.daemon
	e.daemon = nil
	e.mu.Unlock()
	if d == nil {
		return nil
	}
	// A dockerd that has ended already is what was asked for.
	if err := d.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end dockerd: %w", err)
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-d.end:
	case <-ctx.Done():
	case <-timeout.C:
	}
	_ = d.cmd.Process.Kill() // fails if it has ended
	<-d.end
	// Not bounded by ctx: Stop is often called with one that has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return e.endContainerd(ctx)
}

// endContainerd makes sure that no containerd outlives a dockerd that could
// not end it. It dies of dockerd's death by itself (PR_SET_PDEATHSIG), but as
// a zombie, on a machine whose first process is slow to reap, the next dockerd
// takes it for running, waits for it in vain and gives up.
func (e *Engine) endContainerd(ctx context.Context) error {
	pidFile := e.Root() + "/run/docker/containerd/containerd.pid"
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return nil // ended with dockerd
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read the process ID of containerd: %w", err)
	}
	for e.owns(pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // fails if it has ended
		select {
		case <-ctx.Done():
			return fmt.Errorf("end containerd: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return os.Remove(pidFile)
}

// owns says whether a process is alive and one of the engine's own. A zombie
// has no environment.
func (e *Engine) owns(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(env, []byte("WEIR_ENGINE="+e.name+"\x00"))
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

// logTail is what dockerd said last.
func (e *Engine) logTail() string {
	log, err := os.ReadFile(e.LogPath())
	if err != nil {
		return err.Error()
	}
	const lines = 12
	all := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
