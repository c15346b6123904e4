package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"
)

// daemon is one run of dockerd.
type daemon struct {
	cmd *exec.Cmd
	end chan struct{} // closed when dockerd has ended
	err error         // why, once end is closed
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

// Pid is dockerd's process ID, or 0 while the engine is down.
func (e *Engine) Pid() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.daemon == nil {
		return 0
	}
	return e.daemon.cmd.Process.Pid
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
