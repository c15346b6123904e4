// Package cli holds weir's commands, one file each. Data goes to standard
// output, everything else to standard error.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 78 an agent that has no configuration yet.
package cli

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

	"github.com/weir-project/weir/internal/config"
)

// version is set when a release is built.
var version = "dev"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitUnconfigured is EX_CONFIG of sysexits(3): the unit does not try again.
	exitUnconfigured = 78
)

// usageError is a command that was called wrongly.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// errSilent ends a command with exit code 1 after it has said everything
// itself.
var errSilent = errors.New("failed")

// Run runs one command line and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	var none *unconfiguredError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errSilent):
		return exitFailed
	case strings.HasPrefix(err.Error(), "unknown command"):
		what, guesses, _ := strings.Cut(err.Error(), "\n")
		if names := strings.Fields(guesses); len(names) > 4 { // cobra's "Did you mean this?"
			what += "; did you mean " + strings.Join(names[4:], " or ") + "?"
		} else {
			what += "; weir --help lists the commands"
		}
		fmt.Fprintf(stderr, "weir: %s\n", printable(what))
		return exitUsage
	case errors.As(err, &none):
		fmt.Fprintf(stderr, "weir: %s\n", printableLines(err.Error()))
		return exitUnconfigured
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "weir: %s\n", printableLines(err.Error()))
		return exitUsage
	default:
		fmt.Fprintf(stderr, "weir: %s\n", printableLines(err.Error()))
		return exitFailed
	}
}

// global are the flags of all commands.
type global struct {
	socket string
}

// Command is the program with all its commands, for whoever writes about them.
func Command() *cobra.Command { return newRoot() }

func newRoot() *cobra.Command {
	g := &global{}
	root := &cobra.Command{
		Use:   "weir",
		Short: "Share a host's network uplink between its containers",
		Long: `Weir gives every container its weight, guaranteed minimum and maximum on the
host's uplink, from labels, adjusted as containers start and stop.

Start the agent once (weir agent --uplink eth0 --rate 100mbit), put labels on
containers (docker run --label weir.weight=200 --label weir.min=10mbit ...),
and watch (weir top).`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&g.socket, "socket", config.DefaultSocket, "Unix socket of the agent")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.SetHelpCommand(newHelpCommand(root))
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

// newHelpCommand is cobra's, but that a command that is not there is an error.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				what, _, _ := strings.Cut(err.Error(), "\n") // and guesses
				return usagef("%s", what)                    // Run says where the commands are listed
			}
			if len(rest) > 0 {
				return usagef("%q has no command %q; see %[1]s --help", cmd.CommandPath(), rest[0])
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

// exactArgs is cobra.ExactArgs with a usage error that names what is missing.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing: %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return usagef("%q is too much: %s", args[len(names)], cmd.UseLine())
		case slices.Contains(args, ""):
			return usagef("%s is empty: %s", names[slices.Index(args, "")], cmd.UseLine())
		}
		return nil
	}
}

// atMostArgs is exactArgs for arguments that may be left out.
func atMostArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return exactArgs(names[:min(len(args), len(names))]...)(cmd, args)
	}
}

// output is the flag -o of commands that list.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
	outputWide  output = "wide" // a table with more, where there is more
)

// outputFlag is an output as a flag of a command that knows some of them.
type outputFlag struct {
	output *output
	known  []string
}

func (f outputFlag) String() string { return string(*f.output) }

// Set implements pflag.Value.
func (f outputFlag) Set(s string) error {
	if !slices.Contains(f.known, s) {
		return fmt.Errorf("%q is not %s", s, strings.Join(f.known, " or "))
	}
	*f.output = output(s)
	return nil
}

// Type implements pflag.Value.
func (f outputFlag) Type() string { return strings.Join(f.known, "|") }

// addOutputFlag adds -o to a command that prints tables, JSON and what more it
// knows.
func addOutputFlag(cmd *cobra.Command, more ...output) *output {
	o := outputTable
	f := outputFlag{&o, []string{string(outputTable), string(outputJSON)}}
	for _, m := range more {
		f.known = append(f.known, string(m))
	}
	cmd.Flags().VarP(f, "output", "o", "how to print: "+strings.Join(f.known, " or "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.known, cobra.ShellCompDirectiveNoFileComp))
	return &o
}
