// Package cmdline is what the command lines of Weir's programs have in common: how they
// begin and end, what they say of a wrong call, -o, and text that a terminal can be shown
// (terminal.go).
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// UsageError is a command that was called wrongly.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap is what errors.Is goes by.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// ErrSilent ends a command with ExitFailed after it has said everything itself.
var ErrSilent = errors.New("failed")

// Program is a program with all its commands.
type Program struct {
	Root *cobra.Command
	// Signals end it, beside SIGINT and SIGTERM.
	Signals []os.Signal
	// ExitCode is that of an error that has its own, and 0 of others; nil: none has.
	ExitCode func(error) int
}

// Run runs one command line and returns the exit code.
func (p Program) Run(args []string, stdout, stderr io.Writer) int {
	ends := append([]os.Signal{os.Interrupt, syscall.SIGTERM}, p.Signals...)
	// nohup has programs ignore SIGHUP, and it stays so.
	ends = slices.DeleteFunc(ends, signal.Ignored)
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	p.Root.SetArgs(args)
	p.Root.SetOut(stdout)
	p.Root.SetErr(stderr)
	err := p.Root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	message, code := p.ending(err)
	if message != "" {
		fmt.Fprintf(stderr, "%s: %s\n", p.Root.Name(), PrintableLines(message))
	}
	return code
}

// ending is what there is to say of an error, and the exit code.
func (p Program) ending(err error) (message string, code int) {
	var usage *UsageError
	message, code = err.Error(), ExitFailed
	if p.ExitCode != nil && p.ExitCode(err) != 0 {
		return message, p.ExitCode(err)
	}
	switch {
	case errors.Is(err, ErrSilent):
		return "", code
	case strings.HasPrefix(message, "unknown command"):
		return p.unknownCommand(message), ExitUsage
	case errors.As(err, &usage):
		return message, ExitUsage
	}
	return message, code
}

// unknownCommand is cobra's message in one line, with what to do.
func (p Program) unknownCommand(message string) string {
	what, guesses, _ := strings.Cut(message, "\n")
	if names := strings.Fields(guesses); len(names) > 4 { // "Did you mean this?"
		return what + "; did you mean " + strings.Join(names[4:], " or ") + "?"
	}
	return what + "; " + p.Root.Name() + " --help lists the commands"
}

// Prepare has a root command say what is wrong as all others do, and gives it help.
func Prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.SetHelpCommand(newHelpCommand(root))
}

// newHelpCommand is cobra's, but that a command that is not there is an error.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				what, _, _ := strings.Cut(err.Error(), "\n") // and guesses
				return Usagef("%s", what)                    // Run says where the commands are listed
			}
			if len(rest) > 0 {
				return Usagef("%q has no command %q; see %[1]s --help", cmd.CommandPath(), rest[0])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			cmd, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []cobra.Completion
			for _, c := range cmd.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// ExactArgs is cobra.ExactArgs with a usage error that names what is missing.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usagef("%s is missing: %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return Usagef("%q is too much: %s", args[len(names)], cmd.UseLine())
		case slices.Contains(args, ""):
			return Usagef("%s is empty: %s", names[slices.Index(args, "")], cmd.UseLine())
		}
		return nil
	}
}

// AtMostArgs is ExactArgs for arguments that may be left out.
func AtMostArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return ExactArgs(names[:min(len(args), len(names))]...)(cmd, args)
	}
}
