// Package cmdline is what the commands of all programs share: how they are run, how they are
// called, and how they print.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, and those of WithCode.
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-project/weir/internal/share/policy"
)

// Exit codes.
const (
	Failed = 1
	Usage  = 2
)

// codedError is an error for which a command ends with an exit code.
type codedError struct {
	error
	code int
}

func (e *codedError) Unwrap() error { return e.error }

// WithCode returns an error that ends a command with an exit code.
func WithCode(code int, err error) error { return &codedError{err, code} }

// Usagef returns an error in how a command was called.
func Usagef(format string, args ...any) error { return WithCode(Usage, fmt.Errorf(format, args...)) }

// ErrSilent ends a command with exit code 1 after it has said everything itself.
var ErrSilent = errors.New("failed")

// errInterrupted ends a command that was stopped before it was done.
var errInterrupted = errors.New("interrupted")

// ExitCode returns the exit code of a command that returned err.
func ExitCode(err error) int {
	var coded *codedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.code
	}
	return Failed
}

// SetUp makes a command a program whose messages Run prints.
func SetUp(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%w%s (see %s --help)", plainly(err), guessFlag(cmd, err), cmd.CommandPath())
	})
	root.SetHelpCommand(newHelpCommand(root))
}

// AddGroup adds commands to a program below a title of its help.
func AddGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, command := range commands {
		command.GroupID = title
	}
	root.AddCommand(commands...)
}

// guessFlag returns which flag of a command a mistyped one probably is, or "".
func guessFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	name, found := policy.Nearest(unknown.GetSpecifiedName(), names)
	if !found {
		return ""
	}
	return "; did you mean --" + name + "?"
}

// durationError is what time.ParseDuration says of a value.
var durationError = regexp.MustCompile(`time: .*duration ("[^"]*")$`)

// plainly words the error of a flag without the terms of the standard library.
func plainly(err error) error {
	if text := durationError.ReplaceAllString(err.Error(), "${1} is not a duration; write for example 500ms or 2s"); text != err.Error() {
		return errors.New(text)
	}
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return err
	}
	meant := "a number"
	switch number.Func {
	case "Atoi", "ParseInt":
		meant = "a whole number"
	case "ParseUint":
		meant = "a whole number, 0 or more"
	case "ParseBool":
		meant = "true or false"
	}
	what := "is not " + meant
	if errors.Is(err, strconv.ErrRange) {
		what = "is too large or too small"
	}
	return errors.New(strings.Replace(err.Error(), number.Error(), strconv.Quote(number.Num)+" "+what, 1))
}

// Run runs one command line of a program that was set up, until it is interrupted, by
// SIGTERM or by one of more signals, and returns the exit code.
func Run(root *cobra.Command, args []string, stdout, stderr io.Writer, more ...os.Signal) int {
	// A signal that is ignored, as nohup does with SIGHUP, stays ignored. Not so SIGINT: a shell
	// makes its background jobs ignore it, and a user who sends it to one means it.
	ends := append(slices.DeleteFunc(more, signal.Ignored), os.Interrupt, syscall.SIGTERM)
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	refuseOtherShells(root, args)
	err := root.ExecuteContext(ctx)
	if err != nil && strings.HasPrefix(err.Error(), "unknown command") {
		err = unknownCommand(root, err)
	}
	if err != nil && ctx.Err() != nil && err.Error() == context.Canceled.Error() {
		err = errInterrupted
	}
	if err != nil && !errors.Is(err, ErrSilent) {
		fmt.Fprintf(stderr, "%s: %s\n", programName(root), PrintableLines(err.Error()))
	}
	return ExitCode(err)
}

// programName returns the program that the user called: `weir` of `weir sdn`.
func programName(root *cobra.Command) string {
	name, _, _ := strings.Cut(root.DisplayName(), " ")
	return name
}

// unknownCommand words cobra's error in one line, with what to do.
func unknownCommand(root *cobra.Command, err error) error {
	what, guesses, _ := strings.Cut(err.Error(), "\n")
	if names := strings.Fields(guesses); len(names) > 4 { // "Did you mean this?"
		return Usagef("%s; did you mean %s?", what, strings.Join(names[4:], " or "))
	}
	if words := strings.Split(what, `"`); len(words) > 1 { // git-like: weir edge is weir-edge
		program := programName(root) + "-" + words[1]
		if _, err := BesideThis(program); err == nil {
			return Usagef("%s; that is a program of its own: %s", what, program)
		}
	}
	return Usagef("%s; %s --help lists the commands", what, root.DisplayName())
}

// newHelpCommand returns cobra's help command, for which an unknown command is an error.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				// Without guesses, which may be of commands elsewhere; Run says where all are listed.
				what, _, _ := strings.Cut(err.Error(), "\n")
				return errors.New(what)
			}
			if cmd.DisableFlagParsing { // another program knows its commands
				cmd.HelpFunc()(cmd, rest)
				return nil
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

// refuseOtherShells makes `completion SHELL` fail for an unknown shell. Cobra prints help then,
// which users would write into a file.
func refuseOtherShells(root *cobra.Command, args []string) {
	root.InitDefaultCompletionCmd(args...)
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args = ExactArgs("a shell (bash, zsh, fish, powershell)")
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			return Usagef("%q is no shell of %s: there are bash, zsh, fish and powershell", args[0], cmd.CommandPath())
		}
	}
}

// ExactArgs is cobra.ExactArgs with a usage error that names the missing argument.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usagef("%s is missing: %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return Usagef("unexpected argument %q: %s", args[len(names)], cmd.UseLine())
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
