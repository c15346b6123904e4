package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
)

func newTokenCommand() *cobra.Command {
	var path, roleName string
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for the API over the network, or for the dashboard",
		Long: `Make a token and print it: for a program on another host that uses the agent's API, or
for changes on the dashboard. The file of tokens gets its name, its role and its hash,
not the token itself: keep what is printed.

The agent reads the file again when it changes. To revoke a token, delete its line.`,
		Example: `  weir token hub
  weir token me --role admin`,
		Args: cmdline.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			role, err := access.ParseRole(roleName)
			if err != nil {
				return cmdline.Usagef("--role: %q %w", roleName, err)
			}
			token, err := access.AddToken(path, args[0], role)
			switch {
			case errors.Is(err, access.ErrName):
				return cmdline.WithCode(cmdline.Usage, err)
			case errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("%w: make its folder (mkdir %s), or write another file, which the agent reads if tokens in its config file names it (--file)", err, filepath.Dir(path))
			case errors.Is(err, fs.ErrPermission):
				return fmt.Errorf("%w: run as root (sudo)", err)
			case err != nil:
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), token); err != nil {
				return fmt.Errorf("print the token: %w: delete the line of %s in %s, and make another one", err, args[0], path)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s may %s; delete its line in %s to revoke it\n", args[0], roleWords[role], path)
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&path, "file", config.DefaultTokensPath, "file of tokens")
	cmd.Flags().StringVar(&roleName, "role", access.Read.String(), "read, or admin to change policies")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{access.Read.String(), access.Admin.String()}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

var roleWords = map[access.Role]string{access.Read: "read everything", access.Admin: "read everything and change policies"}
