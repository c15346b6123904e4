package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// AgentDir is the folder of an agent's files.
type AgentDir string

// ConfigPath is the agent's configuration.
func (d AgentDir) ConfigPath() string { return filepath.Join(string(d), "weir.yaml") }

// Socket is where the agent answers.
func (d AgentDir) Socket() string { return filepath.Join(string(d), "weir.sock") }

// StateDir is where the agent keeps what outlives it.
func (d AgentDir) StateDir() string { return filepath.Join(string(d), "state") }

// StatePath is the agent's state file.
func (d AgentDir) StatePath() string { return filepath.Join(d.StateDir(), "state.json") }

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
type Agent = Process

// StartAgent starts an agent in the host's network namespace and waits for nothing.
func (h *Host) StartAgent(options AgentOptions) (*Agent, error) {
	return StartAgent(h.NetNSPath(), options)
}

// StartAgent is Host.StartAgent for a container that stands for a host itself.
func (c *NetContainer) StartAgent(options AgentOptions) (*Agent, error) {
	return StartAgent(c.NetNSPath(), options)
}

// StartAgent is Host.StartAgent for the network namespace at a path.
func StartAgent(netns string, options AgentOptions) (*Agent, error) {
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
	return StartProcess("the agent", commandInNetNS(context.Background(), netns, args[0], args[1:]...))
}
