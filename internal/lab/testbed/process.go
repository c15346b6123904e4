package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that runs until a signal ends it. It is in a session of its own, so
// that a Ctrl-C at the terminal does not reach it, and the kernel ends it with this program.
type Process struct {
	name  string // in messages
	cmd   *exec.Cmd
	said  sharedBuffer
	ended chan struct{} // closed when it has ended
	err   error         // why, once ended is closed
}

// StartProcess starts a command without waiting for it and keeps its output unless it is
// redirected. name is used in messages, such as "the agent".
func StartProcess(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: name, cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = &p.said
	if cmd.Stdout == nil {
		cmd.Stdout = &p.said
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// A session of its own is a process group of its own already.
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setpgid = true, false
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process ends. Unlocked, it
		// goes on: ending it would kill what another goroutine has started from it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// Pid returns its process ID: nsenter becomes the program by exec.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// NetNSPath returns the path of its network namespace.
func (p *Process) NetNSPath() string { return fmt.Sprintf("/proc/%d/ns/net", p.Pid()) }

// Ended is closed when it has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err returns why it ended, once it has; nil for an exit code of 0.
func (p *Process) Err() error { return p.err }

// ExitCode returns its exit code, once it has ended.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// EndError returns an error that the process has ended, with the reason and its last output.
func (p *Process) EndError() error {
	if p.err == nil {
		return fmt.Errorf("%s ended: another command stopped it; its log ends with:\n%s", p.name, p.LastWords())
	}
	return fmt.Errorf("%s ended: %w; its log ends with:\n%s", p.name, p.err, p.LastWords())
}

// Await polls until ready returns nil. It returns ready's error when ctx ends, and EndError when
// the process ends.
func (p *Process) Await(ctx context.Context, poll time.Duration, ready func(context.Context) error) error {
	err := await(ctx, p.ended, poll, ready)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil:
		return p.EndError()
	}
	return fmt.Errorf("%w; the log of %s ends with:\n%s", err, p.name, p.LastWords())
}

// Await polls until ready returns nil, and returns its error when ctx ends.
func Await(ctx context.Context, poll time.Duration, ready func(context.Context) error) error {
	return await(ctx, nil, poll, ready)
}

func await(ctx context.Context, ended <-chan struct{}, poll time.Duration, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(poll):
		}
	}
}

// Signal sends a signal; a process that has ended needs none.
func (p *Process) Signal(signal syscall.Signal) { _ = p.cmd.Process.Signal(signal) }

// End sends a signal, unless it is 0, and waits for the process to end. After patience it kills the
// process and returns an error.
func (p *Process) End(signal syscall.Signal, patience time.Duration) error {
	if signal != 0 {
		p.Signal(signal)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
	}
	p.Signal(syscall.SIGKILL)
	<-p.ended
	return fmt.Errorf("%s did not end within %v and was killed; its log ends with:\n%s", p.name, patience, p.LastWords())
}

// Said returns all that it has printed.
func (p *Process) Said() string { return p.said.String() }

// LastWords returns the end of the output; of a crash, its beginning.
func (p *Process) LastWords() string {
	const most = 2000
	text := strings.TrimSpace(p.Said())
	for _, crash := range []string{"panic: ", "fatal error: ", "SIG"} {
		if at := strings.Index("\n"+text, "\n"+crash); at >= 0 {
			return text[at:min(len(text), at+most)]
		}
	}
	return text[max(0, len(text)-most):]
}

// sharedBuffer is a buffer that can be read while a process writes to it.
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

// SaysOr is what a program prints of itself, or something else if it cannot.
func SaysOr(ctx context.Context, otherwise, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return otherwise
	}
	return strings.TrimSpace(string(out))
}

// LabProgram returns the path of the weir-lab that was built with a weir program: it lies beside
// that. It generates the traffic of test beds.
func LabProgram(weir string) string { return filepath.Join(filepath.Dir(weir), "weir-lab") }
