package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/loop"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
)

func newDownCommand(socket *string) *cobra.Command {
	var stateDir, uplink string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove everything from the kernel and restore the previous queueing",
		Long: `Stop the agent, if one runs, remove everything that Weir put into the kernel, and
put back the queueing that was on the uplink before.`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := client.Unix(*socket).Down(cmd.Context())
			if !errors.Is(err, client.ErrNoAgent) {
				return err
			}
			_, missing := os.Stat(stateDir)
			done, err := loop.Remove(stateDir, uplink)
			for _, sentence := range done {
				fmt.Fprintln(cmd.ErrOrStderr(), sentence)
			}
			switch nothing := err == nil && len(done) == 0; {
			case nothing && cmd.Flags().Changed("state-dir") && errors.Is(missing, fs.ErrNotExist):
				return fmt.Errorf("there is no folder %s: name the one that weir agent --state-dir had", stateDir)
			case nothing:
				fmt.Fprintln(cmd.ErrOrStderr(), "nothing to remove")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&uplink, "uplink", "", "device to restore even if the state file does not name it")
	cmd.Flags().StringVar(&stateDir, "state-dir", config.DefaultStateDir, "directory of the agent's state")
	return cmd
}
