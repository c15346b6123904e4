package cli

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/cmdline"
)

// connection are the flags of commands that ask an agent, here or on another host.
type connection struct {
	global                       *global
	remote                       string
	ca, certificate, key, tokens string
}

// addConnectionFlags adds them to a command.
func addConnectionFlags(cmd *cobra.Command, g *global) *connection {
	c := &connection{global: g}
	flags := cmd.Flags()
	flags.StringVar(&c.remote, "remote", "", "ask the agent of another host: https://HOST:PORT, where it listens")
	flags.StringVar(&c.tokens, "token-file", "", "with --remote: file with the token to show")
	flags.StringVar(&c.ca, "ca", "", "with --remote: file with the authorities to trust, PEM (default: the system's)")
	flags.StringVar(&c.certificate, "cert", "", "with --remote: file with the certificate to show, PEM")
	flags.StringVar(&c.key, "key", "", "with --remote: file with its key, PEM")
	return c
}

// open returns a client of the agent that the flags name.
func (c *connection) open() (*client.Client, error) {
	if c.remote == "" {
		if c.ca+c.certificate+c.key+c.tokens != "" {
			return nil, cmdline.Usagef("--token-file, --ca, --cert and --key are for an agent on another host: add --remote https://HOST:PORT")
		}
		return client.Unix(c.global.socket), nil
	}
	if (c.certificate == "") != (c.key == "") {
		return nil, cmdline.Usagef("--cert and --key belong together: give both, or none")
	}
	trust, err := client.LoadTLS(c.ca, c.certificate, c.key)
	if err != nil {
		return nil, err
	}
	options := client.Options{TLS: trust}
	if c.tokens != "" {
		data, err := os.ReadFile(c.tokens)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		options.Token = string(bytes.TrimSpace(data))
	}
	agent, err := client.New(c.remote, options)
	if err != nil {
		return nil, cmdline.WithCode(cmdline.Usage, fmt.Errorf("ask another host: %w", err))
	}
	return agent, nil
}

// completeNames offers the names of running containers to the shell.
func (c *connection) completeNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	agent, err := c.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	containers, err := agent.Containers(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, container := range containers {
		names = append(names, cobra.CompletionWithDesc(container.Name, fmt.Sprintf("%s, %s", container.Runtime, container.Mode)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
