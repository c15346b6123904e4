package cmdline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// BesideThis returns the path of a program that is installed in the folder of this one.
// Never from PATH: this one may run as root.
func BesideThis(program string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(strings.TrimSuffix(self, " (deleted)"))
	}
	if err != nil {
		return "", fmt.Errorf("find the folder of this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), program)
	if _, err := os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("it is not installed")
		}
		return "", fmt.Errorf("%s is needed in %s: %w; install the package %s", program, filepath.Dir(path), err, program)
	}
	return path, nil
}

// NewSibling returns a command that another program, installed beside this one, runs in its
// place, as git does. It is started with the arguments leading and those of the command, under
// the name that the user typed. Help and completion are that program's, too.
func NewSibling(use, short, program, name string, leading ...string) *cobra.Command {
	run := func(words ...string) error {
		path, err := BesideThis(program)
		if err != nil {
			return err
		}
		if err := unix.Exec(path, append([]string{name}, words...), os.Environ()); err != nil {
			return fmt.Errorf("start %s: %w", path, err)
		}
		return nil
	}
	cmd := &cobra.Command{
		Use: use, Short: short, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return run(slices.Concat(leading, args)...)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
			_ = run(slices.Concat([]string{os.Args[1]}, leading, args, []string{toComplete})...) // without that program there is nothing to offer
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if err := run(slices.Concat(leading, args, []string{"--help"})...); err != nil {
			cmd.PrintErrln(err)
		}
	})
	return cmd
}

// CalledAs returns the name under which a program shows itself: the one that [NewSibling] gave
// it, or its own.
func CalledAs(argv0, sibling, own string) string {
	if argv0 == sibling {
		return sibling
	}
	return own
}
