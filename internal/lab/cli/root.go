// Package cli holds the commands of weir-lab, one file each: what shows, measures and models.
// Data goes to standard output, everything else to standard error.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage.
package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
)

// Run runs one command line, the program's name first, and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	return cmdline.Run(NewRoot(cmdline.CalledAs(args[0], "weir", "weir-lab")), args[1:], stdout, stderr)
}

// NewRoot returns the whole program, as users called it: weir, which runs it, or weir-lab.
func NewRoot(name string) *cobra.Command {
	socket := new(string)
	root := &cobra.Command{
		Use:         "weir-lab",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Show, measure and model how containers share a link",
		Long: `weir-lab has the demos, benchmarks, queueing models and tools for the classifier.
weir runs it: weir demo is weir-lab demo.`,
		Version: cmdline.Version,
	}
	root.PersistentFlags().StringVar(socket, "socket", config.DefaultSocket, "Unix socket of the agent")
	cmdline.SetUp(root)
	root.AddCommand(
		newDemoCommand(),
		newBenchCommand(),
		newModelCommand(),
		newAdviseCommand(socket),
		newTrafficCommand(),
		newClassifyCommand(),
	)
	return root
}
