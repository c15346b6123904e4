package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/packaging"
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 10 * time.Second
	pollInterval = 10 * time.Millisecond
)

// AgentOptions say how to start an agent. The zero value is one for the bed's
// uplink at 100 Mbit/s and the containers of its config file.
type AgentOptions struct {
	// Rate is the uplink's; "-" leaves it to the agent.
	Rate string
	// UplinksInConfig leaves uplinks and rates to the config file.
	UplinksInConfig bool
	// Docker is an engine's socket; empty means none.
	Docker string
	// Settings are further keys of the config file.
	Settings map[string]any
	// KeepConfig leaves the config file as it is.
	KeepConfig bool
	// Args are further arguments, which win over the bed's.
	Args []string
	// Wrapper is a command that runs the agent, such as setpriv; by default one that
	// leaves it the capabilities that the shipped unit does.
	Wrapper []string
}

// Agent is a running agent.
type Agent struct {
	*testbed.Agent
	Client *client.Client

	bed *Bed
}

func (b *Bed) launch(options AgentOptions) *Agent {
	b.tb.Helper()
	if !options.KeepConfig {
		b.WriteConfig(options.Settings)
	}
	launch := testbed.AgentOptions{
		Program: b.program, Dir: b.Files, Docker: options.Docker,
		Uplink: b.Host.UplinkName, Rate: options.Rate, Args: options.Args, Wrapper: options.Wrapper,
	}
	if launch.Wrapper == nil {
		var err error
		if launch.Wrapper, err = packaging.Confined(); err != nil {
			b.tb.Fatal(err)
		}
	}
	switch options.Rate {
	case "":
		launch.Rate = "100mbit"
	case "-":
		launch.Rate = ""
	}
	if options.UplinksInConfig {
		launch.Uplink, launch.Rate = "", ""
	}
	started, err := b.Host.StartAgent(launch)
	if err != nil {
		b.tb.Fatal(err)
	}
	a := &Agent{Agent: started, Client: client.Unix(b.Files.Socket()), bed: b}
	b.tb.Cleanup(func() {
		_ = a.End(syscall.SIGKILL, stopTimeout) // a kill is waited for
		if b.tb.Failed() {
			b.tb.Logf("the agent (%d) said at the end:\n%s", a.Pid(), lastLines(a.Said(), 40))
		}
	})
	return a
}

// lastLines is the end of a text: an agent with many containers says a lot.
func lastLines(text string, count int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-count-1):], "")
}

// StartAgent starts an agent and waits until it knows its containers.
func (b *Bed) StartAgent(options AgentOptions) *Agent {
	b.tb.Helper()
	a := b.launch(options)
	deadline := time.Now().Add(startTimeout)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		status, err := a.Client.Status(ctx)
		cancel()
		if err == nil && !slices.ContainsFunc(status.Sources, func(s v1.Source) bool { return !s.Connected }) {
			return a
		}
		select {
		case <-a.Agent.Ended():
			b.tb.Fatalf("the agent ended: %v: %s", a.Err(), a.Said())
		case <-time.After(pollInterval):
		}
		if time.Now().After(deadline) {
			b.tb.Fatalf("the agent is not ready after %v: %+v, %v: %s", startTimeout, status, err, a.Said())
		}
	}
}

// LaunchAgent starts an agent and does not wait for anything.
func (b *Bed) LaunchAgent(options AgentOptions) *Agent {
	b.tb.Helper()
	return b.launch(options)
}

// RefusedAgent runs an agent that has to end by itself.
func (b *Bed) RefusedAgent(options AgentOptions) Result {
	b.tb.Helper()
	a := b.launch(options)
	select {
	case <-a.Agent.Ended():
	case <-time.After(stopTimeout):
		b.tb.Fatalf("the agent runs, and should have refused to: %s", a.Said())
	}
	return Result{Stderr: a.Said(), Code: a.ExitCode()}
}

// BPFObjects lists the BPF programs, maps and links that the agent keeps alive:
// nothing of Weir's is pinned, so an object that no process or device holds
// is gone.
func (a *Agent) BPFObjects() []string {
	var ids []string
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", a.Pid()))
	for _, path := range infos {
		if text, err := os.ReadFile(path); err == nil {
			ids = append(ids, bpfID.FindAllString(string(text), -1)...)
		}
	}
	return ids
}

var bpfID = regexp.MustCompile(`(?m)^(prog_id|map_id|link_id):\s+\d+`)

// Tracing says whether the agent holds a BPF link, which only its tracepoints
// are.
func (a *Agent) Tracing() bool {
	return slices.ContainsFunc(a.BPFObjects(), func(id string) bool { return strings.HasPrefix(id, "link_id") })
}

// Stop ends the agent as a service manager does, and fails the test if it
// does not end well.
func (a *Agent) Stop() {
	a.bed.tb.Helper()
	if err := a.End(syscall.SIGTERM, stopTimeout); err != nil {
		a.bed.tb.Error(err)
	}
	a.endedWell()
}

// Kill ends the agent as a crash does.
func (a *Agent) Kill() { _ = a.End(syscall.SIGKILL, stopTimeout) }

// Ended waits until the agent has ended by itself, without complaint.
func (a *Agent) Ended() {
	a.bed.tb.Helper()
	if err := a.End(0, stopTimeout); err != nil {
		a.bed.tb.Fatal(err)
	}
	a.endedWell()
}

func (a *Agent) endedWell() {
	a.bed.tb.Helper()
	if err := a.Err(); err != nil {
		a.bed.tb.Errorf("the agent ended: %v: %s", err, a.Said())
	}
}

// Containers lists what the agent knows, by name.
func (a *Agent) Containers() map[string]v1.Container {
	a.bed.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	list, err := a.Client.Containers(ctx)
	if err != nil {
		a.bed.tb.Fatal(err)
	}
	byName := map[string]v1.Container{}
	for _, c := range list {
		byName[c.Name] = c
	}
	return byName
}

// Container is one of the containers that the agent knows; the zero value if
// it does not.
func (a *Agent) Container(name string) v1.Container {
	a.bed.tb.Helper()
	return a.Containers()[name]
}

// Status is what the agent says of itself.
func (a *Agent) Status() v1.Status {
	a.bed.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	status, err := a.Client.Status(ctx)
	if err != nil {
		a.bed.tb.Fatal(err)
	}
	return status
}

// AwaitContainer waits until a container is as wanted, and returns it and how
// long that took.
func (a *Agent) AwaitContainer(name, what string, timeout time.Duration, fits func(v1.Container) bool) (v1.Container, time.Duration) {
	a.bed.tb.Helper()
	var last v1.Container
	took := a.bed.Await(fmt.Sprintf("%s %s", name, what), timeout, func() (bool, string) {
		last = a.Container(name)
		return fits(last), fmt.Sprintf("%+v", last)
	})
	return last, took
}

// AwaitGone waits until the agent does not know a container any more.
func (a *Agent) AwaitGone(name string, timeout time.Duration) {
	a.bed.tb.Helper()
	a.bed.Await(name+" gone", timeout, func() (bool, string) {
		_, there := a.Containers()[name]
		return !there, "it is still there"
	})
}

// Await is [Await] for a check that describes the state, whether it fits or not.
func (b *Bed) Await(what string, timeout time.Duration, fits func() (bool, string)) time.Duration {
	b.tb.Helper()
	return Await(b.tb, what, timeout, func() error {
		if ok, state := fits(); !ok {
			return errors.New(strings.TrimSpace(state))
		}
		return nil
	})
}

// Await repeats a check until it succeeds, and returns the time that took. The test ends with the
// error of a check that began after the timeout, or after Patience times that where processors are
// short.
func Await(tb testing.TB, what string, timeout time.Duration, check func() error) time.Duration {
	tb.Helper()
	began, cpu := time.Now(), watchCPU()
	for {
		checking := time.Now()
		err := check()
		if err == nil {
			return time.Since(began)
		}
		if _, _, starved := cpu.shortage(); isOver(checking.Sub(began), timeout, starved) {
			tb.Fatalf("after %v not yet: %s; %v; CPU: %s", timeout, what, err, cpu)
		}
		time.Sleep(max(pollInterval, time.Since(checking))) // half of a processor at most
	}
}

// isOver reports whether a wait may end.
func isOver(waited, timeout time.Duration, starved bool) bool {
	return waited > timeout && (!starved || waited > Patience*timeout)
}

// Policy is a policy with the parts of EF and AF that a container has which asks for
// none.
func Policy(p v1.Policy) v1.Policy {
	of := policy.Default()
	p.EFMax, p.AFMin = of.EFMax, of.AFMin
	return p
}
