package cmdline

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// program has commands that end in every way.
func program() *cobra.Command {
	root := &cobra.Command{Use: "prog"}
	SetUp(root)
	for name, err := range map[string]error{
		"good": nil, "bad": errors.New("it broke\x1b[2J"), "silent": ErrSilent,
		"config": WithCode(78, errors.New("there is none")), "wrong": Usagef("--rate %s: no rate", "x"),
	} {
		root.AddCommand(&cobra.Command{Use: name, Args: ExactArgs(), RunE: func(*cobra.Command, []string) error { return err }})
	}
	list := &cobra.Command{Use: "list NAME", Args: ExactArgs("NAME")}
	format := AddOutputFlag(list, Wide)
	list.Flags().Uint8("most", 0, "")
	list.Flags().IntSlice("sizes", nil, "")
	list.Flags().Bool("once", false, "")
	list.Flags().Duration("every", 0, "")
	list.Flags().Float64("part", 0, "")
	list.RunE = func(cmd *cobra.Command, args []string) error {
		return PrintJSON(cmd.OutOrStdout(), map[string]any{"name": args[0], "format": *format})
	}
	root.AddCommand(list)
	return root
}

func TestRun(t *testing.T) {
	for _, tc := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"good", 0, "", ""},
		{"bad", Failed, "", "prog: it broke\\x1b[2J\n"},
		{"silent", Failed, "", ""},
		{"config", 78, "", "prog: there is none\n"},
		{"wrong", Usage, "", "prog: --rate x: no rate\n"},
		{"nope", Usage, "", "prog: unknown command \"nope\" for \"prog\"; prog --help lists the commands\n"},
		{"goof", Usage, "", "prog: unknown command \"goof\" for \"prog\"; did you mean good?\n"},
		{"help nope", Usage, "", "prog: unknown command \"nope\" for \"prog\"; prog --help lists the commands\n"},
		{"help good more", Usage, "", "prog: \"prog good\" has no command \"more\"; see prog good --help\n"},
		{"good --fast", Usage, "", "prog: unknown flag: --fast (see prog good --help)\n"},
		{"list web --onc", Usage, "", "prog: unknown flag: --onc; did you mean --once? (see prog list --help)\n"},
		{"list web --ouptut json", Usage, "", "prog: unknown flag: --ouptut; did you mean --output? (see prog list --help)\n"},
		{"list web -x", Usage, "", "prog: unknown shorthand flag: 'x' in -x (see prog list --help)\n"},
		{"good more", Usage, "", "prog: unexpected argument \"more\": prog good [flags]\n"},
		{"list", Usage, "", "prog: NAME is missing: prog list NAME [flags]\n"},
		{"list web -o wide", 0, "{\n  \"format\": \"wide\",\n  \"name\": \"web\"\n}\n", ""},
		{"list web -o yaml", Usage, "", "prog: invalid argument \"yaml\" for \"-o, --output\" flag: \"yaml\" is not table or json or wide (see prog list --help)\n"},
		{"completion", Usage, "", "prog: a shell (bash, zsh, fish, powershell) is missing: prog completion [flags]\n"},
		{"completion csh", Usage, "", "prog: \"csh\" is no shell of prog completion: there are bash, zsh, fish and powershell\n"},
		{"list --most -1", Usage, "", "prog: invalid argument \"-1\" for \"--most\" flag: \"-1\" is not a whole number, 0 or more (see prog list --help)\n"},
		{"list --most 300", Usage, "", "prog: invalid argument \"300\" for \"--most\" flag: \"300\" is too large or too small (see prog list --help)\n"},
		{"list --sizes 64,x", Usage, "", "prog: invalid argument \"64,x\" for \"--sizes\" flag: \"x\" is not a whole number (see prog list --help)\n"},
		{"list --once=maybe", Usage, "", "prog: invalid argument \"maybe\" for \"--once\" flag: \"maybe\" is not true or false (see prog list --help)\n"},
		{"list --every 1", Usage, "", "prog: invalid argument \"1\" for \"--every\" flag: \"1\" is not a duration; write for example 500ms or 2s (see prog list --help)\n"},
		{"list --every 1x", Usage, "", "prog: invalid argument \"1x\" for \"--every\" flag: \"1x\" is not a duration; write for example 500ms or 2s (see prog list --help)\n"},
		{"list --part half", Usage, "", "prog: invalid argument \"half\" for \"--part\" flag: \"half\" is not a number (see prog list --help)\n"},
	} {
		var stdout, stderr bytes.Buffer
		if code := Run(program(), strings.Fields(tc.args), &stdout, &stderr); code != tc.code || stdout.String() != tc.stdout || stderr.String() != tc.stderr {
			t.Errorf("%s: %d, %q, %q, want %d, %q, %q", tc.args, code, stdout.String(), stderr.String(), tc.code, tc.stdout, tc.stderr)
		}
	}
}

// TestInterrupted: who interrupts a command is told so.
func TestInterrupted(t *testing.T) {
	root := program()
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
		case <-time.After(time.Minute):
		}
		return cmd.Context().Err()
	}
	var stdout, stderr bytes.Buffer
	if code := Run(root, nil, &stdout, &stderr); code != Failed || stderr.String() != "prog: interrupted\n" {
		t.Errorf("%d, %q", code, stderr.String())
	}
}

// TestSignals: a signal ends a command, unless nohup has it ignored. SIGINT ends it in any
// case: shells start background jobs with that ignored.
func TestSignals(t *testing.T) {
	run := func(sent syscall.Signal, patience time.Duration) (ended bool) {
		root := program()
		root.RunE = func(cmd *cobra.Command, _ []string) error {
			if err := syscall.Kill(os.Getpid(), sent); err != nil {
				return err
			}
			select {
			case <-cmd.Context().Done():
				ended = true
			case <-time.After(patience):
			}
			return nil
		}
		Run(root, nil, &bytes.Buffer{}, &bytes.Buffer{}, syscall.SIGHUP)
		return ended
	}
	// Under nohup the test itself has it ignored.
	if !signal.Ignored(syscall.SIGHUP) && !run(syscall.SIGHUP, time.Minute) {
		t.Error("it goes on")
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
	defer signal.Reset(syscall.SIGHUP, syscall.SIGINT)
	if run(syscall.SIGHUP, 100*time.Millisecond) {
		t.Error("it ends, though it was told to ignore that")
	}
	if !run(syscall.SIGINT, time.Minute) {
		t.Error("SIGINT is ignored")
	}
}
