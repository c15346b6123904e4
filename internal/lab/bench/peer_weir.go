package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/server"
)

const (
	agentStartTimeout = time.Minute
	agentPollInterval = 20 * time.Millisecond
	agentStopTimeout  = 30 * time.Second
)

// weir is the program itself, as a user runs it: an agent in the host's
// network namespace that learns of containers from Docker or, without an
// engine, from its configuration file.
type weir struct {
	binary string
	args   []string

	// Of the agent that runs.
	dir    string
	agent  *exec.Cmd
	client *server.Client
	ended  chan error
	stderr bytes.Buffer
	start  time.Duration // until all containers were in place
}

func newWeir(options Options) (*weir, error) {
	if _, err := os.Stat(options.WeirBinary); err != nil {
		return nil, fmt.Errorf("find the weir that is to be measured: %w", err)
	}
	return &weir{binary: options.WeirBinary, args: options.AgentArgs}, nil
}

func (w *weir) socket() string { return filepath.Join(w.dir, "weir.sock") }

func (w *weir) apply(ctx context.Context, b *bed, c Case, containers []placed) (err error) {
	if w.dir, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return fmt.Errorf("make a folder for the agent: %w", err)
	}
	config := filepath.Join(w.dir, "weir.yaml")
	if err := writeAgentConfig(config, b, containers); err != nil {
		return err
	}
	rateBPS := c.LinkBPS
	if rateBPS == 0 {
		rateBPS = htbUnlimitedBPS
	}
	args := []string{
		"agent", "--uplink", b.host.UplinkName, "--rate", policy.FormatRate(rateBPS),
		"--config", config, "--socket", w.socket(), "--state-dir", filepath.Join(w.dir, "state"), "--podman", "none",
		// A veth pair says 10 Gbit/s and carries what the CPU can.
		"--ignore-link-speed",
	}
	if b.engine != nil {
		args = append(args, "--docker", b.engine.Socket())
	} else {
		args = append(args, "--docker", "none")
	}
	w.client = server.NewClient(w.socket())
	w.stderr.Reset()
	w.agent = b.host.Command(context.WithoutCancel(ctx), w.binary, append(args, w.args...)...)
	w.agent.Stderr = &w.stderr
	started := time.Now()
	if err := w.agent.Start(); err != nil {
		w.agent = nil
		return fmt.Errorf("start the agent: %w", err)
	}
	w.ended = make(chan error, 1)
	go func() { w.ended <- w.agent.Wait() }()
	err = w.awaitReady(ctx, containers)
	w.start = time.Since(started)
	return err
}

// pid implements process. nsenter has become the agent by exec.
func (w *weir) pid() int { return w.agent.Process.Pid }

// startTime implements process.
func (w *weir) startTime() time.Duration { return w.start }

// writeAgentConfig writes what the agent cannot learn from an engine. JSON is
// YAML.
func writeAgentConfig(path string, b *bed, containers []placed) error {
	type entry struct {
		Name   string            `json:"name"`
		NetNS  string            `json:"netns,omitempty"`
		Cgroup string            `json:"cgroup,omitempty"`
		Labels map[string]string `json:"labels"`
	}
	var config struct {
		Containers []entry `json:"containers,omitempty"`
	}
	if b.engine == nil {
		for _, one := range containers {
			listed := entry{Name: one.Name, NetNS: one.NetNSPath, Cgroup: one.CgroupPath, Labels: labels(one.Container)}
			if one.Mode == testbed.ModeHost {
				listed.NetNS = ""
			}
			config.Containers = append(config.Containers, listed)
		}
	}
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the agent's configuration: %w", err)
	}
	return nil
}

// awaitReady waits until the agent has every container under control.
func (w *weir) awaitReady(ctx context.Context, containers []placed) error {
	ctx, cancel := context.WithTimeout(ctx, agentStartTimeout)
	defer cancel()
	for {
		missing, err := w.missing(ctx, containers)
		if err == nil && len(missing) == 0 {
			return nil
		}
		select {
		case ended := <-w.ended:
			w.agent = nil
			return errors.Join(fmt.Errorf("the agent ended: %s", w.lastWords()), ended)
		case <-ctx.Done():
			some := strings.Join(missing[:min(len(missing), 5)], ", ")
			return fmt.Errorf("the agent does not control %d containers, such as %s: %w: %s",
				len(missing), some, errors.Join(ctx.Err(), err), w.lastWords())
		case <-time.After(agentPollInterval):
		}
	}
}

// missing lists the containers that the agent does not control as asked, and
// its reasons.
func (w *weir) missing(ctx context.Context, containers []placed) ([]string, error) {
	list, err := w.client.Containers(ctx)
	if err != nil {
		return []string{"anything"}, err
	}
	listed := map[string]v1.Container{}
	for _, row := range list {
		listed[row.Name] = row
	}
	var missing []string
	for _, one := range containers {
		row, found := listed[one.Name]
		switch {
		case !found:
			missing = append(missing, one.Name)
		case row.State == v1.StateRejected || row.EntitledBPS == 0:
			missing = append(missing, fmt.Sprintf("%s (%s: %s)", one.Name, row.State, row.Reason))
		case string(row.Mode) != string(one.Mode):
			// In another mode it would be controlled by other means.
			missing = append(missing, fmt.Sprintf("%s (in mode %s, taken for %s)", one.Name, one.Mode, row.Mode))
		}
	}
	return missing, nil
}

func (w *weir) change(ctx context.Context, containers []placed, change Change) error {
	rate := func(bps uint64) string {
		if bps == 0 {
			return "none"
		}
		return policy.FormatRate(bps)
	}
	latency := "none"
	if change.LatencyMS > 0 {
		latency = formatLatency(change.LatencyMS)
	}
	_, err := output(exec.CommandContext(ctx, w.binary, "set", containers[change.Container].Name,
		"--socket", w.socket(),
		"--weight", strconv.FormatUint(uint64(change.Weight), 10),
		"--min", rate(change.MinBPS), "--max", rate(change.MaxBPS),
		"--priority", strconv.FormatUint(uint64(change.Priority), 10), "--latency", latency))
	return err
}

func (w *weir) remove(ctx context.Context, b *bed, _ []placed) error {
	if w.dir == "" {
		return nil
	}
	var problems []error
	if w.agent != nil {
		_, err := output(b.host.Command(ctx, w.binary, "down", "--socket", w.socket(), "--state-dir", filepath.Join(w.dir, "state")))
		problems = append(problems, err)
	}
	problems = append(problems, w.endAgent(), b.checkUplinkRestored(ctx), os.RemoveAll(w.dir))
	w.dir = ""
	return errors.Join(problems...)
}

// endAgent waits for the agent, which `weir down` ends, and ends it if it
// does not.
func (w *weir) endAgent() error {
	if w.agent == nil {
		return nil
	}
	agent := w.agent
	w.agent = nil
	select {
	case err := <-w.ended:
		if err != nil {
			return fmt.Errorf("the agent ended: %w: %s", err, w.lastWords())
		}
		return nil
	case <-time.After(agentStopTimeout):
	}
	err := agent.Process.Signal(unix.SIGKILL)
	return errors.Join(fmt.Errorf("the agent did not end within %v of weir down: %s", agentStopTimeout, w.lastWords()), err, <-w.ended)
}

// checkUplinkRestored fails when something of the agent is left: the next
// peer would be measured with it.
func (b *bed) checkUplinkRestored(ctx context.Context) error {
	out, err := output(b.host.Command(ctx, "tc", "qdisc", "show", "dev", b.host.UplinkName, "root"))
	if err != nil {
		return err
	}
	if len(out) > 0 && !strings.HasPrefix(string(out), "qdisc noqueue") {
		return errors.Join(fmt.Errorf("weir down left on the uplink: %s", bytes.TrimSpace(out)), b.clearUplink(ctx))
	}
	return nil
}

// lastWords is the end of what the agent logged; of a crash, how it began.
func (w *weir) lastWords() string {
	const most = 2000
	text := strings.TrimSpace(w.stderr.String())
	for _, crash := range []string{"panic: ", "fatal error: ", "SIG"} {
		if at := strings.Index("\n"+text, "\n"+crash); at >= 0 {
			return text[at:min(len(text), at+most)]
		}
	}
	return text[max(0, len(text)-most):]
}
