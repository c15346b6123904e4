package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/sim"
	"github.com/weir-project/weir/internal/front/cmdline"
)

func newReplayCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "replay FILE",
		Short: "Decide again what weir-edge run --record has recorded",
		Long: `Decide every round of a trace again, with this program and the trace's own settings,
and say whether the same comes out, or what differs first. Nothing is started or stopped.`,
		Example: `  weir-edge run --record trace.jsonl
  weir-edge replay trace.jsonl`,
		Args: cmdline.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("open the trace: %w", err)
			}
			defer f.Close()
			rounds, err := sim.Replay(f)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d rounds, the same decisions\n", rounds)
			return err
		},
	}
}

// openTrace creates a trace file and its recorder.
func openTrace(path string, policy engine.Policy) (*sim.Recorder, *os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, nil, fmt.Errorf("begin a trace: %s is there already: give another name", path)
	} else if err != nil {
		return nil, nil, fmt.Errorf("begin a trace: %w", err)
	}
	recorder, err := sim.NewRecorder(f, policy)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return recorder, f, nil
}
