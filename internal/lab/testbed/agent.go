package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// AgentDir is the folder of an agent's files.
type AgentDir string

// ConfigPath is the agent's configuration.
func (d AgentDir) ConfigPath() string { return filepath.Join(string(d), "weir.yaml") }

// Socket is where the agent answers.
func (d AgentDir) Socket() string { return filepath.Join(string(d), "weir.sock") }

// StateDir is where the agent keeps what outlives it.
func (d AgentDir) StateDir() string { return filepath.Join(string(d), "state") }

// AgentContainer is a container in the agent's configuration, for those that no
// engine tells of.
type AgentContainer struct {
	Name   string            `json:"name"`
	NetNS  string            `json:"netns,omitempty"`
	Cgroup string            `json:"cgroup,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// ListContainer is a container as the agent's configuration names it: by its
// network namespace and its cgroup, or it would be taken for one in the host's
// network; one in the host's network by its cgroup alone.
func ListContainer(name string, mode Mode, netnsPath, cgroupPath string, labels map[string]string) AgentContainer {
	if mode == ModeHost {
		netnsPath = ""
	}
	return AgentContainer{Name: name, NetNS: netnsPath, Cgroup: cgroupPath, Labels: labels}
}

// WriteConfig writes the agent's configuration: containers, and settings, which
// are further keys.
func (d AgentDir) WriteConfig(containers []AgentContainer, settings map[string]any) error {
	config := map[string]any{}
	if len(containers) > 0 {
		config["containers"] = containers
	}
	for key, value := range settings {
		config[key] = value
	}
	// JSON is YAML.
	text, err := json.MarshalIndent(config, "", "  ")
	if err == nil {
		err = os.WriteFile(d.ConfigPath(), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the agent's configuration: %w", err)
	}
	return nil
}

// AgentOptions say how an agent is started on a host.
type AgentOptions struct {
	// Program is weir.
	Program string
	Dir     AgentDir
	// Uplink and Rate are flags; empty leaves them out.
	Uplink, Rate string
	// Docker is an engine's socket; empty means none.
	Docker string
	// Args are further arguments, which win over all else.
	Args []string
	// Wrapper is a command that runs the agent, such as setpriv.
	Wrapper []string
}

// Agent is an agent that runs on a host, as a user would run it.
type Agent struct {
	cmd    *exec.Cmd
	stderr sharedBuffer
	ended  chan struct{} // closed when it has ended
	err    error         // why, once ended is closed
}

// StartAgent starts an agent in the host's network namespace and does not wait
// for anything. It is in a session of its own: a Ctrl-C at the terminal is for
// whoever started it. Should that be killed, the kernel ends the agent.
func (h *Host) StartAgent(options AgentOptions) (*Agent, error) {
	return startAgent(h.NetNSPath(), options)
}

// StartAgent is Host.StartAgent for a container that stands for a host itself.
func (c *NetContainer) StartAgent(options AgentOptions) (*Agent, error) {
	return startAgent(c.NetNSPath(), options)
}

func startAgent(netns string, options AgentOptions) (*Agent, error) {
	args := append([]string{}, options.Wrapper...)
	args = append(args, options.Program, "agent",
		"--config", options.Dir.ConfigPath(), "--socket", options.Dir.Socket(), "--state-dir", options.Dir.StateDir(),
		"--podman", "none", "--docker")
	if options.Docker == "" {
		args = append(args, "none")
	} else {
		args = append(args, options.Docker)
	}
	if options.Uplink != "" {
		args = append(args, "--uplink", options.Uplink)
	}
	if options.Rate != "" {
		args = append(args, "--rate", options.Rate)
	}
	args = append(args, options.Args...)
	a := &Agent{ended: make(chan struct{})}
	a.cmd = commandInNetNS(context.Background(), netns, args[0], args[1:]...)
	a.cmd.Stderr = &a.stderr
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		// Pdeathsig is about the thread, which must live as long as we do.
		runtime.LockOSThread()
		err := a.cmd.Start()
		started <- err
		if err == nil {
			a.err = a.cmd.Wait()
			close(a.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	return a, nil
}

// Pid is the agent's process: nsenter has become it by exec.
func (a *Agent) Pid() int { return a.cmd.Process.Pid }

// Ended is closed when the agent has ended, whoever ended it.
func (a *Agent) Ended() <-chan struct{} { return a.ended }

// Err is why the agent ended, once it has; nil if it had no complaint.
func (a *Agent) Err() error { return a.err }

// ExitCode is the agent's, once it has ended.
func (a *Agent) ExitCode() int { return a.cmd.ProcessState.ExitCode() }

// errAgentAsked is an agent that ended as one does that is told to.
var errAgentAsked = errors.New("the agent ended: somebody asked it to")

// EndError says that the agent ended, why, and its last words.
func (a *Agent) EndError() error {
	if a.err == nil {
		return fmt.Errorf("%w; its log ends with:\n%s", errAgentAsked, a.LastWords())
	}
	return fmt.Errorf("the agent ended: %w; its log ends with:\n%s", a.err, a.LastWords())
}

// Await waits until ready has no error. It fails with that when ctx is over, and
// when the agent ends.
func (a *Agent) Await(ctx context.Context, poll time.Duration, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-a.ended:
			return a.EndError()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w; the agent's log ends with:\n%s", ctx.Err(), err, a.LastWords())
		case <-time.After(poll):
		}
	}
}

// Signal sends a signal; one that has ended needs none.
func (a *Agent) Signal(signal syscall.Signal) { _ = a.cmd.Process.Signal(signal) }

// End sends a signal, unless it is 0, and waits for the agent's end. One that
// does not end in time is killed, and that is the error.
func (a *Agent) End(signal syscall.Signal, patience time.Duration) error {
	if signal != 0 {
		a.Signal(signal)
	}
	select {
	case <-a.ended:
		return nil
	case <-time.After(patience):
	}
	a.Signal(unix.SIGKILL)
	<-a.ended
	return fmt.Errorf("the agent did not end within %v and was killed; its log ends with:\n%s", patience, a.LastWords())
}

// Said is all that the agent has logged.
func (a *Agent) Said() string { return a.stderr.String() }

// LastWords is the end of what the agent logged; of a crash, how it began.
func (a *Agent) LastWords() string {
	const most = 2000
	text := strings.TrimSpace(a.Said())
	for _, crash := range []string{"panic: ", "fatal error: ", "SIG"} {
		if at := strings.Index("\n"+text, "\n"+crash); at >= 0 {
			return text[at:min(len(text), at+most)]
		}
	}
	return text[max(0, len(text)-most):]
}

// sharedBuffer is read while a process writes.
type sharedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (s *sharedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buffer.Write(p)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buffer.String()
}
