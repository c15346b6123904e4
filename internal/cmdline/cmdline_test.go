package cmdline

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

var errOwn = errors.New("not configured")

func program() Program {
	root := &cobra.Command{Use: "try", RunE: func(*cobra.Command, []string) error { return nil }}
	Prepare(root)
	list := &cobra.Command{Use: "list NAME", Args: ExactArgs("NAME")}
	format := AddOutputFlag(list)
	list.RunE = func(cmd *cobra.Command, args []string) error {
		switch args[0] {
		case "silent":
			return ErrSilent
		case "own":
			return fmt.Errorf("begin: %w", errOwn)
		case "hostile":
			return errors.New("no \x1b[2J here\nsecond")
		}
		if *format == OutputJSON {
			return PrintJSON(cmd.OutOrStdout(), args)
		}
		return nil
	}
	root.AddCommand(list, &cobra.Command{Use: "show [NAME]", Args: AtMostArgs("NAME"), RunE: func(*cobra.Command, []string) error { return nil }})
	return Program{Root: root, ExitCode: func(err error) int {
		if errors.Is(err, errOwn) {
			return 78
		}
		return 0
	}}
}

func TestRun(t *testing.T) {
	for _, test := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"list", "a"}, 0, "", ""},
		{[]string{"list", "a", "-o", "json"}, 0, "[\n  \"a\"\n]\n", ""},
		{[]string{"list", "a", "-o", "yaml"}, ExitUsage, "", `"yaml" is not table or json`},
		{[]string{"list"}, ExitUsage, "", "try: NAME is missing: try list NAME"},
		{[]string{"list", ""}, ExitUsage, "", "try: NAME is empty: try list NAME"},
		{[]string{"list", "a", "b"}, ExitUsage, "", `try: "b" is too much: try list NAME`},
		{[]string{"show"}, 0, "", ""},
		{[]string{"show", "a", "b"}, ExitUsage, "", "is too much"},
		{[]string{"lis"}, ExitUsage, "", "did you mean list?"},
		{[]string{"fly"}, ExitUsage, "", "try --help lists the commands"},
		{[]string{"help", "fly"}, ExitUsage, "", "try --help lists the commands"},
		{[]string{"help", "list", "fly"}, ExitUsage, "", `has no command "fly"`},
		{[]string{"list", "--fly"}, ExitUsage, "", "see try list --help"},
		{[]string{"list", "silent"}, ExitFailed, "", ""},
		{[]string{"list", "own"}, 78, "", "try: begin: not configured"},
		{[]string{"list", "hostile"}, ExitFailed, "", "no \\x1b[2J here\nsecond\n"},
	} {
		var stdout, stderr bytes.Buffer
		code := program().Run(test.args, &stdout, &stderr)
		if code != test.code || stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) || test.stderr == "" && stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, %q on stdout, %q on stderr", test.args, code, stdout.String(), stderr.String())
		}
	}
}

// TestSignals: a signal ends a command, unless nohup has it ignored.
func TestSignals(t *testing.T) {
	run := func(patience time.Duration) (ended bool) {
		p := program()
		p.Signals = []os.Signal{syscall.SIGHUP}
		p.Root.RunE = func(cmd *cobra.Command, _ []string) error {
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				return err
			}
			select {
			case <-cmd.Context().Done():
				ended = true
			case <-time.After(patience):
			}
			return nil
		}
		p.Run(nil, &bytes.Buffer{}, &bytes.Buffer{})
		return ended
	}
	if !run(time.Minute) {
		t.Error("it goes on")
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if run(100 * time.Millisecond) {
		t.Error("it ends, though it was told to ignore that")
	}
}
