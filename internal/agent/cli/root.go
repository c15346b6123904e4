// Package cli holds weir's commands, one file each. Data goes to standard
// output, everything else to standard error.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 78 an agent that has no configuration yet.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/loop"
	"github.com/weir-project/weir/internal/agent/top"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
)

// exitUnconfigured is EX_CONFIG of sysexits(3). It tells systemd not to restart the unit.
const exitUnconfigured = 78

// Run runs one command line and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	return cmdline.Run(NewRoot(), args, stdout, stderr)
}

// NewRoot returns the command weir with all subcommands.
func NewRoot() *cobra.Command {
	socket := new(string)
	root := &cobra.Command{
		Use:   "weir",
		Short: "Share a host's network uplink between its containers",
		Long: `Weir gives every container its weight, guaranteed minimum and maximum on the
host's uplink, from labels, adjusted as containers start and stop.

Start the agent once (weir agent --uplink eth0 --rate 100mbit), put labels on
containers (docker run --label weir.weight=200 --label weir.min=10mbit ...),
and watch (weir top).`,
		Version: cmdline.Version,
	}
	root.PersistentFlags().StringVar(socket, "socket", config.DefaultSocket, "Unix socket of the agent")
	cmdline.SetUp(root)
	cmdline.AddGroup(root, "Share an uplink",
		newAgentCommand(socket),
		newSetCommand(socket),
		newResetCommand(socket),
		newReloadCommand(socket),
		newTokenCommand(),
		newDownCommand(socket),
	)
	cmdline.AddGroup(root, "See what happens, and why",
		newPsCommand(socket),
		top.NewCommand(socket),
		newExplainCommand(socket),
		newFlowsCommand(socket),
		newEventsCommand(socket),
		newDoctorCommand(socket),
	)
	cmdline.AddGroup(root, "Beyond one host (services on many nodes: weir-edge)",
		cmdline.NewSibling("sdn", "Control OpenFlow switches: queues by application", "weir-sdn", "weir sdn"),
	)
	for _, cmd := range root.Commands() {
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error { return lostSocket(run(cmd, args), *socket) }
		}
	}
	var laboratory []*cobra.Command
	for _, command := range []struct{ name, short string }{
		{"demo", "Show Weir at work on a network of its own"},
		{"bench", "Measure Weir against the ideal, the papers and other tools"},
		{"model", "Compute what a port will do"},
		{"advise", "Recommend a network mode; measure the uplink's rates"},
		{"traffic", "Send, swallow and echo traffic; watch what disturbs it"},
		{"classify", "Train, test and read the classifier of applications"},
	} {
		sibling := cmdline.NewSibling(command.name, command.short, "weir-lab", "weir", command.name)
		sibling.Hidden = command.name == "traffic" // for test beds
		laboratory = append(laboratory, sibling)
	}
	cmdline.AddGroup(root, "Laboratory", laboratory...)
	return root
}

// lostSocket says so if there is no answer at the socket and an agent runs all the same.
func lostSocket(err error, socket string) error {
	if !errors.Is(err, client.ErrNoAgent) || !strings.Contains(err.Error(), socket) {
		return err
	}
	pid := loop.Running()
	if pid == 0 {
		return err
	}
	return fmt.Errorf("a weir agent runs here, process %d, and does not listen on %s: name its socket with --socket or, if that was removed, restart the agent, which loses nothing", pid, socket)
}
