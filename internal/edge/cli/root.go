// Package cli holds weir-edge's commands. Data goes to standard output, everything
// else to standard error.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage.
package cli

import (
	"io"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
)

// Run runs one command line and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	// SIGHUP (a closed terminal) also ends the command, so that a profile removes its containers.
	return cmdline.Run(NewRoot(), args, stdout, stderr, syscall.SIGHUP)
}

// DefaultSocket is the path of the API's socket.
const DefaultSocket = "/run/weir/edge.sock"

// global are the flags of all commands.
type global struct{ socket string }

// NewRoot returns the root command.
func NewRoot() *cobra.Command {
	g := &global{}
	root := &cobra.Command{
		Use:   "weir-edge",
		Short: "Run services where there is room for their users",
		Long: `weir-edge runs services with a specification of what their users need, on this host's
Docker engine or on a Docker Swarm: it watches how many users there are and what every
node really has (processor, memory, uplink, free minimums), starts further instances
when that is worth its cost, sends each user to an instance that is well, and says why.

Start it once (weir-edge run), deploy (weir-edge deploy FILE), and watch (weir-edge ps).`,
		Version: cmdline.Version,
	}
	cmdline.SetUp(root)
	root.PersistentFlags().StringVar(&g.socket, "socket", DefaultSocket, "Unix socket of weir-edge")
	cmdline.AddGroup(root, "Run services",
		newRunCommand(g),
		newDeployCommand(g),
		newRemoveCommand(g),
		newDownCommand(g),
	)
	cmdline.AddGroup(root, "See what happens, and why",
		newPsCommand(g),
		newTopCommand(g),
		newNodesCommand(g),
		newExplainCommand(g),
		newEventsCommand(g),
	)
	cmdline.AddGroup(root, "Images",
		newPushCommand(g),
		newServicesCommand(g),
		newProxyImageCommand(),
		newRepositoryCommand(),
	)
	cmdline.AddGroup(root, "Laboratory",
		newProfileCommand(),
		newReplayCommand(),
	)
	return root
}
