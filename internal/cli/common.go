package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/cmdline"
)

// What weir's commands have in common with those of other programs goes by these names here.

type (
	usageError = cmdline.UsageError
	output     = cmdline.Output
)

const (
	exitFailed = cmdline.ExitFailed
	exitUsage  = cmdline.ExitUsage

	outputTable = cmdline.OutputTable
	outputJSON  = cmdline.OutputJSON
	outputWide  = cmdline.OutputWide
)

// errSilent ends a command with exit code 1 after it has said everything itself.
var errSilent = cmdline.ErrSilent

func usagef(format string, args ...any) error { return cmdline.Usagef(format, args...) }

func exactArgs(names ...string) cobra.PositionalArgs { return cmdline.ExactArgs(names...) }

func atMostArgs(names ...string) cobra.PositionalArgs { return cmdline.AtMostArgs(names...) }

func addOutputFlag(cmd *cobra.Command, more ...output) *output {
	return cmdline.AddOutputFlag(cmd, more...)
}

func printJSON(w io.Writer, v any) error { return cmdline.PrintJSON(w, v) }

func printable(text string) string { return cmdline.Printable(text) }

func cut(text string, width int) string { return cmdline.Cut(text, width) }

func wrap(text string, width int) []string { return cmdline.Wrap(text, width) }

func textWidth(text string) int { return cmdline.TextWidth(text) }

func isTerminal(stream any) bool { return cmdline.IsTerminal(stream) }

func terminalWidth(w io.Writer) int { return cmdline.TerminalWidth(w) }
