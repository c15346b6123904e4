// Package cli holds weir's commands, one file each. Data goes to standard
// output, everything else to standard error.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 78 an agent that has no configuration yet.
package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/config"
)

// version is set when a release is built.
var version = "dev"

// exitUnconfigured is EX_CONFIG of sysexits(3): the unit does not try again.
const exitUnconfigured = 78

// Run runs one command line and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	return cmdline.Run(NewRoot(), args, stdout, stderr)
}

// global are the flags of all commands.
type global struct {
	socket string
}

// NewRoot is the whole program.
func NewRoot() *cobra.Command {
	g := &global{}
	root := &cobra.Command{
		Use:   "weir",
		Short: "Share a host's network uplink between its containers",
		Long: `Weir gives every container its weight, guaranteed minimum and maximum on the
host's uplink, from labels, adjusted as containers start and stop.

Start the agent once (weir agent --uplink eth0 --rate 100mbit), put labels on
containers (docker run --label weir.weight=200 --label weir.min=10mbit ...),
and watch (weir top).`,
		Version: version,
	}
	root.PersistentFlags().StringVar(&g.socket, "socket", config.DefaultSocket, "Unix socket of the agent")
	cmdline.SetUp(root)
	root.AddCommand(
		newAgentCommand(g),
		newPsCommand(g),
		newTopCommand(g),
		newExplainCommand(g),
		newFlowsCommand(g),
		newSetCommand(g),
		newResetCommand(g),
		newReloadCommand(g),
		newEventsCommand(g),
		newDownCommand(g),
		newTokenCommand(),
		newDoctorCommand(g),
		newDemoCommand(),
		newBenchCommand(),
		newModelCommand(),
		newAdviseCommand(g),
		newTrafficCommand(),
		newClassifyCommand(),
		newSDNCommand(),
	)
	return root
}
