// Package cli holds weir-edge's commands. Data goes to standard output, everything
// else to standard error.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
)

// version is set when a release is built.
var version = "dev"

const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a command that was called wrongly.
type usageError struct{ error }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Run runs one command line and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := NewRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var usage *usageError
	message, unknown := err.Error(), strings.HasPrefix(err.Error(), "unknown command")
	if unknown {
		message = unknownCommand(message)
	}
	fmt.Fprintf(stderr, "weir-edge: %s\n", printable(message))
	if unknown || errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// unknownCommand is cobra's message in one line, with what to do.
func unknownCommand(message string) string {
	what, guesses, _ := strings.Cut(message, "\n")
	if names := strings.Fields(guesses); len(names) > 4 { // "Did you mean this?"
		return what + "; did you mean " + strings.Join(names[4:], " or ") + "?"
	}
	return what + "; weir-edge --help lists the commands"
}

// DefaultSocket is where weir-edge listens.
const DefaultSocket = "/run/weir/edge.sock"

// global are the flags of all commands.
type global struct{ socket string }

// NewRoot is the whole program.
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
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&g.socket, "socket", DefaultSocket, "Unix socket of weir-edge")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.SetHelpCommand(newHelpCommand(root))
	root.AddCommand(
		newRunCommand(g),
		newDeployCommand(g),
		newPushCommand(g),
		newServicesCommand(g),
		newRemoveCommand(g),
		newProfileCommand(),
		newPsCommand(g),
		newTopCommand(g),
		newNodesCommand(g),
		newExplainCommand(g),
		newEventsCommand(g),
		newReplayCommand(),
		newProxyImageCommand(),
		newDownCommand(g),
		newRepositoryCommand(),
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
				return errors.New(what)
			}
			if len(rest) > 0 {
				return usagef("%q has no command %q; see %[1]s --help", cmd.CommandPath(), rest[0])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
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
		}
		return nil
	}
}

// addOutputFlag adds -o to a command that prints tables and JSON.
func addOutputFlag(cmd *cobra.Command) *output {
	o := output("table")
	cmd.Flags().VarP(&o, "output", "o", "how to print: table or json")
	return &o
}

type output string

func (o *output) String() string { return string(*o) }

// Set implements pflag.Value.
func (o *output) Set(text string) error {
	if !slices.Contains([]string{"table", "json"}, text) {
		return fmt.Errorf("%q is not table or json", text)
	}
	*o = output(text)
	return nil
}

// Type implements pflag.Value.
func (o *output) Type() string { return "table|json" }

func (o *output) json() bool { return *o == "json" }

func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// printable makes text that others chose safe for a terminal: what a terminal might
// obey is replaced.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// oneLine is printable for what has a line of its own.
func oneLine(text string) string { return strings.ReplaceAll(printable(text), "\n", " ") }
