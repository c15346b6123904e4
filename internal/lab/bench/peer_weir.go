package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/policy"
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
	dir    testbed.AgentDir
	agent  *testbed.Agent
	client *client.Client
	start  time.Duration // until all containers were in place
}

func newWeir(options Options) (*weir, error) {
	if _, err := os.Stat(options.WeirBinary); err != nil {
		return nil, fmt.Errorf("find the weir that is to be measured: %w", err)
	}
	return &weir{binary: options.WeirBinary, args: options.AgentArgs}, nil
}

func (w *weir) Apply(ctx context.Context, b *Bed, c Case, containers []Placed) error {
	dir, err := testbed.MakeTempDir()
	if err != nil {
		return err
	}
	w.dir = testbed.AgentDir(dir)
	if err := w.dir.WriteConfig(listed(b, c, containers), nil); err != nil {
		return err
	}
	rateBPS := c.LinkBPS
	if rateBPS == 0 {
		rateBPS = htbUnlimitedBPS
	}
	args := append([]string{"--ignore-link-speed"}, w.args...) // a veth pair says 10 Gbit/s and carries what the CPU can
	if c.Incoming {
		args = append(args, "--in-rate", policy.FormatRate(rateBPS))
		rateBPS = htbUnlimitedBPS
	}
	options := testbed.AgentOptions{
		Program: w.binary, Dir: w.dir, Uplink: b.Host.UplinkName, Rate: policy.FormatRate(rateBPS),
		Args: args,
	}
	if c.Dashboard {
		options.Args = append(options.Args, "--dashboard", dashboardAddress)
	}
	if b.engine != nil {
		options.Docker = b.engine.Socket()
	}
	w.client = client.Unix(w.dir.Socket())
	started := time.Now()
	if w.agent, err = b.Host.StartAgent(options); err != nil {
		return err
	}
	err = w.awaitReady(ctx, c, containers)
	w.start = time.Since(started)
	return err
}

// Controlled returns all containers that the agent knows.
func (w *weir) Controlled(ctx context.Context) ([]v1.Container, error) {
	return w.client.Containers(ctx)
}

// pid implements process.
func (w *weir) pid() int { return w.agent.Pid() }

// startTime implements process.
func (w *weir) startTime() time.Duration { return w.start }

// turns implements process.
func (w *weir) turns() (v1.Turns, error) {
	ctx, cancel := context.WithTimeout(context.Background(), agentStartTimeout)
	defer cancel()
	status, err := w.client.Status(ctx)
	return status.Turns, err
}

// listed returns the containers that the agent cannot discover from an engine.
func listed(b *Bed, c Case, containers []Placed) []testbed.AgentContainer {
	if b.engine != nil {
		return nil
	}
	var list []testbed.AgentContainer
	for _, one := range containers {
		list = append(list, testbed.ListContainer(one.Name, one.Mode, one.NetNSPath, one.CgroupPath, labels(one.Container, c.Incoming)))
	}
	return list
}

// awaitReady waits until the agent has every container under control.
func (w *weir) awaitReady(ctx context.Context, c Case, containers []Placed) error {
	ctx, cancel := context.WithTimeout(ctx, agentStartTimeout)
	defer cancel()
	return w.agent.Await(ctx, agentPollInterval, func(ctx context.Context) error {
		missing, err := w.missing(ctx, c, containers)
		if err == nil && len(missing) > 0 {
			some := strings.Join(missing[:min(len(missing), 5)], ", ")
			err = fmt.Errorf("the agent does not control %d containers, such as %s", len(missing), some)
		}
		return err
	})
}

// missing lists the containers that the agent does not control as asked, and
// its reasons.
func (w *weir) missing(ctx context.Context, c Case, containers []Placed) ([]string, error) {
	list, err := w.client.Containers(ctx)
	if err != nil {
		return nil, err
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
		case row.State == v1.StateRejected || row.EntitledBPS == 0 || c.Incoming && (row.In == nil || row.In.EntitledBPS == 0):
			missing = append(missing, fmt.Sprintf("%s (%s: %s)", one.Name, row.State, row.Reason))
		case row.Mode == "" || !strings.HasPrefix(string(one.Mode), string(row.Mode)): // the agent tells no kinds of macvlan apart
			// In another mode it would be controlled by other means.
			missing = append(missing, fmt.Sprintf("%s (in mode %s, taken for %s)", one.Name, one.Mode, row.Mode))
		}
	}
	return missing, nil
}

func (w *weir) change(ctx context.Context, containers []Placed, change Change) error {
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
	_, err := Output(exec.CommandContext(ctx, w.binary, "set", containers[change.Container].Name,
		"--socket", w.dir.Socket(),
		"--weight", strconv.FormatUint(uint64(change.Weight), 10),
		"--min", rate(change.MinBPS), "--max", rate(change.MaxBPS),
		"--priority", strconv.FormatUint(uint64(change.Priority), 10), "--latency", latency))
	return err
}

func (w *weir) Remove(ctx context.Context, b *Bed, _ []Placed) error {
	if w.dir == "" {
		return nil
	}
	var problems []error
	if w.agent != nil {
		_, err := Output(b.Host.Command(ctx, w.binary, "down", "--socket", w.dir.Socket(), "--state-dir", w.dir.StateDir()))
		problems = append(problems, err, w.endAgent())
	}
	problems = append(problems, b.checkUplinkRestored(ctx), os.RemoveAll(string(w.dir)))
	w.dir = ""
	return errors.Join(problems...)
}

// endAgent waits for the agent, which `weir down` ends, and ends it if that
// does not.
func (w *weir) endAgent() error {
	agent := w.agent
	w.agent = nil
	if err := agent.End(0, agentStopTimeout); err != nil {
		return fmt.Errorf("weir down: %w", err)
	}
	if agent.Err() != nil {
		return agent.EndError()
	}
	return nil
}

// checkUplinkRestored fails when something of the agent is left: the next
// peer would be measured with it.
func (b *Bed) checkUplinkRestored(ctx context.Context) error {
	out, err := Output(b.Host.Command(ctx, "tc", "qdisc", "show", "dev", b.Host.UplinkName, "root"))
	if err != nil {
		return err
	}
	if len(out) > 0 && !strings.HasPrefix(string(out), "qdisc noqueue") {
		return errors.Join(fmt.Errorf("weir down left on the uplink: %s", bytes.TrimSpace(out)), b.ClearUplink(ctx))
	}
	return nil
}
