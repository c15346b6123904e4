// Package cli holds the commands of weir-sdn, one file each. Data goes to standard output,
// everything else to standard error.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage.
package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
)

// Run runs one command line, the program's name first, and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	return cmdline.Run(NewRoot(cmdline.CalledAs(args[0], "weir sdn", "weir-sdn")), args[1:], stdout, stderr)
}

// NewRoot returns the whole program under the name that users called: weir sdn or weir-sdn.
func NewRoot(name string) *cobra.Command {
	root := &cobra.Command{
		Use:         "weir-sdn",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Control OpenFlow switches: queues by application",
		Long:        "Control OpenFlow switches, and show what they report (docs/sdn.md).",
		Version:     cmdline.Version,
	}
	cmdline.SetUp(root)
	root.AddCommand(
		newSDNRunCommand(),
		newSDNPsCommand(),
		newSDNFlowsCommand(),
		newSDNTopologyCommand(),
		newSDNLinksCommand(),
		newSDNQueuesCommand(),
		newSDNDownCommand(),
		newSDNDecodeCommand(),
	)
	return root
}
