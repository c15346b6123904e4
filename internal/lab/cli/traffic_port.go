package cli

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// newTrafficPortCommand returns a port with three queues in a process of its own, for exact
// timing. It reads its options as JSON and prints its result.
func newTrafficPortCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "port",
		Short: "Serve three queues in front of a link, for weir bench model",
		Args:  cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var options traffic.PortOptions
			if err := json.NewDecoder(io.LimitReader(cmd.InOrStdin(), 1<<16)).Decode(&options); err != nil {
				return cmdline.Usagef("read the port's options: %w", err)
			}
			result, err := traffic.RunPort(cmd.Context(), options)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(result)
		},
	}
}
